//! A queue pair over one `io_uring` (Linux 5.11 or later).
//!
//! Invariants
//! 1. A command under way lies in a slot, and the slot's index is the user data of the one entry
//!    that the kernel has of it. So `depth` entries are enough, and pushing never fails.
//! 2. From pushing an entry until its completion is reaped, nobody touches the command's buffer:
//!    a slot is emptied by its completion only, and `Drop` waits for all of them.
//! 3. No memory is allocated per command: slots and lists have their full size from the start.
//! 4. A forked child has neither the ring's memory nor its descriptor: the ring is not touched there, `Drop` included.
//!
//! A queue pair may be handed to another thread between calls, so the ring is not bound to one
//! (`IORING_SETUP_SINGLE_ISSUER`).

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use esker_base::process::{Withheld, withhold};
use esker_base::units::{to_u64, to_usize};
use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::{Errno, ReadWriteFlags};

use super::discard::discard;
use super::opened::OpenFile;
use super::spin::Waiting;
use super::transfer::{Call, Step, Transfer, zeroes};
use crate::{Cause, Command, Completion, DeviceError, Op, QueuePair};

/// How many entries are handed to the kernel at once. The kernel prepares all of them (a
/// microsecond or two each) before the drive sees the first, so a drive would idle through the
/// preparation of a long batch; a system call for every few costs less. Measured with
/// `file_vs_fio` at depth 32: 1, 4, 8, 16 and 32 at once give 1.01, 0.99, 0.93, 0.91 and 0.85 of
/// fio's rate.
const STARTED_AT_ONCE: usize = 4;

/// The file's index among the ring's registered files.
const FILE: Fixed = Fixed(0);

pub(super) struct Queue {
    ring: ManuallyDrop<IoUring>,
    /// Keeps the ring's descriptor from forked children.
    withheld: ManuallyDrop<Withheld>,
    open: Arc<OpenFile>,
    slots: Vec<Option<Transfer>>,
    /// The indices of empty slots.
    free: Vec<usize>,
    /// How many commands in slots are no short reads.
    long: usize,
    /// Commands that have finished and are still to be handed back.
    finished: Vec<Completion>,
}

/// Whether rings can be had here.
pub(super) fn probe() -> io::Result<()> {
    ring(1).map(drop)
}

