//! The directory in which databases are made.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Name of a database in it.
const DATABASE: &str = "database";

/// Holds one database at a time. When dropped, the database goes, and the directory too if it was
/// made here and nobody has put anything else in it.
pub(crate) struct Scratch {
    dir: PathBuf,
    made: bool,
}

impl Scratch {
    /// Refuses a directory whose content would be removed.
    pub(crate) fn create(dir: &Path) -> Result<Scratch> {
        let database = dir.join(DATABASE);
        if database.exists() {
            let path = database.display();
            return Err(Failure::new(format!(
                "{path} is there already, and would be removed; remove it, or name another --dir"
            )));
        }
        let made = !dir.exists();
        let failed = |cause: std::io::Error| Failure::at(dir, "use as scratch directory", &cause);
        fs::create_dir_all(dir).map_err(failed)?;
        Ok(Scratch { dir: dir.to_owned(), made })
    }

    /// The directory itself.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the database in it, and gives a new directory for the next.
    pub(crate) fn empty(&self) -> Result<PathBuf> {
        let dir = self.dir.join(DATABASE);
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|cause| Failure::at(&dir, "remove", &cause))?;
        }
        fs::create_dir(&dir).map_err(|cause| Failure::at(&dir, "create", &cause))?;
        Ok(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let database = self.dir.join(DATABASE);
        let warn = |path: &Path, cause: std::io::Error| {
            eprintln!("warning: could not remove {}: {cause}", path.display());
        };
        if let Err(cause) = fs::remove_dir_all(&database)
            && cause.kind() != ErrorKind::NotFound
        {
            warn(&database, cause);
        } else if self.made
            && let Err(cause) = fs::remove_dir(&self.dir)
            && cause.kind() != ErrorKind::DirectoryNotEmpty
        {
            warn(&self.dir, cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_not_of_the_run_stay() {
        let base = std::env::temp_dir().join(format!("bench-compare-dir-{}", std::process::id()));
        let made = base.join("made");
        let use_it = |dir: &Path, result: Option<&str>| {
            let scratch = Scratch::create(dir).unwrap();
            fs::write(scratch.empty().unwrap().join("log"), "records").unwrap();
            assert_eq!(fs::read_dir(scratch.empty().unwrap()).unwrap().count(), 0);
            if let Some(result) = result {
                fs::write(dir.join(result), "figures").unwrap();
            }
        };
        use_it(&made, None);
        assert!(!made.exists() && base.exists(), "it was made here");
        use_it(&base, None);
        assert!(base.exists(), "it is the user's");
        use_it(&made, Some("c.json"));
        assert_eq!(fs::read_dir(&made).unwrap().count(), 1, "results stay");
        use_it(&made, Some("c.html"));
        assert_eq!(fs::read_dir(&made).unwrap().count(), 2, "beside earlier ones");
        fs::create_dir(base.join(DATABASE)).unwrap();
        let refusal = Scratch::create(&base).err().unwrap().to_string();
        assert!(refusal.contains("would be removed"), "{refusal}");
        fs::remove_dir_all(&base).unwrap();
    }
}
