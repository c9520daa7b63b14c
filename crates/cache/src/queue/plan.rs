//! The plan of a write, and the blocks of a range: state that a command of the host keeps until it is done.

/// Where the blocks of a write go.
pub(super) struct Plan {
    pub(super) first: u64,
    pub(super) targets: Vec<Target>,
    /// Blocks whose slot could not be written.
    pub(super) failed: Vec<bool>,
    pub(super) is_second: bool,
}

/// Where a block goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Over the content of its slot, which is pinned.
    InPlace { slot: u32, was_clean: bool },
    /// To a slot that is reserved.
    New { slot: u32 },
    /// To the origin, then to a slot: its own, which is pinned, or a reserved one.
    Through { slot: Option<u32>, is_new: bool },
    /// To the origin, although it is dirty: then its slot is given up.
    Over,
    /// To the origin.
    Around,
    /// To the origin; the cache has nothing to do with it.
    Outside,
}

impl Target {
    /// The slot it goes to at first.
    pub(super) fn slot(self) -> Option<u32> {
        match self {
            Target::InPlace { slot, .. } | Target::New { slot } => Some(slot),
            _ => None,
        }
    }
}

/// A range under way.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) id: u64,
    /// Blocks that it covers whole.
    pub(super) first: u64,
    pub(super) end: u64,
    /// Blocks at its ends that it covers in part, which are taken for writing.
    pub(super) edges: [Option<u64>; 2],
}
