//! The threads between `/dev/fuse` and the engine.
//!
//! One thread *leads*: it alone waits for requests, because the kernel would wake all threads that wait for
//! each one. The others sleep until there is more than one thread can do: the leader finds a batch
//! of requests at once, or was kept from looking for requests by a slow device.
//!
//! A core that has gone to sleep takes long to wake (tens of microseconds on a virtual machine), so
//! a thread looks again and again for a moment before it waits, as long as that has paid off; and
//! the leader can keep the cores of processes that wait for replies from going to sleep.
//!
//! Invariants
//! 1. A reply goes out through the channel that its request came in by.
//! 2. While requests are under way, the leader looks for new ones every [`ATTENTION`] or more often, and of a
//!    device that is silent for longer each time a quarter of the silence has passed, up to [`INATTENTION`].
//!    Where the device holds it up, another thread looks.
//! 3. When a thread ends, all end, and the kernel closes the connection: nobody waits for a reply
//!    that will not come.

pub(crate) mod awake;
mod spin;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use esker_base::{Clock, Nanos};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::engine::{Accepted, BATCH, Engine, Message, Replies, Volume};
use crate::wire::header;
use awake::Awake;
use spin::Spin;

/// How long the leader waits for the device at most before it looks for requests.
const ATTENTION: Duration = Duration::from_micros(100);
/// The same of a device that is slow or silent: every look costs processor time.
const INATTENTION: Duration = Duration::from_millis(20);
/// How long the others do.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a thread looks for completions before it waits for the device, and one that does not
/// lead looks for requests.
const GLANCE: Duration = Duration::from_micros(20);
/// A device that takes so long to take commands keeps the leader from looking for requests.
const HOLD_UP: Duration = Duration::from_micros(300);
/// How long another thread looks for requests after that, and how often.
const WATCH: Duration = Duration::from_secs(1);
const WATCH_STEP: Duration = Duration::from_micros(500);
/// How soon a change that waits for another thread's tries again, where that is soon.
const PARKED_STEP: Duration = Duration::from_micros(50);

/// State that the threads of one connection share.
pub(crate) struct Shared {
    pub(crate) volume: Arc<Volume>,
    clock: Clock,
    ended: AtomicBool,
    /// Readable once the leader has to end.
    stop: OwnedFd,
    /// How many threads sleep, and how often they were called.
    sleeping: AtomicUsize,
    calls: Mutex<u64>,
    called: Condvar,
    /// Until when another thread than the leader looks for requests.
    watch_until_ns: AtomicU64,
}

impl Shared {
    pub(crate) fn new(volume: Arc<Volume>) -> Result<Shared, Errno> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(Shared {
            volume,
            clock: Clock::real(),
            ended: AtomicBool::new(false),
            stop: rustix::event::eventfd(0, flags)?,
            sleeping: AtomicUsize::new(0),
            calls: Mutex::new(0),
            called: Condvar::new(),
            watch_until_ns: AtomicU64::new(0),
        })
    }

    /// Whether the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Ends all threads.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        // It is full only if it was written to before.
        let _ = rustix::io::write(&self.stop, &1u64.to_le_bytes());
        *self.calls.lock() += 1;
        self.called.notify_all();
    }

    /// Wakes a thread that sleeps, if there is one.
    fn call(&self) {
        if self.sleeping.load(Ordering::Relaxed) > 0 {
            *self.calls.lock() += 1;
            self.called.notify_one();
        }
    }

    /// Sleeps until called, or for `span`.
    fn sleep(&self, span: Option<Duration>) {
        let mut calls = self.calls.lock();
        let before = *calls;
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        while *calls == before && !self.has_ended() {
            match span {
                Some(span) => {
                    self.called.wait_for(&mut calls, span);
                    break;
                }
                None => self.called.wait(&mut calls),
            }
        }
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_watched(&self, now: Nanos) -> bool {
        now.0 < self.watch_until_ns.load(Ordering::Relaxed)
    }
}

