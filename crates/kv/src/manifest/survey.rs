//! Reads the remains of a damaged manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::Lba;
use esker_device::Device;

use crate::manifest::medium::{ManifestDevice, Region};
use crate::manifest::state::State;
use crate::manifest::writer::Manifest;
use crate::omf::manifest::{Edit, KvsetEdit, RecordHeader};
use crate::types::error::{KvError, Result};
use crate::types::ids::{BlockId, Ids, KvsId, KvsetId};
use crate::types::policy::KvsOptions;

/// Contents that are left of a manifest.
#[derive(Default)]
pub(crate) struct Survey {
    /// The newest state that its records yield.
    pub(crate) state: Option<State>,
    /// Why that may not be the last one.
    pub(crate) damage: Option<String>,
    /// Names and policies of KVSs, from the state and from whatever record is newer and still tells; without
    /// a state, from all of them.
    pub(crate) names: BTreeMap<KvsId, (String, KvsOptions)>,
    /// KVSs that were dropped, as far as it can be told.
    pub(crate) dropped: BTreeSet<KvsId>,
    /// Blocks and kvsets that were named up to that state, whether they are in use then or not, and as far as
    /// it can be told.
    pub(crate) named: BTreeSet<u64>,
}

impl Survey {
    /// Whether a block or kvset may have been named only after the state. One with a lower id than others
    /// there may: a step that takes long commits after those that began later.
    pub(crate) fn may_be_later(&self, id: u64) -> bool {
        let last = self.state.as_ref().map_or(0, |state| state.last_id);
        Ids::may_be_named_after(id, last) && !self.named.contains(&id)
    }

