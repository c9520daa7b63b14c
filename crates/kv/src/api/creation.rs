//! The creation of a KVDB in a directory: a file there says that it is under way, until the manifest is durable.
//!
//! A process that is killed meanwhile leaves class headers without a manifest, as a lost manifest does. The file tells
//! the two apart: it has the uuid that those headers have.

use std::io::Write;
use std::path::{Path, PathBuf};

use esker_base::{AlignedBuf, Lba, files};
use esker_device::{Device, Occupant, Port, occupant};

use crate::omf::class::{ClassHeader, SIZE};
use crate::recover::open::new_uuid;
use crate::types::error::{KvError, Result};

/// The file's name in the directory of a KVDB. It holds a uuid, as 32 hexadecimal digits.
const FILE: &str = "creating.esker";

/// A creation that is under way.
pub(crate) struct Creation {
    pub(crate) path: PathBuf,
    pub(crate) uuid: [u8; 16],
    /// A killed process has left it.
    pub(crate) is_left: bool,
}

impl Creation {
    /// Begins one in `dir`, or goes on with the one that a killed process has left. The caller has the manifest.
    pub(crate) fn begin(dir: &Path) -> Result<Creation> {
        let path = dir.join(FILE);
        let left = left(&path);
        let (uuid, is_left) = (left.unwrap_or_else(new_uuid), left.is_some());
        let write = || {
            let mut file = files::create(&path)?;
            write!(file, "{:032x}", u128::from_be_bytes(uuid))?;
            file.sync_all()?;
            // The name, too.
            std::fs::File::open(dir)?.sync_all()
        };
        write().map_err(|error| KvError::of_file(&path, &error))?;
        Ok(Creation { path, uuid, is_left })
    }

    /// Refuses the device of a class that is someone's, unless it has the header that this creation wrote.
    pub(crate) fn check_free(&self, device: &dyn Device, path: &Path) -> Result<()> {
        if self.is_left && self.has_begun(device)? { Ok(()) } else { check_blank(device, path) }
    }

    fn has_begun(&self, device: &dyn Device) -> Result<bool> {
        let room = AlignedBuf::zeroed(SIZE.next_multiple_of(device.geometry().lba_size as usize));
        let bytes = Port::open(device, 1)?.read(Lba(0), room)?;
        Ok(ClassHeader::decode(&bytes[..SIZE]).is_ok_and(|header| header.uuid == self.uuid))
    }

    /// Ends it: the manifest is durable, or nothing is left of it.
    pub(crate) fn end(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a process has left one in `dir`.
pub(crate) fn is_left(dir: &Path) -> bool {
    left(&dir.join(FILE)).is_some()
}

/// Ends one in `dir` that was left when all but its end was done.
pub(crate) fn end_left(dir: &Path) {
    let _ = std::fs::remove_file(dir.join(FILE));
}

fn left(path: &Path) -> Option<[u8; 16]> {
    let text = files::read_text(path, 64).ok()?;
    (text.len() == 32).then(|| u128::from_str_radix(&text, 16).ok().map(u128::to_be_bytes))?
}

/// Refuses a device that is someone's.
pub(crate) fn check_blank(device: &dyn Device, path: &Path) -> Result<()> {
    let Some(Occupant { what, offset }) = occupant(device)? else {
        return Ok(());
    };
    let why = format!(
        "it holds {what} already, at byte {offset}; choose another path, or, if you can spare what is there, \
         remove the file or zero the first 128 KiB of the device (`blkdiscard -z -l 131072`)"
    );
    Err(KvError::Exists { path: path.to_owned(), why })
}
