//! The log of the write buffer: a ring of frames, the same on each of its copies.
//!
//! A position counts the bytes ever appended; its remainder is the place in the ring. A frame does not run over the
//! end of the ring: it begins at the start then.
//!
//! Invariants
//! 1. Several frames may be in flight: laid out, and not known to be durable on all copies. They become durable for
//!    their readers in their order ([`Ring::finish`]).
//! 2. A frame says how many frames before it were in flight when it was laid out. So a good frame behind a bad one is
//!    damage if the bad one was not among those, and else what a crash left: it is never applied.
//! 3. Nothing from the tail on is overwritten. The tail moves when a checkpoint is durable that does not need what is
//!    before it. It never passes a frame in flight.
//! 4. A frame counts if its number follows that of the frame before, it has that frame's checksum, and its incarnation is
//!    not lower. Records behind a bad frame get seqnos beyond those that a crash left behind it.

use std::collections::VecDeque;
use std::ops::Range;

use esker_base::AlignedBuf;
use esker_base::units::{round_up, to_u64, to_usize};

use crate::buffer::ahead::{Ahead, WINDOW, read_window};
use crate::drive::layout::MARKS_BYTES;
use crate::drive::{Fleet, Io, Read, Write};
use crate::omf::frame::{self, Frame, FrameHead, Record};
use crate::omf::mark::LogEnd;
use crate::omf::root::LogTail;
use crate::types::id::{DriveIndex, FrameSeq, Incarnation, PoolUuid, Seqno};

/// Frames begin at a multiple of this: the largest LBA of any drive.
const ALIGN: u64 = 4096;

/// The log, as far as its writer knows it.
pub(crate) struct Ring {
    pub(crate) epoch: u64,
    pub(crate) bytes: u64,
    /// The members that have a copy.
    pub(crate) members: Vec<DriveIndex>,
    /// The incarnation of the frame that was replayed last, then the one that writes frames.
    incarnation: Incarnation,
    /// Behind the last frame that is durable on all copies, and behind the last one that was laid out.
    durable: End,
    laid: End,
    tail: u64,
    /// The frames since the tail, those in flight included: where each is, and its first seqno.
    frames: VecDeque<End>,
}

/// A place between two frames: where the next one begins, what it follows, and its first seqno.
#[derive(Clone, Copy, Debug)]
struct End {
    at: LogTail,
    seqno: Seqno,
}

/// A frame that was laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) head: FrameHead,
    /// Behind it.
    end: End,
}

/// The outcome of an append.
pub(crate) enum Appended {
    /// It is durable on all copies but these, which failed.
    Durable { failed: Vec<DriveIndex> },
    /// There is no room before the tail moves.
    Full,
    /// No copy took it.
    Lost(String),
}

impl Ring {
    /// An empty ring that begins with this frame.
    pub(crate) fn new(
        epoch: u64,
        bytes: u64,
        members: Vec<DriveIndex>,
        tail: LogTail,
        next_seqno: Seqno,
        incarnation: Incarnation,
    ) -> Ring {
        let end = End { at: tail, seqno: next_seqno };
        let (durable, laid, tail, frames) = (end, end, tail.offset, VecDeque::new());
        Ring { epoch, bytes, members, incarnation, durable, laid, tail, frames }
    }

    /// The ring that follows this one: empty, on these members. No frame is in flight.
    pub(crate) fn successor(&self, bytes: u64, members: Vec<DriveIndex>) -> Ring {
        let tail = LogTail { offset: 0, ..self.durable.at };
        Ring::new(self.epoch + 1, bytes, members, tail, self.durable.seqno, self.incarnation)
    }

    /// The incarnation that appends to it from now on, and the least seqno of the next record.
    pub(crate) fn begin(&mut self, incarnation: Incarnation, least: Seqno) {
        self.incarnation = incarnation;
        self.laid.seqno = self.laid.seqno.max(least);
        self.durable = self.laid;
    }

    /// Up to where it is durable.
    pub(crate) fn end(&self) -> LogEnd {
        LogEnd { frame: self.durable.at.frame, seqno: self.durable.seqno }
    }

    /// The seqno behind the last record that is durable.
    pub(crate) fn next_seqno(&self) -> Seqno {
        self.durable.seqno
    }

    /// Bytes that cannot be overwritten.
    pub(crate) fn used(&self) -> u64 {
        self.laid.at.offset - self.tail
    }

    /// The most bytes of a frame: a fraction of the ring, so that it moves on. As many with marks behind it as without, so
    /// that volumes take commands as large as before.
    pub(crate) fn largest_frame(&self) -> u64 {
        (self.bytes + MARKS_BYTES) / 4
    }

