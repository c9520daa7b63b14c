//! Passes TCP connections on. Killing it simulates a dead network path: the target and its
//! other portal live on.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};

use super::Failure;

/// Passes connections to `listen` on to `to`, for ever.
pub(crate) fn run(listen: &str, to: &str) -> Result<(), Failure> {
    for stream in TcpListener::bind(listen)?.incoming() {
        let (near, far) = (stream?, TcpStream::connect(to)?);
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        for (mut from, mut to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
            esker_base::thread::spawn("relay", move || {
                // Whichever end is gone, the other hears of it.
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
            })?;
        }
    }
    Ok(())
}
