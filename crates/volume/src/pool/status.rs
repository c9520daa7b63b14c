//! How the pool is: drives, space, the write buffer, what is wrong and what to do about it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::units::to_u64;

use crate::drive::Unanswering;
use crate::engine::{AtLeaf, Progress, SpaceUse, Viewers, bytes_of};
use crate::keep::degraded::Absent;
use crate::keep::{retire, sweep};
use crate::omf::label::{MemberState, Role};
use crate::pool::alarms::{self, Alarm, Facts};
use crate::pool::{LOOK, Pool};
use crate::types::id::{DriveIndex, DriveUuid, Epoch, Incarnation, PoolUuid};

/// How a pool is.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The pool.
    pub uuid: PoolUuid,
    /// Parities.
    pub parity: u8,
    /// Chunks of a segment.
    pub width: u16,
    /// Counts the changes of the configuration.
    pub epoch: Epoch,
    /// Counts how often it was opened.
    pub incarnation: Incarnation,
    /// Its drives and buffer devices.
    pub members: Vec<MemberStatus>,
    /// Its space.
    pub space: SpaceUse,
    /// Its write buffer.
    pub log: LogStatus,
    /// Segments by how many of their chunks are not there: none, one, two, more. Empty ones lack none.
    pub segments: [u64; 4],
    /// Segments that have lost more chunks than they have parities: what only they have is lost.
    pub beyond_repair: u64,
    /// Chunks that are to be rebuilt, if there are any.
    pub rebuild: Option<RebuildStatus>,
    /// A scrub, if one was started.
    pub scrub: Option<ScrubStatus>,
    /// Lineages that are being swept: something of them was deleted, or was written over by a clone.
    pub sweeping: u64,
    /// Bytes written, by cause.
    pub written: WriteCounts,
    /// Memory of the map, in bytes, and how often a leaf was read.
    pub map_bytes: u64,
    /// How often a leaf of the map was read.
    pub map_loads: u64,
    /// All that is wrong, each with the cure.
    pub alarms: Vec<Alarm>,
}

/// How a member is.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its index.
    pub index: DriveIndex,
    /// The drive.
    pub uuid: DriveUuid,
    /// The device's name; none when it is missing.
    pub device: Option<String>,
    /// The name that its device had when it was last there.
    pub last_name: String,
    /// Its role.
    pub role: Role,
    /// How it stands.
    pub state: MemberState,
    /// Since which epoch.
    pub since: Epoch,
    /// Its size.
    pub bytes: u64,
    /// Slots that are free, and all.
    pub slots: (u64, u64),
    /// Reads that failed since the pool was opened.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Reads that returned other bytes than were written.
    pub checksum_errors: u64,
    /// Of those, reads while a drive that was away is being verified: it may have missed writes.
    pub missed_writes: u64,
    /// Whether its commands have taken several times as long as those of the others, for seconds.
    pub is_slow: bool,
    /// How it does not answer, if it does not.
    pub unanswering: Option<Unanswering>,
    /// How long its commands take.
    pub latency: DriveLatency,
}

/// How long a drive's commands took in the last second that told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveLatency {
    /// Half of the reads took less.
    pub read_p50: Duration,
    /// 99 of 100 reads took less.
    pub read_p99: Duration,
    /// Half of the writes took less.
    pub write_p50: Duration,
    /// 99 of 100 writes took less.
    pub write_p99: Duration,
}

impl DriveLatency {
    fn of(drive: &crate::drive::Drive) -> DriveLatency {
        let [read_p50, read_p99, write_p50, write_p99] =
            drive.latencies.last().map(Duration::from_nanos);
        DriveLatency { read_p50, read_p99, write_p50, write_p99 }
    }
}

/// How the write buffer is.
#[derive(Clone, Debug)]
pub struct LogStatus {
    /// The members that have a copy.
    pub members: Vec<DriveIndex>,
    /// Bytes of the ring.
    pub bytes: u64,
    /// Bytes that a checkpoint still needs.
    pub used: u64,
    /// Bytes of blocks that are not in segments yet.
    pub pending: u64,
}

/// How far the rebuild of lost chunks, and of those on drives that are being emptied, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildStatus {
    /// Chunks that are left.
    pub chunks: u64,
    /// Their bytes, as far as they are written.
    pub bytes_left: u64,
    /// Bytes rebuilt since it began.
    pub bytes_done: u64,
    /// The drives' time that it takes while volumes are used, in thousandths.
    pub share: u64,
    /// When it will be done, at the rate of until now.
    pub eta: Option<Duration>,
}

