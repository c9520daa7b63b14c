//! The durable metadata: superblock, journal, table. It reads and changes the flash device's name of every slot; it
//! knows nothing of the state in memory.
//!
//! Called under one lock by `commit` (changes), `shared` (the first touch of a set) and `admin`
//! (making, opening, resizing); calls `journal` for the areas and `omf` for bytes.
//!
//! Invariants
//! 1. A change is durable when [`Store::append`] has returned, all of them or none.
//! 2. An area is written anew only after every page it touched lies durably in the table.
//! 3. A page of the table is written only to its older copy, and only while the journal holds all
//!    that this write could lose.
//! 4. After a failed write of the journal, or a failed flush, the store writes nothing any more: the failed command
//!    may have taken effect all the same.

mod overlay;

use std::collections::BTreeMap;

use esker_base::units::{round_up, to_u64, to_usize};
use esker_device::DeviceError;

use crate::CacheError;
use crate::copies;
use crate::journal::{self, Area, Part, Replayed};
use crate::layout::Layout;
use crate::medium::Medium;
use crate::omf::{
    BLOCK, BLOCK_SIZE, Change, DETACHED, FormatError, Name, RecordHeader, RecordKind, Superblock,
    TablePage, record_size,
};
use overlay::Overlay;

/// Pages written by one step of a checkpoint.
pub(crate) const DRAIN_PAGES: usize = 64;

/// The sequence of the first area. It lies in area 0, the first record of which tells the size of the cache.
const FIRST: u64 = 2;

/// Content of a set as it was read.
pub(crate) struct LoadedSet {
    /// The slots that have a name, as indexes in the set.
    pub(crate) names: Vec<(u32, Name)>,
}

/// Makes a cache: the old content of the flash device is lost.
pub(crate) fn format(medium: &mut Medium, superblock: &Superblock) -> Result<(), CacheError> {
    let layout = Layout::of(superblock);
    copies::remove(medium)?;
    medium.zero(layout.area(0), layout.journal_end() - layout.area(0))?;
    for (table, size) in layout.tables(0) {
        medium.zero(table, size)?;
    }
    let (bytes, _) = start_record(superblock, FIRST, 1, 0, (0, 0), false).encode(&[]);
    layout.areas_of(FIRST).try_for_each(|area| medium.write(area, &bytes, false))?;
    // A superblock that a crash tears is damaged. All but its first LBA goes before that LBA, without which there is no
    // superblock.
    let copy = superblock.encode(0);
    if let Some(tail) = copy.get(medium.lba_size()..).filter(|tail| !tail.is_empty()) {
        medium.write(to_u64(medium.lba_size()), tail, false)?;
    }
    medium.flush()?;
    copies::write(medium, superblock)
}

fn start_record(
    superblock: &Superblock,
    sequence: u64,
    number: u64,
    previous_crc: u32,
    (dirty, named): (u32, u32),
    needs_previous: bool,
) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Start,
        needs_previous,
        id: superblock.id,
        sequence,
        number,
        offset: 0,
        previous_crc,
        clean_epoch: superblock.clean_epoch,
        dirty,
        named,
        used_blocks: used_blocks(superblock),
    }
}

/// The used bytes as a record says them.
fn used_blocks(superblock: &Superblock) -> u32 {
    let blocks = superblock.last_copy().map_or(0, |_| superblock.flash_bytes / BLOCK);
    u32::try_from(blocks).unwrap_or(0)
}

/// The durable metadata of an open cache.
pub(crate) struct Store {
    pub(crate) medium: Medium,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    /// The area that is written, its next offset, the next record's number, the last one's CRC.
    sequence: u64,
    position: u64,
    number: u64,
    crc: u32,
    needs_previous: bool,
    /// Pages that the current area, and the one before it, have changes of.
    touched: Pages,
    pending: Pages,
    /// Pages of which the current area says that they were about to be written. Once is enough for
    /// each, however often that fails.
    announced: Pages,
    /// Names found in the journal at opening, for sets that were not read yet.
    overlay: BTreeMap<u32, Overlay>,
    /// How often each page was written; it says which copy is the newer one.
    generations: Vec<u32>,
    /// Durable dirty names, and durable names, in all sets.
    pub(crate) dirty: u32,
    pub(crate) named: u32,
    /// Whether the last record has changes.
    is_open: bool,
    is_broken: bool,
    /// Parts of the journal of which one copy was damaged when it was read.
    damaged: Vec<Part>,
}

/// A set of pages.
struct Pages(Vec<u64>);

