//! State that the threads of an open pool share, and the few steps that several rooms above need: taking a failed drive out,
//! finding a version, counting space.
//!
//! Locks, in the order in which they may be taken: `keeper`, `front`, `log`, `core`, `config`; `inbox`, `durable` and `progress` last.
//!
//! | lock | guards | held during I/O |
//! | --- | --- | --- |
//! | `keeper` | who writes segments and checkpoints and changes the map | yes |
//! | `front` | the frames of the log that are being written: who has it may append | by those who run to their end |
//! | `inbox` | changes that wait for a frame | no |
//! | `log` | the order of records | by those who run to their end |
//! | `durable` | up to where the log is durable: what labels and marks say | no |
//! | `progress` | how far maintenance was when `keeper` was last released | no |
//! | `core` | map, pending versions, catalogue, table of segments | while a leaf is read |
//! | `config` | the label | while labels are written |

mod clear;
mod keeper;
mod load;
mod room;
mod sight;
mod spare;

pub(crate) use keeper::{Content, Gain, Job, Keeper, Progress, Scrub, Target};
pub(crate) use load::{Begun, Load};
pub(crate) use sight::{AtLeaf, Viewers, bytes_of};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_base::pace::Pace;
use esker_base::sync::{Condvar, Mutex};
use esker_base::units::to_u64;
use esker_base::{AlignedBuf, LbaCount, Nanos};
use esker_device::{Geometry, Op, Tag};

use crate::buffer::pending::PendingVersion;
use crate::buffer::ring::{Started, frame_bytes};
use crate::buffer::{Pending, Ring};
use crate::catalog::Catalog;
use crate::config::{in_state, is_voter, voters, write_labels};
use crate::drive::{Arrival, Fleet, Io, IoPool, Lanes};
use crate::map::{Access, LeafKey, Map};
use crate::omf::frame::Change;
use crate::omf::label::{Config, MemberState, Role};
use crate::omf::leaf::{Fragment, Place};
use crate::omf::mark::LogEnd;
use crate::segment::Broken;
use crate::space::{Class, Space};
use crate::stats::{Tallies, Tally};
use crate::types::BLOCK;
use crate::types::error::VolumeError;
use crate::types::id::{Block, DriveIndex, LineageId, Seqno, SlotIndex, VolumeId};
use crate::types::options::OpenOptions;

/// State that the threads of a pool share.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) ios: IoPool,
    pub(crate) options: OpenOptions,
    /// The geometry of a volume, but for its size.
    pub(crate) geometry: Geometry,
    pub(crate) keeper: Mutex<Keeper>,
    pub(crate) progress: Mutex<Progress>,
    pub(crate) front: Mutex<Front>,
    /// A thread panicked in the middle of a change of the state: see [`Core::failed`].
    pub(crate) has_failed: AtomicBool,
    pub(crate) inbox: Mutex<VecDeque<Batch>>,
    /// Bytes of writes that were admitted and are not pending yet.
    pub(crate) admitted: AtomicU64,
    pub(crate) log: Mutex<Ring>,
    /// Up to where the log is durable.
    pub(crate) durable: Mutex<LogEnd>,
    pub(crate) core: Mutex<Core>,
    pub(crate) config: Mutex<Config>,
    pub(crate) counts: Counts,
    /// Counters of what volumes were asked for.
    pub(crate) tallies: Tallies,
    /// When each volume that has limits may go on.
    pub(crate) paces: Mutex<BTreeMap<VolumeId, Pace>>,
    /// How much volumes are used.
    pub(crate) load: Load,
    /// The log has fewer copies than it should.
    pub(crate) log_is_degraded: AtomicBool,
    /// Something happened that maintenance may have to look at; and the thread is to end.
    pub(crate) bell: Mutex<Bell>,
    pub(crate) rung: Condvar,
}

/// Changes of one volume that become durable together.
pub(crate) struct Batch {
    pub(crate) volume: VolumeId,
    pub(crate) changes: Vec<(Tag, Op)>,
    /// Bytes of data.
    pub(crate) bytes: u64,
    /// Its owner finds the result here.
    pub(crate) outbox: Arc<Outbox>,
    /// The volume's counters.
    pub(crate) tally: Arc<Tally>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.changes.is_empty() {
            // It got lost in a panic, and its owner waits.
            let why = "a panic ended what was under way; see the log".to_owned();
            let told = (std::mem::take(&mut self.changes), Err(VolumeError::Conflict(why)));
            self.outbox.lock().push(told);
        }
    }
}

