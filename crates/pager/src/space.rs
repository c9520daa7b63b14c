//! One address space with a paged region: this process, another one, or a forked child.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use esker_base::Nanos;
use esker_base::units::to_u64;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::pages::Pages;
use crate::predict::Streams;
use crate::protocol::{FIRST_PAGE, GUARD};
use crate::ranges::Ranges;
use crate::raw::{self, Errno};
use crate::types::{PAGE, Page, page_of};
use crate::uffd::Uffd;

/// Faults of a snapshot that are remembered.
const TRAIL: usize = 256;

/// How the memory of a space is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It is this process's.
    Here,
    /// It is another process's, whose agent unmaps pages.
    Process,
}

/// Pages that have been copied out and are being unmapped.
pub(crate) struct Batch {
    /// Where the copies are; none if all are dropped without one.
    pub(crate) chunk: Option<usize>,
    /// The pages, in order.
    pub(crate) pages: Vec<Page>,
    /// Somebody faulted on one of them, and has to be woken.
    pub(crate) missed: bool,
}

/// An address space with a paged region.
pub(crate) struct Space {
    /// Shared with the thread that reads it.
    pub(crate) uffd: Arc<Uffd>,
    /// 0: not known yet.
    pub(crate) pid: u32,
    pub(crate) reach: Reach,
    pub(crate) base: usize,
    /// Where its requests lie.
    pub(crate) requests: usize,
    pub(crate) pages: Pages,
    pub(crate) ranges: Ranges,
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
    pub(crate) is_snapshot: bool,
    /// Faults of late: each adds 64, and a 64th is lost every 10 ms.
    pub(crate) heat: u64,
    pub(crate) born: Nanos,
    /// The agent waits for work.
    pub(crate) agent_waits: bool,
    pub(crate) batch: Option<Batch>,
    /// The serial of the last request of each doorbell.
    pub(crate) serials: [u64; FIRST_PAGE as usize],
    /// A snapshot's process: its memory may outlive it, while a reader uses it.
    pub(crate) process: Option<OwnedFd>,
    /// Open as long as the space is served: its process ends with it.
    pub(crate) stream: Option<UnixStream>,
    map: Option<File>,
}

impl Space {
    pub(crate) fn new(
        uffd: Uffd,
        reach: Reach,
        base: usize,
        pages: Pages,
        most_ahead: u32,
    ) -> Space {
        let ranges = Ranges::new(FIRST_PAGE, page_of(pages.len()));
        Space {
            uffd: Arc::new(uffd),
            pid: 0,
            reach,
            base,
            requests: 0,
            pages,
            ranges,
            streams: Streams::new(most_ahead),
            queue: VecDeque::new(),
            passing: VecDeque::new(),
            trail: VecDeque::new(),
            trailed: 0,
            unmarked: 0,
            resident: 0,
            inherited: 0,
            is_snapshot: false,
            heat: 0,
            born: Nanos(0),
            agent_waits: reach == Reach::Here,
            batch: None,
            serials: [0; FIRST_PAGE as usize],
            process: None,
            stream: None,
            map: None,
        }
    }

    pub(crate) fn addr(&self, page: Page) -> usize {
        self.base + page as usize * PAGE
    }

    /// The page of an address of the region.
    pub(crate) fn page(&self, addr: usize) -> Option<Page> {
        let page = addr.checked_sub(self.base)? / PAGE;
        (page < self.pages.len()).then(|| page_of(page))
    }

    /// Where a doorbell's request lies.
    pub(crate) fn request_addr(&self, doorbell: Page) -> usize {
        self.requests + doorbell as usize * size_of::<crate::protocol::Request>()
    }

    /// Copies out of the process's memory. The pages must be there: a missing one of the region
    /// would make this thread wait for itself.
    pub(crate) fn peek(&self, addr: usize, to: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: the slice is writable for as long as this call.
        unsafe { self.copy_out(&[(addr, to.len())], to.as_mut_ptr()) }
    }

