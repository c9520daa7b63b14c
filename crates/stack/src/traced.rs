//! A device that records its requests, and passes them on: `traced:(SPEC)?to=FILE`.
//!
//! A device that Esker attaches, serves or measures leaves a trace in the compact format
//! (`esker-trace`), without the kernel's tracing and the rights for it.
//!
//! Invariants
//! 1. A command is recorded when it is submitted, before the device sees it, once.
//! 2. Recording never waits for the file: requests beyond the buffer are dropped, counted, and said
//!    in [`Device::remarks`] and in the trace.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use esker_base::Clock;
use esker_device::{Command, Device, DeviceError, Op, OpKind, QueuePair, forward};
use esker_trace::{Op as TracedOp, Recorder, Recording, TraceError, Writer};

use crate::StackError;
use crate::closings::Closings;

/// A device whose commands are recorded.
pub struct Traced {
    inner: Arc<dyn Device>,
    recorder: Arc<Recorder>,
    /// The device's number in the trace.
    number: u32,
    path: String,
    /// Ends with the device: the last of the requests are written then.
    recording: Option<Recording>,
    closings: Closings,
}

impl Traced {
    /// Records the requests of `inner` with `writer`, with times of `clock` and a buffer of `capacity` requests (32
    /// bytes each).
    ///
    /// # Errors
    /// When the thread that writes cannot be started.
    pub fn new(
        inner: Arc<dyn Device>,
        writer: Writer<BufWriter<File>>,
        clock: Clock,
        capacity: usize,
    ) -> Result<Traced, TraceError> {
        let path = writer.path().display().to_string();
        let recording = Recording::with(writer, &[inner.name()], clock, capacity)?;
        let (recorder, number) = (recording.recorder(), recording.number(0));
        let (recording, closings) = (Some(recording), Closings::default());
        Ok(Traced { inner, recorder, number, path, recording, closings })
    }

    /// The same device, which notes here that its trace could not be ended.
    pub(crate) fn noting(mut self, closings: Closings) -> Traced {
        self.closings = closings;
        self
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.recording.take().map(Recording::finish) {
            self.closings.note(StackError::trace(&self.path, self.path.as_ref(), &error));
        }
    }
}

impl Device for Traced {
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue {
            inner: self.inner.queue_pair(depth)?,
            recorder: self.recorder.clone(),
            number: self.number,
            lba_size: self.inner.geometry().lba_size,
            depth,
        }))
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = self.inner.remarks();
        match self.recorder.dropped() {
            0 => {}
            dropped => remarks.push(format!(
                "{}: {dropped} requests were not recorded: the file could not keep up, or could not \
                 be written",
                self.path
            )),
        }
        remarks
    }

    forward!(inner: name, geometry, discards_zero, usable_bytes, left_bytes, allocate, identity, is_prompt, stats, data_placement);
}

struct Queue {
    inner: Box<dyn QueuePair>,
    recorder: Arc<Recorder>,
    number: u32,
    lba_size: u32,
    depth: usize,
}

impl Queue {
    fn record(&self, op: &Op) {
        let (lba, bytes) = op.range(self.lba_size);
        let kind = match op.kind() {
            OpKind::Read => TracedOp::Read,
            // Zeroes are content: as the kernel's tracing has it.
            OpKind::Write | OpKind::WriteZeroes => TracedOp::Write,
            OpKind::Discard => TracedOp::Discard,
            _ => TracedOp::Flush,
        };
        // The recorder counts the requests that it drops.
        self.recorder.record(
            self.number,
            kind,
            lba.0.saturating_mul(u64::from(self.lba_size)),
            bytes,
        );
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        // So many will be taken: until there are no more, or the queue is full.
        let room = self.depth.saturating_sub(self.inner.in_flight());
        for command in commands.iter().take(room) {
            self.record(&command.op);
        }
        self.inner.submit(commands)
    }

    forward!(inner: poll, wait, in_flight);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use esker_base::{AlignedBuf, Lba, LbaCount};
    use esker_device::{MemoryDevice, Port, conformance};
    use esker_trace::{Request, Trace};

    #[test]
    fn the_trace_has_every_command_once_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let memory = Arc::new(MemoryDevice::new("memory", 1 << 20, 4096));
        let clock = Clock::virtual_time();
        let traced =
            Traced::new(memory, Writer::create_new(&path).unwrap(), clock.clone(), 1000).unwrap();
        let mut port = Port::open(&traced, 2).unwrap();
        port.write(Lba(1), AlignedBuf::zeroed(8192), None).unwrap();
        clock.advance(Duration::from_micros(7));
        port.run(Op::WriteZeroes { lba: Lba(9), count: LbaCount(2) }).unwrap();
        // More than the queue holds at once.
        let reads = (0..5).map(|n| Op::Read { lba: Lba(n), buf: AlignedBuf::zeroed(4096) });
        port.run_all(reads, |_, outcome| assert!(outcome.is_ok())).unwrap();
        port.discard(Lba(3), LbaCount(1)).unwrap();
        port.flush().unwrap();
        assert_eq!(traced.remarks(), Vec::<String>::new());
        drop((port, traced));
        let found: Vec<Request> =
            Trace::open_file(&path).unwrap().map(|request| request.unwrap()).collect();
        let ops: Vec<(TracedOp, u64, u64)> =
            found.iter().map(|request| (request.op, request.offset, request.length)).collect();
        let mut expected = vec![(TracedOp::Write, 4096, 8192), (TracedOp::Write, 9 * 4096, 8192)];
        expected.extend((0..5).map(|n| (TracedOp::Read, n * 4096, 4096)));
        expected.extend([(TracedOp::Discard, 3 * 4096, 4096), (TracedOp::Flush, 0, 0)]);
        assert_eq!(ops, expected);
        assert_eq!(found[1].time_ns - found[0].time_ns, 7000);
    }

    #[test]
    fn requests_beyond_the_buffer_are_counted_and_do_not_wait() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Arc::new(MemoryDevice::new("memory", 1 << 20, 4096));
        let path = dir.path().join("trace");
        let traced =
            Traced::new(memory, Writer::create_new(&path).unwrap(), Clock::virtual_time(), 0)
                .unwrap();
        let mut port = Port::open(&traced, 1).unwrap();
        for _ in 0..3 {
            port.flush().unwrap();
        }
        assert!(traced.remarks()[0].contains("3 requests were not recorded"));
    }

    #[test]
    fn it_is_the_device_that_it_records() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Arc::new(MemoryDevice::new("memory", 8 << 20, 512));
        let path = dir.path().join("trace");
        let traced =
            Traced::new(memory, Writer::create_new(&path).unwrap(), Clock::real(), 1 << 16)
                .unwrap();
        conformance::check(&traced, 8, 3000, 1);
    }
}
