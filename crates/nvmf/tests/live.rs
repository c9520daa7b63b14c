//! A target under attack: hosts that break the protocol in every way, over real sockets, beside one that
//! keeps it and checks all it reads.
//!
//! `ESKER_SOAK=5000000 cargo test --release -p esker-nvmf --test live -- --nocapture` sends so many PDUs;
//! without it a few thousand are sent.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{NQN, config, memory, open};
use esker_base::{AlignedBuf, Clock, Lba, Rng, thread};
use esker_device::{Device, Port};
use esker_nvmf::target::{Access, NamespaceConfig, SubsystemConfig, Target};
use esker_nvmf::wire::capsule::{Sgl, Sqe};
use esker_nvmf::wire::fabrics::{
    CC, CC_ENABLE, CONNECT, Connect, ConnectData, OPCODE, PROPERTY_SET, Property,
};
use esker_nvmf::wire::padded;
use esker_nvmf::wire::pdu::{CommonHeader, HDGSTF, IcReq, PduType, TermReq, Transfer};

const ATTACKED: &str = "nqn.2026-01.io.esker:attacked";
/// Until when a connection has to be answered or closed, on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sums over all attackers.
#[derive(Default)]
struct Tally {
    pdus: AtomicU64,
    connections: AtomicU64,
    answered_bytes: AtomicU64,
}

/// A host that means harm.
struct Attacker<'a> {
    rng: Rng,
    clock: Clock,
    address: SocketAddr,
    tally: &'a Tally,
    /// The admin queue of a controller of its own, and the controller's id.
    controller: Option<(TcpStream, u16)>,
}

fn header(kind: u8, flags: u8, hlen: usize, pdo: usize, plen: usize) -> [u8; 8] {
    let small = |n: usize| u8::try_from(n & 0xff).unwrap();
    let plen = u32::try_from(plen).unwrap();
    CommonHeader { kind, flags, hlen: small(hlen), pdo: small(pdo), plen }.encode()
}

fn pdu(kind: PduType, flags: u8, body: &[u8], data: &[u8]) -> Vec<u8> {
    let hlen = 8 + body.len();
    let pdo = if data.is_empty() { 0 } else { hlen };
    [&header(kind as u8, flags, hlen, pdo, hlen + data.len()), body, data].concat()
}

fn connect(qid: u16, cntlid: u16) -> Vec<u8> {
    let connect = Connect { qid, sqsize: 31, kato: 5000, ..Connect::default() };
    let data = ConnectData {
        hostid: [6; 16],
        cntlid,
        subnqn: padded(ATTACKED, 0),
        hostnqn: padded("nqn.2026-01.io.esker:attacker", 0),
    };
    let sgl = Sgl { address: 0, length: 1024, kind: Sgl::IN_CAPSULE };
    let sqe = Sqe { sgl, ..Sqe::new(OPCODE, CONNECT.into()) };
    pdu(PduType::CapsuleCmd, 0, &sqe.with_arguments(&connect.encode()).encode(), &data.encode())
}

fn enable() -> Vec<u8> {
    let property = Property { attrib: 0, ofst: CC, value: CC_ENABLE.into() };
    let sqe = Sqe::new(OPCODE, PROPERTY_SET.into()).with_arguments(&property.encode());
    pdu(PduType::CapsuleCmd, 0, &sqe.encode(), &[])
}

