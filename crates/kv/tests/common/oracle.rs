//! Content that a KVDB should hold: every version of every key, in the order in which they were written.
//!
//! A *moment* is one atomic write: moment *n* is the content of the KVDB after the first *n* writes, across
//! all KVSs. A snapshot is a moment; a crash leads back to one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of a KVS, which no other KVS ever has, and a key in it.
pub(crate) type Key = (u32, Vec<u8>);
pub(crate) type Value = Arc<[u8]>;
/// One write: a value, or a delete.
pub(crate) type Write = (Key, Option<Value>);

#[derive(Clone, Default)]
pub(crate) struct Oracle {
    /// Oldest first, each with its moment.
    versions: BTreeMap<Key, Vec<(usize, Option<Value>)>>,
    /// The keys that each moment wrote, from moment 1 on.
    moments: Vec<Vec<Key>>,
}

impl Oracle {
    /// The last moment.
    pub(crate) fn last(&self) -> usize {
        self.moments.len()
    }

    /// Writes all of `writes` at once.
    pub(crate) fn write(&mut self, writes: Vec<Write>) {
        let moment = self.last() + 1;
        let keys = writes.iter().map(|(key, _)| key.clone()).collect();
        for (key, value) in writes {
            self.versions.entry(key).or_default().push((moment, value));
        }
        self.moments.push(keys);
    }

    /// The value of `key` at `moment`.
    pub(crate) fn get(&self, key: &Key, moment: usize) -> Option<&Value> {
        let versions = self.versions.get(key)?;
        let at = versions.partition_point(|(written, _)| *written <= moment);
        versions[..at].last()?.1.as_ref()
    }

    /// Whether someone has written `key` after `moment`.
    pub(crate) fn is_newer(&self, key: &Key, moment: usize) -> bool {
        let last = self.versions.get(key).and_then(|versions| versions.last());
        last.is_some_and(|(written, _)| *written > moment)
    }

    /// All keys and values of a KVS at `moment`.
    pub(crate) fn content(&self, kvs: u32, moment: usize) -> BTreeMap<Vec<u8>, Value> {
        let ours = self.versions.range((kvs, Vec::new())..(kvs + 1, Vec::new()));
        let present = ours.filter_map(|(key, _)| Some((key, self.get(key, moment)?)));
        present.map(|(key, value)| (key.1.clone(), value.clone())).collect()
    }

    /// The last moment from `least` to `most` at which the KVSs `kvss` held exactly `found`; else how
    /// far that is from `most`.
    pub(crate) fn moment_of(
        &self,
        found: &BTreeMap<Key, Value>,
        kvss: &[u32],
        least: usize,
        most: usize,
    ) -> Result<usize, String> {
        let is_wrong = |key: &Key, moment| self.get(key, moment) != found.get(key);
        let known = self.versions.keys().filter(|key| kvss.contains(&key.0));
        let mut wrong: BTreeSet<&Key> =
            known.chain(found.keys()).filter(|key| is_wrong(key, most)).collect();
        let example = wrong.first().map(|(kvs, key)| format!("{kvs}/{}", key.escape_ascii()));
        let far = wrong.len();
        let mut moment = most;
        while !wrong.is_empty() {
            if moment <= least {
                let nearest = self.nearest(found, kvss);
                return Err(format!(
                    "{far} keys differ from moment {most}, {} from {least}, the first {}; {nearest}",
                    wrong.len(),
                    example.unwrap_or_default()
                ));
            }
            moment -= 1;
            for key in self.moments[moment].iter().filter(|key| kvss.contains(&key.0)) {
                if is_wrong(key, moment) {
                    wrong.insert(key);
                } else {
                    wrong.remove(key);
                }
            }
        }
        Ok(moment)
    }

    /// Says for a failure whether it is a moment at all.
    fn nearest(&self, found: &BTreeMap<Key, Value>, kvss: &[u32]) -> String {
        let differ = |moment| {
            let known = self.versions.keys().filter(|key| kvss.contains(&key.0));
            known.filter(|key| self.get(key, moment) != found.get(*key)).count()
        };
        let nearest = (0..=self.last()).min_by_key(|moment| differ(*moment)).unwrap_or(0);
        format!("nearest is moment {nearest} with {}", differ(nearest))
    }

    /// Forgets the writes after `moment`.
    pub(crate) fn go_back(&mut self, moment: usize) {
        for key in self.moments.drain(moment..).flatten() {
            let versions = self.versions.get_mut(&key).expect("it was written");
            versions.retain(|(written, _)| *written <= moment);
        }
    }
}
