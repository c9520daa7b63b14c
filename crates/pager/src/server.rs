//! The pager's thread: reads the messages of descriptors, drives the engine and the device.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::sync::MutexGuard;
use esker_base::{Clock, Nanos};
use esker_device::{Command, Completion, Device, QueuePair};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::awake::Awake;
use crate::chase;
use crate::engine::{Engine, SpaceId};
use crate::greet::{Comes, Door, FIRST_GREETING, Guest, LISTENER};
use crate::inject;
use crate::link::Link;
use crate::protocol::HelperOrder;
use crate::shared::Shared;
use crate::space::Reach;
use crate::trap::Traps;
use crate::types::{Options, PagerError, Stats};
use crate::uffd::{Message, Uffd};

/// Commands in flight.
const DEPTH: usize = 256;
/// How long the device is waited for while faults may come.
const GLANCE: Duration = Duration::from_micros(40);
/// How long faults are looked for before the thread sleeps: after one was served, the next one often comes sooner
/// than a sleeping thread is woken.
const LOOK: Duration = Duration::from_micros(50);
/// Of the last looks, so many more may have been in vain than not, before they are given up for a while.
const MOST_VAIN: u32 = 16;
/// For so many faults.
const GIVEN_UP: u32 = 512;

/// How often failed writes and ended processes are looked at.
const TICK: Duration = Duration::from_millis(10);

/// Messages that are kept while a process forks; more stay with the kernel.
const STASH: usize = 256;

const WAKER: u64 = 1;
/// System calls of programs; between the numbers of spaces and those of helpers.
const TRAPS: u64 = 1 << 35;
const FIRST_SPACE: u64 = 2;
/// The first number of a helper, above all those of spaces.
const FIRST_HELPER: u64 = 1 << 36;

/// A pager that serves other processes, and its thread.
pub struct Pager {
    shared: Arc<Shared>,
    threads: Threads,
    name: String,
    region: usize,
}

impl Pager {
    /// Starts a pager to which programs connect.
    ///
    /// # Errors
    /// Options that do not fit the device, or the system's.
    pub fn start(device: Arc<dyn Device>, options: Options) -> Result<Pager, PagerError> {
        let (listener, name) = listen()?;
        let server = Server::new(device, options, Some(listener))?;
        let shared = server.shared.clone();
        let region = shared.engine.lock().region_size();
        let threads = Threads::start(server, options.read_ahead)?;
        Ok(Pager { shared, threads, name, region })
    }

    /// Value for the variable `ESKER_PAGER`, by which a program finds the pager.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.name, self.region)
    }

    /// The name of its socket, and the size of a region.
    pub(crate) fn place(&self) -> (&str, usize) {
        (&self.name, self.region)
    }

    /// The figures of this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.engine.lock().stats()
    }

    /// Where the process whose exit is held says that its pager has ended, should that be killed.
    pub fn set_output(&self, output: Option<OwnedFd>) {
        self.shared.engine.lock().output = output;
    }

    /// Holds the exit of a process, if it is the last one that is served then, until [`Pager::let_exit`].
    pub fn hold_exit(&self, pid: u32) {
        let mut engine = self.shared.engine.lock();
        (engine.held, engine.is_held) = (pid, false);
    }

    /// Has processors stay awake while faults come often, or not. It concerns the whole machine, and takes root.
    pub fn set_awake(&self, is_wanted: bool) {
        self.shared.engine.lock().awake = is_wanted.then(Awake::default);
    }

    /// Whether a program is ended of whose memory more than the budget is not paged.
    pub fn set_strict(&self, strict: bool) {
        self.shared.engine.lock().strict = strict;
    }

    /// Has the pager follow the system calls of programs that come from here.
    /// Into programs that load no libraries it puts the one at `library`.
    pub fn follow_calls(&self, traps: Traps, library: PathBuf) {
        let traps = Arc::new(traps);
        let address = (self.name.clone(), self.region);
        let unserved = inject::start(traps.clone(), address, library, &self.shared);
        self.shared.engine.lock().set_traps(traps, unserved);
        self.shared.wake();
    }

    /// Whether a process is left whose system calls come from there.
    #[must_use]
    pub fn has_callers(&self) -> bool {
        self.shared.engine.lock().has_callers()
    }

    /// Whether that process waits to exit.
    #[must_use]
    pub fn is_exit_held(&self) -> bool {
        self.shared.engine.lock().is_held
    }

    /// Lets it exit.
    pub fn let_exit(&self) {
        self.hold_exit(0);
        self.shared.wake();
    }

    /// Events that the user has to know, since the last call.
    #[must_use]
    pub fn reports(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.engine.lock().reports)
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.threads.end(&self.shared);
    }
}

