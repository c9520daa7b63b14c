//! The state that only maintenance uses.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use esker_base::Nanos;
use esker_base::sync::MutexGuard;

use crate::engine::{Shared, Viewers};
use crate::omf::mark::Mark;
use crate::omf::root::{ScrubRow, SegmentRow};
use crate::omf::summary::Item;
use crate::segment::Writer;
use crate::space::Class;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, SegmentId, Seqno, SlotIndex};

/// The keeper, held: whoever has it may do maintenance. A panic meanwhile stops the pool.
pub(crate) struct Keeping<'a> {
    shared: &'a Shared,
    keeper: MutexGuard<'a, Keeper>,
}

impl Shared {
    /// Waits for the keeper.
    pub(crate) fn keep(&self) -> Result<Keeping<'_>, VolumeError> {
        let keeping = Keeping { shared: self, keeper: self.keeper.lock() };
        self.check_sound(&self.core.lock())?;
        Ok(keeping)
    }

    /// The keeper, unless somebody has it.
    pub(crate) fn try_keep(&self) -> Option<Keeping<'_>> {
        Some(Keeping { shared: self, keeper: self.keeper.try_lock()? })
    }
}

impl Deref for Keeping<'_> {
    type Target = Keeper;
    fn deref(&self) -> &Keeper {
        &self.keeper
    }
}

impl DerefMut for Keeping<'_> {
    fn deref_mut(&mut self) -> &mut Keeper {
        &mut self.keeper
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return self.shared.fail("a thread panicked in the middle of maintenance");
        }
        let Keeper { scrub, rebuild, is_vain, .. } = &*self.keeper;
        let (scrub, is_vain) = (scrub.clone(), *is_vain);
        let (began, bytes) = (rebuild.began, rebuild.bytes);
        *self.shared.progress.lock() = Progress { scrub, began, bytes, is_vain };
    }
}

/// How far maintenance is, for those who do not wait for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) scrub: Scrub,
    /// When a rebuild began, and the bytes of chunks that were rebuilt since.
    pub(crate) began: Option<Nanos>,
    pub(crate) bytes: u64,
    /// Cleaning gains nothing.
    pub(crate) is_vain: bool,
}

/// State that only maintenance uses.
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
    /// After an unclean end: the segments that were written last, the newest at the end, until they are verified.
    pub(crate) window: Vec<SegmentId>,
    /// The drive that returned and is being verified, and the segment from which on it is.
    pub(crate) returned: Option<(DriveIndex, SegmentId)>,
    pub(crate) lifespan: Lifespan,
    /// Memory of what was packed last, to be used again.
    pub(crate) packing: Vec<u8>,
    /// Segments that a checkpoint takes for pages of the map, lately.
    pub(crate) checkpoint_segments: u64,
    pub(crate) gain: Gain,
    /// Cleaning gained nothing when it was last looked at.
    pub(crate) is_vain: bool,
    /// The viewers of lineages, as they were when those were swept last.
    pub(crate) viewers: Viewers,
    /// The last mark of the write buffer's end, and when it was written.
    pub(crate) mark: Mark,
    pub(crate) marked_at: Option<Nanos>,
    /// Since when a sweep is due; and since when blocks that may hide something wait in the write buffer.
    pub(crate) sweep_since: Option<Nanos>,
    pub(crate) buffered_since: Option<Nanos>,
}

/// The content of segments: the next record, the bytes that live, and those that came from the log.
pub(crate) type Content = (Seqno, u64, u64);

/// Checkpoints after which cleaning is given up that gains nothing.
const VAIN_MAX: u32 = 8;

/// The gain of cleaning. In a pool that is full, the same blocks could be moved to and fro for ever.
#[derive(Default)]
pub(crate) struct Gain {
    of: Content,
    most_free: i64,
    /// Checkpoints in turn that made no more segments free.
    vain: u32,
}

impl Gain {
    /// So many segments were free when cleaning was followed by a checkpoint.
    pub(crate) fn note(&mut self, of: Content, free: i64) {
        let is_vain = of == self.of && free <= self.most_free;
        let vain = if is_vain { self.vain + 1 } else { 0 };
        let most_free = if of == self.of { free.max(self.most_free) } else { free };
        *self = Gain { of, most_free, vain };
    }

    /// Whether cleaning has nothing to gain before the content changes.
    pub(crate) fn is_vain(&self, of: Content) -> bool {
        of == self.of && self.vain >= VAIN_MAX
    }
}

/// How long segments of hot blocks live, in records: an average of those that were cleaned last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifespan(pub(crate) u64);

impl Default for Lifespan {
    /// Unknown: everything is hot.
    fn default() -> Lifespan {
        Lifespan(u64::MAX)
    }
}

impl Lifespan {
    /// A segment was cleaned after so many records.
    pub(crate) fn learn(&mut self, records: u64) {
        self.0 = match self.0 {
            u64::MAX => records,
            known => known - known / 8 + records / 8,
        };
    }

    /// Whether a version of this age is about as old as hot ones become.
    pub(crate) fn is_short(self, age: u64) -> bool {
        age <= self.0
    }

    /// Whether a version of this age has outlived hot ones so often that it will stay.
    pub(crate) fn is_long(self, age: u64) -> bool {
        age / 4 >= self.0
    }
}

/// How far a scrub is. Times are seconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrub {
    pub(crate) is_running: bool,
    /// It has time, and goes on when it would come too late otherwise: at this time, counted from 1970.
    pub(crate) due: Option<Duration>,
    pub(crate) next: SegmentId,
    /// When this pass began, or the last one; 0 for never.
    pub(crate) began: u64,
    /// When a pass was completed last; 0 for never.
    pub(crate) finished: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
}

impl Scrub {
    /// One that goes on from where another one was when the pool was closed.
    pub(crate) fn resume(row: ScrubRow) -> Scrub {
        let ScrubRow { began, finished, next } = row;
        let (is_running, due) = (began > finished, Some(Duration::ZERO));
        Scrub { is_running, due, next, began, finished, bytes: 0, errors: 0 }
    }

    pub(crate) fn row(&self) -> ScrubRow {
        ScrubRow { began: self.began, finished: self.finished, next: self.next }
    }
}

/// Segments that are being rebuilt, and the progress.
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