/// Results of batches.
pub(crate) type Outbox = Mutex<Vec<(Vec<(Tag, Op)>, Result<(), VolumeError>)>>;

/// The end of the log, as its writers have it.
pub(crate) struct Front {
    pub(crate) lanes: Lanes,
    /// Frames in flight, in their order.
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) arrived: Vec<Arrival>,
    /// How often there was no room for the next frame since there was.
    pub(crate) refusals: u32,
    /// Buffers that were written, to be used again.
    spare: Vec<AlignedBuf>,
}

/// Buffers of frames that are kept, and the largest that is: a write of the largest size has a frame that is larger.
const SPARE: usize = 32;
const SPARE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

impl Front {
    pub(crate) fn new(fleet: Arc<Fleet>) -> Front {
        let (lanes, flights, spare) = (Lanes::new(fleet), VecDeque::new(), Vec::new());
        Front { lanes, flights, arrived: Vec::new(), refusals: 0, spare }
    }

    /// A buffer of this size, with any content.
    pub(crate) fn buf(&mut self, size: usize) -> AlignedBuf {
        match self.spare.iter().rposition(|buf| buf.capacity() >= size) {
            Some(at) => {
                let mut buf = self.spare.swap_remove(at);
                buf.set_len(size);
                buf
            }
            None => AlignedBuf::zeroed(size),
        }
    }

    /// Keeps a buffer for the next frame.
    pub(crate) fn keep(&mut self, buf: AlignedBuf) {
        if self.spare.len() < SPARE && buf.capacity() <= SPARE_BYTES_MAX {
            self.spare.push(buf);
        }
    }
}

/// A frame that is being written.
pub(crate) struct Flight {
    pub(crate) frame: Started,
    /// With the lineage that each writes to.
    pub(crate) batches: Vec<(LineageId, Batch)>,
    pub(crate) stamp: u32,
    /// Commands that have not arrived.
    pub(crate) left: usize,
    pub(crate) failed: Vec<DriveIndex>,
    pub(crate) began: Nanos,
}

/// The bell that the maintenance thread waits for.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    pub(crate) is_rung: bool,
    pub(crate) is_over: bool,
}

/// Map, pending versions, catalogue and segments: one state.
pub(crate) struct Core {
    pub(crate) space: Space,
    pub(crate) map: Map,
    pub(crate) pending: Pending,
    pub(crate) catalog: Catalog,
    /// Counts the checkpoints.
    pub(crate) stamp: u64,
    /// Why nothing is written any more.
    pub(crate) stopped: Option<String>,
    /// The panic after which nothing is done any more.
    pub(crate) failed: Option<String>,
    pub(crate) is_closed: bool,
}

/// Bytes written, by cause.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) user_written: AtomicU64,
    pub(crate) destaged: AtomicU64,
    pub(crate) cleaned: AtomicU64,
    pub(crate) metadata: AtomicU64,
    pub(crate) rebuilt: AtomicU64,
    /// Bytes of slots that became free.
    pub(crate) erased: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) reconstructed: AtomicU64,
    pub(crate) salvaged: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// A view to read: a lineage, as it was at a seqno.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) lineage: LineageId,
    pub(crate) at: Seqno,
}

/// Where the newest version of a block is.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Nowhere, or it is zeroes.
    Zero,
    /// In the write buffer.
    Data(Arc<[u8]>),
    /// In a segment; it belongs to this lineage.
    Fragment(LineageId, Fragment),
}

impl Core {
    pub(crate) fn new(space: Space, map: Map, catalog: Catalog) -> Core {
        Core {
            space,
            map,
            pending: Pending::default(),
            catalog,
            stamp: 1,
            stopped: None,
            failed: None,
            is_closed: false,
        }
    }

