//! A relay between an initiator and a target, which knows the protocol: it passes everything on,
//! but treats the I/O queues as it is told to. Connect and the admin queue always work.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::sync::Mutex;
use esker_base::{Clock, thread};
use esker_nvmf::wire::capsule::{Cqe, Sqe};
use esker_nvmf::wire::pdu::{CommonHeader, PduType, Transfer};
use esker_nvmf::wire::status::Status;

/// Fate of the commands of I/O queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    /// They are passed on.
    Well,
    /// The connection is closed at the first one.
    Breaks,
    /// They are swallowed, and nothing comes back.
    Silent,
    /// Connections are accepted, and nothing that comes over them is passed on.
    Mute,
    /// Each is answered with a status.
    Says(Status),
    /// None is answered; something comes all the time that completes none.
    Trickles(Trickle),
}

/// PDUs that come instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trickle {
    /// C2HData without a byte of data.
    NoData,
    /// The data of the command, four bytes at a time.
    Dwords,
}

struct State {
    mood: Mutex<Mood>,
    open: Mutex<Vec<TcpStream>>,
    /// I/O queues that were connected, and commands that came for them.
    queues: AtomicU64,
    commands: AtomicU64,
}

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Relay {
    pub(crate) fn to(target: SocketAddr, mood: Mood) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            mood: Mutex::new(mood),
            open: Mutex::default(),
            queues: AtomicU64::new(0),
            commands: AtomicU64::new(0),
        });
        let shared = state.clone();
        thread::spawn("relay", move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(target)) else { continue };
                shared.open.lock().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let state = shared.clone();
                thread::spawn("relay-pair", move || {
                    pass_on(&state, &near, &far);
                    let _ = near.shutdown(Shutdown::Both);
                    let _ = far.shutdown(Shutdown::Both);
                })
                .unwrap();
            }
        })
        .unwrap();
        Relay { address, state }
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.state.mood.lock() = mood;
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        for stream in self.state.open.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both); // it may be closed
        }
    }

    /// How many I/O queues were connected.
    pub(crate) fn queues(&self) -> u64 {
        self.state.queues.load(Ordering::Relaxed)
    }

    /// How many commands came on I/O queues after Connect.
    pub(crate) fn commands(&self) -> u64 {
        self.state.commands.load(Ordering::Relaxed)
    }
}

/// Passes one connection on until it ends.
fn pass_on(state: &State, mut near: &TcpStream, mut far: &TcpStream) {
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let (mut from, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    thread::spawn("relay-back", move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    })
    .unwrap();
    let mut qid = None;
    while let Some(pdu) = next_pdu(&mut near) {
        let is_command = pdu[0] == PduType::CapsuleCmd as u8;
        let sqe = is_command.then(|| Sqe::decode(&pdu[8..72]).unwrap());
        // Connect is the first command, and has the number of the queue in dword 10's upper half.
        let is_connect = is_command && qid.is_none();
        if *state.mood.lock() == Mood::Mute {
            continue;
        }
        if is_connect {
            let number = u16::from_le_bytes([pdu[8 + 42], pdu[8 + 43]]);
            qid = Some(number);
            state.queues.fetch_add(u64::from(number > 0), Ordering::Relaxed);
        }
        let mood = *state.mood.lock();
        match sqe {
            Some(sqe) if !is_connect && qid != Some(0) => {
                state.commands.fetch_add(1, Ordering::Relaxed);
                match mood {
                    Mood::Well | Mood::Mute => {}
                    Mood::Silent => continue,
                    Mood::Breaks => return,
                    Mood::Says(status) => {
                        let cqe = Cqe { cid: sqe.cid, status, ..Cqe::default() };
                        let pdu = [&header(PduType::CapsuleResp, 24)[..], &cqe.encode()].concat();
                        if near.write_all(&pdu).is_err() {
                            return;
                        }
                        continue;
                    }
                    Mood::Trickles(what) => return trickle(near, sqe.cid, what),
                }
            }
            _ => {}
        }
        if far.write_all(&pdu).is_err() {
            return;
        }
    }
}

fn header(kind: PduType, plen: u32) -> [u8; 8] {
    let pdo = if plen > 24 { 24 } else { 0 };
    CommonHeader { kind: kind as u8, flags: 0, hlen: 24, pdo, plen }.encode()
}

fn next_pdu(stream: &mut &TcpStream) -> Option<Vec<u8>> {
    let mut pdu = vec![0; 8];
    stream.read_exact(&mut pdu).ok()?;
    let plen = u32::from_le_bytes(pdu[4..8].try_into().unwrap());
    pdu.resize(usize::try_from(plen).unwrap(), 0);
    stream.read_exact(&mut pdu[8..]).ok()?;
    Some(pdu)
}

fn trickle(mut stream: &TcpStream, cid: u16, what: Trickle) {
    let clock = Clock::real();
    for round in 0u32.. {
        let length = if what == Trickle::Dwords { 4 } else { 0 };
        let transfer =
            Transfer { cccid: cid, offset: round * length, length, ..Transfer::default() };
        let data = vec![0; usize::try_from(length).unwrap()];
        let head = header(PduType::C2hData, 24 + length);
        let mut pdus = [&head[..], &transfer.encode(), &data].concat();
        if what == Trickle::NoData {
            pdus = pdus.repeat(100); // there is always something to receive
        } else {
            clock.sleep(Duration::from_millis(1));
        }
        if stream.write_all(&pdus).is_err() {
            return;
        }
    }
}

/// A relay that passes each answer on after a pause.
pub(crate) struct Sluggish;

impl Sluggish {
    pub(crate) fn to(target: SocketAddr, pause: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn("sluggish", move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(target).unwrap());
                let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn("sluggish-there", move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                })
                .unwrap();
                thread::spawn("sluggish-back", move || {
                    let (clock, mut far, mut near) = (Clock::real(), &far, &near);
                    while let Some(pdu) = next_pdu(&mut far) {
                        clock.sleep(pause);
                        if near.write_all(&pdu).is_err() {
                            break;
                        }
                    }
                    let _ = near.shutdown(Shutdown::Both);
                })
                .unwrap();
            }
        })
        .unwrap();
        address
    }
}
