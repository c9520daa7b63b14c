//! A bit for every slot of a set.

/// Bits by slot, with their count.
#[derive(Debug)]
pub(crate) struct Bits {
    /// Empty while no bit is set, if `is_rare`.
    words: Box<[u64]>,
    set: u32,
    slots: u32,
    is_rare: bool,
}

impl Bits {
    pub(crate) fn new(slots: u32) -> Bits {
        Bits { words: Bits::clear(slots), set: 0, slots, is_rare: false }
    }

    /// Bits that need no memory while none is set, as is usual.
    pub(crate) fn rare(slots: u32) -> Bits {
        Bits { words: Box::default(), set: 0, slots, is_rare: true }
    }

    fn clear(slots: u32) -> Box<[u64]> {
        vec![0; slots.div_ceil(64) as usize].into_boxed_slice()
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> bool {
        let word = match self.is_rare {
            true => self.words.get(slot as usize / 64).copied().unwrap_or(0),
            false => self.words[slot as usize / 64],
        };
        word >> (slot % 64) & 1 == 1
    }

    /// Sets or clears the bit, and says whether that changed it.
    #[inline]
    pub(crate) fn put(&mut self, slot: u32, on: bool) -> bool {
        if self.is_rare && self.set == 0 {
            if !on {
                return false;
            }
            self.words = Bits::clear(self.slots);
        }
        let word = &mut self.words[slot as usize / 64];
        let bit = 1 << (slot % 64);
        let was = *word & bit != 0;
        if was == on {
            return false;
        }
        *word ^= bit;
        if on {
            self.set += 1;
        } else {
            self.set -= 1;
            if self.is_rare && self.set == 0 {
                self.words = Box::default();
            }
        }
        true
    }

    pub(crate) fn count(&self) -> u32 {
        self.set
    }

    /// The first slot whose bit is clear, from `from` on and then from 0.
    pub(crate) fn first_clear(&self, from: u32) -> Option<u32> {
        debug_assert!(!self.is_rare, "rare bits are mostly clear");
        if self.set == self.slots {
            return None;
        }
        let count = self.words.len();
        let start = from as usize / 64;
        (0..=count).find_map(|step| {
            let index = (start + step) % count;
            let mut word = !self.words[index];
            if step == 0 {
                word &= u64::MAX << (from % 64);
            }
            let slot = u32::try_from(index).ok()? * 64 + word.trailing_zeros();
            (word != 0 && slot < self.slots).then_some(slot)
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clear_bit_is_found_from_anywhere() {
        let mut bits = Bits::new(100);
        (0..100).for_each(|slot| assert!(bits.put(slot, true)));
        assert_eq!((bits.count(), bits.first_clear(5)), (100, None));
        for slot in [0, 63, 64, 99] {
            assert!(bits.put(slot, false) && !bits.put(slot, false) && !bits.get(slot));
            (0..100).for_each(|from| assert_eq!(bits.first_clear(from), Some(slot)));
            bits.put(slot, true);
        }
    }

    #[test]
    fn rare_bits_need_memory_only_while_one_is_set() {
        let mut bits = Bits::rare(100);
        assert!(!bits.get(99) && !bits.put(99, false));
        assert!(bits.put(99, true) && bits.put(1, true) && bits.get(99) && !bits.get(2));
        assert!(bits.put(99, false) && bits.get(1) && bits.heap_bytes() > 0);
        assert!(bits.put(1, false) && !bits.get(1));
        assert_eq!((bits.heap_bytes(), bits.count()), (0, 0));
    }
}
