//! The media classes of a KVDB: capacity always, staging perhaps; and space on whichever of them a policy wants.

use std::sync::{Arc, Weak};

use esker_device::Device;

use crate::media::class::{Allocation, Media};
use crate::media::space::Purpose;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{ArcSwapOption, Mutex};
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::policy::Place;
use crate::types::stream::Stream;

/// Most pieces into which divisible data is cut before it leaves its class.
pub(crate) const PIECES: u64 = 8;

/// The classes of a KVDB: capacity always, staging perhaps, and perhaps later.
pub(crate) struct Classes {
    pub(crate) capacity: Arc<Media>,
    staging: ArcSwapOption<Media>,
    /// Whether staging lies on the same medium as capacity: then it absorbs no burst.
    is_beside: AtomicBool,
    /// Set while the staging class is being emptied: it takes nothing new.
    leaving: AtomicBool,
    /// Staging classes of before. Somebody may still read from them.
    removed: Mutex<Vec<Weak<Media>>>,
}

impl Classes {
    pub(crate) fn new(capacity: Arc<Media>, staging: Option<Arc<Media>>) -> Classes {
        let is_beside = staging.as_ref().is_some_and(|staging| staging.is_beside(&capacity));
        let (staging, leaving) = (ArcSwapOption::from(staging), AtomicBool::new(false));
        let is_beside = AtomicBool::new(is_beside);
        Classes { capacity, staging, is_beside, leaving, removed: Mutex::default() }
    }

    pub(crate) fn staging(&self) -> Option<Arc<Media>> {
        self.staging.load_full()
    }

    pub(crate) fn add_staging(&self, media: Arc<Media>) {
        self.is_beside.store(media.is_beside(&self.capacity), Ordering::Relaxed);
        self.staging.store(Some(media));
    }

    /// Ends the staging class. Readers that have begun to read from it may go on.
    pub(crate) fn remove_staging(&self) {
        self.removed.lock().extend(self.staging().iter().map(Arc::downgrade));
        self.staging.store(None);
    }

    /// Whether somebody still reads the device of a staging class that was removed.
    pub(crate) fn is_still_read(&self, device: &Arc<dyn Device>) -> bool {
        let removed = self.removed.lock();
        let mut held = removed.iter().filter_map(Weak::upgrade);
        held.any(|media| media.lease.is_of(device))
    }

    /// Whether the staging class takes nothing new from now on.
    pub(crate) fn leave_staging(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Release);
    }

    /// The class itself, if the KVDB has it and it takes new data.
    pub(crate) fn taking(&self, class: MediaClass) -> Option<Arc<Media>> {
        let leaves = class == MediaClass::Staging && self.leaving.load(Ordering::Acquire);
        if leaves { None } else { self.get(class) }
    }

    /// The class itself, if the KVDB has it.
    pub(crate) fn get(&self, class: MediaClass) -> Option<Arc<Media>> {
        match class {
            MediaClass::Capacity => Some(self.capacity.clone()),
            MediaClass::Staging => self.staging(),
        }
    }

    /// The size of the class that the log is on, in bytes.
    pub(crate) fn log_capacity_bytes(&self) -> u64 {
        self.staging.load().as_ref().unwrap_or(&self.capacity).capacity_bytes()
    }

    /// The room of the staging class, used or not, but for the reserve for maintenance, in bytes; 0 while there is
    /// none that takes new data, and where it is no device of its own.
    pub(crate) fn staging_room(&self) -> u64 {
        if self.leaving.load(Ordering::Acquire) || self.is_beside.load(Ordering::Relaxed) {
            return 0;
        }
        self.staging.load().as_ref().map_or(0, |media| media.room_bytes())
    }

    pub(crate) fn all(&self) -> Vec<Arc<Media>> {
        MediaClass::ALL.iter().filter_map(|&class| self.get(class)).collect()
    }

    /// Remarks about how the devices were opened.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.all().iter().flat_map(|media| media.device().remarks()).collect()
    }

    /// The size of the largest LBAs, in bytes.
    pub(crate) fn largest_lba(&self) -> u64 {
        self.all().iter().map(|media| media.lba_size.into()).max().unwrap_or(0)
    }

    /// Space at a place: in its class, or in the other one when that is missing, or full and may be
    /// left.
    pub(crate) fn allocate(
        &self,
        place: Place,
        stream: Stream,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<Allocation> {
        let Some(media) = self.taking(place.class) else {
            return self.capacity.allocate(stream, bytes, purpose);
        };
        match (media.allocate(stream, bytes, purpose), place.fallback()) {
            (Err(KvError::NoSpace { .. }), Some(other)) if self.taking(other).is_some() => {
                self.allocate(Place::only(other), stream, bytes, purpose)
            }
            (result, _) => result,
        }
    }

    /// Like [`Classes::allocate`] for something that may be cut in pieces: less than `bytes`, but
    /// not less than `least`, when there is no piece of that size. A class is not left because its free space lies
    /// in pieces, unless these are tiny.
    pub(crate) fn allocate_about(
        &self,
        place: Place,
        stream: Stream,
        bytes: u64,
        least: u64,
        purpose: Purpose,
    ) -> Result<Allocation> {
        let piece = |place: Place, least: u64| {
            let mut size = bytes.max(least);
            loop {
                match self.allocate(place, stream, size, purpose) {
                    Err(KvError::NoSpace { .. }) if size > least => size = (size / 2).max(least),
                    result => return result,
                }
            }
        };
        match piece(Place::only(place.class), least.max(bytes / PIECES)) {
            Err(KvError::NoSpace { .. }) => piece(place, least),
            result => result,
        }
    }

    /// Frees nothing from now on. A commit that failed may have happened all the same, and then
    /// the manifest refers to structures that the engine has dropped.
    pub(crate) fn keep_all(&self) {
        self.all().iter().for_each(|media| media.keeps_all.store(true, Ordering::Release));
    }

    /// Lets go of all devices, also of staging classes of before that somebody still reads.
    pub(crate) fn end(&self) {
        self.all().iter().for_each(|media| media.end());
        self.removed.lock().iter().filter_map(Weak::upgrade).for_each(|media| media.end());
    }

    /// Makes everything written so far durable, on every class.
    pub(crate) fn flush(&self) -> Result<()> {
        for media in self.all() {
            media.ports.port()?.flush()?;
        }
        Ok(())
    }
}