    fn start_of(&self, size: u64) -> u64 {
        let head = self.laid.at.offset;
        let left = self.bytes - head % self.bytes;
        if size > left { head + left } else { head }
    }

    /// Lays records out in a buffer as the next frame; `None` when there is no room before the tail moves. The frame is in
    /// flight until it is finished.
    pub(crate) fn start(
        &mut self,
        pool: PoolUuid,
        records: &[Record<&[u8]>],
        buf: impl FnOnce(usize) -> AlignedBuf,
    ) -> Option<(Started, AlignedBuf)> {
        let mut head = FrameHead {
            offset: 0,
            epoch: self.epoch,
            number: self.laid.at.frame,
            first: self.laid.seqno,
            previous_crc: self.laid.at.previous_crc,
            incarnation: self.incarnation,
            in_flight: self.in_flight(),
        };
        let most: usize = records.iter().map(size_of).sum::<usize>() + frame::FRAME_OVERHEAD;
        let size = round_up(to_u64(most), ALIGN);
        head.offset = self.start_of(size);
        if head.offset + size - self.tail > self.bytes {
            return None;
        }
        let mut buf = buf(to_usize(size));
        let crc = frame::encode_into(pool, &head, records, &mut buf);
        let end = self.take(&head, size, crc, to_u64(records.len()));
        Some((Started { head, end }, buf))
    }

    /// Frames that are in flight.
    pub(crate) fn in_flight(&self) -> u8 {
        let count = self.laid.at.frame.0 - self.durable.at.frame.0;
        u8::try_from(count).expect("few frames are in flight")
    }

    /// A frame is durable on all copies but these, and so are all before it.
    pub(crate) fn finish(&mut self, frame: &Started, failed: &[DriveIndex]) {
        debug_assert_eq!(frame.head.number, self.durable.at.frame);
        self.durable = frame.end;
        self.members.retain(|member| !failed.contains(member));
    }

    /// Where a copy of a frame lies.
    pub(crate) fn place(&self, fleet: &Fleet, member: DriveIndex, frame: &Started) -> Option<u64> {
        place(fleet, member, self.bytes, frame.head.offset)
    }

    /// Writes records as one frame to all copies, while none is in flight. The first of them has `next_seqno`.
    pub(crate) fn append(&mut self, io: &mut Io, records: &[Record<&[u8]>]) -> Appended {
        let Some((frame, bytes)) = self.start(io.fleet().pool, records, AlignedBuf::zeroed) else {
            return Appended::Full;
        };
        let failed = write_copies(io, &self.members, self.bytes, frame.head.offset, &bytes);
        if failed.len() == self.members.len() {
            let copies = self.members.len();
            return Appended::Lost(format!("none of the {copies} copies could be written"));
        }
        self.finish(&frame, &failed);
        Appended::Durable { failed }
    }

    /// A frame has its place: what comes next comes behind it.
    fn take(&mut self, head: &FrameHead, size: u64, crc: u32, records: u64) -> End {
        let FrameHead { offset, number, first, previous_crc, .. } = *head;
        let at = LogTail { frame: number, offset, previous_crc };
        self.frames.push_back(End { at, seqno: first });
        let (frame, offset) = (FrameSeq(number.0 + 1), offset + size);
        let at = LogTail { frame, offset, previous_crc: crc };
        self.laid = End { at, seqno: Seqno(first.0 + records) };
        self.laid
    }

    /// Where a replay has to begin so that it finds all records from `seqno` on, which is durable; or all that are in
    /// flight.
    pub(crate) fn tail_for(&self, seqno: Option<Seqno>) -> LogTail {
        let needed = seqno.and_then(|seqno| {
            let after = self.frames.partition_point(|frame| frame.seqno <= seqno);
            self.frames.get(after.saturating_sub(1))
        });
        needed.map_or(self.durable.at, |frame| frame.at)
    }

    /// A checkpoint with this tail is durable.
    pub(crate) fn move_tail(&mut self, tail: &LogTail) {
        self.tail = tail.offset;
        while self.frames.front().is_some_and(|frame| frame.at.frame < tail.frame) {
            self.frames.pop_front();
        }
    }

    /// Reads the next frame from whichever copy has it, and writes it to those that do not. `None` at the end.
    pub(crate) fn replay(
        &mut self,
        io: &mut Io,
        ahead: &mut Ahead,
    ) -> Result<Option<Frame>, String> {
        let head = self.laid.at.offset;
        let left = self.bytes - head % self.bytes;
        // A frame that did not fit is at the start of the ring.
        for position in [head, head + left] {
            if let Some(frame) = self.replay_at(io, ahead, position)? {
                return Ok(Some(frame));
            }
        }
        let beyond = self.look_beyond(io);
        self.durable = self.laid;
        beyond?;
        Ok(None)
    }

