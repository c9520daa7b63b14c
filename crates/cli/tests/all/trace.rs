//! `esker trace`, as a user types it.

use std::fs;
use std::path::Path;

use crate::common::{Scratch, run, text};

fn sample(name: &str) -> String {
    text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/testdata").join(name))
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&run(args).succeeds().out()).unwrap()
}

#[test]
fn a_trace_is_described() {
    let sample_path = sample("sample.blktrace.0");
    let files = [sample_path.as_str(), &sample("sample.blktrace.1")];
    let shown = run(["trace", "info", files[0], files[1]]).succeeds().out();
    for word in ["blktrace", "reads", "8,16", "sequential", "footprint", "80 % of", "never before"]
    {
        assert!(shown.contains(word), "no '{word}' in:\n{shown}");
    }
    let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest} columns:\n{shown}");
    let value = json(&["trace", "info", &sample("sample"), "--json"]);
    assert_eq!(value["stats"]["reads"]["requests"], 6);
    assert_eq!(value["stats"]["writes"]["requests"], 6);
    assert_eq!(value["stats"]["flushes"]["requests"], 1);
    assert_eq!(value["stats"]["discards"]["bytes"], 1 << 20);
    assert_eq!(value["device_names"][0], "8,16");
    let brief = run(["trace", "info", &sample("sample.lis"), "--no-reuse"]).succeeds().out();
    assert!(!brief.contains("reuse"), "{brief}");
}

#[test]
fn the_unit_and_the_format_can_be_said() {
    let bytes = |more: &[&str]| {
        let path = sample("sample.lis");
        let args: Vec<&str> =
            ["trace", "info", &path, "--json"].into_iter().chain(more.iter().copied()).collect();
        json(&args)["stats"]["reads"]["bytes"].as_u64().unwrap()
    };
    assert_eq!(bytes(&["--unit", "4KiB"]), 8 * bytes(&[]));
    let path = sample("sample.lis");
    run(["trace", "info", &path, "--format", "msr"]).fails(65, &["sample.lis, line 1", "msr"]);
    run(["trace", "info", &path, "--format", "tape"])
        .fails(64, &["no format", "blkparse", "u32le"]);
    run(["trace", "info", &path, "--unit", "2MiB"]).fails(64, &["1 to 1MiB"]);
    run(["trace", "info", "/nowhere/t"]).fails(66, &["no such file"]);
}

#[test]
fn a_trace_is_converted_and_stays_the_same() {
    let scratch = Scratch::new();
    let compact = text(&scratch.path("t"));
    let said = run(["trace", "convert", &sample("sample"), "-o", &compact]).succeeds().out();
    assert!(said.contains("14 requests") && said.contains("bytes a request"), "{said}");
    let info = |file: &str| json(&["trace", "info", file, "--json"])["stats"].clone();
    assert_eq!(info(&compact), info(&sample("sample")));
    run(["trace", "convert", &compact, "-o", &compact]).fails(64, &["the trace itself"]);
    assert!(fs::metadata(&compact).unwrap().len() > 100);

    // A trace that breaks off leaves no file that looks whole.
    let (broken, other) = (text(&scratch.path("b.csv")), scratch.path("other"));
    let mut content = fs::read(sample("sample.msr.csv")).unwrap();
    content.extend(b"nonsense\n");
    fs::write(&broken, content).unwrap();
    run(["trace", "convert", &broken, "-o", &text(&other)]).fails(65, &["b.csv, line 13"]);
    assert!(!other.exists());
}

#[test]
fn a_recording_that_was_cut_is_read_with_a_note() {
    let scratch = Scratch::new();
    let compact = text(&scratch.path("t"));
    run(["trace", "convert", &sample("sample.spc"), "-o", &compact]).succeeds();
    let whole = fs::read(&compact).unwrap();
    fs::write(&compact, &whole[..whole.len() - 10]).unwrap();
    let ran = run(["trace", "info", &compact]).succeeds();
    assert!(ran.stderr.contains("12 requests are whole"), "{}", ran.stderr);
}

