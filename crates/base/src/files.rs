//! Files and directories that users name: every library and command that makes one, or that reads one whole while
//! others wait, asks here.
//!
//! Invariants
//! 1. Nothing is made under `/dev`. A name there that leads nowhere is a device that is misspelt or missing, and a
//!    regular file in its place takes writes that the device never sees. `/dev/shm` is a file system for files, and is
//!    excepted.
//! 2. Reading a file waits for nobody: a FIFO, a socket and a device are refused. Type, mode and size are those of the
//!    open file, so a name that comes to mean another file changes nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::units::grouped;

/// Where device nodes stand.
const DEVICES: &str = "/dev";
/// The file system for files among them.
const SHARED_MEMORY: &str = "/dev/shm";
/// How many links the kernel follows in one path.
const MOST_LINKS: usize = 40;

/// Refuses to make `path`, a file or a directory, under `/dev`; an existing one may be opened.
///
/// # Errors
/// `NotFound`, with the remedy.
pub fn may_create(path: &Path) -> io::Result<()> {
    if !is_missing_device(path) {
        return Ok(());
    }
    let why = "there is no such device, and nothing is created under /dev; check the name (`lsblk` lists \
               the block devices), or name a file elsewhere";
    Err(io::Error::new(io::ErrorKind::NotFound, why))
}

/// Whether `path` leads to a place under `/dev` where nothing is.
#[must_use]
pub fn is_missing_device(path: &Path) -> bool {
    !path.exists() && {
        let place = destination(path, MOST_LINKS);
        place.starts_with(DEVICES) && !place.starts_with(SHARED_MEMORY)
    }
}

/// Opens a file to write it from its beginning; makes it if there is none.
///
/// # Errors
/// As [`may_create`], or the system's.
pub fn create(path: &Path) -> io::Result<File> {
    may_create(path)?;
    File::create(path)
}

/// Makes a file that is not there yet.
///
/// # Errors
/// As [`may_create`], or the system's.
pub fn create_new(path: &Path) -> io::Result<File> {
    may_create(path)?;
    File::options().read(true).write(true).create_new(true).open(path)
}

/// Makes a file that is not there yet, and that nobody but its owner can open.
///
/// # Errors
/// As [`may_create`], or the system's.
pub fn create_private(path: &Path) -> io::Result<File> {
    may_create(path)?;
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file to write, as it is; makes it if there is none.
///
/// # Errors
/// As [`may_create`], or the system's.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    may_create(path)?;
    File::options().create(true).truncate(false).write(true).open(path)
}

/// Makes `bytes` the content of a file.
///
/// # Errors
/// As [`may_create`], or the system's.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    may_create(path)?;
    fs::write(path, bytes)
}

/// Opens a regular file that is there, and no link to one: to read it, or to `write` it as well.
///
/// # Errors
/// `InvalidInput` for another kind of file; or the system's.
pub fn open_in_place(path: &Path, write: bool) -> io::Result<File> {
    regular(File::options().read(true).write(write), libc::O_NOFOLLOW, path)
}

/// Reads a regular file of text, of at most `most` bytes.
///
/// # Errors
/// `InvalidInput` with the remedy for another kind of file, or a larger one; or the system's.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text_of(open_regular(path)?, most)
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`read_text`].
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    check_size(bytes, most)
}

/// Reads a regular file of text that its owner alone can use, of at most `most` bytes.
///
/// # Errors
/// As [`read_text`]; `InvalidInput` with the remedy where others can use it.
pub fn read_private(path: &Path, most: u64) -> io::Result<String> {
    let file = open_regular(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        let mode = mode & 0o777;
        return Err(invalid(format!(
            "its mode is {mode:03o}, so others can read it; chmod 600 it first"
        )));
    }
    text_of(file, most)
}

/// Opens a regular file to read it, without waiting for the other end of a FIFO.
fn open_regular(path: &Path) -> io::Result<File> {
    regular(File::options().read(true), 0, path)
}

