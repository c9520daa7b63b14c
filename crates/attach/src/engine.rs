//! Requests become commands of the device, and completions become replies.
//!
//! | module | content |
//! | --- | --- |
//! | `files` | the file system of one file: names, attributes |
//! | `job` | one request as commands |
//! | `locks` | which ranges are being changed |
//!
//! An engine belongs to one thread and has one queue pair; the threads share a [`Volume`]. It makes
//! no system call: it is told requests as bytes, and hands replies to whoever it is given. So
//! it is tested, and fuzzed, without a kernel.
//!
//! Invariants
//! 1. Every request that wants a reply gets exactly one.
//! 2. A change of LBAs is held in [`Volume::locks`] from before its first command until after its
//!    last one.
//! 3. A queue pair that broke answers everything with `EIO` and is not used again.

mod files;
mod job;
mod locks;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, BufPool, ErrorKind};
use esker_device::{Command, Completion, DeviceError, Geometry, Op, OpKind, QueuePair, Tag};
use rustix::io::Errno;

use files::FILE;
pub(crate) use files::Volume;
use job::{Change, Content, Job, Outcome, lbas};

use crate::wire::{
    HEAD_SIZE, Header, Request, attributes_reply, decode, entry_reply, open_reply, write_reply,
};

/// Commands in a queue pair.
const DEPTH: usize = 128;
/// Requests of one engine that may be under way, and their bytes.
const MOST_JOBS: usize = 128;
const MOST_BYTES: u64 = 64 << 20;
/// Bytes of buffers that may lie idle.
const MOST_IDLE_BYTES: usize = 32 << 20;
/// Data of writes up to this size is copied to a buffer of its size; a copy of that is cheaper
/// than to hold a large buffer for it.
const COPIED_SIZE: usize = 64 << 10;
/// Commands that are started together: more would leave the device idle until the last is prepared.
pub(crate) const BATCH: usize = 4;

/// Where replies go.
pub(crate) trait Replies {
    /// Sends a reply; its body is the concatenation of `body`.
    fn reply(&mut self, unique: u64, outcome: Result<(), Errno>, body: &[&[u8]]);
}

/// A request as it came.
pub(crate) struct Message {
    /// Its first bytes.
    pub(crate) head: [u8; HEAD_SIZE],
    /// The rest; always with room for the largest request.
    pub(crate) data: AlignedBuf,
    /// How many bytes it has in all.
    pub(crate) size: usize,
}

impl Message {
    /// Room for requests that write up to `max_write` bytes.
    pub(crate) fn new(max_write: u32) -> Message {
        // The kernel wants room for 8 KiB at least (FUSE_MIN_READ_BUFFER).
        let data = AlignedBuf::zeroed(to_usize(u64::from(max_write)).max(8192));
        Message { head: [0; HEAD_SIZE], data, size: 0 }
    }
}

/// Action that a request needs beside replying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// Nothing.
    Well,
    /// The kernel and we have agreed how to speak.
    Begun,
    /// The connection has ended.
    Ended,
}

/// Serves requests with one queue pair.
pub(crate) struct Engine {
    volume: Arc<Volume>,
    geometry: Geometry,
    queue: Option<Box<dyn QueuePair>>,
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// Bytes of the requests under way.
    bytes: u64,
    batch: VecDeque<Command>,
    done: Vec<Completion>,
    /// Changes that wait for others.
    parked: VecDeque<(u64, Change)>,
    pool: BufPool,
}

impl Engine {
    pub(crate) fn new(volume: Arc<Volume>) -> Result<Engine, DeviceError> {
        let queue = volume.device.queue_pair(DEPTH)?;
        Ok(Engine {
            geometry: volume.device.geometry(),
            volume,
            queue: Some(queue),
            jobs: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            batch: VecDeque::new(),
            done: Vec::new(),
            parked: VecDeque::new(),
            pool: BufPool::new(MOST_IDLE_BYTES),
        })
    }

