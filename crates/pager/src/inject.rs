//! Programs that do not load the pager's library are served too: the pager puts it into them.
//!
//! A thread of the program is stopped at its first system call that changes memory. It maps the library, runs the function that
//! introduces the program, and makes its call again. Nothing of that stays but the library's memory.
//!
//! | module | contents |
//! | --- | --- |
//! | `image` | the library, as it lies in a program's memory |
//! | `tracee` | a thread that is stopped |

mod image;
#[cfg(target_arch = "x86_64")]
mod tracee;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};

use crate::link::{Mapping, private_mappings};
use crate::shared::Shared;
use crate::trap::{Reply, Traps};
use crate::unserved::{Job, ProgramId, Unserved};
use image::Library;

/// Memory from this size on is paged if the program has it already, in bytes.
const LEAST: usize = 64 << 10;

/// Starts the thread that puts the library into programs; it ends with what this gives. None where that cannot be done.
pub(crate) fn start(
    traps: Arc<Traps>,
    address: Address,
    library: PathBuf,
    shared: &Arc<Shared>,
) -> Option<Unserved> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    let (jobs, inbox) = channel();
    let path = library.clone();
    // The thread ends with the pager, so it does not hold it.
    let shared = Arc::downgrade(shared);
    let work = Work { traps, address, path, shared, library: None, known: BTreeMap::new() };
    esker_base::thread::spawn("pager-inject", move || work.run(&inbox)).ok()?;
    Some(Unserved::new(jobs, library))
}

/// Where programs find the pager: its socket's name, and the size of a region.
pub(crate) type Address = (String, usize);

/// A library in a program's memory.
#[derive(Clone, Copy)]
struct Place {
    base: usize,
    /// A word in it that no other memory has there.
    token: u64,
}

struct Work {
    traps: Arc<Traps>,
    address: Address,
    path: PathBuf,
    shared: Weak<Shared>,
    library: Option<Library>,
    /// Where the library lies in a program, and in children that it has forked.
    known: BTreeMap<ProgramId, Place>,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Job>) {
        for job in inbox {
            let Some(shared) = self.shared.upgrade() else { return };
            let outcome = self.serve(&job, &shared);
            // If the thread has been answered already, nothing happens.
            let is_there = self.traps.is_waiting(&job.call) || outcome.is_ok();
            self.traps.reply(&job.call, if outcome.is_ok() { Reply::Elsewhere } else { Reply::Go });
            let mut engine = shared.engine.lock();
            if let Err(error) = outcome {
                engine.injected(&job, false);
                if is_there {
                    let thread = job.call.thread;
                    engine
                        .reports
                        .push(format!("process {thread}: its memory is not paged: {error}"));
                }
            }
            drop(engine);
            shared.wake();
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn serve(&mut self, job: &Job, shared: &Shared) -> io::Result<()> {
        use tracee::Tracee;
        if self.library.is_none() {
            self.library = Some(Library::read(&self.path)?);
        }
        let library = self.library.as_ref().expect("read above");
        let thread = job.call.thread;
        if shared.engine.lock().hold_if_known(&job.call) {
            // Another thread of the program was first.
            return Ok(());
        }
        let path = format!("/proc/{thread}/mem");
        let memory = fs::File::options().read(true).write(true).open(path)?;
        let mut tracee = Tracee::seize(thread, job.call.number)?;
        // Its number may have been another one's until now; from here on it is its own.
        if !self.traps.is_waiting(&job.call) {
            return Err(io::Error::other("it has ended"));
        }
        tracee.stop(|| self.traps.reply(&job.call, Reply::error(libc::EINTR)))?;
        let before = data_of(thread)?;
        let known = self.known.get(&job.program).copied().filter(|_| job.is_child);
        if job.is_child && !known.is_some_and(|place| library.is_at(&memory, &place)) {
            return Err(io::Error::other("it has not the library of its parent"));
        }
        let outcome = match known {
            Some(place) => {
                let base = place.base;
                let stack = (base + library.size, base + library.end);
                tracee.run(base + library.child, stack, [0; 3])
            }
            None => tracee.map(library.size).and_then(|base| {
                let (name, region) = &self.address;
                let token = library.write(&memory, base, name.as_bytes())?;
                let place = Place { base, token };
                for (at, size, access) in library.protections() {
                    tracee.protect(base + at, size, access)?;
                }
                self.known.insert(job.program, place);
                let stack = (base + library.size, base + library.end);
                let args = [base + library.name(), name.len(), *region];
                tracee.run(base + library.parent, stack, args)
            }),
        };
        let mut engine = shared.engine.lock();
        let is_served = matches!(outcome, Ok(0));
        if is_served && known.is_none() {
            engine.adopt_all(thread, &before);
        }
        // Before the call is made again.
        engine.injected(job, is_served);
        drop(engine);
        drop(tracee);
        match outcome? {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(libc::EIO))),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn serve(&mut self, _: &Job, _: &Shared) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

/// A thread's private anonymous memory that can be written, its stack left out: addresses and sizes.
fn data_of(thread: u32) -> io::Result<Vec<(usize, usize)>> {
    let data = |mapping: Mapping| {
        let (size, name) = (mapping.to - mapping.from, mapping.name);
        let is_known = name.is_empty() || name == "[heap]";
        let is_data = mapping.access == "rw-p" && is_known && size >= LEAST;
        is_data.then_some((mapping.from, size))
    };
    Ok(private_mappings(thread)?.into_iter().filter_map(data).collect())
}

/// A word of a process's memory.
fn word_at(memory: &fs::File, at: usize) -> Option<u64> {
    let mut word = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(memory, &mut word, at as u64).ok()?;
    Some(u64::from_ne_bytes(word))
}
