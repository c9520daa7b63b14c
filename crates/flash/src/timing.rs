//! When things finish on a drive: a discrete-event simulation of its firmware, its write buffer,
//! its link to the host, its channels and its dies. Where things go is the translation layer's
//! business; the drive between both calls a [`Controller`] for each command of the host and for
//! each operation of the layer, and hears when commands are finished.
//!
//! | module | contents |
//! | --- | --- |
//! | `controller` | [`Controller`]: commands of the host, and the events |
//! | `media` | dies and channels: reads, programs, erasures and their order |
//! | `buffer` | the write buffer: bytes that wait for room, bytes that have arrived |
//! | `host` | which reads go to the dies, where the host decides it |
//! | `jobs` | operations of dies, in lists |
//! | `agenda` | the events to come |
//! | `server` | one after the other: firmware and link |
//!
//! A read passes the firmware, its dies, their channels and the link. A page stays in a register of
//! its die, and keeps that from other use, until the channel has carried it away. A write
//! passes the firmware, waits in line for room in the buffer, crosses the link and is finished:
//! the buffer survives a power cut. The room is free again when the program that carries the data
//! to the media has ended. A program begins when the controller's data path has taken the programs
//! before it, which takes longer for copies than for data of the host.
//!
//! Invariants
//! 1. Time is in whole nanoseconds, and events at the same nanosecond run in the order in which
//!    they were scheduled: the same calls give the same times, bit for bit.
//! 2. Programs and erasures of a die run in the order in which they were ordered.
//! 3. A program starts after the host data it carries has arrived in the buffer, and after the
//!    pages it copies were read.
//! 4. Bytes in the buffer = bytes admitted - bytes whose program has ended; never more than its
//!    size, unless the drive could not go on otherwise (see `buffer`).
//! 5. Every operation waits only for operations ordered before it, so that all of them end. Reads that the
//!    host holds back wait for operations that their dies, or the dies in all, have under way.

mod agenda;
mod buffer;
mod controller;
mod host;
mod jobs;
mod media;
mod server;

pub use controller::{Controller, Copies, HostBytes, Part, Place, Program};
pub use host::{HostQueues, NandPage};

use crate::FlashError;

/// The times and rates of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the array of a die to its page register (tR).
    pub read_ns: u64,
    /// From the page register to the array (tPROG), for one program operation of all planes and
    /// bits that are programmed together.
    pub program_ns: u64,
    /// Whether a die has a cache register, so that it reads the next page while the channel
    /// carries the last one away. Otherwise it waits.
    pub cache_register: bool,
    /// Erasing a block, or one block of each plane together (tBERS). Zero for media that are
    /// written in place.
    pub erase_ns: u64,
    /// Bandwidth of a channel, in either direction.
    pub channel_bytes_per_s: u64,
    /// Bytes a second that the controller copies for cleaning, where nothing else goes on. It writes data of the host at
    /// the rate of the link, and both take its time. Zero: it copies as fast as it writes data of the host.
    pub copy_bytes_per_s: u64,
    /// Bandwidth of the link to the host.
    pub link_read_bytes_per_s: u64,
    /// Bandwidth of the link from the host.
    pub link_write_bytes_per_s: u64,
    /// Time of the firmware for a read before its dies hear of it.
    pub read_firmware_ns: u64,
    /// Time of the firmware for a write before it asks for room in the buffer, and for a command that moves no data.
    pub write_firmware_ns: u64,
    /// How many commands the firmware starts in a second, at most; zero is no limit.
    pub commands_per_s: u64,
    /// Time until the host notices that a command is finished.
    pub host_ns: u64,
    /// The size of the write buffer. At least the bytes that the translation layer leaves unprogrammed in all units it
    /// has open, and one more program.
    pub buffer_bytes: u64,
    /// Whether reads of the host go before the programs, erasures and copies waiting for the same
    /// die; otherwise all wait in one line.
    pub reads_overtake: bool,
    /// Whether reads of the host suspend a program or an erasure that is running.
    pub suspension: Option<Suspension>,
    /// The queues in which the host holds reads back, where it manages the drive: it has the translation
    /// layer and the write buffer, too. None for a drive behind a controller of its own.
    pub host_queues: Option<HostQueues>,
}

/// Suspending a program or an erasure for the reads that wait for the die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Time of suspending and resuming, together.
    pub overhead_ns: u64,
    /// How often one operation may be suspended, so that it ends.
    pub most: u32,
}

impl Timing {
    /// Checks that a drive can work like this.
    ///
    /// # Errors
    /// The problem, and a remedy.
    pub fn check(&self) -> Result<(), FlashError> {
        let refuse = |why: &str| Err(FlashError::Invalid(why.to_owned()));
        let rates =
            [self.channel_bytes_per_s, self.link_read_bytes_per_s, self.link_write_bytes_per_s];
        if rates.contains(&0) {
            return refuse("a channel and a link carry at least one byte a second");
        }
        if self.buffer_bytes == 0 {
            return refuse("a write buffer has room for at least one program operation");
        }
        if self.commands_per_s > 1_000_000_000 {
            return refuse("at most 10^9 commands a second; write 0 for no limit");
        }
        if self.suspension.is_some() && !self.reads_overtake {
            return refuse("reads that suspend a program must also be allowed to overtake others");
        }
        if self.host_queues.is_some_and(|queues| queues.copy_bytes_per_s == 0) {
            return refuse("a host copies at least one byte a second");
        }
        Ok(())
    }
}
