//! YCSB, one client for each node, and the tools beside it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use esker_lab::pooled::PooledOptions;
use esker_lab::pooled::bench::LoadStep;

use super::jars::Jars;
use super::node::address;
use crate::lab::groups::Groups;
use crate::lab::programs::{Run, Server, at_once, call, folder, within};

/// So long a load may take for each thousand rows of a node, beside a minute.
const MS_PER_ROW: u64 = 20;
/// So long a client may take to begin, and to end.
const BEYOND: Duration = Duration::from_secs(180);
/// A client that nobody ends stops after so many seconds beyond its measurement.
const AT_MOST: u32 = 1800;
/// So long clients run on after the measurement, as they have not begun at the same moment.
pub(super) const AFTER: Duration = Duration::from_secs(2);
/// Seconds for which compactions are waited for.
const SETTLE: u32 = 300;

/// The clients.
pub(super) struct Clients<'a> {
    pub(super) jars: &'a Jars,
    pub(super) groups: &'a Groups,
    pub(super) options: &'a PooledOptions,
    /// The folder of the run.
    pub(super) run: &'a Path,
}

impl Clients<'_> {
    fn java(&self) -> Command {
        let mut command = within(&self.groups.clients(), "java");
        command.args(["-Xmx192m", "-XX:+UseSerialGC", "-cp", &self.jars.client]);
        command
    }

    /// Runs one of the tools.
    pub(super) fn tool(&self, words: &[&str]) -> Run<String> {
        call(words[0], self.java().arg("io.esker.pooled.Tool").args(words))
    }

    /// Starts one of the tools.
    pub(super) fn start_tool(&self, words: &[&str]) -> Run<Server> {
        let log = self.run.join(format!("tool-{}.log", words[0]));
        Server::start(words[0], self.java().arg("io.esker.pooled.Tool").args(words), &log)
    }

    /// Rows of each node.
    fn rows(&self) -> u64 {
        self.options.records / u64::from(self.options.nodes)
    }

    fn ycsb(&self, node: u32, phase: &str) -> Command {
        let mut command = self.java();
        command.args(["site.ycsb.Client", phase, "-s", "-db", "io.esker.pooled.CqlDatabase"]);
        command.args(["-threads", &self.options.threads.to_string()]);
        let properties = [
            ("workload", "site.ycsb.workloads.CoreWorkload".to_owned()),
            ("nodes", address(node)),
            ("recordcount", self.rows().to_string()),
            ("operationcount", "2000000000".to_owned()),
            ("compressible", self.options.compressible.to_string()),
            ("core_workload_insertion_retry_limit", "20".to_owned()),
            ("readproportion", "0.5".to_owned()),
            ("updateproportion", "0.5".to_owned()),
            ("requestdistribution", "zipfian".to_owned()),
            ("measurement.interval", "both".to_owned()),
            ("status.interval", "1".to_owned()),
        ];
        for (name, value) in properties {
            command.arg("-p").arg(format!("{name}={value}"));
        }
        command
    }

    /// Loads every node, and waits until none compacts.
    pub(super) fn load(&self) -> Run {
        let patience = Duration::from_secs(60) + Duration::from_millis(MS_PER_ROW * self.rows());
        let start = |node: u32| {
            let log = self.run.join(format!("load-{node}.log"));
            Server::start("YCSB's load", &mut self.ycsb(node, "-load"), &log)
        };
        let clients: Vec<Server> = (0..self.options.nodes).map(start).collect::<Run<_>>()?;
        for client in clients {
            client.succeed(patience)?;
        }
        self.settle()
    }

    /// Waits until no node compacts.
    pub(super) fn settle(&self) -> Run {
        let settle = |node| self.tool(&["settle", &address(node), &SETTLE.to_string()]);
        at_once(0..self.options.nodes, settle).map(|_| ())
    }

    /// Starts a load on every node; histograms go to folders below the one that is returned.
    pub(super) fn start(&self, step: &LoadStep, name: &str) -> Run<(Vec<Server>, PathBuf)> {
        let logs = folder(&self.run.join("histograms").join(name))?;
        let start = |node: u32| {
            let own = folder(&logs.join(format!("node-{node}")))?;
            let mut command = self.ycsb(node, "-t");
            if let Some(rate) = step.rate {
                command.args(["-target", &(rate / u64::from(self.options.nodes)).to_string()]);
            }
            let seconds = step.warm_up_s + step.seconds + AT_MOST;
            for (name, value) in [
                ("maxexecutiontime", seconds.to_string()),
                ("hdrhistogram.fileoutput", "true".to_owned()),
                ("hdrhistogram.output.path", format!("{}/", own.display())),
            ] {
                command.arg("-p").arg(format!("{name}={value}"));
            }
            Server::start("YCSB", &mut command, &self.run.join(format!("load-{node}.log")))
        };
        let clients = (0..self.options.nodes).map(start).collect::<Run<_>>()?;
        Ok((clients, logs))
    }

    /// Waits until a client has done its first operations: it may have waited for its JVM and its session before.
    pub(super) fn until_begun(client: &mut Server) -> Run {
        client.until(BEYOND, |said| said.lines().any(has_begun).then_some(()))
    }

    /// Ends all clients, and sums the histograms that they have logged in the measured seconds.
    pub(super) fn finish(&self, clients: Vec<Server>, step: &LoadStep, logs: &Path) -> Run<String> {
        clients.into_iter().try_for_each(|client| client.end(BEYOND))?;
        let (first, seconds) = (step.warm_up_s.to_string(), step.seconds.to_string());
        self.tool(&["figures", &logs.display().to_string(), &first, &seconds])
    }
}

/// Whether a line of a client's status tells of operations: `… 12 sec: 345 operations; …`.
fn has_begun(line: &str) -> bool {
    let count = line.split_once(" sec: ").and_then(|(_, rest)| rest.split_once(" operations;"));
    count.is_some_and(|(count, _)| count.parse::<u64>().is_ok_and(|count| count > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_begun_with_its_first_operations() {
        assert!(has_begun(
            "2026-11-27 17:29:11:428 5 sec: 2530 operations; 506 current ops/sec; [INSERT: Count=2]"
        ));
        assert!(!has_begun(
            "2026-11-27 17:29:11:428 0 sec: 0 operations; est completion in 0 second"
        ));
        assert!(!has_begun("Loading workload..."));
    }
}
