//! One request as commands of the device.
//!
//! A read covers the LBAs that its bytes lie in. A change of whole LBAs is commands at once. A change
//! of parts of LBAs first reads those, at most two: the *edges*.
//!
//! Invariants
//! 1. Every command is within the device, whole in LBAs and no larger than the device takes.
//! 2. No write is issued before all edges were read, and none if one of them failed.

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, BufPool, Lba, LbaCount};
use esker_device::{Geometry, Op};
use rustix::io::Errno;

use super::locks::Hold;

/// Content that a change leaves in its range.
#[derive(Debug)]
pub(crate) enum Content {
    /// These bytes, the first `size` of the buffer.
    Data { buf: AlignedBuf, durable: bool },
    /// Zeroes; `discards` when the device frees with zeroes.
    Zeroes { discards: bool },
}

/// A change of a range of bytes that lies within the device.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) content: Content,
}

#[derive(Debug)]
enum Work {
    /// The answer is `size` bytes of the parts, from byte `skip` on.
    Read { skip: usize, size: usize, parts: Vec<Option<AlignedBuf>> },
    /// The edges are being read.
    Edges { change: Change, edges: [Option<AlignedBuf>; 2] },
    /// Commands are under way, after which there is nothing to do but to reply.
    Last { written: Option<u32> },
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) unique: u64,
    /// Commands that have not completed.
    under_way: usize,
    failed: Option<Errno>,
    work: Work,
    /// How many bytes of memory it holds.
    pub(crate) bytes: u64,
    /// The range lock that it has to give back.
    pub(crate) hold: Option<Hold>,
}

/// Rest of a job after all its commands.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Further commands, for the same job.
    Again(Job, Vec<Op>),
    /// It failed.
    Failed(Errno),
    /// The bytes that were read: `size` of the parts, from byte `skip` on.
    Read { skip: usize, size: usize, parts: Vec<Option<AlignedBuf>> },
    /// Done; of a write, how many bytes.
    Done(Option<u32>),
}

/// The LBAs of a range of bytes: the first, and the one after the last.
pub(crate) fn lbas(offset: u64, size: u64, lba_size: u64) -> (u64, u64) {
    (offset / lba_size, (offset + size).div_ceil(lba_size))
}

impl Change {
    /// Whether it covers parts of LBAs.
    pub(crate) fn is_ragged(&self, lba_size: u64) -> bool {
        !self.offset.is_multiple_of(lba_size) || !(self.offset + self.size).is_multiple_of(lba_size)
    }

    /// The LBAs that are covered in part.
    fn edges(&self, lba_size: u64) -> [Option<u64>; 2] {
        let (first, end) = lbas(self.offset, self.size, lba_size);
        let (last, stop) = (end - 1, self.offset + self.size);
        let begins = !self.offset.is_multiple_of(lba_size);
        let ends = !stop.is_multiple_of(lba_size);
        match (begins, ends) {
            (true, true) if first == last => [Some(first), None],
            _ => [begins.then_some(first), ends.then_some(last)],
        }
    }
}

impl Job {
    fn new(unique: u64, work: Work, ops: &[Op]) -> Job {
        let bytes = ops.iter().map(|op| op.range(0).1).sum();
        Job { unique, under_way: ops.len(), failed: None, work, bytes, hold: None }
    }

    /// Makes completed writes durable.
    pub(crate) fn flush(unique: u64) -> (Job, Vec<Op>) {
        let ops = vec![Op::Flush];
        (Job::new(unique, Work::Last { written: None }, &ops), ops)
    }

    /// Reads a range of bytes that lies within the device.
    pub(crate) fn read(
        unique: u64,
        (offset, size): (u64, u32),
        geometry: &Geometry,
        pool: &mut BufPool,
    ) -> (Job, Vec<Op>) {
        let lba_size = u64::from(geometry.lba_size);
        let (first, end) = lbas(offset, u64::from(size), lba_size);
        let most = u64::from(geometry.max_transfer_size) / lba_size;
        let mut ops = Vec::with_capacity(1);
        let mut at = first;
        while at < end {
            let count = most.min(end - at);
            ops.push(Op::Read { lba: Lba(at), buf: pool.take(to_usize(count * lba_size)) });
            at += count;
        }
        let mut parts = Vec::with_capacity(ops.len());
        parts.resize_with(ops.len(), || None);
        let skip = to_usize(offset - first * lba_size);
        let size = usize::try_from(size).expect("64 bits");
        (Job::new(unique, Work::Read { skip, size, parts }, &ops), ops)
    }

    /// Changes a range of bytes that is held, if need be after a look at its edges.
    pub(crate) fn change(
        unique: u64,
        change: Change,
        geometry: &Geometry,
        pool: &mut BufPool,
    ) -> (Job, Vec<Op>) {
        let lba_size = u64::from(geometry.lba_size);
        if !change.is_ragged(lba_size) {
            let written = change.written();
            let ops = last_commands(change, [None, None], geometry, pool);
            return (Job::new(unique, Work::Last { written }, &ops), ops);
        }
        let mut ops = Vec::with_capacity(2);
        for edge in change.edges(lba_size).into_iter().flatten() {
            ops.push(Op::Read { lba: Lba(edge), buf: pool.take(to_usize(lba_size)) });
        }
        (Job::new(unique, Work::Edges { change, edges: [None, None] }, &ops), ops)
    }

