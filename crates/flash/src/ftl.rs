//! The flash translation layer: where each logical page lies, and the cost of keeping it so.
//!
//! The host writes *logical pages* with a reclaim unit handle. Each handle fills a *reclaim unit*,
//! a superblock of erase blocks that is written from its first page to its last and erased as a
//! whole. When few erased units are left, *cleaning* chooses a unit, copies the pages still valid in
//! it to a unit of its own, and erases it.
//!
//! The layer keeps maps and counts. It tells an [`Array`] of its operations on the media, one page
//! at a time: [`Counting`] ignores it, a device stores the data and takes the time.
//!
//! Invariants, checked by [`Ftl::check`]
//! 1. A page of the media holds logical page `l` exactly if `map[l]` is that page.
//! 2. A unit's count of valid pages is how many logical pages are mapped into it.
//! 3. A unit is programmed in order, each page once between two erasures.
//! 4. Media pages written = host pages written + pages copied.

mod array;
mod bits;
mod cleaning;
mod ids;
mod levelling;
mod moving;
mod options;
mod points;
mod prefetch;
mod restore;
mod units;
mod victims;

use esker_base::units::{to_u64, to_usize};

pub use array::{Array, Counting};
use bits::Bits;
use ids::NOWHERE;
pub use ids::{LogicalPage, MediaPage, UnitId};
use moving::Cleaner;
pub use options::{Cleaning, CleaningPace, Frontier, FtlOptions};
pub use points::Writer;
use points::{Point, Points};
pub use restore::{Event, UnitRecord};
pub use units::{Phase, UnitState};
use units::{Pool, Units};
use victims::Victims;

use crate::FlashError;

/// Host pages placed between two turns of cleaning; cleaning keeps pace with the host in steps of
/// this many pages.
const TURN: u32 = 256;

/// Pages counted since the layer was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Written by the host.
    pub host: u64,
    /// Copied by cleaning.
    pub copied: u64,
    /// Erased, written or not.
    pub erased: u64,
    /// Trimmed by the host, of those that were mapped.
    pub trimmed: u64,
}

impl PageCounts {
    /// Pages written to the media.
    #[must_use]
    pub fn media(&self) -> u64 {
        self.host + self.copied
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &PageCounts) -> PageCounts {
        PageCounts {
            host: self.host - earlier.host,
            copied: self.copied - earlier.copied,
            erased: self.erased - earlier.erased,
            trimmed: self.trimmed - earlier.trimmed,
        }
    }

    /// The write amplification factor; 1 before anything is written.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a ratio of counters
    pub fn write_amplification(&self) -> f64 {
        if self.host == 0 { 1.0 } else { self.media() as f64 / self.host as f64 }
    }
}

/// A flash translation layer.
pub struct Ftl {
    options: FtlOptions,
    map: Vec<MediaPage>,
    /// The logical page of each media page, by number: memory of zeroes costs nothing before it is written.
    content: Vec<u32>,
    valid: Bits,
    units: Units,
    pool: Pool,
    victims: Victims,
    points: Points,
    cleaners: Vec<Cleaner>,
    counts: PageCounts,
}

impl Ftl {
    /// A layer for a drive that was never written.
    ///
    /// # Errors
    /// When the options contradict each other, or leave too little room for cleaning.
    pub fn new(options: FtlOptions) -> Result<Ftl, FlashError> {
        options.check()?;
        let groups = usize::from(options.groups);
        let pages = to_usize(u64::from(options.units) * u64::from(options.unit_pages));
        Ok(Ftl {
            map: vec![NOWHERE; options.logical_pages as usize],
            content: vec![0; pages],
            valid: Bits::new(pages),
            units: Units::new(options.units, options.unit_pages, options.groups),
            pool: Pool::new(options.units, options.groups),
            victims: Victims::new(&options),
            points: Points::new(&options),
            cleaners: (0..groups).map(|_| Cleaner::default()).collect(),
            counts: PageCounts::default(),
            options,
        })
    }

    /// The options that it was made with.
    #[must_use]
    pub fn options(&self) -> &FtlOptions {
        &self.options
    }

    /// Pages counted so far.
    #[must_use]
    pub fn counts(&self) -> PageCounts {
        self.counts
    }

    /// Where a logical page lies, if it was written and not trimmed.
    #[must_use]
    pub fn locate(&self, page: LogicalPage) -> Option<MediaPage> {
        let at = self.map[page.index()];
        (at != NOWHERE).then_some(at)
    }

    /// The state of a unit.
    #[must_use]
    pub fn unit(&self, unit: UnitId) -> UnitState {
        self.units.state(unit, &self.victims)
    }

    /// Whether a unit is erased.
    #[must_use]
    pub fn is_free(&self, unit: UnitId) -> bool {
        self.units.phase(unit) == Phase::Free
    }

    /// How many pages the unit that a handle of a group is filling still takes.
    #[must_use]
    pub fn writable(&self, group: u16, handle: u16) -> u32 {
        match self.points.of(group, Writer::Host(handle)) {
            Point { unit: Some(_), next } => self.options.unit_pages - next,
            Point { unit: None, .. } => self.options.unit_pages,
        }
    }

