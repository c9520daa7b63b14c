//! The room on the media, as far as the choice of a step depends on it.

use crate::media::class::Media;
use crate::media::classes::Classes;
use crate::types::class::MediaClass;

/// The room on one media class, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassRoom {
    pub(crate) class: MediaClass,
    pub(crate) capacity_bytes: u64,
    /// Those of the reserve included while little else is left.
    pub(crate) used_bytes: u64,
    /// Free bytes, those kept for maintenance included.
    pub(crate) free_bytes: u64,
    /// Kept for maintenance.
    pub(crate) reserve_bytes: u64,
    /// Whether users may put more here.
    pub(crate) has_room: bool,
}

/// The room on all classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) capacity: ClassRoom,
    /// `None` too while staging takes nothing new.
    pub(crate) staging: Option<ClassRoom>,
    /// Where the log lies, and the size of that class in bytes.
    pub(crate) log_class: MediaClass,
    pub(crate) log_capacity_bytes: u64,
    /// The size of the largest LBAs, in bytes.
    pub(crate) largest_lba: u64,
}

impl Room {
    /// The room on a class that takes new data.
    pub(crate) fn taking(&self, class: MediaClass) -> Option<&ClassRoom> {
        match class {
            MediaClass::Capacity => Some(&self.capacity),
            MediaClass::Staging => self.staging.as_ref(),
        }
    }

    /// The room on these classes, now.
    pub(crate) fn on(classes: &Classes) -> Room {
        let of = |media: &Media| ClassRoom {
            class: media.class,
            capacity_bytes: media.capacity_bytes(),
            used_bytes: media.used_bytes() + media.tied_up_bytes(),
            has_room: media.has_room_now(),
            free_bytes: media.free_bytes(),
            reserve_bytes: media.reserve_bytes(),
        };
        let log = classes.staging().unwrap_or_else(|| classes.capacity.clone());
        Room {
            capacity: of(&classes.capacity),
            staging: classes.taking(MediaClass::Staging).map(|media| of(&media)),
            log_class: log.class,
            log_capacity_bytes: log.capacity_bytes(),
            largest_lba: classes.largest_lba(),
        }
    }
}
