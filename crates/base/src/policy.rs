//! Replacement policies: which of the cached blocks goes when room is needed.
//!
//! | module | what |
//! | --- | --- |
//! | [`adaptive`] | [`Adaptive`](adaptive::Adaptive): the default, chooses among the rules of [`blend`] |
//! | [`arc`] | [`Arc`](arc::Arc) |
//! | [`belady`] | [`Belady`](belady::Belady): the optimum, for simulations |
//! | [`blend`] | [`Blend`](blend::Blend): families of rules over the same lists |
//! | [`clock`] | [`Clock`](clock::Clock), [`Sieve`](clock::Sieve) |
//! | [`ghosts`] | [`Ghosts`](ghosts::Ghosts): keys of what was evicted |
//! | [`lirs`] | [`Lirs`](lirs::Lirs) |
//! | [`list`] | [`Lists`](list::Lists): doubly linked lists over slots, four or eight bytes a slot |
//! | [`lru`] | [`Lru`](lru::Lru), [`Fifo`](lru::Fifo), [`MidPoint`](lru::MidPoint) |
//! | [`recall`] | [`Recall`](recall::Recall): the past of what was evicted, in two bytes |
//! | [`s3_fifo`] | [`S3Fifo`](s3_fifo::S3Fifo) |
//! | [`sketch`] | [`Sketch`](sketch::Sketch): how often keys were seen lately |
//! | [`tiny_lfu`] | [`WTinyLfu`](tiny_lfu::WTinyLfu) |
//! | [`two_q`] | [`TwoQ`](two_q::TwoQ) |
//!
//! A policy orders *slots*, numbers from 0 below its capacity, and knows nothing of what is in
//! them but a key. Whoever owns the cache maps keys to slots, fills free slots first, and asks
//! for a victim when there is none. So the same policy serves one large cache and thousands of
//! sets of 4,096 slots, a device and a simulator.
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
pub mod clock;
pub mod ghosts;
pub mod lirs;
pub mod list;
pub mod lru;
pub mod recall;
pub mod s3_fifo;
pub mod sketch;
pub mod tiny_lfu;
pub mod two_q;

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

/// What a policy may ask the owner of the slots.
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

    /// Names held slots, those that would go first first, until `visit` returns false. What is
    /// to be cleaned next is found here; the order is the one of now and may be approximate.
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

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// First in, first out.
    Fifo,
    /// The least recently used goes.
    Lru,
    /// LRU that inserts at a percentile of the order, counted from the end that is evicted;
    /// a block that is seen again there moves to the head.
    MidPoint(u8),
    /// Second chance.
    Clock,
    /// 2Q.
    TwoQ,
    /// ARC.
    Arc,
    /// LIRS.
    Lirs,
    /// W-TinyLFU.
    WTinyLfu,
    /// SIEVE.
    Sieve,
    /// S3-FIFO.
    S3Fifo,
    /// The optimum, which has to be told the future.
    Belady,
    /// The rule that does best on a sample of the blocks.
    #[default]
    Adaptive,
}

/// The percentile at which [`Kind::MidPoint`] inserts unless it is told otherwise.
pub const MID_POINT: u8 = 75;

/// Works with a policy of a type that is known when it is compiled: [`Kind::visit`].
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Works with policies that `build` makes, over as many slots as it is told.
    fn visit<P: Policy + 'static>(
        self,
        build: impl Fn(u32) -> P + Send + Sync + 'static,
    ) -> Self::Output;
}

/// Makes the policies of the sets of one cache, one at a time: over as many slots as it is told.
pub type Builder = Box<dyn Fn(u32) -> Box<dyn Policy> + Send + Sync>;

impl Kind {
    /// Every policy, each with its usual parameter.
    pub const ALL: [Kind; 12] = [
        Kind::Fifo,
        Kind::Lru,
        Kind::MidPoint(MID_POINT),
        Kind::Clock,
        Kind::TwoQ,
        Kind::Arc,
        Kind::Lirs,
        Kind::WTinyLfu,
        Kind::Sieve,
        Kind::S3Fifo,
        Kind::Adaptive,
        Kind::Belady,
    ];

