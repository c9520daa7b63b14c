//! `esker kv`, as a user types it: its results, and the answer to each mistake.

mod dump;

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

use crate::common::{Scratch, esker, ran, run, run_in, text};

#[test]
fn record_is_put_got_scanned_deleted_and_gone() {
    let scratch = Scratch::new();
    let db = scratch.database();
    for (key, value) in [("b", "2"), ("a", "1"), ("c", "3")] {
        run(["kv", "put", &db, "default", key, value]).succeeds();
    }
    assert_eq!(run(["kv", "get", &db, "default", "b"]).succeeds().stdout, b"2");
    let hex = run(["kv", "get", &db, "default", "b", "--hex"]).succeeds();
    assert_eq!(hex.out(), "32\n");
    run(["kv", "delete", &db, "default", "b"]).succeeds();
    run(["kv", "get", &db, "default", "b"]).fails(1, &["no key 'b'", "'default'"]);
    let scan = run(["kv", "scan", &db, "default"]).succeeds();
    assert_eq!(scan.out(), "a\t1\nc\t3\n");
    let info = run(["kv", "info", &db]).succeeds().out();
    assert!(info.contains("staging class") && info.contains("KVS default"), "{info}");
    assert!(info.contains("garbage") && info.contains("DRAM: "), "{info}");
    // Counters that would always be 0, because nobody but this process counted.
    for counter in ["written", "bytes since", "operations", "maintenance", "stalls"] {
        assert!(!info.contains(counter), "{counter}: {info}");
    }
    let info = run(["kv", "info", &db, "--json"]).succeeds().out();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["kvdb"]["kvss"][0]["name"], "default");
}

#[test]
fn a_prefix_is_deleted_as_a_whole_and_a_time_to_live_is_set_and_unset() {
    let scratch = Scratch::new();
    let db = scratch.database();
    for key in ["a:1", "a:2", "b:1"] {
        run(["kv", "put", &db, "default", key, "v"]).succeeds();
    }
    run(["kv", "delete-prefix", &db, "default", "a:"]).succeeds();
    assert_eq!(run(["kv", "scan", &db, "default", "--keys"]).succeeds().out(), "b:1\n");
    run(["kv", "delete-prefix", &db, "default", ""]).fails(64, &["use `clear`"]);
    let made = run(["kv", "create-kvs", &db, "brief", "--ttl", "3600"]).succeeds().out();
    assert!(made.contains("time to live 3600s"), "{made}");
    run(["kv", "put", &db, "brief", "k", "v"]).succeeds();
    run(["kv", "get", &db, "brief", "k"]).succeeds();
    let set = run(["kv", "set-ttl", &db, "brief", "0.001"]).succeeds().out();
    assert_eq!(set, "KVS brief, time to live 1ms\n");
    run(["kv", "put", &db, "brief", "gone", "v"]).succeeds();
    let set = run(["kv", "set-ttl", &db, "brief"]).succeeds().out();
    assert_eq!(set, "KVS brief, no time to live\n");
    run(["kv", "get", &db, "brief", "gone"]).fails(1, &["no key 'gone'"]);
    let said = ["at least 1 ms", "leave it out"];
    run(["kv", "create-kvs", &db, "none", "--ttl", "0"]).fails(64, &said);
    run(["kv", "set-ttl", &db, "brief", "0"]).fails(64, &said);
}

#[test]
fn range_is_deleted_as_a_whole() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let delete = |more: &[&str]| {
        let args = ["kv", "delete-range", &db, "default"];
        run(args.iter().chain(more))
    };
    run_in(["kv", "load", &db, "default"], b"a\t1\nb\t2\nc\t3\nd\t4\ne\t5\n").succeeds();
    let keys = || run(["kv", "scan", &db, "default", "--keys"]).succeeds().out().replace('\n', " ");
    delete(&["--from", "b", "--to", "c"]).succeeds();
    assert_eq!(keys(), "a c d e ");
    delete(&["-e", "--to", "\\x61\\x00"]).succeeds();
    assert_eq!(keys(), "c d e ");
    delete(&["--from", "d"]).succeeds();
    assert_eq!(keys(), "c ");
    delete(&["--from", "z", "--to", "a"]).fails(64, &["ends before it begins"]);
    delete(&[]).fails(64, &["--from", "--to"]);
    assert_eq!(keys(), "c ");
}

