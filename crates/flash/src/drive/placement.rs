//! Data placement of a drive: the configuration in force, the reports of handles, and the most
//! recent events.

use std::collections::VecDeque;

use esker_device::fdp::{Event, EventType, Reporter};

use super::counts::Totals;

/// Events that each log keeps: as many as the log page holds.
const KEPT: usize = 63;

/// The state of data placement.
pub(crate) struct Placement {
    /// The configuration in force.
    pub(crate) enabled: Option<usize>,
    /// For each handle, the kinds of event that it reports.
    reported: Vec<Vec<EventType>>,
    host: VecDeque<Event>,
    controller: VecDeque<Event>,
    /// Host and media bytes when the configuration was enabled.
    pub(crate) since: Totals,
}

impl Placement {
    pub(crate) fn new(enabled: Option<usize>, handles: usize, since: Totals) -> Placement {
        Placement {
            enabled,
            reported: vec![Vec::new(); handles],
            host: VecDeque::new(),
            controller: VecDeque::new(),
            since,
        }
    }

    pub(crate) fn is_reported(&self, handle: u16, kind: EventType) -> bool {
        let kinds = self.reported.get(usize::from(handle));
        kinds.is_some_and(|kinds| kinds.contains(&kind))
    }

    pub(crate) fn report(&mut self, handle: u16, kinds: &[EventType], enable: bool) {
        let Some(reported) = self.reported.get_mut(usize::from(handle)) else { return };
        reported.retain(|kind| !kinds.contains(kind));
        if enable {
            reported.extend_from_slice(kinds);
        }
    }

    /// Keeps an event, if its handle reports such; one of no handle in particular, if any does.
    pub(crate) fn record(&mut self, handle: Option<u16>, event: Event) {
        let is_reported = match handle {
            Some(handle) => self.is_reported(handle, event.kind),
            None => self.reported.iter().any(|kinds| kinds.contains(&event.kind)),
        };
        if !is_reported {
            return;
        }
        let log = match event.kind.reporter() {
            Reporter::Host => &mut self.host,
            Reporter::Controller => &mut self.controller,
        };
        if log.len() == KEPT {
            log.pop_front();
        }
        log.push_back(event);
    }

    pub(crate) fn events(&self, reporter: Reporter) -> Vec<Event> {
        match reporter {
            Reporter::Host => self.host.iter().copied().collect(),
            Reporter::Controller => self.controller.iter().copied().collect(),
        }
    }
}
