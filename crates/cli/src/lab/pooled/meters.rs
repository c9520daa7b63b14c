//! Processor time and traffic of block devices, between two moments.

use std::fs;

use esker_base::{Clock, Nanos};
use esker_lab::pooled::bench::{BlockTraffic, CpuTime};

use super::programs::{Run, wrong};

/// Bytes of a sector in the kernel's statistics, whatever the device has.
const SECTOR: u64 = 512;

/// The programs and devices that are watched.
pub(super) struct Watched {
    pub(super) nodes: Vec<u32>,
    pub(super) clients: Vec<u32>,
    pub(super) storage: Vec<u32>,
    /// As in `/sys/block`.
    pub(super) blocks: Vec<String>,
}

/// A block device's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct BlockStat {
    reads: u64,
    read_sectors: u64,
    writes: u64,
    written_sectors: u64,
    /// Milliseconds with requests under way.
    busy_ms: u64,
    /// Milliseconds of all requests.
    queue_ms: u64,
}

/// Counters at a moment.
pub(super) struct Moment {
    at: Nanos,
    /// Ticks of nodes, clients, storage.
    ticks: [u64; 3],
    /// Busy and all ticks of all processors.
    machine: (u64, u64),
    blocks: Vec<BlockStat>,
}

impl Moment {
    /// This one.
    pub(super) fn take(clock: &Clock, watched: &Watched) -> Run<Moment> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| wrong(path, error));
        let ticks = |pids: &[u32]| -> Run<u64> {
            let of = |pid: &u32| {
                let path = format!("/proc/{pid}/stat");
                process_ticks(&read(&path)?).ok_or_else(|| wrong(&path, "it has another form"))
            };
            pids.iter().map(of).sum()
        };
        let block = |name: &String| {
            let path = format!("/sys/block/{name}/stat");
            block_stat(&read(&path)?).ok_or_else(|| wrong(&path, "it has another form"))
        };
        let machine = machine_ticks(&read("/proc/stat")?);
        Ok(Moment {
            at: clock.now(),
            ticks: [ticks(&watched.nodes)?, ticks(&watched.clients)?, ticks(&watched.storage)?],
            machine: machine.ok_or_else(|| wrong("/proc/stat", "it has another form"))?,
            blocks: watched.blocks.iter().map(block).collect::<Run<_>>()?,
        })
    }

    /// From an earlier moment to this one.
    #[allow(clippy::cast_precision_loss)] // counts of a run
    pub(super) fn since(&self, before: &Moment) -> (BlockTraffic, CpuTime) {
        let seconds = self.at.since(before.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let mut traffic = BlockTraffic::default();
        let count = self.blocks.len().max(1) as f64;
        for (now, old) in self.blocks.iter().zip(&before.blocks) {
            traffic.reads += now.reads - old.reads;
            traffic.writes += now.writes - old.writes;
            traffic.read_bytes += SECTOR * (now.read_sectors - old.read_sectors);
            traffic.written_bytes += SECTOR * (now.written_sectors - old.written_sectors);
            traffic.busy += (now.busy_ms - old.busy_ms) as f64 / 1e3 / seconds / count;
            traffic.queue += (now.queue_ms - old.queue_ms) as f64 / 1e3 / seconds / count;
        }
        // The kernel's clock of busy devices is coarser than ours.
        traffic.busy = traffic.busy.min(1.0);
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let part = |index: usize| (self.ticks[index] - before.ticks[index]) as f64 / per_second;
        let (busy, all) = (self.machine.0 - before.machine.0, self.machine.1 - before.machine.1);
        let machine = busy as f64 / all.max(1) as f64;
        let cpu = CpuTime { nodes_s: part(0), clients_s: part(1), storage_s: part(2), machine };
        (traffic, cpu)
    }
}

/// User and system time of a process (proc(5): fields 14 and 15).
fn process_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let field = |index: usize| rest.split_whitespace().nth(index)?.parse::<u64>().ok();
    Some(field(11)? + field(12)?)
}

/// Busy and all time of all processors. Time that a hypervisor takes away is busy: nobody here has it.
fn machine_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|one| one.parse().ok()).collect();
    // User, nice, system, idle, waiting for I/O, interrupts, soft interrupts, stolen.
    let all: u64 = fields.get(..8)?.iter().sum();
    Some((all - fields[3] - fields[4], all))
}

/// Counters of a block device (Documentation/block/stat.rst).
fn block_stat(stat: &str) -> Option<BlockStat> {
    let fields: Vec<u64> = stat.split_whitespace().filter_map(|one| one.parse().ok()).collect();
    let &[reads, _, read_sectors, _, writes, _, written_sectors, _, _, busy_ms, queue_ms] =
        fields.get(..11)?
    else {
        return None;
    };
    Some(BlockStat { reads, read_sectors, writes, written_sectors, busy_ms, queue_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read_by_their_places() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0";
        assert_eq!(process_ticks(stat), Some(42));
        let machine = machine_ticks("cpu  10 1 9 70 5 2 2 1 0 0\ncpu0 1 1 1\n");
        assert_eq!(machine, Some((25, 100)));
        let stat = "  39 0 1144 60 35 1031 139680 547 0 120 638 5 0 16777224 9 5 20";
        let found = block_stat(stat).unwrap();
        let expected = BlockStat {
            reads: 39,
            read_sectors: 1144,
            writes: 35,
            written_sectors: 139_680,
            busy_ms: 120,
            queue_ms: 638,
        };
        assert_eq!(found, expected);
        assert!(block_stat("1 2 3").is_none() && machine_ticks("intr 1").is_none());
    }

    #[test]
    fn a_difference_is_a_rate_over_its_time() {
        let moment = |seconds: u64, block: BlockStat, ticks: u64| Moment {
            at: Nanos(seconds * 1_000_000_000),
            ticks: [ticks; 3],
            machine: (ticks, 4 * ticks),
            blocks: vec![block, BlockStat::default()],
        };
        let later = BlockStat {
            reads: 20,
            busy_ms: 1500,
            queue_ms: 6000,
            written_sectors: 8,
            ..BlockStat::default()
        };
        let (traffic, cpu) = moment(5, later, 100).since(&moment(2, BlockStat::default(), 0));
        assert_eq!((traffic.reads, traffic.written_bytes), (20, 4096));
        assert!((traffic.busy - 0.25).abs() < 1e-9, "half of the time on one of two devices");
        assert!((traffic.queue - 1.0).abs() < 1e-9);
        assert!((cpu.machine - 0.25).abs() < 1e-9);
    }
}
