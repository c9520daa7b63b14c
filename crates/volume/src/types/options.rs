//! How a pool is made and opened, and what a volume may ask for.

use std::time::Duration;

use esker_base::Clock;

use crate::types::error::VolumeError;

/// How a pool is made.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The pool's name.
    pub name: String,
    /// Parities: 0, 1 or 2 drives may be lost without loss of data.
    pub parity: u8,
    /// Chunks of a segment, parities included; `None` for as many as there are drives, or one less from six on,
    /// so that a lost chunk has a drive to be rebuilt on.
    pub width: Option<u16>,
    /// Bytes of a chunk: a quarter of the drives' reclaim unit or more, a multiple of 4 KiB.
    pub chunk_bytes: u64,
    /// Bytes of a unit: the part of a chunk before the next drive's turn comes. A multiple of 4 KiB.
    pub unit_bytes: u32,
    /// Bytes of the write buffer on each drive, used where there are no buffer devices. A multiple of 4 KiB.
    pub log_bytes: u64,
    /// Bytes of each of the two areas for checkpoints on each drive; `None` for what the pool needs.
    pub root_bytes: Option<u64>,
    /// Percent of the space that is kept free for cleaning.
    pub spare_percent: u8,
    /// Whether what is on the devices may be lost.
    pub overwrite: bool,
    /// Where the pool's and the drives' ids come from; `None` for the time.
    pub seed: Option<u64>,
}

impl Default for CreateOptions {
    /// One parity, chunks of 16 MiB in units of 64 KiB, a write buffer of 256 MiB, 15 % spare.
    fn default() -> CreateOptions {
        CreateOptions {
            name: "pool".to_owned(),
            parity: 1,
            width: None,
            chunk_bytes: 16 << 20,
            unit_bytes: 64 << 10,
            log_bytes: 256 << 20,
            root_bytes: None,
            spare_percent: 15,
            overwrite: false,
            seed: None,
        }
    }
}

impl CreateOptions {
    /// Bytes of the write buffer on each drive that suit drives of which the smallest has so many bytes: a 32nd part,
    /// from 16 to 256 MiB, and never more than a sixteenth.
    #[must_use]
    pub fn log_bytes_for(smallest: u64) -> u64 {
        let bytes = (smallest / 32).clamp(16 << 20, 256 << 20).min(smallest / 16);
        (bytes & !4095).max(64 << 10)
    }
}

/// The thread that moves maintenance on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// A thread of the pool.
    Thread,
    /// The caller, by [`Pool::step`](crate::Pool::step); and writers that find the write buffer full.
    Manual,
}

/// How a pool is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// The thread that moves maintenance on.
    pub maintenance: Maintenance,
    /// Bytes of memory for the leaves of the map.
    pub map_bytes: usize,
    /// Tells the time.
    pub clock: Clock,
    /// How long a drive may have commands and answer none before it is taken out. Where the pool cannot do without it, it is
    /// waited for.
    pub patience: Duration,
    /// Percent of maintenance's time that repair and sweeps get beside other work, from 1 to 90.
    pub repair_share: u8,
    /// Open although the write buffer is gone: back to the last checkpoint, and what came later is lost.
    pub lose_buffer: bool,
    /// Open with exactly half of the drives, when it is certain that the other half is opened nowhere else.
    pub accept_half: bool,
    /// Open although drives are missing that were not missing before: what they have is computed from parities until
    /// they return.
    pub degraded: bool,
    /// How long a missing drive is waited for before what it has is rebuilt on others and it is refused.
    pub missing_grace: Duration,
    /// In how much time everything is read and verified in the background; `None` for not at all.
    pub scrub_within: Option<Duration>,
}

impl OpenOptions {
    /// Refuses values that make no sense.
    pub(crate) fn check(&self) -> Result<(), VolumeError> {
        if self.patience.is_zero() {
            let why = "no drive answers within a patience of 0; give some seconds".to_owned();
            return Err(VolumeError::Invalid(why));
        }
        check_repair_share(self.repair_share)
    }
}

/// Refuses percentages that leave nothing for repair, or nothing for others.
///
/// # Errors
/// One that is not from 1 to 90.
pub fn check_repair_share(percent: u8) -> Result<(), VolumeError> {
    if !(1..=90).contains(&percent) {
        let why = format!("a share of {percent} % is none for repair; give one from 1 to 90");
        return Err(VolumeError::Invalid(why));
    }
    Ok(())
}

impl Default for OpenOptions {
    /// A thread, 256 MiB for the map, real time, ten seconds of patience, 20 % for repair, ten minutes for drives that are
    /// missing.
    fn default() -> OpenOptions {
        OpenOptions {
            maintenance: Maintenance::Thread,
            map_bytes: 256 << 20,
            clock: Clock::real(),
            patience: Duration::from_secs(10),
            repair_share: 20,
            lose_buffer: false,
            accept_half: false,
            degraded: false,
            missing_grace: Duration::from_secs(600),
            scrub_within: None,
        }
    }
}

/// Options of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Whether blocks are compressed when they leave the write buffer.
    pub compression: bool,
    /// The most operations a second; 0 for no limit.
    pub iops_limit: u64,
    /// The most bytes a second; 0 for no limit.
    pub bytes_limit: u64,
}

impl Default for VolumeOptions {
    /// Compressed, without limits.
    fn default() -> VolumeOptions {
        VolumeOptions { compression: true, iops_limit: 0, bytes_limit: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_buffer_takes_a_small_part_of_each_drive() {
        for (drive_mib, log_kib) in
            [(1, 64), (64, 4 << 10), (256, 16 << 10), (1 << 10, 32 << 10), (1 << 20, 256 << 10)]
        {
            assert_eq!(
                CreateOptions::log_bytes_for(drive_mib << 20),
                log_kib << 10,
                "{drive_mib} MiB"
            );
        }
    }
}
