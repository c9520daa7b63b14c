//! How long the modelled disk takes for the commands that a cache leaves to it.
//!
//! The simulator of caches counts the disk's commands and blocks and has no time. So each command
//! is given the mean time of a random one of 4 KiB, and each further block the time in which it
//! passes under the head. Both are measured on the model, in virtual time, one command after the
//! other, as commands of a cache that misses come: the disk's own cache of writes is off.

use std::sync::Arc;

use esker_base::units::to_nanos;
use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng};
use esker_device::{Device, NullDevice, Port};
use esker_flash::Pace;
use esker_flash::disk::{Disk, DiskParameters};
use serde::{Deserialize, Serialize};

use crate::LabError;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Commands that are timed.
const SAMPLES: u32 = 2_000;
/// Blocks of the long commands from which the time of a further block comes.
const LONG_BLOCKS: u32 = 256;

/// Times of the disk, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Description of the disk.
    pub disk: String,
    /// A random read of a block.
    pub read_ns: f64,
    /// A random write of a block.
    pub write_ns: f64,
    /// A further block of the same command.
    pub block_ns: f64,
}

impl Times {
    /// Seconds for so many commands and blocks.
    pub(crate) fn seconds(&self, commands: (u64, u64), blocks: (u64, u64)) -> f64 {
        let further = (blocks.0 + blocks.1).saturating_sub(commands.0 + commands.1);
        (figure(commands.0) * self.read_ns
            + figure(commands.1) * self.write_ns
            + figure(further) * self.block_ns)
            / 1e9
    }
}

#[allow(clippy::cast_precision_loss)] // a figure for people
pub(crate) fn figure(count: u64) -> f64 {
    count as f64
}

/// Times of the disk of 7,200 revolutions a minute.
pub(crate) fn measure(seed: u64) -> Result<Times, LabError> {
    let mut parameters = DiskParameters::sata_7200();
    parameters.write_cache_bytes = 0;
    let clock = Clock::virtual_time();
    let lbas = LbaCount(1 << 40);
    let content = Arc::new(NullDevice::new(lbas, parameters.lba_size));
    let disk = Disk::new(&parameters, Some(content))?;
    let disk = disk.emulate("disk", Pace::virtual_time(clock.clone()));
    let geometry = disk.geometry();
    let block_lbas = BLOCK_BYTES / u64::from(geometry.lba_size);
    let blocks = geometry.capacity.0 / block_lbas - u64::from(LONG_BLOCKS);
    let mut port = Port::open(&disk, 1)?;
    let mut rng = Rng::new(seed);
    let mut mean = |writes: bool, count: u32| -> Result<f64, LabError> {
        let size = usize::try_from(BLOCK_BYTES * u64::from(count)).expect("64 bits");
        let mut buf = AlignedBuf::zeroed(size);
        let began = clock.now();
        for _ in 0..SAMPLES {
            let lba = Lba(rng.below(blocks) * block_lbas);
            buf = if writes { port.write(lba, buf, None)? } else { port.read(lba, buf)? };
        }
        let spent = clock.now() - began;
        Ok(figure(to_nanos(spent)))
    };
    let samples = f64::from(SAMPLES);
    let (read, write, long) = (mean(false, 1)?, mean(true, 1)?, mean(false, LONG_BLOCKS)?);
    Ok(Times {
        disk: parameters.model.to_owned(),
        read_ns: read / samples,
        write_ns: write / samples,
        block_ns: (long - read) / samples / f64::from(LONG_BLOCKS - 1),
    })
}
