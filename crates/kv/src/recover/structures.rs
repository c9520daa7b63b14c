//! Opening the structures that a manifest names: it claims the space of blocks, and opens kvsets and trees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::Lba;

use crate::manifest::state::State;
use crate::media::classes::Classes;
use crate::tree::kvset::Kvset;
use crate::tree::page_cache::PageCache;
use crate::tree::view::{Leaf, Tree};
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::extent::Extent;
use crate::types::ids::{BlockId, KvsId, LeafId};
use crate::types::limits::VALUE_MAX;
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;

/// Structures that the manifest names, opened.
pub(crate) struct Opened {
    pub(crate) trees: Vec<Tree>,
    pub(crate) blocks: BTreeMap<BlockId, Arc<ValueBlock>>,
}

/// Checks that the classes are those of the KVDB. `damaged` says whether to go on without a header.
pub(crate) fn check_classes(
    state: &State,
    classes: &Classes,
    mut damaged: impl FnMut(KvError) -> Result<()>,
) -> Result<()> {
    for &class in state.classes.keys() {
        match classes.get(class) {
            Some(media) => media.check_header(state.uuid).or_else(&mut damaged)?,
            None => {
                return Err(KvError::Options(format!(
                    "the KVDB has a {class} class; open it with its device"
                )));
            }
        }
    }
    if !state.classes.contains_key(&MediaClass::Staging) && classes.staging().is_some() {
        return Err(KvError::Options(
            "the KVDB has no staging class: open it without one, then add it".into(),
        ));
    }
    Ok(())
}

/// Claims the space of everything the manifest names, and opens its kvsets. `damaged` says whether to go
/// on without a block, or a kvset, that cannot be there.
pub(crate) fn open_structures(
    state: &State,
    classes: &Classes,
    pages: &Arc<PageCache>,
    mut damaged: impl FnMut(KvError) -> Result<()>,
) -> Result<Opened> {
    let claim = |stream: Stream, extent: Extent| {
        let media = classes.get(extent.class).ok_or_else(|| {
            KvError::Options(format!("the KVDB has data on a {} class", extent.class))
        })?;
        media.claim(stream, extent)
    };
    let in_root = state.kvsets.values().filter(|kvset| kvset.leaf == LeafId::ROOT);
    let young: BTreeSet<BlockId> =
        in_root.flat_map(|kvset| kvset.blocks.iter().map(|(id, _)| *id)).collect();
    let mut blocks = BTreeMap::new();
    for (&id, block) in &state.blocks {
        let stream = if block.log || young.contains(&id) { Stream::Log } else { Stream::OldValues };
        let allocation = match claim(stream, block.extent) {
            Ok(allocation) => allocation,
            Err(error) => {
                damaged(error)?;
                continue;
            }
        };
        let (bytes, plain_bytes) = (block.bytes, block.plain_bytes);
        let room = allocation.bytes();
        if bytes > room || plain_bytes > bytes.saturating_mul(VALUE_MAX as u64) {
            let detail = format!(
                "block {id} of {room} bytes is said to hold {bytes}, {plain_bytes} before compression"
            );
            damaged(allocation.media.corrupt("manifest", block.extent.lba, detail))?;
            continue;
        }
        blocks.insert(id, Arc::new(ValueBlock { id, allocation, bytes, plain_bytes }));
    }
    let mut trees: BTreeMap<KvsId, Tree> = BTreeMap::new();
    for (&kvs, (name, options)) in &state.kvss {
        let mut leaves: Vec<Leaf> = state
            .leaves
            .iter()
            .filter(|(_, (owner, _))| *owner == kvs)
            .map(|(&id, (_, lower))| Leaf::new(id, lower[..].into()))
            .collect();
        leaves.sort_by(|a, b| a.lower.cmp(&b.lower));
        if leaves.first().is_none_or(|leaf| !leaf.lower.is_empty()) {
            let device = classes.capacity.device().name().to_owned();
            let detail = format!("the KVS '{name}' has no first leaf");
            return Err(KvError::Corrupt { what: "manifest", device, lba: Lba(0), detail });
        }
        let (name, options) = (name.as_str().into(), *options);
        let mut tree = Tree::with_leaves(kvs, name, options, leaves);
        state.metadata.get(&kvs).iter().for_each(|metadata| tree.set_metadata(metadata));
        trees.insert(kvs, tree);
    }
    for edit in state.kvsets.values() {
        let extents = edit.extents.iter().map(|&extent| claim(Stream::of_keys(edit.leaf), extent));
        let own = edit.blocks.iter().map(|(id, _)| blocks.get(id).cloned());
        // A finding about a block covers the kvsets that need it.
        let Some(own) = own.collect::<Option<Vec<Arc<ValueBlock>>>>() else { continue };
        for (block, (id, live)) in own.iter().zip(&edit.blocks) {
            if *live > block.allocation.bytes() {
                let detail = format!("kvset {} is said to use {live} bytes of block {id}", edit.id);
                return Err(block.media().corrupt("manifest", block.extent().lba, detail));
            }
        }
        let extents: Result<_> = extents.collect();
        match extents.and_then(|extents| Kvset::open(edit.clone(), extents, own, pages)) {
            Ok(kvset) => {
                trees.get_mut(&edit.kvs).expect("the manifest checks references").add(kvset);
            }
            Err(error) => damaged(error)?,
        }
    }
    Ok(Opened { trees: trees.into_values().collect(), blocks })
}
