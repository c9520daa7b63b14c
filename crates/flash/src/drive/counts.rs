//! Counts of a drive, all its namespaces together.

/// Commands and bytes of the host, all namespaces together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostCounts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// Bytes of the host, written to the media, and erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) host: u64,
    pub(crate) media: u64,
    pub(crate) erased: u64,
}