impl Pages {
    fn new(pages: u32) -> Pages {
        Pages(vec![0; to_usize(u64::from(pages.div_ceil(64)))])
    }

    fn put(&mut self, page: u32, on: bool) {
        let (word, bit) = (to_usize(u64::from(page / 64)), 1 << (page % 64));
        if on {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    fn has(&self, page: u32) -> bool {
        self.0[to_usize(u64::from(page / 64))] >> (page % 64) & 1 == 1
    }

    fn first(&self, most: usize) -> Vec<u32> {
        let words = (0u32..).zip(&self.0).filter(|(_, word)| **word != 0);
        let pages = words.flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit)
        });
        pages.take(most).collect()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }
}

impl Store {
    /// Reads the journal of a cache with this superblock.
    pub(crate) fn open(mut medium: Medium, superblock: Superblock) -> Result<Store, CacheError> {
        let layout = Layout::of(&superblock);
        // Writes of an earlier process may still be in a volatile cache of the device; from here on
        // they count as durable.
        medium.flush()?;
        let Replayed { previous, current } = journal::replay(&mut medium, &superblock, &layout)?;
        let damaged = previous.iter().chain([&current]).flat_map(Area::damaged).collect();
        let pages = layout.pages();
        // Clean names of another epoch are void.
        let RecordHeader { dirty, named, clean_epoch, .. } = current.last;
        let named = if clean_epoch == superblock.clean_epoch { named } else { dirty };
        let mut store = Store {
            superblock,
            layout,
            sequence: current.sequence,
            position: current.end,
            number: current.next_number,
            crc: current.crc,
            needs_previous: current.last.needs_previous,
            touched: Pages::new(pages),
            pending: Pages::new(pages),
            announced: Pages::new(pages),
            overlay: BTreeMap::new(),
            generations: vec![0; to_usize(pages.into())],
            dirty,
            named,
            is_open: true,
            is_broken: false,
            damaged,
            medium,
        };
        if let Some(previous) = &previous {
            store.remember(previous, false)?;
            // The cache may have shrunk since.
            let known = current.pages.iter().filter(|page| **page < pages);
            known.for_each(|page| store.announced.put(*page, true));
        }
        store.remember(&current, true)?;
        Ok(store)
    }

    /// Writes damaged copies of journal records anew, from the sound ones. Returns how many bytes were damaged, but for
    /// those of the last record, which a crash may have torn.
    pub(crate) fn mend(&mut self) -> Result<u64, CacheError> {
        let parts = std::mem::take(&mut self.damaged);
        let bytes = parts.iter().filter(|part| !part.is_last).map(|part| part.size).sum();
        journal::mend(&mut self.medium, &parts)?;
        Ok(bytes)
    }

    /// Takes in the changes of an area, of which a later one of a slot supersedes all before it.
    fn remember(&mut self, area: &Area, is_current: bool) -> Result<(), CacheError> {
        let Store { medium, superblock, layout, overlay, touched, pending, .. } = self;
        let pages = if is_current { touched } else { pending };
        let slots = layout.set_slots;
        journal::changes(medium, superblock, layout, area, |change| {
            // The cache has shrunk since: before it did, this slot lost its name.
            if u64::from(change.slot) >= superblock.slots() {
                return;
            }
            pages.put(layout.page_of(change.slot), true);
            let (set, index) = layout.place_of(change.slot);
            overlay.entry(set).or_insert_with(|| Overlay::new(slots)).put(index, change.name);
        })
    }

