//! A drive in time: commands of the host, operations of its translation layer, and the events
//! between them.

use esker_base::Nanos;

use super::Timing;
use super::agenda::{Agenda, Event};
use super::buffer::Buffer;
use super::host::{HostSide, NandPage, Way};
use super::jobs::{Job, Kind, NONE};
use super::media::Media;
use super::server::{Server, transfer_ns};
use crate::FlashError;
use crate::emulate::{Start, Ticket};

/// Where data lies: a die, and the program operation that put it there or will. Any number that
/// tells apart the programs that a die has not ended does for `program`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The die.
    pub die: u32,
    /// Which of its programs.
    pub program: u32,
}

/// Part of a read at one die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it lies.
    pub place: Place,
    /// How much, in bytes.
    pub bytes: u32,
    /// The page of NAND in which it lies; needed only where the host manages the drive.
    pub page: Option<NandPage>,
}

/// Pages that are read to be programmed elsewhere, together. Made by [`Controller::copies`], and
/// given to the program that carries them.
#[derive(Debug)]
pub struct Copies(u32);

/// The host's data in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    /// How many bytes: they leave the buffer when the program ends. Over all programs, each byte
    /// that was written is counted once.
    pub count: u32,
    /// The position after the last of them, as [`Controller::write`] returned it.
    pub end: u64,
}

/// A program operation.
#[derive(Debug)]
pub struct Program {
    /// The die, and the number by which reads of this data name the program.
    pub place: Place,
    /// Bytes that the channel carries to the die: all planes and bits that are programmed together.
    pub bytes: u32,
    /// The host's data in it.
    pub host: Option<HostBytes>,
    /// The copied data in it.
    pub copies: Option<Copies>,
}

/// A drive in time. Every call states the time: not before an event that [`Controller::advance`] has run, nor after one
/// that it has not.
pub struct Controller {
    timing: Timing,
    dies: u32,
    /// Time of one command at the firmware's rate.
    turn_ns: u64,
    firmware: Server,
    link: Server,
    /// The controller's path of data to the media, of the host and of copies.
    path: Server,
    buffer: Buffer,
    media: Media,
    /// Where the host manages the drive.
    host: Option<HostSide>,
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    /// By ticket.
    commands: Vec<Command>,
    agenda: Agenda,
    /// Tickets of the commands that waited for one read of a die.
    served: Vec<u32>,
}

/// A command of the host under way.
#[derive(Clone, Copy, Default)]
struct Command {
    /// Bytes that move over the link without a die.
    bytes: u32,
    parts: super::jobs::List,
    parts_left: u32,
    /// When the last of its parts went to a die, as far as they have gone.
    issued_ns: u64,
    /// When the last of its parts is with the host, as far as they have come.
    ends_ns: u64,
}

/// Reads of a group of copies.
#[derive(Clone, Copy)]
struct Group {
    reads_left: u32,
    /// The program that waits for them, or [`NONE`].
    program: u32,
}

impl Controller {
    /// A drive of so many channels and dies, at rest. Die `d` is on channel `d % channels`.
    ///
    /// # Errors
    /// When the parameters make no drive.
    pub fn new(timing: &Timing, channels: u32, dies: u32) -> Result<Controller, FlashError> {
        timing.check()?;
        if channels == 0 || dies < channels {
            let why = format!(
                "{channels} channels and {dies} dies: a drive has at least one die on each channel"
            );
            return Err(FlashError::Invalid(why));
        }
        Ok(Controller {
            dies,
            turn_ns: 1_000_000_000u64.checked_div(timing.commands_per_s).unwrap_or(0),
            firmware: Server::default(),
            link: Server::default(),
            path: Server::default(),
            buffer: Buffer::new(timing.buffer_bytes, timing.link_write_bytes_per_s),
            media: Media::new(timing, channels, dies),
            host: timing.host_queues.map(|queues| HostSide::new(queues, channels)),
            groups: Vec::new(),
            free_groups: Vec::new(),
            commands: Vec::new(),
            agenda: Agenda::default(),
            served: Vec::new(),
            timing: timing.clone(),
        })
    }

