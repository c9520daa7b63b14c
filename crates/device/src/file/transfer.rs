//! One command as a sequence of system calls. The state machine says which call is next and is
//! told how it ended; the queue pairs make the calls.
//!
//! Invariants
//! 1. Every byte of a read or write is transferred, however short the single calls are.
//! 2. A read ends with zeroes where a regular file has ended.
//! 3. A call that was interrupted or cancelled is made again: all of them may be repeated.
//! 4. Write zeroes ends with zeroes on the medium, if need be by writing them; so does a discard
//!    where discards promise zeroes.
//! 5. Once a call that makes writes durable has failed, none says that it has succeeded: the kernel
//!    reports lost data once, to whichever queue pair asks first.

use std::sync::atomic::Ordering;

use esker_base::AlignedBuf;
use esker_base::units::{round_down, to_u64, to_usize};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::opened::OpenFile;
use super::placement::stream;
use super::spin;
use crate::{Cause, Command, Completion, DeviceError, Op, Tag};

/// Bytes of zeroes in one write.
const ZEROES_SIZE: usize = 1 << 20;

/// Why nothing is made durable any more.
const LOST: &str = "a flush or a write with FUA has failed before, so what was written may be lost; \
                    mend the cause, then open the file again";

/// A system call on the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Read at `offset` into the command's buffer from byte `at` on.
    Read { offset: u64, at: usize },
    /// Write the command's buffer from byte `at` on to `offset`, on a write stream (0 is none).
    Write { offset: u64, at: usize, durable: bool, stream: u8 },
    /// Write `size` bytes of [`zeroes`] to `offset`.
    WriteZeroes { offset: u64, size: usize },
    /// `fdatasync`.
    Sync,
    /// `fallocate`.
    Allocate { mode: FallocateFlags, offset: u64, size: u64 },
    /// `BLKDISCARD`.
    BlockDiscard { offset: u64, size: u64 },
}

/// Next step after a call.
#[derive(Debug)]
pub(super) enum Step {
    /// Make the next one.
    Again,
    /// The command is finished.
    Done(Result<(), DeviceError>),
}

/// The ways to zero a range, the best first. They are tried in this order, write zeroes once per file. A range that was
/// zeroed has room on the medium, whichever way it went; one that was discarded has none, if possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeroing {
    PunchHole,
    ZeroRange,
    Write,
}

impl Zeroing {
    const ALL: [Zeroing; 3] = [Zeroing::PunchHole, Zeroing::ZeroRange, Zeroing::Write];

    /// The next one after it for a command: a discard that cannot punch a hole writes.
    fn next(self, op: &Op) -> Zeroing {
        match (self, op) {
            (Zeroing::PunchHole, Op::WriteZeroes { .. }) => Zeroing::ZeroRange,
            _ => Zeroing::Write,
        }
    }
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
    /// How often a call was refused because of the thread that made it.
    orphaned: u8,
}

/// How often a call is made again that was refused because of the thread that made it.
const MOST_ORPHANED: u8 = 8;

impl Transfer {
    /// Starts a command that passed [`Op::check`].
    pub(super) fn new(command: Command, open: &OpenFile) -> Transfer {
        let zeroing = match command.op {
            Op::Discard { .. } => Zeroing::PunchHole as u8,
            _ => open.zeroing.load(Ordering::Relaxed).max(Zeroing::ZeroRange as u8),
        };
        Transfer { tag: command.tag, op: command.op, done: 0, zeroing, orphaned: 0 }
    }

    /// Whether it reads so little that waiting for it may busy-poll ([`super::spin`]).
    pub(super) fn is_short_read(&self) -> bool {
        matches!(&self.op, Op::Read { buf, .. } if buf.len() <= spin::SHORT)
    }

    /// The call to make next.
    pub(super) fn call(&self, open: &OpenFile) -> Call {
        let lba_size = open.geometry.lba_size;
        let (lba, bytes) = self.op.range(lba_size);
        let start = lba.offset(lba_size);
        let (offset, at) = (start + self.done, to_usize(self.done));
        match &self.op {
            Op::Read { .. } => Call::Read { offset, at },
            Op::Write { fua, placement, .. } => {
                let stream = stream(*placement, open.geometry.placement_handles);
                Call::Write { offset, at, durable: *fua, stream }
            }
            Op::Flush => Call::Sync,
            Op::Discard { .. } if open.is_block_device => {
                Call::BlockDiscard { offset, size: bytes }
            }
            Op::Discard { .. } | Op::WriteZeroes { .. } => {
                let mode = match self.zeroing() {
                    Zeroing::ZeroRange => FallocateFlags::ZERO_RANGE,
                    Zeroing::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Zeroing::Write => {
                        let size = (bytes - self.done).min(to_u64(ZEROES_SIZE));
                        let size = to_usize(size);
                        return Call::WriteZeroes { offset, size };
                    }
                };
                Call::Allocate { mode, offset, size: bytes }
            }
        }
    }

