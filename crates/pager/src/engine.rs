//! The pager's decisions: how to serve a fault, which pages leave memory, and which are read ahead.
//!
//! It makes the short system calls itself, and never waits: reads and writes of the device are
//! commands that its owner submits, and whose completions its owner hands back. One lock around
//! it is enough, and is never held over device I/O.
//!
//! | module | contents |
//! | --- | --- |
//! | `pending` | work that is not done yet |
//! | `fault` | a page is missing or protected |
//! | `read` | pages come from the device |
//! | `follow` | pages of forked children that were leaving their parent's memory |
//! | `evict` | pages leave memory |
//! | `request` | programs reserve, drop and release ranges |
//! | `call` | system calls of programs that change their memory |
//! | `life` | spaces begin, fork and end |
//! | `step` | work that has become possible, or is due |
//!
//! Invariants
//! 1. Pages that a program or a fork brought in, pages being read, the staging area and all
//!    buffers are within the budget. Pages inherited by a fork are on top until they are evicted;
//!    they share their memory with the parent's unless one of both is written.
//! 2. A page in state `Out`, `Reading` or `Marked`, and a clean resident one, has a reference to its slot.
//! 3. A page's content is in memory, in the window, in the staging area, in a mark or in its slot; if in none, it is zero.
//! 4. A thread that waits for a page is woken when the page has come, or has left for good.

#![allow(unsafe_code)]

mod call;
mod evict;
mod fault;
mod follow;
mod life;
mod pending;
mod read;
mod request;
mod retire;
mod shares;
mod step;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use esker_base::units::to_u64;
use esker_base::{AlignedBuf, Clock, Lba, Nanos};
use esker_device::{Command, Completion, Device, Tag};

use crate::awake::Awake;
use crate::pages::{self, State};
use crate::raw::Errno;
use crate::slots::Slots;
use crate::space::Space;
use crate::staging::{self, Staging};
use crate::types::{CHUNK, LEAST_BUDGET, MOST_SLOW, Options, PAGE, Page, PagerError, Stats};

use follow::Follower;
pub(crate) use pending::{Answer, SpaceId};
use pending::{Calls, Deferred, Mark, Pending, Read, SINGLE};
use shares::Shares;

/// Most marks that are kept.
const MARKS: usize = 64;
/// Tags of writes; those of reads are below.
const WRITE: u64 = 1 << 32;
/// After so long without a page that could leave, those who wait get more memory than the budget.
const STUCK: Duration = Duration::from_millis(500);
/// The staging area is one part in so many of the budget. A page that comes back from it costs a fault, which is why more
/// of it serves no program that was tried.
const STAGING: usize = 16;
/// Pages of zeroes at hand.
const ZEROES: usize = 32;

