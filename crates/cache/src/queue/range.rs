//! Discards and writes of zeroes: they reach the origin, and the cache forgets the blocks.
//!
//! Invariants
//! 1. A clean name is gone before the origin is changed.
//! 2. A dirty block is forgotten only after the origin has done it, and its name goes only after
//!    that is durable: until then a crash brings back the last content, never an older one.
//! 3. No sample of the origin is armed at a block of the range when the origin is changed.
//! 4. Nothing that was read from or written to the origin while it was changed is cached.

use esker_base::units::to_usize;
use esker_base::{Lba, LbaCount};
use esker_device::{Op, OpKind};

use super::plan::Range;
use super::{Io, Pump, Side, What, lost};
use crate::CacheError;
use crate::commit::Wanted;
use crate::omf::{BLOCK, BLOCK_SIZE};
use crate::shared::{SetGuard, Shared};

impl Pump {
    pub(super) fn start_range(&mut self, work: usize) {
        let (offset, end) = (self.works[work].offset, self.works[work].end());
        let limit = self.shared.blocks;
        let first_whole = offset.div_ceil(BLOCK);
        let end_whole = (end / BLOCK).max(first_whole);
        let low = (!offset.is_multiple_of(BLOCK)).then_some(offset / BLOCK);
        let high =
            (!end.is_multiple_of(BLOCK)).then_some(end / BLOCK).filter(|block| Some(*block) != low);
        let mut edges = [low, high].map(|edge| edge.filter(|block| *block < limit));
        for n in 0..2 {
            let Some(block) = edges[n] else { continue };
            let begun = match self.shared.set_of(block) {
                Ok(mut set) => Ok(set.begin_write(block)),
                Err(_) if self.shared.may_pass_over_unread() => {
                    edges[n] = None;
                    continue;
                }
                Err(error) => Err(error),
            };
            if let Ok(true) = begun {
                continue;
            }
            edges[n..].fill(None);
            self.end_edges(edges);
            match begun {
                Ok(_) => self.parked.push_back(work),
                Err(error) => {
                    self.fail(work, error);
                    self.complete(work);
                }
            }
            return;
        }
        let (first, end) = (first_whole.min(limit), end_whole.min(limit));
        let id = self.shared.begin_range(first, end);
        let range = Range { id, first, end, edges };
        self.works[work].range = Some(range);
        if let Err(error) = self.prepare(work, range) {
            self.fail(work, error);
            return self.finish_range(work);
        }
        let Work { lba, count, kind } = self.range_command(work);
        let op = match kind {
            OpKind::Discard => Op::Discard { lba, count },
            _ => Op::WriteZeroes { lba, count },
        };
        let io = Io { work, at: 0, size: 0, is_direct: false, what: What::Range };
        self.send(Side::Origin, io, op);
    }

    fn range_command(&self, work: usize) -> Work {
        let work = &self.works[work];
        let lba_size = u64::from(self.geometry.lba_size);
        Work { lba: work.lba, count: LbaCount(work.size / lba_size), kind: work.kind }
    }

    fn end_edges(&self, edges: [Option<u64>; 2]) {
        for block in edges.into_iter().flatten() {
            self.shared.set_of(block).expect("a set in use was read").end_write(block);
        }
    }

    /// Removes names and samples that would contradict the origin once it is changed.
    fn prepare(&mut self, work: usize, range: Range) -> Result<(), CacheError> {
        let shared = self.shared.clone();
        let mut needs_commit = false;
        let mut has_dirty = false;
        shared.sweep(range.first, range.end, |set, block, index| {
            set.cancel(block);
            needs_commit |= set.is_in_limbo(block);
            let Some(index) = index else { return };
            if set.set.is_dirty(index) {
                has_dirty = true;
            } else if set.withdraw(index) {
                needs_commit = true;
                shared.pending.lock().push(shared.slot(set.set.index(), index));
            }
        })?;
        if has_dirty && shared.is_lost() {
            let (lba, size, kind) = {
                let work = &self.works[work];
                (work.lba, work.size, work.kind)
            };
            return Err(lost(&shared, lba, size, kind).into());
        }
        for block in range.edges.into_iter().flatten() {
            needs_commit |= self.prepare_edge(work, block)?;
        }
        if needs_commit
            && let Err(error) = shared.commit(&Wanted::Nothing)
            && !shared.may_miss_writes()
        {
            return Err(error);
        }
        shared.release_samples(self.bytes(work), self.works[work].kind == OpKind::Discard)
    }

