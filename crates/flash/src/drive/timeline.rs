//! The layer's work on the media, as operations of dies.
//!
//! Pages are programmed in stripes: as many consecutive media pages as a die programs at once, and
//! consecutive stripes on consecutive dies. A stripe is programmed when its last page is there, or
//! when its unit is closed; until then its pages are in the buffer.

use std::collections::BTreeMap;

use esker_base::Nanos;

use super::{Media, Parameters, Places};
use crate::FlashError;
use crate::emulate::Start;
use crate::ftl::{MediaPage, UnitId};
use crate::timing::{Controller, Copies, HostBytes, NandPage, Part, Place, Program};

/// The drive's controller, and the stripes that are not complete.
pub(crate) struct Timeline {
    pub(super) controller: Controller,
    page_size: u32,
    /// Pages of a NAND page, and of a stripe.
    nand_pages: u32,
    stripe_pages: u32,
    program_size: u32,
    unit_pages: u32,
    media: Media,
    dies: u32,
    open: BTreeMap<u32, Stripe>,
    /// Where the host chooses the dies.
    pub(super) places: Option<Places>,
    /// Dies that it has chosen since the journal was told.
    pub(super) placed: Vec<(u32, u16)>,
    /// The NAND page that is being copied, not yet ordered: further pages of it cost no other read.
    copying: Option<Copying>,
}

/// A stripe that is being gathered.
#[derive(Debug, Default)]
struct Stripe {
    host_bytes: u32,
    host_end: u64,
    copies: Option<Copies>,
}

#[derive(Clone, Copy, Debug)]
struct Copying {
    nand_page: u32,
    place: Place,
    bytes: u32,
    /// The stripe that will carry it.
    to: u32,
}

impl Timeline {
    pub(super) fn new(parameters: &Parameters) -> Result<Timeline, FlashError> {
        let Parameters { timing, channels, dies, page_size, .. } = parameters;
        Ok(Timeline {
            controller: Controller::new(timing, *channels, *dies)?,
            page_size: *page_size,
            nand_pages: parameters.nand_page_size / page_size,
            stripe_pages: parameters.program_size / page_size,
            program_size: parameters.program_size,
            unit_pages: parameters.unit_pages(),
            media: parameters.media,
            dies: *dies,
            open: BTreeMap::new(),
            places: None,
            placed: Vec::new(),
            copying: None,
        })
    }

    fn place(&self, at: MediaPage) -> Place {
        let program = at.0 / self.stripe_pages;
        let in_turn = program % self.dies;
        let die = self.places.as_ref().map_or(in_turn, |places| places.die_of(program));
        Place { die, program }
    }

    /// A read of the host; `pages` are those that lie on the media, in order.
    pub(super) fn read(
        &mut self,
        start: Start,
        pages: impl Iterator<Item = MediaPage>,
        bytes: u32,
        parts: &mut Vec<Part>,
    ) {
        parts.clear();
        let mut last = None;
        for at in pages {
            if self.open.contains_key(&(at.0 / self.stripe_pages)) {
                continue;
            }
            let nand_page = at.0 / self.nand_pages;
            match parts.last_mut() {
                Some(part) if last == Some(nand_page) => part.bytes += self.page_size,
                _ => {
                    let nand_bytes = self.nand_pages * self.page_size;
                    let page = Some(NandPage { number: nand_page, bytes: nand_bytes });
                    parts.push(Part { place: self.place(at), bytes: self.page_size, page });
                }
            }
            last = Some(nand_page);
        }
        // A command smaller than a page moves less than the page over channel and link.
        if let [part] = parts.as_mut_slice() {
            part.bytes = part.bytes.min(bytes);
        }
        self.controller.read(start, parts.iter().copied(), bytes);
    }

    /// Page `at` takes `bytes` bytes of the host, which end at this position of the host's stream.
    pub(super) fn program(&mut self, now: Nanos, at: MediaPage, bytes: u32, end: u64) {
        let stripe = at.0 / self.stripe_pages;
        let gathered = self.open.entry(stripe).or_default();
        gathered.host_bytes += bytes;
        gathered.host_end = gathered.host_end.max(end);
        self.gathered(now, at);
    }

