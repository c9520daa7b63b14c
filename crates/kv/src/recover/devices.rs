//! The devices that a KVDB is opened on, and those that are left for repair.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use esker_device::Device;

use crate::media::class::Media;
use crate::media::classes::Classes;
use crate::types::class::MediaClass;
use crate::types::options::{Options, Tuning};

/// The devices of a KVDB.
#[derive(Clone)]
pub struct Devices {
    /// Holds the manifest: a few MiB.
    pub manifest: Arc<dyn Device>,
    /// The capacity class.
    pub capacity: Arc<dyn Device>,
    /// The staging class, if the KVDB has one.
    pub staging: Option<Arc<dyn Device>>,
}

impl Devices {
    /// The classes and the names of their devices.
    pub(crate) fn names(&self) -> Vec<(MediaClass, String)> {
        let named = |class, device: &Arc<dyn Device>| (class, device.name().to_owned());
        let staging = self.staging.iter().map(|device| named(MediaClass::Staging, device));
        staging.chain([named(MediaClass::Capacity, &self.capacity)]).collect()
    }

    /// The options with sizes of parts that suit the file systems of the classes, where nobody has chosen others.
    pub(crate) fn fitting(&self, mut options: Options) -> Options {
        let usable = [Some(&self.capacity), self.staging.as_ref()];
        let usable = usable.into_iter().flatten().filter_map(|device| device.usable_bytes()).min();
        if let (None, Some(usable)) = (options.tuning, usable) {
            options.tuning = Some(Tuning::for_budget(options.memory_bytes).on_files_of(usable));
        }
        options
    }

    /// The class devices, opened as classes.
    pub(crate) fn classes(&self, options: &Options) -> Classes {
        let media = |class: MediaClass, device: &Arc<dyn Device>| {
            Arc::new(Media::new(class, device.clone(), &options.tuning(), &options.clock))
        };
        Classes::new(
            media(MediaClass::Capacity, &self.capacity),
            self.staging.as_ref().map(|device| media(MediaClass::Staging, device)),
        )
    }
}

/// Devices that are left of a KVDB.
#[derive(Clone, Default)]
pub struct Remains {
    /// The manifest's, if it is there.
    pub manifest: Option<Arc<dyn Device>>,
    /// The classes', as far as they are there, and how many bytes of each may hold something.
    pub classes: BTreeMap<MediaClass, (Arc<dyn Device>, u64)>,
    /// The directory, if it has one: a process that was killed may have left records of the log there, in
    /// `tail.esker`, that no flush had taken.
    pub directory: Option<PathBuf>,
}
