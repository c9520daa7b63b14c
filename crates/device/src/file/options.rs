//! How a file is opened.

use std::time::Duration;

/// How to open a [`FileDevice`](super::FileDevice).
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// The action when there is no such file, or when there is one.
    pub create: Create,
    /// The size in bytes up to which a regular file may grow; by default 16 TiB, or as much as the file
    /// system allows if that is less. A block device has the size it has.
    pub capacity_bytes: Option<u64>,
    /// A regular file has one size: the one it has, or `capacity_bytes`, to which a shorter or a new
    /// file is extended by a hole when it is opened. Without, writes beyond its end make it grow.
    pub fixed: bool,
    /// Bytes per LBA; by default 4,096, or the logical block size of a block device whose size is
    /// no multiple of that.
    pub lba_size: Option<u32>,
    /// Whether to go around the page cache (`O_DIRECT`).
    pub direct: Preference,
    /// Whether to use `io_uring`; without it commands run one at a time.
    pub io_uring: Preference,
    /// Reads and nothing else: the file must exist, needs no permission to write, and may be open
    /// elsewhere in the same way. Writes and discards fail, and there is no data placement.
    pub read_only: bool,
    /// A thread that waits for reads of at most 64 KiB, and for nothing else, busy-polls for so long
    /// before it blocks, by default 100 µs. Polling takes processor time, but a flash drive usually
    /// completes before a blocked thread could wake. Nobody looks while more threads wait so than
    /// there are processors, and hardly anybody where it is mostly in vain. 0 sleeps at once.
    pub spin: Duration,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            create: Create::default(),
            capacity_bytes: None,
            fixed: false,
            lba_size: None,
            direct: Preference::default(),
            io_uring: Preference::default(),
            read_only: false,
            spin: Duration::from_micros(100),
        }
    }
}

/// Action on the existence of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// Create the file if there is none; never under `/dev`.
    #[default]
    IfMissing,
    /// The file must not exist; it is not created under `/dev`.
    New,
    /// The file must exist.
    Never,
}

/// How much something is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// Use it where possible; the device remarks on it where not.
    #[default]
    Prefer,
    /// Fail to open without it.
    Require,
    /// Do not use it.
    Never,
}