fn regular(options: &mut OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(flags | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(invalid("it is no regular file; name one".to_owned())),
    }
}

fn text_of(file: File, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = file.take(most.saturating_add(1)).read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => invalid("it is no text; name another file".to_owned()),
        _ => error,
    })?;
    check_size(text, most)
}

/// Refuses what has more than `most` bytes.
fn check_size<T: AsRef<[u8]>>(content: T, most: u64) -> io::Result<T> {
    match u64::try_from(content.as_ref().len()) {
        Ok(size) if size <= most => Ok(content),
        _ => Err(invalid(format!("it has more than {} bytes; name another file", grouped(most)))),
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Makes a directory, with those above it.
///
/// # Errors
/// As [`may_create`], or the system's.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    may_create(path)?;
    fs::create_dir_all(path)
}

/// Where a path leads, without links, as far as it is there. A link whose end is missing is followed all the
/// same: making the file would make that end.
fn destination(path: &Path, links: usize) -> PathBuf {
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return path.to_owned();
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match (path.read_link(), links.checked_sub(1)) {
        (Ok(target), Some(links)) => destination(&parent.join(target), links),
        _ => destination(parent, links).join(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_name_under_dev_is_refused_however_it_is_reached() {
        let dir = std::env::temp_dir().join(format!("esker-base-files-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (link, folder) = (dir.join("link"), dir.join("folder"));
        std::os::unix::fs::symlink("/dev/esker-none", &link).unwrap();
        std::os::unix::fs::symlink("/dev", &folder).unwrap();
        let roundabout = dir.join("../../dev/esker-none");
        let paths = [
            Path::new("/dev/esker-none"),
            Path::new("//dev/./esker-none"),
            Path::new("/dev/esker-none/file"),
            Path::new("/proc/self/root/dev/esker-none"),
            &link,
            &folder.join("esker-none"),
        ];
        for path in paths {
            let refused = may_create(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::NotFound, "{}", path.display());
            assert!(refused.to_string().contains("no such device"), "{refused}");
            assert!(create(path).is_err() && create_new(path).is_err());
            assert!(open_or_create(path).is_err());
            assert!(write(path, "x").is_err() && create_dir_all(path).is_err());
        }
        if std::env::temp_dir() == Path::new("/tmp") {
            assert!(may_create(&roundabout).is_err());
        }
        assert!(!Path::new("/dev/esker-none").exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn file_that_is_read_whole_is_regular_small_and_its_owners() {
        let dir = std::env::temp_dir().join(format!("esker-base-read-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (file, fifo) = (dir.join("file"), dir.join("fifo"));
        fs::write(&file, "secret").unwrap();
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        assert_eq!(read_private(&file, 6).unwrap(), "secret");
        assert_eq!(read_text(&file, 6).unwrap(), "secret");
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        );
        made.unwrap();
        let refused = |path: &Path, most, words: &str| {
            for read in [read_text, read_private] {
                let error = read(path, most).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
                assert!(error.to_string().contains(words), "{error}");
            }
        };
        assert!(read(&fifo, 6).is_err() && read(&file, 5).is_err());
        assert_eq!(read(&file, 6).unwrap(), b"secret");
        refused(&fifo, 6, "no regular file");
        refused(Path::new("/dev/zero"), 6, "no regular file");
        refused(&dir, 6, "no regular file");
        refused(&file, 5, "more than 5 bytes");
        mode(0o640);
        assert!(read_private(&file, 6).unwrap_err().to_string().contains("chmod 600"));
        assert_eq!(read_text(&file, u64::MAX).unwrap(), "secret");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn existing_files_and_files_elsewhere_may_be_written() {
        for path in ["/dev/null", "/dev", "/dev/shm/esker-none", "/tmp/esker-none", "esker-none"] {
            assert!(may_create(Path::new(path)).is_ok(), "{path}");
        }
        write(Path::new("/dev/null"), "x").unwrap();
    }
}
