//! A pool `tank` of three drives in files, and the process that serves it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Stdio};

use esker_nvmf::{Initiator, InitiatorConfig, NvmfError};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Ran, Scratch, esker, run, text};

pub(crate) const HOST: &str = "nqn.2026-01.io.esker:host";

/// A pool `tank` of three drives in files.
pub(crate) struct Tank(pub(crate) Scratch);

impl Tank {
    pub(crate) fn new() -> Tank {
        Tank::sized(24)
    }

    /// The same of drives of so many MiB: the catalogue of a larger pool has room for more volumes.
    pub(crate) fn sized(mib: u64) -> Tank {
        let tank = Tank(Scratch::new());
        for drive in tank.drives() {
            File::create(drive).unwrap().set_len(mib << 20).unwrap();
        }
        let mut args = vec!["pool", "create", "tank", "--chunk", "256KiB", "--log", "2MiB"];
        let drives = tank.drives();
        args.extend(drives.iter().map(String::as_str));
        run(args).succeeds();
        tank
    }

    pub(crate) fn drives(&self) -> Vec<String> {
        (0..3).map(|number| text(&self.0.path(&format!("d{number}")))).collect()
    }

    pub(crate) fn socket(&self) -> String {
        text(&self.0.path("run/tank.sock"))
    }

    pub(crate) fn serve(&self) -> Running {
        self.serve_with(&self.drives(), &[])
    }

    /// Hosts reach it at this address.
    pub(crate) fn serve_at(&self, address: &str) -> Running {
        self.start(&self.drives(), address, &[])
    }

    pub(crate) fn serve_with(&self, drives: &[String], more: &[&str]) -> Running {
        self.start(drives, "127.0.0.1:0", more)
    }

    fn start(&self, drives: &[String], listen: &str, more: &[&str]) -> Running {
        let mut child = esker()
            .args(["pool", "serve", "tank", "--socket", &self.socket()])
            .args(more)
            .args(["--listen", listen, "--metrics", "127.0.0.1:0"])
            .args(["--for", "120"]) // what is waited for in vain fails then
            .arg("--drives")
            .args(drives)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (said, address) = lines_until(&mut out, "listening on ");
        let metrics = until(&mut out, "metrics at http://");
        Running { child, out, address, metrics, said }
    }

    /// Asks the process that serves the pool.
    pub(crate) fn ask(&self, args: &str) -> Ran {
        let mut all: Vec<String> = args.split(' ').map(str::to_owned).collect();
        all.extend(["--socket".to_owned(), self.socket()]);
        run(all)
    }

    pub(crate) fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.ask(&format!("{args} --json")).succeeds().out()).unwrap()
    }

    /// Sends a request as it is, and returns status and body.
    pub(crate) fn request(&self, head: &str, body: &str) -> (String, Value) {
        self.request_with(head, "", body)
    }

    /// The same with a key.
    pub(crate) fn request_with(&self, head: &str, key: &str, body: &str) -> (String, Value) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let length = body.len();
        let key =
            if key.is_empty() { String::new() } else { format!("Idempotency-Key: {key}\r\n") };
        write!(stream, "{head} HTTP/1.0\r\n{key}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().to_owned();
        (status, serde_json::from_str(body).unwrap())
    }
}

/// A process that serves the pool.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) address: String,
    metrics: String,
    /// Output before the address.
    pub(crate) said: String,
}

impl Running {
    pub(crate) fn open(&self, volume: &str) -> Result<Initiator, NvmfError> {
        open(&self.address, volume)
    }

    /// The page of its metrics.
    pub(crate) fn metrics_text(&self) -> String {
        self.page("/metrics")
    }

    /// A page beside its metrics.
    pub(crate) fn page(&self, path: &str) -> String {
        let address = self.metrics.strip_suffix("/metrics").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn end(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        until(&mut self.out, "ending: ");
        self.child.wait().unwrap().code()
    }

    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a volume of the pool over NVMe/TCP.
pub(crate) fn open(address: &str, volume: &str) -> Result<Initiator, NvmfError> {
    let nqn = format!("nqn.2026-01.io.esker:tank:{volume}");
    let config = InitiatorConfig::new(vec![address.parse().unwrap()], &nqn, 1)?;
    Initiator::open(InitiatorConfig { host_nqn: HOST.to_owned(), ..config })
}

/// The rest of the first line that begins so.
pub(crate) fn until(from: &mut impl BufRead, start: &str) -> String {
    lines_until(from, start).1
}

/// The lines before the first one that begins so, and the rest of that one.
fn lines_until(from: &mut impl BufRead, start: &str) -> (String, String) {
    let (mut line, mut all) = (String::new(), String::new());
    while from.read_line(&mut line).unwrap() > 0 {
        if let Some(rest) = line.strip_prefix(start) {
            return (all, rest.trim().to_owned());
        }
        all += &line;
        line.clear();
    }
    panic!("it ended without a line that begins with '{start}':\n{all}");
}
