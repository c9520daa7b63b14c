//! What ends a target, or has it read its configuration again: signals, or time that is up.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use esker_base::{Clock, thread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Result;
use crate::signals::refused;

/// The exit code when a second signal ends it at once.
const AT_ONCE: i32 = 1;

/// What came.
pub(super) enum Event {
    /// The configuration is to be read again.
    Reload,
    /// It is to end, and why.
    End(&'static str),
}

/// Signals that are waited for.
pub(super) struct Waiting(Signals);

impl Waiting {
    /// From now on signals are kept until they are asked for; after `time`, if it is given, the end
    /// comes by itself. A second signal to end does so at once, whatever is still to be done.
    pub(super) fn new(time: Option<Duration>) -> Result<Waiting> {
        let is_second = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag down, and raises it.
            flag::register_conditional_shutdown(signal, AT_ONCE, is_second.clone())
                .map_err(refused)?;
            flag::register(signal, is_second.clone()).map_err(refused)?;
        }
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(refused)?;
        if let Some(time) = time {
            let handle = signals.handle();
            let wait = move || {
                Clock::real().sleep(time);
                handle.close();
            };
            thread::spawn("time is up", wait).map_err(refused)?;
        }
        Ok(Waiting(signals))
    }

    /// Waits for the next event.
    pub(super) fn next(&mut self) -> Event {
        match self.0.forever().next() {
            Some(SIGHUP) => Event::Reload,
            Some(SIGINT) => Event::End("interrupted"),
            Some(_) => Event::End("terminated"),
            None => Event::End("the time is up"),
        }
    }
}
