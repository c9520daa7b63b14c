//! Checkpoints: the state of the pool becomes durable as a whole, and what came before is let go.
//!
//! The order, and what each step protects:
//!
//! 1. Leaves and nodes that were changed are written to segments; so the checkpoint can point to them.
//! 2. Open segments are sealed, to the seal copies that the last checkpoint does not refer to.
//! 3. The checkpoint is written to the area that the last one is not in, on every drive.
//! 4. All drives are flushed: segments, seals and checkpoint are durable.
//! 5. The labels point to it. From here on a crash finds the new one; before, the old one, of which nothing was
//!    overwritten.
//! 6. Only then the log's tail moves, and the slots of segments that became empty are discarded and used again.

use std::sync::atomic::Ordering;

use esker_base::checksum::crc32c;
use esker_base::units::to_u64;

use crate::buffer::Ring;
use crate::commit;
use crate::drive::{Io, Layout, Write};
use crate::engine::{Core, Keeper, Shared, add};
use crate::keep::{destage, output};
use crate::map::LeafKey;
use crate::omf::label::{Config, LogPlace, Role, RootPointer};
use crate::omf::mark::LogEnd;
use crate::omf::root::{Extent, LineageRow, LogTail, Root};
use crate::omf::summary::ItemKind;
use crate::space::Class;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, Seqno};

/// Options of a checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Go on with an empty log, on the devices that should have it.
    pub(crate) new_log: bool,
    /// Nothing will be written after it.
    pub(crate) is_clean: bool,
}

/// Makes a checkpoint.
pub(crate) fn run(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    want: &Options,
) -> Result<(), VolumeError> {
    let pages_before = shared.counts.metadata.load(Ordering::Relaxed);
    // A new log begins empty: nobody appends to the old one from here on.
    let _front = want.new_log.then(|| commit::hold(shared));
    let held = want.new_log.then(|| shared.log.lock());
    if held.is_some() {
        while destage::run(shared, keeper, io)? {}
    }
    spill_leaves(shared, keeper, io)?;
    spill_nodes(shared, keeper, io)?;
    for class in Class::ALL {
        output::seal(shared, keeper, io, class)?;
    }
    let tail = match held {
        Some(mut log) => {
            let ring = new_ring(shared, &log);
            let root = root(shared, keeper, ring.tail_for(None), ring.next_seqno());
            let pointer = write_root(shared, io, &root)?;
            point_to(shared, io, pointer, Some(&ring), want.is_clean)?;
            *log = ring;
            keeper.mark.end = LogEnd::default(); // which was of the ring before
            // A label that says so is not followed by a frame: the next open does not look for any.
            shared.core.lock().is_closed |= want.is_clean;
            root.tail
        }
        None => {
            let root = {
                let log = shared.log.lock();
                let oldest = shared.core.lock().pending.oldest();
                root(shared, keeper, log.tail_for(oldest), log.next_seqno())
            };
            let pointer = write_root(shared, io, &root)?;
            point_to(shared, io, pointer, None, want.is_clean)?;
            root.tail
        }
    };
    shared.log.lock().move_tail(&tail);
    let pages = shared.counts.metadata.load(Ordering::Relaxed) - pages_before;
    keeper.checkpoint_segments = pages / destage::segment_bytes(shared).max(1) + 1;
    keeper.marked.clear();
    for writer in keeper.writers.values() {
        keeper.durable_seals.insert(writer.row.id, writer.row.seal_copy);
    }
    let slots = shared.core.lock().reclaim();
    let layout = shared.fleet.layout;
    add(&shared.counts.erased, to_u64(slots.len()) * layout.shape.chunk_bytes);
    let chunks = slots.iter().filter(|(drive, _)| shared.fleet.get(*drive).is_some());
    let chunks =
        chunks.map(|(drive, slot)| (*drive, layout.slot_offset(*slot), layout.shape.chunk_bytes));
    io.discard(&chunks.collect::<Vec<_>>());
    add(&shared.counts.checkpoints, 1);
    Ok(())
}

/// The state as a checkpoint has it. The log is locked: nothing is between its tail and the rest. Frames in flight are not
/// in it: nobody sees them yet, and they lie behind the tail.
fn root(shared: &Shared, keeper: &Keeper, tail: LogTail, next_seqno: Seqno) -> Root {
    let mut core = shared.core.lock();
    let core = &mut *core;
    core.space.take_empty(core.stamp);
    let before = |seqno: Seqno| Seqno(seqno.0.saturating_sub(1));
    Root {
        number: shared.config.lock().root.number + 1,
        applied: before(core.pending.oldest().unwrap_or(next_seqno)),
        catalogued: before(next_seqno),
        next_generation: core.space.next_generation(),
        next_id: core.catalog.next_id,
        scrub: keeper.scrub.row(),
        tail,
        lineages: lineages(core),
        volumes: core.catalog.volumes.values().cloned().collect(),
        snapshots: core.catalog.snapshots.values().cloned().collect(),
        segments: core.space.rows(),
        nodes: core.map.node_rows(),
    }
}

