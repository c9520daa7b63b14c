//! The state of a manifest: the sum of the edits of all its records, and the edits that build it anew.

use std::collections::BTreeMap;

use crate::omf::manifest::{Edit, KvsetEdit};
use crate::omf::{Malformed, expect};
use crate::types::class::MediaClass;
use crate::types::error::Result;
use crate::types::extent::Extent;
use crate::types::format::FormatVersion;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, Seqno};
use crate::types::policy::KvsOptions;

/// State that the edits of a manifest add up to.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Of all its records.
    pub(crate) version: FormatVersion,
    pub(crate) uuid: [u8; 16],
    pub(crate) last_id: u64,
    pub(crate) classes: BTreeMap<MediaClass, String>,
    pub(crate) kvss: BTreeMap<KvsId, (String, KvsOptions)>,
    /// Of the KVSs that have some.
    pub(crate) metadata: BTreeMap<KvsId, Vec<u8>>,
    pub(crate) blocks: BTreeMap<BlockId, BlockState>,
    /// Records up to this seqno are in kvsets.
    pub(crate) ingested: Seqno,
    /// Replay begins in this log segment.
    pub(crate) log_first: BlockId,
    /// KVS and lower bound of each leaf.
    pub(crate) leaves: BTreeMap<LeafId, (KvsId, Vec<u8>)>,
    pub(crate) kvsets: BTreeMap<KvsetId, KvsetEdit>,
}

/// A block, as the manifest knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockState {
    pub(crate) extent: Extent,
    pub(crate) log: bool,
    /// Bytes of records; 0 for a log segment.
    pub(crate) bytes: u64,
    /// Size of these records with no value compressed, in bytes.
    pub(crate) plain_bytes: u64,
    /// How many kvsets refer to it.
    pub(crate) references: u64,
}

impl State {
    /// Applies an edit. Blocks that may be used no more go to `doubtful`: another edit of the record may use them.
    fn apply(&mut self, edit: Edit, doubtful: &mut Vec<BlockId>) -> Result<(), Malformed> {
        let known = |holds: bool, what: &str, id: u64| {
            expect(holds, || format!("an edit names {what} {id}, which does not exist"))
        };
        match edit {
            Edit::LastId { id } => self.last_id = self.last_id.max(id),
            Edit::Class { class, path } => {
                self.classes.insert(class, path);
            }
            Edit::ClassRemoved { class } => {
                let unused = !self.uses(class) && class != MediaClass::Capacity;
                expect(unused && self.classes.remove(&class).is_some(), || {
                    format!("an edit removes the {class} class, which is in use or not there")
                })?;
            }
            Edit::Kvs { id, name, options } => {
                self.kvss.insert(id, (name, options));
            }
            Edit::KvsMetadata { id, metadata } => {
                known(self.kvss.contains_key(&id), "KVS", id.0.into())?;
                self.metadata.remove(&id);
                if !metadata.is_empty() {
                    self.metadata.insert(id, metadata);
                }
            }
            Edit::KvsDropped { id } => {
                known(self.kvss.remove(&id).is_some(), "KVS", id.0.into())?;
                self.metadata.remove(&id);
                self.leaves.retain(|_, (kvs, _)| *kvs != id);
                let gone = self.kvsets.extract_if(.., |_, kvset| kvset.kvs == id);
                let gone: Vec<KvsetEdit> = gone.map(|(_, kvset)| kvset).collect();
                gone.iter().for_each(|kvset| self.let_go(kvset, doubtful));
            }
            Edit::Block { id, extent, log, bytes, plain_bytes } => {
                self.last_id = self.last_id.max(id.0);
                let references = self.blocks.get(&id).map_or(0, |former| former.references);
                self.blocks.insert(id, BlockState { extent, log, bytes, plain_bytes, references });
                doubtful.push(id);
            }
            Edit::Ingested { seqno, first } => {
                let passed = self.log_first..first.max(self.log_first);
                doubtful.extend(self.blocks.range(passed).map(|(id, _)| *id));
                (self.ingested, self.log_first) = (seqno, first);
            }
            Edit::Leaf { id, kvs, lower } => {
                known(self.kvss.contains_key(&kvs), "KVS", kvs.0.into())?;
                self.last_id = self.last_id.max(id.0);
                self.leaves.insert(id, (kvs, lower));
            }
            Edit::LeafRemoved { id } => {
                let empty = self.kvsets.values().all(|kvset| kvset.leaf != id);
                known(empty && self.leaves.remove(&id).is_some(), "empty leaf", id.0)?;
            }
            Edit::Kvset(kvset) => {
                known(self.kvss.contains_key(&kvset.kvs), "KVS", kvset.kvs.0.into())?;
                let leaf = kvset.leaf;
                let owner = self.leaves.get(&leaf).map(|(kvs, _)| *kvs);
                known(leaf == LeafId::ROOT || owner == Some(kvset.kvs), "leaf", leaf.0)?;
                for (block, _) in &kvset.blocks {
                    let there = self.blocks.get_mut(block);
                    known(there.is_some(), "block", block.0)?;
                    there.into_iter().for_each(|block| block.references += 1);
                }
                self.last_id = self.last_id.max(kvset.id.0);
                if let Some(former) = self.kvsets.insert(kvset.id, kvset) {
                    self.let_go(&former, doubtful);
                }
            }
            Edit::KvsetRemoved { id } => {
                let gone = self.kvsets.remove(&id);
                known(gone.is_some(), "kvset", id.0)?;
                gone.iter().for_each(|kvset| self.let_go(kvset, doubtful));
            }
        }
        Ok(())
    }

