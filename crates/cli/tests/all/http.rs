//! Hostile clients on every HTTP face of the command: metrics of each kind of process, requests to a pool, live pages.
//! During and after each attack the face answers within a second; a host that is connected sees no error; memory
//! stays bounded; SIGTERM ends the process.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::tank::{self, Tank};
use crate::common::{Scratch, esker, text};
use esker_base::{AlignedBuf, Clock, Lba, Rng, thread};
use esker_device::Port;
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};

/// The longest time for an answer, beside attackers and after them.
const ANSWER: Duration = Duration::from_secs(1);
/// The longest time from SIGTERM to the end.
const END: Duration = Duration::from_secs(5);
/// Memory that attacks may cost, in KiB.
const GROWTH_KIB: u64 = 64 << 10;
/// Silent connections at a time.
const CROWD: usize = 2_000;

/// Where a server listens.
#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

trait Stream: Read + Write + Send {
    fn nonblocking(&self);
}

impl Stream for TcpStream {
    fn nonblocking(&self) {
        self.set_nonblocking(true).unwrap();
    }
}

impl Stream for UnixStream {
    fn nonblocking(&self) {
        self.set_nonblocking(true).unwrap();
    }
}

impl Place {
    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let patience = Some(2 * ANSWER);
        Ok(match self {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)?;
                Box::new(stream)
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)?;
                Box::new(stream)
            }
        })
    }

    /// A connection over which `bytes` went; the server may have closed it meanwhile.
    fn send(&self, bytes: &[u8]) -> Box<dyn Stream> {
        let mut stream = self.connect().unwrap();
        let _ = stream.write_all(bytes);
        stream
    }
}

/// An HTTP face.
#[derive(Clone, Debug)]
struct Face {
    place: Place,
    /// A path that is answered with 200.
    path: String,
    /// Headers that this takes.
    headers: String,
}

impl Face {
    fn tcp(address: &str, path: &str) -> Face {
        Face {
            place: Place::Tcp(address.parse().unwrap()),
            path: path.to_owned(),
            headers: String::new(),
        }
    }

    fn answers(&self, when: &str) {
        let clock = Clock::real();
        let began = clock.now();
        let mut stream = self.place.connect().unwrap();
        let said = write!(stream, "GET {} HTTP/1.0\r\n{}\r\n", self.path, self.headers);
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        let took = clock.now().since(began);
        let head = answer.lines().next().unwrap_or_default();
        let context = format!("{when}: {self:?}: {said:?} {read:?} after {took:?}: {head}");
        assert!(head.contains(" 200 "), "{context}");
        assert!(took < ANSWER, "{context}");
    }

    /// Attacks it in every way.
    fn attack(&self) {
        self.answers("before");
        let path = &self.path;
        let get = format!("GET {path} HTTP/1.1\r\nHost: a\r\n");
        let post = format!("POST {path} HTTP/1.1\r\nHost: a\r\n");
        for (name, bytes) in [
            ("a huge length", format!("{get}Content-Length: 99999999999\r\n\r\n")),
            ("the largest length", format!("{get}Content-Length: 18446744073709551615\r\n\r\n")),
            ("too large a length", format!("{get}Content-Length: 99999999999999999999\r\n\r\n")),
            ("a negative length", format!("{get}Content-Length: -1\r\n\r\n")),
            ("two lengths", format!("{post}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")),
            (
                "a length and chunks",
                format!("{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            ),
            ("a silent body", format!("{post}{}Content-Length: 2000\r\n\r\n", self.headers)),
            ("a silent body of a GET", format!("{get}Content-Length: 2000\r\n\r\n")),
            ("half a body", format!("{post}{}Content-Length: 2000\r\n\r\n{{\"a\":", self.headers)),
            ("half a head", format!("{get}X-A: ")),
            ("half a line", "GE".to_owned()),
            (
                "a chunk that never comes",
                format!("{post}{}Transfer-Encoding: chunked\r\n\r\n10\r\n", self.headers),
            ),
            (
                "a huge chunk",
                format!("{post}Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nabc"),
            ),
            (
                "chunks without a number",
                format!("{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n-1\r\n"),
            ),
            ("a long line", format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20))),
            ("many headers", format!("{get}{}\r\n", "X-A: b\r\n".repeat(10_000))),
            (
                "a wait for 100",
                format!("{post}{}Expect: 100-continue\r\nContent-Length: 9\r\n\r\n", self.headers),
            ),
        ] {
            let attackers: Vec<_> = (0..8).map(|_| self.place.send(bytes.as_bytes())).collect();
            self.answers(&format!("beside {name}"));
            drop(attackers);
            self.answers(&format!("after {name}"));
        }
        self.take_nothing();
        let mut rng = Rng::new(7);
        for _ in 0..100 {
            let mut bytes = [0; 200];
            rng.fill(&mut bytes);
            drop(self.place.send(&bytes));
        }
        self.answers("after random bytes");
        self.crowd();
    }

