//! The queue pair of a device with faults: effects on a command on its way in and out.

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Clock, ErrorKind, LbaCount, Nanos};
use esker_device::{Cause, Command, Completion, Device, DeviceError, Op, QueuePair};

use super::{Effect, FaultPlan};
use crate::flight::InFlight;

/// Work that remains with a command when the wrapped device has finished it.
enum Rest {
    Nothing,
    /// Give the buffer its size back, and complete with this error.
    Fail {
        size: usize,
        error: DeviceError,
    },
    Hold(Until),
    Flip {
        offset: usize,
        mask: u8,
    },
}

enum Until {
    Moment(Clock, Nanos),
    Polls(u32),
    /// Until the plan was healed more often than so many times.
    Healed(FaultPlan, u64),
}

impl Until {
    /// Counts a poll; whether the command may complete.
    fn is_over(&mut self) -> bool {
        match self {
            Until::Moment(clock, due) => clock.now() >= *due,
            Until::Polls(count) => {
                let over = *count == 0;
                *count = count.saturating_sub(1);
                over
            }
            Until::Healed(plan, before) => plan.healed() > *before,
        }
    }
}

pub(super) struct Queue {
    name: String,
    lba_size: u32,
    capacity: LbaCount,
    plan: FaultPlan,
    inner: Box<dyn QueuePair>,
    depth: usize,
    /// Taken, and not yet by the wrapped device.
    backlog: VecDeque<Command>,
    flight: InFlight<Rest>,
    /// Completions of the wrapped device, and of commands that never reached it.
    arrived: Vec<Completion>,
    held: Vec<(Until, Completion)>,
    /// Counts the timeouts of waits.
    time: Clock,
}

impl Queue {
    pub(super) fn new(
        device: &dyn Device,
        inner: Box<dyn QueuePair>,
        depth: usize,
        plan: FaultPlan,
    ) -> Queue {
        Queue {
            name: device.name().to_owned(),
            lba_size: device.geometry().lba_size,
            capacity: device.geometry().capacity,
            plan,
            inner,
            depth,
            backlog: VecDeque::new(),
            flight: InFlight::new(),
            arrived: Vec::new(),
            held: Vec::new(),
            time: Clock::real(),
        }
    }

    fn start(&mut self, Command { tag, mut op }: Command) {
        let effect = self.plan.next(&op, self.lba_size);
        let (lba, bytes) = op.range(self.lba_size);
        let (kind, lba_size) = (op.kind(), u64::from(self.lba_size));
        let error = |name: &str, cause| DeviceError::new(name, kind, lba, bytes, cause);
        let mut reaches = true;
        let rest = match effect {
            None => Rest::Nothing,
            Some(Effect::Fail) => {
                reaches = false;
                let cause = Cause::Media(format!("a fault plan failed this {kind}"));
                Rest::Fail { size: to_usize(bytes), error: error(&self.name, cause) }
            }
            Some(Effect::NoSpace) => {
                reaches = false;
                let message = format!("a fault plan left no space for this {kind}");
                let cause = Cause::Os { kind: ErrorKind::NoSpace, message };
                Rest::Fail { size: to_usize(bytes), error: error(&self.name, cause) }
            }
            Some(Effect::Short) => {
                let half = LbaCount(bytes / lba_size / 2);
                let got = half.bytes(self.lba_size);
                reaches = got > 0;
                match &mut op {
                    Op::Read { buf, .. } | Op::Write { buf, .. } => buf.set_len(to_usize(got)),
                    Op::Discard { count, .. } | Op::WriteZeroes { count, .. } => *count = half,
                    Op::Flush => {}
                }
                Rest::Fail { size: to_usize(bytes), error: error(&self.name, Cause::Short { got }) }
            }
            Some(Effect::DelaySpan { clock, span }) => {
                let due = clock.now() + span;
                Rest::Hold(Until::Moment(clock, due))
            }
            Some(Effect::DelayPolls { count }) => Rest::Hold(Until::Polls(count)),
            Some(Effect::Lose) => {
                reaches = false;
                Rest::Nothing
            }
            Some(Effect::Misdirect { distance }) => {
                if let Op::Read { lba, .. } | Op::Write { lba, .. } = &mut op {
                    // Where the whole command has room.
                    let room = self.capacity.0.saturating_sub(bytes / lba_size) + 1;
                    lba.0 = lba.0.saturating_add(distance.0) % room.max(1);
                }
                Rest::Nothing
            }
            Some(Effect::Hang) => Rest::Hold(Until::Healed(self.plan.clone(), self.plan.healed())),
            Some(Effect::Corrupt { offset, mask }) => {
                if let Op::Write { buf, .. } = &mut op {
                    flip(buf, offset, mask);
                }
                Rest::Flip { offset, mask }
            }
        };
        let tag = self.flight.start(tag, rest);
        if reaches {
            self.backlog.push_back(Command { tag, op });
        } else {
            self.arrived.push(Completion {
                tag,
                result: Ok(()), // its rest says otherwise
                buf: op.into_buf(),
            });
        }
    }

