//! This machine, as the plan asks for it: databases are made, nodes started, loads measured.
//!
//! Invariants
//! 1. Databases that a run was interrupted on are made anew: their note is written last, and removed first.
//! 2. Drives of the machine hold the databases of one arm at a time, and get those of another when it starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_base::Clock;
use esker_base::units::human_bytes;
use esker_device::{Create, Device};
use esker_lab::LabError;
use esker_lab::pooled::PooledOptions;
use esker_lab::pooled::bench::{Bench, DriveBytes, LoadSample, LoadStep, LoadedBytes, Survival};
use esker_lab::pooled::deployment::Deployment;
use esker_lab::pooled::ycsb::YcsbFigures;
use esker_stack::{Spec, Stack};
use serde::{Deserialize, Serialize};

use super::client::{AFTER, Clients};
use super::jars::Jars;
use super::meters::{Moment, Watched};
use super::node::{self, NodeSetup, address};
use super::storage::{self, Drives, Mounts, Site};
use super::survive;
use crate::args::PooledArgs;
use crate::failure::{Failure, Result};
use crate::lab::bounds::cgroups;
use crate::lab::groups::Groups;
use crate::lab::programs::{
    Run, Server, at_once, folder, missing_for_file_systems, runs, write, wrong,
};

/// Bytes of a row in files, uncompressed.
const ROW_BYTES: u64 = 1150;
/// Room of a node's drives for each byte of its rows: a compaction has its input and its output at once.
const ROOM: u64 = 3;
/// Room beside it: logs, and the least that a scaled drive has.
const ROOM_BESIDE: u64 = 2 << 30;
/// Memory of a client's JVM and of a node's part of the storage.
const CLIENT_BYTES: u64 = 384 << 20;
const NOTE: &str = "loaded.json";

/// The note beside databases that are complete.
#[derive(PartialEq, Serialize, Deserialize)]
struct Note {
    made_of: String,
    loaded: LoadedBytes,
}

/// The programs that the first use needs.
struct Ready {
    jars: Jars,
    groups: Groups,
}

/// Nodes and their storage.
struct Running {
    arm: Deployment,
    nodes: Vec<Server>,
    mounts: Mounts,
}

/// This machine.
pub(in crate::lab) struct Machine {
    options: PooledOptions,
    keep: bool,
    work: PathBuf,
    run: PathBuf,
    esker: PathBuf,
    clock: Clock,
    ready: Option<Ready>,
    running: Option<Running>,
    /// Bytes of the smallest drive of the machine, if those are used.
    own_bytes: Option<u64>,
    /// The arm whose databases they hold.
    held: Option<Deployment>,
    steps: u32,
}

impl Machine {
    /// Prepares the folders.
    pub(in crate::lab) fn new(args: &PooledArgs, options: PooledOptions) -> Result<Machine> {
        let made = folder(&args.work).and_then(|work| {
            fs::canonicalize(work).map_err(|error| wrong(&args.work.display().to_string(), error))
        });
        let work = made.map_err(|error| {
            Failure::new(error.kind(), error).and("name another folder with --work")
        })?;
        if !storage::is_plain(&work) {
            return Err(Failure::usage(format!(
                "--work {}: name a folder with letters, digits, dots, dashes and underscores only, as it stands in device specifications",
                work.display()
            )));
        }
        let run = work.join(format!("run-{}", std::process::id()));
        let own_bytes = own_bytes(args, &options)?;
        Ok(Machine {
            options,
            keep: args.keep,
            work,
            run,
            esker: std::env::current_exe()?,
            clock: Clock::real(),
            ready: None,
            running: None,
            own_bytes,
            held: None,
            steps: 0,
        })
    }

    /// Ends remaining processes, and removes files that are not kept. Logs of a failure stay.
    pub(in crate::lab) fn end(mut self, has_failed: bool) -> Result {
        let ended = self.ready.as_mut().map_or(Ok(()), |ready| ready.groups.end());
        // Ended by now, and children that are to be waited for.
        drop(self.running.take());
        if !self.keep {
            for arm in Deployment::ALL {
                let _ = storage::remove(&self.arm_folder(arm)); // what was never made
            }
        }
        if !has_failed {
            let removed = storage::remove(&self.run);
            removed.map_err(|error| Failure::new(error.kind(), error))?;
        }
        ended
    }