impl Attacker<'_> {
    fn small(&mut self, below: usize) -> usize {
        usize::try_from(self.rng.below(u64::try_from(below).unwrap())).unwrap()
    }

    fn dword(&mut self) -> u32 {
        let bits = u32::try_from(self.rng.u64() >> 32).unwrap();
        match self.rng.below(4) {
            0 => 0,
            1 => bits % 16,
            2 => bits % 5000,
            _ => bits,
        }
    }

    /// A command with a known opcode and arguments of any kind.
    fn command(&mut self, is_admin: bool) -> Vec<u8> {
        const ADMIN: [u8; 12] =
            [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f, 0x10, 0x80, 0x1a, 0x0d];
        const IO: [u8; 16] = [
            0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0c, 0x0d, 0x0e, 0x11, 0x12, 0x15, 0x19, 0x1d,
            0x7f, 0x04,
        ];
        let opcode = if is_admin { ADMIN[self.small(12)] } else { IO[self.small(16)] };
        let nsid = match self.rng.below(8) {
            0 => self.dword(),
            1 => 0xffff_ffff,
            _ => 1,
        };
        let mut sqe = Sqe::new(opcode, nsid);
        sqe.cid = u16::try_from(self.rng.below(40)).unwrap();
        for dword in &mut sqe.cdw {
            *dword = 0;
        }
        let is_sane = self.rng.chance(1, 2);
        for at in 0..6 {
            sqe.cdw[at] = if is_sane && at != 0 { 0 } else { self.dword() };
        }
        if is_sane {
            sqe.cdw[0] %= 100; // the starting LBA, with one LBA
        }
        let mut data = Vec::new();
        match self.rng.below(4) {
            0 => sqe.sgl = Sgl { address: 0, length: 512, kind: Sgl::TRANSPORT },
            1 => {
                data = vec![0x55; 512];
                sqe.sgl = Sgl { address: 0, length: 512, kind: Sgl::IN_CAPSULE };
            }
            2 => sqe.sgl = Sgl { address: 0, length: self.dword(), kind: Sgl::TRANSPORT },
            _ => {
                data = vec![0x55; self.small(3000)];
                let kind = u8::try_from(self.rng.below(256)).unwrap();
                sqe.sgl = Sgl { address: u64::from(self.dword()), length: self.dword(), kind };
            }
        }
        pdu(PduType::CapsuleCmd, 0, &sqe.encode(), &data)
    }

    /// A PDU that has no place where it comes.
    fn misplaced(&mut self) -> Vec<u8> {
        let transfer = Transfer {
            cccid: u16::try_from(self.rng.below(40)).unwrap(),
            ttag: u16::try_from(self.rng.below(40)).unwrap(),
            offset: self.dword(),
            length: 512,
        };
        match self.rng.below(7) {
            0 => pdu(PduType::IcReq, 0, &IcReq::default().encode(), &[]),
            1 => pdu(PduType::R2t, 0, &transfer.encode(), &[]),
            2 => pdu(PduType::C2hData, 0, &transfer.encode(), &[1; 512]),
            3 => pdu(PduType::H2cTermReq, 0, &TermReq { fes: 1, fei: 0 }.encode(), &[0; 24]),
            4 => pdu(PduType::CapsuleResp, 0, &[0; 16], &[]),
            5 => {
                let kind = u8::try_from(self.rng.below(256)).unwrap();
                header(kind, 0, 24, 0, 24).to_vec()
            }
            _ => pdu(PduType::H2cData, 4, &transfer.encode(), &[2; 512]),
        }
    }

    /// Changes a byte, or claims digests that were not agreed on.
    fn bend(&mut self, pdu: &mut [u8]) {
        let at = match self.rng.below(3) {
            0 => self.small(8),
            1 => self.small(pdu.len().min(72)),
            _ => self.small(pdu.len()),
        };
        match self.rng.below(3) {
            0 => pdu[at] ^= 1 << self.rng.below(8),
            1 => pdu[at] = self.rng.u64().to_le_bytes()[0],
            _ => pdu[1] |= HDGSTF,
        }
    }

    /// The id of a controller whose I/O queues can be attacked; a new one now and then.
    fn controller(&mut self) -> u16 {
        if self.controller.is_none() || self.rng.chance(1, 50) {
            self.controller = None;
            let mut stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut answers = [0; 128 + 24 + 24];
            let ic = pdu(PduType::IcReq, 0, &IcReq::default().encode(), &[]);
            let said = [ic, connect(0, 0xffff), enable()].concat();
            stream.write_all(&said).and_then(|()| stream.read_exact(&mut answers)).unwrap();
            // The response to Connect: its first dword has the id.
            let id = u16::from_le_bytes([answers[128 + 8], answers[128 + 9]]);
            self.controller = Some((stream, id));
        }
        self.controller.as_ref().map(|(_, id)| *id).unwrap()
    }

    /// One connection from its beginning to its end.
    fn attack(&mut self) {
        let controller = self.controller();
        let Ok(stream) = TcpStream::connect(self.address) else { return };
        let is_admin = self.rng.chance(1, 2);
        let mut said = Vec::new();
        let mut pdus = 1u64;
        let mut add = |bytes: Vec<u8>| {
            said.extend(bytes);
            pdus += 1;
        };
        add(pdu(PduType::IcReq, 0, &IcReq::default().encode(), &[]));
        if self.rng.chance(15, 16) {
            let (qid, id) = if is_admin { (0, 0xffff) } else { (1, controller) };
            add(connect(qid, id));
            add(enable());
        }
        for _ in 0..self.rng.below(60) {
            let mut one =
                if self.rng.chance(1, 60) { self.misplaced() } else { self.command(is_admin) };
            if self.rng.chance(1, 20) {
                self.bend(&mut one);
            }
            add(one);
        }
        if self.rng.chance(1, 4) {
            let length = self.small(said.len() + 1);
            said.truncate(length);
        }
        self.tally.pdus.fetch_add(pdus, Ordering::Relaxed);
        self.tally.connections.fetch_add(1, Ordering::Relaxed);
        self.say(stream, &said);
    }

    /// Says all of it, reading meanwhile, and then waits for the end of the connection.
    fn say(&mut self, mut stream: TcpStream, mut said: &[u8]) {
        stream.set_nonblocking(true).unwrap();
        let began = self.clock.now();
        let mut answers = vec![0; 64 << 10];
        let mut is_said = false;
        loop {
            assert!(
                self.clock.now().since(began) < PATIENCE,
                "a connection that broke the protocol, or said all it had to, is not closed"
            );
            let mut is_idle = true;
            if !said.is_empty() {
                match stream.write(said) {
                    Ok(count) => {
                        said = &said[count..];
                        is_idle = false;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            } else if !is_said {
                let _ = stream.shutdown(Shutdown::Write); // it may be closed
                is_said = true;
            }
            match stream.read(&mut answers) {
                Ok(0) => return,
                Ok(count) => {
                    let count = u64::try_from(count).unwrap();
                    self.tally.answered_bytes.fetch_add(count, Ordering::Relaxed);
                    is_idle = false;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            if is_idle {
                self.clock.sleep(Duration::from_micros(50));
            }
        }
    }
}

/// Writes and reads back until it is told to stop; how many rounds it did.
fn neighbour(device: &dyn Device, is_over: &AtomicBool) -> u64 {
    let mut port = Port::open(device, 1).unwrap();
    let (mut rng, mut rounds) = (Rng::new(9), 0);
    while !is_over.load(Ordering::Relaxed) {
        let (lba, mark) = (Lba(rng.below(2000)), rng.u64().to_le_bytes()[0]);
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(mark);
        port.write(lba, buf, None).unwrap();
        let buf = port.read(lba, AlignedBuf::zeroed(4096)).unwrap();
        assert!(buf.iter().all(|byte| *byte == mark), "what was written is not what is read");
        rounds += 1;
    }
    rounds
}

/// Bytes of memory that the process has, in pages of 4 KiB (proc(5)).
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn attacked() -> Target {
    let mut config = config(memory(1));
    let mut subsystem = SubsystemConfig::new(ATTACKED);
    subsystem.access = Access::Any;
    subsystem.namespaces.push(NamespaceConfig { nsid: 1, device: memory(1), uuid: None });
    config.subsystems.push(subsystem);
    assert_eq!(config.subsystems[0].nqn, NQN);
    Target::start(&config).unwrap()
}

#[test]
fn hosts_that_break_every_rule_harm_only_themselves() {
    let soak = std::env::var("ESKER_SOAK").ok().and_then(|count| count.parse().ok());
    let goal: u64 = soak.unwrap_or(20_000);
    let target = attacked();
    let device: Arc<dyn Device> = Arc::new(open(&target));
    let (tally, is_over) = (Tally::default(), AtomicBool::new(false));
    let warm = AtomicU64::new(0);
    let clock = Clock::real();
    let began = clock.now();
    let rounds = std::thread::scope(|scope| {
        let beside = {
            let (device, is_over) = (device.clone(), &is_over);
            thread::spawn_scoped(scope, "neighbour", move || neighbour(&*device, is_over)).unwrap()
        };
        let attackers: Vec<_> = (0..2)
            .map(|number| {
                let (tally, warm, address) = (&tally, &warm, target.addresses()[0]);
                let run = move || {
                    let rng = Rng::new(goal + number);
                    let mut attacker =
                        Attacker { rng, clock: Clock::real(), address, tally, controller: None };
                    loop {
                        let done = tally.pdus.load(Ordering::Relaxed);
                        if done >= goal {
                            return;
                        }
                        // Memory for the first connections stays; memory that later ones leave behind adds up.
                        if done > goal / 10 && warm.load(Ordering::Relaxed) == 0 {
                            warm.store(resident(), Ordering::Relaxed);
                        }
                        attacker.attack();
                    }
                };
                thread::spawn_scoped(scope, "attacker", run).unwrap()
            })
            .collect();
        for attacker in attackers {
            attacker.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        beside.join().unwrap()
    });
    let metrics = target.metrics();
    let grown = resident().saturating_sub(warm.load(Ordering::Relaxed));
    println!(
        "{} PDUs on {} connections in {} s: {} violations, {} bytes of answers, {rounds} rounds of the \
         neighbour, {} MiB more memory",
        tally.pdus.load(Ordering::Relaxed),
        tally.connections.load(Ordering::Relaxed),
        clock.now().since(began).as_secs(),
        metrics.violations,
        tally.answered_bytes.load(Ordering::Relaxed),
        grown >> 20,
    );
    assert!(metrics.violations > tally.connections.load(Ordering::Relaxed) / 10, "{metrics:?}");
    assert!(tally.answered_bytes.load(Ordering::Relaxed) > goal, "commands are answered, too");
    assert!(rounds > 0);
    assert!(grown < 64 << 20, "{grown} bytes more than after a tenth of the attack");
}
