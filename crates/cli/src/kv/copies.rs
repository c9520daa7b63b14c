//! Copies of a database: backup, and restore, which is the same the other way.

use std::io;
use std::path::Path;

use esker_base::units::human_bytes;
use esker_kv::{Kvdb, MediaClass, Options};

use crate::args::{Medium, Staging};
use crate::failure::Result;
use crate::figures::grouped;
use crate::media::Media;
use crate::{output, place};

/// Where a copy goes.
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

/// Copies the database in `dir`.
pub(super) fn back_up(dir: &Path, to: &Target<'_>, options: Options, json: bool) -> Result {
    let (db, _devices) = place::open_in(dir, Options { read_only: true, ..options })?;
    let media = to.media(has_staging(&db));
    media.check_lasting()?;
    let devices = media.open()?;
    let report = db.backup_with(to.dir, &media.layout(), &devices.named()?)?;
    if json {
        let whole = serde_json::to_value(report).map_err(io::Error::from)?;
        return output::print(&format!("{whole:#}\n"));
    }
    output::print(&format!(
        "{}: {} KVSs, {} kvsets and {} blocks copied to {}, {}\n",
        dir.display(),
        report.kvss,
        grouped(report.kvsets),
        grouped(report.blocks),
        to.dir.display(),
        human_bytes(report.copied_bytes)
    ))
}

fn has_staging(db: &Kvdb) -> bool {
    db.stats().classes.iter().any(|class| class.class == MediaClass::Staging)
}