    fn ready(&self) -> Run<&Ready> {
        self.ready.as_ref().ok_or_else(|| wrong("esker", "nothing has been looked for yet"))
    }

    fn site(&self) -> Run<Site<'_>> {
        Ok(Site { esker: &self.esker, run: &self.run, groups: &self.ready()?.groups })
    }

    fn clients(&self) -> Run<Clients<'_>> {
        let Ready { jars, groups } = self.ready()?;
        Ok(Clients { jars, groups, options: &self.options, run: &self.run })
    }

    fn arm_folder(&self, arm: Deployment) -> PathBuf {
        self.work.join(format!("arm-{}", arm.data().name().replace([' ', ','], "-")))
    }

    fn drives(&self, arm: Deployment) -> Drives {
        let PooledOptions { nodes, drives, own, .. } = &self.options;
        if let (Some(own), Some(bytes)) = (own, self.own_bytes) {
            return Drives::own(own.clone(), *nodes, bytes);
        }
        let capacity = least_bytes(&self.options).next_multiple_of(1 << 20).max(1 << 30);
        Drives::at(self.arm_folder(arm), *nodes, *drives, capacity)
    }

    /// The inputs of an arm's databases.
    fn made_of(&self, arm: Deployment) -> String {
        let PooledOptions { nodes, drives, records, compressible, .. } = &self.options;
        format!(
            "{}: {records} rows, {nodes} nodes, {drives} drives, {compressible}",
            arm.data().name()
        )
    }

    fn kept(&self, arm: Deployment) -> Option<LoadedBytes> {
        let text = fs::read_to_string(self.arm_folder(arm).join(NOTE)).ok()?;
        let note: Note = serde_json::from_str(&text).ok()?;
        (note.made_of == self.made_of(arm)).then_some(LoadedBytes { seconds: None, ..note.loaded })
    }

    /// Starts the nodes of an arm on drives so many times slower than real; without delays where that is not said.
    fn open(&mut self, arm: Deployment, dilation: Option<u32>, are_new: bool) -> Run {
        let drives = self.drives(arm);
        let mounts = Mounts::open(&self.site()?, arm, &drives, dilation, are_new)?;
        // From now on a failure finds it here.
        self.running = Some(Running { arm, nodes: Vec::new(), mounts });
        let files = self.mounts()?.files();
        for (number, files) in (0..self.options.nodes).zip(&files) {
            let setup = NodeSetup {
                number,
                seed: number,
                token: None,
                files,
                run: &self.run,
                heap_bytes: self.options.heap_bytes,
                memory_bytes: self.options.memory_bytes,
            };
            let Ready { jars, groups } = self.ready()?;
            let node = setup.start(jars, groups)?;
            self.running()?.nodes.push(node);
        }
        self.running()?.nodes.iter_mut().try_for_each(node::until_ready)
    }

    fn mounts(&self) -> Run<&Mounts> {
        let running = self.running.as_ref().ok_or_else(|| wrong("esker", "no node is started"))?;
        Ok(&running.mounts)
    }

    fn running(&mut self) -> Run<&mut Running> {
        self.running.as_mut().ok_or_else(|| wrong("esker", "no node is started"))
    }

    fn close(&mut self) -> Run<Option<DriveBytes>> {
        at_once(std::mem::take(&mut self.running()?.nodes), node::end)?;
        let Some(Running { arm, mounts, .. }) = self.running.take() else {
            return Err(wrong("esker", "no node is started"));
        };
        mounts.close(&self.esker)?;
        self.drives(arm).bytes(&self.esker)
    }

    /// Makes the databases of an arm on its drives.
    fn make(&mut self, arm: Deployment) -> Run<LoadedBytes> {
        self.held = None;
        self.drives(arm).create_all(&self.site()?, arm)?;
        self.open(arm, None, true)?;
        let clients = self.clients()?;
        let compresses = arm.node_compresses().to_string();
        for number in 0..self.options.nodes {
            clients.tool(&["schema", &address(number), "1", &compresses])?;
        }
        let began = self.clock.now();
        clients.load()?;
        let seconds = Some(self.clock.now().since(began).as_secs_f64());
        let files = self.mounts()?.used()?;
        let loaded = LoadedBytes { seconds, files, drives: self.close()? };
        self.held = Some(arm);
        Ok(loaded)
    }

    fn missing_tools(&self) -> Vec<String> {
        let mut missing = missing_for_file_systems();
        let mut need = |is_there: bool, what: &str| {
            if !is_there {
                missing.push(what.to_owned());
            }
        };
        need(
            runs("java", &["-version"]),
            "java is missing: install a JDK 17, such as openjdk-17-jdk-headless",
        );
        need(
            runs("javac", &["-version"]),
            "javac is missing: install a JDK 17, such as openjdk-17-jdk-headless",
        );
        need(runs("mvn", &["-version"]), "mvn is missing: install maven");
        need(
            storage::can_write(&self.work).is_ok(),
            "the folder of --work cannot be written: name another one",
        );
        let of_node = self.options.memory_bytes.saturating_add(CLIENT_BYTES);
        let needed = u64::from(self.options.nodes).saturating_mul(of_node);
        let free = available_memory();
        if free.is_some_and(|free| free < needed) {
            let (needed, free) = (human_bytes(needed), human_bytes(free.unwrap_or_default()));
            missing.push(format!("{needed} of memory are needed, and {free} are free: take fewer --nodes, or less --memory"));
        }
        missing
    }
}