    /// Adds the edits of records that are whole by themselves. Those before `behind`, an epoch and an index, are in
    /// the state.
    fn add_records(&mut self, mut medium: ManifestDevice, behind: (u64, u64)) {
        let mut records = Vec::new();
        for region in 0..2 {
            records.extend(medium.loose_records(region));
        }
        // Those of a KVDB that was here before have ids of their own, which are this one's as well.
        if let Some(state) = &self.state {
            records.retain(|(header, _)| header.uuid == state.uuid);
            self.names.clone_from(&state.kvss);
        }
        let at = |header: &RecordHeader| (header.epoch, header.index);
        records.sort_by_key(|(header, _)| at(header));
        for (header, edits) in records {
            for edit in edits {
                match edit {
                    Edit::Block { id: BlockId(id), .. }
                    | Edit::Kvset(KvsetEdit { id: KvsetId(id), .. })
                        if at(&header) < behind =>
                    {
                        self.named.insert(id);
                    }
                    Edit::Kvs { id, name, options } if at(&header) >= behind => {
                        self.names.insert(id, (name, options));
                    }
                    Edit::Kvs { id, .. } if !self.names.contains_key(&id) => {
                        self.dropped.insert(id);
                    }
                    Edit::KvsDropped { id } => {
                        self.dropped.insert(id);
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Manifest {
    /// Reads the remains of the manifest on `device`, and writes nothing.
    ///
    /// # Errors
    /// `Unsupported` when another release wrote it.
    pub(crate) fn survey(device: Arc<dyn Device>) -> Result<Survey> {
        let mut survey = Survey::default();
        let why = match Manifest::find(device.clone()) {
            Ok(Some(found)) => {
                survey.state = Some(found.state);
                survey.add_records(found.medium, (u64::MAX, 0));
                return Ok(survey);
            }
            Ok(None) => format!("{}: there is no valid manifest", device.name()),
            Err(error @ KvError::Version { .. }) => return Err(error),
            Err(error) => error.to_string(),
        };
        survey.damage = Some(why);
        // A device that cannot even be opened has told all it will.
        let Ok(mut medium) = ManifestDevice::open(device) else { return Ok(survey) };
        let regions = [medium.sound(0, u64::MAX)?, medium.sound(1, u64::MAX)?];
        let valid = regions.into_iter().filter(|region| region.records > 0);
        let newest = valid.max_by_key(|region| region.epoch);
        let behind = newest.as_ref().map_or((0, 0), |region| (region.epoch, region.records));
        survey.state = newest.map(|region| region.state);
        survey.add_records(medium, behind);
        Ok(survey)
    }
}

impl ManifestDevice {
    /// The first records of a region, `most` at most, as far as they can be read and applied.
    fn sound(&mut self, region: u64, most: u64) -> Result<Region> {
        let mut found = self.unread(region);
        while found.records < most {
            match self.advance(&mut found) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error @ KvError::Version { .. }) => return Err(error),
                // The state may hold a part of the record that failed.
                Err(_) => return self.sound(region, found.records),
            }
        }
        Ok(found)
    }

    /// Every record of a region that is whole by itself, wherever it lies.
    fn loose_records(&mut self, region: u64) -> Vec<(RecordHeader, Vec<Edit>)> {
        let (start, end) = (region * self.region_lbas, (region + 1) * self.region_lbas);
        let mut records = Vec::new();
        let mut lba = start;
        while lba < end {
            match self.try_record(Lba(lba), Lba(end)) {
                Ok(Some((header, edits, next))) => {
                    records.push((header, edits));
                    lba = next.0;
                }
                _ => lba += 1,
            }
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::class::MediaClass;
    use crate::types::extent::Extent;
    use crate::types::format::FormatVersion;
    use esker_base::codec::Encoder;
    use esker_base::{AlignedBuf, LbaCount};
    use esker_device::{MemoryDevice, Port};

    fn device() -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new("manifest", 2 << 20, 512))
    }

    fn kvs(id: u32) -> Edit {
        Edit::Kvs { id: KvsId(id), name: format!("kvs{id}"), options: KvsOptions::default() }
    }

    fn zero(device: &Arc<dyn Device>, lba: u64, lbas: usize) {
        let mut port = Port::open(&**device, 1).unwrap();
        port.write(Lba(lba), AlignedBuf::zeroed(lbas * 512), None).unwrap();
    }

    #[test]
    fn survey_keeps_all_before_an_inapplicable_record_and_nothing_of_it() {
        let device = device();
        let manifest =
            Manifest::create(device.clone(), (FormatVersion::V1, [1; 16]), vec![kvs(1)]).unwrap();
        manifest.commit(vec![kvs(2)]).unwrap();
        let mut payload = Encoder::default();
        let edits = [kvs(3), Edit::KvsetRemoved { id: KvsetId(77) }];
        edits.iter().for_each(|edit| edit.encode_to(&mut payload));
        assert!(manifest.writer.lock().append(&payload.0).unwrap());
        manifest.commit(vec![kvs(4)]).unwrap();
        assert!(Manifest::read(&device).is_err());
        let survey = Manifest::survey(device).unwrap();
        let sound: Vec<u32> = survey.state.unwrap().kvss.into_keys().map(|id| id.0).collect();
        assert_eq!(sound, [1, 2]);
        assert!(survey.damage.unwrap().contains("kvset 77"));
    }

    #[test]
    fn records_of_a_kvdb_that_was_there_before_say_nothing() {
        let device = device();
        // Its snapshot is so large that many records follow in the same region.
        let kvss = [1].into_iter().chain(1000..6000).map(kvs).collect();
        let former = Manifest::create(device.clone(), (FormatVersion::V1, [1; 16]), kvss).unwrap();
        (10..810).for_each(|id| former.commit(vec![kvs(id)]).unwrap());
        former.commit(vec![Edit::KvsDropped { id: KvsId(1) }]).unwrap();
        // So far behind the end that opening does not look there.
        zero(&device, 0, 800);
        let manifest =
            Manifest::create(device.clone(), (FormatVersion::V1, [2; 16]), vec![kvs(1)]).unwrap();
        (2..5).for_each(|id| manifest.commit(vec![kvs(id)]).unwrap());
        assert!(Manifest::read(&device).is_ok());
        zero(&device, 1, 1);
        let survey = Manifest::survey(device).unwrap();
        assert!(survey.damage.is_some() && survey.dropped.is_empty(), "{:?}", survey.dropped);
        assert_eq!(survey.names.into_keys().map(|id| id.0).collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn a_kvs_that_was_dropped_before_the_sound_state_is_not_back_by_an_older_record() {
        let device = device();
        let begin = || Manifest::find(device.clone()).unwrap().unwrap().begin(|| Ok(())).unwrap();
        Manifest::create(device.clone(), (FormatVersion::V1, [1; 16]), vec![kvs(1)]).unwrap();
        let manifest = begin();
        manifest.commit(vec![kvs(2)]).unwrap();
        manifest.commit(vec![kvs(3)]).unwrap();
        begin().commit(vec![Edit::KvsDropped { id: KvsId(3) }]).unwrap();
        // It leaves the record in which the third one was made, and the next one has that of its drop.
        begin().commit(vec![kvs(4)]).unwrap();
        begin().commit(vec![kvs(5)]).unwrap();
        zero(&device, 0, 1);
        let survey = Manifest::survey(device).unwrap();
        assert_eq!(
            survey.state.unwrap().kvss.into_keys().map(|id| id.0).collect::<Vec<_>>(),
            [1, 2, 4]
        );
        assert_eq!(survey.names.into_keys().map(|id| id.0).collect::<Vec<_>>(), [1, 2, 4, 5]);
        assert_eq!(survey.dropped.into_iter().map(|id| id.0).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn structure_named_once_is_not_named_later() {
        let device = device();
        let extent = Extent { class: MediaClass::Capacity, lba: Lba(8), count: LbaCount(8) };
        let block =
            |id| Edit::Block { id: BlockId(id), extent, log: false, bytes: 0, plain_bytes: 0 };
        let manifest =
            Manifest::create(device.clone(), (FormatVersion::V1, [1; 16]), Vec::new()).unwrap();
        // No kvset refers to them, so each is gone at once.
        for id in [9990, 10_000, 9980, 9970] {
            manifest.commit(vec![block(id)]).unwrap();
        }
        zero(&device, 3, 1);
        let survey = Manifest::survey(device).unwrap();
        assert!(survey.damage.is_some() && survey.state.as_ref().unwrap().blocks.is_empty());
        let ids = [5904, 5905, 9970, 9980, 9990, 10_000, 10_001];
        let later = ids.map(|id| survey.may_be_later(id));
        assert_eq!(later, [false, true, true, true, false, false, true]);
    }
}
