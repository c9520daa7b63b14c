//! One address space with a paged region: this process, another one, or a forked child.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use esker_base::Nanos;

use crate::areas::Areas;
use crate::link::{Link, ProcessMemory};
use crate::order::carry_out;
use crate::pages::Pages;
use crate::predict::Streams;
use crate::protocol::{FIRST_PAGE, GUARD, HelperOrder, Outcome, WINDOW};
use crate::ranges::Ranges;
use crate::types::{PAGE, Page, page_of};
use crate::uffd::Uffd;
use crate::unserved::ProgramId;

/// So long a child may take to introduce itself.
const YOUNG: Duration = Duration::from_secs(1);
/// Faults of a snapshot that are remembered.
const TRAIL: usize = 256;

/// How the memory of a space is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It is this process's.
    Here,
    /// It is another process's, whose helper has pages leave.
    Process,
}

/// Pages that are leaving, in the order in which the helper has got them.
pub(crate) struct Batch {
    /// Where their copies are, or will be.
    pub(crate) chunk: usize,
    pub(crate) pages: Vec<Page>,
    /// So many of them are moved, and copied when they have.
    pub(crate) moves: usize,
    /// So many are written: those that are moved, and some that were copied before.
    pub(crate) dirty: usize,
    /// So many have a copy; the others are dropped without one.
    pub(crate) copied: usize,
    /// The first slot of those that are written.
    pub(crate) slots: u32,
    /// Somebody faulted on one of them, and has to be woken.
    pub(crate) missed: bool,
    pub(crate) since: Nanos,
}

/// An address space with a paged region.
pub(crate) struct Space {
    /// Shared with the thread that reads it.
    pub(crate) uffd: Arc<Uffd>,
    /// Its helper, and what it has handed over; none of a forked child yet.
    pub(crate) link: Option<Link>,
    pub(crate) memory: Option<ProcessMemory>,
    /// Its process, as it calls it itself.
    pub(crate) own_pid: u64,
    /// The program that it runs.
    pub(crate) runs: Option<ProgramId>,
    /// It is a child whose calls have gone on unseen: where its areas are is not known.
    pub(crate) is_lost: bool,
    /// Memory that forked children do not get: where it begins and ends.
    pub(crate) unforked: BTreeMap<usize, usize>,
    pub(crate) reach: Reach,
    pub(crate) base: usize,
    /// Where its requests lie.
    pub(crate) requests: usize,
    pub(crate) pages: Pages,
    pub(crate) ranges: Ranges,
    /// Paged memory outside the region.
    pub(crate) areas: Areas,
    /// Stacks of threads, which are not paged: where they begin and end.
    pub(crate) stacks: BTreeMap<usize, usize>,
    pub(crate) streams: Streams,
    /// Pages by arrival; some have left since.
    pub(crate) queue: VecDeque<Page>,
    /// Pages that a walk has brought in, to be used once: they leave before others.
    pub(crate) passing: VecDeque<Page>,
    /// The last faults of a snapshot, for a walk to be seen in them.
    pub(crate) trail: VecDeque<usize>,
    /// How many there were.
    pub(crate) trailed: u64,
    /// Pages that a walk has read since the last one that became a mark.
    pub(crate) unmarked: usize,
    pub(crate) resident: usize,
    /// Of these, pages that came with a fork.
    pub(crate) inherited: usize,
    /// It came by a fork.
    pub(crate) is_child: bool,
    /// It came by a fork, and its parent goes on.
    pub(crate) is_snapshot: bool,
    /// Faults of late: each adds 64, and a 64th is lost every 10 ms.
    pub(crate) heat: u64,
    pub(crate) born: Nanos,
    pub(crate) batch: Option<Batch>,
    /// By it a forked child's helper introduces itself.
    pub(crate) token: u64,
    /// Its program has ended, and its helper carries out the last order.
    pub(crate) is_over: bool,
    /// Its program was killed, since its helper was.
    pub(crate) is_killed: bool,
    /// It has been said that too much of its memory is not paged.
    pub(crate) is_said_outside: bool,
    /// Since when its helper has been seen to have ended.
    pub(crate) alone_since: Option<Nanos>,
    /// There are pages in the window.
    pub(crate) has_full_window: bool,
    /// It is being emptied.
    pub(crate) is_emptying: bool,
    /// Until then no page is tried again: none could leave.
    pub(crate) rests_until: Nanos,
    /// Pages whose memory may not be written: they cannot be moved.
    pub(crate) barred: BTreeSet<Page>,
    /// The helper makes a system call for the program.
    pub(crate) is_calling: bool,
    /// Its result, when it has come.
    pub(crate) result: Option<i64>,
    /// Where the heap ends that `brk` moves; 0 is not known.
    pub(crate) heap_end: usize,
    /// The serial of the last request of each doorbell.
    pub(crate) serials: [u64; FIRST_PAGE as usize],
}

