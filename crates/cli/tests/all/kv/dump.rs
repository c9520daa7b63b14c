//! `esker kv dump` and `load`.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use esker_base::Clock;

use super::flip_a_byte_of;
use crate::common::{Scratch, esker, run, run_in, text};

#[test]
fn a_dump_loaded_elsewhere_dumps_the_same() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let every_byte: Vec<u8> = (0..=255).collect();
    run_in(["kv", "put", &db, "default", "all", "-"], &every_byte).succeeds();
    run(["kv", "put", &db, "default", "a\tb\\", "line\nbreak"]).succeeds();
    run(["kv", "put", &db, "default", "-e", "\\x00\\xff", ""]).succeeds();
    run(["kv", "create-kvs", &db, "copy", "--policy", "capacity-only"]).succeeds();
    let file = text(&scratch.path("dump"));
    let dumped = run(["kv", "dump", &db, "default", &file]).succeeds();
    assert!(dumped.stderr.contains("3 records written"), "{}", dumped.stderr);
    let loaded = run(["kv", "load", &db, "copy", &file]).succeeds();
    assert!(loaded.stderr.contains("3 records loaded into KVS 'copy'"), "{}", loaded.stderr);
    let copy = run(["kv", "dump", &db, "copy"]).succeeds();
    let renamed = fs::read_to_string(&file).unwrap().replacen(
        "\\kvs default policy=staging-max-capacity compression=none",
        "\\kvs copy policy=capacity-only compression=none",
        1,
    );
    assert_eq!(copy.out(), renamed);
    assert_eq!(run(["kv", "get", &db, "copy", "all"]).succeeds().stdout, every_byte);
    let escaped = run(["kv", "get", &db, "copy", "-e", "\\x00\\xff"]).succeeds();
    assert_eq!(escaped.stdout, b"");
}

#[test]
fn dump_and_load_carry_the_metadata_of_a_kvs() {
    let scratch = Scratch::new();
    let (db, other) = (scratch.database(), text(&scratch.path("other")));
    {
        let db = esker_kv::Kvdb::builder(&db).open().unwrap();
        db.kvs("default").unwrap().set_metadata("schema 7\n").unwrap();
        db.close().unwrap();
    }
    run(["kv", "create-kvs", &db, "plain"]).succeeds();
    let dumped = run(["kv", "dump", &db]).succeeds();
    let marked = "compression=none metadata=736368656d6120370a\n";
    assert!(dumped.out().contains(marked) && dumped.out().matches("metadata").count() == 1);
    run(["kv", "create", &other, "--kvs", "default"]).succeeds();
    run_in(["kv", "load", &other], &dumped.stdout).succeeds();
    assert_eq!(run(["kv", "dump", &other]).succeeds().out(), dumped.out());
    let changed = dumped.out().replace("metadata=73", "metadata=74");
    let loaded = run_in(["kv", "load", &other], changed.as_bytes()).succeeds();
    assert!(loaded.stderr.contains("'default' keeps its metadata"), "{}", loaded.stderr);
    let wrong = dumped.out().replace("metadata=73", "metadata=7x");
    run_in(["kv", "load", &other], wrong.as_bytes()).fails(64, &["no hexadecimal metadata"]);
}

#[test]
fn a_file_in_the_place_of_a_kvs_is_told_from_one() {
    let scratch = Scratch::new();
    let (db, file) = (scratch.database(), text(&scratch.path("all.dump")));
    let redirected = format!("`esker kv dump {db} > {file}`");
    run(["kv", "dump", &db, &file]).fails(66, &["a file comes after the KVS", &redirected]);
    run(["kv", "dump", &db, "users", &file]).fails(66, &["esker kv create-kvs"]);
    assert!(!scratch.path("all.dump").exists());
    run(["kv", "dump", &db, "default", &file]).succeeds();
    let redirected = format!("`esker kv load {db} < {file}`");
    run(["kv", "load", &db, &file]).fails(66, &["a file comes after the KVS", &redirected]);
    run(["kv", "load", &db, "users"]).fails(66, &["esker kv create-kvs"]);
}

