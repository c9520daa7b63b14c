//! Keeps idle processors from sleeping while faults come often: a thread that wakes one waits for it, at each fault
//! and at each answer.
//!
//! The kernel takes a bound on the time that a processor may need to wake, for as long as a descriptor is open
//! (`/dev/cpu_dma_latency`, documented in the kernel's `power/pm_qos_interface`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// Where the bound is given.
const LATENCY: &str = "/dev/cpu_dma_latency";
/// Faults between two ticks that are many.
const MANY: u64 = 20;
/// Ticks with fewer faults, after which processors may sleep again.
const QUIET: u32 = 10;

/// Keeps all processors of the machine awake until the file is closed.
///
/// # Errors
/// Those of opening the kernel's file: it is root's, and containers may not have it.
pub fn stay_awake() -> io::Result<File> {
    let open = || {
        let mut file = OpenOptions::new().write(true).open(LATENCY)?;
        file.write_all(&0i32.to_ne_bytes()).map(|()| file)
    };
    open().map_err(|error| io::Error::new(error.kind(), format!("{LATENCY}: {error}")))
}

/// The bound, and whether it is given.
#[derive(Default)]
pub(crate) struct Awake {
    bound: Option<File>,
    faults: u64,
    quiet: u32,
}

impl Awake {
    /// Gives the bound or takes it back. `faults`: how many there were until now.
    pub(crate) fn tick(&mut self, faults: u64) -> io::Result<()> {
        let new = faults.saturating_sub(std::mem::replace(&mut self.faults, faults));
        if new < MANY {
            self.quiet = self.quiet.saturating_add(1);
            self.bound.take_if(|_| self.quiet >= QUIET);
            return Ok(());
        }
        self.quiet = 0;
        if self.bound.is_none() {
            self.bound = Some(stay_awake()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_stay_awake_while_faults_come_often() {
        if let Err(error) = stay_awake() {
            println!("SKIPPED: {error}");
            return;
        }
        let mut awake = Awake::default();
        let mut after = |faults: u64| {
            awake.tick(faults).unwrap();
            awake.bound.is_some()
        };
        assert!(!after(MANY - 1), "few faults");
        assert!(after(2 * MANY));
        let held: Vec<bool> = (0..QUIET).map(|_| after(2 * MANY)).collect();
        let (last, others) = held.split_last().unwrap();
        assert!(!last && others.iter().all(|is| *is), "after {QUIET} ticks");
        assert!(after(4 * MANY), "again");
    }
}
