//! The pager's end of a program: its helper's socket, its memory, and what the kernel says of both processes.
//!
//! Processes are known by descriptors that they hand over themselves. A number is read from such a descriptor where a call takes
//! nothing else, and is that process's as long as the descriptor shows no end.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use esker_base::units::to_u64;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::protocol::{HelperOrder, Outcome};
use crate::raw::{self, Errno, flag};
use crate::types::{PAGE, Page, page_of};
use crate::unserved::{ProgramId, program_of};

/// `SO_PEERPIDFD` of `asm-generic/socket.h`.
const PEER_PIDFD: usize = 77;
/// `KCMP_VM` of `linux/kcmp.h`.
const KCMP_VM: usize = 1;

/// "Present" and "swapped" of `Documentation/admin-guide/mm/pagemap.rst`.
const THERE: u64 = 3 << 62;

/// A program that has a helper.
pub(crate) struct Link {
    stream: UnixStream,
    helper: OwnedFd,
    helper_number: u32,
    program: OwnedFd,
    program_number: u32,
    /// The program that it runs.
    pub(crate) runs: Option<ProgramId>,
}

/// A process's memory, whose content stays reachable whatever becomes of its privileges.
pub(crate) struct ProcessMemory {
    content: File,
    map: File,
}

impl ProcessMemory {
    /// Of a process, by its number or `self`.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn of(process: &str) -> io::Result<ProcessMemory> {
        let content = File::open(format!("/proc/{process}/mem"))?;
        let map = File::open(format!("/proc/{process}/pagemap"))?;
        Ok(ProcessMemory { content, map })
    }

    /// Copies out of it, and says how many bytes: as far as pages are there. It never waits for a page.
    pub(crate) fn read(&self, addr: usize, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            match self.content.read_at(&mut to[done..], to_u64(addr + done)) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        done
    }

    /// Of `count` pages at an address, the indices of those that are there. None where the kernel does not tell.
    pub(crate) fn present(&self, addr: usize, count: usize) -> Vec<Page> {
        const STEP: usize = 512;
        let mut present = Vec::new();
        for first in (0..count).step_by(STEP) {
            let mut words = [0u8; STEP * 8];
            let bytes = &mut words[..STEP.min(count - first) * 8];
            if self.map.read_exact_at(bytes, to_u64((addr / PAGE + first) * 8)).is_err() {
                break;
            }
            let is_there = |word: &[u8; 8]| u64::from_ne_bytes(*word) & THERE != 0;
            let words = bytes.as_chunks::<8>().0.iter().enumerate();
            present
                .extend(words.filter(|(_, word)| is_there(word)).map(|(n, _)| page_of(first + n)));
        }
        present
    }

    /// Whether a page is not there. False where the kernel does not tell.
    pub(crate) fn is_missing(&self, addr: usize) -> bool {
        let mut word = [0; 8];
        let read = self.map.read_exact_at(&mut word, to_u64(addr / PAGE * 8));
        read.is_ok() && u64::from_ne_bytes(word) & THERE == 0
    }
}

impl Link {
    /// Of the helper that has connected, and the descriptor of the program that it handed over.
    ///
    /// # Errors
    /// The kernel's; that both do not share their memory.
    pub(crate) fn new(stream: UnixStream, program: OwnedFd) -> io::Result<(Link, ProcessMemory)> {
        let helper = peer(&stream)?;
        let helper_number = number(helper.as_fd())?;
        let program_number = number(program.as_fd())?;
        let memory = ProcessMemory::of(&helper_number.to_string())?;
        let is_shared = uses(program_number, helper_number);
        // The numbers were theirs as long as they have not ended.
        if !is_shared || has_ended(&helper) || has_ended(&program) {
            let what = "it has ended, or is not what its helper says";
            return Err(io::Error::new(io::ErrorKind::NotConnected, what));
        }
        let runs = program_of(program_number);
        Ok((Link { stream, helper, helper_number, program, program_number, runs }, memory))
    }

    /// The number of the program's process.
    pub(crate) fn pid(&self) -> u32 {
        self.program_number
    }

    /// The number of a process that has the program's memory.
    pub(crate) fn memory_number(&self) -> u32 {
        self.helper_number
    }

    /// Tells the helper that the program is served. It gets descriptors: a forked child's userfaultfd, and the error
    /// output if it is the one to say that the pager has ended.
    ///
    /// # Errors
    /// The helper has ended.
    pub(crate) fn accept(&self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let (served, flags) = (0u64.to_ne_bytes(), SendFlags::NOSIGNAL);
        sendmsg(&self.stream, &[io::IoSlice::new(&served)], &mut control, flags)?;
        Ok(())
    }

