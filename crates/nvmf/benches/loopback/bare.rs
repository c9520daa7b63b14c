//! The same bytes over a bare socket: 72 for a read one way, 24 and the data the other. The
//! difference to it is the cost of a protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use esker_base::Clock;

use super::{Failure, Load, process};

const REQUEST: usize = 72;
const HEADER: usize = 24;
const BUFFER: usize = 1 << 20;

fn prepare(stream: &TcpStream, spin_us: u64) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(spin_us > 0)?;
    Ok(())
}

/// Reads the bytes at hand; sleeps for them only if the socket blocks.
fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize, Failure> {
    loop {
        match stream.read(buffer) {
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            // The client leaves when its time is over, whatever is under way.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}

fn send(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Prints its address, and answers one connection until that ends.
pub(crate) fn serve(load: &Load) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    prepare(&stream, load.server_spin_us)?;
    let answers = vec![1u8; (HEADER + load.bytes) * load.depth];
    let (mut requests, mut pending) = (vec![0; REQUEST * load.depth], 0);
    loop {
        let count = receive(&mut stream, &mut requests)?;
        if count == 0 {
            return Ok(());
        }
        pending += count;
        let whole = pending / REQUEST;
        pending %= REQUEST;
        send(&mut stream, &answers[..whole * (HEADER + load.bytes)])?;
    }
}

/// Keeps `depth` requests in flight.
pub(crate) fn load(address: &str, seconds: u64, load: &Load) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    prepare(&stream, load.spin_us)?;
    let answer = HEADER + load.bytes;
    let requests = vec![0; REQUEST * load.depth];
    let mut buffer = vec![0; BUFFER];
    let (mut pending, mut count) = (0, 0u64);
    let (clock, mut latencies) = (Clock::real(), Vec::new());
    let start = clock.now();
    let mut now = start;
    send(&mut stream, &requests)?;
    while now.since(start) < Duration::from_secs(seconds) {
        pending += receive(&mut stream, &mut buffer)?;
        let whole = pending / answer;
        pending %= answer;
        if whole == 0 {
            continue;
        }
        let before = std::mem::replace(&mut now, clock.now());
        latencies.push(now.0 - before.0);
        count += u64::try_from(whole)?;
        send(&mut stream, &requests[..REQUEST * whole])?;
    }
    process::print(count as f64 / now.since(start).as_secs_f64(), &mut latencies);
    Ok(())
}