impl Space {
    pub(crate) fn new(
        uffd: Uffd,
        reach: Reach,
        base: usize,
        pages: Pages,
        most_ahead: u32,
    ) -> Space {
        let split = page_of(pages.split());
        let ranges = Ranges::new(FIRST_PAGE, split);
        let areas = Areas::new(split, page_of(pages.len()));
        Space {
            uffd: Arc::new(uffd),
            link: None,
            memory: None,
            own_pid: 0,
            runs: None,
            is_lost: false,
            unforked: BTreeMap::new(),
            reach,
            base,
            requests: 0,
            pages,
            ranges,
            areas,
            stacks: BTreeMap::new(),
            streams: Streams::new(most_ahead),
            queue: VecDeque::new(),
            passing: VecDeque::new(),
            trail: VecDeque::new(),
            trailed: 0,
            unmarked: 0,
            resident: 0,
            inherited: 0,
            is_child: false,
            is_snapshot: false,
            heat: 0,
            born: Nanos(0),
            batch: None,
            token: 0,
            is_over: false,
            is_killed: false,
            is_said_outside: false,
            alone_since: None,
            has_full_window: false,
            is_emptying: false,
            rests_until: Nanos(0),
            barred: BTreeSet::new(),
            is_calling: false,
            result: None,
            heap_end: 0,
            serials: [0; FIRST_PAGE as usize],
        }
    }

    /// Where a page is. Of an area's page that is no more, nowhere: 0.
    pub(crate) fn addr(&self, page: Page) -> usize {
        if (page as usize) < self.pages.split() {
            return self.base + page as usize * PAGE;
        }
        self.areas.addr(page).unwrap_or(0)
    }

    /// The page of an address, if that is paged.
    pub(crate) fn page(&self, addr: usize) -> Option<Page> {
        let page = addr.wrapping_sub(self.base) / PAGE;
        if page < self.pages.split() { Some(page_of(page)) } else { self.areas.page(addr) }
    }

    /// Of `count` pages from one on, how many lie in a row.
    pub(crate) fn row(&self, page: Page, count: usize) -> usize {
        let split = self.pages.split();
        if (page as usize) < split {
            return count.min(split - page as usize);
        }
        self.areas.row(page, count)
    }

    /// The paged parts of a range of addresses: the first page of each, and how many.
    pub(crate) fn parts(&self, addr: usize, size: usize) -> Vec<(Page, usize)> {
        let region = self.base..self.base + self.pages.split() * PAGE;
        let (from, to) = (addr.max(region.start), addr.saturating_add(size).min(region.end));
        let own = (from < to)
            .then(|| (page_of((from - region.start) / PAGE), (to - from).div_ceil(PAGE)));
        let areas = self.areas.within(addr, size).into_iter();
        own.into_iter().chain(areas.map(|(_, page, count)| (page, count as usize))).collect()
    }

    /// Whether any byte of a range is in the region.
    pub(crate) fn overlaps_region(&self, addr: usize, size: usize) -> bool {
        let end = self.base + self.pages.split() * PAGE;
        addr < end && addr.saturating_add(size) > self.base
    }

    /// The parts of a range of addresses that are not paged.
    pub(crate) fn gaps(&self, addr: usize, size: usize) -> Vec<(usize, usize)> {
        if self.overlaps_region(addr, size) { Vec::new() } else { self.areas.gaps(addr, size) }
    }

    /// Whether a stack of a thread has any byte of a range.
    pub(crate) fn has_stack(&self, addr: usize, size: usize) -> bool {
        let before = self.stacks.range(..addr.saturating_add(size)).next_back();
        before.is_some_and(|(_, end)| *end > addr)
    }

    /// Of `count` pages at an address, the indices of those that are in memory.
    pub(crate) fn present(&self, addr: usize, count: usize) -> Vec<Page> {
        self.memory.as_ref().map_or_else(Vec::new, |memory| memory.present(addr, count))
    }

    /// Whether it has begun a moment ago.
    pub(crate) fn is_young(&self, now: Nanos) -> bool {
        now.since(self.born) < YOUNG
    }

    /// How many pages are reserved.
    pub(crate) fn reserved(&self) -> usize {
        self.ranges.count() + self.areas.count()
    }