    /// Bytes of maps in memory.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        to_u64(4 * (self.map.len() + self.content.len()) + self.valid.bytes())
    }

    /// Writes `count` logical pages from `first` on with a handle of the first group.
    ///
    /// # Panics
    /// If a page or the handle does not exist.
    pub fn write(&mut self, first: LogicalPage, count: u32, handle: u16, array: &mut impl Array) {
        self.write_to(0, handle, count as usize, |index| first + index, array);
    }

    /// Writes these logical pages, in order, with a handle of the first group.
    ///
    /// # Panics
    /// If a page or the handle does not exist.
    pub fn write_each(&mut self, pages: &[LogicalPage], handle: u16, array: &mut impl Array) {
        self.write_to(0, handle, pages.len(), |index| pages[index as usize], array);
    }

    /// Writes `count` logical pages, the page of each index given by `page_of`, with a handle of a
    /// group.
    ///
    /// # Panics
    /// If a page, the handle or the group does not exist.
    pub fn write_to(
        &mut self,
        group: u16,
        handle: u16,
        count: usize,
        page_of: impl Fn(u32) -> LogicalPage,
        array: &mut impl Array,
    ) {
        let mut done = 0u32;
        let count = u32::try_from(count).expect("a write covers less than the drive");
        while done < count {
            let group = self.open(group, handle, array);
            let room = self.options.unit_pages - self.points.of(group, Writer::Host(handle)).next;
            let turn = room.min(count - done).min(TURN);
            self.place(group, handle, turn, |index| page_of(done + index), array);
            self.keep_pace(group, turn, array);
            done += turn;
        }
    }

    /// Forgets `count` logical pages from `first` on.
    ///
    /// # Panics
    /// If a page does not exist.
    pub fn trim(&mut self, first: LogicalPage, count: u32) {
        for page in LogicalPage::all(first.0..first.0 + count) {
            let old = std::mem::replace(&mut self.map[page.index()], NOWHERE);
            if old != NOWHERE {
                self.valid.remove(old);
                self.victims.lose_page(self.units.of(old));
                self.counts.trimmed += 1;
            }
        }
    }

    /// Points a handle to an empty unit: the unit it was filling is full as it is. Returns how
    /// many pages of that were left unwritten; zero when it was empty or there was none, or when
    /// cleaning shares the unit and has no other to go on in.
    pub fn update(&mut self, group: u16, handle: u16, array: &mut impl Array) -> u32 {
        let point = *self.points.of(group, Writer::Host(handle));
        match point.unit {
            Some(unit) if point.next > 0 && self.may_leave(group) => {
                self.close(unit, array);
                *self.points.of_mut(group, Writer::Host(handle)) = Point::default();
                self.options.unit_pages - point.next
            }
            _ => 0,
        }
    }

    /// Puts `count` pages where the point of `handle` stands, which has room for them.
    fn place(
        &mut self,
        group: u16,
        handle: u16,
        count: u32,
        page_of: impl Fn(u32) -> LogicalPage,
        array: &mut impl Array,
    ) {
        let point = *self.points.of(group, Writer::Host(handle));
        let unit = point.unit.expect("opened before pages are placed");
        let start = unit.first_page(self.options.unit_pages) + point.next;
        // Counted before any is lost: a page may be written twice in one turn.
        self.valid.set(start..start + count);
        self.victims.gain_pages(unit, count);
        for index in 0..count {
            // Two misses hang together, the map's entry and then the bit that it names.
            if index + 2 * prefetch::AHEAD < count {
                let page = page_of(index + 2 * prefetch::AHEAD);
                prefetch::prefetch(&self.map, page.index());
            }
            if index + prefetch::AHEAD < count {
                let page = page_of(index + prefetch::AHEAD);
                self.valid.prefetch(self.map[page.index()]);
            }
            let (page, at) = (page_of(index), start + index);
            let old = std::mem::replace(&mut self.map[page.index()], at);
            self.content[at.index()] = page.0;
            if old != NOWHERE {
                self.valid.remove(old);
                self.victims.lose_page(self.units.of(old));
            }
            array.program(at, page);
        }
        self.counts.host += u64::from(count);
        self.points.of_mut(group, Writer::Host(handle)).next += count;
        if point.next + count == self.options.unit_pages {
            self.close(unit, array);
            *self.points.of_mut(group, Writer::Host(handle)) = Point::default();
        }
    }

    /// Checks every invariant. It reads all maps.
    ///
    /// # Errors
    /// The first contradiction found: our bug, or a damaged image.
    pub fn check(&self) -> Result<(), FlashError> {
        let corrupt = |what: String| Err(FlashError::Corrupt(what));
        let mut valid = vec![0u32; self.options.units as usize];
        for (page, &at) in (0u32..).map(LogicalPage).zip(&self.map) {
            if at == NOWHERE {
                continue;
            }
            if self.content.get(at.index()) != Some(&page.0) || !self.valid.has(at) {
                return corrupt(format!("page {page} is mapped to {at}, which holds another"));
            }
            let (unit, within) = (self.units.of(at), at.0 % self.options.unit_pages);
            valid[unit.index()] += 1;
            if within >= self.written(unit) {
                return corrupt(format!("page {page} is mapped to {at}, which is not written"));
            }
        }
        for (unit, &counted) in (0u32..).map(UnitId).zip(&valid) {
            let kept = self.victims.valid(unit);
            if kept != counted {
                return corrupt(format!("unit {unit} has {counted} valid pages and says {kept}"));
            }
        }
        Ok(())
    }

    /// How many pages of a unit are programmed, counting a closed unit as full.
    fn written(&self, unit: UnitId) -> u32 {
        match self.unit(unit) {
            UnitState::Free { .. } => 0,
            UnitState::Open { .. } => {
                self.points.of_unit(unit).map_or(self.options.unit_pages, |point| point.next)
            }
            UnitState::Closed { .. } => self.options.unit_pages,
        }
    }
}
