//! Which images of a history to look at.
//!
//! At every crash point, with `n` operations not durable (of all devices, in order):
//!
//! * when `n` is small, every subset of them; otherwise every prefix, all but one, only one, and
//!   random subsets;
//! * tears: the last operation torn after all before it; a random one torn among all others, and
//!   alone.
//!
//! Images equal to one of an earlier point are left out, as long as nothing became durable and
//! nothing was marked in between.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{LbaCount, Rng};

use crate::contents::Contents;
use crate::history::{History, Pending, Replay};
use crate::image::{Image, ImageId, Kept};
use crate::lba_set::LbaSet;

impl History {
    /// The images of `plan`, from the first crash point to the last.
    #[must_use]
    pub fn images(&self, plan: &Plan) -> Images {
        Images::new(self, plan)
    }
}

/// How thoroughly to enumerate. The same plan gives the same images of the same history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Up to this many operations that are not durable, every subset is an image; at most 16.
    pub all_subsets: u32,
    /// Beyond it, up to this many are dropped singly and kept singly, each; of more, random ones.
    pub singles: u32,
    /// Beyond it, how many random subsets there are at every crash point.
    pub random_subsets: u32,
    /// How many times an operation is torn in each way: a prefix, a suffix, and random LBAs kept.
    pub tears: u32,
    /// The seed of everything random.
    pub seed: u64,
}

impl Default for Plan {
    /// All subsets of up to 6 operations, up to 64 singles and 8 random subsets of more, one tear
    /// of each kind, seed 1.
    fn default() -> Plan {
        Plan { all_subsets: 6, singles: 64, random_subsets: 8, tears: 1, seed: 1 }
    }
}

/// The images of a history, lazily, from the first crash point to the last.
pub struct Images {
    history: History,
    plan: Plan,
    replay: Replay,
    started: bool,
    durable: Vec<Contents>,
    unflushed: Arc<[Pending]>,
    /// Operations kept in the images of this point still to come, the next one last.
    ahead: Vec<Vec<Kept>>,
    /// Operations kept in the images so far with the same durable contents and marks.
    seen: BTreeSet<Vec<Kept>>,
}

impl Images {
    pub(crate) fn new(history: &History, plan: &Plan) -> Images {
        Images {
            history: history.clone(),
            plan: plan.clone(),
            replay: Replay::new(history),
            started: false,
            durable: Vec::new(),
            unflushed: Arc::from([]),
            ahead: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Goes on to the next crash point; false after the last one.
    fn advance(&mut self) -> bool {
        if !self.started {
            self.started = true;
        } else if self.replay.point() == self.history.len() {
            return false;
        } else if self.replay.step() {
            self.seen.clear();
        }
        self.durable = self.replay.fork();
        self.unflushed = self.replay.unflushed().into();
        let mut point = Point::new(self);
        point.subsets();
        point.tears();
        self.ahead = point.images;
        self.ahead.retain(|kept| self.seen.insert(kept.clone()));
        self.ahead.reverse();
        true
    }
}

impl Iterator for Images {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        loop {
            if let Some(kept) = self.ahead.pop() {
                let point = self.replay.point();
                return Some(Image::new(
                    &self.history,
                    ImageId { point, kept },
                    self.durable.clone(),
                    self.unflushed.clone(),
                ));
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

/// The enumeration at one crash point.
struct Point<'a> {
    plan: &'a Plan,
    /// The operations that are not durable, and how many LBAs each has.
    operations: Vec<(usize, LbaCount)>,
    rng: Rng,
    images: Vec<Vec<Kept>>,
}

impl Point<'_> {
    fn new(images: &Images) -> Point<'_> {
        let all = &images.history.0.operations;
        let operations = images.unflushed.iter().map(|p| p.operation);
        let point = to_u64(images.replay.point());
        Point {
            plan: &images.plan,
            operations: operations.map(|o| (o, all[o].count)).collect(),
            rng: Rng::new(images.plan.seed ^ point.rotate_left(32)),
            images: Vec::new(),
        }
    }

    fn push(&mut self, keep: impl Fn(usize) -> bool) {
        let whole = self.operations.iter().enumerate();
        let kept = whole
            .filter(|(index, _)| keep(*index))
            .map(|(_, o)| Kept { operation: o.0, lbas: None });
        self.images.push(kept.collect());
    }

    fn subsets(&mut self) {
        let n = self.operations.len();
        if n <= to_usize(u64::from(self.plan.all_subsets.min(16))) {
            for subset in 0..1u32 << n {
                self.push(|index| subset >> index & 1 == 1);
            }
            return;
        }
        for prefix in 0..=n {
            self.push(|index| index < prefix);
        }
        let singles = to_usize(u64::from(self.plan.singles));
        for single in 0..n.min(singles) {
            let single = if n <= singles { single } else { to_usize(self.rng.below(to_u64(n))) };
            self.push(|index| index != single);
            self.push(|index| index == single);
        }
        for _ in 0..self.plan.random_subsets {
            let eighths = 1 + self.rng.below(7);
            let kept: Vec<bool> = (0..n).map(|_| self.rng.chance(eighths, 8)).collect();
            self.push(|index| kept[index]);
        }
    }

    fn tears(&mut self) {
        let n = self.operations.len();
        if n == 0 {
            return;
        }
        self.tear(n - 1, |_| true);
        let chosen = to_usize(self.rng.below(to_u64(n)));
        self.tear(chosen, |_| true);
        self.tear(chosen, |index| index == chosen);
    }

    /// Tears operation `torn`, which is among those to `keep`.
    fn tear(&mut self, torn: usize, keep: impl Fn(usize) -> bool) {
        let (operation, LbaCount(count)) = self.operations[torn];
        if count < 2 {
            return;
        }
        // By the operation, not the point: the tear of the next point is new only if it differs.
        let mut rng = Rng::new(self.plan.seed ^ to_u64(operation).rotate_left(16));
        for _ in 0..self.plan.tears {
            let cut = 1 + rng.below(count - 1);
            let random = LbaSet::random(count, &mut rng);
            for lbas in [LbaSet::range(0..cut), LbaSet::range(cut..count), random] {
                if lbas.is_empty() || lbas.count() == count {
                    continue; // not a tear
                }
                self.push(&keep);
                let mut kept = self.images.last_mut().expect("just pushed").iter_mut();
                let torn = kept.find(|kept| kept.operation == operation);
                torn.expect("it is to be kept").lbas = Some(lbas);
            }
        }
    }
}
