//! A node is killed and a drive fails under load: three nodes with three copies of each row, on three volumes of one
//! pool with one parity.
//!
//! The drive is served by a process of its own, and fails when that is killed. A client writes numbers and keeps a log
//! of those that were acknowledged; at the end every one of them is looked for.

use std::fs;
use std::path::Path;
use std::time::Duration;

use esker_base::Clock;
use esker_lab::pooled::bench::Survival;
use serde_json::Value;

use super::client::Clients;
use super::node::{self, NodeSetup, address};
use super::storage::{Drives, Layout, Mounts, Site, listening, make_pool, make_volume};
use crate::lab::programs::{Run, Server, write, wrong};

const NODES: u32 = 3;
const POOL: &str = "tank";
const CAPACITY: u64 = 2 << 30;
const VOLUME: u64 = 1 << 30;
const HEAP: u64 = 512 << 20;
const MEMORY: u64 = 1 << 30;
/// Seconds of load before, between and after the two losses.
const PART: Duration = Duration::from_secs(20);
/// How long the pool may take to notice that a drive has failed, and to rebuild it.
const NOTICE: Duration = Duration::from_secs(120);
const REBUILD: Duration = Duration::from_secs(600);
const CHECK: Duration = Duration::from_secs(1200);
const STEP: Duration = Duration::from_millis(200);
const READY: Duration = Duration::from_secs(60);

/// Loses a node and a drive.
pub(super) fn run(site: &Site<'_>, clients: &Clients<'_>, folder: &Path) -> Run<Survival> {
    let count = clients.options.drives;
    // One more takes the place of the one that fails.
    let drives = Drives::at(folder.to_owned(), 1, count + 1, CAPACITY);
    drives.create(site.esker)?;
    let fragile = serve_drive(site, &drives.spec(0, "real"))?;
    // The first one, so that it has a copy of the pool's log.
    let mut specs = vec![fragile.spec.clone()];
    specs.extend((1..count).map(|drive| drives.spec(drive, "real")));
    let layout = Layout { parities: 1, has_buffer: false, is_small: true };
    make_pool(site, POOL, &specs, layout)?;
    for node in 0..NODES {
        make_volume(site, POOL, &format!("n{node}"), &specs, VOLUME, true)?;
    }
    let mounts = Mounts::of_pool(site, POOL, &specs, NODES)?;
    let mut cluster = Cluster { clients, mounts, nodes: Vec::new() };
    (0..NODES).try_for_each(|number| cluster.start(number))?;
    clients.tool(&["schema", &address(0), &NODES.to_string(), "false"])?;
    let survival = lose(site, &mut cluster, fragile, &drives.spec(count, "real"), folder)?;
    cluster.end(site.esker)?;
    Ok(survival)
}

/// A drive in a process of its own.
struct Fragile {
    server: Server,
    spec: String,
}

fn serve_drive(site: &Site<'_>, spec: &str) -> Run<Fragile> {
    const NQN: &str = "nqn.2026-01.io.esker:fragile";
    let mut server = site.server("drive", |command| {
        command.args([
            "target",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
            "--allow-any",
        ]);
        command.args(["--subsystem", NQN, "--device", spec]);
    })?;
    let address = server.until(READY, listening)?;
    let spec = format!("nvme-tcp://{address}/{NQN}?give-up=1s&retry=50ms&timeout=2s");
    Ok(Fragile { server, spec })
}

/// The nodes on their volumes.
struct Cluster<'a> {
    clients: &'a Clients<'a>,
    mounts: Mounts,
    nodes: Vec<Server>,
}

impl Cluster<'_> {
    /// Starts a node and waits for it; nodes join one after the other.
    fn start(&mut self, number: u32) -> Run {
        let files = self.mounts.files();
        let ring = i128::from(u64::MAX) + 1;
        let token = i128::from(i64::MIN) + ring / i128::from(NODES) * i128::from(number);
        let setup = NodeSetup {
            number,
            seed: 0,
            token: i64::try_from(token).ok(),
            files: &files[number as usize],
            run: self.clients.run,
            heap_bytes: HEAP,
            memory_bytes: MEMORY,
        };
        let mut node = setup.start(self.clients.jars, self.clients.groups)?;
        node::until_ready(&mut node)?;
        self.nodes.insert(number as usize, node);
        Ok(())
    }

    fn end(self, esker: &Path) -> Run {
        self.nodes.into_iter().try_for_each(node::end)?;
        self.mounts.close(esker)
    }
}

