//! The read-ahead of a replay: the ring in large windows, from all copies at once. Frames lie behind one another, so a
//! replay takes one large read where it would take two small ones for each frame. Sees `drive`.

use esker_base::AlignedBuf;
use esker_base::units::{to_u64, to_usize};

use crate::buffer::ring::place;
use crate::drive::{Io, Read};
use crate::types::id::DriveIndex;

/// Bytes of a window, unless a frame is larger.
pub(crate) const WINDOW: u64 = 8 << 20;

/// A window of the ring on each of its copies.
#[derive(Default)]
pub(crate) struct Ahead {
    /// The byte of the ring at which the window begins.
    start: u64,
    /// Each copy's; none where a part of it could not be read.
    copies: Vec<(DriveIndex, Option<AlignedBuf>)>,
    /// Bytes that were read without a window.
    single: Option<AlignedBuf>,
}

impl Ahead {
    /// `size` bytes of one copy from this byte of the ring on, if they can be read.
    pub(crate) fn bytes(
        &mut self,
        io: &mut Io,
        (members, ring_bytes): (&[DriveIndex], u64),
        member: DriveIndex,
        at: u64,
        size: usize,
    ) -> Option<&[u8]> {
        let end = at + to_u64(size);
        if self.find(member, at, end).is_none() {
            self.load(io, members, ring_bytes, at, to_u64(size));
        }
        let copy = self.find(member, at, end)?;
        if self.copies[copy].1.is_none() {
            // Something in the window cannot be read: these bytes may all the same.
            let offset = place(io.fleet(), member, ring_bytes, at)?;
            let read = Read { drive: member, offset, size };
            self.single = io.read(&[read]).pop().and_then(Result::ok);
            return self.single.as_deref();
        }
        let start = to_usize(at - self.start);
        self.copies[copy].1.as_ref().map(|window| &window[start..start + size])
    }

    /// The copy of a member, if the window has these bytes of it.
    fn find(&self, member: DriveIndex, at: u64, end: u64) -> Option<usize> {
        let copy = self.copies.iter().position(|(owner, _)| *owner == member)?;
        let window = self.copies[copy].1.as_ref();
        let is_in = window.is_none_or(|window| end <= self.start + to_u64(window.len()));
        (at >= self.start && is_in).then_some(copy)
    }

    fn load(&mut self, io: &mut Io, members: &[DriveIndex], ring_bytes: u64, at: u64, size: u64) {
        let size = to_usize(WINDOW.max(size).min(ring_bytes - at));
        self.start = at;
        self.copies.clear();
        for (member, window) in read_window(io, members, ring_bytes, at, size) {
            self.copies.push((member, window));
        }
    }
}

/// The same window of each copy, read at once.
pub(crate) fn read_window(
    io: &mut Io,
    members: &[DriveIndex],
    ring_bytes: u64,
    at: u64,
    size: usize,
) -> Vec<(DriveIndex, Option<AlignedBuf>)> {
    let placed = members.iter().filter_map(|member| {
        Some(Read { drive: *member, offset: place(io.fleet(), *member, ring_bytes, at)?, size })
    });
    let reads: Vec<Read> = placed.collect();
    let answers = io.read(&reads).into_iter().map(Result::ok);
    reads.iter().map(|read| read.drive).zip(answers).collect()
}
