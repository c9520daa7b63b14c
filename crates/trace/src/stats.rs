//! Figures of a trace.
//!
//! References are those of [`block_refs`]: reads and writes in 4 KiB blocks.

use esker_base::units::{to_u64, to_usize};
use serde::Serialize;

use crate::error::{Result, TraceError};
use crate::keys::Numbering;
use crate::memory::{Memory, Short};
use crate::request::{BLOCK_BYTES, Op, Request, block_refs};
use crate::reuse::ReuseDistances;
use crate::sample::Sample;

/// How many places at which a request may go on are remembered.
const FLOWS: usize = 32;

/// The shares of all references whose hottest blocks are counted, in percent.
pub const HOT_SHARES: [u32; 4] = [50, 80, 90, 99];

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OpCount {
    /// How many.
    pub requests: u64,
    /// Their lengths in all, in bytes.
    pub bytes: u64,
}

/// The hottest blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HotSet {
    /// The share of all references that they get, in percent.
    pub percent: u32,
    /// The smallest number of blocks that get it.
    pub blocks: u64,
}

/// References by reuse distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReuseBucket {
    /// The distance is below this many blocks, and not below that of the bucket before.
    pub below_blocks: u64,
    /// How many references.
    pub references: u64,
}

/// The figures of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Reads.
    pub reads: OpCount,
    /// Writes.
    pub writes: OpCount,
    /// Discards.
    pub discards: OpCount,
    /// Flushes.
    pub flushes: OpCount,
    /// References to 4 KiB blocks.
    pub references: u64,
    /// Those that read.
    pub read_references: u64,
    /// Different blocks referred to.
    pub unique_blocks: u64,
    /// Different blocks written.
    pub written_blocks: u64,
    /// Requests that read or write and begin where one of the 32 requests before ended.
    pub sequential_requests: u64,
    /// From the earliest to the latest request, in nanoseconds.
    pub duration_ns: u64,
    /// Requests whose time is before that of the one before them.
    pub back_in_time: u64,
    /// The hottest blocks, for each of [`HOT_SHARES`].
    pub hot_sets: Vec<HotSet>,
    /// References by reuse distance, in powers of two; empty if it was not asked for.
    pub reuse: Vec<ReuseBucket>,
    /// References to a block that was not referred to before.
    pub first_references: u64,
    /// Devices.
    pub devices: u32,
}

impl Stats {
    /// Requests that read or write.
    #[must_use]
    pub fn data_requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }

    /// Bytes read and written.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.reads.bytes.saturating_add(self.writes.bytes)
    }

    /// The size of all different blocks, in bytes.
    #[must_use]
    pub fn footprint_bytes(&self) -> u64 {
        self.unique_blocks * BLOCK_BYTES
    }
}

/// Gathers the figures of a trace, request by request.
#[derive(Clone, Debug, Default)]
pub struct StatsBuilder {
    stats: Stats,
    numbering: Numbering,
    /// How often each block was referred to, and whether it was written.
    counts: Vec<(u32, bool)>,
    reuse: Option<(ReuseDistances, Vec<u64>)>,
    /// The blocks whose state is kept; `None` for all.
    sample: Option<Sample>,
    first_ns: Option<u64>,
    latest_ns: u64,
    last_ns: u64,
    flows: [Option<(u32, u64)>; FLOWS],
    oldest_flow: usize,
}

impl StatsBuilder {
    /// Nothing gathered yet. Reuse distances take most of the time.
    #[must_use]
    pub fn new(with_reuse: bool) -> StatsBuilder {
        StatsBuilder {
            reuse: with_reuse.then(|| (ReuseDistances::default(), vec![0; 65])),
            ..StatsBuilder::default()
        }
    }

    /// Keeps state of a sample of the blocks alone: figures of different blocks, and of reuse, are estimates then.
    #[must_use]
    pub fn sampled(self, sample: Sample) -> StatsBuilder {
        StatsBuilder { sample: Some(sample), ..self }
    }

    /// Makes room for requests to be added: some 80 bytes a block with reuse distances, 30 without, and up to three times
    /// that while a table grows.
    ///
    /// # Errors
    /// `Memory` when there is none for them.
    pub fn reserve(&mut self, requests: &[Request], memory: Memory) -> Result<()> {
        let of = |request: &Request| {
            let keys = if request.op.is_data() { request.block_keys() } else { 0..0 };
            match self.sample {
                None => keys.end - keys.start,
                Some(sample) => to_u64(keys.filter(|key| sample.has(*key)).count()),
            }
        };
        let more: u64 = requests.iter().map(of).sum();
        let more = usize::try_from(more).unwrap_or(usize::MAX / 64);
        self.reserve_blocks(more, memory)
            .map_err(|Short(bytes)| TraceError::Memory { blocks: to_u64(self.counts.len()), bytes })
    }

    fn reserve_blocks(&mut self, more: usize, memory: Memory) -> Result<(), Short> {
        self.numbering.reserve(more, memory)?;
        memory.reserve(&mut self.counts, more)?;
        match &mut self.reuse {
            Some((distances, _)) => distances.reserve(more, memory),
            None => Ok(()),
        }
    }

