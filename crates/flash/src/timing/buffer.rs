//! The write buffer.
//!
//! Writes of the host are one stream of bytes, counted from the first; a position is a number of
//! bytes in it. Writes wait in line: their bytes are *admitted* when there is room for them, cross
//! the link and have *arrived*. A program names the position up to which the bytes it carries
//! reach, and may start when they have arrived.
//!
//! A write larger than the buffer passes through it in pieces, as programs make room. When the
//! buffer is full and no program that would make room is under way, the next write is admitted
//! beyond its size: a buffer smaller than the bytes that open units hold back would never empty.

use std::collections::VecDeque;

use super::agenda::{Agenda, Event};
use super::server::{Server, transfer_ns};

/// The write buffer and the link that fills it.
pub(super) struct Buffer {
    size: u64,
    link_bytes_per_s: u64,
    link: Server,
    /// Positions up to which commands were issued, the firmware has started them, and so on.
    issued: u64,
    started: u64,
    admitted: u64,
    arrived: u64,
    released: u64,
    /// Writes not admitted to their end: that end, and the ticket.
    waiting: VecDeque<(u64, u32)>,
    /// Pieces of data on the link: the end of each, and the ticket of the write that it ends.
    crossing: VecDeque<(u64, Option<u32>)>,
    /// Programs whose data has not arrived: its end, and the operation.
    programs: VecDeque<(u64, u32)>,
    /// Programs whose data has arrived and that have not ended.
    carrying: u32,
}

impl Buffer {
    pub(super) fn new(size: u64, link_bytes_per_s: u64) -> Buffer {
        Buffer {
            size,
            link_bytes_per_s,
            link: Server::default(),
            issued: 0,
            started: 0,
            admitted: 0,
            arrived: 0,
            released: 0,
            waiting: VecDeque::new(),
            crossing: VecDeque::new(),
            programs: VecDeque::new(),
            carrying: 0,
        }
    }

    /// A write of so many bytes was issued: the position it starts at.
    pub(super) fn issue(&mut self, bytes: u32) -> u64 {
        let position = self.issued;
        self.issued += u64::from(bytes);
        position
    }

    /// The firmware has started the next write.
    pub(super) fn start(&mut self, now_ns: u64, ticket: u32, bytes: u32, agenda: &mut Agenda) {
        self.started += u64::from(bytes);
        self.waiting.push_back((self.started, ticket));
        self.admit(now_ns, agenda);
    }

    /// Bytes that occupy the buffer.
    pub(super) fn occupied(&self) -> u64 {
        self.admitted.saturating_sub(self.released)
    }

    /// Whether a write waits for room.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A program carries bytes up to position `end`: whether they have arrived. If not,
    /// [`Buffer::arrive`] tells when they have.
    pub(super) fn has_arrived(&mut self, end: u64, job: u32) -> bool {
        let newest = self.programs.back().map_or(0, |(end, _)| *end);
        let end = end.max(newest).min(self.issued);
        if end <= self.arrived {
            self.carrying += 1;
            return true;
        }
        self.programs.push_back((end, job));
        false
    }

    /// The oldest piece on the link has arrived. Returns the ticket of the write that is complete
    /// with it, and hands the programs that may start now to `open`.
    /// Room is not looked for: see [`Buffer::admit`].
    pub(super) fn arrive(&mut self, mut open: impl FnMut(u32)) -> Option<u32> {
        let (end, ticket) = self.crossing.pop_front().expect("what arrives has left");
        self.arrived = end;
        while let Some(&(end, job)) = self.programs.front()
            && end <= self.arrived
        {
            self.programs.pop_front();
            self.carrying += 1;
            open(job);
        }
        ticket
    }

    /// A program has ended that carried so many bytes of the host.
    pub(super) fn release(&mut self, now_ns: u64, bytes: u32, agenda: &mut Agenda) {
        self.carrying -= 1;
        self.released += u64::from(bytes);
        self.admit(now_ns, agenda);
    }

    /// Puts as many bytes on the link as there is room for.
    pub(super) fn admit(&mut self, now_ns: u64, agenda: &mut Agenda) {
        while let Some(&(end, ticket)) = self.waiting.front() {
            let is_stuck = self.carrying == 0 && self.crossing.is_empty();
            let room = self.released.saturating_add(self.size);
            let to = if is_stuck && room <= self.admitted { end } else { end.min(room) };
            if to <= self.admitted {
                return;
            }
            let bytes = u32::try_from(to - self.admitted).expect("no more than the write has");
            self.admitted = to;
            let service_ns = transfer_ns(bytes, self.link_bytes_per_s);
            let (_, at_ns) = self.link.serve(now_ns, service_ns);
            agenda.schedule(at_ns, Event::Arrived);
            if to < end {
                self.crossing.push_back((to, None));
                return;
            }
            self.waiting.pop_front();
            self.crossing.push_back((to, Some(ticket)));
        }
    }
}