/// The pager's state.
pub(crate) struct Engine {
    pub(crate) device: Arc<dyn Device>,
    options: Options,
    clock: Clock,
    lbas_per_page: u64,
    /// Pages of the largest transfer.
    most_run: usize,
    pub(crate) spaces: BTreeMap<SpaceId, Space>,
    next_space: SpaceId,
    slots: Slots,
    staging: Staging,
    shares: Shares,
    reads: Vec<Option<Read>>,
    /// Reads for streams that wait for room, and their pages.
    deferred: VecDeque<Deferred>,
    deferred_pages: usize,
    marks: VecDeque<(u32, Mark)>,
    next_mark: u32,
    /// Commands for the device, to be submitted by the owner.
    pub(crate) commands: VecDeque<Command>,
    /// Completions that have to be looked at again.
    again: Vec<Completion>,
    /// Faults that wait for frames.
    waiting: VecDeque<(SpaceId, Page, bool)>,
    /// Requests that are not answered yet.
    requests: Vec<Pending>,
    /// System calls that are not answered yet.
    calls: Calls,
    /// Faults at addresses that are not paged.
    strays: Vec<(SpaceId, usize)>,
    /// Pages of forked children that were leaving when their parent forked.
    followers: Vec<Follower>,
    /// When memory outside of regions was last looked at.
    looked_outside: Nanos,
    /// When a process was last killed since there was no space for it.
    killed_at: Option<Nanos>,
    /// Since when no page could leave, although some were to.
    stuck_since: Option<Nanos>,
    /// When it was last said that the device is full.
    said_full: Option<Nanos>,
    /// Chunks whose write has failed, to be written again.
    failed: Vec<(usize, Nanos)>,
    /// Most pages in memory and being read.
    limit: usize,
    /// Pages below the limit at which eviction begins.
    reserve: usize,
    reading: usize,
    /// Most buffers of reads ahead.
    most_ahead: usize,
    ahead_in_flight: usize,
    /// Of these, reads for walks.
    walking: usize,
    /// The thread that reads programs' memory to see where walks lead: its faults are not theirs.
    pub(crate) walker: u32,
    /// The process whose exit waits for the owner, if it is the last one; 0 is none.
    pub(crate) held: u32,
    /// It waits.
    pub(crate) is_held: bool,
    /// A program is ended of whose memory more than the budget is not paged.
    pub(crate) strict: bool,
    /// Processors do not sleep while faults come often.
    pub(crate) awake: Option<Awake>,
    /// Where it says that its pager has ended.
    pub(crate) output: Option<OwnedFd>,
    /// Buffers of reads that have ended: of a page, and of a run.
    spare_pages: Vec<AlignedBuf>,
    spare_runs: Vec<AlignedBuf>,
    /// Buffers of runs that are in use: no more than the budget has room for.
    runs_in_use: usize,
    zeroes: AlignedBuf,
    one_page: AlignedBuf,
    pub(crate) stats: Stats,
    /// Reports for the user, to be taken by the owner.
    pub(crate) reports: Vec<String>,
}

impl Engine {
    pub(crate) fn new(device: Arc<dyn Device>, options: Options) -> Result<Engine, PagerError> {
        let invalid = |why: String| Err(PagerError::Invalid(why));
        let geometry = device.geometry();
        let capacity = geometry.capacity.bytes(geometry.lba_size);
        if !PAGE.is_multiple_of(geometry.lba_size as usize) {
            return invalid(format!(
                "{}: LBAs of {} bytes do not divide a page of {PAGE}",
                device.name(),
                geometry.lba_size
            ));
        }
        let slow = options.slow_bytes;
        if to_u64(slow) > capacity {
            return invalid(format!(
                "{}: {slow} bytes are to be paged, and the device holds {capacity}",
                device.name()
            ));
        }
        if slow > MOST_SLOW {
            return invalid(format!("{slow} bytes are to be paged: at most {MOST_SLOW}"));
        }
        if options.budget_bytes < LEAST_BUDGET {
            let budget = options.budget_bytes;
            return invalid(format!("a budget of {budget} bytes: at least {LEAST_BUDGET}"));
        }
        let slots = usize::try_from(capacity).unwrap_or(usize::MAX) / PAGE;
        // No more than this many could be in use: four times everything, for snapshots.
        let slots = slots.min(slow / PAGE * 4).min(u32::MAX as usize - 1);
        // Paged memory never takes more than all of it, and the pager's own needs.
        let frames = options.budget_bytes.min(slow.saturating_add(LEAST_BUDGET)) / PAGE;
        let chunks = (frames / STAGING / CHUNK).max(4);
        let most_ahead = if options.read_ahead { (frames / 32 / CHUNK).clamp(1, 24) } else { 0 };
        let window = CHUNK;
        let buffers = most_ahead * CHUNK + MARKS + ZEROES + window;
        let shares = Shares::new(frames - buffers - SINGLE, chunks, options.compress);
        let limit = shares.limit(chunks * CHUNK);
        let mut engine = Engine {
            lbas_per_page: to_u64(PAGE) / u64::from(geometry.lba_size),
            most_run: (geometry.max_transfer_size as usize / PAGE).clamp(1, CHUNK),
            device,
            options,
            clock: Clock::real(),
            spaces: BTreeMap::new(),
            next_space: 0,
            slots: Slots::new(slots, shares.segments()),
            staging: Staging::new(chunks),
            shares,
            reads: Vec::new(),
            deferred: VecDeque::new(),
            deferred_pages: 0,
            marks: VecDeque::new(),
            next_mark: 0,
            commands: VecDeque::new(),
            again: Vec::new(),
            waiting: VecDeque::new(),
            requests: Vec::new(),
            calls: Calls::default(),
            strays: Vec::new(),
            followers: Vec::new(),
            looked_outside: Nanos(0),
            killed_at: None,
            stuck_since: None,
            said_full: None,
            failed: Vec::new(),
            limit,
            reserve: (limit / 64).clamp(16, 512),
            reading: 0,
            most_ahead,
            ahead_in_flight: 0,
            walking: 0,
            walker: 0,
            held: 0,
            is_held: false,
            strict: false,
            awake: None,
            output: None,
            spare_pages: Vec::with_capacity(SINGLE),
            spare_runs: Vec::with_capacity(most_ahead),
            runs_in_use: 0,
            zeroes: AlignedBuf::zeroed(ZEROES * PAGE),
            one_page: AlignedBuf::zeroed(PAGE),
            stats: Stats::default(),
            reports: Vec::new(),
        };
        engine.fit();
        Ok(engine)
    }

