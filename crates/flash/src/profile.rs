//! Drives one can name: figures that their makers and reviewers published, and assumptions beside them.
//!
//! Nobody publishes the inside of a drive. A profile takes NAND times from publications about chips
//! of its generation, puts in the published facts about the drive, and lists everything else as an
//! assumption, which is to be shown wherever a result depends on the profile.

mod drives;

use esker_base::units::human_bytes;

use crate::FlashError;
use crate::disk::DiskParameters;
use crate::drive::{Media, Parameters};

/// A drive by name.
#[derive(Clone, Debug)]
pub struct Profile {
    /// As in a device specification.
    pub name: &'static str,
    /// The drive's full name.
    pub title: &'static str,
    /// The kind of drive, with its parameters.
    pub kind: Kind,
    /// The same NAND behind a controller of its own, where the host manages this drive.
    pub in_drive: Option<Box<Profile>>,
    /// Figures that were published, and that the model is to reproduce.
    pub published: Vec<Published>,
    /// Where they and the parameters are from.
    pub sources: Vec<&'static str>,
    /// Assumptions for facts that are not known.
    pub assumptions: Vec<&'static str>,
}

/// The kind of drive that a profile describes.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A solid-state drive.
    Ssd(Box<Parameters>),
    /// A disk.
    Disk(Box<DiskParameters>),
}

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The quantity.
    pub figure: Figure,
    /// How much, in the unit of the figure.
    pub value: f64,
}

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// 128 KiB reads in order, in bytes per second.
    SequentialRead,
    /// 128 KiB writes in order, in bytes per second.
    SequentialWrite,
    /// 4 KiB reads at random addresses, many in flight, per second.
    RandomReads,
    /// 4 KiB writes at random addresses in the steady state, many in flight, per second.
    RandomWrites,
    /// One 4 KiB read at a time, in nanoseconds.
    ReadLatency,
    /// One 4 KiB write at a time, in nanoseconds.
    WriteLatency,
}

impl Figure {
    /// Returns the quantity's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Figure::SequentialRead => "sequential read",
            Figure::SequentialWrite => "sequential write",
            Figure::RandomReads => "random 4 KiB reads",
            Figure::RandomWrites => "random 4 KiB writes, steady",
            Figure::ReadLatency => "4 KiB read, one at a time",
            Figure::WriteLatency => "4 KiB write, one at a time",
        }
    }

    /// A value with its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Figure::SequentialRead | Figure::SequentialWrite => format!("{:.0} MB/s", value / 1e6),
            Figure::RandomReads | Figure::RandomWrites => format!("{:.1} k/s", value / 1e3),
            Figure::ReadLatency | Figure::WriteLatency => format!("{:.1} µs", value / 1e3),
        }
    }
}

impl Profile {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Profile> {
        drives::all()
    }

    /// The one with this name.
    ///
    /// # Errors
    /// When there is none; the message lists those that there are.
    pub fn find(name: &str) -> Result<Profile, FlashError> {
        Profile::all().into_iter().find(|profile| profile.name == name).ok_or_else(|| {
            let names: Vec<_> = Profile::all().iter().map(|profile| profile.name).collect();
            let why = format!("there is no profile '{name}': there are {}", names.join(", "));
            FlashError::Invalid(why)
        })
    }

    /// Returns the parameters, if it is a solid-state drive.
    #[must_use]
    pub fn ssd(&self) -> Option<&Parameters> {
        match &self.kind {
            Kind::Ssd(parameters) => Some(parameters),
            Kind::Disk(_) => None,
        }
    }
}

impl Parameters {
    /// The drive scaled down to a capacity, its behaviour kept: as many reclaim units and as much
    /// over-provisioning, the same dies, rates and latencies. Reclaim units become smaller, and
    /// erasing them shorter, so that erasures take the same share of the time.
    ///
    /// # Errors
    /// When the capacity is more than the drive's, or too small for its number of units.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn scaled(&self, capacity: u64) -> Result<Parameters, FlashError> {
        let page = u64::from(self.page_size);
        let capacity = capacity / page * page;
        if capacity > self.capacity {
            let full = human_bytes(self.capacity);
            return Err(FlashError::Invalid(format!("the drive has {full}: ask for at most that")));
        }
        let factor = capacity as f64 / self.capacity as f64;
        let program = u64::from(self.program_size);
        let programs = (self.unit_size as f64 * factor / program as f64).round() as u64;
        if self.media == Media::Flash && programs < 2 {
            let least = (2.0 * program as f64 / self.unit_size as f64) * self.capacity as f64;
            let why = format!(
                "{} are too few for as many reclaim units as the drive has: ask for at least {}",
                human_bytes(capacity),
                human_bytes(least.ceil() as u64)
            );
            return Err(FlashError::Invalid(why));
        }
        let unit_size = programs.max(1) * program;
        let in_all = self.media_bytes() as f64 * factor;
        let mut timing = self.timing.clone();
        let on_each_die = |unit_size: u64| (unit_size / program).div_ceil(u64::from(self.dies));
        let share = on_each_die(unit_size) as f64 / on_each_die(self.unit_size) as f64;
        timing.erase_ns = (timing.erase_ns as f64 * share).round() as u64;
        let units = (in_all / unit_size as f64).round() as u32;
        Ok(Parameters { capacity, unit_size, units, timing, ..self.clone() })
    }

    /// Reclaim units for a share of media beyond the capacity, all reserves included.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn units_for(&self, over_provisioning: f64) -> u32 {
        // Saturates, and the check of the parameters refuses too many.
        (self.capacity as f64 * (1.0 + over_provisioning) / self.unit_size as f64).round() as u32
    }

    /// The same media in other reclaim units; erasing one takes time in proportion to its share of a die.
    ///
    /// # Errors
    /// When a unit is no multiple of the bytes that a die programs at once.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn with_units_of(mut self, bytes: u64) -> Result<Parameters, FlashError> {
        let program = u64::from(self.program_size);
        if bytes == 0 || !bytes.is_multiple_of(program) {
            return Err(FlashError::Invalid(format!(
                "{bytes} bytes are no multiple of the {program} that a die programs at once"
            )));
        }
        let on_each_die = |size: u64| (size / program).div_ceil(u64::from(self.dies));
        let share = on_each_die(bytes) as f64 / on_each_die(self.unit_size) as f64;
        self.timing.erase_ns = (self.timing.erase_ns as f64 * share).round() as u64;
        self.units = (self.media_bytes() as f64 / bytes as f64).round() as u32;
        self.unit_size = bytes;
        Ok(self)
    }
}
