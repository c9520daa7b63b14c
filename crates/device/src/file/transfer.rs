//! One command as a sequence of system calls. The state machine says which call is next and is
//! told how it ended; the queue pairs make the calls.
//!
//! Invariants
//! 1. Every byte of a read or write is transferred, however short the single calls are.
//! 2. A read ends with zeroes where a regular file has ended.
//! 3. A call that was interrupted or cancelled is made again: all of them may be repeated.
//! 4. Write zeroes ends with zeroes on the medium, if need be by writing them.

use std::sync::atomic::Ordering;

use esker_base::AlignedBuf;
use esker_base::units::{round_down, to_u64, to_usize};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::OpenFile;
use crate::{Cause, Command, Completion, DeviceError, Op, Tag};

/// Bytes of zeroes in one write.
const ZEROES_SIZE: usize = 1 << 20;

/// A system call on the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Read at `offset` into the command's buffer from byte `at` on.
    Read { offset: u64, at: usize },
    /// Write the command's buffer from byte `at` on to `offset`.
    Write {
        offset: u64,
        at: usize,
        durable: bool,
    },
    /// Write `size` bytes of [`zeroes`] to `offset`.
    WriteZeroes { offset: u64, size: usize },
    /// `fdatasync`.
    Sync,
    /// `fallocate`.
    Allocate {
        mode: FallocateFlags,
        offset: u64,
        size: u64,
    },
    /// `BLKDISCARD`.
    BlockDiscard { offset: u64, size: u64 },
}

/// What to do after a call.
#[derive(Debug)]
pub(super) enum Step {
    /// Make the next one.
    Again,
    /// The command is finished.
    Done(Result<(), DeviceError>),
}

/// The ways to zero a range, the best first. They are tried in this order, once per file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeroing {
    ZeroRange,
    PunchHole,
    Write,
}

impl Zeroing {
    const ALL: [Zeroing; 3] = [Zeroing::ZeroRange, Zeroing::PunchHole, Zeroing::Write];
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Transfer {
    tag: Tag,
    pub(super) op: Op,
    /// Bytes transferred so far.
    done: u64,
    /// Index into [`Zeroing::ALL`].
    zeroing: u8,
}

impl Transfer {
    /// Starts a command that passed [`Op::check`].
    pub(super) fn new(command: Command, open: &OpenFile) -> Transfer {
        Transfer {
            tag: command.tag,
            op: command.op,
            done: 0,
            zeroing: open.zeroing.load(Ordering::Relaxed),
        }
    }

    /// The call to make next.
    pub(super) fn call(&self, open: &OpenFile) -> Call {
        let lba_size = open.geometry.lba_size;
        let (lba, bytes) = self.op.range(lba_size);
        let start = lba.offset(lba_size);
        let (offset, at) = (start + self.done, to_usize(self.done));
        match &self.op {
            Op::Read { .. } => Call::Read { offset, at },
            Op::Write { fua, .. } => Call::Write {
                offset,
                at,
                durable: *fua,
            },
            Op::Flush => Call::Sync,
            Op::Discard { .. } if open.is_block_device => Call::BlockDiscard {
                offset,
                size: bytes,
            },
            Op::Discard { .. } => Call::Allocate {
                mode: FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                offset,
                size: bytes,
            },
            Op::WriteZeroes { .. } => {
                let mode = match self.zeroing() {
                    Zeroing::ZeroRange => FallocateFlags::ZERO_RANGE,
                    Zeroing::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Zeroing::Write => {
                        let size = (bytes - self.done).min(to_u64(ZEROES_SIZE));
                        let size = to_usize(size);
                        return Call::WriteZeroes { offset, size };
                    }
                };
                Call::Allocate {
                    mode,
                    offset,
                    size: bytes,
                }
            }
        }
    }

