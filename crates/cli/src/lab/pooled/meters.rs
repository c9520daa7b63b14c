//! Processor time and traffic of block devices, between two moments.

use std::fs;

use esker_base::{Clock, Nanos};
use esker_lab::pooled::bench::{BlockTraffic, CpuTime};

use crate::host;
use crate::lab::programs::{Run, wrong};

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
    /// Processor time of nodes, clients, storage, in nanoseconds.
    cpu_ns: [u64; 3],
    /// Busy and all nanoseconds of all processors.
    machine_ns: (u64, u64),
    blocks: Vec<BlockStat>,
}

impl Moment {
    /// This one.
    pub(super) fn take(clock: &Clock, watched: &Watched) -> Run<Moment> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| wrong(path, error));
        let cpu_ns = |pids: &[u32]| -> Run<u64> {
            let of = |pid: &u32| {
                let none =
                    || wrong(&format!("/proc/{pid}/stat"), "it is not there, or has another form");
                host::cpu_ns_of(pid).ok_or_else(none)
            };
            pids.iter().map(of).sum()
        };
        let block = |name: &String| {
            let path = format!("/sys/block/{name}/stat");
            block_stat(&read(&path)?).ok_or_else(|| wrong(&path, "it has another form"))
        };
        let machine_ns = host::processors_ns();
        Ok(Moment {
            at: clock.now(),
            cpu_ns: [cpu_ns(&watched.nodes)?, cpu_ns(&watched.clients)?, cpu_ns(&watched.storage)?],
            machine_ns: machine_ns.ok_or_else(|| wrong("/proc/stat", "it has another form"))?,
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
        let part = |index: usize| (self.cpu_ns[index] - before.cpu_ns[index]) as f64 / 1e9;
        let (now, then) = (self.machine_ns, before.machine_ns);
        let machine = (now.0 - then.0) as f64 / (now.1 - then.1).max(1) as f64;
        let cpu = CpuTime { nodes_s: part(0), clients_s: part(1), storage_s: part(2), machine };
        (traffic, cpu)
    }
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
        assert!(block_stat("1 2 3").is_none());
    }

    #[test]
    fn a_difference_is_a_rate_over_its_time() {
        let moment = |seconds: u64, block: BlockStat, ns: u64| Moment {
            at: Nanos(seconds * 1_000_000_000),
            cpu_ns: [ns; 3],
            machine_ns: (ns, 4 * ns),
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
