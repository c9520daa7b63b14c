//! Pages come from the device: for a fault, or ahead of it.

#![allow(unsafe_code)]

use esker_base::AlignedBuf;
use esker_base::units::{to_u64, to_usize};
use esker_device::{Command, Completion, DeviceError, Op, Tag};

use super::pending::{Aim, Answer, Deferred, HEAT, Mark, Read, SINGLE, SpaceId};
use super::{Engine, MARKS};
use crate::pages::{self, AHEAD, DIRTY, State};
use crate::predict::Ahead;
use crate::raw::Errno;
use crate::staging;
use crate::types::{CHUNK, PAGE, Page, page_of};
use crate::walk::Near;

/// Of the pages that a walk leads to, each so manieth becomes a mark.
const MARK_EVERY: usize = 12;

/// Most reads for walks under way. With 64 a snapshot takes a fifth longer, and faults of others wait less.
const WALKING: usize = 512;

impl Engine {
    pub(super) fn fault_on_out(&mut self, id: SpaceId, page: Page, write: bool) -> Answer {
        if let Some(answer) = self.restore(id, page, write, Aim::Fault) {
            return answer;
        }
        if self.reading - self.ahead_in_flight >= SINGLE {
            return Answer::Later;
        }
        let slot = self.spaces[&id].pages.place(page);
        if let Some(answer) = self.borrow_page(id, page, slot, write) {
            return answer;
        }
        let wanted = Some(page);
        let (mark, aim) = (None, Aim::Fault);
        let since = self.clock.now();
        let read = Read { space: id, page, count: 1, slot, wanted, write, mark, aim, since };
        self.start(read);
        self.stats.read_faults += 1;
        Answer::Coming
    }

    /// Brings a page back from its compressed copy, if it has one. The copy stays if nobody waits for the page.
    fn restore(&mut self, id: SpaceId, page: Page, write: bool, aim: Aim) -> Option<Answer> {
        let slot = self.spaces[&id].pages.place(page);
        let hit = self.slots.compressed.read(slot, &mut self.one_page)?;
        let source = self.one_page.as_ptr().addr();
        // SAFETY: the page is this process's, and not paged.
        let answer = unsafe { self.bring(id, page, source, write, aim) };
        if answer == Answer::Later {
            return Some(answer);
        }
        let is_here = self.spaces[&id].is_resident(page);
        if aim != Aim::Fault {
            self.stats.ahead_restored += u64::from(is_here);
            return Some(answer);
        }
        // While the page is in memory the copy would be of no use.
        if is_here && !write && !self.slots.is_shared(slot) {
            self.slots.compressed.forget(slot);
        }
        self.shares.note_restored(hit.is_old);
        self.stats.restored_pages += 1;
        Some(answer)
    }

    /// Copies a page from a parent or a child that has the same content of the same slot at hand.
    fn borrow_page(&mut self, id: SpaceId, page: Page, slot: u32, write: bool) -> Option<Answer> {
        if self.spaces.len() < 2 {
            return None;
        }
        let others = self.spaces.iter_mut().filter(|(other, _)| **other != id);
        let mut source = None;
        for (_, other) in others {
            let place = other.pages.place(page);
            match other.pages.state(page) {
                // A child may have put other content there without a word, which its parent must not get.
                State::Resident
                    if place == slot
                        && !other.pages.has(page, DIRTY)
                        // Other memory may be there already.
                        && !(other.is_child || other.is_calling) =>
                {
                    let addr = other.addr(page);
                    if other.read(addr, &mut self.one_page) < PAGE {
                        continue;
                    }
                    source = Some(self.one_page.as_ptr().addr());
                }
                State::Staged | State::Leaving if !other.pages.has(page, AHEAD) => {
                    let (chunk, index) = staging::at(place);
                    let chunk = &self.staging.chunks[chunk];
                    let is_known = index < chunk.dirty || !other.is_child;
                    if chunk.slots[index] == slot && is_known {
                        source = Some(chunk.memory + index * PAGE);
                    }
                }
                _ => {}
            }
            if source.is_some() {
                break;
            }
        }
        // SAFETY: a chunk in use, or the page that was filled above; neither is paged.
        let answer = unsafe { self.bring(id, page, source?, write, Aim::Fault) };
        self.stats.staged_hits += u64::from(answer == Answer::Done);
        Some(answer)
    }

