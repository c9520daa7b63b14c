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
pub(crate) struct Devices {
    /// Holds the manifest: a few MiB.
    pub(crate) manifest: Arc<dyn Device>,
    /// The capacity class.
    pub(crate) capacity: Arc<dyn Device>,
    /// The staging class, if the KVDB has one.
    pub(crate) staging: Option<Arc<dyn Device>>,
}

impl Devices {
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

/// Devices that are left of a KVDB: [`Location::remains`](crate::Location::remains). Whatever is not there is lost.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Remains {
    /// The manifest's, if it is there.
    pub manifest: Option<Arc<dyn Device>>,
    /// The classes', as far as they are there, and how many bytes of each may hold something.
    pub classes: BTreeMap<MediaClass, (Arc<dyn Device>, u64)>,
    /// The directory, if it has one: a process that was killed may have left records of the log there, in
    /// `tail.esker`, that no flush had taken.
    pub directory: Option<PathBuf>,
}
