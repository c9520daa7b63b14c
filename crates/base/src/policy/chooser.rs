//! The choice of the default policy's rule, by miniature caches that see a sample of the references.
//!
//! Called by [`super::adaptive`]. The first rule is S3-FIFO's. The cache begins with it, and returns to it. Three
//! more are the same with another window. These four share the content of the cache, so a change among
//! them costs little, and a small lead decides. The widest filters least, and needs a larger one.
//! The rule of frequency keeps other blocks, which a full cache lacks when the rule changes. So its miniature
//! has to win far more references than it loses.
//!
//! A cache that leaves the first rule is on *trial*. A *follower*, one more miniature, goes by the rules of the cache
//! at the same time as the cache, so it shows what the change brings. The trial ends when the follower
//! falls behind the first rule's miniature, and evidence is gathered anew. A change from one rule to another
//! carries losses over, and no gains. After a trial of frequency that failed,
//! the next one needs four times as much.
//!
//! Invariants:
//! 1. All sets of a cache share one [`Chooser`] and see the same sequence of choices.
//! 2. Only references to sampled blocks take the chooser's lock.
//! 3. The follower goes by the rule of the cache.

use std::array;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::Mutex;

use super::blend::Rule;
use super::miniature::{Miniature, SLOTS};
use super::{Access, hash};

/// How many rules there are.
const COUNT: usize = 5;
/// The rules to choose among.
const RULES: [Rule; COUNT] = [
    Rule::Queues { window: 10 },
    Rule::Queues { window: 3 },
    Rule::Queues { window: 25 },
    Rule::Queues { window: 60 },
    Rule::Frequent { window: 5 },
];
/// The rule to begin with and to return to.
const FIRST: usize = 0;
/// The rule with the widest window.
const WIDE: usize = 3;
/// The rule that is tried.
const FREQUENT: usize = 4;

/// Sampling compares so many bits of a hash.
const SAMPLE_BITS: u32 = 24;
/// A rule is changed when another one's miniature leads by this share of the references, and ...
const MARGIN: f64 = 0.002;
/// ... by so many hits more.
const LEAD: f64 = 4.0;
/// For [`WIDE`] the lead is so many times as large.
const WIDE_FACTOR: f64 = 4.0;
/// A trial of [`FREQUENT`] needs so many references won by it from [`FIRST`], beyond ...
const TRIAL_LEAD: f64 = 30.0;
/// ... so many times those that it lost to it.
const TRIAL_RATIO: f64 = 3.0;
/// A failed trial makes the next one need so many times as much.
const TRIAL_GROWTH: f64 = 4.0;
/// A trial ends when the follower has so many hits fewer than the first rule's miniature.
const TRIAL_LOSS: f64 = 12.0;
/// Part of old evidence that is left after a period, which is a quarter of a miniature's slots long.
const DECAY: f64 = 0.95;

/// The miniature caches of one cache, and the rule that they have chosen.
#[derive(Debug)]
pub struct Chooser {
    rule: AtomicUsize,
    /// Blocks whose hash, cut to so many bits, is below this are in the sample.
    threshold: u64,
    sample: Mutex<Sample>,
}

impl Chooser {
    /// For a cache of `slots` slots in all.
    #[must_use]
    pub fn new(slots: u64) -> Chooser {
        let mini = slots.clamp(1, SLOTS);
        let threshold = (mini << SAMPLE_BITS) / slots.max(1);
        let mini = u32::try_from(mini).unwrap_or(1);
        Chooser { rule: AtomicUsize::new(FIRST), threshold, sample: Mutex::new(Sample::new(mini)) }
    }

    /// The rule to go by.
    #[inline]
    #[must_use]
    pub fn rule(&self) -> Rule {
        RULES[self.rule.load(Ordering::Relaxed) % COUNT]
    }

    /// A block was referenced.
    #[inline]
    pub(super) fn refer(&self, key: u64, access: Access) {
        let hashed = hash(key);
        if hashed & ((1 << SAMPLE_BITS) - 1) < self.threshold {
            self.sample(mark(hashed), access);
        }
    }

    #[cold]
    fn sample(&self, mark: u32, access: Access) {
        let mut sample = self.sample.lock();
        sample.refer(mark, access);
        self.rule.store(sample.rule, Ordering::Relaxed);
    }

    /// Returns the memory of the chooser and its heap, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let sample = self.sample.lock();
        let all = sample.minis.iter().chain([&sample.follower]);
        size_of::<Self>() + all.map(Miniature::heap_bytes).sum::<usize>()
    }
}