    /// Takes a request in.
    pub fn add(&mut self, request: &Request) {
        let stats = &mut self.stats;
        let count = match request.op {
            Op::Read => &mut stats.reads,
            Op::Write => &mut stats.writes,
            Op::Discard => &mut stats.discards,
            Op::Flush => &mut stats.flushes,
        };
        count.requests += 1;
        count.bytes = count.bytes.saturating_add(request.length);
        stats.devices = stats.devices.max(request.device + 1);
        if self.first_ns.is_some() && request.time_ns < self.last_ns {
            stats.back_in_time += 1;
        }
        self.last_ns = request.time_ns;
        self.first_ns = Some(self.first_ns.map_or(request.time_ns, |t| t.min(request.time_ns)));
        self.latest_ns = self.latest_ns.max(request.time_ns);
        if !request.op.is_data() || request.length == 0 {
            return;
        }
        let begin = (request.device, request.offset);
        let end = (request.device, request.offset + request.length);
        match self.flows.iter().position(|flow| *flow == Some(begin)) {
            Some(flow) => {
                stats.sequential_requests += 1;
                self.flows[flow] = Some(end);
            }
            None => {
                self.flows[self.oldest_flow] = Some(end);
                self.oldest_flow = (self.oldest_flow + 1) % FLOWS;
            }
        }
        for block in block_refs(request) {
            stats.references += 1;
            if !block.write {
                stats.read_references += 1;
            }
            if self.sample.is_some_and(|sample| !sample.has(block.key)) {
                continue;
            }
            let (number, is_new) = self.numbering.number(block.key);
            if is_new {
                self.counts.push((0, false));
                stats.first_references += 1;
            }
            let (references, written) = &mut self.counts[to_usize(u64::from(number))];
            *references = references.saturating_add(1);
            if block.write && !*written {
                *written = true;
                stats.written_blocks += 1;
            }
            if let Some((distances, buckets)) = &mut self.reuse
                && let Some(distance) = distances.reference(block.key)
            {
                // Bucket n: below 2^n, so that bucket 0 has the distance 0 alone.
                buckets[to_usize(u64::from(u64::BITS - distance.leading_zeros()))] += 1;
            }
        }
    }

    /// The figures of the requests taken in.
    #[must_use]
    pub fn finish(mut self) -> Stats {
        let mut stats = self.stats;
        let whole = |count: u64| self.sample.map_or(count, |sample| sample.whole(count));
        stats.unique_blocks = whole(to_u64(self.counts.len()));
        stats.written_blocks = whole(stats.written_blocks);
        stats.first_references = whole(stats.first_references);
        stats.duration_ns = self.latest_ns - self.first_ns.unwrap_or(self.latest_ns);
        stats.hot_sets = hot_sets(&mut self.counts);
        stats.hot_sets.iter_mut().for_each(|set| set.blocks = whole(set.blocks));
        if let Some((_, buckets)) = self.reuse {
            let last = buckets.iter().rposition(|&count| count > 0).map_or(0, |at| at + 1);
            stats.reuse = (0u32..)
                .zip(&buckets[..last])
                .map(|(power, &references)| ReuseBucket {
                    below_blocks: whole(1u64.checked_shl(power).unwrap_or(u64::MAX)),
                    references: whole(references),
                })
                .collect();
        }
        stats
    }
}

fn hot_sets(counts: &mut [(u32, bool)]) -> Vec<HotSet> {
    counts.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
    let all: u64 = counts.iter().map(|&(count, _)| u64::from(count)).sum();
    let mut sets = Vec::new();
    let (mut blocks, mut sum) = (0, 0u64);
    for percent in HOT_SHARES {
        let wanted = (u128::from(all) * u128::from(percent)).div_ceil(100);
        while u128::from(sum) < wanted {
            sum += u64::from(counts[to_usize(blocks)].0);
            blocks += 1;
        }
        sets.push(HotSet { percent, blocks });
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, block: u64, blocks: u64, time_ns: u64) -> Request {
        let (offset, length) = (block * BLOCK_BYTES, blocks * BLOCK_BYTES);
        Request { time_ns, offset, length, device: 0, op }
    }

    #[test]
    fn figures_of_a_small_trace() {
        let mut builder = StatsBuilder::new(true);
        for one in [
            request(Op::Read, 0, 2, 100),
            request(Op::Write, 2, 2, 300),
            request(Op::Flush, 0, 0, 400),
            request(Op::Read, 0, 1, 350),
            request(Op::Discard, 0, 8, 500),
            request(Op::Read, 0, 1, 600),
        ] {
            builder.add(&one);
        }
        let stats = builder.finish();
        assert_eq!((stats.reads.requests, stats.writes.requests), (3, 1));
        assert_eq!((stats.discards.bytes, stats.flushes.requests), (8 * 4096, 1));
        assert_eq!((stats.references, stats.read_references), (6, 4));
        assert_eq!((stats.unique_blocks, stats.written_blocks), (4, 2));
        assert_eq!(stats.first_references, 4);
        assert_eq!((stats.sequential_requests, stats.back_in_time), (1, 1));
        assert_eq!(stats.duration_ns, 500);
        // Block 0 has half of the references; three blocks have 5 of 6, which is 83 %.
        let blocks: Vec<u64> = stats.hot_sets.iter().map(|set| set.blocks).collect();
        assert_eq!(blocks, [1, 3, 4, 4]);
        // Block 0 again after three others, then at once.
        let reuse: Vec<(u64, u64)> =
            stats.reuse.iter().map(|b| (b.below_blocks, b.references)).collect();
        assert_eq!(reuse, [(1, 1), (2, 0), (4, 1)]);
    }

    #[test]
    fn nothing_has_figures_too() {
        let stats = StatsBuilder::new(true).finish();
        assert_eq!((stats.duration_ns, stats.references), (0, 0));
        assert!(stats.hot_sets.iter().all(|set| set.blocks == 0) && stats.reuse.is_empty());
    }

    #[test]
    fn a_sum_of_lengths_stops_at_the_largest_number() {
        let mut builder = StatsBuilder::new(false);
        for _ in 0..300 {
            builder.add(&request(Op::Discard, 0, crate::request::MAX_OFFSET / BLOCK_BYTES, 0));
        }
        assert_eq!(builder.finish().discards.bytes, u64::MAX);
    }
}
