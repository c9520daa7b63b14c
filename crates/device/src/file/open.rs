//! Opens a file, locks it and settles how it will be used. A preferred option that is refused
//! becomes a remark; a required one, an error.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::time::Duration;

use esker_base::process::{Owner, withhold};
use esker_base::{Clock, ErrorKind, Lba, LbaCount, files};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::holder::holder;
use super::opened::OpenFile;
use super::options::{Create, FileOptions, Preference};
use super::refusal::{Refusal, os_refusal};
use super::spin::Spin;
use super::{placement, probe, uring};
use crate::{Cause, Counters, DeviceError, Geometry, OpKind};

/// One write of this size at a time comes close to a drive's full speed (docs/device.md).
const PREFERRED_WRITE_SIZE: u32 = 1 << 20;
/// Below the 2 GiB that one system call transfers.
const MAX_TRANSFER_SIZE: u32 = 1 << 30;

pub(super) fn open(path: &Path, options: &FileOptions) -> Result<OpenFile, DeviceError> {
    let attempt = || {
        let (file, is_created) = open_file(path, options)?;
        take(path, options, file, is_created)
    };
    let opened = (0..TRIES).find_map(|_| attempt().transpose()).unwrap_or_else(|| {
        let why = "whenever it was opened another one took its place; stop what replaces it";
        Err((ErrorKind::Conflict, why.to_owned()))
    });
    opened.map_err(|(kind, message)| {
        let cause = Cause::Os { kind, message };
        let name = path.display().to_string();
        DeviceError::new(&name, OpKind::Open, Lba(0), 0, cause)
    })
}

/// How often a file is opened that is not where it was by the time it is locked.
const TRIES: usize = 100;

/// Locks the open file, and settles how it will be used. `None` if it is not at `path` any more:
/// before it was locked, somebody else was free to remove it or to put another one there.
fn take(
    path: &Path,
    options: &FileOptions,
    file: File,
    is_created: bool,
) -> Result<Option<OpenFile>, Refusal> {
    let locked = lock(&file, options.read_only);
    // Whichever process has the lock, a new name is made durable.
    let named = if is_created { sync_directory_of(path) } else { Ok(()) };
    locked?;
    if !is_at(&file, path).map_err(|error| os_refusal(&error))? {
        return Ok(None);
    }
    let length = file.metadata().map(|found| found.len()).map_err(|error| os_refusal(&error))?;
    let is_new = is_created && length == 0;
    let named = named.map_err(|error| os_refusal(&error));
    let settled = named.and_then(|()| settle(path, options, &file, is_new));
    if settled.is_err() && is_new {
        // Nobody has written to it, nor does before it is gone: until then it is locked. If it
        // cannot be removed, it stays.
        let _ = fs::remove_file(path);
    }
    settled.map(|open| Some(open(file)))
}

/// Whether the open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let id = |found: &Metadata| (found.dev(), found.ino());
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(id(&found?) == id(&file.metadata()?)),
    }
}

/// Opens the file as the options say; says whether it had to be created.
fn open_file(path: &Path, options: &FileOptions) -> Result<(File, bool), Refusal> {
    let create = match (options.read_only, options.create) {
        (true, Create::New) => {
            let why = "a new file cannot be opened to be read only".to_owned();
            return Err((ErrorKind::Invalid, why));
        }
        (true, _) => Create::Never,
        (false, create) => create,
    };
    let is_block_device = match fs::metadata(path) {
        Ok(found) => is_block_device(&found)?,
        Err(_) => false, // opening it says why
    };
    let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let mut flags = access | OFlags::CLOEXEC;
    if is_block_device && !options.read_only {
        flags |= OFlags::EXCL; // a mounted one is refused, and not mounted meanwhile
    }
    let open = |flags| open_patiently(path, flags).map(File::from);
    let open_old = || open(flags).map(|file| (file, false));
    let open_new = || open(flags | OFlags::CREATE | OFlags::EXCL).map(|file| (file, true));
    if files::is_missing_device(path) {
        // Whether it was to be created or not.
        files::may_create(path).map_err(|error| os_refusal(&error))?;
    }
    let opened = match create {
        Create::New => open_new(),
        Create::Never => open_old(),
        Create::IfMissing => loop {
            match open_old() {
                Err(Errno::NOENT) => {}
                other => break other,
            }
            match open_new() {
                Err(Errno::EXIST) if path.is_symlink() && !path.exists() => {
                    let why = "it links to what does not exist; create that, or remove the link";
                    return Err((ErrorKind::NotFound, why.to_owned()));
                }
                Err(Errno::EXIST) => {} // somebody was faster
                other => break other,
            }
        },
    };
    opened.map_err(|errno| {
        let (kind, message) = os_refusal(&errno.into());
        let advice = match errno {
            Errno::NOENT if create == Create::Never => "; there must be such a file already",
            Errno::NOENT => "; the directory it is created in must exist",
            Errno::EXIST => "; name a file that does not exist yet, or remove this one",
            Errno::ACCESS | Errno::PERM if options.read_only => "; it must be readable",
            Errno::ACCESS | Errno::PERM | Errno::ROFS => "; it must be readable and writable",
            Errno::BUSY => return (ErrorKind::Conflict, format!("{message}; {}", in_use(path))),
            _ => "",
        };
        (kind, format!("{message}{advice}"))
    })
}

