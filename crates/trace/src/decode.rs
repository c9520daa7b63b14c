//! Common parts of the decoders of all formats: how a trace is to be read, and requests a batch at a time.

use crate::error::Result;
use crate::format::{Columns, Format};
use crate::input::Input;
use crate::names::Names;
use crate::request::Request;

/// Which events of a block trace are requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// Q: a request enters the block layer, as applications ask for it.
    #[default]
    Queue,
    /// D: a request goes to the driver, merged and scheduled.
    Issue,
    /// C: a request is complete.
    Complete,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 3] = [Event::Queue, Event::Issue, Event::Complete];

    /// Its letter in blkparse's output, and its name.
    #[must_use]
    pub fn names(self) -> (char, &'static str) {
        match self {
            Event::Queue => ('Q', "queue"),
            Event::Issue => ('D', "issue"),
            Event::Complete => ('C', "complete"),
        }
    }
}

/// Counts of the events of a block trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    counts: [u64; 3],
    /// Events of the wanted kind that pass a SCSI command through: they read and write no blocks.
    pub(crate) pass_through: u64,
}

impl Events {
    pub(crate) fn count(&mut self, event: Option<Event>) {
        if let Some(event) = event {
            self.counts[event as usize] += 1;
        }
    }

    pub(crate) fn add(&mut self, other: Events) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.pass_through += other.pass_through;
    }

    /// Remarks on events of a kind that there is none of, and on those that pass commands through.
    pub(crate) fn remarks(&self, wanted: Event) -> Vec<String> {
        let mut remarks = Vec::new();
        let others = Event::ALL.into_iter().filter(|event| self.counts[*event as usize] > 0);
        let others: Vec<String> = others
            .map(|event| format!("{} of {}", self.counts[event as usize], event.names().1))
            .collect();
        if self.counts[wanted as usize] == 0 && !others.is_empty() {
            let (letter, name) = wanted.names();
            let others = others.join(" and ");
            remarks.push(format!(
                "no event is of the kind that was asked for, {name} ({letter}); there are {others}: ask for one of these (--event)"
            ));
        }
        if self.pass_through > 0 {
            remarks.push(format!(
                "{} events pass SCSI commands through and name no blocks: they were skipped",
                self.pass_through
            ));
        }
        remarks
    }
}

/// How a trace is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format; `None` recognises it.
    pub format: Option<Format>,
    /// The bytes of a unit of address, where the format leaves it open
    /// ([`Format::default_unit_bytes`]): 512 to 1 MiB.
    pub unit_bytes: Option<u64>,
    /// Which events of blktrace and blkparse are requests.
    pub event: Event,
    /// The columns of csv; `None` for those that its header names.
    pub columns: Option<Columns>,
}

impl Options {
    /// The unit of address of a format that leaves it open.
    pub(crate) fn unit(&self, format: Format) -> u64 {
        self.unit_bytes.or(format.default_unit_bytes()).unwrap_or(512)
    }
}

/// How many requests a decoder yields at a time, about.
pub(crate) const BATCH: usize = 1024;

/// Turns the bytes of one file into requests.
pub(crate) trait Decode: Send {
    /// Appends about [`BATCH`] requests. `false` when there is nothing more.
    fn decode(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<bool>;

    /// The input that it reads from, if that may end early.
    fn input(&self) -> Option<&Input> {
        None
    }

    /// Remarks for the reader of the trace, once it was read.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many events there were of each kind, if the format has events.
    fn events(&self) -> Events {
        Events::default()
    }
}
