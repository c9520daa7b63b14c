//! Sizes, options, errors and figures.

use esker_base::ErrorKind;
use esker_device::DeviceError;
use thiserror::Error;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Pages of an eviction's batch, and of a staging chunk.
pub const CHUNK: usize = 64;

/// The smallest budget, in bytes.
pub const LEAST_BUDGET: usize = 4 << 20;

/// The most memory that can be paged, in bytes: a region has twice as many, and its pages have 32-bit numbers.
pub(crate) const MOST_SLOW: usize = 7 << 40;

/// A page of a space, by its index.
pub type Page = u32;

/// How much memory there is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The memory for paged data, in bytes: resident pages, the staging area and buffers.
    pub budget_bytes: usize,
    /// The most memory that can be reserved, in bytes; at most the size of the device.
    pub slow_bytes: usize,
    /// Whether pages are read ahead of need.
    pub read_ahead: bool,
    /// Whether part of the budget is for compressed copies of pages, where that saves time.
    pub compress: bool,
}

/// Why a pager does not start, or cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PagerError {
    /// The options contradict each other or the device.
    #[error("{0}")]
    Invalid(String),
    /// The kernel refuses userfaultfd.
    #[error(
        "userfaultfd is refused ({0}): run as root, give the program CAP_SYS_PTRACE, or set \
         sysctl vm.unprivileged_userfaultfd=1 (without snapshots on fork then)"
    )]
    Refused(std::io::Error),
    /// The kernel refused something else.
    #[error("{what}: {error}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's words.
        error: std::io::Error,
    },
    /// The device's error.
    #[error("{0}")]
    Device(#[from] DeviceError),
}

impl PagerError {
    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            PagerError::Invalid(_) => ErrorKind::Invalid,
            PagerError::Refused(_) => ErrorKind::Unsupported,
            PagerError::System { error, .. } => ErrorKind::from(error),
            PagerError::Device(error) => error.kind(),
        }
    }

    pub(crate) fn system(what: &'static str, error: std::io::Error) -> PagerError {
        PagerError::System { what, error }
    }
}

/// Counts and sizes of a pager so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pages in memory, those inherited by a fork counted twice.
    pub resident_pages: u64,
    /// Pages on the device or in the staging area.
    pub paged_pages: u64,
    /// Reserved bytes.
    pub reserved_bytes: u64,
    /// Processes, or snapshots of them.
    pub spaces: u64,
    /// Faults by missing pages.
    pub faults: u64,
    /// Of these, pages that never had content.
    pub zero_faults: u64,
    /// Of these, pages that were in the staging area.
    pub staged_hits: u64,
    /// Of these, pages that had a compressed copy.
    pub restored_pages: u64,
    /// Of these, pages that were read from the device for it.
    pub read_faults: u64,
    /// First writes to clean pages.
    pub write_faults: u64,
    /// Pages read ahead of need.
    pub ahead_pages: u64,
    /// Pages brought back ahead of need from compressed copies.
    pub ahead_restored: u64,
    /// Pages of both kinds in streams that went on.
    pub ahead_used: u64,
    /// Pages of both kinds in streams that ended.
    pub ahead_wasted: u64,
    /// Pages taken out of memory.
    pub evicted_pages: u64,
    /// Pages written to the device.
    pub written_pages: u64,
    /// Pages that were all zeroes and were not written.
    pub zero_pages: u64,
    /// Pages of which a compressed copy was made.
    pub compressed_pages: u64,
    /// Memory of compressed copies, in bytes.
    pub compressed_bytes: u64,
    /// Writes that failed and were tried again.
    pub failed_writes: u64,
    /// Pages lost to failed reads.
    pub poisoned_pages: u64,
    /// Missing pages that were thought to be in memory: dropped behind the pager's back.
    pub vanished_pages: u64,
    /// Anonymous memory of programs that is not paged, in bytes; that of snapshots left out.
    pub outside_bytes: u64,
    /// The most of it so far.
    pub most_outside_bytes: u64,
}

/// An index as a page. Spaces are checked to have fewer than 2^32 pages when they are made.
pub(crate) fn page_of(index: usize) -> Page {
    Page::try_from(index).expect("a space has fewer than 2^32 pages")
}
