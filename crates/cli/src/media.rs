//! The media classes of a database: paths, which the engine opens, and devices of other kinds, which
//! are opened here and given to it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::units::human_bytes;
use esker_device::Create;
use esker_kv::{Kvdb, Location, MediaClass, Stats};
use esker_stack::{Opened, Spec, Stack, Time};
use serde_json::{Value, json};

use crate::args::{MediaArgs, Medium, Staging};
use crate::failure::{Failure, Result};
use crate::figures::wrapped;
use crate::pool::link::stack;

/// The media of a new database's classes.
pub(crate) struct Media {
    /// Whether there is a staging class, and where, if not in the database's directory.
    staging: Option<Option<Medium>>,
    capacity: Option<Medium>,
}

impl Media {
    pub(crate) fn new(staging: &Staging, capacity: Option<&Medium>) -> Media {
        let staging = match staging {
            Staging::None => None,
            Staging::Inside => Some(None),
            Staging::At(medium) => Some(Some(medium.clone())),
        };
        Media { staging, capacity: capacity.cloned() }
    }

    pub(crate) fn of(args: &MediaArgs) -> Media {
        Media::new(&args.staging, args.capacity.as_ref())
    }

    /// Whether anything was said of them.
    pub(crate) fn is_given(args: &MediaArgs) -> bool {
        !matches!(args.staging, Staging::Inside) || args.capacity.is_some()
    }

    /// The location of a new database in `dir`, with these devices for the classes that lie on no path.
    pub(crate) fn location(&self, dir: &Path, devices: &Devices) -> Result<Location> {
        let mut location = Location::dir(dir);
        if let Some(None) = self.staging {
            location = location.staging(esker_kv::Medium::InDir);
        }
        let paths = self.all().filter_map(|(class, medium)| match medium {
            Medium::Path(path) => Some((class, esker_kv::Medium::Path(path.clone()))),
            Medium::Device(_) => None,
        });
        for (class, medium) in paths.chain(devices.named()?) {
            location = at(location, class, medium);
        }
        Ok(location)
    }

    fn all(&self) -> impl Iterator<Item = (MediaClass, &Medium)> {
        let staging = self.staging.iter().flatten().map(|medium| (MediaClass::Staging, medium));
        staging.chain(self.capacity.iter().map(|medium| (MediaClass::Capacity, medium)))
    }

    fn specs(&self) -> impl Iterator<Item = (MediaClass, &Spec)> {
        self.all().filter_map(|(class, medium)| match medium {
            Medium::Device(spec) => Some((class, &**spec)),
            Medium::Path(_) => None,
        })
    }

    /// The paths that are outside of the database's directory.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.all().flat_map(|(_, medium)| match medium {
            Medium::Path(path) => vec![&**path],
            Medium::Device(spec) => spec.paths(),
        })
    }

    /// Refuses devices that a database that is kept cannot live on.
    pub(crate) fn check_lasting(&self) -> Result {
        self.specs().try_for_each(|(_, spec)| check_lasting(spec))
    }

    /// Opens the devices that are no paths, and makes those that are missing.
    pub(crate) fn open(&self) -> Result<Devices> {
        let specs = self.specs().map(|(class, spec)| (class, spec.clone()));
        Devices::open(classes(), specs, |_| Create::IfMissing)
    }

    /// The same for a database that is kept.
    pub(crate) fn open_kept(&self) -> Result<Devices> {
        let specs = self.specs().map(|(class, spec)| (class, spec.clone()));
        Devices::open(classes(), specs, kept)
    }
}

/// Opens the devices of a KVDB's classes: files that grow.
fn classes() -> Stack {
    stack().growing(true)
}

/// The devices made for a new database that is kept: its files and images. A cache is not: it has an origin with
/// content, and is made by a command of its own.
fn kept(spec: &Spec) -> Create {
    if spec.is_cache() { Create::Never } else { Create::IfMissing }
}

/// Refuses a device whose content ends with the process.
pub(crate) fn check_lasting(spec: &Spec) -> Result {
    if spec.is_lasting() {
        return Ok(());
    }
    let what = match spec {
        Spec::Ssd(_) | Spec::Disk(_) => "add image=PATH, so that the model is kept in a file",
        _ => "name a file, a block device, a remote namespace, or a model with image=PATH",
    };
    let why = "what it holds is gone when the command ends";
    Err(Failure::usage(format!("{spec}: {why}, and a database is to be kept; {what}")))
}

/// Open devices that are no paths, by class.
pub(crate) struct Devices {
    open: BTreeMap<MediaClass, (Spec, Opened)>,
    stack: Arc<Stack>,
}

