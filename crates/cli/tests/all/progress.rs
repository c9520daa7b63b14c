//! Progress on a terminal, and signals that end long work early.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::{Scratch, esker, run, run_in, text};
use esker_base::{Clock, thread};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A load that lasts so many seconds, and a line of its bar.
const LOAD: [&str; 4] = ["bench", "device", "null:1GiB", "--seconds"];
const LEFT: &str = " s left";

/// Text that a terminal gets from the command; `None` says aloud that there is no `script` to make one.
fn on_terminal(args: &[&str], variables: &[(&str, &str)]) -> Option<String> {
    let line = [&[env!("CARGO_BIN_EXE_esker")], args].concat().join(" ");
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
    script.envs(variables.iter().copied()).stdin(Stdio::null());
    let Ok(output) = script.output() else {
        eprintln!("SKIPPED: there is no `script` (util-linux) to make a terminal");
        return None;
    };
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn terminal_shows_the_time_left_of_long_work_alone() {
    let Some(long) = on_terminal(&[&LOAD[..], &["4"]].concat(), &[]) else { return };
    assert!(long.contains(" %  running, ") && long.contains(LEFT), "{long}");
    // The bar is gone before the results are there.
    let (bar, results) = long.rsplit_once(LEFT).unwrap();
    assert!(bar.contains("\x1b[2K") && results.contains("\r\x1b[2K"), "{results:?}");
    assert!(results.split("\x1b[2K").last().unwrap().contains("requests"), "{results:?}");
    for (args, variables) in
        [(&["1"][..], &[][..]), (&["3", "--quiet"], &[]), (&["3"], &[("TERM", "dumb")])]
    {
        let shown = on_terminal(&[&LOAD[..], args].concat(), variables).unwrap();
        assert!(!shown.contains(LEFT) && shown.contains("requests"), "{args:?}: {shown}");
    }
    let plain = on_terminal(&[&LOAD[..], &["3"]].concat(), &[("NO_COLOR", "1")]).unwrap();
    assert!(plain.contains(LEFT), "{plain}");
    assert!((0..10).all(|digit| !plain.contains(&format!("\x1b[{digit}m"))), "{plain:?}");
}

#[test]
fn nothing_is_drawn_where_no_terminal_is() {
    let output = esker().args(LOAD).arg("3").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = esker().args(LOAD).arg("3").stdout(Stdio::null()).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

/// `--quiet` silences notes, and no errors.
#[test]
fn quiet_command_tells_errors_alone() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let loaded = run_in(["kv", "load", &db, "default"], b"key\tvalue\n").succeeds();
    assert!(loaded.stderr.contains("1 record loaded"), "{}", loaded.stderr);
    let loaded = run_in(["kv", "--quiet", "load", &db, "default"], b"key\tvalue\n").succeeds();
    assert_eq!(loaded.stderr, "");
    run(["kv", "check", "/nowhere", "--quiet"]).fails(66, &["/nowhere"]);
}

/// A command that is under way; it is killed with the test.
struct Running(Child);

impl Running {
    fn start<'a>(args: impl IntoIterator<Item = &'a str>) -> Running {
        let mut command = esker();
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// How it ends, within a minute.
    fn ends(mut self) -> Output {
        wait_until("it goes on", || self.0.try_wait().unwrap().is_some());
        let mut output =
            self.0.wait().map(|status| Output { status, stdout: Vec::new(), stderr: Vec::new() });
        let ended = output.as_mut().unwrap();
        let read = |from: &mut dyn std::io::Read, into: &mut Vec<u8>| from.read_to_end(into);
        read(self.0.stdout.as_mut().unwrap(), &mut ended.stdout).unwrap();
        read(self.0.stderr.as_mut().unwrap(), &mut ended.stderr).unwrap();
        output.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn wait_until(otherwise: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::real();
    let deadline = clock.now() + Duration::from_secs(60);
    while !holds() {
        assert!(clock.now() < deadline, "{otherwise}");
        clock.sleep(Duration::from_millis(5));
    }
}

/// Whether a process has a handler for SIGINT.
fn catches_signals(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
    caught.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 2 > 0)
}

fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

#[test]
fn interrupted_check_says_what_it_has_checked() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let line = |n: u64| {
        format!("key-{:016x}\t{n}-value-beyond-sixteen\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };
    let lines: String = (0..50_000).map(line).collect();
    run_in(["kv", "load", &db, "default"], lines.as_bytes()).succeeds();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let check = Running::start(["kv", "check", &db, "--json"]);
        wait_until("it catches no signals", || catches_signals(check.0.id()));
        check.signal(signal);
        let ended = check.ends();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains("interrupted: 0 damages found in what was checked"), "{said}");
        let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(report["interrupted"], true, "{report}");
        assert!(report["values"].as_u64().unwrap() < 50_000, "{report}");
    }
    let whole = run(["kv", "check", &db, "--json"]).succeeds().out();
    let report: Value = serde_json::from_str(&whole).unwrap();
    assert!(report["interrupted"] == false && report["values"] == 50_000, "{report}");
}

/// A study whose first step is short, and others are long.
const STUDY: [&str; 6] = ["lab", "host-ssd", "--reads", "2k", "--lookups", "2k"];

#[test]
fn interrupted_study_is_written_and_marked() {
    let scratch = Scratch::new();
    let json = text(&scratch.path("study.json"));
    let clock = Clock::real();
    // However slow the machine is, some delay is behind the first step and before the last.
    let mut delay = Duration::from_millis(500);
    loop {
        let study = Running::start([&STUDY[..], &["--json", &json]].concat());
        wait_until("it catches no signals", || catches_signals(study.0.id()));
        clock.sleep(delay);
        study.signal(Signal::TERM);
        let ended = study.ends();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(143), "{said}");
        if !said.contains("nothing was measured") {
            assert!(said.contains("interrupted: the figures are of what was measured"), "{said}");
            let out = String::from_utf8_lossy(&ended.stdout).into_owned();
            assert!(out.contains("Interrupted in step "), "{out}");
            break;
        }
        assert!(!Path::new(&json).exists() && delay < Duration::from_secs(60), "{said}");
        delay *= 2;
    }
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(report["environment"]["interrupted"].as_str().unwrap().starts_with("in step "));
    assert!(!report["depths"].as_array().unwrap().is_empty(), "{report}");
    assert_eq!(report["verdicts"].as_array().unwrap().len(), 0);
}

