//! Keeps idle processors of the machine from halting.
//!
//! Looking for the next request saves one wake; the other is that of whoever waits for the reply,
//! whose processor has nothing else to do and halts. The kernel can be told how long a wake may take
//! (`/dev/cpu_dma_latency`; Documentation/power/pm_qos_interface.rst): at zero, idle processors look
//! for work instead of halting, and are woken without an interrupt. It forgets that setting when
//! the file is closed, so a crash leaves nothing behind.
//!
//! Invariants
//! 1. Processors are kept awake only while the leader is awake. So it costs nothing once requests
//!    have ceased to come, and hardly anything where the leader waits for a slow device.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Where the kernel is told.
pub(crate) const PATH: &str = "/dev/cpu_dma_latency";
/// How often requests have to come without a sleep in between: telling the kernel wakes everybody.
const QUICK: u32 = 16;
/// As many microseconds as a wake may take, and "as many as it likes".
const NOW: i32 = 0;
const WHENEVER: i32 = -1;

/// Setting that was asked of the kernel.
pub(crate) struct Awake {
    latency: OwnedFd,
    /// How often requests have come since the leader slept.
    quick: u32,
}

impl Awake {
    /// Asks nothing yet.
    pub(crate) fn open() -> Result<Awake, Errno> {
        rustix::fs::open(PATH, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(Awake::new)
    }

    fn new(latency: OwnedFd) -> Awake {
        Awake { latency, quick: 0 }
    }

    /// Requests have come.
    pub(crate) fn came(&mut self) {
        if self.quick < QUICK {
            self.quick += 1;
            if self.quick == QUICK {
                self.ask(NOW);
            }
        }
    }

    /// The leader is about to sleep, or has slept.
    pub(crate) fn rest(&mut self) {
        if self.quick == QUICK {
            self.ask(WHENEVER);
        }
        self.quick = 0;
    }

    fn ask(&self, latency_us: i32) {
        // It is refused by no kernel that has let it be opened; and nothing depends on it but speed.
        let _ = rustix::io::write(&self.latency, &latency_us.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_kept_awake_from_the_sixteenth_quick_request_to_the_next_sleep() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut awake = Awake::new(file.reopen().unwrap().into());
        let mut rounds = |quick: u32| {
            (0..quick).for_each(|_| awake.came());
            awake.rest();
            awake.rest();
        };
        (0..20).for_each(|_| rounds(QUICK - 1));
        rounds(QUICK);
        rounds(QUICK * 10);
        let bytes = std::fs::read(file).unwrap();
        let told = bytes.chunks(4).map(|four| i32::from_ne_bytes(four.try_into().unwrap()));
        assert_eq!(told.collect::<Vec<_>>(), [0, -1, 0, -1]);
    }
}
