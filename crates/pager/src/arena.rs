//! Paged memory for a program that asks for it.
//!
//! An [`Arena`] has a fast part, which is plain memory, and a slow one, which is paged to its
//! device by a thread of this process.
//!
//! * [`Mode::Handler`]: that thread serves all faults, those of system calls on paged memory too.
//! * [`Mode::Signal`]: the thread that faults serves itself, in a handler of `SIGBUS`. That is
//!   faster. System calls on pages that are not in memory fail with `EFAULT`: touch them before.
//!   Threads must not block `SIGBUS`, and a forked child has no slow part.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use esker_device::Device;

use crate::client::{self, Client};
use crate::engine::SpaceId;
use crate::forks;
use crate::heap::{Fast, Ground, Heaps};
use crate::link::ProcessMemory;
use crate::raw::{self, Errno};
use crate::server::{Server, Threads, listen};
use crate::shared::Shared;
use crate::signal::{self, Served};
use crate::space::Reach;
use crate::types::{Options, PagerError, Stats};
use crate::uffd::{Uffd, feature};

/// The thread or process that serves faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A thread of the arena.
    #[default]
    Handler,
    /// The thread that faults.
    Signal,
}

/// Memory in two parts, of which one is paged.
pub struct Arena {
    shared: Arc<Shared>,
    threads: Threads,
    client: &'static Client,
    space: SpaceId,
    pid: u32,
    served: Option<Served>,
    heaps: Arc<Heaps>,
}

impl Arena {
    /// Makes an arena. Its fast part grows to `fast_bytes` as it is used.
    ///
    /// # Errors
    /// Options that do not fit the device; refusals of the kernel.
    pub fn new(
        device: Arc<dyn Device>,
        options: Options,
        fast_bytes: usize,
        mode: Mode,
    ) -> Result<Arena, PagerError> {
        let refused = |error: Errno| PagerError::Refused(error.to_io());
        let (uffd, tells_forks) = match mode {
            Mode::Handler => client::open().map_err(refused)?,
            Mode::Signal => {
                let features = feature::FLAG_WP | feature::POISON | feature::MOVE | feature::SIGBUS;
                (Uffd::open(features).map_err(refused)?, false)
            }
        };
        // Forked children come by the socket.
        let (listener, name) = listen()?;
        let mut server = Server::new(device, options, Some(listener))?;
        let shared = server.shared.clone();
        let mut engine = shared.engine.lock();
        let failed = |error: Errno| PagerError::system("the region", error.to_io());
        let mapped = Client::map(engine.region_size(), name.as_bytes()).map_err(failed)?;
        if !tells_forks {
            mapped.forget_forks().map_err(failed)?;
        }
        let (pid, region) = (std::process::id(), mapped.region());
        uffd.register(region.0, region.1).map_err(failed)?;
        let client: &'static Client = Box::leak(Box::new(mapped));
        let space = engine.add_space(uffd, Reach::Here, region, client.requests());
        let memory = ProcessMemory::of("self");
        let memory = memory.map_err(|error| PagerError::system("reading the region", error))?;
        engine.spaces.get_mut(&space).expect("just added").memory = Some(memory);
        let watched = server.watch(&engine, space);
        watched.map_err(|error| PagerError::system("watching the region", error))?;
        drop(engine);
        let served = match mode {
            Mode::Handler => None,
            Mode::Signal => {
                let served = signal::serve(shared.clone(), space, region);
                Some(served.map_err(|error| PagerError::system("the handler of SIGBUS", error))?)
            }
        };
        let heaps = Arc::new(Heaps::new(fast_bytes));
        if tells_forks {
            forks::add(client, shared.clone(), heaps.clone());
        }
        let threads = Threads::start(server, options.read_ahead && tells_forks)?;
        Ok(Arena { shared, threads, client, space, pid, served, heaps })
    }

    /// Memory that is paged, aligned to `align`, a power of two of at most a page; its content is zero where it
    /// was not used before. `None` when the slow part is used up.
    pub fn allocate_slow(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        pointer(self.heaps.slow.lock().allocate(self, size, align)?)
    }

    /// Memory that is never paged. `None` when the fast part is used up.
    pub fn allocate_fast(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let mut fast = self.heaps.fast.lock();
        let Fast { heap, left } = &mut *fast;
        pointer(heap.allocate(left, size, align)?)
    }