    /// Takes note of how the call that [`Transfer::call`] named has ended: the bytes transferred,
    /// or the error.
    pub(super) fn advance(&mut self, open: &OpenFile, outcome: Result<usize, Errno>) -> Step {
        match self.after(open, outcome) {
            Step::Done(Ok(())) if self.is_durable() && open.has_lost.load(Ordering::Relaxed) => {
                Step::Done(Err(self.error(open, Cause::Gone(LOST.to_owned()))))
            }
            step => step,
        }
    }

    /// Whether it says of writes that they are durable.
    fn is_durable(&self) -> bool {
        matches!(self.op, Op::Flush | Op::Write { fua: true, .. })
    }

    fn after(&mut self, open: &OpenFile, outcome: Result<usize, Errno>) -> Step {
        let transferred = match outcome {
            Ok(transferred) => transferred,
            // Calls of a thread that ends before they do are cancelled.
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => return Step::Again,
            // Calls that wait for the page cache then end with this.
            Err(Errno::FAULT) if self.orphaned < MOST_ORPHANED => {
                self.orphaned += 1;
                return Step::Again;
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.degrades(open) => return Step::Again,
            Err(Errno::OPNOTSUPP | Errno::NOSYS)
                if matches!(self.op, Op::Discard { .. }) && !open.discards_zero =>
            {
                return Step::Done(Ok(())); // a discard promises nothing
            }
            Err(errno) => {
                // Around the page cache, a write with FUA tells of itself and of nothing else.
                if self.is_durable() && (!open.is_direct || matches!(self.op, Op::Flush)) {
                    open.has_lost.store(true, Ordering::Relaxed);
                }
                return Step::Done(Err(self.os_error(open, errno)));
            }
        };
        match self.op {
            Op::Read { .. } => self.advance_read(open, transferred),
            Op::Write { .. } => self.advance_write(open, transferred),
            Op::Discard { .. } | Op::WriteZeroes { .. } if self.zeroing() == Zeroing::Write => {
                self.advance_write(open, transferred)
            }
            Op::Flush | Op::Discard { .. } | Op::WriteZeroes { .. } => Step::Done(Ok(())),
        }
    }

    fn advance_read(&mut self, open: &OpenFile, transferred: usize) -> Step {
        self.done += to_u64(transferred);
        let Op::Read { buf, .. } = &mut self.op else { unreachable!("called for reads") };
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
            // The rest must start at an LBA.
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
        Completion { tag: self.tag, result, buf: self.op.into_buf() }
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

    /// Goes on to the next way of zeroing, if there is one: a discard that promises zeroes for
    /// itself, write zeroes for all later ones, too.
    fn degrades(&mut self, open: &OpenFile) -> bool {
        let zeroes = match self.op {
            Op::WriteZeroes { .. } => true,
            Op::Discard { .. } => open.discards_zero,
            _ => false,
        };
        let can = zeroes && self.zeroing() != Zeroing::Write;
        if can {
            self.zeroing = self.zeroing().next(&self.op) as u8;
        }
        if can && matches!(self.op, Op::WriteZeroes { .. }) {
            open.zeroing.fetch_max(self.zeroing, Ordering::Relaxed);
        }
        can
    }
}

/// The zeroes that [`Call::WriteZeroes`] writes.
pub(super) fn zeroes(open: &OpenFile) -> &[u8] {
    open.zeroes.get_or_init(|| AlignedBuf::zeroed(ZEROES_SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::open::open;
    use crate::file::{FileDevice, FileOptions, Preference};
    use crate::{PlacementId, conformance};
    use esker_base::{ErrorKind, Lba, LbaCount};

    /// An open file that is gone from its directory already.
    fn unlinked(name: &str, io_uring: Preference) -> OpenFile {
        let name = format!("esker-transfer-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = FileOptions { io_uring, ..FileOptions::default() };
        let open = open(&path, &options).unwrap();
        std::fs::remove_file(&path).unwrap();
        open
    }

    fn transfer(op: Op, open: &OpenFile) -> Transfer {
        Transfer::new(Command { tag: Tag(1), op }, open)
    }

    fn read(open: &OpenFile) -> Transfer {
        let mut buf = AlignedBuf::zeroed(4 * 4096);
        buf.fill(1);
        transfer(Op::Read { lba: Lba(2), buf }, open)
    }

    fn write_with(fua: bool) -> Op {
        let buf = AlignedBuf::zeroed(4 * 4096);
        Op::Write { lba: Lba(2), buf, placement: Some(PlacementId(1)), fua }
    }

    fn write(open: &OpenFile) -> Transfer {
        transfer(write_with(true), open)
    }

    fn goes_on(step: &Step) -> bool {
        matches!(step, Step::Again)
    }

    fn result(step: Step) -> Result<(), DeviceError> {
        match step {
            Step::Again => panic!("not finished"),
            Step::Done(result) => result,
        }
    }

    #[test]
    fn a_short_or_interrupted_call_is_resumed_where_it_stopped() {
        let open = unlinked("resumed", Preference::Prefer);
        let mut short = read(&open);
        let at = |at: usize| Call::Read { offset: 8192 + to_u64(at), at };
        assert_eq!(short.call(&open), at(0));
        assert!(goes_on(&short.advance(&open, Ok(4096))));
        assert_eq!(short.call(&open), at(4096));
        for errno in [Errno::INTR, Errno::AGAIN, Errno::CANCELED] {
            assert!(goes_on(&short.advance(&open, Err(errno))));
            assert_eq!(short.call(&open), at(4096));
        }
        assert!(goes_on(&short.advance(&open, Ok(8192))));
        assert_eq!(result(short.advance(&open, Ok(4096))), Ok(()));

        let mut short = write(&open);
        let at = |at| Call::Write { offset: 8192 + to_u64(at), at, durable: true, stream: 0 };
        assert!(goes_on(&short.advance(&open, Ok(8192))));
        assert_eq!(short.call(&open), at(8192));
        assert_eq!(result(short.advance(&open, Ok(8192))), Ok(()));
    }

    #[test]
    fn a_call_whose_thread_has_ended_is_made_again_a_few_times() {
        let open = unlinked("orphaned", Preference::Prefer);
        let mut orphan = read(&open);
        for _ in 0..MOST_ORPHANED {
            assert!(goes_on(&orphan.advance(&open, Err(Errno::FAULT))));
        }
        let error = result(orphan.advance(&open, Err(Errno::FAULT))).unwrap_err();
        assert!(error.to_string().contains("(os error 14)"), "{error}");
    }

    #[test]
    fn a_write_is_on_the_stream_of_its_placement_id() {
        let mut open = unlinked("streams", Preference::Prefer);
        for (handles, expected) in [(0, 0), (1, 0), (2, 2), (4, 2)] {
            open.geometry.placement_handles = handles;
            let Call::Write { stream, .. } = write(&open).call(&open) else { panic!("a write") };
            assert_eq!(stream, expected, "{handles} handles");
        }
    }

    #[test]
    fn a_direct_write_is_resumed_at_an_lba() {
        let mut open = unlinked("aligned", Preference::Prefer);
        for (is_direct, at) in [(true, 4096), (false, 5000)] {
            open.is_direct = is_direct;
            let mut short = write(&open);
            assert!(goes_on(&short.advance(&open, Ok(5000))));
            let Call::Write { offset, at: got, .. } = short.call(&open) else {
                panic!("a write goes on writing")
            };
            assert_eq!((offset, got), (8192 + to_u64(at), at));
        }
    }

    #[test]
    fn a_read_ends_with_zeroes_where_the_file_ends_but_not_on_a_block_device() {
        let mut open = unlinked("end", Preference::Prefer);
        for (is_direct, parts) in [(true, vec![4096, 904]), (false, vec![4096, 904, 0])] {
            open.is_direct = is_direct;
            let mut short = read(&open);
            let (last, first) = parts.split_last().unwrap();
            for &part in first {
                assert!(goes_on(&short.advance(&open, Ok(part))));
            }
            assert_eq!(result(short.advance(&open, Ok(*last))), Ok(()));
            let buf = short.finish(&open, Ok(())).buf.unwrap();
            assert!(buf[..5000].iter().all(|&b| b == 1) && buf[5000..].iter().all(|&b| b == 0));
        }
        open.is_block_device = true;
        let mut short = read(&open);
        assert!(goes_on(&short.advance(&open, Ok(4096))));
        let error = result(short.advance(&open, Ok(0))).unwrap_err();
        assert_eq!(error.cause(), &Cause::Short { got: 4096 });
    }

    #[test]
    fn a_write_without_progress_fails_and_names_what_was_written() {
        let open = unlinked("stuck", Preference::Prefer);
        let mut stuck = write(&open);
        assert!(goes_on(&stuck.advance(&open, Ok(4096))));
        let error = result(stuck.advance(&open, Ok(0))).unwrap_err();
        let why = "write of 16384 bytes at LBA 2 failed: only 4096 bytes were transferred";
        assert!(error.to_string().ends_with(why), "{error}");

        let mut full = write(&open);
        let error = result(full.advance(&open, Err(Errno::NOSPC))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let mut broken = read(&open);
        let error = result(broken.advance(&open, Err(Errno::IO))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
    }

    #[test]
    fn after_a_flush_that_failed_nothing_is_said_to_be_durable() {
        let durable = |open: &OpenFile| {
            let results = [
                result(transfer(Op::Flush, open).advance(open, Ok(0))),
                result(write(open).advance(open, Ok(4 * 4096))),
            ];
            for error in results.iter().filter_map(|result| result.as_ref().err()) {
                assert_eq!(error.kind(), ErrorKind::Closed);
                assert!(error.to_string().ends_with(&format!("failed: {LOST}")), "{error}");
            }
            results.map(|result| result.is_ok())
        };
        for (is_direct, takes_error, expected) in [
            (true, Op::Flush, false),
            (false, Op::Flush, false),
            // Around the page cache it tells of itself only.
            (true, write_with(true), true),
            (false, write_with(true), false),
            (false, write_with(false), true),
        ] {
            let mut open = unlinked("lost", Preference::Prefer);
            open.is_direct = is_direct;
            assert_eq!(durable(&open), [true; 2]);
            // One under way meanwhile, on another queue pair, may end well and yet comes too late.
            let mut other = transfer(Op::Flush, &open);
            let error = transfer(takes_error, &open).advance(&open, Err(Errno::IO));
            assert_eq!(result(error).unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(durable(&open), [expected; 2]);
            assert_eq!(result(other.advance(&open, Ok(0))).is_ok(), expected);
            let mut plain = transfer(write_with(false), &open);
            assert_eq!(result(plain.advance(&open, Ok(4 * 4096))), Ok(()));
            assert_eq!(result(read(&open).advance(&open, Ok(4 * 4096))), Ok(()));
        }
    }

    #[test]
    fn zeroes_are_written_where_nothing_better_is_supported() {
        let mut open = unlinked("zeroing", Preference::Prefer);
        open.discards_zero = false;
        let zero = || {
            let (lba, count) = (Lba(0), LbaCount(257));
            transfer(Op::WriteZeroes { lba, count }, &open)
        };
        let mut first = zero();
        // A hole would have no room on the medium.
        let (offset, size) = (0, 257 * 4096);
        let expected = Call::Allocate { mode: FallocateFlags::ZERO_RANGE, offset, size };
        assert_eq!(first.call(&open), expected);
        assert!(goes_on(&first.advance(&open, Err(Errno::OPNOTSUPP))));
        let mut second = zero();
        for transfer in [&mut first, &mut second] {
            for (offset, size) in [(0, ZEROES_SIZE), (1 << 20, 4096)] {
                assert_eq!(transfer.call(&open), Call::WriteZeroes { offset, size });
                let step = transfer.advance(&open, Ok(size));
                assert_eq!(goes_on(&step), offset == 0);
            }
        }
        let discard = Op::Discard { lba: Lba(0), count: LbaCount(1) };
        let step = transfer(discard, &open).advance(&open, Err(Errno::OPNOTSUPP));
        assert_eq!(result(step), Ok(()));
    }

    #[test]
    fn a_discard_that_promised_zeroes_writes_them_where_no_hole_can_be_punched() {
        let open = unlinked("promised", Preference::Prefer);
        assert!(open.discards_zero);
        for errno in [Errno::OPNOTSUPP, Errno::NOSYS] {
            let (lba, count) = (Lba(1), LbaCount(257));
            let mut discard = transfer(Op::Discard { lba, count }, &open);
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let hole = Call::Allocate { mode, offset: 4096, size: 257 * 4096 };
            assert_eq!(discard.call(&open), hole);
            assert!(goes_on(&discard.advance(&open, Err(errno))));
            for (at, size) in [(0, ZEROES_SIZE), (1 << 20, 4096)] {
                let offset = 4096 + at;
                assert_eq!(discard.call(&open), Call::WriteZeroes { offset, size });
                let step = discard.advance(&open, Ok(size));
                assert_eq!(goes_on(&step), at == 0);
            }
        }
        // Of other ways to zero this says nothing.
        let zero = Op::WriteZeroes { lba: Lba(0), count: LbaCount(1) };
        let Call::Allocate { mode, .. } = transfer(zero, &open).call(&open) else {
            panic!("a range is zeroed")
        };
        assert_eq!(mode, FallocateFlags::ZERO_RANGE);
    }

    #[test]
    fn a_file_system_that_can_only_write_zeroes_conforms() {
        for (name, io_uring) in [("a", Preference::Prefer), ("b", Preference::Never)] {
            let open = unlinked(name, io_uring);
            open.zeroing.store(2, Ordering::Relaxed);
            conformance::check(&FileDevice(open.into()), 8, 300, 11);
        }
    }
}