impl Bench for Machine {
    fn missing(&mut self) -> Run<Vec<String>> {
        let mut missing = self.missing_tools();
        if missing.is_empty() {
            match Jars::build(&self.work.join("jars")) {
                Ok(jars) => {
                    folder(&self.run)?;
                    let memory = cgroups().map_err(|why| wrong("cgroups", why))?;
                    self.ready = Some(Ready { jars, groups: Groups::new(&memory, &self.run)? });
                }
                Err(error) => missing.push(format!(
                    "Cassandra and YCSB cannot be built: {error}; on first use Maven needs its repository"
                )),
            }
        }
        Ok(missing)
    }

    fn load(&mut self, arm: Deployment) -> Run<LoadedBytes> {
        if self.own_bytes.is_some() {
            return self.make(arm);
        }
        if let Some(kept) = self.kept(arm) {
            return Ok(kept);
        }
        let at = self.arm_folder(arm);
        storage::remove(&at)?;
        let loaded = self.make(arm)?;
        let note = Note { made_of: self.made_of(arm), loaded };
        let text = serde_json::to_string(&note).map_err(|error| wrong(NOTE, error))?;
        write(&at.join(NOTE), &text)?;
        Ok(loaded)
    }

    fn start(&mut self, arm: Deployment, dilation: u32) -> Run {
        if self.own_bytes.is_some() {
            if self.held != Some(arm.data()) {
                self.make(arm.data())?;
            }
            self.open(arm, None, false)?;
            return self.clients()?.settle();
        }
        let note = self.arm_folder(arm).join(NOTE);
        let text =
            fs::read_to_string(&note).map_err(|error| wrong(&note.display().to_string(), error))?;
        fs::remove_file(&note).map_err(|error| wrong(&note.display().to_string(), error))?;
        self.open(arm, Some(dilation), false)?;
        self.clients()?.settle()?;
        // Complete again once it is closed.
        write(&self.run.join(NOTE), &text)
    }

