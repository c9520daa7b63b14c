//! Reads and writes of a device in memory over NVMe/TCP on the loopback, beside the figures of bare
//! sockets and `nbdkit` in the same minute.
//!
//! `cargo bench -p esker-nvmf --bench loopback [-- ROUNDS [SECONDS [CASES]]]`
//!
//! The server has core 0 for itself and the client core 1; each is a process of its own. All cases of a
//! round follow each other, and the table has the median of the rounds and the range: machines that are
//! shared change their speed within a minute. `nbdkit` and `qemu-img` (Debian: nbdkit, qemu-utils) are used
//! if they are there.

#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // figures for people

#[path = "loopback/bare.rs"]
mod bare;
#[path = "loopback/initiator.rs"]
mod initiator;
#[path = "../../device/benches/common/machine.rs"]
mod machine;
#[path = "loopback/nbdkit.rs"]
mod nbdkit;
#[path = "loopback/process.rs"]
mod process;
#[path = "loopback/target.rs"]
mod target;

use std::fmt::Write;
use std::time::Duration;

use process::Server;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Work of a client, and how it waits.
#[derive(Clone, Copy)]
struct Load {
    depth: usize,
    bytes: usize,
    is_write: bool,
    data_digest: bool,
    /// How long the client looks for answers before it sleeps.
    spin_us: u64,
    /// The same of the server.
    server_spin_us: u64,
}

/// Never sleeps as long as there is load.
const SPINNING: u64 = 1000;
/// Busy-polling of targets by default, in microseconds.
const DEFAULT: u64 = 50;

impl Load {
    const fn reads(depth: usize, bytes: usize) -> Load {
        Load {
            depth,
            bytes,
            is_write: false,
            data_digest: false,
            spin_us: SPINNING,
            server_spin_us: SPINNING,
        }
    }

    fn words(&self) -> [String; 6] {
        [
            self.depth.to_string(),
            self.bytes.to_string(),
            u8::from(self.is_write).to_string(),
            u8::from(self.data_digest).to_string(),
            self.spin_us.to_string(),
            self.server_spin_us.to_string(),
        ]
    }

    fn parse(words: &[String]) -> Result<Load, Failure> {
        let [depth, bytes, write, digest, spin, server_spin] = words else {
            return Err("six words".into());
        };
        Ok(Load {
            depth: depth.parse()?,
            bytes: bytes.parse()?,
            is_write: write == "1",
            data_digest: digest == "1",
            spin_us: spin.parse()?,
            server_spin_us: server_spin.parse()?,
        })
    }
}

/// Result of a client: operations per second, and the median latency.
#[derive(Clone, Copy)]
struct Figure {
    rate: f64,
    p50_us: f64,
}

/// The server of a case.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Esker,
    Bare,
    Nbdkit,
}

/// The initiator sleeps until the answer is there; the target is as it is unless told otherwise.
const PARKED: Load = Load { spin_us: 0, server_spin_us: DEFAULT, ..Load::reads(1, 4096) };

const CASES: &[(&str, Side, Load)] = &[
    ("depth 1, bare socket spinning", Side::Bare, Load::reads(1, 4096)),
    ("depth 1, spinning", Side::Esker, Load::reads(1, 4096)),
    (
        "depth 1, bare socket, client parked",
        Side::Bare,
        Load { spin_us: 0, ..Load::reads(1, 4096) },
    ),
    ("depth 1, initiator parked", Side::Esker, PARKED),
    ("depth 1, bare socket, both parked", Side::Bare, Load { server_spin_us: 0, ..PARKED }),
    ("depth 1, both parked", Side::Esker, Load { server_spin_us: 0, ..PARKED }),
    ("depth 32, bare socket", Side::Bare, Load::reads(32, 4096)),
    ("depth 32", Side::Esker, Load::reads(32, 4096)),
    ("depth 32, data digest", Side::Esker, Load { data_digest: true, ..Load::reads(32, 4096) }),
    ("depth 32, nbdkit", Side::Nbdkit, Load::reads(32, 4096)),
    ("depth 32, writes", Side::Esker, Load { is_write: true, ..Load::reads(32, 4096) }),
    ("depth 128, bare socket", Side::Bare, Load::reads(128, 4096)),
    ("depth 128", Side::Esker, Load::reads(128, 4096)),
    ("depth 128, nbdkit", Side::Nbdkit, Load::reads(128, 4096)),
    ("depth 128, writes", Side::Esker, Load { is_write: true, ..Load::reads(128, 4096) }),
    ("128 KiB, depth 32, bare socket", Side::Bare, Load::reads(32, 128 << 10)),
    ("128 KiB, depth 32", Side::Esker, Load::reads(32, 128 << 10)),
    (
        "128 KiB, depth 32, digest",
        Side::Esker,
        Load { data_digest: true, ..Load::reads(32, 128 << 10) },
    ),
];

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let seconds = |word: Option<&String>| word.map_or(Ok(2), |word| word.parse());
    match arguments.first().map(String::as_str) {
        Some("serve-bare") => bare::serve(&Load::parse(&arguments[1..])?),
        Some("serve-esker") => target::serve(&Load::parse(&arguments[1..])?),
        Some("load-bare") => {
            bare::load(&arguments[1], seconds(arguments.get(2))?, &Load::parse(&arguments[3..])?)
        }
        Some("load-esker") => initiator::load(
            &arguments[1],
            seconds(arguments.get(2))?,
            &Load::parse(&arguments[3..])?,
        ),
        Some("idle") => initiator::idle(&arguments[1]),
        rounds => {
            let rounds = rounds.map_or(Ok(3), str::parse)?;
            compare(rounds, seconds(arguments.get(1))?, arguments.get(2).map_or("", String::as_str))
        }
    }
}

