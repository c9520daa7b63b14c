//! Pages leave memory: by arrival, in batches, and by the staging area, where a page that is wanted again is found.
//!
//! A dirty page is moved to the window in one step, copied from there, and then written to the device from the copy. A
//! thread that touches it in between waits until it has left, and brings it back. A page that the kernel has pinned
//! cannot be moved, and stays. A clean page is protected against writes; it is copied and then dropped.

#![allow(unsafe_code)]

use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, ErrorKind};
use esker_device::{Command, Completion, Op};

use super::retire::Copies;
use super::{Engine, SpaceId, WRITE};
use crate::pages::{self, AHEAD, DIRTY, INHERITED, QUEUED, State};
use crate::protocol::{HelperOrder, Outcome, WINDOW};
use crate::space::{Batch, Space};
use crate::staging::{self, Entry};
use crate::types::{CHUNK, PAGE, Page, page_of};

/// After so long a failed write is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// After so long a space is tried again of which no page could leave.
const REST: Duration = Duration::from_millis(2);
/// A child that lives shorter than this mostly runs another program: its inherited pages stay.
const SETTLED: Duration = Duration::from_millis(20);
/// After so long pages that are leaving count as being there.
const PROMPT: Duration = Duration::from_millis(20);
/// That a device is full is said so often.
const FULL_APART: Duration = Duration::from_secs(10);

/// Processes for which there is no space are killed so far apart: the end of one takes a moment.
const KILLED_APART: Duration = Duration::from_millis(500);

/// Pages that are to leave.
#[derive(Default)]
struct Candidates {
    /// To be moved, and written.
    dirty: Vec<Page>,
    /// To be written. Their memory may not be written, so they cannot be moved.
    barred: Vec<Page>,
    /// Clean, and kept in the staging area.
    clean: Vec<Page>,
    /// Clean, and not kept.
    dropped: Vec<Page>,
}

impl Engine {
    /// Lets pages leave until few enough are in memory, or it has to wait. Says whether any left.
    pub(super) fn evict(&mut self) -> bool {
        let mut did = false;
        while let Some(id) = self.victim() {
            if !self.evict_from(id) {
                break;
            }
            did = true;
        }
        did
    }

    /// Whether pages have to leave.
    pub(crate) fn has_to_evict(&self) -> bool {
        self.victim().is_some()
    }

    /// The space that holds most for its faults, if pages have to leave.
    fn victim(&self) -> Option<SpaceId> {
        let now = self.clock.now();
        // A helper that does not answer holds up no other space.
        let leaving = |space: &Space| match &space.batch {
            Some(batch) if now.since(batch.since) < PROMPT => batch.pages.len(),
            _ => 0,
        };
        let total: usize = self.spaces.values().map(|space| space.resident - leaving(space)).sum();
        if total + self.reading + self.deferred_pages + self.reserve <= self.limit {
            return None;
        }
        let can = |space: &&Space| {
            let is_settled = !space.is_snapshot || now.since(space.born) > SETTLED;
            let is_busy = space.is_emptying || space.is_calling;
            let is_free = space.batch.is_none() && !is_busy && !space.is_over;
            let is_ready = is_free && space.has_helper() && now >= space.rests_until;
            is_ready && space.resident > 0 && is_settled
        };
        let able = self.spaces.iter().filter(|(_, space)| can(space));
        // A space with few faults for its size can do with less memory.
        able.max_by_key(|(_, space)| to_u64(space.resident << 16) / (space.heat + 1))
            .map(|(id, _)| *id)
    }

