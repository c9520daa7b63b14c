//! The cursors and snapshots that are open, and what all readers keep from being freed. Transactions count themselves
//! (`engine/transactions.rs`).
//!
//! A reader holds trees and memtables, and these hold what lies on the media. So nothing is noted of what a reader may
//! read: trees and memtables that leave the view are, as long as they live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use esker_base::Nanos;
use esker_base::units::to_usize;

use crate::engine::shared::Engine;
use crate::media::class::Allocation;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tree::memtable::Memtable;
use crate::tree::view::{Tree, View};
use crate::types::class::MediaClass;

/// Readers that begin and end at the same time do not wait for each other, mostly.
const SHARDS: usize = 16;

/// The readers of a KVDB.
#[derive(Default)]
pub(crate) struct Readers {
    pub(crate) cursors: OpenReaders,
    pub(crate) snapshots: OpenReaders,
    retired: Mutex<Retired>,
}

/// Readers of a kind that are open.
#[derive(Default)]
pub(crate) struct OpenReaders {
    next: AtomicU64,
    /// When each began, by number.
    shards: [Mutex<BTreeMap<u64, Nanos>>; SHARDS],
}

/// The kinds of reader that are counted here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReaderKind {
    Cursor,
    Snapshot,
}

/// A reader that was counted; none in a forked child, where a thread that is not there may hold a lock.
pub(crate) type OpenReader = Option<(ReaderKind, u64)>;

/// Trees and memtables that left the view.
#[derive(Default)]
struct Retired {
    trees: Vec<Weak<Tree>>,
    memtables: Vec<Weak<Memtable>>,
}

impl OpenReaders {
    /// Counts one that begins.
    fn begins(&self, now: Nanos) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(number).lock().insert(number, now);
        number
    }

    fn ended(&self, number: u64) {
        self.shard(number).lock().remove(&number);
    }

    /// How many there are, and when the oldest began.
    pub(crate) fn open(&self) -> (usize, Option<Nanos>) {
        let shards = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (shard.len(), shard.first_key_value().map(|(_, began)| *began))
        });
        shards.fold((0, None), |(open, oldest), (more, began)| {
            (open + more, oldest.into_iter().chain(began).min())
        })
    }

    fn shard(&self, number: u64) -> &Mutex<BTreeMap<u64, Nanos>> {
        &self.shards[to_usize(number % SHARDS as u64)]
    }
}

impl Readers {
    fn of(&self, kind: ReaderKind) -> &OpenReaders {
        match kind {
            ReaderKind::Cursor => &self.cursors,
            ReaderKind::Snapshot => &self.snapshots,
        }
    }

    /// Notes the trees and memtables of `former` that its successor has no more.
    pub(crate) fn retire(&self, former: &View, next: &View) {
        let mut retired = self.retired.lock();
        let Retired { trees, memtables } = &mut *retired;
        trees.retain(|tree| tree.strong_count() > 0);
        memtables.retain(|table| table.strong_count() > 0);
        let stays =
            |tree: &Arc<Tree>| next.tree(tree.kvs).is_some_and(|own| Arc::ptr_eq(own, tree));
        trees.extend(former.trees.values().filter(|tree| !stays(tree)).map(Arc::downgrade));
        let stays = |table: &Arc<Memtable>| next.memtables().any(|own| Arc::ptr_eq(own, table));
        memtables.extend(former.memtables().filter(|table| !stays(table)).map(Arc::downgrade));
    }
}

impl Engine {
    /// Counts a reader that begins.
    pub(crate) fn reader_begins(&self, kind: ReaderKind) -> OpenReader {
        let is_here = self.owner.is_here();
        is_here.then(|| (kind, self.readers.of(kind).begins(self.options.clock.now())))
    }

    /// Counts it no more.
    pub(crate) fn reader_ended(&self, reader: OpenReader) {
        if let Some((kind, number)) = reader.filter(|_| self.owner.is_here()) {
            self.readers.of(kind).ended(number);
        }
    }

    /// Bytes of each class that nothing but readers keeps. A step of maintenance that ends counts for a moment, too.
    pub(crate) fn pinned_bytes(&self) -> [u64; MediaClass::ALL.len()] {
        let (trees, memtables) = {
            let retired = self.readers.retired.lock();
            let trees: Vec<Arc<Tree>> = retired.trees.iter().filter_map(Weak::upgrade).collect();
            let memtables: Vec<Arc<Memtable>> =
                retired.memtables.iter().filter_map(Weak::upgrade).collect();
            (trees, memtables)
        };
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
        let begins = self.replay_from.lock().clone();
        let tail = self.writer.lock().segment().clone();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_counted_while_they_are_open_and_the_oldest_is_known() {
        let open = OpenReaders::default();
        assert_eq!(open.open(), (0, None));
        let mut numbers: Vec<u64> = (1..=50).map(|at| open.begins(Nanos(at))).collect();
        assert_eq!(open.open(), (50, Some(Nanos(1))));
        open.ended(numbers.remove(0));
        assert_eq!(open.open(), (49, Some(Nanos(2))));
        numbers.into_iter().for_each(|number| open.ended(number));
        assert_eq!(open.open(), (0, None));
    }
}