    /// Reads the names of a set's slots from the device. The caller that accepts it says so:
    /// [`Store::loaded`].
    pub(crate) fn load(&mut self, set: u32) -> Result<LoadedSet, CacheError> {
        let mut names = vec![Name::None; to_usize(self.layout.set_slots.into())];
        let runs: Vec<(u32, u32)> = self.layout.pages_of(set).collect();
        let reads = runs.iter().map(|(first, count)| {
            (self.layout.page(*first), to_usize(u64::from(*count) * 2 * BLOCK))
        });
        let bytes = self.medium.read_all(&reads.collect::<Vec<_>>())?;
        let pages = runs.into_iter().flat_map(|(first, count)| first..first + count);
        for (page, pair) in pages.zip(bytes.chunks_exact(2 * BLOCK_SIZE)) {
            let (_, slots) = self.layout.page_slots(page);
            let count = slots.len();
            let copy = |n: u16| {
                let at = usize::from(n) * BLOCK_SIZE;
                let bytes = &pair[at..at + BLOCK_SIZE];
                TablePage::decode(bytes, self.superblock.id, page, n, count)
            };
            let is_journaled = self.announced.has(page);
            let found = match (copy(0), copy(1)) {
                (Ok(a), Ok(b)) => Some(if a.generation > b.generation { a } else { b }),
                (Ok(one), Err(FormatError::Empty)) | (Err(FormatError::Empty), Ok(one)) => {
                    Some(one)
                }
                (Err(FormatError::Empty), Err(FormatError::Empty)) => None,
                // Torn by a crash while it was written, or damaged: the journal knows better.
                (Ok(one), Err(_)) | (Err(_), Ok(one)) if is_journaled => Some(one),
                (Err(FormatError::Empty), Err(_)) | (Err(_), Err(FormatError::Empty))
                    if is_journaled =>
                {
                    None
                }
                (Err(error), _) | (_, Err(error)) => {
                    let at = self.layout.page(page);
                    let what = "a page of the table";
                    return Err(CacheError::corrupt(self.medium.name(), what, at, &error));
                }
            };
            let Some(found) = found else { continue };
            let generation = u32::try_from(found.generation).unwrap_or(u32::MAX - 2);
            self.generations[to_usize(page.into())] = generation;
            let is_void = found.clean_epoch != self.superblock.clean_epoch;
            for (slot, name) in slots.zip(found.names) {
                let is_kept = !(is_void && matches!(name, Name::Clean(_)));
                names[to_usize(slot.into())] = if is_kept { name } else { Name::None };
            }
        }
        if let Some(overlay) = self.overlay.get(&set) {
            overlay.each(|index, name| names[to_usize(index.into())] = name);
        }
        let named = (0u32..).zip(names).filter(|(_, name)| *name != Name::None).collect();
        Ok(LoadedSet { names: named })
    }

    /// A set that was read is in memory, and is not read again.
    pub(crate) fn loaded(&mut self, set: u32) {
        self.overlay.remove(&set);
    }

    /// How many changes fit one record.
    pub(crate) fn record_changes(&self) -> usize {
        let room = to_usize(self.layout.area_bytes / 2) - 2 * BLOCK_SIZE;
        room / crate::omf::CHANGE_SIZE
    }

    /// Whether a record with this many changes has to go to the other area, and the pages that
    /// keep it from being begun have to be written first.
    pub(crate) fn is_full(&self, changes: usize) -> bool {
        let size = round_up(to_u64(record_size(changes)), to_u64(self.medium.lba_size()));
        self.position + size + self.layout.reserve() > self.layout.area_bytes
    }

    /// Makes changes durable, all or none. `counts` are the dirty names and the names in all after
    /// them; when it fails, the larger of the old and the new ones. There has to be room
    /// ([`Store::is_full`]).
    pub(crate) fn append(
        &mut self,
        changes: &[Change],
        counts: (u32, u32),
    ) -> Result<(), CacheError> {
        for change in changes {
            self.touched.put(self.layout.page_of(change.slot), true);
        }
        let before = (self.dirty, self.named);
        (self.dirty, self.named) = counts;
        self.write_record(RecordKind::Names, changes).inspect_err(|_| {
            // It may be there all the same, or not.
            (self.dirty, self.named) = (before.0.max(counts.0), before.1.max(counts.1));
        })
    }

    /// Ends with a record that says nothing, so that damage to any other one shows. There has to
    /// be room.
    pub(crate) fn seal(&mut self) -> Result<(), CacheError> {
        match self.is_open {
            true => self.write_record(RecordKind::Names, &[]),
            false => Ok(()),
        }
    }

    /// Nothing is made durable any more: the superblock's content is unknown.
    pub(crate) fn abandon(&mut self) {
        self.is_broken = true;
    }

