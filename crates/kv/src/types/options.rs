//! Options of a user: the memory budget, the durability window; and the sizes of the engine's parts,
//! which follow from the budget.

use std::ops::ControlFlow;
use std::time::Duration;

use esker_base::process::PerProcess;
use esker_base::progress::OnProgress;
use esker_base::{Clock, Progress, memory};

use crate::types::error::{KvError, Result};
use crate::types::remark::{OnRemark, RemarkLevel};

/// Runner of maintenance (ingest, spill, compaction) and the timed flush of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Maintenance {
    /// The KVDB's own threads.
    Threads,
    /// The caller, one step at a time through [`Kvdb::step`](crate::Kvdb::step). A write that has to wait for
    /// maintenance runs the step itself. For tests and simulation.
    Manual,
}

/// When acknowledged writes are durable: as long as the device answers in time, within a time and a number of bytes.
/// That is about a power failure: in a directory on ext4, XFS or tmpfs a process that is killed loses nothing that was
/// acknowledged. [`Durability::within`] and [`Durability::bytes`] make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durability {
    /// A write acknowledged longer ago than this is durable, in milliseconds. 0 makes every write durable before it
    /// returns.
    pub ms: u64,
    /// At most this many bytes of acknowledged writes are not yet durable. 0 makes every write durable before it returns.
    pub bytes: u64,
}

impl Durability {
    /// Every write is durable before it returns.
    pub const ALWAYS: Durability = Durability { ms: 0, bytes: DURABILITY_BYTES };

    /// Writes are durable within this time, in milliseconds, and 8 MiB.
    #[must_use]
    pub fn within(time: Duration) -> Durability {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Durability { ms, bytes: DURABILITY_BYTES }
    }

    /// The same, with at most so many bytes of acknowledged writes that are not durable yet.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Durability {
        Durability { bytes, ..self }
    }
}

impl Default for Durability {
    fn default() -> Durability {
        Durability { ms: 100, bytes: DURABILITY_BYTES }
    }
}

/// How one write is done: [`WriteOptions::default`], or [`WriteOptions::durable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Whether it is durable when the call returns. Default: as [`Options::durability`] says.
    pub durable: bool,
}

impl WriteOptions {
    /// Durable when the call returns. The device error since which the KVDB takes no writes may come from that: then the
    /// write may have happened.
    #[must_use]
    pub const fn durable() -> WriteOptions {
        WriteOptions { durable: true }
    }
}

/// How a KVDB is opened. Everything but the budget and the durability window has a good default. It may get more fields:
/// begin with [`Options::default`], and change it, for example by [`Options::with`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The DRAM the engine may use for everything, in bytes: memtables, log buffers, filters,
    /// indexes, caches and maintenance. At least 16 MiB. Default: a quarter of the memory that this machine has and
    /// control groups allow this process, 1 GiB at most and 16 MiB at least.
    pub memory_bytes: u64,
    /// When acknowledged writes are durable. Default: within 100 ms and 8 MiB.
    pub durability: Durability,
    /// A transaction that is open for longer ends by itself, in milliseconds, when others begin or data is ingested, or
    /// within half a second: the data that it reads, and the
    /// writes of others since it began, are kept as long as it lives. Default 300,000 (5 minutes). It ends before
    /// that when the writes of others, in memtables that are kept to find conflicts, take more than an eighth of
    /// `memory_bytes`.
    pub transaction_ms: u64,
    /// Maintenance lets the media hold at most this many bytes for each live byte, where it is
    /// given time for it: at least 1.02. Lower values cost more writes. Default 1.25.
    pub space_amplification: f64,
    /// Nothing is written to any device. Several processes may open the KVDB so at once, as long as nobody has it
    /// open to write. Records of the log that are in no kvset yet are kept in memory: up to half of the budget,
    /// else opening fails and says so. Writes and maintenance are refused. Default: no.
    pub read_only: bool,
    /// The runner of maintenance. Default: threads.
    pub maintenance: Maintenance,
    /// The engine's time. Default: real.
    pub clock: Clock,
    /// Sizes of the engine's parts; `None` derives them from the budget.
    pub tuning: Option<Tuning>,
    /// The observer of long work: opening, backup, repair, compaction. Set by [`Options::on_progress`]. Default: nobody.
    pub observer: OnProgress,
    /// The receiver of remarks. Set by [`Options::on_remark`]. Default: nobody.
    pub(crate) remarks: OnRemark,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_bytes: default_memory_bytes(),
            durability: Durability::default(),
            transaction_ms: 300_000,
            space_amplification: 1.25,
            read_only: false,
            maintenance: Maintenance::Threads,
            clock: Clock::real(),
            tuning: None,
            observer: OnProgress::default(),
            remarks: OnRemark::default(),
        }
    }
}