#[test]
fn a_malformed_line_is_named_and_the_lines_before_it_stay() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let load = |lines: &[u8]| run_in(["kv", "load", &db, "default"], lines);
    load(b"k1\tv1\nk2\tv2\nno tab here\nk4\tv4\n").fails(
        64,
        &["line 3: there is no tab", "2 records before it loaded", "load the file again"],
    );
    assert_eq!(run(["kv", "scan", &db, "default"]).succeeds().out(), "k1\tv1\nk2\tv2\n");
    load(b"k\t\\q\n").fails(64, &["line 1: '\\q' is no escape"]);
    let long = [&[b'k'; 1345][..], b"\tv\n"].concat();
    load(&long).fails(64, &["line 1: a key, or a bound of a range, has up to 1344 bytes"]);
    load(b"\tempty\n").succeeds();
    assert_eq!(run(["kv", "get", &db, "default", ""]).succeeds().out(), "empty");
    load(b"").succeeds();
}

#[test]
fn a_dump_that_fails_leaves_the_last_one_as_it_was() {
    let scratch = Scratch::new();
    let (db, value) = (scratch.database(), vec![b'v'; 10_000]);
    let (file, link) = (scratch.path("dump"), scratch.path("link"));
    let dump = |file: &Path| run(["kv", "dump", &db, "default", &text(file)]);
    run_in(["kv", "put", &db, "default", "k", "-"], &value).succeeds();
    fs::write(&file, "older").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    dump(&link).succeeds();
    assert!(link.is_symlink());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    let whole = fs::read(&file).unwrap();
    assert!(whole.ends_with(b"v\n\\end 1\n"), "{}", whole.escape_ascii());

    flip_a_byte_of(&scratch, &value);
    dump(&file).fails(65, &["damaged"]);
    assert!(fs::read(&file).unwrap() == whole, "the last dump is gone");
    dump(&scratch.path("other")).fails(65, &["damaged"]);
    let left = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["db", "dump", "link"]);
}

