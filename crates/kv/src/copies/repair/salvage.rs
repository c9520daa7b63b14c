//! Writes salvaged data to the new KVDB, and keeps account of it.

use std::collections::{BTreeMap, BTreeSet};

use esker_base::progress::{Meter, Unit};

use super::gaps::{Gaps, OpenKeys, below};
use crate::api::kvdb::Kvdb;
use crate::api::kvs::Kvs;
use crate::copies::repair::report::{KeyRange, KvsRepair, ManifestState, RepairReport};
use crate::media::space::Purpose;
use crate::omf::frame::{Change, Record};
use crate::types::error::{KvError, Result, SALVAGE_ADVICE, go_on};
use crate::types::expiry::Expiry;
use crate::types::ids::KvsId;
use crate::types::key::key_hash;
use crate::types::policy::KvsOptions;
use crate::types::spans::Span;
use crate::write::put;
use crate::write::put::{size_with_expiry, with_expiry};

/// A batch is written when it holds so many bytes of records, if the new KVDB takes such batches.
const BATCH_BYTES: usize = 256 << 10;

/// The new KVDB and the account. Later puts hide earlier ones.
pub(crate) struct Salvage<'a> {
    into: &'a Kvdb,
    /// Records to be written together, as the log has them: an expiry stays as it was.
    batch: Vec<u8>,
    batch_max: usize,
    kvss: BTreeMap<KvsId, SalvagedKvs>,
    /// KVSs that were dropped: nothing is salvaged for them.
    dropped: &'a BTreeSet<KvsId>,
    /// Whether there are no others than were created: whatever else is found was dropped.
    knows_all: bool,
    /// KVSs that are there and of which nobody knew the name.
    invented: Vec<String>,
    findings: Distinct<String>,
    /// Whether keys may be lost that nobody knows of.
    lost_track: bool,
    /// When there are gaps, nothing else is salvaged, and nothing is reported.
    gaps: Option<Gaps>,
    /// Counts bytes that were read, then records that were salvaged.
    pub(super) meter: Meter<'static>,
}

/// A key, if there is one.
type Bound = Option<Vec<u8>>;

struct SalvagedKvs {
    kvs: Kvs,
    lost: BTreeSet<Vec<u8>>,
    /// The keys that bound each range: it lies behind the one and before the other.
    lost_ranges: Distinct<(Bound, Bound)>,
    /// By the hash of the key.
    uncertain: BTreeSet<u64>,
}

