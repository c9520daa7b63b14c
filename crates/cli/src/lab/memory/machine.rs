//! The machine of `esker lab memory`: the file that pages go to, swap, zram, and the runs.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Clock, ErrorKind, Rng};
use esker_lab::LabError;
use esker_lab::memory::bench::{Bound, Ended, Part, RunFigures, Runner};
use esker_lab::memory::program::{Program, Side};
use esker_pager::PAGE;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use super::process::{Completed, Process, Start};
use super::redis::Load;
use super::watch::Pool;
use super::work::{Works, socket};
use crate::args::MemoryArgs;
use crate::failure::{Failure, Result};
use crate::lab::bounds::{Bounds, cgroups, write_file};
use crate::lab::programs::{Run, wrong};

const SWAPS: &str = "/proc/swaps";
/// Bytes of the file that pages go to.
const PAGES_BYTES: u64 = 2 << 30;
/// The device of `esker run` may reach beyond them, without blocks: programs reserve more than they use.
const RESERVE_BYTES: u64 = 16 << 30;
/// Room for inputs and databases.
const WORK_BYTES: u64 = 2 << 30;
/// Reads of the drive that are timed.
const READS: usize = 400;
/// A limit that bounds nothing (page_counter of cgroups of version 1).
const UNBOUNDED: u64 = 1 << 62;

/// Why this machine cannot run the study, with the cure.
pub(crate) fn refusal() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs swap and cgroups: run it as root".to_owned());
    }
    if let Err(why) = cgroups() {
        return Some(format!("{why}: boot with systemd.unified_cgroup_hierarchy=0"));
    }
    let swaps = fs::read_to_string(SWAPS).unwrap_or_default();
    let other = swaps.lines().nth(1).and_then(|line| line.split_whitespace().next())?;
    Some(format!(
        "{other} swaps, too, and would take pages of the study: `swapoff {other}` meanwhile"
    ))
}

/// The machine.
pub(crate) struct Machine {
    bounds: Bounds,
    works: Works,
    /// This program.
    esker: PathBuf,
    seed: u64,
    clock: Clock,
    /// Keeps processors awake, if they are to be.
    _awake: Option<File>,
    /// The name of the device of compressed memory, once made.
    zram: Option<String>,
}

impl Machine {
    /// Makes the folder, the cgroups and the file.
    ///
    /// # Errors
    /// A machine that refuses; the message says what to do.
    pub(crate) fn new(args: &MemoryArgs) -> Result<Machine> {
        if let Some(why) = refusal() {
            return Err(Failure::new(ErrorKind::Unsupported, why));
        }
        let bounds = Bounds::new(&args.dir, "--dir", "memory", PAGES_BYTES + WORK_BYTES)?;
        let zeroes = vec![0; PAGE];
        let works = Works {
            folder: bounds.folder().to_owned(),
            python: args.python.clone(),
            seed: args.every.seed,
            is_quick: args.quick,
        };
        let (esker, clock) = (std::env::current_exe()?, Clock::real());
        let awake = args.keep_awake.then(esker_pager::awake::stay_awake).transpose();
        let awake = awake.map_err(|error| {
            let why = format!("--keep-awake: {error}: leave it out, or run on the host");
            Failure::new(ErrorKind::Unsupported, why)
        })?;
        let seed = args.every.seed;
        let machine = Machine { bounds, works, esker, seed, clock, _awake: awake, zram: None };
        let file = machine.pages();
        write_file(&file, PAGES_BYTES, |_| zeroes.clone())
            .map_err(|error| Failure::file(&file, &error, "name another folder with --dir"))?;
        Ok(machine)
    }

    /// Undoes everything.
    pub(crate) fn end(self) -> Result {
        self.bounds.end()
    }

    /// The file that pages go to.
    fn pages(&self) -> PathBuf {
        self.bounds.folder().join("pages")
    }

    fn set_size(&self, bytes: u64) -> Run {
        let file = OpenOptions::new().write(true).open(self.pages());
        file.and_then(|file| file.set_len(bytes)).map_err(|error| wrong("pages", error))
    }

