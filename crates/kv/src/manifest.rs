//! The manifest: the one place that says which structures are live. Layout: `omf/manifest.rs`.
//!
//! Invariants
//! 1. A change is durable before anyone acts on it: [`Manifest::commit`] returns after a flush.
//! 2. One record is in flight at a time, and each open begins a new epoch in the other region: a
//!    record that follows the last valid one can never be mistaken for a newer one.
//! 3. After a commit that failed there is no other one.
//! 4. [`State`] is what the edits so far add up to; a snapshot is the state as edits.
//!
//! A region is left long before it is full, once its records are [`TRAIL`] times its snapshot. So a record is
//! overwritten soon, and a drive finds few old ones among data that has died ([`crate::placement`]).

mod survey;

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::checksum::crc32c;
use esker_base::codec::Encoder;
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{Device, PlacementId, Port};

use crate::error::{KvError, Result};
use crate::lease::Lease;
use crate::media::Extent;
use crate::omf::manifest::{Edit, HEADER_SIZE, KvsetEdit, RecordHeader, padded_size, payload};
use crate::omf::{Malformed, expect};
use crate::placement::Stream;
use crate::sync::Mutex;
use crate::transfer::Transfer;
use crate::{KvsOptions, MediaClass};

pub(crate) use survey::Survey;

/// The largest region: room for a snapshot with a million references to blocks, which are of 2 MiB at least in
/// the long run, as `due.rs` puts smaller ones together.
const REGION_MAX: u64 = 64 << 20;
/// What a manifest file may grow to.
pub(crate) const MANIFEST_BYTES: u64 = 2 * REGION_MAX;

/// A snapshot is followed by so many times its size of records at most, which is what snapshots add to what is
/// written: an eighth.
const TRAIL: u64 = 8;
/// Small snapshots are followed by so many bytes.
const TRAIL_LEAST: u64 = 256 << 10;

/// What the edits of a manifest add up to.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) uuid: [u8; 16],
    pub(crate) last_id: u64,
    pub(crate) classes: BTreeMap<MediaClass, String>,
    pub(crate) kvss: BTreeMap<u32, (String, KvsOptions)>,
    pub(crate) blocks: BTreeMap<u64, BlockState>,
    /// Records up to this seqno are in kvsets.
    pub(crate) ingested: u64,
    /// Replay begins in this log segment.
    pub(crate) log_first: u64,
    /// KVS and lower bound of each leaf.
    pub(crate) leaves: BTreeMap<u64, (u32, Vec<u8>)>,
    pub(crate) kvsets: BTreeMap<u64, KvsetEdit>,
}

/// A block, as the manifest knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockState {
    pub(crate) extent: Extent,
    pub(crate) log: bool,
    /// Bytes of records; 0 for a log segment.
    pub(crate) bytes: u64,
    /// What they would be with no value compressed.
    pub(crate) plain_bytes: u64,
    /// How many kvsets refer to it.
    references: u64,
}

