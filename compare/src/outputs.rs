//! Where figures go: tables to standard output, and the files that were asked for.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::render;
use crate::trial::Comparison;

/// The files to write, which could be written when it was made.
pub(crate) struct Outputs {
    json: Option<PathBuf>,
    html: Option<PathBuf>,
}

impl Outputs {
    /// Refuses a path that cannot be written, without changing a file that is there.
    pub(crate) fn prepare(json: Option<&Path>, html: Option<&Path>) -> Result<Outputs> {
        for path in [json, html].into_iter().flatten() {
            make_sure(path).map_err(|cause| Failure::at(path, "write", &cause))?;
        }
        Ok(Outputs { json: json.map(Path::to_owned), html: html.map(Path::to_owned) })
    }

    /// Writes the figures so far.
    pub(crate) fn keep(&self, comparison: &Comparison) -> Result {
        let Some(path) = &self.json else { return Ok(()) };
        let text = serde_json::to_string(comparison).expect("every field has a JSON form");
        fs::write(path, text).map_err(|cause| Failure::at(path, "write", &cause))
    }

    /// Tables to `out` first, then each file: a failure of one costs none of the others.
    pub(crate) fn publish(&self, comparison: &Comparison, out: &mut dyn Write) -> Result {
        let page = render::document(comparison);
        let text = render::markdown(&page);
        let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        let printed = printed
            .map_err(|cause| Failure::new(format!("cannot write to standard output: {cause}")));
        let kept = self.keep(comparison);
        let shown = self.html.as_ref().map_or(Ok(()), |path| {
            fs::write(path, page.html()).map_err(|cause| Failure::at(path, "write", &cause))
        });
        printed.and(kept).and(shown)
    }
}

fn make_sure(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        return OpenOptions::new().write(true).open(path).map(drop);
    }
    OpenOptions::new().write(true).create_new(true).open(path)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::trial::tests::comparison;

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("bench-compare-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn unwritable_paths_are_refused_and_other_files_untouched() {
        let dir = dir("prepare");
        let (old, new) = (dir.join("old.json"), dir.join("new.html"));
        fs::write(&old, "figures").unwrap();
        Outputs::prepare(Some(&old), Some(&new)).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "figures");
        assert!(!new.exists());
        for path in [dir.clone(), dir.join("missing/c.json")] {
            let refusal = Outputs::prepare(None, Some(&path)).err().unwrap().to_string();
            assert!(refusal.contains(&*path.to_string_lossy()), "{refusal}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn tables_and_the_page_are_there_although_the_figures_cannot_be_written() {
        let dir = dir("publish");
        let (json, html) = (dir.join("gone/c.json"), dir.join("c.html"));
        let outputs = Outputs { json: Some(json), html: Some(html.clone()) };
        let mut out = Vec::new();
        let figures = comparison(&[(Engine::Esker, &[1e3])]);
        let refusal = outputs.publish(&figures, &mut out).unwrap_err().to_string();
        assert!(refusal.contains("gone/c.json"), "{refusal}");
        assert!(String::from_utf8(out).unwrap().contains("| Esker | 1.00 |"));
        assert!(html.exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}