/// Ends everything when a thread ends, however it does.
struct EndOfThread(Arc<Shared>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// How the leader waits for requests.
pub(crate) struct Leading {
    /// How long it looks for one before it sleeps.
    pub(crate) spin: Duration,
    /// Handle that keeps idle processors from halting meanwhile.
    pub(crate) awake: Option<Awake>,
}

/// Serves requests until the connection ends. Whichever thread answers the first request says
/// through `begun` that the kernel and we have agreed how to speak.
pub(crate) fn serve(
    shared: Arc<Shared>,
    channel: OwnedFd,
    engine: Engine,
    leading: Option<Leading>,
    begun: Sender<()>,
) {
    let max_write = shared.volume.max_write;
    let _end = EndOfThread(shared.clone());
    let is_leader = leading.is_some();
    let Leading { spin, awake } = leading.unwrap_or(Leading { spin: GLANCE, awake: None });
    let mut thread = Thread {
        is_leader,
        shared,
        channel: Channel(channel),
        engine,
        message: Message::new(max_write),
        requests: Spin::new(spin),
        device: Spin::new(GLANCE),
        awake,
        begun,
        last_event: Nanos::default(),
    };
    while thread.round() {}
}

struct Thread {
    shared: Arc<Shared>,
    channel: Channel,
    engine: Engine,
    message: Message,
    is_leader: bool,
    /// Whether to look again and again for requests, and for completions.
    requests: Spin,
    device: Spin,
    awake: Option<Awake>,
    begun: Sender<()>,
    /// When a request or a completion came last.
    last_event: Nanos,
}

impl Thread {
    /// One round; false when the connection has ended.
    fn round(&mut self) -> bool {
        let mut taken = 0;
        while taken < BATCH && self.engine.has_room() {
            match self.channel.receive(&mut self.message) {
                Ok(true) => taken += 1,
                Ok(false) => break,
                Err(_) => return false,
            }
            match self.engine.accept(&mut self.message, &mut self.channel) {
                Accepted::Well => {}
                Accepted::Begun => {
                    // A client that does not listen any more has given up.
                    let _ = self.begun.send(());
                }
                Accepted::Ended => return false,
            }
        }
        let clock = &self.shared.clock;
        let before = clock.now();
        if taken == BATCH && self.is_leader {
            self.shared.call();
        }
        let completed = self.engine.turn(&mut self.channel);
        let now = clock.now();
        if self.is_leader && now - before > HOLD_UP {
            let until = now + WATCH;
            self.shared.watch_until_ns.store(until.0, Ordering::Relaxed);
            self.shared.call();
            self.let_sleep();
        }
        if taken > 0 {
            self.requests.came(now);
            if let Some(awake) = &mut self.awake {
                awake.came();
            }
        }
        if completed > 0 {
            self.device.came(now);
        }
        if taken + completed == 0 {
            self.rest(now);
        } else {
            self.last_event = now;
        }
        !self.shared.has_ended()
    }

    /// Processors that are idle need not be kept awake now.
    fn let_sleep(&mut self) {
        if let Some(awake) = &mut self.awake {
            awake.rest();
        }
    }

    /// There was nothing to do.
    fn rest(&mut self, now: Nanos) {
        let is_parked = self.engine.is_parked() && self.engine.is_still();
        let is_under_way = self.engine.under_way() > 0;
        let is_worth_it = match is_under_way {
            true => !is_parked && self.device.is_worth_it(now),
            false => self.requests.is_worth_it(now),
        };
        if is_worth_it {
            return std::hint::spin_loop();
        }
        self.let_sleep();
        let quiet = now.since(self.last_event) / 4;
        if is_parked {
            self.shared.clock.sleep(quiet.clamp(PARKED_STEP, INATTENTION));
        } else if is_under_way {
            let patience = match self.is_leader {
                true => quiet.clamp(ATTENTION, INATTENTION),
                false => PATIENCE,
            };
            if self.engine.wait(patience, &mut self.channel) > 0 {
                self.last_event = self.shared.clock.now();
                self.device.came(self.last_event);
            }
        } else if self.is_leader {
            self.channel.wait(&self.shared.stop);
        } else {
            let span = self.shared.is_watched(now).then_some(WATCH_STEP);
            self.shared.sleep(span);
        }
    }
}

/// One end of a connection.
struct Channel(OwnedFd);

impl Channel {
    /// Takes the next request, if there is one.
    fn receive(&self, message: &mut Message) -> Result<bool, Errno> {
        let Message { head, data, size } = message;
        let mut room = [IoSliceMut::new(head), IoSliceMut::new(data)];
        loop {
            match rustix::io::readv(&self.0, &mut room) {
                Ok(read) => {
                    *size = read;
                    return Ok(true);
                }
                Err(Errno::AGAIN) => return Ok(false),
                // ENOENT: whoever asked has given up.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Waits for a request, or for the end.
    fn wait(&self, stop: &OwnedFd) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        // Whatever woke it is found out by looking.
        let _ = rustix::event::poll(&mut fds, None);
    }
}

impl Replies for Channel {
    fn reply(&mut self, unique: u64, outcome: Result<(), Errno>, body: &[&[u8]]) {
        let size = body.iter().map(|part| part.len()).sum();
        let head = header(unique, outcome, size);
        // An error says that whoever asked has given up, or that the connection has ended.
        let _ = match body {
            [] => rustix::io::write(&self.0, &head),
            [body] => rustix::io::writev(&self.0, &[IoSlice::new(&head), IoSlice::new(body)]),
            _ => {
                let mut slices = Vec::with_capacity(body.len() + 1);
                slices.push(IoSlice::new(&head));
                slices.extend(body.iter().map(|part| IoSlice::new(part)));
                rustix::io::writev(&self.0, &slices)
            }
        };
    }
}