/// How far a scrub is.
#[derive(Clone, Debug)]
pub struct ScrubStatus {
    /// Whether it goes on.
    pub is_running: bool,
    /// Bytes read since it began, or since the pool was opened.
    pub bytes: u64,
    /// Chunks of them that were wrong.
    pub errors: u64,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When one ended last that read everything.
    pub finished: Option<u64>,
}

/// Bytes written since the pool was opened, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// By users of volumes.
    pub user: u64,
    /// Moved from the write buffer to segments, as stored, with what fills up rows.
    pub destaged: u64,
    /// Moved by cleaning and repair.
    pub cleaned: u64,
    /// Leaves and nodes of the map.
    pub metadata: u64,
    /// Of what was moved, that of segments that had lost something.
    pub rebuilt: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Blocks that were computed from parities.
    pub reconstructed: u64,
    /// Blocks that were lost in segments, and taken from the write buffer.
    pub salvaged: u64,
}

impl Pool {
    /// How the pool is; while drives do not answer, as it was when they last did, with an alarm that names them. Never waits
    /// for a drive.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = match self.look() {
            Some(status) => {
                *self.seen.lock() = Some(status.clone());
                status
            }
            None => self.seen.lock().clone().expect("looked at when it was opened"),
        };
        let silent = self.shared.fleet.unanswering();
        for member in &mut status.members {
            let silence = silent.iter().find(|(index, _)| *index == member.index);
            member.unanswering = silence.map(|(_, unanswering)| unanswering.clone());
        }
        status.alarms.extend(alarms::unanswering(&status));
        status
    }

    /// How the pool is, unless somebody holds its state, who may wait for a drive.
    fn look(&self) -> Option<Status> {
        let shared = &self.shared;
        let Progress { scrub, began, bytes: bytes_done, is_vain } = shared.progress.lock().clone();
        let was_started = scrub.is_running || scrub.finished > 0;
        let scrub = was_started.then_some(ScrubStatus {
            is_running: scrub.is_running,
            bytes: scrub.bytes,
            errors: scrub.errors,
            began: scrub.began,
            finished: (scrub.finished > 0).then_some(scrub.finished),
        });
        let log = shared.log.try_lock_for(LOOK)?;
        let core = shared.core.try_lock_for(LOOK)?;
        let config = shared.config.try_lock_for(LOOK)?;
        let waiting = retire::waiting(shared, &core, is_vain);
        let absent = Absent::of(&config);
        let members = (0..).map(DriveIndex).zip(&config.members).map(|(index, member)| {
            let drive = shared.fleet.any(index);
            let get = |pick: fn(&crate::drive::Drive) -> &AtomicU64| {
                drive.as_ref().map_or(0, |drive| pick(drive).load(Ordering::Relaxed))
            };
            MemberStatus {
                index,
                uuid: member.uuid,
                device: drive.as_ref().map(|drive| drive.device.name().to_owned()),
                last_name: member.name.clone(),
                role: member.role,
                state: member.state,
                since: member.since,
                bytes: member.bytes,
                slots: core.space.slots_of(index),
                read_errors: get(|drive| &drive.errors.reads),
                write_errors: get(|drive| &drive.errors.writes),
                checksum_errors: get(|drive| &drive.errors.checksums),
                missed_writes: get(|drive| &drive.errors.missed),
                is_slow: shared.fleet.is_slow(index),
                unanswering: None,
                latency: drive.as_deref().map(DriveLatency::of).unwrap_or_default(),
            }
        });
        let members: Vec<MemberStatus> = members.collect();
        let (mut segments, mut beyond_repair) = ([0; 4], 0);
        let (mut chunks_left, mut bytes_left) = (0, 0);
        for segment in core.space.segments() {
            let chunks = segment.row.chunks.iter();
            let lost = chunks.filter(|(drive, _)| shared.fleet.get(*drive).is_none()).count();
            if segment.row.live_bytes == 0 {
                segments[0] += 1;
                continue;
            }
            segments[lost.min(3)] += 1;
            beyond_repair += u64::from(lost > usize::from(segment.row.parity));
            let wanted = to_u64(absent.lost(shared, segment) + absent.drained(segment));
            chunks_left += wanted;
            let rows = u64::from(segment.row.rows);
            bytes_left += wanted * rows * u64::from(config.shape.unit_bytes);
        }
        let clock = &shared.options.clock;
        let eta = began.filter(|_| bytes_done > 0).map(|began| {
            let spent = clock.now().since(began).as_secs_f64();
            Duration::from_secs_f64(spent / bytes_done as f64 * bytes_left as f64)
        });
        let share = shared.load.share(clock);
        let rebuild = RebuildStatus { chunks: chunks_left, bytes_left, bytes_done, share, eta };
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &shared.counts;
        let mut status = Status {
            name: shared.name.clone(),
            uuid: config.pool,
            parity: config.shape.parity,
            width: shared.shape_now(&core.space).0,
            epoch: config.epoch,
            incarnation: config.incarnation,
            members,
            space: shared.space_use(&core),
            log: LogStatus {
                members: log.members.clone(),
                bytes: log.bytes,
                used: log.used(),
                pending: core.pending.bytes(),
            },
            segments,
            beyond_repair,
            rebuild: (chunks_left > 0).then_some(rebuild),
            scrub,
            sweeping: sweep::waiting(&core),
            written: WriteCounts {
                user: get(&counts.user_written),
                destaged: get(&counts.destaged),
                cleaned: get(&counts.cleaned),
                metadata: get(&counts.metadata),
                rebuilt: get(&counts.rebuilt),
                checkpoints: get(&counts.checkpoints),
                reconstructed: get(&counts.reconstructed),
                salvaged: get(&counts.salvaged),
            },
            map_bytes: core.map.used() as u64,
            map_loads: core.map.loads,
            alarms: Vec::new(),
        };
        let (stopped, failed) = (core.stopped.clone(), core.failed.clone());
        let in_trash = core.catalog.volumes.values().filter(|row| row.trashed.is_some());
        let trashed = in_trash.map(|row| row.name.clone()).collect();
        drop((log, core, config));
        let facts = Facts {
            stopped,
            failed,
            failure: self.failure.lock().clone(),
            log_is_degraded: shared.log_is_degraded.load(Ordering::Acquire),
            missing_grace: shared.options.missing_grace,
            trashed,
            waiting,
            scrub_within: shared.options.scrub_within,
            now_secs: shared.options.clock.unix_time().as_secs(),
        };
        status.alarms = alarms::of(&status, &facts);
        Some(status)
    }

    /// Verifies that what is in memory agrees with itself: live bytes with a recount, slots with segments, and what is kept
    /// with who sees it.
    ///
    /// # Errors
    /// The first thing that does not agree.
    pub fn check(&self) -> Result<(), String> {
        let shared = &self.shared;
        let mut io = shared.ios.take();
        let _keeper = shared.keeper.lock();
        let mut core = shared.core.lock();
        let core = &mut *core;
        core.space.check()?;
        let mut live = std::collections::BTreeMap::new();
        let is_swept = sweep::waiting(core) == 0;
        let viewers = Viewers::of(&core.catalog);
        for key in core.map.all_leaves() {
            let mut access = crate::map::Access { io: &mut io, space: &mut core.space };
            let versions = core.map.versions(&mut access, key).map_err(|broken| broken.why)?;
            let sight = viewers.sight(&mut core.map, &mut access, key, &mut AtLeaf::default());
            let sight = sight.map_err(|broken| broken.why)?;
            let unseen = |block, birth, next| !sight.see(block, birth, next);
            let bytes = bytes_of(&versions, unseen);
            if is_swept && bytes > 0 {
                let (lineage, index) = key;
                return Err(format!("nobody sees {bytes} bytes of leaf {index} of {lineage}"));
            }
            for (_, version) in versions {
                if let crate::omf::leaf::Place::Fragment(fragment) = version.place {
                    *live.entry(fragment.segment).or_insert(0) +=
                        crate::map::fragment_bytes(&fragment);
                }
            }
        }
        for (segment, bytes) in core.map.extents() {
            *live.entry(segment).or_insert(0) += bytes;
        }
        for segment in core.space.segments() {
            let counted = live.remove(&segment.row.id).unwrap_or(0);
            if counted != segment.row.live_bytes {
                return Err(format!(
                    "{} has {} live bytes, and {counted} were counted",
                    segment.row.id, segment.row.live_bytes
                ));
            }
        }
        if let Some((segment, bytes)) = live.first_key_value() {
            return Err(format!("{segment} is free, and {bytes} bytes of it are referred to"));
        }
        let used = shared.space_use(core);
        let sum = used.free + used.waiting + used.parity + used.garbage + used.live + used.metadata;
        if sum != used.raw {
            return Err(format!("the parts of {used:?} add up to {sum}"));
        }
        Ok(())
    }

    /// Remarks of the open that an operator should know.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }
}
