//! Dies and channels.
//!
//! The array of a die does one thing at a time. A read ends with its page in the register that
//! the channel takes it from. Until it is taken, the array may start the next read if there is a
//! cache register, whose result waits in the array for the register to be free; without one the
//! array waits. A program needs the register to itself, from the start of its transfer on. A channel
//! carries one page at a time, for the die that asked first.

use super::Timing;
use super::agenda::{Agenda, Event};
use super::jobs::{Job, Jobs, Kind, List, NONE};
use super::server::transfer_ns;

/// The lines at a die.
const READS: usize = 0;
const COPIES: usize = 1;
const CHANGES: usize = 2;

pub(super) struct Media {
    timing: Timing,
    dies: Vec<Die>,
    channels: Vec<Channel>,
    pub(super) jobs: Jobs,
    stamps: u64,
    /// The die that has left its turn to a read which the host holds back, or [`NONE`].
    yielding: u32,
}

#[derive(Clone)]
struct Die {
    state: State,
    /// Tells the die's present work from work that was suspended.
    turn: u32,
    /// The job of the array, or [`NONE`].
    job: u32,
    /// Whose page waits for the channel or is being carried, or [`NONE`].
    register: u32,
    ends_ns: u64,
    suspended: Option<Suspended>,
    suspensions: u32,
    lines: [List; 3],
    /// Programs waiting or running.
    programs: u32,
    /// Reads that the host holds back.
    expected: u32,
    /// Operations of any kind, waiting or running.
    load: u32,
    /// The next die in the line of the channel.
    next: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// The array works until `ends_ns`.
    Busy,
    /// The array waits for the register.
    Held,
}

#[derive(Clone, Copy)]
struct Suspended {
    job: u32,
    left_ns: u64,
}

#[derive(Clone)]
struct Channel {
    is_busy: bool,
    /// The dies that asked, the one being served first.
    first: u32,
    last: u32,
}

impl Media {
    pub(super) fn new(timing: &Timing, channels: u32, dies: u32) -> Media {
        let die = Die {
            state: State::Idle,
            turn: 0,
            job: NONE,
            register: NONE,
            ends_ns: 0,
            suspended: None,
            suspensions: 0,
            lines: [List::default(); 3],
            programs: 0,
            expected: 0,
            load: 0,
            next: NONE,
        };
        let channel = Channel { is_busy: false, first: NONE, last: NONE };
        Media {
            timing: timing.clone(),
            dies: vec![die; dies as usize],
            channels: vec![channel; channels as usize],
            jobs: Jobs::default(),
            stamps: 0,
            yielding: NONE,
        }
    }

    pub(super) fn jobs(&mut self) -> &mut Jobs {
        &mut self.jobs
    }

    /// Whether this program of the die was ordered and has not ended.
    pub(super) fn is_pending(&self, die: u32, program: u32) -> bool {
        let die = &self.dies[die as usize];
        if die.programs == 0 {
            return false;
        }
        let is_it = |job: &Job| matches!(job.kind, Kind::Program { .. }) && job.program == program;
        let suspended = die.suspended.map_or(NONE, |suspended| suspended.job);
        let current = [die.job, suspended];
        current.iter().any(|&id| id != NONE && is_it(self.jobs.get(id)))
            || die.lines[CHANGES].any(&self.jobs, is_it)
    }

    /// The job that the array of a die will have done, unless that was suspended since.
    pub(super) fn done(&self, die: u32, turn: u32) -> Option<&Job> {
        let die = &self.dies[die as usize];
        (die.turn == turn).then(|| self.jobs.get(die.job))
    }

    /// Whether the die has something to resume.
    pub(super) fn is_suspended(&self, die: u32) -> bool {
        self.dies[die as usize].suspended.is_some()
    }

    /// The job whose page a busy channel carries, whether the die resumes something then, and whether another page
    /// waits, for the channel or for the register.
    pub(super) fn carried(&self, channel: u32) -> (&Job, bool, bool) {
        let die = &self.dies[self.channels[channel as usize].first as usize];
        let has_more = die.next != NONE || die.state == State::Held && die.job != die.register;
        (self.jobs.get(die.register), die.suspended.is_some(), has_more)
    }

    /// The host holds back so many more reads of a die.
    pub(super) fn expect_read(&mut self, die: u32, more: i32) {
        let expected = &mut self.dies[die as usize].expected;
        *expected = expected.saturating_add_signed(more);
    }

    /// Whether a die begins a read at once.
    pub(super) fn takes_read(&self, die: u32) -> bool {
        let die = &self.dies[die as usize];
        die.lines[READS].first().is_none()
            && match die.state {
                State::Idle => true,
                State::Busy => self.is_suspendable(die),
                State::Held => false,
            }
    }

