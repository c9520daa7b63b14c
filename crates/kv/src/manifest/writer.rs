//! The manifest: the one place that says which structures are live. Layout: `omf/manifest.rs`.
//!
//! Invariants
//! 1. A change is durable before anyone acts on it: [`Manifest::commit`] returns after a flush.
//! 2. One record is in flight at a time, and each open begins a new epoch in the other region: a
//!    record that follows the last valid one can never be mistaken for a newer one.
//! 3. After a commit that failed there is no other one.
//! 4. [`State`] is the sum of the edits so far; a snapshot is the state as edits.
//!
//! A region is left long before it is full, once its records are [`TRAIL`] times its snapshot. So a record is
//! overwritten soon, and a drive finds few old ones among data that has died ([Placement](crate#placement)).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use esker_base::checksum::crc32c;
use esker_base::codec::Encoder;
use esker_base::thread::said;
use esker_base::{Lba, LbaCount};
use esker_device::{Device, Op, Port};

use crate::manifest::medium::{ManifestDevice, REGION_MAX};
use crate::manifest::state::State;
use crate::omf::manifest::{Edit, HEADER_SIZE, RecordHeader, padded_size};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::format::FormatVersion;

/// Size to which a manifest file may grow, in bytes.
pub(crate) const MANIFEST_BYTES: u64 = 2 * REGION_MAX;

/// A snapshot is followed by so many times its size of records at most, which is the share that snapshots add to
/// the bytes written: an eighth.
const TRAIL: u64 = 8;
/// Small snapshots are followed by so many bytes.
const TRAIL_LEAST: u64 = 256 << 10;

/// The manifest of an open KVDB.
pub(crate) struct Manifest {
    pub(super) writer: Mutex<Writer>,
    /// Whether it has the newest version of the format: then no write asks the writer.
    is_newest: AtomicBool,
}

pub(super) struct Writer {
    medium: ManifestDevice,
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

impl Manifest {
    /// The state of the manifest on `device`: `None` when there never was one.
    pub(crate) fn read(device: &Arc<dyn Device>) -> Result<Option<State>> {
        Ok(Manifest::find(device.clone())?.map(|found| found.state))
    }

    /// Reads the manifest on `device`, and writes nothing: `None` when there never was one, or writing
    /// the first one was interrupted.
    pub(crate) fn find(device: Arc<dyn Device>) -> Result<Option<FoundManifest>> {
        let mut medium = ManifestDevice::open(device)?;
        let newest = Manifest::newest(&mut medium)?;
        Ok(newest.map(|(region, epoch, state)| FoundManifest { medium, region, epoch, state }))
    }

    /// Region, epoch and state of the current region.
    fn newest(medium: &mut ManifestDevice) -> Result<Option<(u64, u64, State)>> {
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

    fn of(writer: Writer) -> Manifest {
        let is_newest = AtomicBool::new(writer.state.version == FormatVersion::NEWEST);
        Manifest { writer: Mutex::new(writer), is_newest }
    }

    /// Makes it none any more.
    pub(crate) fn clear(device: &Arc<dyn Device>) -> Result<()> {
        const PIECE: u64 = 4096;
        let (end, mut port) = (device.geometry().capacity.0, Port::open(&**device, 1)?);
        for lba in (0..end).step_by(4096) {
            let count = LbaCount(PIECE.min(end - lba));
            port.run(Op::WriteZeroes { lba: Lba(lba), count })?;
        }
        Ok(port.flush()?)
    }

    /// Writes the first manifest of a KVDB.
    pub(crate) fn create(
        device: Arc<dyn Device>,
        (version, uuid): (FormatVersion, [u8; 16]),
        edits: Vec<Edit>,
    ) -> Result<Manifest> {
        let medium = ManifestDevice::open(device)?;
        let mut state = State { version, uuid, ..State::default() };
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
        Ok(Manifest::of(writer))
    }

    /// Makes edits durable, all or none.
    pub(crate) fn commit(&self, edits: Vec<Edit>) -> Result<()> {
        self.write(|writer| writer.commit(edits))
    }

    /// Makes it durable that the KVDB has this version of the format at least; false where it had it before. All of it
    /// is in one snapshot, which is there or not.
    pub(crate) fn upgrade(&self, version: FormatVersion) -> Result<bool> {
        let mut upgraded = false;
        self.write(|writer| {
            upgraded = writer.state.version < version;
            if upgraded { writer.upgrade(version) } else { Ok(()) }
        })?;
        let is_newest = self.version() == FormatVersion::NEWEST;
        self.is_newest.store(is_newest, Ordering::Release);
        Ok(upgraded)
    }

    /// Whether the KVDB has the newest version of the format. It asks no lock.
    pub(crate) fn is_newest(&self) -> bool {
        self.is_newest.load(Ordering::Acquire)
    }

    pub(crate) fn version(&self) -> FormatVersion {
        self.writer.lock().state.version
    }

    /// Writes the whole state to both regions, and erases what is behind it: nothing of earlier records stays.
    pub(crate) fn renew(&self) -> Result<()> {
        self.write(Writer::renew)
    }

    /// Writes, unless that failed before; nothing is written after a failure or a panic.
    fn write(&self, work: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
        let mut writer = self.writer.lock();
        if let Some(cause) = &writer.failed {
            return Err(cause.clone());
        }
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut writer)));
        writer.failed = match &result {
            // Without room nothing was written.
            Ok(Ok(()) | Err(KvError::ManifestFull { .. })) => None,
            Ok(Err(error)) => Some(error.clone()),
            // The next commit may be the first to stop the KVDB, and its error says why.
            Err(panic) => {
                let (task, message) = ("a commit to the manifest".into(), said(&**panic));
                Some(KvError::Panicked { task, message })
            }
        };
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Lets go of the device.
    pub(crate) fn end(&self) {
        let mut writer = self.writer.lock();
        writer.failed.get_or_insert(KvError::Closed);
        writer.medium.device.end();
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.writer.lock().state.uuid
    }