fn ring(depth: usize) -> io::Result<IoUring> {
    let entries = u32::try_from(depth).map_err(io::Error::other)?;
    let mut builder = IoUring::builder();
    let modern = builder.dontfork().setup_coop_taskrun().setup_taskrun_flag().build(entries);
    let ring = modern.or_else(|error| match error.raw_os_error() {
        // Before Linux 5.19 completions interrupt the thread they belong to.
        Some(code) if code == Errno::INVAL.raw_os_error() => {
            IoUring::builder().dontfork().build(entries)
        }
        _ => Err(error),
    })?;
    if !ring.params().is_feature_ext_arg() {
        let why = "its waits have no timeout; use Linux 5.11 or later";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(ring)
}

impl Queue {
    /// A queue pair of `depth` commands.
    pub(super) fn new(open: Arc<OpenFile>, depth: usize) -> io::Result<Queue> {
        let ring = ring(depth)?;
        // SAFETY: the descriptor is open as long as the ring.
        let withheld = withhold(unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) });
        ring.submitter().register_files(&[open.file.as_raw_fd()])?;
        Ok(Queue {
            ring: ManuallyDrop::new(ring),
            withheld: ManuallyDrop::new(withheld),
            open,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            long: 0,
            finished: Vec::with_capacity(depth),
        })
    }

    /// Starts the next call of the command in `slot`. A command without a place in the ring is done
    /// here and now.
    fn start(&mut self, slot: usize) {
        loop {
            let transfer = self.slots[slot].as_mut().expect("a slot in use");
            let call = transfer.call(&self.open);
            if let Call::BlockDiscard { offset, size } = call {
                let outcome = discard(&self.open.file, offset, size).map(|()| 0);
                match transfer.advance(&self.open, outcome) {
                    Step::Again => continue,
                    Step::Done(result) => return self.finish(slot, result),
                }
            }
            let entry = entry(&self.open, &mut transfer.op, call).user_data(to_u64(slot));
            // SAFETY: the entry refers to the buffer of a command that stays in its slot, or to
            // the zeroes of the open file, until the completion is reaped (invariant 2). Both
            // buffers have their own memory, which does not move with the slot.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            return pushed.expect("the ring has as many entries as there are slots");
        }
    }

    /// Empties `slot`, whose command has ended.
    fn finish(&mut self, slot: usize, result: Result<(), DeviceError>) {
        let transfer = self.slots[slot].take().expect("a slot in use");
        self.long -= usize::from(!transfer.is_short_read());
        self.finished.push(transfer.finish(&self.open, result));
        self.free.push(slot);
    }

    /// Takes completions off the ring without entering the kernel.
    fn reap(&mut self) {
        loop {
            let Some(entry) = self.ring.completion().next() else {
                return;
            };
            let slot = to_usize(entry.user_data());
            let outcome = match usize::try_from(entry.result()) {
                Ok(transferred) => Ok(transferred),
                Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
            };
            let transfer = self.slots[slot].as_mut().expect("a slot in use");
            match transfer.advance(&self.open, outcome) {
                Step::Again => self.start(slot),
                Step::Done(result) => self.finish(slot, result),
            }
        }
    }

    /// Takes completions that have come, and does not wait. Enters the kernel only where that has work.
    fn look(&mut self) -> Result<(), DeviceError> {
        self.reap();
        let submission = self.ring.submission();
        let needs_kernel = submission.taskrun() || !submission.is_empty();
        drop(submission);
        if needs_kernel && !self.is_idle() {
            self.enter(0, None).map_err(|error| self.broken(&error))?;
            self.reap();
        }
        Ok(())
    }

    /// Looks for something that has ended for a while, at most for `left`, if that is worth it.
    fn look_for_a_while(
        &mut self,
        waiting: &Waiting<'_>,
        left: Option<Duration>,
    ) -> Result<bool, DeviceError> {
        let open = self.open.clone();
        open.spin.look(&open.clock, waiting, left, || {
            self.look()?;
            Ok(!self.finished.is_empty())
        })
    }

    /// Hands the entries pushed to the kernel, and waits for `want` completions if it is not 0.
    /// Returns early at a signal or when `timeout` has passed.
    fn enter(&self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let entered = match timeout {
            None => submitter.submit_and_wait(want),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&timeout))
            }
        };
        match entered.map_err(|error| (Errno::from_io_error(&error), error)) {
            // Out of memory or space for the moment: entries that were not submitted stay in the ring.
            Ok(_) | Err((Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY), _)) => {
                Ok(())
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Hands the entries pushed to the kernel. Their commands are taken by now, so if the ring is
    /// broken, poll and wait say so.
    fn hand_over(&self) {
        let _ = self.enter(0, None);
    }

    /// The error of a ring that the kernel no longer serves, told of a command that waits for it.
    fn broken(&self, error: &io::Error) -> DeviceError {
        let why = format!("io_uring_enter: {error}; close the queue pair");
        let mut waiting = self.slots.iter().flatten();
        let transfer = waiting.next().expect("only commands in flight are waited for");
        transfer.error(&self.open, Cause::Gone(why))
    }

    fn hand_back(&mut self, done: &mut Vec<Completion>) -> usize {
        let count = self.finished.len();
        done.append(&mut self.finished);
        count
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        self.open.check_owner()?;
        let mut taken = 0;
        while self.in_flight() < self.slots.len()
            && let Some(command) = commands.pop_front()
        {
            taken += 1;
            let checked = command.op.check(&self.open.name, &self.open.geometry());
            let transfer = Transfer::new(command, &self.open);
            if let Err(error) = checked {
                self.finished.push(transfer.finish(&self.open, Err(error)));
                continue;
            }
            let slot = self.free.pop().expect("fewer in flight than slots");
            self.long += usize::from(!transfer.is_short_read());
            self.slots[slot] = Some(transfer);
            self.start(slot);
            if self.ring.submission().len() >= STARTED_AT_ONCE {
                self.hand_over();
            }
        }
        if !self.ring.submission().is_empty() {
            self.hand_over();
        }
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.open.check_owner()?;
        self.look()?;
        Ok(self.hand_back(done))
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.open.check_owner()?;
        let deadline = timeout.map(|timeout| self.open.clock.now() + timeout);
        let mut waiting = None;
        loop {
            self.reap();
            if !self.finished.is_empty() || self.is_idle() {
                return Ok(self.hand_back(done));
            }
            let left = |queue: &Queue| deadline.map(|deadline| deadline - queue.open.clock.now());
            let before = left(self);
            if before.is_some_and(|left| left.is_zero()) {
                return self.poll(done);
            }
            if self.long == 0
                && self.look_for_a_while(waiting.get_or_insert_with(Waiting::join), before)?
            {
                return Ok(self.hand_back(done));
            }
            self.enter(1, left(self)).map_err(|error| self.broken(&error))?;
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.finished.len()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.open.owner.is_here() {
            // Its addresses may be in use for something else by now.
            return;
        }
        while !self.is_idle() {
            self.reap();
            if !self.is_idle() && self.enter(1, None).is_err() {
                // The kernel may still use the buffers, and the zeroes of the open file: neither
                // may ever be freed.
                mem::forget(mem::take(&mut self.slots));
                mem::forget(self.open.clone());
                break;
            }
        }
        // The kernel tears the ring down later, in its own time; the file must not wait for that.
        let _ = self.ring.submitter().unregister_files();
        // SAFETY: they are not used after this.
        unsafe {
            ManuallyDrop::drop(&mut self.withheld);
            ManuallyDrop::drop(&mut self.ring);
        }
    }
}

/// The ring's entry for a call.
fn entry(open: &OpenFile, op: &mut Op, call: Call) -> squeue::Entry {
    match (call, op) {
        (Call::Read { offset, at }, Op::Read { buf, .. }) => {
            let part = &mut buf[at..];
            opcode::Read::new(FILE, part.as_mut_ptr(), size(part.len())).offset(offset).build()
        }
        (Call::Write { offset, at, durable, stream }, Op::Write { buf, .. }) => {
            let part = &buf[at..];
            opcode::Write::new(FILE, part.as_ptr(), size(part.len()))
                .offset(offset)
                .write_stream(stream)
                .rw_flags(if durable { DSYNC } else { 0 })
                .build()
        }
        (Call::Read { .. } | Call::Write { .. }, _) => {
            unreachable!("only reads and writes have a buffer")
        }
        (Call::WriteZeroes { offset, size: bytes }, _) => {
            opcode::Write::new(FILE, zeroes(open).as_ptr(), size(bytes)).offset(offset).build()
        }
        (Call::Sync, _) => opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
        (Call::Allocate { mode, offset, size }, _) => opcode::Fallocate::new(FILE, size)
            .offset(offset)
            .mode(mode.bits().cast_signed())
            .build(),
        (Call::BlockDiscard { .. }, _) => unreachable!("made without the ring"),
    }
}

/// `RWF_DSYNC`, in the width of the entry's field.
const DSYNC: i32 = ReadWriteFlags::DSYNC.bits().cast_signed();

fn size(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("at most the largest transfer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tag;
    use crate::file::{FileOptions, Preference, open::open};
    use esker_base::{AlignedBuf, Lba};

    #[test]
    fn a_wait_that_looks_first_takes_no_longer_than_it_may() {
        let path = std::env::temp_dir().join(format!("esker-uring-{}", std::process::id()));
        let (spin, direct) = (Duration::from_secs(3600), Preference::Never);
        let mut open =
            open(&path, &FileOptions { spin, direct, ..FileOptions::default() }).unwrap();
        std::fs::remove_file(&path).unwrap();
        // Nothing comes out of an empty pipe.
        let (reader, writer) = io::pipe().unwrap();
        open.file = std::os::fd::OwnedFd::from(reader).into();
        let (open, clock) = (Arc::new(open), esker_base::Clock::real());
        let mut queue = Queue::new(open, 1).unwrap();
        let op = Op::Read { lba: Lba(0), buf: AlignedBuf::zeroed(4096) };
        queue.submit(&mut [Command { tag: Tag(1), op }].into()).unwrap();
        let (start, timeout) = (clock.now(), Duration::from_secs(1));
        let waited = queue.wait(&mut Vec::new(), Some(timeout));
        let past = clock.now().since(start);
        drop(writer); // which ends the read, and so lets the queue pair be dropped
        assert_eq!(waited, Ok(0));
        assert!(past >= timeout && past < 2 * timeout, "{past:?}");
        assert_eq!(queue.wait(&mut Vec::new(), None).unwrap(), 1);
    }
}