/// It is asked for once: a program has one limit, and makes many options.
fn default_memory_bytes() -> u64 {
    static BYTES: PerProcess<u64> = PerProcess::new(|| part_of(memory::limit()));
    *BYTES.get()
}

/// The default budget on a machine or in a group of so many bytes.
fn part_of(limit_bytes: u64) -> u64 {
    (limit_bytes / 4 / MIB * MIB).clamp(MEMORY_MIN, MEMORY_DEFAULT)
}

/// The sizes of the engine's parts. They follow from the memory budget; tests set them small so
/// that little data goes through every kind of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// A memtable is frozen at this size in DRAM.
    pub memtable_bytes: u64,
    /// The size of a log segment, and of a value block written by aging.
    pub block_bytes: u64,
    /// A frame is sealed at this size. A larger batch has a frame of its own.
    pub frame_bytes: u64,
    /// Keys are written in extents of this size.
    pub key_extent_bytes: u64,
    /// The unit in which media are allocated.
    pub allocation_bytes: u64,
    /// The keys of the root's newest kvsets are merged when it holds this many of about a size.
    pub root_kvsets: usize,
    /// The fullest root spills when all roots together hold this many bytes of keys and values.
    pub spill_bytes: u64,
    /// A leaf's keys are compacted when it holds this many kvsets.
    pub compact_kvsets: usize,
    /// A leaf splits when its keys take this many bytes.
    pub leaf_key_bytes: u64,
    /// Aging gathers this many bytes of values at a time, to write them in key order.
    pub gather_bytes: u64,
    /// This many workers run steps whether that pays or not, 1 or 2. With 1, the second one works while it pays.
    pub workers: usize,
}

/// The default of [`Durability::bytes`].
const DURABILITY_BYTES: u64 = 8 << 20;
const MIB: u64 = 1 << 20;
/// Below this budget the parts would be too small to work.
pub(crate) const MEMORY_MIN: u64 = 16 << 20;
/// The default budget where there is four times as much.
const MEMORY_DEFAULT: u64 = 1 << 30;

/// Bytes that each KVS has of the budget at least.
const KVS_BYTES: u64 = 32 << 10;
/// So many KVSs are there for any budget.
const KVSS_LEAST: u64 = 512;

impl Tuning {
    /// The sizes that suit a budget of `memory_bytes`.
    #[must_use]
    pub fn for_budget(memory_bytes: u64) -> Tuning {
        let share =
            |divisor: u64, least: u64, most: u64| (memory_bytes / divisor).clamp(least, most);
        Tuning {
            memtable_bytes: share(16, 1 << 20, 64 << 20),
            block_bytes: 32 << 20,
            // With its header a frame is one command: few devices take more than 1 MiB.
            frame_bytes: share(256, 64 << 10, 1 << 20) - 4096,
            key_extent_bytes: 4 << 20,
            allocation_bytes: 64 << 10,
            root_kvsets: 4,
            // With as much again, which comes while it spills, it is still in the record cache: else
            // values would be read from the log, in a pass over all of it for each window.
            spill_bytes: share(4, 4 << 20, 1 << 30),
            compact_kvsets: 6,
            leaf_key_bytes: share(16, 4 << 20, 64 << 20),
            gather_bytes: share(8, 1 << 20, 128 << 20),
            workers: 1,
        }
    }
}

