//! The same mistake has the same exit code and the same shape of message, whichever command it is made at.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use esker_base::Clock;

use crate::common::{Ran, Scratch, ends, esker, ran, run, text};

/// Commands with a place for a wrong path, one line for each path that a command takes; each has to end by itself. The
/// others, which have no path of this kind, are in [`PATHLESS`].
const USERS: [&str; 85] = [
    "bench ycsb --db PATH --workload c",
    "bench device PATH --for 10ms",
    "bench device mem:1MiB --trace PATH",
    "kv info PATH",
    "kv put PATH rows k v",
    "kv get PATH rows k",
    "kv delete PATH rows k",
    "kv delete-prefix PATH rows k",
    "kv delete-range PATH rows --from k",
    "kv scan PATH rows",
    "kv load PATH rows",
    "kv dump PATH",
    "kv check PATH",
    "kv backup PATH there",
    "kv repair PATH there",
    "kv create-kvs PATH rows",
    "kv set-ttl PATH rows 1s",
    "kv set-policy PATH rows capacity-only",
    "kv set-compression PATH rows lz4",
    "kv drop-kvs PATH rows",
    "kv compact PATH",
    "kv remove-staging PATH",
    "kv upgrade PATH",
    "kv add-staging PATH",
    "target serve --config PATH --metrics 0",
    "target serve --device PATH --subsystem nqn.2026-01.io.esker:x --allow-any --metrics 0 --listen 127.0.0.1:0",
    "target status --control PATH",
    "target namespace add nqn.x:y mem:1MiB --control PATH",
    "target namespace replace nqn.x:y 1 mem:1MiB --control PATH",
    "target namespace remove nqn.x:y 1 --control PATH",
    "target namespace limit nqn.x:y 1 --iops 1 --control PATH",
    "target host list --control PATH",
    "target host allow nqn.x:y nqn.a:b --control PATH",
    "target host forbid nqn.x:y nqn.a:b --control PATH",
    "target host disconnect nqn.a:b --control PATH",
    "target portal list --control PATH",
    "target portal add 127.0.0.1:1 --control PATH",
    "target portal set 1 optimized --control PATH",
    "target portal assign nqn.x:y 1 --control PATH",
    "target portal drain 1 --control PATH",
    "target portal remove 1 --control PATH",
    "target refused --control PATH",
    "target export --control PATH",
    "attach PATH here",
    "detach PATH",
    "cache create PATH mem:16MiB",
    "cache create mem:16MiB PATH",
    "cache info PATH",
    "cache mode PATH wt",
    "cache set PATH --dirty 10",
    "cache flush PATH",
    "cache resize mem:16MiB PATH --size 8MiB",
    "cache accept mem:16MiB PATH",
    "cache detach mem:16MiB PATH",
    "pool create p PATH other-1 other-2",
    "pool create --config PATH",
    "pool examine PATH",
    "pool serve tank --drives PATH --socket s --metrics 0 --listen 127.0.0.1:0",
    "pool status tank --drives PATH",
    "pool status tank --socket PATH",
    "pool add tank mem:1MiB --socket PATH",
    "pool replace tank 1 mem:1MiB --socket PATH",
    "pool rejoin tank 1 --socket PATH",
    "pool retire tank 1 --socket PATH",
    "pool set tank --repair-share 3 --socket PATH",
    "pool scrub tank --socket PATH",
    "pool explain tank --socket PATH",
    "pool operations tank --socket PATH",
    "pool export-config tank --socket PATH",
    "ssd info PATH",
    "ssd namespace create PATH",
    "ssd namespace delete PATH 1",
    "trace info PATH",
    "trace convert PATH -o there",
    "trace mrc PATH",
    "trace replay PATH",
    "trace advise PATH",
    "trace record PATH -o there --for 1s",
    "lab fdp --device PATH --erase",
    "lab flash-cache --traces PATH --no-load",
    "lab host-ssd --device PATH",
    "lab compare PATH PATH",
    "lab plan PATH",
    "run --memory 64MiB --swap temp:64MiB -- PATH",
    "volume attach tank/v here --socket PATH",
];

