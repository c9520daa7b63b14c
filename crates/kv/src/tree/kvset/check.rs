//! Verifies a kvset as it lies on its medium, as `Builder::check` does with each.

use std::ops::ControlFlow;

use super::Kvset;
use crate::omf::page::{Entry, PAGE_SIZE};
use crate::types::error::KvError;
use crate::types::expiry::Expiries;
use crate::types::key::key_hash;

impl Kvset {
    /// Reads all pages again, verifies them, and hands each entry to `each`, which may end it. Returns how many entries that
    /// were, and the errors found. The kvset's own counts are compared when nothing else is wrong: a miscount follows
    /// from the loss of a page.
    pub(crate) fn check(
        &self,
        mut each: impl FnMut(&[u8], Entry<'_>) -> ControlFlow<()>,
    ) -> (u64, Vec<KvError>) {
        if let Some(damage) = &self.damage {
            return (0, vec![KvError::clone(damage)]);
        }
        let mut wrong = Vec::new();
        let (mut last, mut key): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        let mut entries = 0;
        let mut expiries = Expiries::NONE;
        for index in 0..self.edit.pages {
            let page = match self.read_pages(index, 1) {
                Ok(mut pages) => pages.remove(0),
                Err(error) => {
                    wrong.push(error);
                    continue;
                }
            };
            // One finding for a page: a fault of one key mostly is one of the next, too.
            let mut bad = None;
            for slot in 0..page.count() {
                page.key_to(slot, &mut key);
                if slot == 0 && key != self.index.key(index as usize) {
                    bad = bad.or(Some(("key page", "the page index has another first key")));
                }
                if entries > 0 && key <= last {
                    bad = bad.or(Some(("key page", "keys do not ascend")));
                }
                if !self.filter.may_contain(key_hash(&key)) {
                    bad = bad.or(Some(("filter", "a key is missing in it")));
                }
                let entry = page.entry(slot).1;
                expiries.add(entry.expiry());
                entries += 1;
                if each(&key, entry).is_break() {
                    return (entries, wrong);
                }
                std::mem::swap(&mut last, &mut key);
            }
            let at = u64::from(index) * PAGE_SIZE as u64;
            wrong.extend(bad.map(|(what, why)| self.keys.corrupt(what, at, why.into())));
        }
        if wrong.is_empty() {
            wrong.extend(self.miscounts(&last, entries, expiries));
        }
        (entries, wrong)
    }

    /// Returns the first statement of the kvset about its keys that is false, first things first.
    fn miscounts(&self, last: &[u8], entries: u64, expiries: Expiries) -> Option<KvError> {
        let detail = if last != self.last_key() {
            "the page index has another last key".into()
        } else if entries != self.edit.entries {
            format!("{} entries expected, {entries} found", self.edit.entries)
        } else if expiries != self.expiries {
            format!("{:?} expected, {expiries:?} found", self.expiries)
        } else {
            return None;
        };
        Some(self.keys.corrupt("kvset", 0, detail))
    }
}