    /// Asks again and again, and reads no answer.
    fn take_nothing(&self) {
        let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n{}\r\n", self.path, self.headers);
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let mut stream = self.place.connect().unwrap();
                stream.nonblocking();
                for _ in 0..2_000 {
                    if stream.write_all(request.as_bytes()).is_err() {
                        break;
                    }
                }
                stream
            })
            .collect();
        self.answers("beside readers that take nothing");
        drop(readers);
        self.answers("after readers that took nothing");
    }

    /// Many connections that say nothing.
    fn crowd(&self) {
        let mut crowd = Vec::new();
        for number in 0..CROWD {
            match self.place.connect() {
                Ok(stream) => crowd.push(stream),
                Err(error) => panic!("connection {number}: {error}"),
            }
        }
        self.answers("beside a crowd");
        drop(crowd);
        self.answers("after a crowd");
    }
}

/// Allows this process as many descriptors as a crowd needs.
fn allow_a_crowd() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })
        .unwrap();
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Descriptors that clients cost. Files and rings come and go with what the process does beside.
fn sockets(pid: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    open.filter(|path| path.to_string_lossy().starts_with("socket:")).count()
}

/// A process with faces, which ends with this.
struct Serving {
    child: Child,
    faces: Vec<Face>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn attack(&self) {
        let pid = self.child.id();
        let (kib, before) = (resident_kib(pid), sockets(pid));
        for face in &self.faces {
            face.attack();
            let grown = resident_kib(pid).saturating_sub(kib);
            assert!(grown < GROWTH_KIB, "{face:?} took {grown} KiB");
        }
        // The server sees that clients are gone a moment after they went.
        let clock = Clock::real();
        let end = clock.now() + END;
        while sockets(pid) > before + 4 && clock.now() < end {
            clock.sleep(Duration::from_millis(10));
        }
        let left = sockets(pid);
        assert!(left <= before + 4, "{before} sockets before, {left} after");
    }

    /// Ends while attackers are there.
    fn end(mut self) -> Option<i32> {
        let half = |face: &Face| {
            let half = format!("POST {} HTTP/1.1\r\nContent-Length: 2000\r\n", face.path);
            let head = face.place.send(half.as_bytes());
            (head, face.place.send(format!("{half}{}\r\n", face.headers).as_bytes()))
        };
        let attackers: Vec<_> = self
            .faces
            .iter()
            .flat_map(|face| (0..8).map(|_| half(face)).collect::<Vec<_>>())
            .collect();
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let code = self.waits(END);
        drop(attackers);
        code
    }

    /// Its exit code, which comes in time.
    fn waits(&mut self, longest: Duration) -> Option<i32> {
        let clock = Clock::real();
        let began = clock.now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(clock.now().since(began) < longest, "it has not ended");
            clock.sleep(Duration::from_millis(10));
        }
    }
}

/// Starts a command, and returns it with what it says, up to the line that begins with `last`.
fn started(command: &Command, last: &str) -> (Child, Vec<String>) {
    try_start(command, last)
        .unwrap_or_else(|said| panic!("no line begins with '{last}': {said:#?}"))
}

/// The same; none, aloud, where this machine does not have what the command needs.
fn start_if_possible(command: &Command, last: &str) -> Option<(Child, Vec<String>)> {
    let refused = match try_start(command, last) {
        Ok(started) => return Some(started),
        Err(refused) => refused,
    };
    let (code, said) = (refused.code, refused.said.join("\n"));
    let lacks = ["must be allowed", "cargo build -p esker-preload"];
    assert!(code == Some(69) || lacks.iter().any(|one| said.contains(one)), "{code:?} {said}");
    eprintln!("SKIPPED: {said}");
    None
}

/// The end of a command that did not start to serve.
#[derive(Debug)]
struct Refused {
    code: Option<i32>,
    said: Vec<String>,
}

fn try_start(command: &Command, last: &str) -> Result<(Child, Vec<String>), Refused> {
    let mut limited = Command::new("/bin/sh");
    // Few descriptors, whatever this process may have; all that is said on one stream.
    limited.args(["-c", "ulimit -Sn 1024; exec \"$0\" \"$@\" 2>&1"]);
    limited.arg(command.get_program()).args(command.get_args()).stdout(Stdio::piped());
    let mut child = limited.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    while let Some(Ok(line)) = lines.next() {
        said.push(line);
        if said.last().unwrap().starts_with(last) {
            // Its pipe stays open, and is read.
            thread::spawn("output", move || lines.for_each(drop)).unwrap();
            return Ok((child, said));
        }
    }
    Err(Refused { code: child.wait().unwrap().code(), said })
}

/// The rest of the line that begins with `start`.
fn rest<'a>(said: &'a [String], start: &str) -> &'a str {
    said.iter().find_map(|line| line.strip_prefix(start)).unwrap()
}

fn metrics(said: &[String], start: &str) -> Face {
    Face::tcp(rest(said, start).strip_suffix("/metrics").unwrap(), "/metrics")
}

const METRICS: &str = "metrics at http://";
const METRICS_OF: &str = "esker: metrics at http://";