    /// Runs of pages whose numbers and addresses are in a row.
    pub(crate) fn runs<'a>(
        &self,
        pages: &'a [Page],
    ) -> impl Iterator<Item = (Page, usize)> + use<'a, '_> {
        let is_next = |a: &Page, b: &Page| b.wrapping_sub(*a) == 1 && self.row(*a, 2) == 2;
        pages.chunk_by(is_next).map(|run| (run[0], run.len()))
    }

    /// Where a doorbell's request lies.
    pub(crate) fn request_addr(&self, doorbell: Page) -> usize {
        self.requests + doorbell as usize * size_of::<crate::protocol::Request>()
    }

    /// Copies out of the process's memory, and says how many bytes: as far as pages are there.
    pub(crate) fn read(&self, addr: usize, to: &mut [u8]) -> usize {
        #[cfg(test)]
        if let Some(model) = &self.uffd.model {
            return model.read(addr, to);
        }
        self.memory.as_ref().map_or(0, |memory| memory.read(addr, to))
    }

    /// Whether the kernel says that a page is not in memory.
    pub(crate) fn is_missing(&self, page: Page) -> bool {
        #[cfg(test)]
        if let Some(model) = &self.uffd.model {
            return !model.is_there(self.addr(page));
        }
        self.memory.as_ref().is_some_and(|memory| memory.is_missing(self.addr(page)))
    }

    /// Whether pages can leave it.
    pub(crate) fn has_helper(&self) -> bool {
        #[cfg(test)]
        if self.uffd.model.is_some() {
            return true;
        }
        self.memory.is_some()
    }

    /// Has an order carried out. The outcome, if it is there at once.
    pub(crate) fn order(&mut self, order: &HelperOrder) -> Option<Outcome> {
        self.has_full_window = order.count > 0;
        #[cfg(test)]
        if let Some(model) = &self.uffd.model {
            model.take_order(order);
            return None;
        }
        if self.reach == Reach::Here {
            return Some(carry_out(&self.uffd, self.addr(WINDOW), order));
        }
        // If the helper has ended, the pager sees that by its socket.
        let _ = self.link.as_ref()?.send(order);
        None
    }

    /// Has the helper make a system call; its outcome comes as that of an order.
    pub(crate) fn order_call(&self, order: &HelperOrder) {
        // If the helper has ended, the pager sees that by its socket.
        let _ = self.link.as_ref().map(|link| link.send(order));
    }

    /// The number of its process; 0 if that is not known.
    pub(crate) fn pid(&self) -> u32 {
        match (self.reach, &self.link) {
            (Reach::Here, _) => std::process::id(),
            (Reach::Process, Some(link)) => link.pid(),
            (Reach::Process, None) => 0,
        }
    }

    /// Drops pages that have left from the queue.
    pub(crate) fn trim_queue(&mut self) {
        let pages = &mut self.pages;
        for queue in [&mut self.queue, &mut self.passing] {
            queue.retain(|&page| {
                let stays = pages.state(page) == crate::pages::State::Resident;
                if !stays {
                    pages.clear(page, crate::pages::QUEUED);
                }
                stays
            });
        }
    }

    /// Whether nobody can use it any more: its process has ended, or runs another program.
    pub(crate) fn is_gone(&self) -> bool {
        match &self.link {
            Some(link) => link.is_gone(),
            None => self.reach == Reach::Process && !self.uffd.is_alive(self.addr(GUARD)),
        }
    }

    pub(crate) fn is_resident(&self, page: Page) -> bool {
        self.pages.state(page) == crate::pages::State::Resident
    }

    /// The pages of a part of the region that are in memory, as ranges.
    pub(crate) fn resident_ranges(&self, first: usize, end: usize) -> Vec<(usize, usize)> {
        let pages = (first..end).map(page_of);
        let here: Vec<Page> = pages.filter(|&page| self.is_resident(page)).collect();
        self.runs(&here).map(|(page, count)| (self.addr(page), count * PAGE)).collect()
    }

    /// Notes a fault of a snapshot.
    pub(crate) fn note(&mut self, addr: usize) {
        if self.trail.len() == TRAIL {
            self.trail.pop_front();
        }
        self.trail.push_back(addr);
        self.trailed += 1;
    }

    /// Puts a page that has become resident, to be used once, into its queue.
    pub(crate) fn enqueue_passing(&mut self, page: Page) {
        if !self.pages.has(page, crate::pages::QUEUED) {
            self.pages.add(page, crate::pages::QUEUED);
            self.passing.push_back(page);
        }
    }

    /// Puts a page that has become resident into the queue.
    pub(crate) fn enqueue(&mut self, page: Page) {
        if !self.pages.has(page, crate::pages::QUEUED) {
            self.pages.add(page, crate::pages::QUEUED);
            self.queue.push_back(page);
        }
    }
}
