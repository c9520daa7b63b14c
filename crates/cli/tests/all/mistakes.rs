//! The same mistake has the same exit code and the same shape of message, whichever command it is made at.

use std::fs::{self, File};
use std::process::Stdio;

use crate::common::{Scratch, esker, ran, run};

/// Commands with a place for a wrong path; each has to end by itself.
const USERS: [&str; 22] = [
    "kv info PATH",
    "kv get PATH rows k",
    "kv check PATH",
    "kv dump PATH",
    "kv compact PATH",
    "kv backup PATH there",
    "cache info PATH",
    "ssd info PATH",
    "trace info PATH",
    "trace mrc PATH",
    "trace replay PATH",
    "trace advise PATH",
    "bench device PATH --for 10ms",
    "target serve --config PATH",
    "attach PATH here",
    "detach PATH",
    "lab plan PATH",
    "lab compare PATH PATH",
    "lab fdp --device PATH --erase",
    "lab host-ssd --device PATH",
    "pool status PATH",
    "volume list PATH",
];

/// Runs each of them with a path, and gives the command, the code and the message.
fn each(scratch: &Scratch, path: &str) -> Vec<(&'static str, i32, String)> {
    let one = |user: &'static str| {
        let words = user.split(' ').map(|word| if word == "PATH" { path } else { word });
        let mut command = esker();
        command.args(words).current_dir(scratch.path("")).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (user, output.status.code().unwrap_or(-1), said)
    };
    USERS.into_iter().map(one).collect()
}

fn assert_all(found: &[(&str, i32, String)], code: impl Fn(&str) -> i32) {
    let wrong: Vec<_> =
        found.iter().filter(|(user, got, _)| *got != code(user)).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (user, _, said) in found {
        assert!(said.starts_with("esker: ") && said.trim().len() > 20, "{user}: {said}");
        assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{user}: {said}");
    }
}

#[test]
fn nothing_at_a_path_is_not_found() {
    let scratch = Scratch::new();
    assert_all(&each(&scratch, "nowhere"), |_| 66);
    let left = fs::read_dir(scratch.path("")).unwrap().count();
    assert_eq!(left, 0, "something was made");
}

#[test]
fn a_directory_in_place_of_a_file_is_wrong_usage() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("dir")).unwrap();
    // A directory without a database, without anything attached, or of a pool that is not served.
    let not_found = ["kv ", "detach", "pool", "volume"];
    assert_all(&each(&scratch, "dir"), |user| {
        if not_found.iter().any(|start| user.starts_with(start)) { 66 } else { 64 }
    });
}

#[test]
fn a_file_of_another_sort_is_wrong_usage_or_damaged() {
    let scratch = Scratch::new();
    fs::write(scratch.path("text"), "hello\n").unwrap();
    assert_all(&each(&scratch, "text"), |user| match user.split(' ').next() {
        // These have a format of their own, and say that this is none.
        Some("ssd" | "trace") => 65,
        Some("detach" | "pool" | "volume") => 66,
        _ => 64,
    });
    assert_eq!(fs::read(scratch.path("text")).unwrap(), b"hello\n");
}

#[test]
fn output_that_cannot_be_written_is_said() {
    for words in ["help", "kv --help", "--version", "ssd profiles", "completions bash"] {
        let mut command = esker();
        command.args(words.split(' ')).stdin(Stdio::null()).stderr(Stdio::piped());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        ran(output).fails(73, &["could not be written"]);
    }
}

/// Each size, span and count that makes no sense is refused before anything is made.
#[test]
fn figures_without_sense_are_refused_with_what_is_possible() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path(name).display().to_string();
    let db = at("db");
    for (words, said) in [
        ("demo --records 0", "1 or more"),
        ("demo --for 0", "too short"),
        ("demo --for 999999d", "longer than 36500d"),
        ("demo --threads 100000", "1 to 4096"),
        ("demo --memory 0", "too few"),
        ("bench ycsb --db DB --records 99999999999999", "give fewer --records"),
        ("bench ycsb --operations 0", "1 or more"),
        ("kv create DB --memory 1", "16 MiB"),
        ("ssd create micron-7450 DB --capacity 0", "too few"),
        ("ssd create micron-7450 DB --capacity 99999TiB", "capacity"),
        ("run --memory 0 -- true", "too few"),
        ("pool create p a b --chunk 0", "too few"),
        ("lab hse --threads 1000000", "1 to 4096"),
        ("lab fdp --drive 0", "too few"),
        ("--timeout 0 pool status p", "too short"),
    ] {
        let words = words.split(' ').map(|word| if word == "DB" { &db } else { word });
        run(words).fails(64, &[said]);
        assert!(!scratch.path("db").exists(), "something was made");
    }
}