/// Opens, with patience while a block device is in use.
fn open_patiently(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    patiently(
        || rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)),
        |error| *error == Errno::BUSY,
    )
}

/// Tries again for a moment while a file or a block device is in use, so that it may be let go: by
/// the kernel, which tears down the rings of its last user in its own time even when that was
/// killed, or by a child process of that user which has not come to close its copy of the file.
fn patiently<T, E>(
    attempt: impl Fn() -> Result<T, E>,
    is_in_use: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let clock = Clock::real();
    let deadline = clock.now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if is_in_use(&error) && clock.now() < deadline => {
                clock.sleep(PATIENCE / 50);
            }
            other => return other,
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(1);

/// The words for a block device that cannot be had alone: which process has it.
fn in_use(path: &Path) -> String {
    let read_only = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, read_only, Mode::empty()).map(File::from);
    let is_locked = |file: &File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    match opened {
        Ok(file) if is_locked(&file) => {
            format!("it is open elsewhere: {}; close it there first", holder(&file))
        }
        _ => "it is mounted, or another block device stands on it: release it first".to_owned(),
    }
}

fn is_block_device(found: &Metadata) -> Result<bool, Refusal> {
    let invalid = |why: &str| Err((ErrorKind::Invalid, why.to_owned()));
    if found.is_dir() {
        return invalid("it is a directory; name a file or a block device");
    }
    let is_block_device = found.file_type().is_block_device();
    if !found.is_file() && !is_block_device {
        return invalid("it is neither a regular file nor a block device");
    }
    Ok(is_block_device)
}

/// Finds out how the locked file can be used, and returns the maker of its `OpenFile`.
fn settle(
    path: &Path,
    options: &FileOptions,
    file: &File,
    is_new: bool,
) -> Result<impl FnOnce(File) -> OpenFile + use<>, Refusal> {
    let medium = probe::medium(path, file, options)?;
    let name = path.display().to_string();
    let mut remarks = Vec::new();
    let is_direct = wanted(options.direct, "direct I/O", || probe::set_direct(file, &medium))?
        .unwrap_or_else(|why| {
            remarks.push(buffered_remark(&name, &why, probe::is_in_memory(file)));
            false
        });
    let uses_io_uring =
        wanted(options.io_uring, "io_uring", || uring::probe().map_err(|error| error.to_string()))?
            .unwrap_or_else(|why| {
                remarks.push(synchronous_remark(&name, &why));
                false
            });
    let ways = placement::Ways { is_direct, uses_io_uring };
    let find = || placement::find(file, &name, &medium, ways);
    let found = if options.read_only { Ok(None) } else { find() };
    let found = found.unwrap_or_else(|why| {
        remarks.push(placement::remark(&name, &why));
        None
    });
    let (placement, placement_handles) = found.map_or((None, 0), |(it, ids)| (Some(it), ids));
    let spin = Spin::new(options.spin);
    let grows = medium.is_block_device || options.fixed && options.capacity_bytes.is_none();
    Ok(move |file| OpenFile {
        owner: Owner::here(),
        _withheld: withhold(&file),
        geometry: Geometry {
            lba_size: medium.lba_size,
            capacity: LbaCount(medium.capacity_bytes / u64::from(medium.lba_size)),
            preferred_write_size: PREFERRED_WRITE_SIZE,
            max_transfer_size: MAX_TRANSFER_SIZE,
            discard_granularity: medium.discard_granularity,
            placement_handles,
            volatile_write_cache: !is_direct || medium.has_write_cache,
        },
        file,
        capacity: AtomicU64::new(medium.capacity_bytes / u64::from(medium.lba_size)),
        grows,
        next_look: AtomicU64::new(0),
        name,
        is_new,
        is_block_device: medium.is_block_device,
        discards_zero: !medium.is_block_device && medium.discard_granularity > 0,
        is_direct,
        uses_io_uring,
        zeroing: AtomicU8::new(0),
        has_lost: AtomicBool::new(false),
        placement,
        zeroes: OnceLock::new(),
        counters: Counters::default(),
        clock: Clock::real(),
        spin,
        remarks,
    })
}

