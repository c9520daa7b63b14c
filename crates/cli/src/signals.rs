//! The signals that ask a command to end, kept until it asks for them.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
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

/// A shell adds this to the number of the signal that ended a command, for its exit code.
const OF_SIGNAL: usize = 128;

/// The signals that ask long work to end early and keep what is done: the first one is noted, and the second one ends
/// the process at once.
pub(crate) struct Interrupt {
    has_come: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    pub(crate) fn catch() -> Result<Interrupt> {
        let (has_come, signal) = (Arc::default(), Arc::default());
        for (number, value) in [(SIGINT, 2), (SIGTERM, 15)] {
            let code = i32::try_from(OF_SIGNAL + value).unwrap_or(1);
            flag::register_conditional_shutdown(number, code, Arc::clone(&has_come))
                .map_err(refused)?;
            flag::register(number, Arc::clone(&has_come)).map_err(refused)?;
            flag::register_usize(number, Arc::clone(&signal), value).map_err(refused)?;
        }
        Ok(Interrupt { has_come, signal })
    }

    pub(crate) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }

    /// Whether work goes on.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        if self.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// A flag that is raised with it.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.has_come.clone()
    }

    /// The failure of a command that was interrupted, with what it has kept; success where it was not.
    pub(crate) fn outcome(&self, kept: &str) -> Result {
        if !self.has_come() {
            return Ok(());
        }
        let code = OF_SIGNAL + self.signal.load(Ordering::Relaxed);
        Err(Failure::coded(u8::try_from(code).unwrap_or(1), format!("interrupted: {kept}")))
    }
}
