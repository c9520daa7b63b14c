//! The media under the layer while one command runs: data, time and journal.

use std::sync::Arc;

use esker_base::Nanos;
use esker_device::Device;

use super::counts::HostCounts;
use super::store::Store;
use super::timeline::Timeline;
use super::{Image, Places};
use crate::FlashError;
use crate::ftl::{Array, Event, LogicalPage, MediaPage, UnitId, Writer};

/// The data of the command, in whole pages from `first` on, and the part of it that the host gave.
#[derive(Default)]
pub(super) struct Source<'a> {
    pub(super) first: LogicalPage,
    pub(super) data: &'a [u8],
    pub(super) offset: u64,
    pub(super) end: u64,
    /// Where they begin in the stream of all that the host writes; none if it did not give them.
    pub(super) position: Option<u64>,
    /// Pages of which the host gave a part, and where the rest is.
    pub(super) partly: [Option<(LogicalPage, MediaPage)>; 2],
}

/// Pages that follow each other, logically and on the media.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Where they are copied from; none if the host wrote them.
    from: Option<MediaPage>,
    at: MediaPage,
    page: LogicalPage,
    count: u32,
}

/// A unit whose valid pages cleaning or wear levelling has moved.
pub(super) struct Moved {
    pub(super) group: u16,
    /// Whose pages they were, if they were of one handle alone.
    pub(super) handle: Option<u16>,
    pub(super) pages: u32,
}

/// The media under the layer during one command: data, time and journal. Consecutive pages are
/// moved together.
pub(super) struct Stage<'a> {
    pub(super) store: &'a mut Store,
    pub(super) timeline: Option<(&'a mut Timeline, Nanos)>,
    /// Where the host chooses dies and time is not modelled.
    pub(super) places: Option<&'a mut Places>,
    pub(super) image: Option<&'a mut Image>,
    pub(super) device: &'a Arc<dyn Device>,
    pub(super) page_size: u32,
    pub(super) unit_pages: u32,
    pub(super) host: HostCounts,
    pub(super) source: Source<'a>,
    pub(super) run: Option<Run>,
    /// Units whose valid pages were moved.
    pub(super) moved: Vec<Moved>,
    pub(super) error: Option<FlashError>,
}

impl Stage<'_> {
    fn extend(&mut self, from: Option<MediaPage>, at: MediaPage, page: LogicalPage) {
        if let Some(run) = &mut self.run {
            let goes_on = run.from.map(|from| from + run.count) == from
                && run.at + run.count == at
                && run.page + run.count == page;
            if goes_on {
                run.count += 1;
                return;
            }
        }
        self.move_run();
        self.run = Some(Run { from, at, page, count: 1 });
    }

    /// Moves the pages gathered so far.
    fn move_run(&mut self) {
        let Some(Run { from, at, page, count }) = self.run.take() else { return };
        if self.error.is_some() {
            return;
        }
        let moved = match from {
            Some(from) => self.store.copy(from, at, count),
            None => {
                let size = self.page_size as usize;
                let start = (page - self.source.first) as usize * size;
                self.store.write(at, &self.source.data[start..start + count as usize * size])
            }
        };
        self.error = moved.err().map(FlashError::from);
        self.record(match from {
            Some(_) => Event::Copy { page, at, count },
            None => Event::Program { page, at, count },
        });
    }

    fn record(&mut self, event: Event) {
        self.record_places();
        if let Some(image) = &mut self.image {
            image.record(event);
        }
    }

    /// Notes the dies that were chosen.
    fn record_places(&mut self) {
        let Some((timeline, _)) = &mut self.timeline else { return };
        for (stripe, die) in timeline.placed.drain(..) {
            if let Some(image) = &mut self.image {
                image.record(Event::Place { stripe, die });
            }
        }
    }

    /// Ends the command: which units were moved meanwhile.
    pub(super) fn settle(mut self) -> Result<Vec<Moved>, FlashError> {
        self.move_run();
        self.record_places();
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(self.moved),
        }
    }
}

impl Array for Stage<'_> {
    fn open(&mut self, unit: UnitId, writer: Writer) {
        self.move_run();
        if let Some(image) = &mut self.image
            && self.error.is_none()
            && image.must_commit_before(unit)
        {
            self.error = image.commit(self.store.port(), self.device, self.host).err();
        }
        self.record(Event::Open { unit, writer });
    }

    fn program(&mut self, at: MediaPage, page: LogicalPage) {
        if let Some((timeline, now)) = &mut self.timeline {
            let size = u64::from(self.page_size);
            let begin = (u64::from(page) * size).max(self.source.offset);
            let end = ((u64::from(page) + 1) * size).min(self.source.end);
            let bytes = u32::try_from(end - begin).expect("at most a page");
            let partly = self.source.partly.iter().flatten().find(|(partly, _)| *partly == page);
            if let Some(&(_, old)) = partly {
                timeline.merge(*now, old, at);
            }
            match self.source.position {
                Some(begin) => {
                    timeline.program(*now, at, bytes, begin + (end - self.source.offset))
                }
                None => timeline.program(*now, at, 0, 0),
            }
        }
        self.extend(None, at, page);
    }

    fn copy(&mut self, from: MediaPage, to: MediaPage, page: LogicalPage) {
        if let Some((timeline, now)) = &mut self.timeline {
            timeline.copy(*now, from, to);
        }
        self.extend(Some(from), to, page);
    }

    fn close(&mut self, unit: UnitId) {
        self.move_run();
        if let Some((timeline, now)) = &mut self.timeline {
            timeline.close(*now, unit);
        }
        self.record(Event::Close { unit });
    }

    fn moved(&mut self, group: u16, writer: Writer, pages: u32) {
        self.moved.push(Moved { group, handle: writer.handle(), pages });
    }

    fn erase(&mut self, unit: UnitId) {
        self.move_run();
        if let Some((timeline, now)) = &mut self.timeline {
            timeline.erase(*now, unit);
        } else if let Some(places) = &mut self.places {
            places.forget(unit);
        }
        if self.image.is_none() && self.error.is_none() {
            let discarded = self.store.discard(unit.first_page(self.unit_pages), self.unit_pages);
            self.error = discarded.err().map(FlashError::from);
        }
        self.record(Event::Erase { unit });
    }
}
