//! Copies of a database: backup and restore, and repair.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use esker_base::ErrorKind;
use esker_base::units::{counted, human_bytes, to_u64};
use esker_device::{Device, FileDevice, FileOptions, MemoryDevice};
use esker_kv::{
    KvError, Kvdb, KvsRepair, ManifestState, MediaClass, Options, Remains, RepairReport,
};

use crate::args::{Medium, Staging};
use crate::failure::{Failure, Result};
use crate::figures::grouped;
use crate::media::{Devices, Media, at};
use crate::progress::Watch;
use crate::{output, place};

/// Where a copy goes.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) dir: &'a Path,
    /// As the original, when nothing is said.
    pub(super) staging: Option<&'a Staging>,
    pub(super) capacity: Option<&'a Medium>,
}

impl Target<'_> {
    fn media(&self, has_staging: bool) -> Media {
        let as_original = if has_staging { Staging::Inside } else { Staging::None };
        Media::new(self.staging.unwrap_or(&as_original), self.capacity)
    }
}

/// Copies the database in `dir`, which `options` open to read only.
pub(super) fn back_up(dir: &Path, to: &Target<'_>, options: Options, json: bool) -> Result {
    let watch = Watch::start()?;
    let (db, _devices) = place::open_watched(dir, options, &watch)?;
    let media = to.media(has_staging(&db));
    let devices = place::new_devices(to.dir, &media)?;
    let report = db.backup(&media.location(to.dir, &devices)?);
    let report = ended(report, &watch, "there is no copy; begin it again at any time")?;
    if json {
        let whole = serde_json::to_value(report).map_err(io::Error::from)?;
        return output::document("esker-kv-backup/1", whole);
    }
    output::print(&format!(
        "{}: {}, {} and {} copied to {}, {}\n",
        dir.display(),
        counted(report.kvss, "KVS"),
        counted(report.kvsets, "kvset"),
        counted(report.blocks, "block"),
        to.dir.display(),
        human_bytes(report.copied_bytes)
    ))
}

/// The result of a copy, or its interruption.
fn ended<T>(result: Result<T, KvError>, watch: &Watch, kept: &str) -> Result<T> {
    watch.bar.end();
    if matches!(result, Err(KvError::Cancelled)) {
        watch.interrupt.outcome(kept)?;
    }
    Ok(result?)
}

fn has_staging(db: &Kvdb) -> bool {
    db.stats().classes.iter().any(|class| class.class == MediaClass::Staging)
}

/// Copies what is sound of the database in `dir`: as a repair does, to a database like the original.
pub(super) fn back_up_sound(dir: &Path, to: &Target<'_>, options: Options, json: bool) -> Result {
    let has_staging = Devices::of_damaged(dir, &BTreeMap::new())
        .and_then(|devices| Ok(devices.location(dir).remains()?))?
        .classes
        .contains_key(&MediaClass::Staging);
    let inside = Staging::Inside;
    let staging = to.staging.or_else(|| has_staging.then_some(&inside));
    repair(dir, &BTreeMap::new(), &Target { staging, ..*to }, options, json)
}

/// Salvages the database in `dir`, whose classes lie where `old` says if its manifest does not.
pub(super) fn repair(
    dir: &Path,
    old: &BTreeMap<MediaClass, &Staging>,
    to: &Target<'_>,
    options: Options,
    json: bool,
) -> Result {
    place::find_in(dir)?;
    if same(dir, to.dir) {
        let why = "a repair writes a new database: name another directory for it";
        return Err(Failure::usage(format!("{}: {why}", to.dir.display())));
    }
    // Found before anything is made: a wrong directory leaves no new database behind.
    let remains = remains(dir, old)?;
    let media = to.media(false);
    let new = place::new_devices(to.dir, &media)?;
    let watch = Watch::start()?;
    let options = options.on_progress(watch.observer());
    let location = media.location(to.dir, &new)?;
    let report = Kvdb::builder(location).options(options).repair(&remains);
    let report = ended(report, &watch, "there is no new database; begin it again at any time")?;
    let printed = if json {
        let whole = serde_json::to_value(&report).map_err(io::Error::from)?;
        output::document("esker-kv-repair/1", whole)
    } else {
        output::print(&told(&report))
    };
    if report.is_sound() {
        return printed;
    }
    // Whether anybody reads the text or not.
    let (dir, to) = (dir.display(), to.dir.display());
    let message = format!(
        "{dir}: not all of it is sound; what could be salvaged is in {to}, read above what is not"
    );
    Err(Failure::new(ErrorKind::Corrupt, message))
}

