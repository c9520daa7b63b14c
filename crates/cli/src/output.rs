//! Where results go: standard output, and files that are known to be writable before the work
//! begins.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use esker_base::ErrorKind;

use crate::failure::{Failure, Result};

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
            eprint!("{text}");
            return Ok(());
        }
        print(text)
    }

    /// Writes the files, and says where the report lies.
    pub(crate) fn finish(&self, json: &serde_json::Value, html: &str) -> Result {
        if let Some(path) = &self.report {
            fs::write(path, html).map_err(|error| unwritable(path, &error))?;
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
        fs::write(path, text).map_err(|error| unwritable(path, &error))?;
        self.say(&format!("JSON: {}\n", path.display()))
    }
}

/// Makes sure that a file can be written at `path`, without changing what is there.
fn make_sure(path: &Path) -> Result {
    if path.is_dir() {
        let why = "it is a directory; name a file in it";
        return Err(Failure::new(ErrorKind::Invalid, format!("{}: {why}", path.display())));
    }
    let outcome = if path.exists() {
        OpenOptions::new().write(true).open(path).map(drop)
    } else {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        tempfile::tempfile_in(parent.unwrap_or(Path::new("."))).map(drop)
    };
    outcome.map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::file(path, error, "name a file in a directory that can be written")
}
