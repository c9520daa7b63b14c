//! Where the database of a measurement lives: in a directory that stays, or in one that is gone
//! however the process ends.
//!
//! A temporary database loses its names as soon as it is open. Its files live on without them
//! until the process ends, be it by an interrupt or a kill, and no clean-up is left to anyone.

use std::fs;
use std::path::{Path, PathBuf};

use esker_base::units::human_bytes;
use esker_base::{ErrorKind, files};
use esker_kv::{KvError, Kvdb, Location, Options};

use crate::args;
use crate::failure::{Failure, Result};
use crate::media::{Devices, Media, files_at};
use crate::progress::Watch;
use crate::stderr::tell;

/// The file by which a database is known.
const MANIFEST: &str = "manifest.esker";

/// The place of the database that a measurement runs on; opens or creates it.
pub(crate) struct Place {
    /// The directory; `None` is a temporary one.
    pub(crate) dir: Option<PathBuf>,
    /// Where the classes of a new database go.
    media: Media,
}

impl Place {
    pub(crate) fn new(dir: Option<&PathBuf>, media: &args::MediaArgs) -> Place {
        Place { dir: dir.cloned(), media: Media::of(media) }
    }

    /// Whether there is a database already.
    pub(crate) fn exists(&self) -> bool {
        let manifest = |dir: &PathBuf| dir.join(MANIFEST).exists();
        self.dir.as_ref().is_some_and(manifest)
    }

    /// Creates the database; where records of so many bytes do not fit on its devices, nothing of it stays.
    pub(crate) fn create(&self, options: Options, data_bytes: u64) -> Result<(Kvdb, Devices)> {
        let (db, devices) = match &self.dir {
            Some(dir) => create_in(dir, &self.media, options)?,
            None => self.create_temporary(options)?,
        };
        let room: u64 = db.stats().classes.iter().map(|class| class.capacity_bytes).sum();
        if data_bytes <= room {
            return Ok((db, devices));
        }
        drop(db);
        if let Some(dir) = &self.dir {
            Kvdb::builder(self.media.location(dir, &devices)?).destroy()?;
        }
        let (data, room) = (human_bytes(data_bytes), human_bytes(room));
        Err(Failure::usage(format!(
            "the records have {data}, and the devices {room}: give fewer --records or larger devices"
        )))
    }

    fn create_temporary(&self, options: Options) -> Result<(Kvdb, Devices)> {
        let parent = std::env::temp_dir();
        let advice = "set TMPDIR to a directory that can be written, or name one with --db";
        files::may_create(&parent.join("esker-"))
            .map_err(|error| Failure::file(&parent, &error, advice))?;
        let scratch = tempfile::Builder::new()
            .prefix("esker-")
            .tempdir_in(&parent)
            .map_err(|error| Failure::file(&parent, &error, advice))?;
        if let Some(file) = self.media.paths().flat_map(files_at).next() {
            let why = "a temporary database does not use a file that exists; name a new file or \
                       another directory";
            let message = format!("{}: {why}", file.display());
            return Err(Failure::new(ErrorKind::Exists, message));
        }
        let devices = self.media.open()?;
        let location = self.media.location(scratch.path(), &devices)?;
        let db = Kvdb::builder(location).options(options).create();
        let advice = "the temporary database left it behind; remove it";
        for file in self.media.paths().flat_map(files_at) {
            fs::remove_file(&file).map_err(|error| Failure::file(&file, &error, advice))?;
        }
        let path = scratch.path().to_owned();
        scratch.close().map_err(|error| Failure::file(&path, &error, advice))?;
        Ok((db?, devices))
    }

    /// Returns the description of the place.
    pub(crate) fn describe(&self) -> String {
        match &self.dir {
            Some(dir) => format!("database in {}, kept", dir.display()),
            None => {
                let parent = std::env::temp_dir();
                format!("temporary database under {}, gone at the end", parent.display())
            }
        }
    }
}

/// Creates a database in `dir`, which is made if need be.
pub(crate) fn create_in(dir: &Path, media: &Media, options: Options) -> Result<(Kvdb, Devices)> {
    let devices = new_devices(dir, media)?;
    let db = Kvdb::builder(media.location(dir, &devices)?).options(options).create()?;
    Ok((db, devices))
}

/// Creates a database in `dir`, has `fill` give it its KVSs, and closes it. When that fails, nothing of it stays.
pub(crate) fn create_with(
    dir: &Path,
    media: &Media,
    options: Options,
    fill: impl FnOnce(&Kvdb) -> Result<(), KvError>,
) -> Result<Devices> {
    let (db, devices) = create_in(dir, media, options)?;
    let filled = fill(&db).and_then(|()| db.close());
    drop(db);
    let Err(error) = filled else { return Ok(devices) };
    let (failure, location) = (Failure::from(error), media.location(dir, &devices)?);
    Err(match Kvdb::builder(location).destroy() {
        Ok(()) => failure.and("nothing was created"),
        Err(error) => failure.and(format!(
            "a database without all its KVSs is left in {}, because it cannot be removed: {error}; create them with \
             `esker kv create-kvs`",
            dir.display()
        )),
    })
}

/// Opens the devices for a database that is to be made in `dir`.
pub(crate) fn new_devices(dir: &Path, media: &Media) -> Result<Devices> {
    if dir.exists() && !dir.is_dir() {
        let why = "there is a file of this name; name a directory";
        return Err(Failure::new(ErrorKind::Exists, format!("{}: {why}", dir.display())));
    }
    media.check_lasting()?;
    // The engine refuses a directory with a database; no image must have been made by then.
    let is_taken = Location::dir(dir).device_names().is_ok();
    if is_taken { Ok(Devices::none()) } else { media.open_kept() }
}

/// Opens the database in `dir`, and shows how far it is where that takes long.
pub(crate) fn open_in(dir: &Path, options: Options) -> Result<(Kvdb, Devices)> {
    open_watched(dir, options, &Watch::start()?)
}

/// The same as a part of longer work.
pub(crate) fn open_watched(dir: &Path, options: Options, watch: &Watch) -> Result<(Kvdb, Devices)> {
    find_in(dir)?;
    let devices = Devices::of_database(dir, options.read_only)?;
    let options = options.on_progress(watch.observer());
    let opened = Kvdb::builder(devices.location(dir)).options(options).open();
    watch.outcome("the database was not opened; nothing of it is lost")?;
    Ok((opened?, devices))
}

/// Makes sure that `dir` is a directory.
pub(crate) fn find_in(dir: &Path) -> Result {
    let create = format!("create a database with `esker kv create {}`", dir.display());
    let why = match fs::metadata(dir) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => {
            let why = "it is a file; name the directory of a database";
            return Err(Failure::usage(format!("{}: {why}", dir.display())));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("there is no such directory; check the path, or {create}")
        }
        Err(error) => return Err(Failure::file(dir, &error, "check the path")),
    };
    Err(Failure::new(ErrorKind::NotFound, format!("{}: {why}", dir.display())))
}

/// Prints how these devices differ from a reader's expectation, where it cannot be
/// overlooked; assumptions of models are printed with their results.
pub(crate) fn warn_of_remarks(db: &Kvdb) {
    for remark in db.remarks().iter().filter(|remark| !remark.starts_with("assumed: ")) {
        tell!("esker: note: {remark}");
    }
}
