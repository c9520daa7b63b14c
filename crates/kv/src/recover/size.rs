//! Whether a device still has all the bytes that the manifest's structures lie in: a file may have been cut short, a
//! device replaced by a smaller one.

use std::collections::BTreeSet;

use esker_device::Device;

use crate::manifest::state::State;
use crate::omf::page::PAGE_SIZE;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::extent::Extent;
use crate::types::ids::BlockId;

/// So many of the newest log segments may be younger than the last flush of their file, its length included: the one
/// in use, and the one that was opened ahead.
const UNFLUSHED_SEGMENTS: usize = 2;

/// Refuses a file of `length` bytes that ends before data which the manifest says is durable in it.
pub(crate) fn check_length(
    state: &State,
    class: MediaClass,
    device: &dyn Device,
    length: u64,
) -> Result<()> {
    let lba_size = device.geometry().lba_size;
    let logs = state.blocks.iter().filter(|(_, block)| block.log).map(|(id, _)| *id);
    let unflushed: BTreeSet<BlockId> = logs.rev().take(UNFLUSHED_SEGMENTS).collect();
    let blocks = state.blocks.iter().filter(|(id, _)| !unflushed.contains(id));
    // Of a block at least the bytes of its records.
    let blocks = blocks.map(|(_, block)| (block.extent, if block.log { 1 } else { block.bytes }));
    let kvsets = state.kvsets.values().flat_map(|kvset| {
        let mut left = u64::from(kvset.pages) * PAGE_SIZE as u64 + u64::from(kvset.meta_size);
        kvset.extents.iter().map(move |&extent| {
            let bytes = left.min(byte(extent.count.0, lba_size));
            left -= bytes;
            (extent, bytes)
        })
    });
    let ends = blocks
        .chain(kvsets)
        .filter(|(extent, bytes)| extent.class == class && *bytes > 0)
        .map(|(extent, bytes)| byte(extent.lba.0, lba_size).saturating_add(bytes));
    check(class, device, length, ends.max())
}

/// Refuses a device that ends before an extent which the manifest names.
pub(crate) fn check_capacity(state: &State, class: MediaClass, device: &dyn Device) -> Result<()> {
    let geometry = device.geometry();
    let end =
        |extent: &Extent| byte(extent.lba.0.saturating_add(extent.count.0), geometry.lba_size);
    let blocks = state.blocks.values().map(|block| &block.extent);
    let extents = blocks.chain(state.kvsets.values().flat_map(|kvset| &kvset.extents));
    let ends = extents.filter(|extent| extent.class == class).map(end);
    check(class, device, geometry.capacity.bytes(geometry.lba_size), ends.max())
}

/// Where an LBA begins. A damaged manifest may name any.
fn byte(lba: u64, lba_size: u32) -> u64 {
    lba.saturating_mul(lba_size.into())
}

fn check(class: MediaClass, device: &dyn Device, found: u64, needed: Option<u64>) -> Result<()> {
    match needed {
        Some(needed) if needed > found => {
            Err(KvError::CutShort { class, device: device.name().to_owned(), found, needed })
        }
        _ => Ok(()),
    }
}