    /// Gives the helper an order, which it answers by an outcome.
    ///
    /// # Errors
    /// The helper has ended.
    pub(crate) fn send(&self, order: &HelperOrder) -> io::Result<()> {
        let at = std::ptr::from_ref(order).expose_provenance();
        let args = [
            flag(self.stream.as_raw_fd()),
            at,
            size_of::<HelperOrder>(),
            flag(libc::MSG_NOSIGNAL),
            0,
            0,
        ];
        // SAFETY: the order is readable, and has no padding.
        let sent = unsafe { raw::call(libc::SYS_sendto, args) }.map_err(Errno::to_io)?;
        if sent == size_of::<HelperOrder>() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// An outcome, if it has come.
    ///
    /// # Errors
    /// The helper has ended.
    pub(crate) fn receive(&self) -> io::Result<Option<Outcome>> {
        let mut words = [0u64; 3];
        let args = [
            flag(self.stream.as_raw_fd()),
            words.as_mut_ptr().expose_provenance(),
            size_of_val(&words),
            0,
            0,
            0,
        ];
        // SAFETY: the words are writable.
        match unsafe { raw::call(libc::SYS_read, args) } {
            Ok(24) => {
                let [done, gone, barred] = words;
                Ok(Some(Outcome { done, gone, barred }))
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => Ok(None),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error.to_io()),
        }
    }

    /// The program's anonymous memory, as far as it is resident, in bytes.
    pub(crate) fn anonymous_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.program_number)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    }

    /// Whether a thread, by its number, has the program's memory.
    pub(crate) fn has(&self, thread: u32) -> bool {
        thread > 0 && compare(thread, self.helper_number) == Ok(0)
    }

    /// The parts of a range that are anonymous private memory, stacks left out: addresses and sizes. One that has no access yet
    /// goes on to the next multiple of `ahead`, as far as it can.
    pub(crate) fn private_memory(
        &self,
        addr: usize,
        size: usize,
        ahead: usize,
    ) -> Vec<(usize, usize)> {
        let end = addr.saturating_add(size);
        let part = |mapping: Mapping| {
            let is_reservation = mapping.access == "---p";
            let further = end.checked_next_multiple_of(ahead).filter(|_| is_reservation);
            let (from, to) = (mapping.from.max(addr), mapping.to.min(further.unwrap_or(end)));
            let has_no_use = mapping.name.is_empty() || mapping.name.starts_with("[anon:");
            (from < to && from < end && has_no_use).then(|| (from, to - from))
        };
        let all = private_mappings(self.helper_number).unwrap_or_default();
        all.into_iter().filter_map(part).collect()
    }

    /// Whether nobody can use the memory any more: the program has ended, or runs another one.
    pub(crate) fn is_gone(&self) -> bool {
        let is_left = || !uses(self.program_number, self.helper_number);
        // The helper's number is its own as long as it has not ended.
        has_ended(&self.program) || is_left() && !has_ended(&self.helper)
    }

    /// Whether the helper has ended.
    pub(crate) fn is_broken(&self) -> bool {
        has_ended(&self.helper)
    }

    /// Waits until the helper has ended, a moment at most.
    pub(crate) fn await_end(&self) {
        let mut polled = [PollFd::new(&self.helper, PollFlags::IN)];
        let span = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut polled, Some(&span));
    }

    /// Ends the program.
    pub(crate) fn kill(&self) {
        kill(&self.program);
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Link {
    /// Ends the helper, which would hold the memory of a program that has ended.
    fn drop(&mut self) {
        kill(&self.helper);
    }
}

/// Anonymous private memory of a process, as the kernel tells of it.
pub(crate) struct Mapping {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// As in `rw-p`.
    pub(crate) access: String,
    /// As in `[heap]`; mostly empty.
    pub(crate) name: String,
}

/// The anonymous private memory of a process, by its number or a thread's.
///
/// # Errors
/// The kernel's.
pub(crate) fn private_mappings(process: u32) -> io::Result<Vec<Mapping>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    let mapping = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (from, to, access) = (number(from)?, number(to)?, words.next()?.to_owned());
        let is_anonymous = words.nth(2)? == "0";
        let name = words.next().unwrap_or_default().to_owned();
        let is_known = is_anonymous && access.ends_with('p');
        is_known.then_some(Mapping { from, to, access, name })
    };
    Ok(text.lines().filter_map(mapping).collect())
}

fn kill(process: &OwnedFd) {
    let args = [flag(process.as_raw_fd()), flag(libc::SIGKILL), 0, 0, 0, 0];
    // SAFETY: no memory is involved. If it has ended already, nothing happens.
    let _ = unsafe { raw::call(libc::SYS_pidfd_send_signal, args) };
}

/// Whether a process has ended, all threads of it.
fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())) == Ok(1)
}

/// Whether a program has the memory of its helper. Its first thread may have ended, and has none then.
fn uses(program: u32, helper: u32) -> bool {
    let has_other = || {
        let threads = std::fs::read_dir(format!("/proc/{program}/task")).into_iter().flatten();
        let names = threads.flatten().map(|entry| entry.file_name());
        let mut numbers = names.filter_map(|name| name.to_str()?.parse().ok());
        numbers.any(|thread| share_memory(thread, helper))
    };
    share_memory(program, helper) || has_other()
}

/// Whether two threads share their memory; also where the kernel does not tell.
fn share_memory(one: u32, other: u32) -> bool {
    !matches!(compare(one, other), Ok(1..))
}

/// Compares the memory of two threads: 0 if it is the same.
fn compare(one: u32, other: u32) -> Result<usize, Errno> {
    let args = [one as usize, other as usize, KCMP_VM, 0, 0, 0];
    // SAFETY: no memory is involved.
    unsafe { raw::call(libc::SYS_kcmp, args) }
}

/// The process that has connected.
fn peer(stream: &UnixStream) -> io::Result<OwnedFd> {
    let (mut fd, mut size) = (-1i32, 4u32);
    let (to, length) = ((&raw mut fd).expose_provenance(), (&raw mut size).expose_provenance());
    let args = [flag(stream.as_raw_fd()), flag(libc::SOL_SOCKET), PEER_PIDFD, to, length, 0];
    // SAFETY: the descriptor and its size are writable.
    unsafe { raw::call(libc::SYS_getsockopt, args) }.map_err(Errno::to_io)?;
    // SAFETY: the kernel has just made it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of a descriptor's process here. An error for a descriptor of anything else, or of a process that has ended
/// or is not to be seen from here.
fn number(process: BorrowedFd<'_>) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid = line.map(str::trim);
    if pid == Some("-1") {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "it has ended"));
    }
    let pid = pid.and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0);
    pid.ok_or_else(|| io::Error::other("it handed over no process that can be seen from here"))
}