#[test]
fn a_scan_keeps_to_range_prefix_order_and_limit() {
    let scratch = Scratch::new();
    let db = scratch.database();
    run_in(["kv", "load", &db, "default"], b"a\t1\nba\t2\nbb\t3\nc\t4\nd\t5\n").succeeds();
    let keys = |more: &[&str]| {
        let args = ["kv", "scan", &db, "default", "--keys"];
        run(args.iter().chain(more)).succeeds().out().replace('\n', " ")
    };
    assert_eq!(keys(&[]), "a ba bb c d ");
    assert_eq!(keys(&["--reverse"]), "d c bb ba a ");
    assert_eq!(keys(&["--from", "b", "--to", "d"]), "ba bb c ");
    assert_eq!(keys(&["--from", "ba", "--to", "c", "--reverse"]), "bb ba ");
    assert_eq!(keys(&["--prefix", "b"]), "ba bb ");
    assert_eq!(keys(&["--prefix", "b", "--reverse", "--limit", "1"]), "bb ");
    assert_eq!(keys(&["--prefix", "b", "--from", "bb"]), "bb ");
    assert_eq!(keys(&["--from", "x"]), "");
}

#[test]
fn compression_is_set_when_a_kvs_is_created_or_later() {
    let scratch = Scratch::new();
    let db = scratch.database();
    run(["kv", "create-kvs", &db, "logs", "--compression", "zstd"]).succeeds();
    run(["kv", "set-compression", &db, "default", "auto"]).succeeds();
    let info = run(["kv", "info", &db]).succeeds().out();
    for shown in ["compression zstd: 0 B", "compression auto: 0 B"] {
        assert!(info.contains(shown), "{info}");
    }
    run(["kv", "set-compression", &db, "default", "gzip"]).fails(64, &["none, lz4, zstd or auto"]);
}

#[test]
fn a_database_that_is_not_there_is_said_so() {
    let scratch = Scratch::new();
    let missing = text(&scratch.path("missing"));
    let file = text(&scratch.path("file"));
    let empty = text(&scratch.path("empty"));
    fs::write(&file, "text").unwrap();
    fs::create_dir(&empty).unwrap();
    for command in ["info", "check"] {
        run(["kv", command, &missing]).fails(66, &["no such directory", "esker kv create"]);
        run(["kv", command, &file]).fails(64, &["it is a file", "name the directory"]);
        run(["kv", command, &empty]).fails(66, &["no KVDB here", "esker kv create"]);
    }
    run(["kv", "create", &file]).fails(73, &["there is a file of this name"]);
    run(["kv", "create", "/proc/nowhere"]).fails(66, &["check the path"]);
}

#[test]
fn names_and_policies_that_cannot_be_are_refused() {
    let scratch = Scratch::new();
    let db = scratch.database();
    run(["kv", "create", &db]).fails(73, &["a KVDB here already"]);
    run(["kv", "get", &db, "users", "k"]).fails(66, &["only: default", "esker kv create-kvs"]);
    run(["kv", "drop-kvs", &db, "users"]).fails(66, &["no KVS 'users'"]);
    run(["kv", "create-kvs", &db, "a b"]).fails(64, &["1 to 255 letters"]);
    run(["kv", "create-kvs", &db, "default"]).fails(73, &["already", "another name"]);
    run(["kv", "create-kvs", &db, "x", "--policy", "fast"])
        .fails(64, &["no policy", "staging-max-capacity"]);
    run(["kv", "add-staging", &db]).fails(73, &["a staging class already"]);
    let other = text(&scratch.path("other"));
    run(["kv", "create", &other, "--kvs", "users:fast"]).fails(64, &["use one of"]);
    run(["kv", "create", &other, "--kvs", "users", "--kvs", "a b"])
        .fails(64, &["1 to 255 letters"]);
    run(["kv", "create", &other, "--kvs", "users", "--kvs", "users"]).fails(64, &["comes twice"]);
    assert!(!scratch.path("other").exists());
    run(["kv", "create", &other, "--memory", "1MiB"]).fails(64, &["16 MiB"]);
    run(["kv", "create", &other, "--memory", "12parsecs"]).fails(64, &["unknown unit"]);
    assert!(!scratch.path("other").exists());
}

