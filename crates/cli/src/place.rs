//! Where the database of a measurement lives: in a directory that stays, or in one that is gone
//! however the process ends.
//!
//! A temporary database loses its names as soon as it is open. Its files live on without them
//! until the process ends, be it by an interrupt or a kill, and no clean-up is left to anyone.

use std::fs;
use std::path::{Path, PathBuf};

use esker_base::ErrorKind;
use esker_kv::{Kvdb, Layout, Options};

use crate::args::{self, Staging};
use crate::failure::{Failure, Result};

/// Opens or creates what a measurement runs on.
pub(crate) struct Place {
    /// The directory; `None` is a temporary one.
    pub(crate) dir: Option<PathBuf>,
    /// Where the classes of a new database go.
    pub(crate) layout: Layout,
}

impl Place {
    pub(crate) fn new(dir: Option<&PathBuf>, media: &args::MediaArgs) -> Place {
        Place { dir: dir.cloned(), layout: args::layout(&media.staging, media.capacity.as_ref()) }
    }

    /// Whether there is a database already.
    pub(crate) fn exists(&self) -> bool {
        let manifest = |dir: &PathBuf| dir.join("manifest.esker").exists();
        self.dir.as_ref().is_some_and(manifest)
    }

    /// Creates the database.
    pub(crate) fn create(&self, options: Options) -> Result<Kvdb> {
        match &self.dir {
            Some(dir) => create_in(dir, &self.layout, options),
            None => self.create_temporary(options),
        }
    }

    fn create_temporary(&self, options: Options) -> Result<Kvdb> {
        let parent = std::env::temp_dir();
        let advice = "set TMPDIR to a directory that can be written, or name one with --db";
        let scratch = tempfile::Builder::new()
            .prefix("esker-")
            .tempdir_in(&parent)
            .map_err(|error| Failure::file(&parent, &error, advice))?;
        let outside = self.layout.staging.iter().flatten();
        let outside = outside.chain(&self.layout.capacity);
        if let Some(file) = outside.clone().flat_map(|path| files_at(path)).next() {
            let why = "a temporary database does not use a file that exists; name a new file or \
                       another directory";
            let message = format!("{}: {why}", file.display());
            return Err(Failure::new(ErrorKind::Exists, message));
        }
        let db = Kvdb::create(scratch.path(), &self.layout, options)?;
        let advice = "the temporary database left it behind; remove it";
        for file in outside.flat_map(|path| files_at(path)) {
            fs::remove_file(&file).map_err(|error| Failure::file(&file, &error, advice))?;
        }
        let path = scratch.path().to_owned();
        scratch.close().map_err(|error| Failure::file(&path, &error, advice))?;
        Ok(db)
    }

    /// What to tell of the place.
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

/// The regular files in which a class at `path` may live.
fn files_at(path: &Path) -> Vec<PathBuf> {
    let names = ["staging.esker", "capacity.esker"].map(|name| path.join(name));
    let candidates = [path.to_owned()].into_iter().chain(names);
    candidates.filter(|file| file.is_file()).collect()
}

/// Creates a database in `dir`, which is made if need be.
pub(crate) fn create_in(dir: &Path, layout: &Layout, options: Options) -> Result<Kvdb> {
    if dir.exists() && !dir.is_dir() {
        let why = "there is a file of this name; name a directory";
        return Err(Failure::new(ErrorKind::Exists, format!("{}: {why}", dir.display())));
    }
    Ok(Kvdb::create(dir, layout, options)?)
}

/// Opens the database in `dir`.
pub(crate) fn open_in(dir: &Path, options: Options) -> Result<Kvdb> {
    find_in(dir)?;
    Ok(Kvdb::open(dir, options)?)
}

/// Makes sure that `dir` is a directory.
pub(crate) fn find_in(dir: &Path) -> Result {
    let create = format!("create a database with `esker kv create {}`", dir.display());
    let why = match fs::metadata(dir) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "it is a file; name the directory of a database".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("there is no such directory; check the path, or {create}")
        }
        Err(error) => return Err(Failure::file(dir, &error, "check the path")),
    };
    Err(Failure::new(ErrorKind::NotFound, format!("{}: {why}", dir.display())))
}

/// Says what is different from what a reader would expect of these devices, where it cannot be
/// overlooked.
pub(crate) fn warn_of_remarks(db: &Kvdb) -> Vec<String> {
    let remarks = db.remarks();
    for remark in &remarks {
        eprintln!("esker: note: {remark}");
    }
    remarks
}

/// Whether this staging argument was given although the database exists and has what it has.
pub(crate) fn is_given(media: &args::MediaArgs) -> bool {
    !matches!(media.staging, Staging::Inside) || media.capacity.is_some()
}
