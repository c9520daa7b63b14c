//! Properties and abilities of an open file or block device, as far as the system reports them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use esker_base::ErrorKind;
use esker_base::buf::ALIGNMENT;
use esker_base::units::{human_bytes, round_down, round_up, to_u64};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use super::options::FileOptions;
use super::refusal::{Refusal, os_refusal};

const LBA_SIZE: u32 = 4096;
/// How far a regular file may grow when nobody says.
const CAPACITY_BYTES: u64 = 16 << 40;
/// `linux/magic.h`.
const TMPFS_MAGIC: u32 = 0x0102_1994;

/// Properties of a file or block device.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) is_block_device: bool,
    pub(super) lba_size: u32,
    pub(super) capacity_bytes: u64,
    pub(super) discard_granularity: u32,
    pub(super) has_write_cache: bool,
    pub(super) streams: Streams,
}

/// Write streams that the kernel reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    /// Nothing: it has none, or this is a file.
    Unknown,
    /// A partition has those of the whole.
    OfPartition,
    /// So many at most.
    Most(u16),
}

/// The current length in bytes.
pub(super) fn length(file: &File, is_block_device: bool) -> io::Result<u64> {
    if is_block_device {
        return Ok(rustix::fs::seek(file, SeekFrom::End(0))?);
    }
    Ok(file.metadata()?.len())
}

pub(super) fn medium(path: &Path, file: &File, options: &FileOptions) -> Result<Medium, Refusal> {
    let metadata = file.metadata().map_err(|error| os_refusal(&error))?;
    let is_block_device = metadata.file_type().is_block_device();
    let length = length(file, is_block_device).map_err(|error| os_refusal(&error))?;
    if is_block_device {
        let queue = QueueLimits(metadata.rdev());
        let lba_size = block_lba_size(file, options, length)?;
        return Ok(Medium {
            is_block_device,
            lba_size,
            capacity_bytes: round_down(length, u64::from(lba_size)),
            discard_granularity: queue.discard_granularity(lba_size),
            has_write_cache: queue.has_write_cache(),
            streams: queue.streams(),
        });
    }
    let lba_size = file_lba_size(options)?;
    let capacity_bytes = match options.fixed {
        true => fixed_capacity(path, options, length, lba_size)?,
        false => file_capacity(file, options, length, lba_size)?,
    };
    if options.fixed && !options.read_only && capacity_bytes > length {
        extend(file, capacity_bytes)?;
    }
    let block_size = u32::try_from(metadata.blksize()).unwrap_or(lba_size);
    let can_discard = punches_holes(file, round_up(length, u64::from(lba_size)));
    Ok(Medium {
        is_block_device,
        lba_size,
        capacity_bytes,
        discard_granularity: if can_discard { block_size } else { 0 },
        has_write_cache: true, // the file system's, whatever the drive has
        streams: Streams::Unknown,
    })
}

fn file_lba_size(options: &FileOptions) -> Result<u32, Refusal> {
    let lba_size = options.lba_size.unwrap_or(LBA_SIZE);
    if !lba_size.is_power_of_two() || !(512..=4096).contains(&lba_size) {
        let why = format!("an LBA has 512, 1024, 2048 or 4096 bytes, not {lba_size}");
        return Err((ErrorKind::Invalid, why));
    }
    Ok(lba_size)
}

fn block_lba_size(file: &File, options: &FileOptions, length: u64) -> Result<u32, Refusal> {
    let native = rustix::fs::ioctl_blksszget(file).map_err(|errno| os_refusal(&errno.into()))?;
    if options.lba_size.is_none() && !length.is_multiple_of(u64::from(LBA_SIZE)) {
        return Ok(native);
    }
    let lba_size = file_lba_size(options)?;
    if lba_size < native {
        let why =
            format!("its logical blocks have {native} bytes, so an LBA cannot have {lba_size}");
        return Err((ErrorKind::Invalid, why));
    }
    Ok(lba_size)
}