/// The same for volumes, which are all at a socket: their words before `--socket PATH`.
const VOLUMES: [&str; 13] = [
    "volume create tank/x --size 1MiB",
    "volume list tank",
    "volume show tank/v",
    "volume resize tank/v --size 1MiB",
    "volume limit tank/v --iops 1",
    "volume top tank",
    "volume snapshot tank/v@a",
    "volume clone tank/v@a b",
    "volume rollback tank/v@a",
    "volume delete tank/v",
    "volume export tank/v --any-host",
    "volume restore tank/v",
    "volume du tank/v",
];

/// Commands that take no path of something that has to be there.
const PATHLESS: [&str; 13] = [
    "demo",
    "kv create",
    "target openapi",
    "pool openapi",
    "ssd profiles",
    "ssd create",
    "lab hse",
    "lab all",
    "lab pooled",
    "lab memory",
    "lab host-ssd-side",
    "man",
    "completions",
];

/// Every command of the prompt that has none below it: by help, and the one that help hides.
pub(crate) fn commands() -> Vec<String> {
    fn below(words: &[String], all: &mut Vec<String>) {
        let help = run(words.iter().map(String::as_str).chain(["--help"])).succeeds().out();
        let list = help.split("\nCommands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        let Some(list) = list else {
            all.push(words.join(" "));
            return;
        };
        let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        for name in names.filter(|name| !name.is_empty() && *name != "help") {
            below(&[words, &[name.to_owned()]].concat(), all);
        }
    }
    let mut all = vec!["lab host-ssd-side".to_owned()];
    below(&[], &mut all);
    all
}

fn users() -> impl Iterator<Item = String> {
    let volumes = VOLUMES.iter().map(|words| format!("{words} --socket PATH"));
    USERS.iter().map(|&user| user.to_owned()).chain(volumes)
}

