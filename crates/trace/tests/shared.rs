//! Real traces: every count equals the one taken by other means.
//!
//! The files are not part of this repository, since most may not be published with it. They are
//! looked for in the folder that `ESKER_TRACES` names; without it this test says loudly that it is
//! skipped.

use std::collections::BTreeSet;
use std::path::PathBuf;

use esker_trace::keys::Numbering;
use esker_trace::mrc::{ExactLru, SampledLru, belady};
use esker_trace::{BLOCK_BYTES, Format, Op, Options, Trace, block_refs};

/// Counts of a trace. Discards and flushes are not counted.
#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    reads: u64,
    bytes: u64,
    refs: u64,
    read_refs: u64,
    unique: u64,
    seconds: f64,
}

/// Known facts of a file; zero stands for an unknown one.
struct Known {
    files: &'static [&'static str],
    format: Format,
    unit_bytes: Option<u64>,
    requests: u64,
    read_percent: f64,
    mean_kib: f64,
    refs: u64,
    read_refs_percent: f64,
    unique: u64,
    seconds: f64,
}

const UNKNOWN: Known = Known {
    files: &[],
    format: Format::Compact,
    unit_bytes: None,
    requests: 0,
    read_percent: 0.0,
    mean_kib: 0.0,
    refs: 0,
    read_refs_percent: 0.0,
    unique: 0,
    seconds: 0.0,
};

const ALL: [Known; 15] = [
    Known {
        files: &["pgbench-ext4.blktrace.0.zst", "pgbench-ext4.blktrace.1.zst"],
        format: Format::Blktrace,
        requests: 1_120_414,
        read_percent: 65.4,
        mean_kib: 17.3,
        refs: 4_840_694,
        read_refs_percent: 75.8,
        unique: 718_484,
        seconds: 301.0,
        ..UNKNOWN
    },
    Known {
        files: &["mixed-xfs.blktrace.0.zst", "mixed-xfs.blktrace.1.zst"],
        format: Format::Blktrace,
        requests: 624_002,
        read_percent: 70.2,
        mean_kib: 16.5,
        refs: 2_582_398,
        read_refs_percent: 63.8,
        unique: 911_336,
        seconds: 211.0,
        ..UNKNOWN
    },
    Known {
        files: &["cloudphysics-w.vscsi.zst"],
        format: Format::Vscsi,
        requests: 113_872,
        read_percent: 41.3,
        mean_kib: 36.1,
        refs: 1_141_869,
        read_refs_percent: 42.5,
        unique: 269_210,
        seconds: 7200.0,
        ..UNKNOWN
    },
    Known {
        files: &["cloudphysics-w106.u32le.xz"],
        format: Format::U32le,
        requests: 5_292_456,
        read_percent: 100.0,
        mean_kib: 4.0,
        refs: 5_292_456,
        read_refs_percent: 100.0,
        unique: 275_171,
        ..UNKNOWN
    },
    Known {
        files: &["arc-OLTP.lis.zst"],
        format: Format::Lis,
        unit_bytes: Some(4096),
        requests: 914_145,
        read_percent: 100.0,
        mean_kib: 4.0,
        refs: 914_145,
        read_refs_percent: 100.0,
        unique: 186_880,
        ..UNKNOWN
    },
    Known {
        files: &["arc-P6.lis.zst"],
        format: Format::Lis,
        requests: 519_711,
        read_percent: 100.0,
        mean_kib: 12.2,
        refs: 2_021_684,
        read_refs_percent: 100.0,
        unique: 101_903,
        ..UNKNOWN
    },
    Known {
        files: &["msps-dtrs.ssdsim.zst"],
        format: Format::Disksim,
        requests: 127_043,
        read_percent: 89.0,
        mean_kib: 55.3,
        refs: 1_759_180,
        read_refs_percent: 89.4,
        unique: 1_272_267,
        seconds: 30_000.0,
        ..UNKNOWN
    },
    Known {
        files: &["samples/fio-ext4-allevents-20k.blktrace.zst"],
        format: Format::Blktrace,
        requests: 3334,
        ..UNKNOWN
    },
    Known {
        files: &["samples/fio-ext4-allevents-20k.blkparse.txt.zst"],
        format: Format::Blkparse,
        requests: 3334,
        ..UNKNOWN
    },
    Known {
        files: &["samples/msr-hm-1000.csv"],
        format: Format::Msr,
        requests: 1000,
        read_percent: 50.8,
        ..UNKNOWN
    },
    Known {
        files: &["samples/systor17-1000.csv.gz"],
        format: Format::Systor,
        requests: 999,
        read_percent: 82.7,
        ..UNKNOWN
    },
    Known {
        files: &["samples/tencent-cbs-50k.csv.bz2"],
        format: Format::Tencent,
        requests: 50_000,
        read_percent: 49.0,
        refs: 378_253,
        unique: 348_239,
        ..UNKNOWN
    },
    Known {
        files: &["samples/tpcc-small.disksim.zst"],
        format: Format::Disksim,
        requests: 6999,
        read_percent: 62.6,
        ..UNKNOWN
    },
    Known {
        files: &["samples/websearch-small.disksim.zst"],
        format: Format::Disksim,
        requests: 24_783,
        read_percent: 100.0,
        ..UNKNOWN
    },
    Known {
        files: &["samples/cachelib-blockchunk-1000.csv"],
        format: Format::Cachelib,
        requests: 999,
        ..UNKNOWN
    },
];

/// The folder of the traces, if one was named.
fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("ESKER_TRACES")?);
    assert!(folder.is_dir(), "ESKER_TRACES: {} is no folder", folder.display());
    Some(folder)
}