    /// Whether nothing can be made durable any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn write_record(&mut self, kind: RecordKind, changes: &[Change]) -> Result<(), CacheError> {
        let header = RecordHeader {
            kind,
            needs_previous: self.needs_previous,
            id: self.superblock.id,
            sequence: self.sequence,
            number: self.number,
            offset: u32::try_from(self.position).expect("an area is smaller than 4 GiB"),
            previous_crc: self.crc,
            clean_epoch: self.superblock.clean_epoch,
            dirty: self.dirty,
            named: self.named,
            used_blocks: used_blocks(&self.superblock),
        };
        let (bytes, crc) = header.encode(changes);
        let size = round_up(to_u64(bytes.len()), to_u64(self.medium.lba_size()));
        assert!(self.position + size <= self.layout.area_bytes, "a record beyond its area");
        self.write_durably(self.sequence, self.position, &bytes)?;
        self.position += size;
        self.number += 1;
        self.crc = crc;
        self.is_open = !changes.is_empty();
        Ok(())
    }

    /// Writes all copies of a record.
    fn write_durably(&mut self, area: u64, at: u64, bytes: &[u8]) -> Result<(), CacheError> {
        if self.is_broken {
            return Err(CacheError::FlashLost { device: self.medium.name().to_owned() });
        }
        let copies: Vec<_> = self.layout.areas_of(area).map(|area| (area + at, bytes)).collect();
        self.medium.write_copies(&copies).map_err(|error| {
            self.is_broken = true;
            error.into()
        })
    }

    /// Goes on in the other area. No page may be pending.
    pub(crate) fn next_area(&mut self) -> Result<(), CacheError> {
        assert!(self.pending.is_empty(), "an area is begun anew while it is needed");
        if self.needs_previous {
            self.needs_previous = false;
            self.write_record(RecordKind::Names, &[])?;
        }
        let counts = (self.dirty, self.named);
        let (sequence, number) = (self.sequence + 1, self.number);
        let header = start_record(&self.superblock, sequence, number, self.crc, counts, true);
        let (bytes, crc) = header.encode(&[]);
        self.write_durably(sequence, 0, &bytes)?;
        self.sequence = sequence;
        self.number += 1;
        self.crc = crc;
        self.needs_previous = true;
        self.announced = Pages::new(self.layout.pages());
        self.position = to_u64(bytes.len().next_multiple_of(self.medium.lba_size()));
        std::mem::swap(&mut self.pending, &mut self.touched);
        Ok(())
    }

    /// Whether the area that is written is the first one on the flash device.
    pub(crate) fn is_in_first_area(&self) -> bool {
        self.sequence.is_multiple_of(2)
    }

    /// Up to `most` pages that the area before the current one still stands for.
    pub(crate) fn pending_pages(&self, most: usize) -> Vec<u32> {
        self.pending.first(most)
    }

    /// Writes pages to the table. They hold the journal's contents as of this moment.
    pub(crate) fn write_pages(&mut self, pages: Vec<(u32, Vec<Name>)>) -> Result<(), CacheError> {
        // A page that a crash tears is excused by a record that says it was being written.
        let next = |store: &Store, page: u32| store.generations[to_usize(page.into())] + 1;
        let announced: Vec<Change> = pages
            .iter()
            .filter(|(page, _)| !self.announced.has(*page))
            .map(|(page, _)| {
                let name = Name::Clean(next(self, *page).into());
                Change { slot: *page, name }
            })
            .collect();
        if !announced.is_empty() {
            self.write_record(RecordKind::Pages, &announced)?;
            announced.iter().for_each(|change| self.announced.put(change.slot, true));
        }
        let clean_epoch = self.superblock.clean_epoch;
        for (page, names) in &pages {
            let generation = next(self, *page);
            let (page, names) = (*page, names.clone());
            let content = TablePage { page, clean_epoch, generation: generation.into(), names };
            let copy = u16::try_from(generation % 2).expect("0 or 1");
            let bytes = content.encode(self.superblock.id, copy);
            self.medium.write(self.layout.page(page) + u64::from(copy) * BLOCK, &bytes, false)?;
        }
        self.flush()?;
        for (page, _) in &pages {
            self.generations[to_usize((*page).into())] += 1;
            self.pending.put(*page, false);
        }
        Ok(())
    }

    /// Makes the flash device's completed writes durable. A device that fails to may have lost them, and does
    /// not say so again: nothing is named any more.
    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        self.medium.flush().inspect_err(|_| self.is_broken = true)
    }

    /// An error when the cache was detached.
    pub(crate) fn is_attached(&self) -> Result<(), CacheError> {
        match self.superblock.state {
            DETACHED => Err(CacheError::Detached { device: self.medium.name().to_owned() }),
            _ => Ok(()),
        }
    }

    /// Changes the superblock. Once it says detached, nothing is written any more.
    pub(crate) fn update(
        &mut self,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), CacheError> {
        self.is_attached()?;
        // A write that failed may be on the medium all the same: the next one has to be newer.
        self.superblock.generation += 1;
        let mut superblock = self.superblock.clone();
        change(&mut superblock);
        copies::write(&mut self.medium, &superblock)?;
        self.is_broken |= superblock.state == DETACHED;
        self.superblock = superblock;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