    /// One of its commands has completed; `index` says which one. True when none is left.
    pub(crate) fn completed(
        &mut self,
        index: usize,
        result: Result<(), Errno>,
        buf: Option<AlignedBuf>,
        pool: &mut BufPool,
    ) -> bool {
        self.under_way -= 1;
        if let Err(errno) = result {
            self.failed.get_or_insert(errno);
        }
        match (&mut self.work, buf) {
            (Work::Read { parts, .. }, Some(buf)) => parts[index] = Some(buf),
            (Work::Edges { edges, .. }, Some(buf)) => edges[index] = Some(buf),
            (Work::Last { .. }, Some(buf)) => pool.give(buf),
            (_, None) => {}
        }
        self.under_way == 0
    }

    /// Returns the next step now that none of its commands is under way.
    pub(crate) fn proceed(
        self,
        geometry: &Geometry,
        pool: &mut BufPool,
    ) -> (Outcome, Option<Hold>) {
        let Job { unique, failed, work, hold, .. } = self;
        if let Some(errno) = failed {
            return (Outcome::Failed(errno), hold);
        }
        match work {
            Work::Read { skip, size, parts } => (Outcome::Read { skip, size, parts }, hold),
            Work::Last { written } => (Outcome::Done(written), hold),
            Work::Edges { change, edges } => {
                let written = change.written();
                let ops = last_commands(change, edges, geometry, pool);
                let mut job = Job::new(unique, Work::Last { written }, &ops);
                job.hold = hold;
                (Outcome::Again(job, ops), None)
            }
        }
    }
}

impl Change {
    fn written(&self) -> Option<u32> {
        match self.content {
            Content::Data { .. } => u32::try_from(self.size).ok(),
            Content::Zeroes { .. } => None,
        }
    }
}

/// The commands that make a change, whose edges were read if it has any.
fn last_commands(
    change: Change,
    edges: [Option<AlignedBuf>; 2],
    geometry: &Geometry,
    pool: &mut BufPool,
) -> Vec<Op> {
    let lba_size = u64::from(geometry.lba_size);
    let places = change.edges(lba_size);
    let Change { offset, size, content } = change;
    let (first, end) = lbas(offset, size, lba_size);
    match content {
        Content::Data { buf, durable } => {
            let is_whole = places == [None, None];
            let whole =
                if is_whole { buf } else { merged(offset, &buf, places, edges, lba_size, pool) };
            split_write(first, whole, durable, geometry, pool)
        }
        Content::Zeroes { discards } => {
            let mut ops = Vec::with_capacity(3);
            // In the order of `edges`: the LBA that was read is at the same place.
            let mut found = edges.into_iter().flatten();
            for lba in places.into_iter().flatten() {
                let Some(mut buf) = found.next() else { continue };
                let begin = lba * lba_size;
                let from = to_usize(offset.max(begin) - begin);
                let to = to_usize((offset + size).min(begin + lba_size) - begin);
                buf[from..to].fill(0);
                ops.push(Op::Write { lba: Lba(lba), buf, placement: None, fua: false });
            }
            let inner = offset.div_ceil(lba_size)..(offset + size) / lba_size;
            if inner.start < inner.end {
                let (lba, count) = (Lba(inner.start), LbaCount(inner.end - inner.start));
                ops.push(match discards {
                    true => Op::Discard { lba, count },
                    false => Op::WriteZeroes { lba, count },
                });
            }
            debug_assert!(first < end && !ops.is_empty());
            ops
        }
    }
}

/// Returns the bytes of whole LBAs: those of a write, and around them the edges' old content.
fn merged(
    offset: u64,
    data: &AlignedBuf,
    places: [Option<u64>; 2],
    edges: [Option<AlignedBuf>; 2],
    lba_size: u64,
    pool: &mut BufPool,
) -> AlignedBuf {
    let (first, end) = lbas(offset, to_u64(data.len()), lba_size);
    let mut whole = pool.take(to_usize((end - first) * lba_size));
    let mut found = edges.into_iter().flatten();
    for lba in places.into_iter().flatten() {
        let Some(edge) = found.next() else { continue };
        let at = to_usize((lba - first) * lba_size);
        whole[at..at + edge.len()].copy_from_slice(&edge);
        pool.give(edge);
    }
    let skip = to_usize(offset - first * lba_size);
    whole[skip..skip + data.len()].copy_from_slice(data);
    whole
}

/// A write as commands that the device takes.
fn split_write(
    first: u64,
    buf: AlignedBuf,
    fua: bool,
    geometry: &Geometry,
    pool: &mut BufPool,
) -> Vec<Op> {
    let lba_size = u64::from(geometry.lba_size);
    let most = to_usize(u64::from(geometry.max_transfer_size) / lba_size * lba_size);
    if buf.len() <= most {
        return vec![Op::Write { lba: Lba(first), buf, placement: None, fua }];
    }
    let mut ops = Vec::with_capacity(buf.len().div_ceil(most));
    for (index, part) in buf.chunks(most).enumerate() {
        let mut piece = pool.take(part.len());
        piece.copy_from_slice(part);
        let lba = Lba(first + to_u64(index * most) / lba_size);
        ops.push(Op::Write { lba, buf: piece, placement: None, fua });
    }
    pool.give(buf);
    ops
}