impl State {
    /// Applies an edit. Blocks that may be used no more go to `doubtful`: another edit of the record may use them.
    fn apply(&mut self, edit: Edit, doubtful: &mut Vec<u64>) -> Result<(), Malformed> {
        let known = |holds: bool, what: &str, id: u64| {
            expect(holds, || format!("an edit names {what} {id}, which does not exist"))
        };
        match edit {
            Edit::LastId { id } => self.last_id = self.last_id.max(id),
            Edit::Class { class, path } => {
                self.classes.insert(class, path);
            }
            Edit::ClassRemoved { class } => {
                let unused = !self.uses(class) && class != MediaClass::Capacity;
                expect(unused && self.classes.remove(&class).is_some(), || {
                    format!("an edit removes the {class} class, which is in use or not there")
                })?;
            }
            Edit::Kvs { id, name, options } => {
                self.kvss.insert(id, (name, options));
            }
            Edit::KvsDropped { id } => {
                known(self.kvss.remove(&id).is_some(), "KVS", id.into())?;
                self.leaves.retain(|_, (kvs, _)| *kvs != id);
                let gone = self.kvsets.extract_if(.., |_, kvset| kvset.kvs == id);
                let gone: Vec<KvsetEdit> = gone.map(|(_, kvset)| kvset).collect();
                gone.iter().for_each(|kvset| self.let_go(kvset, doubtful));
            }
            Edit::Block { id, extent, log, bytes, plain_bytes } => {
                self.last_id = self.last_id.max(id);
                let references = self.blocks.get(&id).map_or(0, |former| former.references);
                self.blocks.insert(id, BlockState { extent, log, bytes, plain_bytes, references });
                doubtful.push(id);
            }
            Edit::Ingested { seqno, first } => {
                let passed = self.log_first..first.max(self.log_first);
                doubtful.extend(self.blocks.range(passed).map(|(id, _)| *id));
                (self.ingested, self.log_first) = (seqno, first);
            }
            Edit::Leaf { id, kvs, lower } => {
                known(self.kvss.contains_key(&kvs), "KVS", kvs.into())?;
                self.last_id = self.last_id.max(id);
                self.leaves.insert(id, (kvs, lower));
            }
            Edit::LeafRemoved { id } => {
                let empty = self.kvsets.values().all(|kvset| kvset.leaf != id);
                known(empty && self.leaves.remove(&id).is_some(), "empty leaf", id)?;
            }
            Edit::Kvset(kvset) => {
                known(self.kvss.contains_key(&kvset.kvs), "KVS", kvset.kvs.into())?;
                let leaf = kvset.leaf;
                let owner = self.leaves.get(&leaf).map(|(kvs, _)| *kvs);
                known(leaf == 0 || owner == Some(kvset.kvs), "leaf", leaf)?;
                for (block, _) in &kvset.blocks {
                    let there = self.blocks.get_mut(block);
                    known(there.is_some(), "block", *block)?;
                    there.into_iter().for_each(|block| block.references += 1);
                }
                self.last_id = self.last_id.max(kvset.id);
                if let Some(former) = self.kvsets.insert(kvset.id, kvset) {
                    self.let_go(&former, doubtful);
                }
            }
            Edit::KvsetRemoved { id } => {
                let gone = self.kvsets.remove(&id);
                known(gone.is_some(), "kvset", id)?;
                gone.iter().for_each(|kvset| self.let_go(kvset, doubtful));
            }
        }
        Ok(())
    }

    /// A kvset is gone: the blocks that it referred to may go as well.
    fn let_go(&mut self, kvset: &KvsetEdit, doubtful: &mut Vec<u64>) {
        for (id, _) in &kvset.blocks {
            if let Some(block) = self.blocks.get_mut(id) {
                block.references -= 1;
                doubtful.push(*id);
            }
        }
    }

    /// Whether something lies on this class.
    fn uses(&self, class: MediaClass) -> bool {
        let mut keys = self.kvsets.values().flat_map(|kvset| &kvset.extents);
        let mut blocks = self.blocks.values().map(|block| &block.extent);
        keys.any(|extent| extent.class == class) || blocks.any(|extent| extent.class == class)
    }

    fn apply_all(&mut self, edits: Vec<Edit>) -> Result<(), Malformed> {
        let mut doubtful = Vec::new();
        edits.into_iter().try_for_each(|edit| self.apply(edit, &mut doubtful))?;
        // Blocks live as long as a kvset refers to them or replay may read them.
        for id in doubtful {
            let is_unused =
                |block: &BlockState| block.references == 0 && !(block.log && id >= self.log_first);
            if self.blocks.get(&id).is_some_and(is_unused) {
                self.blocks.remove(&id);
            }
        }
        Ok(())
    }