    /// The operations that a die has under way or waiting.
    pub(super) fn load(&self, die: u32) -> u32 {
        let die = &self.dies[die as usize];
        die.load + die.expected
    }

    /// A die that has left its turn to a read goes on, if none has come.
    pub(super) fn go_on(&mut self, now_ns: u64, agenda: &mut Agenda) {
        let die = std::mem::replace(&mut self.yielding, NONE);
        if die != NONE && self.dies[die as usize].state == State::Idle {
            let expected = std::mem::take(&mut self.dies[die as usize].expected);
            self.start_next(now_ns, die, agenda);
            self.dies[die as usize].expected = expected;
        }
    }

    /// Puts an operation in line at its die. It may run when its gates are open.
    pub(super) fn enqueue(&mut self, now_ns: u64, id: u32, agenda: &mut Agenda) {
        let &Job { kind, die, gates, .. } = self.jobs.get(id);
        let line = match kind {
            Kind::Read { .. } => READS,
            Kind::CopyRead { .. } => COPIES,
            Kind::Program { .. } => {
                self.dies[die as usize].programs += 1;
                CHANGES
            }
            Kind::Erase { .. } => CHANGES,
        };
        self.dies[die as usize].load += 1;
        self.dies[die as usize].lines[line].push(&mut self.jobs, id);
        if gates == 0 {
            self.admit(now_ns, id, agenda);
        }
    }

    /// Opens a gate of an operation in line.
    pub(super) fn open(&mut self, now_ns: u64, id: u32, agenda: &mut Agenda) {
        let job = self.jobs.get_mut(id);
        job.gates -= 1;
        if job.gates == 0 {
            self.admit(now_ns, id, agenda);
        }
    }

    /// An operation may run from now on.
    fn admit(&mut self, now_ns: u64, id: u32, agenda: &mut Agenda) {
        let job = self.jobs.get_mut(id);
        job.stamp = self.stamps;
        self.stamps += 1;
        let die = job.die;
        if self.dies[die as usize].state == State::Idle {
            self.start_next(now_ns, die, agenda);
        } else {
            self.suspend(now_ns, die, agenda);
        }
    }

    /// Suspends the operation of an array, if it may, for a read in line.
    fn suspend(&mut self, now_ns: u64, id: u32, agenda: &mut Agenda) {
        let Some(suspension) = self.timing.suspension else { return };
        let die = &self.dies[id as usize];
        if die.lines[READS].first().is_none() || !self.is_suspendable(die) {
            return;
        }
        let die = &mut self.dies[id as usize];
        die.suspensions += 1;
        die.suspended = Some(Suspended { job: die.job, left_ns: die.ends_ns - now_ns });
        let read = die.lines[READS].pop(&self.jobs).expect("there is one");
        self.work(now_ns, id, read, suspension.overhead_ns + self.timing.read_ns, agenda);
    }

    /// Whether the operation of a die may be suspended for a read.
    fn is_suspendable(&self, die: &Die) -> bool {
        self.timing.suspension.is_some_and(|suspension| {
            let is_changing = || {
                let kind = self.jobs.get(die.job).kind;
                matches!(kind, Kind::Program { .. } | Kind::Erase { .. })
            };
            die.state == State::Busy && die.suspensions != suspension.most && is_changing()
        })
    }

    /// An idle die starts its next operation, if one may run.
    fn start_next(&mut self, now_ns: u64, id: u32, agenda: &mut Agenda) {
        let die = &mut self.dies[id as usize];
        die.state = State::Idle;
        die.job = NONE;
        let jobs = &self.jobs;
        let first = |line: usize| {
            let first = die.lines[line].first().map(|id| (line, jobs.get(id)));
            first.filter(|(_, job)| job.gates == 0)
        };
        let read = first(READS);
        if let Some(Suspended { job, left_ns }) = die.suspended
            && read.is_none()
        {
            die.suspended = None;
            return self.work(now_ns, id, job, left_ns, agenda);
        }
        let chosen = match read {
            Some(read) if self.timing.reads_overtake => Some(read),
            _ => [read, first(COPIES), first(CHANGES)]
                .into_iter()
                .flatten()
                .min_by_key(|(_, job)| job.stamp),
        };
        let Some((line, job)) = chosen else { return };
        if line != READS && die.expected > 0 && self.timing.reads_overtake {
            self.yielding = id;
            return;
        }
        if matches!(job.kind, Kind::Program { .. }) && die.register != NONE {
            return; // until the page of the last read is gone
        }
        let job = die.lines[line].pop(jobs).expect("the first of its line");
        match self.jobs.get(job).kind {
            Kind::Read { .. } | Kind::CopyRead { .. } => {
                self.work(now_ns, id, job, self.timing.read_ns, agenda);
            }
            Kind::Program { .. } => {
                die.state = State::Held;
                die.job = job;
                self.ask_channel(now_ns, id, job, agenda);
            }
            Kind::Erase { blocks } => {
                self.work(now_ns, id, job, self.timing.erase_ns * u64::from(blocks), agenda);
            }
        }
    }

