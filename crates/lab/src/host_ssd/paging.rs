//! A program with more data than memory, its pager, and the drive under both, in virtual time. Threads look up records
//! through an index that stays in memory, or scan a table.
//!
//! A page is out, coming, in memory but not mapped, or mapped. Pages leave in the order in which they came,
//! which is as good as any for lookups at random and for scans. Both workloads only read, so nothing is
//! written back.
//!
//! The pager reads ahead as Esker's does for a stream that goes forward: from the third fault in a row on, 8 pages,
//! twice as many each time, in reads of 64 pages. The first page of each request is not mapped, so that the stream is
//! seen to go on. The thread that reads pays for mapping the pages that have come.
//!
//! Invariants
//! 1. Coming, unmapped and mapped pages are never more than the memory and the pages that the last request added.
//! 2. The same options give the same times.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use esker_base::units::{to_nanos, to_usize};
use esker_base::{Nanos, Rng};
use serde::{Deserialize, Serialize};

use super::drive::{Bed, PAGE};
use crate::LabError;

/// The first window of a stream, and the longest read, in pages.
const FIRST_WINDOW: u64 = 8;
const LONGEST_READ: u64 = 64;
/// The largest window, and pages that may be coming ahead in all.
const LARGEST_WINDOW: u64 = 384;
const MOST_AHEAD: u64 = 1536;
/// Streams that the pager follows at a time. Of more it loses sight, one over the other.
const STREAMS: usize = 16;
/// Faults in a row that make a stream.
const STREAM_FAULTS: u32 = 3;

/// Pages that are read beyond the missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Nothing.
    Nothing,
    /// The aligned run of so many pages in which it lies, with one command, as the kernel does.
    Cluster(u64),
    /// The next pages of a stream, as Esker's pager reads them.
    Streams,
}

/// Times of the processor's work, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// A fault of the kernel: trap, page, map.
    pub kernel_fault_ns: u64,
    /// Leaving the processor and coming back, when a thread waits for the drive.
    pub switches_ns: u64,
    /// A fault served in the thread that faults.
    pub pager_fault_ns: u64,
    /// Mapping a further page of a run.
    pub map_ns: u64,
    /// A search in the index.
    pub lookup_ns: u64,
    /// Evaluating the rows of a page in a scan.
    pub scan_ns: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            kernel_fault_ns: 1_000,
            switches_ns: 4_000,
            pager_fault_ns: 3_300,
            map_ns: 1_300,
            lookup_ns: 500,
            scan_ns: 1_000,
        }
    }
}

/// How missing pages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paging {
    /// Whether the kernel does it, and the thread sleeps meanwhile; otherwise it polls.
    pub(super) is_kernel: bool,
    pub(super) ahead: Ahead,
}

/// Work of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Look up records at random, so many in all.
    Lookups(u64),
    /// Scan the table once, each thread a part.
    Scan,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Lookups, or pages scanned.
    pub operations: u64,
    /// How long they took.
    pub elapsed_ns: u64,
    /// Time of one operation, for the thread that did it.
    pub operation_ns: f64,
    /// The share that found its page mapped.
    pub hit_ratio: f64,
    /// Commands of the drive, and pages that they read.
    pub reads: u64,
    /// See `reads`.
    pub pages_read: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    Coming,
    Unmapped,
    Mapped,
}

struct Thread {
    rng: Rng,
    /// The next page of a scan, and where it ends.
    next: u64,
    end: u64,
    /// The page that it waits for.
    wanted: Option<u64>,
    /// Whether the fault on it was seen: it was read for this thread.
    is_seen: bool,
    /// Work that it has to do before it goes on, in nanoseconds.
    owed_ns: u64,
    stream: Stream,
}

/// A stream of faults, forward.
#[derive(Default)]
struct Stream {
    last: u64,
    in_row: u32,
    window: u64,
    end: u64,
}

impl Stream {
    /// A fault: the pages that are to be read ahead.
    fn observe(&mut self, page: u64) -> Option<(u64, u64)> {
        let goes_on = self.window > 0 && page > self.last && page <= self.end;
        if !goes_on {
            self.in_row = if page == self.last + 1 { self.in_row + 1 } else { 1 };
            self.last = page;
            self.window = 0;
            if self.in_row < STREAM_FAULTS {
                return None;
            }
            (self.window, self.end) = (FIRST_WINDOW, page + 1 + FIRST_WINDOW);
            return Some((page + 1, FIRST_WINDOW));
        }
        self.last = page;
        let left = self.end.saturating_sub(page + 1);
        if left > self.window {
            return None;
        }
        self.window = (2 * self.window).min(LARGEST_WINDOW);
        let first = self.end.max(page + 1);
        self.end = first + self.window;
        Some((first, self.window))
    }
}