fn lock(file: &File, shared: bool) -> Result<(), Refusal> {
    let attempt = || if shared { file.try_lock_shared() } else { file.try_lock() };
    match patiently(attempt, |error| matches!(error, TryLockError::WouldBlock)) {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let why = format!("it is open elsewhere: {}; close it there first", holder(file));
            Err((ErrorKind::Conflict, why))
        }
        Err(TryLockError::Error(error)) => Err(os_refusal(&error)),
    }
}

/// Makes the name of a new file durable: flushing the file itself does not.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

/// Tries a way that is preferred or required. Inside: whether it will be used, or why it cannot be.
fn wanted(
    preference: Preference,
    what: &str,
    attempt: impl FnOnce() -> Result<(), String>,
) -> Result<Result<bool, String>, Refusal> {
    if preference == Preference::Never {
        return Ok(Ok(false));
    }
    match attempt() {
        Err(why) if preference == Preference::Require => {
            let why = format!("{what} is required, but refused: {why}");
            Err((ErrorKind::Unsupported, why))
        }
        attempted => Ok(attempted.map(|()| true)),
    }
}

fn buffered_remark(name: &str, why: &str, is_in_memory: bool) -> String {
    let what_lasts = if is_in_memory {
        "nothing in it outlives a restart of the machine: for data that has to, choose a directory on a drive"
    } else {
        "reads and writes go through the page cache, and a flush still makes them durable"
    };
    format!("{name}: direct I/O is refused ({why}); {what_lasts}.")
}

fn synchronous_remark(name: &str, why: &str) -> String {
    format!(
        "{name}: io_uring is refused ({why}); commands run one at a time. Allow the io_uring \
         system calls (containers often forbid them) to have them run in parallel."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A path where no file is.
    fn nowhere(name: &str) -> PathBuf {
        let name = format!("esker-open-{}-{name}", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[test]
    fn a_new_file_that_somebody_else_locks_first_is_theirs() {
        let (path, options) = (nowhere("theirs"), FileOptions::default());
        let (file, is_created) = open_file(&path, &options).unwrap();
        let again = file.try_clone().unwrap();
        let theirs = open(&path, &options).unwrap();
        assert!(is_created && !theirs.is_new);
        let refused = take(&path, &options, file, is_created).map(drop);
        assert_eq!(refused.unwrap_err().0, ErrorKind::Conflict);
        assert_eq!(is_at(&theirs.file, &path).ok(), Some(true), "it is still there");
        // Nor is it ours when they have gone and left something.
        theirs.file.set_len(1).unwrap();
        drop(theirs);
        let unusable = FileOptions { lba_size: Some(100), ..options };
        let refused = take(&path, &unusable, again, is_created).map(drop);
        assert_eq!(refused.unwrap_err().0, ErrorKind::Invalid);
        assert_eq!(fs::metadata(&path).unwrap().len(), 1);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_gone_or_replaced_when_it_is_locked_is_not_taken() {
        let (path, options) = (nowhere("replaced"), FileOptions::default());
        for is_replaced in [false, true] {
            fs::write(&path, b"old").unwrap();
            let (file, is_created) = open_file(&path, &options).unwrap();
            fs::remove_file(&path).unwrap();
            if is_replaced {
                fs::write(&path, b"new").unwrap();
            }
            assert!(take(&path, &options, file, is_created).unwrap().is_none());
            assert_eq!(path.exists(), is_replaced, "what is at the path now stays");
        }
        let open = open(&path, &options).unwrap();
        assert_eq!(is_at(&open.file, &path).ok(), Some(true));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn refused_way_is_remarked_on_or_fails_as_preferred() {
        let refuse = || Err("not here".to_owned());
        assert_eq!(wanted(Preference::Prefer, "it", refuse), Ok(Err("not here".to_owned())));
        let (kind, why) = wanted(Preference::Require, "it", refuse).unwrap_err();
        assert_eq!(kind, ErrorKind::Unsupported);
        assert_eq!(why, "it is required, but refused: not here");
        assert_eq!(wanted(Preference::Never, "it", || Ok(())), Ok(Ok(false)));
        assert_eq!(wanted(Preference::Prefer, "it", || Ok(())), Ok(Ok(true)));
        let remark = synchronous_remark("/a", "Operation not permitted (os error 1)");
        assert!(remark.starts_with("/a: io_uring is refused (Operation not permitted"), "{remark}");
    }
}