    /// A block that is zeroed in part: a dirty one gets the zeroes in its slot, a clean one is
    /// forgotten. Whether the medium names it.
    fn prepare_edge(&mut self, work: usize, block: u64) -> Result<bool, CacheError> {
        let shared = self.shared.clone();
        let part = self.part(work, block);
        let mut set = shared.set_of(block)?;
        let Some(index) = set.set.lookup(block) else { return Ok(set.is_in_limbo(block)) };
        let slot = shared.slot(set.set.index(), index);
        if !set.set.is_dirty(index) {
            let is_named = set.withdraw(index);
            if is_named {
                shared.pending.lock().push(slot);
            }
            return Ok(is_named || set.is_in_limbo(block));
        }
        // An older slot of it may still be named clean.
        let is_named = set.is_in_limbo(block);
        set.pin(index);
        set.rewrite(index);
        drop(set);
        let mut store = shared.store.lock();
        let offset = shared.layout.slot(slot);
        let written = store.medium.read(offset, BLOCK_SIZE).and_then(|mut bytes| {
            let (from, to) = (part.start - block * BLOCK, part.end - block * BLOCK);
            bytes[to_usize(from)..to_usize(to)].fill(0);
            store.medium.write_data(offset, &bytes, shared.data_placement())
        });
        drop(store);
        Shared::raise(&shared.flash_unflushed);
        shared.set_of_slot(slot).unpin(index);
        Ok(written.map(|()| is_named)?)
    }

    pub(super) fn finish_range(&mut self, work: usize) {
        let range = self.works[work].range.take().expect("a range");
        let shared = self.shared.clone();
        // A failed command may have been done in part.
        shared.host_wrote_origin();
        if self.works[work].error.is_some() {
            shared.watch.distrust(&self.bytes(work));
        } else {
            let swept = shared.sweep(range.first, range.end, |set, block, index| {
                set.cancel(block);
                if let Some(index) = index
                    && set.withdraw(index)
                {
                    shared.pending.lock().push(shared.slot(set.set.index(), index));
                }
            });
            if let Err(error) = swept {
                self.fail(work, error);
            }
        }
        shared.end_range(range.id);
        self.end_edges(range.edges);
        self.complete(work);
    }
}

struct Work {
    lba: Lba,
    count: LbaCount,
    kind: OpKind,
}

impl Shared {
    /// Calls `each` for every block from `first` to `end` that the cache knows in any way, with its
    /// slot's index if it is placed. Blocks of which nothing is known may come, too.
    fn sweep(
        &self,
        first: u64,
        end: u64,
        mut each: impl FnMut(&mut SetGuard<'_>, u64, Option<u32>),
    ) -> Result<(), CacheError> {
        if end - first <= self.slots() {
            for block in first..end {
                match self.set_of(block) {
                    Ok(mut set) => {
                        let index = set.set.lookup(block);
                        each(&mut set, block, index);
                    }
                    Err(_) if self.may_pass_over_unread() => {}
                    Err(error) => return Err(error),
                }
            }
            return Ok(());
        }
        for number in 0..self.layout.sets {
            let mut set = match self.set(number) {
                Ok(set) => set,
                Err(_) if self.may_pass_over_unread() => continue,
                Err(error) => return Err(error),
            };
            for block in set.known_blocks() {
                if (first..end).contains(&block) {
                    let index = set.set.lookup(block);
                    each(&mut set, block, index);
                }
            }
        }
        Ok(())
    }
}