    /// Frees memory of either part. False, and nothing done, if it is none of this arena's.
    ///
    /// # Safety
    /// Nobody refers to the memory any more.
    pub unsafe fn free(&self, memory: NonNull<u8>) -> bool {
        let addr = memory.as_ptr().expose_provenance();
        if self.client.overlaps(addr, 1) {
            return self.heaps.slow.lock().free(self, addr);
        }
        let mut fast = self.heaps.fast.lock();
        let Fast { heap, left } = &mut *fast;
        heap.free(left, addr)
    }

    /// How many bytes can be used of memory that was allocated.
    #[must_use]
    pub fn usable_size(&self, memory: NonNull<u8>) -> Option<usize> {
        let addr = memory.as_ptr().addr();
        if self.client.overlaps(addr, 1) {
            return self.heaps.slow.lock().usable(addr);
        }
        self.heaps.fast.lock().heap.usable(addr)
    }

    /// Makes whole pages of slow memory read as zeroes, and frees their space.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not in the slow part.
    ///
    /// # Safety
    /// Nobody needs the content, nor uses it meanwhile.
    pub unsafe fn discard(&self, memory: NonNull<u8>, size: usize) -> Result<(), PagerError> {
        let failed = |error: Errno| PagerError::system("dropping content", error.to_io());
        // SAFETY: the caller's promise.
        unsafe { self.drop_content(memory.as_ptr().expose_provenance(), size) }.map_err(failed)
    }

    /// # Safety
    /// Nobody needs the content.
    unsafe fn drop_content(&self, addr: usize, size: usize) -> Result<(), Errno> {
        if self.is_child() {
            // SAFETY: the caller's promise.
            return unsafe { self.client.discard(addr, size) };
        }
        self.until_done(|engine| engine.discard(self.space, addr, size))?;
        // SAFETY: the caller's promise. The engine has forgotten the pages already.
        unsafe { raw::advise(addr, size, libc::MADV_DONTNEED) }.map(drop)
    }

    /// Tries until no page of the range is on its way out.
    fn until_done(
        &self,
        mut act: impl FnMut(&mut crate::engine::Engine) -> Option<Result<u64, i32>>,
    ) -> Result<u64, Errno> {
        loop {
            if let Some(outcome) = act(&mut self.shared.engine.lock()) {
                return outcome.map_err(Errno);
            }
            std::thread::yield_now();
        }
    }

    fn is_child(&self) -> bool {
        std::process::id() != self.pid
    }

    /// The figures of this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.engine.lock().stats()
    }

    /// Events that the user has to know, since the last call: lost pages, failed writes.
    #[must_use]
    pub fn reports(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.engine.lock().reports)
    }
}

/// The slow part's ranges.
impl Ground for Arena {
    fn reserve(&self, size: usize) -> Option<usize> {
        if self.is_child() {
            return self.client.reserve(0, size).ok();
        }
        let addr = self.shared.engine.lock().reserve(self.space, 0, size).ok()?;
        Some(esker_base::units::to_usize(addr))
    }

    fn release(&self, addr: usize, size: usize) {
        if self.is_child() {
            // SAFETY: the heap has given it up. It is in the region, so it cannot fail.
            let _ = unsafe { self.client.release(addr, size) };
            return;
        }
        // SAFETY: as above.
        let _ = unsafe { self.drop_content(addr, size) };
        let _ = self.until_done(|engine| engine.release(self.space, addr, size));
    }
}

/// Bytes left of the fast part; its ranges are the kernel's.
impl Ground for std::cell::Cell<usize> {
    fn reserve(&self, size: usize) -> Option<usize> {
        let left = self.get().checked_sub(size)?;
        let addr = raw::map_memory(size).ok()?;
        self.set(left);
        Some(addr)
    }

    fn release(&self, addr: usize, size: usize) {
        // SAFETY: mapped above with this very size, and nobody refers to it. It cannot fail.
        let _ = unsafe { raw::unmap(addr, size) };
        self.set(self.get() + size);
    }
}

fn pointer(addr: usize) -> Option<NonNull<u8>> {
    NonNull::new(std::ptr::with_exposed_provenance_mut(addr))
}

impl Drop for Arena {
    /// Ends the arena. Memory that was allocated from it is gone.
    fn drop(&mut self) {
        if self.is_child() {
            self.threads.leave();
            return;
        }
        if let Some(served) = self.served.take() {
            served.end();
        }
        forks::remove(self.client);
        self.threads.end(&self.shared);
        let (base, size) = self.client.region();
        self.shared.engine.lock().remove(self.space);
        // SAFETY: nobody may refer to the arena's memory any more. It cannot fail.
        let _ = unsafe { raw::unmap(base, size) };
    }
}
