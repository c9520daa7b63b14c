//! Which set a block of the origin belongs to, and back.
//!
//! Called by the sets and by the simulator. The origin is cut into *runs* of neighbouring blocks
//! that stay together in a set, so that a scan stays sequential inside it and neighbours can be
//! written back with one command. Runs go to the sets in turn ([`Placement::Linear`]) or after a
//! permutation of their numbers ([`Placement::Hashed`]), which keeps hot regions of the origin
//! from meeting in the same set.
//!
//! Invariants:
//! 1. The permutation is a bijection, so set and [`Mapping::tag`] together say which block is
//!    meant: `block_of(set_of(b), tag(b)) == b`.
//! 2. Tags are below `Mapping::tags`, and that is at most `u32::MAX`, checked when the mapping is
//!    made.

use std::fmt;
use std::str::FromStr;

use crate::CacheError;

/// How runs are dealt out to sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In turn.
    Linear,
    /// After a permutation.
    #[default]
    Hashed,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Linear => "linear",
            Placement::Hashed => "hashed",
        })
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Placement, String> {
        match text {
            "linear" => Ok(Placement::Linear),
            "hashed" => Ok(Placement::Hashed),
            _ => Err(format!("'{text}' is no mapping: choose hashed or linear")),
        }
    }
}

/// The largest tag and one more; it never stands for a block.
pub(crate) const NO_TAG: u32 = u32::MAX;

/// Which set a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    sets: u32,
    run_blocks: u32,
    /// Runs are permuted among 2^`bits`; 0 for a linear mapping.
    bits: u32,
    seed: u64,
    tags: u64,
}

/// An odd multiplier with well mixed bits (the golden ratio), and its inverse modulo 2^64.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = inverse(MULTIPLIER);

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut result = odd;
    let mut step = 0;
    while step < 6 {
        result = result.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(result)));
        step += 1;
    }
    result
}

const _: () = assert!(MULTIPLIER.wrapping_mul(INVERSE) == 1);

impl Mapping {
    /// A mapping of `origin_blocks` blocks to `sets` sets, in runs of `run_blocks` blocks. The
    /// seed chooses among the permutations of a hashed mapping.
    ///
    /// # Errors
    /// When a number is zero, or the sets are so few that a tag needs more than 32 bits.
    pub fn new(
        placement: Placement,
        origin_blocks: u64,
        sets: u32,
        run_blocks: u32,
        seed: u64,
    ) -> Result<Mapping, CacheError> {
        let mapping = Mapping::without_tags(placement, origin_blocks, sets, run_blocks, seed)?;
        mapping.check_tags(origin_blocks)?;
        Ok(mapping)
    }

    /// Tags are below this.
    pub(crate) fn tags(&self) -> u64 {
        self.tags
    }

    /// A mapping of which only [`Mapping::set_of`] is used: the origin may be of any size.
    pub(crate) fn without_tags(
        placement: Placement,
        origin_blocks: u64,
        sets: u32,
        run_blocks: u32,
        seed: u64,
    ) -> Result<Mapping, CacheError> {
        if sets == 0 || run_blocks == 0 || origin_blocks == 0 {
            let message = "a mapping needs at least one set, one block a run, and an origin";
            return Err(CacheError::Invalid(message.into()));
        }
        let runs = origin_blocks.div_ceil(u64::from(run_blocks));
        let bits = match placement {
            Placement::Linear => 0,
            // Two bits at least, so that both halves of the permutation have something to mix.
            Placement::Hashed => (64 - (runs - 1).leading_zeros()).max(2),
        };
        let reach = match bits {
            0 => runs,
            bits => 1u64.checked_shl(bits).unwrap_or(u64::MAX),
        };
        let tags = reach.div_ceil(u64::from(sets)).saturating_mul(u64::from(run_blocks));
        Ok(Mapping { sets, run_blocks, bits, seed, tags })
    }

    /// Invariant 2.
    pub(crate) fn check_tags(&self, origin_blocks: u64) -> Result<(), CacheError> {
        if self.tags > u64::from(NO_TAG) {
            let sets = self.sets;
            return Err(CacheError::Invalid(format!(
                "an origin of {origin_blocks} blocks is too large for {sets} sets: use smaller \
                 sets, or a larger cache"
            )));
        }
        Ok(())
    }

