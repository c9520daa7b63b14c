//! Doubly linked lists over the slots of a cache, without an allocation per element.
//!
//! Called by the policies. A slot is on at most one of `K` lists; its node holds both links, the
//! number of its list and six bits for the policy: four bytes a slot in sets of up to 4,096
//! slots, eight beyond.
//!
//! Invariants:
//! 1. A node says on which list its slot is, or on none.
//! 2. The link before a head and the link behind a tail mean nothing: ends are known by the
//!    list, so a reference to a slot at an end touches no other list.

use super::Slots;

/// Links, list number and bits of a slot, packed.
pub trait Node: Copy + Send + 'static {
    /// How many slots it can tell apart.
    const LIMIT: u32;
    /// A node without links, of list number `list` and no bits.
    fn new(list: u8) -> Self;
    /// The slot before.
    fn prev(self) -> u32;
    /// The slot behind.
    fn next(self) -> u32;
    /// List number and bits.
    fn tag(self) -> u8;
    /// Another slot before.
    fn set_prev(&mut self, slot: u32);
    /// Another slot behind.
    fn set_next(&mut self, slot: u32);
    /// Another list number and other bits.
    fn set_tag(&mut self, tag: u8);
}

/// A node of four bytes for up to 4,096 slots.
#[derive(Clone, Copy, Debug)]
pub struct Small(u32);

/// A node of eight bytes for up to 2^28 slots.
#[derive(Clone, Copy, Debug)]
pub struct Large(u64);

const _: () = assert!(size_of::<Small>() == 4 && size_of::<Large>() == 8);

macro_rules! node {
    ($name:ident, $word:ty, $bits:expr) => {
        impl Node for $name {
            const LIMIT: u32 = 1 << $bits;

            #[inline]
            fn new(list: u8) -> Self {
                $name(<$word>::from(list) << (2 * $bits))
            }
            #[inline]
            #[allow(clippy::cast_possible_truncation)] // masked to fewer bits
            fn prev(self) -> u32 {
                (self.0 & ((1 << $bits) - 1)) as u32
            }
            #[inline]
            #[allow(clippy::cast_possible_truncation)] // masked to fewer bits
            fn next(self) -> u32 {
                (self.0 >> $bits & ((1 << $bits) - 1)) as u32
            }
            #[inline]
            #[allow(clippy::cast_possible_truncation)] // the eight highest bits
            fn tag(self) -> u8 {
                (self.0 >> (2 * $bits)) as u8
            }
            #[inline]
            fn set_prev(&mut self, slot: u32) {
                self.0 = self.0 & !((1 << $bits) - 1) | <$word>::from(slot);
            }
            #[inline]
            fn set_next(&mut self, slot: u32) {
                self.0 = self.0 & !(((1 << $bits) - 1) << $bits) | <$word>::from(slot) << $bits;
            }
            #[inline]
            fn set_tag(&mut self, tag: u8) {
                self.0 = self.0 & ((1 << (2 * $bits)) - 1) | <$word>::from(tag) << (2 * $bits);
            }
        }
    };
}

node!(Small, u32, 12);
node!(Large, u64, 28);

/// The number of a slot's list when it is on none.
const NONE: u8 = 3;
/// How many bits of a node are the list's number; the others are the policy's.
const LIST_BITS: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    head: u32,
    tail: u32,
    len: u32,
}

/// `K` lists (at most 3) over the same slots.
#[derive(Debug)]
pub struct Lists<N, const K: usize> {
    nodes: Box<[N]>,
    ends: [Ends; K],
}

