//! The pager's states in all orders: the engine as it is, above the small kernel of this file, under a
//! scheduler that decides which thread goes on (`shuttle`).
//!
//! Threads of a program read and write pages and look for their last writes; one forks, and the child looks for the
//! content at that time. A device ends commands in any order. A helper moves and drops, one page after the
//! other, and finds some pages pinned. A thread that waits for a page sleeps until it is woken: if nobody does that,
//! the scheduler tells of a deadlock.
//!
//! `ESKER_SCHEDULES=100000 cargo test --release -p esker-pager --lib model -- --nocapture`

#![allow(unsafe_code)]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use esker_base::units::to_usize;
use esker_base::{Clock, Rng};
use esker_device::{Command, Completion, MemoryDevice, Op};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use crate::engine::{Engine, SpaceId};
use crate::protocol::{FIRST_PAGE, HelperOrder, Outcome, WINDOW};
use crate::raw::Errno;
use crate::space::Reach;
use crate::types::{Options, PAGE, Page};
use crate::uffd::{COPY, Message, POISON, Uffd, WAKE, WRITE_PROTECT};

const BASE: usize = 1 << 30;
/// Pages that the program uses.
const PAGES: u32 = 6;
/// Pages that may be in memory.
const LIMIT: usize = 3;
const STEPS: usize = 6;
/// Pages of the device: so few that each is used again.
const SLOTS: u64 = 36;

/// Pages that came back from compressed copies, in all schedules.
static RESTORED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// A page that is there: its first word, and whether it may not be written.
#[derive(Clone, Copy, Debug)]
struct Frame {
    word: u64,
    is_protected: bool,
}

/// One address space as its kernel has it.
#[derive(Debug, Default)]
pub(crate) struct Model {
    state: Mutex<Kernel>,
    woken: Condvar,
}

#[derive(Debug, Default, Clone)]
struct Kernel {
    frames: BTreeMap<usize, Frame>,
    /// Pages that threads sleep for.
    sleeping: BTreeSet<usize>,
    /// Orders that the helper is to carry out.
    orders: Vec<HelperOrder>,
}

impl Model {
    /// The ioctls of userfaultfd.
    pub(crate) fn control(&self, request: usize, args: &mut [u64]) -> Result<(), Errno> {
        let addr = to_usize(args[0]);
        let mut kernel = self.state.lock().unwrap();
        match request {
            COPY => {
                let (source, size, mode) = (to_usize(args[1]), to_usize(args[2]), args[3]);
                for offset in (0..size).step_by(PAGE) {
                    let from = std::ptr::with_exposed_provenance::<u64>(source + offset);
                    // SAFETY: the engine's promise for its copies.
                    let words = unsafe { std::slice::from_raw_parts(from, PAGE / 8) };
                    let frame = Frame { word: words[0], is_protected: mode & 2 != 0 };
                    let Entry::Vacant(free) = kernel.frames.entry(addr + offset) else {
                        args[4] = offset as u64;
                        return Err(Errno(if offset > 0 { libc::EAGAIN } else { libc::EEXIST }));
                    };
                    free.insert(frame);
                    kernel.sleeping.remove(&(addr + offset));
                }
                args[4] = size as u64;
            }
            WRITE_PROTECT | WAKE | POISON => {
                for page in (addr..addr + to_usize(args[1])).step_by(PAGE) {
                    let is_on = args.get(2).is_some_and(|mode| mode & 1 != 0);
                    if request == WRITE_PROTECT
                        && let Some(frame) = kernel.frames.get_mut(&page)
                    {
                        frame.is_protected = is_on;
                    }
                    if request != WRITE_PROTECT || !is_on {
                        kernel.sleeping.remove(&page);
                    }
                }
            }
            _ => return Err(Errno(libc::EINVAL)),
        }
        drop(kernel);
        self.woken.notify_all();
        Ok(())
    }