/// Files that may become so large hold parts of any size, in bytes.
const LARGE_FILES: u64 = 512 << 20;

impl Tuning {
    /// The same for files that can hold so many bytes. Where that is little, parts are smaller: what they need to be
    /// rewritten is kept in reserve.
    pub(crate) fn on_files_of(self, usable_bytes: u64) -> Tuning {
        if usable_bytes >= LARGE_FILES {
            return self;
        }
        let part = |bytes: u64, divisor: u64| {
            bytes.min((usable_bytes / divisor).next_multiple_of(1 << 16).max(1 << 20))
        };
        Tuning {
            memtable_bytes: part(self.memtable_bytes, 32),
            block_bytes: part(self.block_bytes, 64),
            key_extent_bytes: part(self.key_extent_bytes, 64),
            spill_bytes: part(self.spill_bytes, 8),
            leaf_key_bytes: part(self.leaf_key_bytes, 32),
            gather_bytes: part(self.gather_bytes, 16),
            ..self
        }
    }

    /// Bytes in the roots at which the fullest one spills: so that with as much again, while it does, the log takes
    /// half of its class at most.
    pub(crate) fn spill_bytes_on(&self, log_capacity_bytes: u64) -> u64 {
        self.spill_bytes.min(log_capacity_bytes / 4)
    }

    /// Refuses sizes that cannot work together.
    fn check(&self) -> Result<()> {
        let holds = [
            ((1..=2).contains(&self.workers), "workers must be 1 or 2"),
            (self.root_kvsets >= 2, "root_kvsets must be at least 2"),
            (self.compact_kvsets >= 2, "compact_kvsets must be at least 2"),
            (
                (8 << 10..=1 << 30).contains(&self.block_bytes),
                "block_bytes must be from 8 KiB to 1 GiB",
            ),
            (
                self.allocation_bytes >= 4096 && self.allocation_bytes.is_multiple_of(4096),
                "allocation_bytes must be a multiple of 4 KiB",
            ),
            (self.key_extent_bytes >= 4096, "key_extent_bytes must be at least 4 KiB"),
            (self.frame_bytes > 0, "frame_bytes must be more than 0"),
            (self.spill_bytes > 0, "spill_bytes must be more than 0"),
            (self.memtable_bytes >= 4096, "memtable_bytes must be at least 4 KiB"),
        ];
        match holds.iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(KvError::Options((*why).into())),
            None => Ok(()),
        }
    }
}

/// A space amplification in percent.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is in range
pub(crate) fn percent(space_amplification: f64) -> Result<u64> {
    if (1.02..=100.0).contains(&space_amplification) {
        return Ok((space_amplification * 100.0).round() as u64);
    }
    Err(KvError::Options(format!(
        "a space amplification of {space_amplification} cannot be reached: give 1.02 to 100"
    )))
}

impl Options {
    /// The same options with a change.
    ///
    /// ```
    /// let options = esker_kv::Options::default().with(|options| options.memory_bytes = 64 << 20);
    /// assert_eq!(options.memory_bytes, 64 << 20);
    /// ```
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Options {
        change(&mut self);
        self
    }

    /// The same options with an observer of long work, called on the thread that works: while the KVDB opens after a
    /// crash, and during [backup](crate::Kvdb::backup), [repair](crate::Builder::repair) and
    /// [compaction](crate::Kvdb::compact). `Break` calls the work off: it ends with
    /// [`KvError::Cancelled`], a compaction with a status that says so, and nothing is lost.
    #[must_use]
    pub fn on_progress(
        self,
        observer: impl FnMut(&Progress) -> ControlFlow<()> + Send + 'static,
    ) -> Options {
        Options { observer: OnProgress::new(observer), ..self }
    }

    /// The same options with a receiver of remarks, such as the program's log: those that [`Kvdb::remarks`](crate::Kvdb::remarks)
    /// returns, each when it is new, and the failure since which the KVDB takes no writes. It is called by the thread
    /// that opens the KVDB and then by one of the KVDB's own, within about a second; where the KVDB has none, by calls
    /// of [`Kvdb::step`](crate::Kvdb::step). It must not close the KVDB. A panic of it is passed over.
    #[must_use]
    pub fn on_remark(self, receiver: impl Fn(&str) + Send + Sync + 'static) -> Options {
        self.on_leveled_remark(move |_, remark| receiver(remark))
    }

