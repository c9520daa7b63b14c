//! Pages that the kernel has pinned for direct I/O stay, whatever has to leave.

#![allow(unsafe_code)]

mod support;

use std::io::Write;
use std::os::fd::AsRawFd;

use esker_pager::{Arena, Mode, PAGE};
use io_uring::{IoUring, opcode, types};
use support::{Slow, arena};

const BUDGET: usize = 4 << 20;
const SLOW: usize = 24 << 20;
/// Pages that are pinned, scattered among others.
const PINNED: usize = 40;
const STRIDE: usize = 3;

/// Touches so much other memory that everything that can has left.
fn press(arena: &Arena) {
    let other = Slow::new(arena, 3 * BUDGET);
    let before = arena.stats().evicted_pages;
    for page in 0..other.len() / PAGE {
        other.slice(page * PAGE, 1)[0] = 1;
    }
    let evicted = arena.stats().evicted_pages - before;
    assert!(evicted > (2 * BUDGET / PAGE) as u64, "{evicted} pages have left");
}

/// Changes the access to memory.
fn protect(memory: &Slow, access: i32) {
    let slice = memory.slice(0, memory.len());
    // SAFETY: the memory is a mapping of this process, and used here alone.
    assert_eq!(unsafe { libc::mprotect(slice.as_mut_ptr().cast(), slice.len(), access) }, 0);
}

fn reads_into_pinned_pages(mode: Mode, was_read_only: bool) {
    let Some(arena) = arena(BUDGET, SLOW, mode) else { return };
    let memory = Slow::new(&arena, PINNED * STRIDE * PAGE);
    memory.slice(0, memory.len()).fill(7);
    if was_read_only {
        protect(&memory, libc::PROT_READ);
        press(&arena);
        // Those that were tried, and those that have come back.
        assert!(memory.slice(0, memory.len()).iter().all(|byte| *byte == 7));
        press(&arena);
        protect(&memory, libc::PROT_READ | libc::PROT_WRITE);
        memory.slice(0, memory.len()).fill(7);
    }
    let at = |n: usize| n * STRIDE * PAGE;
    let buffers: Vec<libc::iovec> = (0..PINNED)
        .map(|n| libc::iovec {
            iov_base: memory.slice(at(n), PAGE).as_mut_ptr().cast(),
            iov_len: PAGE,
        })
        .collect();
    let mut ring = IoUring::new(64).unwrap();
    // SAFETY: the memory outlives the ring.
    if let Err(error) = unsafe { ring.submitter().register_buffers(&buffers) } {
        println!("SKIPPED: no memory can be registered here: {error}");
        return;
    }
    press(&arena);
    let mut file = tempfile::tempfile().unwrap();
    let content: Vec<u8> =
        (0..PINNED * PAGE).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect();
    file.write_all(&content).unwrap();
    for n in 0..PINNED {
        let to = memory.slice(at(n), PAGE).as_mut_ptr();
        let (fd, index) = (types::Fd(file.as_raw_fd()), u16::try_from(n).unwrap());
        let length = u32::try_from(PAGE).unwrap();
        let read = opcode::ReadFixed::new(fd, to, length, index).offset((n * PAGE) as u64).build();
        // SAFETY: the buffer is registered, and lives as long as the ring.
        unsafe { ring.submission().push(&read) }.unwrap();
    }
    ring.submit_and_wait(PINNED).unwrap();
    assert!(ring.completion().all(|done| usize::try_from(done.result()) == Ok(PAGE)));
    press(&arena);
    for n in 0..PINNED {
        assert_eq!(memory.slice(at(n), PAGE), &content[n * PAGE..][..PAGE], "pinned page {n}");
        assert_eq!(memory.slice(at(n) + PAGE, PAGE), [7; PAGE], "the page behind page {n}");
    }
    // When they are no longer pinned they leave as all others.
    drop(ring);
    press(&arena);
    for n in 0..PINNED {
        assert_eq!(memory.slice(at(n), PAGE), &content[n * PAGE..][..PAGE], "page {n}");
    }
}

#[test]
fn read_into_pinned_pages_is_not_lost() {
    reads_into_pinned_pages(Mode::Handler, false);
}

#[test]
fn read_into_pinned_pages_is_not_lost_where_threads_serve_themselves() {
    reads_into_pinned_pages(Mode::Signal, false);
}

#[test]
fn memory_that_was_read_only_is_pinned_as_any_other() {
    reads_into_pinned_pages(Mode::Handler, true);
}

/// A direct read pins its buffer for as long as it takes. Many of them, into more memory than there is, find each page in
/// every state.
#[test]
fn direct_reads_find_memory_that_comes_and_goes() {
    const PAGES: usize = 2 * BUDGET / PAGE;
    let Some(arena) = arena(BUDGET, SLOW, Mode::Handler) else { return };
    let memory = Slow::new(&arena, PAGES * PAGE);
    let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    let words: Vec<u8> = (0..PAGES * PAGE / 8).flat_map(|n| (n as u64 * 3).to_ne_bytes()).collect();
    std::fs::write(file.path(), &words).unwrap();
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), libc::O_DIRECT);
    let Ok(direct) = options.open(file.path()) else {
        return println!("SKIPPED: no direct I/O in /var/tmp");
    };
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (memory, words, direct) = (&memory, &words, &direct);
            scope.spawn(move || {
                for round in 0..3 {
                    for page in (first..PAGES).step_by(4) {
                        let at = page * PAGE;
                        let to = memory.slice(at, PAGE);
                        to[..8].copy_from_slice(&[round; 8]);
                        std::os::unix::fs::FileExt::read_exact_at(direct, to, at as u64).unwrap();
                        assert!(*to == words[at..at + PAGE], "page {page}");
                    }
                }
            });
        }
    });
    for page in 0..PAGES {
        assert!(*memory.slice(page * PAGE, PAGE) == words[page * PAGE..][..PAGE], "page {page}");
    }
}
