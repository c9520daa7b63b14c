//! Counts of readers, and the space that only they keep: the engine's side of [`readers`](crate::engine::readers).

use std::collections::BTreeSet;

use esker_base::Nanos;

use crate::engine::readers::{OpenReader, OpenStats, ReaderKind, ReaderStats};
use crate::engine::shared::Engine;
use crate::media::class::Allocation;
use crate::tree::view::Tree;
use crate::types::class::MediaClass;

impl Engine {
    /// Counts a reader that begins.
    pub(crate) fn reader_begins(&self, kind: ReaderKind) -> OpenReader {
        let is_here = self.life.is_here();
        is_here.then(|| (kind, self.readers.of(kind).begins(self.options.clock.now())))
    }

    /// Counts it no more.
    pub(crate) fn reader_ended(&self, reader: OpenReader) {
        if let Some((kind, number)) = reader.filter(|_| self.life.is_here()) {
            self.readers.of(kind).ended(number);
        }
    }

    /// Bytes of each class that nothing but readers keeps. A step of maintenance that ends counts for a moment, too.
    pub(crate) fn pinned_bytes(&self) -> [u64; MediaClass::ALL.len()] {
        let (trees, memtables) = self.view.retired();
        let mut pinned = [0; MediaClass::ALL.len()];
        if trees.is_empty() && memtables.is_empty() {
            return pinned;
        }
        let mut seen = BTreeSet::new();
        let mut count = |allocation: &Allocation, counts: bool| {
            let class = allocation.extent.class;
            if seen.insert((class as usize, allocation.extent.lba)) && counts {
                pinned[class as usize] += allocation.bytes();
            }
        };
        // After what was retired: nothing of that comes back.
        let view = self.view.load();
        let tail = self.log.tail().segment().clone();
        let begins = self.log.replay_from();
        for block in view.log_blocks().chain([begins, tail]) {
            count(&block.allocation, false);
        }
        let mut count_tree = |tree: &Tree, counts: bool| {
            for kvset in tree.kvsets() {
                kvset.key_extents().iter().for_each(|keys| count(keys, counts));
                kvset.blocks.iter().for_each(|(block, _)| count(&block.allocation, counts));
            }
        };
        view.trees.values().for_each(|tree| count_tree(tree, false));
        trees.iter().for_each(|tree| count_tree(tree, true));
        for block in memtables.iter().flat_map(|table| table.blocks()) {
            count(&block.allocation, true);
        }
        pinned
    }

    /// The readers that are open, with what they keep on all classes.
    pub(crate) fn reader_stats(&self, pinned_bytes: u64) -> ReaderStats {
        let now = self.options.clock.now();
        let of = |(open, oldest): (usize, Option<Nanos>)| OpenStats {
            open,
            oldest_ns: oldest.map_or(0, |began| now.0.saturating_sub(began.0)),
        };
        ReaderStats {
            cursors: of(self.readers.cursors.open()),
            snapshots: of(self.readers.snapshots.open()),
            transactions: of(self.transactions.open()),
            pinned_bytes,
            pinned_memtable_bytes: self.ingested_bytes(),
        }
    }
}