#[test]
fn every_command_is_in_the_table() {
    let lines: Vec<String> = users().chain(PATHLESS.map(str::to_owned)).collect();
    let is_known = |command: &str| {
        lines.iter().any(|line| format!("{line} ").starts_with(&format!("{command} ")))
    };
    let missing: Vec<String> = commands().into_iter().filter(|one| !is_known(one)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Runs a command line in a directory of its own.
fn one(scratch: &Scratch, words: &[&OsStr]) -> Ran {
    ends(esker().args(words).current_dir(scratch.path("")))
}

/// Runs each of them with a path, and gives the command, the code and the message.
fn each(scratch: &Scratch, path: &OsStr) -> Vec<(String, i32, String)> {
    let one = |user: String| {
        let words: Vec<&OsStr> = user
            .split(' ')
            .map(|word| if word == "PATH" { path } else { OsStr::new(word) })
            .collect();
        let found = one(scratch, &words);
        (user, found.code.unwrap_or(-1), found.stderr)
    };
    users().map(one).collect()
}

/// The message says what is wrong and what to do.
fn assert_shape(user: &str, said: &str) {
    assert!(said.starts_with("esker: ") && said.trim().len() > 20, "{user}: {said}");
    let cures = ["; ", ": ", ", ", "`", " to ", "at least", "at most"];
    assert!(cures.iter().any(|mark| said["esker: ".len()..].contains(mark)), "{user}: {said}");
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{user}: {said}");
}

fn assert_all(found: &[(String, i32, String)], code: impl Fn(&str) -> i32) {
    let wrong: Vec<_> =
        found.iter().filter(|(user, got, _)| *got != code(user)).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{wrong:#?}");
    found.iter().for_each(|(user, _, said)| assert_shape(user, said));
}

/// The first words of a command line.
fn is_one_of(user: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| user.starts_with(start))
}

/// Whether it asks a process that is not there, or looks for what another process has made.
fn asks(user: &str) -> bool {
    user.contains(" --control ")
        || user.contains(" --socket PATH")
        || is_one_of(user, &["detach", "cache set", "cache flush", "run"])
}

fn names(scratch: &Scratch) -> BTreeSet<String> {
    let entries = fs::read_dir(scratch.path("")).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A path that leads nowhere: no name, a file on the way, a circle of links, and bytes that are no UTF-8.
#[test]
fn nothing_at_a_path_is_not_found() {
    let scratch = Scratch::new();
    fs::write(scratch.path("text"), "hello\n").unwrap();
    std::os::unix::fs::symlink("circle", scratch.path("circle")).unwrap();
    let before = names(&scratch);
    for path in ["nowhere", "nowhere/x", "text/x", "circle"] {
        assert_all(&each(&scratch, OsStr::new(path)), |_| 66);
        assert_eq!(names(&scratch), before, "{path}: something was made");
    }
}

#[test]
fn path_that_is_no_utf8_is_taken_or_refused_but_never_ends_in_panic() {
    let scratch = Scratch::new();
    for (user, code, said) in each(&scratch, OsStr::from_bytes(b"no\xffwhere")) {
        assert!([64, 66].contains(&code), "{user}: {code} {said}");
        assert_shape(&user, &said);
    }
    assert!(names(&scratch).is_empty(), "something was made");
}

#[test]
fn a_directory_in_place_of_a_file_is_wrong_usage() {
    let scratch = Scratch::new();
    // `dir` is a program.
    fs::create_dir(scratch.path("folder")).unwrap();
    assert_all(&each(&scratch, OsStr::new("folder")), |user| {
        // A directory without a database, or without anything attached.
        let empty = is_one_of(user, &["kv ", "bench ycsb"]);
        if empty || asks(user) { 66 } else { 64 }
    });
}

#[test]
fn a_file_of_another_sort_is_wrong_usage_or_damaged() {
    let scratch = Scratch::new();
    for (content, name) in [(&b"hello\n"[..], "text"), (&b"\xff\xfe\x00 no text"[..], "bytes")] {
        fs::write(scratch.path(name), content).unwrap();
        assert_all(&each(&scratch, OsStr::new(name)), |user| {
            // These have a format of their own, and say that this is none.
            let formats = ["ssd ", "trace ", "bench device mem:", "lab flash-cache"];
            match user {
                "trace record PATH -o there --for 1s" => 64,
                _ if is_one_of(user, &formats) => 65,
                _ if asks(user) => 66,
                _ => 64,
            }
        });
        assert_eq!(fs::read(scratch.path(name)).unwrap(), content);
    }
}

/// An option that is none, a word that is none, and no argument where one is needed.
#[test]
fn wrong_words_are_wrong_usage_at_every_command() {
    for command in commands() {
        let words: Vec<&str> = command.split(' ').collect();
        let with = |more: &[&'static str]| run(words.iter().copied().chain(more.iter().copied()));
        let found = with(&["--no-such-option"]).fails(64, &["--no-such-option"]);
        assert_shape(&command, &found.stderr);
        // A word more than it takes, or one of the wrong sort.
        let many = ["\u{1}", "b", "c", "d", "e", "f", "g"];
        if !["run", "pool create", "pool examine", "trace "]
            .iter()
            .any(|it| command.starts_with(it))
        {
            with(&many).fails(64, &["esker: "]);
        }
    }
    let mut needy = 0;
    for command in commands() {
        let help = run(command.split(' ').chain(["--help"])).succeeds().out();
        let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap();
        let usage = usage.replace("[OPTIONS]", "");
        if usage.contains(" <") && !usage.contains('[') {
            run(command.split(' ')).fails(64, &["required", "--help"]);
            needy += 1;
        }
    }
    assert!(needy > 40, "{needy} commands have an argument that they need");
}

#[test]
fn output_that_cannot_be_written_is_said() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/testdata/sample.msr.csv");
    for words in [
        "help".to_owned(),
        "kv --help".into(),
        "--version".into(),
        "ssd profiles".into(),
        "ssd profiles --json".into(),
        "completions bash".into(),
        "pool openapi".into(),
        "target openapi".into(),
        format!("kv info {db}"),
        format!("kv check {db} --json"),
        format!("kv dump {db}"),
        format!("trace info {trace}"),
        format!("trace mrc {trace}"),
        format!("trace replay {trace}"),
        format!("trace advise {trace} --json"),
    ] {
        let mut command = esker();
        command.args(words.split(' ')).stdin(Stdio::null()).stderr(Stdio::piped());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        ran(output).fails(73, &["could not be written"]);
        // Somebody who has read enough closes the pipe: nothing is wrong.
        let mut command = esker();
        command.args(words.split(' ')).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let found = ran(child.wait_with_output().unwrap());
        assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""), "{words}");
    }
}

/// A file to write in a directory that is not there.
#[test]
fn output_in_no_directory_is_not_found_before_the_work() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let before = names(&scratch);
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/testdata/sample.msr.csv");
    for words in [
        "demo --records 1k --report no/there".to_owned(),
        "demo --records 1k --json no/there".into(),
        "bench ycsb --records 1k --json no/there".into(),
        "bench device mem:1MiB --for 10ms --report no/there".into(),
        "ssd create micron-7450 no/there --capacity 1GiB".into(),
        "man no/there".into(),
        "lab fdp --report no/there".into(),
        "lab host-ssd --json no/there".into(),
        format!("kv dump {db} default no/there"),
        format!("trace convert {trace} -o no/there"),
        format!("trace mrc {trace} --report no/there"),
        format!("trace mrc {trace} --json no/there"),
    ] {
        let words: Vec<&OsStr> = words.split(' ').map(OsStr::new).collect();
        let found = one(&scratch, &words).fails(66, &["no/there"]);
        assert_shape("", &found.stderr);
        assert_eq!(names(&scratch), before, "{words:?}: something was made");
    }
}

