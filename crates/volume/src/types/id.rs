//! Newtypes for every number that names something: a mix-up would corrupt data.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($type:ty) $format:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $type);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    )*};
}

ids! {
    /// A pool, for ever.
    PoolUuid(u128) "{:032x}";
    /// A drive or a buffer device of a pool, for ever: one that is added again gets another one.
    DriveUuid(u128) "{:032x}";
    /// A member of a pool: its place in the list of members.
    DriveIndex(u16) "drive {}";
    /// A place for a chunk on a drive.
    SlotIndex(u32) "slot {}";
    /// A segment: its place in the table of segments, used again when it is free.
    SegmentId(u32) "segment {}";
    /// Counts the segments that were ever allocated: what a segment's bytes belong to.
    Generation(u64) "generation {}";
    /// A line of versions of blocks: a volume writes to one, snapshots look at it, clones go on from it.
    LineageId(u64) "lineage {}";
    /// A volume, for ever.
    VolumeId(u64) "volume {}";
    /// A snapshot, for ever.
    SnapshotId(u64) "snapshot {}";
    /// Counts the records of the write buffer: the order of everything.
    Seqno(u64) "seqno {}";
    /// A block of a volume, counted from its start.
    Block(u64) "block {}";
    /// A leaf of the map: 512 blocks of a lineage.
    LeafIndex(u64) "leaf {}";
    /// Counts the changes of the configuration.
    Epoch(u64) "epoch {}";
    /// Counts how often the pool was opened.
    Incarnation(u64) "incarnation {}";
    /// Counts the frames of the write buffer.
    FrameSeq(u64) "frame {}";
}

impl Seqno {
    /// Later than every record: what a volume's own reads look for.
    pub const HEAD: Seqno = Seqno(u64::MAX);
}

impl DriveIndex {
    /// Its place in a list.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl SegmentId {
    /// Its place in a list.
    #[must_use]
    pub fn index(self) -> usize {
        esker_base::units::to_usize(u64::from(self.0))
    }
}
