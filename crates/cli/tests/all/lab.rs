//! `esker lab` as a user types it.

use crate::common::{Scratch, esker, run, text};

#[test]
fn caches_are_compared_on_a_load_and_on_traces() {
    let scratch = Scratch::new();
    let (html, trace) = (text(&scratch.path("cache.html")), text(&scratch.path("t.csv")));
    let small = ["--data", "256MiB", "--transactions", "1000", "--sizes", "10,20"];
    let study = ["lab", "flash-cache", "--report", &html, "--json", "-"];
    let out = run(study.iter().chain(&small)).succeeds().out();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let versions = json["workloads"][0]["sizes"][1]["versions"].as_array().unwrap();
    assert_eq!(versions.last().unwrap()["name"], "optimum");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("insertion percentile") && page.contains("A cache of"));
    // A folder may hold files that are no traces; a named file has to be one.
    std::fs::write(&trace, "no trace at all\n").unwrap();
    let folder = text(&scratch.path(""));
    let out = run(["lab", "flash-cache", "--traces", &folder].iter().chain(&small));
    assert!(out.succeeds().out().contains("t was left out"));
    run(["lab", "flash-cache", "--no-load", "--traces", &trace]).fails(65, &["t.csv"]);
    run(["lab", "flash-cache", "--sizes", "0"]).fails(64, &["give 1 to 100"]);
}

/// A trace of `count` skewed reads of 16 MiB, with a write among 64.
fn skewed_trace(path: &std::path::Path, count: u64) -> String {
    let mut rng = esker_base::Rng::new(7);
    let line = |n: u64| {
        let block = rng.below(4_096).min(rng.below(4_096)).min(rng.below(4_096));
        let op = if n.is_multiple_of(64) { "Write" } else { "Read" };
        format!("{},host,0,{op},{},4096,100\n", 128_166_372_000_000_000 + n * 1000, block * 4096)
    };
    std::fs::write(path, (0..count).map(line).collect::<String>()).unwrap();
    text(path)
}

/// The study of a trace on two devices.
fn on_devices(trace: &str, disk: &str, flash: &str, more: &[&str]) -> crate::common::Ran {
    let study = ["lab", "flash-cache", "--no-load", "--sizes", "20", "--traces", trace];
    run(study.iter().chain(&["--disk", disk, "--flash", flash]).chain(more))
}