/// The size of a file that does not grow: the one it has, unless another one was said.
fn fixed_capacity(
    path: &Path,
    options: &FileOptions,
    length: u64,
    lba_size: u32,
) -> Result<u64, Refusal> {
    let (name, lba) = (path.display(), u64::from(lba_size));
    let invalid = |why: String| Err((ErrorKind::Invalid, why));
    let larger = |size: u64| format!("`truncate -s {size} '{name}'`");
    if let Some(wish) = options.capacity_bytes {
        let fitting = round_up(wish, lba);
        return match wish {
            _ if wish != fitting => invalid(format!(
                "a capacity of {wish} bytes is no multiple of an LBA of {lba_size}; say {fitting}{}",
                smaller_lba(wish)
            )),
            _ if wish < length => invalid(format!(
                "it has {length} bytes already, so its capacity cannot be {wish}; say no capacity, or at \
                 least {}, or cut it off ({}), which loses what is beyond",
                round_up(length, lba),
                larger(wish)
            )),
            _ => Ok(wish),
        };
    }
    if length == 0 {
        return invalid(format!(
            "the file is empty, so it has no size; say a capacity, or make it as large as the device is to \
             be, such as {}",
            larger(8 << 30)
        ));
    }
    if length.is_multiple_of(lba) {
        return Ok(length);
    }
    let is = if length < lba { "less than" } else { "no multiple of" };
    invalid(format!(
        "it has {length} bytes, {is} an LBA of {lba_size}; lengthen it with {}{}",
        larger(round_up(length, lba)),
        smaller_lba(length)
    ))
}

/// Which smaller LBA would do.
fn smaller_lba(bytes: u64) -> String {
    match bytes.is_multiple_of(512) {
        true => ", or say an LBA of 512 bytes (lba=512)".to_owned(),
        false => String::new(),
    }
}

/// Makes a file longer by a hole, so that whoever opens it later finds the same size.
fn extend(file: &File, capacity_bytes: u64) -> Result<(), Refusal> {
    let extended = file.set_len(capacity_bytes).and_then(|()| file.sync_all());
    extended.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => {
            let why = "the file system allows no file of";
            (
                ErrorKind::Invalid,
                format!("{why} {}; lower its capacity", human_bytes(capacity_bytes)),
            )
        }
        _ => os_refusal(&error),
    })
}

fn file_capacity(
    file: &File,
    options: &FileOptions,
    length: u64,
    lba_size: u32,
) -> Result<u64, Refusal> {
    let wish = options.capacity_bytes.unwrap_or(CAPACITY_BYTES.max(length));
    let capacity = round_down(wish, u64::from(lba_size));
    let invalid = |why: String| Err((ErrorKind::Invalid, why));
    if capacity == 0 {
        return invalid(format!(
            "a capacity of {wish} bytes does not hold one LBA of {lba_size} bytes"
        ));
    }
    if wish < length {
        return invalid(format!(
            "it has {length} bytes already, so its capacity cannot be {wish}; raise it"
        ));
    }
    let allowed = largest_size(file, capacity);
    if options.capacity_bytes.is_some() && allowed < capacity {
        return invalid(format!(
            "the file system allows a file {}, not {}; lower its capacity",
            human_bytes(allowed),
            human_bytes(capacity)
        ));
    }
    Ok(round_down(allowed, u64::from(lba_size)))
}

/// The largest size up to `wish` that the file system allows a file. It can seek exactly so far.
fn largest_size(file: &File, wish: u64) -> u64 {
    let can_seek = |offset| rustix::fs::seek(file, SeekFrom::Start(offset)).is_ok();
    if can_seek(wish) {
        return wish;
    }
    let (mut possible, mut impossible) = (0, wish);
    while impossible - possible > 1 {
        let middle = possible + (impossible - possible) / 2;
        if can_seek(middle) {
            possible = middle;
        } else {
            impossible = middle;
        }
    }
    possible
}

/// Returns the bytes that a file can hold with the space left in its file system; `None` where that
/// does not say. A hundredth of it may be wanted for the file system's own structures.
pub(super) fn usable_bytes(file: &File) -> Option<u64> {
    let held = file.metadata().ok()?.blocks() * 512;
    Some(held.saturating_add(left_bytes(file)?))
}

