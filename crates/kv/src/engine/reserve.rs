//! The size of the reserve of classes that are files: five quarters of what it may have to pay for while the file system
//! is full. `media/reserve.rs` keeps it.
//!
//! That is a log segment for deletes; the kvsets that the log becomes which was not ingested yet; the largest leaf, which
//! is there twice while its keys are merged, and the kvsets that a spill adds to all leaves; and two blocks of values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::media::class::Media;
use crate::sync::atomic::Ordering;
use crate::tree::view::Leaf;
use crate::types::class::MediaClass;
use crate::types::error::Result;
use crate::types::ids::BlockId;
use crate::types::options::Tuning;
use crate::values::block::ValueBlock;

impl Engine {
    /// Has each class that is a file keep as much in reserve as is of use now, `more` bytes of log to come included.
    pub(crate) fn keep_reserve(&self, more: u64) -> Result<()> {
        if !self.classes.all().iter().any(|media| media.keeps_reserve()) {
            return Ok(());
        }
        self.keep_reserve_for(self.bytes_to_ingest(more), false)
    }

    /// The same, with so many bytes for kvsets that the log becomes; `exactly` so much when the KVDB closes, and its log
    /// takes no more.
    fn keep_reserve_for(&self, ingested: u64, exactly: bool) -> Result<()> {
        let log_class = self.classes.staging().map_or(MediaClass::Capacity, |media| media.class);
        for media in self.classes.all().iter().filter(|media| media.keeps_reserve()) {
            let is_of_log = media.class == log_class;
            let ends = if exactly && is_of_log { self.log.tail().segment_bytes() } else { 0 };
            let used = media.used_bytes().saturating_sub(ends);
            let (log, deletes) = match is_of_log {
                true => (ingested, self.bytes_to_delete(used)),
                false => (0, 0),
            };
            // Values are written anew by the block.
            let values = (2 * self.tuning.block_bytes).min(used / 8);
            let needed = log + deletes + values + self.largest_merge(media);
            media.keep_reserve(needed / 4 * 5, exactly)?;
        }
        Ok(())
    }

    /// The size of two log segments that deletes get, in bytes; of smaller ones where little is to be deleted.
    fn bytes_to_delete(&self, used: u64) -> u64 {
        let &Tuning { block_bytes, frame_bytes, allocation_bytes, .. } = &self.tuning;
        (2 * frame_bytes.max(block_bytes / 32)).min((used / 16).max(4 * allocation_bytes))
    }

    /// The most that the kvsets take which are not there yet, in bytes: no more than their log, nor than memtables.
    fn bytes_to_ingest(&self, more: u64) -> u64 {
        let view = self.view.load();
        let size = |block: Arc<ValueBlock>| (block.id, block.allocation.bytes());
        let log: BTreeMap<BlockId, u64> = view.log_blocks().map(size).collect();
        let bytes: u64 = log.values().sum();
        let bytes = (bytes + more).min(self.tuning.memtable_bytes / 2 * 5);
        self.most_to_ingest.fetch_max(bytes, Ordering::Relaxed).max(bytes)
    }

    /// The keys of the largest leaf on a class, in bytes.
    fn largest_merge(&self, media: &Media) -> u64 {
        let on_class =
            |leaf: &&Leaf| leaf.kvsets.iter().any(|kvset| kvset.keys_are_on(media.class));
        let view = self.view.load();
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
    pub(crate) fn log_lives_on_reserve(&self) -> bool {
        let media = self.classes.staging().unwrap_or_else(|| self.classes.capacity.clone());
        media.lives_on_reserve()
    }

    /// Cuts the log and the reserve to what the next opening needs, as nothing is left to ingest, and discards all that the
    /// manifest does not name. The log keeps the room that it was given where the file system is full: the next process
    /// takes it into the reserve.
    pub(crate) fn give_back(&self) -> Result<()> {
        if self.log_lives_on_reserve() {
            return self.classes.all().iter().try_for_each(|media| media.save_reserve());
        }
        match self.cut_log() {
            // It stays as long as it is.
            Err(error) if error.lacks_space() => {}
            cut => cut?,
        }
        // A KVDB with little on it gets little to ingest before it has grown.
        self.classes.all().iter().try_for_each(|media| media.reclaim().map(drop))?;
        let used: u64 = self.classes.all().iter().map(|media| media.used_bytes()).sum();
        let used = used.saturating_sub(self.log.tail().segment_bytes());
        let most = self.most_to_ingest.load(Ordering::Relaxed).min(used / 8);
        self.keep_reserve_for(most.max(self.view.load().young_bytes()), true)?;
        let live = self.manifest.state().extents();
        self.classes.all().iter().try_for_each(|media| media.discard_rest(&live))
    }

    /// Has the log end where nothing more is written to it.
    fn cut_log(&self) -> Result<()> {
        let edits = self.log.tail().cuts();
        if edits.is_empty() { Ok(()) } else { self.commit(edits) }
    }
}
