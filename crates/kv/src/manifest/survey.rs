//! Reads what is left of a damaged manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::Lba;
use esker_device::Device;

use super::{Manifest, Medium, State};
use crate::KvsOptions;
use crate::error::{KvError, Result};
use crate::omf::manifest::{Edit, RecordHeader};

/// What is left of a manifest.
#[derive(Default)]
pub(crate) struct Survey {
    /// The newest state that its records yield.
    pub(crate) state: Option<State>,
    /// Why that may not be the last one.
    pub(crate) damage: Option<String>,
    /// Names and policies of KVSs, from whatever record still tells, the newest one last.
    pub(crate) names: BTreeMap<u32, (String, KvsOptions)>,
    /// KVSs that were dropped.
    pub(crate) dropped: BTreeSet<u32>,
}

impl Manifest {
    /// Reads what is left of the manifest on `device`, and writes nothing.
    ///
    /// # Errors
    /// `Unsupported` when another release wrote it.
    pub(crate) fn survey(device: Arc<dyn Device>) -> Result<Survey> {
        let why = match Manifest::find(device.clone()) {
            Ok(Some(found)) => {
                let names = found.state.kvss.clone();
                return Ok(Survey { state: Some(found.state), names, ..Survey::default() });
            }
            Ok(None) => format!("{}: there is no valid manifest", device.name()),
            Err(error @ KvError::Version { .. }) => return Err(error),
            Err(error) => error.to_string(),
        };
        let mut survey = Survey { damage: Some(why), ..Survey::default() };
        // A device that cannot even be opened has told all it will.
        let Ok(mut medium) = Medium::open(device) else { return Ok(survey) };
        let regions = [0, 1].map(|region| medium.region(region).ok().and_then(|it| it.valid));
        let newest = regions.into_iter().flatten().max_by_key(|(epoch, _)| *epoch);
        survey.state = newest.map(|(_, state)| state);
        let mut records = Vec::new();
        for region in 0..2 {
            records.extend(medium.loose_records(region));
        }
        records.sort_by_key(|(header, _)| (header.epoch, header.index));
        for edit in records.into_iter().flat_map(|(_, edits)| edits) {
            match edit {
                Edit::Kvs { id, name, options } => drop(survey.names.insert(id, (name, options))),
                Edit::KvsDropped { id } => drop(survey.dropped.insert(id)),
                _ => {}
            }
        }
        Ok(survey)
    }
}

impl Medium {
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