/// Media that another process has open.
#[test]
fn media_in_use_are_a_conflict() {
    let scratch = Scratch::new();
    let db = scratch.database();
    let drives: Vec<String> =
        (0..3).map(|number| text(&scratch.path(&format!("d{number}")))).collect();
    for drive in &drives {
        File::create(drive).unwrap().set_len(24 << 20).unwrap();
    }
    let flash = text(&scratch.path("flash.img"));
    let origin = text(&scratch.path("origin.img"));
    let image = text(&scratch.path("ssd.img"));
    File::create(&flash).unwrap().set_len(16 << 20).unwrap();
    File::create(&origin).unwrap().set_len(16 << 20).unwrap();
    run(["cache", "create", &origin, &flash, "--sets", "1MiB"]).succeeds();
    run(["ssd", "create", "micron-7450", &image, "--capacity", "1GiB"]).succeeds();
    let [a, b, c] = &drives[..] else { unreachable!() };
    run(["pool", "create", "tank", "--chunk", "256KiB", "--log", "2MiB", a, b, c]).succeeds();
    // The database as a load has it, and the others served by a target.
    let mut load = esker();
    load.args(["kv", "load", &db, "default"]).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut load = load.stdout(Stdio::null()).spawn().unwrap();
    let mut serve = esker();
    serve.args(["target", "serve", "--subsystem", "nqn.2026-01.io.esker:x", "--allow-any"]);
    serve.args(["--listen", "127.0.0.1:0", "--metrics", "0", "--for", "300"]);
    let devices = [
        format!("cache:({origin})?flash=({flash})"),
        format!("ssd:?image={image}"),
        a.clone(),
        b.clone(),
        c.clone(),
    ];
    for device in &devices {
        serve.args(["--device", device]);
    }
    let mut serve = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = std::io::BufReader::new(serve.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    wait_until_in_use(&db);
    let drives = drives.join(" ");
    for words in [
        format!("kv put {db} default k v"),
        format!("kv compact {db}"),
        format!("kv create-kvs {db} other"),
        format!("kv upgrade {db}"),
        format!("kv load {db} default"),
        format!("bench ycsb --db {db} --workload c"),
        format!("cache resize {origin} {flash} --size 8MiB"),
        format!("cache detach {origin} {flash}"),
        format!("cache accept {origin} {flash}"),
        format!("bench device {flash} --for 10ms --reads 0 --overwrite"),
        format!("ssd namespace create {image}"),
        format!("ssd namespace delete {image} 1"),
        format!("pool status tank --drives {drives}"),
        format!("volume create tank/v --size 1MiB --drives {drives}"),
        format!("pool serve tank --metrics 0 --listen 127.0.0.1:0 --socket s --drives {drives}"),
        format!("pool create p {drives} --overwrite"),
        format!("attach {a} {}", text(&scratch.path(""))),
    ] {
        let words: Vec<&OsStr> = words.split(' ').map(OsStr::new).collect();
        let found = one(&scratch, &words).fails(77, &[]);
        assert_shape(&format!("{words:?}"), &found.stderr);
    }
    drop(load.stdin.take());
    assert_eq!(load.wait().unwrap().code(), Some(0));
    serve.kill().unwrap();
    serve.wait().unwrap();
}

fn wait_until_in_use(db: &str) {
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(30);
    while run(["kv", "put", db, "default", "k", "v"]).code != Some(77) {
        assert!(clock.now() < end, "{db} is not in use");
        clock.sleep(Duration::from_millis(20));
    }
}

/// Arguments that take, as `tests/ranges.txt` says, all that a machine could ever have, each with a command line that
/// names too much of it. It is refused with what is possible before anything is made.
const TOO_MUCH: [(&str, &str, &str); 38] = [
    ("bench device --size", "bench device mem:1MiB --size 1PiB", "at most"),
    ("bench device --span", "bench device mem:1MiB --span 1PiB", "at most"),
    ("bench device --depth", "bench device mem:1MiB --depth 32k --threads 4k", "at most"),
    ("bench device --streams", "bench device mem:1MiB --streams 65535", "at least"),
    ("bench ycsb --records", "bench ycsb --records 1000G", "fewer --records"),
    (
        "bench ycsb --operations",
        "bench ycsb --db no --workload c --operations 1000G",
        "no database",
    ),
    ("bench ycsb --fields", "bench ycsb --fields 1M", "at most"),
    ("demo --records", "demo --records 1000G", "fewer --records"),
    ("cache resize --size", "cache resize ORIGIN FLASH --size 1PiB", "not 1"),
    ("cache resize --size", "cache resize ORIGIN FLASH --size 1", "--anew"),
    ("kv create-kvs --ttl", "kv create-kvs DB k --ttl 0", "at least"),
    ("lab fdp --blocks", "lab fdp --blocks 1PiB", "from 4 KiB"),
    ("lab fdp --drive", "lab fdp --drive 1PiB", "too many"),
    ("lab fdp --record", "lab fdp --record 1PiB", "64 to"),
    ("lab fdp --unit", "lab fdp --unit 1PiB", "at most"),
    ("lab fdp --handles", "lab fdp --handles 65535", "at most"),
    ("lab flash-cache --data", "lab flash-cache --data 1000PiB", "use 1,024"),
    ("lab host-ssd --data", "lab host-ssd --data 1PiB", "up to"),
    ("lab host-ssd --drive", "lab host-ssd --drive 1PiB", "at most"),
    ("lab host-ssd --drive", "lab host-ssd --drive 1", "at least"),
    ("lab host-ssd --reads", "lab host-ssd --reads 1000G", "at most"),
    ("lab host-ssd --lookups", "lab host-ssd --lookups 1000G", "at most"),
    ("lab hse --records", "lab hse --records 1", "at least"),
    (
        "pool create --chunk",
        "pool create p ORIGIN FLASH --overwrite --chunk 1PiB",
        "multiples of 4 KiB",
    ),
    (
        "pool create --log",
        "pool create p ORIGIN FLASH --overwrite --log 1PiB",
        "multiples of 4 KiB",
    ),
    ("pool create --log", "pool create p ORIGIN FLASH --overwrite --log 1", "multiples of 4 KiB"),
    (
        "pool create --width",
        "pool create p ORIGIN FLASH --overwrite --width 65535",
        "as many drives",
    ),
    ("run --memory", "run --memory 1PiB --swap temp:1MiB -- true", "at most"),
    ("run --reserve", "run --memory 8MiB --swap temp:64MiB --reserve 1 -- true", "1MiB to"),
    ("ssd namespace create --size", "ssd namespace create IMAGE --size 1", "multiple of"),
    ("ssd namespace create --size", "ssd namespace create IMAGE --size 1PiB", "no room"),
    ("ssd namespace delete NSID", "ssd namespace delete IMAGE 4294967294", "no namespace"),
    ("trace replay --size", "trace replay TRACE --size 1024PiB", "at most"),
    ("volume create --size", "volume create t/v --size 1 --drives POOL", "a volume has 1 to"),
    ("volume create --size", "volume create t/v --size 2048PiB --drives POOL", "a volume has 1 to"),
    ("volume resize --size", "volume resize t/w --size 2048PiB --drives POOL", "a volume has 1 to"),
    ("pool retire NUMBER", "pool retire t 65535 --drives POOL", "no drive"),
    ("pool explain --if-fails", "pool explain t --if-fails 65535 --drives POOL", "no drive"),
];

/// Wide ranges for a reason.
const WIDE: [(&str, &str); 32] = [
    ("trace mrc --sizes", "a curve may go beyond what there is"),
    ("trace mrc --sampled", "memory for a sample is bounded"),
    (" --handles", "a drive says how many it has"),
    (" --rate", "up to a billion"),
    (" --in-time", "a factor"),
    (" --seed", "any number is a seed"),
    (" --live", "a port"),
    (" --for", "a service and a load may run for years; a load is noted"),
    (" --warm-up", "is noted as a load is"),
    (" --ttl", "records may live for a century"),
    ("kv set-ttl TTL", "records may live for a century"),
    ("kv scan --limit", "a limit may be above what there is"),
    ("volume delete --keep", "a volume may be kept for years"),
    ("volume create --bandwidth", "a limit may be above what is possible"),
    ("volume limit --bandwidth", "a limit may be above what is possible"),
    ("volume create --iops", "a limit may be above what is possible"),
    ("volume limit --iops", "a limit may be above what is possible"),
    ("bench device --bytes", "a load may write for years; it is noted"),
    ("bench device --flush-every", "a flush may never come"),
    ("target portal", "numbers of portals ascend"),
    ("target namespace", "a number of NVMe's"),
    ("pool rejoin NUMBER", "as retire"),
    ("pool replace NUMBER", "as retire"),
    ("pool serve --missing-grace", "a drive may be waited for"),
    ("pool serve --scrub-within", "a sweep may take years"),
    ("cache set --", "an age may be above a load's"),
    ("lab fdp --rates", "a proportion"),
    ("lab flash-cache --", "the experiment's own check: counts of a load"),
    ("lab host-ssd --", "the experiment's own check: counts beside those above"),
    ("lab hse --", "the experiment's own check"),
    ("lab pooled --", "the experiment's own check"),
    ("lab compare --least", "a share"),
];

/// Whether the end of a range is beyond all that a machine has.
fn is_wide(last: &str) -> bool {
    let years = last.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    years.is_some_and(|days| days >= 365)
        || last.ends_with("PiB")
        || last.ends_with("000G")
        || last.parse::<u64>().is_ok_and(|number| number >= 65_535)
}

#[test]
fn every_wide_range_has_a_check_or_a_reason() {
    let ranges = include_str!("../ranges.txt");
    let mut found = 0;
    for line in ranges.lines() {
        let (at, range) = line.rsplit_once(": ").unwrap();
        let (_, last) = range.split_once(" to ").unwrap();
        if !is_wide(last) {
            continue;
        }
        found += 1;
        let is_checked = TOO_MUCH.iter().any(|(one, ..)| *one == at);
        let has_reason = WIDE.iter().any(|(one, _)| at.contains(one));
        assert!(
            is_checked || has_reason,
            "{line}: say a command line that names too much, or a reason"
        );
    }
    assert!(found > 50, "{found}");
}

/// Each size, span and count that makes no sense is refused before anything is made.
#[test]
fn figures_without_sense_are_refused_with_what_is_possible() {
    let scratch = Scratch::new();
    let at = |name: &str| text(&scratch.path(name));
    for name in ["origin", "flash", "a", "b", "c"] {
        File::create(scratch.path(name)).unwrap().set_len(24 << 20).unwrap();
    }
    let pool = [at("a"), at("b"), at("c")].join(" ");
    run(["kv", "create", &at("db")]).succeeds();
    run(["cache", "create", &at("origin"), &at("flash"), "--sets", "1MiB"]).succeeds();
    run(["ssd", "create", "micron-7450", &at("image"), "--capacity", "1GiB"]).succeeds();
    let make = format!("pool create t {pool} --chunk 256KiB --log 2MiB");
    run(make.split(' ')).succeeds();
    run(format!("volume create t/w --size 1MiB --drives {pool}").split(' ')).succeeds();
    let before = names(&scratch);
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/testdata/sample.msr.csv");
    let also = [
        ("", "demo --records 0", "1 or more"),
        ("", "demo --for 0", "too short"),
        ("", "demo --for 999999d", "longer than 36500d"),
        ("", "demo --threads 100000", "1 to 4096"),
        ("", "demo --memory 0", "too few"),
        ("", "demo --memory 1PiB", "at most"),
        ("", "bench ycsb --operations 0", "1 or more"),
        ("", "bench ycsb --value-bytes 2MiB", "1 to 1MiB"),
        ("", "bench device mem:1MiB --rate 2G", "1 to 1G"),
        ("", "bench device mem:0", "too few"),
        ("", "kv create new --memory 1", "16 MiB"),
        ("", "kv create new --memory 16EiB", "less than 16EiB"),
        ("", "kv create new --durability 365d", "0s to 1d"),
        ("", "kv compact DB --goal 1e300", "1.02 to 100"),
        ("", "ssd create micron-7450 new --capacity 0", "too few"),
        ("", "ssd create micron-7450 new --capacity 1PiB", "at most"),
        ("", "ssd create micron-7450 new --capacity 1GiB --namespaces 99999", "0 to 1024"),
        ("", "run --memory 0 -- true", "too few"),
        ("", "run --memory 8MiB --swap temp:64MiB --every 1us -- true", "10ms to 1d"),
        ("", "pool create p a b --chunk 0", "too few"),
        ("", "pool create p a b --parity 3", "0 to 2"),
        ("", "pool serve t --map 1PiB --drives POOL", "at most"),
        ("", "pool serve t --map 1 --drives POOL", "1MiB or more"),
        ("", "volume limit t/w --bandwidth 1 --drives POOL", "4KiB or more"),
        ("", "volume top t --interval 365d --drives POOL", "10ms to 1d"),
        ("", "lab hse --threads 1000000", "1 to 4096"),
        ("", "lab fdp --drive 0", "too few"),
        ("", "target serve --config c --controller-ids 5-2", "1 to 65519"),
        ("", "--timeout 0 pool status p", "too short"),
        ("", "--timeout 365d pool status p", "1ms to 1d"),
    ];
    for (_, line, said) in TOO_MUCH.into_iter().chain(also) {
        let line = line
            .replace("POOL", &pool)
            .replace("ORIGIN", &at("origin"))
            .replace("FLASH", &at("flash"))
            .replace("IMAGE", &at("image"))
            .replace("DB", &at("db"))
            .replace("TRACE", trace);
        let words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
        let clock = Clock::real();
        let began = clock.now();
        let found = one(&scratch, &words);
        let spent = clock.now().since(began);
        assert!(
            matches!(found.code, Some(64 | 66 | 73)),
            "{line}: {:?} {}",
            found.code,
            found.stderr
        );
        assert!(found.stderr.contains(said), "{line}: {}", found.stderr);
        assert_shape(&line, &found.stderr);
        assert!(spent < Duration::from_secs(10), "{line}: {spent:?}");
        assert_eq!(names(&scratch), before, "{line}: something was made");
    }
}

/// Odd and possible: it is noted, and done.
#[test]
fn figures_that_are_odd_are_noted() {
    let scratch = Scratch::new();
    for (line, said) in [
        ("bench device mem:1MiB --bytes 4GiB --for 10ms", "a load of 4.00 GiB"),
        ("bench device mem:64MiB --for 10ms --threads 2000 --depth 1", "threads for"),
    ] {
        let words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
        let found = one(&scratch, &words).succeeds();
        assert!(
            found.stderr.contains("esker: note: ") && found.stderr.contains(said),
            "{}",
            found.stderr
        );
    }
}

/// The table of exit codes that help prints is that of the kinds of errors.
#[test]
fn help_has_the_exit_codes_of_errors() {
    let help = run(["--help"]).succeeds().out();
    let table = help.split("Exit codes:").nth(1).unwrap();
    let of = |path: &Path| fs::read_to_string(path).unwrap();
    let docs = of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/README.md")));
    for code in [0, 1, 64, 65, 66, 69, 73, 74, 75, 77, 130, 143] {
        assert!(table.contains(&format!("{code}")), "{code} is not in the help: {table}");
        assert!(docs.contains(&format!("| {code} |")), "{code} is not in docs/README.md");
    }
}