    /// The times and rates it works with.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// How many dies it has.
    #[must_use]
    pub fn dies(&self) -> u32 {
        self.dies
    }

    /// Bytes that the host has written and no program has carried to the media.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.buffer.occupied()
    }

    /// A read of `bytes` bytes starts. Bytes that its parts do not cover are in the buffer, or
    /// nowhere, and need no die; so do parts whose program has not ended.
    ///
    /// # Panics
    /// If a part names a die that does not exist.
    pub fn read(&mut self, start: Start, parts: impl IntoIterator<Item = Part>, bytes: u32) {
        let Start { now, ticket: Ticket(ticket) } = start;
        let mut command = Command { bytes, ..Command::default() };
        for Part { place: Place { die, program }, bytes, page } in parts {
            assert!(die < self.dies, "there is no die {die}");
            let mut job = Job::new(Kind::Read { ticket }, die, program, bytes);
            if let Some(NandPage { number, bytes }) = page {
                (job.page, job.page_bytes) = (number, bytes);
            }
            let jobs = self.media.jobs();
            let id = jobs.insert(job);
            command.parts.push(jobs, id);
            command.bytes = command.bytes.saturating_sub(bytes);
        }
        *self.command_of(ticket) = command;
        let at_ns = self.pass_firmware(now, self.timing.read_firmware_ns);
        self.agenda.schedule(at_ns, Event::ReadStarted { ticket });
    }

    /// A write of `bytes` bytes starts. It is finished when they are in the buffer. Returns their
    /// position: the bytes of all writes are one stream, and programs name positions in it.
    pub fn write(&mut self, start: Start, bytes: u32) -> u64 {
        let Start { now, ticket: Ticket(ticket) } = start;
        *self.command_of(ticket) = Command { bytes, issued_ns: now.0, ..Command::default() };
        let at_ns = self.pass_firmware(now, self.timing.write_firmware_ns);
        self.agenda.schedule(at_ns, Event::WriteStarted { ticket });
        self.buffer.issue(bytes)
    }

    /// A command that moves no data starts: a flush, which finds all data safe in the buffer, a
    /// discard, or write zeroes.
    pub fn command(&mut self, start: Start) {
        let Start { now, ticket: Ticket(ticket) } = start;
        *self.command_of(ticket) = Command { issued_ns: now.0, ..Command::default() };
        let at_ns = self.pass_firmware(now, self.timing.write_firmware_ns);
        self.finish(at_ns, ticket);
    }

    /// A group for copies that one program will carry.
    pub fn copies(&mut self) -> Copies {
        let group = Group { reads_left: 0, program: NONE };
        if let Some(id) = self.free_groups.pop() {
            self.groups[id as usize] = group;
            return Copies(id);
        }
        self.groups.push(group);
        Copies(u32::try_from(self.groups.len() - 1).expect("fewer groups than 2^32"))
    }

    /// Orders the read of a page that is copied. A page whose program has not ended is still in
    /// the buffer and needs no read.
    ///
    /// # Panics
    /// If the die does not exist.
    pub fn copy_read(&mut self, now: Nanos, place: Place, bytes: u32, copies: &Copies) {
        let Place { die, program } = place;
        assert!(die < self.dies, "there is no die {die}");
        if self.media.is_pending(die, program) {
            return;
        }
        self.groups[copies.0 as usize].reads_left += 1;
        let job = Job::new(Kind::CopyRead { group: copies.0 }, die, program, bytes);
        let id = self.media.jobs().insert(job);
        self.media.enqueue(now.0, id, &mut self.agenda);
        self.dispatch(now.0);
    }

    /// Orders a program. It starts when its data is there and its die is free.
    ///
    /// # Panics
    /// If the die does not exist.
    pub fn program(&mut self, now: Nanos, program: Program) {
        let Program { place: Place { die, program }, bytes, host, copies } = program;
        assert!(die < self.dies, "there is no die {die}");
        let releases = host.map_or(0, |host| host.count);
        let copied = if copies.is_some() { bytes.saturating_sub(releases) } else { 0 };
        let job = Job::new(Kind::Program { releases }, die, program, bytes);
        let id = self.media.jobs().insert(job);
        let mut gates = 0;
        // It begins when the programs before it have passed the path.
        let (at_ns, _) = self.path.serve(now.0, self.path_ns(releases, copied));
        if at_ns > now.0 {
            self.agenda.schedule(at_ns, Event::Prepared { job: id });
            gates += 1;
        }
        if let Some(HostBytes { count: 1.., end }) = host
            && !self.buffer.has_arrived(end, id)
        {
            gates += 1;
        }
        if let Some(Copies(group)) = copies {
            if self.groups[group as usize].reads_left == 0 {
                self.free_groups.push(group);
            } else {
                self.groups[group as usize].program = id;
                gates += 1;
            }
        }
        self.media.jobs().get_mut(id).gates = gates;
        self.media.enqueue(now.0, id, &mut self.agenda);
        self.dispatch(now.0);
    }

    /// Orders the erasure of so many blocks of a die, one after the other; those of all planes
    /// that are erased together count once.
    ///
    /// # Panics
    /// If the die does not exist.
    pub fn erase(&mut self, now: Nanos, die: u32, blocks: u32) {
        assert!(die < self.dies, "there is no die {die}");
        let id = self.media.jobs().insert(Job::new(Kind::Erase { blocks }, die, 0, 0));
        self.media.enqueue(now.0, id, &mut self.agenda);
        self.dispatch(now.0);
    }

    /// These pages of NAND are erased: the host keeps them no longer.
    pub fn forget(&mut self, pages: &std::ops::Range<u32>) {
        if let Some(host) = &mut self.host {
            host.forget(pages, &mut self.media.jobs);
        }
    }

    /// When the last part of a finished read went to its die; the start of a read that needed none.
    ///
    /// # Panics
    /// If no command had the ticket.
    #[must_use]
    pub fn issued(&self, ticket: Ticket) -> Nanos {
        Nanos(self.commands[ticket.0 as usize].issued_ns)
    }

    /// Load of a die: the operations under way or waiting that the host has ordered.
    #[must_use]
    pub fn load(&self, die: u32) -> u32 {
        self.media.load(die)
    }

    /// The time of the next event.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        self.agenda.next_ns().map(Nanos)
    }

    /// A moment before which no command finishes unless the host does something: events in between
    /// may run together. There is one for as long as a command is unfinished.
    #[must_use]
    pub fn next_finish(&self) -> Option<Nanos> {
        let bounds = self.agenda.upcoming().map(|(at_ns, event)| at_ns + self.least_ns(event));
        bounds.min().map(Nanos)
    }

    /// The least time from an event to the end of a command that results from it. Results of other events do not count,
    /// nor commands that the host starts meanwhile.
    fn least_ns(&self, event: Event) -> u64 {
        let Timing { read_ns, program_ns, host_ns, .. } = self.timing;
        // A die that turns to another operation.
        let turn_ns = host_ns + read_ns.min(program_ns);
        match event {
            Event::Finished { .. } => 0,
            // The program that may begin then has to end before anything else happens.
            Event::Prepared { .. } => turn_ns,
            // The host has copied its part of the page, or it comes out of the buffer.
            Event::ReadStarted { .. } if self.host.is_some() => 0,
            Event::ReadStarted { ticket } => {
                let Command { bytes, parts, .. } = self.commands[ticket as usize];
                let is_buffered = |job: &Job| self.media.is_pending(job.die, job.program);
                let needs_die = bytes == 0
                    && parts.first().is_some()
                    && !parts.any(&self.media.jobs, is_buffered);
                host_ns + if needs_die { read_ns } else { 0 }
            }
            Event::WriteStarted { .. } | Event::Arrived => host_ns,
            // The operation that is resumed then may be about to end.
            Event::DieDone { die, .. } if self.media.is_suspended(die) => host_ns,
            Event::DieDone { die, turn } => match self.media.done(die, turn) {
                Some(Job { kind: Kind::Read { .. }, bytes, .. }) => {
                    let carried_ns = transfer_ns(*bytes, self.timing.channel_bytes_per_s);
                    carried_ns + self.link_ns(*bytes) + host_ns
                }
                Some(Job { kind: Kind::Program { .. }, .. }) if self.buffer.is_awaited() => host_ns,
                _ => turn_ns,
            },
            Event::ChannelDone { channel } => match self.media.carried(channel) {
                (_, true, _) => host_ns,
                (Job { kind: Kind::Read { .. }, bytes, .. }, ..) => self.link_ns(*bytes) + host_ns,
                (_, _, true) => host_ns,
                _ => turn_ns,
            },
        }
    }

    /// The time of the controller's path for a program: of media that are never cleaned the link alone sets the rate.
    fn path_ns(&self, host: u32, copied: u32) -> u64 {
        let Timing { link_write_bytes_per_s: link, copy_bytes_per_s: copy, erase_ns, .. } =
            self.timing;
        if erase_ns == 0 {
            return 0;
        }
        let copy = if copy == 0 { link } else { copy };
        transfer_ns(host, link) + transfer_ns(copied, copy)
    }

    fn link_ns(&self, bytes: u32) -> u64 {
        transfer_ns(bytes, self.timing.link_read_bytes_per_s)
    }

    /// Runs all events up to and including `to`, and appends the commands that finished.
    pub fn advance(&mut self, to: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
        while let Some((now_ns, event)) = self.agenda.pop(to.0) {
            match event {
                Event::ReadStarted { ticket } => self.start_read(now_ns, ticket),
                Event::WriteStarted { ticket } => {
                    let bytes = self.commands[ticket as usize].bytes;
                    self.buffer.start(now_ns, ticket, bytes, &mut self.agenda);
                }
                Event::Arrived => self.arrive(now_ns),
                Event::DieDone { die, turn } => {
                    let ended = self.media.die_done(now_ns, die, turn, &mut self.agenda);
                    if let Some((id, job)) = ended {
                        self.end(now_ns, id, &job);
                    }
                }
                Event::ChannelDone { channel } => {
                    let ended = self.media.channel_done(now_ns, channel, &mut self.agenda);
                    if let Some((id, job)) = ended {
                        self.end(now_ns, id, &job);
                    }
                }
                Event::Finished { ticket } => finished.push((Ticket(ticket), Nanos(now_ns))),
                Event::Prepared { job } => self.media.open(now_ns, job, &mut self.agenda),
            }
            self.dispatch(now_ns);
        }
    }

    /// Sends the reads to their dies that may go now; then lets a die go on that had left the turn to them.
    fn dispatch(&mut self, now_ns: u64) {
        let Some(host) = &mut self.host else { return };
        while let Some(id) = host.next(&self.media.jobs, |die| self.media.takes_read(die)) {
            let &Job { kind, die, .. } = self.media.jobs.get(id);
            if let Kind::Read { ticket } = kind {
                self.commands[ticket as usize].issued_ns = now_ns;
            }
            self.media.expect_read(die, -1);
            self.media.enqueue(now_ns, id, &mut self.agenda);
        }
        self.media.go_on(now_ns, &mut self.agenda);
    }

    fn command_of(&mut self, ticket: u32) -> &mut Command {
        let index = ticket as usize;
        if index >= self.commands.len() {
            self.commands.resize(index + 1, Command::default());
        }
        &mut self.commands[index]
    }

    /// When the firmware has started a command that comes now.
    fn pass_firmware(&mut self, now: Nanos, takes_ns: u64) -> u64 {
        let (start_ns, _) = self.firmware.serve(now.0, self.turn_ns);
        start_ns + takes_ns
    }

    fn start_read(&mut self, now_ns: u64, ticket: u32) {
        let Command { mut bytes, mut parts, .. } = self.commands[ticket as usize];
        let (mut parts_left, mut copied) = (0, 0);
        while let Some(id) = parts.pop(&self.media.jobs) {
            let Job { die, program, bytes: part_bytes, page, page_bytes, .. } =
                *self.media.jobs.get(id);
            if self.media.is_pending(die, program) {
                self.media.jobs.remove(id);
                bytes += part_bytes;
                continue;
            }
            let Some(host) = &mut self.host else {
                parts_left += 1;
                self.media.enqueue(now_ns, id, &mut self.agenda);
                continue;
            };
            let page = NandPage { number: page, bytes: page_bytes };
            match host.way(id, ticket, page, &mut self.media.jobs) {
                Way::Memory => {
                    self.media.jobs.remove(id);
                    copied += part_bytes;
                }
                Way::Shared => {
                    self.media.jobs.remove(id);
                    parts_left += 1;
                }
                Way::Die(all) => {
                    self.media.jobs.get_mut(id).bytes = all;
                    self.media.expect_read(die, 1);
                    host.hold(id);
                    parts_left += 1;
                }
            }
        }
        let is_copied = copied > 0;
        let is_buffered = bytes > 0 || parts_left == 0 && !is_copied;
        let command = &mut self.commands[ticket as usize];
        command.parts_left = parts_left + u32::from(is_buffered) + u32::from(is_copied);
        (command.issued_ns, command.ends_ns) = (now_ns, now_ns);
        if is_buffered {
            self.send(now_ns, ticket, bytes);
        }
        if let Some(host) = self.host.as_ref().filter(|_| is_copied) {
            let takes_ns = transfer_ns(copied, host.copy_bytes_per_s());
            self.part_ends(now_ns + takes_ns, ticket);
        }
    }

    /// A part of a read crosses the link.
    fn send(&mut self, now_ns: u64, ticket: u32, bytes: u32) {
        let service_ns = transfer_ns(bytes, self.timing.link_read_bytes_per_s);
        let (_, at_ns) = self.link.serve(now_ns, service_ns);
        self.part_ends(at_ns + self.timing.host_ns, ticket);
    }

    /// A part of a read is with the host from then on; the last one ends it.
    fn part_ends(&mut self, at_ns: u64, ticket: u32) {
        let command = &mut self.commands[ticket as usize];
        command.parts_left -= 1;
        command.ends_ns = command.ends_ns.max(at_ns);
        if command.parts_left == 0 {
            self.agenda.schedule(command.ends_ns, Event::Finished { ticket });
        }
    }

    fn finish(&mut self, at_ns: u64, ticket: u32) {
        self.agenda.schedule(at_ns + self.timing.host_ns, Event::Finished { ticket });
    }

    fn arrive(&mut self, now_ns: u64) {
        let Controller { buffer, media, agenda, .. } = self;
        let ticket = buffer.arrive(|program| media.open(now_ns, program, agenda));
        buffer.admit(now_ns, agenda);
        if let Some(ticket) = ticket {
            self.finish(now_ns, ticket);
        }
    }

    /// A die has given out the page of a read: it crosses the link, for all commands that wait for it.
    fn end_read(&mut self, now_ns: u64, id: u32, ticket: u32, job: &Job) {
        let service_ns = transfer_ns(job.bytes, self.timing.link_read_bytes_per_s);
        let (_, at_ns) = self.link.serve(now_ns, service_ns);
        let found_ns = at_ns + self.timing.host_ns;
        let mut served = std::mem::take(&mut self.served);
        if let Some(host) = &mut self.host {
            host.end(id, job.die, |ticket| served.push(ticket));
        }
        self.part_ends(found_ns, ticket);
        for ticket in served.drain(..) {
            self.part_ends(found_ns, ticket);
        }
        self.served = served;
    }

    /// A die has ended an operation.
    fn end(&mut self, now_ns: u64, id: u32, job: &Job) {
        match job.kind {
            Kind::Read { ticket } => self.end_read(now_ns, id, ticket, job),
            Kind::CopyRead { group } => {
                let copies = &mut self.groups[group as usize];
                copies.reads_left -= 1;
                if copies.reads_left == 0 && copies.program != NONE {
                    let program = copies.program;
                    self.free_groups.push(group);
                    self.media.open(now_ns, program, &mut self.agenda);
                }
            }
            Kind::Program { releases: 0 } | Kind::Erase { .. } => {}
            Kind::Program { releases } => {
                self.buffer.release(now_ns, releases, &mut self.agenda);
            }
        }
    }
}