#[test]
fn second_signal_ends_a_study_at_once() {
    // A step of it takes longer than a test waits.
    let study = Running::start(["lab", "host-ssd", "--reads", "20M"]);
    wait_until("it catches no signals", || catches_signals(study.0.id()));
    Clock::real().sleep(Duration::from_millis(300));
    study.signal(Signal::INT);
    Clock::real().sleep(Duration::from_millis(100));
    study.signal(Signal::INT);
    assert_eq!(study.ends().status.code(), Some(130));
}

/// The child of `lab all`, once it catches signals.
fn child_of(all: &Running) -> u32 {
    let pid = all.0.id();
    let mut child = None;
    wait_until("it has no child", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        child = children.unwrap_or_default().split_whitespace().next().and_then(|c| c.parse().ok());
        child.is_some_and(catches_signals)
    });
    child.unwrap()
}

#[test]
fn all_experiments_end_with_the_command_that_runs_them() {
    let scratch = Scratch::new();
    let dir = text(&scratch.path("all"));
    let start = || Running::start(["lab", "all", "--only", "fdp,host-ssd", "--dir", &dir]);
    let all = start();
    let child = child_of(&all);
    all.signal(Signal::TERM);
    let ended = all.ends();
    assert_eq!(ended.status.code(), Some(143), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!is_alive(child));
    let report = fs::read_to_string(scratch.path("all/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let experiments = report["experiments"].as_array().unwrap();
    assert!(experiments.iter().all(|one| one["interrupted"].is_string()), "{report}");

    let mut all = start();
    let child = child_of(&all);
    all.0.kill().unwrap();
    wait_until("the experiment goes on", || !is_alive(child));
}

/// Answers as a pool with a change that takes so long, until its end was told once.
fn serve_change(listener: &UnixListener, takes: Duration) {
    let clock = Clock::real();
    let began = clock.now();
    let mut is_done = false;
    while !is_done {
        let (client, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&client).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        assert!(lines.any(|line| line.is_empty()));
        let passed = clock.now().since(began);
        is_done = passed >= takes && first.starts_with("GET /v1/operations/op-1-1 ");
        let state = if is_done { "done" } else { "running" };
        let (done, total) = (passed.as_millis(), takes.as_millis());
        let operation = format!(
            "{{\"id\":\"op-1-1\",\"request\":\"\",\"state\":\"{state}\",\"began\":1,\"ended\":null,\
             \"progress\":{{\"done\":{done},\"total\":{total},\"unit\":\"chunks\"}},\"answer\":{{}}}}"
        );
        let answer = match first.starts_with("POST ") {
            true => "{\"operation\":\"op-1-1\",\"pool\":\"tank\",\"drive\":1,\"device\":null}",
            false => &operation,
        };
        (&client).write_all(format!("HTTP/1.0 200 OK\r\n\r\n{answer}").as_bytes()).unwrap();
    }
}

/// Text of a command that waits for a change of a pool, on a terminal or not.
fn waited(command: &str, takes: Duration, is_terminal: bool) -> Option<String> {
    let scratch = Scratch::new();
    let socket = scratch.path("tank.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn("pool", move || serve_change(&listener, takes)).unwrap();
    let socket = text(&socket);
    let mut args: Vec<&str> = command.split(' ').collect();
    args.extend(["--socket", &socket]);
    let said = match is_terminal {
        true => on_terminal(&args, &[]),
        false => {
            let output = esker().args(&args).output().unwrap();
            Some(String::from_utf8([output.stderr, output.stdout].concat()).unwrap())
        }
    };
    if said.is_none() {
        // Nobody has asked: the server is told to end.
        serve_end(&socket, takes);
    }
    server.join().unwrap();
    said
}

/// Asks until a change has ended.
fn serve_end(socket: &str, takes: Duration) {
    Clock::real().sleep(takes);
    let mut client = UnixStream::connect(socket).unwrap();
    client.write_all(b"GET /v1/operations/op-1-1 HTTP/1.0\r\n\r\n").unwrap();
    let _ = BufReader::new(client).lines().count();
}

#[test]
fn rebuild_and_scrub_show_the_time_left_while_they_are_waited_for() {
    let long = Duration::from_secs(4);
    for command in ["pool scrub tank --wait", "pool retire tank 1 --wait"] {
        let Some(shown) = waited(command, long, true) else { return };
        assert!(shown.contains(" of 4,000 chunks") && shown.contains(LEFT), "{command}: {shown:?}");
        let (_, results) = shown.rsplit_once(LEFT).unwrap();
        assert!(results.contains("\r\x1b[2K") && results.contains("done: "), "{results:?}");
    }
    let quiet = waited("--quiet pool scrub tank --wait", long, true).unwrap();
    let piped = waited("pool scrub tank --wait", long, false).unwrap();
    let short = waited("pool scrub tank --wait", Duration::from_millis(300), true).unwrap();
    for (shown, name) in [(quiet, "quiet"), (piped, "piped"), (short, "short")] {
        assert_eq!(shown.trim_end(), "done: tank is being scrubbed", "{name}");
    }
}

#[test]
fn interrupted_wait_for_a_pool_says_that_the_pool_goes_on() {
    let scratch = Scratch::new();
    let socket = scratch.path("tank.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let takes = Duration::from_secs(3);
    let server = thread::spawn("pool", move || serve_change(&listener, takes)).unwrap();
    let socket = text(&socket);
    let waiting = Running::start(["pool", "scrub", "tank", "--wait", "--socket", &socket]);
    wait_until("it catches no signals", || catches_signals(waiting.0.id()));
    waiting.signal(Signal::INT);
    let ended = waiting.ends();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("esker pool operations tank --id op-1-1"), "{said}");
    serve_end(&socket, takes);
    server.join().unwrap();
}
