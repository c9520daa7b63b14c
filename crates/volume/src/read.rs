//! Reads: every block is looked up, read, verified against the map's checksum, and computed from parities where it is
//! wrong or late. Sees `engine` and what is below.
//!
//! A read goes through its blocks. Where a leaf of the map is not in memory it waits for it, and goes on from there;
//! what is in segments is fetched meanwhile.
//!
//! Invariants
//! 1. What a read found in a segment stays where it is until it was fetched: the fetch holds the segment's chunks.
//! 2. A read that fails hands out no wrong byte: what it could not read is zeroes.

use std::sync::Arc;
use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, Nanos};
use esker_device::Tag;

use crate::drive::{Arrival, Lanes};
use crate::engine::{Core, Found, Seen, Shared, add};
use crate::fragment::Unpacker;
use crate::map::LeafKey;
use crate::omf::leaf::BUNDLE_BLOCKS;
use crate::omf::root::Extent;
use crate::segment::fetch::{Fetched, Fetches, Wanted};
use crate::segment::{Broken, Sum};
use crate::stats::{Stage, Tally};
use crate::types::error::VolumeError;
use crate::types::id::{Block, DriveIndex, Generation, SegmentId};
use crate::types::{BLOCK_SIZE, sectors, u32_from, u32_of};

/// A read that goes on.
struct Read {
    tag: Tag,
    lba: Lba,
    seen: Seen,
    /// Where the search for the next block goes on, if it waits for a leaf; and the sweeps before.
    paused: Option<(Seen, u64)>,
    /// With a fetch while that reads the whole of it.
    buf: Option<AlignedBuf>,
    size: usize,
    blocks: u64,
    /// Blocks that were looked up.
    next: u64,
    /// Fetches and leaves that it waits for.
    left: usize,
    error: Option<VolumeError>,
    /// When its first fetch was wanted.
    fetching: Option<Nanos>,
}

/// A read that ended.
pub(crate) struct ReadDone {
    pub(crate) tag: Tag,
    pub(crate) lba: Lba,
    pub(crate) buf: AlignedBuf,
    pub(crate) result: Result<(), VolumeError>,
}

/// A leaf of the map on its way.
struct Load {
    key: LeafKey,
    pages: Vec<(Extent, Generation, Vec<u8>)>,
    left: usize,
    waiting: Vec<u32>,
    broken: Option<Broken>,
    began: Nanos,
}

/// The reads of a queue pair.
#[derive(Default)]
pub(crate) struct Reads {
    reads: Vec<Option<Read>>,
    free: Vec<u32>,
    loads: Vec<Option<Load>>,
    fetches: Fetches,
    unpacker: Unpacker,
    /// Fetches to be started, and the buffers that they read into.
    ready: Vec<(Wanted, Option<AlignedBuf>)>,
    arrived: Vec<Arrival>,
    damaged: Vec<SegmentId>,
    tally: Arc<Tally>,
    pub(crate) done: Vec<ReadDone>,
}

/// Marks the owner of a fetch as a load.
const LOAD: u64 = 1 << 32;
/// Marks the number of a block that is stored as it is.
const RAW: u32 = 1 << 31;

impl Reads {
    /// No reads; their stages are counted in `tally`.
    pub(crate) fn new(tally: Arc<Tally>) -> Reads {
        Reads { tally, ..Reads::default() }
    }