/// The half of a hash that does not decide on the sample.
#[allow(clippy::cast_possible_truncation)] // the high half
fn mark(hashed: u64) -> u32 {
    (hashed >> 32) as u32
}

/// Evidence that fades.
#[derive(Debug, Default)]
struct Evidence {
    references: f64,
    /// Hits of each miniature.
    hits: [f64; COUNT],
    /// References that [`FREQUENT`] hit and [`FIRST`] missed, and the reverse.
    won: f64,
    lost: f64,
}

impl Evidence {
    fn add(&mut self, hits: [bool; COUNT]) {
        self.references += 1.0;
        for (sum, hit) in self.hits.iter_mut().zip(hits) {
            *sum += f64::from(hit);
        }
        self.won += f64::from(hits[FREQUENT] && !hits[FIRST]);
        self.lost += f64::from(hits[FIRST] && !hits[FREQUENT]);
    }

    fn fade(&mut self) {
        let Evidence { references, hits, won, lost } = self;
        for one in hits.iter_mut().chain([references, won, lost]) {
            *one *= DECAY;
        }
    }

    /// The rule that leads, the present one unless another one's lead is large enough.
    fn leader(&self, current: usize, trial_lead: f64) -> usize {
        let may_try = self.won - TRIAL_RATIO * self.lost >= trial_lead;
        let lead = self.references * MARGIN + LEAD;
        let score = |rule: usize| match rule {
            _ if rule == current => self.hits[rule],
            FREQUENT if !may_try => f64::MIN,
            WIDE => self.hits[rule] - lead * WIDE_FACTOR,
            _ => self.hits[rule] - lead,
        };
        (0..COUNT).fold(current, |best, rule| if score(rule) > score(best) { rule } else { best })
    }
}

/// The miniatures and all that they tell.
#[derive(Debug)]
struct Sample {
    minis: [Miniature; COUNT],
    follower: Miniature,
    /// The rule of the cache.
    rule: usize,
    evidence: Evidence,
    /// Hits of the follower beyond those of the first rule's miniature, since the last trial began.
    ahead: f64,
    /// The [`TRIAL_LEAD`] of the next trial of [`FREQUENT`].
    trial_lead: f64,
    /// References until the rule is chosen again.
    left: u32,
}

impl Sample {
    fn new(slots: u32) -> Sample {
        Sample {
            minis: RULES.map(|rule| Miniature::new(slots, rule)),
            follower: Miniature::new(slots, RULES[FIRST]),
            rule: FIRST,
            evidence: Evidence::default(),
            ahead: 0.0,
            trial_lead: TRIAL_LEAD,
            left: period(slots),
        }
    }

    fn refer(&mut self, mark: u32, access: Access) {
        let hits = array::from_fn(|rule| self.minis[rule].refer(mark, access));
        let follows = self.follower.refer(mark, access);
        self.evidence.add(hits);
        self.ahead += f64::from(follows) - f64::from(hits[FIRST]);
        self.left -= 1;
        if self.left == 0 {
            self.left = period(self.follower.capacity());
            self.choose();
        }
    }

    fn choose(&mut self) {
        if self.rule == FIRST {
            self.ahead = 0.0;
        }
        let mut next = self.evidence.leader(self.rule, self.trial_lead);
        if self.ahead < -TRIAL_LOSS {
            if self.rule == FREQUENT {
                self.trial_lead *= TRIAL_GROWTH;
            }
            self.evidence = Evidence::default();
            next = FIRST;
        }
        if next != self.rule {
            self.ahead = self.ahead.min(0.0);
        }
        self.rule = next;
        self.follower.set_rule(RULES[next]);
        self.evidence.fade();
    }
}

