//! Repair: the sound data of a damaged KVDB, written to a new one; and an account of the rest.
//!
//! Nothing is written to the damaged KVDB. Structures that can be verified are replayed, the oldest first, into a
//! new KVDB: so the newest version of each key is the one that stays.
//!
//! | manifest | structures read | in which order |
//! | --- | --- | --- |
//! | whole | those it names: kvsets, values, the log | its own: leaves, root, log |
//! | damaged, or older than the media | those its newest sound region names; and those that lie on the media and are younger, or may be | then by id, and the log by seqno |
//! | lost | every page, value frame and log frame on the media | by id, and the log by seqno |
//!
//! | file | content |
//! | --- | --- |
//! | `repair/salvage.rs` | writes to the new KVDB, and keeps account |
//! | `repair/named.rs` | structures that a manifest names |
//! | `repair/gaps.rs` | keys that these leave open |
//! | `repair/scan.rs` | structures that lie on the media, named or not |
//! | `repair/log.rs` | frames of the log, in the order of their seqnos |
//! | `repair/unnamed.rs` | puts the structures found by scanning in an order |
//!
//! Invariants
//! 1. Every value in the new KVDB was once put under its key: its checksum says so.
//! 2. When the newest version of a key is known and cannot be read, the key is reported as lost; or as old, when the
//!    media hold an older version, which then stands for it.
//! 3. Where an older version or a deleted key may have come back, the report says so: by ranges of keys
//!    when pages were lost, for the whole KVDB when the manifest was.
//! 4. Of a key that structures named by the manifest leave open, all is salvaged that a repair without the manifest
//!    would find: no key is missing that such a repair would have found alive.
//! 5. Records that a killed process has left in `tail.esker` are the newest ones. They are salvaged where a sound part of
//!    the manifest says whose KVDB it is.
//! 6. The new KVDB gets its manifest last: a repair that was interrupted leaves none that opens.

mod gaps;
mod log;
mod named;
pub(crate) mod report;
pub(crate) mod salvage;
pub(crate) mod scan;
mod unnamed;

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::progress::Unit;
use esker_device::{Device, MemoryDevice};

use crate::api::builder::Builder;
use crate::api::kvdb::Kvdb;
use crate::api::location::Made;
use crate::copies::repair::report::{ClassesLeft, ManifestState, RepairReport};
use crate::manifest::survey::Survey;
use crate::manifest::writer::Manifest;
use crate::media::class::Media;
use crate::recover::devices::{Devices, Remains};
use crate::recover::open;
use crate::types::class::MediaClass;
use crate::types::error::Result;
use crate::types::ids::{KvsId, Seqno};
use crate::types::options::Options;
use crate::types::policy::KvsOptions;
use salvage::Salvage;
use scan::Scanned;

impl Builder {
    /// Writes all sound data of a damaged KVDB to a new one, which is made as [`Builder::create`] makes one. The damaged
    /// KVDB is not changed.
    ///
    /// Nothing is there to be opened until all of it is durable: after a failure or a crash, the place holds
    /// no KVDB, and the call may be repeated; after a failure the files that it made are gone.
    ///
    /// Takes as long as reading all of it and writing it again. It needs room for versions of keys that
    /// are overwritten in the end, and memory beside [`Options::memory_bytes`]: for the new manifest, some
    /// 50 bytes for each frame and 32 for each page of keys that the media hold, whoever named them. Frames
    /// count twice if they are the log's, and all do where the manifest is damaged or lost. Then it takes
    /// also 32 bytes for each record of the log that is not known to be ingested; and 40 for each value that
    /// pages refer to which were written after the manifest's sound part, or, where it is lost, for each of
    /// those that expires. Values of up to 16 bytes are in the pages.
    ///
    /// # Errors
    /// `Exists` when there is a KVDB or data already, `Invalid` for options that cannot work, `Unsupported`
    /// when another release wrote the remains, or an error of the new one. Damage of the remains is no error: it is
    /// in the report.
    pub fn repair(self, remains: &Remains) -> Result<RepairReport> {
        self.options.check_to_create()?;
        let made = self.location.make()?;
        let report = repair(remains, &made, self.options)?;
        made.keep();
        Ok(report)
    }
}

