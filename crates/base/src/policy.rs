//! Replacement policies: which of the cached blocks goes when room is needed.
//!
//! | module | content |
//! | --- | --- |
//! | [`adaptive`] | [`Adaptive`](adaptive::Adaptive): the default, goes by one of the rules of [`blend`] |
//! | [`arc`] | [`Arc`](arc::Arc) |
//! | [`belady`] | [`Belady`](belady::Belady): the optimum, for simulations |
//! | [`blend`] | [`Blend`](blend::Blend): families of rules over the same lists |
//! | [`chooser`] | [`Chooser`](chooser::Chooser): the rule that does best on a sample of the blocks |
//! | [`clock`] | [`SecondChance`](clock::SecondChance), [`Sieve`](clock::Sieve) |
//! | [`ghosts`] | [`Ghosts`](ghosts::Ghosts): keys of evicted blocks |
//! | `kind` | [`Kind`]: the policies by name, and made |
//! | [`lirs`] | [`Lirs`](lirs::Lirs) |
//! | [`list`] | [`Lists`](list::Lists): doubly linked lists over slots, four or eight bytes a slot |
//! | [`lru`] | [`Lru`](lru::Lru), [`Fifo`](lru::Fifo), [`MidPoint`](lru::MidPoint) |
//! | `miniature` | a small cache that sees a sample |
//! | [`recall`] | [`Recall`](recall::Recall): the uses of evicted blocks, in two bytes each |
//! | [`s3_fifo`] | [`S3Fifo`](s3_fifo::S3Fifo) |
//! | [`sketch`] | [`Sketch`](sketch::Sketch): how often keys were seen lately |
//! | [`tiny_lfu`] | [`WTinyLfu`](tiny_lfu::WTinyLfu) |
//! | [`two_q`] | [`TwoQ`](two_q::TwoQ) |
//!
//! A policy orders *slots*, numbers from 0 below its capacity, and knows nothing of the block in
//! them but a key. The cache's owner maps keys to slots, fills free slots first, and asks for a
//! victim when there is none. So the same policy serves one large cache and thousands of sets of
//! 4,096 slots, a device and a simulator.
//!
//! Invariants:
//! 1. A slot is *held* from [`Policy::insert`] until [`Policy::evict`] returns it or
//!    [`Policy::remove`] names it; [`Policy::hit`] names held slots only.
//! 2. Slots that may not go are still held after [`Policy::evict`].
//! 3. The same calls give the same victims: there is no clock and no ambient randomness.

pub mod adaptive;
pub mod arc;
pub mod belady;
pub mod blend;
pub mod chooser;
pub mod clock;
pub mod ghosts;
mod kind;
pub mod lirs;
pub mod list;
pub mod lru;
mod miniature;
pub mod recall;
pub mod s3_fifo;
pub mod sketch;
pub mod tiny_lfu;
pub mod two_q;

pub use kind::{Builder, Kind, MID_POINT, Visitor};

/// Kind of a reference to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written.
    Write,
}

/// Answers that a policy may ask of the owner of the slots.
pub trait Slots {
    /// The block that `slot`, which is held, holds.
    fn key(&self, slot: u32) -> u64;

    /// Whether `slot` may be evicted now; a busy or a dirty one may not, perhaps.
    #[inline]
    fn may_go(&self, slot: u32) -> bool {
        let _ = slot;
        true
    }
}

/// A replacement policy over slots.
pub trait Policy: Send {
    /// How many slots there are.
    fn capacity(&self) -> u32;

    /// How many slots are held.
    fn len(&self) -> u32;

    /// Whether no slot is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block `key` in `slot` was referenced.
    fn hit(&mut self, slot: u32, key: u64, access: Access);

    /// `slot`, not held until now, holds the block `key`, which was referenced.
    fn insert(&mut self, slot: u32, key: u64, access: Access);

    /// Gives up a slot to make room for the block `incoming`. Slots that may not go are passed
    /// over. `None` when none may.
    fn evict(&mut self, incoming: u64, slots: &dyn Slots) -> Option<u32>;

    /// `slot` no longer holds its block, which was not evicted but dropped (a discard, say).
    fn remove(&mut self, slot: u32);

    /// Names held slots, those that would go first first, until `visit` returns false. The cleaner
    /// finds its next slots here; the order is the present one and may be approximate.
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool);

    /// A block was missed that is let in only if it was missed or held before, lately. Whether it
    /// was; if not, it is remembered, and the next time it comes again. Of policies of which
    /// [`Kind::remembers`] is false nothing ever does.
    fn comes_again(&mut self, key: u64) -> bool {
        let _ = key;
        false
    }

    /// When the block of the reference that is reported next will be referenced again, as a
    /// count of references, `u64::MAX` for never. Only [`Kind::Belady`] listens.
    fn foresee(&mut self, next: u64) {
        let _ = next;
    }

    /// Returns the memory of the policy itself and its heap, in bytes.
    fn memory_bytes(&self) -> usize;
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn capacity(&self) -> u32 {
        (**self).capacity()
    }
    fn len(&self) -> u32 {
        (**self).len()
    }
    fn hit(&mut self, slot: u32, key: u64, access: Access) {
        (**self).hit(slot, key, access);
    }
    fn insert(&mut self, slot: u32, key: u64, access: Access) {
        (**self).insert(slot, key, access);
    }
    fn evict(&mut self, incoming: u64, slots: &dyn Slots) -> Option<u32> {
        (**self).evict(incoming, slots)
    }
    fn remove(&mut self, slot: u32) {
        (**self).remove(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        (**self).coldest(visit);
    }
    fn comes_again(&mut self, key: u64) -> bool {
        (**self).comes_again(key)
    }
    fn foresee(&mut self, next: u64) {
        (**self).foresee(next);
    }
    fn memory_bytes(&self) -> usize {
        (**self).memory_bytes()
    }
}

/// `percent` of `whole`, rounded down.
fn share(whole: u32, percent: u32) -> u32 {
    u32::try_from(u64::from(whole) * u64::from(percent) / 100).unwrap_or(u32::MAX)
}

/// A hash of `key` whose bits are all good (the finalizer of SplitMix64).
#[inline]
#[must_use]
pub fn hash(key: u64) -> u64 {
    let mut x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests;
