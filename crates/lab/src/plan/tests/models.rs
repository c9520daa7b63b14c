//! Figures of modelled devices under a load.

use super::*;
use crate::plan::ClockKind;

/// A TLC drive of a quarter of a gibibyte that is written at random.
const WRITES: &str = r#"
[drive.tlc]
profile = "micron-7450"
capacity = "256MiB"

[mix]
reads = 0
request = "16KiB"
bytes = "256MiB"
warm_up = "64MiB"

[[alternative]]
name = "alone"
device = "tlc"
"#;

fn with(text: &str, more: &str, device: &str) -> String {
    text.replace("[mix]", &format!("{more}\n[mix]"))
        .replace("device = \"tlc\"", &format!("device = \"{device}\""))
}

#[test]
fn runs_are_the_same_however_many_run_at_once() {
    let text = WRITES.to_owned() + "[sweep]\n\"drive.tlc.over_provisioning\" = [0.145, 0.28]\n";
    let (one, two) =
        (run_on(&text, &mut Memory::default(), 1), run_on(&text, &mut Memory::default(), 2));
    assert_eq!(one, two);
    let waf = |index: usize| one.cases[index].measured.write_amplification().unwrap();
    assert!(waf(0) > waf(1) && waf(1) > 1.0, "{} {}", waf(0), waf(1));
    assert_eq!(one.cases[0].measured.clock, ClockKind::Virtual);
}

#[test]
fn a_drive_of_ones_own_has_the_figures_that_it_was_given() {
    let rate = |pattern: &str, figures: &str| {
        let text = READS
            .replace("optane-p4800x", "micron-9300")
            .replace("64MiB", "512MiB")
            .replace("price = 100", figures)
            .replace("reads = 100\nbytes = \"8MiB\"", pattern);
        let report = run(&text);
        (report.cases[0].measured.clone(), report)
    };
    let near = |is: f64, wanted: f64| assert!((is / wanted - 1.0).abs() < 0.06, "{is} {wanted}");
    let sequential =
        "reads = 100\nrequest = \"128KiB\"\npattern = \"sequential\"\nbytes = \"256MiB\"";
    let (measured, _) = rate(sequential, "sequential_read = \"1GB\"");
    near(measured.bytes_per_s, 1e9);
    let writes = "reads = 0\nrequest = \"128KiB\"\npattern = \"sequential\"\nbytes = \"384MiB\"";
    let (measured, _) = rate(writes, "sequential_write = \"400MB\"");
    near(measured.bytes_per_s, 400e6);
    let (measured, _) =
        rate("reads = 100\ndepth = 256\nbytes = \"64MiB\"", "random_reads = 200_000");
    near(measured.ops_per_s, 200e3);
    let (measured, _) = rate("reads = 100\ndepth = 1\nbytes = \"4MiB\"", "read_latency_us = 150");
    near(measured.latencies[0].p50_us, 150.0);
}

#[test]
fn placement_keeps_logs_of_different_rates_apart() {
    let text = r#"
[drive.log]
profile = "micron-7450"
capacity = "256MiB"
[streams]
writers = [1, 8]
request = "64KiB"
bytes = "1GiB"
warm_up = "1GiB"
[growth]
written_per_day = "10TB"
[[alternative]]
name = "mixed"
device = "log"
[[alternative]]
name = "apart"
device = "log"
set = { "drive.log.placement" = true }
"#;
    let report = run(text);
    let waf = |index: usize| report.cases[index].measured.write_amplification().unwrap();
    assert!(waf(0) > waf(1), "{} {}", waf(0), waf(1));
    let life = |index: usize| report.cases[index].life_years.unwrap();
    assert!(
        (life(0) * waf(0) / (life(1) * waf(1)) - 1.0).abs() < 0.05,
        "life is what writes leave"
    );
    let best = report.best.iter().find(|one| one.criterion == "drive life").unwrap();
    assert_eq!(best.names, ["apart"]);
}

#[test]
fn a_cache_takes_reads_off_a_disk() {
    let text = r#"
[drive.disk]
profile = "sata-7200"
capacity = "100GB"
price = 50
[drive.flash]
profile = "micron-7450"
capacity = "256MiB"
price_per_tb = 100
[cache.front]
origin = "disk"
flash = "flash"
mode = "write-back"
[mix]
reads = 70
pattern = "zipfian"
span = "128MiB"
bytes = "16MiB"
warm_up = "24MiB"
depth = 8
[[alternative]]
name = "disk"
device = "disk"
[[alternative]]
name = "cached"
device = "front"
"#;
    let report = run(text);
    let [disk, cached] = &report.cases[..] else { panic!("{report:?}") };
    assert!(cached.measured.hit_ratio.unwrap() > 0.3, "{:?}", cached.measured.hit_ratio);
    assert!(cached.measured.ops_per_s > 1.5 * disk.measured.ops_per_s);
    assert!(cached.dram_bytes > 0.0 && disk.dram_bytes == 0.0);
    assert_eq!(cached.devices, ["front", "disk", "flash"]);
    assert!(disk.life_years.is_none(), "a disk does not wear here");
    let again = run(text);
    assert_eq!(again.cases, report.cases);
}

