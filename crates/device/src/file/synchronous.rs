//! A queue pair without `io_uring`: every command runs to its end within `submit`.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};

use super::OpenFile;
use super::discard::discard;
use super::transfer::{Call, Step, Transfer, zeroes};
use crate::{Command, Completion, DeviceError, Op, QueuePair};

pub(super) struct Queue {
    open: Arc<OpenFile>,
    depth: usize,
    finished: Vec<Completion>,
}

impl Queue {
    pub(super) fn new(open: Arc<OpenFile>, depth: usize) -> Queue {
        Queue { open, depth, finished: Vec::with_capacity(depth) }
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = commands.len().min(self.depth - self.finished.len());
        let open = &*self.open;
        self.finished.extend(commands.drain(..taken).map(|command| {
            let checked = command.op.check(&open.name, &open.geometry);
            let mut transfer = Transfer::new(command, open);
            let result = checked.and_then(|()| run(open, &mut transfer));
            transfer.finish(open, result)
        }));
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let count = self.finished.len();
        done.append(&mut self.finished);
        Ok(count)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        _timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.poll(done)
    }

    fn in_flight(&self) -> usize {
        self.finished.len()
    }
}

fn run(open: &OpenFile, transfer: &mut Transfer) -> Result<(), DeviceError> {
    loop {
        let call = transfer.call(open);
        let outcome = make(open, &mut transfer.op, call);
        if let Step::Done(result) = transfer.advance(open, outcome) {
            return result;
        }
    }
}

fn make(open: &OpenFile, op: &mut Op, call: Call) -> Result<usize, Errno> {
    let file = &open.file;
    let write = |bytes: &[u8], offset, durable| {
        let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        pwritev2(file, &[IoSlice::new(bytes)], offset, flags)
    };
    match (call, op) {
        (Call::Read { offset, at }, Op::Read { buf, .. }) => pread(file, &mut buf[at..], offset),
        (Call::Write { offset, at, durable }, Op::Write { buf, .. }) => {
            write(&buf[at..], offset, durable)
        }
        (Call::Read { .. } | Call::Write { .. }, _) => {
            unreachable!("only reads and writes have a buffer")
        }
        (Call::WriteZeroes { offset, size }, _) => write(&zeroes(open)[..size], offset, false),
        (Call::Sync, _) => fdatasync(file).map(|()| 0),
        (Call::Allocate { mode, offset, size }, _) => {
            fallocate(file, mode, offset, size).map(|()| 0)
        }
        (Call::BlockDiscard { offset, size }, _) => discard(file, offset, size).map(|()| 0),
    }
}
