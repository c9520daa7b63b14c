//! The signals that ask a command to end, kept until it asks for them.

use std::io;
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result};

/// How often is looked for a signal while one is waited for.
pub(crate) const STEP: Duration = Duration::from_millis(20);

/// The failure when signals cannot be caught.
pub(crate) fn refused(error: io::Error) -> Failure {
    Failure::new(ErrorKind::from(&error), format!("waiting for signals: {error}"))
}

/// `SIGINT` and `SIGTERM`, which end nothing by themselves from now on.
pub(crate) struct StopSignals(Signals);

impl StopSignals {
    pub(crate) fn catch() -> Result<StopSignals> {
        Ok(StopSignals(Signals::new([SIGTERM, SIGINT]).map_err(refused)?))
    }

    /// Whether one has come that was not told yet.
    pub(crate) fn take(&mut self) -> bool {
        self.0.pending().count() > 0
    }

    /// Waits for one, for at most `timeout`; says whether one has come.
    pub(crate) fn wait(&mut self, timeout: Duration) -> bool {
        let clock = Clock::real();
        let end = clock.now() + timeout;
        loop {
            if self.take() {
                return true;
            }
            let left = end.since(clock.now());
            if left.is_zero() {
                return false;
            }
            clock.sleep(left.min(STEP));
        }
    }
}
