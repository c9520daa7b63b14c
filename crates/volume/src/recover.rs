//! Opening: labels, quorum, checkpoint, replay of the write buffer, and a new incarnation before anything is written.
//! Sees `engine` and what is below.
//!
//! A checkpoint is a whole state, of which nothing was overwritten; the log has every acknowledged record since. What
//! was written to segments after the checkpoint is not looked at: its slots are free, and the log has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_base::checksum::crc32c;
use esker_base::sync::{Condvar, Mutex};
use esker_base::units::{to_u64, to_usize};
use esker_device::Device;

use crate::buffer::pending::PendingVersion;
use crate::buffer::{Ahead, Ring, mark};
use crate::catalog::Catalog;
use crate::config::{self, Assembly, bring_up, voters, write_labels};
use crate::drive::{Drive, Fleet, Io, IoPool, Layout, Read, Spare};
use crate::engine::{Bell, Core, Counts, Front, Keeper, Load, Scrub, Shared, geometry};
use crate::keep::{self, checkpoint};
use crate::map::{Access, Map};
use crate::omf::frame::{Frame, Record};
use crate::omf::label::{Config, MemberState, Role, kept_name};
use crate::omf::mark::LogEnd;
use crate::omf::root::{Root, SegmentRow};
use crate::space::Space;
use crate::stats::Tallies;
use crate::types::BLOCK_SIZE;
use crate::types::error::VolumeError;
use crate::types::id::{Block, DriveIndex, Generation, Incarnation, SegmentId, Seqno};
use crate::types::options::OpenOptions;

/// Bytes that are verified after an unclean end: about what drives have in their caches.
const WINDOW_BYTES: u64 = 256 << 20;

/// Opens the pool on these devices. Also returns what the user should know.
pub(crate) fn open(
    devices: &[Arc<dyn Device>],
    options: OpenOptions,
) -> Result<(Shared, Vec<String>), VolumeError> {
    let Assembly { config, current, lagging, returning, mut remarks } =
        config::assemble(devices, &options)?;
    let layout = Layout::new(config.shape);
    let fleet = Arc::new(fleet(&config, layout, &options, &current));
    let ios = IoPool::new(fleet.clone());
    let root = read_root(&mut ios.take(), &config)?;
    let space = space(&config, layout, &current, &root);
    let mut lineages = root.lineages.clone();
    if config.log.durable.is_none() {
        // Earlier software kept for a clone what that had written over.
        for row in &mut lineages {
            row.sweep.get_or_insert(0);
        }
    }
    let catalog =
        Catalog::new(lineages, root.volumes.clone(), root.snapshots.clone(), root.next_id);
    let mut keeper = Keeper::default();
    if options.scrub_within.is_some() {
        keeper.scrub = Scrub::resume(root.scrub);
    }
    keeper.scrub.finished = root.scrub.finished;
    if !config.is_clean {
        keeper.window = window(&root, layout);
    }
    let map = Map::new(config.pool, options.map_bytes);
    let members: Vec<DriveIndex> =
        config.log.members.iter().copied().filter(|m| fleet.get(*m).is_some()).collect();
    // All descriptors that I/O needs are open before anybody is served.
    let mut front = Front::new(fleet.clone());
    front.lanes.open()?;
    ios.open()?;
    // The first frame may begin with records that the checkpoint has.
    let (epoch, ring_bytes) = (config.log.epoch, config.log.ring_bytes);
    let ring = Ring::new(epoch, ring_bytes, members, root.tail, Seqno(0), Incarnation(0));
    let shared = Shared {
        name: config.name.clone(),
        geometry: geometry(&ring),
        fleet: fleet.clone(),
        ios,
        keeper: Mutex::new(keeper),
        progress: Mutex::default(),
        front: Mutex::new(front),
        has_failed: AtomicBool::new(false),
        inbox: Mutex::default(),
        admitted: AtomicU64::new(0),
        log: Mutex::new(ring),
        durable: Mutex::default(),
        core: Mutex::new(Core::new(space, map, catalog)),
        config: Mutex::new(config),
        counts: Counts::default(),
        tallies: Tallies::default(),
        paces: Mutex::default(),
        load: Load::new(options.repair_share),
        log_is_degraded: AtomicBool::new(false),
        bell: Mutex::new(Bell::default()),
        rung: Condvar::new(),
        options,
    };
    recover(&shared, &root, &lagging, &returning, &mut remarks)?;
    shared.find_spare();
    drop(shared.keep()?); // tells its progress
    Ok((shared, remarks))
}