    /// Whether the policy tells what [`Policy::comes_again`] asks.
    #[must_use]
    pub fn remembers(self) -> bool {
        self == Kind::Adaptive
    }

    /// A policy of this kind over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or beyond 2^28.
    #[must_use]
    pub fn build(self, capacity: u32) -> Box<dyn Policy> {
        let one = self.build_all(&[capacity]).pop();
        one.unwrap_or_else(|| unreachable!("one was asked for"))
    }

    /// The policies of the sets of one cache, over so many slots each. They share what the
    /// policy shares among sets.
    ///
    /// # Panics
    /// If a capacity is 0 or beyond 2^28.
    #[must_use]
    pub fn build_all(self, capacities: &[u32]) -> Vec<Box<dyn Policy>> {
        let total = capacities.iter().map(|&capacity| u64::from(capacity)).sum();
        let largest = capacities.iter().copied().max().unwrap_or(1);
        let build = self.builder(total, largest);
        capacities.iter().map(|&capacity| build(capacity)).collect()
    }

    /// What makes the policies of one cache of `total` slots set by set, each over `largest` slots
    /// at most. They share what the policy shares among sets.
    #[must_use]
    pub fn builder(self, total: u64, largest: u32) -> Builder {
        struct Boxed;
        impl Visitor for Boxed {
            type Output = Builder;
            fn visit<P: Policy + 'static>(
                self,
                build: impl Fn(u32) -> P + Send + Sync + 'static,
            ) -> Builder {
                Box::new(move |capacity| Box::new(build(capacity)) as Box<dyn Policy>)
            }
        }
        self.visit(total, largest, Boxed)
    }

    /// Has `visitor` work with policies of this kind for one cache of `total` slots, each over
    /// `largest` slots at most.
    pub fn visit<V: Visitor>(self, total: u64, largest: u32, visitor: V) -> V::Output {
        use list::{Large, Node, Small};
        fn sized<N: Node, V: Visitor>(kind: Kind, total: u64, visitor: V) -> V::Output {
            match kind {
                Kind::Fifo => visitor.visit(lru::Fifo::<N>::new),
                Kind::Lru => visitor.visit(lru::Lru::<N>::new),
                Kind::MidPoint(percent) => {
                    visitor.visit(move |capacity| lru::MidPoint::<N>::new(capacity, percent))
                }
                Kind::Clock => visitor.visit(clock::Clock::<N>::new),
                Kind::TwoQ => visitor.visit(two_q::TwoQ::<N>::new),
                Kind::Arc => visitor.visit(arc::Arc::<N>::new),
                Kind::Lirs => visitor.visit(lirs::Lirs::<N>::new),
                Kind::WTinyLfu => visitor.visit(tiny_lfu::WTinyLfu::<N>::new),
                Kind::Sieve => visitor.visit(clock::Sieve::<N>::new),
                Kind::S3Fifo => visitor.visit(s3_fifo::S3Fifo::<N>::new),
                Kind::Belady => visitor.visit(belady::Belady::new),
                Kind::Adaptive => {
                    let chooser = std::sync::Arc::new(adaptive::Chooser::new(total));
                    visitor.visit(move |c| adaptive::Adaptive::<N>::new(c, chooser.clone()))
                }
            }
        }
        if largest <= Small::LIMIT {
            sized::<Small, V>(self, total, visitor)
        } else {
            sized::<Large, V>(self, total, visitor)
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Fifo => "fifo",
            Kind::Lru => "lru",
            Kind::MidPoint(percent) => return write!(f, "mid-{percent}"),
            Kind::Clock => "clock",
            Kind::TwoQ => "2q",
            Kind::Arc => "arc",
            Kind::Lirs => "lirs",
            Kind::WTinyLfu => "w-tinylfu",
            Kind::Sieve => "sieve",
            Kind::S3Fifo => "s3-fifo",
            Kind::Belady => "belady",
            Kind::Adaptive => "adaptive",
        })
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
