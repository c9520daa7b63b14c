//! A file system of a few MiB in memory, and sparse files on it whose capacity is far larger: a write for
//! which it has no room fails, as with files.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_base::sync::Mutex;
use esker_base::units::to_u64;
use esker_base::{ErrorKind, Lba, LbaCount};
use esker_device::{Cause, Device, DeviceError, MemoryDevice, Op, QueuePair, forward};
use esker_sim::{Fate, HookDevice};

const LBA_SIZE: u32 = 4096;

/// See the head of this file.
#[derive(Clone)]
pub(crate) struct FileSystem(Arc<Mutex<Blocks>>);

struct Blocks {
    left: u64,
    /// The file and the LBA of each block in use.
    held: BTreeSet<(u64, u64)>,
    files: u64,
    refused: u64,
}

impl FileSystem {
    pub(crate) fn new(bytes: u64) -> FileSystem {
        let left = bytes / u64::from(LBA_SIZE);
        FileSystem(Arc::new(Mutex::new(Blocks {
            left,
            held: BTreeSet::new(),
            files: 0,
            refused: 0,
        })))
    }

    /// A file that may become as large as a TiB, if there is room.
    pub(crate) fn file(&self, name: &str) -> Arc<dyn Device> {
        let mut blocks = self.0.lock();
        blocks.files += 1;
        let (number, system) = (blocks.files, self.clone());
        let memory = Arc::new(MemoryDevice::new(name, 1 << 40, LBA_SIZE));
        let inner = HookDevice::new(memory).on_command(move |op| {
            if system.admits(number, op) { Fate::Pass } else { Fate::Fail(full()) }
        });
        Arc::new(SparseFile { inner, number, system: self.clone() })
    }

    /// Bytes that nobody has.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.0.lock().left * u64::from(LBA_SIZE)
    }

    /// Takes bytes for others, or gives some back.
    pub(crate) fn take(&self, bytes: i64) {
        let mut blocks = self.0.lock();
        blocks.left = blocks.left.checked_add_signed(-bytes / i64::from(LBA_SIZE)).unwrap();
    }

    /// Whether there is room for a command to a file.
    fn admits(&self, number: u64, op: &Op) -> bool {
        let mut blocks = self.0.lock();
        let (lba, bytes) = op.range(LBA_SIZE);
        let range = lba.0..(lba + LbaCount(bytes / u64::from(LBA_SIZE))).0;
        let each = range.map(|lba| (number, lba));
        match op {
            Op::Write { .. } | Op::WriteZeroes { .. } => {
                let new: Vec<_> = each.filter(|block| !blocks.held.contains(block)).collect();
                let Some(left) = blocks.left.checked_sub(to_u64(new.len())) else {
                    blocks.refused += 1;
                    return false;
                };
                blocks.left = left;
                blocks.held.extend(new);
            }
            Op::Discard { .. } => {
                let given = each.filter(|block| blocks.held.remove(block)).count();
                blocks.left += to_u64(given);
            }
            _ => {}
        }
        true
    }

    /// How many writes failed.
    pub(crate) fn refused(&self) -> u64 {
        self.0.lock().refused
    }
}

/// The cause of a failure for want of room.
fn full() -> Cause {
    Cause::Os { kind: ErrorKind::NoSpace, message: "the file system is full".to_owned() }
}

struct SparseFile {
    inner: HookDevice,
    number: u64,
    system: FileSystem,
}

impl Device for SparseFile {
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.inner.queue_pair(depth)
    }

    fn discards_zero(&self) -> bool {
        true
    }

    fn usable_bytes(&self) -> Option<u64> {
        let blocks = self.system.0.lock();
        let held = blocks.held.range((self.number, 0)..(self.number + 1, 0)).count();
        Some((blocks.left + to_u64(held)) * u64::from(LBA_SIZE))
    }

    fn left_bytes(&self) -> Option<u64> {
        Some(self.system.free_bytes())
    }

    fn allocate(&self, lba: Lba, count: LbaCount) -> Result<bool, DeviceError> {
        let op = Op::WriteZeroes { lba, count };
        if self.system.admits(self.number, &op) {
            return Ok(true);
        }
        let (_, bytes) = op.range(LBA_SIZE);
        Err(DeviceError::new(self.name(), op.kind(), lba, bytes, full()))
    }

    forward!(inner: name, geometry, stats);
}
