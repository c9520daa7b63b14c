//! Pages leave memory: by arrival, in batches, sorted, and by the staging area, where a page that is
//! wanted again is found.
//!
//! A page leaves in this order: it is protected against writes if it may have been written, copied
//! out, unmapped, and then written to the device from the copy. A write in between finds it
//! protected, and its thread waits until the page has left, and brings it back.

#![allow(unsafe_code)]

use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, ErrorKind};
use esker_device::{Command, Completion, Op};

use super::{Engine, SpaceId, WRITE};
use crate::pages::{self, AHEAD, DIRTY, QUEUED, State};
use crate::raw;
use crate::space::{Batch, Reach, runs};
use crate::staging::{self, Entry};
use crate::types::{CHUNK, PAGE, Page, page_of};

/// After so long a failed write is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// A child that lives shorter than this mostly runs another program: its inherited pages stay.
const SETTLED: Duration = Duration::from_millis(20);

/// Pages that are to leave.
#[derive(Default)]
struct Candidates {
    /// To be written.
    dirty: Vec<Page>,
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
        let leaving = |space: &crate::space::Space| match &space.batch {
            Some(batch) => batch.pages.len(),
            None => 0,
        };
        let total: usize = self.spaces.values().map(|space| space.resident - leaving(space)).sum();
        if total + self.reading + self.deferred_pages + self.reserve <= self.limit {
            return None;
        }
        let now = self.clock.now();
        let can = |space: &&crate::space::Space| {
            let is_settled = !space.is_snapshot || now.since(space.born) > SETTLED;
            space.batch.is_none() && space.agent_waits && space.resident > 0 && is_settled
        };
        let able = self.spaces.iter().filter(|(_, space)| can(space));
        // A space with few faults for its size can do with less memory.
        able.max_by_key(|(_, space)| to_u64(space.resident << 16) / (space.heat + 1))
            .map(|(id, _)| *id)
    }

    fn evict_from(&mut self, id: SpaceId) -> bool {
        if !self.staging.has_free() && !self.retire() {
            return false;
        }
        let mut candidates = self.candidates(id);
        let mut run = None;
        if !candidates.dirty.is_empty() {
            let want = candidates.dirty.len().min(self.most_run);
            run = self.slots.take_run(want);
            let got = run.map_or(0, |(_, count)| count);
            let rest = candidates.dirty.split_off(got);
            self.put_back(id, &rest);
            if run.is_none() {
                self.make_slots();
            }
        }
        candidates.dirty.sort_unstable();
        candidates.clean.sort_unstable();
        let copied: Vec<Page> = [&candidates.dirty[..], &candidates.clean].concat();
        let mut pages: Vec<Page> = [&copied[..], &candidates.dropped].concat();
        pages.sort_unstable();
        let chunk = if copied.is_empty() { None } else { self.staging.take() };
        if pages.is_empty() || !self.copy_out(id, &candidates.dirty, &copied, chunk) {
            self.put_back(id, &pages);
            if let Some((slot, count)) = run {
                (slot..).take(count).for_each(|slot| self.slots.release(slot));
            }
            if let Some(chunk) = chunk {
                self.staging.untake(chunk);
            }
            return false;
        }
        if let Some(index) = chunk {
            self.fill_chunk(id, index, &copied, candidates.dirty.len(), run);
        }
        let space = self.spaces.get_mut(&id).expect("a victim");
        for &page in &candidates.dropped {
            let slot = space.pages.place(page);
            let inherited = space.pages.has(page, pages::INHERITED);
            space.pages.set(page, State::Leaving, slot);
            space.pages.add(page, if inherited { pages::INHERITED | AHEAD } else { AHEAD });
        }
        self.stats.evicted_pages += to_u64(pages.len());
        space.batch = Some(Batch { chunk, pages, missed: false });
        self.unmap(id);
        true
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
                found.dirty.push(page);
            } else if space.pages.has(page, AHEAD) {
                found.dropped.push(page);
            } else {
                found.clean.push(page);
            }
        }
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

    /// Protects pages that may have been written, and copies the pages into the chunk, the dirty ones first.
    fn copy_out(
        &mut self,
        id: SpaceId,
        dirty: &[Page],
        copied: &[Page],
        chunk: Option<usize>,
    ) -> bool {
        let Some(chunk) = chunk else { return true };
        let space = self.spaces.get_mut(&id).expect("a victim");
        let mut sorted = copied.to_vec();
        sorted.sort_unstable();
        let Ok(there) = space.which_are_there(&sorted) else { return false };
        if there.contains(&false) {
            // Dropped behind the pager's back: they are zero, and the next try is without them.
            for (&page, _) in sorted.iter().zip(&there).filter(|(_, there)| !**there) {
                self.stats.vanished_pages += 1;
                Engine::depart(space, page);
                self.slots.release(space.pages.place(page));
                space.pages.set(page, State::Zero, pages::NONE);
            }
            return false;
        }
        for (page, count) in runs(dirty) {
            if space.uffd.protect(space.addr(page), count * PAGE).is_err() {
                return false;
            }
        }
        let (clean, ranges) = (&copied[dirty.len()..], |pages: &[Page]| {
            runs(pages).map(|(page, count)| (space.addr(page), count * PAGE)).collect::<Vec<_>>()
        });
        let ranges = [ranges(dirty), ranges(clean)].concat();
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(self.staging.chunks[chunk].memory);
        // SAFETY: the chunk has room for CHUNK pages and nobody else uses it; the pages are there.
        unsafe { space.copy_out(&ranges, memory) }.is_ok()
    }

    /// Notes the pages that were copied into a chunk, and begins to write the dirty ones.
    fn fill_chunk(
        &mut self,
        id: SpaceId,
        index: usize,
        copied: &[Page],
        dirty: usize,
        run: Option<(u32, usize)>,
    ) {
        let space = self.spaces.get_mut(&id).expect("a victim");
        let chunk = &mut self.staging.chunks[index];
        (chunk.dirty, chunk.leaving) = (dirty, true);
        let mut to_write = 0;
        for (n, &page) in copied.iter().enumerate() {
            let slot = if n < dirty {
                let (first, _) = run.expect("dirty pages have slots");
                let slot = first + page_of(n);
                let from = std::ptr::with_exposed_provenance::<u8>(chunk.memory + n * PAGE);
                // SAFETY: copied a moment ago; nobody writes to it.
                let bytes = unsafe { std::slice::from_raw_parts(from, PAGE) };
                if is_zero(bytes) {
                    self.stats.zero_pages += 1;
                    self.slots.release(slot);
                    pages::NONE
                } else {
                    to_write = n + 1;
                    slot
                }
            } else {
                // The chunk takes over the page's reference.
                space.pages.place(page)
            };
            chunk.slots[n] = slot;
            let inherited = space.pages.has(page, pages::INHERITED);
            space.pages.set(page, State::Leaving, staging::place(index, n));
            if inherited {
                space.pages.add(page, pages::INHERITED);
            }
            chunk.entries.push(Entry { space: id, page, index: n });
        }
        chunk.dirty = to_write;
        chunk.writing = to_write > 0;
        if chunk.writing {
            self.stats.written_pages += to_u64(to_write);
            self.write_chunk(index);
        }
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
        let Err(error) = completion.result else {
            chunk.writing = false;
            return;
        };
        if self.stats.failed_writes == 0 || error.kind() != ErrorKind::NoSpace {
            self.reports.push(format!("{error}; the pages stay in memory, and it is tried again"));
        }
        self.stats.failed_writes += 1;
        self.failed.push((index, self.clock.now() + RETRY));
    }

    /// Has the pages of a space's batch unmapped.
    fn unmap(&mut self, id: SpaceId) {
        let space = self.spaces.get_mut(&id).expect("a victim");
        let batch = space.batch.as_ref().expect("it has just got one");
        if space.reach == Reach::Here {
            for (page, count) in runs(&batch.pages) {
                // SAFETY: the content is in the staging area or on the device, and a thread that
                // looks for it faults.
                let done =
                    unsafe { raw::advise(space.addr(page), count * PAGE, libc::MADV_DONTNEED) };
                debug_assert!(done.is_ok(), "{done:?}");
            }
            self.unmapped(id);
            return;
        }
        let ranges = runs(&batch.pages).map(|(page, count)| (space.addr(page), count * PAGE));
        let ranges: Vec<(usize, usize)> = ranges.collect();
        space.agent_waits = false;
        self.tell_agent(id, &ranges);
    }

    /// The agent of a space has carried out its orders.
    pub(crate) fn done_unmapping(&mut self, id: SpaceId) {
        self.unmapped(id);
        if let Some(space) = self.spaces.get_mut(&id) {
            space.agent_waits = true;
        }
    }

    /// The pages of a space's batch are unmapped.
    fn unmapped(&mut self, id: SpaceId) {
        let Some(space) = self.spaces.get_mut(&id) else { return };
        let Some(batch) = space.batch.take() else { return };
        for &page in &batch.pages {
            let place = space.pages.place(page);
            let is_dropped = space.pages.has(page, AHEAD);
            Engine::depart(space, page);
            let state = match place {
                _ if !is_dropped => State::Staged,
                pages::NONE => State::Zero,
                _ => State::Out,
            };
            space.pages.set(page, state, place);
        }
        if batch.missed {
            let (first, last) = (batch.pages[0], batch.pages[batch.pages.len() - 1]);
            let size = ((last - first) as usize + 1) * PAGE;
            space.uffd.wake(space.addr(first), size);
        }
        if let Some(chunk) = batch.chunk {
            self.staging.chunks[chunk].leaving = false;
        }
    }

    /// There are no free slots: chunks that hold some are retired, or a snapshot has to go.
    fn make_slots(&mut self) {
        while self.retire() {}
        if self.slots.free() > 0 {
            return;
        }
        let snapshots = self.spaces.values().filter(|space| space.is_snapshot && space.pid > 0);
        let Some(newest) = snapshots.max_by_key(|space| space.born) else { return };
        let pid = newest.pid;
        self.reports.push(format!(
            "{}: no space is left for the snapshot of process {pid}, which is killed",
            self.device.name()
        ));
        let Ok(pid) = i32::try_from(pid) else { return };
        // SAFETY: no memory is involved. If the process is gone already, nothing happens.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let words = bytes.as_chunks::<16>().0;
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0)
}
