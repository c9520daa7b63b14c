//! A media class: one device, the space on it, and the traffic of each stream.
//!
//! Invariants
//! 1. An extent belongs to one [`Allocation`], or to the free space, or to `freed`.
//! 2. Free space is all space that the manifest's live structures do not use: nothing about it is stored.
//! 3. An extent goes from `freed` to free space only after its discard, and it got there only when nothing durable
//!    refers to it any more. An extent smaller than a unit is discarded with its unit, once all of that is free: a
//!    discard takes longer than a write of so little.

use std::sync::{Arc, OnceLock};

use esker_base::process::Owner;
use esker_base::units::{round_up, to_usize};
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, LbaCount};
use esker_device::{Device, Op, PortPool};

use crate::media::buffers;
use crate::media::idle::IdleQueues;
use crate::media::lease::Lease;
use crate::media::runs::Runs;
use crate::media::space::{Purpose, Space, Taken};
use crate::media::transfer::Transfer;
use crate::omf::class::{self, ClassHeader};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::extent::Extent;
use crate::types::options::Tuning;
use crate::types::stream::Stream;

/// A media class.
pub(crate) struct Media {
    pub(crate) class: MediaClass,
    pub(crate) lba_size: u32,
    /// The process that opened it.
    owner: Owner,
    pub(crate) ports: PortPool,
    pub(crate) lease: Arc<Lease>,
    pub(crate) idle_queues: IdleQueues,
    /// The size in which a lot is read, in bytes: one command.
    pub(crate) transfer_size: usize,
    pub(crate) transfer: Transfer,
    /// How many placement ids the device offers.
    pub(crate) placement_handles: u16,
    /// Unit in which extents at least as large are allocated; smaller ones are allocated in pages.
    pub(super) unit: LbaCount,
    page: LbaCount,
    /// Space that users need to go on: a frame, and its alignment.
    pub(super) least: LbaCount,
    pub(super) space: Mutex<Space>,
    /// Taken of the reserve, and not freed since.
    pub(super) lent: Mutex<Runs>,
    pub(super) keeps_reserve: AtomicBool,
    /// In words, where it is a file.
    pub(super) place: OnceLock<Option<Arc<str>>>,
    pub(super) freed: Mutex<Vec<Extent>>,
    /// Where writes of steps are under way: extents freed of it are not free before they have ended.
    written_now: Mutex<Vec<Extent>>,
    /// Held by the thread that discards.
    pub(super) reclaiming: Mutex<()>,
    /// Set when the structures to which the manifest refers are no longer known: nothing is freed from then on.
    pub(crate) keeps_all: AtomicBool,
    traffic: [Traffic; Stream::ALL.len()],
}

/// The space of the class header: one LBA, and the padding that aligns the rest to 4 KiB.
const HEADER_BYTES: u32 = 4096;
/// Size of the pieces in which less than a unit is allocated, in bytes: a kvset of a few keys takes few.
const PAGE_BYTES: u64 = 4096;
/// Commands in flight on each port of a class.
const PORT_DEPTH: usize = 16;
/// A lot is read in pieces of this size: large enough for full bandwidth, small enough for DRAM.
const TRANSFER_SIZE: u32 = 1 << 20;

#[derive(Default)]
struct Traffic {
    read_ops: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

impl Media {
    /// The class on `device`, all of its space free but for the header's.
    pub(crate) fn new(
        class: MediaClass,
        device: Arc<dyn Device>,
        tuning: &Tuning,
        clock: &Clock,
    ) -> Media {
        let geometry = device.geometry();
        let lba_size = geometry.lba_size;
        let unit = LbaCount::holding(tuning.allocation_bytes.max(u64::from(lba_size)), lba_size);
        let first = u64::from(HEADER_BYTES / lba_size);
        let block_lbas = tuning.block_bytes / u64::from(lba_size);
        let mut space = Space::new(first, geometry.capacity.0, block_lbas, unit.0);
        space.bound(usable_lbas(&*device));
        let lease = Arc::new(Lease::new(device, clock));
        Media {
            class,
            lba_size,
            owner: Owner::here(),
            transfer_size: to_usize(geometry.max_transfer_size.min(TRANSFER_SIZE).into()),
            transfer: Transfer::of(&geometry),
            placement_handles: geometry.placement_handles,
            ports: PortPool::new(lease.clone(), PORT_DEPTH),
            lease,
            idle_queues: IdleQueues::default(),
            unit,
            page: LbaCount::holding(PAGE_BYTES, lba_size),
            least: LbaCount(round_up(
                LbaCount::holding(tuning.frame_bytes + 8192, lba_size).0,
                unit.0,
            )),
            space: Mutex::new(space),
            lent: Mutex::default(),
            keeps_reserve: AtomicBool::new(false),
            place: OnceLock::new(),
            freed: Mutex::new(Vec::new()),
            written_now: Mutex::default(),
            reclaiming: Mutex::new(()),
            keeps_all: AtomicBool::new(false),
            traffic: Default::default(),
        }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        self.ports.device()
    }