/// A socket that programs connect to, and its name.
pub(crate) fn listen() -> Result<(UnixListener, String), PagerError> {
    let (pid, unique) = (std::process::id(), esker_base::clock::unix_time().as_nanos());
    let name = format!("esker-pager-{pid}-{unique:x}");
    let failed = |error| PagerError::system("the socket for programs", error);
    let address = SocketAddr::from_abstract_name(&name).map_err(failed)?;
    let listener = UnixListener::bind_addr(&address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok((listener, name))
}

/// The thread that serves faults, and the one that follows walks.
pub(crate) struct Threads {
    server: Option<std::thread::JoinHandle<()>>,
    chaser: Option<std::thread::JoinHandle<()>>,
}

impl Threads {
    /// Starts the threads; with one alone nothing is read ahead of a snapshot's walk.
    pub(crate) fn start(server: Server, with_chaser: bool) -> Result<Threads, PagerError> {
        let shared = server.shared.clone();
        let server = Some(server.spawn()?);
        let chaser = if with_chaser { chase::spawn(shared).ok() } else { None };
        Ok(Threads { server, chaser })
    }

    /// Forgets them, in a forked child, which has not got them: their handles would let go of threads of its own.
    pub(crate) fn leave(&mut self) {
        std::mem::forget((self.server.take(), self.chaser.take()));
    }

    /// Ends the threads.
    pub(crate) fn end(&mut self, shared: &Shared) {
        shared.stop_chasing();
        // A thread that panicked has said so.
        let _ = self.chaser.take().map(std::thread::JoinHandle::join);
        shared.stop();
        let _ = self.server.take().map(std::thread::JoinHandle::join);
    }
}

/// Whether looking for faults pays.
#[derive(Default)]
struct Look {
    /// Until when, after the last fault.
    until: Nanos,
    is_open: bool,
    vain: u32,
    /// Faults until it is tried again.
    rest: u32,
}

impl Look {
    /// A fault was served, or something else happened that faults may follow.
    fn served(&mut self, now: Nanos) {
        if self.is_open {
            self.vain = self.vain.saturating_sub(1);
        }
        self.rest = self.rest.saturating_sub(1);
        self.is_open = self.rest == 0;
        self.until = now + LOOK;
    }

    fn goes_on(&mut self, now: Nanos) -> bool {
        if self.is_open && now >= self.until {
            self.is_open = false;
            self.vain += 2;
            if self.vain > MOST_VAIN {
                (self.vain, self.rest) = (MOST_VAIN / 2, GIVEN_UP);
            }
        }
        self.is_open
    }
}

/// The thread's own.
pub(crate) struct Server {
    pub(crate) shared: Arc<Shared>,
    queue: Box<dyn QueuePair>,
    commands: VecDeque<Command>,
    done: Vec<Completion>,
    epoll: OwnedFd,
    door: Option<Door>,
    clock: Clock,
    ticked: Nanos,
    look: Look,
    has_traps: bool,
    watched: Vec<(SpaceId, Arc<Uffd>)>,
    /// Messages that were read while a process forked.
    stash: Vec<(SpaceId, Message)>,
}

impl Server {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        options: Options,
        listener: Option<UnixListener>,
    ) -> Result<Server, PagerError> {
        let queue = device.queue_pair(DEPTH)?;
        let engine = Engine::new(device, options)?;
        let failed = |error: rustix::io::Errno| PagerError::system("waiting", error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = eventfd(0, flags).map_err(failed)?;
        let data = epoll::EventData::new_u64(WAKER);
        epoll::add(&epoll, &waker, data, epoll::EventFlags::IN).map_err(failed)?;
        let door = listener.map(|listener| Door::new(listener, engine.region_size()));
        if let Some(door) = &door {
            door.open(&epoll).map_err(failed)?;
        }
        let shared = Arc::new(Shared::new(engine, waker));
        let (commands, done, clock) = (VecDeque::new(), Vec::new(), Clock::real());
        let (watched, stash) = (Vec::new(), Vec::with_capacity(STASH));
        let ticked = Nanos(0);
        Ok(Server {
            shared,
            queue,
            commands,
            done,
            epoll,
            door,
            clock,
            ticked,
            look: Look::default(),
            has_traps: false,
            watched,
            stash,
        })
    }

    pub(crate) fn spawn(mut self) -> Result<std::thread::JoinHandle<()>, PagerError> {
        // A thread that waits for a page would wait for ever for one that has panicked.
        let run = move || {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.run()));
            if caught.is_err() {
                std::process::abort();
            }
        };
        esker_base::thread::spawn("pager", run)
            .map_err(|error| PagerError::system("starting a thread", error))
    }

    /// Watches a space's descriptor.
    pub(crate) fn watch(&mut self, engine: &Engine, id: SpaceId) -> io::Result<()> {
        let Some(space) = engine.spaces.get(&id) else { return Ok(()) };
        self.watched.push((id, space.uffd.clone()));
        let data = epoll::EventData::new_u64(u64::from(id) + FIRST_SPACE);
        Ok(epoll::add(&self.epoll, &*space.uffd, data, epoll::EventFlags::IN)?)
    }

    fn run(&mut self) {
        let mut did = true;
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.shared.forks.load(Ordering::SeqCst) > 0 {
                self.park();
            }
            let mut events = [0u64; 16];
            let count = self.wait(did, &mut events);
            did = self.turn(&events[..count]);
        }
        // Programs that go on have no memory any more. Commands in flight end with the queue pair.
        let part = HelperOrder { count: HelperOrder::PART, ..HelperOrder::empty() };
        for space in self.shared.engine.lock().spaces.values_mut() {
            if space.areas.count() > 0 {
                space.link.as_ref().map(Link::kill);
            }
            let parted = space.link.take_if(|link| link.send(&part).is_ok());
            parted.inspect(Link::await_end);
        }
    }

    /// Reads messages of descriptors and keeps them, until nobody forks any more.
    fn park(&mut self) {
        self.shared.parked.store(true, Ordering::SeqCst);
        while self.shared.forks.load(Ordering::SeqCst) > 0 {
            for (id, uffd) in &self.watched {
                if self.stash.len() < STASH {
                    uffd.read(1, |message| self.stash.push((*id, message)));
                }
            }
            std::thread::yield_now();
        }
        let shared = self.shared.clone();
        let mut engine = shared.engine.lock();
        for (id, message) in std::mem::replace(&mut self.stash, Vec::with_capacity(STASH)) {
            self.tell(&mut engine, id, message);
        }
        shared.parked.store(false, Ordering::SeqCst);
    }

    /// Waits for something to do, unless there may be some already.
    fn wait(&mut self, at_once: bool, events: &mut [u64; 16]) -> usize {
        let (is_urgent, is_waiting) = {
            let engine = self.shared.engine.lock();
            (engine.reads_for_faults() > 0, engine.is_waiting())
        };
        let in_flight = self.queue.in_flight() > 0;
        let mut span = TICK;
        if at_once || self.look.goes_on(self.clock.now()) && !is_urgent {
            span = Duration::ZERO;
        } else if in_flight && is_urgent {
            span = Duration::ZERO;
            if let Err(error) = self.queue.wait(&mut self.done, Some(GLANCE)) {
                self.shared.engine.lock().reports.push(error.to_string());
            }
        } else if in_flight || is_waiting {
            span = GLANCE;
        }
        let span = Timespec { tv_sec: 0, tv_nsec: i64::from(span.subsec_nanos()) };
        let mut found = Vec::with_capacity(events.len());
        let buffer = rustix::buffer::spare_capacity(&mut found);
        match epoll::wait(&self.epoll, buffer, Some(&span)) {
            Ok(_) => {}
            Err(_) => return 0,
        }
        for (to, event) in events.iter_mut().zip(&found) {
            *to = event.data.u64();
        }
        found.len()
    }

    /// Does the work that is due, and says whether there was anything.
    fn turn(&mut self, events: &[u64]) -> bool {
        let mut did = !events.is_empty();
        let (guests, refusal) = self.greet(events);
        let shared = self.shared.clone();
        let mut engine = shared.engine.lock();
        engine.reports.extend(refusal);
        guests.into_iter().for_each(|guest| self.take_in(&mut engine, guest));
        for &event in events {
            match event {
                LISTENER | FIRST_GREETING.. => {}
                TRAPS if engine.hold_call() => {}
                TRAPS => drop(engine.traps().map(|traps| epoll::delete(&self.epoll, traps))),
                FIRST_HELPER.. => self.hear(&mut engine, event - FIRST_HELPER),
                WAKER => {
                    let mut bytes = [0; 8];
                    let _ = rustix::io::read(&shared.waker, &mut bytes);
                    self.watch_traps(&mut engine);
                }
                _ => {
                    self.look.served(self.clock.now());
                    self.listen(&mut engine, event - FIRST_SPACE);
                }
            }
        }
        if let Err(error) = self.queue.poll(&mut self.done) {
            engine.reports.push(error.to_string());
        }
        for completion in self.done.drain(..) {
            did |= engine.complete(completion);
            self.look.until = self.clock.now() + LOOK;
        }
        did |= engine.step();
        let now = self.clock.now();
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            engine.tick();
            // A thread that still waits for a page of a space that is gone is woken when its descriptor is
            // closed.
            self.watched.retain(|(_, uffd)| Arc::strong_count(uffd) > 1);
        }
        self.commands.append(&mut engine.commands);
        if shared.is_awaited.load(Ordering::Relaxed) {
            // This thread would have it again before another one has woken.
            MutexGuard::unlock_fair(engine);
        } else {
            drop(engine);
        }
        if !self.commands.is_empty()
            && let Err(error) = self.queue.submit(&mut self.commands)
        {
            shared.engine.lock().reports.push(error.to_string());
        }
        did
    }

    /// Reads the messages of a space's descriptor.
    fn listen(&mut self, engine: &mut Engine, id: u64) {
        let Ok(id) = SpaceId::try_from(id) else { return };
        let mut messages = Vec::with_capacity(16);
        if let Some(space) = engine.spaces.get(&id) {
            space.uffd.read(16, |message| messages.push(message));
        }
        for message in messages {
            self.tell(engine, id, message);
        }
    }

    fn tell(&mut self, engine: &mut Engine, id: SpaceId, message: Message) {
        let Some(child) = engine.told(id, message) else { return };
        if let Err(error) = self.watch(engine, child) {
            engine.reports.push(format!("a forked child is not served: {error}"));
        }
        self.shared.rouse();
    }

    /// Accepts programs and reads their greetings. Nothing here waits, and the engine is not locked.
    fn greet(&mut self, events: &[u64]) -> (Vec<Guest>, Option<String>) {
        let Some(door) = &mut self.door else { return (Vec::new(), None) };
        let now = self.clock.now();
        let mut guests = Vec::new();
        for &event in events {
            match event {
                LISTENER => door.accept(&self.epoll, now),
                FIRST_GREETING.. => guests.extend(door.hear(event, &self.epoll)),
                _ => {}
            }
        }
        if now.since(self.ticked) >= TICK {
            door.tick(&self.epoll, now);
        }
        (guests, door.refusal(now))
    }

    /// Serves a program's region from now on.
    fn take_in(&mut self, engine: &mut Engine, guest: Guest) {
        if let Err(why) = self.try_take_in(engine, guest) {
            engine.reports.push(format!("a program was not connected: {why}"));
        }
    }

    fn try_take_in(&mut self, engine: &mut Engine, guest: Guest) -> Result<(), String> {
        let Guest { link, memory, own_pid, base, requests, comes } = guest;
        let told = |error: io::Error| error.to_string();
        let is_main = engine.held == link.pid();
        match comes {
            Comes::Alone(uffd) => {
                let region = (base, engine.region_size());
                let id = engine.add_space(uffd, Reach::Process, region, requests);
                let taken = self.watch(engine, id).and_then(|()| self.watch_helper(id, &link));
                let output = engine.output.as_ref().filter(|_| is_main).map(OwnedFd::as_fd);
                let accepted = taken.and_then(|()| link.accept(output.as_slice()));
                if let Err(error) = accepted {
                    engine.remove(id);
                    return Err(told(error));
                }
                let space = engine.spaces.get_mut(&id).expect("just added");
                space.own_pid = own_pid;
                space.runs = link.runs;
                (space.link, space.memory) = (Some(link), Some(memory));
            }
            Comes::Forked(token) => {
                let id = engine.child_of(token)?;
                self.watch_helper(id, &link).map_err(told)?;
                let space = engine.spaces.get_mut(&id).expect("looked up above");
                link.accept(&[space.uffd.as_fd()]).map_err(told)?;
                space.own_pid = own_pid;
                (space.link, space.memory) = (Some(link), Some(memory));
                self.shared.rouse();
            }
        }
        Ok(())
    }

    /// Watches a helper's socket.
    fn watch_helper(&self, id: SpaceId, link: &Link) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(id) + FIRST_HELPER);
        Ok(epoll::add(&self.epoll, link, data, epoll::EventFlags::IN)?)
    }

    /// Watches for system calls of programs, once it is known where they come from.
    fn watch_traps(&mut self, engine: &mut Engine) {
        let Some(traps) = engine.traps().filter(|_| !self.has_traps) else { return };
        let data = epoll::EventData::new_u64(TRAPS);
        match epoll::add(&self.epoll, traps, data, epoll::EventFlags::IN) {
            Ok(()) => self.has_traps = true,
            Err(error) => engine.reports.push(format!("system calls are not followed: {error}")),
        }
    }

    /// Takes the outcome of a helper's order.
    fn hear(&mut self, engine: &mut Engine, id: u64) {
        let Ok(id) = SpaceId::try_from(id) else { return };
        let Some(link) = engine.spaces.get(&id).and_then(|space| space.link.as_ref()) else {
            return;
        };
        match link.receive() {
            Ok(Some(outcome)) => engine.heard(id, outcome),
            Ok(None) => {}
            // It has ended, as its program may have; that is seen soon.
            Err(_) => drop(epoll::delete(&self.epoll, link)),
        }
    }
}