impl<N: Node, const K: usize> Lists<N, K> {
    /// Empty lists over the slots 0 to `capacity`, exclusive.
    ///
    /// # Panics
    /// If there are no slots, or more than the node can tell apart.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        const { assert!(K <= NONE as usize) }
        assert!(capacity > 0 && capacity <= N::LIMIT, "{capacity} slots do not fit the node");
        let nodes = vec![N::new(NONE); capacity as usize].into_boxed_slice();
        Lists { nodes, ends: [Ends::default(); K] }
    }

    /// How many slots there are.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// How many slots are on `list`.
    #[inline]
    #[must_use]
    pub fn len(&self, list: usize) -> u32 {
        self.ends[list].len
    }

    /// Whether `list` is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self, list: usize) -> bool {
        self.ends[list].len == 0
    }

    /// The list that `slot` is on; 3 for none.
    #[inline]
    #[must_use]
    pub fn list_of(&self, slot: u32) -> usize {
        usize::from(self.nodes[slot as usize].tag() & NONE)
    }

    /// The policy's bits of `slot`, 0 to 63.
    #[inline]
    #[must_use]
    pub fn bits(&self, slot: u32) -> u8 {
        self.nodes[slot as usize].tag() >> LIST_BITS
    }

    /// Sets the policy's bits of `slot`, 0 to 63.
    #[inline]
    pub fn set_bits(&mut self, slot: u32, bits: u8) {
        let node = &mut self.nodes[slot as usize];
        node.set_tag(node.tag() & NONE | bits << LIST_BITS);
    }

    /// The first slot of `list`.
    #[inline]
    #[must_use]
    pub fn head(&self, list: usize) -> Option<u32> {
        (self.ends[list].len > 0).then(|| self.ends[list].head)
    }

    /// The last slot of `list`.
    #[inline]
    #[must_use]
    pub fn tail(&self, list: usize) -> Option<u32> {
        (self.ends[list].len > 0).then(|| self.ends[list].tail)
    }

    /// The slot before `slot` on its list.
    #[inline]
    #[must_use]
    pub fn before(&self, slot: u32) -> Option<u32> {
        let node = self.nodes[slot as usize];
        (self.ends[usize::from(node.tag() & NONE)].head != slot).then(|| node.prev())
    }

    /// Puts `slot`, which is on no list, at the head of `list`; its bits stay.
    #[inline]
    pub fn push_front(&mut self, list: usize, slot: u32) {
        let ends = &mut self.ends[list];
        let node = &mut self.nodes[slot as usize];
        debug_assert_eq!(node.tag() & NONE, NONE, "slot {slot} is on a list");
        node.set_tag(node.tag() & !NONE | number(list));
        if ends.len == 0 {
            ends.tail = slot;
        } else {
            node.set_next(ends.head);
            self.nodes[ends.head as usize].set_prev(slot);
        }
        ends.head = slot;
        ends.len += 1;
    }

    /// Puts `slot`, which is on no list, at the tail of `list`; its bits stay.
    #[inline]
    pub fn push_back(&mut self, list: usize, slot: u32) {
        let ends = &mut self.ends[list];
        let node = &mut self.nodes[slot as usize];
        debug_assert_eq!(node.tag() & NONE, NONE, "slot {slot} is on a list");
        node.set_tag(node.tag() & !NONE | number(list));
        if ends.len == 0 {
            ends.head = slot;
        } else {
            node.set_prev(ends.tail);
            self.nodes[ends.tail as usize].set_next(slot);
        }
        ends.tail = slot;
        ends.len += 1;
    }

    /// Takes `slot` off its list, if it is on one; its bits stay.
    #[inline]
    pub fn unlink(&mut self, slot: u32) {
        let node = self.nodes[slot as usize];
        let list = node.tag() & NONE;
        if list == NONE {
            return;
        }
        let ends = &mut self.ends[usize::from(list)];
        let (prev, next) = (node.prev(), node.next());
        if ends.head == slot {
            ends.head = next;
        } else {
            self.nodes[prev as usize].set_next(next);
        }
        if ends.tail == slot {
            ends.tail = prev;
        } else {
            self.nodes[next as usize].set_prev(prev);
        }
        ends.len -= 1;
        self.nodes[slot as usize].set_tag(node.tag() | NONE);
    }

    /// Moves `slot` to the head of `list`, from wherever it is.
    #[inline]
    pub fn move_front(&mut self, list: usize, slot: u32) {
        if self.ends[list].len > 0 && self.ends[list].head == slot {
            return;
        }
        self.unlink(slot);
        self.push_front(list, slot);
    }

    /// Puts `new`, which is on no list, where `old` is, which then is on none. Bits stay.
    pub fn replace(&mut self, old: u32, new: u32) {
        let node = self.nodes[old as usize];
        let list = node.tag() & NONE;
        if list == NONE {
            return;
        }
        let (prev, next) = (node.prev(), node.next());
        let ends = &mut self.ends[usize::from(list)];
        if ends.head == old {
            ends.head = new;
        } else {
            self.nodes[prev as usize].set_next(new);
        }
        if ends.tail == old {
            ends.tail = new;
        } else {
            self.nodes[next as usize].set_prev(new);
        }
        let there = &mut self.nodes[new as usize];
        there.set_prev(prev);
        there.set_next(next);
        there.set_tag(there.tag() & !NONE | list);
        self.nodes[old as usize].set_tag(node.tag() | NONE);
    }

    /// The slots of `list` from its tail to its head.
    pub fn from_tail(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.tail(list);
        std::iter::from_fn(move || {
            let slot = next?;
            next = self.before(slot);
            Some(slot)
        })
    }

    /// The last slot of `list` that may go; it stays where it is.
    #[inline]
    pub fn candidate(&self, list: usize, slots: &dyn Slots) -> Option<u32> {
        self.from_tail(list).find(|&slot| slots.may_go(slot))
    }

    /// Returns the memory of the nodes on the heap, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.nodes)
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // checked to be below 3 when the lists were made
fn number(list: usize) -> u8 {
    list as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use std::collections::VecDeque;

    fn against_deques<N: Node>(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut lists = Lists::<N, 3>::new(20);
        let mut oracle: [VecDeque<u32>; 3] = Default::default();
        for _ in 0..5_000 {
            let slot = u32::try_from(rng.below(20)).unwrap();
            let list = usize::try_from(rng.below(3)).unwrap();
            for deque in &mut oracle {
                deque.retain(|&other| other != slot);
            }
            match rng.below(5) {
                4 => {
                    let other = (0..20).find(|&other| lists.list_of(other) == 3 && other != slot);
                    lists.move_front(list, slot);
                    oracle[list].push_front(slot);
                    if let Some(other) = other {
                        lists.replace(slot, other);
                        oracle[list][0] = other;
                    }
                }
                0 => {
                    lists.unlink(slot);
                    lists.push_back(list, slot);
                    oracle[list].push_back(slot);
                }
                1 => lists.unlink(slot),
                _ => {
                    lists.move_front(list, slot);
                    oracle[list].push_front(slot);
                }
            }
            lists.set_bits(slot, 53);
            assert_eq!(lists.bits(slot), 53);
            for (list, deque) in oracle.iter().enumerate() {
                assert!(lists.from_tail(list).eq(deque.iter().rev().copied()));
                assert_eq!(lists.len(list) as usize, deque.len());
                assert_eq!(lists.head(list), deque.front().copied());
                assert!(deque.iter().all(|&slot| lists.list_of(slot) == list));
            }
        }
    }

    #[test]
    fn lists_are_what_deques_are() {
        against_deques::<Small>(1);
        against_deques::<Large>(2);
    }
}