    /// The edits that build this state.
    pub(crate) fn edits(&self) -> Vec<Edit> {
        let mut edits = vec![Edit::LastId { id: self.last_id }];
        let ingested = Edit::Ingested { seqno: self.ingested, first: self.log_first };
        edits.extend(
            self.classes.iter().map(|(&class, path)| Edit::Class { class, path: path.clone() }),
        );
        edits.extend(self.kvss.iter().map(|(&id, (name, options))| Edit::Kvs {
            id,
            name: name.clone(),
            options: *options,
        }));
        edits.extend(self.blocks.iter().map(|(&id, block)| {
            let &BlockState { extent, log, bytes, plain_bytes, .. } = block;
            Edit::Block { id, extent, log, bytes, plain_bytes }
        }));
        edits.push(ingested);
        edits.extend(self.leaves.iter().map(|(&id, (kvs, lower))| Edit::Leaf {
            id,
            kvs: *kvs,
            lower: lower.clone(),
        }));
        edits.extend(self.kvsets.values().cloned().map(Edit::Kvset));
        edits
    }
}

/// The manifest of an open KVDB.
pub(crate) struct Manifest(Mutex<Writer>);

struct Writer {
    medium: Medium,
    region: u64,
    epoch: u64,
    index: u64,
    /// Where the next record goes.
    tail: Lba,
    /// From here on the next record goes to the other region, in the snapshot with which that begins.
    turn: Lba,
    state: State,
    written_bytes: u64,
    /// The failure since which nothing is written: after it, a record could pass for another one.
    failed: Option<KvError>,
}

/// The manifest device and how it is divided.
struct Medium {
    device: Arc<Lease>,
    port: Port,
    lba_size: u32,
    transfer: Transfer,
    placement: Option<PlacementId>,
    region_lbas: u64,
}

/// What was found in a region.
struct Region {
    /// How many valid records it begins with, and the epoch and the state that they yield.
    records: u64,
    epoch: u64,
    state: State,
    /// Where they end, and where the region does.
    stops: Lba,
    end: Lba,
    /// The highest epoch of a record behind that.
    behind: u64,
}

/// How far behind the last valid record to look for more, in bytes: most records have one LBA.
/// Also the size of a read when the rest of a region is looked at.
const LOOK_BEHIND: u64 = 256 << 10;

impl Medium {
    fn open(device: Arc<dyn Device>) -> Result<Medium> {
        let geometry = device.geometry();
        let device = Arc::new(Lease::new(device));
        let region = LbaCount(REGION_MAX / u64::from(geometry.lba_size));
        let region_lbas = region.0.min(geometry.capacity.0 / 2);
        let port = Port::open(&*device, 1)?;
        Ok(Medium {
            device,
            port,
            lba_size: geometry.lba_size,
            transfer: Transfer::of(&geometry),
            placement: Stream::Manifest.placement(geometry.placement_handles),
            region_lbas,
        })
    }

    fn corrupt(&self, lba: Lba, detail: String) -> KvError {
        let device = self.device.name().to_owned();
        KvError::Corrupt { what: "manifest", device, lba, detail }
    }

    fn version(&self, lba: Lba, found: u16) -> KvError {
        KvError::Version { what: "manifest", device: self.device.name().to_owned(), lba, found }
    }

    fn read(&mut self, lba: Lba, bytes: u64) -> Result<AlignedBuf> {
        Ok(self.transfer.read(&mut self.port, lba, AlignedBuf::zeroed(to_usize(bytes)))?)
    }

    /// The record at `lba`, if there is a valid one: its header, its edits, and the LBA after it.
    /// What is not valid is read twice: it may have been damaged on its way.
    fn record(&mut self, lba: Lba, end: Lba) -> Result<Option<(RecordHeader, Vec<Edit>, Lba)>> {
        Ok(match self.try_record(lba, end)? {
            None => self.try_record(lba, end)?,
            valid => valid,
        })
    }