#[test]
fn a_pool_writes_its_parities() {
    let text = READS
        .replace("[mix]", "[pool.tank]\ndrives = [\"fast\", \"fast\", \"fast\"]\n[mix]")
        .replace("reads = 100", "reads = 50")
        .replace("device = \"fast\"", "device = \"tank\"");
    let report = run(&text);
    let measured = &report.cases[0].measured;
    assert!(measured.software_amplification().unwrap() > 1.4, "{measured:?}");
    assert_eq!(measured.devices.len(), 4);
    assert!(measured.usable_bytes < 128 << 20, "{}", measured.usable_bytes);
    assert!(measured.dram.iter().any(|(name, bytes)| name == "map of the pool" && *bytes > 0));
    assert_eq!(run(&text).cases, report.cases);
}

#[test]
fn a_host_that_knows_busy_dies_reads_sooner() {
    let text = r#"
[drive.host]
profile = "host-managed-256"
capacity = "128MiB"
[mix]
reads = 100
depth = 64
bytes = "16MiB"
[[alternative]]
name = "by the host"
device = "host"
[[alternative]]
name = "by its controller"
device = "host"
set = { "drive.host.translation" = "drive" }
"#;
    let report = run(text);
    let [host, drive] = &report.cases[..] else { panic!("{report:?}") };
    assert!(host.measured.ops_per_s > drive.measured.ops_per_s);
    assert_eq!(host.dram_bytes, f64::from(128 << 20) / 4096.0 * 4.0, "the host has the map");
    assert_eq!(drive.dram_bytes, 0.0);
}

#[test]
fn a_stripe_is_as_fast_as_its_drives_together() {
    let stripe = "[stripe.both]\ndrives = [\"tlc\", \"tlc\"]";
    let reads = WRITES.replace("reads = 0", "reads = 100\ndepth = 128");
    let (alone, both) = (run(&reads), run(&with(&reads, stripe, "both")));
    let rate = |report: &PlanReport| report.cases[0].measured.bytes_per_s;
    assert!(rate(&both) > 1.3 * rate(&alone), "{} {}", rate(&both), rate(&alone));
}

/// Skewed writes over half of a drive.
const SKEWED: &str = r#"
[drive.tlc]
profile = "micron-7450"
capacity = "256MiB"
price = 100
[mix]
reads = 20
request = "8KiB"
pattern = "zipfian"
span = "160MiB"
bytes = "64MiB"
[growth]
written_per_day = "1TB"
[[alternative]]
name = "one"
device = "tlc"
"#;

#[test]
#[ignore = "a minute with optimisation: cargo test --release -p esker-lab -- --ignored"]
fn figures_do_not_move_when_more_bytes_are_measured() {
    let of = |bytes: &str| {
        let text = SKEWED.replace("bytes = \"64MiB\"", &format!("bytes = \"{bytes}\""));
        let report = run(&text);
        let one = &report.cases[0];
        assert_eq!(one.measured.unsteady, None);
        (one.measured.write_amplification().unwrap(), one.life_years.unwrap())
    };
    let (short, long) = (of("64MiB"), of("128MiB"));
    assert!(short.0 > 1.2, "{short:?}");
    assert!((long.0 / short.0 - 1.0).abs() < 0.03, "{short:?} {long:?}");
    assert!((long.1 / short.1 - 1.0).abs() < 0.03, "{short:?} {long:?}");
}

#[test]
fn a_warm_up_that_is_too_short_is_marked_and_not_ranked() {
    let text = SKEWED.replace("[growth]", "warm_up = \"16MiB\"\n[growth]")
        + "[[alternative]]\nname = \"two\"\ndevice = \"tlc\"\n\
           set = { \"drive.tlc.over_provisioning\" = 0.5 }\n";
    let report = run(&text);
    assert!(report.cases[0].measured.unsteady.is_some(), "{:?}", report.cases[0].measured);
    let table = report.page().text();
    assert!(table.contains("one: not steady, and not ranked"), "{table}");
    assert!(report.best.iter().all(|one| one.criterion != "drive life"), "{:?}", report.best);
    assert!(report.page().html().contains("not steady, and not ranked"));
}

