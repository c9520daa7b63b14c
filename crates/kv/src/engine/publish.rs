//! Views: taking one together with a seqno, and publishing the next one. Publishing takes `publishing`, and no I/O.

use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::log::tail::LogTail;
use crate::omf::manifest::{Edit, KvsetEdit};
use crate::tree::kvset::Kvset;
use crate::tree::view::{Frozen, Table, Tree, View};
use crate::types::ids::{KvsId, Seqno};
use crate::values::block::ValueBlock;

impl Engine {
    /// A view and the seqno up to which it may be read, consistent with each other.
    pub(crate) fn snapshot(&self) -> (Arc<View>, Seqno) {
        loop {
            let view = self.view.load_full();
            let seqno = self.visible.load();
            // Writes up to `seqno` went to this view's memtable unless it was rotated meanwhile.
            if Arc::ptr_eq(&view, &self.view.load()) {
                return (view, seqno);
            }
        }
    }

    /// Publishes the view that `change` makes of the current one.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut View)) {
        let _publishing = self.publishing.lock();
        let former = self.view.load();
        let mut view = View::clone(&former);
        change(&mut view);
        self.readers.retire(&former, &view);
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

    /// The edits that add new blocks and the kvsets which refer to them.
    pub(crate) fn additions(blocks: &[Arc<ValueBlock>], kvsets: &[Arc<Kvset>]) -> Vec<Edit> {
        let blocks = blocks.iter().map(|block| Edit::Block {
            id: block.id,
            extent: *block.extent(),
            log: false,
            bytes: block.bytes,
            plain_bytes: block.plain_bytes,
        });
        let kvsets = kvsets.iter().map(|kvset| Edit::Kvset(KvsetEdit::clone(&kvset.edit)));
        blocks.chain(kvsets).collect()
    }
}

impl Engine {
    /// Freezes the active memtable; the frames that hold its records end with it.
    pub(crate) fn rotate(&self, log: &mut LogTail) {
        log.seal();
        let log_first = log.segment().clone();
        self.publish(|view| {
            let next = Arc::new(view.active.successor(self.tuning.memtable_bytes));
            let active = std::mem::replace(&mut view.active, next);
            view.frozen.insert(0, Arc::new(Frozen { table: Table::Memtable(active), log_first }));
        });
    }
}