    fn try_record(&mut self, lba: Lba, end: Lba) -> Result<Option<(RecordHeader, Vec<Edit>, Lba)>> {
        if lba >= end {
            return Ok(None);
        }
        let first = self.read(lba, self.lba_size.into())?;
        let Ok(header) = RecordHeader::decode(&first) else {
            return match RecordHeader::other_version(&first) {
                Some(found) => Err(self.version(lba, found)),
                None => Ok(None),
            };
        };
        let size = padded_size(header.payload_size, self.lba_size);
        let next = lba + LbaCount::holding(size, self.lba_size);
        if header.lba != lba.0 || next > end {
            return Ok(None);
        }
        let bytes = self.read(lba, size)?;
        let Ok(payload) = payload(&header, &bytes) else {
            return Ok(None);
        };
        // The checksums hold, so these are the bytes that were written: what does not decode now
        // was written by another version or is our bug, and must not be passed over.
        let edits = Edit::decode_all(payload).map_err(|bad| self.corrupt(lba, bad.0))?;
        Ok(Some((header, edits, next)))
    }

    /// A region of which nothing was read yet.
    fn unread(&self, region: u64) -> Region {
        let start = Lba(region * self.region_lbas);
        let end = start + LbaCount(self.region_lbas);
        Region { records: 0, epoch: 0, state: State::default(), stops: start, end, behind: 0 }
    }

    /// Reads the region from its snapshot to its last valid record.
    fn region(&mut self, region: u64) -> Result<Region> {
        let mut found = self.unread(region);
        while self.advance(&mut found)? {}
        found.behind = self.newest_epoch_behind(found.stops, found.end)?;
        Ok(found)
    }

    /// Adds the next record to what was found in a region; false when there is none. After an error the
    /// state may hold a part of it.
    fn advance(&mut self, found: &mut Region) -> Result<bool> {
        let Some((header, edits, next)) = self.record(found.stops, found.end)? else {
            return Ok(false);
        };
        let follows = (header.epoch, header.uuid) == (found.epoch, found.state.uuid);
        if header.index != found.records || (found.records > 0 && !follows) {
            return Ok(false);
        }
        (found.epoch, found.state.uuid) = (header.epoch, header.uuid);
        found.state.apply_all(edits).map_err(|bad| self.corrupt(found.stops, bad.0))?;
        (found.stops, found.records) = (next, found.records + 1);
        Ok(true)
    }

    /// The highest epoch of the record headers that lie behind the end of a region's records at
    /// `stops`. The records of an epoch are written one after the other, so one behind the end of
    /// its epoch proves that the end is not the end.
    fn newest_epoch_behind(&mut self, stops: Lba, end: Lba) -> Result<u64> {
        if stops >= end {
            return Ok(0);
        }
        let first = self.read(stops, self.lba_size.into())?;
        let header = RecordHeader::decode(&first).ok().filter(|header| header.lba == stops.0);
        let size = header.map_or(u64::from(self.lba_size), |header| {
            padded_size(header.payload_size, self.lba_size)
        });
        let mut at = stops + LbaCount::holding(size, self.lba_size);
        // Where nothing was written, or a record whose size is known, a short look is enough.
        let clean = header.is_some() || first.iter().all(|&byte| byte == 0);
        let look = LbaCount::holding(LOOK_BEHIND, self.lba_size);
        let end = if clean { end.min(at + look) } else { end };
        let mut newest = 0;
        while at < end {
            let count = look.min(LbaCount(end.0 - at.0));
            let bytes = self.read(at, count.bytes(self.lba_size))?;
            for (lba, number) in bytes.chunks(to_usize(self.lba_size.into())).zip(at.0..) {
                if let Ok(header) = RecordHeader::decode(lba)
                    && header.lba == number
                {
                    newest = newest.max(header.epoch);
                }
            }
            at = at + count;
        }
        Ok(newest)
    }

