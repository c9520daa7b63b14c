//! The drives under study: the same NAND, with the translation layer in the host or in the drive, filled in
//! order and at rest.

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Completion, Device, Op, QueuePair, Tag};
use esker_flash::emulate::Handout;
use esker_flash::profile::Profile;
use esker_flash::{Pace, Parameters, Ssd};

use crate::LabError;

/// Bytes that a command writes when a drive is filled.
const FILL_BYTES: u64 = 1 << 20;
/// Longer than anything that a drive still does once it is filled.
const REST: Duration = Duration::from_secs(1);
/// Bytes of a page of memory, and of a random read.
pub(super) const PAGE: u64 = 4096;

/// Scheduler of the dies: it decides the next operation of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The drive's own controller.
    Drive,
    /// The host, which sends reads as they come.
    HostInOrder,
    /// The host, with a window; so many reads at the dies at a time, or as many as come.
    HostWindow { in_flight: u32 },
    /// The host, which sends reads as they come, with so many at the dies at a time.
    HostBounded { in_flight: u32 },
}

/// The profile that has both.
pub(super) fn profile() -> Result<(Profile, Profile), LabError> {
    let host = Profile::find("host-managed-256")?;
    let missing = || LabError::Invalid("the profile has no drive beside it".to_owned());
    let drive = *host.in_drive.clone().ok_or_else(missing)?;
    Ok((host, drive))
}

/// Returns the parameters of a drive of this capacity.
pub(super) fn parameters(
    side: Side,
    capacity: u64,
    has_pages: bool,
) -> Result<Parameters, LabError> {
    let (host, drive) = profile()?;
    let of = if side == Side::Drive { &drive } else { &host };
    let missing = || LabError::Invalid("the profile is of no solid-state drive".to_owned());
    let mut parameters = of.ssd().ok_or_else(missing)?.scaled(capacity)?;
    if let Some(queues) = &mut parameters.timing.host_queues {
        match side {
            Side::HostInOrder => queues.window = 0,
            Side::HostBounded { in_flight } => (queues.window, queues.in_flight) = (0, in_flight),
            Side::HostWindow { in_flight } => queues.in_flight = in_flight,
            Side::Drive => {}
        }
        if !has_pages {
            queues.cached_pages = 0;
        }
    }
    Ok(parameters)
}

/// A drive in virtual time, with a namespace of all of it, filled up to `data_bytes`.
pub(super) struct Bed {
    pub(super) clock: Clock,
    ssd: Ssd,
    queue: Box<dyn QueuePair>,
    batch: VecDeque<Command>,
    done: Vec<Completion>,
    free: Vec<AlignedBuf>,
}

impl Bed {
    pub(super) fn new(
        parameters: &Parameters,
        data_bytes: u64,
        depth: usize,
    ) -> Result<Bed, LabError> {
        let clock = Clock::virtual_time();
        let pace = Pace::virtual_time(clock.clone());
        let ssd = Ssd::without_data("drive", parameters, pace)?;
        let id = ssd.create_namespace(parameters.capacity, None)?;
        let namespace = ssd.namespace(id)?;
        let queue = namespace.queue_pair(depth)?;
        let (batch, done, free) = (VecDeque::new(), Vec::new(), Vec::new());
        let mut bed = Bed { clock, ssd, queue, batch, done, free };
        bed.fill(data_bytes)?;
        Ok(bed)
    }

    fn fill(&mut self, data_bytes: u64) -> Result<(), LabError> {
        let size = to_usize(FILL_BYTES);
        let mut buf = AlignedBuf::zeroed(size);
        for at in (0..data_bytes / FILL_BYTES).map(|n| n * FILL_BYTES) {
            let lba = Lba(at / PAGE);
            let op = Op::Write { lba, buf, placement: None, fua: false };
            self.batch.push_back(Command { tag: Tag(0), op });
            self.queue.submit(&mut self.batch)?;
            self.queue.wait(&mut self.done, None)?;
            buf = self.done.pop().and_then(take).unwrap_or_else(|| AlignedBuf::zeroed(size));
        }
        self.clock.advance(REST);
        Ok(())
    }

    /// Begins to read `pages` pages from one on.
    pub(super) fn read(&mut self, tag: u64, page: u64, pages: u64) {
        let size = to_usize(pages * PAGE);
        let fits = self.free.iter().position(|buf| buf.len() == size);
        let buf = fits.map(|index| self.free.swap_remove(index));
        let buf = buf.unwrap_or_else(|| AlignedBuf::zeroed(size));
        self.batch.push_back(Command { tag: Tag(tag), op: Op::Read { lba: Lba(page), buf } });
    }

    /// Hands the commands that were begun to the drive.
    pub(super) fn submit(&mut self) -> Result<(), LabError> {
        while !self.batch.is_empty() {
            if self.queue.submit(&mut self.batch)? == 0 {
                let why = "more reads are under way than the study was made for".to_owned();
                return Err(LabError::Invalid(why));
            }
        }
        Ok(())
    }

    /// Reads that are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// Lets time pass until a read ends, at most so long; the tags of those that have.
    pub(super) fn wait(
        &mut self,
        span: Option<Duration>,
        ended: &mut Vec<u64>,
    ) -> Result<(), LabError> {
        self.queue.wait(&mut self.done, span)?;
        for completion in self.done.drain(..) {
            ended.push(completion.tag.0);
            completion.result?;
            if self.free.len() < 256 {
                self.free.extend(completion.buf);
            }
        }
        // Sorted, so that the order in which the drive hands them out does not matter.
        ended.sort_unstable();
        Ok(())
    }

    /// Random 4 KiB reads in a closed loop, `depth` under way, over `data_bytes`: their times, and reads a second.
    pub(super) fn random_reads(
        &mut self,
        depth: usize,
        reads: usize,
        data_bytes: u64,
        seed: u64,
    ) -> Result<(Vec<Handout>, f64), LabError> {
        let mut rng = Rng::new(seed);
        let (warm_up, mut ended) = (reads / 10 + 2 * depth, Vec::new());
        let mut page = || rng.below(data_bytes / PAGE);
        for tag in 0..depth as u64 {
            let page = page();
            self.read(tag, page, 1);
        }
        self.submit()?;
        let (mut count, mut began) = (0, self.clock.now());
        while count < warm_up + reads {
            self.wait(None, &mut ended)?;
            for tag in ended.drain(..) {
                count += 1;
                if count == warm_up {
                    self.ssd.start_record();
                    began = self.clock.now();
                }
                let page = page();
                self.read(tag, page, 1);
            }
            self.submit()?;
        }
        let span = self.clock.now() - began;
        let times = self.ssd.take_record();
        while self.in_flight() > 0 {
            self.wait(None, &mut ended)?;
        }
        #[allow(clippy::cast_precision_loss)]
        let rate = times.len() as f64 / span.as_secs_f64();
        Ok((times, rate))
    }
}

fn take(completion: Completion) -> Option<AlignedBuf> {
    completion.result.ok().and(completion.buf)
}
