//! Reads a kvset as it lies on its medium, to be laid down elsewhere.

use esker_base::units::to_usize;

use super::Kvset;
use crate::omf::frame::record_size;
use crate::omf::kvset::KvsetMeta;
use crate::omf::page::{Entry, PAGE_SIZE};
use crate::types::error::Result;
use crate::types::ids::BlockId;

/// Pages read at a time.
const PAGES: u32 = 64;

impl Kvset {
    /// How many bytes pages and meta have.
    pub(crate) fn export_size(&self) -> u64 {
        u64::from(self.edit.pages) * PAGE_SIZE as u64 + u64::from(self.edit.meta_size)
    }

    /// Reads pages and meta from the medium, verifies them, and hands them to `bytes` in order.
    /// `refers` is told of each record that a key refers to: the block, and where the record ends.
    pub(crate) fn export(
        &self,
        mut bytes: impl FnMut(&[u8]) -> Result<()>,
        mut refers: impl FnMut(BlockId, u64),
    ) -> Result<()> {
        let mut first = 0;
        while first < self.edit.pages {
            let count = PAGES.min(self.edit.pages - first);
            for page in self.read_pages(first, count)? {
                let prefix = page.prefix().len();
                for slot in 0..page.count() {
                    let (suffix, entry) = page.entry(slot);
                    if let Entry::Stored(stored) = entry {
                        let key_size = prefix + suffix.len();
                        let size = record_size(key_size, to_usize(stored.value_size.into()));
                        refers(self.block(&stored).id, u64::from(stored.offset) + size as u64);
                    }
                }
                bytes(page.raw())?;
            }
            first += count;
        }
        let meta_at = u64::from(self.edit.pages) * PAGE_SIZE as u64;
        let meta = self.keys.read(meta_at, to_usize(self.edit.meta_size.into()))?;
        KvsetMeta::decode(&meta, self.edit.id)
            .map_err(|bad| self.keys.corrupt("kvset meta", meta_at, bad.0))?;
        bytes(&meta)
    }
}
