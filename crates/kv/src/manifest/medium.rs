//! The manifest's device: two regions of records, and reading a region from its snapshot to its last valid record.

use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, LbaCount};
use esker_device::{Device, Op, PlacementId, Port};

use crate::manifest::state::State;
use crate::media::lease::Lease;
use crate::media::reserve::place_of;
use crate::media::transfer::Transfer;
use crate::omf::manifest::{Edit, HEADER_SIZE, RecordHeader, padded_size, payload};
use crate::types::error::{KvError, Result};
use crate::types::stream::Stream;

/// The largest region: room for a snapshot with a million references to blocks, which are of 2 MiB at least in
/// the long run, as `maintain/picker.rs` puts smaller ones together.
pub(crate) const REGION_MAX: u64 = 64 << 20;

/// The manifest device and how it is divided.
pub(crate) struct ManifestDevice {
    pub(crate) device: Arc<Lease>,
    port: Port,
    pub(crate) lba_size: u32,
    transfer: Transfer,
    placement: Option<PlacementId>,
    pub(crate) region_lbas: u64,
    /// Where the part of each region ends that has room on the medium for certain, from the region's start.
    has_room: [Lba; 2],
}

/// Content of a region, as it was found.
pub(crate) struct Region {
    /// How many valid records it begins with, and the epoch and the state that they yield.
    pub(crate) records: u64,
    pub(crate) epoch: u64,
    pub(crate) state: State,
    /// Where they end, and where the region does.
    pub(crate) stops: Lba,
    end: Lba,
    /// The highest epoch of a record behind that.
    pub(crate) behind: u64,
}

/// How far behind the last valid record to look for more, in bytes: most records have one LBA.
/// Also the size of a read when the rest of a region is looked at.
pub(crate) const LOOK_BEHIND: u64 = 256 << 10;

impl ManifestDevice {
    pub(crate) fn open(device: Arc<dyn Device>) -> Result<ManifestDevice> {
        let geometry = device.geometry();
        let device = Arc::new(Lease::new(device, &Clock::real()));
        let region = LbaCount(REGION_MAX / u64::from(geometry.lba_size));
        let region_lbas = region.0.min(geometry.capacity.0 / 2);
        let port = Port::open(&*device, 1)?;
        Ok(ManifestDevice {
            device,
            port,
            lba_size: geometry.lba_size,
            transfer: Transfer::of(&geometry),
            placement: Stream::Manifest.placement(geometry.placement_handles),
            region_lbas,
            has_room: [Lba(0), Lba(region_lbas)],
        })
    }

    pub(crate) fn corrupt(&self, lba: Lba, detail: String) -> KvError {
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
    /// Reads a record that is not valid twice: it may have been damaged on its way.
    fn record(&mut self, lba: Lba, end: Lba) -> Result<Option<(RecordHeader, Vec<Edit>, Lba)>> {
        Ok(match self.try_record(lba, end)? {
            None => self.try_record(lba, end)?,
            valid => valid,
        })
    }

    pub(crate) fn try_record(
        &mut self,
        lba: Lba,
        end: Lba,
    ) -> Result<Option<(RecordHeader, Vec<Edit>, Lba)>> {
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
        // The checksums hold, so these are the bytes that were written: bytes that do not decode now were written
        // by another version or are our bug, and must not be passed over.
        let edits = Edit::decode_all(payload).map_err(|bad| self.corrupt(lba, bad.0))?;
        Ok(Some((header, edits, next)))
    }

    /// A region of which nothing was read yet.
    pub(crate) fn unread(&self, region: u64) -> Region {
        let start = Lba(region * self.region_lbas);
        let end = start + LbaCount(self.region_lbas);
        Region { records: 0, epoch: 0, state: State::default(), stops: start, end, behind: 0 }
    }

    /// Reads the region from its snapshot to its last valid record.
    pub(crate) fn region(&mut self, region: u64) -> Result<Region> {
        let mut found = self.unread(region);
        while self.advance(&mut found)? {}
        found.behind = self.newest_epoch_behind(found.stops, found.end)?;
        Ok(found)
    }

    /// Adds the next record to the content found in a region; false when there is none. After an error the
    /// state may hold a part of it.
    pub(crate) fn advance(&mut self, found: &mut Region) -> Result<bool> {
        let Some((header, edits, next)) = self.record(found.stops, found.end)? else {
            return Ok(false);
        };
        let follows = (header.epoch, header.uuid) == (found.epoch, found.state.uuid);
        if header.index != found.records || (found.records > 0 && !follows) {
            return Ok(false);
        }
        (found.epoch, found.state.uuid) = (header.epoch, header.uuid);
        found.state.version = found.state.version.max(header.version);
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
    pub(crate) fn is_blank(&mut self, region: u64) -> Result<bool> {
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

    /// Makes sure that a region has room on the medium up to `end`, and up to `ahead` if it can: then no record on the way
    /// there fails for lack of it. Nothing is written.
    ///
    /// # Errors
    /// `ManifestFull`, or the device's.
    pub(crate) fn make_room(&mut self, region: u64, end: Lba, ahead: Lba) -> Result<()> {
        let of_region = usize::from(region == 1);
        let begins = self.has_room[of_region];
        if begins >= end {
            return Ok(());
        }
        let limit = Lba((region + 1) * self.region_lbas);
        let mut full = None;
        for end in [ahead.max(end).min(limit), end] {
            let count = LbaCount(end.0.saturating_sub(begins.0));
            match self.device.allocate(begins, count) {
                Ok(_) => {
                    self.has_room[of_region] = end;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::NoSpace => full = Some(count),
                Err(error) => return Err(error.into()),
            }
        }
        let needed = full.map_or(0, |count| count.bytes(self.lba_size));
        Err(KvError::ManifestFull { needed, at: place_of(self.device.name()) })
    }

    /// Erases what lies from `from` on and before `end`, to the end of a region.
    pub(crate) fn erase(&mut self, from: Lba, end: Lba) -> Result<()> {
        if from >= end {
            return Ok(());
        }
        let count = LbaCount(end.0 - from.0);
        if self.device.discards_zero() {
            self.port.discard(from, count)?;
            let of_region = usize::from(from.0 >= self.region_lbas);
            self.has_room[of_region] = self.has_room[of_region].min(from);
        } else {
            self.port.run(Op::WriteZeroes { lba: from, count })?;
        }
        Ok(self.port.flush()?)
    }

    pub(crate) fn write(&mut self, lba: Lba, header: &RecordHeader, payload: &[u8]) -> Result<u64> {
        let size = padded_size(header.payload_size, self.lba_size);
        let mut buf = AlignedBuf::zeroed(to_usize(size));
        buf[..HEADER_SIZE].copy_from_slice(&header.encode());
        buf[HEADER_SIZE..HEADER_SIZE + payload.len()].copy_from_slice(payload);
        self.transfer.write(&mut self.port, lba, buf, self.placement)?;
        self.port.flush()?;
        Ok(size)
    }
}