    /// Whether it shares a drive or a file system with another class, as far as is known.
    pub(crate) fn is_beside(&self, other: &Media) -> bool {
        let identity = |media: &Media| media.device().identity();
        identity(self).zip(identity(other)).is_some_and(|(own, its)| own.is_beside(&its))
    }

    /// Lets go of the device: nothing is read or written any more.
    pub(crate) fn end(&self) {
        self.lease.end();
    }

    /// Writes the header that says which KVDB the device belongs to.
    pub(crate) fn write_header(&self, uuid: [u8; 16]) -> Result<()> {
        let header = ClassHeader { class: self.class, lba_size: self.lba_size, uuid };
        let buf = AlignedBuf::padded(&header.encode(), to_usize(self.lba_size.into()));
        let mut port = self.ports.port()?;
        // It stays for as long as the class does.
        port.write(Lba(0), buf, Stream::OldValues.placement(self.placement_handles))?;
        Ok(port.flush()?)
    }

    /// The header that says which KVDB the device belongs to.
    pub(crate) fn header(&self) -> Result<ClassHeader> {
        let buf = AlignedBuf::zeroed(to_usize(self.lba_size.into()));
        let buf = self.ports.port()?.read(Lba(0), buf)?;
        if let Some(found) = ClassHeader::other_version(&buf) {
            let device = self.device().name().to_owned();
            return Err(KvError::Version { what: "class header", device, lba: Lba(0), found });
        }
        ClassHeader::decode(&buf[..class::SIZE])
            .map_err(|malformed| self.corrupt("class header", Lba(0), malformed.0))
    }

    /// Whether there is nothing where the header would be.
    pub(crate) fn is_without_header(&self) -> Result<bool> {
        let buf = AlignedBuf::zeroed(to_usize(self.lba_size.into()));
        let buf = self.ports.port()?.read(Lba(0), buf)?;
        Ok(buf.iter().all(|byte| *byte == 0))
    }

    /// Checks that the device belongs to this class of this KVDB.
    pub(crate) fn check_header(&self, uuid: [u8; 16]) -> Result<()> {
        let header = self.header()?;
        let wanted = ClassHeader { class: self.class, lba_size: self.lba_size, uuid };
        if header != wanted {
            let detail = format!("{wanted:?} expected, {header:?} found: is it another KVDB's?");
            return Err(self.corrupt("class header", Lba(0), detail));
        }
        Ok(())
    }

    /// Its space, as much of it as the device can hold now.
    pub(super) fn measured(&self) -> MutexGuard<'_, Space> {
        let usable = usable_lbas(&**self.device());
        let left = self.device().left_bytes().map(|bytes| bytes / u64::from(self.lba_size));
        let mut space = self.space.lock();
        space.bound(usable);
        space.left_lbas = left.unwrap_or(u64::MAX);
        space
    }

    /// The LBAs that `bytes` bytes take.
    fn rounded(&self, bytes: u64) -> u64 {
        let count = LbaCount::holding(bytes, self.lba_size);
        round_up(count.0, if count < self.unit { self.page.0 } else { self.unit.0 })
    }