    /// As [`Options::on_remark`], for a receiver that is also told how grave each remark is.
    #[must_use]
    pub fn on_leveled_remark(
        self,
        receiver: impl Fn(RemarkLevel, &str) + Send + Sync + 'static,
    ) -> Options {
        Options { remarks: OnRemark::new(receiver), ..self }
    }

    /// The parts' sizes.
    pub(crate) fn tuning(&self) -> Tuning {
        self.tuning.unwrap_or_else(|| Tuning::for_budget(self.memory_bytes))
    }

    /// How many bytes of acknowledged writes may not be durable: as many as the user allows, and no more than suits
    /// the budget, because they are in DRAM.
    pub(crate) fn durability_limit(&self) -> u64 {
        self.durability.bytes.min(self.memory_bytes / 16)
    }

    /// The most KVSs that a KVDB has: one for each 32 KiB of the memory budget, and 512 however small that is. Each
    /// takes some memory and space of its own, used or not.
    #[must_use]
    pub fn kvs_limit(&self) -> u64 {
        (self.memory_bytes / KVS_BYTES).max(KVSS_LEAST)
    }

    /// Refuses so many KVSs when they are too many for the budget.
    pub(crate) fn check_kvss(&self, count: usize) -> Result<()> {
        let (count, limit) = (count as u64, self.kvs_limit());
        if count <= limit {
            return Ok(());
        }
        Err(KvError::Options(format!(
            "{count} KVSs are more than the {limit} that a memory budget of {} bytes is enough for: open the KVDB with \
             at least {} bytes, or keep several of them in one, told apart by a prefix of their keys",
            self.memory_bytes,
            count * KVS_BYTES
        )))
    }

    /// Refuses options that cannot work for a new KVDB.
    pub(crate) fn check_to_create(&self) -> Result<()> {
        if self.read_only { Err(KvError::ReadOnly) } else { self.check() }
    }

    /// The space amplification that maintenance aims at, in percent.
    pub(crate) fn space_percent(&self) -> u64 {
        percent(self.space_amplification).expect("checked when it was opened")
    }

    /// Refuses options that cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        if self.memory_bytes < MEMORY_MIN && self.tuning.is_none() {
            return Err(KvError::Options(format!(
                "a memory budget of {} bytes is too small: give at least {MEMORY_MIN} bytes (16 MiB)",
                self.memory_bytes
            )));
        }
        let limit = (self.memory_bytes / 4).max(DURABILITY_BYTES);
        if self.durability.bytes > limit {
            return Err(KvError::Options(format!(
                "durability of {} bytes would take more than a quarter of the memory budget: give \
                 at most {limit}",
                self.durability.bytes
            )));
        }
        percent(self.space_amplification)?;
        self.tuning().check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_budget_is_a_quarter_of_little_memory() {
        let of = |limit: u64| part_of(limit) >> 20;
        assert_eq!([of(u64::MAX), of(4 << 30), of(512 << 20), of(1 << 20)], [1024, 1024, 128, 16]);
        assert!(Options::default().memory_bytes <= memory::limit() / 4);
        Options::default().with(|set| set.memory_bytes = part_of(0)).check().unwrap();
    }

    #[test]
    fn sizes_that_cannot_work_together_are_refused() {
        let usual = Tuning::for_budget(64 << 20);
        usual.check().unwrap();
        let wrong = [
            Tuning { key_extent_bytes: 0, ..usual },
            Tuning { allocation_bytes: 0, ..usual },
            Tuning { allocation_bytes: 5000, ..usual },
            Tuning { frame_bytes: 0, ..usual },
            Tuning { spill_bytes: 0, ..usual },
        ];
        for tuning in wrong {
            assert!(matches!(tuning.check(), Err(KvError::Options(_))), "{tuning:?}");
        }
    }
}