    /// Has pages of a space leave. False when none can now.
    fn evict_from(&mut self, id: SpaceId) -> bool {
        while self.staging.free() == 0 {
            if !self.retire(CHUNK, Copies::Kept) {
                return false;
            }
        }
        let mut candidates = self.candidates(id);
        let run = self.take_run(id, &mut candidates);
        let Candidates { dirty, barred, clean, dropped } = candidates;
        let (moves, dirty) = (dirty.len(), [dirty, barred].concat());
        let chunk = self.staging.take().expect("one is free");
        let slots = run.map_or(pages::NONE, |(first, _)| first);
        let batch = Batch {
            chunk,
            moves,
            dirty: dirty.len(),
            copied: dirty.len() + clean.len(),
            pages: [dirty, clean, dropped].concat(),
            slots,
            missed: false,
            since: self.clock.now(),
        };
        if batch.pages.is_empty() || !self.copy(id, &batch) {
            // Behind all others: one that cannot be copied holds them up only once.
            let space = self.spaces.get_mut(&id).expect("a victim");
            for &page in &batch.pages {
                if space.is_resident(page) {
                    space.enqueue(page);
                }
            }
            let (first, count) = run.unwrap_or_default();
            (first..).take(count).for_each(|slot| self.slots.release(slot));
            self.staging.untake(chunk);
            self.rest(id);
            return false;
        }
        let order = self.begin(id, &batch);
        let space = self.spaces.get_mut(&id).expect("a victim");
        space.batch = Some(batch);
        match space.order(&order) {
            Some(outcome) => self.left(id, outcome),
            None => true,
        }
    }

    /// Tries no page of a space for a while.
    fn rest(&mut self, id: SpaceId) {
        let until = self.clock.now() + REST;
        if let Some(space) = self.spaces.get_mut(&id) {
            space.rests_until = until;
        }
    }

    /// Slots in a row for the pages that are to be written, in order. Pages that get none are put back.
    fn take_run(&mut self, id: SpaceId, candidates: &mut Candidates) -> Option<(u32, usize)> {
        let Candidates { dirty, barred, .. } = candidates;
        let want = (dirty.len() + barred.len()).min(self.most_run);
        if want == 0 {
            return None;
        }
        let run = self.slots.take_run(want);
        let got = run.map_or(0, |(_, count)| count);
        let moved = dirty.len().min(got);
        let rest = [dirty.split_off(moved), barred.split_off(barred.len().min(got - moved))];
        self.put_back(id, &rest.concat());
        if run.is_none() {
            self.make_slots();
        }
        candidates.dirty.sort_unstable();
        candidates.barred.sort_unstable();
        run
    }

    /// Takes the oldest pages off the queue.
    fn candidates(&mut self, id: SpaceId) -> Candidates {
        let most_passing = 2 * self.window();
        let space = self.spaces.get_mut(&id).expect("a victim");
        let mut found = Candidates::default();
        let mut left = CHUNK;
        while left > 0 {
            let is_past = space.passing.len() > most_passing || space.queue.is_empty();
            let page = if is_past { space.passing.pop_front() } else { space.queue.pop_front() };
            let Some(page) = page else { break };
            space.pages.clear(page, QUEUED);
            if space.pages.state(page) != State::Resident {
                continue;
            }
            left -= 1;
            if space.pages.has(page, DIRTY) {
                let barred = &mut space.barred;
                let is_barred = !barred.is_empty() && barred.remove(&page);
                if is_barred { &mut found.barred } else { &mut found.dirty }.push(page);
            } else if space.pages.has(page, AHEAD) {
                found.dropped.push(page);
            } else {
                found.clean.push(page);
            }
        }
        found.clean.sort_unstable();
        found
    }

    fn put_back(&mut self, id: SpaceId, pages: &[Page]) {
        let Some(space) = self.spaces.get_mut(&id) else { return };
        for &page in pages.iter().rev() {
            if space.pages.state(page) == State::Resident && !space.pages.has(page, QUEUED) {
                space.pages.add(page, QUEUED);
                space.queue.push_front(page);
            }
        }
    }

