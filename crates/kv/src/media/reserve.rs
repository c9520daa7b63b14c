//! The reserve of a class that is a file: free space for which the file system has given blocks already. Others may fill
//! the file system; maintenance goes on in the reserve, and so do deletes, until there is space again.
//!
//! Invariants
//! 1. An LBA in the reserve is free, has blocks, and reads as zeroes, or as it did before it was ever used.
//! 2. New data of users never takes the reserve.
//! 3. The list on the medium (`omf/reserve.rs`) names at least the reserve, and what was lent of it and is not back, as
//!    far as it has room for runs: a process that is killed leaves the reserve to the next one.

use std::path::Path;
use std::sync::Arc;

use esker_base::units::round_up;
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::{DeviceError, Op, Port};

use crate::media::class::Media;
use crate::media::runs::Runs;
use crate::omf::class::ClassHeader;
use crate::omf::reserve;
use crate::sync::atomic::Ordering;
use crate::types::error::{KvError, Result};
use crate::types::extent::Extent;
use crate::types::stream::Stream;

/// Allocations are tried in pieces of this size at first, in bytes.
const PIECE: u64 = 16 << 20;

/// The first 4 KiB of a class.
fn first_bytes(port: &mut Port) -> Result<AlignedBuf> {
    Ok(port.read(Lba(0), AlignedBuf::zeroed(4096))?)
}

fn is_full(error: &DeviceError) -> bool {
    error.kind() == ErrorKind::NoSpace
}

impl Media {
    /// Whether its device shares the room of a file system with others.
    pub(crate) fn is_file(&self) -> bool {
        self.device().usable_bytes().is_some()
    }

    /// Whether it keeps a reserve.
    pub(crate) fn keeps_reserve(&self) -> bool {
        self.keeps_reserve.load(Ordering::Acquire)
    }

    /// Whether the reserve is all that is left: puts find no room.
    pub(crate) fn lives_on_reserve(&self) -> bool {
        self.keeps_reserve() && self.measured().unreserved() < self.least.0
    }