/// The ring that is to follow `log`, on the devices that should have it.
fn new_ring(shared: &Shared, log: &Ring) -> Ring {
    let config = shared.config.lock();
    let (members, bytes) = log_members(shared, &config);
    log.successor(bytes, members)
}

/// Whether a copy of the log is on a slow drive, and would be on another one if it were placed anew.
pub(crate) fn log_may_move(shared: &Shared) -> bool {
    let slow = shared.fleet.slow();
    let members = shared.log.lock().members.clone();
    let count = |members: &[DriveIndex]| members.iter().filter(|m| slow.contains(m)).count();
    count(&members) > 0 && {
        let (wanted, _) = log_members(shared, &shared.config.lock());
        count(&wanted) < count(&members)
    }
}

/// Which members should have the log, and how large it can be.
fn log_members(shared: &Shared, config: &Config) -> (Vec<DriveIndex>, u64) {
    let buffers = shared.fleet.serving(Role::Buffer);
    let drives = match buffers.is_empty() {
        true => shared.fleet.serving(Role::Drive),
        false => buffers,
    };
    let count = shared.log_wanted(config);
    // An acknowledgement waits for all copies: slow drives get none where there are others.
    let (slow, prompt): (Vec<_>, Vec<_>) =
        drives.into_iter().partition(|drive| drive.latencies.is_slow());
    let drives = [prompt, slow].concat();
    let chosen = drives.iter().take(count);
    let bytes = |role, bytes| shared.fleet.layout.log_bytes(role, bytes);
    let least = chosen.clone().map(|drive| bytes(drive.role, drive.bytes)).min();
    (chosen.map(|drive| drive.index).collect(), Layout::ring_bytes(least.unwrap_or(0)))
}

/// The rows of lineages for a checkpoint: an open from it looks again where leaves were not looked at yet.
fn lineages(core: &Core) -> Vec<LineageRow> {
    let mut rows = core.catalog.lineages.clone();
    let mut last = None;
    for (lineage, index) in &core.map.shadows {
        if last.replace(*lineage) == Some(*lineage) {
            continue; // its first leaf is the one from which on it is looked at
        }
        let ancestors = core.catalog.ancestors(*lineage).map(|(id, _)| id);
        for id in ancestors.chain([*lineage]) {
            if let Some(row) = rows.get_mut(&id) {
                row.sweep = Some(row.sweep.map_or(*index, |from| from.min(*index)));
            }
        }
    }
    rows.into_values().collect()
}

/// Writes a checkpoint to all drives, and makes it and everything written before durable.
fn write_root(shared: &Shared, io: &mut Io, root: &Root) -> Result<RootPointer, VolumeError> {
    let area = 1 - shared.config.lock().root.area.min(1);
    let layout = shared.fleet.layout;
    let mut bytes = root.encode(shared.fleet.pool, area);
    let length = to_u64(bytes.len());
    if length > layout.shape.root_bytes {
        let room = layout.shape.root_bytes;
        let what = format!("its catalogue takes {length} bytes of a checkpoint's {room}");
        return Err(VolumeError::NoSpace { pool: shared.name.clone(), what });
    }
    let crc = crc32c(&bytes);
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let drives: Vec<DriveIndex> =
        shared.fleet.serving(Role::Drive).iter().map(|drive| drive.index).collect();
    let writes = drives.iter().map(|drive| Write {
        drive: *drive,
        offset: layout.root_offset(area),
        bytes: &bytes,
        class: Some(Class::Metadata.number()),
        fua: false,
    });
    let results = io.write(&writes.collect::<Vec<_>>());
    let flushed = io.flush(&drives);
    let failed = drives.iter().zip(results.iter().zip(&flushed));
    let failed = failed.filter(|(_, (write, flush))| write.is_err() || flush.is_err());
    let failed: Vec<DriveIndex> = failed.map(|(drive, _)| *drive).collect();
    shared.take_out(io, &failed)?;
    let bytes = u32::try_from(length).expect("an area has at most 1 GiB");
    Ok(RootPointer { area, number: root.number, bytes, crc })
}