#[test]
fn curves_come_as_a_table_as_json_and_as_a_page() {
    let scratch = Scratch::new();
    let (html, figures) = (scratch.path("m.html"), scratch.path("m.json"));
    let path = sample("sample.alibaba.csv");
    let shown = run([
        "trace",
        "mrc",
        &path,
        "--sizes",
        "4KiB,16KiB,1MiB",
        "--optimum",
        "--report",
        &text(&html),
        "--json",
        &text(&figures),
    ]);
    let shown = shown.succeeds().out();
    for word in ["LRU misses", "optimum misses", "16.00 KiB", "1.00 MiB"] {
        assert!(shown.contains(word), "no '{word}' in:\n{shown}");
    }
    let value: serde_json::Value = serde_json::from_slice(&fs::read(figures).unwrap()).unwrap();
    let lru = value["lru"].as_array().unwrap();
    assert_eq!(lru.len(), 3);
    // The largest cache misses each block once.
    let (blocks, references) = (&value["blocks"], &value["references"]);
    let first = blocks.as_f64().unwrap() / references.as_f64().unwrap();
    assert!((lru[2]["miss_ratio"].as_f64().unwrap() - first).abs() < 1e-9, "{value}");
    let page = fs::read_to_string(html).unwrap();
    for part in ["Misses of", "var echarts=", "knee: ", "trace mrc", "kernel"] {
        assert!(page.contains(part), "no '{part}'");
    }

    let sampled = run(["trace", "mrc", &path, "--points", "5", "--sampled"]).succeeds().out();
    assert!(sampled.contains("five samples") && sampled.contains('±'), "{sampled}");
    run(["trace", "mrc", &path, "--sampled", "8", "--optimum"]).fails(64, &["--optimum"]);
    run(["trace", "mrc", &path, "--report", "-"]).fails(64, &["needs a file"]);
}

#[test]
fn files_that_are_no_block_devices_are_not_recorded() {
    let scratch = Scratch::new();
    let file = text(&scratch.path("file"));
    fs::write(&file, "x").unwrap();
    let output = text(&scratch.path("t"));
    run(["trace", "record", &file, "-o", &output]).fails(64, &["no block device"]);
    run(["trace", "record", "/dev/gone", "-o", &output]).fails(66, &["/dev/gone"]);
    assert!(!scratch.path("t").exists());
}

#[test]
fn caches_are_simulated_on_a_trace() {
    let path = sample("sample.alibaba.csv");
    let shown = run(["trace", "replay", &path, "--policy", "all", "--size", "10%,1MiB"]);
    let shown = shown.succeeds().out();
    for word in ["adaptive", "s3-fifo", "belady", "1.00 MiB", "(10 %)", "busier half"] {
        assert!(shown.contains(word), "no '{word}' in:\n{shown}");
    }
    let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest} columns:\n{shown}");
    let caches = |more: &[&str]| {
        let args = ["trace", "replay", &path, "--size", "1GiB", "--json"];
        let args: Vec<&str> = args.into_iter().chain(more.iter().copied()).collect();
        json(&args)["caches"].as_array().unwrap().clone()
    };
    let back = caches(&["--policy", "lru,fifo"]);
    assert_eq!(back.len(), 2);
    assert_eq!(back[0]["policy"], "lru");
    // Nothing is evicted: each block misses once, and a first read is from the disk.
    assert_eq!(back[0]["evictions"], 0);
    let references = &back[0]["references"];
    let around = caches(&["--policy", "lru", "--mode", "wa", "--sets", "one"]);
    assert_eq!(around[0]["sets"], 1);
    assert_eq!(around[0]["disk"]["blocks"]["writes"], references["writes"]);
    run(["trace", "replay", &path, "--policy", "mru"]).fails(64, &["no policy", "s3-fifo"]);
    run(["trace", "replay", &path, "--size", "0%"]).fails(64, &["0.001% to 1000%"]);
    run(["trace", "replay", &path, "--sets", "1"]).fails(64, &["give 4KiB"]);
}

#[test]
fn a_cache_is_proposed_with_reasons() {
    let path = sample("sample.alibaba.csv");
    let shown = run(["trace", "advise", &path]).succeeds().out();
    for word in ["the knee", "Policy:", "Insertion point:", "Sets:", "Wear:", "the optimum"] {
        assert!(shown.contains(word), "no '{word}' in:\n{shown}");
    }
    let value = json(&["trace", "advise", &path, "--json"]);
    assert!(value["cache_blocks"].as_u64().unwrap() > 0);
    assert_eq!(value["curve"].as_array().unwrap().len(), 12);
}

