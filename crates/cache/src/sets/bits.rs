//! A bit for every slot of a set.

/// Bits by slot, with their count.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Box<[u64]>,
    set: u32,
}

impl Bits {
    pub(crate) fn new(slots: u32) -> Bits {
        Bits { words: vec![0; slots.div_ceil(64) as usize].into_boxed_slice(), set: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> bool {
        self.words[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    /// Sets or clears the bit, and says whether that changed it.
    #[inline]
    pub(crate) fn put(&mut self, slot: u32, on: bool) -> bool {
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
        }
        true
    }

    pub(crate) fn count(&self) -> u32 {
        self.set
    }

    /// The first slot below `slots` whose bit is clear, from `from` on and then from 0.
    pub(crate) fn first_clear(&self, slots: u32, from: u32) -> Option<u32> {
        if self.set == slots {
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
            (word != 0 && slot < slots).then_some(slot)
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
        assert_eq!((bits.count(), bits.first_clear(100, 5)), (100, None));
        for slot in [0, 63, 64, 99] {
            assert!(bits.put(slot, false) && !bits.put(slot, false) && !bits.get(slot));
            (0..100).for_each(|from| assert_eq!(bits.first_clear(100, from), Some(slot)));
            bits.put(slot, true);
        }
    }
}