impl<'a> Salvage<'a> {
    pub(super) fn new(into: &'a Kvdb, dropped: &'a BTreeSet<KvsId>) -> Salvage<'a> {
        Salvage {
            into,
            batch: Vec::new(),
            batch_max: into.engine.log.tail().batch_max().min(BATCH_BYTES),
            kvss: BTreeMap::new(),
            dropped,
            knows_all: false,
            invented: Vec::new(),
            findings: Distinct::default(),
            lost_track: false,
            gaps: None,
            meter: into.engine.options.observer.meter("searching", None, Unit::Bytes),
        }
    }

    /// Makes a KVS for the damaged KVDB's KVS of this id.
    pub(super) fn create(&mut self, id: KvsId, name: &str, options: KvsOptions) -> Result<()> {
        // A name may have been given to a new KVS after the old one was dropped, and be too long for more.
        let names = [name.to_owned(), format!("{name}.{id}"), format!("kvs-{id}")];
        let mut names = names.into_iter().chain((1..).map(|n| format!("kvs-{id}.{n}")));
        let created = names.find_map(|name| match self.into.create_kvs(&name, options) {
            Err(KvError::KvsExists(_) | KvError::KvsName(_)) => None,
            result => Some(result),
        });
        let kvs = created.expect("there are more names than KVSs")?;
        let (lost, lost_ranges) = (BTreeSet::new(), Distinct::default());
        self.kvss.insert(id, SalvagedKvs { kvs, lost, lost_ranges, uncertain: BTreeSet::new() });
        Ok(())
    }

    /// Gives a KVS that was made its metadata.
    pub(super) fn set_metadata(&self, id: KvsId, metadata: &[u8]) -> Result<()> {
        self.kvss.get(&id).map_or(Ok(()), |target| target.kvs.set_metadata(metadata))
    }

    pub(super) fn is_dropped(&self, id: KvsId) -> bool {
        self.dropped.contains(&id) || self.knows_all && !self.kvss.contains_key(&id)
    }

    /// All KVSs that there are were created now.
    pub(super) fn know_all(&mut self) {
        self.knows_all = true;
    }

    /// The KVS of this id, made if nobody knows its name; `None` when it was dropped.
    fn target(&mut self, id: KvsId) -> Result<Option<&mut SalvagedKvs>> {
        if self.is_dropped(id) {
            return Ok(None);
        }
        if !self.kvss.contains_key(&id) {
            self.create(id, &format!("kvs-{id}"), KvsOptions::default())?;
            self.invented.push(self.kvss[&id].kvs.name().to_owned());
        }
        Ok(self.kvss.get_mut(&id))
    }

    /// Salvages into `gaps` alone: what goes on is done with no other key, and no finding of it is reported.
    pub(super) fn within(
        &mut self,
        gaps: Gaps,
        salvage: impl FnOnce(&mut Salvage<'a>) -> Result<()>,
    ) -> Result<()> {
        if gaps.is_empty() {
            return Ok(());
        }
        self.gaps = Some(gaps);
        salvage(self)?;
        self.gaps = None;
        self.write()
    }

    /// Whether a key is to be salvaged now.
    pub(super) fn wants(&self, kvs: KvsId, key: &[u8]) -> bool {
        self.gaps.as_ref().is_none_or(|gaps| gaps.hold(kvs, key))
    }

    /// The keys whose newest values are lost so far.
    pub(super) fn lost_keys(&self) -> Gaps {
        let mut gaps = Gaps::default();
        self.kvss.iter().for_each(|(kvs, target)| gaps.add_keys(*kvs, &target.lost));
        gaps
    }

    /// Repeats the change of a record of the damaged KVDB; a put has the same expiry.
    pub(super) fn apply(&mut self, record: &Record<'_>, expiry: Expiry) -> Result<()> {
        go_on(self.meter.add(1))?;
        let span = record.span();
        if let Some(gaps) = &self.gaps {
            match (&span, gaps.of(record.kvs)) {
                (_, None) => return Ok(()),
                (Some(span), Some(OpenKeys::Keys(keys))) => {
                    let covered = keys.iter().filter(|key| span.as_span().holds(key));
                    let covered: Vec<Vec<u8>> = covered.cloned().collect();
                    return covered.iter().try_for_each(|key| self.delete(record.kvs, key));
                }
                // Nothing is there yet but what lies in the ranges.
                (Some(_), Some(OpenKeys::Ranges(_))) => {}
                _ if gaps.hold(record.kvs, record.key) => {}
                _ => return Ok(()),
            }
        }
        let has_gaps = self.gaps.is_some();
        let Some(target) = self.target(record.kvs)? else { return Ok(()) };
        match span {
            // The newest value of such a key is lost, whatever is found.
            _ if has_gaps => {}
            Some(span) => target.lost.retain(|key| !span.as_span().holds(key)),
            None => drop(target.lost.remove(record.key)),
        }
        let record = Record { kvs: target.kvs.id, ..*record };
        self.into.engine.require(record.version())?;
        if self.batch.len() + size_with_expiry(record, expiry) > self.batch_max {
            self.write()?;
        }
        for record in with_expiry(record, expiry) {
            let start = self.batch.len();
            self.batch.resize(start + record.size(), 0);
            record.encode_to(&mut self.batch[start..]);
        }
        Ok(())
    }

    /// This is the version of the key from now on.
    pub(super) fn put(
        &mut self,
        kvs: KvsId,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<()> {
        self.apply(&Record { kvs, key, change: Change::Put(value) }, expiry)
    }

    /// The key is deleted from now on.
    pub(super) fn delete(&mut self, kvs: KvsId, key: &[u8]) -> Result<()> {
        self.apply(&Record { kvs, key, change: Change::Delete }, Expiry::NEVER)
    }

    /// Deletes the keys of `span` that are in `bounds`.
    pub(super) fn delete_span(
        &mut self,
        kvs: KvsId,
        span: Span<'_>,
        bounds: Span<'_>,
    ) -> Result<()> {
        if !span.is_prefix() || bounds.covers(span) {
            let part = span.within(bounds);
            return self.apply(&Record::delete_of(kvs, part), Expiry::NEVER);
        }
        // A part of a prefix is none, and the new KVDB may know of no ranges.
        self.write()?;
        let Some(target) = self.target(kvs)? else { return Ok(()) };
        let part = span.within(bounds);
        let mut keys: Vec<Vec<u8>> =
            target.lost.iter().filter(|key| part.holds(key)).cloned().collect();
        let mut cursor = target.kvs.cursor()?.keys_only();
        cursor.seek(part.lower)?;
        while let Some((key, _)) = cursor.next()?
            && part.holds(key)
        {
            keys.push(key.to_vec());
        }
        keys.iter().try_for_each(|key| self.delete(kvs, key))
    }

    /// Which prefixes and ranges were deleted from `lower` to below `upper` is not known any more.
    pub(super) fn lose_spans(
        &mut self,
        kvs: KvsId,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let (after, before) = (below(lower), upper.map(<[u8]>::to_vec));
        self.lose_range(kvs, KeyRange { after, before })
    }

    /// The newest version of the key is known to be there, and cannot be read.
    pub(super) fn lose(&mut self, kvs: KvsId, key: &[u8]) -> Result<()> {
        self.delete(kvs, key)?;
        if let Some(target) = self.target(kvs)? {
            target.lost.insert(key.to_vec());
        }
        Ok(())
    }

    /// Keys of a range are not known any more.
    pub(super) fn lose_range(&mut self, kvs: KvsId, range: KeyRange) -> Result<()> {
        if let Some(target) = self.target(kvs)? {
            target.lost_ranges.add((range.after, range.before));
        }
        Ok(())
    }

    /// Nobody can say which version of a key is the newest.
    pub(super) fn doubt(&mut self, kvs: KvsId, key: &[u8]) -> Result<()> {
        if !self.wants(kvs, key) {
            return Ok(());
        }
        if let Some(target) = self.target(kvs)? {
            target.uncertain.insert(key_hash(key));
        }
        Ok(())
    }

    /// Returns the value that the key has in the new KVDB so far.
    pub(super) fn so_far(&mut self, kvs: KvsId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.wants(kvs, key) {
            return Ok(None);
        }
        self.write()?;
        match self.target(kvs)? {
            Some(target) => Ok(target.kvs.get(key)?.map(Vec::from)),
            None => Ok(None),
        }
    }

    /// Adds a line to the report, without advice to repair: the repair is being done.
    pub(super) fn finding(&mut self, finding: String) {
        if self.gaps.is_none() {
            self.findings.add(finding.replace(SALVAGE_ADVICE, ""));
        }
    }

    pub(super) fn count_findings(&self) -> usize {
        self.findings.0.len()
    }

    /// Keys may be lost that nothing names.
    pub(super) fn lose_track(&mut self) {
        self.lost_track = true;
    }

    fn write(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let engine = &self.into.engine;
        for target in self.kvss.values() {
            put::admit(engine, target.kvs.id)?;
        }
        let mut rest = &self.batch[..];
        let records = std::iter::from_fn(|| {
            let record =
                (!rest.is_empty()).then(|| Record::decode(rest).expect("encoded above"))?;
            rest = &rest[record.size()..];
            Some(record)
        });
        put::write(engine, self.batch.len(), Purpose::User, records, |_| Ok(()))?;
        self.batch.clear();
        Ok(())
    }

    /// Makes everything durable and counts the keys.
    pub(super) fn finish(mut self, manifest: ManifestState) -> Result<RepairReport> {
        self.write()?;
        self.into.sync()?;
        let mut kvss = Vec::new();
        for SalvagedKvs { kvs, lost, lost_ranges, uncertain } in self.kvss.into_values() {
            let mut recovered = 0;
            let mut cursor = kvs.cursor()?.keys_only();
            while cursor.next()?.is_some() {
                recovered += 1;
            }
            let (mut old, mut gone) = (Vec::new(), Vec::new());
            for key in lost {
                let kept = if kvs.get(&key)?.is_some() { &mut old } else { &mut gone };
                kept.push(key);
            }
            let (name, lost) = (kvs.name().to_owned(), gone);
            let is_whole = manifest == ManifestState::Whole && !self.lost_track;
            let is_complete = is_whole && lost_ranges.0.is_empty();
            let range = |(after, before)| KeyRange { after, before };
            let lost_ranges = lost_ranges.in_order().into_iter().map(range).collect();
            let uncertain = uncertain.len() as u64;
            let known = KvsRepair { name, recovered, lost, old, ..KvsRepair::default() };
            kvss.push(KvsRepair { is_complete, lost_ranges, uncertain, ..known });
        }
        let findings = self.findings.in_order();
        let caveats = caveats(manifest, &kvss, &self.invented, &findings);
        Ok(RepairReport { manifest, kvss, findings, caveats })
    }
}

/// Each of them once, however many there are.
struct Distinct<T>(BTreeMap<T, usize>);

impl<T: Ord> Distinct<T> {
    fn add(&mut self, item: T) {
        let count = self.0.len();
        self.0.entry(item).or_insert(count);
    }

    /// In the order in which they came.
    fn in_order(self) -> Vec<T> {
        let mut items: Vec<(T, usize)> = self.0.into_iter().collect();
        items.sort_unstable_by_key(|(_, number)| *number);
        items.into_iter().map(|(item, _)| item).collect()
    }
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Distinct(BTreeMap::new())
    }
}