#[test]
fn ratios_of_nothing_are_dashes() {
    let scratch = Scratch::new();
    let path = text(&scratch.path("reads.csv"));
    let lines: String = (0..100).map(|n| format!("700,R,{},4096,{n}\n", n % 10 * 4096)).collect();
    fs::write(&path, lines).unwrap();
    let shown =
        run(["trace", "replay", &path, "--policy", "lru", "--size", "1MiB"]).succeeds().out();
    let row = shown.lines().find(|line| line.starts_with("lru")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[1..5], ["90.0 %", "90.0 %", "90.0 %", "-"], "{shown}");
}

#[test]
fn a_sample_estimates_the_whole() {
    let scratch = Scratch::new();
    let path = text(&scratch.path("t.csv"));
    let lines: String = (0..60_000u64)
        .map(|n| format!("700,W,{},4096,{n}\n", (n * 7919 % 20_011) * (64 << 10)))
        .collect();
    fs::write(&path, lines).unwrap();
    let near = |found: &serde_json::Value, expected: u64| {
        let found = found.as_f64().unwrap();
        assert!((found / expected as f64 - 1.0).abs() < 0.2, "{found}, not about {expected}");
    };
    let stats = &json(&["trace", "info", &path, "--sample", "5%", "--json"])["stats"];
    assert_eq!(stats["writes"]["requests"], 60_000);
    near(&stats["unique_blocks"], 20_011);
    near(&stats["first_references"], 20_011);
    let replay = |more: &[&str]| {
        let args = ["trace", "replay", &path, "--json", "--policy", "lru", "--size", "100MiB"];
        let args: Vec<&str> = args.into_iter().chain(more.iter().copied()).collect();
        json(&args)["caches"][0]["miss_ratio"].as_f64().unwrap()
    };
    let (whole, sample) = (replay(&[]), replay(&["--sample", "0.2"]));
    assert!((whole - sample).abs() < 0.05, "{whole} and {sample}");
    let shown = run(["trace", "replay", &path, "--sample", "0.2"]).succeeds().out();
    assert!(shown.contains("a sample of 20.0000 %"), "{shown}");
    let shown = run(["trace", "advise", &path, "--sample", "0.2"]).succeeds().out();
    assert!(shown.contains("a sample of 20.0000 %"), "{shown}");
    run(["trace", "info", &path, "--sample", "0"]).fails(64, &["1% or 0.01"]);
}

/// The process may have so little address space that the tables do not fit.
#[test]
fn state_that_does_not_fit_in_memory_is_an_error() {
    let scratch = Scratch::new();
    let path = text(&scratch.path("t.csv"));
    let lines: String =
        (0..2_000u64).map(|n| format!("700,R,{},{},{n}\n", n << 30, 1 << 30)).collect();
    fs::write(&path, lines).unwrap();
    for command in ["info", "mrc", "replay"] {
        let limited = format!("ulimit -v 1500000; exec \"$0\" trace {command} \"$1\"");
        let ran = std::process::Command::new("sh")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_esker"), &path])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code().is_some(), "{command}: {:?}: {said}", ran.status);
        assert!(!ran.status.success() && said.contains("--sample"), "{command}: {said}");
    }
    run(["trace", "info", &path, "--sample", "0.0001"]).succeeds();
}

#[test]
fn objects_are_read_and_their_sizes_told() {
    let scratch = Scratch::new();
    let path = text(&scratch.path("t.csv"));
    fs::write(&path, "7;a;1;100;x\n8;b;2;300;x\n").unwrap();
    let args = ["trace", "info", &path, "--format", "csv", "--columns", "id=2,time=3,size=4"];
    let ran = run(args).succeeds();
    assert!(ran.stderr.contains("sizes of objects do not count"), "{}", ran.stderr);
    run(["trace", "info", &path]).fails(65, &["no known format", "csv", "'7;a;1;100;x'"]);
    run(["trace", "info", &path, "--columns", "time=1"]).fails(64, &["of which id is needed"]);
}

#[test]
fn a_trace_without_the_wanted_events_has_no_curve() {
    let scratch = Scratch::new();
    let path = text(&scratch.path("t.blkparse"));
    let lines = fs::read_to_string(sample("sample.blkparse")).unwrap();
    let lines: Vec<&str> = lines.lines().filter(|line| !line.contains("  Q ")).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    for command in ["mrc", "replay"] {
        let ran = run(["trace", command, &path]);
        assert_eq!(ran.code, Some(64), "{}", ran.stderr);
        for word in ["no request that reads or writes", "12 of issue", "(--event)"] {
            assert!(ran.stderr.contains(word), "no '{word}' in: {}", ran.stderr);
        }
    }
    run(["trace", "mrc", &path, "--event", "issue"]).succeeds();
}
