//! The size of the reserve of classes that are files: five quarters of what it may have to pay for while the file system
//! is full. `media/reserve.rs` keeps it.
//!
//! That is a log segment for deletes; the kvsets that the log becomes which was not ingested yet; the largest leaf, which
//! is there twice while its keys are merged, and the kvsets that a spill adds to all leaves; and two blocks of values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::media::class::Media;
use crate::media::classes::Classes;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tree::current::CurrentView;
use crate::tree::view::{Leaf, View};
use crate::types::class::MediaClass;
use crate::types::error::Result;
use crate::types::ids::BlockId;
use crate::types::options::Tuning;
use crate::values::block::ValueBlock;

/// Finds out how much the reserves of classes that are files need.
pub(crate) struct ReserveNeed {
    classes: Arc<Classes>,
    tuning: Tuning,
    /// The most bytes of log that waited to be ingested so far: the reserve is to bear as much.
    most_to_ingest: AtomicU64,
}

impl ReserveNeed {
    pub(crate) fn new(classes: Arc<Classes>, tuning: Tuning) -> ReserveNeed {
        ReserveNeed { classes, tuning, most_to_ingest: AtomicU64::new(0) }
    }

    /// Has each class that is a file keep as much in reserve as is of use now, `more` bytes of log to come included.
    pub(crate) fn keep(&self, view: &CurrentView, more: u64) -> Result<()> {
        if !self.classes.all().iter().any(|media| media.keeps_reserve()) {
            return Ok(());
        }
        let view = view.load();
        self.keep_for(&view, self.bytes_to_ingest(&view, more), None)
    }

    /// Has them keep exactly as much as the next opening needs. The KVDB closes, and its log takes no more than the
    /// `log_bytes` that it has.
    pub(crate) fn keep_last(&self, view: &View, log_bytes: u64) -> Result<()> {
        let used: u64 = self.classes.all().iter().map(|media| media.used_bytes()).sum();
        let used = used.saturating_sub(log_bytes);
        let most = self.most_to_ingest.load(Ordering::Relaxed).min(used / 8);
        self.keep_for(view, most.max(view.young_bytes()), Some(log_bytes))
    }

    /// The same, with so many bytes for kvsets that the log becomes.
    fn keep_for(&self, view: &View, ingested: u64, last: Option<u64>) -> Result<()> {
        let log_class = self.classes.staging().map_or(MediaClass::Capacity, |media| media.class);
        for media in self.classes.all().iter().filter(|media| media.keeps_reserve()) {
            let is_of_log = media.class == log_class;
            let ends = last.filter(|_| is_of_log).unwrap_or(0);
            let used = media.used_bytes().saturating_sub(ends);
            let (log, deletes) = match is_of_log {
                true => (ingested, self.bytes_to_delete(used)),
                false => (0, 0),
            };
            // Values are written anew by the block.
            let values = (2 * self.tuning.block_bytes).min(used / 8);
            let needed = log + deletes + values + self.largest_merge(view, media);
            media.keep_reserve(needed / 4 * 5, last.is_some())?;
        }
        Ok(())
    }

    /// The size of two log segments that deletes get, in bytes; of smaller ones where little is to be deleted.
    fn bytes_to_delete(&self, used: u64) -> u64 {
        let &Tuning { block_bytes, frame_bytes, allocation_bytes, .. } = &self.tuning;
        (2 * frame_bytes.max(block_bytes / 32)).min((used / 16).max(4 * allocation_bytes))
    }

    /// The most that the kvsets take which are not there yet, in bytes: no more than their log, nor than memtables.
    fn bytes_to_ingest(&self, view: &View, more: u64) -> u64 {
        let size = |block: Arc<ValueBlock>| (block.id, block.allocation.bytes());
        let log: BTreeMap<BlockId, u64> = view.log_blocks().map(size).collect();
        let bytes: u64 = log.values().sum();
        let bytes = (bytes + more).min(self.tuning.memtable_bytes / 2 * 5);
        self.most_to_ingest.fetch_max(bytes, Ordering::Relaxed).max(bytes)
    }

    /// The keys of the largest leaf on a class, in bytes.
    fn largest_merge(&self, view: &View, media: &Media) -> u64 {
        let on_class =
            |leaf: &&Leaf| leaf.kvsets.iter().any(|kvset| kvset.keys_are_on(media.class));
        let leaves = view.trees.values().flat_map(|tree| &tree.leaves);
        let largest = leaves.filter(on_class).map(Leaf::key_bytes).max().unwrap_or(0);
        // A spill adds to each leaf, and begins with the oldest of the root.
        let units: u64 = view
            .trees
            .values()
            .map(|tree| tree.leaves.len() as u64 * self.tuning.allocation_bytes)
            .max()
            .unwrap_or(0);
        let roots = view.trees.values().filter_map(|tree| tree.root.last());
        let spilled = roots.map(|kvset| kvset.key_bytes()).max().unwrap_or(0);
        largest.min(2 * self.tuning.leaf_key_bytes) + units + 2 * spilled
    }

    /// Whether the class that the log lies on has nothing left but its reserve.
    pub(crate) fn bears_log(&self) -> bool {
        let media = self.classes.staging().unwrap_or_else(|| self.classes.capacity.clone());
        media.lives_on_reserve()
    }
}
