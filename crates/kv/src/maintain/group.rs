//! Groups of small steps, as a log has group commits: they run together, with a flush and a record of the manifest for
//! all of them, because these are most of the cost of a small step. Where there are thousands of KVSs, most have nothing
//! else to do.
//!
//! Each of them is of another KVS, so none is in another one's way: the plan for one holds until all are
//! installed.

use std::collections::BTreeSet;
use std::mem::discriminant;

use crate::engine::job::Job;
use crate::tree::view::View;
use crate::types::ids::LeafId;

/// A group has so many steps at most: ingest waits for the manifest meanwhile.
const MOST: usize = 256;
/// All that spill together have at most this part of the bytes that make a spill due.
const PART: u64 = 4;

/// The size below which a root or a step is small, in bytes.
const SMALL_MOST: u64 = 256 << 10;

/// The most that a root holds, or a step has before it, that is small beside the work of a KVDB, in bytes.
pub(crate) fn small_bytes(spill_bytes: u64) -> u64 {
    (spill_bytes / 64).min(SMALL_MOST)
}

/// Whether other steps may be grouped with this one, where so many bytes make a spill due.
pub(crate) fn is_small(view: &View, job: &Job, spill_bytes: u64) -> bool {
    bytes_of(view, job) <= small_bytes(spill_bytes)
}

/// The steps that are grouped with `first`: of those `after` it the small ones of its kind, if it is small itself.
pub(crate) fn grouped_with(
    first: &Job,
    after: &mut dyn Iterator<Item = Job>,
    view: &View,
    spill_bytes: u64,
) -> Vec<Job> {
    let mut left = spill_bytes / PART;
    let mut takes = |job: &Job| {
        let bytes = bytes_of(view, job);
        let fits = bytes <= small_bytes(spill_bytes).min(left);
        left = if fits { left - bytes } else { left };
        fits
    };
    if !takes(first) {
        return Vec::new();
    }
    let mut kvss = BTreeSet::from([first.kvs()]);
    let like_it = after.filter(|job| discriminant(job) == discriminant(first));
    like_it
        .filter(|job| !kvss.contains(&job.kvs()) && takes(job) && kvss.insert(job.kvs()))
        .take(MOST - 1)
        .collect()
}

/// The bytes that a step has before it.
fn bytes_of(view: &View, job: &Job) -> u64 {
    let Some(tree) = view.tree(job.kvs()) else { return u64::MAX };
    let leaves = |ids: &[LeafId]| {
        let kvsets =
            tree.leaves.iter().filter(|leaf| ids.contains(&leaf.id)).flat_map(|leaf| &leaf.kvsets);
        kvsets.map(|kvset| kvset.weight()).sum()
    };
    match job {
        Job::Spill { .. } => tree.root_bytes,
        Job::Merge { newest, .. } => tree.root[..*newest].iter().map(|kvset| kvset.weight()).sum(),
        Job::Join { leaf, next, .. } => leaves(&[*leaf, *next]),
        Job::Compact { leaf, .. }
        | Job::Split { leaf, .. }
        | Job::Collect { leaf, .. }
        | Job::Sort { leaf, .. }
        | Job::Expire { leaf, .. } => leaves(&[*leaf]),
    }
}
