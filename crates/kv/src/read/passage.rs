//! A passage: how a walk gets from one row to the next over keys that are deleted or have expired.
//!
//! It goes key by key, and tells others of the ranges it has found
//! ([`DeadRanges`](crate::tree::dead_ranges::DeadRanges)); or over a range of keys at once, where others have.

use std::ops::Bound;
use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::tree::dead_ranges::{DeadPart, Scout, successor};
use crate::tree::source::{AnySource, Merge, Source};
use crate::tree::view::Tree;
use crate::types::error::Result;
use crate::types::ids::{KvsId, Seqno};

/// The walk of a passage, in one direction.
#[derive(Clone, Copy)]
pub(super) struct PassageOf<'e> {
    pub(super) engine: &'e Engine,
    pub(super) tree: Option<&'e Arc<Tree>>,
    pub(super) kvs: KvsId,
    pub(super) seqno: Seqno,
    pub(super) now_ms: u64,
    pub(super) forward: bool,
    /// Sources of the merge that only this walk has.
    pub(super) own: usize,
}

/// A passage; it begins anew at each row.
pub(super) struct Passage<'e> {
    walk: PassageOf<'e>,
    /// Keys since the last row or range, and in all.
    steps: u64,
    passed: u64,
    scout: Option<Scout<'e>>,
    /// The part that the scout has found and not added yet: from which bound on, and up to which key.
    from: Vec<u8>,
    last: Vec<u8>,
    keys: u64,
    has_expired: bool,
    /// How many of the keys a memtable had.
    young: u64,
    /// Whether that begins where a range ends.
    is_next_to_range: bool,
}

/// So many keys in a row are worth a scout.
const FEW: u64 = 4;
/// And so many are walked before it is asked again whether others know more.
const MANY: u64 = 64;
/// To pass over a range takes as long as so many keys.
const RANGE_STEPS: u64 = 16;

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.passed > 0 {
            self.walk.engine.counters.passed_keys.add(self.passed);
        }
    }
}

impl<'e> Passage<'e> {
    pub(super) fn new(walk: PassageOf<'e>) -> Passage<'e> {
        Passage {
            walk,
            steps: 0,
            passed: 0,
            scout: None,
            from: Vec::new(),
            last: Vec::new(),
            keys: 0,
            has_expired: false,
            young: 0,
            is_next_to_range: false,
        }
    }

    /// Passes over the key that the merge is on, and perhaps others.
    pub(super) fn go_on(&mut self, merge: &mut Merge<AnySource>, has_expired: bool) -> Result<()> {
        (self.steps, self.passed) = (self.steps + 1, self.passed + 1);
        let asks = match self.steps {
            1 => self.walk.engine.dead_ranges.is_watched(),
            steps => steps % MANY == FEW,
        };
        if self.steps.is_multiple_of(MANY) {
            self.walk.engine.life.check_open()?;
        }
        if asks && self.pass_range(merge)? {
            return Ok(());
        }
        if self.scout.is_some() {
            self.last.clear();
            self.last.extend_from_slice(merge.key().expect("on a key"));
            self.keys += 1;
            self.has_expired |= has_expired;
            self.young += u64::from(merge.is_young());
        }
        if self.walk.forward { merge.next() } else { merge.prev() }
    }

    /// Comes to a row, or to the end of the walk.
    pub(super) fn end(&mut self, merge: &Merge<AnySource>) {
        if self.steps > 0 || self.scout.is_some() {
            self.tell(merge, None);
            (self.scout, self.steps) = (None, 0);
        }
    }

    /// Goes to the end of the range in which the merge is, if it is known to be in one. Else it is about to find out.
    /// Whether the merge has moved.
    fn pass_range(&mut self, merge: &mut Merge<AnySource>) -> Result<bool> {
        let PassageOf { engine, tree, kvs, seqno, now_ms, forward, own } = self.walk;
        let key = merge.key().expect("on a key");
        let Some((lower, end)) = engine.dead_ranges.around(kvs, key, (seqno, now_ms)) else {
            if self.steps >= FEW && self.scout.is_none() {
                let key = key.to_vec();
                self.begin(&key, merge);
                if self.scout.is_some() {
                    merge.look_again(Bound::Included(&key));
                }
                self.from = if forward { key } else { successor(&key) };
                (self.keys, self.has_expired, self.young) = (0, false, 0);
                self.is_next_to_range = false;
            }
            return Ok(false);
        };
        if let Some(tree) = tree {
            tree.note_passed(key, key, RANGE_STEPS);
        }
        let (near, far) = if forward { (lower, end) } else { (end, lower) };
        self.tell(merge, Some(&near));
        let begins = self.scout.is_none();
        if begins {
            self.begin(&far, merge);
        }
        // Keys that only this walk has stay: one may have been passed over already.
        let stood_on = merge.key().expect("on a key").to_vec();
        merge.pass_to(&far, own)?;
        let moved = merge.key() != Some(&stood_on[..]);
        if begins && self.scout.is_some() {
            merge.look_again(if forward { Bound::Included(&far) } else { Bound::Excluded(&far) });
        }
        (self.from, self.is_next_to_range) = (far, true);
        (self.keys, self.has_expired, self.young, self.steps) = (0, false, 0, 0);
        // Ranges begin the count of steps anew.
        engine.life.check_open()?;
        Ok(moved)
    }

    /// Sends a scout from a key, if later puts can be known.
    fn begin(&mut self, from: &[u8], merge: &Merge<AnySource>) {
        let PassageOf { engine, kvs, forward, own, .. } = self.walk;
        let begin = |without_writer| engine.dead_ranges.scout(kvs, from, forward, without_writer);
        if own > 0 {
            return;
        }
        let scout = begin(false).or_else(|| {
            let _log = engine.log.try_tail()?;
            begin(true)
        });
        // The walk looks again where keys were put meanwhile.
        let active = &engine.view.load().active;
        let is_there = merge.youngest().is_some_and(|youngest| Arc::ptr_eq(youngest, active));
        self.scout = scout.filter(|_| is_there);
    }

    /// Adds the range that was found, up to the bound of a range if there is one.
    fn tell(&mut self, merge: &Merge<AnySource>, range: Option<&[u8]>) {
        let Some(scout) = &self.scout else { return };
        if self.keys == 0 {
            return;
        }
        let PassageOf { tree, kvs, seqno, now_ms, forward, .. } = self.walk;
        if let Some(tree) = tree {
            let (a, b) = (&self.from[..], &self.last[..]);
            tree.note_passed(a.min(b), a.max(b), self.keys);
        }
        if let Some(youngest) = merge.youngest() {
            youngest.note_passed(self.young);
        }
        // One that is put later than this walk sees is none that others pass over.
        let newer = merge.newer();
        if newer == Seqno::MAX {
            return;
        }
        let behind = successor(&self.last);
        let (lower, end) = match forward {
            true => (&self.from[..], range.unwrap_or(&behind)),
            false => (range.unwrap_or(&self.last), &self.from[..]),
        };
        let found = DeadPart {
            kvs,
            lower,
            end,
            seqno: seqno.max(newer),
            time_ms: if self.has_expired { now_ms } else { 0 },
            keys: self.keys,
        };
        scout.add(&found, self.is_next_to_range && range.is_some());
    }
}