    /// The device that a side swaps to; none where nothing swaps.
    fn swap_device(&mut self, side: Option<Side>) -> Run<Option<PathBuf>> {
        match side {
            None | Some(Side::Esker) => Ok(None),
            Some(Side::Swap0 | Side::Swap3) => Ok(Some(self.pages())),
            Some(Side::Zram) => {
                if self.zram.is_none() {
                    let made = self.bounds.add_zram(PAGES_BYTES);
                    self.zram = Some(made.map_err(|why| wrong("zram", why))?);
                }
                Ok(self.zram.as_ref().map(|name| Path::new("/dev").join(name)))
            }
        }
    }

    /// Runs a program, within bounds where there are some.
    fn go(&mut self, program: Program, side: Option<Side>, bound: Bound) -> Run<Ended> {
        self.works.renew(program)?;
        let device = match self.swap_device(side) {
            Ok(device) => device,
            Err(error) => return Ok(Ended::Failed(error.to_string())),
        };
        self.set_size(if side == Some(Side::Esker) { RESERVE_BYTES } else { PAGES_BYTES })?;
        let refused = |why: String| wrong("bounds", why);
        if let Some(device) = &device {
            self.bounds.start_swap(device).map_err(refused)?;
        }
        let ran = self.within(program, side, bound);
        if let Some(device) = &device {
            let stopped = self.bounds.stop_swap(device).map_err(refused);
            // The failure of the run comes first.
            return ran.and_then(|ended| stopped.map(|()| ended));
        }
        ran
    }

    fn within(&self, program: Program, side: Option<Side>, bound: Bound) -> Run<Ended> {
        let refused = |why: String| wrong("bounds", why);
        let limit = bound.limit_mib << 20;
        let (bytes, cluster) = match side {
            None | Some(Side::Esker) => (UNBOUNDED, None),
            Some(Side::Swap3) => (limit, Some(3)),
            Some(Side::Swap0 | Side::Zram) => (limit, Some(0)),
        };
        self.bounds.bound(bytes, cluster).map_err(refused)?;
        let prefix: Vec<OsString> = match side {
            Some(Side::Esker) => {
                let memory = format!("{}MiB", bound.budget_mib).into();
                let esker = self.esker.clone().into_os_string();
                let pages = self.pages().into_os_string();
                vec![
                    esker,
                    "run".into(),
                    "--memory".into(),
                    memory,
                    "--swap".into(),
                    pages,
                    "--".into(),
                ]
            }
            _ => Vec::new(),
        };
        let pool = self.zram.as_ref().filter(|_| side == Some(Side::Zram)).map(|name| Pool {
            statistics: Path::new("/sys/block").join(name).join("mm_stat"),
            limit,
        });
        let patience = Duration::from_secs_f64(bound.patience_s);
        let process = self.start(program, program.name(), prefix, patience, pool)?;
        match program {
            Program::Redis => self.redis(process),
            _ => Ok(match process.end()? {
                Completed::No(ended) => ended,
                Completed::Yes { sample, output } => answered(program, sample, &output),
            }),
        }
    }

    /// Starts a program in the folder and the cgroups.
    fn start(
        &self,
        program: Program,
        name: &str,
        prefix: Vec<OsString>,
        patience: Duration,
        pool: Option<Pool>,
    ) -> Run<Process> {
        let refused = |why: String| wrong("bounds", why);
        Process::start(Start {
            name,
            line: self.works.line(program),
            prefix,
            memory: self.bounds.cgroup().map_err(refused)?,
            cpu: self.bounds.cpu().map_err(refused)?,
            folder: self.bounds.folder(),
            patience,
            pool,
        })
    }

