//! Devices that are missing, or whose size does not fit: every command that uses one says so, says the remedy, and
//! makes nothing.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Ran, Scratch, ends, esker, ran, run, text};

const NOT_FOUND: i32 = 66;
const INVALID: i32 = 64;
const EXISTS: i32 = 73;
const MIB: u64 = 1 << 20;

#[track_caller]
fn refused_by(args: &[&str]) -> Ran {
    ends(esker().args(args))
}

/// The commands that hand a device on, or look into it, with the same device.
fn users(device: &str, at: &str) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let nqn = "nqn.2026-01.io.esker:missing";
    vec![
        words(&["attach", device, at]),
        words(&["attach", "--read-only", device, at]),
        words(&[
            "target",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--subsystem",
            nqn,
            "--device",
            device,
            "--allow-any",
        ]),
    ]
}

/// Each of them refuses the device with these words, and the directory's content is unchanged.
#[track_caller]
fn refused(scratch: &Scratch, device: &str, code: i32, words: &[&str]) {
    let at = scratch.path("at");
    fs::create_dir_all(&at).unwrap();
    let before = listing(&scratch.path(""));
    for command in users(device, &text(&at)) {
        let args: Vec<&str> = command.iter().map(String::as_str).collect();
        refused_by(&args).fails(code, words);
        assert_eq!(listing(&scratch.path("")), before, "{command:?}");
    }
}

/// The names in a directory, with their sizes.
fn listing(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut names: Vec<_> =
        entries.map(|one| (text(&one.path()), one.metadata().unwrap().len())).collect();
    names.sort();
    names
}

