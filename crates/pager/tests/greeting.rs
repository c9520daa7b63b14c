//! Programs that connect to a pager: silent, forged, of another user, and many at once.

#![allow(unsafe_code)]

mod support;

use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use esker_base::Clock;
use esker_device::MemoryDevice;
use esker_pager::client::{self, Client};
use esker_pager::protocol::{Hello, MAGIC, Request, WINDOW, op};
use esker_pager::{PAGE, Pager, raw};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use support::{in_child, options, until};

const SLOW: usize = 16 << 20;

fn pager() -> Option<Pager> {
    let device = Arc::new(MemoryDevice::new("memory", SLOW as u64, 4096));
    Some(Pager::start(device, options(8 << 20, SLOW)?).unwrap())
}

/// The pager's socket, and the size of a region.
fn address(pager: &Pager) -> (SocketAddr, usize) {
    let address = pager.address();
    let (name, size) = address.rsplit_once(':').unwrap();
    (SocketAddr::from_abstract_name(name).unwrap(), size.parse().unwrap())
}

fn dial(pager: &Pager) -> UnixStream {
    UnixStream::connect_addr(&address(pager).0).unwrap()
}

/// Sends a greeting with descriptors. Returns the answer; none if the pager has hung up.
fn greet(stream: &UnixStream, hello: &Hello, fds: &[BorrowedFd<'_>]) -> Option<u64> {
    let words = [hello.magic, hello.pid, hello.base, hello.size, hello.requests, hello.token];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).ok()?;
    answer(stream)
}

fn answer(stream: &UnixStream) -> Option<u64> {
    let mut answer = [0; 8];
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = stream;
    stream.read_exact(&mut answer).ok()?;
    Some(u64::from_ne_bytes(answer))
}

/// A region of this process that is served, as the preloaded library makes one.
struct Program {
    client: &'static Client,
}

impl Program {
    fn connect(pager: &Pager) -> Program {
        let address = pager.address();
        let (name, size) = address.rsplit_once(':').unwrap();
        let mapped = Client::map(size.parse().unwrap(), name.as_bytes()).unwrap();
        let client: &'static Client = Box::leak(Box::new(mapped));
        client.attach().unwrap();
        Program { client }
    }