    /// Copies the pages that will be dropped into the batch's chunk; those that are dirty are protected first. False: they cannot
    /// be copied now, or some were not there, and the next try is without them.
    fn copy(&mut self, id: SpaceId, batch: &Batch) -> bool {
        let space = self.spaces.get_mut(&id).expect("a victim");
        let memory = self.staging.chunks[batch.chunk].memory;
        for (page, count) in space.runs(&batch.pages[batch.moves..batch.dirty]) {
            if space.uffd.protect(space.addr(page), count * PAGE).is_err() {
                return false;
            }
        }
        let mut at = batch.moves;
        for (page, count) in space.runs(&batch.pages[batch.moves..batch.copied]).collect::<Vec<_>>()
        {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(memory + at * PAGE);
            // SAFETY: the chunk has room for CHUNK pages, and nobody else uses it.
            let to = unsafe { std::slice::from_raw_parts_mut(to, count * PAGE) };
            let got = space.read(space.addr(page), to) / PAGE;
            if got < count {
                let missing = page + page_of(got);
                if space.is_missing(missing) {
                    // Dropped behind the pager's back: it is zero.
                    self.stats.vanished_pages += 1;
                    Engine::depart(space, missing);
                    self.slots.release(space.pages.place(missing));
                    space.pages.set(missing, State::Zero, pages::NONE);
                }
                return false;
            }
            at += count;
        }
        true
    }

    /// Notes that pages are leaving. Gives the order by which they do.
    fn begin(&mut self, id: SpaceId, batch: &Batch) -> HelperOrder {
        let space = self.spaces.get_mut(&id).expect("a victim");
        let chunk = &mut self.staging.chunks[batch.chunk];
        (chunk.leaving, chunk.dirty, chunk.writing) = (true, batch.dirty, batch.dirty > 0);
        chunk.of_child = space.is_child;
        let mut order = HelperOrder::empty();
        (order.count, order.moves) = (to_u64(batch.pages.len()), to_u64(batch.moves));
        order.tries = to_u64(batch.dirty);
        for (n, (&page, to)) in batch.pages.iter().zip(&mut order.pages).enumerate() {
            *to = to_u64(space.addr(page));
            let former = space.pages.place(page);
            let inherited = if space.pages.has(page, INHERITED) { INHERITED } else { 0 };
            let (place, flag) = if n < batch.copied {
                (staging::place(batch.chunk, n), 0)
            } else {
                (former, AHEAD)
            };
            space.pages.set(page, State::Leaving, place);
            space.pages.add(page, inherited | flag);
            if (batch.moves..batch.copied).contains(&n) {
                // The chunk takes over a clean page's reference.
                chunk.slots[n] = if n < batch.dirty { batch.slots + page_of(n) } else { former };
                chunk.entries.push(Entry { space: id, page, index: n });
            }
        }
        order
    }

    /// A helper answers.
    pub(crate) fn heard(&mut self, id: SpaceId, outcome: Outcome) {
        match self.spaces.get_mut(&id).filter(|space| space.is_calling) {
            Some(space) => space.result = Some(outcome.done.cast_signed()),
            None => drop(self.left(id, outcome)),
        }
    }