#[test]
fn database_for_whose_kvs_there_is_no_room_is_not_created() {
    let scratch = Scratch::new();
    let mounted = text(&scratch.path("mounted"));
    fs::create_dir(&mounted).unwrap();
    for size in ["8k", "12k", "16k", "20k", "24k"] {
        let size = format!("size={size}");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs", &mounted])
            .output()
            .unwrap();
        if !mount.status.success() {
            eprintln!("SKIPPED: {}", String::from_utf8_lossy(&mount.stderr));
            return;
        }
        let ran = run(["kv", "create", &format!("{mounted}/db")]);
        let left: Vec<_> =
            fs::read_dir(&mounted).unwrap().map(|file| file.unwrap().path()).collect();
        let unmount = std::process::Command::new("umount").arg(&mounted).status().unwrap();
        assert!(unmount.success());
        ran.fails(73, &["no room"]);
        assert!(left.is_empty(), "{size}: {left:?}");
    }
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused() {
    let scratch = Scratch::new();
    let db = scratch.database();
    run(["kv", "put", &db, "default", &"k".repeat(1345), "v"]).fails(64, &["has 1345"]);
    let large = vec![b'v'; (1 << 20) + 1];
    run_in(["kv", "put", &db, "default", "k", "-"], &large)
        .fails(64, &["at most 1048576 bytes", "split it"]);
    run_in(["kv", "put", &db, "default", "k", "-"], &large[1..]).succeeds();
    let back = run(["kv", "get", &db, "default", "k"]).succeeds();
    assert_eq!(back.stdout.len(), 1 << 20);
    run(["kv", "put", &db, "default", "-5", "-6"]).succeeds();
    assert_eq!(run(["kv", "get", &db, "default", "-5"]).succeeds().stdout, b"-6");
}

#[test]
fn staging_is_added_later_and_never_on_top_of_data() {
    let scratch = Scratch::new();
    let (db, taken) = (text(&scratch.path("db")), text(&scratch.path("taken")));
    fs::write(&taken, "precious").unwrap();
    run(["kv", "create", &db, &format!("--staging={taken}")]).fails(73, &["holds data already"]);
    run(["kv", "create", &db]).succeeds();
    run(["kv", "put", &db, "default", "k", "v"]).succeeds();
    run(["kv", "add-staging", &db, &taken]).fails(73, &["holds data already"]);
    assert_eq!(fs::read(&taken).unwrap(), b"precious");
    let mut content = vec![0; 128 << 10];
    content[0x1_0040..0x1_0048].copy_from_slice(b"_BHRfS_M");
    fs::write(&taken, &content).unwrap();
    let words = ["holds a device of btrfs already, at byte 65600", "blkdiscard"];
    run(["kv", "add-staging", &db, &taken]).fails(73, &words);
    assert_eq!(fs::read(&taken).unwrap(), content);
    run(["kv", "add-staging", &db]).succeeds();
    assert_eq!(run(["kv", "get", &db, "default", "k"]).succeeds().stdout, b"v");
    let info = run(["kv", "info", &db]).succeeds().out();
    assert!(info.contains("staging class"), "{info}");
}

#[test]
fn policies_change_everything_is_compacted_and_staging_goes_again() {
    let scratch = Scratch::new();
    let db = text(&scratch.path("db"));
    run(["kv", "create", &db, "--staging", "--kvs", "k:staging-only"]).succeeds();
    run(["kv", "put", &db, "k", "key", &"v".repeat(100)]).succeeds();
    let info = run(["kv", "info", &db]).succeeds().out();
    assert!(info.contains("policy staging-only") && info.contains("young values"), "{info}");
    let set = run(["kv", "set-policy", &db, "k", "capacity-only,old-keys=staging/none"]);
    let policy = "young-keys=capacity,young-values=capacity,old-keys=staging/none";
    assert!(set.succeeds().out().contains(policy));
    run(["kv", "set-policy", &db, "k", "old-keys=tape"]).fails(64, &["staging or capacity"]);
    let compacted = run(["kv", "compact", &db]).succeeds().out();
    assert!(compacted.contains("space amplification"), "{compacted}");
    run(["kv", "compact", &db, "--goal", "1.5"]).succeeds();
    run(["kv", "compact", &db, "--goal", "0.5"]).fails(64, &["give 1.02 to 100"]);
    run(["kv", "remove-staging", &db]).succeeds();
    let info = run(["kv", "info", &db]).succeeds().out();
    assert!(!info.contains("staging class") && info.contains(policy), "{info}");
    run(["kv", "remove-staging", &db]).fails(66, &["no staging class"]);
    assert_eq!(run(["kv", "get", &db, "k", "key"]).succeeds().stdout, "v".repeat(100).as_bytes());
    run(["kv", "check", &db]).succeeds();
}

#[test]
fn a_second_process_is_told_that_the_database_is_in_use() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let mut first = esker()
        .args(["kv", "load", &db, "default"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // More than a pipe holds: when it has been written, some was read, so the database is open.
    let lines = format!("k\t{}\n", "v".repeat(1_000)).repeat(2_000);
    let mut input = first.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    run(["kv", "get", &db, "default", "k"]).fails(77, &["open elsewhere", "close it"]);
    drop(input);
    assert!(first.wait().unwrap().success());
    run(["kv", "get", &db, "default", "k"]).succeeds();
}

/// Damages a value of the database.
fn flip_a_byte_of(scratch: &Scratch, value: &[u8]) {
    let staging = scratch.path("db").join("staging.esker");
    let mut bytes = fs::read(&staging).unwrap();
    let at = bytes.windows(100).position(|w| w == &value[..100]).unwrap();
    bytes[at + 50] ^= 1;
    fs::write(&staging, bytes).unwrap();
}

#[test]
fn damage_is_found_by_check_and_costs_exit_code_65() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let value = vec![b'v'; 10_000];
    run_in(["kv", "put", &db, "default", "k", "-"], &value).succeeds();
    let sound = run(["kv", "check", &db]).succeeds().out();
    assert!(sound.contains("1 value of") && sound.ends_with("sound\n"), "{sound}");
    flip_a_byte_of(&scratch, &value);
    let checked = run(["kv", "check", &db]).fails(65, &["restore it from a copy"]);
    assert!(checked.out().contains("damaged: "), "{}", checked.out());
    let json = run(["kv", "check", &db, "--json"]).fails(65, &["damage"]).out();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(!json["findings"].as_array().unwrap().is_empty());
    run(["kv", "get", &db, "default", "k"]).fails(65, &["damaged", "esker kv repair"]);
}

#[test]
fn damage_costs_exit_code_65_when_nobody_reads_of_it_too() {
    let scratch = Scratch::new();
    let (db, value) = (scratch.database(), vec![b'v'; 10_000]);
    run_in(["kv", "put", &db, "default", "k", "-"], &value).succeeds();
    flip_a_byte_of(&scratch, &value);
    let unread = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        ran(esker().args(args).stdout(writer).output().unwrap())
    };
    let [new, other] = ["new", "other"].map(|name| text(&scratch.path(name)));
    unread(&["kv", "check", &db]).fails(65, &["damages found"]);
    unread(&["kv", "check", &db, "--json"]).fails(65, &["damages found"]);
    unread(&["kv", "repair", &db, &new]).fails(65, &["not all of it is sound"]);
    unread(&["kv", "repair", &db, &other, "--json"]).fails(65, &["not all of it is sound"]);
}