impl Devices {
    pub(crate) fn none() -> Devices {
        Devices { open: BTreeMap::new(), stack: Arc::new(classes()) }
    }

    fn open(
        stack: Stack,
        specs: impl Iterator<Item = (MediaClass, Spec)>,
        create: impl Fn(&Spec) -> Create,
    ) -> Result<Devices> {
        let stack = Arc::new(stack);
        let mut devices = BTreeMap::new();
        for (class, spec) in specs {
            if spec.time() == Some(Time::Virtual) {
                let why = "virtual time is for one thread, and a database has several";
                return Err(Failure::usage(format!("{spec}: {why}; say time=none, real or 10x")));
            }
            let opened = stack.open(&spec, create(&spec))?;
            devices.insert(class, (spec, opened));
        }
        Ok(Devices { open: devices, stack })
    }

    /// Opens those on which the database in `dir` stands.
    pub(crate) fn of_database(dir: &Path, read_only: bool) -> Result<Devices> {
        let opened =
            Devices::open(classes().read_only(read_only), specs_of(dir)?.into_iter(), never);
        opened.map_err(|failure| of_a_class(failure, dir))
    }

    /// The same, to read only and without the time of models: nothing is measured.
    pub(crate) fn untimed_of_database(dir: &Path) -> Result<Devices> {
        Devices::untimed(specs_of(dir)?).map_err(|failure| of_a_class(failure, dir))
    }

    fn untimed(specs: impl IntoIterator<Item = (MediaClass, Spec)>) -> Result<Devices> {
        let specs = specs.into_iter();
        let specs = specs.map(|(class, spec)| (class, spec.with_time(Time::None)));
        Devices::open(classes().read_only(true), specs, never)
    }

    /// Opens those of a damaged database, where `old` says if it says anything.
    pub(crate) fn of_damaged(dir: &Path, old: &BTreeMap<MediaClass, &Staging>) -> Result<Devices> {
        // A manifest that is damaged cannot say which devices are no files.
        let mut specs = match Location::dir(dir).device_names() {
            Ok(_) => specs_of(dir)?,
            Err(_) => Vec::new(),
        };
        specs.retain(|(class, _)| !old.contains_key(class));
        for (class, place) in old {
            if let Staging::At(Medium::Device(spec)) = place {
                specs.push((*class, (**spec).clone()));
            }
        }
        Devices::untimed(specs)
    }

    /// Opens one that is to become the staging class of a database that is kept.
    pub(crate) fn staging(spec: &Spec) -> Result<Devices> {
        check_lasting(spec)?;
        let specs = [(MediaClass::Staging, spec.clone())].into_iter();
        Devices::open(classes(), specs, kept)
    }

    /// For a new database, with the names by which it finds them again.
    pub(crate) fn named(&self) -> Result<Vec<(MediaClass, esker_kv::Medium)>> {
        let each = self.open.iter().map(|(class, (spec, opened))| {
            let name = spec.for_reopening()?.to_string();
            Ok((*class, esker_kv::Medium::Device { name, device: opened.device.clone() }))
        });
        each.collect()
    }

    /// The location of the database that is in `dir`, with these devices under the names that it knows them by.
    pub(crate) fn location(&self, dir: &Path) -> Location {
        let mut location = Location::dir(dir);
        let names = location.device_names().unwrap_or_default();
        for (class, device) in self.given() {
            let name = names.get(&class).cloned().unwrap_or_else(|| device.name().to_owned());
            location = at(location, class, esker_kv::Medium::Device { name, device });
        }
        location
    }

    /// Those of each class.
    pub(crate) fn given(&self) -> BTreeMap<MediaClass, Arc<dyn esker_device::Device>> {
        self.open.iter().map(|(class, (_, opened))| (*class, opened.device.clone())).collect()
    }

    /// The stack that has opened them.
    pub(crate) fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// The classes whose devices are no paths, with their specifications.
    pub(crate) fn specs(&self) -> impl Iterator<Item = (MediaClass, &Spec)> {
        self.open.iter().map(|(class, (spec, _))| (*class, spec))
    }

    /// Introduces the models before their figures: their specifications and assumptions.
    pub(crate) fn introduction(&self) -> String {
        let mut text = String::new();
        for (class, (spec, opened)) in &self.open {
            let _ = writeln!(text, "{class} class: {spec}");
            let Some(model) = &opened.model else { continue };
            if let Some(profile) = &model.profile {
                text.push_str(&wrapped("  a model of: ", 14, profile.title));
            }
            for assumption in model.assumptions() {
                text.push_str(&wrapped("  assumed: ", 11, &assumption));
            }
        }
        text
    }