    /// The helper has carried out an order. Says whether any page has left.
    pub(crate) fn left(&mut self, id: SpaceId, outcome: Outcome) -> bool {
        let Some(space) = self.spaces.get_mut(&id) else { return false };
        space.is_emptying = false;
        let Some(batch) = space.batch.take() else { return false };
        let copied =
            copy_moved(space, &batch, outcome.done, self.staging.chunks[batch.chunk].memory);
        self.tell_followers(&batch, copied, outcome);
        let space = self.spaces.get_mut(&id).expect("looked up above");
        let chunk = &mut self.staging.chunks[batch.chunk];
        for (n, &page) in batch.pages.iter().enumerate() {
            let has = |bits: u64| bits & 1 << n != 0;
            let place = space.pages.place(page);
            let inherited = if space.pages.has(page, INHERITED) { INHERITED } else { 0 };
            if !has(outcome.done | outcome.gone) {
                let (slot, flag) = match n {
                    _ if n < batch.dirty => (pages::NONE, DIRTY),
                    _ if n < batch.copied => (chunk.slots[n], 0),
                    _ => (place, AHEAD),
                };
                if n < batch.moves {
                    chunk.spare.push(batch.slots + page_of(n));
                } else if n < batch.copied {
                    self.slots.refer(slot);
                }
                if n < batch.moves && has(outcome.barred) {
                    space.barred.insert(page);
                } else if n >= batch.moves && n < batch.dirty {
                    // Its protection would keep it from ever being moved. If this fails, its next write lifts it.
                    let _ = space.uffd.unprotect(space.addr(page), PAGE);
                }
                space.pages.set(page, State::Resident, slot);
                space.pages.add(page, flag | inherited);
                space.enqueue(page);
                continue;
            }
            Engine::depart(space, page);
            let state = match n {
                _ if n >= batch.copied && place == pages::NONE => State::Zero,
                _ if n >= batch.copied => State::Out,
                _ if n >= batch.moves => State::Staged,
                _ => {
                    let slot = batch.slots + page_of(n);
                    let is_copied = has(copied);
                    if is_copied && !is_zero(chunk.page(n)) {
                        chunk.slots[n] = slot;
                    } else {
                        chunk.spare.push(slot);
                    }
                    self.stats.zero_pages += u64::from(is_copied && chunk.slots[n] == pages::NONE);
                    if is_copied {
                        chunk.entries.push(Entry { space: id, page, index: n });
                        State::Staged
                    } else if has(outcome.gone) {
                        self.stats.vanished_pages += 1;
                        State::Zero
                    } else {
                        State::Poisoned
                    }
                }
            };
            let place =
                if matches!(state, State::Staged | State::Out) { place } else { pages::NONE };
            space.pages.set(page, state, place);
        }
        if batch.missed {
            let addrs = || batch.pages.iter().map(|&page| space.addr(page));
            let (Some(first), Some(last)) = (addrs().min(), addrs().max()) else { return false };
            space.uffd.wake(first, last - first + PAGE);
        }
        self.settle(&batch);
        self.stats.evicted_pages += u64::from(outcome.done.count_ones());
        let has_left = outcome.done | outcome.gone != 0;
        if has_left {
            self.stuck_since = None;
        } else {
            self.stuck_since = self.stuck_since.or(Some(self.clock.now()));
            self.rest(id);
        }
        has_left
    }

    /// Begins to write the dirty pages of a batch that has left.
    fn settle(&mut self, batch: &Batch) {
        let chunk = &mut self.staging.chunks[batch.chunk];
        let known = chunk.slots[..batch.dirty].iter().rposition(|&slot| slot != pages::NONE);
        chunk.dirty = known.map_or(0, |last| last + 1);
        chunk.writing = chunk.dirty > 0;
        chunk.leaving = self.followers.iter().any(|one| staging::at(one.place).0 == batch.chunk);
        if chunk.writing {
            self.stats.written_pages += to_u64(chunk.dirty);
            self.write_chunk(batch.chunk);
        } else {
            self.release_spare(batch.chunk);
        }
        if batch.copied == 0 {
            // Nothing was kept, so it takes no place of pages that were.
            self.staging.untake(batch.chunk);
        }
    }

    /// Frees the slots that no page of a chunk needs: no write covers them.
    fn release_spare(&mut self, chunk: usize) {
        let spare = std::mem::take(&mut self.staging.chunks[chunk].spare);
        spare.into_iter().for_each(|slot| self.slots.release(slot));
    }

    /// Writes the dirty pages of a chunk.
    pub(super) fn write_chunk(&mut self, index: usize) {
        let chunk = &mut self.staging.chunks[index];
        // Zero pages in between have no slot; the first one that has tells where the run begins.
        let known = chunk.slots[..chunk.dirty].iter().position(|&slot| slot != pages::NONE);
        let (Some(at), Some(mut buf)) = (known, chunk.buf.take()) else { return };
        let first = chunk.slots[at] - page_of(at);
        let size = chunk.dirty * PAGE;
        buf.set_len(size);
        let lba = self.lba(first);
        let op = Op::Write { lba, buf, placement: None, fua: false };
        self.commands.push_back(Command { tag: Engine::tag_of_write(index), op });
    }

