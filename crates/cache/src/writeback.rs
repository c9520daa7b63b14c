//! When dirty blocks are written back, and which neighbours go with them.
//!
//! Called by the cache device, which does the I/O, and by the simulator, which counts it; there
//! is no I/O here. Dirty and clean blocks stand in one order. The rule keeps the cold end of that
//! order clean enough that a victim is found without waiting, and nothing more: a block that is
//! written again and again stays dirty for as long as it stays warm, and costs the disk one write.
//! (The first Flashcache kept a fixed share of every set clean instead.)
//!
//! A block that is written back takes along its dirty neighbours of the origin, for they cost the
//! disk no movement. It may bridge small gaps of cached clean blocks, which come from the flash.
//!
//! Invariants:
//! 1. An extent contains the block it was asked for, begins and ends with dirty blocks, and has
//!    cached blocks only.
//! 2. An extent does not leave the run of its block: all of it is in one set.

use std::ops::Range;

use crate::sets::Set;

/// State of a block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The only copy.
    Dirty,
    /// A copy that the origin has too.
    Clean,
    /// Nothing, or nothing that can be written now (it is busy).
    Absent,
}

/// The rule of writing back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// So many of the coldest slots of a set are to be clean, in thousandths of its slots.
    pub cold_permille: u32,
    /// So many slots of a set may be dirty, in thousandths; beyond it the coldest dirty ones go.
    pub dirty_permille: u32,
    /// A gap of so many clean blocks between dirty ones is written too, to save an operation.
    pub bridge_blocks: u32,
    /// The longest extent, in blocks.
    pub extent_blocks: u32,
}

/// How full a set is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    pub(crate) slots: u32,
    pub(crate) held: u32,
    pub(crate) dirty: u32,
}

fn share(slots: u32, permille: u32) -> u32 {
    u32::try_from(u64::from(slots) * u64::from(permille) / 1_000).unwrap_or(u32::MAX)
}

impl Default for WriteBack {
    fn default() -> WriteBack {
        WriteBack { cold_permille: 30, dirty_permille: 900, bridge_blocks: 0, extent_blocks: 64 }
    }
}

impl WriteBack {
    /// The extent to write back when `block`, which is dirty, has to be: a range of blocks. It
    /// stays inside the run of `run_blocks` blocks that `block` is in.
    pub fn extent(
        &self,
        block: u64,
        run_blocks: u32,
        content: impl Fn(u64) -> Content,
    ) -> Range<u64> {
        let run = u64::from(run_blocks.max(1));
        let (first, end) = (block / run * run, (block / run).saturating_add(1).saturating_mul(run));
        let longest = u64::from(self.extent_blocks.max(1));
        let (mut low, mut high) = (block, block + 1);
        // Upwards first: blocks written in order are written back in order.
        let mut next = high;
        while next < end && next - low < longest {
            match content(next) {
                Content::Dirty => high = next + 1,
                Content::Clean if next - high < u64::from(self.bridge_blocks) => {}
                _ => break,
            }
            next += 1;
        }
        let mut next = low;
        while next > first && high - (next - 1) <= longest {
            next -= 1;
            match content(next) {
                Content::Dirty => low = next,
                Content::Clean if low - next <= u64::from(self.bridge_blocks) => {}
                _ => break,
            }
        }
        low..high
    }

    /// The slots of `set` that are to be written back, the coldest first. Busy ones are passed over.
    #[must_use]
    pub fn due(&self, set: &Set) -> Vec<u32> {
        let filling = Filling { slots: set.slots(), held: set.held(), dirty: set.dirty_count() };
        let may_go = |slot| set.is_dirty(slot) && !set.is_busy(slot);
        self.due_of(filling, |visit| set.coldest(visit), may_go)
    }

    /// The same of a set that is told by its `filling`, by how its slots are named from the coldest
    /// on, and by which of them can be written back.
    pub(crate) fn due_of(
        &self,
        filling: Filling,
        coldest: impl FnOnce(&mut dyn FnMut(u32) -> bool),
        may_go: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let Filling { slots, held, dirty } = filling;
        let mut due = Vec::new();
        // A set that is not full yet evicts nothing: its free slots count as cold and clean.
        let cold = self.cold_slots(slots).saturating_sub(slots - held);
        let excess = dirty.saturating_sub(self.most_dirty(slots)) as usize;
        if dirty == 0 || (cold == 0 && excess == 0) {
            return due;
        }
        let mut seen = 0;
        coldest(&mut |slot| {
            seen += 1;
            if may_go(slot) {
                due.push(slot);
            }
            seen < cold || due.len() < excess
        });
        due
    }