/// The bytes that the file system of a file can still give.
pub(super) fn left_bytes(file: &File) -> Option<u64> {
    let system = rustix::fs::fstatvfs(file).ok().filter(|system| system.f_blocks > 0)?;
    let left = system.f_bavail.saturating_mul(system.f_frsize);
    Some(left - left / 100)
}

/// Has the file system give a range of the file blocks of its own, with the content that it has. False where it does no
/// such thing. A file that ends before gets longer: ext4 punches no hole behind the end.
pub(super) fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
            done => return Ok(done.map(|()| true)?),
        }
    }
}

/// Whether a part of the file can be freed; tried where it has no content.
fn punches_holes(file: &File, end: u64) -> bool {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    !matches!(rustix::fs::fallocate(file, mode, end, 1), Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Whether the file lies on a tmpfs.
pub(super) fn is_in_memory(file: &File) -> bool {
    let kind = rustix::fs::fstatfs(file).ok().and_then(|system| u32::try_from(system.f_type).ok());
    kind == Some(TMPFS_MAGIC)
}

/// Makes reads and writes go around the page cache, or says why that is refused.
pub(super) fn set_direct(file: &File, medium: &Medium) -> Result<(), String> {
    let lba_size = medium.lba_size;
    // For a block device this is where its node lies, which is of no account.
    if !medium.is_block_device && is_in_memory(file) {
        return Err("tmpfs keeps its files in the page cache and nowhere else".to_owned());
    }
    // Where the kernel tells (Linux 6.1), its answer says more than the flag's acceptance: some
    // file systems accept the flag and go through the page cache all the same.
    let asked = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    if let Ok(told) = asked
        && StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        if told.stx_dio_offset_align == 0 {
            return Err("the file system does not do it for this file".to_owned());
        }
        if told.stx_dio_offset_align > lba_size {
            return Err(format!(
                "it is done in units of {} bytes, and an LBA has {lba_size}",
                told.stx_dio_offset_align
            ));
        }
        if u64::from(told.stx_dio_mem_align) > to_u64(ALIGNMENT) {
            return Err(format!("it needs memory aligned to {} bytes", told.stx_dio_mem_align));
        }
    }
    rustix::fs::fcntl_getfl(file)
        .and_then(|flags| rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT))
        .map_err(|errno| match errno {
            Errno::INVAL => "the file system does not know it".to_owned(),
            errno => errno.to_string(),
        })
}

/// The limits of a block device's request queue as `/sys` shows them, by device number.
/// (Documentation/ABI/stable/sysfs-block of Linux.)
struct QueueLimits(u64);

impl QueueLimits {
    /// A partition has no queue of its own: its parent has.
    fn read(&self, name: &str) -> Option<String> {
        let (major, minor) = (rustix::fs::major(self.0), rustix::fs::minor(self.0));
        let device = format!("/sys/dev/block/{major}:{minor}");
        fs::read_to_string(format!("{device}/queue/{name}"))
            .or_else(|_| fs::read_to_string(format!("{device}/../queue/{name}")))
            .ok()
    }

    fn discard_granularity(&self, lba_size: u32) -> u32 {
        let number = |name| self.read(name)?.trim().parse::<u32>().ok();
        let largest = self.read("discard_max_bytes");
        if largest.is_none_or(|bytes| bytes.trim() == "0") {
            return 0;
        }
        number("discard_granularity").unwrap_or(0).max(lba_size)
    }

    fn streams(&self) -> Streams {
        let (major, minor) = (rustix::fs::major(self.0), rustix::fs::minor(self.0));
        if Path::new(&format!("/sys/dev/block/{major}:{minor}/partition")).exists() {
            return Streams::OfPartition;
        }
        let most = self.read("max_write_streams").and_then(|most| most.trim().parse().ok());
        most.map_or(Streams::Unknown, Streams::Most)
    }

    fn has_write_cache(&self) -> bool {
        self.read("write_cache").is_none_or(|kind| kind.trim() != "write through")
    }
}
