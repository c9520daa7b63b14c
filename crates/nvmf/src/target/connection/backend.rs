//! A queue pair on the device of a namespace, driven by the worker or by a thread of its own.
//!
//! A prompt device ([`Device::is_prompt`]) never makes its caller wait, so the worker drives it. Any other
//! may: a cache blocks for its flash, a remote namespace for its path. Such a device gets a thread for each
//! worker, and is waited for there: a namespace that is slow, or hangs, blocks no other one. The thread takes
//! commands from a list and puts completions into another, and wakes the worker.
//!
//! Invariants
//! 1. A command is in `incoming`, with the device, in `done`, or handed back; `given` counts the first three.
//! 2. The thread opens the queue pair, because that may block, too, before a command comes: what it takes of
//!    the system may be gone later. When it cannot, the commands that come fail, and each tries again.
//! 3. The thread lives until it is told to end and the device has nothing: a device that hangs keeps it, and
//!    nobody waits for it.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_base::sync::{Condvar, Mutex};
use esker_base::{Clock, Nanos, thread};
use esker_device::{Command, Completion, Device, DeviceError, QueuePair};

use crate::target::shared::Shared;

/// How long the thread waits for a device before it looks for new commands: an eighth of the time since
/// anything happened, within these.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(10);

/// A queue pair.
pub(crate) enum Backend {
    /// Driven by the worker.
    Prompt(Box<dyn QueuePair>),
    /// Driven by a thread.
    Aside(Aside),
}

impl Backend {
    /// A queue pair on `device` for a worker.
    pub(crate) fn open(
        device: &Arc<dyn Device>,
        shared: &Arc<Shared>,
        worker: usize,
    ) -> Result<Backend, DeviceError> {
        let depth = shared.limits.device_depth;
        DeviceError::check_depth(device.name(), depth)?;
        if device.is_prompt() {
            return Ok(Backend::Prompt(device.queue_pair(depth)?));
        }
        let refused = |error: io::Error| {
            let (op, lba) = (esker_device::OpKind::Open, esker_base::Lba(0));
            DeviceError::os(device.name(), op, lba, 0, &error)
        };
        Ok(Backend::Aside(Aside::start(device, shared, worker).map_err(refused)?))
    }

    pub(crate) fn submit(&mut self, batch: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        match self {
            Backend::Prompt(queue) => queue.submit(batch),
            Backend::Aside(aside) => Ok(aside.submit(batch)),
        }
    }

    /// Appends finished commands; waits for them where the device is driven here and `wait` says so.
    pub(crate) fn poll(
        &mut self,
        done: &mut Vec<Completion>,
        wait: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        match self {
            Backend::Prompt(queue) if wait.is_some() && queue.in_flight() > 0 => {
                queue.wait(done, wait)
            }
            Backend::Prompt(queue) => queue.poll(done),
            Backend::Aside(aside) => Ok(aside.poll(done)),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        match self {
            Backend::Prompt(queue) => queue.in_flight(),
            Backend::Aside(aside) if aside.link.is_dead.load(Ordering::Acquire) => 0,
            Backend::Aside(aside) => aside.given,
        }
    }

    /// Whether it may take one command more; if not, that it does is told.
    pub(crate) fn may_have_room(&self) -> bool {
        match self {
            Backend::Prompt(_) => true,
            Backend::Aside(aside) => aside.given < aside.depth,
        }
    }

    /// Whether the worker has to look for finished commands: nobody tells it.
    pub(crate) fn is_polled(&self) -> bool {
        matches!(self, Backend::Prompt(queue) if queue.in_flight() > 0)
    }

    /// Takes the commands back that the device has not, if `is_it` says so; `None`, and none is taken, when
    /// they are fewer than `at_least`.
    pub(crate) fn take_back(
        &mut self,
        is_it: &dyn Fn(&Command) -> bool,
        at_least: usize,
    ) -> Option<Vec<Command>> {
        match self {
            Backend::Prompt(_) => (at_least == 0).then(Vec::new),
            Backend::Aside(aside) => aside.take_back(is_it, at_least),
        }
    }

    /// Ends it without waiting for a device that hangs: the queue pair is leaked with the commands in the device.
    pub(crate) fn abandon(self) {
        match self {
            Backend::Prompt(queue) if queue.in_flight() > 0 => std::mem::forget(queue),
            Backend::Prompt(_) | Backend::Aside(_) => {}
        }
    }
}

/// A thread that drives a queue pair.
pub(crate) struct Aside {
    link: Arc<Link>,
    depth: usize,
    given: usize,
}

/// State that the thread and the worker share.
#[derive(Default)]
struct Link {
    lists: Mutex<Lists>,
    /// Signalled when there are commands, or the thread is to end.
    has_work: Condvar,
    /// The thread has panicked: the queue pair is closed, and nothing comes any more.
    is_dead: AtomicBool,
    /// The message of its panic, until the worker has it.
    panic: Mutex<Option<String>>,
}

#[derive(Default)]
struct Lists {
    incoming: VecDeque<Command>,
    done: Vec<Completion>,
    is_ended: bool,
}

impl Aside {
    fn start(device: &Arc<dyn Device>, shared: &Arc<Shared>, worker: usize) -> io::Result<Aside> {
        let link = Arc::new(Link::default());
        let depth = shared.limits.device_depth;
        let driver = Driver {
            device: device.clone(),
            shared: shared.clone(),
            worker,
            link: link.clone(),
            queue: None,
            batch: VecDeque::new(),
            done: Vec::new(),
            clock: Clock::real(),
            last_progress: Nanos(0),
        };
        let (shared, dead) = (shared.clone(), link.clone());
        let run = move || {
            // The commands that it had are gone, and what is wrong is not known: its worker panics, too.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| driver.run())) {
                *dead.panic.lock() = Some(thread::said(&*panic));
                dead.is_dead.store(true, Ordering::Release);
                shared.mailboxes[worker].waker.wake();
            }
        };
        thread::spawn("nvmf-device", run)?;
        Ok(Aside { link, depth, given: 0 })
    }

