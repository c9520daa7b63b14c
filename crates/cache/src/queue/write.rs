//! Writes.
//!
//! Each block of a command has a target: the slot that it has, a new slot, the origin, or the
//! origin and then a slot. A dirty block always goes to its slot, in every mode.
//!
//! Invariants
//! 1. Nothing is written to a slot that the medium names, but new content of the dirty block that
//!    it names.
//! 2. Nothing is written to the origin while the medium names a slot for the block.
//! 3. No sample of the origin is armed at a block when the origin is written there.
//! 4. A block is dirty, and pending, before its write is acknowledged.

use std::ops::Range;

use esker_base::AlignedBuf;
use esker_base::policy::Access;
use esker_base::units::{to_u64, to_usize};
use esker_device::{DeviceError, Op, OpKind};

use super::plan::{Plan, Target};
use super::{Io, Pump, Side, What, lost};
use crate::CacheError;
use crate::commit::Wanted;
use crate::counts::add;
use crate::omf::{BLOCK, BLOCK_SIZE, Name};
use crate::options::Mode;
use crate::shared::Shared;

/// Steps that must be settled before the devices are written.
#[derive(Default)]
struct Needs {
    unname: Vec<u32>,
    commit: bool,
    /// Whether the origin is written.
    origin: bool,
}

impl Pump {
    /// Begins a write; `is_around` when the flash device has just refused it.
    pub(super) fn start_write(&mut self, work: usize, is_around: bool) {
        let blocks = self.blocks_of(work);
        let begun = match self.begin_writes(blocks.clone()) {
            Ok(Some(begun)) => begun,
            Ok(None) => return self.parked.push_back(work),
            Err(error) => {
                self.fail(work, error);
                return self.complete(work);
            }
        };
        let mut needs = Needs::default();
        let mut targets = Vec::with_capacity(begun.len());
        for (block, is_begun) in blocks.clone().zip(begun) {
            let target = match is_begun {
                true => self.target(work, block, is_around, &mut needs),
                false => Target::Outside,
            };
            needs.origin |= target.slot().is_none();
            targets.push(target);
        }
        let failed = vec![false; targets.len()];
        let plan = Plan { first: blocks.start, targets, failed, is_second: false };
        self.works[work].write = Some(Box::new(plan));
        if let Err(error) = self.prepare_write(work, &needs) {
            self.fail(work, error);
            self.plan(work).failed.fill(true);
            return self.finish_write(work);
        }
        self.send_writes(work);
        self.go_on(work);
    }

    /// Takes names and samples away that would contradict the origin once it is written.
    fn prepare_write(&self, work: usize, needs: &Needs) -> Result<(), CacheError> {
        let shared = &self.shared;
        if needs.commit
            && let Err(error) = shared.commit(&Wanted::Unnamed(&needs.unname))
            && !shared.may_miss_writes()
        {
            return Err(error);
        }
        match needs.origin {
            true => shared.release_samples(self.bytes(work), false),
            false => Ok(()),
        }
    }

    fn plan(&mut self, work: usize) -> &mut Plan {
        self.works[work].write.as_mut().expect("a write has a plan")
    }