/// A read under way.
struct Run {
    first: u64,
    count: u64,
    thread: usize,
    /// The page that is not mapped, if it was read ahead by the pager.
    mark: Option<u64>,
    is_ahead: bool,
}

pub(super) struct Machine<'a> {
    bed: &'a mut Bed,
    paging: Paging,
    costs: Costs,
    work: Work,
    pages: Vec<State>,
    arrived: VecDeque<u64>,
    budget: usize,
    threads: Vec<Thread>,
    ready: BinaryHeap<Reverse<(Nanos, usize)>>,
    waiting: BTreeMap<u64, Vec<usize>>,
    runs: BTreeMap<u64, Run>,
    tags: u64,
    ahead: u64,
    operations: u64,
    started: u64,
    hits: u64,
    outcome: Outcome,
}

/// Data of `data_bytes`, which is on the drive, with a memory of a quarter of it.
pub(super) struct Setting {
    pub(super) data_bytes: u64,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

/// How many times the data is the memory.
pub(super) const DATA_TO_MEMORY: u64 = 4;

impl<'a> Machine<'a> {
    pub(super) fn new(
        bed: &'a mut Bed,
        setting: &Setting,
        paging: Paging,
        costs: Costs,
        work: Work,
    ) -> Machine<'a> {
        let count = setting.data_bytes / PAGE;
        let budget = to_usize(count / DATA_TO_MEMORY);
        let mut pages = vec![State::Out; to_usize(count)];
        let mut rng = Rng::new(setting.seed);
        let mut arrived = VecDeque::with_capacity(budget + 1);
        let (in_all, mut parts) = (setting.threads as u64, 0u64);
        while arrived.len() < budget {
            // After lookups any pages are in memory; after a scan the end of each part, its last page last.
            let page = match work {
                Work::Lookups(_) => rng.below(count),
                Work::Scan => {
                    let left = (budget as u64 - 1).saturating_sub(parts) / in_all;
                    parts += 1;
                    (count * (parts % in_all + 1) / in_all).saturating_sub(1 + left)
                }
            };
            let state = &mut pages[to_usize(page)];
            if *state == State::Out {
                *state = State::Mapped;
                arrived.push_back(page);
            }
        }
        let threads = (0..in_all).map(|n| Thread {
            rng: Rng::new(setting.seed.wrapping_mul(1_000_003).wrapping_add(n)),
            next: count * n / in_all,
            end: count * (n + 1) / in_all,
            wanted: None,
            is_seen: false,
            owed_ns: 0,
            stream: Stream::default(),
        });
        let threads: Vec<Thread> = threads.collect();
        let now = bed.clock.now();
        let ready = (0..threads.len()).map(|thread| Reverse((now, thread))).collect();
        Machine {
            bed,
            paging,
            costs,
            work,
            pages,
            arrived,
            budget,
            threads,
            ready,
            waiting: BTreeMap::new(),
            runs: BTreeMap::new(),
            tags: 0,
            ahead: 0,
            operations: 0,
            started: 0,
            hits: 0,
            outcome: Outcome::default(),
        }
    }

    /// Runs it to the end.
    pub(super) fn run(mut self) -> Result<Outcome, LabError> {
        let began = self.bed.clock.now();
        let mut ended = Vec::new();
        loop {
            let now = self.bed.clock.now();
            while let Some(&Reverse((at, thread))) = self.ready.peek()
                && at <= now
            {
                self.ready.pop();
                self.go(now, thread);
            }
            self.bed.submit()?;
            let next = self.ready.peek().map(|Reverse((at, _))| *at);
            match (next, self.bed.in_flight()) {
                (None, 0) => break,
                (Some(at), 0) => self.bed.clock.advance(at - now),
                (next, _) => {
                    let span = next.map(|at| at - now);
                    self.bed.wait(span, &mut ended)?;
                    let now = self.bed.clock.now();
                    ended.drain(..).for_each(|tag| self.arrive(now, tag));
                }
            }
        }
        let Outcome { reads, pages_read, .. } = self.outcome;
        let elapsed = self.bed.clock.now() - began;
        let elapsed_ns = to_nanos(elapsed);
        #[allow(clippy::cast_precision_loss)]
        let (operations, threads) = (self.operations.max(1) as f64, self.threads.len() as f64);
        #[allow(clippy::cast_precision_loss)]
        Ok(Outcome {
            operations: self.operations,
            elapsed_ns,
            operation_ns: elapsed_ns as f64 * threads / operations,
            hit_ratio: self.hits as f64 / operations,
            reads,
            pages_read,
        })
    }