    fn step(&mut self, step: &LoadStep) -> Run<LoadSample> {
        self.steps += 1;
        let name = format!("step-{}", self.steps);
        let (mut clients, logs) = self.clients()?.start(step, &name)?;
        clients.iter_mut().try_for_each(Clients::until_begun)?;
        let pids = |servers: &[Server]| servers.iter().map(Server::pid).collect::<Vec<_>>();
        let mounts = self.mounts()?;
        let watched = Watched {
            nodes: self.running.as_ref().map(|running| pids(&running.nodes)).unwrap_or_default(),
            clients: pids(&clients),
            storage: mounts.pids(),
            blocks: mounts.blocks(),
        };
        self.clock.sleep(Duration::from_secs(step.warm_up_s.into()));
        let before = Moment::take(&self.clock, &watched)?;
        self.clock.sleep(Duration::from_secs(step.seconds.into()));
        let (traffic, cpu) = Moment::take(&self.clock, &watched)?.since(&before);
        self.clock.sleep(AFTER);
        let text = self.clients()?.finish(clients, step, &logs)?;
        sample(&text, step, traffic, cpu)
    }

    fn stop(&mut self) -> Run<Option<DriveBytes>> {
        let arm = self.running()?.arm;
        let bytes = self.close()?;
        if self.own_bytes.is_some() {
            return Ok(bytes);
        }
        let saved = self.run.join(NOTE);
        let back = fs::read_to_string(&saved)
            .map_err(|error| wrong(&saved.display().to_string(), error))?;
        write(&self.arm_folder(arm).join(NOTE), &back)?;
        Ok(bytes)
    }

    fn survive(&mut self) -> Run<Survival> {
        let at = self.work.join("survive");
        storage::remove(&at)?;
        let survived = survive::run(&self.site()?, &self.clients()?, &folder(&at)?)?;
        storage::remove(&at)?;
        Ok(survived)
    }
}

/// A sample of the histograms' sums and of the meters.
#[allow(clippy::cast_precision_loss)] // counts of a run
fn sample(
    text: &str,
    step: &LoadStep,
    traffic: esker_lab::pooled::bench::BlockTraffic,
    cpu: esker_lab::pooled::bench::CpuTime,
) -> Result<LoadSample, LabError> {
    let figures = YcsbFigures::parse(text)?;
    let (reads, updates) = (figures.intended("READ")?, figures.intended("UPDATE")?);
    // A run that ends early has measured fewer seconds.
    let seconds = figures.seconds()?.min(f64::from(step.seconds));
    let ops_per_s = (reads.count + updates.count) as f64 / seconds;
    Ok(LoadSample { ops_per_s, reads, updates, failed: figures.failed(), traffic, cpu })
}

/// The least bytes of a drive, so that each node has room for its databases.
fn least_bytes(options: &PooledOptions) -> u64 {
    let nodes = u64::from(options.nodes);
    let rows = (options.records / nodes).saturating_mul(ROW_BYTES * ROOM);
    let of_node = rows.saturating_add(ROOM_BESIDE);
    of_node / u64::from(options.drives / options.nodes)
}

/// Bytes of the smallest drive of the machine, once all are known to be there; none without such drives.
fn own_bytes(args: &PooledArgs, options: &PooledOptions) -> Result<Option<u64>> {
    let stack = Stack::new();
    let open = |spec: &Spec| -> Result<Arc<dyn Device>> {
        let device = stack.open(spec, Create::Never)?.device;
        if device.identity().is_none() {
            return Err(Failure::usage(format!(
                "{spec} ends with its process, and several processes use a drive one after the other: name a device or a file"
            )));
        }
        Ok(device)
    };
    let least = least_bytes(options);
    let mut smallest = None;
    // All of them at once: one that is named twice is in use then.
    let mut opened = Vec::new();
    for spec in &args.drive {
        let device = open(spec)?;
        let geometry = device.geometry();
        let bytes = geometry.capacity.bytes(geometry.lba_size);
        if bytes < least {
            let (has, needs) = (human_bytes(bytes), human_bytes(least));
            return Err(Failure::usage(format!(
                "{spec} has {has}, and {needs} are needed: name a larger drive, or take fewer --records"
            )));
        }
        smallest = Some(smallest.map_or(bytes, |one: u64| one.min(bytes)));
        opened.push(device);
    }
    opened.extend(args.buffer.as_ref().map(open).transpose()?);
    Ok(smallest)
}

/// Memory that can be had without swapping, in bytes.
fn available_memory() -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