    /// The array of a die works for so long.
    fn work(&mut self, now_ns: u64, id: u32, job: u32, for_ns: u64, agenda: &mut Agenda) {
        let die = &mut self.dies[id as usize];
        die.state = State::Busy;
        die.turn = die.turn.wrapping_add(1);
        die.job = job;
        die.ends_ns = now_ns + for_ns;
        agenda.schedule(die.ends_ns, Event::DieDone { die: id, turn: die.turn });
    }

    /// The array of a die has read a page: it goes to the register when that is free.
    fn put_out(&mut self, now_ns: u64, id: u32, agenda: &mut Agenda) {
        let die = &mut self.dies[id as usize];
        die.state = State::Held;
        if die.register == NONE {
            let job = die.job;
            self.ask_channel(now_ns, id, job, agenda);
            if self.timing.cache_register {
                self.start_next(now_ns, id, agenda);
            }
        }
    }

    /// The page of an operation is in the register, or is to come there.
    fn ask_channel(&mut self, now_ns: u64, id: u32, job: u32, agenda: &mut Agenda) {
        let channel_id = self.channel_of(id);
        self.dies[id as usize].register = job;
        self.dies[id as usize].next = NONE;
        let channel = &mut self.channels[channel_id as usize];
        if channel.first == NONE {
            channel.first = id;
        } else {
            self.dies[channel.last as usize].next = id;
        }
        channel.last = id;
        if !channel.is_busy {
            self.carry_next(now_ns, channel_id, agenda);
        }
    }

    /// A free channel carries the page of the first die in its line.
    fn carry_next(&mut self, now_ns: u64, id: u32, agenda: &mut Agenda) {
        let channel = &mut self.channels[id as usize];
        channel.is_busy = channel.first != NONE;
        if channel.is_busy {
            let bytes = self.jobs.get(self.dies[channel.first as usize].register).bytes;
            let takes_ns = transfer_ns(bytes, self.timing.channel_bytes_per_s);
            agenda.schedule(now_ns + takes_ns, Event::ChannelDone { channel: id });
        }
    }

    /// An array has done its work, unless that was suspended. Returns the operation that the die has ended.
    pub(super) fn die_done(
        &mut self,
        now_ns: u64,
        id: u32,
        turn: u32,
        agenda: &mut Agenda,
    ) -> Option<(u32, Job)> {
        let die = &mut self.dies[id as usize];
        if die.turn != turn {
            return None;
        }
        let job = self.jobs.get(die.job);
        match job.kind {
            Kind::Read { .. } | Kind::CopyRead { .. } => {
                self.put_out(now_ns, id, agenda);
                return None;
            }
            Kind::Program { .. } => die.programs -= 1,
            Kind::Erase { .. } => {}
        }
        die.suspensions = 0;
        die.load -= 1;
        let job = die.job;
        let ended = (job, self.jobs.remove(job));
        self.start_next(now_ns, id, agenda);
        Some(ended)
    }

    /// A channel has carried a page. Returns the operation that the die has ended with it.
    pub(super) fn channel_done(
        &mut self,
        now_ns: u64,
        id: u32,
        agenda: &mut Agenda,
    ) -> Option<(u32, Job)> {
        let channel = &mut self.channels[id as usize];
        let die_id = channel.first;
        channel.first = self.dies[die_id as usize].next;
        self.carry_next(now_ns, id, agenda);
        let die = &mut self.dies[die_id as usize];
        let job = std::mem::replace(&mut die.register, NONE);
        if let Kind::Program { .. } = self.jobs.get(job).kind {
            self.work(now_ns, die_id, job, self.timing.program_ns, agenda);
            self.suspend(now_ns, die_id, agenda);
            return None;
        }
        die.load -= 1;
        match die.state {
            State::Held if die.job != job => self.put_out(now_ns, die_id, agenda),
            State::Held | State::Idle => self.start_next(now_ns, die_id, agenda),
            State::Busy => {}
        }
        Some((job, self.jobs.remove(job)))
    }

    fn channel_of(&self, die: u32) -> u32 {
        die % u32::try_from(self.channels.len()).expect("made from a u32")
    }
}