/// Repairs to new devices, whose classes are known as `paths`. As with a backup, class headers are written
/// when all else is durable, and the manifest after them; until then it is in memory.
fn repair(remains: &Remains, to: &Made, options: Options) -> Result<RepairReport> {
    let Made { devices, classes: paths, .. } = to;
    let (geometry, name) = (devices.manifest.geometry(), devices.manifest.name());
    let bytes = geometry.capacity.bytes(geometry.lba_size);
    let draft = Arc::new(MemoryDevice::new(name, bytes, geometry.lba_size));
    let drafted = Devices { manifest: draft, ..devices.clone() };
    open::create(&drafted, paths, to.uuid(), &options)?;
    let classes = devices.classes(&options);
    let into = Kvdb::start(drafted, None, options)?;
    let engine = into.engine.clone();
    engine.classes.all().iter().try_for_each(|media| media.clear_header())?;
    let report = salvage(remains, &into)?;
    into.close()?;
    let state = engine.manifest.state();
    open::found(&classes, &devices.manifest, (state.version, state.uuid), state.edits())?;
    Ok(report)
}

/// Writes all sound data to `into`, which has no KVSs.
fn salvage(remains: &Remains, into: &Kvdb) -> Result<RepairReport> {
    let mut survey = match &remains.manifest {
        Some(device) => Manifest::survey(device.clone())?,
        None => Survey { damage: Some("the manifest is missing".into()), ..Survey::default() },
    };
    let options = Options::default();
    let tuning = options.tuning();
    let media = |(class, (device, _)): (&MediaClass, &(Arc<dyn Device>, u64))| {
        (*class, Arc::new(Media::new(*class, device.clone(), &tuning, &options.clock)))
    };
    let classes: ClassesLeft = remains.classes.iter().map(media).collect();
    let mut salvage = Salvage::new(into, &survey.dropped);
    let mut found = Scanned::of(&classes, remains, survey.state.as_ref(), &mut salvage)?;
    // As far as the manifest knows how many there are.
    let records =
        survey.state.as_ref().map(|state| state.kvsets.values().map(|one| one.entries).sum());
    salvage.meter.begin("salvaging", records, Unit::Records);
    if survey.damage.is_none() {
        survey.damage = found.newer_than(&survey);
    }
    for (id, name, options) in to_create(&survey) {
        salvage.create(id, name, options)?;
        let state = survey.state.as_ref();
        if let Some(metadata) = state.and_then(|state| state.metadata.get(&id)) {
            salvage.set_metadata(id, metadata)?;
        }
    }
    if survey.damage.is_none() {
        salvage.know_all();
    }
    let manifest = match (&survey.damage, &survey.state) {
        (None, _) => ManifestState::Whole,
        (Some(_), Some(_)) => ManifestState::Damaged,
        (Some(_), None) => ManifestState::Lost,
    };
    let mut last = Seqno::ZERO;
    // What a repair would find that knows of no manifest.
    let unknown = Survey::default();
    if let Some(state) = &survey.state {
        let owners = state.kvsets.values().map(|kvset| (kvset.id, kvset.kvs));
        found.owners.extend(owners);
        for media in state.classes.keys().filter_map(|class| classes.get(class)) {
            // It says nothing that is needed here; but an open would stop at it.
            if let Err(error) = media.check_header(state.uuid) {
                salvage.finding(error.to_string());
                salvage.lose_track();
            }
        }
        // Below what is named, because that is known to be newer.
        let gaps = named::gaps(&salvage, state, &classes);
        salvage.within(gaps, |salvage| unnamed::salvage(salvage, &unknown, &found).map(drop))?;
        last = named::salvage(&mut salvage, state, &classes, &found)?;
    }
    if let Some(damage) = &survey.damage {
        salvage.finding(damage.clone());
        last = last.max(unnamed::salvage(&mut salvage, &survey, &found)?);
    }
    let lost = salvage.lost_keys();
    salvage.within(lost, |salvage| unnamed::salvage(salvage, &unknown, &found).map(drop))?;
    if let (Some(state), Some(dir)) = (&survey.state, &remains.directory) {
        log::replay_left(&mut salvage, dir, state.uuid, (found.newest_log(state), last))?;
    }
    salvage.finish(manifest)
}

/// The KVSs that are to be there again. Of those that had the same name the newest comes first, which keeps it:
/// the others were dropped before, and nothing is left that says so.
fn to_create(survey: &Survey) -> Vec<(KvsId, &str, KvsOptions)> {
    let left = survey.names.iter().filter(|(id, _)| !survey.dropped.contains(id));
    let left: Vec<_> = left.map(|(id, (name, options))| (*id, &name[..], *options)).collect();
    let newest: BTreeMap<&str, KvsId> = left.iter().map(|(id, name, _)| (*name, *id)).collect();
    let (keep, lose): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|(id, name, _)| newest[name] == *id);
    [keep, lose].concat()
}
