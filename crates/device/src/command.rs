//! Commands and completions.

use esker_base::{AlignedBuf, Lba, LbaCount};

use crate::error::DeviceError;
use crate::geometry::Geometry;
use crate::op_kind::OpKind;

/// The submitter's name for a command; the device only carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// The stream a write belongs to, as FDP's placement identifiers do (NVMe TP4146): data with the
/// same id dies together. A device without placement ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlacementId(pub u16);

/// One command.
#[derive(Debug)]
pub struct Command {
    /// Comes back with the completion.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
}

/// Operation of a command. Reads and writes cover `buf.len()` bytes, a multiple of the LBA size.
#[derive(Debug)]
pub enum Op {
    /// Fills `buf` from `lba` on.
    Read {
        /// The first LBA.
        lba: Lba,
        /// Where to.
        buf: AlignedBuf,
    },
    /// Writes `buf` from `lba` on.
    Write {
        /// The first LBA.
        lba: Lba,
        /// The data.
        buf: AlignedBuf,
        /// The stream it belongs to, if the writer names one.
        placement: Option<PlacementId>,
        /// Force unit access: durable when completed.
        fua: bool,
    },
    /// Makes every write completed before durable.
    Flush,
    /// Says that the content is no longer needed. Frees as much as the device can free.
    Discard {
        /// The first LBA.
        lba: Lba,
        /// How many.
        count: LbaCount,
    },
    /// Makes the range read as zeroes.
    WriteZeroes {
        /// The first LBA.
        lba: Lba,
        /// How many.
        count: LbaCount,
    },
}

impl Op {
    /// The operation without its arguments.
    #[must_use]
    pub fn kind(&self) -> OpKind {
        match self {
            Op::Read { .. } => OpKind::Read,
            Op::Write { .. } => OpKind::Write,
            Op::Flush => OpKind::Flush,
            Op::Discard { .. } => OpKind::Discard,
            Op::WriteZeroes { .. } => OpKind::WriteZeroes,
        }
    }

    /// The first LBA and the number of bytes it covers (a flush: none).
    #[must_use]
    pub fn range(&self, lba_size: u32) -> (Lba, u64) {
        match self {
            Op::Read { lba, buf } | Op::Write { lba, buf, .. } => (*lba, buf.len() as u64),
            Op::Discard { lba, count } | Op::WriteZeroes { lba, count } => {
                (*lba, count.0.saturating_mul(u64::from(lba_size)))
            }
            Op::Flush => (Lba(0), 0),
        }
    }

    /// Bytes of the buffer it carries; 0 when it carries none.
    #[must_use]
    pub fn buf_len(&self) -> usize {
        match self {
            Op::Read { buf, .. } | Op::Write { buf, .. } => buf.len(),
            _ => 0,
        }
    }

    /// The buffer it carries, taken out.
    #[must_use]
    pub fn into_buf(self) -> Option<AlignedBuf> {
        match self {
            Op::Read { buf, .. } | Op::Write { buf, .. } => Some(buf),
            _ => None,
        }
    }

    /// Checks the command against the geometry of the device called `device`.
    ///
    /// # Errors
    /// Not a multiple of the LBA size, empty, or beyond the capacity.
    pub fn check(&self, device: &str, geometry: &Geometry) -> Result<(), DeviceError> {
        let (lba, bytes) = self.range(geometry.lba_size);
        let invalid = |why: String| Err(DeviceError::invalid(device, self.kind(), lba, bytes, why));
        if matches!(self, Op::Flush) {
            return Ok(());
        }
        let lba_size = u64::from(geometry.lba_size);
        let count = match self {
            Op::Discard { count, .. } | Op::WriteZeroes { count, .. } => count.0,
            _ if bytes.is_multiple_of(lba_size) => bytes / lba_size,
            _ => 0,
        };
        if count == 0 {
            return invalid(format!(
                "its size must be a multiple of {} bytes, and not 0",
                geometry.lba_size
            ));
        }
        let is_transfer = matches!(self, Op::Read { .. } | Op::Write { .. });
        if is_transfer && bytes > u64::from(geometry.max_transfer_size) {
            return invalid(format!("at most {} bytes in one command", geometry.max_transfer_size));
        }
        let end = lba.0.checked_add(count);
        if end.is_none_or(|end| end > geometry.capacity.0) {
            return invalid(format!("the device ends at LBA {}", geometry.capacity));
        }
        Ok(())
    }
}

/// A finished command.
#[derive(Debug)]
pub struct Completion {
    /// The command's tag.
    pub tag: Tag,
    /// How it ended.
    pub result: Result<(), DeviceError>,
    /// The command's buffer, if it carried one.
    pub buf: Option<AlignedBuf>,
}