    pub(crate) fn read(&self, addr: usize, to: &mut [u8]) -> usize {
        let kernel = self.state.lock().unwrap();
        for (n, page) in to.chunks_mut(PAGE).enumerate() {
            let Some(frame) = kernel.frames.get(&(addr + n * PAGE)) else { return n * PAGE };
            page.fill(0);
            page[..8].copy_from_slice(&frame.word.to_ne_bytes());
        }
        to.len()
    }

    pub(crate) fn take_order(&self, order: &HelperOrder) {
        self.state.lock().unwrap().orders.push(*order);
    }

    pub(crate) fn is_there(&self, addr: usize) -> bool {
        self.state.lock().unwrap().frames.contains_key(&addr)
    }
}

/// State that a scenario's threads share. The engine's lock comes before a kernel's.
struct World {
    engine: Mutex<Engine>,
    /// Each space's kernel, with its number.
    spaces: Mutex<Vec<(SpaceId, std::sync::Arc<Model>)>>,
    programs: std::sync::atomic::AtomicUsize,
}

type Shared = std::sync::Arc<World>;

fn uffd(model: std::sync::Arc<Model>) -> Uffd {
    let mut uffd = Uffd::from(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
    uffd.model = Some(model);
    uffd
}

fn engine(read_ahead: bool) -> Engine {
    let device = std::sync::Arc::new(MemoryDevice::new("memory", SLOTS * PAGE as u64, 4096));
    let slow_bytes = to_usize(SLOTS) * PAGE;
    let options = Options { budget_bytes: 4 << 20, slow_bytes, read_ahead, compress: true };
    Engine::new(device, options).unwrap()
}

fn world() -> Shared {
    let mut engine = engine(false);
    engine.make_small(LIMIT, Clock::virtual_time());
    let model = std::sync::Arc::<Model>::default();
    let region = (BASE, (FIRST_PAGE + PAGES) as usize * PAGE);
    let id = engine.add_space(uffd(model.clone()), Reach::Process, region, 0);
    engine.reserve(id, 0, PAGES as usize * PAGE).unwrap();
    let (engine, spaces) = (Mutex::new(engine), Mutex::new(vec![(id, model)]));
    std::sync::Arc::new(World { engine, spaces, programs: 0.into() })
}

/// Touches a page, as a processor does: again and again, until the page is there.
fn touch(
    world: &World,
    (id, model): &(SpaceId, std::sync::Arc<Model>),
    page: Page,
    write: Option<u64>,
) -> u64 {
    let addr = BASE + page as usize * PAGE;
    loop {
        let mut kernel = model.state.lock().unwrap();
        let is_protected = match kernel.frames.get_mut(&addr) {
            Some(frame) if write.is_none() || !frame.is_protected => {
                frame.word = write.unwrap_or(frame.word);
                return frame.word;
            }
            Some(_) => true,
            None => false,
        };
        kernel.sleeping.insert(addr);
        drop(kernel);
        let mut engine = world.engine.lock().unwrap();
        engine.take_fault(*id, page, write.is_some(), is_protected);
        engine.step();
        drop(engine);
        let mut kernel = model.state.lock().unwrap();
        while kernel.sleeping.contains(&addr) {
            kernel = model.woken.wait(kernel).unwrap();
        }
    }
}

/// Runs the device until all programs have ended.
fn device(world: &World, seed: u64) {
    let (mut rng, mut flash) = (Rng::new(seed), BTreeMap::<u64, Vec<u8>>::new());
    let mut commands: Vec<Command> = Vec::new();
    while world.programs.load(std::sync::atomic::Ordering::SeqCst) > 0 {
        let mut engine = world.engine.lock().unwrap();
        engine.step();
        commands.extend(engine.commands.drain(..));
        if !commands.is_empty() {
            let at = usize::try_from(rng.below(commands.len() as u64)).unwrap();
            let Command { tag, op } = commands.swap_remove(at);
            let buf = match op {
                Op::Write { lba, buf, .. } => {
                    for (n, page) in buf.chunks(PAGE).enumerate() {
                        flash.insert(lba.0 + n as u64, page.to_vec());
                    }
                    buf
                }
                Op::Read { lba, mut buf } => {
                    for (n, page) in buf.chunks_mut(PAGE).enumerate() {
                        page.copy_from_slice(&flash[&(lba.0 + n as u64)]);
                    }
                    buf
                }
                other => panic!("{other:?}"),
            };
            engine.complete(Completion { tag, result: Ok(()), buf: Some(buf) });
            engine.step();
        }
        drop(engine);
        thread::yield_now();
    }
}

/// Carries out the pager's orders, until all programs have ended.
fn helper(world: &World, seed: u64) {
    let mut rng = Rng::new(seed);
    while world.programs.load(std::sync::atomic::Ordering::SeqCst) > 0 {
        let spaces = world.spaces.lock().unwrap().clone();
        for (id, model) in spaces {
            let orders = std::mem::take(&mut model.state.lock().unwrap().orders);
            for order in orders {
                let outcome = carry_out(&model, &order, &mut rng);
                let mut engine = world.engine.lock().unwrap();
                engine.left(id, outcome);
                engine.pass_time();
                engine.step();
            }
        }
        thread::yield_now();
    }
}

fn carry_out(model: &Model, order: &HelperOrder, rng: &mut Rng) -> Outcome {
    let window = |n: usize| BASE + (WINDOW as usize + n) * PAGE;
    let mut outcome = Outcome::default();
    for n in 0..to_usize(order.count) {
        model.state.lock().unwrap().frames.remove(&window(n));
    }
    for (n, page) in order.pages.iter().take(to_usize(order.count)).enumerate() {
        let is_moved = n < to_usize(order.moves);
        let mut kernel = model.state.lock().unwrap();
        if is_moved && rng.chance(1, 6) {
            // Pinned, or its memory may not be written.
            outcome.barred |= u64::from(rng.chance(1, 2)) << n;
        } else if let Some(frame) = kernel.frames.remove(&to_usize(*page)) {
            outcome.done |= 1 << n;
            if is_moved {
                kernel.frames.insert(window(n), frame);
            }
        } else {
            outcome.gone |= 1 << n;
        }
        drop(kernel);
        thread::yield_now();
    }
    outcome
}

/// Writes and reads pages of its own, of which it knows the content.
fn program(
    world: &World,
    space: &(SpaceId, std::sync::Arc<Model>),
    mine: &[(Page, u64)],
    seed: u64,
) {
    let (mut rng, mut known) = (Rng::new(seed), mine.to_vec());
    for step in 0..STEPS {
        let at = usize::try_from(rng.below(known.len() as u64)).unwrap();
        let (page, word) = &mut known[at];
        if rng.chance(1, 2) {
            *word = (seed << 16) | (step as u64 + 1);
            touch(world, space, *page, Some(*word));
        } else {
            assert_eq!(touch(world, space, *page, None), *word, "page {page}");
        }
    }
    for (page, word) in known {
        assert_eq!(touch(world, space, page, None), word, "page {page} at the end");
    }
}

fn run(world: &Shared, work: impl FnOnce(&World) + Send + 'static) -> thread::JoinHandle<()> {
    world.programs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let world = world.clone();
    thread::spawn(move || {
        work(&world);
        world.programs.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
    })
}

fn scenario() {
    let world = world();
    let parent = world.spaces.lock().unwrap()[0].clone();
    let half = |first: Page| {
        (first..first + PAGES / 2).map(|page| (FIRST_PAGE + page, 0)).collect::<Vec<_>>()
    };
    let seed = shuttle::rand::Rng::r#gen::<u32>(&mut shuttle::rand::thread_rng()).into();
    let (one, pages) = (parent.clone(), half(0));
    let first = run(&world, move |world| program(world, &one, &pages, seed));
    let (shared, other) = (world.clone(), half(PAGES / 2));
    let second = run(&world, move |world| {
        // Writes, forks, and goes on; the child has the old content.
        let written: Vec<(Page, u64)> =
            other.iter().map(|(page, _)| (*page, seed + u64::from(*page))).collect();
        for (page, word) in &written {
            touch(world, &parent, *page, Some(*word));
        }
        let child = {
            let mut engine = world.engine.lock().unwrap();
            let frames = parent.1.state.lock().unwrap().frames.clone();
            let state = Mutex::new(Kernel { frames, ..Kernel::default() });
            let model = std::sync::Arc::new(Model { state, woken: Condvar::new() });
            let id = engine.told(parent.0, Message::Fork(uffd(model.clone()))).expect("a child");
            engine.pass_time();
            (id, model)
        };
        world.spaces.lock().unwrap().push(child.clone());
        let inherited = written.clone();
        let snapshot = run(&shared, move |world| program(world, &child, &inherited, seed + 1));
        program(world, &parent, &written, seed + 2);
        snapshot.join().unwrap();
    });
    let (disk, hand) = (world.clone(), world.clone());
    let disk = thread::spawn(move || device(&disk, seed));
    let hand = thread::spawn(move || helper(&hand, seed));
    for thread in [first, second, disk, hand] {
        thread.join().unwrap();
    }
    let stats = world.engine.lock().unwrap().stats();
    RESTORED.fetch_add(stats.restored_pages, std::sync::atomic::Ordering::SeqCst);
    assert_eq!((stats.vanished_pages, stats.poisoned_pages), (0, 0), "{stats:?}");
}

#[test]
fn pages_keep_their_content_in_every_order() {
    let schedules = std::env::var("ESKER_SCHEDULES").map_or(300, |count| count.parse().unwrap());
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(1_000_000);
    config.silence_warnings = true;
    let random = RandomScheduler::new(schedules / 2);
    let tried = shuttle::Runner::new(random, config.clone()).run(scenario);
    let few_changes = PctScheduler::new(3, schedules - schedules / 2);
    let tried = tried + shuttle::Runner::new(few_changes, config).run(scenario);
    let restored = RESTORED.load(std::sync::atomic::Ordering::SeqCst);
    println!("{tried} schedules, {restored} pages restored");
    assert!(restored > 0);
}

/// Answers all reads with zeroes.
fn answer(engine: &mut Engine) {
    for Command { tag, op } in std::mem::take(&mut engine.commands) {
        let Op::Read { buf, .. } = op else { panic!("{op:?}") };
        engine.complete(Completion { tag, result: Ok(()), buf: Some(buf) });
    }
}

/// Of two threads that wait for pages of one read, the one that waits for the page which is left unmapped as a mark
/// of its stream is woken too.
#[test]
fn two_threads_that_wait_for_one_read_are_both_woken() {
    let scenario = || {
        let (mut engine, model) = (engine(true), std::sync::Arc::<Model>::default());
        let region = (BASE, (FIRST_PAGE + 64) as usize * PAGE);
        let id = engine.add_space(uffd(model.clone()), Reach::Process, region, 0);
        engine.put_out(id, FIRST_PAGE, 32);
        for page in FIRST_PAGE..FIRST_PAGE + 3 {
            answer(&mut engine);
            engine.take_fault(id, page, false, false);
        }
        // The third fault in a row has made a stream, whose mark is the next page.
        let mark = FIRST_PAGE + 3;
        engine.take_fault(id, mark + 2, false, false);
        engine.take_fault(id, mark, false, false);
        answer(&mut engine);
        for page in [mark + 2, mark] {
            assert!(engine.spaces[&id].is_resident(page), "page {page} has not come");
            assert!(model.is_there(BASE + page as usize * PAGE));
        }
    };
    shuttle::check_random(scenario, 1);
}