#[test]
fn a_cache_is_measured_on_devices_beside_the_simulation() {
    let scratch = Scratch::new();
    let trace = skewed_trace(&scratch.path("t.csv"), 4_000);
    let (disk, flash) = (text(&scratch.path("disk.img")), text(&scratch.path("flash.img")));
    for (path, bytes) in [(&disk, 64 << 20), (&flash, 16 << 20)] {
        std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
    }
    let html = text(&scratch.path("cache.html"));
    let outputs = ["--erase", "--json", "-", "--report", &html];
    let out = on_devices(&trace, &disk, &flash, &outputs).succeeds().out();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let real = &json["real"];
    let one = &real["workloads"][0];
    for (name, path) in [("disk", &disk), ("flash", &flash)] {
        assert_eq!(real[name], format!("file:{path}"));
    }
    assert_eq!((one["name"].as_str(), one["measured_requests"].as_u64()), (Some("t"), Some(2_000)));
    let (hits, simulated) = (one["hit_ratio"].as_f64(), one["simulated_hit_ratio"].as_f64());
    let (hits, simulated) = (hits.unwrap(), simulated.unwrap());
    // How many fills come in time depends on the machine.
    assert!(hits > 0.1 && (hits - simulated).abs() < 0.2, "{one}");
    let reads = |arm: &str| one[arm]["disk"]["reads"].as_u64().unwrap();
    assert!(reads("cached") < reads("alone"), "{one}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("Measured on devices") && page.contains(&flash), "{page}");
    // The disk has everything again, and the flash device is free for another use.
    let info = run(["cache", "info", &flash]).succeeds().out();
    assert!(info.contains("detached") && info.contains("dirty       0 B"), "{info}");

    let (disk, flash) =
        ("disk:sata-7200?capacity=8MiB&time=none", "ssd:micron-7450?capacity=256MiB&time=none");
    let few = ["--erase", "--real-requests", "400", "--real-size", "40", "--real-depth", "2"];
    let out = on_devices(&trace, disk, flash, &few).succeeds().out();
    for part in [disk, flash, "assumed: ", "200 + 200", "2 in flight", "simulated"] {
        assert!(out.contains(part), "no '{part}' in:\n{out}");
    }
}

#[test]
fn devices_of_a_cache_are_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let trace = skewed_trace(&scratch.path("t.csv"), 4_000);
    let (disk, flash) = (text(&scratch.path("disk.img")), text(&scratch.path("flash.img")));
    let (missing, content) = (text(&scratch.path("missing.img")), vec![7; 2 << 20]);
    std::fs::write(&disk, vec![7; 16 << 20]).unwrap();
    std::fs::write(&flash, &content).unwrap();
    let study = ["lab", "flash-cache", "--no-load", "--traces", &trace];
    let refused = |more: &[&str], words: &[&str]| {
        run(study.iter().chain(more)).fails(64, words);
    };
    refused(&["--disk", &disk, "--erase"], &["--flash"]);
    refused(&["--flash", &flash, "--erase"], &["--disk"]);
    refused(&["--erase"], &["--disk"]);
    refused(&["--real-size", "10"], &["--disk"]);
    on_devices(&trace, &disk, &flash, &[]).fails(64, &["is lost", "--erase"]);
    let large = ["--erase", "--real-size", "50"];
    on_devices(&trace, &disk, &flash, &large).fails(64, &["2.00 MiB", "touches", "--real-size"]);
    on_devices(&trace, &disk, &disk, &["--erase"]).fails(64, &["cache of itself"]);
    let virtual_disk = "disk:sata-7200?capacity=1GiB&time=virtual";
    on_devices(&trace, virtual_disk, &flash, &["--erase"]).fails(64, &["time="]);
    on_devices(&trace, &missing, &flash, &["--erase"]).fails(66, &["missing.img"]);
    on_devices(&trace, &disk, &missing, &["--erase"]).fails(66, &["missing.img"]);
    let made = format!("file:{missing}?capacity=16MiB");
    on_devices(&trace, &disk, &made, &["--erase"]).fails(66, &["missing.img"]);
    assert!(!scratch.path("missing.img").exists());
    assert!(std::fs::read(&flash).unwrap() == content, "the flash device was written");
}

#[test]
fn a_host_managed_drive_is_compared_with_a_conventional_one() {
    let scratch = Scratch::new();
    let html = text(&scratch.path("host-ssd.html"));
    let small = ["--drive", "1GiB", "--depths", "1,32", "--threads", "1", "--reads", "2k"];
    let study =
        ["lab", "host-ssd", "--lookups", "2k", "--data", "32MiB", "--report", &html, "--json", "-"];
    let out = run(study.iter().chain(&small)).succeeds().out();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["format"], "esker-host-ssd/3");
    assert_eq!(json["depths"][1]["depth"], 32);
    assert_eq!(json["account"][5]["name"], "Esker");
    assert!(json["command"].as_str().unwrap().contains("lab host-ssd"));
    assert!(std::fs::read_to_string(&html).unwrap().contains("from issue"));
    run(["lab", "host-ssd", "--depths", "0"]).fails(64, &["depths", "1 to 1024"]);
    run(["lab", "host-ssd", "--data", "16GiB"]).fails(64, &["the table"]);
}

/// A small study that reads devices, too.
fn reading(devices: &[&str]) -> Vec<String> {
    let small = "lab host-ssd --drive 256MiB --depths 1,8 --threads 1 --reads 1k --lookups 1k --data 32MiB \
                 --device-reads 1k --json -";
    let named = devices.iter().flat_map(|device| ["--device", device]);
    small.split_whitespace().chain(named).map(str::to_owned).collect()
}