    fn submit(&mut self, batch: &mut VecDeque<Command>) -> usize {
        let count = batch.len().min(self.depth - self.given);
        if count > 0 {
            self.link.lists.lock().incoming.extend(batch.drain(..count));
            self.link.has_work.notify_one();
            self.given += count;
        }
        count
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        if self.link.is_dead.load(Ordering::Acquire)
            && let Some(message) = self.link.panic.lock().take()
        {
            resume_unwind(Box::new(message));
        }
        if self.given == 0 {
            return 0;
        }
        let before = done.len();
        done.append(&mut self.link.lists.lock().done);
        let count = done.len() - before;
        self.given -= count;
        count
    }

    /// Counts and takes under one lock: meanwhile the thread takes none of them.
    fn take_back(
        &mut self,
        is_it: &dyn Fn(&Command) -> bool,
        at_least: usize,
    ) -> Option<Vec<Command>> {
        let mut lists = self.link.lists.lock();
        if lists.incoming.iter().filter(|command| is_it(command)).count() < at_least {
            return None;
        }
        let (taken, left): (Vec<_>, Vec<_>) = lists.incoming.drain(..).partition(|one| is_it(one));
        lists.incoming.extend(left);
        self.given -= taken.len();
        Some(taken)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.link.lists.lock().is_ended = true;
        self.link.has_work.notify_one();
    }
}

/// The thread's side.
struct Driver {
    device: Arc<dyn Device>,
    shared: Arc<Shared>,
    worker: usize,
    link: Arc<Link>,
    queue: Option<Box<dyn QueuePair>>,
    batch: VecDeque<Command>,
    done: Vec<Completion>,
    clock: Clock,
    last_progress: Nanos,
}

impl Driver {
    fn run(mut self) {
        let _ = self.open(); // the first command tries again, and is told why
        loop {
            let in_flight = self.queue.as_ref().map_or(0, |queue| queue.in_flight());
            {
                let mut lists = self.link.lists.lock();
                while lists.incoming.is_empty() && in_flight == 0 && !lists.is_ended {
                    self.link.has_work.wait(&mut lists);
                }
                if lists.is_ended && lists.incoming.is_empty() && in_flight == 0 {
                    return;
                }
                std::mem::swap(&mut self.batch, &mut lists.incoming);
            }
            let now = self.clock.now();
            let had = self.batch.len();
            if had > 0 || in_flight == 0 {
                self.last_progress = now;
            }
            let patience = (now.since(self.last_progress) / 8).clamp(SHORTEST, LONGEST);
            if let Err(error) = self.step(patience) {
                let failed = |Command { tag, op }| Completion {
                    tag,
                    result: Err(error.clone()),
                    buf: op.into_buf(),
                };
                self.done.extend(self.batch.drain(..).map(failed));
                self.clock.sleep(SHORTEST);
            }
            let is_refused = had > 0 && self.batch.len() == had && in_flight == 0;
            self.hand_over();
            if is_refused {
                self.clock.sleep(LONGEST / 10); // it takes nothing and has nothing: it cannot be waited on
            }
        }
    }

    /// Gives the device as many commands as it takes, and takes those that it has finished.
    fn step(&mut self, patience: Duration) -> Result<(), DeviceError> {
        self.open()?;
        let queue = self.queue.as_mut().expect("it is open");
        if !self.batch.is_empty() {
            queue.submit(&mut self.batch)?;
        }
        queue.wait(&mut self.done, Some(patience)).map(drop)
    }

    fn open(&mut self) -> Result<(), DeviceError> {
        if self.queue.is_none() {
            self.queue = Some(self.device.queue_pair(self.shared.limits.device_depth)?);
        }
        Ok(())
    }

    /// Puts back the commands that the device did not take, and hands over those that it has finished.
    fn hand_over(&mut self) {
        if self.batch.is_empty() && self.done.is_empty() {
            return;
        }
        let is_done = !self.done.is_empty();
        {
            let mut lists = self.link.lists.lock();
            // In the order in which they came: before those that have come meanwhile.
            while let Some(command) = self.batch.pop_back() {
                lists.incoming.push_front(command);
            }
            lists.done.append(&mut self.done);
        }
        if is_done {
            self.last_progress = self.clock.now();
            self.shared.mailboxes[self.worker].waker.wake();
        }
    }
}