#[test]
fn readers_share_a_class_that_is_a_file_of_a_specification() {
    let scratch = Scratch::new();
    let (db, capacity) = (text(&scratch.path("db")), text(&scratch.path("capacity")));
    for (n, spec) in ["file:P?lba=512", "traced:(file:P?lba=512)?to=T"].iter().enumerate() {
        let (db, capacity) = (format!("{db}{n}"), format!("{capacity}{n}"));
        let trace = text(&scratch.path("trace"));
        let spec = spec.replace('P', &capacity).replace("to=T", &format!("to={trace}"));
        run(["kv", "create", &db, "--capacity", &spec]).succeeds();
        let lines: String = (0..200).map(|n| format!("k{n}\t{}\n", "v".repeat(5_000))).collect();
        run_in(["kv", "load", &db, "default"], lines.as_bytes()).succeeds();
        let mut dump =
            esker().args(["kv", "dump", &db, "default"]).stdout(Stdio::piped()).spawn().unwrap();
        // It has the database open, and more to say than the pipe takes.
        let mut out = dump.stdout.take().unwrap();
        out.read_exact(&mut [0; 10]).unwrap();
        run(["kv", "get", &db, "default", "k1"]).succeeds();
        run(["kv", "check", &db]).succeeds();
        run(["kv", "put", &db, "default", "k", "v"]).fails(77, &[]);
        drop(out);
        assert!(dump.wait().unwrap().success());
    }
}