    /// Whether nothing was ever written to a region.
    fn is_blank(&mut self, region: u64) -> Result<bool> {
        let (mut at, end) = (Lba(region * self.region_lbas), (region + 1) * self.region_lbas);
        let look = LbaCount::holding(LOOK_BEHIND, self.lba_size);
        while at.0 < end {
            let count = look.min(LbaCount(end - at.0));
            if self.read(at, count.bytes(self.lba_size))?.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at = at + count;
        }
        Ok(true)
    }

    fn write(&mut self, lba: Lba, header: &RecordHeader, payload: &[u8]) -> Result<u64> {
        let size = padded_size(header.payload_size, self.lba_size);
        let mut buf = AlignedBuf::zeroed(to_usize(size));
        buf[..HEADER_SIZE].copy_from_slice(&header.encode());
        buf[HEADER_SIZE..HEADER_SIZE + payload.len()].copy_from_slice(payload);
        self.transfer.write(&mut self.port, lba, buf, self.placement)?;
        self.port.flush()?;
        Ok(size)
    }
}

impl Manifest {
    /// The state of the manifest on `device`: `None` when there never was one.
    pub(crate) fn read(device: &Arc<dyn Device>) -> Result<Option<State>> {
        Ok(Manifest::find(device.clone())?.map(|found| found.state))
    }

    /// Reads the manifest on `device`, and writes nothing: `None` when there never was one, or writing
    /// the first one was interrupted.
    pub(crate) fn find(device: Arc<dyn Device>) -> Result<Option<Found>> {
        let mut medium = Medium::open(device)?;
        let newest = Manifest::newest(&mut medium)?;
        Ok(newest.map(|(region, epoch, state)| Found { medium, region, epoch, state }))
    }

    /// Region, epoch and state of the current region.
    fn newest(medium: &mut Medium) -> Result<Option<(u64, u64, State)>> {
        let regions = [medium.region(0)?, medium.region(1)?];
        let newest = regions.iter().map(|region| region.epoch).max().unwrap_or(0);
        for region in &regions {
            // A torn write is the last one of its epoch: nothing of that epoch lies behind it.
            if region.behind > 0 && region.behind >= newest {
                let detail = format!("a record of epoch {} lies behind it", region.behind);
                return Err(medium.corrupt(region.stops, detail));
            }
        }
        // The second region is written when a KVDB is opened for the first time.
        if newest == 0 && !medium.is_blank(1)? {
            let detail = "neither half of it holds a whole record, and it is not empty";
            return Err(medium.corrupt(Lba(0), detail.into()));
        }
        let found = regions.into_iter().zip(0..).find(|(region, _)| region.epoch == newest);
        Ok(found
            .filter(|(region, _)| region.records > 0)
            .map(|(region, number)| (number, region.epoch, region.state)))
    }

    /// Writes the first manifest of a KVDB.
    pub(crate) fn create(
        device: Arc<dyn Device>,
        uuid: [u8; 16],
        edits: Vec<Edit>,
    ) -> Result<Manifest> {
        let medium = Medium::open(device)?;
        let mut state = State { uuid, ..State::default() };
        state.apply_all(edits).expect("the first edits refer to nothing");
        let (tail, turn) = (Lba(0), Lba(0));
        let mut writer = Writer {
            medium,
            region: 1,
            epoch: 0,
            index: 0,
            tail,
            turn,
            state,
            written_bytes: 0,
            failed: None,
        };
        writer.snapshot()?;
        Ok(Manifest(Mutex::new(writer)))
    }

    /// Makes edits durable, all or none.
    pub(crate) fn commit(&self, edits: Vec<Edit>) -> Result<()> {
        let mut writer = self.0.lock();
        if let Some(cause) = &writer.failed {
            return Err(cause.clone());
        }
        let result = writer.commit(edits);
        writer.failed = result.as_ref().err().cloned();
        result
    }

    /// Lets go of the device.
    pub(crate) fn end(&self) {
        let mut writer = self.0.lock();
        writer.failed.get_or_insert(KvError::Closed);
        writer.medium.device.end();
    }