    /// A kvset is gone: the blocks that it referred to may go as well.
    fn let_go(&mut self, kvset: &KvsetEdit, doubtful: &mut Vec<BlockId>) {
        for (id, _) in &kvset.blocks {
            if let Some(block) = self.blocks.get_mut(id) {
                block.references -= 1;
                doubtful.push(*id);
            }
        }
    }

    /// The extents of all blocks and kvsets.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        let keys = self.kvsets.values().flat_map(|kvset| &kvset.extents);
        keys.chain(self.blocks.values().map(|block| &block.extent)).copied().collect()
    }

    /// Whether something lies on this class.
    pub(crate) fn uses(&self, class: MediaClass) -> bool {
        self.extents().iter().any(|extent| extent.class == class)
    }

    pub(crate) fn apply_all(&mut self, edits: Vec<Edit>) -> Result<(), Malformed> {
        let mut doubtful = Vec::new();
        edits.into_iter().try_for_each(|edit| self.apply(edit, &mut doubtful))?;
        // Blocks live as long as a kvset refers to them or replay may read them.
        for id in doubtful {
            let is_unused =
                |block: &BlockState| block.references == 0 && !(block.log && id >= self.log_first);
            if self.blocks.get(&id).is_some_and(is_unused) {
                self.blocks.remove(&id);
            }
        }
        Ok(())
    }

    /// The edits that build this state.
    pub(crate) fn edits(&self) -> Vec<Edit> {
        let mut edits = vec![Edit::LastId { id: self.last_id }];
        let ingested = Edit::Ingested { seqno: self.ingested, first: self.log_first };
        edits.extend(
            self.classes.iter().map(|(&class, path)| Edit::Class { class, path: path.clone() }),
        );
        edits.extend(self.kvss.iter().map(|(&id, (name, options))| Edit::Kvs {
            id,
            name: name.clone(),
            options: *options,
        }));
        edits.extend(
            self.metadata
                .iter()
                .map(|(&id, metadata)| Edit::KvsMetadata { id, metadata: metadata.clone() }),
        );
        edits.extend(self.blocks.iter().map(|(&id, block)| {
            let &BlockState { extent, log, bytes, plain_bytes, .. } = block;
            Edit::Block { id, extent, log, bytes, plain_bytes }
        }));
        edits.push(ingested);
        edits.extend(self.leaves.iter().map(|(&id, (kvs, lower))| Edit::Leaf {
            id,
            kvs: *kvs,
            lower: lower.clone(),
        }));
        edits.extend(self.kvsets.values().cloned().map(Edit::Kvset));
        edits
    }
}