    /// Fills twice the budget, and reads it back.
    fn works(&self) {
        let pages = SLOW / PAGE * 3 / 4;
        let base = self.client.reserve(0, pages * PAGE).unwrap();
        let word = |page: usize| std::ptr::with_exposed_provenance_mut::<u64>(base + page * PAGE);
        // SAFETY: reserved above, for this function alone.
        (0..pages).for_each(|page| unsafe { word(page).write_volatile(page as u64 + 1) });
        for page in 0..pages {
            // SAFETY: as above.
            assert_eq!(unsafe { word(page).read_volatile() }, page as u64 + 1);
        }
        // SAFETY: nobody refers to it any more.
        unsafe { self.client.release(base, pages * PAGE) }.unwrap();
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn silent_programs_hold_up_neither_faults_nor_others() {
    let _alone = support::alone();
    let Some(pager) = pager() else { return };
    let program = Program::connect(&pager);
    let began = Clock::real().now();
    let silent: Vec<UnixStream> = (0..100).map(|_| dial(&pager)).collect();
    program.works();
    let late = Program::connect(&pager);
    late.works();
    // One after the other they would take 100 s.
    assert!(Clock::real().now().since(began) < Duration::from_secs(30));
    for stream in &silent {
        assert_eq!(answer(stream), Some(1));
    }
    // They are answered a moment before that is told.
    let mut reports = Vec::new();
    until(|| {
        reports.extend(pager.reports());
        !reports.is_empty()
    });
    assert!(reports.iter().all(|one| one.contains("say hello in time")), "{reports:?}");
    assert!((1..=20).contains(&reports.len()), "{reports:?}");
}

#[test]
fn forged_greetings_are_refused_and_take_no_descriptor() {
    let _alone = support::alone();
    let Some(pager) = pager() else { return };
    let program = Program::connect(&pager);
    program.works();
    let own = rustix::process::getpid();
    let own = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).unwrap();
    let (before, region) = (descriptors(), address(&pager).1);
    let (uffd, _) = client::open().unwrap();
    let (base, size) = program.client.region();
    let right = Hello {
        magic: MAGIC,
        pid: 1,
        base: base as u64,
        size: size as u64,
        requests: program.client.requests() as u64,
        token: 0,
    };
    // A pipe that holds a message of a fork, whose child's descriptor is one of this process's.
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut message = [0u8; 32];
    message[0] = 0x13;
    message[8] = 3;
    writer.write_all(&message).unwrap();
    let file: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
    let wrong = Hello { magic: 7, ..right };
    let shifted = Hello { base: right.base + 1, ..right };
    let high = Hello { base: !0 << 12, ..right };
    let far = Hello { requests: !0, ..right };
    let large = Hello { size: region as u64 * 2, ..right };
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let other = rustix::process::Pid::from_child(&stranger);
    let other = rustix::process::pidfd_open(other, rustix::process::PidfdFlags::empty()).unwrap();
    let child = Hello { token: 1, ..right };
    let (own, genuine) = (own.as_fd(), uffd.as_fd());
    for (hello, fds) in [
        (right, &[own, reader.as_fd()][..]),
        (right, &[own, file.as_fd()]),
        (right, &[]),
        (right, &[own]),
        (right, &[own, genuine, reader.as_fd(), file.as_fd()]),
        // No process, and one that does not share its memory with the one that says so.
        (right, &[file.as_fd(), genuine]),
        (right, &[other.as_fd(), genuine]),
        (child, &[other.as_fd()]),
        (child, &[own, genuine]),
        (wrong, &[own, genuine]),
        (shifted, &[own, genuine]),
        (high, &[own, genuine]),
        (far, &[own, genuine]),
        (large, &[own, genuine]),
    ] {
        // A child that has ended, as it seems, gets no answer.
        let answer = greet(&dial(&pager), &hello, fds);
        assert!(answer == Some(1) || hello.token > 0 && answer.is_none(), "{hello:?} {fds:?}");
    }
    // Half a greeting, and none.
    let stream = dial(&pager);
    rustix::io::write(&stream, &[1, 2, 3]).unwrap();
    assert_eq!(answer(&stream), Some(1));
    drop(dial(&pager));
    program.works();
    stranger.kill().and_then(|()| stranger.wait()).unwrap();
    drop((uffd, reader, writer, file, stream, other));
    until(|| descriptors() <= before);
    assert!(pager.reports().iter().all(|one| one.starts_with("a program was not connected")));
}

#[test]
fn other_users_are_refused_before_they_say_anything() {
    let _alone = support::alone();
    let Some(pager) = pager() else { return };
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: needs root");
    }
    let address = address(&pager).0;
    // Before anything is served here: a fork would wait for the pager's thread.
    let child = in_child(|| {
        // SAFETY: changes this child alone.
        assert_eq!(unsafe { libc::setuid(65534) }, 0);
        (0..500).all(|_| {
            let stream = UnixStream::connect_addr(&address).unwrap();
            answer(&stream) == Some(1)
        })
    });
    let program = Program::connect(&pager);
    program.works();
    assert!(child.succeeds());
    program.works();
    let reports = pager.reports();
    assert!(reports.iter().all(|one| one.contains("another user, 65534")), "{reports:?}");
    assert!((1..=30).contains(&reports.len()), "{reports:?}");
}

#[test]
fn request_for_more_than_a_region_ends_no_pager() {
    let _alone = support::alone();
    let Some(pager) = pager() else { return };
    let program = Program::connect(&pager);
    let (base, _) = program.client.region();
    let (doorbell, first) = (WINDOW as usize - 1, base + client::FIRST * PAGE);
    for (serial, (op, a)) in [(op::RESERVE, 0), (op::DISCARD, first), (op::RELEASE, first), (99, 0)]
        .into_iter()
        .enumerate()
    {
        let request = Request { serial: serial as u64 + 1, op, a: a as u64, b: u64::MAX };
        let place = program.client.requests() + doorbell * size_of::<Request>();
        let bell = base + doorbell * PAGE;
        // SAFETY: no thread of this program uses this doorbell; its page is mapped, and holds an answer when it is read.
        unsafe {
            std::ptr::with_exposed_provenance_mut::<Request>(place).write_volatile(request);
            std::ptr::with_exposed_provenance::<u64>(bell).read_volatile();
            assert!(raw::advise(bell, PAGE, libc::MADV_DONTNEED).is_ok());
        }
    }
    program.works();
}
