//! The file device beside `fio` on the same file, in alternating runs: 4 KiB random reads at
//! depth 1 and 32, and sequential writes of 1 MiB at depth 4.
//!
//! `cargo bench -p esker-device --bench file_vs_fio [-- <file>]`; the file (1 GiB) is created if
//! it is missing, by default beside the build, and removed then.

#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "common/machine.rs"]
mod machine;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode};
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Device, FileDevice, FileOptions, Op, Port, Preference, Tag};

const PAIRS: usize = 7;
const SECONDS: u64 = 2;
const FILE_SIZE: u64 = 1 << 30;

/// A workload, as fio and as we run it.
struct Workload {
    name: &'static str,
    fio: &'static str,
    is_write: bool,
    size: usize,
    depth: usize,
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "4 KiB random read, depth 1",
        fio: "randread",
        is_write: false,
        size: 4096,
        depth: 1,
    },
    Workload {
        name: "4 KiB random read, depth 32",
        fio: "randread",
        is_write: false,
        size: 4096,
        depth: 32,
    },
    Workload {
        name: "1 MiB sequential write, depth 4",
        fio: "write",
        is_write: true,
        size: 1 << 20,
        depth: 4,
    },
];

fn main() -> ExitCode {
    if Process::new("fio").arg("--version").output().is_err() {
        eprintln!("SKIPPED: fio is not installed; install it (apt-get install fio) and run again");
        return ExitCode::FAILURE;
    }
    // Cargo passes --bench, and whoever runs this the path of a file.
    let named = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).join("file_vs_fio.data");
    let path = named.as_ref().map_or(beside, PathBuf::from);
    fill(&path);
    println!("kernel  {}", machine::kernel());
    println!("cpu     {}", machine::cpu());
    println!("device  {}", machine::device_of(&path));
    println!("command cargo bench -p esker-device --bench file_vs_fio");
    println!("{PAIRS} pairs of alternating runs of {SECONDS} s; commands per second, medians");
    println!("{:34} {:>9} {:>9} {:>7}", "", "fio", "esker", "ratio");
    for workload in &WORKLOADS {
        let mut figures: [Vec<f64>; 3] = Default::default();
        for _ in 0..PAIRS {
            let (fio, ours) = (run_fio(&path, workload), run(&path, workload));
            for (all, figure) in figures.iter_mut().zip([fio, ours, ours / fio]) {
                all.push(figure);
            }
        }
        let [fio, ours, ratio] = figures.map(|mut all| machine::median(&mut all));
        println!("{:34} {fio:9.0} {ours:9.0} {ratio:7.3}", workload.name);
    }
    if named.is_none() {
        std::fs::remove_file(&path).expect("remove the file");
    }
    ExitCode::SUCCESS
}

fn open(path: &Path) -> FileDevice {
    let options = FileOptions {
        direct: Preference::Require,
        io_uring: Preference::Require,
        ..FileOptions::default()
    };
    FileDevice::open(path, &options).expect("a file system with direct I/O")
}

/// Writes the whole file once, so that reads find data and writes overwrite.
fn fill(path: &Path) {
    let device = open(path);
    if device.len_bytes().expect("the length") >= FILE_SIZE {
        return;
    }
    let mut port = Port::open(&device, 8).expect("a port");
    let mut rng = Rng::new(1);
    let writes = (0..FILE_SIZE >> 20).map(|n| {
        let mut buf = AlignedBuf::zeroed(1 << 20);
        rng.fill(&mut buf);
        Op::Write { lba: Lba(n << 8), buf, placement: None, fua: false }
    });
    for write in writes {
        port.run(write).expect("a write");
    }
    port.flush().expect("a flush");
}

/// Commands per second of fio.
fn run_fio(path: &Path, workload: &Workload) -> f64 {
    let output = Process::new("fio")
        .args(["--name=run", "--ioengine=io_uring", "--direct=1"])
        .args(["--time_based", "--invalidate=0", "--output-format=terse"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={FILE_SIZE}"))
        .arg(format!("--rw={}", workload.fio))
        .arg(format!("--bs={}", workload.size))
        .arg(format!("--iodepth={}", workload.depth))
        .arg(format!("--runtime={SECONDS}"))
        .output()
        .expect("fio runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // The terse format, version 3: the 8th field is the reads per second, the 49th the writes.
    let field = if workload.is_write { 48 } else { 7 };
    let figure = text.trim().split(';').nth(field).map(str::parse);
    match figure {
        Some(Ok(figure)) => figure,
        _ => panic!("fio said: {text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Commands per second through the seam.
fn run(path: &Path, workload: &Workload) -> f64 {
    let device = open(path);
    let mut queue = device.queue_pair(workload.depth).expect("a queue pair");
    let zeroed = |_| AlignedBuf::zeroed(workload.size);
    let mut bufs: Vec<_> = (0..workload.depth).map(zeroed).collect();
    let mut commands = VecDeque::with_capacity(workload.depth);
    let mut done = Vec::with_capacity(workload.depth);
    let (clock, mut rng) = (Clock::real(), Rng::new(2));
    let places = FILE_SIZE / workload.size as u64;
    let lbas = workload.size as u64 / u64::from(device.geometry().lba_size);
    let (mut finished, mut next) = (0u64, 0);
    let start = clock.now();
    while clock.now() - start < Duration::from_secs(SECONDS) {
        for buf in bufs.drain(..) {
            let place = if workload.is_write { next % places } else { rng.below(places) };
            let (tag, lba) = (Tag(next), Lba(place * lbas));
            let op = if workload.is_write {
                Op::Write { lba, buf, placement: None, fua: false }
            } else {
                Op::Read { lba, buf }
            };
            commands.push_back(Command { tag, op });
            next += 1;
        }
        queue.submit(&mut commands).expect("submit");
        queue.wait(&mut done, None).expect("wait");
        for completion in done.drain(..) {
            completion.result.expect("a command");
            bufs.extend(completion.buf);
            finished += 1;
        }
    }
    finished as f64 / (clock.now() - start).as_secs_f64()
}