    /// Lets so few pages be in memory that each step matters, and time stand still.
    #[cfg(test)]
    pub(crate) fn make_small(&mut self, limit: usize, clock: Clock) {
        (self.reserve, self.clock) = (1, clock);
        self.shares.set_most(limit);
        while self.staging.allowed() > 2 {
            self.staging.allow(2);
        }
        self.fit();
        self.pass_time();
    }

    /// Puts pages on the device, in a row, without any content.
    #[cfg(test)]
    pub(crate) fn put_out(&mut self, id: SpaceId, first: Page, count: usize) {
        let (slot, got) = self.slots.take_run(count).expect("free slots");
        assert_eq!(got, count);
        let space = self.spaces.get_mut(&id).expect("a space");
        for n in 0..crate::types::page_of(count) {
            space.pages.set(first + n, State::Out, slot + n);
        }
    }

    #[cfg(test)]
    pub(crate) fn pass_time(&self) {
        self.clock.advance(std::time::Duration::from_secs(1));
    }

    /// The newest snapshot, with a process that has its memory: a walk is looked for in it.
    pub(crate) fn newest_snapshot(&self) -> Option<(SpaceId, u32)> {
        let snapshots = self.spaces.iter().filter(|(_, space)| space.is_snapshot);
        let known = snapshots.filter_map(|(id, space)| Some((*id, space.link.as_ref()?)));
        known.max_by_key(|(id, _)| *id).map(|(id, link)| (id, link.memory_number()))
    }