    /// Bytes of the reserve now.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        LbaCount(self.space.lock().reserve.lbas()).bytes(self.lba_size)
    }

    /// The same while little else is left, else 0: then it is no room for new data.
    pub(crate) fn tied_up_bytes(&self) -> u64 {
        let space = self.space.lock();
        let lbas = if space.is_on_reserve() { space.reserve.lbas() } else { 0 };
        LbaCount(lbas).bytes(self.lba_size)
    }

    /// Learns of the reserve that others have left, without taking it over: for those who only read.
    pub(crate) fn read_reserve(&self) -> Result<()> {
        for (lba, count) in self.listed()?.into_iter().flatten() {
            let parts = self.space.lock().free.parts_of(lba, count);
            parts.into_iter().for_each(|(lba, count)| self.put_aside(lba, count));
        }
        Ok(())
    }

    /// Keeps a reserve from now on, if it can: takes over the one that the list on the medium names, as far as it is free.
    pub(crate) fn adopt_reserve(&self) -> Result<()> {
        let Some(listed) = self.listed()? else { return Ok(()) };
        let _one = self.reclaiming.lock();
        for (lba, count) in listed {
            let parts = self.space.lock().free.parts_of(lba, count);
            for (lba, count) in parts {
                match self.device().allocate(Lba(lba), LbaCount(count)) {
                    Ok(true) => self.put_aside(lba, count),
                    // The file system promises nothing.
                    Ok(false) => return Ok(()),
                    // It was used and discarded since.
                    Err(error) if is_full(&error) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.keeps_reserve.store(true, Ordering::Release);
        Ok(())
    }

    /// The runs that the list on the medium names; nothing where no reserve can be kept.
    fn listed(&self) -> Result<Option<Vec<(u64, u64)>>> {
        if !self.is_file() || self.lba_size > 4096 {
            return Ok(None);
        }
        let first = first_bytes(&mut *self.ports.port()?)?;
        Ok(Some(reserve::decode(&first[reserve::OFFSET..])))
    }

    /// Moves free LBAs into the reserve.
    fn put_aside(&self, lba: u64, count: u64) {
        let mut space = self.space.lock();
        if space.free.claim(lba, count) {
            space.reserve.give(lba, count);
        }
    }

    /// Has the reserve be as large as `needed` bytes, or as it may be at most, whichever is less: takes what it lacks,
    /// where the file system has it, and gives back what is too much. A little too much stays, unless it is to be
    /// `exactly` so much.
    pub(crate) fn keep_reserve(&self, needed: u64, exactly: bool) -> Result<()> {
        if !self.keeps_reserve() {
            return Ok(());
        }
        let (lacks, too_much) = {
            let mut space = self.measured();
            let needed = round_up(LbaCount::holding(needed, self.lba_size).0, self.unit.0);
            let goal = needed.min(space.reserve_limit()).max(2 * self.unit.0);
            space.aim(goal);
            let slack = if exactly { 0 } else { goal / 4 + self.unit.0 };
            let too_much = space.reserve.lbas().saturating_sub(goal + slack);
            (space.reserve_lacks(), too_much)
        };
        if too_much > 0 {
            self.give_from_reserve(too_much);
        } else if lacks > 0 {
            self.fill_reserve(lacks)?;
        }
        Ok(())
    }

    /// Keeps no reserve any more.
    pub(crate) fn end_reserve(&self) {
        self.keeps_reserve.store(false, Ordering::Release);
        self.space.lock().aim(0);
        self.give_from_reserve(u64::MAX);
    }

    /// Lets go of so many LBAs of the reserve: they are discarded with other freed extents.
    fn give_from_reserve(&self, mut too_much: u64) {
        let mut space = self.space.lock();
        while too_much >= self.unit.0 {
            let Some((lba, count)) = space.reserve.iter().min_by_key(|(_, count)| *count) else {
                return;
            };
            let count = if count <= too_much {
                count
            } else {
                (too_much / self.unit.0 * self.unit.0).min(count)
            };
            space.reserve.claim(lba, count);
            too_much -= count;
            let extent = Extent { class: self.class, lba: Lba(lba), count: LbaCount(count) };
            self.freed.lock().push(extent);
        }
    }

    /// Takes what the reserve lacks of the file system, as far as that has it.
    fn fill_reserve(&self, lacks: u64) -> Result<()> {
        // A writer may wait for this, and not for discards: a step of maintenance tries again.
        let Some(_one) = self.reclaiming.try_lock() else { return Ok(()) };
        let (mut left, unit) = (round_up(lacks, self.unit.0), self.unit.0);
        let most = (PIECE / u64::from(self.lba_size) / unit * unit).max(unit);
        let mut piece = left.min(most);
        let before = left;
        while left > 0 && piece >= unit {
            let lba = {
                let mut space = self.measured();
                if space.unreserved() < piece {
                    piece = piece / 2 / unit * unit;
                    continue;
                }
                space.free.take(piece, false)
            };
            let Some(lba) = lba else { break };
            match self.device().allocate(Lba(lba), LbaCount(piece)) {
                Ok(true) => {
                    self.space.lock().reserve.give(lba, piece);
                    left -= piece;
                    piece = piece.min(left);
                }
                Ok(false) => {
                    self.space.lock().free.give(lba, piece);
                    self.keeps_reserve.store(false, Ordering::Release);
                    self.space.lock().aim(0);
                    return Ok(());
                }
                Err(error) if is_full(&error) => {
                    let mut port = self.ports.port()?;
                    // Some of it may have blocks now.
                    let discarded = port.discard(Lba(lba), LbaCount(piece));
                    self.space.lock().free.give(lba, piece);
                    discarded?;
                    piece = piece / 2 / unit * unit;
                }
                Err(error) => {
                    self.space.lock().free.give(lba, piece);
                    return Err(error.into());
                }
            }
        }
        if left < before { self.list_reserve(&mut *self.ports.port()?) } else { Ok(()) }
    }

    /// Takes a freed extent into the reserve, as far as that lacks something; returns the rest. The caller holds
    /// `reclaiming`, and lists the reserve afterwards.
    pub(crate) fn put_in_reserve(&self, port: &mut Port, extent: Extent) -> Result<Option<Extent>> {
        if !self.keeps_reserve() {
            return Ok(Some(extent));
        }
        let count = self.space.lock().fits_reserve(extent.count.0);
        if count == 0 {
            return Ok(Some(extent));
        }
        let taken = Extent { count: LbaCount(count), ..extent };
        let zeroed = port.run(Op::WriteZeroes { lba: taken.lba, count: taken.count });
        match zeroed {
            Ok(_) => {}
            Err(error) if is_full(&error) => return Ok(Some(extent)),
            Err(error) => return Err(error.into()),
        }
        let too_much = {
            let mut space = self.space.lock();
            space.reserve.give(taken.lba.0, count);
            space.reserve.lbas().saturating_sub(space.reserve_goal)
        };
        self.give_from_reserve(too_much);
        let rest = extent.count.0 - count;
        Ok((rest > 0).then_some(Extent {
            lba: extent.lba + LbaCount(count),
            count: LbaCount(rest),
            ..extent
        }))
    }

    /// Discards all that is in use and that none of the `live` extents holds, and leaves the reserve, as it is now, to the
    /// next process. Nothing is allocated afterwards.
    pub(crate) fn discard_rest(&self, live: &[Extent]) -> Result<()> {
        if !self.is_file() {
            return self.reclaim().map(drop);
        }
        let _one = self.reclaiming.lock();
        self.freed.lock().clear();
        let rest = {
            let mut rest = self.space.lock().taken();
            let live = live.iter().filter(|extent| extent.class == self.class);
            for Extent { lba, count, .. } in live {
                rest.remove(lba.0, count.0);
            }
            rest
        };
        let mut port = self.ports.port()?;
        for (lba, count) in rest.iter() {
            match port.discard(Lba(lba), LbaCount(count)) {
                // Even to give space back may take some: the next opening tries again.
                Err(error) if is_full(&error) => break,
                discarded => discarded?,
            }
        }
        if self.keeps_reserve() { self.list_reserve(&mut port) } else { Ok(()) }
    }

    /// Overwrites all but the header and the LBAs that are `held`, piece by piece as long as it is `wanted`: free space is
    /// discarded where that leaves zeroes. Nothing is allocated or written meanwhile.
    pub(crate) fn erase_rest(&self, held: &Runs, wanted: impl Fn() -> Result<()>) -> Result<()> {
        let _one = self.reclaiming.lock();
        let (rest, free) = {
            let space = self.space.lock();
            let (mut rest, mut free) = (space.all(), Runs::default());
            held.iter().for_each(|(lba, count)| rest.remove(lba, count));
            if self.device().discards_zero() {
                space.free.iter().for_each(|(lba, count)| free.give(lba, count));
                space.free.iter().for_each(|(lba, count)| rest.remove(lba, count));
            }
            (rest, free)
        };
        let mut port = self.ports.port()?;
        for (lba, count) in free.iter() {
            wanted()?;
            port.discard(Lba(lba), LbaCount(count))?;
        }
        let most = (PIECE / u64::from(self.lba_size)).max(1);
        for (start, count) in rest.iter() {
            for lba in (start..start + count).step_by(usize::try_from(most).unwrap_or(1)) {
                wanted()?;
                let count = LbaCount(most.min(start + count - lba));
                port.run(Op::WriteZeroes { lba: Lba(lba), count })?;
            }
        }
        Ok(port.flush()?)
    }

    /// Leaves the reserve, as it is now, to the next process.
    pub(crate) fn save_reserve(&self) -> Result<()> {
        if !self.keeps_reserve() {
            return Ok(());
        }
        let _one = self.reclaiming.lock();
        self.list_reserve(&mut *self.ports.port()?)
    }

    /// Writes the list of the reserve. The caller holds `reclaiming`.
    pub(crate) fn list_reserve(&self, port: &mut Port) -> Result<()> {
        let runs = {
            let space = self.space.lock();
            let mut runs: Vec<(u64, u64)> = space.reserve.iter().collect();
            runs.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
            runs.extend(self.lent.lock().iter());
            runs
        };
        let mut bytes = first_bytes(port)?;
        // Never over a class that has been given up.
        if ClassHeader::decode(&bytes[..crate::omf::class::SIZE]).is_err() {
            return Ok(());
        }
        let list = reserve::encode(&runs);
        bytes[reserve::OFFSET..].fill(0);
        bytes[reserve::OFFSET..reserve::OFFSET + list.len()].copy_from_slice(&list);
        let placement = Stream::OldValues.placement(self.placement_handles);
        port.write(Lba(0), bytes, placement)?;
        Ok(())
    }

    /// Whether a process that was killed has left blocks in free space, more than a hundredth of what is in use.
    pub(crate) fn holds_too_much(&self) -> bool {
        let device = self.device();
        let held = device.usable_bytes().zip(device.left_bytes());
        let wanted = self.used_bytes() + self.reserved_bytes();
        held.is_some_and(|(usable, left)| usable.saturating_sub(left) > wanted + wanted / 100)
    }

    /// Discards all free space that is not in the reserve.
    pub(crate) fn trim(&self) -> Result<()> {
        if !self.is_file() {
            return Ok(());
        }
        self.reclaim()?;
        let _one = self.reclaiming.lock();
        let runs: Vec<(u64, u64)> = self.space.lock().free.iter().collect();
        let mut port = self.ports.port()?;
        for (lba, count) in runs {
            // Nobody takes it meanwhile: the KVDB is being opened.
            port.discard(Lba(lba), LbaCount(count))?;
        }
        Ok(())
    }

    /// The file system and the directory that it lies in, for error messages; `None` for a device of its own.
    pub(crate) fn place(&self) -> Option<Arc<str>> {
        self.place.get_or_init(|| self.is_file().then(|| place_of(self.device().name()))).clone()
    }

    /// The error that says how many bytes it has no room for.
    pub(crate) fn no_space(&self, needed: u64) -> KvError {
        KvError::NoSpace { class: self.class, needed, at: self.place() }
    }
}

/// The file system and the directory of a file, in words.
pub(crate) fn place_of(file: &str) -> Arc<str> {
    use std::os::unix::fs::MetadataExt;
    let path = std::path::absolute(file).unwrap_or_else(|_| file.into());
    let dir = path.parent().unwrap_or(Path::new("/"));
    let device = |path: &Path| path.metadata().ok().map(|found| found.dev());
    let own = device(dir);
    let inside = dir.ancestors().take_while(|path| device(path) == own);
    let mount = inside.last().unwrap_or(dir);
    format!("the file system at {}, directory {}", mount.display(), dir.display()).into()
}
