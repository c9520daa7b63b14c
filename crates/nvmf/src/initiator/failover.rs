//! The way of a queue to a path: the best one is tried first, the next one if it fails, until one works.
//!
//! A path may accept and then say nothing. It gets half of the time that is left while another one can be tried, so
//! that it does not use up the time of the others. When every path was refused for good, no time is waited.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_base::Nanos;

use super::link::drain;
use super::multipath::{Active, Multipath};
use super::path::Path;
use crate::error::NvmfError;
use crate::wire::status::Status;

/// How often a queue that needs a path looks for one, if `retry` is longer.
const LOOK: Duration = Duration::from_millis(20);

/// Where a connection comes from.
pub(crate) enum Start {
    /// It is to be made.
    New,
    /// It is to replace this one.
    After(TcpStream),
    /// It is there, with nothing under way.
    With(Box<Active>),
}

impl Multipath {
    /// Connects a queue over the best path, trying until `deadline` or until it is `cancelled`. The
    /// connection it replaces is drained first, so that nothing sent over it happens after this
    /// returns; and data that a lost controller may have forgotten is written again
    /// ([`Multipath::restore`]).
    pub(crate) fn obtain(
        &self,
        depth: usize,
        start: Start,
        flush: Option<u64>,
        deadline: Nanos,
        cancelled: &AtomicBool,
    ) -> Result<Active, NvmfError> {
        match start {
            Start::New => {}
            // A target that does not answer drops the connection when its keep alive timeout has
            // passed, with some grace.
            Start::After(stream) => {
                drain(&stream, &self.clock, self.config.keep_alive * 2);
            }
            Start::With(active) => {
                let latest = self.share(deadline, self.paths.len() > 1);
                if let Ok(active) = self.restore(*active, flush, latest, cancelled) {
                    return Ok(active);
                }
            }
        }
        let mut error = NvmfError::Lost {
            peer: self.paths[0].peer,
            what: "no path to the namespace works".to_owned(),
        };
        loop {
            let is_over = self.clock.now() >= deadline;
            let mut usable: VecDeque<usize> = self.usable_paths().collect();
            while let Some(index) = usable.pop_front().filter(|_| !is_over) {
                let path = &self.paths[index];
                let latest = self.share(deadline, !usable.is_empty());
                match path.open_queue(&self.config, &self.clock, depth, latest) {
                    Ok((link, qid, generation)) => {
                        let active = Active { link, path: index, qid, generation };
                        match self.restore(active, flush, latest, cancelled) {
                            Ok(active) => return Ok(active),
                            Err(failed) => error = failed,
                        }
                    }
                    Err(refused @ NvmfError::Authentication(_)) => return Err(refused),
                    Err(refused) => {
                        // One that has no queue to give is as good as before for those that are.
                        let is_busy = match &refused {
                            NvmfError::Refused { status, .. } => *status == Status::CONNECT_BUSY,
                            other => matches!(other, NvmfError::Unusable { .. }),
                        };
                        if !is_busy {
                            self.give_up(index, path.generation(), &refused);
                        }
                        error = refused;
                    }
                }
            }
            if let Some(refusal) = self.refusal() {
                return Err(refusal);
            }
            let left = deadline.since(self.clock.now());
            let is_told = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            if left.is_zero() || is_told(&self.is_stopping) || is_told(cancelled) {
                return Err(error);
            }
            self.clock.sleep(LOOK.min(self.config.retry).min(left));
        }
    }

    /// By when an attempt has to be over.
    fn share(&self, deadline: Nanos, has_others: bool) -> Nanos {
        let now = self.clock.now();
        if has_others { now + deadline.since(now) / 2 } else { deadline }
    }

    /// Why no path is worth waiting for: the target has refused this host for good at every one.
    pub(crate) fn refusal(&self) -> Option<NvmfError> {
        let refusals: Option<Vec<_>> = self.paths.iter().map(Path::refusal).collect();
        refusals?.pop()
    }
}