/// A file that is a hole.
fn sparse(scratch: &Scratch, name: &str, bytes: u64) -> String {
    let path = scratch.path(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    text(&path)
}

fn allocated(path: &str) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn cache_without_its_flash_or_origin_is_refused_and_nothing_is_made() {
    let scratch = Scratch::new();
    let (disk, flash) =
        (sparse(&scratch, "disk.img", 64 * MIB), sparse(&scratch, "flash.img", 16 * MIB));
    run(["cache", "create", &disk, &flash, "--sets", "1MiB"]).succeeds();
    let (gone_disk, gone_flash) =
        (text(&scratch.path("gone.img")), text(&scratch.path("gone-flash.img")));
    let cache = |disk: &str, flash: &str| format!("cache:({disk})?flash=({flash})");
    for device in [
        cache(&disk, &gone_flash),
        format!("cache:({disk})?flash=(file:{gone_flash}?capacity=16MiB)"),
    ] {
        let words = [
            "the flash device",
            "gone-flash.img is not there",
            "only copy",
            "`esker cache create 'file:",
        ];
        refused(&scratch, &device, NOT_FOUND, &words);
    }
    let words = ["the origin", "gone.img is not there", "bring the origin back"];
    refused(&scratch, &cache(&gone_disk, &flash), NOT_FOUND, &words);
    let words = ["neither the origin", "gone-flash.img is there", "`esker cache create 'file:"];
    refused(&scratch, &cache(&gone_disk, &gone_flash), NOT_FOUND, &words);
    let words = ["/dev/esker-typo (no such device) is not there"];
    refused(&scratch, &cache(&disk, "/dev/esker-typo"), NOT_FOUND, &words);
    refused(&scratch, &cache("/dev/esker-typo", &flash), NOT_FOUND, &words);
    // A cache within a cache, and a recorded one.
    let inner = format!("cache:({})?flash=({flash})", cache(&disk, &gone_flash));
    refused(&scratch, &inner, NOT_FOUND, &["gone-flash.img is not there"]);
    let trace = text(&scratch.path("trace"));
    let traced = format!("traced:({})?to={trace}", cache(&disk, &gone_flash));
    refused(&scratch, &traced, NOT_FOUND, &["gone-flash.img is not there"]);
    // A file that holds no cache is not taken for a new one.
    let blank = sparse(&scratch, "blank.img", 16 * MIB);
    let words = ["there is no cache on it", "`esker cache create"];
    refused(&scratch, &cache(&disk, &blank), NOT_FOUND, &words);
    for command in ["detach", "resize"] {
        run(["cache", command, &disk, &gone_flash])
            .fails(NOT_FOUND, &["gone-flash.img is not there"]);
        run(["cache", command, &gone_disk, &flash]).fails(NOT_FOUND, &["gone.img is not there"]);
    }
    run(["cache", "info", &gone_flash]).fails(NOT_FOUND, &["there is no such file"]);
    run(["cache", "mode", &gone_flash, "wt"]).fails(NOT_FOUND, &["there is no such file"]);
    // A new database that is to be kept makes no cache either.
    let db = text(&scratch.path("db"));
    run(["kv", "create", &db, "--capacity", &cache(&disk, &gone_flash)])
        .fails(NOT_FOUND, &["gone-flash.img"]);
    run(["kv", "create", &db, "--capacity", &cache(&disk, &blank)])
        .fails(NOT_FOUND, &["no cache on it"]);
    assert!(!scratch.path("gone-flash.img").exists() && !scratch.path("gone.img").exists());
}

#[test]
fn advised_command_makes_the_cache() {
    let scratch = Scratch::new();
    let disk = sparse(&scratch, "disk.img", 64 * MIB);
    let flash = text(&scratch.path("flash.img"));
    let at = scratch.path("at");
    fs::create_dir(&at).unwrap();
    let device = format!("cache:({disk})?flash=(file:{flash}?capacity=16MiB)");
    let said =
        refused_by(&["attach", &device, &text(&at)]).fails(NOT_FOUND, &["esker cache create"]);
    let command = said.stderr.split('`').nth(1).unwrap().to_owned();
    let words: Vec<&str> = command.split(' ').skip(1).map(|word| word.trim_matches('\'')).collect();
    run(words).succeeds();
    assert_eq!(fs::metadata(&flash).unwrap().len(), 16 * MIB);
    assert!(allocated(&flash) < MIB, "{}", allocated(&flash));
    run(["cache", "info", &flash]).succeeds();
}

#[test]
fn device_that_is_misspelt_is_never_made_a_file() {
    let scratch = Scratch::new();
    let typo = "/dev/esker-typo";
    let none = |said: Ran, words: &[&str]| {
        said.fails(NOT_FOUND, words);
        assert!(!Path::new(typo).exists(), "{words:?}");
    };
    let no_device = ["no such device", "check the name"];
    refused(&scratch, typo, NOT_FOUND, &no_device);
    refused(&scratch, &format!("file:{typo}?capacity=8MiB"), NOT_FOUND, &no_device);
    refused(
        &scratch,
        &format!("ssd:micron-7450?capacity=2GiB&image={typo}"),
        NOT_FOUND,
        &no_device,
    );
    refused(&scratch, &format!("disk:sas-10k?capacity=1GiB&image={typo}"), NOT_FOUND, &no_device);
    refused(&scratch, &format!("traced:(mem:1MiB)?to={typo}"), NOT_FOUND, &no_device);
    let (db, new) = (scratch.database(), text(&scratch.path("new")));
    let disk = sparse(&scratch, "disk.img", 64 * MIB);
    let sized = format!("file:{typo}?capacity=16MiB");
    let image = format!("ssd:micron-7450?capacity=2GiB&time=none&image={typo}");
    none(run(["cache", "create", &disk, typo]), &no_device);
    none(run(["cache", "create", &disk, &sized]), &no_device);
    none(run(["cache", "create", &sized, &disk]), &no_device);
    none(run(["ssd", "create", "micron-7450", typo, "--capacity", "2GiB"]), &no_device);
    none(run(["ssd", "info", typo]), &no_device);
    none(run(["kv", "create", typo]), &no_device);
    for medium in [typo, &sized, &image] {
        none(run(["kv", "create", &new, "--capacity", medium]), &no_device);
        none(run(["kv", "create", &new, &format!("--staging={medium}")]), &no_device);
        none(run(["kv", "backup", &db, &new, "--capacity", medium]), &no_device);
        none(run(["demo", "--records", "10", "--capacity", medium]), &no_device);
    }
    let plain = text(&scratch.path("plain"));
    run(["kv", "create", &plain]).succeeds();
    none(run(["kv", "add-staging", &plain, typo]), &no_device);
    none(run(["kv", "add-staging", &plain, &sized]), &no_device);
    none(run(["kv", "backup", &db, typo]), &no_device);
    none(run(["kv", "repair", &db, typo]), &no_device);
    none(run(["kv", "dump", &db, "default", typo]), &no_device);
    for option in ["--json", "--report"] {
        none(run(["demo", "--records", "10", "--seconds", "0.1", option, typo]), &no_device);
    }
    none(run(["demo", "--records", "10", "--db", typo]), &no_device);
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/testdata/sample.msr.csv");
    none(run(["trace", "convert", trace, "-o", typo]), &no_device);
    let output = esker().env("TMPDIR", "/dev").args(["demo", "--records", "10"]).output().unwrap();
    ran(output).fails(NOT_FOUND, &["nothing is created under /dev", "TMPDIR"]);
    let config = scratch.path("target.toml");
    let nqn = "nqn.2026-01.io.esker:a";
    let namespace = "[[subsystem.namespace]]\nnsid = 1\ndevice = \"mem:1MiB\"\n";
    let told = format!(
        "listen = [\"127.0.0.1:0\"]\nreservations = \"{typo}\"\n[[subsystem]]\nnqn = \"{nqn}\"\nallow_any = true\n{namespace}"
    );
    fs::write(&config, told).unwrap();
    none(
        refused_by(&["target", "serve", "--config", &text(&config)]),
        &["nothing is created under /dev"],
    );
    assert!(!Path::new("/dev/esker-typo.lock").exists());
}

#[test]
fn file_has_the_size_it_has_and_one_that_fits_no_lba_is_refused() {
    let scratch = Scratch::new();
    let dir = text(&scratch.path("folder"));
    fs::create_dir(&dir).unwrap();
    let gone = text(&scratch.path("gone.img"));
    refused(
        &scratch,
        &gone,
        NOT_FOUND,
        &["there is no such file", &format!("`truncate -s 8G '{gone}'`")],
    );
    let sized = format!("file:{gone}?capacity=1MiB");
    refused(&scratch, &sized, NOT_FOUND, &["there is no such file", "`truncate -s 1048576 "]);
    refused(&scratch, &dir, INVALID, &["it is a directory; name a file"]);
    let empty = sparse(&scratch, "empty.img", 0);
    refused(
        &scratch,
        &empty,
        INVALID,
        &["the file is empty", "say a capacity", "`truncate -s 8589934592 "],
    );
    let tiny = sparse(&scratch, "tiny.img", 512);
    let words = ["512 bytes, less than an LBA of 4096", "`truncate -s 4096 ", "lba=512"];
    refused(&scratch, &tiny, INVALID, &words);
    let ragged = sparse(&scratch, "ragged.img", 10_000);
    refused(
        &scratch,
        &ragged,
        INVALID,
        &["10000 bytes, no multiple of an LBA of 4096", "`truncate -s 12288 "],
    );
    let file = sparse(&scratch, "file.img", 8 * MIB);
    let smaller = format!("file:{file}?capacity=4MiB");
    refused(&scratch, &smaller, INVALID, &["it has 8388608 bytes already", "say no capacity"]);
    let odd = format!("file:{file}?capacity=9000000");
    refused(&scratch, &odd, INVALID, &["9000000 bytes is no multiple of an LBA", "say 9003008"]);
    // The same inside a cache, where the other device is right.
    let other = sparse(&scratch, "other.img", 16 * MIB);
    for (bad, words) in [
        (&dir, &["it is a directory"][..]),
        (&empty, &["the file is empty"]),
        (&tiny, &["less than an LBA"]),
        (&ragged, &["no multiple of an LBA"]),
        (&smaller, &["say no capacity"]),
    ] {
        refused(&scratch, &format!("cache:({bad})?flash=({other})"), INVALID, words);
        refused(&scratch, &format!("cache:({other})?flash=({bad})"), INVALID, words);
        run(["cache", "create", bad, &other]).fails(INVALID, words);
        run(["cache", "create", &other, bad]).fails(INVALID, words);
    }
    run(["cache", "create", &file, &gone]).fails(NOT_FOUND, &["or its size", "capacity=8GiB"]);
    let made = run(["cache", "create", &file, &other, "--sets", "1MiB"]).succeeds().out();
    assert!(
        made.contains("origin      8.00 MiB") && made.contains("flash       16.00 MiB"),
        "{made}"
    );
    run(["cache", "resize", &file, &other, "--size", "32MiB"]).fails(INVALID, &["other.img"]);
    assert_eq!(fs::metadata(&other).unwrap().len(), 16 * MIB);
    // A capacity says otherwise, and is the size from then on.
    let larger = format!("file:{other}?capacity=32MiB");
    let resized = run(["cache", "resize", &file, &larger, "--size", "32MiB"]).succeeds().out();
    assert!(resized.contains("flash       32.00 MiB"), "{resized}");
    assert_eq!(fs::metadata(&other).unwrap().len(), 32 * MIB);
    run(["cache", "detach", &file, &other]).succeeds();
}

#[test]
fn cache_of_large_files_writes_next_to_nothing() {
    let scratch = Scratch::new();
    let (disk, flash) =
        (sparse(&scratch, "disk.img", 1 << 40), sparse(&scratch, "flash.img", 64 << 30));
    let made = run(["cache", "create", &disk, &flash]).succeeds().out();
    assert!(
        made.contains("origin      1.00 TiB") && made.contains("flash       64.00 GiB"),
        "{made}"
    );
    assert!(allocated(&flash) < MIB && allocated(&disk) == 0, "{}", allocated(&flash));
    // The former content of a file is freed, not zeroed.
    run(["cache", "create", &disk, &flash, "--overwrite"]).succeeds();
    assert!(allocated(&flash) < MIB, "{}", allocated(&flash));
    assert_eq!(fs::metadata(&flash).unwrap().len(), 64 << 30);
}

#[test]
fn image_is_made_by_create_commands_only() {
    let scratch = Scratch::new();
    let image = text(&scratch.path("d.img"));
    let drive = format!("ssd:micron-7450?capacity=2GiB&time=none&fdp=on&image={image}");
    let create = format!("`esker ssd create 'ssd:micron-7450?capacity=2GiB&fdp=0' '{image}'`");
    refused(&scratch, &drive, NOT_FOUND, &["there is no image here", &create]);
    let bare = format!("ssd:?image={image}");
    let words = [
        "there is no image here",
        &format!("`esker ssd create micron-7450 '{image}' --capacity 8GiB`"),
    ];
    refused(&scratch, &bare, NOT_FOUND, &words);
    let disk = format!("disk:sata-7200?capacity=1GiB&image={image}");
    let create = format!("`esker ssd create 'disk:sata-7200?capacity=1GiB' '{image}'`");
    refused(&scratch, &disk, NOT_FOUND, &["there is no image here", &create]);
    run(["ssd", "create", "disk:sata-7200?capacity=1GiB", &image]).succeeds();
    run(["ssd", "create", "disk:sata-7200?capacity=1GiB", &image])
        .fails(EXISTS, &["something already"]);
    let bytes = fs::metadata(&image).unwrap().len();
    assert!(bytes >= 1 << 30 && allocated(&image) == 0, "{bytes}");
    let db = text(&scratch.path("db"));
    run(["kv", "create", &db, "--capacity", &format!("{disk}&time=none")]).succeeds();
    assert_eq!(fs::metadata(&image).unwrap().len(), bytes);
    // Its own database does not make it anew.
    fs::remove_file(&image).unwrap();
    for command in ["info", "check"] {
        run(["kv", command, &db])
            .fails(NOT_FOUND, &["there is no image here", "made anew holds nothing"]);
    }
    run(["kv", "put", &db, "default", "k", "v"]).fails(NOT_FOUND, &["there is no image here"]);
    assert!(!scratch.path("d.img").exists());
    let other = text(&scratch.path("other"));
    let class = text(&scratch.path("class"));
    run(["kv", "create", &other, "--capacity", &format!("file:{class}")]).succeeds();
    fs::remove_file(&class).unwrap();
    run(["kv", "get", &other, "default", "k"]).fails(NOT_FOUND, &["there must be such a file"]);
    assert!(!scratch.path("class").exists());
}

#[test]
fn trace_that_is_there_is_kept_unless_told_otherwise() {
    let scratch = Scratch::new();
    let (trace, class) = (text(&scratch.path("trace")), text(&scratch.path("class")));
    fs::write(&trace, "precious").unwrap();
    let device = format!("traced:(mem:1MiB)?to={trace}");
    refused(
        &scratch,
        &device,
        EXISTS,
        &["there is a file already", "if-exists=append", "if-exists=replace"],
    );
    let db = text(&scratch.path("db"));
    let create = |n: u32, key: &str| {
        let device = format!("traced:(file:{class}{n})?to={trace}{key}");
        run(["kv", "create", &format!("{db}{n}"), "--capacity", &device])
    };
    create(0, "").fails(EXISTS, &["if-exists=append"]);
    assert!(!scratch.path("class0").exists(), "nothing is made for a trace that cannot be");
    create(1, "&if-exists=append").fails(65, &["trace"]);
    assert_eq!(fs::read(&trace).unwrap(), b"precious");
    create(2, "&if-exists=replace").succeeds();
    let info = || {
        let info = run(["trace", "info", &trace, "--json"]).succeeds().out();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let kinds = ["reads", "writes", "discards", "flushes"];
        let count = |kind: &&str| info["stats"][*kind]["requests"].as_u64().unwrap();
        (kinds.iter().map(count).sum::<u64>(), info["device_names"].as_array().unwrap().len())
    };
    let (first, devices) = info();
    assert!(first > 0 && devices == 1);
    create(3, "&if-exists=append").succeeds();
    let (both, devices) = info();
    assert!(both > first && devices == 2, "{both} {devices}");
    create(4, "&if-exists=replace").succeeds();
    assert_eq!(info().1, 1);
    create(5, "&if-exists=maybe").fails(INVALID, &["append or replace"]);
}

#[test]
fn temporary_database_makes_what_it_needs_and_takes_no_file_that_is_there() {
    let scratch = Scratch::new();
    let temp = scratch.path("tmp");
    fs::create_dir(&temp).unwrap();
    let demo = |capacity: &str| {
        let output = esker()
            .env("TMPDIR", &temp)
            .current_dir(&temp)
            .args([
                "demo",
                "--records",
                "1000",
                "--seconds",
                "0.1",
                "--memory",
                "64MiB",
                "--capacity",
            ])
            .arg(capacity)
            .output();
        ran(output.unwrap())
    };
    let (disk, flash) = (text(&scratch.path("disk.img")), text(&scratch.path("flash.img")));
    let cache = format!("cache:(file:{disk}?capacity=1GiB)?flash=(file:{flash}?capacity=64MiB)");
    let before = listing(&scratch.path(""));
    for device in
        [&cache, "cache:(mem:1GiB)?flash=(mem:64MiB)", &format!("file:{disk}?capacity=1GiB")]
    {
        demo(device).succeeds();
        assert_eq!(listing(&scratch.path("")), before, "{device}: something was left");
    }
    for name in ["disk.img", "flash.img"] {
        sparse(&scratch, name, MIB);
        demo(&cache).fails(EXISTS, &[name, "a file that exists"]);
        assert_eq!(fs::metadata(scratch.path(name)).unwrap().len(), MIB);
        fs::remove_file(scratch.path(name)).unwrap();
    }
}

/// A pipe that nobody reads, or a file system that is full, ends a command at most: it never makes it panic.
#[test]
fn output_that_nobody_can_take_is_no_panic() {
    let scratch = Scratch::new();
    let kvdb = scratch.path("kvdb");
    let kvdb = kvdb.to_str().unwrap();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let commands: [&[&str]; 9] = [
        &["kvs"],
        &[],
        &["kv", "info", "/nowhere"],
        &["cache", "info", "/nowhere"],
        &["ssd", "profiles"],
        &["ssd", "profiles", "--json"],
        &["kv", "create", kvdb],
        &["kv", "put", kvdb, "default", "a", "b"],
        &["kv", "check", kvdb],
    ];
    for args in commands {
        for (name, end) in [("full", &full as &dyn Fn() -> Stdio), ("closed", &closed)] {
            for (out, err) in [(false, true), (true, false), (true, true)] {
                let pick = |is_bad: bool| if is_bad { end() } else { Stdio::null() };
                let mut command = esker();
                command.args(args).stdin(Stdio::null()).stdout(pick(out)).stderr(pick(err));
                let code = command.status().unwrap().code();
                assert!(code.is_some_and(|code| code != 101), "{args:?}, {name}: {code:?}");
            }
        }
    }
}