fn compare(rounds: usize, seconds: u64, cases: &str) -> Result<(), Failure> {
    println!("kernel  {}", machine::kernel());
    println!("cpu     {}", machine::cpu());
    println!("command cargo bench -p esker-nvmf --bench loopback -- {rounds} {seconds}");
    println!(
        "4 KiB at random places of 256 MiB in memory unless said otherwise; median (least to most)\n"
    );
    let has_nbdkit = nbdkit::is_there();
    if !has_nbdkit {
        println!("SKIPPED: nbdkit or qemu-img is not there (Debian: nbdkit, qemu-utils)\n");
    }
    let mut figures = vec![Vec::new(); CASES.len()];
    let mut cpu = vec![Vec::new(); CASES.len()];
    for _ in 0..rounds {
        for (at, (name, side, load)) in CASES.iter().enumerate() {
            if !name.contains(cases) || *side == Side::Nbdkit && !has_nbdkit {
                continue;
            }
            let (figure, server_us) = one(*side, load, seconds)?;
            figures[at].push(figure);
            cpu[at].push(server_us);
        }
    }
    for (at, (name, _, load)) in CASES.iter().enumerate() {
        if figures[at].is_empty() {
            continue;
        }
        println!("{name:<36} {}", row(load, &figures[at], &mut cpu[at]));
    }
    if cases.is_empty() {
        println!("{:<36}    {:.2} % of a core", "idle, one host connected", idle()?);
    }
    Ok(())
}

fn row(load: &Load, figures: &[Figure], cpu: &mut [f64]) -> String {
    let mut text = String::new();
    let mut of = |name: &str, value: &dyn Fn(&Figure) -> f64| {
        let mut all: Vec<f64> = figures.iter().map(value).collect();
        let median = machine::median(&mut all);
        let (least, most) = (all[0], all[all.len() - 1]);
        let _ = write!(text, "{median:>8.1} {name} ({least:.1} to {most:.1})  ");
    };
    match load {
        Load { depth: 1, .. } => of("us p50", &|figure| figure.p50_us),
        Load { bytes: 4096, .. } => of("k/s", &|figure| figure.rate / 1e3),
        _ => of("MB/s", &|figure| figure.rate * load.bytes as f64 / 1e6),
    }
    let _ = write!(text, "server {:.2} us of CPU each", machine::median(cpu));
    text
}

/// Runs one case once: the client's figure, and the server's microseconds of CPU per operation.
fn one(side: Side, load: &Load, seconds: u64) -> Result<(Figure, f64), Failure> {
    let (server, client) = match side {
        Side::Nbdkit => return nbdkit::run(load, seconds),
        Side::Bare => ("serve-bare", "load-bare"),
        Side::Esker => ("serve-esker", "load-esker"),
    };
    let server = Server::start(server, load)?;
    let before = server.cpu_us()?;
    let figure = process::client(client, &server.address, seconds, load)?;
    let used = server.cpu_us()? - before;
    Ok((figure, used / (figure.rate * seconds as f64)))
}

/// The share of a core in percent that a target uses while a host is connected and wants nothing.
fn idle() -> Result<f64, Failure> {
    const SECONDS: u64 = 4;
    let server =
        Server::start("serve-esker", &Load { server_spin_us: DEFAULT, ..Load::reads(1, 4096) })?;
    let mut client = process::spawn(1, &["idle", &server.address])?;
    let clock = esker_base::Clock::real();
    clock.sleep(Duration::from_secs(1));
    let before = server.cpu_us()?;
    clock.sleep(Duration::from_secs(SECONDS));
    let used = server.cpu_us()? - before;
    drop(client.stdin.take());
    client.wait()?;
    Ok(used / (SECONDS as f64 * 1e6) * 100.0)
}
