//! The current view of an open KVDB, and what those before it keep. Publishing takes `publishing`, and no I/O.
//!
//! A reader holds trees and memtables, and these hold what lies on the media. So nothing is noted of what a reader may
//! read: trees and memtables that leave the view are, as long as they live.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use crate::log::open::Log;
use crate::log::tail::LogTail;
use crate::media::class::Allocation;
use crate::sync::{ArcSwap, Guard, Mutex};
use crate::tree::memtable::Memtable;
use crate::tree::view::{Frozen, Table, Tree, View};
use crate::types::class::MediaClass;
use crate::types::ids::{KvsId, Seqno};

/// The view that readers and steps begin with.
pub(crate) struct CurrentView {
    view: ArcSwap<View>,
    publishing: Mutex<()>,
    retired: Mutex<Retired>,
}

/// Trees and memtables that left the view.
#[derive(Default)]
struct Retired {
    trees: Vec<Weak<Tree>>,
    memtables: Vec<Weak<Memtable>>,
}

impl Retired {
    /// Notes those of `former` that its successor has no more.
    fn add(&mut self, former: &View, next: &View) {
        self.trees.retain(|tree| tree.strong_count() > 0);
        self.memtables.retain(|table| table.strong_count() > 0);
        let stays =
            |tree: &Arc<Tree>| next.tree(tree.kvs).is_some_and(|own| Arc::ptr_eq(own, tree));
        self.trees.extend(former.trees.values().filter(|tree| !stays(tree)).map(Arc::downgrade));
        let stays = |table: &Arc<Memtable>| next.memtables().any(|own| Arc::ptr_eq(own, table));
        self.memtables.extend(former.memtables().filter(|table| !stays(table)).map(Arc::downgrade));
    }
}

impl CurrentView {
    pub(crate) fn new(view: View) -> CurrentView {
        CurrentView {
            view: ArcSwap::from_pointee(view),
            publishing: Mutex::new(()),
            retired: Mutex::default(),
        }
    }

    /// The view, for as long as a call takes.
    pub(crate) fn load(&self) -> Guard<Arc<View>> {
        self.view.load()
    }

    /// The view, for longer.
    pub(crate) fn load_full(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The view and the seqno up to which it may be read, consistent with each other.
    pub(crate) fn snapshot(&self, log: &Log) -> (Arc<View>, Seqno) {
        loop {
            let view = self.load_full();
            let seqno = log.visible();
            // Writes up to `seqno` went to this view's memtable unless it was rotated meanwhile.
            if Arc::ptr_eq(&view, &self.load()) {
                return (view, seqno);
            }
        }
    }

    /// Publishes the view that `change` makes of the current one.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut View)) {
        let _publishing = self.publishing.lock();
        let former = self.load();
        let mut view = View::clone(&former);
        change(&mut view);
        self.retired.lock().add(&former, &view);
        self.view.store(Arc::new(view));
    }

    /// Publishes a changed tree of one KVS; nothing when the KVS was dropped meanwhile.
    pub(crate) fn publish_tree(&self, kvs: KvsId, change: impl FnOnce(&mut Tree)) {
        self.publish(|view| {
            if let Some(tree) = view.tree(kvs) {
                let mut tree = Tree::clone(tree);
                change(&mut tree);
                view.put_tree(tree);
            }
        });
    }

    /// Freezes the active memtable; the frames that hold its records end with it. The next one is of `memtable_bytes`.
    pub(crate) fn rotate(&self, log: &mut LogTail, memtable_bytes: u64) {
        log.seal();
        let log_first = log.segment().clone();
        self.publish(|view| {
            let next = Arc::new(view.active.successor(memtable_bytes));
            let active = std::mem::replace(&mut view.active, next);
            view.frozen.insert(0, Arc::new(Frozen { table: Table::Memtable(active), log_first }));
        });
    }

    /// The trees and memtables that left the view and live all the same.
    fn retired(&self) -> (Vec<Arc<Tree>>, Vec<Arc<Memtable>>) {
        let retired = self.retired.lock();
        let trees = retired.trees.iter().filter_map(Weak::upgrade).collect();
        (trees, retired.memtables.iter().filter_map(Weak::upgrade).collect())
    }

    /// Bytes of each class that nothing but readers keeps. A step of maintenance that ends counts for a moment, too.
    pub(crate) fn pinned_bytes(&self, log: &Log) -> [u64; MediaClass::ALL.len()] {
        let (trees, memtables) = self.retired();
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
        let view = self.load();
        let tail = log.tail().segment().clone();
        let begins = log.replay_from();
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