fn fleet(
    config: &Config,
    layout: Layout,
    options: &OpenOptions,
    current: &[Option<Arc<dyn Device>>],
) -> Fleet {
    let drives = (0..).map(DriveIndex).zip(config.members.iter().zip(current));
    let drives = drives.map(|(index, (member, device))| {
        let drive = Drive::new(index, member.uuid, member.role, device.clone()?);
        let away = [MemberState::Missing, MemberState::Rejoining];
        drive.is_returning.store(away.contains(&member.state), Ordering::Relaxed);
        Some(Arc::new(drive))
    });
    let clock = options.clock.clone();
    let fleet = Fleet::new(config.pool, layout, options.patience, clock, drives.collect());
    let away = config.members.iter().zip(current).filter(|(member, device)| {
        let is_expected = member.state.is_active() || member.state == MemberState::Missing;
        member.role == Role::Drive && is_expected && device.is_none()
    });
    // As far as is known before the table of segments is.
    let drives = usize::from(config.shape.parity).saturating_sub(away.count());
    let (serving, voters) = (fleet.serving(Role::Drive).len(), voters(config).len());
    *fleet.spare.lock() = Spare { drives, serving, voters, log: config.log.members.clone() };
    fleet
}

/// The checkpoint that the labels point to, from any drive that has it.
fn read_root(io: &mut Io, config: &Config) -> Result<Root, VolumeError> {
    let layout = io.fleet().layout;
    let pointer = config.root;
    let size = to_usize(pointer.bytes.into());
    let mut why = "no drive has it".to_owned();
    // One that was missing has an earlier checkpoint until it has the next one.
    let returned = [MemberState::Missing, MemberState::Rejoining];
    for drive in io.fleet().serving(Role::Drive) {
        let offset = layout.root_offset(pointer.area);
        let read = Read { drive: drive.index, offset, size: size.next_multiple_of(4096) };
        let bytes = match io.read(&[read]).pop() {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => {
                why = error.to_string();
                continue;
            }
            None => continue,
        };
        if crc32c(&bytes[..size]) != pointer.crc {
            if !returned.contains(&config.members[drive.index.index()].state) {
                drive.blame();
            }
            why = format!("{}: its checksum is wrong", drive.device.name());
            continue;
        }
        match Root::decode(&bytes, config.pool, pointer.area, pointer.number) {
            Ok(root) => return Ok(root),
            Err(error) => why = error.to_string(),
        }
    }
    let what = format!("checkpoint {}", pointer.number);
    Err(VolumeError::Damaged { pool: config.name.clone(), what, why })
}

fn space(
    config: &Config,
    layout: Layout,
    current: &[Option<Arc<dyn Device>>],
    root: &Root,
) -> Space {
    let drives = (0..).map(DriveIndex).zip(config.members.iter().zip(current));
    let drives = drives.filter(|(_, (m, device))| m.role == Role::Drive && device.is_some());
    let drives = drives
        .map(|(index, (member, _))| (index, member.bytes, member.state == MemberState::Draining));
    // Generations of this incarnation differ from all that were begun before, seen or not.
    let generation = Generation(root.next_generation.0.max((config.incarnation.0 + 1) << 40));
    Space::recover(layout, &drives.collect::<Vec<_>>(), &root.segments, generation)
}

/// Segments that were written last, the newest at the end: those that a drive has lost that lied about a flush.
fn window(root: &Root, layout: Layout) -> Vec<SegmentId> {
    let mut last_of_class = BTreeMap::new();
    for row in &root.segments {
        let last = last_of_class.entry(row.class).or_insert(row.generation);
        *last = row.generation.max(*last);
    }
    // The newest of each class was appended to until the end.
    let mut rows: Vec<&SegmentRow> = root.segments.iter().collect();
    rows.sort_unstable_by_key(|row| (last_of_class[&row.class] == row.generation, row.generation));
    let mut bytes = 0;
    let of_row = |row: &SegmentRow| {
        to_u64(row.chunks.len()) * u64::from(row.rows) * u64::from(layout.shape.unit_bytes)
    };
    let newest = rows.iter().rev().take_while(|row| {
        let is_within = bytes <= WINDOW_BYTES;
        bytes += of_row(row);
        is_within
    });
    let mut window: Vec<SegmentId> = newest.map(|row| row.id).collect();
    window.reverse();
    window
}