    /// Takes all blocks for writing, or none when another command writes one of them, or, in a mode that makes no
    /// block dirty, one is being written back. Says which of them the cache has to do with.
    fn begin_writes(&mut self, blocks: Range<u64>) -> Result<Option<Vec<bool>>, CacheError> {
        let mut begun: Vec<bool> = Vec::with_capacity(to_usize(blocks.end - blocks.start));
        let mut outcome = Ok(true);
        let is_ending = self.shared.mode() != Mode::WriteBack;
        for block in blocks.clone() {
            if block >= self.shared.blocks {
                begun.push(false);
                continue;
            }
            match self.shared.set_of(block) {
                // Without that, a block written again and again stays dirty whatever the mode.
                Ok(mut set) => {
                    match !(is_ending && set.is_cleaned(block)) && set.begin_write(block) {
                        true => begun.push(true),
                        false => {
                            outcome = Ok(false);
                            break;
                        }
                    }
                }
                // Nothing dirty is in that set; and no name that counts, once it is said.
                Err(_) if self.shared.may_pass_over_unread() => {
                    begun.push(false);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if let Ok(true) = outcome {
            return Ok(Some(begun));
        }
        for (block, _) in blocks.zip(&begun).filter(|(_, begun)| **begun) {
            self.shared.set_of(block).expect("it was read").end_write(block);
        }
        outcome.map(|_| None)
    }

    /// Decides where a block goes.
    fn target(&self, work: usize, block: u64, is_around: bool, needs: &mut Needs) -> Target {
        let part = self.part(work, block);
        let is_whole = part.end - part.start == BLOCK;
        let is_stream = self.works[work].flow.bypasses;
        let shared = &*self.shared;
        let mut set = shared.set_of(block).expect("a set in use was read");
        let number = set.set.index();
        let found = set.set.lookup(block);
        let counter = match found.is_some() {
            true => &self.counts.write_hits,
            false => &self.counts.write_misses,
        };
        add(counter, 1);
        shared.door.see(block, Access::Write);
        if let Some(index) = found
            && set.set.is_dirty(index)
        {
            // A flush may name it while it is written.
            if !shared.tears_blocks() {
                set.pin(index);
                set.rewrite(index);
                return Target::InPlace { slot: shared.slot(number, index), was_clean: false };
            }
            needs.commit |= set.is_in_limbo(block);
            drop(set);
            if !is_around && let Some(slot) = self.allocate_for(block, |_| true) {
                return Target::New { slot };
            }
            // A name that could not be taken away afterwards would hide the origin's new content.
            needs.commit |= shared.is_lost();
            // The cleaner must be done with it before the origin is written.
            drop(shared.gate.lock());
            return Target::Over;
        }
        let is_wanted = found.is_some() || !is_stream && shared.admits();
        let mut mode = match is_whole && is_wanted && !is_around && !shared.is_lost() {
            true => shared.mode(),
            false => Mode::WriteAround,
        };
        let has_room = set.set.held() < set.set.slots();
        if mode == Mode::WriteThrough
            && found.is_none()
            && !(has_room || shared.door.admits(block, || set.set.comes_again(block)))
        {
            mode = Mode::WriteAround;
        }
        if mode == Mode::WriteBack {
            if let Some(index) = found
                && set.may_rewrite(index)
                && !(shared.tears_blocks() && set.is_named(index))
            {
                set.pin(index);
                return Target::InPlace { slot: shared.slot(number, index), was_clean: true };
            }
            drop(set);
            if let Some(slot) = self.allocate_for(block, |_| true) {
                return Target::New { slot };
            }
            set = shared.set_of(block).expect("a set in use was read");
        }
        add(&self.counts.bypassed_writes, u64::from(mode != Mode::WriteThrough));
        // The origin is written: the medium may not name the block by then.
        let found = set.set.lookup(block);
        needs.commit |= set.is_in_limbo(block);
        match (mode, found) {
            (Mode::WriteThrough, Some(index)) => {
                let slot = shared.slot(number, index);
                set.pin(index);
                if set.is_named(index) {
                    needs.commit = true;
                    needs.unname.push(slot);
                }
                Target::Through { slot: Some(slot), is_new: false }
            }
            (Mode::WriteThrough, None) => Target::Through { slot: None, is_new: true },
            (_, Some(index)) => {
                if set.withdraw(index) {
                    needs.commit = true;
                    shared.pending.lock().push(shared.slot(number, index));
                }
                Target::Around
            }
            (_, None) => Target::Around,
        }
    }

    /// Sends the first commands to the devices.
    fn send_writes(&mut self, work: usize) {
        let targets = self.plan(work).targets.clone();
        let limit = to_usize(self.segment_blocks());
        let mut at = 0;
        while at < targets.len() {
            let mut end = at + 1;
            while end < targets.len() && end - at < limit && self.are_neighbours(&targets, at, end)
            {
                end += 1;
            }
            let is_all = at == 0 && end == targets.len();
            match targets[at].slot() {
                Some(slot) => self.send_to_slots(work, at..end, slot, is_all, false),
                None => self.send_to_origin(work, at..end, is_all),
            }
            at = end;
        }
    }

    /// Whether block `next` can go with blocks from `at` on in one command.
    fn are_neighbours(&self, targets: &[Target], at: usize, next: usize) -> bool {
        match (targets[at].slot(), targets[next].slot()) {
            (None, None) => true,
            (Some(slot), Some(other)) => {
                u64::from(other) == u64::from(slot) + to_u64(next - at)
                    && self.shared.is_same_set(slot, other)
            }
            _ => false,
        }
    }

    /// The part of a write that blocks of it are, in bytes from the device's start.
    fn extent(&mut self, work: usize, blocks: &Range<usize>) -> Range<u64> {
        let first = self.plan(work).first;
        let (low, high) = (first + to_u64(blocks.start), first + to_u64(blocks.end) - 1);
        self.part(work, low).start..self.part(work, high).end
    }

    /// The bytes of a part of a write: the host's buffer itself when it is all of it.
    fn bytes_of(&mut self, work: usize, part: &Range<u64>, is_all: bool) -> AlignedBuf {
        let work = &mut self.works[work];
        if is_all {
            return work.buf.take().expect("the host's buffer");
        }
        let at = to_usize(part.start - work.offset);
        let size = to_usize(part.end - part.start);
        let host = work.buf.as_ref().expect("the host's buffer");
        AlignedBuf::padded(&host[at..at + size], 1)
    }

    fn send_to_slots(
        &mut self,
        work: usize,
        blocks: Range<usize>,
        slot: u32,
        is_all: bool,
        is_second: bool,
    ) {
        let part = self.extent(work, &blocks);
        let first = blocks.start;
        let count = blocks.len();
        let start = (self.plan(work).first + to_u64(first)) * BLOCK;
        let lba_size = u64::from(self.shared.flash_geometry.lba_size);
        let is_aligned = part.start.is_multiple_of(lba_size) && part.end.is_multiple_of(lba_size);
        let (from, is_direct, buf) = match is_aligned {
            true => (part.start, is_all, self.bytes_of(work, &part, is_all)),
            false => match self.merged(work, &part, start, slot, count) {
                Ok(buf) => (start, false, buf),
                Err(error) => {
                    self.fail(work, error);
                    self.plan(work).failed[blocks].fill(true);
                    return;
                }
            },
        };
        let lba = self.shared.flash_lba(slot, from - start);
        let placement = self.shared.data_placement();
        let what = match is_second {
            true => What::Through { first, count },
            false => What::ToFlash { first, count },
        };
        self.shared.spend(to_u64(buf.len()));
        self.works[work].outstanding += 1;
        let io = Io { work, at: 0, size: part.end - part.start, is_direct, what };
        self.send(Side::Flash, io, Op::Write { lba, buf, placement, fua: false });
    }

    /// The content of slots, with a part of it replaced: for a flash device with larger LBAs than
    /// the origin's.
    fn merged(
        &mut self,
        work: usize,
        part: &Range<u64>,
        start: u64,
        slot: u32,
        count: usize,
    ) -> Result<AlignedBuf, CacheError> {
        let offset = self.shared.layout.slot(slot);
        let old = self.shared.store.lock().medium.read(offset, count * BLOCK_SIZE)?;
        let mut buf = AlignedBuf::padded(&old, BLOCK_SIZE);
        let new = self.bytes_of(work, part, false);
        let at = to_usize(part.start - start);
        buf[at..at + new.len()].copy_from_slice(&new);
        Ok(buf)
    }

    fn send_to_origin(&mut self, work: usize, blocks: Range<usize>, is_all: bool) {
        let part = self.extent(work, &blocks);
        let buf = self.bytes_of(work, &part, is_all);
        let lba = self.shared.origin_lba(part.start);
        let (placement, fua) = (self.works[work].placement, self.works[work].fua);
        self.works[work].outstanding += 1;
        let size = part.end - part.start;
        let io = Io { work, at: 0, size, is_direct: is_all, what: What::ToOrigin };
        self.send(Side::Origin, io, Op::Write { lba, buf, placement, fua });
    }

    pub(super) fn finish_write_io(
        &mut self,
        io: Io,
        result: Result<(), DeviceError>,
        buf: Option<AlignedBuf>,
    ) {
        let work = io.work;
        if io.is_direct {
            self.works[work].buf = buf;
        }
        match io.what {
            What::ToFlash { first, count } | What::Through { first, count } => {
                if let Err(error) = result {
                    let plan = self.works[work].write.as_mut().expect("a write has a plan");
                    plan.failed[first..first + count].fill(true);
                    let mut is_dirty = false;
                    for target in &plan.targets[first..first + count] {
                        match *target {
                            Target::InPlace { was_clean: false, .. } => is_dirty = true,
                            Target::InPlace { slot, .. }
                            | Target::New { slot }
                            | Target::Through { slot: Some(slot), .. } => {
                                self.shared.set_of_slot(slot).set_aside(self.shared.index(slot));
                            }
                            _ => {}
                        }
                    }
                    if is_dirty {
                        let (lba, size) = (self.works[work].lba, self.works[work].size);
                        let error = match self.shared.is_lost() {
                            true => lost(&self.shared, lba, size, OpKind::Write),
                            false => error,
                        };
                        self.works[work].error.get_or_insert(error);
                    }
                }
            }
            _ => {
                self.shared.host_wrote_origin();
                if let Err(error) = result {
                    self.shared.watch.distrust(&self.bytes(work));
                    self.works[work].error.get_or_insert(error);
                }
            }
        }
        self.works[work].outstanding -= 1;
        self.go_on(work);
    }

    /// Goes on when the devices have completed their commands.
    fn go_on(&mut self, work: usize) {
        if self.works[work].outstanding > 0 {
            return;
        }
        let is_good = self.works[work].error.is_none();
        let plan = self.plan(work);
        if is_good && !plan.is_second {
            plan.is_second = true;
            if plan.targets.iter().any(|target| matches!(target, Target::Through { .. })) {
                self.send_through(work);
                if self.works[work].outstanding > 0 {
                    return;
                }
            }
        }
        self.finish_write(work);
    }

    /// The origin has it: now the slots get it, unless someone has changed the origin meanwhile.
    fn send_through(&mut self, work: usize) {
        let first = self.plan(work).first;
        let mut targets = self.plan(work).targets.clone();
        for (block, target) in (first..).zip(&mut targets) {
            let Target::Through { slot, is_new } = target else { continue };
            let is_wanted = !self.shared.is_in_range(block);
            if *is_new {
                if is_wanted {
                    *slot = self.allocate_for(block, |set| {
                        !set.is_write_cancelled(block) && set.set.lookup(block).is_none()
                    });
                }
            } else if !is_wanted {
                let at = to_usize(block - first);
                self.plan(work).failed[at] = true;
            }
        }
        self.plan(work).targets.clone_from(&targets);
        let slot_of = |at: usize| match targets[at] {
            Target::Through { slot, .. } => slot,
            _ => None,
        };
        let limit = to_usize(self.segment_blocks());
        let mut at = 0;
        while at < targets.len() {
            let Some(slot) = slot_of(at).filter(|_| !self.plan(work).failed[at]) else {
                at += 1;
                continue;
            };
            let mut end = at + 1;
            while end < targets.len()
                && end - at < limit
                && !self.plan(work).failed[end]
                && slot_of(end).is_some_and(|other| {
                    u64::from(other) == u64::from(slot) + to_u64(end - at)
                        && self.shared.is_same_set(slot, other)
                })
            {
                end += 1;
            }
            let is_all = at == 0 && end == targets.len();
            self.send_to_slots(work, at..end, slot, is_all, true);
            at = end;
        }
    }

    /// Puts everything in its place, and completes the command; or begins anew, around the flash
    /// device, when that has refused.
    fn finish_write(&mut self, work: usize) {
        let plan = self.works[work].write.take().expect("a write has a plan");
        let is_good = self.works[work].error.is_none();
        let mut is_refused = false;
        // Whether names on the flash device must be durable before the command counts as durable.
        let mut is_on_flash = false;
        for ((block, target), failed) in (plan.first..).zip(&plan.targets).zip(&plan.failed) {
            if *target == Target::Outside {
                continue;
            }
            let slots = matches!(target, Target::InPlace { .. } | Target::New { .. });
            is_on_flash |= slots && !failed || *target == Target::Over;
            is_refused |= slots && *failed && is_good;
            settle(&self.shared, block, *target, *failed, is_good);
        }
        if is_refused {
            return self.start_write(work, true);
        }
        if is_good
            && is_on_flash
            && self.works[work].fua
            && let Err(error) = self.shared.sync_flash()
        {
            self.fail(work, error);
        }
        self.complete(work);
    }
}

/// Puts a block in its place.
fn settle(shared: &Shared, block: u64, target: Target, failed: bool, is_good: bool) {
    let mut set = shared.set_of(block).expect("a set in use was read");
    let number = set.set.index();
    let pend = |index: u32| shared.pending.lock().push(shared.slot(number, index));
    let is_cancelled = set.is_write_cancelled(block) || shared.is_in_range(block);
    match target {
        Target::InPlace { slot, was_clean } => {
            let index = shared.index(slot);
            let is_its_slot = set.set.block(index) == Some(block);
            if is_its_slot && failed && was_clean {
                if set.withdraw(index) {
                    pend(index);
                }
            } else if is_its_slot && !failed {
                set.set.hit(index, Access::Write);
                set.set.set_dirty(index, true);
                Shared::raise(&shared.flash_unflushed);
                if was_clean && !matches!(set.durable(index), Name::Dirty(_)) {
                    pend(index);
                }
            }
            set.unpin(index);
        }
        Target::New { slot } => {
            let index = shared.index(slot);
            if failed {
                set.release(index);
            } else {
                let old = set.set.lookup(block).filter(|old| set.withdraw(*old));
                set.set.place(index, block, Access::Write);
                set.set.set_dirty(index, true);
                Shared::raise(&shared.flash_unflushed);
                // Both at once: a commit that took the old name alone would leave it without one.
                let moved = old.into_iter().chain([index]).map(|index| shared.slot(number, index));
                shared.pending.lock().extend(moved);
            }
        }
        Target::Through { slot: Some(slot), is_new: true } => {
            let index = shared.index(slot);
            let is_free = set.set.lookup(block).is_none();
            if is_good && !failed && !is_cancelled && is_free {
                set.set.place(index, block, Access::Write);
            } else {
                set.release(index);
            }
        }
        Target::Through { slot: Some(slot), is_new: false } => {
            let index = shared.index(slot);
            if set.set.block(index) == Some(block) {
                if is_good && !failed && !is_cancelled {
                    set.set.hit(index, Access::Write);
                } else if set.withdraw(index) {
                    pend(index);
                }
            }
            set.unpin(index);
        }
        Target::Over => {
            if is_good
                && let Some(index) = set.set.lookup(block)
                && set.withdraw(index)
            {
                pend(index);
            }
        }
        Target::Through { slot: None, .. } | Target::Around | Target::Outside => {}
    }
    set.end_write(block);
}
