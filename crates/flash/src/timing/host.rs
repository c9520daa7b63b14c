//! The host's side of a drive that it manages: which reads go to the dies, and when.
//!
//! The host keeps a line of reads in the order in which they came. It keeps a record of every die, too: the operations
//! that it has sent there. A read goes to its die when that can begin it at once. Meanwhile it is held back, and others
//! overtake it. No more reads than the window are held back: the rest go to the command queues of their dies, busy or
//! not. Where the number of reads at the dies is bounded, the choice among those that may go falls on the channel that
//! carries least.
//!
//! A NAND page is read whole where several reads want it at once, where it was read in part shortly
//! before, or where the one before it was read whole. It stays in the host's memory for a while, and reads of it that come
//! meanwhile wait for it, or take it from there.
//!
//! Invariants
//! 1. Reads of a die go to it in the order in which they came.
//! 2. A read that waits has a die that is busy, or as many reads are at the dies as may be.
//! 3. A page in memory was read after its last program, and is forgotten when it is erased.

use std::collections::VecDeque;

use super::jobs::{Jobs, NONE};

/// The host's queues over the dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostQueues {
    /// Reads that the host holds back while their dies are busy, at most; none: each goes to its die as it
    /// comes.
    pub window: u32,
    /// Reads at the dies at a time; zero is no bound.
    pub in_flight: u32,
    /// NAND pages, read whole, that the host keeps in memory.
    pub cached_pages: u32,
    /// Bandwidth of the host's copies from there.
    pub copy_bytes_per_s: u64,
}

/// A page of NAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NandPage {
    /// Its number.
    pub number: u32,
    /// Its size.
    pub bytes: u32,
}

/// Pages whose reads are remembered, to see which neighbours are wanted.
const RECENT: usize = 128;

/// Way of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It goes to its die; so many bytes cross the channel.
    Die(u32),
    /// Its page comes with another read.
    Shared,
    /// Its page is in memory.
    Memory,
}

/// A page that was read whole, or is being read.
#[derive(Clone, Copy)]
struct Whole {
    number: u32,
    /// The read that brings it, or [`NONE`]: it is in memory.
    job: u32,
    used_at: u64,
}

/// A read that waits for the page which another one brings.
#[derive(Clone, Copy)]
struct Follower {
    job: u32,
    ticket: u32,
}

pub(super) struct HostSide {
    queues: HostQueues,
    waiting: VecDeque<u32>,
    /// Reads at the dies, in all and by channel.
    in_flight: u32,
    by_channel: Vec<u32>,
    whole: Vec<Whole>,
    followers: Vec<Follower>,
    recent: [u32; RECENT],
    at: usize,
    time: u64,
}

impl HostSide {
    pub(super) fn new(queues: HostQueues, channels: u32) -> HostSide {
        HostSide {
            queues,
            waiting: VecDeque::new(),
            in_flight: 0,
            by_channel: vec![0; channels as usize],
            whole: Vec::new(),
            followers: Vec::new(),
            recent: [NONE; RECENT],
            at: 0,
            time: 0,
        }
    }

    pub(super) fn copy_bytes_per_s(&self) -> u64 {
        self.queues.copy_bytes_per_s
    }