#[test]
fn files_that_cannot_be_read_or_written_are_named() {
    let scratch = Scratch::new();
    let db = scratch.database();
    run(["kv", "load", &db, "default", "/nowhere"]).fails(66, &["/nowhere", "standard input"]);
    run(["kv", "dump", &db, "default", "/nowhere/x"]).fails(66, &["/nowhere/x"]);
    run(["kv", "put", &db, "default", "k", "v"]).succeeds();
    run(["kv", "dump", &db, "default", "/dev/full"]).fails(73, &["/dev/full", "room"]);
}

#[test]
fn a_backup_is_restored_and_a_damaged_database_repaired() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let (copy, again) = (text(&scratch.path("copy")), text(&scratch.path("again")));
    let lines: String = (0..300).map(|n| format!("k{n:03}\t{}\n", "v".repeat(2_000))).collect();
    run_in(["kv", "load", &db, "default"], lines.as_bytes()).succeeds();
    let backed_up = run(["kv", "backup", &db, &copy]).succeeds().out();
    assert!(backed_up.contains("1 KVS,"), "{backed_up}");
    run(["kv", "backup", &db, &copy]).fails(73, &["there is a KVDB here already"]);
    run(["kv", "restore", &copy, &again, "--staging=none", "--json"]).succeeds();
    let dump = |db: &str| run(["kv", "dump", db, "default"]).succeeds().stdout;
    assert_eq!(dump(&copy), dump(&db));
    assert_eq!(dump(&again), dump(&db));
    assert!(run(["kv", "check", &again]).succeeds().out().ends_with("sound\n"));

    let repaired = text(&scratch.path("repaired"));
    let sound = run(["kv", "repair", &db, &repaired]).succeeds().out();
    assert!(sound.contains("300 keys recovered") && sound.ends_with("sound\n"), "{sound}");
    fs::remove_file(scratch.path("db").join("manifest.esker")).unwrap();
    let gone = run(["kv", "info", &db]).fails(66, &["'manifest.esker' is gone", "esker kv repair"]);
    assert!(!gone.stderr.contains("esker kv create"), "{}", gone.stderr);
    let salvaged = text(&scratch.path("salvaged"));
    let lost = run(["kv", "repair", &db, &salvaged]).fails(65, &["not all of it is sound"]).out();
    assert!(lost.contains("300 keys recovered") && lost.contains("manifest is lost"), "{lost}");
    let kvs = lost.split_whitespace().find(|word| word.starts_with("kvs-")).expect(&lost);
    let kvs = kvs.trim_end_matches(':');
    assert_eq!(run(["kv", "get", &salvaged, kvs, "k299"]).succeeds().stdout, [b'v'; 2_000]);

    // As a repair that was interrupted leaves it: no header of the class, and no manifest.
    let half = scratch.path("half");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("manifest.esker"), b"").unwrap();
    fs::write(half.join("capacity.esker"), [vec![0; 4096], vec![7; 8192]].concat()).unwrap();
    let half = text(&half);
    run(["kv", "info", &half]).fails(66, &["a repair to it", "then do that again"]);
    run(["kv", "repair", &db, &half]).fails(65, &["not all of it is sound"]);
    assert_eq!(run(["kv", "get", &half, kvs, "k299"]).succeeds().stdout, [b'v'; 2_000]);
}