/// How many references of the sample there are between two choices.
fn period(slots: u32) -> u32 {
    slots / 4 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const SIZE: u32 = 400;

    fn refer_all(sample: &mut Sample, marks: impl IntoIterator<Item = u32>) {
        for mark in marks {
            sample.refer(mark, Access::Read);
            assert_eq!(sample.follower.rule(), RULES[sample.rule]);
        }
    }

    /// A loop over more blocks than there are slots.
    fn looping(count: u32) -> impl Iterator<Item = u32> {
        (0..count).map(|at| at % (SIZE * 3 / 2))
    }

    /// Skewed references, of which every fourth is to a block that never comes again.
    fn skewed(count: u32, seed: u64) -> impl Iterator<Item = u32> {
        let mut rng = Rng::new(seed);
        (0..count).map(move |at| {
            let spread = 2 << rng.below(11);
            let known = u32::try_from(rng.below(spread)).unwrap();
            if at % 4 == 0 { (1 << 24) + at } else { (1 << 20) + known }
        })
    }

    #[test]
    fn first_rule_stays_without_evidence() {
        let mut sample = Sample::new(SIZE);
        refer_all(&mut sample, (0..20 * SIZE).map(|at| (1 << 24) + at));
        assert_eq!(sample.rule, FIRST);
        refer_all(&mut sample, (0..20 * SIZE).map(|at| at % (SIZE / 2)));
        assert_eq!(sample.rule, FIRST);
    }

    #[test]
    fn wider_window_is_chosen_where_working_sets_move() {
        let mut sample = Sample::new(SIZE);
        let mut rng = Rng::new(5);
        let moving = (0..60 * SIZE).map(|at| {
            at / (SIZE * 4) * (SIZE / 2) + u32::try_from(rng.below(u64::from(SIZE))).unwrap()
        });
        refer_all(&mut sample, moving);
        assert!([2, WIDE].contains(&sample.rule), "{}", sample.rule);
    }

    #[test]
    fn frequent_rule_is_tried_in_loops_and_kept() {
        let mut sample = Sample::new(SIZE);
        refer_all(&mut sample, looping(20 * SIZE));
        assert_eq!(sample.rule, FREQUENT);
        assert!((sample.trial_lead - TRIAL_LEAD).abs() < 1e-9, "no trial has failed");
        assert!(sample.ahead > 100.0, "{}", sample.ahead);
    }

    #[test]
    fn failed_trial_returns_to_the_first_rule_and_the_next_needs_more_evidence() {
        for (rule, lead) in [(WIDE, TRIAL_LEAD), (FREQUENT, TRIAL_LEAD * TRIAL_GROWTH)] {
            let mut sample = Sample::new(SIZE);
            sample.rule = rule;
            sample.evidence.hits[rule] = 50.0;
            sample.ahead = -TRIAL_LOSS;
            sample.choose();
            assert_eq!((sample.rule, sample.follower.rule()), (rule, RULES[rule]));
            sample.ahead -= 1.0;
            sample.choose();
            assert_eq!((sample.rule, sample.follower.rule()), (FIRST, RULES[FIRST]));
            assert_eq!(sample.evidence.hits, [0.0; COUNT]);
            assert!((sample.trial_lead - lead).abs() < 1e-9, "{}", sample.trial_lead);
            sample.choose();
            assert!(
                sample.ahead.abs() < 1e-9,
                "the next trial begins without the loss of the last"
            );
        }
    }

    #[test]
    fn leader_needs_a_lead_and_a_trial_a_clear_one() {
        let hits = |rule: usize, hits: f64| {
            let mut evidence = Evidence { references: 1_000.0, ..Evidence::default() };
            evidence.hits[rule] = hits;
            evidence.won = hits;
            evidence
        };
        let lead = 1_000.0 * MARGIN + LEAD;
        assert_eq!(hits(1, lead).leader(FIRST, TRIAL_LEAD), FIRST);
        assert_eq!(hits(1, lead + 1.0).leader(FIRST, TRIAL_LEAD), 1);
        assert_eq!(hits(WIDE, lead * WIDE_FACTOR).leader(FIRST, TRIAL_LEAD), FIRST);
        assert_eq!(hits(WIDE, lead * WIDE_FACTOR + 1.0).leader(FIRST, TRIAL_LEAD), WIDE);
        assert_eq!(hits(FREQUENT, TRIAL_LEAD - 1.0).leader(FIRST, TRIAL_LEAD), FIRST);
        let mut clear = hits(FREQUENT, TRIAL_LEAD);
        assert_eq!(clear.leader(FIRST, TRIAL_LEAD), FREQUENT);
        clear.lost = 1.0;
        assert_eq!(clear.leader(FIRST, TRIAL_LEAD), FIRST);
    }

    #[test]
    fn all_references_are_in_the_sample_of_a_small_cache_and_a_share_in_that_of_a_large_one() {
        for (slots, share) in [(SLOTS, 1.0), (SLOTS * 50, 0.02)] {
            let chooser = Chooser::new(slots);
            let count = 50_000;
            skewed(count, 7).for_each(|mark| chooser.refer(u64::from(mark), Access::Read));
            let fresh = (0..u64::from(count)).map(|key| (1 << 40) + key);
            let sampled = fresh.filter(|&key| hash(key) % (1 << SAMPLE_BITS) < chooser.threshold);
            let found = f64::from(u32::try_from(sampled.count()).unwrap()) / f64::from(count);
            assert!((found - share).abs() < 0.005, "{slots}: {found}");
        }
    }
}
