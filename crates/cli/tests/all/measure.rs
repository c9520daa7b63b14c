//! `esker demo`, `esker bench`, `esker man`, `esker completions`, on very little data.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Scratch, esker, ran, run, schema, text};
use esker_base::Clock;
use esker_bench::Report;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn the_demo_measures_everything_and_leaves_only_its_reports() {
    let scratch = Scratch::new();
    let (temp, json) = (scratch.path("tmp"), scratch.path("demo.json"));
    let (report, staging) = (scratch.path("report.html"), scratch.path("fast"));
    fs::create_dir(&temp).unwrap();
    fs::create_dir(&staging).unwrap();
    let demo = esker()
        .env("TMPDIR", &temp)
        .args(["demo", "--records", "2000", "--seconds", "0.2", "--memory", "64MiB"])
        .args(["--json".as_ref(), json.as_os_str()])
        .args(["--report".as_ref(), report.as_os_str()])
        .args(["--staging".as_ref(), staging.as_os_str()])
        .output()
        .unwrap();
    let out = ran(demo).succeeds().out();
    let words = ["p99.9", "device bytes per user byte", "3.57", "1.49", "budget 64.00 MiB", "peak"];
    for word in words.into_iter().chain(["log = young values", "not comparable", "report.html"]) {
        assert!(out.contains(word), "no '{word}' in:\n{out}");
    }
    let name_length = report.to_str().unwrap().len();
    let widest = out.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100.max(name_length + 10), "{widest} columns:\n{out}");
    for directory in [&temp, &staging] {
        assert_eq!(fs::read_dir(directory).unwrap().count(), 0, "{directory:?}");
    }
    // A load that is this small has not aged: nothing is said of its bytes, on the console, the page or in the figures.
    let why = "of the load to have aged to capacity";
    let page = fs::read_to_string(&report).unwrap();
    assert!(page.ends_with("</html>\n") && page.contains(why) && out.contains(why), "{out}");

    let text = fs::read_to_string(&json).unwrap();
    let parsed = Report::from_json(&text).unwrap();
    let names: Vec<&str> = parsed.runs.iter().map(|run| &*run.workload.name).collect();
    assert_eq!(names, ["load", "A", "B", "C", "D", "E", "F"]);
    assert!(parsed.runs.iter().all(|run| run.errors == 0 && run.not_found == 0));
    let series: Vec<&str> = parsed.runs[1].series.iter().map(|s| &*s.name).collect();
    assert!(series.contains(&"CPU time"), "{series:?}");
    assert!(series.iter().any(|name| name.starts_with("staging log")), "{series:?}");
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    schema::check(&whole);
    let load = &whole["load_traffic"];
    assert!(load["user_bytes"].as_u64().unwrap() > 2_000_000);
    assert!(load["device_bytes_per_user_byte"].as_f64().unwrap() > 1.0);
    assert_eq!(whole["kvdb"]["dram"]["budget_bytes"], 64 << 20);
    let verdicts = whole["verdicts"].as_array().unwrap();
    assert!(verdicts.iter().all(|one| one["outcome"] == "not_comparable"), "{verdicts:?}");
    assert!(!page.contains(">reached<"));
}

/// The first signal ends a measurement, and what was measured is kept.
#[test]
fn interrupted_measurements_are_written_and_marked() {
    // On a busy machine the load takes longer.
    let is_interrupted = |signal, code, after| {
        let scratch = Scratch::new();
        let json = scratch.path("run.json");
        let mut bench = esker()
            .args(["bench", "ycsb", "--workload", "load,a,b", "--records", "20k"])
            .args(["--seconds", "600", "--json"])
            .arg(&json)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let clock = Clock::real();
        clock.sleep(after);
        kill_process(Pid::from_child(&bench), signal).unwrap();
        let deadline = clock.now() + Duration::from_secs(30);
        while bench.try_wait().unwrap().is_none() {
            assert!(clock.now() < deadline, "it goes on");
            clock.sleep(Duration::from_millis(20));
        }
        let ended = bench.wait_with_output().unwrap();
        let (out, said) =
            (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(code), "{out}{said}");
        let report = fs::read_to_string(&json).ok().map(|text| Report::from_json(&text).unwrap());
        let Some(report) = report.filter(|it| it.environment["interrupted"] == "in run 2 of 3")
        else {
            return false;
        };
        assert!(said.contains("interrupted: the figures are of what was measured"), "{said}");
        assert!(out.contains("ended early") && out.contains("Device writes of each run"), "{out}");
        assert!(report.runs[1].interrupted && report.runs[1].operations > 0);
        true
    };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut waits = [2, 8, 32].map(Duration::from_secs).into_iter();
        assert!(waits.any(|after| is_interrupted(signal, code, after)), "never in the second run");
    }
}