    /// How many sets there are.
    #[must_use]
    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// How many neighbouring blocks stay together.
    #[must_use]
    pub fn run_blocks(&self) -> u32 {
        self.run_blocks
    }

    /// The set of `block`, and the tag that tells the block from others of that set.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // invariant 2, and a remainder below 2^32
    pub fn place(&self, block: u64) -> (u32, u32) {
        let run_blocks = u64::from(self.run_blocks);
        let run = self.permute(block / run_blocks);
        let (row, set) = (run / u64::from(self.sets), run % u64::from(self.sets));
        (set as u32, (row * run_blocks + block % run_blocks) as u32)
    }

    /// The set of `block`.
    #[inline]
    #[must_use]
    pub fn set_of(&self, block: u64) -> u32 {
        let run = self.permute(block / u64::from(self.run_blocks));
        u32::try_from(run % u64::from(self.sets)).unwrap_or(0)
    }

    /// The tag that tells `block` from others of its set; near blocks of a run have near tags.
    #[inline]
    #[must_use]
    pub fn tag(&self, block: u64) -> u32 {
        self.place(block).1
    }

    /// The block that has `tag` in `set`.
    #[inline]
    #[must_use]
    pub fn block_of(&self, set: u32, tag: u32) -> u64 {
        let (tag, run_blocks) = (u64::from(tag), u64::from(self.run_blocks));
        let run = tag / run_blocks * u64::from(self.sets) + u64::from(set);
        self.restore(run) * run_blocks + tag % run_blocks
    }

    /// A bijection on the numbers below 2^`bits`: multiplications by odd numbers and folds of the
    /// high half onto the low one.
    #[inline]
    fn permute(&self, run: u64) -> u64 {
        if self.bits == 0 {
            return run;
        }
        let mask = u64::MAX >> (64 - self.bits);
        let half = self.bits.div_ceil(2);
        let mut x = (run ^ self.seed) & mask;
        for _ in 0..3 {
            x = x.wrapping_mul(MULTIPLIER) & mask;
            x ^= x >> half;
        }
        x
    }

    #[inline]
    fn restore(&self, run: u64) -> u64 {
        if self.bits == 0 {
            return run;
        }
        let mask = u64::MAX >> (64 - self.bits);
        let half = self.bits.div_ceil(2);
        let mut x = run & mask;
        for _ in 0..3 {
            x ^= x >> half;
            x = x.wrapping_mul(INVERSE) & mask;
        }
        (x ^ self.seed) & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_and_tag_say_which_block_is_meant() {
        for placement in [Placement::Linear, Placement::Hashed] {
            for (origin, sets, run) in
                [(1, 1, 1), (1_000, 7, 64), (99_999, 13, 1), (1 << 40, 65_536, 64)]
            {
                let mapping = Mapping::new(placement, origin, sets, run, 5).unwrap();
                for step in 0..1_000 {
                    let block = origin * step / 1_000;
                    let (set, tag) = mapping.place(block);
                    assert!(set < sets && u64::from(tag) < mapping.tags());
                    assert_eq!(mapping.block_of(set, tag), block, "{placement} {origin} {sets}");
                }
            }
        }
    }

    #[test]
    fn a_run_stays_together_and_neighbouring_runs_part() {
        let mapping = Mapping::new(Placement::Hashed, 1 << 22, 64, 64, 0).unwrap();
        let mut count = [0; 64];
        for run in 0..(1 << 12) {
            let set = mapping.set_of(run * 64);
            assert!((1..64).all(|i| mapping.set_of(run * 64 + i) == set));
            count[set as usize] += 1;
        }
        assert!(count.iter().all(|&n| (30..=100).contains(&n)), "{count:?}");
    }

    #[test]
    fn an_origin_beyond_the_tags_is_refused() {
        assert!(Mapping::new(Placement::Hashed, 1 << 33, 1, 64, 0).is_err());
        assert!(Mapping::new(Placement::Linear, 0, 1, 64, 0).is_err());
    }
}