    /// The load on a server that was started, and a look at its snapshot.
    fn redis(&self, mut server: Process) -> Run<Ended> {
        let place = socket(self.bounds.folder());
        let loaded = Load::connect(&place, &mut server, self.seed).and_then(|mut load| {
            let found = load.run()?;
            load.shut_down()?;
            Ok(found)
        });
        let (phases, versions) = match loaded {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return server.abandon(&error.to_string());
            }
            // Where the server has ended, it knows better.
            Err(error) => {
                return Ok(match server.end()? {
                    Completed::No(ended) => ended,
                    Completed::Yes { .. } => Ended::Failed(error.to_string()),
                });
            }
        };
        match server.end()? {
            Completed::No(ended) => Ok(ended),
            Completed::Yes { mut sample, .. } => {
                sample.phases = phases;
                sample.answer = "every reply and every record of the snapshot is right".to_owned();
                self.verify(versions)?;
                Ok(Ended::Ran(sample))
            }
        }
    }

    /// Starts a server from the snapshot, and compares all of it.
    fn verify(&self, versions: Vec<u32>) -> Run {
        let refused = |why: String| wrong("bounds", why);
        self.bounds.bound(UNBOUNDED, None).map_err(refused)?;
        let name = "redis, from its snapshot";
        let failed = |error: io::Error| wrong(name, error);
        let patience = Duration::from_secs(120);
        let mut server = self.start(Program::Redis, name, Vec::new(), patience, None)?;
        let place = socket(self.bounds.folder());
        let mut load = Load::connect(&place, &mut server, self.seed).map_err(failed)?;
        load.verify(versions).map_err(failed)?;
        load.shut_down().map_err(failed)?;
        server.end()?;
        fs::remove_file(self.bounds.folder().join("redis/dump.rdb"))
            .map_err(|error| wrong("redis, its snapshot", error))
    }
}

/// The run of a program that has ended well, with a digest of its output. DuckDB's lines have a name, seconds and an
/// answer.
fn answered(program: Program, mut sample: RunFigures, output: &[u8]) -> Ended {
    let mut digest = Sha256::new();
    if program == Program::Duckdb {
        for line in String::from_utf8_lossy(output).lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let &[name, seconds, answer] = words.as_slice() else {
                return Ended::Failed(format!("its line '{line}' has another form"));
            };
            let Ok(seconds) = seconds.parse() else {
                return Ended::Failed(format!("its line '{line}' has no seconds"));
            };
            digest.update(format!("{name}\t{answer}\n"));
            sample.phases.push(Part { name: name.to_owned(), seconds, ..Part::default() });
        }
    } else {
        digest.update(output);
    }
    if output.is_empty() {
        return Ended::Failed("it has no output".to_owned());
    }
    for byte in digest.finalize() {
        let _ = write!(sample.answer, "{byte:02x}");
    }
    Ended::Ran(sample)
}

impl Runner for Machine {
    fn prepare(&mut self, program: Program) -> std::result::Result<Option<String>, LabError> {
        self.works.prepare(program)
    }

    fn plain(&mut self, program: Program, patience_s: f64) -> std::result::Result<Ended, LabError> {
        let bound = Bound { budget_mib: 0, limit_mib: 0, patience_s };
        self.go(program, None, bound)
    }

    fn bounded(
        &mut self,
        program: Program,
        side: Side,
        bound: Bound,
    ) -> std::result::Result<Ended, LabError> {
        self.go(program, Some(side), bound)
    }

    fn read_us(&mut self) -> std::result::Result<f64, LabError> {
        let failed = |error: io::Error| wrong("reads of the drive", error);
        let path = self.pages();
        let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
        let file = file.map_err(|error| failed(error.into()))?;
        let mut buf = AlignedBuf::zeroed(PAGE);
        let mut rng = Rng::new(self.seed);
        let mut times_us = Vec::new();
        for _ in 0..READS {
            let page = to_usize(rng.below(PAGES_BYTES / to_u64(PAGE)));
            let began = self.clock.now();
            let read = rustix::io::pread(&file, &mut buf[..], to_u64(page * PAGE));
            if read.map_err(|error| failed(error.into()))? != PAGE {
                return Err(wrong("reads of the drive", "a read was short"));
            }
            times_us.push(self.clock.now().since(began).as_secs_f64() * 1e6);
        }
        times_us.sort_by(f64::total_cmp);
        Ok(times_us[READS / 2])
    }
}
