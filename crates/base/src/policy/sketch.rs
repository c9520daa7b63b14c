//! How often keys were seen lately: a count-min sketch of four-bit counters that are halved
//! after every ten references per slot (TinyLFU: Einziger, Friedman and Manes, 2017).

use super::hash;

const ROWS: u64 = 4;
const MOST: u64 = 15;

/// Counters for the keys of a cache.
#[derive(Debug)]
pub struct Sketch {
    /// Sixteen counters a word.
    words: Box<[u64]>,
    seen: u32,
    period: u32,
}

impl Sketch {
    /// For a cache of `capacity` slots: eight bytes a slot.
    #[must_use]
    pub fn new(capacity: u32) -> Sketch {
        let words = (capacity as usize).max(8).next_power_of_two();
        Sketch {
            words: vec![0; words].into_boxed_slice(),
            seen: 0,
            period: capacity.saturating_mul(10).max(10),
        }
    }

    /// The word and the shift of the counter of `row`.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // masked to an index
    fn place(&self, hashed: u64, row: u64) -> (usize, u64) {
        let mixed = hash(hashed.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        ((mixed >> 8) as usize & (self.words.len() - 1), (mixed & 15) * 4)
    }

    /// `key` was seen.
    #[inline]
    pub fn add(&mut self, key: u64) {
        let mut added = false;
        for row in 0..ROWS {
            let (word, shift) = self.place(key, row);
            if self.words[word] >> shift & MOST < MOST {
                self.words[word] += 1 << shift;
                added = true;
            }
        }
        if added {
            self.seen += 1;
            if self.seen >= self.period {
                self.halve();
            }
        }
    }

    fn halve(&mut self) {
        let mut odd = 0;
        for word in &mut self.words {
            odd += (*word & 0x1111_1111_1111_1111).count_ones();
            *word = *word >> 1 & 0x7777_7777_7777_7777;
        }
        self.seen = (self.seen - odd / 4) / 2;
    }

    /// How often `key` was seen, 0 to 15.
    #[inline]
    #[must_use]
    pub fn count(&self, key: u64) -> u64 {
        let counts = (0..ROWS).map(|row| {
            let (word, shift) = self.place(key, row);
            self.words[word] >> shift & MOST
        });
        counts.min().unwrap_or(0)
    }

    /// Returns the memory on the heap, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_never_below_the_truth_until_they_are_halved() {
        let mut sketch = Sketch::new(1_000);
        for key in 0..500u64 {
            (0..key % 12).for_each(|_| sketch.add(key));
        }
        assert!((0..500).all(|key| sketch.count(key) >= key % 12));
        let exact = (0..500).filter(|&key| sketch.count(key) == key % 12).count();
        assert!(exact > 450, "{exact}");
        (0..8_000).for_each(|key| sketch.add(1_000 + key));
        assert!((0..500).filter(|&key| sketch.count(key) <= key % 12 / 2 + 2).count() > 400);
    }
}