    /// The newest version of a block that is seen, of its lineage or of those it goes on from; or the leaf of the map that
    /// is needed to tell and is not in memory. The search goes on from where `seen` is then.
    pub(crate) fn look(&mut self, seen: &mut Seen, block: Block) -> Result<Found, LeafKey> {
        loop {
            let Seen { lineage, at } = *seen;
            if let Some(data) = self.pending.get(lineage, block, at) {
                return Ok(data.clone().map_or(Found::Zero, Found::Data));
            }
            if let Some(version) = self.map.peek(lineage, block, at)? {
                return Ok(match version.place {
                    Place::Zero => Found::Zero,
                    Place::Fragment(fragment) => Found::Fragment(lineage, fragment),
                });
            }
            match self.catalog.lineages.get(&lineage).and_then(|row| row.parent) {
                Some((lineage, at)) => *seen = Seen { lineage, at },
                None => return Ok(Found::Zero),
            }
        }
    }

    /// The same, with leaves read as they are needed.
    pub(crate) fn find(
        &mut self,
        io: &mut Io,
        mut seen: Seen,
        block: Block,
    ) -> Result<Found, Broken> {
        loop {
            match self.look(&mut seen, block) {
                Ok(found) => return Ok(found),
                Err(key) => {
                    let mut access = Access { io, space: &mut self.space };
                    self.map.load(&mut access, key, false)?;
                }
            }
        }
    }

    /// A checkpoint is durable: the slots that it does not name, and that no reader holds, are free.
    pub(crate) fn reclaim(&mut self) -> Vec<(DriveIndex, SlotIndex)> {
        self.stamp += 1;
        self.space.reclaim(self.stamp)
    }

    /// Applies a record of a block to the pending versions.
    pub(crate) fn take_block(&mut self, lineage: LineageId, block: Block, version: PendingVersion) {
        if let Some(points) = self.catalog.points(lineage) {
            self.pending.insert(lineage, block, version, &points);
        }
    }

    /// Applies a change of the catalogue.
    pub(crate) fn take_change(&mut self, change: &Change) {
        self.catalog.apply(change);
        if let Change::RemoveLineage(lineage) = change {
            self.pending.forget_lineage(*lineage);
        }
        if let Change::PutLineage(row) = change
            && row.head.is_none()
            && self.catalog.points(row.id).is_some_and(|points| points.seqnos.is_empty())
        {
            self.pending.forget_lineage(row.id);
        }
    }
}

/// Space in bytes. The identity: raw = free + waiting + parity + garbage + live + metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceUse {
    /// All bytes of all drives that serve.
    pub raw: u64,
    /// In free slots.
    pub free: u64,
    /// In slots that become free with the next checkpoint.
    pub waiting: u64,
    /// Parities of segments.
    pub parity: u64,
    /// In segments, and nobody's any more.
    pub garbage: u64,
    /// Blocks of volumes and snapshots, as they are stored.
    pub live: u64,
    /// Labels, checkpoints, the write buffer's regions, seals, the map, and what does not make up a slot.
    pub metadata: u64,
    /// Of the free bytes, those that are kept for cleaning, parities and the map.
    pub reserve: u64,
    /// The most that volumes can hold, as it is stored: what is advertised.
    pub usable: u64,
}

impl Shared {
    pub(crate) fn damaged(&self, broken: &Broken) -> VolumeError {
        VolumeError::Damaged {
            pool: self.name.clone(),
            what: "the map".to_owned(),
            why: broken.why.clone(),
        }
    }

    /// Refuses when the pool is closed, or a panic left its state as nobody meant it.
    pub(crate) fn check_sound(&self, core: &Core) -> Result<(), VolumeError> {
        if core.is_closed {
            return Err(VolumeError::Closed(self.name.clone()));
        }
        match &core.failed {
            Some(why) => Err(VolumeError::Failed { pool: self.name.clone(), why: why.clone() }),
            None => Ok(()),
        }
    }

    /// A thread panicked in the middle of a change: nothing is done with the state any more, and those who wait are told.
    pub(crate) fn fail(&self, why: &str) {
        self.core.lock().failed = Some(why.to_owned());
        self.has_failed.store(true, Ordering::Release);
        self.ring();
    }