    /// Begins a read.
    pub(crate) fn begin(
        &mut self,
        shared: &Shared,
        core: &mut Core,
        seen: Seen,
        tag: Tag,
        lba: Lba,
        buf: AlignedBuf,
    ) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.reads.push(None);
            u32_of(self.reads.len() - 1)
        });
        let (size, blocks) = (buf.len(), to_u64(buf.len() / BLOCK_SIZE));
        let (buf, error) = (Some(buf), None);
        let mut read = Read {
            tag,
            lba,
            seen,
            paused: None,
            buf,
            size,
            blocks,
            next: 0,
            left: 0,
            error,
            fetching: None,
        };
        self.look_up(shared, core, id, &mut read);
        self.put(shared, id, read);
    }

    /// Puts a read back that was looked at, or ends it.
    fn put(&mut self, shared: &Shared, id: u32, read: Read) {
        if read.left > 0 {
            self.reads[to_usize(id.into())] = Some(read);
            return;
        }
        self.free.push(id);
        if let Some(since) = read.fetching {
            self.tally.spend(Stage::Drive, shared.options.clock.now().since(since));
        }
        let Read { tag, lba, buf, error, .. } = read;
        let buf = buf.expect("its fetches have ended");
        self.done.push(ReadDone { tag, lba, buf, result: error.map_or(Ok(()), Err) });
    }

    /// Looks up the next blocks, as far as the map is in memory.
    fn look_up(&mut self, shared: &Shared, core: &mut Core, id: u32, read: &mut Read) {
        let unit = shared.fleet.layout.unit_size();
        let mut open: Option<Wanted> = None;
        while read.next < read.blocks {
            let block = Block(read.lba.0 + read.next);
            let buf = read.buf.as_mut().expect("not all was looked up");
            let part = part_of(buf, read.next);
            // Versions passed on the way may be written over meanwhile, and those behind them gone.
            let paused = read.paused.take().filter(|(_, sweeps)| *sweeps == core.map.sweeps);
            let mut seen = paused.map_or(read.seen, |(seen, _)| seen);
            match core.look(&mut seen, block) {
                Ok(Found::Zero) => part.fill(0),
                Ok(Found::Data(data)) => part.copy_from_slice(&data),
                Ok(Found::Fragment(owner, fragment)) => {
                    let Some(segment) = core.space.get(fragment.segment) else {
                        let why = format!("{} is not in the table", fragment.segment);
                        part.fill(0);
                        let volume = core.catalog.owner_of(owner);
                        read.error.get_or_insert(VolumeError::Lost { volume, block, why });
                        read.next += 1;
                        continue;
                    };
                    let (sector, size) = (fragment.sector, sectors(fragment.sectors.into()));
                    let index = fragment.seed(block.0);
                    let sum = Sum::Seeded { lineage: owner, index, crc: fragment.crc };
                    let is_raw = fragment.blocks == 1 && size == BLOCK_SIZE;
                    let tag = u32_from(read.next) | if is_raw { RAW } else { 0 };
                    let chunks = &segment.chunks;
                    let follows = open
                        .as_mut()
                        .is_some_and(|open| open.extend(unit, chunks, sector, size, sum, tag));
                    if !follows {
                        let next = self.fetches.want(id.into(), chunks, sector, size, sum, tag);
                        self.get_ready(shared, read, open.replace(next));
                    }
                }
                Err(key) => {
                    match self.load(shared, core, id, key) {
                        Ok(()) => {
                            read.left += 1;
                            read.paused = Some((seen, core.map.sweeps));
                        }
                        Err(broken) => read.fail(shared.damaged(&broken)),
                    }
                    break;
                }
            }
            read.next += 1;
        }
        self.get_ready(shared, read, open);
    }

    fn get_ready(&mut self, shared: &Shared, read: &mut Read, wanted: Option<Wanted>) {
        let Some(wanted) = wanted else { return };
        read.left += 1;
        read.fetching.get_or_insert_with(|| shared.options.clock.now());
        // All of it as it is stored, and nothing else: it is read to where it is wanted.
        let is_whole = to_u64(wanted.parts().len()) == read.blocks
            && wanted.size() == read.size
            && wanted.parts().iter().all(|part| part.tag & RAW != 0)
            && wanted.is_aligned();
        let buf = read.buf.take_if(|_| is_whole);
        self.ready.push((wanted, buf));
    }

    /// Has a read wait for a leaf.
    fn load(
        &mut self,
        shared: &Shared,
        core: &mut Core,
        id: u32,
        key: LeafKey,
    ) -> Result<(), Broken> {
        if let Some(load) = self.loads.iter_mut().flatten().find(|load| load.key == key) {
            load.waiting.push(id);
            return Ok(());
        }
        let at = self.loads.iter().position(Option::is_none).unwrap_or_else(|| {
            self.loads.push(None);
            self.loads.len() - 1
        });
        let mut pages = Vec::new();
        let before = self.ready.len();
        for (tag, extent) in (0..).zip(core.map.pages(key)) {
            let Some(segment) = core.space.get(extent.segment) else {
                self.ready.truncate(before);
                return Err(Broken { why: format!("{} is not in the table", extent.segment) });
            };
            let sum = Sum::Seeded { lineage: key.0, index: key.1, crc: extent.crc };
            let (owner, size) = (LOAD | to_u64(at), to_usize(extent.bytes.into()));
            let chunks = &segment.chunks;
            let wanted = self.fetches.want(owner, chunks, extent.sector, size, sum, tag);
            self.ready.push((wanted, None));
            pages.push((*extent, segment.row.generation, Vec::new()));
        }
        let (left, waiting) = (pages.len(), vec![id]);
        let began = shared.options.clock.now();
        self.loads[at] = Some(Load { key, pages, left, waiting, broken: None, began });
        Ok(())
    }

    /// Reads, and leaves on their way, that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.reads.len() - self.free.len()
    }

    /// Moves everything on, as far as it goes without waiting.
    pub(crate) fn turn(&mut self, shared: &Shared, lanes: &mut Lanes) {
        let fleet = &shared.fleet;
        let now = || fleet.moment();
        loop {
            if !self.ready.is_empty() {
                let now = now();
                for (wanted, buf) in self.ready.drain(..) {
                    self.fetches.start(lanes, now, wanted, buf);
                }
            }
            lanes.poll(&mut self.arrived);
            if self.arrived.is_empty() {
                break;
            }
            self.take_arrived(shared, lanes);
        }
        self.fetches.hedge(lanes, now);
        lanes.push();
        self.report_damage(shared);
    }

    /// Waits for a drive, up to so long, or until the next read is late.
    pub(crate) fn wait(&mut self, shared: &Shared, lanes: &mut Lanes, limit: Duration) {
        let fleet = &shared.fleet;
        let now = || fleet.moment();
        let due = self.fetches.hedge(lanes, now);
        let limit = due.map_or(limit, |due| due.since(fleet.clock.now()).min(limit));
        lanes.wait(&mut self.arrived, limit);
        self.take_arrived(shared, lanes);
    }

    fn take_arrived(&mut self, shared: &Shared, lanes: &mut Lanes) {
        let mut arrived = std::mem::take(&mut self.arrived);
        for arrival in arrived.drain(..) {
            self.fetches.arrive(lanes, arrival);
        }
        self.arrived = arrived;
        while let Some(mut fetched) = self.fetches.take_ended() {
            match fetched.owner() {
                owner if owner & LOAD != 0 => {
                    self.take_page(shared, &fetched, to_usize(owner ^ LOAD))
                }
                owner => self.take_blocks(shared, &mut fetched, u32_from(owner)),
            }
            self.fetches.put_back(fetched);
        }
    }

    /// Blocks of a read have arrived.
    fn take_blocks(&mut self, shared: &Shared, fetched: &mut Fetched, id: u32) {
        let mut read = self.reads[to_usize(id.into())].take().expect("it waits for this");
        read.left -= 1;
        let whole = if read.buf.is_none() { fetched.take_whole() } else { None };
        let is_whole = whole.is_some();
        let mut buf =
            whole.or_else(|| read.buf.take()).unwrap_or_else(|| self.fetches.buf(read.size));
        for (number, part) in fetched.parts().iter().enumerate().filter(|_| !is_whole) {
            let number_of = u64::from(part.tag & !RAW);
            let block = part_of(&mut buf, number_of);
            let answer = match fetched.part(number) {
                Ok((bytes, bad)) => {
                    self.blame(shared, fetched.segment(), bad);
                    let place = (read.lba.0 + number_of) % BUNDLE_BLOCKS;
                    let place = u8::try_from(place).expect("below four");
                    let unpacked = if part.tag & RAW != 0 {
                        block.copy_from_slice(bytes);
                        Some(())
                    } else {
                        self.unpacker.unpack(bytes, place, block)
                    };
                    unpacked.ok_or("it cannot be decompressed")
                }
                Err(broken) => Err(&broken.why[..]),
            };
            if let Err(why) = answer {
                block.fill(0); // never what is wrong
                let lineage = match part.sum {
                    Sum::Seeded { lineage, .. } => lineage,
                    Sum::Plain(_) => read.seen.lineage,
                };
                let volume = shared.core.lock().catalog.owner_of(lineage);
                let block = Block(read.lba.0 + number_of);
                let lost = VolumeError::Lost { volume, block, why: why.to_owned() };
                read.error.get_or_insert(lost);
            }
        }
        read.buf = Some(buf);
        self.put(shared, id, read);
    }

    /// A page of a leaf has arrived; with the last one the reads go on that wait for it.
    fn take_page(&mut self, shared: &Shared, fetched: &Fetched, at: usize) {
        let mut load = self.loads[at].take().expect("it waits for this");
        load.left -= 1;
        match fetched.part(0) {
            Ok((bytes, bad)) => {
                self.blame(shared, fetched.segment(), bad);
                load.pages[to_usize(fetched.parts()[0].tag.into())].2 = bytes.to_vec();
            }
            Err(broken) => load.broken = Some(broken.clone()),
        }
        if load.left > 0 {
            self.loads[at] = Some(load);
            return;
        }
        self.tally.spend(Stage::Map, shared.options.clock.now().since(load.began));
        let mut core = shared.core.lock();
        let core = &mut *core;
        let installed = match load.broken {
            Some(broken) => Err(broken),
            None => core.map.install(load.key, &load.pages),
        };
        for id in load.waiting {
            let mut read = self.reads[to_usize(id.into())].take().expect("it waits for this");
            read.left -= 1;
            match &installed {
                Ok(()) => self.look_up(shared, core, id, &mut read),
                Err(broken) => read.fail(shared.damaged(broken)),
            }
            self.put(shared, id, read);
        }
    }

    fn blame(&mut self, shared: &Shared, segment: SegmentId, bad: &[DriveIndex]) {
        if bad.is_empty() {
            return;
        }
        add(&shared.counts.reconstructed, 1);
        for drive in bad.iter().filter_map(|drive| shared.fleet.get(*drive)) {
            drive.blame();
        }
        self.damaged.push(segment);
    }

    fn report_damage(&mut self, shared: &Shared) {
        if self.damaged.is_empty() {
            return;
        }
        let mut core = shared.core.lock();
        for segment in self.damaged.drain(..) {
            if let Some(segment) = core.space.get_mut(segment) {
                segment.is_damaged = true;
            }
        }
        drop(core);
        shared.ring();
    }
}

impl Read {
    /// Looks up no more blocks.
    fn fail(&mut self, error: VolumeError) {
        if let Some(buf) = &mut self.buf {
            (self.next..self.blocks).for_each(|block| part_of(buf, block).fill(0));
        }
        self.next = self.blocks;
        self.error.get_or_insert(error);
    }
}

/// The bytes of a block in a buffer.
fn part_of(buf: &mut AlignedBuf, block: u64) -> &mut [u8] {
    let start = to_usize(block) * BLOCK_SIZE;
    &mut buf[start..start + BLOCK_SIZE]
}
