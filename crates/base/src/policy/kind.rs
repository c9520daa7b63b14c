//! The policies by name, and their makers.

use std::fmt;
use std::str::FromStr;

use super::{
    Policy, adaptive, arc, belady, chooser, clock, lirs, list, lru, s3_fifo, tiny_lfu, two_q,
};

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
    /// The result of the visit.
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

    /// Whether the policy remembers the blocks that [`Policy::comes_again`] asks about.
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

    /// The policies of the sets of one cache, over so many slots each. They share the state that
    /// the policy shares among sets.
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

    /// Returns the maker of the policies of one cache of `total` slots, set by set, each over
    /// `largest` slots at most. They share the state that the policy shares among sets.
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
                Kind::Clock => visitor.visit(clock::SecondChance::<N>::new),
                Kind::TwoQ => visitor.visit(two_q::TwoQ::<N>::new),
                Kind::Arc => visitor.visit(arc::Arc::<N>::new),
                Kind::Lirs => visitor.visit(lirs::Lirs::<N>::new),
                Kind::WTinyLfu => visitor.visit(tiny_lfu::WTinyLfu::<N>::new),
                Kind::Sieve => visitor.visit(clock::Sieve::<N>::new),
                Kind::S3Fifo => visitor.visit(s3_fifo::S3Fifo::<N>::new),
                Kind::Belady => visitor.visit(belady::Belady::new),
                Kind::Adaptive => {
                    let chooser = std::sync::Arc::new(chooser::Chooser::new(total));
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