    /// A write has ended; one that failed is tried again.
    pub(super) fn written(&mut self, completion: Completion) {
        let index = to_usize(completion.tag.0 - WRITE);
        let chunk = &mut self.staging.chunks[index];
        let mut buf = completion.buf.unwrap_or_else(|| AlignedBuf::zeroed(CHUNK * PAGE));
        buf.set_len(CHUNK * PAGE);
        chunk.buf = Some(buf);
        let now = self.clock.now();
        let Err(error) = completion.result else {
            chunk.writing = false;
            self.release_spare(index);
            return;
        };
        let is_full = error.kind() == ErrorKind::NoSpace;
        if !is_full || self.said_full.is_none_or(|said| now.since(said) >= FULL_APART) {
            self.said_full = is_full.then_some(now).or(self.said_full);
            self.reports.push(format!("{error}; the pages stay in memory, and it is tried again"));
        }
        self.stats.failed_writes += 1;
        self.failed.push((index, now + RETRY));
    }

    /// Empties windows that nobody has used for a while.
    pub(super) fn empty_windows(&mut self) {
        let is_idle = |space: &&mut Space| {
            let is_busy = space.is_emptying || space.is_calling || space.is_over;
            space.has_full_window && space.batch.is_none() && !is_busy
        };
        for space in self.spaces.values_mut().filter(is_idle) {
            space.is_emptying = space.order(&HelperOrder::empty()).is_none();
        }
    }

    /// There are no free slots: chunks that hold some are retired, or a snapshot has to go, or the largest process.
    fn make_slots(&mut self) {
        while self.retire(CHUNK, Copies::None) {}
        if self.slots.free() > 0 {
            return;
        }
        let now = self.clock.now();
        if self.killed_at.is_some_and(|killed| now.since(killed) < KILLED_APART) {
            return;
        }
        let of_use = |space: &Space| space.resident + space.pages.paged();
        let known = self.spaces.values().filter_map(|space| Some((space, space.link.as_ref()?)));
        let (snapshots, programs): (Vec<_>, Vec<_>) =
            known.partition(|(space, _)| space.is_snapshot);
        let newest = snapshots.into_iter().max_by_key(|(space, _)| space.born);
        // A child that has not introduced itself may be about to run another program.
        let is_young =
            |space: &Space| space.is_snapshot && space.link.is_none() && space.is_young(now);
        if newest.is_none() && self.spaces.values().any(is_young) {
            return;
        }
        // A program that is alone has no more than the device holds.
        let is_alone = programs.len() < 2;
        let largest = programs.into_iter().max_by_key(|(space, _)| of_use(space));
        let largest = largest.filter(|_| !is_alone);
        let Some((space, link)) = newest.or(largest) else { return };
        let what =
            if space.is_snapshot { "the snapshot of process" } else { "the largest process" };
        self.killed_at = Some(now);
        link.kill();
        self.reports.push(format!(
            "{}: no space is left, and {what} {}, is killed: give a larger --swap",
            self.device.name(),
            link.pid()
        ));
    }
}

/// Copies pages that were moved out of a space's window into a chunk at `memory`. Gives those that could be copied, as bits.
fn copy_moved(space: &Space, batch: &Batch, done: u64, memory: usize) -> u64 {
    let (mut copied, mut at) = (0, 0);
    while at < batch.moves {
        let run = (at..batch.moves).take_while(|n| done & 1 << n != 0).count();
        let to = std::ptr::with_exposed_provenance_mut::<u8>(memory + at * PAGE);
        // SAFETY: the chunk has room for CHUNK pages, and nobody else uses it.
        let to = unsafe { std::slice::from_raw_parts_mut(to, run * PAGE) };
        let got = space.read(space.addr(WINDOW + page_of(at)), to) / PAGE;
        (at..at + got).for_each(|n| copied |= 1 << n);
        // One that cannot be read is lost, and no other.
        at += if got < run { got + 1 } else { run.max(1) };
    }
    copied
}

fn is_zero(bytes: &[u8]) -> bool {
    let words = bytes.as_chunks::<16>().0;
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0)
}
