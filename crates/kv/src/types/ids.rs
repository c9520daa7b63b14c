//! Ids of blocks, kvsets and leaves: each is given out once in the life of a KVDB, and hardly ever by another
//! one, because frames of one that was on its media before would pass for its own if they had its ids. The
//! upper half is the origin, drawn when the KVDB begins; the lower half counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares a type of ids. It is as small as its number, and no other id can be passed in its place.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$number> for $name {
            fn from(number: $number) -> $name {
                $name(number)
            }
        }
    };
}

id! {
    /// Id of a KVS.
    KvsId(u32)
}

id! {
    /// Id of a block: a segment of the log or a value block. Later blocks have higher ids.
    BlockId(u64)
}

id! {
    /// Id of a node of a tree: a leaf, or the root.
    LeafId(u64)
}

impl LeafId {
    /// The root of any tree. No leaf has this id.
    pub(crate) const ROOT: LeafId = LeafId(0);
}

id! {
    /// Id of a kvset.
    KvsetId(u64)
}

id! {
    /// Sequence number of a record: the order of all changes of a KVDB. It is also the age of a structure that
    /// holds records: that of the newest of them.
    Seqno(u64)
}

impl Seqno {
    /// Before all records. No record has this number.
    pub(crate) const ZERO: Seqno = Seqno(0);
    /// After all records.
    pub(crate) const MAX: Seqno = Seqno(u64::MAX);

    /// The number of the record after this one.
    pub(crate) fn next(self) -> Seqno {
        self.plus(1)
    }

    /// The number of the record `records` behind this one.
    pub(crate) fn plus(self, records: u32) -> Seqno {
        Seqno(self.0.saturating_add(records.into()))
    }
}

/// A sequence number that threads share: a thread that loads it sees all that was done before it was stored.
pub(crate) struct AtomicSeqno(AtomicU64);

impl AtomicSeqno {
    pub(crate) fn new(seqno: Seqno) -> AtomicSeqno {
        AtomicSeqno(AtomicU64::new(seqno.0))
    }

    pub(crate) fn load(&self) -> Seqno {
        Seqno(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn store(&self, seqno: Seqno) {
        self.0.store(seqno.0, Ordering::Release);
    }
}

/// Where a record is on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordAddress {
    /// The block that holds it.
    pub(crate) block: BlockId,
    /// Its offset in the block, in bytes.
    pub(crate) offset: u32,
}

impl RecordAddress {
    /// The address of a record that is in no block. No block has the id 0.
    pub(crate) const NOWHERE: RecordAddress = RecordAddress { block: BlockId(0), offset: 0 };
}

/// No KVDB has more ids at a time that it has given out and not named: a step takes them when it begins, and
/// names them when it commits.
const UNNAMED: u64 = 4096;

/// Gives out ids.
pub(crate) struct Ids(AtomicU64);

impl Ids {
    /// Where the ids of a new KVDB begin. Its uuid is the lot.
    pub(crate) fn begin(uuid: [u8; 16]) -> u64 {
        (Ids::lot(uuid) >> 1) << 32
    }

    /// Where those of a copy go on behind `last`, which counts on: the lower half is a KVS's id.
    pub(crate) fn begin_copy(uuid: [u8; 16], last: u64) -> u64 {
        let origin = Ids::origin_of(last) + 1 + (Ids::lot(uuid) >> 12);
        last.max(origin.min(u32::MAX.into()) << 32 | u64::from(Ids::count_of(last)))
    }

    /// 32 bits.
    fn lot(uuid: [u8; 16]) -> u64 {
        let [a, b, c, d, ..] = uuid;
        u32::from_le_bytes([a, b, c, d]).into()
    }

    /// Which KVDB, or which copy of one, has given out an id: the one that began there, as long as it has
    /// not given out four billion.
    pub(crate) fn origin_of(id: u64) -> u64 {
        id >> 32
    }

    /// How many ids had been given out there, this one included.
    pub(crate) fn count_of(id: u64) -> u32 {
        u32::try_from(id & u64::from(u32::MAX)).expect("32 bits")
    }

    /// Whether an id may yet be named when those up to `last` are taken.
    pub(crate) fn may_be_named_after(id: u64, last: u64) -> bool {
        id > last.saturating_sub(UNNAMED)
    }

    pub(crate) fn after(last: u64) -> Ids {
        Ids(AtomicU64::new(last))
    }

    /// Goes on in a KVDB whose manifest names ids up to `last`. An earlier process may have given out more, for
    /// structures that it did not come to name and that still lie on the media. None of these ids is given out
    /// again.
    pub(crate) fn reopen(last: u64) -> Ids {
        Ids::after(last + UNNAMED)
    }

    /// The next id, of the type that the caller needs: all types count together.
    pub(crate) fn next<Id: From<u64>>(&self) -> Id {
        Id::from(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