#[test]
#[ignore = "a minute with optimisation: cargo test --release -p esker-lab -- --ignored"]
fn a_drive_that_is_half_full_and_trimmed_copies_less() {
    let full = run(SKEWED);
    let half = run(&SKEWED.replace("span = \"160MiB\"", "filled = 0.5"));
    let waf = |report: &PlanReport| report.cases[0].measured.write_amplification().unwrap();
    assert!(waf(&half) < 0.6 * waf(&full), "{} {}", waf(&half), waf(&full));
    let refused = SKEWED.replace("reads = 20", "reads = 20\nfilled = 0.5");
    let plan = read(&refused).unwrap();
    let error = plan.run(&mut Memory::default(), &surroundings(1), |_| ControlFlow::Continue(()));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("make filled larger"), "{error}");
}

#[test]
fn the_first_sentence_says_what_to_take_and_what_cannot_keep_up() {
    let text = SKEWED.replace("1TB", "4TB")
        + "[[alternative]]\nname = \"roomy\"\ndevice = \"tlc\"\n\
           set = { \"drive.tlc.over_provisioning\" = 0.5 }\n";
    let report = run(&text);
    assert!(
        report.finding.starts_with("Take “roomy”, because it costs the least, $"),
        "{}",
        report.finding
    );
    assert!(report.cases.iter().all(|one| one.busy_share.unwrap() < 1.0));
    assert!(report.page().html().contains("The cost a year in $ is"));
    let report = run(&text.replace("4TB", "4000TB"));
    assert!(report.finding.starts_with("Take none of these"), "{}", report.finding);
    assert!(report.finding.contains("Cannot keep up with the load: one; roomy."));
}

#[test]
fn rates_of_work_in_turn_are_not_ranked() {
    let text = SKEWED.replace("[mix]", "[pool.tank]\ndrives = [\"tlc\", \"tlc\", \"tlc\"]\n[mix]")
        + "[[alternative]]\nname = \"pooled\"\ndevice = \"tank\"\n";
    let report = run(&text);
    assert_eq!(report.cases[1].measured.clock, ClockKind::InTurn);
    let ranked: Vec<&str> = report.best.iter().map(|one| one.criterion.as_str()).collect();
    assert!(
        !ranked.contains(&"throughput") && !ranked.contains(&"tail latency (99.9 %)"),
        "{ranked:?}"
    );
}

/// A small database on a drive.
const RECORDS: &str = r#"
[drive.tlc]
profile = "micron-7450"
capacity = "256MiB"
price = 100
[drive.fast]
profile = "optane-p4800x"
capacity = "64MiB"
price = 100
[ycsb]
records = 30_000
value = "500B"
workload = "a"
operations = 20_000
memory = "16MiB"
[growth]
data = "15MB"
data_per_month = "1MB"
written_per_day = "1GB"
[[alternative]]
name = "alone"
capacity = "tlc"
[[alternative]]
name = "staged"
capacity = "tlc"
staging = "fast"
"#;

#[test]
fn the_engine_in_virtual_time_gives_the_same_bytes_and_no_rates() {
    let report = run(RECORDS);
    assert_eq!(run(RECORDS).cases, report.cases);
    let [alone, staged] = &report.cases[..] else { panic!("{report:?}") };
    assert_eq!(alone.measured.clock, ClockKind::InTurn);
    assert!(!alone.measured.is_timed());
    let to_tlc = |one: &crate::plan::report::Judged| one.drives[0].per_user_byte.unwrap();
    assert!(to_tlc(staged) < to_tlc(alone), "{} {}", to_tlc(staged), to_tlc(alone));
    assert!(report.best.iter().all(|one| one.criterion != "throughput"));
    assert!(alone.full_in_months.unwrap() > 10.0, "{:?}", alone.full_in_months);
    assert!(report.page().text().contains("in turn"));
}

#[test]
fn the_engine_on_a_slower_clock_says_what_decided() {
    let text =
        RECORDS.replace("workload", "time = \"dilated\"\ndilation = 2\nclients = 4\nworkload");
    let report = run(&text);
    let measured = &report.cases[0].measured;
    assert_eq!(measured.clock, ClockKind::Dilated(2));
    assert!(measured.decider.is_some() && measured.ops_per_s > 0.0);
    assert!(measured.latencies.iter().any(|one| one.kind == "update"));
    assert!(report.page().text().contains("2 times slower than real time"));
}