    pub(crate) fn state(&self) -> State {
        self.writer.lock().state.clone()
    }

    /// Whether something lies on this class.
    pub(crate) fn uses(&self, class: MediaClass) -> bool {
        self.writer.lock().state.uses(class)
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.writer.lock().written_bytes
    }
}

/// A manifest that was read.
pub(crate) struct FoundManifest {
    pub(crate) medium: ManifestDevice,
    region: u64,
    epoch: u64,
    pub(crate) state: State,
}

impl FoundManifest {
    /// Begins a new epoch, to write in; `make_room` is asked once where its file system is full.
    pub(crate) fn begin(self, make_room: impl FnOnce() -> Result<()>) -> Result<Manifest> {
        let mut writer = self.writer(None);
        match writer.snapshot() {
            Err(KvError::ManifestFull { .. }) => {
                make_room()?;
                writer.snapshot()?;
            }
            begun => begun?,
        }
        Ok(Manifest::of(writer))
    }

    /// The manifest of a KVDB that is read only: nothing is committed to it.
    pub(crate) fn read_only(self) -> Manifest {
        Manifest::of(self.writer(Some(KvError::ReadOnly)))
    }

    fn writer(self, failed: Option<KvError>) -> Writer {
        let FoundManifest { medium, region, epoch, state } = self;
        let (tail, turn) = (Lba(0), Lba(0));
        Writer { medium, region, epoch, index: 0, tail, turn, state, written_bytes: 0, failed }
    }
}

impl Writer {
    /// Has the other region hold room for the snapshot with which it begins, of so many bytes, and for some records: it is
    /// written when the KVDB is opened next. Without room now there may be some then.
    fn room_for_next(&mut self, bytes: u64) {
        let (next, lba_size) = (1 - self.region, self.medium.lba_size);
        let end =
            Lba(next * self.medium.region_lbas) + LbaCount::holding(bytes + TRAIL_LEAST, lba_size);
        let limit = Lba((next + 1) * self.medium.region_lbas);
        let _ = self.medium.make_room(next, end.min(limit), end);
    }

    fn header(&self, lba: Lba, payload: &[u8]) -> RecordHeader {
        RecordHeader {
            version: self.state.version,
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
        // Edits that did not become durable have not happened.
        self.snapshot().inspect_err(|_| self.state = before)
    }

    /// Appends a record to the current region; false when it has no room.
    pub(super) fn append(&mut self, payload: &[u8]) -> Result<bool> {
        let header = self.header(self.tail, payload);
        let size = padded_size(header.payload_size, self.medium.lba_size);
        let next = self.tail + LbaCount::holding(size, self.medium.lba_size);
        if next.0 > (self.region + 1) * self.medium.region_lbas {
            return Ok(false);
        }
        self.medium.make_room(self.region, next, self.turn)?;
        self.written_bytes += self.medium.write(self.tail, &header, payload)?;
        (self.tail, self.index) = (next, self.index + 1);
        Ok(true)
    }

    fn upgrade(&mut self, version: FormatVersion) -> Result<()> {
        let before = std::mem::replace(&mut self.state.version, version);
        self.snapshot().inspect_err(|_| self.state.version = before)
    }

    fn renew(&mut self) -> Result<()> {
        for _ in 0..2 {
            self.snapshot()?;
            let end = Lba((self.region + 1) * self.medium.region_lbas);
            self.medium.erase(self.tail, end)?;
        }
        Ok(())
    }

    /// Begins the other region with the whole state.
    fn snapshot(&mut self) -> Result<()> {
        let mut payload = Encoder::default();
        self.state.edits().iter().for_each(|edit| edit.encode_to(&mut payload));
        let (region, lba_size) = (1 - self.region, self.medium.lba_size);
        let start = Lba(region * self.medium.region_lbas);
        let bytes = payload.0.len() as u64 + HEADER_SIZE as u64;
        let trail = |bytes: u64| LbaCount::holding((TRAIL * bytes).max(TRAIL_LEAST), lba_size);
        // Before anything is changed.
        let end = start + LbaCount::holding(bytes, lba_size);
        let limit = Lba((region + 1) * self.medium.region_lbas);
        self.medium.make_room(region, end.min(limit), end + trail(bytes))?;
        (self.region, self.epoch, self.index) = (region, self.epoch + 1, 0);
        self.tail = start;
        if self.append(&payload.0)? {
            let size = LbaCount(self.tail.0 - start.0).bytes(lba_size);
            self.turn = self.tail + trail(size);
            self.room_for_next(2 * size);
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
