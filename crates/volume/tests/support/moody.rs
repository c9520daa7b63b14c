//! Drives in real time that are slow, silent or refuse while a test says so.

#![allow(dead_code)] // each test file uses a part

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::sync::Mutex;
use esker_base::{Clock, Lba, Nanos};
use esker_device::{
    Cause, Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, OpKind,
    QueuePair,
};

/// How a drive takes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Prompt,
    /// One command after another, each of which takes so long.
    Slow(Duration),
    /// Nothing is answered; what was asked is done when the mood changes.
    Silent,
    /// Every command ends at once, and is not done.
    Refusing,
}

struct State {
    mood: Mood,
    /// When the last command ends that was taken.
    end: Nanos,
    /// Commands that were taken before are never done.
    lost: Nanos,
}

/// The mood of a drive, which a test changes.
#[derive(Clone)]
pub(crate) struct Moody {
    inner: Arc<MemoryDevice>,
    state: Arc<Mutex<State>>,
    clock: Clock,
}

impl Moody {
    pub(crate) fn new(name: &str, bytes: u64) -> Moody {
        let inner = Arc::new(MemoryDevice::new(name, bytes, 4096));
        let state =
            Arc::new(Mutex::new(State { mood: Mood::Prompt, end: Nanos(0), lost: Nanos(0) }));
        Moody { inner, state, clock: Clock::real() }
    }

    pub(crate) fn be(&self, mood: Mood) {
        let now = self.clock.now();
        let state = &mut *self.state.lock();
        (state.mood, state.end) = (mood, now);
    }

    /// It is prompt, and what it was asked before is never done.
    pub(crate) fn lose(&self) {
        self.be(Mood::Prompt);
        self.state.lock().lost = self.clock.now();
    }

    fn gone(&self) -> DeviceError {
        let cause = Cause::Gone("connection refused".to_owned());
        DeviceError::new(self.inner.name(), OpKind::Open, Lba(0), 0, cause)
    }
}

impl Device for Moody {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        if self.state.lock().mood == Mood::Refusing {
            return Err(self.gone());
        }
        let inner = self.inner.queue_pair(depth)?;
        Ok(Box::new(Queue { inner, moody: self.clone(), taken: VecDeque::new(), depth }))
    }
    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

struct Queue {
    inner: Box<dyn QueuePair>,
    moody: Moody,
    /// Commands, and when they end.
    taken: VecDeque<(Nanos, Command)>,
    depth: usize,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let count = commands.len().min(self.depth - self.taken.len());
        let now = self.moody.clock.now();
        let state = &mut *self.moody.state.lock();
        for command in commands.drain(..count) {
            let end = match state.mood {
                Mood::Slow(span) => {
                    state.end = state.end.max(now) + span;
                    state.end
                }
                _ => now,
            };
            self.taken.push_back((end, command));
        }
        Ok(count)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let (mood, now, before) =
            (self.moody.state.lock().mood, self.moody.clock.now(), done.len());
        while mood != Mood::Silent
            && let Some((_, command)) = self.taken.pop_front_if(|(end, _)| *end <= now)
        {
            if mood == Mood::Refusing {
                let (tag, result) = (command.tag, Err(self.moody.gone()));
                done.push(Completion { tag, result, buf: command.op.into_buf() });
                continue;
            }
            self.inner.submit(&mut VecDeque::from([command]))?;
            self.inner.poll(done)?;
        }
        Ok(done.len() - before)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let count = self.poll(done)?;
        if count > 0 || self.taken.is_empty() {
            return Ok(count);
        }
        let most = Duration::from_millis(1);
        self.moody.clock.sleep(timeout.map_or(most, |timeout| timeout.min(most)));
        self.poll(done)
    }

    fn in_flight(&self) -> usize {
        self.taken.len()
    }
}