#[test]
fn a_repair_takes_no_class_for_lost_that_only_cannot_be_opened() {
    let scratch = Scratch::new();
    let (db, capacity) = (text(&scratch.path("db")), text(&scratch.path("capacity")));
    let staging = scratch.path("db").join("staging.esker");
    let (here, there) = (format!("file:{capacity}?lba=512"), text(&scratch.path("there")));
    run(["kv", "create", &db, "--staging", "--capacity", &here, "--kvs", "a:capacity-only"])
        .succeeds();
    run(["kv", "put", &db, "a", "k", &"v".repeat(500)]).succeeds();
    let repaired = |name: &str, old: &[&str]| {
        let to = text(&scratch.path(name));
        let ran = run(["kv", "repair", &db, &to].iter().chain(old));
        assert_eq!(scratch.path(name).exists(), ran.code != Some(66), "{}", ran.stderr);
        ran
    };
    let sound = repaired("0", &[]).succeeds().out();
    assert!(sound.contains("KVS a: 1 key recovered, 0 lost"), "{sound}");

    // A device that is no file, and one that is.
    fs::rename(&capacity, &there).unwrap();
    repaired("1", &[]).fails(66, &[&capacity, "--old-capacity", "`none` to do without"]);
    repaired("2", &["--old-capacity", &format!("file:{there}?lba=512")]).succeeds();
    let without = repaired("3", &["--old-capacity", "none"]).fails(65, &["not all of it is sound"]);
    assert!(without.out().contains("the capacity class is missing"), "{}", without.out());
    fs::rename(&there, &capacity).unwrap();
    fs::rename(&staging, &there).unwrap();
    repaired("4", &[]).fails(66, &["staging.esker", "--old-staging", "`none` to do without"]);
    repaired("5", &["--old-staging", &there]).succeeds();
    repaired("7", &["--old-staging", "/nowhere"]).fails(66, &["/nowhere", "name the file"]);
    repaired("6", &["--old-staging", "none"]).fails(65, &["not all of it is sound"]);
}

