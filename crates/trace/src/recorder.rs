//! Recording a program's requests to devices: a bounded buffer that any thread writes to.
//!
//! Called by a wrapper around a device, from its data path. [`Recording`] writes the gathered requests to a file from a
//! thread of its own.
//!
//! Invariants
//! 1. Recording a request never waits for a file. When the buffer is full the request is counted as
//!    dropped, and the buffer is left as it is.
//! 2. Requests are in the order in which they were recorded, and their times never go back.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use esker_base::Clock;
use esker_base::sync::{Condvar, Mutex};

use crate::compact::{Writer, Written};
use crate::error::{Result, TraceError};
use crate::request::{Op, Request};

/// A bounded buffer of requests.
pub struct Recorder {
    clock: Clock,
    capacity: usize,
    buffer: Mutex<Buffer>,
    half: Condvar,
}

struct Buffer {
    requests: Vec<Request>,
    dropped: u64,
    closed: bool,
}

impl Recorder {
    /// A buffer for `capacity` requests (32 bytes each), whose times come from `clock`.
    #[must_use]
    pub fn new(clock: Clock, capacity: usize) -> Recorder {
        let buffer = Buffer { requests: Vec::new(), dropped: 0, closed: false };
        Recorder { clock, capacity, buffer: Mutex::new(buffer), half: Condvar::new() }
    }

    /// Records a request that is issued now. `false` when it was dropped: the buffer is full, the
    /// recording has ended, or the range is beyond the limits of a trace.
    pub fn record(&self, device: u32, op: Op, offset: u64, length: u64) -> bool {
        let mut buffer = self.buffer.lock();
        let request = Request::checked(self.clock.now().0, op, offset, length, device);
        let (Ok(request), false) = (request, buffer.closed) else {
            buffer.dropped += 1;
            return false;
        };
        if buffer.requests.len() >= self.capacity {
            buffer.dropped += 1;
            return false;
        }
        buffer.requests.push(request);
        if buffer.requests.len() == self.capacity.div_ceil(2) {
            self.half.notify_one();
        }
        true
    }

    /// Moves the gathered requests to the end of `requests`.
    pub fn drain(&self, requests: &mut Vec<Request>) {
        requests.append(&mut self.buffer.lock().requests);
    }

    /// How many requests were dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.buffer.lock().dropped
    }

    /// Waits until the buffer is half full, the recording ends, or `span` has passed; then moves the gathered requests.
    /// `false` once the recording has ended.
    fn wait(&self, span: Duration, requests: &mut Vec<Request>) -> bool {
        let mut buffer = self.buffer.lock();
        if !buffer.closed && buffer.requests.len() < self.capacity.div_ceil(2) {
            self.half.wait_for(&mut buffer, span);
        }
        std::mem::swap(&mut buffer.requests, requests);
        !buffer.closed
    }

    fn close(&self) {
        self.buffer.lock().closed = true;
        self.half.notify_all();
    }
}

/// How often a recording's file is written at least.
const INTERVAL: Duration = Duration::from_millis(250);

/// A recording to a file in the compact format, by a thread of its own.
pub struct Recording {
    recorder: Arc<Recorder>,
    numbers: Vec<u32>,
    thread: Option<JoinHandle<Result<Written>>>,
}

impl Recording {
    /// Starts a recording of the devices called `devices`, numbered from 0 in that order, with a
    /// buffer of `capacity` requests.
    ///
    /// # Errors
    /// When the file cannot be made or the thread not started.
    pub fn start(
        path: &Path,
        devices: &[&str],
        clock: Clock,
        capacity: usize,
    ) -> Result<Recording> {
        Recording::with(Writer::create(path)?, devices, clock, capacity)
    }

    /// The same with `writer`. Where its trace knows devices already, they keep their numbers, and
    /// [`Recording::number`] has those of `devices`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn with(
        mut writer: Writer<BufWriter<File>>,
        devices: &[&str],
        clock: Clock,
        capacity: usize,
    ) -> Result<Recording> {
        let numbers = devices.iter().map(|device| writer.device(device)).collect::<Result<_>>()?;
        let path = writer.path().to_owned();
        let recorder = Arc::new(Recorder::new(clock, capacity));
        let source = Arc::clone(&recorder);
        let thread = esker_base::thread::spawn("trace-recorder", move || {
            let mut requests = Vec::new();
            let mut outcome = Ok(());
            loop {
                let more = source.wait(INTERVAL, &mut requests);
                if outcome.is_ok() {
                    outcome = requests.iter().try_for_each(|request| writer.push(request));
                    outcome = outcome.and_then(|()| writer.flush());
                }
                requests.clear();
                if !more {
                    break;
                }
                if outcome.is_err() {
                    // Requests from now on are counted as dropped.
                    source.close();
                }
            }
            outcome?;
            writer.dropped(source.dropped());
            Ok(writer.finish()?.1)
        })
        .map_err(|error| TraceError::file(&path, "starting a thread for", error))?;
        Ok(Recording { recorder, numbers, thread: Some(thread) })
    }

    /// The number in the trace of a device, which is the `index`th of those it was started with.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn number(&self, index: usize) -> u32 {
        self.numbers[index]
    }

    /// The recorder that requests are recorded with.
    #[must_use]
    pub fn recorder(&self) -> Arc<Recorder> {
        Arc::clone(&self.recorder)
    }

    /// Ends the recording. Requests that come later are dropped.
    ///
    /// # Errors
    /// When the file could not be written.
    ///
    /// # Panics
    /// When the thread that writes has panicked, which is a defect.
    pub fn finish(mut self) -> Result<Written> {
        self.recorder.close();
        let thread = self.thread.take().expect("a recording is finished once");
        thread.join().expect("the thread that writes does not panic")
    }
}

impl Drop for Recording {
    /// Ends the recording; [`Recording::finish`] says how it went.
    fn drop(&mut self) {
        self.recorder.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
