//! What only maintenance uses.

use std::collections::BTreeMap;

use esker_base::Nanos;

use crate::omf::root::SegmentRow;
use crate::omf::summary::Item;
use crate::segment::Writer;
use crate::space::Class;
use crate::types::id::{DriveIndex, SegmentId, SlotIndex};

/// What only maintenance uses.
#[derive(Default)]
pub(crate) struct Keeper {
    /// The open segments.
    pub(crate) writers: BTreeMap<Class, Writer>,
    /// The seal copies that the last checkpoint refers to.
    pub(crate) durable_seals: BTreeMap<SegmentId, u8>,
    /// Segments that cannot be cleaned: something in them is lost, or a step back would be taken.
    pub(crate) given_up: Vec<SegmentId>,
    /// Segments with pages of the map that the next checkpoint writes elsewhere.
    pub(crate) marked: Vec<SegmentId>,
    pub(crate) scrub: Scrub,
    /// Chunks that are being rebuilt.
    pub(crate) rebuild: Rebuild,
    /// The segment from which on a drive that returned is to be verified.
    pub(crate) returned_next: SegmentId,
}

/// How far a scrub is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrub {
    pub(crate) is_running: bool,
    pub(crate) next: SegmentId,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
}

/// What is being rebuilt, and what was.
#[derive(Default)]
pub(crate) struct Rebuild {
    pub(crate) jobs: Vec<Job>,
    /// Segments whose chunks cannot be rebuilt: what lives in them is to be moved.
    pub(crate) unfit: Vec<SegmentId>,
    /// Chunks rebuilt since the last checkpoint.
    pub(crate) unpublished: u64,
    /// Bytes of chunks rebuilt since it began, and when that was.
    pub(crate) bytes: u64,
    pub(crate) began: Option<Nanos>,
}

impl Rebuild {
    pub(crate) fn has(&self, id: SegmentId) -> bool {
        self.jobs.iter().any(|job| job.row.id == id)
    }
}

/// Chunks of a segment on their way to other slots.
pub(crate) struct Job {
    /// The segment as it was.
    pub(crate) row: SegmentRow,
    /// The checksums of the units of each chunk that can be read.
    pub(crate) seals: Vec<Option<Vec<u32>>>,
    pub(crate) targets: Vec<Target>,
    pub(crate) next_row: u32,
}

/// Where a chunk goes.
pub(crate) struct Target {
    pub(crate) chunk: usize,
    pub(crate) to: (DriveIndex, SlotIndex),
    /// Checksums of the units that were written.
    pub(crate) unit_crcs: Vec<u32>,
    /// The blocks in it: row, and byte in the unit.
    pub(crate) blocks: Vec<(u32, usize, Item)>,
}
