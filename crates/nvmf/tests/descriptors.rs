//! A target whose process has few descriptors, and many silent hosts.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use common::{config, memory, reach};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::Port;
use esker_nvmf::target::Target;
use esker_nvmf::wire::pdu::{CommonHeader, IcReq, PduType};
use esker_nvmf::{Initiator, InitiatorConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Not a test, but the process that tests start: a target. Its standard input has the longest
/// handshake in milliseconds, then numbers of descriptors that it may have from then on.
#[test]
#[ignore = "started by the others"]
fn a_target_with_few_descriptors() {
    let mut lines = std::io::stdin().lines().map(|line| line.unwrap().parse::<u64>().unwrap());
    let mut config = config(memory(1));
    config.limits.handshake = Duration::from_millis(lines.next().unwrap());
    let target = Target::start(&config).unwrap();
    eprintln!("address {}", target.addresses()[0]);
    for limit in lines {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
        eprintln!("limit {limit}");
    }
    // Where silence is not allowed for long, there may be descriptors for all hosts that come meanwhile.
    let metrics = target.metrics();
    assert!(metrics.refused + metrics.timeouts > 0, "{metrics:?}");
}

struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStderr>,
    address: SocketAddr,
}

impl Server {
    fn start(handshake_ms: u32) -> Server {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "a_target_with_few_descriptors"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{handshake_ms}").unwrap();
        let mut output = BufReader::new(child.stderr.take().unwrap());
        let address = said(&mut output, "address ").parse().unwrap();
        Server { child, input: Some(input), output, address }
    }

    fn limit(&mut self, count: u32) {
        writeln!(self.input.as_mut().unwrap(), "{count}").unwrap();
        said(&mut self.output, "limit ");
    }

    /// Connects, and says nothing.
    fn silent(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Whether the target speaks to a new host.
    fn greets(&self) -> bool {
        let mut stream = self.silent();
        let kind = PduType::IcReq as u8;
        let header = CommonHeader { kind, flags: 0, hlen: 128, pdo: 0, plen: 128 };
        let request = [&header.encode()[..], &IcReq::default().encode()].concat();
        stream.write_all(&request).is_ok() && stream.read_exact(&mut [0; 128]).is_ok()
    }

    fn open(&self) -> Initiator {
        let config = reach(vec![self.address]);
        Initiator::open(InitiatorConfig { timeout: Duration::from_secs(60), ..config }).unwrap()
    }

    /// Ends it, in order.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &mut impl BufRead, what: &str) -> String {
    let mut line = String::new();
    while output.read_line(&mut line).unwrap() > 0 {
        if let Some(rest) = line.strip_prefix(what) {
            return rest.trim().to_owned();
        }
        line.clear();
    }
    panic!("the target ended before it said '{what}'");
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 8]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn without_descriptors_hosts_are_refused_and_others_are_served() {
    let mut server = Server::start(3_600_000);
    let neighbour = server.open();
    let mut port = Port::open(&neighbour, 1).unwrap();
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap(); // its queue is connected now
    server.limit(64);
    let mut silent: Vec<TcpStream> = (0..120).map(|_| server.silent()).collect();
    assert!(is_closed(silent.last_mut().unwrap()), "the last one is not accepted");
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    silent.truncate(10);
    let clock = Clock::real();
    for _ in 0..1000 {
        if server.greets() {
            port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
            drop((port, neighbour, silent));
            return server.end();
        }
        clock.sleep(Duration::from_millis(20));
    }
    panic!("descriptors are free, and nobody is let in");
}

#[test]
fn a_target_that_cannot_even_refuse_listens_again() {
    let mut server = Server::start(3_600_000);
    let neighbour = server.open();
    let mut port = Port::open(&neighbour, 1).unwrap();
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap(); // its queue is connected now
    server.limit(3);
    let mut early: Vec<TcpStream> = (0..5).map(|_| server.silent()).collect();
    for _ in 0..50 {
        port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    }
    server.limit(24);
    // Some of these are let in, and the last are refused: it listens again.
    early.extend((0..40).map(|_| server.silent()));
    assert!(is_closed(early.last_mut().unwrap()));
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    drop((port, neighbour, early));
    server.end();
}

#[test]
fn a_thousand_silent_hosts_are_shed() {
    let own = getrlimit(Resource::Nofile);
    if own.current.is_some_and(|current| current < 1200) {
        let enough =
            Rlimit { current: own.maximum.map_or(Some(1200), |most| Some(most.min(1200))), ..own };
        setrlimit(Resource::Nofile, enough).unwrap();
    }
    let mut server = Server::start(500);
    let neighbour = server.open();
    let mut port = Port::open(&neighbour, 1).unwrap();
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap(); // its queue is connected now
    server.limit(300);
    let mut silent: Vec<TcpStream> = (0..1000).map(|_| server.silent()).collect();
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    for stream in &mut silent {
        assert!(is_closed(stream));
    }
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    assert!(server.greets());
    drop((port, neighbour));
    server.end();
}