    /// Takes note of how the call that [`Transfer::call`] named has ended: the bytes transferred,
    /// or the error.
    pub(super) fn advance(&mut self, open: &OpenFile, outcome: Result<usize, Errno>) -> Step {
        let transferred = match outcome {
            Ok(transferred) => transferred,
            // Cancelled is what happens to the calls of a thread that ends before they do.
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => return Step::Again,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.degrades(open) => return Step::Again,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if matches!(self.op, Op::Discard { .. }) => {
                return Step::Done(Ok(())); // a discard promises nothing
            }
            Err(errno) => return Step::Done(Err(self.os_error(open, errno))),
        };
        match self.op {
            Op::Read { .. } => self.advance_read(open, transferred),
            Op::Write { .. } => self.advance_write(open, transferred),
            Op::WriteZeroes { .. } if self.zeroing() == Zeroing::Write => {
                self.advance_write(open, transferred)
            }
            Op::Flush | Op::Discard { .. } | Op::WriteZeroes { .. } => Step::Done(Ok(())),
        }
    }

    fn advance_read(&mut self, open: &OpenFile, transferred: usize) -> Step {
        self.done += to_u64(transferred);
        let Op::Read { buf, .. } = &mut self.op else {
            unreachable!("called for reads")
        };
        let rest = &mut buf[to_usize(self.done)..];
        if rest.is_empty() {
            return Step::Done(Ok(()));
        }
        // Direct I/O stops within an LBA only where the file does.
        let lba_size = u64::from(open.geometry.lba_size);
        let at_end = transferred == 0 || open.is_direct && !self.done.is_multiple_of(lba_size);
        if at_end && open.is_block_device {
            return self.short(open);
        }
        if at_end {
            rest.fill(0);
            return Step::Done(Ok(()));
        }
        Step::Again
    }

    fn advance_write(&mut self, open: &OpenFile, transferred: usize) -> Step {
        let (_, bytes) = self.op.range(open.geometry.lba_size);
        let before = self.done;
        self.done += to_u64(transferred);
        if self.done == bytes {
            return Step::Done(Ok(()));
        }
        if open.is_direct {
            // What is left must start at an LBA.
            self.done = round_down(self.done, u64::from(open.geometry.lba_size));
        }
        if self.done == before {
            return self.short(open);
        }
        Step::Again
    }

    fn short(&self, open: &OpenFile) -> Step {
        Step::Done(Err(self.error(open, Cause::Short { got: self.done })))
    }

    /// The completion of a finished command.
    pub(super) fn finish(self, open: &OpenFile, result: Result<(), DeviceError>) -> Completion {
        open.counters.count(&self.op, &open.geometry, &result);
        Completion {
            tag: self.tag,
            result,
            buf: self.op.into_buf(),
        }
    }

    /// An error of this command.
    pub(super) fn error(&self, open: &OpenFile, cause: Cause) -> DeviceError {
        let (lba, bytes) = self.op.range(open.geometry.lba_size);
        DeviceError::new(&open.name, self.op.kind(), lba, bytes, cause)
    }

    fn os_error(&self, open: &OpenFile, errno: Errno) -> DeviceError {
        let (lba, bytes) = self.op.range(open.geometry.lba_size);
        DeviceError::os(&open.name, self.op.kind(), lba, bytes, &errno.into())
    }

    fn zeroing(&self) -> Zeroing {
        Zeroing::ALL[usize::from(self.zeroing)]
    }

    /// Goes on to the next way of zeroing, for this command and all later ones, if there is one.
    fn degrades(&mut self, open: &OpenFile) -> bool {
        let can = matches!(self.op, Op::WriteZeroes { .. }) && self.zeroing() != Zeroing::Write;
        if can {
            self.zeroing += 1;
            open.zeroing.fetch_max(self.zeroing, Ordering::Relaxed);
        }
        can
    }
}

/// The zeroes that [`Call::WriteZeroes`] writes.
pub(super) fn zeroes(open: &OpenFile) -> &[u8] {
    open.zeroes.get_or_init(|| AlignedBuf::zeroed(ZEROES_SIZE))
}
