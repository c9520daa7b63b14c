//! The program as it is called: the files it leaves behind, and how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use esker_base::Clock;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bench-compare");

/// A directory for one test.
fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("bench-compare-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// The shortest of runs.
const SHORT: &str = "--memory none --records 1000 --engines esker --workloads C --rounds 1 \
                     --seconds 0.05 --warm-up 0 --settle-seconds 0 --threads 1";

fn run(args: &str) -> Output {
    Command::new(PROGRAM).arg("run").args(args.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn results_in_the_scratch_directory_stay() {
    let dir = dir("stay");
    let (at, json, html) = (dir.display(), dir.join("c.json"), dir.join("c.html"));
    let output = run(&format!("{SHORT} --dir {at} --json {at}/c.json --report {at}/c.html"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(json.exists() && html.exists() && !dir.join("database").exists());
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_path_that_cannot_be_written_is_said_before_anything_is_measured() {
    let dir = dir("path");
    let at = dir.join("scratch");
    let output = run(&format!("{SHORT} --dir {} --report /nowhere/c.html", at.display()));
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("/nowhere/c.html"), "{said}");
    assert!(!said.contains("round 1") && !at.exists(), "{said}");
    fs::remove_dir_all(&dir).unwrap();
}

/// Files of more than 50 KiB are refused by the system.
#[test]
fn a_trial_that_failed_is_in_the_tables_and_in_the_exit_code() {
    let dir = dir("failed");
    let line = format!("ulimit -f 100; exec {PROGRAM} run {SHORT} --dir {}/x", dir.display());
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("- Esker, round 1: "), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("1 of 1 trials failed"), "{}", text(&output.stderr));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_run_that_is_told_to_end_leaves_nothing() {
    for signal in ["-TERM", "-INT"] {
        let dir = dir(signal);
        let (mut run, trial) = under_way(&dir);
        let sent = Command::new("kill").args([signal, &run.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let status = run.wait().unwrap();
        assert_eq!(status.code(), Some(1), "{status}");
        assert!(!lives(trial), "its trial goes on");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "what it made is still there");
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn a_trial_ends_with_a_run_that_is_killed() {
    let dir = dir("killed");
    let (mut run, trial) = under_way(&dir);
    run.kill().unwrap();
    run.wait().unwrap();
    wait_until("its trial goes on", || !lives(trial));
    fs::remove_dir_all(&dir).unwrap();
}

/// A run that would take hours, and the number of its trial's process, which is loading.
fn under_way(dir: &Path) -> (Child, u32) {
    let long = "--memory none --records 100000000 --engines esker --load-seconds 7200";
    let scratch = dir.join("scratch");
    let run = Command::new(PROGRAM)
        .arg("run")
        .args(long.split_whitespace())
        .arg("--dir")
        .arg(&scratch)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_large = |file: fs::DirEntry| file.metadata().is_ok_and(|file| file.len() > 1 << 20);
    let database = scratch.join("database");
    wait_until("nothing is loaded", || {
        fs::read_dir(&database).is_ok_and(|files| files.flatten().any(is_large))
    });
    let id = run.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    (run, children.trim().parse().unwrap())
}

/// Whether a process runs, not only waits to be forgotten.
fn lives(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

fn wait_until(what_else: &str, done: impl Fn() -> bool) {
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(60);
    while !done() {
        assert!(clock.now() < end, "{what_else}");
        clock.sleep(Duration::from_millis(20));
    }
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_peer_that_is_not_built_is_said() {
    let dir = dir("peers");
    let output = run(&SHORT.replace("esker", &format!("fjall --dir {}/x", dir.display())));
    let said = text(&output.stdout);
    assert!(!output.status.success() && said.contains("built without fjall"), "{said}");
    fs::remove_dir_all(&dir).unwrap();
}