    /// Brings in a page that is out, whose content was found in memory.
    ///
    /// # Safety
    /// `source` is readable for a page, and is no memory that is paged.
    unsafe fn bring(
        &mut self,
        id: SpaceId,
        page: Page,
        source: usize,
        write: bool,
        aim: Aim,
    ) -> Answer {
        let Some(space) = self.spaces.get_mut(&id) else { return Answer::Done };
        let slot = space.pages.place(page);
        // SAFETY: the caller's promise.
        let (done, error) = unsafe { Engine::install(space, page, source, 1, !write) };
        if error == Some(Errno(libc::EAGAIN)) {
            return Answer::Later;
        }
        match aim {
            _ if done == 0 => {}
            _ if write => {
                self.slots.release(slot);
                Engine::arrive(space, page, pages::NONE, DIRTY);
            }
            Aim::Leaf => Engine::arrive_passing(space, page, slot),
            Aim::Stream => Engine::arrive(space, page, slot, AHEAD),
            Aim::Fault | Aim::Node => Engine::arrive(space, page, slot, 0),
        }
        Answer::Done
    }

    pub(super) fn fault_on_reading(&mut self, id: SpaceId, page: Page, write: bool) -> Answer {
        let place = self.spaces[&id].pages.place(page) as usize;
        let read = self.reads[place].as_mut().expect("a page that is read has a read");
        if read.wanted == Some(page) {
            read.write |= write;
        } else if read.wanted.is_none() {
            (read.wanted, read.write) = (Some(page), write);
        } else if let Some((_, count)) = read.mark.take_if(|(mark, _)| *mark == page) {
            // Two threads wait: the one that waits for the mark shows that the stream goes on, and is woken when it is
            // mapped.
            self.stats.ahead_used += to_u64(count);
            self.spaces.get_mut(&id).expect("it faulted").streams.learn(true);
        }
        Answer::Coming
    }

    /// The slot of a page that is being read.
    pub(super) fn slot_of_read(&self, place: u32, page: Page) -> u32 {
        let read = self.reads[place as usize].as_ref().expect("a page that is read has a read");
        read.slot + (page - read.page)
    }

    /// Lets go of a mark, and gives its slot.
    pub(super) fn take_mark(&mut self, number: u32) -> u32 {
        let at = self.marks.iter().position(|(other, _)| *other == number);
        let (_, mark) = self.marks.remove(at.expect("a marked page has a mark")).expect("found");
        mark.slot
    }

    fn start(&mut self, read: Read) {
        let place = self.reads.iter().position(Option::is_none).unwrap_or(self.reads.len());
        let space = self.spaces.get_mut(&read.space).expect("it has a page to read");
        for page in (read.page..).take(read.count) {
            space.pages.set(page, State::Reading, page_of(place));
        }
        self.reading += read.count;
        let buf = self.buffer(read.count);
        let op = Op::Read { lba: self.lba(read.slot), buf };
        self.commands.push_back(Command { tag: Tag(to_u64(place)), op });
        if place == self.reads.len() {
            self.reads.push(None);
        }
        self.reads[place] = Some(read);
    }

