//! Events of a service: those that end it or have it read its configuration again, which are signals or time that is up,
//! and its messages.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use esker_base::{Clock, ErrorKind, Nanos};
use esker_nvmf::Target;
use esker_nvmf::target::Refusal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::error::{Result, ServeError};

/// The exit code when a second signal ends it at once.
const AT_ONCE: i32 = 1;
/// How often is looked for an event while one is waited for.
const STEP: Duration = Duration::from_millis(20);

/// A message of a service to the person that runs it.
#[derive(Debug)]
pub enum Told<'a> {
    /// Lines of its output, the last newline included.
    Output(&'a str),
    /// A fact that stops nothing.
    Note(&'a str),
    /// A failure after which it goes on.
    Failure(&'a str),
}

/// A function that takes the messages of a service.
pub type Tell<'a> = &'a dyn Fn(Told<'_>);

/// An event that was waited for.
pub(crate) enum Event {
    /// The configuration is to be read again.
    Reload,
    /// It is to end, and why.
    End(&'static str),
}

/// Signals that are waited for.
pub struct Waiting {
    signals: Signals,
    clock: Clock,
    /// When the end comes by itself.
    end: Option<Nanos>,
}

impl Waiting {
    /// From now on signals are kept until they are asked for; after `time`, if it is given, the end
    /// comes by itself. A second signal to end does so at once, whatever is still to be done.
    ///
    /// # Errors
    /// The system's, when signals cannot be caught.
    pub fn new(time: Option<Duration>) -> Result<Waiting> {
        let refused = |error: io::Error| {
            let why = format!("waiting for signals: {error}");
            ServeError::new(ErrorKind::from(&error), why)
        };
        let is_second = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag down, and raises it.
            flag::register_conditional_shutdown(signal, AT_ONCE, is_second.clone())
                .map_err(refused)?;
            flag::register(signal, is_second.clone()).map_err(refused)?;
        }
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(refused)?;
        let clock = Clock::real();
        let end = time.map(|time| clock.now() + time);
        Ok(Waiting { signals, clock, end })
    }

    /// Waits for the next event. Panics of the target's threads are told.
    pub(crate) fn next(&mut self, target: Option<&Target>, tell: Tell<'_>) -> Event {
        loop {
            match self.signals.pending().next() {
                Some(SIGHUP) => return Event::Reload,
                Some(SIGINT) => return Event::End("interrupted"),
                Some(_) => return Event::End("terminated"),
                None => {}
            }
            for panic in target.map(Target::take_panics).unwrap_or_default() {
                tell(Told::Failure(&format!(
                    "{panic}; its connections were closed, and hosts can connect again"
                )));
            }
            for one in target.map(Target::take_refusals).unwrap_or_default() {
                tell(Told::Note(&refused(&one)));
            }
            if target.is_some_and(|target| !target.is_running()) {
                return Event::End("a worker has panicked, and there is no thread for another one");
            }
            if self.end.is_some_and(|end| self.clock.now() >= end) {
                return Event::End("the time is up");
            }
            self.clock.sleep(STEP);
        }
    }
}

/// A host that was not let in, in a line.
fn refused(one: &Refusal) -> String {
    let host = if one.host.is_empty() { "a host without a name" } else { &one.host };
    let at = one.address.map(|address| format!(" at {address}")).unwrap_or_default();
    let count =
        if one.count == 1 { String::new() } else { format!(", {} times so far", one.count) };
    format!("{host}{at} was not let in: it {}{count}", one.reason.text())
}