#[test]
fn metrics_of_a_target_outlive_attacks() {
    allow_a_crowd();
    let mut command = esker();
    command.args(["target", "serve", "--subsystem", "nqn.2026-01.io.esker:a", "--allow-any"]);
    command.args(["--device", "mem:16MiB", "--listen", "127.0.0.1:0"]);
    command.args(["--metrics", "127.0.0.1:0", "--for", "120"]);
    let (child, said) = started(&command, METRICS);
    let serving = Serving { child, faces: vec![metrics(&said, METRICS)] };
    serving.attack();
    assert_eq!(serving.end(), Some(0));
}

/// Writes and verifies blocks of a volume until it is told to stop, and has begun when this returns.
fn host(tank: &Tank, address: &str, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    tank.ask("volume export tank/db --any-host").succeeds();
    let volume = tank::open(address, "db").unwrap();
    let (begun, begins) = mpsc::channel();
    let work = move || {
        let mut port = Port::open(&volume, 4).unwrap();
        let mut done = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let byte = done.to_le_bytes()[0];
            let mut buf = AlignedBuf::zeroed(4096);
            buf.fill(byte);
            let block = Lba(done % 2_000);
            port.write(block, buf, None).unwrap();
            let back = port.read(block, AlignedBuf::zeroed(4096)).unwrap();
            assert!(back.iter().all(|one| *one == byte), "block {block:?}");
            let _ = begun.send(()); // the first is waited for
            done += 1;
        }
    };
    let thread = thread::spawn("host", work).unwrap();
    begins.recv().unwrap();
    thread
}

#[test]
fn faces_of_a_pool_outlive_attacks_beside_a_host() {
    allow_a_crowd();
    let tank = Tank::new();
    let token = text(&tank.0.path("token"));
    let mut command = esker();
    command.args(["pool", "serve", "tank", "--socket", &tank.socket(), "--listen", "127.0.0.1:0"]);
    command.args(["--metrics", "127.0.0.1:0", "--api", "127.0.0.1:0", "--api-token", &token]);
    command.args(["--for", "300", "--drives"]).args(tank.drives());
    let (child, said) = started(&command, METRICS);
    let secret = fs::read_to_string(&token).unwrap();
    let api = Face {
        headers: format!("Authorization: Bearer {}\r\n", secret.trim()),
        ..Face::tcp(rest(&said, "requests at http://").strip_suffix("/v1").unwrap(), "/v1/pool")
    };
    let socket = Face {
        place: Place::Unix(tank.socket().into()),
        path: "/v1/pool".to_owned(),
        headers: String::new(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let host = host(&tank, rest(&said, "listening on "), stop.clone());
    let serving = Serving { child, faces: vec![metrics(&said, METRICS), api, socket] };
    serving.attack();
    tank.ask("pool status tank").succeeds();
    stop.store(true, Ordering::Relaxed);
    host.join().unwrap();
    assert_eq!(serving.end(), Some(0));
}

#[test]
fn metrics_of_an_attached_device_outlive_attacks() {
    allow_a_crowd();
    let scratch = Scratch::new();
    let at = scratch.path("at");
    fs::write(scratch.path("image"), vec![0; 1 << 20]).unwrap();
    fs::create_dir(&at).unwrap();
    let mut command = esker();
    command.arg("attach").arg(scratch.path("image")).arg(&at).args(["--metrics", "127.0.0.1:0"]);
    let Some((child, said)) = start_if_possible(&command, METRICS_OF) else { return };
    let serving = Serving { child, faces: vec![metrics(&said, METRICS_OF)] };
    serving.attack();
    assert_eq!(serving.end(), Some(0));
}

#[test]
fn run_returns_after_its_program_beside_attackers() {
    allow_a_crowd();
    let mut command = esker();
    command.args([
        "run",
        "--memory",
        "64MiB",
        "--swap",
        "temp:1GiB",
        "--metrics",
        "127.0.0.1:0",
        "--",
        "sleep",
        "30",
    ]);
    let Some((child, said)) = start_if_possible(&command, METRICS_OF) else { return };
    let mut serving = Serving { child, faces: vec![metrics(&said, METRICS_OF)] };
    serving.attack();
    let face = serving.faces[0].clone();
    let half = face.place.send(b"GET /metrics HTTP/1.1\r\nX-A");
    assert_eq!(serving.waits(Duration::from_secs(60)), Some(0));
    drop(half);
}

#[test]
fn live_page_outlives_attacks() {
    allow_a_crowd();
    let mut command = esker();
    command.args([
        "bench",
        "ycsb",
        "--workload",
        "load,c",
        "--records",
        "10k",
        "--memory",
        "64MiB",
    ]);
    command.args(["--seconds", "20", "--warm-up", "1", "--live=0"]);
    let start = "esker: live at http://";
    let (child, said) = started(&command, start);
    let (address, path) = rest(&said, start).split_once('/').unwrap();
    let mut serving = Serving { child, faces: vec![Face::tcp(address, &format!("/{path}"))] };
    serving.attack();
    let half = serving.faces[0].place.send(b"GET /metrics HTTP/1.1\r\nX-A");
    assert_eq!(serving.waits(Duration::from_secs(60)), Some(0));
    drop(half);
}
