//! Replacement policies: which of the cached blocks goes when room is needed.
//!
//! | module | what |
//! | --- | --- |
//! | [`list`] | [`Lists`](list::Lists): doubly linked lists over slots, four or eight bytes a slot |
//! | [`lru`] | [`Lru`](lru::Lru), [`Fifo`](lru::Fifo), [`MidPoint`](lru::MidPoint) |
//!
//! A policy orders *slots*, numbers from 0 below its capacity, and knows nothing of what is in
//! them but a key. Whoever owns the cache maps keys to slots, fills free slots first, and asks
//! for a victim when there is none. So the same policy serves one large cache and thousands of
//! sets of 4,096 slots, a device and a simulator.
//!
//! Invariants:
//! 1. A slot is *held* from [`Policy::insert`] until [`Policy::evict`] returns it or
//!    [`Policy::remove`] names it; [`Policy::hit`] names held slots only.
//! 2. [`Policy::evict`] changes nothing when every held slot was refused.
//! 3. The same calls give the same victims: there is no clock and no ambient randomness.

pub mod list;
pub mod lru;

use std::fmt;
use std::str::FromStr;

/// What a reference to a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written.
    Write,
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

    /// The block in `slot` was referenced.
    fn hit(&mut self, slot: u32, access: Access);

    /// `slot`, not held until now, holds the block `key`, which was referenced.
    fn insert(&mut self, slot: u32, key: u64, access: Access);

    /// Gives up a slot to make room for the block `incoming`. Slots for which `refuse` is true
    /// are passed over and stay as they are. `None` when all were refused.
    fn evict(&mut self, incoming: u64, refuse: &mut dyn FnMut(u32) -> bool) -> Option<u32>;

    /// `slot` no longer holds its block, which was not evicted but dropped (a discard, say).
    fn remove(&mut self, slot: u32);

    /// Names held slots, those that would go first first, until `visit` returns false. What is
    /// to be cleaned next is found here; the order is the one of now and may be approximate.
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool);

    /// When the block of the reference that is reported next will be referenced again, as a
    /// count of references, `u64::MAX` for never. Only [`Kind::Belady`] listens.
    fn foresee(&mut self, next: u64) {
        let _ = next;
    }

    /// The policy itself and what it has on the heap, in bytes.
    fn memory_bytes(&self) -> usize;
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn capacity(&self) -> u32 {
        (**self).capacity()
    }
    fn len(&self) -> u32 {
        (**self).len()
    }
    fn hit(&mut self, slot: u32, access: Access) {
        (**self).hit(slot, access);
    }
    fn insert(&mut self, slot: u32, key: u64, access: Access) {
        (**self).insert(slot, key, access);
    }
    fn evict(&mut self, incoming: u64, refuse: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        (**self).evict(incoming, refuse)
    }
    fn remove(&mut self, slot: u32) {
        (**self).remove(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        (**self).coldest(visit);
    }
    fn foresee(&mut self, next: u64) {
        (**self).foresee(next);
    }
    fn memory_bytes(&self) -> usize {
        (**self).memory_bytes()
    }
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// First in, first out.
    Fifo,
    /// The least recently used goes.
    #[default]
    Lru,
    /// LRU that inserts at a percentile of the order, counted from the end that is evicted;
    /// a block that is seen again there moves to the head.
    MidPoint(u8),
}

/// The percentile at which [`Kind::MidPoint`] inserts unless it is told otherwise.
pub const MID_POINT: u8 = 75;

impl Kind {
    /// Every policy, each with its usual parameter.
    pub const ALL: [Kind; 3] = [Kind::Fifo, Kind::Lru, Kind::MidPoint(MID_POINT)];

    /// A policy of this kind over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or beyond 2^28.
    #[must_use]
    pub fn build(self, capacity: u32) -> Box<dyn Policy> {
        use list::{Large, Node, Small};
        fn sized<N: Node>(kind: Kind, capacity: u32) -> Box<dyn Policy> {
            match kind {
                Kind::Fifo => Box::new(lru::Fifo::<N>::new(capacity)),
                Kind::Lru => Box::new(lru::Lru::<N>::new(capacity)),
                Kind::MidPoint(percent) => Box::new(lru::MidPoint::<N>::new(capacity, percent)),
            }
        }
        if capacity <= Small::LIMIT {
            sized::<Small>(self, capacity)
        } else {
            sized::<Large>(self, capacity)
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Fifo => f.write_str("fifo"),
            Kind::Lru => f.write_str("lru"),
            Kind::MidPoint(percent) => write!(f, "mid-{percent}"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let lower = text.to_ascii_lowercase();
        if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.to_string() == lower) {
            return Ok(kind);
        }
        if let Some(percent) = lower.strip_prefix("mid-") {
            let percent = percent.parse().ok().filter(|percent| (1..=99).contains(percent));
            return percent.map(Kind::MidPoint).ok_or_else(|| {
                format!("'{text}' is no policy: the percentile of mid-N is from 1 to 99")
            });
        }
        let names: Vec<String> = Kind::ALL.iter().map(Kind::to_string).collect();
        Err(format!("'{text}' is no policy: choose one of {}", names.join(", ")))
    }
}