    /// Takes an extent of at least `bytes` bytes for data of `stream`.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        stream: Stream,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<Allocation> {
        let wanted = self.rounded(bytes);
        // Whatever is written to the log takes as much again when it becomes a kvset, at most.
        let again = if stream == Stream::Log { wanted } else { 0 };
        let mut taken = self.take(wanted, again, purpose)?;
        if taken.is_none() {
            self.reclaim()?;
            taken = self.take(wanted, again, purpose)?;
        }
        let Some((Taken { lba, of_reserve }, has_blocks)) = taken else {
            return Err(self.no_space(bytes));
        };
        let extent = Extent { class: self.class, lba: Lba(lba), count: LbaCount(wanted) };
        Ok(Allocation { media: self.clone(), extent, stream, of_reserve, has_blocks })
    }

    /// Takes a run, and says whether it has all of its blocks. Where the file system has little left, it gets them now:
    /// others may be quicker than the write.
    fn take(&self, wanted: u64, again: u64, purpose: Purpose) -> Result<Option<(Taken, bool)>> {
        let (taken, is_tight) = {
            let mut space = self.measured();
            let taken = space.take(wanted, again, purpose);
            (taken, space.reserve_goal > 0 && space.unreserved() < space.reserve_goal.max(wanted))
        };
        let taken = match taken {
            Some(Taken { lba, of_reserve: false }) if is_tight => {
                match self.device().allocate(Lba(lba), LbaCount(wanted)) {
                    Ok(has_blocks) => {
                        return Ok(Some((Taken { lba, of_reserve: false }, has_blocks)));
                    }
                    Err(error) if error.kind() == ErrorKind::NoSpace => {
                        let (lba, count) = (Lba(lba), LbaCount(wanted));
                        // Some of it may have blocks now.
                        self.freed.lock().push(Extent { class: self.class, lba, count });
                        self.space.lock().take_reserved(wanted, again, purpose)
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            taken => taken,
        };
        let has_blocks = taken.as_ref().is_some_and(|taken| taken.of_reserve);
        if let Some(taken) = taken.as_ref().filter(|taken| taken.of_reserve) {
            self.lent.lock().give(taken.lba, wanted);
        }
        Ok(taken.map(|taken| (taken, has_blocks)))
    }

    /// Takes an extent that the manifest says is in use, by data of `stream`.
    pub(crate) fn claim(self: &Arc<Self>, stream: Stream, extent: Extent) -> Result<Allocation> {
        let claimed = self.space.lock().claim(extent.lba.0, extent.count.0);
        if !claimed {
            let detail = format!("{} LBAs claimed twice or beyond the end", extent.count);
            return Err(self.corrupt("extent", extent.lba, detail));
        }
        Ok(Allocation::new(self, extent, stream))
    }

    /// Discards freed extents and makes them available again. Returns how many bytes. Extents that another thread
    /// discards are available, too, when this returns.
    pub(crate) fn reclaim(&self) -> Result<u64> {
        let _one = self.reclaiming.lock();
        let mut port = self.ports.port()?;
        let freed = {
            let mut freed = self.freed.lock();
            // Under the lock: extents that a failed commit lets go of come when all is kept already.
            if self.keeps_all.load(Ordering::Acquire) {
                return Ok(0);
            }
            let written_now = self.written_now.lock();
            let is_written =
                |extent: &Extent| written_now.iter().any(|written| written.overlaps(extent));
            let all = std::mem::take(&mut *freed).into_iter();
            let (written, rest): (Vec<Extent>, Vec<Extent>) = all.partition(is_written);
            *freed = written;
            joined(rest)
        };
        let bytes = freed.iter().map(|extent| extent.count.bytes(self.lba_size)).sum();
        let (mut whole, pieces): (Vec<Extent>, Vec<Extent>) =
            freed.into_iter().partition(|extent| extent.count >= self.unit);
        for piece in pieces {
            self.no_longer_lent(piece);
            let units = self.space.lock().give_piece(piece.lba.0, piece.count.0);
            let unit = |lba| Extent { class: self.class, lba: Lba(lba), count: self.unit };
            whole.extend(units.into_iter().map(unit));
        }
        let reserved = self.space.lock().reserve.lbas();
        let mut done = 0;
        let result = whole.iter().try_for_each(|&extent| {
            self.no_longer_lent(extent);
            let rest = self.put_in_reserve(&mut port, extent)?;
            done += 1;
            let Some(rest) = rest else { return Ok(()) };
            if let Err(error) = port.discard(rest.lba, rest.count) {
                self.freed.lock().push(rest);
                return Err(KvError::from(error));
            }
            self.space.lock().give(rest.lba.0, rest.count.0);
            Ok(())
        });
        self.freed.lock().extend_from_slice(&whole[done..]);
        let gained = self.space.lock().reserve.lbas() > reserved;
        let listed = if gained { self.list_reserve(&mut port) } else { Ok(()) };
        match result.and(listed) {
            // They stay freed: even to give space back may take some.
            Err(error) if error.lacks_space() => Ok(0),
            result => result.map(|()| bytes),
        }
    }

    /// Notes that an extent is freed.
    fn no_longer_lent(&self, Extent { lba, count, .. }: Extent) {
        self.lent.lock().remove(lba.0, count.0);
    }

    /// Notes that a write to an extent is under way, until [`Media::is_written`].
    pub(crate) fn writes(&self, extent: Extent) {
        self.written_now.lock().push(extent);
    }

    /// Notes that a write to an extent has ended.
    pub(crate) fn is_written(&self, extent: Extent) {
        let mut written_now = self.written_now.lock();
        let at = written_now.iter().position(|it| *it == extent);
        written_now.swap_remove(at.expect("it was noted"));
    }

    /// Whether users may put more here.
    pub(crate) fn has_room(&self) -> Result<bool> {
        Ok(self.has_room_now() || {
            self.reclaim()?;
            self.has_room_now()
        })
    }

    /// The same, without space that a discard could make available.
    pub(crate) fn has_room_now(&self) -> bool {
        let fits = |space: &Space| {
            let has_beside = space.reserve_goal == 0 || space.unreserved() >= self.least.0;
            has_beside
                && space.available() >= space.kept_lbas.max(space.reserve_goal) + self.least.0
        };
        fits(&self.space.lock()) || fits(&self.measured())
    }

    /// Bytes in use, freed but not yet discarded ones included.
    pub(crate) fn used_bytes(&self) -> u64 {
        let space = self.space.lock();
        LbaCount(space.capacity_lbas - space.free_lbas()).bytes(self.lba_size)
    }

    /// Bytes that are free now, the reserve for maintenance included.
    pub(crate) fn free_bytes(&self) -> u64 {
        LbaCount(self.space.lock().available()).bytes(self.lba_size)
    }

    /// The same, of the space that the device can hold now.
    pub(crate) fn free_bytes_now(&self) -> u64 {
        LbaCount(self.measured().available()).bytes(self.lba_size)
    }

    /// Bytes that are kept for maintenance.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        LbaCount(self.space.lock().kept()).bytes(self.lba_size)
    }

    /// Writes zeroes over the header: the device belongs to no KVDB any more.
    pub(crate) fn clear_header(&self) -> Result<()> {
        let mut port = self.ports.port()?;
        let zeroes = AlignedBuf::zeroed(to_usize(self.lba_size.into()));
        port.write(Lba(0), zeroes, Stream::OldValues.placement(self.placement_handles))?;
        Ok(port.flush()?)
    }

    /// Bytes that it can hold, as far as that was known when space was taken last.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_of(&self.space.lock())
    }

    fn capacity_of(&self, space: &Space) -> u64 {
        // A file system may have no room left for extents that are taken and were not written yet.
        let taken = space.capacity_lbas - space.free_lbas();
        LbaCount(space.usable_lbas.max(taken)).bytes(self.lba_size)
    }

    /// The same, but for the reserve for maintenance.
    pub(crate) fn room_bytes(&self) -> u64 {
        let space = self.space.lock();
        self.capacity_of(&space) - LbaCount(space.kept()).bytes(self.lba_size)
    }

    pub(crate) fn count_read(&self, stream: Stream, ops: u64, bytes: usize) {
        let traffic = &self.traffic[stream as usize];
        traffic.read_ops.fetch_add(ops, Ordering::Relaxed);
        traffic.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_written(&self, stream: Stream, bytes: usize) {
        self.traffic[stream as usize].written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Read operations, bytes read and bytes written of a stream.
    pub(crate) fn traffic(&self, stream: Stream) -> (u64, u64, u64) {
        let traffic = &self.traffic[stream as usize];
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&traffic.read_ops), get(&traffic.read), get(&traffic.written))
    }

    /// Bytes that maintenance has written so far, steps under way included: all but the log.
    pub(crate) fn written_by_maintenance(&self) -> u64 {
        let streams = Stream::ALL.iter().filter(|&&stream| stream != Stream::Log);
        streams.map(|&stream| self.traffic(stream).2).sum()
    }

    pub(crate) fn corrupt(&self, what: &'static str, lba: Lba, detail: String) -> KvError {
        KvError::Corrupt { what, device: self.device().name().to_owned(), lba, detail }
    }
}