    /// Copies ranges of the process's memory, one after the other. As [`Space::peek`].
    ///
    /// # Safety
    /// `to` is writable for the size of all ranges.
    pub(crate) unsafe fn copy_out(
        &self,
        ranges: &[(usize, usize)],
        to: *mut u8,
    ) -> Result<(), Errno> {
        let total: usize = ranges.iter().map(|(_, size)| size).sum();
        #[cfg(test)]
        if let Some(model) = &self.uffd.model {
            // SAFETY: the caller's promise.
            return model.read(ranges, unsafe { std::slice::from_raw_parts_mut(to, total) });
        }
        if self.reach == Reach::Here {
            let mut at = to;
            for &(addr, size) in ranges {
                let from = std::ptr::with_exposed_provenance::<u8>(addr);
                // SAFETY: the range is mapped memory of this process, of which the engine has
                // just seen that it is there; `to` is writable by the caller's promise.
                unsafe {
                    std::ptr::copy_nonoverlapping(from, at, size);
                    at = at.add(size);
                }
            }
            return Ok(());
        }
        let local = [to.expose_provenance(), total];
        let args = [
            self.pid as usize,
            local.as_ptr().expose_provenance(),
            1,
            ranges.as_ptr().expose_provenance(),
            ranges.len(),
            0,
        ];
        // SAFETY: a pair of two `usize` is an `iovec`; `to` is writable by the caller's promise.
        let size = unsafe { raw::call(libc::SYS_process_vm_readv, args)? };
        if size == total { Ok(()) } else { Err(Errno(libc::EFAULT)) }
    }

    /// Which of the pages, which are in order, are in memory or in swap.
    pub(crate) fn which_are_there(&mut self, pages: &[Page]) -> Result<Vec<bool>, std::io::Error> {
        /// Pages between two that are asked for in one read rather than two.
        const GAP: Page = 64;
        /// "Present" and "swapped" of `Documentation/admin-guide/mm/pagemap.rst`.
        const THERE: u64 = 3 << 62;
        #[cfg(test)]
        if let Some(model) = &self.uffd.model {
            let addr = |page: &Page| self.base + *page as usize * PAGE;
            return Ok(pages.iter().map(|page| model.is_there(addr(page))).collect());
        }
        if self.map.is_none() {
            self.map = Some(File::open(format!("/proc/{}/pagemap", self.pid))?);
        }
        let map = self.map.as_ref().expect("just opened");
        let mut there = Vec::with_capacity(pages.len());
        let mut words: Vec<u8> = Vec::new();
        for run in pages.chunk_by(|a, b| b - a <= GAP) {
            let first = run[0];
            let span = (run[run.len() - 1] - first) as usize + 1;
            words.resize(span * 8, 0);
            let offset = to_u64(self.addr(first) / PAGE * 8);
            map.read_exact_at(&mut words, offset)?;
            for page in run {
                let word = &words[(page - first) as usize * 8..][..8];
                let word = u64::from_ne_bytes(word.try_into().expect("8 bytes"));
                there.push(word & THERE != 0);
            }
        }
        Ok(there)
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

    /// Notes whose memory it is.
    pub(crate) fn belongs_to(&mut self, pid: u32) {
        self.pid = pid;
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let flags = rustix::process::PidfdFlags::empty();
        self.process = pid.and_then(|pid| rustix::process::pidfd_open(pid, flags).ok());
    }

    /// Whether its process has ended, all threads of it.
    pub(crate) fn has_ended(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())) == Ok(1)
    }

    /// Whether nobody can use it any more: its process has ended, or runs another program.
    pub(crate) fn is_gone(&self) -> bool {
        let is_there = || self.uffd.is_alive(self.addr(GUARD));
        self.reach == Reach::Process && (self.has_ended() || !is_there())
    }

    pub(crate) fn is_resident(&self, page: Page) -> bool {
        self.pages.state(page) == crate::pages::State::Resident
    }

    /// The pages of a part of the region that are in memory, as ranges.
    pub(crate) fn resident_ranges(&self, first: usize, end: usize) -> Vec<(usize, usize)> {
        let pages = (first..end).map(page_of);
        let here: Vec<Page> = pages.filter(|&page| self.is_resident(page)).collect();
        runs(&here).map(|(page, count)| (self.addr(page), count * PAGE)).collect()
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

/// Runs of pages in a row, of pages that are in order.
pub(crate) fn runs(pages: &[Page]) -> impl Iterator<Item = (Page, usize)> {
    pages.chunk_by(|a, b| b - a == 1).map(|run| (run[0], run.len()))
}
