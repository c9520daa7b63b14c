//! Streams: the purpose of a byte on a medium, and the placement id that its writes carry.
//!
//! A drive with data placement (NVMe TP4146) keeps data written with different ids in different
//! reclaim units, which it erases as a whole. One whose data is all dead is erased without copying
//! anything: data that dies together has to be written together. When a byte dies depends on its
//! stream:
//!
//! | stream | dies |
//! | --- | --- |
//! | log, which is the young values, and those that an ingest has written | when all that refers to a segment was spilled: soon, in the order of its writing |
//! | young keys | when their root is spilled, together with their values; later than the log where values are in the keys |
//! | old keys | when their leaf is compacted, split or collected: soon, because each step that moves a value of a leaf writes all its keys anew, and others write keys alone |
//! | old values | when most of a block is garbage, in no order: last. With them, a class's header, which stays |
//! | manifest | when its region is begun anew: in the order of its writing, a trickle, later than keys and sooner than old values |
//!
//! Data that dies before all that lies around it costs no copy. So long-lived data must have an id of its
//! own, and the manifest, which is little, is with old values until there is one for it alone.
//!
//! Invariants
//! 1. A stream is chosen where space is taken ([`Allocation`](crate::media::class::Allocation)); every
//!    write to that space carries its id.
//! 2. Both classes and the manifest follow one table: on devices that are parts of one drive, a
//!    stream is the same id everywhere.
//! 3. Id 0, where a drive also puts data written without one, has the data that lives longest.

use std::fmt;

use esker_device::PlacementId;
use serde::Serialize;

use crate::types::ids::LeafId;

/// Purpose of a byte on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// The durability log, whose segments are the young values.
    Log,
    /// Keys of the root.
    YoungKeys,
    /// Keys of the leaves.
    OldKeys,
    /// Values rewritten in key order.
    OldValues,
    /// The manifest, on a device of its own.
    Manifest,
}

/// The ids of the streams by how many a device offers, from 1 on. Each id more takes the streams
/// out of a shared one whose lifetimes are farthest from the rest; the others keep theirs.
const IDS: [[u16; Stream::ALL.len()]; 5] = [
    // log, young keys, old keys, old values, manifest
    [0, 0, 0, 0, 0],
    [1, 1, 1, 0, 0],
    [1, 1, 2, 0, 0],
    [1, 3, 2, 0, 0],
    [1, 3, 2, 0, 4],
];

impl Stream {
    /// All streams.
    pub const ALL: [Stream; 5] =
        [Stream::Log, Stream::YoungKeys, Stream::OldKeys, Stream::OldValues, Stream::Manifest];
    /// Those of a media class: all but the manifest.
    pub const OF_CLASSES: [Stream; 4] =
        [Stream::Log, Stream::YoungKeys, Stream::OldKeys, Stream::OldValues];

    /// The id that writes of this stream carry on a device that offers `handles` of them
    /// ([`Geometry::placement_handles`](esker_device::Geometry)): `None` when it offers none, and
    /// else below `handles`.
    ///
    /// More than five are not used. Streams express the engine's knowledge of lifetimes: all KVSs share
    /// the log, and how often the data of one will be overwritten is not known when it is written,
    /// while every handle in use keeps a reclaim unit half full.
    #[must_use]
    pub fn placement(self, handles: u16) -> Option<PlacementId> {
        let row = usize::from(handles).min(IDS.len()).checked_sub(1)?;
        Some(PlacementId(IDS[row][self as usize]))
    }

    /// The stream of the keys of a node: leaf 0 is the root.
    pub(crate) fn of_keys(leaf: LeafId) -> Stream {
        if leaf == LeafId::ROOT { Stream::YoungKeys } else { Stream::OldKeys }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Stream::Log => "log = young values",
            Stream::YoungKeys => "young keys",
            Stream::OldKeys => "old keys",
            Stream::OldValues => "old values",
            Stream::Manifest => "manifest",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_below_what_is_offered_and_none_is_left_out() {
        assert!(Stream::ALL.iter().all(|stream| stream.placement(0).is_none()));
        for handles in [1, 2, 3, 4, 5, 6, 8, 128, u16::MAX] {
            let ids = Stream::ALL.map(|stream| stream.placement(handles).unwrap().0);
            for id in 0..handles.min(5) {
                assert!(ids.contains(&id), "{id} of {handles}: {ids:?}");
            }
            assert!(ids.iter().all(|id| *id < handles), "{handles}: {ids:?}");
        }
    }

    #[test]
    fn values_that_stay_are_apart_from_what_dies_soon() {
        let id = |stream: Stream, handles| stream.placement(handles).unwrap();
        for handles in 2..9 {
            for soon in [Stream::Log, Stream::YoungKeys, Stream::OldKeys] {
                assert_ne!(id(soon, handles), id(Stream::OldValues, handles));
            }
        }
        assert!((3..9).all(|n| id(Stream::OldKeys, n) != id(Stream::Log, n)));
        assert!((4..9).all(|n| id(Stream::Log, n) != id(Stream::YoungKeys, n)));
        assert!((5..9).all(|n| id(Stream::Manifest, n) != id(Stream::OldValues, n)));
    }
}