/// Points the labels to a checkpoint.
fn point_to(
    shared: &Shared,
    io: &mut Io,
    pointer: RootPointer,
    ring: Option<&Ring>,
    is_clean: bool,
) -> Result<(), VolumeError> {
    let mut failed = Vec::new();
    let (voters, written) = {
        let mut config = shared.config.lock();
        let voters = crate::config::voters(&config);
        config.root = pointer;
        config.is_clean = is_clean;
        if let Some(ring) = ring {
            config.log = LogPlace {
                epoch: ring.epoch,
                ring_bytes: ring.bytes,
                members: ring.members.clone(),
                durable: Some(ring.end()),
            };
            let is_short = ring.members.len() < shared.log_wanted(&config);
            shared.log_is_degraded.store(is_short, Ordering::Release);
        }
        (voters, shared.write_config(io, &mut config, &mut failed))
    };
    shared.check_written(&voters, &written, "the label of a checkpoint")?;
    shared.take_out(io, &failed)
}

/// Writes the leaves that were changed.
pub(crate) fn spill_leaves(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<(), VolumeError> {
    spill(shared, keeper, io, ItemKind::Leaf)
}

/// Writes the nodes that were changed; their leaves were written before.
pub(crate) fn spill_nodes(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<(), VolumeError> {
    {
        let mut core = shared.core.lock();
        let core = &mut *core;
        core.map.drop_empty_nodes(&mut core.space);
    }
    spill(shared, keeper, io, ItemKind::Node)
}

fn spill(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    kind: ItemKind,
) -> Result<(), VolumeError> {
    loop {
        let keys = {
            let core = shared.core.lock();
            match kind {
                ItemKind::Node => core.map.dirty_nodes(),
                _ => core.map.dirty_leaves(),
            }
        };
        if keys.is_empty() {
            return Ok(());
        }
        write_pages(shared, keeper, io, kind, &keys)?;
    }
}

/// Writes as many of these leaves or nodes as fit the open segment.
fn write_pages(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    kind: ItemKind,
    keys: &[LeafKey],
) -> Result<(), VolumeError> {
    let mut builder = output::open(shared, keeper, io, Class::Metadata)?;
    let is_fresh = keeper.writers[&Class::Metadata].row.rows == 0;
    let generation = builder.generation;
    let mut placed = Vec::with_capacity(keys.len());
    {
        let core = shared.core.lock();
        for key in keys {
            let (bytes, is_delta) = match kind {
                ItemKind::Node => (core.map.encode_node(*key, generation), false),
                _ => core.map.encode_leaf(*key, generation),
            };
            if !builder.fits(bytes.len(), false) {
                break;
            }
            let item = builder.push(kind, key.0, key.1, Seqno(0), &bytes);
            placed.push((*key, item, is_delta));
        }
    }
    if placed.is_empty() {
        if is_fresh {
            let what = "the versions of 2 MiB of a volume do not fit a segment".to_owned();
            return Err(VolumeError::NoSpace { pool: shared.name.clone(), what });
        }
        return output::close(shared, keeper, io, Class::Metadata);
    }
    let packed = builder.finish(shared.fleet.pool);
    let Some(segment) = output::append(shared, keeper, io, Class::Metadata, packed)? else {
        return Ok(()); // the caller comes again
    };
    let mut core = shared.core.lock();
    let core = &mut *core;
    for (key, item, is_delta) in placed {
        let extent = Extent { segment, sector: item.sector, bytes: item.bytes, crc: item.crc };
        match kind {
            ItemKind::Node => core.map.node_written(&mut core.space, key, extent),
            _ => core.map.leaf_written(&mut core.space, key, extent, is_delta),
        }
    }
    Ok(())
}

/// Bytes of a node's row in a checkpoint.
pub(crate) const NODE_ROW_BYTES: u64 = 32;

/// The most bytes that the rows of segments take in a checkpoint of a pool with so many slots.
pub(crate) fn segments_bytes(slots: u64, width: u16) -> u64 {
    let segments = slots / u64::from(width.max(1)) + 1;
    segments * (64 + 6 * u64::from(width) + 12 * 32)
}

/// Bytes of a checkpoint of a pool with so many slots on drives of which the smallest has so many bytes: with room for
/// ten thousand snapshots, unless the drives are small.
pub(crate) fn root_bytes(slots: u64, width: u16, smallest: u64) -> u64 {
    let segments = segments_bytes(slots, width);
    let catalogue = (smallest / 1024).min(2 << 20);
    let rest = segments.max(16 << 10).max(catalogue);
    (segments + rest).next_multiple_of(4096).min(1 << 30)
}
