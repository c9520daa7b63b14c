//! Measures a device spec: a remote namespace, with reads or writes at random places.
//!
//! `cargo run --release -p esker-nvmf --example measure -- URL DEPTH [OPTION=VALUE]...`
//!
//! Options: `op=read|write`, `bytes=4096`, `seconds=3`, `queues=1`, `spin_us=1000`, `span_mib=` the
//! part of the namespace that is used. `ping=ADDRESS` measures a TCP ping-pong with a server at
//! that address instead, `pong=ADDRESS` is that server, which ends after one connection.

#![allow(clippy::print_stdout)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Device, Op, Tag};
use esker_nvmf::{Initiator, InitiatorConfig};

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Run {
    depth: usize,
    is_write: bool,
    bytes: usize,
    seconds: u64,
    span: u64,
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("a URL, or ping=ADDRESS, or pong=ADDRESS")?;
    if let Some(address) = url.strip_prefix("pong=") {
        return pong(address);
    }
    if let Some(address) = url.strip_prefix("ping=") {
        return ping(address);
    }
    let depth = arguments.next().ok_or("a depth")?.parse()?;
    let mut run = Run { depth, is_write: false, bytes: 4096, seconds: 3, span: u64::MAX };
    let (mut queues, mut spin_us) = (1, 1000);
    for argument in arguments {
        match argument.split_once('=').ok_or("options are NAME=VALUE")? {
            ("op", op) => run.is_write = op == "write",
            ("bytes", value) => run.bytes = value.parse()?,
            ("seconds", value) => run.seconds = value.parse()?,
            ("queues", value) => queues = value.parse()?,
            ("spin_us", value) => spin_us = value.parse()?,
            ("span_mib", value) => run.span = value.parse::<u64>()? << 20,
            (name, _) => return Err(format!("unknown option {name}").into()),
        }
    }
    let mut config = InitiatorConfig::parse(&url)?;
    config.spin = Duration::from_micros(spin_us);
    let device = Initiator::open(config)?;
    std::thread::scope(|scope| {
        let (device, run) = (&device, &run);
        let threads: Vec<_> = (0..queues)
            .map(|seed| {
                esker_base::thread::spawn_scoped(scope, "queue", move || one(device, run, seed))
            })
            .collect::<Result<_, _>>()?;
        let mut latencies = Vec::new();
        let mut rate = 0.0;
        for thread in threads {
            let (count, seconds, mut own) = thread.join().map_err(|_| "a thread panicked")??;
            rate += count / seconds;
            latencies.append(&mut own);
        }
        report(&format!("depth {} x {queues}", run.depth), rate, run.bytes, &mut latencies);
        Ok(())
    })
}

#[allow(clippy::cast_precision_loss)] // figures for people
fn report(what: &str, rate: f64, bytes: usize, latencies: &mut [u64]) {
    latencies.sort_unstable();
    let at = |share: usize| latencies[(latencies.len() - 1) * share / 1000] as f64 / 1e3;
    println!(
        "{what}: {:.1} k/s, {:.2} GB/s, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us",
        rate / 1e3,
        rate * bytes as f64 / 1e9,
        at(500),
        at(990),
        at(999)
    );
}

type Figures = (f64, f64, Vec<u64>);

#[allow(clippy::cast_precision_loss)]
fn one(device: &dyn Device, run: &Run, seed: u64) -> Result<Figures, Failure> {
    let geometry = device.geometry();
    let lbas_per = u64::try_from(run.bytes)? / u64::from(geometry.lba_size);
    let span = run.span / u64::from(geometry.lba_size);
    let places = geometry.capacity.0.min(span) / lbas_per;
    let mut queue = device.queue_pair(run.depth)?;
    let (clock, mut rng) = (Clock::real(), Rng::new(seed));
    let mut free: Vec<_> = (0..run.depth).map(|_| AlignedBuf::zeroed(run.bytes)).collect();
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    let (mut count, mut latencies) = (0u64, Vec::with_capacity(1 << 22));
    let start = clock.now();
    let mut now = start;
    let end = start + Duration::from_secs(run.seconds);
    while now < end || queue.in_flight() > 0 {
        for buf in free.drain(..).take(if now < end { usize::MAX } else { 0 }) {
            let lba = Lba(rng.below(places) * lbas_per);
            let op = match run.is_write {
                true => Op::Write { lba, buf, placement: None, fua: false },
                false => Op::Read { lba, buf },
            };
            batch.push_back(Command { tag: Tag(now.0), op });
        }
        queue.submit(&mut batch)?;
        queue.wait(&mut done, None)?;
        now = clock.now();
        for completion in done.drain(..) {
            completion.result?;
            count += 1;
            latencies.push(now.0 - completion.tag.0);
            free.extend(completion.buf);
        }
    }
    Ok((count as f64, now.since(start).as_secs_f64(), latencies))
}

/// Answers 72 bytes with 4,120, as a read of 4 KiB is, as fast as TCP does.
fn pong(address: &str) -> Result<(), Failure> {
    let (mut stream, _) = TcpListener::bind(address)?.accept()?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let (mut request, answer) = ([0; 72], [0; 4120]);
    while spin(&mut stream, &mut request)? {
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// Reads all of a message without sleeping; false at the end of the stream.
fn spin(stream: &mut TcpStream, message: &mut [u8]) -> Result<bool, Failure> {
    let mut at = 0;
    while at < message.len() {
        match stream.read(&mut message[at..]) {
            Ok(0) => return Ok(false),
            Ok(count) => at += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

#[allow(clippy::cast_precision_loss)]
fn ping(address: &str) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let (clock, mut latencies, mut answer) = (Clock::real(), Vec::new(), [0; 4120]);
    let start = clock.now();
    while clock.now().since(start) < Duration::from_secs(3) {
        let before = clock.now();
        stream.write_all(&[0; 72])?;
        spin(&mut stream, &mut answer)?;
        latencies.push(clock.now().0 - before.0);
    }
    let rate = latencies.len() as f64 / clock.now().since(start).as_secs_f64();
    report("ping-pong", rate, 4096, &mut latencies);
    Ok(())
}