#[test]
fn named_devices_are_read_beside_the_models_and_never_written() {
    let scratch = Scratch::new();
    let (disk, html) = (scratch.path("disk.img"), text(&scratch.path("host-ssd.html")));
    // Half of the file is a hole, and the capacity that is said reaches beyond its end.
    std::fs::write(&disk, vec![7; 4 << 20]).unwrap();
    std::fs::OpenOptions::new().write(true).open(&disk).unwrap().set_len(8 << 20).unwrap();
    let state = || {
        let of = std::fs::metadata(&disk).unwrap();
        (of.modified().unwrap(), of.len(), std::fs::read(&disk).unwrap())
    };
    let before = state();
    let spec = format!("{}?capacity=16MiB", text(&disk));
    let mut args =
        reading(&[&format!("file:{spec}"), "ssd:micron-7450?capacity=1GiB&time=virtual"]);
    args.extend(["--report".to_owned(), html.clone()]);
    let out = run(args).succeeds().out();
    assert!(before == state(), "the file is another one");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let (file, model) = (&json["devices"][0], &json["devices"][1]);
    assert!(file["name"].as_str().unwrap().ends_with("disk.img?capacity=16MiB"), "{file}");
    assert_eq!((&file["depths"][1]["depth"], &model["depths"][0]["depth"]), (&8.into(), &1.into()));
    for one in [file, model] {
        assert!(one["depths"][0]["reads"].as_u64().unwrap() >= 1000, "{one}");
        assert!(one["depths"][0]["latency"]["p80_us"].as_f64().unwrap() > 0.0, "{one}");
        assert!(one["comparison"].as_str().unwrap().contains("conventional"), "{one}");
    }
    assert_eq!(model["unwritten"], 1.0);
    assert!((0.7..=0.75).contains(&file["unwritten"].as_f64().unwrap()), "{file}");
    assert!(std::fs::read_to_string(&html).unwrap().contains("disk.img?capacity=16MiB, 16.00 MiB"));
}

#[test]
fn devices_that_cannot_be_read_are_refused_before_models_run() {
    let scratch = Scratch::new();
    let (missing, empty) = (text(&scratch.path("missing.img")), text(&scratch.path("empty.img")));
    std::fs::write(&empty, "").unwrap();
    run(reading(&[&missing])).fails(66, &["missing.img"]);
    run(reading(&[&format!("file:{missing}?capacity=1GiB")])).fails(66, &["missing.img"]);
    run(reading(&["/dev/no-such-device"])).fails(66, &["/dev/no-such-device"]);
    assert!(!scratch.path("missing.img").exists());
    run(reading(&[&empty])).fails(64, &["empty.img", "truncate"]);
    run(reading(&["nosuch:1GiB"])).fails(64, &["nosuch"]);
    run(reading(&["ssd:micron-7450"])).fails(64, &["capacity"]);
    run(reading(&["mem:8MiB"; 5])).fails(64, &["at most 4"]);
    let cache = format!("cache:(mem:8MiB)?flash=({empty})");
    run(reading(&[&format!("stripe:({cache})(mem:8MiB)")])).fails(64, &["its flash device"]);
    run(reading(&["volume:p/v?drives=(mem:8MiB)"])).fails(64, &["esker pool serve"]);
    run(["lab", "host-ssd", "--device", "mem:8MiB", "--device-reads", "10"]).fails(64, &["1,000"]);
    run(["lab", "host-ssd", "--device-reads", "2k"]).fails(64, &["--device"]);
}

/// A small study of this machine, with files in `folder`.
fn real(folder: &str) -> Vec<String> {
    let small = "--drive 256MiB --depths 1 --threads 1 --reads 1k --lookups 1k --data 32MiB \
                 --real-data 32MiB --real-lookups 500 --python /nonexistent/python --json -";
    let words = ["lab", "host-ssd", "--real", folder];
    words.into_iter().chain(small.split_whitespace()).map(str::to_owned).collect()
}

/// The remains of studies in a folder.
fn left_in(folder: &std::path::Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut left: Vec<String> = files.map(|file| text(&file.unwrap().path())).collect();
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap();
    left.extend(swaps.lines().filter(|line| line.starts_with(&text(folder))).map(str::to_owned));
    left
}

