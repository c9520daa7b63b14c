//! Faults served by the thread that faults, in a handler of `SIGBUS`.
//!
//! The handler runs where the program touched paged memory, never inside the allocator or the
//! pager, whose memory is not paged. So it may take locks and allocate.

#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use esker_base::sync::Mutex;
use esker_device::QueuePair;

use crate::engine::{Answer, SpaceId};
use crate::shared::Shared;

/// The most arenas with this mode at a time.
const MOST: usize = 16;

/// An arena's faults, while they are served.
struct Region {
    shared: Arc<Shared>,
    space: SpaceId,
    base: usize,
    end: usize,
    /// Queue pairs that no thread uses now.
    queues: Mutex<Vec<Box<dyn QueuePair>>>,
}

static REGIONS: [AtomicPtr<Region>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
/// The handler that was there before ours.
static BEFORE: Mutex<Option<libc::sigaction>> = Mutex::new(None);

/// A place among the regions.
pub(crate) struct Served(usize);

/// Has faults in a region served by the threads that fault.
pub(crate) fn serve(
    shared: Arc<Shared>,
    space: SpaceId,
    region: (usize, usize),
) -> io::Result<Served> {
    install()?;
    let (base, size) = region;
    let (end, queues) = (base + size, Mutex::default());
    let region = Box::into_raw(Box::new(Region { shared, space, base, end, queues }));
    let null = std::ptr::null_mut();
    let take = |place: &AtomicPtr<Region>| {
        place.compare_exchange(null, region, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if let Some(place) = REGIONS.iter().position(take) {
        return Ok(Served(place));
    }
    // SAFETY: made above, and nobody has got it.
    drop(unsafe { Box::from_raw(region) });
    Err(io::Error::other(format!("at most {MOST} arenas with this mode")))
}

impl Served {
    /// Serves no more. The region's memory may not be touched any more.
    pub(crate) fn end(self) {
        let region = REGIONS[self.0].swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: made by `serve`, and no thread is in a fault of it: nobody may touch its memory.
        drop(unsafe { Box::from_raw(region) });
    }
}

fn install() -> io::Result<()> {
    let mut before = BEFORE.lock();
    if before.is_some() {
        return Ok(());
    }
    // SAFETY: all zeroes is a valid value of this C structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut old = action;
    action.sa_sigaction = handle as *const () as usize;
    // Nested: the handler itself touches no paged memory, but a fault of it must not be lost.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: both structures are valid, and the handler has the signature of `SA_SIGINFO`.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut old) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *before = Some(old);
    Ok(())
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's, for this call; a thread's errno is its own.
    let (addr, errno) = unsafe { ((*info).si_addr().addr(), *libc::__errno_location()) };
    if !is_served(addr, context) {
        pass_on(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn is_served(addr: usize, context: *mut libc::c_void) -> bool {
    for place in &REGIONS {
        // SAFETY: a region lives while its memory may be touched, and this thread touches it.
        if let Some(region) = unsafe { place.load(Ordering::Acquire).as_ref() }
            && (region.base..region.end).contains(&addr)
        {
            let (write, protected) = access(context);
            return region.fault(addr, write, protected);
        }
    }
    false
}

/// Whether the thread wanted to write, and whether the page is there, by the processor's error code.
#[cfg(target_arch = "x86_64")]
fn access(context: *mut libc::c_void) -> (bool, bool) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the third argument of a handler with `SA_SIGINFO`.
    let error = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
    (error & 2 != 0, error & 3 == 3)
}

/// Not known: a page that is there and faults is protected, and others are brought in for reading.
#[cfg(not(target_arch = "x86_64"))]
fn access(_: *mut libc::c_void) -> (bool, bool) {
    (false, true)
}

impl Region {
    /// Serves a fault. False when the page's content is lost.
    fn fault(&self, addr: usize, write: bool, protected: bool) -> bool {
        let mut engine = self.shared.engine.lock();
        let Some(page) = engine.spaces.get(&self.space).and_then(|space| space.page(addr)) else {
            return false;
        };
        if engine.is_poisoned(self.space, page) {
            return false;
        }
        let before = engine.commands.len();
        let answer = engine.fault(self.space, page, write, protected);
        // Of the commands that the fault has made, the first one reads its page; others read ahead.
        let own = match answer {
            Answer::Coming => engine.take_read(before, self.space, page),
            Answer::Done | Answer::Later => None,
        };
        let is_wanted = !engine.commands.is_empty() || engine.has_to_evict();
        drop(engine);
        if is_wanted {
            self.shared.wake();
        }
        match own {
            Some(command) => self.run(command),
            None if answer == Answer::Done => {}
            // Another thread reads it, or there is no frame: the fault comes again.
            None => std::thread::yield_now(),
        }
        true
    }

    /// Runs a command on a queue pair that no other thread uses meanwhile.
    fn run(&self, command: esker_device::Command) {
        let mut commands = std::collections::VecDeque::from([command]);
        let mut done = Vec::new();
        let free = self.queues.lock().pop();
        let queue = match free {
            Some(queue) => Ok(queue),
            None => self.shared.engine.lock().device.queue_pair(1),
        };
        let outcome = queue.and_then(|mut queue| {
            queue.submit(&mut commands)?;
            while done.is_empty() {
                queue.wait(&mut done, None)?;
            }
            // One that has failed is not used again.
            self.queues.lock().push(queue);
            Ok(())
        });
        let mut engine = self.shared.engine.lock();
        if let Err(error) = outcome {
            engine.reports.push(error.to_string());
        }
        // Commands that could not be started go to the arena's thread.
        engine.commands.append(&mut commands);
        for completion in done {
            engine.complete(completion);
        }
    }
}

/// A fault that is none of ours goes to the handler that was there before.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = *BEFORE.lock();
    let Some(before) = before else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restores the old action; the instruction faults again and ends the process.
            unsafe { libc::sigaction(signal, &raw const before, std::ptr::null_mut()) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: the program gave it to the kernel as such a function.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: as above, of the other kind.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(handler) };
            handler(signal);
        }
    }
}