    /// How many slots of `slots` may be dirty.
    pub(crate) fn most_dirty(&self, slots: u32) -> u32 {
        share(slots, self.dirty_permille)
    }

    /// How many of the coldest of `slots` slots are to be clean.
    pub(crate) fn cold_slots(&self, slots: u32) -> u32 {
        share(slots, self.cold_permille).max(u32::from(self.cold_permille > 0))
    }

    /// The coldest dirty slot of `set` that is not busy, however warm it is. It is the one to write back when the disk
    /// is idle, or everything has to be clean.
    #[must_use]
    pub fn coldest_dirty(&self, set: &Set) -> Option<u32> {
        let mut found = None;
        set.coldest(&mut |slot| {
            if set.is_dirty(slot) && !set.is_busy(slot) {
                found = Some(slot);
            }
            found.is_none()
        });
        found
    }

    /// The extent around `block` as [`WriteBack::extent`] says, from the blocks in `set`.
    #[must_use]
    pub fn extent_in(&self, set: &Set, block: u64) -> Range<u64> {
        self.extent(block, set.run_blocks(), |block| match set.lookup(block) {
            Some(slot) if set.is_busy(slot) => Content::Absent,
            Some(slot) if set.is_dirty(slot) => Content::Dirty,
            Some(_) => Content::Clean,
            None => Content::Absent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::Evict;
    use crate::{Geometry, Sets};
    use esker_base::policy::{Access, Kind};

    fn content(text: &str) -> impl Fn(u64) -> Content + '_ {
        move |block| match text.as_bytes().get(usize::try_from(block).unwrap_or(usize::MAX)) {
            Some(b'd') => Content::Dirty,
            Some(b'c') => Content::Clean,
            _ => Content::Absent,
        }
    }

    #[test]
    fn an_extent_takes_dirty_neighbours_and_bridges_small_gaps_inside_its_run() {
        let rule = WriteBack { bridge_blocks: 2, extent_blocks: 8, ..WriteBack::default() };
        for (text, block, expected) in [
            ("d", 0, 0..1),
            (".ddd.", 2, 1..4),
            ("dccd", 3, 0..4),
            ("dcccd", 4, 4..5),
            ("d.d", 2, 2..3),
            ("cdc", 1, 1..2),
            ("dddddddddddddddd", 8, 8..16),
            ("....ddddcddddddd", 5, 5..13),
            ("ddddddddddddddddd", 15, 8..16),
        ] {
            assert_eq!(rule.extent(block, 16, content(text)), expected, "{text} {block}");
        }
        assert_eq!(rule.extent(4, 4, content("dddddddd")), 4..8);
    }

    #[test]
    fn the_cold_end_is_cleaned_and_the_warm_end_is_not() {
        let geometry = Geometry { set_slots: u32::MAX, ..Geometry::new(100, 1_000) };
        let mut sets = Sets::new(geometry, Kind::Lru).unwrap();
        let set = sets.set_mut(0);
        let rule = WriteBack { cold_permille: 100, dirty_permille: 950, ..WriteBack::default() };
        for block in 0..100 {
            let slot = set.insert(block * 2, Access::Write, Evict::Any).unwrap().slot;
            assert!(rule.due(set).is_empty(), "free slots are clean");
            if block >= 8 {
                set.set_dirty(slot, true);
            }
            if block >= 90 {
                break;
            }
        }
        for block in 91..100 {
            set.insert(block * 2, Access::Write, Evict::Any).unwrap();
        }
        let slot = rule.due(set)[0];
        assert_eq!(set.block(slot), Some(16), "the ninth coldest");
        assert_eq!(rule.extent_in(set, 16), 16..17);
        set.set_busy(slot, true);
        assert_eq!(set.block(rule.due(set)[0]), Some(18));
        set.set_dirty(slot, false);
        let next = rule.due(set)[0];
        set.set_dirty(next, false);
        assert!(rule.due(set).is_empty());
        let coldest = rule.coldest_dirty(set).unwrap();
        assert_eq!(set.block(coldest), Some(20));
        let strict = WriteBack { dirty_permille: 500, ..rule };
        let due = strict.due(set);
        assert_eq!((due[0], due.len()), (coldest, set.dirty_count() as usize - 50));
    }
}