    /// A thread goes on, at a moment.
    fn go(&mut self, now: Nanos, id: usize) {
        let owed_ns = std::mem::take(&mut self.threads[id].owed_ns);
        if owed_ns > 0 {
            return self.later(now, id, owed_ns);
        }
        let Some(page) = self.threads[id].wanted else {
            return self.begin(now, id);
        };
        match self.pages[to_usize(page)] {
            State::Mapped => self.end(now, id, 0),
            State::Unmapped => {
                self.pages[to_usize(page)] = State::Mapped;
                if !std::mem::take(&mut self.threads[id].is_seen) {
                    self.read_ahead(id, page);
                }
                let cost_ns = self.fault_ns();
                self.end(now, id, cost_ns);
            }
            State::Coming => self.waiting.entry(page).or_default().push(id),
            State::Out => {
                self.threads[id].is_seen = true;
                self.fetch(id, page);
                self.waiting.entry(page).or_default().push(id);
            }
        }
    }

    fn later(&mut self, now: Nanos, id: usize, cost_ns: u64) {
        self.ready.push(Reverse((now + Duration::from_nanos(cost_ns), id)));
    }

    fn fault_ns(&self) -> u64 {
        if self.paging.is_kernel { self.costs.kernel_fault_ns } else { self.costs.pager_fault_ns }
    }

    /// A thread begins an operation, if any is left: the processor's part, then the page.
    fn begin(&mut self, now: Nanos, id: usize) {
        let count = self.pages.len() as u64;
        let thread = &mut self.threads[id];
        let (page, cost_ns) = match self.work {
            Work::Lookups(in_all) if self.started < in_all => {
                (thread.rng.below(count), self.costs.lookup_ns)
            }
            Work::Scan if thread.next < thread.end => {
                thread.next += 1;
                (thread.next - 1, self.costs.scan_ns)
            }
            _ => return,
        };
        self.started += 1;
        thread.wanted = Some(page);
        if self.pages[to_usize(page)] == State::Mapped {
            self.hits += 1;
        }
        self.later(now, id, cost_ns);
    }

    /// A thread has its page.
    fn end(&mut self, now: Nanos, id: usize, cost_ns: u64) {
        self.operations += 1;
        self.threads[id].wanted = None;
        self.threads[id].is_seen = false;
        if cost_ns > 0 {
            return self.later(now, id, cost_ns);
        }
        self.begin(now, id);
    }

    /// Reads a page that is missing, and the pages that are read with it.
    fn fetch(&mut self, id: usize, page: u64) {
        match self.paging.ahead {
            Ahead::Cluster(pages) => {
                let first = page / pages * pages;
                let end = (first + pages).min(self.pages.len() as u64);
                let is_out = |page: &u64| self.pages[to_usize(*page)] == State::Out;
                // A page that is in memory already cuts the run.
                let from = (first..page).rev().take_while(is_out).last().unwrap_or(page);
                let to = (page..end).take_while(is_out).last().unwrap_or(page) + 1;
                self.order(id, from, to - from, None, false);
            }
            Ahead::Nothing => self.order(id, page, 1, None, false),
            Ahead::Streams => {
                self.order(id, page, 1, None, false);
                self.read_ahead(id, page);
            }
        }
    }

    /// A fault on a page shows a stream, perhaps.
    fn read_ahead(&mut self, id: usize, page: u64) {
        if self.paging.ahead != Ahead::Streams || self.threads.len() > STREAMS {
            return;
        }
        let Some((first, count)) = self.threads[id].stream.observe(page) else { return };
        let end = (first + count).min(self.pages.len() as u64);
        let (mut at, mut mark) = (first, Some(first));
        while at < end {
            let is_out = |page: &u64| self.pages[to_usize(*page)] == State::Out;
            let run = (at..end.min(at + LONGEST_READ)).take_while(is_out).count() as u64;
            if run == 0 {
                at += 1;
                continue;
            }
            if self.ahead + run > MOST_AHEAD {
                return;
            }
            self.order(id, at, run, mark.take(), true);
            at += run;
        }
    }