    /// The rest of a page beyond the host's bytes is read first, to be programmed with them.
    pub(super) fn merge(&mut self, now: Nanos, from: MediaPage, to: MediaPage) {
        self.copy_read(now, from, to);
        self.order_copy(now);
    }

    /// Page `to` takes the content of `from`.
    pub(super) fn copy(&mut self, now: Nanos, from: MediaPage, to: MediaPage) {
        self.copy_read(now, from, to);
        self.open.entry(to.0 / self.stripe_pages).or_default();
        self.gathered(now, to);
    }

    fn copy_read(&mut self, now: Nanos, from: MediaPage, to: MediaPage) {
        if self.open.contains_key(&(from.0 / self.stripe_pages)) {
            return; // still in the buffer
        }
        let (nand_page, to) = (from.0 / self.nand_pages, to.0 / self.stripe_pages);
        match &mut self.copying {
            Some(copying) if copying.nand_page == nand_page && copying.to == to => {
                copying.bytes += self.page_size;
            }
            _ => {
                self.order_copy(now);
                let place = self.place(from);
                self.copying = Some(Copying { nand_page, place, bytes: self.page_size, to });
            }
        }
    }

    /// Orders the read of the NAND page being copied.
    fn order_copy(&mut self, now: Nanos) {
        let Some(Copying { place, bytes, to, .. }) = self.copying.take() else { return };
        let stripe = self.open.entry(to).or_default();
        let copies = stripe.copies.get_or_insert_with(|| self.controller.copies());
        self.controller.copy_read(now, place, bytes, copies);
    }

    /// Programs the stripe of `at` if that was its last page. Media written in place take every
    /// page as it comes.
    fn gathered(&mut self, now: Nanos, at: MediaPage) {
        let is_last = (at.0 + 1).is_multiple_of(self.stripe_pages);
        if is_last || self.media == Media::InPlace {
            self.program_stripe(now, at.0 / self.stripe_pages);
        }
    }

    fn program_stripe(&mut self, now: Nanos, stripe: u32) {
        if self.copying.is_some_and(|copying| copying.to == stripe) {
            self.order_copy(now);
        }
        let Some(Stripe { host_bytes, host_end, copies }) = self.open.remove(&stripe) else {
            return;
        };
        let bytes = match self.media {
            Media::Flash => self.program_size,
            Media::InPlace => host_bytes,
        };
        let host = Some(HostBytes { count: host_bytes, end: host_end });
        if let Some(places) = &mut self.places {
            let die = places.choose(stripe, |die| self.controller.load(die));
            self.placed.push((stripe, u16::try_from(die).unwrap_or(u16::MAX)));
        }
        let place = self.place(MediaPage(stripe * self.stripe_pages));
        self.controller.program(now, Program { place, bytes, host, copies });
    }

    /// A unit is closed: the pages gathered for it are programmed.
    pub(super) fn close(&mut self, now: Nanos, unit: UnitId) {
        let stripes = self.stripes_of(unit);
        while let Some((&stripe, _)) = self.open.range(stripes.clone()).next() {
            self.program_stripe(now, stripe);
        }
    }

    /// All that is gathered is programmed.
    pub(super) fn close_all(&mut self, now: Nanos) {
        while let Some((&stripe, _)) = self.open.first_key_value() {
            self.program_stripe(now, stripe);
        }
    }

    /// A unit is erased, on every die that has a part of it.
    pub(super) fn erase(&mut self, now: Nanos, unit: UnitId) {
        let stripes = self.stripes_of(unit);
        let count = (stripes.end - stripes.start).min(self.dies);
        for stripe in stripes.start..stripes.start + count {
            self.controller.erase(now, stripe % self.dies, 1);
        }
        let pages = self.unit_pages / self.nand_pages;
        self.controller.forget(&(unit.0 * pages..(unit.0 + 1) * pages));
        if let Some(places) = &mut self.places {
            places.forget(unit);
        }
    }

    fn stripes_of(&self, unit: UnitId) -> std::ops::Range<u32> {
        let count = self.unit_pages / self.stripe_pages;
        unit.0 * count..(unit.0 + 1) * count
    }
}
