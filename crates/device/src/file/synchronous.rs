//! Commands without `io_uring`: each one runs to its end within `submit`.

use std::io::IoSlice;

use rustix::fs::{fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};

use super::discard::discard;
use super::opened::OpenFile;
use super::transfer::{Call, Step, Transfer, zeroes};
use crate::immediate::Execute;
use crate::{Command, Completion, DeviceError, Op};

impl Execute for OpenFile {
    fn execute(&self, command: Command) -> Completion {
        let checked =
            self.check_owner().and_then(|()| command.op.check(&self.name, &self.geometry()));
        let mut transfer = Transfer::new(command, self);
        let result = checked.and_then(|()| run(self, &mut transfer));
        transfer.finish(self, result)
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
        (Call::Write { offset, at, durable, .. }, Op::Write { buf, .. }) => {
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