#[test]
fn damaged_value_ends_neither_dump_nor_backup_nor_compact() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let lines: String =
        (0..300).map(|n| format!("k{n:03}\tv{n:03}{}\n", "v".repeat(500))).collect();
    run_in(["kv", "load", &db, "default"], lines.as_bytes()).succeeds();
    run(["kv", "compact", &db]).succeeds();
    for class in ["capacity", "staging"] {
        let path = scratch.path("db").join(format!("{class}.esker"));
        let mut bytes = fs::read(&path).unwrap();
        let places = bytes.windows(5).enumerate().filter(|(_, it)| it == b"v123v");
        let places: Vec<usize> = places.map(|(at, _)| at).collect();
        places.into_iter().for_each(|at| bytes[at] ^= 1);
        fs::write(&path, bytes).unwrap();
    }
    let dumped = text(&scratch.path("dumped"));
    run(["kv", "dump", &db, "default", &dumped]).fails(65, &["damaged"]);
    let named = ["left out: KVS 'default', key 'k123'", "the dump lacks"];
    run(["kv", "dump", &db, "default", &dumped, "--skip-corrupted"]).fails(65, &named);
    let loaded = text(&scratch.path("loaded"));
    run(["kv", "create", &loaded]).succeeds();
    run(["kv", "load", &loaded, "default", &dumped]).succeeds();
    let copy = text(&scratch.path("copy"));
    run(["kv", "backup", &db, &copy]).fails(65, &["damaged"]);
    let said = run(["kv", "backup", &db, &copy, "--skip-corrupted"]).fails(65, &["not all of it"]);
    assert!(said.out().contains("KVS default: 299 keys recovered, 1 lost"), "{}", said.out());
    assert!(said.out().contains("lost: KVS default, key 'k123'"), "{}", said.out());
    for whole in [&loaded, &copy] {
        let keys = run(["kv", "scan", whole, "default", "--keys"]).succeeds().out();
        assert!(keys.lines().count() == 299 && !keys.contains("k123"), "{keys}");
        assert!(run(["kv", "check", whole]).succeeds().out().ends_with("sound\n"));
    }
    // Overwritten, the neighbours leave garbage behind.
    run_in(["kv", "load", &db, "default"], lines.replace("k123", "k124").as_bytes()).succeeds();
    let said = run(["kv", "compact", &db]).fails(65, &["not all of it was compacted"]);
    assert!(said.out().contains("left out: KVS 'default'"), "{}", said.out());
    run(["kv", "put", &db, "default", "other", "v"]).succeeds();
}

#[test]
fn damaged_kvset_meta_is_shown_by_info_and_stops_its_kvs_alone() {
    let scratch = Scratch::new();
    let db = scratch.database();
    run(["kv", "create-kvs", &db, "other"]).succeeds();
    let lines: String = (0..300).map(|n| format!("k{n:03}\tv\n")).collect();
    run_in(["kv", "load", &db, "default"], lines.as_bytes()).succeeds();
    run(["kv", "compact", &db]).succeeds();
    for class in ["capacity", "staging"] {
        let path = scratch.path("db").join(format!("{class}.esker"));
        let mut bytes = fs::read(&path).unwrap();
        for page in bytes.chunks_exact_mut(4096).filter(|page| page.starts_with(b"ESKKVSET")) {
            page[60] ^= 1;
        }
        fs::write(&path, bytes).unwrap();
    }
    let said = run(["kv", "info", &db]).succeeds();
    assert!(said.out().contains("note: KVS 'default', all keys: read-only"), "{}", said.out());
    let json: serde_json::Value =
        serde_json::from_str(&run(["kv", "info", &db, "--json"]).succeeds().out()).unwrap();
    assert_eq!(json["kvdb"]["damaged"].as_array().unwrap().len(), 1, "{json}");
    run(["kv", "get", &db, "default", "k123"]).fails(65, &["kvset meta"]);
    run(["kv", "put", &db, "default", "k123", "v"]).fails(65, &["read-only", "esker kv repair"]);
    run(["kv", "put", &db, "other", "k", "v"]).succeeds();
    assert_eq!(run(["kv", "get", &db, "other", "k"]).succeeds().out(), "v");
    let new = text(&scratch.path("new"));
    run(["kv", "repair", &db, &new]).fails(65, &[]);
    assert_eq!(
        run(["kv", "scan", &new, "default", "--keys"]).succeeds().out().lines().count(),
        300
    );
}

#[test]
fn a_database_is_upgraded_once() {
    let scratch = Scratch::new();
    let db = scratch.database();
    run(["kv", "put", &db, "default", "k", "v"]).succeeds();
    let said = run(["kv", "upgrade", &db]).succeeds().out();
    assert!(said.ends_with("upgraded from version 1 of the format to 2\n"), "{said}");
    let said = run(["kv", "upgrade", &db]).succeeds().out();
    assert!(said.ends_with("it has version 2 of the format already\n"), "{said}");
    assert_eq!(run(["kv", "get", &db, "default", "k"]).succeeds().out(), "v");
    run(["kv", "upgrade", &format!("{db}-not")]).fails(66, &["no such directory"]);
}
