//! Runs the binary as a user does.

#![allow(dead_code)] // each test file uses a part

pub(crate) mod schema;
pub(crate) mod tank;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use esker_base::Clock;

/// A directory that is gone after the test.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path of a database with the KVS `default`.
    pub(crate) fn database(&self) -> String {
        let dir = text(&self.path("db"));
        run(["kv", "create", &dir, "--staging"]).succeeds();
        dir
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

pub(crate) fn esker() -> Command {
    Command::new(env!("CARGO_BIN_EXE_esker"))
}

/// The command's output, and how it ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn out(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn succeeds(self) -> Ran {
        assert_eq!(self.code, Some(0), "{}{}", self.out(), self.stderr);
        self
    }

    /// It ended with `code`, and its message holds each of `words`.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Ran {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(self.stderr.starts_with("esker: "), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "no '{word}' in: {}", self.stderr);
        }
        self
    }
}

pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    run_in(args, b"")
}

/// Runs it with `input` as its standard input.
pub(crate) fn run_in<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &[u8]) -> Ran {
    let mut child = esker()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without having read all of it.
    let _ = child.stdin.take().unwrap().write_all(input);
    ran(child.wait_with_output().unwrap())
}

/// Runs a command that has to end by itself; one that serves instead is ended, and fails the test.
#[track_caller]
pub(crate) fn ends(command: &mut Command) -> Ran {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if clock.now() > end {
            child.kill().unwrap();
            panic!("{command:?} goes on: {:?}", child.wait_with_output().unwrap());
        }
        clock.sleep(Duration::from_millis(5));
    }
    ran(child.wait_with_output().unwrap())
}

#[track_caller]
pub(crate) fn ran(output: Output) -> Ran {
    schema::check_output(&output.stdout);
    Ran {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Says aloud that a test is skipped, whose command ended instead of mounting; it fails unless this machine or user
/// cannot mount.
#[track_caller]
pub(crate) fn skip_without_mounts(child: &mut Child) {
    let mut why = String::new();
    child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    let code = child.wait().unwrap().code();
    assert!(code == Some(69) || why.contains("must be allowed"), "{code:?} {why}");
    eprintln!("SKIPPED: {why}");
}
