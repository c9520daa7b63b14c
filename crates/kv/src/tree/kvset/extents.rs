//! The extents of a kvset as one space of bytes: pages, then meta.

use esker_base::units::to_usize;

use crate::media::class::Allocation;
use crate::types::error::Result;

/// The extents of a kvset as one space of bytes: pages, then meta.
pub(crate) struct KeyExtents {
    pub(crate) extents: Vec<Allocation>,
}

impl KeyExtents {
    /// Reads `size` bytes at `offset`, with one device read for each extent they touch.
    pub(crate) fn read(&self, mut offset: u64, size: usize) -> Result<Vec<u8>> {
        let total: u64 = self.extents.iter().map(Allocation::bytes).sum();
        if offset + size as u64 > total {
            let detail = format!("{size} bytes at {offset} expected, the extents hold {total}");
            return Err(self.corrupt("kvset", 0, detail));
        }
        let mut bytes = Vec::with_capacity(size);
        for allocation in &self.extents {
            let length = allocation.bytes();
            if offset >= length {
                offset -= length;
                continue;
            }
            while bytes.len() < size && offset < length {
                let left = to_usize(length - offset).min(size - bytes.len());
                let want = left.min(allocation.media.transfer_size);
                let (buf, skip) = allocation.read_at(offset, want)?;
                bytes.extend_from_slice(&buf[skip..skip + want]);
                offset += want as u64;
            }
            if bytes.len() == size {
                break;
            }
            offset = 0;
        }
        Ok(bytes)
    }

    pub(crate) fn corrupt(
        &self,
        what: &'static str,
        offset: u64,
        detail: String,
    ) -> crate::types::error::KvError {
        let mut at = offset;
        for allocation in &self.extents {
            if at < allocation.bytes() {
                let (lba, ..) = allocation.span(at, 1);
                return allocation.media.corrupt(what, lba, detail);
            }
            at -= allocation.bytes();
        }
        let first = &self.extents[0];
        first.media.corrupt(what, first.extent.lba, detail)
    }
}
