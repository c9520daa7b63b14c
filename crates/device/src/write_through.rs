//! A device without a volatile write cache, over one that has it: writes complete when they are durable.
//! For users who cannot know that the device was started again and lost unflushed writes.
//!
//! A write goes on with FUA. A discard or a write of zeroes has none: it is handed back when a flush behind
//! it has completed, and one flush serves all that completed before it began.
//!
//! Invariants
//! 1. A change is handed back only after it was durable: rule 3 of the seam is void for this device.
//! 2. One flush of its own is in flight at most; `covered` are the changes that it makes durable, and
//!    `uncovered` those that wait for the next one.
//! 3. A command keeps its place in `places` until it is handed back, and the device below knows it by that
//!    number; the flush has `FLUSH`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::Clock;
use esker_base::units::{to_u64, to_usize};

use crate::{
    Command, Completion, Device, DeviceError, Geometry, MAX_DEPTH, Op, QueuePair, Tag, forward,
};

/// The tag of a flush that no user asked for.
const FLUSH: Tag = Tag(u64::MAX);

/// A device whose completed writes are durable.
pub struct WriteThrough(Arc<dyn Device>);

impl WriteThrough {
    /// `device` without a volatile write cache; `device` itself where it has none.
    #[must_use]
    pub fn over(device: Arc<dyn Device>) -> Arc<dyn Device> {
        match device.geometry().volatile_write_cache {
            true => Arc::new(WriteThrough(device)),
            false => device,
        }
    }
}

impl Device for WriteThrough {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_write_cache: false, ..self.0.geometry() }
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(self.name(), depth)?;
        Ok(Box::new(Queue {
            below: self.0.queue_pair((depth + 1).min(MAX_DEPTH))?,
            depth,
            places: (0..depth).map(|_| Place::default()).collect(),
            free: (0..depth).rev().collect(),
            batch: VecDeque::with_capacity(depth + 1),
            arrived: Vec::with_capacity(depth + 1),
            covered: Vec::with_capacity(depth),
            uncovered: Vec::with_capacity(depth),
            is_flushing: false,
            clock: Clock::real(),
        }))
    }

    forward!(0: name, discards_zero, usable_bytes, left_bytes, allocate, identity, is_prompt, stats, remarks, data_placement);
}

/// A command of the user.
#[derive(Clone, Copy, Default)]
struct Place {
    tag: Tag,
    /// It is durable only when a flush has completed behind it.
    needs_flush: bool,
}

struct Queue {
    below: Box<dyn QueuePair>,
    depth: usize,
    places: Vec<Place>,
    free: Vec<usize>,
    /// Commands that the device below has no room for yet.
    batch: VecDeque<Command>,
    arrived: Vec<Completion>,
    covered: Vec<Completion>,
    uncovered: Vec<Completion>,
    is_flushing: bool,
    clock: Clock,
}

impl Queue {
    /// Hands the device below as many commands as it has room for.
    fn push(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if let Err(error) = self.below.submit(&mut self.batch) {
            // It takes nothing any more, and commands that were taken here have to end.
            self.arrived.extend(self.batch.drain(..).map(|Command { tag, op }| Completion {
                tag,
                result: Err(error.clone()),
                buf: op.into_buf(),
            }));
        }
    }

    /// Hands back completions that arrived and are durable; begins the flush that the rest waits for.
    fn hand_back(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        let mut arrived = std::mem::take(&mut self.arrived);
        for completion in arrived.drain(..) {
            if completion.tag == FLUSH {
                self.is_flushing = false;
                let mut covered = std::mem::take(&mut self.covered);
                for mut change in covered.drain(..) {
                    change.result.clone_from(&completion.result);
                    done.push(self.release(change));
                }
                self.covered = covered;
            } else if completion.result.is_ok() && self.place(&completion).needs_flush {
                self.uncovered.push(completion);
            } else {
                let completion = self.release(completion);
                done.push(completion);
            }
        }
        self.arrived = arrived;
        if !self.is_flushing && !self.uncovered.is_empty() {
            std::mem::swap(&mut self.covered, &mut self.uncovered);
            self.is_flushing = true;
            self.batch.push_back(Command { tag: FLUSH, op: Op::Flush });
            self.push();
        }
        done.len() - before
    }

    fn place(&self, completion: &Completion) -> Place {
        self.places[to_usize(completion.tag.0)]
    }

    fn release(&mut self, completion: Completion) -> Completion {
        let index = to_usize(completion.tag.0);
        self.free.push(index);
        Completion { tag: self.places[index].tag, ..completion }
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = commands.len().min(self.free.len());
        for Command { tag, mut op } in commands.drain(..taken) {
            let index = self.free.pop().expect("no more are taken than places are free");
            let needs_flush = matches!(op, Op::Discard { .. } | Op::WriteZeroes { .. });
            if let Op::Write { fua, .. } = &mut op {
                *fua = true;
            }
            self.places[index] = Place { tag, needs_flush };
            self.batch.push_back(Command { tag: Tag(to_u64(index)), op });
        }
        self.push();
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.push();
        self.below.poll(&mut self.arrived)?;
        Ok(self.hand_back(done))
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let end = timeout.map(|timeout| self.clock.now() + timeout);
        loop {
            self.push();
            let left = end.map(|end| end.since(self.clock.now()));
            self.below.wait(&mut self.arrived, left)?;
            let count = self.hand_back(done);
            let is_over = left.is_some_and(|left| left.is_zero());
            if count > 0 || is_over || self.in_flight() == 0 {
                return Ok(count);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.depth - self.free.len()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A command for which the device below has no room was taken all the same: it is executed.
        let mut done = Vec::new();
        while !self.batch.is_empty() && self.wait(&mut done, None).is_ok() {
            done.clear();
        }
    }
}