/// Whether two paths lead to one directory.
fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Opens the remains of the database in `dir`. A class that cannot be opened is not taken for lost unless
/// `old` says so: its target may only be down.
fn remains(dir: &Path, old: &BTreeMap<MediaClass, &Staging>) -> Result<Remains> {
    let advice =
        "say with --old-staging or --old-capacity where the class is, or `none` to do without it";
    let devices = Devices::of_damaged(dir, old).map_err(|failure| failure.and(advice))?;
    let mut location = devices.location(dir);
    for (class, place) in old {
        let device: Arc<dyn Device> = match place {
            Staging::At(Medium::Device(_)) => continue,
            Staging::At(Medium::Path(path)) => old_class(*class, path)?,
            Staging::Inside => old_class(*class, dir)?,
            Staging::None => Arc::new(MemoryDevice::new("nothing", 4096, 4096)),
        };
        location = at(location, *class, esker_kv::Medium::device(device));
    }
    let mut remains = location.remains().map_err(|error| match error.kind() {
        ErrorKind::Conflict | ErrorKind::Unsupported => Failure::from(error),
        _ => Failure::from(error).and(advice),
    })?;
    remains.classes.retain(|class, _| !matches!(old.get(class), Some(Staging::None)));
    for (device, bytes) in remains.classes.values_mut() {
        // A file is searched to its end, not to where it could grow.
        if let Some(file) = fs::metadata(device.name()).ok().filter(fs::Metadata::is_file) {
            *bytes = file.len();
        }
    }
    Ok(remains)
}

/// Opens the remains of a class: a file, a directory that has it, or a block device.
fn old_class(class: MediaClass, path: &Path) -> Result<Arc<dyn Device>> {
    let inside = path.join(format!("{class}.esker"));
    let path = if path.is_dir() { &inside } else { path };
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let device = FileDevice::open(path, &options).map_err(|error| {
        Failure::new(error.kind(), error).and("name the file or the block device of the class")
    });
    Ok(Arc::new(device?))
}

/// Lines of each kind that are shown.
const SHOWN: usize = 20;

/// How many keys are lost, as far as that can be known.
fn lost(kvs: &KvsRepair) -> String {
    let lost = grouped(to_u64(kvs.lost.len()));
    match (kvs.is_complete, kvs.lost.is_empty()) {
        (true, _) => format!("{lost} lost"),
        (false, false) => format!("{lost} and perhaps more lost"),
        (false, true) => "an unknown number lost".into(),
    }
}

fn told(report: &RepairReport) -> String {
    let mut text = String::new();
    let list = |text: &mut String, what: &str, lines: &mut dyn ExactSizeIterator<Item = String>| {
        let more = lines.len().saturating_sub(SHOWN);
        for line in lines.take(SHOWN) {
            let _ = writeln!(text, "{what}: {line}");
        }
        if more > 0 {
            let _ =
                writeln!(text, "{what}: {} more, all of them with --json", grouped(to_u64(more)));
        }
    };
    list(&mut text, "damaged", &mut report.findings.iter().cloned());
    for kvs in &report.kvss {
        let key = |key: &Vec<u8>| format!("KVS {}, key '{}'", kvs.name, key.escape_ascii());
        list(&mut text, "lost", &mut kvs.lost.iter().map(key));
        list(&mut text, "old", &mut kvs.old.iter().map(key));
        let bound = |key: &Option<Vec<u8>>, none: &str| {
            let shown = |key: &Vec<u8>| format!("'{}'", key.escape_ascii());
            key.as_ref().map_or(none.to_owned(), shown)
        };
        let range = |range: &esker_kv::KeyRange| {
            let (after, before) =
                (bound(&range.after, "the beginning"), bound(&range.before, "the end"));
            format!("KVS {}, keys between {after} and {before}", kvs.name)
        };
        list(&mut text, "lost or old", &mut kvs.lost_ranges.iter().map(range));
    }
    for kvs in &report.kvss {
        let recovered = counted(kvs.recovered, "key");
        let _ = write!(text, "KVS {}: {recovered} recovered, {}", kvs.name, lost(kvs));
        if !kvs.old.is_empty() {
            let _ = write!(text, ", {} with an older value", grouped(to_u64(kvs.old.len())));
        }
        let _ = match kvs.uncertain {
            0 => writeln!(text),
            count => writeln!(text, ", {} of uncertain age", grouped(count)),
        };
    }
    for caveat in &report.caveats {
        let _ = writeln!(text, "note: {caveat}");
    }
    if report.manifest == ManifestState::Whole && report.is_sound() {
        text.push_str("sound\n");
    }
    text
}