    pub(crate) fn state(&self) -> State {
        self.0.lock().state.clone()
    }

    /// Whether something lies on this class.
    pub(crate) fn uses(&self, class: MediaClass) -> bool {
        self.0.lock().state.uses(class)
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.0.lock().written_bytes
    }
}

/// A manifest that was read.
pub(crate) struct Found {
    medium: Medium,
    region: u64,
    epoch: u64,
    pub(crate) state: State,
}

impl Found {
    /// Begins a new epoch, to write in.
    pub(crate) fn begin(self) -> Result<Manifest> {
        let mut writer = self.writer(None);
        writer.snapshot()?;
        Ok(Manifest(Mutex::new(writer)))
    }

    /// The manifest of a KVDB that is read only: nothing is committed to it.
    pub(crate) fn read_only(self) -> Manifest {
        Manifest(Mutex::new(self.writer(Some(KvError::ReadOnly))))
    }

    fn writer(self, failed: Option<KvError>) -> Writer {
        let Found { medium, region, epoch, state } = self;
        let (tail, turn) = (Lba(0), Lba(0));
        Writer { medium, region, epoch, index: 0, tail, turn, state, written_bytes: 0, failed }
    }
}

impl Writer {
    fn header(&self, lba: Lba, payload: &[u8]) -> RecordHeader {
        RecordHeader {
            payload_size: u32::try_from(payload.len()).expect("regions are below 4 GiB"),
            epoch: self.epoch,
            index: self.index,
            lba: lba.0,
            uuid: self.state.uuid,
            payload_crc: crc32c(payload),
        }
    }

    fn commit(&mut self, edits: Vec<Edit>) -> Result<()> {
        let mut payload = Encoder::default();
        edits.iter().for_each(|edit| edit.encode_to(&mut payload));
        let written = self.tail < self.turn && self.append(&payload.0)?;
        let before = if written { None } else { Some(self.state.clone()) };
        self.state.apply_all(edits).map_err(|bad| {
            self.medium.corrupt(self.tail, format!("an edit that cannot be applied: {}", bad.0))
        })?;
        let Some(before) = before else {
            return Ok(());
        };
        // What did not become durable has not happened.
        self.snapshot().inspect_err(|_| self.state = before)
    }

    /// Appends a record to the current region; false when it has no room.
    fn append(&mut self, payload: &[u8]) -> Result<bool> {
        let header = self.header(self.tail, payload);
        let size = padded_size(header.payload_size, self.medium.lba_size);
        let next = self.tail + LbaCount::holding(size, self.medium.lba_size);
        if next.0 > (self.region + 1) * self.medium.region_lbas {
            return Ok(false);
        }
        self.written_bytes += self.medium.write(self.tail, &header, payload)?;
        (self.tail, self.index) = (next, self.index + 1);
        Ok(true)
    }

    /// Begins the other region with the whole state.
    fn snapshot(&mut self) -> Result<()> {
        let mut payload = Encoder::default();
        self.state.edits().iter().for_each(|edit| edit.encode_to(&mut payload));
        (self.region, self.epoch, self.index) = (1 - self.region, self.epoch + 1, 0);
        self.tail = Lba(self.region * self.medium.region_lbas);
        let start = self.tail;
        if self.append(&payload.0)? {
            let lba_size = self.medium.lba_size;
            let size = LbaCount(self.tail.0 - start.0).bytes(lba_size);
            self.turn = self.tail + LbaCount::holding((TRAIL * size).max(TRAIL_LEAST), lba_size);
            return Ok(());
        }
        let needed = payload.0.len();
        Err(KvError::Options(format!(
            "{}: the manifest needs {needed} bytes, more than half of its device: give it a larger one, or, in a \
             directory, where its size is fixed, dump the KVDB and load it into several",
            self.medium.device.name()
        )))
    }
}

#[cfg(test)]
mod tests;
