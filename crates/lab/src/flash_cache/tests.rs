//! The study on little data: its figures are those that it names.

use std::ops::ControlFlow;

use esker_report::Outcome;

use super::*;
use crate::{Report, study};

fn run(options: &FlashCacheOptions) -> Result<Report<FlashCache>, LabError> {
    study::run(options, &mut None, &mut |_| ControlFlow::Continue(()))
}

fn small() -> FlashCacheOptions {
    FlashCacheOptions {
        transactions: 4_000,
        data_bytes: 256 << 20,
        sizes_percent: vec![10, 30],
        ..FlashCacheOptions::default()
    }
}

#[test]
fn the_optimum_is_not_beaten_and_the_busier_half_is_a_half_at_least() {
    let report = run(&small()).unwrap();
    let workload = &report.figures.workloads[0];
    assert_eq!(workload.sizes.len(), 2);
    for size in &workload.sizes {
        let optimum = size.versions.last().unwrap();
        for version in &size.versions {
            // A block that was read ahead is a hit when it is asked for, and the optimum reads
            // nothing ahead.
            let is_ahead = version.name == "Esker, ahead";
            assert!(is_ahead || version.hit_ratio <= optimum.hit_ratio + 1e-9, "{version:?}");
            assert!(version.busier_half >= 0.5 - 1e-9, "{version:?}");
            assert!(version.disk_s < workload.uncached_s, "{version:?}");
        }
        assert_eq!(size.versions[0].reads_saved, 0.0);
        assert_eq!(size.by_percentile.len(), 13);
    }
    // Larger caches hit more, whichever version.
    for (little, large) in workload.sizes[0].versions.iter().zip(&workload.sizes[1].versions) {
        assert!(little.hit_ratio < large.hit_ratio, "{little:?} {large:?}");
    }
    let back: FlashCacheFigures = serde_json::from_value(report.json()).unwrap();
    assert_eq!(back.workloads[0].name, workload.name);
    for text in [report.page().text(), report.page().html()] {
        for word in ["optimum", "MySQL-like", "busier half", "further block"] {
            assert!(text.contains(word), "no '{word}' in {text}");
        }
    }
}

#[test]
fn only_the_files_of_one_trace_by_processor_are_one_workload() {
    let dir = std::env::temp_dir().join(format!("esker-lab-traces-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let numbers = (0..11).rev().map(|processor| format!("c.d.blktrace.{processor}.zst"));
    let other = ["a.1.csv", "a.2.csv", "b.lis.zst", "README.md", "e.blktrace.x", "f.blktrace"];
    for file in other.into_iter().map(str::to_owned).chain(numbers) {
        std::fs::write(dir.join(file), "").unwrap();
    }
    let traces = traces_of(&dir).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let found: Vec<(&str, usize)> =
        traces.iter().map(|(name, files)| (&**name, files.len())).collect();
    assert_eq!(
        found,
        [("a.1.csv", 1), ("a.2.csv", 1), ("b", 1), ("c", 11), ("e", 1), ("f", 1)],
        "{traces:?}"
    );
    assert_eq!(traces[3].1[10], dir.join("c.d.blktrace.10.zst"), "in the order of processors");
}

#[test]
fn traces_whose_names_begin_alike_are_replayed_one_by_one() {
    let dir = std::env::temp_dir().join(format!("esker-lab-alike-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for file in ["a.1.csv", "a.2.csv"] {
        let requests = (0..200u64).map(|n| {
            format!("{},host,0,Read,{},4096,100\n", 128166372000000000 + n * 1000, n % 40 * 4096)
        });
        std::fs::write(dir.join(file), requests.collect::<String>()).unwrap();
    }
    let options = FlashCacheOptions {
        traces: vec![dir.clone()],
        transactions: 0,
        ..FlashCacheOptions::default()
    };
    let report = run(&options);
    std::fs::remove_dir_all(&dir).unwrap();
    let names: Vec<String> =
        report.unwrap().figures.workloads.into_iter().map(|w| w.name).collect();
    assert_eq!(names, ["a.1.csv", "a.2.csv"]);
}

#[test]
fn the_disk_takes_what_a_disk_of_7200_revolutions_takes() {
    let times = disk::measure(1).unwrap();
    // Half a revolution is 4.17 ms, and a seek twice that or so (docs/flash.md).
    assert!((8e6..20e6).contains(&times.read_ns), "{times:?}");
    assert!((8e6..20e6).contains(&times.write_ns), "{times:?}");
    // 4 KiB at 100 to 300 MB/s.
    assert!((13e3..41e3).contains(&times.block_ns), "{times:?}");
}

#[test]
fn a_trace_that_is_none_is_said() {
    let options = FlashCacheOptions {
        traces: vec!["/nowhere/trace".into()],
        transactions: 0,
        ..FlashCacheOptions::default()
    };
    let error = run(&options).err().unwrap();
    assert!(error.to_string().contains("/nowhere/trace"), "{error}");
    let none = FlashCacheOptions { transactions: 0, ..FlashCacheOptions::default() };
    assert!(run(&none).is_err());
    let ended = study::run::<FlashCache>(&small(), &mut None, &mut |_| ControlFlow::Break(()));
    assert!(matches!(ended, Err(LabError::Interrupted)));
}

#[test]
fn each_figure_of_the_source_has_a_verdict_on_each_workload() {
    let report = run(&small()).unwrap();
    assert_eq!(report.verdicts.len(), 6 * report.figures.workloads.len());
    for one in &report.verdicts {
        // One value for each size, judged by the rule that is printed.
        let shown =
            one.measured.matches(" %)").count() + one.measured.matches(" %, not judged)").count();
        assert_eq!(shown, 2, "{one:?}");
    }
    // Two sets have no halves to speak of.
    let halves = report.verdicts.iter().find(|one| one.figure.contains("busier half")).unwrap();
    assert_eq!(halves.outcome, Outcome::NotComparable, "{halves:?}");
    assert!(halves.why()[0].contains("16 sets"), "{halves:?}");
    let (text, page) = (report.page().text(), report.page().html());
    assert!(text.contains(&halves.why()[0]) && page.contains(&halves.why()[0]), "{text}");
    for part in ["about 40 %", "about 75 %", "80 %, then 50 %", "75 in use", "85 at the earliest"] {
        assert!(text.contains(part) && page.contains(part), "no '{part}'");
    }
    for part in [">missed<", "claimed of 2013"] {
        assert!(page.contains(part), "no '{part}'");
    }
}