#[allow(clippy::cast_precision_loss)]
fn count(trace: Trace) -> Counts {
    let mut counts = Counts::default();
    let mut blocks = Numbering::default();
    let (mut first, mut last) = (u64::MAX, 0);
    for request in trace {
        let request = request.unwrap();
        if !request.op.is_data() {
            continue;
        }
        counts.requests += 1;
        counts.bytes += request.length;
        (first, last) = (first.min(request.time_ns), last.max(request.time_ns));
        let is_read = request.op == Op::Read;
        if is_read {
            counts.reads += 1;
        }
        for block in block_refs(&request) {
            counts.refs += 1;
            if is_read {
                counts.read_refs += 1;
            }
            blocks.number(block.key);
        }
    }
    counts.unique = blocks.len() as u64;
    counts.seconds = last.saturating_sub(first) as f64 / 1e9;
    counts
}

#[test]
#[allow(clippy::cast_precision_loss)]
fn counts_of_real_traces_are_what_they_were_counted_to_be() {
    let Some(folder) = folder() else {
        eprintln!("SKIPPED: no real traces; set ESKER_TRACES to the folder that has them");
        return;
    };
    let mut formats = BTreeSet::new();
    for known in &ALL {
        let paths: Vec<PathBuf> = known.files.iter().map(|file| folder.join(file)).collect();
        let options = Options { unit_bytes: known.unit_bytes, ..Options::default() };
        let trace = Trace::open(&paths, &options).unwrap();
        let file = known.files[0];
        assert_eq!(trace.format(), known.format, "{file}");
        formats.insert(trace.format());
        let counts = count(trace);
        eprintln!("{file}: {counts:?}");
        assert_eq!(counts.requests, known.requests, "{file}: requests");
        for (what, found, expected) in
            [("references", counts.refs, known.refs), ("blocks", counts.unique, known.unique)]
        {
            assert!(expected == 0 || found == expected, "{file}: {found} {what}, not {expected}");
        }
        let requests = counts.requests as f64;
        for (what, found, expected, digit) in [
            ("reads, %", 100.0 * counts.reads as f64 / requests, known.read_percent, 0.1),
            ("mean, KiB", counts.bytes as f64 / requests / 1024.0, known.mean_kib, 0.1),
            (
                "references that read, %",
                100.0 * counts.read_refs as f64 / counts.refs as f64,
                known.read_refs_percent,
                0.1,
            ),
            ("seconds", counts.seconds, known.seconds, 1.0),
        ] {
            let agrees = (found - expected).abs() <= digit * 0.51;
            assert!(expected == 0.0 || agrees, "{file}: {what}: {found}, not {expected}");
        }
        assert!(counts.refs * BLOCK_BYTES >= counts.bytes, "{file}");
    }
    assert_eq!(formats.len(), 10);
}

#[test]
fn a_trace_and_its_text_are_the_same_requests() {
    let Some(folder) = folder() else {
        eprintln!("SKIPPED: no real traces; set ESKER_TRACES to the folder that has them");
        return;
    };
    let read = |name: &str| -> Vec<_> {
        let path = folder.join("samples").join(name);
        let trace = Trace::open_file(&path).unwrap();
        trace.map(|request| request.unwrap()).collect()
    };
    let binary = read("fio-ext4-allevents-20k.blktrace.zst");
    let text = read("fio-ext4-allevents-20k.blkparse.txt.zst");
    assert_eq!(binary.len(), text.len());
    let origin = binary[0].time_ns;
    for (mut from_binary, from_text) in binary.into_iter().zip(text) {
        from_binary.time_ns -= origin;
        assert_eq!(from_binary, from_text);
    }
}

/// Miss ratios of LRU and of the optimum, as another simulator counted them, to three digits.
#[test]
fn miss_ratios_of_real_traces_are_those_of_another_simulator() {
    let Some(folder) = folder() else {
        eprintln!("SKIPPED: no real traces; set ESKER_TRACES to the folder that has them");
        return;
    };
    for (file, unit_bytes, blocks, lru, optimum) in [
        ("cloudphysics-w.vscsi.zst", None, 28_672, 0.872, 0.667),
        ("arc-OLTP.lis.zst", Some(4096), 20_480, 0.327, 0.234),
        ("arc-P6.lis.zst", None, 8192, 0.737, 0.324),
        ("arc-P6.lis.zst", None, 20_480, 0.161, 0.089),
    ] {
        let options = Options { unit_bytes, ..Options::default() };
        let trace = Trace::open(&[folder.join(file)], &options).unwrap();
        let (mut exact, mut sampled) = (ExactLru::default(), SampledLru::new(8192, 1));
        let (mut numbering, mut references) = (Numbering::default(), Vec::new());
        for request in trace {
            for block in block_refs(&request.unwrap()) {
                exact.reference(block.key);
                sampled.reference(block.key);
                references.push(numbering.number(block.key).0);
            }
        }
        let found = exact.curve(&[blocks])[0].miss_ratio;
        assert!((found - lru).abs() < 0.0006, "{file}: LRU misses {found}, not {lru}");
        let best = belady(&references, blocks);
        assert!((best - optimum).abs() < 0.0006, "{file}: {best} at least, not {optimum}");
        let estimate = sampled.curve(&[blocks])[0];
        eprintln!("{file}: {blocks} blocks: {found:.4}, sampled {estimate:?}");
        assert!((estimate.miss_ratio - found).abs() < 0.03, "{file}: {estimate:?}, not {found}");
    }
}
