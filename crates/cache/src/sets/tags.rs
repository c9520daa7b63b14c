//! Which block each slot of a set holds, as the tag that tells it from others of the set.
//!
//! Called by [`super::Set`] and [`super::table`]. Three bytes a slot where the mapping has fewer
//! than 2^24 tags, which it has unless the origin is thousands of times as large as the cache;
//! four bytes else.

use crate::mapping::{Mapping, NO_TAG};

/// The narrow form of [`NO_TAG`], and the end of the tags that fit three bytes.
const NARROW_END: u32 = (1 << 24) - 1;

/// A tag for every slot, or none.
#[derive(Debug)]
pub(crate) enum Tags {
    Narrow(Box<[[u8; 3]]>),
    Wide(Box<[u32]>),
}

impl Tags {
    /// No tags for `slots` slots of a set of `mapping`.
    pub(crate) fn new(slots: u32, mapping: &Mapping) -> Tags {
        let slots = slots as usize;
        match mapping.tags() <= u64::from(NARROW_END) {
            true => Tags::Narrow(vec![[0xff; 3]; slots].into_boxed_slice()),
            false => Tags::Wide(vec![NO_TAG; slots].into_boxed_slice()),
        }
    }

    /// The tag of `slot`, [`NO_TAG`] for none.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> u32 {
        match self {
            Tags::Narrow(tags) => {
                let [a, b, c] = tags[slot as usize];
                let tag = u32::from_le_bytes([a, b, c, 0]);
                if tag == NARROW_END { NO_TAG } else { tag }
            }
            Tags::Wide(tags) => tags[slot as usize],
        }
    }

    /// Gives `slot` another tag, or [`NO_TAG`].
    #[inline]
    pub(crate) fn put(&mut self, slot: u32, tag: u32) {
        match self {
            Tags::Narrow(tags) => {
                debug_assert!(tag < NARROW_END || tag == NO_TAG, "{tag} needs four bytes");
                let [a, b, c, _] = tag.to_le_bytes();
                tags[slot as usize] = [a, b, c];
            }
            Tags::Wide(tags) => tags[slot as usize] = tag,
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Tags::Narrow(tags) => size_of_val(&**tags),
            Tags::Wide(tags) => size_of_val(&**tags),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Placement;

    #[test]
    fn the_largest_tag_and_none_are_told_apart_in_either_width() {
        // Linear, one block a run: as many tags as blocks of the origin for each set.
        for (blocks, is_narrow) in
            [(NARROW_END, true), (NARROW_END + 1, false), (NO_TAG - 1, false), (7, true)]
        {
            let mapping = Mapping::new(Placement::Linear, blocks.into(), 1, 1, 0).unwrap();
            let mut tags = Tags::new(5, &mapping);
            assert_eq!(matches!(tags, Tags::Narrow(_)), is_narrow, "{blocks}");
            assert!((0..5).all(|slot| tags.get(slot) == NO_TAG));
            let (_, largest) = mapping.place(u64::from(blocks) - 1);
            tags.put(3, largest);
            tags.put(2, 0);
            let found: Vec<u32> = (0..5).map(|slot| tags.get(slot)).collect();
            assert_eq!(found, [NO_TAG, NO_TAG, 0, largest, NO_TAG]);
            tags.put(3, NO_TAG);
            assert_eq!(tags.get(3), NO_TAG);
        }
    }
}
