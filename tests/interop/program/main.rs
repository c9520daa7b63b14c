//! Programs of the interop suite on this side of the network, against a real Linux kernel on the
//! other: a target, a relay that stands for a network path, and users of the initiator.
//!
//! `interop target ADDRESS [OPTION=VALUE]...` (see `target.rs`)
//! `interop relay LISTEN TO` passes connections on until it is killed
//! `interop check URL`, `interop rewrite URL SECONDS`, `interop placement URL`, `interop drive PATH`,
//! `interop write PATH ID LBAS` (see `device.rs`)

#![allow(clippy::print_stdout)]

mod device;
mod relay;
mod target;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["target", listen, ref options @ ..] => target::run(listen, options),
        ["relay", listen, to] => relay::run(listen, to),
        ["check", url] => device::check(url),
        ["rewrite", url, seconds] => device::rewrite(url, seconds.parse()?),
        ["placement", url] => device::placement(url),
        ["drive", path] => device::drive(path),
        ["write", path, id, lbas] => device::write(path, id.parse()?, lbas.parse()?),
        _ => {
            Err("target ADDRESS, relay LISTEN TO, check URL, rewrite URL SECONDS, placement URL, \
                 drive PATH, write PATH ID LBAS"
                .into())
        }
    }
}
