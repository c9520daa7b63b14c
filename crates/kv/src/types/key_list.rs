//! Keys, or prefixes of keys, one after the other in one piece of memory.

use std::ops::Range;

use esker_base::codec::Decoder;

/// A list of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl KeyList {
    /// From a section of a kvset's meta, which was verified: keys with their `u16` sizes.
    pub(crate) fn decode(section: &[u8]) -> KeyList {
        let mut d = Decoder::new(section);
        let mut keys = KeyList::default();
        while d.left() > 0 {
            keys.push(d.bytes16("key").expect("verified with the meta"));
        }
        keys.shrink_to_fit();
        keys
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(u32::try_from(self.bytes.len()).expect("a list of keys below 4 GiB"));
    }

    /// Puts another key in the place of the last one.
    pub(crate) fn replace_last(&mut self, key: &[u8]) {
        self.ends.pop();
        self.bytes.truncate(self.ends.last().map_or(0, |end| *end as usize));
        self.push(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, n: usize) -> &[u8] {
        let start = if n == 0 { 0 } else { self.ends[n - 1] as usize };
        &self.bytes[start..self.ends[n] as usize]
    }

    /// The first of the keys numbered `among`, which ascend, that is not `before`; the end of them when
    /// all are.
    pub(crate) fn partition_point(
        &self,
        among: Range<usize>,
        before: impl Fn(&[u8]) -> bool,
    ) -> usize {
        let Range { start: mut low, end: mut high } = among;
        while low < high {
            let middle = usize::midpoint(low, high);
            if before(self.get(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()) as u64
    }
}