fn recover(
    shared: &Shared,
    root: &Root,
    lagging: &[DriveIndex],
    returning: &[(DriveIndex, u64)],
    remarks: &mut Vec<String>,
) -> Result<(), VolumeError> {
    let mut io = shared.ios.take();
    let io = &mut *io;
    let mut failed = Vec::new();
    {
        // A crash took the last label from some: they have it before the next one is written over the one before.
        // So do those that return, or a crash would leave them without the label that says so.
        let config = shared.config.lock();
        failed.extend(write_labels(io, &config, lagging).into_iter().map(|(index, _)| index));
        for (index, label) in returning {
            failed
                .extend(bring_up(io, &config, *index, *label).into_iter().map(|(index, _)| index));
        }
    }
    shared.take_out(io, &failed)?;
    {
        let mut core = shared.core.lock();
        let core = &mut *core;
        let mut access = Access { io: &mut *io, space: &mut core.space };
        core.map.recover(&mut access, &root.nodes).map_err(|broken| shared.damaged(&broken))?;
    }
    let was_clean = shared.config.lock().is_clean;
    begin_incarnation(shared, io, remarks)?;
    let is_lost = replay(shared, io, root, was_clean, remarks)?;
    let (copies, has_mark) = {
        let log = shared.log.lock();
        (log.members.len(), mark::has_place(&shared.fleet, &log))
    };
    let config = shared.config.lock();
    let is_short = copies < shared.log_wanted(&config);
    // A buffer device that returned takes the log again.
    let returned =
        |(index, _): &(DriveIndex, u64)| config.members[index.index()].role == Role::Buffer;
    let is_short = is_short || returning.iter().any(returned);
    drop(config);
    shared.log_is_degraded.store(is_short, std::sync::atomic::Ordering::Release);
    if copies == 0 && is_lost {
        remarks.push(format!(
            "the write buffer was lost: what was written after checkpoint {} (record {}) is gone",
            root.number, root.catalogued.0
        ));
    }
    if copies == 0 || is_lost || !has_mark {
        // Nothing can be acknowledged before there is a log again; what is left of a damaged one would be found again; and
        // that of earlier software has no mark.
        let mut keeper = shared.keeper.lock();
        if copies > 0 {
            keep::drain_all(shared, &mut keeper, io)?;
        }
        let want = checkpoint::Options { new_log: true, is_clean: false };
        checkpoint::run(shared, &mut keeper, io, &want)?;
    }
    Ok(())
}

/// Says which drives are missing and which return, and counts the incarnation up: durably, before anything else is
/// written.
fn begin_incarnation(
    shared: &Shared,
    io: &mut Io,
    remarks: &mut Vec<String>,
) -> Result<(), VolumeError> {
    let log_members = shared.log.lock().members.clone();
    let mut config = shared.config.lock();
    let voters = voters(&config);
    config.incarnation = Incarnation(config.incarnation.0 + 1);
    let (epoch, last_label) = (config.epoch.0 + 1, config.sequence);
    let gone_at = shared.options.clock.unix_time().as_secs();
    let mut is_changed = false;
    for (index, member) in (0..).map(DriveIndex).zip(&mut config.members) {
        let drive = shared.fleet.get(index);
        if let Some(drive) = &drive {
            member.name = kept_name(drive.device.name());
        }
        let next = match (member.state, drive.is_some(), member.role) {
            // Its chunks were to be moved away, and are computed from parities instead.
            (MemberState::Draining, false, _) => MemberState::Faulted,
            (state, false, _) if state.is_active() => MemberState::Missing,
            (MemberState::Missing, true, Role::Drive) => MemberState::Rejoining,
            (MemberState::Missing, true, Role::Buffer) => MemberState::Online,
            _ => continue,
        };
        if !next.is_active() {
            (member.last_label, member.gone_at) = (last_label, gone_at);
        }
        let what = match next {
            MemberState::Missing => "missing, and what it has is computed from parities",
            MemberState::Faulted => "missing while it was being emptied, and is not used any more",
            _ => "there again, and what it has is used and verified",
        };
        remarks.push(format!("{index} ({}, {}) is {what}", member.uuid, member.name));
        member.state = next;
        member.since.0 = epoch;
        is_changed = true;
    }
    if is_changed {
        config.epoch.0 = epoch;
    }
    let was_clean = config.is_clean;
    config.is_clean = false;
    // A buffer that is missing refuses the open before anything is written.
    if log_members.is_empty() && !was_clean && !shared.options.lose_buffer {
        let missing = config.log.members.iter();
        let missing = missing.map(|m| format!("{m} ({})", config.members[m.index()].uuid));
        return Err(VolumeError::BufferLost {
            pool: shared.name.clone(),
            what: format!("those since checkpoint {}", config.root.number),
            missing: missing.collect::<Vec<_>>().join(", "),
        });
    }
    config.log.members = log_members;
    let mut failed = Vec::new();
    let written = shared.write_config(io, &mut config, &mut failed);
    drop(config);
    shared.check_written(&voters, &written, "the label of a new incarnation")?;
    shared.take_out(io, &failed)
}

