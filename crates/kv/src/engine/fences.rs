//! Fences: nodes of trees in which the open or maintenance has found damage. What is damaged stays as it is and where
//! it is: no step works on these nodes any more. The keys that lead there are read-only, because what is written to
//! them would pile up. All other keys and KVSs go on.
//!
//! A fence lasts until the KVDB is closed. The next open, or maintenance then, finds the damage again.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_base::ErrorKind;

use crate::engine::claims::Claim;
use crate::omf::frame::Record;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tree::current::CurrentView;
use crate::tree::view::Tree;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result, SALVAGE_ADVICE};
use crate::types::ids::{KvsId, LeafId};
use crate::types::spans::Span;

/// The fences of a KVDB.
#[derive(Default)]
pub(crate) struct Fences {
    /// Whether there are any: each write asks. The lock orders the rest.
    any: AtomicBool,
    all: Mutex<Vec<Fence>>,
}

/// A node that is damaged, or refers to values that are.
struct Fence {
    kvs: KvsId,
    node: LeafId,
    /// Whether its keys are sound: they are merged, and only values stay where they are.
    values_only: bool,
    cause: Arc<KvError>,
}

impl Fences {
    /// Whether the values that a node refers to stay where they are, because some of them are damaged.
    pub(crate) fn keep_values(&self, kvs: KvsId, node: LeafId) -> bool {
        self.all.lock().iter().any(|it| (it.kvs, it.node) == (kvs, node))
    }

    /// Fences nodes of which keys are damaged.
    pub(super) fn add_keys(&self, kvs: KvsId, nodes: &BTreeSet<LeafId>, cause: &KvError) {
        let cause = Arc::new(cause.clone());
        for &node in nodes {
            self.add(Fence { kvs, node, values_only: false, cause: cause.clone() });
        }
    }

    fn add(&self, fence: Fence) {
        let mut all = self.all.lock();
        all.retain(|it| (it.kvs, it.node) != (fence.kvs, fence.node));
        all.push(fence);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Notes that values to which the nodes refer are damaged, while their keys are sound.
    pub(crate) fn add_values(&self, claim: &Claim, cause: &KvError) {
        // Of a spill the values are the leaves' from now on; a step there finds the damage by itself.
        for &node in claim.inputs.iter().filter(|node| **node != LeafId::ROOT) {
            let cause = Arc::new(cause.clone());
            self.add(Fence { kvs: claim.kvs, node, values_only: true, cause });
        }
    }

    /// Refuses a record for a part of a KVS that is read-only. Without damage it costs one relaxed load.
    pub(crate) fn check_unfenced(&self, view: &CurrentView, record: &Record<'_>) -> Result<()> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let view = view.load();
        let Some(tree) = view.tree(record.kvs) else { return Ok(()) };
        let all = self.all.lock();
        let mut of_kvs = all.iter().filter(|it| it.kvs == record.kvs && !it.values_only);
        of_kvs.find(|it| it.concerns(tree, record)).map_or(Ok(()), |fence| {
            let keys = fence.range(tree).map_or_else(String::new, in_words);
            let kvs = tree.name.to_string();
            Err(KvError::Fenced { kvs, keys, cause: fence.cause.clone() })
        })
    }

    /// Refuses when a fence keeps something on a class.
    pub(crate) fn check_unfenced_on(&self, view: &CurrentView, class: MediaClass) -> Result<()> {
        let view = view.load();
        let all = self.all.lock();
        let keeps = |fence: &&Fence| {
            let mut kvsets = view.tree(fence.kvs).into_iter().flat_map(|tree| tree.kvsets());
            kvsets.any(|kvset| kvset.edit.leaf == fence.node && kvset.is_on(class))
        };
        all.iter().find(keeps).map_or(Ok(()), |fence| Err(KvError::clone(&fence.cause)))
    }

    /// A sentence for each fence, with what to do.
    pub(crate) fn damages(&self, view: &CurrentView) -> Vec<String> {
        let view = view.load();
        let all = self.all.lock();
        let told = all.iter().filter_map(|fence| {
            let tree = view.tree(fence.kvs)?;
            // A leaf whose values alone are damaged may have been joined with another one.
            let (keys, effect) = (in_words(fence.range(tree)?), fence.effect());
            // Damage says by itself what to do; a read error does not.
            let cure = if fence.cause.kind() == ErrorKind::Corrupt { "" } else { SALVAGE_ADVICE };
            Some(format!("KVS '{}', {keys}: {effect}: {}{cure}", tree.name, fence.cause))
        });
        told.collect()
    }
}

impl Fence {
    fn effect(&self) -> &'static str {
        if self.values_only {
            "garbage of values is not collected, because one of them is damaged"
        } else {
            "read-only and not maintained, because data is damaged"
        }
    }

    /// The keys that lead to the node; `None` when it is gone.
    fn range<'t>(&self, tree: &'t Tree) -> Option<(&'t [u8], Option<&'t [u8]>)> {
        if self.node == LeafId::ROOT {
            return Some((&[], None));
        }
        let at = tree.leaves.iter().position(|leaf| leaf.id == self.node)?;
        let upper = tree.leaves.get(at + 1).map(|next| &*next.lower);
        Some((&tree.leaves[at].lower, upper))
    }

    fn concerns(&self, tree: &Tree, record: &Record<'_>) -> bool {
        let Some((lower, upper)) = self.range(tree) else { return false };
        let range = Span { lower, upper };
        match record.span() {
            Some(span) => range.overlaps(span.as_span()),
            None => range.holds(record.key),
        }
    }
}

/// The keys from the first bound to below the second, in words.
fn in_words((lower, upper): (&[u8], Option<&[u8]>)) -> String {
    let lower_shown = lower.escape_ascii();
    match upper {
        None if lower.is_empty() => "all keys".into(),
        None => format!("keys from '{lower_shown}' on"),
        Some(upper) => format!("keys from '{lower_shown}' to before '{}'", upper.escape_ascii()),
    }
}
