//! Hosts that are too slow: a host has to end each thing it has begun in a time, however many bytes
//! of it trickle in meanwhile. A connection that does not is shed, because others need the memory
//! it holds.
//!
//! | the host | in [`Limits::transfer`] |
//! | --- | --- |
//! | was asked for the data of a command | has sent all of it |
//! | has begun a PDU | has ended it |
//! | has answers to take | has taken those that wait for it now |
//!
//! A time runs for each command, each PDU and each backlog, not from the last byte. All of it is looked at
//! with every tick of the worker and costs nothing between them.
//!
//! [`Limits::transfer`]: crate::target::config::Limits::transfer

use std::fmt;
use std::time::Duration;

use esker_base::Nanos;

use crate::conn::ControllerConnection;

/// Duty that a host was too slow with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slow {
    Data,
    Pdu,
    Taking,
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Slow::Data => "the data of a command that it was asked for has not come",
            Slow::Pdu => "a PDU that it began has not ended",
            Slow::Taking => "it has not taken what it was sent",
        })
    }
}

/// Observations of a connection with the last ticks.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Commands whose data was asked for and has not come.
    pub(crate) fetching: usize,
    /// The number of the PDU that is under way, and since when it is known to be.
    pdu: Option<(u64, Nanos)>,
    /// The position up to which the host has to take its output, and since when.
    backlog: Option<(u64, Nanos)>,
}

impl Pace {
    /// Returns whether the host is too slow, and with which duty; `asked` are the times when it was
    /// asked for data that has not come.
    pub(crate) fn look(
        &mut self,
        wire: &ControllerConnection,
        mut asked: impl Iterator<Item = Nanos>,
        now: Nanos,
        limit: Duration,
    ) -> Option<Slow> {
        let is_late = |since: Nanos| now.since(since) > limit;
        let (is_within, pdus) = wire.pdu_under_way();
        self.pdu = match self.pdu {
            Some((number, since)) if is_within && number == pdus => Some((number, since)),
            _ => is_within.then_some((pdus, now)),
        };
        let (queued, sent) = wire.output_bytes();
        self.backlog = match self.backlog {
            Some((goal, since)) if sent < goal => Some((goal, since)),
            _ => (sent < queued).then_some((queued, now)),
        };
        if self.backlog.is_some_and(|(_, since)| is_late(since)) {
            Some(Slow::Taking)
        } else if self.fetching > 0 && asked.any(is_late) {
            Some(Slow::Data)
        } else if self.pdu.is_some_and(|(_, since)| is_late(since)) {
            Some(Slow::Pdu)
        } else {
            None
        }
    }
}