    fn order(&mut self, thread: usize, first: u64, count: u64, mark: Option<u64>, is_ahead: bool) {
        self.tags += 1;
        for page in first..first + count {
            self.pages[to_usize(page)] = State::Coming;
            self.arrived.push_back(page);
        }
        while self.arrived.len() > self.budget
            && let Some(&oldest) = self.arrived.front()
            && self.pages[to_usize(oldest)] != State::Coming
        {
            self.pages[to_usize(oldest)] = State::Out;
            self.arrived.pop_front();
        }
        self.ahead += if is_ahead { count } else { 0 };
        self.outcome.reads += 1;
        self.outcome.pages_read += count;
        self.runs.insert(self.tags, Run { first, count, thread, mark, is_ahead });
        self.bed.read(self.tags, first, count);
    }

    /// A read has ended.
    fn arrive(&mut self, now: Nanos, tag: u64) {
        let Some(Run { first, count, thread, mark, is_ahead }) = self.runs.remove(&tag) else {
            return;
        };
        if is_ahead {
            self.ahead -= count;
            self.threads[thread].owed_ns += count * self.costs.map_ns;
        }
        for page in first..first + count {
            let is_mapped = is_ahead && mark != Some(page);
            let state = if is_mapped { State::Mapped } else { State::Unmapped };
            self.pages[to_usize(page)] = state;
            for id in self.waiting.remove(&page).unwrap_or_default() {
                let mut cost_ns = if self.paging.is_kernel { self.costs.switches_ns } else { 0 };
                // The fault of one that is not mapped is paid where it is mapped.
                cost_ns += if is_mapped { self.fault_ns() } else { 0 };
                self.threads[id].owed_ns += cost_ns;
                self.ready.push(Reverse((now, id)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_ssd::drive::{Side, parameters};

    const DATA: u64 = 64 << 20;

    fn run(side: Side, paging: Paging, threads: usize, work: Work) -> Outcome {
        let parameters = parameters(side, 1 << 30, true).unwrap();
        let mut bed = Bed::new(&parameters, DATA, 4096).unwrap();
        let setting = Setting { data_bytes: DATA, threads, seed: 3 };
        Machine::new(&mut bed, &setting, paging, Costs::default(), work).run().unwrap()
    }

    const KERNEL: Paging = Paging { is_kernel: true, ahead: Ahead::Nothing };
    const PAGER: Paging = Paging { is_kernel: false, ahead: Ahead::Streams };

    /// One thread never meets another: each part of a scanned page adds up.
    #[test]
    fn a_scan_by_one_thread_takes_the_sum_of_its_parts() {
        let seen = run(Side::Drive, KERNEL, 1, Work::Scan);
        // Firmware, die, channel, link at 2.8 GB/s, interrupt.
        let read_ns = 25_000 + 60_000 + 10_240 + 1_463 + 10_000;
        let page_ns = 1_000 + read_ns + 1_000 + 4_000;
        assert_eq!((seen.operations, seen.reads, seen.pages_read), (16_384, 16_384, 16_384));
        assert_eq!(seen.elapsed_ns, 16_384 * page_ns);
        assert_eq!(seen.hit_ratio, 0.0);
    }

    #[test]
    fn lookups_hit_as_often_as_memory_is_of_the_data() {
        for paging in [KERNEL, PAGER] {
            let seen = run(Side::HostWindow { in_flight: 0 }, paging, 8, Work::Lookups(20_000));
            assert_eq!(seen.operations, 20_000);
            assert!((seen.hit_ratio - 0.25).abs() < 0.01, "{seen:?}");
            // Nothing is read ahead of lookups.
            assert!(seen.pages_read <= 15_300, "{seen:?}");
        }
    }

    #[test]
    fn clusters_and_streams_read_every_page_of_a_scan_once() {
        for (paging, most_reads) in
            [(Paging { is_kernel: true, ahead: Ahead::Cluster(8) }, 2_048), (PAGER, 16_384 / 32)]
        {
            for threads in [1, 4] {
                let seen = run(Side::HostWindow { in_flight: 0 }, paging, threads, Work::Scan);
                assert_eq!(seen.operations, 16_384);
                // The last requests of a part reach into the next one.
                assert!(
                    (16_384..16_384 + 512 * threads as u64).contains(&seen.pages_read),
                    "{seen:?}"
                );
                assert!(seen.reads <= most_reads + 64, "{seen:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let both =
            [0, 1].map(|_| run(Side::HostWindow { in_flight: 0 }, PAGER, 16, Work::Lookups(5_000)));
        assert_eq!(both[0], both[1]);
    }
}