#[test]
fn ways_to_page_are_measured_here_or_said_to_be_skipped() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let out = run(real(&text(folder.path()))).succeeds().out();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let ran: Vec<&str> = json["installed"]["ways"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    let skipped = json["skipped"].as_array().unwrap();
    let is_skipped = |name: &str| skipped.iter().any(|why| why.as_str().unwrap().starts_with(name));
    for way in esker_lab::host_ssd::installed::Way::ALL {
        assert!(
            ran.contains(&way.name()) != is_skipped(way.name()),
            "{way:?}: {ran:?} {skipped:?}"
        );
    }
    assert!(ran.contains(&"plain reads") && is_skipped("DuckDB"), "{ran:?} {skipped:?}");
    assert_eq!(left_in(folder.path()), Vec::<String>::new());
    run(["lab", "host-ssd", "--real", "/nonexistent"]).fails(66, &["--real"]);
    run(["lab", "host-ssd", "--real", "/var/tmp", "--rounds", "1"]).fails(64, &["3 rounds"]);
}

#[test]
fn a_study_that_is_killed_leaves_nothing_behind() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut command = crate::common::esker();
    command.args(real(&text(folder.path()))).stdout(std::process::Stdio::null());
    let mut study = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let clock = esker_base::Clock::real();
    let step = std::time::Duration::from_millis(50);
    let wait = |mut holds: Box<dyn FnMut() -> bool + '_>| {
        for _ in 0..1200 {
            if holds() {
                return;
            }
            clock.sleep(step);
        }
        panic!("{:?}", left_in(folder.path()));
    };
    // Its files are there, and its runs begin.
    wait(Box::new(|| left_in(folder.path()).iter().any(|one| one.contains("esker-host-ssd"))));
    clock.sleep(20 * step);
    study.kill().unwrap();
    study.wait().unwrap();
    wait(Box::new(|| left_in(folder.path()).is_empty()));
}

#[test]
fn lists_of_paged_programs_that_make_no_study_are_refused() {
    let refused = |args: &[&str], parts: &[&str]| {
        run(["lab", "memory"].iter().chain(args)).fails(64, parts);
    };
    refused(&["--programs", "emacs"], &["emacs", "sort", "mariadb"]);
    refused(&["--programs", "sort,sort"], &["--programs", "once"]);
    refused(&["--sides", "swap-0"], &["--sides", "esker"]);
    refused(&["--rounds", "0"], &["--rounds"]);
}

#[test]
fn pooled_drives_without_java_are_skipped_aloud() {
    let scratch = Scratch::new();
    let work = text(&scratch.path("work"));
    let mut command = esker();
    command.args(["lab", "pooled", "--quick", "--work", &work]).env("PATH", "/nonexistent");
    let out = command.output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{said}");
    for part in
        ["SKIPPED, ALL OF IT: java is missing", "install a JDK 17", "mvn is missing", "quick"]
    {
        assert!(said.contains(part), "{part} is missing:\n{said}");
    }
    // Nothing was begun.
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
    run(["lab", "pooled", "--drives", "3", "--work", &work]).fails(64, &["drives", "2 nodes"]);
    run(["lab", "pooled", "--work", &text(&scratch.path("a b"))]).fails(64, &["--work", "letters"]);
}

#[test]
fn stores_of_ones_own_share_a_drive_and_two_runs_are_compared() {
    let scratch = Scratch::new();
    let (one, other) = (text(&scratch.path("one.json")), text(&scratch.path("other.json")));
    let own = ["lab", "fdp", "--drive", "256MiB", "--blocks", "64KiB,256KiB", "--keys", "circular"];
    let run_own = |more: &[&str]| run(own.iter().chain(more));
    let out = run_own(&["--rates", "1,8", "--handles", "0,1", "--json", &one]).succeeds().out();
    assert!(out.contains("together, a handle each") && out.contains("in reserve"), "{out}");
    run_own(&["--rates", "1,64", "--handles", "0,1", "--json", &other]).succeeds();
    run_own(&["--rates", "1"]).fails(64, &["1 rates for 2 stores"]);
    run_own(&["--fill", "0.5"]).fails(64, &["leave out --fill"]);
    run_own(&["--full"]).fails(64, &["--full"]);
    run_own(&["--cleaning", "best"]).fails(64, &["cost-benefit"]);

    let html = text(&scratch.path("compare.html"));
    let compare = ["lab", "compare", &one, &other, "--least", "0.01", "--report", &html];
    let out = run(compare).succeeds().out();
    assert!(out.contains("together, no placement / measured / write_amplification"), "{out}");
    assert!(std::fs::read_to_string(&html).unwrap().contains("second over first"));
    run(["lab", "compare", &one, &other, "--json", "-"]).succeeds();
    let out = run(["lab", "compare", &one, &one]).succeeds().out();
    assert!(out.contains("\n\nNone of "), "{out}");
    run(["lab", "compare", &one, &html]).fails(64, &["--json FILE"]);
    run(["lab", "compare", &one, "/nonexistent"]).fails(66, &["/nonexistent"]);
}