fn lose(
    site: &Site<'_>,
    cluster: &mut Cluster<'_>,
    fragile: Fragile,
    spare: &str,
    folder: &Path,
) -> Run<Survival> {
    const VICTIM: u32 = 1;
    let clock = Clock::real();
    let (log, over) = (folder.join("acknowledged"), folder.join("over"));
    let all: Vec<String> = (0..NODES).map(address).collect();
    let (all, log_name, over_name) =
        (all.join(","), log.display().to_string(), over.display().to_string());
    let mut survival = Survival::default();
    let began = clock.now();
    let writer = cluster.clients.start_tool(&["write", &all, &log_name, &over_name])?;
    clock.sleep(PART);

    survival.at_kill = lines(&log)?;
    cluster.nodes.remove(VICTIM as usize).kill()?;
    clock.sleep(PART);

    survival.at_drive = lines(&log)?;
    fragile.server.kill()?;
    survival.state_after_drive = until_state(site, &clock, NOTICE, |state| state != "online")?;
    clock.sleep(PART);

    cluster.start(VICTIM)?;
    site.ask(&["pool", "replace", POOL, &failed_drive(site)?.to_string(), spare])?;
    survival.state_at_end = until_state(site, &clock, REBUILD, |state| state == "online")?;
    clock.sleep(PART);
    write(&over, "")?;
    let tried = writer.succeed(CHECK)?;
    survival.seconds = clock.now().since(began).as_secs_f64();
    survival.refused = number(&tried, "refused")?;

    let checked = cluster.clients.start_tool(&["check", &all, &log_name])?.succeed(CHECK)?;
    survival.acknowledged = number(&checked, "looked")?;
    survival.missing = number(&checked, "missing")?;
    survival.wrong = number(&checked, "wrong")?;
    Ok(survival)
}

/// Numbers that were acknowledged so far.
fn lines(log: &Path) -> Run<u64> {
    let text = match fs::read_to_string(log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| wrong(&log.display().to_string(), error))?,
    };
    u64::try_from(text.lines().count()).map_err(|error| wrong("acknowledged", error))
}

/// The number behind a word in the last line that has it.
fn number(said: &str, word: &str) -> Run<u64> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|one| *one != word).skip(1);
        words.next()?.parse().ok()
    };
    let found = said.lines().rev().find_map(of_line);
    found.ok_or_else(|| {
        wrong("the log's client", format!("it does not say '{word}': {}", said.trim()))
    })
}

fn status(site: &Site<'_>) -> Run<Value> {
    let text = site.ask(&["pool", "status", POOL, "--json"])?;
    serde_json::from_str(&text).map_err(|error| wrong("pool status", error))
}

/// Waits until the pool's state fits, and gives it.
fn until_state(
    site: &Site<'_>,
    clock: &Clock,
    patience: Duration,
    fits: impl Fn(&str) -> bool,
) -> Run<String> {
    let end = clock.now() + patience;
    loop {
        let found = status(site)?;
        let state = found["state"].as_str().unwrap_or_default();
        if fits(state) {
            return Ok(state.to_owned());
        }
        if clock.now() > end {
            return Err(wrong("pool", format!("it is {state} still after {patience:?}: {found}")));
        }
        clock.sleep(STEP);
    }
}

/// The number of the drive that is not online.
fn failed_drive(site: &Site<'_>) -> Run<u64> {
    let found = status(site)?;
    let mut members = found["members"].as_array().into_iter().flatten();
    let failed = members.find(|one| one["state"] != "online").and_then(|one| one["index"].as_u64());
    failed.ok_or_else(|| wrong("pool", format!("no drive has failed: {found}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_behind_its_word_in_the_last_line() {
        let said = "SLF4J: looked for a binder\nlooked 12 missing 0 wrong 1\n";
        assert_eq!(number(said, "looked").unwrap(), 12);
        assert_eq!(number(said, "wrong").unwrap(), 1);
        assert!(number(said, "refused").unwrap_err().to_string().contains("refused"));
    }
}
