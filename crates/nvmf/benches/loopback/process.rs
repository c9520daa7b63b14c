//! The processes of one case: each on a core of its own.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::{Failure, Figure, Load};

/// A command that will run on one core, with all of its threads.
pub(crate) fn on_core(core: usize, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

/// Runs this program again with other arguments, on one core. It ends when its input is closed.
pub(crate) fn spawn(core: usize, arguments: &[&str]) -> Result<Child, Failure> {
    let mut command = on_core(core, std::env::current_exe()?);
    Ok(command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// The first line that a process prints.
pub(crate) fn line(child: &mut Child) -> Result<String, Failure> {
    let mut line = String::new();
    let output = child.stdout.as_mut().ok_or("no output")?;
    BufReader::new(output).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Microseconds of CPU that a process has used (proc(5): fields 14 and 15 of stat, in ticks of 10 ms).
pub(crate) fn cpu_us(child: &Child) -> Result<f64, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    let (_, rest) = stat.rsplit_once(')').ok_or("a stat of another form")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) * 1e4)
}

/// A server on core 0.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(what: &str, load: &Load) -> Result<Server, Failure> {
        let words = load.words();
        let mut arguments = vec![what];
        arguments.extend(words.iter().map(String::as_str));
        let mut child = spawn(0, &arguments)?;
        let address = line(&mut child)?;
        Ok(Server { child, address })
    }

    pub(crate) fn cpu_us(&self) -> Result<f64, Failure> {
        cpu_us(&self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a client on core 1, and returns the figure that it printed.
pub(crate) fn client(
    what: &str,
    address: &str,
    seconds: u64,
    load: &Load,
) -> Result<Figure, Failure> {
    let (seconds, words) = (seconds.to_string(), load.words());
    let mut arguments = vec![what, address, &seconds];
    arguments.extend(words.iter().map(String::as_str));
    let mut child = spawn(1, &arguments)?;
    let printed = line(&mut child)?;
    let status = child.wait()?;
    let (rate, p50) = printed.split_once(' ').ok_or_else(|| format!("{what} failed: {status}"))?;
    Ok(Figure { rate: rate.parse()?, p50_us: p50.parse()? })
}

/// Prints a figure as [`client`] reads it.
pub(crate) fn print(rate: f64, latencies: &mut [u64]) {
    latencies.sort_unstable();
    println!("{rate} {}", latencies[latencies.len() / 2] as f64 / 1e3);
}