    /// How a read of `bytes` bytes of a page, the operation `job`, is served; it is to be sent to its die
    /// only then.
    pub(super) fn way(&mut self, job: u32, ticket: u32, page: NandPage, jobs: &mut Jobs) -> Way {
        self.time += 1;
        let bytes = jobs.get(job).bytes;
        if let Some(whole) = self.whole.iter_mut().find(|whole| whole.number == page.number) {
            whole.used_at = self.time;
            if whole.job == NONE {
                return Way::Memory;
            }
            self.followers.push(Follower { job: whole.job, ticket });
            return Way::Shared;
        }
        if self.queues.cached_pages == 0 {
            return Way::Die(bytes);
        }
        // A read of the page that has not gone to its die brings all of it.
        let same = self.waiting.iter().find(|&&other| jobs.get(other).page == page.number);
        if let Some(&other) = same {
            jobs.get_mut(other).bytes = page.bytes;
            self.expect(page.number, other);
            self.followers.push(Follower { job: other, ticket });
            return Way::Shared;
        }
        // Read in part before, or the next one of a page that was wanted whole.
        let before = page.number.checked_sub(1);
        let goes_on = self.whole.iter().any(|whole| Some(whole.number) == before);
        let neighbours = goes_on || self.recent.contains(&page.number);
        self.recent[self.at] = page.number;
        self.at = (self.at + 1) % RECENT;
        if !neighbours && bytes < page.bytes {
            return Way::Die(bytes);
        }
        self.expect(page.number, job);
        Way::Die(page.bytes)
    }

    /// The read `job` brings a whole page.
    fn expect(&mut self, number: u32, job: u32) {
        let most = self.queues.cached_pages as usize;
        if self.whole.len() >= most {
            let in_memory = self.whole.iter().enumerate().filter(|(_, whole)| whole.job == NONE);
            if let Some((oldest, _)) = in_memory.min_by_key(|(_, whole)| whole.used_at) {
                self.whole.swap_remove(oldest);
            }
        }
        self.whole.push(Whole { number, job, used_at: self.time });
    }

    /// A read waits until it is sent.
    pub(super) fn hold(&mut self, job: u32) {
        self.waiting.push_back(job);
    }

    fn has_room(&self) -> bool {
        self.queues.in_flight == 0 || self.in_flight < self.queues.in_flight
    }

    fn channel_of(&self, die: u32) -> usize {
        die as usize % self.by_channel.len()
    }

    /// Takes the next read that goes to its die.
    pub(super) fn next(&mut self, jobs: &Jobs, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        if self.waiting.is_empty() || !self.has_room() {
            return None;
        }
        let window = self.waiting.iter().take(self.queues.window as usize).enumerate();
        let mut ready = window.filter_map(|(index, &job)| {
            let die = jobs.get(job).die;
            is_free(die).then(|| (self.by_channel[self.channel_of(die)], index))
        });
        let chosen = match self.queues.in_flight {
            0 => ready.next(),
            _ => ready.min(),
        };
        let index = match chosen {
            Some((_, index)) => index,
            None if self.waiting.len() > self.queues.window as usize => 0,
            None => return None,
        };
        let job = self.waiting.remove(index)?;
        let channel = self.channel_of(jobs.get(job).die);
        self.in_flight += 1;
        self.by_channel[channel] += 1;
        Some(job)
    }

    /// A read of a die has ended; the commands that wait for its page go to `served`.
    pub(super) fn end(&mut self, job: u32, die: u32, mut served: impl FnMut(u32)) {
        let channel = self.channel_of(die);
        self.in_flight -= 1;
        self.by_channel[channel] -= 1;
        if let Some(index) = self.whole.iter().position(|whole| whole.job == job) {
            self.whole[index].job = NONE;
            if self.whole[index].number == NONE {
                self.whole.swap_remove(index);
            }
            self.followers.retain(|one| {
                if one.job == job {
                    served(one.ticket);
                }
                one.job != job
            });
        }
    }

    /// Pages that are erased are in memory no longer.
    pub(super) fn forget(&mut self, pages: &std::ops::Range<u32>, jobs: &mut Jobs) {
        self.whole.retain(|whole| whole.job != NONE || !pages.contains(&whole.number));
        // Reads still under way serve those that wait for them, and nobody else.
        for whole in &mut self.whole {
            if pages.contains(&whole.number) {
                whole.number = NONE;
            }
        }
        for &job in &self.waiting {
            let job = jobs.get_mut(job);
            if pages.contains(&job.page) {
                job.page = NONE;
            }
        }
    }
}
