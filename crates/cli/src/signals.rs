//! The signals that ask a command to end, kept until it asks for them.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result};

/// How often is looked for a signal while one is waited for.
pub(crate) const STEP: Duration = Duration::from_millis(20);

/// The failure when signals cannot be caught.
fn refused(error: io::Error) -> Failure {
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
/// the process at once. As long as no work holds one of these, signals end the process by themselves.
pub(crate) struct Interrupt(&'static Caught);

/// The state of the signals, of which a process has one.
struct Caught {
    has_come: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    /// Whether nobody waits for signals.
    is_default: Arc<AtomicBool>,
    holders: AtomicUsize,
}

static CAUGHT: OnceLock<Caught> = OnceLock::new();

impl Caught {
    fn register() -> io::Result<Caught> {
        let caught = Caught {
            has_come: Arc::default(),
            signal: Arc::default(),
            is_default: Arc::default(),
            holders: AtomicUsize::new(0),
        };
        let has_come = || Arc::clone(&caught.has_come);
        for (number, value) in [(SIGINT, 2), (SIGTERM, 15)] {
            let code = i32::try_from(OF_SIGNAL + value).unwrap_or(1);
            // In this order they are called.
            flag::register_conditional_default(number, Arc::clone(&caught.is_default))?;
            flag::register_conditional_shutdown(number, code, has_come())?;
            flag::register_usize(number, Arc::clone(&caught.signal), value)?;
            flag::register(number, has_come())?;
        }
        Ok(caught)
    }
}

/// Whether a signal has come to work that holds an [`Interrupt`].
pub(crate) fn have_come() -> bool {
    CAUGHT.get().is_some_and(|caught| caught.has_come.load(Ordering::Relaxed))
}

impl Interrupt {
    pub(crate) fn catch() -> Result<Interrupt> {
        let caught = match CAUGHT.get() {
            Some(caught) => caught,
            None => {
                let caught = Caught::register().map_err(refused)?;
                CAUGHT.get_or_init(|| caught)
            }
        };
        caught.holders.fetch_add(1, Ordering::Relaxed);
        caught.is_default.store(false, Ordering::Relaxed);
        Ok(Interrupt(caught))
    }

    pub(crate) fn has_come(&self) -> bool {
        self.0.has_come.load(Ordering::Relaxed)
    }

    /// Whether work goes on.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        if self.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// A flag that is raised with it.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.0.has_come.clone()
    }

    /// The failure of a command that was interrupted, with what it has kept; success where it was not.
    pub(crate) fn outcome(&self, kept: &str) -> Result {
        if !self.has_come() {
            return Ok(());
        }
        let code = OF_SIGNAL + self.0.signal.load(Ordering::Relaxed);
        Err(Failure::coded(u8::try_from(code).unwrap_or(1), format!("interrupted: {kept}")))
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        if self.0.holders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.is_default.store(true, Ordering::Relaxed);
        }
    }
}