    /// The end of a replay does not lie before what was durable, by a mark or a label.
    pub(crate) fn check_end(&mut self, expected: LogEnd) -> Result<(), String> {
        let missing = self.laid.at.frame;
        self.laid.seqno = self.laid.seqno.max(expected.seqno);
        self.durable = self.laid;
        match missing >= expected.frame {
            true => Ok(()),
            false => {
                let last = FrameSeq(expected.frame.0 - 1);
                Err(format!("{missing} to {last} were durable, and no copy has {missing} any more"))
            }
        }
    }

    fn replay_at(
        &mut self,
        io: &mut Io,
        ahead: &mut Ahead,
        position: u64,
    ) -> Result<Option<Frame>, String> {
        let mut found: Option<(Frame, Vec<u8>)> = None;
        let mut without = Vec::new();
        for &member in &self.members {
            if let Some((_, bytes)) = &found {
                let copies = (&self.members[..], self.bytes);
                let at = position % self.bytes;
                if ahead.bytes(io, copies, member, at, bytes.len()) == Some(&bytes[..]) {
                    continue;
                }
            }
            match self.read_frame(io, ahead, member, position) {
                Some((frame, bytes)) if self.follows(&frame) => {
                    found.get_or_insert((frame, bytes));
                }
                _ => without.push(member),
            }
        }
        let Some((frame, bytes)) = found else { return Ok(None) };
        let size = to_u64(bytes.len());
        if frame.head.offset + size - self.tail > self.bytes {
            return Ok(None); // an earlier lap's
        }
        // Somebody may see its content from now on: so it must be on all copies.
        let failed = write_copies(io, &without, self.bytes, position, &bytes);
        self.members.retain(|member| !failed.contains(member));
        self.durable = self.take(&frame.head, size, frame.crc, to_u64(frame.records.len()));
        self.incarnation = frame.head.incarnation;
        Ok(Some(frame))
    }

    fn follows(&self, frame: &Frame) -> bool {
        let End { at, seqno } = self.laid;
        frame.head.number == at.frame
            && frame.head.previous_crc == at.previous_crc
            && frame.head.first >= seqno
            && (frame.head.incarnation >= self.incarnation || frame.head.is_of_earlier_software())
    }

    fn read_frame(
        &self,
        io: &mut Io,
        ahead: &mut Ahead,
        member: DriveIndex,
        position: u64,
    ) -> Option<(Frame, Vec<u8>)> {
        let pool = io.fleet().pool;
        let (copies, at) = ((&self.members[..], self.bytes), position % self.bytes);
        let first = ahead.bytes(io, copies, member, at, to_usize(ALIGN))?;
        let length = to_u64(frame::length_of(first)?);
        let size = round_up(length, ALIGN);
        if length == 0 || size > self.bytes - at {
            return None;
        }
        let mut bytes = ahead.bytes(io, copies, member, at, to_usize(size))?.to_vec();
        let frame = frame::decode(&bytes, pool, position, self.epoch).ok()?;
        // The length was read before it was verified, and may have been another frame's.
        bytes.truncate(to_usize(round_up(to_u64(frame.length), ALIGN)));
        Some((frame, bytes))
    }

    /// Every good frame that is still in the ring, whether a checkpoint needs it or not, in no order; some more than once.
    pub(crate) fn scan(&self, io: &mut Io, mut each: impl FnMut(Frame)) {
        let pool = io.fleet().pool;
        let whole = 0..self.bytes;
        self.each_start(io, whole, |io, member, at, bytes| {
            let Some((position, epoch, _)) = frame::peek(bytes) else { return };
            let length = to_u64(frame::length_of(bytes).unwrap_or(0));
            let size = to_usize(round_up(length, ALIGN).min(self.bytes - at));
            let start = place(io.fleet(), member, self.bytes, at);
            let Some(offset) = start else { return };
            let read = Read { drive: member, offset, size };
            let Some(Ok(bytes)) = io.read(&[read]).pop() else { return };
            if let Ok(frame) = frame::decode(&bytes, pool, position, epoch) {
                each(frame);
            }
        });
    }