/// Facts about a result that cannot be known.
fn caveats(
    manifest: ManifestState,
    kvss: &[KvsRepair],
    invented: &[String],
    findings: &[String],
) -> Vec<String> {
    let mut caveats = Vec::new();
    let mut say = |applies: bool, caveat: &str| {
        if applies {
            caveats.push(caveat.to_owned());
        }
    };
    say(
        kvss.iter().any(|kvs| !kvs.lost_ranges.is_empty()),
        "pages of keys are lost: in the ranges of keys that are named, what the media hold was taken; keys may be \
         missing, values may be older than they were or have lost their time to live, and deleted keys may be back",
    );
    say(
        kvss.iter().any(|kvs| !kvs.old.is_empty()),
        "the newest values of some keys are lost, and older ones, which the media still held, stand for them: `old` \
         names these keys",
    );
    say(
        manifest == ManifestState::Whole && !findings.is_empty(),
        "the newest changes may be missing as well: damage of the last record of the manifest or of the \
         log cannot be told from a write that a crash has torn",
    );
    say(
        manifest == ManifestState::Damaged,
        "changes of the structure are lost with the end of the manifest: what they made was searched for \
         on the media, deleted keys may be back, values may be older than they were or have lost their time \
         to live, and keys may be missing without a finding",
    );
    say(
        manifest == ManifestState::Lost,
        "the manifest is lost, and with it what was alive: every version found on the media was taken, \
         and the newest one by the ids of the structures kept; deleted keys and dropped KVSs may be back, \
         values may be older than they were or have lost their time to live, and keys may be missing \
         without a finding",
    );
    let names = invented.join(", ");
    say(
        !invented.is_empty(),
        &format!(
            "names and policies of some KVSs are lost; these are called by their ids: {names}"
        ),
    );
    say(
        kvss.iter().any(|kvs| kvs.uncertain > 0),
        "of some keys several versions were found and none is surely the newest: `uncertain` counts them",
    );
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_findings_are_told_once_in_order() {
        let mut found = Distinct::default();
        [3, 1, 3, 2, 1, 0].into_iter().for_each(|item| found.add(item));
        assert_eq!(found.in_order(), [3, 1, 2, 0]);
    }
}
