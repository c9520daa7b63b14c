//! Capture of the requests to a real block device, through the kernel's tracing.
//!
//! Called by `esker trace record`. Needs root (or access to tracefs) and a kernel with
//! `CONFIG_BLK_DEV_IO_TRACE`. The event is `block_bio_queue`: a request enters the block layer, the Q of
//! blktrace. Since the tracer `blk` cannot run in a tracing instance, its event is taken: in an instance
//! of our own, filtered to the device, so that nobody else's tracing is disturbed. Per-processor
//! buffers are read in binary (`ring.rs`).
//!
//! Offsets are those of the whole disk, also for a partition: the kernel has remapped them.
//!
//! Invariants
//! 1. The instance is removed when the capture ends or is dropped; one that a killed process left
//!    behind is removed by the next capture.
//! 2. Requests come in the order of their times: those of a round of reading that are not later than
//!    the latest of the round before, since every processor's buffer was emptied after it.
//! 3. Events that the kernel could not keep are counted and told.

pub(crate) mod ring;
mod tracefs;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{major, minor};

use crate::error::{Result, TraceError};
use crate::request::Request;
use ring::Page;
use tracefs::Instance;

/// The kernel's buffers, unless said otherwise: 16 MiB for each processor, some 250,000 requests.
pub const BUFFER_BYTES: u64 = 16 << 20;

/// A running capture.
pub struct Capture {
    // Closed before the instance is removed, which the kernel refuses otherwise.
    pipes: Vec<File>,
    instance: Instance,
    event: ring::Event,
    page: Vec<u8>,
    /// Requests that one of an earlier time may still precede.
    held: Vec<Request>,
    latest_ns: u64,
    seen: u64,
}

impl Capture {
    /// Starts to capture the requests to a block device, with a buffer of `buffer_bytes` in the
    /// kernel for each processor.
    ///
    /// # Errors
    /// When `device` is no block device, tracefs is not mounted or refuses, or the kernel does not
    /// have the event.
    pub fn start(device: &Path, buffer_bytes: u64) -> Result<Capture> {
        let devices = numbers_of(device)?;
        let instance = Instance::create(&tracefs::mounted()?)?;
        let format = instance.read("events/block/block_bio_queue/format")?;
        let event = ring::Event::parse(&format).map_err(|what| {
            TraceError::Unsupported(format!("the kernel's event block_bio_queue: {what}"))
        })?;
        instance.write("tracing_on", "0")?;
        instance.write("buffer_size_kb", &(buffer_bytes / 1024).max(64).to_string())?;
        // The clock that all processors share: the default one is each processor's own.
        instance.write("trace_clock", "mono")?;
        let filter: Vec<String> = devices.iter().map(|number| format!("dev == {number}")).collect();
        instance.write("events/block/block_bio_queue/filter", &filter.join(" || "))?;
        let pipes = instance.pipes()?;
        instance.write("events/block/block_bio_queue/enable", "1")?;
        instance.write("tracing_on", "1")?;
        let page = vec![0; instance.page_bytes()];
        Ok(Capture { pipes, instance, event, page, held: Vec::new(), latest_ns: 0, seen: 0 })
    }

    /// Waits until there is much to read or `timeout` has passed, and appends the requests whose
    /// order is certain.
    ///
    /// # Errors
    /// When the kernel's buffers cannot be read.
    pub fn poll(&mut self, timeout: Duration, requests: &mut Vec<Request>) -> Result<()> {
        let mut fds: Vec<PollFd<'_>> =
            self.pipes.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(timeout)
            .map_err(|_| TraceError::Invalid(format!("a timeout of {timeout:?} is too long")))?;
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(self.instance.failed("trace_pipe_raw", "waiting", error.into()));
            }
        }
        let certain_ns = self.latest_ns;
        self.drain()?;
        self.hand_over(certain_ns, requests);
        Ok(())
    }

    /// Ends the capture: appends the rest, and returns how many requests the kernel lost because its
    /// buffer was full.
    ///
    /// # Errors
    /// When the kernel's buffers cannot be read, or the instance not be removed.
    pub fn finish(mut self, requests: &mut Vec<Request>) -> Result<u64> {
        self.instance.write("tracing_on", "0")?;
        self.drain()?;
        self.hand_over(u64::MAX, requests);
        let lost = self.instance.lost()?;
        self.pipes.clear();
        self.instance.remove()?;
        Ok(lost)
    }

    /// How many requests were captured so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Empties the buffers of all processors.
    fn drain(&mut self) -> Result<()> {
        for mut pipe in &self.pipes {
            loop {
                let size = match pipe.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(size) => size,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => {
                        return Err(self.instance.failed("trace_pipe_raw", "reading", error));
                    }
                };
                let before = self.held.len();
                let page = Page::parse(&self.page[..size])
                    .and_then(|page| page.requests(&self.event, &mut self.held));
                page.map_err(|what| {
                    TraceError::Unsupported(format!("the kernel's trace buffer: {what}"))
                })?;
                self.seen += esker_base::units::to_u64(self.held.len() - before);
            }
        }
        let latest = self.held.iter().map(|request| request.time_ns).max();
        self.latest_ns = self.latest_ns.max(latest.unwrap_or(0));
        Ok(())
    }

    fn hand_over(&mut self, certain_ns: u64, requests: &mut Vec<Request>) {
        // A stable sort: a flush and the write it belongs to have one time.
        self.held.sort_by_key(|request| request.time_ns);
        let certain = self.held.partition_point(|request| request.time_ns <= certain_ns);
        requests.extend(self.held.drain(..certain));
    }
}

/// The kernel's numbers of a block device and of its partitions.
fn numbers_of(device: &Path) -> Result<Vec<u32>> {
    let metadata =
        std::fs::metadata(device).map_err(|error| TraceError::file(device, "opening", error))?;
    if !metadata.file_type().is_block_device() {
        let what = "it is no block device; name one, such as /dev/loop0";
        return Err(TraceError::Invalid(format!("{}: {what}", device.display())));
    }
    let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
    let mut numbers = vec![kernel_number(major, minor)];
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let folder = entry.path();
        if !folder.join("partition").exists() {
            continue;
        }
        let number = std::fs::read_to_string(folder.join("dev")).unwrap_or_default();
        if let Some((major, minor)) = number.trim().split_once(':')
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
        {
            numbers.push(kernel_number(major, minor));
        }
    }
    Ok(numbers)
}

/// A device's number as the kernel keeps it.
fn kernel_number(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}
