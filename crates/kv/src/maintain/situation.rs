//! A situation: the facts on which the choice of the next step depends, at one moment. With it in hand `due.rs`
//! asks no device, no clock and no lock, so that a test can make one up.

use crate::compaction::window::Windows;
use crate::engine::job::Job;
use crate::engine::shared::Engine;
use crate::media::class::Media;
use crate::sync::atomic::Ordering;
use crate::tree::view::View;
use crate::types::class::MediaClass;
use crate::types::ids::{BlockId, KvsId};
use crate::types::options::Tuning;

/// Facts on which the choice of a step depends.
pub(crate) struct Situation<'v> {
    pub(crate) view: &'v View,
    pub(crate) tuning: &'v Tuning,
    pub(crate) room: Room,
    /// The log segment in which replay begins: it stays, whatever refers to it.
    pub(crate) replay_from: BlockId,
    /// The wall clock.
    pub(crate) now_ms: u64,
    /// Bytes that the media may hold for each 100 bytes that are live.
    pub(crate) space_percent: u64,
    /// Whether writers write little or nothing.
    pub(crate) is_quiet: bool,
    /// The most that a spill takes in where the record cache has lost much of it, in bytes: one window, so that the log is
    /// read once.
    pub(crate) spill_most: Option<u64>,
    /// The KVS whose root a compaction of all is emptying.
    pub(crate) emptying: Option<KvsId>,
}

/// The room on one media class, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassRoom {
    pub(crate) class: MediaClass,
    pub(crate) capacity_bytes: u64,
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
}

/// The size below which a root or a step is small, in bytes.
const SMALL_MOST: u64 = 256 << 10;

/// The most that a root holds, or a step has before it, that is small beside the work of a KVDB, in bytes.
fn small_bytes(spill_bytes: u64) -> u64 {
    (spill_bytes / 64).min(SMALL_MOST)
}

impl Situation<'_> {
    /// Bytes in the roots at which the fullest one spills.
    pub(crate) fn spill_bytes(&self) -> u64 {
        self.tuning.spill_bytes_on(self.room.log_capacity_bytes)
    }

    /// The most that is small, in bytes.
    pub(crate) fn small_bytes(&self) -> u64 {
        small_bytes(self.spill_bytes())
    }
}

impl Engine {
    /// The situation now, in a view.
    pub(crate) fn situation<'v>(&'v self, view: &'v View) -> Situation<'v> {
        Situation {
            view,
            tuning: &self.tuning,
            room: self.room_on_media(),
            replay_from: self.replay_from.lock().id,
            now_ms: self.wall_clock.now_ms(),
            space_percent: self.options.space_percent(),
            is_quiet: self.pace.is_quiet(self.options.clock.now()),
            spill_most: if self.miss_rate.is_much() {
                self.spill_of_one_window(view)
            } else {
                None
            },
            emptying: *self.manual.emptying.lock(),
        }
    }

    /// The most that a spill takes in whose values are in the log only, in bytes: one window that has all of the memory, or
    /// one of two that overlap where the roots hold several spills. None where it holds less than a spill: small ones would
    /// scatter a leaf's values.
    fn spill_of_one_window(&self, view: &View) -> Option<u64> {
        let spill_bytes = self.spill_bytes();
        let (of_two, alone) = Windows::most(self.spill_windows());
        if view.root_bytes() > 3 * spill_bytes {
            Some(of_two)
        } else {
            Some(alone).filter(|most| *most >= spill_bytes)
        }
    }

    fn room_on_media(&self) -> Room {
        let classes = &self.classes;
        let of = |media: &Media| ClassRoom {
            class: media.class,
            capacity_bytes: media.capacity_bytes(),
            used_bytes: media.used_bytes(),
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

    /// The steps that are worth doing now: first those that exceed their threshold by most.
    pub(crate) fn due(&self, view: &View) -> Vec<Job> {
        let now = self.situation(view);
        // Staging that has room for more is no reason to hold garbage.
        if view.root_bytes() > self.spill_bytes() && self.classes.staging_room() > 0 {
            let asked = self.manual.goal.load(Ordering::Relaxed);
            let is_asked = self.compact_is_active() && asked > 0;
            let goal = if is_asked { asked.min(now.space_percent) } else { now.space_percent };
            let over = now.space().percent().saturating_sub(goal);
            self.pace.over_goal.store(over, Ordering::Relaxed);
        }
        now.due()
    }

    /// The most that is small, in bytes.
    pub(crate) fn small_bytes(&self) -> u64 {
        small_bytes(self.spill_bytes())
    }
}