/// A small drive with data placement, without its time.
const DRIVE: &str = "ssd:micron-7450?capacity=256MiB&fdp=on&time=none";

#[test]
fn stores_run_on_a_device_that_is_named() {
    let scratch = Scratch::new();
    let html = text(&scratch.path("fdp.html"));
    let on = ["lab", "fdp", "--device", DRIVE, "--erase"];
    let out = run(on.iter().chain(&["--report", &html, "--json", "-"])).succeeds().out();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(json["device"].as_str().unwrap().starts_with("ssd:micron-7450?capacity=256MiB&"));
    assert!(json["worth"].is_null() && json["chapters"].as_array().unwrap().len() == 1);
    let runs = json["chapters"][0]["runs"].as_array().unwrap();
    let factor = |run: usize| runs[run]["measured"]["write_amplification"].as_f64().unwrap();
    // The drive has eight handles: two for each store.
    assert!(runs.len() == 3 && factor(0) > factor(1) + 0.2 && factor(2) < 1.1, "{out}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("as its own log says") && page.contains("over-provisioning"));

    let own = ["--blocks", "64KiB,256KiB", "--keys", "circular", "--handles", "0"];
    let out = run(on.iter().chain(&own)).succeeds().out();
    let words: Vec<&str> = out.split_whitespace().collect();
    let one_line = words.join(" ");
    for words in ["2 stores on ssd:micron-7450", "8 placement handles", "assumed: "] {
        assert!(one_line.contains(words), "no '{words}' in:\n{out}");
    }
}

#[test]
fn devices_that_do_not_suit_are_refused_as_they_are() {
    let scratch = Scratch::new();
    let file = scratch.path("file.img");
    let content = vec![7; 64 << 20];
    std::fs::write(&file, &content).unwrap();
    let file = text(&file);
    let refuse = |device: &str, more: &[&str], code: i32, words: &[&str]| {
        let on = ["lab", "fdp", "--device", device];
        run(on.iter().chain(more)).fails(code, words);
    };
    refuse(&file, &[], 64, &["what is on the drives is lost", "--erase"]);
    refuse(&file, &["--erase"], 64, &[&file, "does not tell what it writes to its media"]);
    assert!(std::fs::read(&file).unwrap() == content);

    let missing = text(&scratch.path("missing"));
    for device in
        [missing.clone(), format!("ssd:micron-7450?image={missing}&capacity=256MiB&fdp=on")]
    {
        refuse(&device, &["--erase"], 66, &[&missing, "create it"]);
        assert!(!std::path::Path::new(&missing).exists());
    }
    refuse(DRIVE, &["--erase", "--handles", "0,3"], 64, &["8 placement handles", "are 12"]);
    let large = ["--erase", "--blocks", "2MiB,4MiB"];
    refuse(DRIVE, &large, 64, &["has 256.00 MiB", "512.00 MiB at least"]);
    let without = DRIVE.replace("&fdp=on", "");
    refuse(&without, &["--erase"], 64, &["placement is disabled", "fdp=on"]);
    for model in [
        &["--full"][..],
        &["--over-network"],
        &["--drive", "1GiB"],
        &["--threads", "2"],
        &["--isolation", "initial"],
        &["--over-provisioning", "0.1"],
        &["--unit", "1MiB"],
        &["--cleaning", "greedy"],
        &["--copies", "shared"],
        &["--steady"],
    ] {
        let more: Vec<&str> = ["--erase"].iter().chain(model).copied().collect();
        refuse(DRIVE, &more, 64, &["--device", model[0], "cannot be used with"]);
    }
    run(["lab", "fdp", "--erase"]).fails(64, &["--device"]);
}
