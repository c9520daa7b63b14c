//! Young records: those of a memtable, or of a replayed table, for the ingest that makes kvsets of the root of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::units::to_usize;

use crate::types::error::Result;
use crate::types::expiry::Expiry;
use crate::types::ids::{KvsId, RecordAddress, Seqno};
use crate::types::spans::Spans;
use crate::values::block::ValueBlock;

/// Records of the log that are to be kvsets of the root.
pub(crate) trait Young {
    /// The log segments that hold the records.
    fn blocks(&self) -> Vec<Arc<ValueBlock>>;

    /// The deleted prefixes and ranges of each KVS.
    fn deleted(&self) -> BTreeMap<KvsId, Spans>;

    /// The seqno of the newest record.
    fn last_seqno(&self) -> Seqno;

    /// Whether values of a KVS may lie so thinly among those of others that they are to leave the log.
    fn may_be_thin(&self) -> bool;

    /// Whether readers have had the values from DRAM: then they go on to, from the record cache.
    fn serves_readers(&self) -> bool;

    /// Hands every key's newest version to `each`, in order: KVS, key, version. Keys that are deleted
    /// among others later are left out.
    fn each_newest<E>(
        &self,
        each: impl FnMut(KvsId, &[u8], Newest<'_>) -> Result<(), E>,
    ) -> Result<(), E>;
}

/// The newest version of a key, and where its record is in the log.
pub(crate) struct Newest<'a> {
    pub(crate) value: YoungValue<'a>,
    pub(crate) expiry: Expiry,
    pub(crate) address: RecordAddress,
}

#[derive(Clone, Copy)]
pub(crate) enum YoungValue<'a> {
    Deleted,
    Here(&'a [u8]),
    /// Not in DRAM: it stays where it is.
    InLog {
        value_size: u32,
    },
}

impl YoungValue<'_> {
    /// Its size in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            YoungValue::Deleted => 0,
            YoungValue::Here(value) => value.len(),
            YoungValue::InLog { value_size } => to_usize(value_size.into()),
        }
    }
}