    /// Whether there is any snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.spaces.values().any(|space| space.is_snapshot)
    }

    /// The figures of this moment.
    pub(crate) fn stats(&self) -> Stats {
        let resident: usize = self.spaces.values().map(|space| space.resident).sum();
        let reserved: usize = self.spaces.values().map(Space::reserved).sum();
        let mut stats = self.stats;
        stats.compressed_bytes = to_u64(self.slots.compressed.pages() * PAGE);
        stats.resident_pages = to_u64(resident);
        stats.paged_pages = to_u64(self.spaces.values().map(|space| space.pages.paged()).sum());
        stats.reserved_bytes = to_u64(reserved * PAGE);
        stats.spaces = to_u64(self.spaces.len());
        stats
    }

    /// Pages that programs hold beyond those they inherited, and pages that are coming. Those of a child that nobody has
    /// introduced can never leave, so nobody waits for that.
    fn held(&self) -> usize {
        let own = |space: &Space| space.resident.saturating_sub(space.inherited);
        let able = self.spaces.values().filter(|space| space.has_helper());
        able.map(own).sum::<usize>() + self.reading
    }

    fn has_room(&self, count: usize) -> bool {
        self.held() + count <= self.limit || self.is_stuck()
    }

    /// Whether no page has been able to leave for long: a program has locked or pinned more than the budget, and nobody waits for
    /// that to end.
    fn is_stuck(&self) -> bool {
        self.stuck_since.is_some_and(|since| self.clock.now().since(since) > STUCK)
    }

    /// Whether the content of a page is lost.
    pub(crate) fn is_poisoned(&self, id: SpaceId, page: Page) -> bool {
        self.spaces.get(&id).is_none_or(|space| space.pages.state(page) == State::Poisoned)
    }

    /// Takes back the command that reads `page`, from the `from`th on.
    pub(crate) fn take_read(&mut self, from: usize, id: SpaceId, page: Page) -> Option<Command> {
        let reads = |command: &Command| {
            let place = usize::try_from(command.tag.0).unwrap_or(usize::MAX);
            self.reads.get(place).and_then(Option::as_ref).is_some_and(|it| it.is_for(id, page))
        };
        let at = (from..self.commands.len()).find(|&at| reads(&self.commands[at]))?;
        self.commands.remove(at)
    }

    /// Reads under way for threads that wait.
    pub(crate) fn reads_for_faults(&self) -> usize {
        self.reads.iter().flatten().filter(|read| read.is_wanted()).count()
    }

    /// Whether something waits that time alone, or an event, lets go on.
    pub(crate) fn is_waiting(&self) -> bool {
        let is_busy = |space: &Space| space.batch.is_some();
        let has_faults = !(self.waiting.is_empty() && self.again.is_empty());
        let has_requests = !(self.requests.is_empty() && self.calls.is_empty());
        has_faults || has_requests || self.spaces.values().any(is_busy)
    }

    fn lba(&self, slot: u32) -> Lba {
        Lba(u64::from(slot - 1) * self.lbas_per_page)
    }

    /// Puts content into missing pages of a space and wakes threads that wait for them. A page that is there already
    /// stays as it is. Returns how many pages are done, and the error that stopped it.
    ///
    /// # Safety
    /// `source` is readable for `count` pages, and is no memory that is paged.
    unsafe fn install(
        space: &Space,
        page: Page,
        source: usize,
        count: usize,
        protected: bool,
    ) -> (usize, Option<Errno>) {
        let (mut done, mut most) = (0, usize::MAX);
        while done < count {
            let next = page + crate::types::page_of(done);
            let (addr, from) = (space.addr(next), source + done * PAGE);
            let size = space.row(next, count - done).min(most) * PAGE;
            // SAFETY: the caller's promise.
            let (bytes, error) = unsafe { space.uffd.copy(addr, from, size, protected) };
            done += bytes / PAGE;
            match error {
                None => {}
                Some(Errno(libc::EEXIST)) => {
                    space.uffd.wake(addr + bytes, PAGE);
                    done += 1;
                }
                // It did a part; the next try tells why no more.
                Some(Errno(libc::EAGAIN)) if bytes > 0 => {}
                // The program has given parts of the range other accesses: the kernel takes no range across them.
                Some(Errno(libc::ENOENT)) if size > PAGE => most = 1,
                Some(error) => return (done, Some(error)),
            }
        }
        (done, None)
    }

    /// Counts a page as resident.
    fn arrive(space: &mut Space, page: Page, slot: u32, flags: u8) {
        space.pages.set(page, State::Resident, slot);
        space.pages.add(page, flags);
        space.resident += 1;
        space.enqueue(page);
    }

    /// Counts a page as resident that will be used once.
    fn arrive_passing(space: &mut Space, page: Page, slot: u32) {
        space.pages.set(page, State::Resident, slot);
        space.pages.add(page, pages::AHEAD);
        space.resident += 1;
        space.enqueue_passing(page);
    }

    /// A chunk's place.
    fn staged_at(place: u32) -> (usize, usize) {
        staging::at(place)
    }

    fn tag_of_write(chunk: usize) -> Tag {
        Tag(WRITE + to_u64(chunk))
    }
}
