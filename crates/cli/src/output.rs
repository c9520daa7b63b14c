//! Where results go: standard output, and files that are known to be writable before the work
//! begins.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use esker_base::{ErrorKind, files};
use esker_serve::events::Told;

use crate::failure::{Failure, Result};
use crate::stderr::{self, complain};

const STDOUT: &str = "-";

/// Whether a file argument means standard input or output.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == STDOUT
}

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Result {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a JSON document. `format` is its form, which docs/api describes; the number behind the slash changes with it.
pub(crate) fn document(format: &str, mut value: serde_json::Value) -> Result {
    value["format"] = format.into();
    print(&format!("{value:#}\n"))
}

/// Prints a message of a service; the lack of a reader ends nothing.
pub(crate) fn tell(told: Told<'_>) {
    match told {
        Told::Output(text) => drop(print(text)),
        Told::Note(note) => stderr::tell!("esker: note: {note}"),
        Told::Failure(why) => complain!("esker: {why}"),
    }
}

/// Has `write` write the file at `path`; `failed` makes a failure of an error of it. A regular file is there, or takes
/// the place of an older one, when all of it is durable: before that, and after a failure, nothing has changed.
pub(crate) fn write_whole<T>(
    path: &Path,
    failed: impl Fn(io::Error) -> Failure,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<T>,
) -> Result<T> {
    let filled = |file: &File| {
        let mut out = BufWriter::new(file);
        let written = write(&mut out)?;
        out.flush().map_err(&failed)?;
        Ok(written)
    };
    // A link stays, and its target is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = match OpenOptions::new().write(true).open(path) {
        Ok(file) => Some((file.metadata().map_err(&failed)?, file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if let Some((metadata, file)) = &old
        && !metadata.is_file()
    {
        return filled(file);
    }
    files::may_create(path).map_err(&failed)?;
    let parent = directory(path);
    let new = tempfile::Builder::new()
        .prefix(".esker-")
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(parent)
        .map_err(&failed)?;
    let written = filled(new.as_file())?;
    if let Some((metadata, _)) = old {
        new.as_file().set_permissions(metadata.permissions()).map_err(&failed)?;
    }
    new.as_file().sync_all().map_err(&failed)?;
    new.persist(path).map_err(|error| failed(error.error))?;
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(&failed)?;
    Ok(written)
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The outputs of a measurement: a table for people, and files.
pub(crate) struct Outputs {
    json: Option<PathBuf>,
    report: Option<PathBuf>,
}

impl Outputs {
    /// Outputs to these files, which are made sure of now: minutes of work come first.
    pub(crate) fn prepare(json: Option<&PathBuf>, report: Option<&PathBuf>) -> Result<Outputs> {
        if let Some(path) = report.filter(|path| is_dash(path)) {
            let why = "the HTML report needs a file; give --report a path";
            return Err(Failure::usage(format!("{}: {why}", path.display())));
        }
        let files = [json, report].into_iter().flatten();
        for path in files.filter(|path| !is_dash(path)) {
            make_sure(path)?;
        }
        let (json, report) = (json.cloned(), report.cloned());
        Ok(Outputs { json, report })
    }

    /// Text for people: to standard output, or to standard error when JSON goes there.
    pub(crate) fn say(&self, text: &str) -> Result {
        if self.json.as_deref().is_some_and(is_dash) {
            complain!("{}", text.trim_end_matches('\n'));
            return Ok(());
        }
        print(text)
    }

    /// Writes the files, and says where the report lies.
    pub(crate) fn finish(&self, json: &serde_json::Value, html: &str) -> Result {
        if let Some(path) = &self.report {
            files::write(path, html).map_err(|error| unwritable(path, &error))?;
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            self.say(&format!("report: {}\n", path.display()))?;
        }
        let Some(path) = &self.json else {
            return Ok(());
        };
        let text = format!("{json:#}\n");
        if is_dash(path) {
            return print(&text);
        }
        files::write(path, text).map_err(|error| unwritable(path, &error))?;
        self.say(&format!("JSON: {}\n", path.display()))
    }
}

/// Makes sure that a file can be written at `path`, without changing a file that is there.
fn make_sure(path: &Path) -> Result {
    if path.is_dir() {
        let why = "it is a directory; name a file in it";
        return Err(Failure::new(ErrorKind::Invalid, format!("{}: {why}", path.display())));
    }
    let outcome = if path.exists() {
        OpenOptions::new().write(true).open(path).map(drop)
    } else {
        files::may_create(path).and_then(|()| tempfile::tempfile_in(directory(path)).map(drop))
    };
    outcome.map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::file(path, error, "name a file in a directory that can be written")
}