#[test]
fn a_closed_pipe_ends_a_dump_quietly() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let lines: String = (0..200).map(|n| format!("k{n}\t{}\n", "v".repeat(5_000))).collect();
    run_in(["kv", "load", &db, "default"], lines.as_bytes()).succeeds();
    let mut dump = esker()
        .args(["kv", "dump", &db, "default"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut start = [0; 10];
    dump.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = dump.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_whole_database_goes_through_a_dump_and_loses_nothing() {
    let scratch = Scratch::new();
    let (db, other) = (scratch.database(), text(&scratch.path("other")));
    run(["kv", "create", &other, "--kvs", "old"]).succeeds();
    run(["kv", "create-kvs", &db, "logs", "--policy", "capacity-only"]).succeeds();
    run(["kv", "create-kvs", &db, "empty", "--compression", "zstd", "--ttl", "300"]).succeeds();
    let mut rng = esker_base::Rng::new(3);
    let mut lines = Vec::new();
    for n in 0..500u64 {
        let mut bytes = vec![0; usize::try_from(rng.below(60)).unwrap() + 2];
        rng.fill(&mut bytes);
        let escaped =
            |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        let (key, value) = bytes.split_at(bytes.len() / 2);
        lines.extend_from_slice(format!("{n}{}\t{}\n", escaped(key), escaped(value)).as_bytes());
    }
    run_in(["kv", "load", &db, "default"], &lines).succeeds();
    run_in(["kv", "load", &db, "logs"], &lines[..lines.iter().position(|b| *b == b'\n').unwrap()])
        .succeeds();
    let dump = run(["kv", "dump", &db]).succeeds().stdout;
    assert_eq!(dump.iter().filter(|byte| **byte == b'\n').count(), 1 + 3 * 2 + 501);
    let loaded = run_in(["kv", "load", &other], &dump).succeeds();
    assert!(loaded.stderr.contains("501 records loaded into 3 KVSs"), "{}", loaded.stderr);
    let options = run(["kv", "info", &other]).succeeds().out();
    assert!(options.contains("300"), "{options}");
    for kvs in ["default", "logs", "empty"] {
        let dump = |db: &str| run(["kv", "dump", db, kvs]).succeeds().stdout;
        assert_eq!(dump(&db), dump(&other), "{kvs}");
    }
    // A dump that ends early, or lacks a line, is told from a whole one.
    let short = &dump[..dump.len() - 30];
    run_in(["kv", "load", &other], short).fails(64, &["line 5", "loading a record twice"]);
    let half = [b"\\dump 1 1\n\\kvs default\n".as_slice(), b"k\tv\n"].concat();
    run_in(["kv", "load", &other], &half).fails(64, &["line 4", "without its \\end", "1 record"]);
    let wrong = [&half[..], b"\\end 2\n"].concat();
    run_in(["kv", "load", &other], &wrong).fails(64, &["line 4", "2 records end here, 1 came"]);
    // Cut off where a KVS ends.
    let at = dump.windows(7).position(|window| window == b"\\end 1\n").unwrap();
    run_in(["kv", "load", &other], &dump[..at + 7]).fails(64, &["2 of its 3 KVSs"]);
    run_in(["kv", "load", &other, "old"], &dump).fails(64, &["several KVSs"]);
    run_in(["kv", "load", &other], b"k\tv\n").fails(64, &["line 1", "name a KVS"]);
    let future = b"\\dump 1 1\n\\kvs default shape=round\n";
    run_in(["kv", "load", &other], future).fails(64, &["line 2", "no attribute 'shape'"]);
}

#[test]
fn half_a_line_at_the_end_of_a_dump_is_not_loaded() {
    let scratch = Scratch::new();
    let db = scratch.database();
    run_in(["kv", "load", &db, "default"], b"k1\tone\nk2\tfull-value-two\n").succeeds();
    run(["kv", "create-kvs", &db, "t", "--ttl", "86400"]).succeeds();
    let dump = run(["kv", "dump", &db]).succeeds().out();
    let cut_behind = |text: &str| &dump.as_bytes()[..dump.find(text).unwrap() + text.len()];
    let cut_off = ["the dump is cut off in this line", "load the file again"];
    let fails = |input: &[u8], line: &str| {
        run_in(["kv", "load", &db], input).fails(64, &[&[line], &cut_off[..]].concat());
    };
    fails(cut_behind("k2\tfull-v"), "line 4: ");
    assert_eq!(run(["kv", "get", &db, "default", "k2"]).succeeds().out(), "full-value-two");
    run(["kv", "drop-kvs", &db, "t"]).succeeds();
    fails(cut_behind("ttl_ms=86"), "line 6: ");
    run(["kv", "get", &db, "t", "k"]).fails(66, &["no KVS 't'"]);
    fails(cut_behind("\\dump 1 2"), "line 1: ");
    run_in(["kv", "load", &db], b"").fails(64, &["nothing to load: no \\dump line came"]);
    run_in(["kv", "load", &db, "default"], b"").succeeds();
    // The count tells whether an end is whole.
    run_in(["kv", "load", &db], dump.trim_end().as_bytes()).succeeds();
    // Other programs need not end the last line.
    run_in(["kv", "load", &db, "default"], b"k1\t1\nk2\t2").succeeds();
    assert_eq!(run(["kv", "scan", &db, "default"]).succeeds().out(), "k1\t1\nk2\t2\n");
}

/// Records read before the signal are in the database, and the load says how many.
#[test]
fn an_interrupted_load_keeps_its_records_and_says_how_many() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let mut load = esker()
        .args(["kv", "load", &db, "default"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = load.stdin.take().unwrap();
    // Without an end, until the pipe is closed.
    let feeder = esker_base::thread::spawn("feeder", move || {
        (0..).try_for_each(|n: u64| writeln!(input, "key-{n:09}\tvalue")).unwrap_err();
    });
    let feeder = feeder.unwrap();
    Clock::real().sleep(Duration::from_millis(500));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&load),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let ended = load.wait_with_output().unwrap();
    feeder.join().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    let count = said.split("interrupted: ").nth(1).and_then(|rest| rest.split(' ').next());
    let count: u64 = count.unwrap().replace(',', "").parse().unwrap();
    assert!(count > 0, "{said}");
    let dumped = run(["kv", "dump", &db, "default"]).succeeds().out();
    let there = dumped.lines().filter(|line| line.starts_with("key-")).count();
    assert_eq!(there as u64, count, "{said}");
}