    /// Moves arrived completions to `done`, or to those held; returns how many to `done`.
    fn hand_out(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        for mut completion in self.arrived.drain(..) {
            let (tag, rest) = self.flight.finish(completion.tag);
            completion.tag = tag;
            match rest {
                Rest::Nothing => {}
                Rest::Fail { size, error } => {
                    if let Some(buf) = &mut completion.buf {
                        buf.set_len(size);
                    }
                    completion.result = completion.result.and(Err(error));
                }
                // Wrong on the medium for a write, and its buffer comes back as it went in.
                Rest::Flip { offset, mask } => {
                    if let Some(buf) = &mut completion.buf {
                        flip(buf, offset, mask);
                    }
                }
                Rest::Hold(until) => {
                    self.held.push((until, completion));
                    continue;
                }
            }
            done.push(completion);
        }
        for (mut until, completion) in std::mem::take(&mut self.held) {
            if until.is_over() {
                done.push(completion);
            } else {
                self.held.push((until, completion));
            }
        }
        done.len() - before
    }

    /// Lets time pass while nothing but held commands can complete.
    fn idle(&self, limit: Option<Duration>) {
        let moments = self.held.iter().filter_map(|(until, _)| match until {
            Until::Moment(clock, due) => Some((clock, due.since(clock.now()))),
            Until::Polls(_) | Until::Healed(..) => None,
        });
        if self.held.iter().any(|(until, _)| matches!(until, Until::Healed(..))) {
            let brief = Duration::from_millis(1); // until it is asked again
            self.time.sleep(limit.map_or(brief, |limit| limit.min(brief)));
        } else if let Some((clock, left)) = moments.min_by_key(|(_, left)| *left) {
            clock.sleep(left.min(limit.unwrap_or(left)));
        }
    }
}

fn flip(buf: &mut AlignedBuf, offset: usize, mask: u8) {
    let size = buf.len();
    if let Some(byte) = buf.get_mut(offset % size.max(1)) {
        *byte ^= mask;
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let mut taken = 0;
        while self.in_flight() < self.depth
            && let Some(command) = commands.pop_front()
        {
            self.start(command);
            taken += 1;
        }
        self.inner.submit(&mut self.backlog)?;
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        if !self.backlog.is_empty() {
            self.inner.submit(&mut self.backlog)?;
        }
        self.inner.poll(&mut self.arrived)?;
        Ok(self.hand_out(done))
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let began = self.time.now();
        loop {
            let count = self.poll(done)?;
            let passed = self.time.now().since(began);
            let left = timeout.map(|timeout| timeout.saturating_sub(passed));
            if count > 0 || self.in_flight() == 0 || left == Some(Duration::ZERO) {
                return Ok(count);
            }
            if self.held.is_empty() {
                self.inner.wait(&mut self.arrived, left)?;
            } else if self.inner.in_flight() == 0 {
                let virtual_only = self.held.iter().all(|(until, _)| match until {
                    Until::Moment(clock, _) => clock.is_virtual(),
                    Until::Polls(_) | Until::Healed(..) => false,
                });
                if virtual_only && timeout.is_some() {
                    self.idle(timeout); // which takes no real time at all
                    return self.poll(done);
                }
                self.idle(left);
            } else {
                let brief = Duration::from_millis(1);
                let pause = left.map_or(brief, |left| left.min(brief));
                self.inner.wait(&mut self.arrived, Some(pause))?;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.flight.len() + self.held.len()
    }
}