    /// Looks for good frames behind the end: those that were in flight together with the first one that is missing. Others
    /// say that acknowledged ones before them are damaged.
    fn look_beyond(&mut self, io: &mut Io) -> Result<(), String> {
        // From the tail to the head lie frames that were replayed.
        let head = self.laid.at.offset % self.bytes;
        let end = head + self.bytes - self.used();
        let missing = self.laid.at.frame;
        let (mut beyond, mut damage) = (self.laid.seqno, Ok(()));
        for range in [head..end.min(self.bytes), 0..end.saturating_sub(self.bytes)] {
            self.each_start(io, range, |io, member, at, bytes| {
                let Some((position, number)) = later_frame(bytes, self, at) else { return };
                let found = self.read_frame(io, &mut Ahead::default(), member, position);
                let Some((frame, _)) = found else { return };
                debug_assert_eq!(frame.head.number, number);
                if damage.is_ok() && missing < frame.head.first_in_flight() {
                    damage = Err(format!("{number} is good on {member}, and {missing} is not"));
                }
                // A block in a segment is known by its seqno: no other record may have one of these.
                beyond = beyond.max(Seqno(frame.head.first.0 + to_u64(frame.records.len())));
            });
        }
        self.laid.seqno = beyond;
        damage
    }

    /// Looks at every place in these bytes of every copy where a frame may begin: the copy, the byte of the ring, and the
    /// bytes from there on.
    fn each_start(
        &self,
        io: &mut Io,
        range: Range<u64>,
        mut look: impl FnMut(&mut Io, DriveIndex, u64, &[u8]),
    ) {
        for window in range.clone().step_by(to_usize(WINDOW)) {
            let size = to_usize((range.end - window).min(WINDOW));
            for (member, buf) in read_window(io, &self.members, self.bytes, window, size) {
                let mut windows = vec![(window, buf)];
                if windows[0].1.is_none() {
                    // A part of it cannot be read: the others are looked at all the same.
                    windows = self.each_place(io, member, window, size);
                }
                for (start, buf) in windows {
                    let buf = buf.as_deref().unwrap_or(&[]);
                    for (at, bytes) in (start..).step_by(to_usize(ALIGN)).zip(buf.chunks(4096)) {
                        look(io, member, at, bytes);
                    }
                }
            }
        }
    }

    /// A window of one copy, read in pieces of which each may fail.
    fn each_place(
        &self,
        io: &mut Io,
        member: DriveIndex,
        window: u64,
        size: usize,
    ) -> Vec<(u64, Option<AlignedBuf>)> {
        const PIECE: usize = 1 << 16;
        let places = (0..size).step_by(PIECE);
        let places = places.filter_map(|start| {
            let at = window + to_u64(start);
            let offset = place(io.fleet(), member, self.bytes, at)?;
            Some((at, Read { drive: member, offset, size: PIECE.min(size - start) }))
        });
        let (at, reads): (Vec<u64>, Vec<Read>) = places.unzip();
        at.into_iter().zip(io.read(&reads).into_iter().map(Result::ok)).collect()
    }
}

/// Position and number of the frame that may begin here, if it is later than the next one.
fn later_frame(bytes: &[u8], ring: &Ring, at: u64) -> Option<(u64, FrameSeq)> {
    let (position, epoch, number) = frame::peek(bytes)?;
    let is_later =
        epoch == ring.epoch && number > ring.laid.at.frame && position % ring.bytes == at;
    is_later.then_some((position, number))
}

/// The most bytes a record takes in a frame.
fn size_of(record: &Record<&[u8]>) -> usize {
    match record {
        Record::Write { data, .. } => frame::WRITE_OVERHEAD + data.len(),
        Record::Zero { .. } => 26,
        Record::Change(change) => change.size(),
    }
}

/// The bytes that a write of so many bytes takes in the ring at most.
pub(crate) fn frame_bytes(data: usize, records: usize) -> u64 {
    let size = frame::FRAME_OVERHEAD + records * frame::WRITE_OVERHEAD.max(26) + data;
    round_up(to_u64(size), ALIGN)
}

pub(crate) fn place(
    fleet: &Fleet,
    member: DriveIndex,
    ring_bytes: u64,
    position: u64,
) -> Option<u64> {
    let drive = fleet.get(member)?;
    Some(fleet.layout.log_offset(drive.role) + position % ring_bytes)
}

/// Writes a frame to these copies; says which failed.
fn write_copies(
    io: &mut Io,
    members: &[DriveIndex],
    ring_bytes: u64,
    position: u64,
    bytes: &[u8],
) -> Vec<DriveIndex> {
    let mut failed = Vec::new();
    let mut writes = Vec::with_capacity(members.len());
    for &drive in members {
        match place(io.fleet(), drive, ring_bytes, position) {
            Some(offset) => {
                writes.push(Write { drive, offset, bytes, class: None, fua: true });
            }
            None => failed.push(drive),
        }
    }
    for (write, result) in writes.iter().zip(io.write(&writes)) {
        if result.is_err() {
            failed.push(write.drive);
        }
    }
    failed
}