#[test]
fn a_killed_demo_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let temp = scratch.path("tmp");
    fs::create_dir(&temp).unwrap();
    let mut demo = esker()
        .env("TMPDIR", &temp)
        .args(["demo", "--seconds", "1000", "--report"])
        .arg(scratch.path("report.html"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(demo.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    assert!(first.starts_with("Esker demo"), "{first}");
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
    assert!(!scratch.path("report.html").exists());
}

#[test]
fn a_benchmark_goes_on_where_an_earlier_one_ended() {
    let scratch = Scratch::new();
    let db = text(&scratch.path("db"));
    let ycsb = |more: &[&str]| {
        let first = ["bench", "ycsb", "--db", &db, "--seconds", "0.1", "--verify"];
        run(first.iter().chain(more))
    };
    ycsb(&["--workload", "c"]).fails(66, &["no database with records", "--workload load"]);
    assert!(!scratch.path("db").exists());
    ycsb(&["--workload", "load", "--records", "1500"]).succeeds();
    ycsb(&["--workload", "load"]).fails(64, &["loaded already"]);
    ycsb(&["--workload", "a", "--records", "100M"]).fails(64, &["not 100,000,000"]);
    ycsb(&["--workload", "a", "--value-bytes", "500"]).fails(64, &["--value-bytes 1000"]);
    ycsb(&["--workload", "a", "--key-order", "ordered"]).fails(64, &["--key-order"]);
    ycsb(&["--workload", "a", "--staging", "none"]).fails(64, &["leave out --staging"]);
    let json = ycsb(&[
        "--workload",
        "d,F",
        "--rate",
        "2k",
        "--json",
        "-",
        "--distribution",
        "uniform",
        "--threads",
        "3",
        "--warm-up",
        "0.05",
        "--operations",
        "1000",
        "--settle",
    ]);
    let json = json.succeeds();
    assert!(json.stderr.contains("intended"), "{}", json.stderr);
    let report = Report::from_json(&json.out()).unwrap();
    assert_eq!(report.dataset.records, 1_500);
    assert!(report.runs[1].records_before > 1_500, "D has inserted some");
    assert_eq!(report.runs.len(), 2);
    assert_eq!(report.runs[0].settings.threads, 3);
    assert_eq!(report.runs[0].settings.target_ops_per_s, Some(2_000.0));
    assert!(report.runs.iter().all(|run| run.not_found == 0 && run.wrong_values == 0));
}

#[test]
fn measurements_that_cannot_be_are_refused_before_they_begin() {
    let scratch = Scratch::new();
    let refused = |args: &[&str], code: i32, words: &[&str]| {
        run(args).fails(code, words);
    };
    refused(&["demo", "--records", "0"], 64, &["not a count of 1 or more"]);
    refused(&["demo", "--records", "-5"], 64, &["'-5' is not a count"]);
    refused(&["demo", "--threads", "0"], 64, &["give 1 to 4096"]);
    refused(&["demo", "--seconds", "0"], 64, &["too short"]);
    refused(&["demo", "--seconds", "-1"], 64, &["no span of time"]);
    refused(&["demo", "--memory", "1parsec"], 64, &["unknown unit", "GiB"]);
    refused(&["demo", "--memory", "1MiB"], 64, &["16 MiB"]);
    refused(&["demo", "--report", "/proc/x.html"], 66, &["can be written"]);
    refused(&["demo", "--report", "/"], 64, &["a directory"]);
    refused(&["demo", "--report", "-"], 64, &["needs a file"]);
    refused(&["demo", "--json", "/nowhere/x"], 66, &["can be written"]);
    refused(&["demo", "--colour"], 64, &["--colour"]);
    refused(&["bench", "ycsb", "--workload", "g"], 64, &["load, a, b"]);
    refused(&["bench", "ycsb", "--workload", "a,load"], 64, &["comes once"]);
    refused(&["bench", "ycsb", "--workload", "a"], 64, &["begin with --workload load"]);
    refused(&["bench", "ycsb", "--rate", "0"], 64, &["not a rate"]);
    refused(&["bench", "ycsb", "--theta", "1"], 64, &["between 0 and 1"]);
    refused(&["bench", "ycsb", "--value-bytes", "2MiB"], 64, &["1 to 1MiB"]);
    refused(&["bench", "ycsb", "--fields", "2000", "--field-bytes", "1000"], 64, &["1,048,576"]);
    refused(&["bench", "ycsb", "--durability-bytes", "1GiB"], 64, &["quarter"]);
    refused(&["lunch"], 64, &["lunch"]);
    let taken = scratch.path("taken");
    fs::write(&taken, "").unwrap();
    refused(&["demo", "--staging", &text(&taken)], 73, &["a file that exists"]);
    assert_eq!(fs::read(&taken).unwrap(), b"");
    refused(&["demo", "--db", &text(&taken)], 73, &["name a directory"]);
}

#[test]
fn help_pages_and_completions_come_for_every_command() {
    let scratch = Scratch::new();
    let help = run(["--help"]).succeeds().out();
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    let dir = scratch.path("man");
    run(["man", &text(&dir)]).fails(66, &["a directory that exists"]);
    fs::create_dir(&dir).unwrap();
    run(["man", &text(&dir)]).succeeds();
    let pages = ["esker.1", "esker-demo.1", "esker-bench-ycsb.1", "esker-kv-dump.1"];
    for page in pages.into_iter().chain(["esker-ssd-create.1", "esker-lab-fdp.1"]) {
        let page = fs::read_to_string(dir.join(page)).unwrap();
        assert!(page.contains("Example"), "{page}");
    }
    let script = run(["completions", "bash"]).succeeds().out();
    assert!(script.contains("add-staging") && script.contains("--key-order"));
    let page = fs::read_to_string(dir.join("esker-lab-host-ssd.1")).unwrap();
    let scripts = ["bash", "zsh", "fish"].map(|shell| run(["completions", shell]).succeeds().out());
    for hidden in ["host-ssd-side", "bound-to", "durability-ms", "--html"] {
        let is_shown = |text: &String| text.contains(hidden);
        assert!(!scripts.iter().any(is_shown) && !is_shown(&page), "{hidden} is shown");
    }
    run(["completions", "tcsh"]).fails(64, &["bash", "zsh"]);
}