/// Replays the write buffer. Whether it, or the end of it, had to be left out.
fn replay(
    shared: &Shared,
    io: &mut Io,
    root: &Root,
    was_clean: bool,
    remarks: &mut Vec<String>,
) -> Result<bool, VolumeError> {
    let mark = mark::find(io, &shared.log.lock()).unwrap_or_default();
    shared.keeper.lock().mark = mark;
    let mut log = shared.log.lock();
    let incarnation = shared.config.lock().incarnation;
    let least = Seqno(root.catalogued.0 + 1);
    let mut is_lost = log.members.is_empty();
    // A pool that was closed has an empty log: nothing was appended between its last label and the one of this open. A
    // half that was told to open alone may lack a later label.
    if !is_lost && (!was_clean || shared.options.accept_half) {
        let expected = shared.config.lock().log.durable.unwrap_or_default().max(mark.end);
        is_lost = !replay_frames(shared, io, root, &mut log, expected, remarks)?;
    }
    log.begin(incarnation, least);
    *shared.durable.lock() = log.end();
    Ok(is_lost)
}

/// Applies every frame of the write buffer, in order; false when some are lost, and may be.
fn replay_frames(
    shared: &Shared,
    io: &mut Io,
    root: &Root,
    log: &mut Ring,
    expected: LogEnd,
    remarks: &mut Vec<String>,
) -> Result<bool, VolumeError> {
    let mut ahead = Ahead::default();
    let result = loop {
        match log.replay(io, &mut ahead) {
            Ok(Some(frame)) => apply(shared, io, root, frame)?,
            Ok(None) => break log.check_end(expected),
            Err(why) => break log.check_end(expected).and(Err(why)),
        }
    };
    match result {
        Ok(()) => Ok(true),
        Err(why) if shared.options.lose_buffer => {
            remarks.push(format!("records of the write buffer are lost: {why}"));
            Ok(false)
        }
        Err(why) => Err(VolumeError::BufferDamaged { pool: shared.name.clone(), why }),
    }
}

/// Applies the records of a frame that the checkpoint does not have.
fn apply(shared: &Shared, io: &mut Io, root: &Root, frame: Frame) -> Result<(), VolumeError> {
    let mut core = shared.core.lock();
    let core = &mut *core;
    for (seqno, record) in (frame.head.first.0..).map(Seqno).zip(frame.records) {
        match record {
            Record::Write { lineage, block, data } => {
                if seqno <= root.applied {
                    continue;
                }
                for (at, bytes) in (block.0..).zip(data.chunks(BLOCK_SIZE)) {
                    let data = Some(Arc::from(bytes));
                    core.take_block(lineage, Block(at), PendingVersion { seqno, data, stream: 0 });
                }
            }
            Record::Zero { lineage, block, blocks, at_once: false } => {
                if seqno <= root.applied {
                    continue;
                }
                for at in block.0..block.0.saturating_add(blocks) {
                    core.take_block(
                        lineage,
                        Block(at),
                        PendingVersion { seqno, data: None, stream: 0 },
                    );
                }
            }
            Record::Zero { lineage, block, blocks, at_once: true } => {
                let Some(points) = core.catalog.points(lineage) else { continue };
                let range = block.0..block.0.saturating_add(blocks);
                core.pending.clear(lineage, range.clone(), seqno, &points);
                if seqno <= root.catalogued {
                    continue; // the checkpoint's map has it
                }
                let mut start = range.start;
                while start < range.end {
                    start = core
                        .clear(io, lineage, start..range.end, seqno)
                        .map_err(|broken| shared.damaged(&broken))?;
                }
            }
            Record::Change(change) => {
                if seqno > root.catalogued {
                    core.take_change(&change);
                }
            }
        }
    }
    Ok(())
}
