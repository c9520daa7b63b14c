//! Removes a KVDB: the marks that its devices have of it, and its files, the manifest last.

use std::path::Path;
use std::sync::Arc;

use esker_device::Device;

use super::{Home, Location, MANIFEST, is_path, open_manifest};
use crate::log::kept::remove_left;
use crate::manifest::state::State;
use crate::manifest::writer::Manifest;
use crate::media::class::Media;
use crate::recover::devices::Devices;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::options::Options;

impl Location {
    /// Removes the KVDB that is here. A class whose file is gone was removed before.
    pub(crate) fn destroy(&self) -> Result<()> {
        let Home::Dir(dir) = &self.home else {
            let devices = self.opened()?;
            let state = Manifest::read(&devices.manifest)?.ok_or_else(|| KvError::NotAKvdb {
                path: devices.manifest.name().into(),
                why: "the manifest is empty".into(),
            })?;
            let Devices { manifest, capacity, staging } = devices;
            let staging = staging.map(|device| (MediaClass::Staging, device));
            clear_headers(&state, staging.into_iter().chain([(MediaClass::Capacity, capacity)]))?;
            return Manifest::clear(&manifest);
        };
        let (_manifest, state) = open_manifest(dir, false)?;
        let mut devices = Vec::new();
        for (class, known_as) in &state.classes {
            match self.class_device(dir, *class, known_as, false) {
                Err(KvError::ClassMissing { .. }) => {}
                device => devices.push((*class, device?.0)),
            }
        }
        clear_headers(&state, devices.into_iter())?;
        let remove = |path: &Path| match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(KvError::of_file(path, &error))
            }
            _ => Ok(()),
        };
        let paths = state.classes.values().filter(|known_as| is_path(known_as));
        paths
            .map(|known_as| dir.join(known_as))
            .filter(|path| path.is_file())
            .try_for_each(|path| remove(&path))?;
        remove_left(dir);
        // Last: what is left can be destroyed again.
        remove(&dir.join(MANIFEST))?;
        // Where nothing else is in it.
        let _ = std::fs::remove_dir(dir);
        Ok(())
    }
}

/// Clears the headers of a KVDB's classes: all, or none where one is another KVDB's.
fn clear_headers(
    state: &State,
    devices: impl Iterator<Item = (MediaClass, Arc<dyn Device>)>,
) -> Result<()> {
    let options = Options::default();
    let media = |(class, device)| Media::new(class, device, &options.tuning(), &options.clock);
    let classes: Vec<Media> = devices.map(media).collect();
    for media in &classes {
        // It may have been cleared before.
        if !media.is_without_header()? {
            media.check_header(state.uuid)?;
        }
    }
    classes.iter().try_for_each(Media::clear_header)
}