    /// Whether another request can be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.under_way() < MOST_JOBS && self.bytes < MOST_BYTES
    }

    /// How many requests are under way, those that wait for others included.
    pub(crate) fn under_way(&self) -> usize {
        self.jobs.len() - self.free.len() + self.parked.len()
    }

    /// Whether a request waits for one that may be another thread's.
    pub(crate) fn is_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether the device has nothing to do for it.
    pub(crate) fn is_still(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.in_flight() == 0) && self.batch.is_empty()
    }

    /// Takes a request. Its commands start with the next [`Engine::turn`].
    pub(crate) fn accept(&mut self, message: &mut Message, replies: &mut dyn Replies) -> Accepted {
        let inline = message.size.min(HEAD_SIZE);
        let rest = message.size - inline;
        let long;
        // The opcode is at 4; nothing but a write may have data outside the head.
        let is_write = message.head[4..8] == 16u32.to_le_bytes();
        let (bytes, data_size) = if rest == 0 || is_write {
            (&message.head[..inline], rest)
        } else {
            long = [&message.head[..], &message.data[..rest]].concat();
            (&long[..], 0)
        };
        let (header, request) = match decode(bytes, data_size) {
            Ok(decoded) => decoded,
            Err(_) => {
                // Its waiters must not wait forever, if it has a name at all.
                let unique = bytes.get(8..16).and_then(|name| name.try_into().ok());
                if let Some(unique) = unique.map(u64::from_le_bytes).filter(|&unique| unique != 0) {
                    replies.reply(unique, Err(Errno::INVAL), &[]);
                }
                return Accepted::Well;
            }
        };
        if let Request::Write { offset, size, durable } = request {
            self.accept_write(header, (offset, size, durable), message, replies);
            return Accepted::Well;
        }
        self.dispatch(header, request, replies)
    }

    fn dispatch(
        &mut self,
        Header { unique, node }: Header,
        request: Request<'_>,
        replies: &mut dyn Replies,
    ) -> Accepted {
        let volume = self.volume.clone();
        let read_only = volume.read_only;
        let answer: Result<Vec<u8>, Errno> = match request {
            Request::Silent => return Accepted::Well,
            Request::Destroy => {
                replies.reply(unique, Ok(()), &[]);
                return Accepted::Ended;
            }
            Request::Init(asked) => {
                let answer = volume.init(&asked);
                let outcome = answer.as_ref().map(drop).map_err(|errno| *errno);
                let body = answer.unwrap_or_default();
                replies.reply(unique, outcome, &[&body]);
                return if outcome.is_ok() { Accepted::Begun } else { Accepted::Ended };
            }
            Request::Lookup { name } => volume.lookup(node, name).map(|found| entry_reply(&found)),
            Request::Attributes => volume.attributes(node).map(|found| attributes_reply(&found)),
            Request::Set(change) => volume.set(node, change).map(|now| attributes_reply(&now)),
            Request::Open { writes } => volume.open(node, writes).map(|()| open_reply(true)),
            Request::OpenDirectory => Ok(open_reply(false)),
            Request::ReadDirectory { offset, size } => Ok(volume.directory(offset, size)),
            Request::StatFs => Ok(volume.statfs().encode()),
            Request::Release => Ok(Vec::new()),
            Request::Refused => Err(Errno::OPNOTSUPP),
            Request::Unknown => Err(Errno::NOSYS),
            Request::Read { .. } | Request::Sync | Request::Zero { .. } if self.queue.is_none() => {
                Err(Errno::IO)
            }
            Request::Read { .. }
            | Request::Zero { .. }
            | Request::Allocate { .. }
            | Request::Sync
                if node != FILE =>
            {
                Err(Errno::ISDIR)
            }
            Request::Zero { .. } | Request::Allocate { .. } if read_only => Err(Errno::ROFS),
            Request::Read { offset, size } => {
                let left = volume.size().saturating_sub(offset);
                let size = u32::try_from(left).unwrap_or(u32::MAX).min(size).min(volume.max_write);
                if size > 0 {
                    let range = (offset, size);
                    let (job, ops) = Job::read(unique, range, &self.geometry, &mut self.pool);
                    self.start(job, ops);
                    return Accepted::Well;
                }
                Ok(Vec::new())
            }
            Request::Sync => {
                let (job, ops) = Job::flush(unique);
                self.start(job, ops);
                return Accepted::Well;
            }
            Request::Allocate { offset, size } => match offset.checked_add(size) {
                Some(end) if end <= volume.size() => Ok(Vec::new()),
                _ => Err(Errno::NOSPC),
            },
            Request::Zero { offset, size, frees } => {
                let left = volume.size().saturating_sub(offset);
                if size > left && !frees {
                    Err(Errno::NOSPC)
                } else if size.min(left) == 0 {
                    Ok(Vec::new())
                } else {
                    let discards = frees && volume.device.discards_zero();
                    let content = Content::Zeroes { discards };
                    self.change(unique, Change { offset, size: size.min(left), content });
                    return Accepted::Well;
                }
            }
            Request::Write { .. } => Err(Errno::INVAL),
        };
        match answer {
            Ok(body) => replies.reply(unique, Ok(()), &[&body]),
            Err(errno) => replies.reply(unique, Err(errno), &[]),
        }
        Accepted::Well
    }

    fn accept_write(
        &mut self,
        Header { unique, node }: Header,
        (offset, size, durable): (u64, u32, bool),
        message: &mut Message,
        replies: &mut dyn Replies,
    ) {
        let left = self.volume.size().saturating_sub(offset);
        let fits = u32::try_from(left).unwrap_or(u32::MAX).min(size);
        let refused = match () {
            () if node != FILE => Some(Errno::ISDIR),
            () if self.volume.read_only => Some(Errno::ROFS),
            () if self.queue.is_none() => Some(Errno::IO),
            () if fits == 0 && size > 0 => Some(Errno::NOSPC),
            () => None,
        };
        if let Some(errno) = refused {
            return replies.reply(unique, Err(errno), &[]);
        }
        if size == 0 {
            return replies.reply(unique, Ok(()), &[&write_reply(0)]);
        }
        let length = to_usize(u64::from(fits));
        let mut buf;
        if length <= COPIED_SIZE {
            buf = self.pool.take(length);
            buf.copy_from_slice(&message.data[..length]);
        } else {
            let room = message.data.len();
            buf = std::mem::replace(&mut message.data, self.pool.take(room));
            buf.set_len(length);
        }
        let content = Content::Data { buf, durable };
        self.change(unique, Change { offset, size: u64::from(fits), content });
    }

    /// Makes a change, or lets it wait for those that it must not meet.
    fn change(&mut self, unique: u64, change: Change) {
        if let Some(change) = self.try_change(unique, change) {
            self.parked.push_back((unique, change));
        }
    }

    fn try_change(&mut self, unique: u64, change: Change) -> Option<Change> {
        let lba_size = u64::from(self.geometry.lba_size);
        let (first, end) = lbas(change.offset, change.size, lba_size);
        let Some(hold) = self.volume.locks.hold(first, end, change.is_ragged(lba_size)) else {
            return Some(change);
        };
        let (mut job, ops) = Job::change(unique, change, &self.geometry, &mut self.pool);
        job.hold = Some(hold);
        self.start(job, ops);
        None
    }

    fn start(&mut self, job: Job, ops: Vec<Op>) {
        self.bytes += job.bytes;
        let index = self.free.pop().unwrap_or(self.jobs.len());
        let numbered = (to_u64(index) << 32..).zip(ops);
        self.batch.extend(numbered.map(|(tag, op)| Command { tag: Tag(tag), op }));
        match self.jobs.get_mut(index) {
            Some(place) => *place = Some(job),
            None => self.jobs.push(Some(job)),
        }
    }

    /// Starts accepted requests, and replies to completed ones. Returns how many commands have
    /// completed.
    pub(crate) fn turn(&mut self, replies: &mut dyn Replies) -> usize {
        self.advance(replies, |queue, done| queue.poll(done))
    }

    /// Waits for a completion, for at most `timeout`, and then is [`Engine::turn`].
    pub(crate) fn wait(&mut self, timeout: Duration, replies: &mut dyn Replies) -> usize {
        self.advance(replies, |queue, done| queue.wait(done, Some(timeout)))
    }

    fn advance(
        &mut self,
        replies: &mut dyn Replies,
        collect: impl FnOnce(&mut dyn QueuePair, &mut Vec<Completion>) -> Result<usize, DeviceError>,
    ) -> usize {
        if self.is_parked() {
            self.retry_parked();
        }
        let Some(queue) = &mut self.queue else { return 0 };
        let mut outcome = Ok(0);
        if !self.batch.is_empty() {
            outcome = queue.submit(&mut self.batch);
        }
        if outcome.is_ok() && queue.in_flight() > 0 {
            outcome = collect(&mut **queue, &mut self.done);
        }
        let mut done = std::mem::take(&mut self.done);
        let count = done.len();
        for completion in done.drain(..) {
            self.complete(completion, replies);
        }
        self.done = done;
        if outcome.is_err() {
            self.fail_everything(replies);
        }
        if !self.batch.is_empty() && count > 0 {
            // Edges were read: their writes need not wait for the next turn.
            if let Some(queue) = &mut self.queue
                && queue.submit(&mut self.batch).is_err()
            {
                self.fail_everything(replies);
            }
        }
        count
    }

    fn retry_parked(&mut self) {
        for _ in 0..self.parked.len() {
            let Some((unique, change)) = self.parked.pop_front() else { return };
            if let Some(change) = self.try_change(unique, change) {
                self.parked.push_back((unique, change));
            }
        }
    }

    fn complete(&mut self, completion: Completion, replies: &mut dyn Replies) {
        let Completion { tag, result, buf } = completion;
        let (index, piece) = (to_usize(tag.0 >> 32), to_usize(tag.0 & 0xffff_ffff));
        let Some(place) = self.jobs.get_mut(index) else { return };
        let Some(job) = place else { return };
        let result = result.map_err(|error| errno_of(&error));
        if !job.completed(piece, result, buf, &mut self.pool) {
            return;
        }
        let Some(job) = place.take() else { return };
        let unique = job.unique;
        self.bytes -= job.bytes;
        let (outcome, hold) = job.proceed(&self.geometry, &mut self.pool);
        if let Some(hold) = hold {
            self.volume.locks.release(&hold);
        }
        self.free.push(index);
        match outcome {
            Outcome::Again(job, ops) => self.start(job, ops),
            Outcome::Failed(errno) => replies.reply(unique, Err(errno), &[]),
            Outcome::Done(None) => replies.reply(unique, Ok(()), &[]),
            Outcome::Done(Some(size)) => replies.reply(unique, Ok(()), &[&write_reply(size)]),
            Outcome::Read { skip, size, parts } => {
                self.reply_read(unique, (skip, size), &parts, replies);
                for buf in parts.into_iter().flatten() {
                    self.pool.give(buf);
                }
            }
        }
    }

    fn reply_read(
        &self,
        unique: u64,
        (skip, size): (usize, usize),
        parts: &[Option<AlignedBuf>],
        replies: &mut dyn Replies,
    ) {
        if let [Some(buf)] = parts {
            return replies.reply(unique, Ok(()), &[&buf[skip..skip + size]]);
        }
        let mut slices = Vec::with_capacity(parts.len());
        let (mut skip, mut left) = (skip, size);
        for part in parts.iter().flatten() {
            let length = (part.len() - skip).min(left);
            slices.push(&part[skip..skip + length]);
            skip = 0;
            left -= length;
        }
        replies.reply(unique, Ok(()), &slices);
    }

    /// The queue pair has broken.
    fn fail_everything(&mut self, replies: &mut dyn Replies) {
        // Dropping it waits for the commands in flight.
        self.queue = None;
        self.batch.clear();
        for job in std::mem::take(&mut self.jobs).into_iter().flatten() {
            if let Some(hold) = &job.hold {
                self.volume.locks.release(hold);
            }
            replies.reply(job.unique, Err(Errno::IO), &[]);
        }
        for (unique, _) in std::mem::take(&mut self.parked) {
            replies.reply(unique, Err(Errno::IO), &[]);
        }
        self.free.clear();
        self.bytes = 0;
    }
}

/// Returns the error number that the kernel gets for a device's error.
fn errno_of(error: &DeviceError) -> Errno {
    let zeroes = matches!(error.op(), OpKind::Discard | OpKind::WriteZeroes);
    match error.kind() {
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::Unsupported if zeroes => Errno::OPNOTSUPP,
        _ => Errno::IO,
    }
}