    /// Refuses when nothing may be written.
    pub(crate) fn check_writable(&self, core: &Core) -> Result<(), VolumeError> {
        self.check_sound(core)?;
        match &core.stopped {
            Some(why) => Err(VolumeError::Stopped { pool: self.name.clone(), why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Nothing is written any more.
    pub(crate) fn stop(&self, why: String) -> VolumeError {
        self.core.lock().stopped.get_or_insert(why.clone());
        VolumeError::Stopped { pool: self.name.clone(), why }
    }

    /// Tells the maintenance thread to look.
    pub(crate) fn ring(&self) {
        self.bell.lock().is_rung = true;
        self.rung.notify_one();
    }

    /// Takes drives that failed out of the configuration, and makes that durable before anything relies on it.
    /// Nobody holds `core` or `config`.
    pub(crate) fn take_out(&self, io: &mut Io, failed: &[DriveIndex]) -> Result<(), VolumeError> {
        if failed.is_empty() {
            return Ok(()); // and nothing for maintenance to look at
        }
        let is_waited_for = |index: &DriveIndex| {
            let drive = self.fleet.get(*index);
            drive.is_some_and(|drive| drive.answers.doubted().is_some())
        };
        if self.fleet.is_closing.load(Ordering::Relaxed) && failed.iter().any(is_waited_for) {
            return Err(self.stop("drives do not answer, and it is being closed".to_owned()));
        }
        let mut failed = failed.to_vec();
        while !failed.is_empty() {
            for index in &failed {
                if let Some(drive) = self.fleet.any(*index) {
                    drive.take_out();
                }
                self.core.lock().space.forget_drive(*index);
            }
            let mut config = self.config.lock();
            let voters = voters(&config);
            // A label that says so on a few drives only would hide what all the others hold.
            let left = voters.iter().filter(|index| self.fleet.get(**index).is_some()).count();
            if 2 * left < voters.len() {
                drop(config);
                let voters = voters.len();
                return Err(self.stop(format!(
                    "only {left} of {voters} drives are left, and half are needed"
                )));
            }
            let (epoch, last_label) = (config.epoch.0 + 1, config.sequence);
            let gone_at = self.options.clock.unix_time().as_secs();
            let mut is_changed = false;
            for index in failed.drain(..) {
                let Some(member) = config.members.get_mut(index.index()) else { continue };
                if member.state.is_active() {
                    member.state = MemberState::Faulted;
                    member.since.0 = epoch;
                    (member.last_label, member.gone_at) = (last_label, gone_at);
                    is_changed = true;
                }
            }
            if !is_changed {
                return Ok(());
            }
            config.epoch.0 = epoch;
            let out: Vec<DriveIndex> = config.log.members.clone();
            config.log.members = out.into_iter().filter(|i| self.fleet.get(*i).is_some()).collect();
            if self.log_wanted(&config) > config.log.members.len() {
                self.log_is_degraded.store(true, Ordering::Release);
            }
            let written = self.write_config(io, &mut config, &mut failed);
            drop(config);
            self.check_written(&voters, &written, "the new configuration")?;
        }
        self.find_spare();
        self.ring();
        Ok(())
    }

    /// Stops unless half of those that counted before took a label.
    pub(crate) fn check_written(
        &self,
        voters: &[DriveIndex],
        written: &[DriveIndex],
        what: &str,
    ) -> Result<(), VolumeError> {
        let took = voters.iter().filter(|index| written.contains(index)).count();
        if 2 * took >= voters.len() {
            return Ok(());
        }
        let voters = voters.len();
        Err(self.stop(format!("only {took} of {voters} drives took {what}, and half are needed")))
    }

    /// Changes the state of members, durably. Nobody holds `core` or `config`.
    pub(crate) fn set_states(
        &self,
        io: &mut Io,
        states: &[(DriveIndex, MemberState)],
    ) -> Result<(), VolumeError> {
        let (mut failed, voters, written);
        {
            let mut config = self.config.lock();
            voters = crate::config::voters(&config);
            config.epoch.0 += 1;
            let since = config.epoch;
            for (index, state) in states {
                let member = &mut config.members[index.index()];
                (member.state, member.since) = (*state, since);
                let is_returning = *state == MemberState::Rejoining;
                self.fleet.any(*index).inspect(|drive| {
                    drive.is_returning.store(is_returning, Ordering::Relaxed);
                });
            }
            failed = Vec::new();
            written = self.write_config(io, &mut config, &mut failed);
        }
        self.check_written(&voters, &written, "the new configuration")?;
        self.take_out(io, &failed)
    }

    /// Writes the next label to all active members. Returns which of them have it, and adds those that failed.
    pub(crate) fn write_config(
        &self,
        io: &mut Io,
        config: &mut Config,
        failed: &mut Vec<DriveIndex>,
    ) -> Vec<DriveIndex> {
        config.sequence += 1;
        // A pool of which no record was read yet knows only what the last label says.
        let end = *self.durable.lock();
        if end > LogEnd::default() {
            let known = config.log.durable.unwrap_or_default();
            config.log.durable = Some(known.max(end));
        }
        let members = active(config);
        let members: Vec<DriveIndex> =
            members.into_iter().filter(|index| self.fleet.get(*index).is_some()).collect();
        let results = write_labels(io, config, &members);
        failed.extend(results.iter().map(|(index, _)| *index));
        members.into_iter().filter(|index| !failed.contains(index)).collect()
    }

    /// The members in this state.
    pub(crate) fn in_state(&self, state: MemberState) -> Vec<DriveIndex> {
        in_state(&self.config.lock(), state)
    }

    /// How many copies the log should have.
    pub(crate) fn log_wanted(&self, config: &Config) -> usize {
        let buffers = self.fleet.serving(Role::Buffer).len();
        if buffers > 0 {
            return buffers.min(2);
        }
        let drives = config.members.iter().filter(|member| is_voter(member)).count();
        (usize::from(config.shape.parity) + 1).min(drives)
    }

    /// The space of the pool, to the byte.
    pub(crate) fn space_use(&self, core: &Core) -> SpaceUse {
        let layout = self.fleet.layout;
        let shape = layout.shape;
        let (free, waiting) = core.space.slot_counts();
        let raw = core.space.raw_bytes();
        let mut used = SpaceUse {
            raw,
            free: free * shape.chunk_bytes,
            waiting: waiting * shape.chunk_bytes,
            ..SpaceUse::default()
        };
        let unit_bytes = u64::from(layout.rows) * u64::from(shape.unit_bytes);
        let mut metadata_live = 0;
        for segment in core.space.segments() {
            let k = segment.data_chunks();
            let row = &segment.row;
            // Chunks on drives that are gone are not part of what is there.
            let there = |chunks: &[(DriveIndex, _)]| {
                to_u64(chunks.iter().filter(|(drive, _)| core.space.knows(*drive)).count())
            };
            let (data, parity) = (there(&row.chunks[..k]), there(&row.chunks[k..]));
            used.parity += parity * unit_bytes;
            let live = row.live_bytes.min(data * unit_bytes);
            used.garbage += data * unit_bytes - live;
            match segment.class {
                Class::Metadata => metadata_live += live,
                _ => used.live += live,
            }
        }
        (used.usable, used.reserve) = self.usable(core);
        used.reserve = used.reserve.min(used.free);
        let rest = used.free + used.waiting + used.parity + used.garbage + used.live;
        used.metadata = raw.saturating_sub(rest);
        debug_assert!(metadata_live <= used.metadata);
        used
    }
}

/// The geometry of a volume of this pool, but for its size.
pub(crate) fn geometry(log: &Ring) -> Geometry {
    let largest =
        (log.largest_frame().saturating_sub(frame_bytes(0, 1)) & !4095).clamp(BLOCK, 1 << 20);
    Geometry {
        lba_size: 4096,
        capacity: LbaCount(0),
        preferred_write_size: 64 << 10,
        max_transfer_size: u32::try_from(largest).expect("at most 1 MiB"),
        discard_granularity: 4096,
        placement_handles: 0,
        volatile_write_cache: false,
    }
}

/// The members that are written to.
pub(crate) fn active(config: &Config) -> Vec<DriveIndex> {
    let members = (0..).zip(&config.members);
    members.filter(|(_, m)| m.state.is_active()).map(|(i, _)| DriveIndex(i)).collect()
}