/// The same extents, those that touch as one: each is a command.
fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.lba);
    extents.dedup_by(|next, extent| {
        let touches = extent.lba + extent.count == next.lba;
        if touches {
            extent.count = LbaCount(extent.count.0 + next.count.0);
        }
        touches
    });
    extents
}

/// How many LBAs a device can hold now.
fn usable_lbas(device: &dyn Device) -> u64 {
    let geometry = device.geometry();
    let usable = device.usable_bytes().map(|bytes| bytes / u64::from(geometry.lba_size));
    usable.unwrap_or(geometry.capacity.0)
}

/// An extent in use. Dropping it frees the extent; [`Media::reclaim`] makes it available.
pub(crate) struct Allocation {
    pub(crate) media: Arc<Media>,
    pub(crate) extent: Extent,
    /// Stream for which it was taken.
    pub(crate) stream: Stream,
    /// Whether it was taken of the reserve.
    pub(crate) of_reserve: bool,
    /// Whether all of it had blocks when it was taken, though nothing was written to it yet.
    has_blocks: bool,
}

impl Allocation {
    /// An extent in use.
    pub(crate) fn new(media: &Arc<Media>, extent: Extent, stream: Stream) -> Allocation {
        Allocation { media: media.clone(), extent, stream, of_reserve: false, has_blocks: false }
    }

