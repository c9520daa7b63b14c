//! Claims: the nodes of trees that steps under way work on. Two steps run at the same time if neither takes away
//! nodes that the other one reads, and neither moves a bound between leaves that the other one writes to.
//!
//! A step is chosen, planned and claimed under one lock, and its claim ends after its output was published: so a plan
//! holds until it is installed.

use std::collections::{BTreeMap, BTreeSet};

use crate::sync::{Mutex, MutexGuard};
use crate::types::ids::{KvsId, LeafId};

/// The nodes of a tree that a step works on; the root is one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) kvs: KvsId,
    /// Those that lose kvsets.
    pub(crate) inputs: BTreeSet<LeafId>,
    /// Those that get one, or end.
    pub(crate) outputs: BTreeSet<LeafId>,
    /// Whether leaves begin or end.
    pub(crate) moves_bounds: bool,
}

impl Claim {
    fn conflicts(&self, other: &Claim) -> bool {
        let works_on = |node: &LeafId| other.inputs.contains(node) || other.outputs.contains(node);
        let shares_any = || self.inputs.iter().chain(&self.outputs).any(works_on);
        self.kvs == other.kvs
            && (!self.inputs.is_disjoint(&other.inputs)
                || (self.moves_bounds || other.moves_bounds) && shares_any())
    }
}

/// The claims of all steps under way.
#[derive(Default)]
pub(crate) struct Claims {
    /// Those of each step, by its number.
    under_way: BTreeMap<u64, Vec<Claim>>,
    /// Damaged nodes, on which no step works.
    kept: Vec<Claim>,
    last: u64,
}

impl Claims {
    /// Whether a step may begin.
    pub(crate) fn allow(&self, claim: &Claim) -> bool {
        let mut others = self.under_way.values().flatten().chain(&self.kept);
        !others.any(|other| claim.conflicts(other))
    }

    /// Keeps nodes from all steps for good; but what is written to them goes on.
    pub(crate) fn keep(&mut self, kvs: KvsId, nodes: BTreeSet<LeafId>) {
        let outputs = BTreeSet::new();
        self.kept.push(Claim { kvs, inputs: nodes, outputs, moves_bounds: false });
    }

    /// Claims the nodes that the steps of one worker need, until the claim is dropped.
    pub(crate) fn add<'c>(
        mut claims: MutexGuard<'c, Claims>,
        lock: &'c Mutex<Claims>,
        of: Vec<Claim>,
    ) -> Claimed<'c> {
        claims.last += 1;
        let number = claims.last;
        claims.under_way.insert(number, of);
        Claimed { claims: lock, number }
    }
}

/// A claim that holds.
pub(crate) struct Claimed<'c> {
    claims: &'c Mutex<Claims>,
    number: u64,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.claims.lock().under_way.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u64 = LeafId::ROOT.0;

    fn claim(kvs: u32, inputs: &[u64], outputs: &[u64], moves_bounds: bool) -> Claim {
        let nodes = |ids: &[u64]| ids.iter().map(|&id| LeafId(id)).collect();
        Claim { kvs: KvsId(kvs), inputs: nodes(inputs), outputs: nodes(outputs), moves_bounds }
    }

    #[test]
    fn steps_run_together_that_are_not_in_each_others_way() {
        let lock = Mutex::new(Claims::default());
        let spill = claim(1, &[ROOT], &[5, 6, 7], false);
        let claimed = Claims::add(lock.lock(), &lock, vec![spill.clone()]);
        let allows = |claim: &Claim| lock.lock().allow(claim);
        assert!(!allows(&spill), "one root is spilled once at a time");
        assert!(!allows(&claim(1, &[ROOT], &[ROOT], false)), "nor merged meanwhile");
        assert!(allows(&claim(2, &[ROOT], &[5], false)), "another tree");
        assert!(allows(&claim(1, &[6], &[6], false)), "a leaf's kvsets are older");
        assert!(!allows(&claim(1, &[6], &[6, 9], true)), "a split moves a bound of the spill");
        let leaf = claim(1, &[6], &[6], false);
        let of_leaf = Claims::add(lock.lock(), &lock, vec![leaf.clone()]);
        assert!(!allows(&leaf) && allows(&claim(1, &[7], &[7], false)));
        drop(claimed);
        assert!(allows(&spill), "the leaf under way gets something newer");
        assert!(!allows(&claim(1, &[6, 7], &[6, 7], true)), "a join of what is worked on");
        assert!(allows(&claim(1, &[5], &[5, 8], true)), "a split of another leaf");
        drop(of_leaf);
        assert!(allows(&claim(1, &[6, 7], &[6, 7], true)));
    }
}
