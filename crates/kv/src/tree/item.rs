//! The item of a key in a sorted source of the tree: nothing any more, a value in DRAM, or a record in a block.

use std::sync::Arc;

use crate::omf::page::Stored;
use crate::types::expiry::Expiry;
use crate::values::block::ValueBlock;

/// Value of a key in a source, in DRAM or stored, or its tombstone.
#[derive(Clone, Copy)]
pub(crate) enum Item<'a> {
    Tombstone,
    /// The value is in DRAM.
    Value(&'a [u8], Expiry),
    /// The value is in a block.
    Stored(&'a Arc<ValueBlock>, Stored),
}

impl Item<'_> {
    pub(crate) fn expiry(&self) -> Expiry {
        match self {
            Item::Tombstone => Expiry::NEVER,
            Item::Value(_, expiry) => *expiry,
            Item::Stored(_, stored) => stored.expiry,
        }
    }
}
