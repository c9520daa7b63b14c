//! Carries out an order where the memory is: by the helper in a program, by the pager in its own process.
//!
//! Nothing here allocates, takes a lock, or waits for a page.

#![allow(unsafe_code)]

use esker_base::units::to_usize;

use crate::protocol::{HelperOrder, Outcome};
use crate::raw::{self, Errno, flag};
use crate::types::{CHUNK, PAGE};
use crate::uffd::Uffd;

/// How often a page is tried that the kernel has locked for a moment.
const TRIES: usize = 4;
/// `FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, UNLIKELY)` of `linux/futex.h`: who waits for the word is woken where it is equal.
const ADD_NOTHING: usize = 1 << 28 | UNLIKELY;
const UNLIKELY: usize = 0x7a5;

/// Empties the window, and has pages leave. Each is moved or dropped by itself, so one that stays holds up no other.
pub(crate) fn carry_out(uffd: &Uffd, window: usize, order: &HelperOrder) -> Outcome {
    // SAFETY: the pager has copied what it needs of the window.
    let _ = unsafe { raw::advise(window, CHUNK * PAGE, libc::MADV_DONTNEED) };
    let count = to_usize(order.count).min(CHUNK);
    let moves = to_usize(order.moves).min(count);
    let mut outcome = Outcome::default();
    let mut at = 0;
    while at < moves {
        let run = run_at(&order.pages[at..moves]);
        let from = to_usize(order.pages[at]);
        let (bytes, _) = uffd.move_pages(window + at * PAGE, from, run * PAGE);
        let moved = (bytes / PAGE).min(run);
        outcome.done |= bits(at, moved);
        at += moved;
        if moved == run {
            continue;
        }
        match move_one(uffd, window + at * PAGE, to_usize(order.pages[at])) {
            Ok(()) => outcome.done |= bits(at, 1),
            Err(Errno(libc::ENOENT)) => outcome.gone |= bits(at, 1),
            Err(Errno(libc::EINVAL)) => outcome.barred |= bits(at, 1),
            // The process forks, and the pager has not seen it yet: no page can be moved.
            Err(Errno(libc::EAGAIN)) => return outcome,
            Err(_) => {}
        }
        at += 1;
    }
    while at < to_usize(order.tries).min(count) {
        let page = to_usize(order.pages[at]);
        match move_one(uffd, window + at * PAGE, page) {
            Ok(()) => outcome.done |= bits(at, 1),
            Err(Errno(libc::EINVAL)) => {
                // SAFETY: as below.
                match unsafe { raw::advise(page, PAGE, libc::MADV_DONTNEED) } {
                    Ok(_) => outcome.done |= bits(at, 1),
                    Err(_) => outcome.barred |= bits(at, 1),
                }
            }
            Err(_) => {}
        }
        at += 1;
    }
    while at < count {
        let run = run_at(&order.pages[at..count]);
        // SAFETY: the pager has the content, and a thread that looks for it faults.
        match unsafe { raw::advise(to_usize(order.pages[at]), run * PAGE, libc::MADV_DONTNEED) } {
            Ok(_) => outcome.done |= bits(at, run),
            Err(_) => outcome.barred |= bits(at, run),
        }
        at += run;
    }
    outcome
}

/// Moves one page. One that was shared with a forked child becomes the program's own before.
fn move_one(uffd: &Uffd, to: usize, from: usize) -> Result<(), Errno> {
    let mut error = Errno(libc::EAGAIN);
    for _ in 0..TRIES {
        match uffd.move_pages(to, from, PAGE) {
            (PAGE, _) => return Ok(()),
            (_, Some(Errno(libc::EBUSY))) => {
                touch(from)?;
                error = Errno(libc::EBUSY);
            }
            (_, Some(Errno(libc::EAGAIN))) => error = Errno(libc::EAGAIN),
            (_, other) => return Err(other.unwrap_or(error)),
        }
    }
    Err(error)
}

/// Writes to a page what it holds, in one step with other writers. It fails where a thread would wait for the pager.
fn touch(page: usize) -> Result<(), Errno> {
    let unused = 0u32;
    let operation = flag(libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG);
    let args = [(&raw const unused).expose_provenance(), operation, 0, 0, page, ADD_NOTHING];
    // SAFETY: the word that is written keeps its value.
    let touched = unsafe { raw::call(libc::SYS_futex, args) };
    touched.map(drop).map_err(|_| Errno(libc::EBUSY))
}

/// How many pages from the first one on are in a row.
fn run_at(pages: &[u64]) -> usize {
    let step = PAGE as u64;
    1 + pages.windows(2).take_while(|two| two[1].wrapping_sub(two[0]) == step).count()
}

/// The bits of `count` pages from the `at`th on.
fn bits(at: usize, count: usize) -> u64 {
    let below = |n: usize| if n >= CHUNK { !0 } else { (1u64 << n) - 1 };
    below(at + count) & !below(at)
}