    /// The remarks of a database on these devices, with the assumptions of models.
    pub(crate) fn remarks(&self, db: &Kvdb) -> Vec<String> {
        let mut remarks = db.remarks();
        for remark in self.open.values().flat_map(|(_, opened)| opened.remarks()) {
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        remarks
    }

    /// Returns the state of the modelled drives at the end, one line for each.
    pub(crate) fn conclusion(&self) -> String {
        let mut text = String::new();
        for (class, report) in self.reports() {
            let _ = writeln!(
                text,
                "{class} drive: {} by the host, {} to the media, write amplification {:.3}; {:.2} % \
                 of the rated life used",
                human_bytes(report.host_written_bytes),
                human_bytes(report.media_written_bytes()),
                report.write_amplification(),
                report.used_percent()
            );
        }
        text
    }

    /// The models as JSON.
    pub(crate) fn json(&self) -> Value {
        let each = self.open.iter().map(|(class, (spec, opened))| {
            let model = opened.model.as_ref();
            let profile = model.and_then(|model| model.profile.as_ref());
            let drive = model.and_then(|model| model.ssd.as_ref()).map(|ssd| {
                let report = ssd.report();
                json!({
                    "name": ssd.name(),
                    "host_written_bytes": report.host_written_bytes,
                    "media_written_bytes": report.media_written_bytes(),
                    "write_amplification": report.write_amplification(),
                    "used_percent": report.used_percent(),
                })
            });
            json!({
                "class": class,
                "device": spec.to_string(),
                "model_of": profile.map(|profile| profile.title),
                "sources": profile.map(|profile| profile.sources.clone()),
                "assumptions": model.map(esker_stack::Model::assumptions),
                "drive": drive,
            })
        });
        Value::Array(each.collect())
    }

    /// The most that the content of models without an image takes of this process: the bytes written to each, and no
    /// more than it holds.
    pub(crate) fn bytes_in_process(&self, stats: &Stats) -> u64 {
        let of = |(class, (spec, opened)): (&MediaClass, &(Spec, Opened))| {
            if spec.is_lasting() {
                return 0;
            }
            let classes = stats.classes.iter().filter(|one| one.class == *class);
            let written = classes.flat_map(|one| &one.streams).map(|stream| stream.written_bytes);
            let geometry = opened.device.geometry();
            written.sum::<u64>().min(geometry.capacity.0 * u64::from(geometry.lba_size))
        };
        self.open.iter().map(of).sum()
    }

    /// The drives, each once although both classes may be on one.
    fn reports(&self) -> Vec<(String, esker_flash::ssd::Report)> {
        let mut drives: BTreeMap<String, (Vec<String>, esker_flash::ssd::Report)> = BTreeMap::new();
        for (class, (_, opened)) in &self.open {
            let Some(ssd) = opened.model.as_ref().and_then(|model| model.ssd.as_ref()) else {
                continue;
            };
            let entry = drives.entry(ssd.name().to_owned());
            entry.or_insert_with(|| (Vec::new(), ssd.report())).0.push(class.to_string());
        }
        drives.into_values().map(|(classes, report)| (classes.join(" and "), report)).collect()
    }
}

/// The location with a class on a medium.
pub(crate) fn at(location: Location, class: MediaClass, medium: esker_kv::Medium) -> Location {
    match class {
        MediaClass::Staging => location.staging(medium),
        MediaClass::Capacity => location.capacity(medium),
    }
}

fn never(_: &Spec) -> Create {
    Create::Never
}

/// A device that holds a class is not made anew, whatever its own message says.
fn of_a_class(failure: Failure, dir: &Path) -> Failure {
    let why = "a class of the database is on it, and one that is made anew holds nothing of it";
    failure.and(format!("{}: {why}", dir.display()))
}

/// The devices of the database in `dir` that are no paths.
fn specs_of(dir: &Path) -> Result<Vec<(MediaClass, Spec)>> {
    let names = Location::dir(dir).device_names()?.into_iter();
    let specs = names.map(|(class, name)| match name.parse() {
        Ok(spec) => Ok((class, spec)),
        Err(error) => Err(Failure::from(error)
            .and(format!("the {class} class of the database in {} is on it", dir.display()))),
    });
    specs.collect()
}

/// The regular files in which a class at `path` may live.
pub(crate) fn files_at(path: &Path) -> Vec<PathBuf> {
    let names = ["staging.esker", "capacity.esker"].map(|name| path.join(name));
    let candidates = [path.to_owned()].into_iter().chain(names);
    candidates.filter(|file| file.is_file()).collect()
}