    /// Takes the room now that writing will need: a file has as much as its file system still has then.
    pub(crate) fn hold(&self) -> Result<()> {
        let Extent { lba, count, .. } = self.extent;
        match self.where_shared(Op::WriteZeroes { lba, count }) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                Err(self.media.no_space(self.bytes()))
            }
            result => result,
        }
    }

    /// The extent without the part that nothing was written to, behind the first `bytes` bytes.
    pub(crate) fn first(&self, bytes: u64) -> Extent {
        let count = LbaCount(self.media.rounded(bytes.max(1))).min(self.extent.count);
        Extent { count, ..self.extent }
    }

    /// Runs an operation that is of use where the room of a device is not its own.
    fn where_shared(&self, op: Op) -> Result<()> {
        if self.media.device().usable_bytes().is_some() {
            self.media.ports.port()?.run(op)?;
        }
        Ok(())
    }

    /// Reads `size` bytes at `offset`; returns the buffer and where in it the bytes begin. One
    /// device read, unless the device takes no transfer of that size.
    pub(crate) fn read_at(&self, offset: u64, size: usize) -> Result<(AlignedBuf, usize)> {
        let media = &self.media;
        let (lba, skip, bytes) = self.span(offset, size);
        let mut port = media.ports.port()?;
        let buf = media.transfer.read(&mut port, lba, buffers::take(bytes))?;
        media.count_read(self.stream, media.transfer.commands(bytes), bytes);
        Ok((buf, skip))
    }

    /// Writes `buf` at `offset`, and returns the buffer.
    pub(crate) fn write_at(&self, offset: u64, buf: AlignedBuf) -> Result<AlignedBuf> {
        let media = &self.media;
        let (lba, skip, bytes) = self.span(offset, buf.len());
        debug_assert_eq!((skip, bytes), (0, buf.len()), "writes are whole LBAs");
        assert!(offset + bytes as u64 <= self.bytes(), "a write stays in its extent");
        let placement = self.stream.placement(media.placement_handles);
        let buf = media.transfer.write(&mut *media.ports.port()?, lba, buf, placement)?;
        media.count_written(self.stream, bytes);
        Ok(buf)
    }

    /// The command that writes `buf`, whole LBAs and no more than a command takes, at `offset`. It is counted as done.
    pub(crate) fn write_op(&self, offset: u64, buf: AlignedBuf) -> Op {
        let media = &self.media;
        let (lba, skip, bytes) = self.span(offset, buf.len());
        debug_assert_eq!((skip, bytes), (0, buf.len()), "writes are whole LBAs");
        assert!(offset + bytes as u64 <= self.bytes(), "a write stays in its extent");
        media.count_written(self.stream, bytes);
        let placement = self.stream.placement(media.placement_handles);
        Op::Write { lba, buf, placement, fua: false }
    }

    /// The LBAs that hold `size` bytes at `offset`: the first one, how many bytes of it come
    /// before, and the size of all in bytes.
    pub(crate) fn span(&self, offset: u64, size: usize) -> (Lba, usize, usize) {
        let lba_size = u64::from(self.media.lba_size);
        let skip = offset % lba_size;
        let bytes = round_up(skip + size as u64, lba_size);
        let lba = self.extent.lba + LbaCount(offset / lba_size);
        (lba, to_usize(skip), to_usize(bytes))
    }

    /// Gives back the space behind the first `bytes` bytes, which was never written.
    pub(crate) fn truncate(&mut self, bytes: u64) {
        let media = &self.media;
        let keep = media.rounded(bytes);
        let extent = &mut self.extent;
        if keep < extent.count.0 {
            let (lba, count) = (extent.lba + LbaCount(keep), LbaCount(extent.count.0 - keep));
            if self.has_blocks {
                // In the free space they would be lost to the reserve.
                media.freed.lock().push(Extent { class: extent.class, lba, count });
            } else {
                media.space.lock().give(lba.0, count.0);
            }
            extent.count = LbaCount(keep);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.extent.count.bytes(self.media.lba_size)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // A forked child frees nothing, and may not find the lock free.
        if self.extent.count.0 > 0 && self.media.owner.is_here() {
            self.media.freed.lock().push(self.extent);
        }
    }
}

#[cfg(test)]
mod tests;