    /// Reads those pages on the device that a stream will want.
    pub(super) fn read_ahead(&mut self, id: SpaceId, ahead: Ahead) {
        let space = &self.spaces[&id];
        let is_out = |page: &Page| space.pages.state(*page) == State::Out;
        let steps = (0..i64::from(ahead.count)).map(|n| ahead.first + n * ahead.delta);
        let inside =
            steps.filter(|&page| page >= 0 && page < i64::from(page_of(space.pages.len())));
        let mut wanted: Vec<Page> =
            inside.filter_map(|page| Page::try_from(page).ok()).filter(is_out).collect();
        let Some(&nearest) = wanted.first() else { return };
        let mut total = wanted.len();
        wanted.sort_unstable();
        let mut runs = Vec::new();
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let (run, others) = rest.split_at(self.run_of_slots(id, rest));
            runs.push((run[0], run.len()));
            rest = others;
        }
        // The nearest ones first.
        if ahead.delta < 0 {
            runs.reverse();
        }
        for (page, count) in runs {
            // More than can be under way is more than will be needed soon.
            if self.deferred_pages + count > self.window() {
                break;
            }
            let has_mark = (page..).take(count).any(|page| page == nearest);
            let mark = has_mark.then_some((nearest, total));
            total = if has_mark { 0 } else { total };
            self.deferred_pages += count;
            self.deferred.push_back(Deferred { space: id, page, count, mark });
        }
        self.start_deferred();
    }

    /// Of pages that are out, in order: how many from the first one on are in a row, on the device too.
    fn run_of_slots(&self, id: SpaceId, wanted: &[Page]) -> usize {
        let (pages, page) = (&self.spaces[&id].pages, wanted[0]);
        let slot = pages.place(page);
        let in_row = |(n, other): (usize, &Page)| {
            *other == page + page_of(n) && pages.place(*other) == slot + page_of(n)
        };
        let most = wanted.len().min(self.most_run);
        wanted[..most].iter().enumerate().take_while(|&(n, other)| in_row((n, other))).count()
    }

    /// Starts reads for streams, the oldest first, as far as there is room for their pages. Says whether any was
    /// started.
    pub(super) fn start_deferred(&mut self) -> bool {
        let mut did = false;
        while let Some(first) = self.deferred.front() {
            let is_full = self.ahead_in_flight + first.count > self.most_ahead * CHUNK;
            if is_full || !self.has_room(first.count + self.reserve / 2) {
                break;
            }
            let deferred = self.deferred.pop_front().expect("seen above");
            self.deferred_pages -= deferred.count;
            did |= self.start_run(&deferred);
        }
        did
    }

    /// Reads those pages of a run that are still out.
    fn start_run(&mut self, deferred: &Deferred) -> bool {
        let &Deferred { space: id, page, count, mark } = deferred;
        let Some(space) = self.spaces.get(&id) else { return false };
        let is_out = |page: &Page| space.pages.state(*page) == State::Out;
        let all = (page..).take(count).filter(is_out);
        let has_copy = |page: &Page| self.slots.compressed.has(space.pages.place(*page));
        let (near, wanted): (Vec<Page>, Vec<Page>) = all.partition(has_copy);
        for &page in &near {
            match mark.filter(|(mark, _)| *mark == page) {
                Some((_, count)) => self.mark_copy(id, page, count),
                None => drop(self.restore(id, page, false, Aim::Stream)),
            }
        }
        let mut rest = &wanted[..];
        while let Some(&page) = rest.first() {
            let count = self.run_of_slots(id, rest);
            let slot = self.spaces[&id].pages.place(page);
            let mark = mark.filter(|(mark, _)| rest[..count].contains(mark));
            let (wanted, write, aim, since) = (None, false, Aim::Stream, self.clock.now());
            self.start_ahead(Read {
                space: id,
                page,
                count,
                slot,
                wanted,
                write,
                mark,
                aim,
                since,
            });
            rest = &rest[count..];
        }
        !(wanted.is_empty() && near.is_empty())
    }

    /// Makes a page that has a compressed copy a mark.
    fn mark_copy(&mut self, id: SpaceId, page: Page, count: usize) {
        let slot = self.spaces[&id].pages.place(page);
        let mut buf = AlignedBuf::zeroed(PAGE);
        if self.slots.compressed.read(slot, &mut buf).is_some() {
            self.stats.ahead_restored += 1;
            self.put_mark(Mark { space: id, page, slot, buf, count });
        }
    }

    fn put_mark(&mut self, mark: Mark) {
        let Some(space) = self.spaces.get_mut(&mark.space) else { return };
        space.pages.set(mark.page, State::Marked, self.next_mark);
        self.marks.push_back((self.next_mark, mark));
        self.next_mark = self.next_mark.wrapping_add(1);
        if self.marks.len() > MARKS {
            self.drop_mark();
        }
    }

    /// A buffer for a read. Its old content stays in it.
    fn buffer(&mut self, count: usize) -> AlignedBuf {
        let (spare, size) = if count == 1 {
            (self.spare_pages.pop(), PAGE)
        } else if self.runs_in_use < self.most_ahead && count >= CHUNK / 4 {
            self.runs_in_use += 1;
            (self.spare_runs.pop(), CHUNK * PAGE)
        } else {
            (None, count * PAGE)
        };
        let mut buf = spare.unwrap_or_else(|| AlignedBuf::zeroed(size));
        buf.set_len(count * PAGE);
        buf
    }

    /// Keeps a buffer for the next read.
    fn give_back(&mut self, buf: AlignedBuf) {
        if buf.capacity() == PAGE && self.spare_pages.len() < SINGLE {
            self.spare_pages.push(buf);
        } else if buf.capacity() == CHUNK * PAGE && self.runs_in_use > 0 {
            self.runs_in_use -= 1;
            self.spare_runs.push(buf);
        }
    }

    fn start_ahead(&mut self, read: Read) {
        self.ahead_in_flight += read.count;
        self.stats.ahead_pages += to_u64(read.count);
        self.start(read);
    }

    /// Pages that a walk may have on their way, or wait for the program; and those of streams that wait for room.
    pub(crate) fn window(&self) -> usize {
        (self.most_ahead * CHUNK).min(self.limit / 8)
    }

    /// Has a page brought in for a walk.
    pub(crate) fn fetch(&mut self, id: SpaceId, page: Page, is_leaf: bool) -> Near {
        let Some(space) = self.spaces.get_mut(&id) else { return Near::Never };
        match space.pages.state(page) {
            State::Resident => return Near::Here,
            State::Leaving | State::Reading => return Near::Coming,
            State::Zero | State::Poisoned | State::Marked => return Near::Never,
            State::Staged | State::Out => {}
        }
        let is_full = self.walking >= WALKING || self.ahead_in_flight >= self.most_ahead * CHUNK;
        if is_full || !self.has_room(1 + self.reserve / 2) {
            return Near::Full;
        }
        let space = self.spaces.get_mut(&id).expect("looked up above");
        if !is_leaf {
            space.heat += HEAT;
        }
        if space.pages.state(page) == State::Staged {
            return match self.fault_on_staged(id, page, false) {
                Answer::Later => Near::Full,
                _ => Near::Here,
            };
        }
        let slot = space.pages.place(page);
        let aim = if is_leaf { Aim::Leaf } else { Aim::Node };
        let near = self.restore(id, page, false, aim);
        if let Some(answer) = near.or_else(|| self.borrow_page(id, page, slot, false)) {
            return if answer == Answer::Later { Near::Full } else { Near::Here };
        }
        let space = self.spaces.get_mut(&id).expect("looked up above");
        let mut mark = None;
        if is_leaf {
            space.unmarked += 1;
            if space.unmarked >= MARK_EVERY {
                mark = Some((page, std::mem::take(&mut space.unmarked)));
            }
        }
        self.walking += 1;
        let (count, wanted, write, since) = (1, None, false, self.clock.now());
        self.start_ahead(Read { space: id, page, count, slot, wanted, write, mark, aim, since });
        Near::Coming
    }

    /// A read has ended. False when it has to be looked at again.
    pub(super) fn landed(&mut self, completion: Completion) -> bool {
        let place = to_usize(completion.tag.0);
        let Completion { tag, result, buf } = completion;
        let mut read = self.reads[place].take().expect("a read under way");
        let outcome = match &result {
            Ok(()) => {
                let buf = buf.as_ref().expect("a read carries a buffer");
                self.map_read(place, &mut read, buf)
            }
            Err(error) => {
                self.fail_read(place, &read, error);
                Ok(())
            }
        };
        if outcome.is_err() {
            self.reads[place] = Some(read);
            self.again.push(Completion { tag, result, buf });
            return false;
        }
        if let Some(buf) = buf {
            self.give_back(buf);
        }
        self.reading -= read.count;
        if read.aim == Aim::Fault {
            self.shares.note_read(self.clock.now().since(read.since));
        }
        if read.aim != Aim::Fault {
            self.ahead_in_flight -= read.count;
            self.walking -= usize::from(read.aim != Aim::Stream);
        }
        true
    }

    /// Maps pages that were read. An error: the process is forking.
    fn map_read(&mut self, place: usize, read: &mut Read, buf: &AlignedBuf) -> Result<(), ()> {
        let Some(space) = self.spaces.get_mut(&read.space) else {
            return Ok(());
        };
        let is_mine = |space: &crate::space::Space, page: Page| {
            space.pages.state(page) == State::Reading && space.pages.place(page) == page_of(place)
        };
        if let Some((page, count)) = read.mark
            && read.wanted != Some(page)
            && is_mine(space, page)
        {
            let index = (page - read.page) as usize;
            let slot = read.slot + page_of(index);
            let bytes = &buf[index * PAGE..][..PAGE];
            let buf = AlignedBuf::padded(bytes, PAGE);
            self.put_mark(Mark { space: read.space, page, slot, buf, count });
        }
        let Some(space) = self.spaces.get_mut(&read.space) else { return Ok(()) };
        let source = buf.as_ptr().addr();
        let mut at = 0;
        while at < read.count {
            let page = read.page + page_of(at);
            if !is_mine(space, page) {
                at += 1;
                continue;
            }
            let is_wanted = |page: Page| read.wanted == Some(page);
            let run = (at..read.count)
                .take_while(|&n| {
                    let other = read.page + page_of(n);
                    is_mine(space, other) && (is_wanted(page) == is_wanted(other))
                })
                .count();
            let write = is_wanted(page) && read.write;
            // SAFETY: the buffer has `count` pages, and is not paged.
            let (done, error) =
                unsafe { Engine::install(space, page, source + at * PAGE, run, !write) };
            for n in at..at + done {
                let slot = read.slot + page_of(n);
                let is_kept = is_wanted(page) || read.aim == Aim::Node;
                let flags = if is_kept { 0 } else { AHEAD };
                if read.aim == Aim::Leaf && !is_kept {
                    Engine::arrive_passing(space, read.page + page_of(n), slot);
                } else if write {
                    self.slots.release(slot);
                    Engine::arrive(space, read.page + page_of(n), pages::NONE, DIRTY);
                } else {
                    Engine::arrive(space, read.page + page_of(n), slot, flags);
                }
            }
            match error {
                Some(Errno(libc::EAGAIN)) => return Err(()),
                // The process has ended, or the page's memory is being unmapped. Those behind it may be there.
                Some(_) => {
                    space.pages.set(page + page_of(done), State::Zero, pages::NONE);
                    self.slots.release(read.slot + page_of(at + done));
                    at += done + 1;
                }
                None => at += run,
            }
        }
        Ok(())
    }

    /// Forgets the oldest mark: its stream has ended.
    pub(super) fn drop_mark(&mut self) -> bool {
        let Some((number, mark)) = self.marks.pop_front() else { return false };
        self.stats.ahead_wasted += to_u64(mark.count);
        if let Some(space) = self.spaces.get_mut(&mark.space) {
            space.streams.learn(false);
        }
        let is_mine = |space: &&mut crate::space::Space| {
            space.pages.state(mark.page) == State::Marked && space.pages.place(mark.page) == number
        };
        match self.spaces.get_mut(&mark.space).filter(is_mine) {
            Some(space) => space.pages.set(mark.page, State::Out, mark.slot),
            None => self.slots.release(mark.slot),
        }
        true
    }

    /// The device gave an error: a page that is wanted is lost. Others are read again when they are wanted.
    fn fail_read(&mut self, place: usize, read: &Read, error: &DeviceError) {
        let Some(space) = self.spaces.get_mut(&read.space) else { return };
        for (page, slot) in (read.page..).zip(read.slot..).take(read.count) {
            let is_mine = space.pages.state(page) == State::Reading
                && space.pages.place(page) == page_of(place);
            if !is_mine {
                continue;
            }
            let addr = space.addr(page);
            if read.count > 1 || read.wanted.is_none() {
                space.pages.set(page, State::Out, slot);
                space.uffd.wake(addr, PAGE);
                continue;
            }
            self.slots.release(slot);
            space.pages.set(page, State::Poisoned, pages::NONE);
            self.stats.poisoned_pages += 1;
            let pid = space.pid();
            self.reports.push(format!(
                "process {pid}: the page at {addr:#x} is lost, and touching it is SIGBUS: {error}"
            ));
            if space.uffd.poison(addr, PAGE).is_err() {
                space.uffd.wake(addr, PAGE);
            }
        }
    }
}
