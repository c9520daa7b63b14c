//! Every format: a sample of it, recognised and read; and the outcome of damaged ones.
//!
//! The samples hold the same twelve requests, as far as a format can tell them.

use std::fs;
use std::path::{Path, PathBuf};

use esker_base::Rng;
use esker_trace::{Event, Format, Op, Options, Request, Trace, TraceError};

/// Microseconds, operation, sector, sectors.
const REQUESTS: [(u64, Op, u64, u64); 12] = [
    (1250, Op::Read, 1, 8),
    (1750, Op::Write, 296, 16),
    (2500, Op::Write, 192, 24),
    (2750, Op::Read, 88, 8),
    (3250, Op::Read, 384, 16),
    (4000, Op::Write, 281, 24),
    (4250, Op::Write, 176, 8),
    (4750, Op::Read, 72, 16),
    (5500, Op::Read, 368, 24),
    (5750, Op::Write, 264, 8),
    (6250, Op::Write, 161, 16),
    (7000, Op::Read, 56, 24),
];

/// Facts that a format can tell.
#[derive(Clone, Copy)]
struct Tells {
    microseconds: bool,
    ops: bool,
    devices: &'static [&'static str],
}

const ALL: Tells = Tells { microseconds: true, ops: true, devices: &["0"] };

const SAMPLES: [(&str, Format, Tells); 14] = [
    ("sample.msr.csv", Format::Msr, Tells { devices: &["host.1"], ..ALL }),
    ("sample.spc", Format::Spc, Tells { devices: &["0", "1"], ..ALL }),
    ("sample.alibaba.csv", Format::Alibaba, Tells { devices: &["700", "701"], ..ALL }),
    (
        "sample.tencent.csv",
        Format::Tencent,
        Tells { microseconds: false, devices: &["1058", "1059"], ..ALL },
    ),
    ("sample.lis", Format::Lis, Tells { microseconds: false, ops: false, ..ALL }),
    ("sample.disksim", Format::Disksim, ALL),
    ("sample.ssdsim", Format::Disksim, ALL),
    ("sample.systor.csv", Format::Systor, Tells { devices: &["3"], ..ALL }),
    ("sample.fiu", Format::Fiu, Tells { devices: &["6,0"], ..ALL }),
    ("sample.blkparse", Format::Blkparse, Tells { devices: &["8,16"], ..ALL }),
    ("sample.blktrace.0", Format::Blktrace, Tells { devices: &["8,16"], ..ALL }),
    ("sample.vscsi1", Format::Vscsi, Tells { devices: &["sample.vscsi1"], ..ALL }),
    ("sample.vscsi2", Format::Vscsi, Tells { devices: &["sample.vscsi2"], ..ALL }),
    (
        "sample.cachelib.csv",
        Format::Cachelib,
        Tells { microseconds: false, devices: &["chunks"], ..ALL },
    ),
];

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// The files of a sample: blktrace has one for each processor.
fn files(name: &str) -> Vec<PathBuf> {
    match name.strip_suffix(".0") {
        Some(stem) => vec![sample(name), sample(&format!("{stem}.1"))],
        None => vec![sample(name)],
    }
}

fn read(name: &str, options: &Options) -> (Vec<Request>, Trace) {
    let mut trace = Trace::open(&files(name), options).unwrap();
    let requests = (&mut trace).map(|request| request.unwrap()).collect();
    (requests, trace)
}

#[test]
fn samples_are_recognised_and_read() {
    for (name, format, tells) in SAMPLES {
        let (mut requests, trace) = read(name, &Options::default());
        assert_eq!(trace.format(), format, "{name}");
        assert_eq!(trace.devices(), tells.devices, "{name}");
        let others: Vec<Request> = requests.extract_if(.., |one| !one.op.is_data()).collect();
        let expected_others = match format {
            Format::Blktrace => vec![Op::Flush, Op::Discard],
            Format::Blkparse => vec![Op::Flush],
            _ => vec![],
        };
        assert_eq!(others.iter().map(|r| r.op).collect::<Vec<_>>(), expected_others, "{name}");
        assert_eq!(requests.len(), REQUESTS.len(), "{name}");
        let origin = requests[0].time_ns;
        for (index, (found, (micros, op, sector, sectors))) in
            requests.iter().zip(REQUESTS).enumerate()
        {
            let offset = match format {
                // Three chunks of 64 MiB of addresses, taken in turns.
                Format::Cachelib => (index as u64 % 3) * (64 << 20) + sector * 512,
                _ => sector * 512,
            };
            assert_eq!((found.offset, found.length), (offset, sectors * 512), "{name} {index}");
            if tells.ops {
                assert_eq!(found.op, op, "{name} {index}");
            }
            if tells.microseconds {
                let passed = (micros - REQUESTS[0].0) * 1000;
                assert_eq!(found.time_ns - origin, passed, "{name} {index}");
            }
            let device = index % tells.devices.len();
            assert_eq!(found.device as usize, device, "{name} {index}");
        }
    }
}

#[test]
fn blocks_without_ranges_are_read_by_unit() {
    for (name, format) in
        [("sample.u32le", Format::U32le), ("sample.oracleGeneral", Format::OracleGeneral)]
    {
        for unit_bytes in [None, Some(512), Some(1 << 20)] {
            let (requests, trace) = read(name, &Options { unit_bytes, ..Options::default() });
            let unit = unit_bytes.unwrap_or(4096);
            assert_eq!(trace.format(), format);
            assert_eq!(requests.len(), 12);
            for (index, (found, (_, _, sector, _))) in requests.iter().zip(REQUESTS).enumerate() {
                assert_eq!((found.op, found.length), (Op::Read, unit));
                if ![4, 7].contains(&index) {
                    assert_eq!(found.offset, sector / 8 * unit, "{name} {index}");
                }
            }
            // An object whose number is no place has one of its own.
            assert_eq!(requests[4].offset, requests[7].offset);
            assert!(format == Format::U32le || requests[4].offset > 1 << 50);
        }
    }
}

#[test]
fn compressed_files_are_read_as_they_are() {
    let plain = read("sample.msr.csv", &Options::default()).0;
    for suffix in [".zst", ".xz", ".gz", ".bz2"] {
        let name = format!("sample.msr.csv{suffix}");
        assert_eq!(read(&name, &Options::default()).0, plain, "{name}");
        // Two compressed files in one, as `cat` makes them.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(&name);
        let bytes = fs::read(sample(&name)).unwrap();
        fs::write(&path, [&bytes[..], &bytes[..]].concat()).unwrap();
        assert_eq!(Trace::open_file(&path).unwrap().count(), 2 * plain.len(), "{name}");
    }
    // A frame that is to be skipped, before and behind.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zst");
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let bytes = fs::read(sample("sample.msr.csv.zst")).unwrap();
    fs::write(&path, [&bytes[..], &skipped[..], &bytes[..]].concat()).unwrap();
    assert_eq!(Trace::open_file(&path).unwrap().count(), 24);
}

/// A trace of so many requests, compressed by the program of the machine; none if there is no such program.
fn compressed(program: &str, text: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let mut child = Command::new(program)
        .args(["-1", "-c", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| eprintln!("SKIPPED: {program}: {error}"))
        .ok()?;
    let (mut stdin, text) = (child.stdin.take()?, text.to_vec());
    let writer = esker_base::thread::spawn("text", move || stdin.write_all(&text)).ok()?;
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?.ok()?;
    Some(output.stdout)
}

#[test]
fn compressed_file_whose_end_is_missing_ends_with_its_last_whole_request() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(3);
    let count = 200_000;
    let line = |n: u64, rng: &mut Rng| format!("{n},{},512,R,{n}.5\n", rng.below(1 << 40));
    let text: String = (0..count).map(|n| line(n % 7, &mut rng)).collect();
    let plain = dir.path().join("a.spc");
    fs::write(&plain, &text).unwrap();
    let whole: Vec<Request> = Trace::open_file(&plain).unwrap().map(Result::unwrap).collect();
    let mut tried = 0;
    for (program, suffix) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst"), ("bzip2", "bz2")] {
        let Some(bytes) = compressed(program, text.as_bytes()) else { continue };
        let path = dir.path().join(format!("a.spc.{suffix}"));
        fs::write(&path, &bytes).unwrap();
        let mut trace = Trace::open_file(&path).unwrap();
        assert_eq!((&mut trace).count(), whole.len(), "{suffix}");
        assert_eq!(trace.remarks(), Vec::<String>::new(), "{suffix}");
        for left in [bytes.len() - 9, bytes.len() / 2, 40] {
            fs::write(&path, &bytes[..left]).unwrap();
            let opened = Trace::open_file(&path);
            if left == 40 {
                let why = opened.err().unwrap().to_string();
                assert!(why.contains("in the middle of its compressed data"), "{suffix}: {why}");
                continue;
            }
            let mut trace = opened.unwrap();
            let read: Vec<Request> = (&mut trace).map(Result::unwrap).collect();
            assert!(read.len() > whole.len() / 4, "{suffix}, {left}: {} requests", read.len());
            assert!(whole.starts_with(&read), "{suffix}, {left}: a request that is none");
            let remarks = trace.remarks();
            assert!(
                remarks.len() == 1
                    && remarks[0].contains(&format!("a.spc.{suffix} ends in the middle"))
                    && remarks[0].contains("get the whole file again"),
                "{suffix}, {left}: {remarks:?}"
            );
        }
        // Damage is no end that is missing.
        let mut damaged = bytes.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0xa5);
        fs::write(&path, &damaged).unwrap();
        let outcome = Trace::open_file(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        assert!(outcome.is_err(), "{suffix}: damage in the middle");
        tried += 1;
    }
    assert!(tried > 0, "no program that compresses");
}

#[test]
fn byte_order_mark_is_passed_in_text_and_is_content_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["sample.msr.csv", "sample.systor.csv", "sample.cachelib.csv", "sample.blkparse"] {
        let path = dir.path().join(name);
        fs::write(&path, [b"\xef\xbb\xbf", &fs::read(sample(name)).unwrap()[..]].concat()).unwrap();
        for format in [None, Some(Trace::open_file(&sample(name)).unwrap().format())] {
            let options = Options { format, ..Options::default() };
            let trace = Trace::open(&[&path], &options).unwrap();
            let requests: Vec<Request> = trace.map(Result::unwrap).collect();
            assert_eq!(requests, read(name, &Options::default()).0, "{name}");
        }
    }
    let path = dir.path().join("blocks.u32le");
    fs::write(&path, [0xef, 0xbb, 0xbf, 0, 1, 0, 0, 0]).unwrap();
    let requests: Vec<Request> = Trace::open_file(&path).unwrap().map(Result::unwrap).collect();
    assert_eq!((requests.len(), requests[0].offset), (2, 0x00bf_bbef * 4096));
    let path = dir.path().join("wide.csv");
    fs::write(&path, b"\xff\xfe1\0,\0").unwrap();
    let why = Trace::open_file(&path).err().unwrap().to_string();
    assert!(why.contains("iconv -f UTF-16"), "{why}");
}

/// Linux before 2.6.37 has barriers (`B`); kernels after today's have letters that nobody knows yet.
#[test]
fn letters_of_other_kernels_stop_no_blkparse_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.blkparse");
    let line = |n: u32, rwbs: &str| {
        format!(
            "  8,0    1 {n:8}     0.00000{n:04}  4162  Q  {rwbs:>3} {} + 8 [kjournald]\n",
            n * 8
        )
    };
    let mut text: String = (1..790).map(|n| line(n, "WS")).collect();
    for (n, letters) in (790..).zip(["WBS", "RB", "WXS", "DX", "RAX", "NX"]) {
        text += &line(n, letters);
    }
    fs::write(&path, &text).unwrap();
    let mut trace = Trace::open_file(&path).unwrap();
    let requests: Vec<Request> = (&mut trace).map(Result::unwrap).collect();
    let of = |op| requests.iter().filter(|one| one.op == op).count();
    let counts = [Op::Write, Op::Read, Op::Discard, Op::Flush].map(of);
    assert_eq!(counts, [789 + 2, 2, 1, 2], "a barrier is a flush before its data");
    let remarks = trace.remarks();
    assert!(
        remarks.len() == 1 && remarks[0].contains("4 requests have the letter X"),
        "{remarks:?}"
    );
    // An unknown operation is an error, not skipped.
    fs::write(&path, text + &line(800, "XW")).unwrap();
    let error = Trace::open_file(&path).unwrap().find_map(Result::err).unwrap().to_string();
    assert!(error.contains("line 796") && error.contains("'XW'"), "{error}");
}

#[test]
fn flags_beside_that_of_a_read_are_counted_and_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.disksim");
    fs::write(&path, "0.5 0 8 8 1\n1.5 0 16 8 0\n2.5 0 24 8 3\n3.5 0 32 8 8\n").unwrap();
    let mut trace = Trace::open_file(&path).unwrap();
    let ops: Vec<Op> = (&mut trace).map(|one| one.unwrap().op).collect();
    assert_eq!(ops, [Op::Read, Op::Write, Op::Read, Op::Write]);
    assert!(
        trace.remarks()[0].starts_with("2 requests have flags")
            || trace.remarks()[0].contains(": 2 requests")
    );
}

#[test]
fn other_events_of_a_block_trace_are_read_when_asked_for() {
    for name in ["sample.blktrace.0", "sample.blkparse"] {
        for event in [Event::Issue, Event::Complete] {
            let (requests, _) = read(name, &Options { event, ..Options::default() });
            assert_eq!(requests.len(), 12, "{name} {event:?}");
        }
    }
}

/// Linux can note the control group of a request (`__BLK_TA_CGROUP`, bit 8 of the action): it is the
/// same request.
#[test]
fn requests_of_control_groups_are_requests() {
    let mut bytes = fs::read(sample("sample.blktrace.0")).unwrap();
    let (dir, mut at) = (tempfile::tempdir().unwrap(), 0);
    let path = dir.path().join("a.blktrace.0");
    fs::write(&path, &bytes).unwrap();
    let plain: Vec<Request> = Trace::open_file(&path).unwrap().map(Result::unwrap).collect();
    while at < bytes.len() {
        bytes[at + 29] |= 1;
        at += 48 + usize::from(u16::from_le_bytes([bytes[at + 46], bytes[at + 47]]));
    }
    fs::write(&path, &bytes).unwrap();
    let grouped: Vec<Request> = Trace::open_file(&path).unwrap().map(Result::unwrap).collect();
    assert!(!plain.is_empty() && grouped == plain, "{grouped:?}");
}

#[test]
fn errors_name_the_file_and_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |name: &str, content: &[u8], format: Option<Format>, words: &[&str]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let options = Options { format, ..Options::default() };
        let outcome =
            Trace::open(&[&path], &options).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), esker_base::ErrorKind::Corrupt, "{error}");
        let text = error.to_string();
        for word in words.iter().chain(&[name]) {
            assert!(text.contains(word), "no '{word}' in: {text}");
        }
    };
    let msr = fs::read(sample("sample.msr.csv")).unwrap();
    let cut = [&msr[..], b"128166372003000001,host,1,Read,512\n"].concat();
    fails("cut.csv", &cut, None, &["line 13", "'Size'", "msr"]);
    let wrong = [&msr[..], b"1,host,1,Erase,0,512,1\n"].concat();
    fails(
        "wrong.csv",
        &wrong,
        None,
        &["line 13", "Type is 'Erase'", "Read or Write", "in '1,host,1,Erase,0,512,1'"],
    );
    let far = [&msr[..], b"1,host,1,Read,72057594037927936,512,1\n"].concat();
    fails("far.csv", &far, None, &["line 13", "64 PiB"]);
    let blktrace = fs::read(sample("sample.blktrace.0")).unwrap();
    fails(
        "b.blktrace",
        &blktrace[..blktrace.len() - 3],
        None,
        &["byte 875", "45 bytes are left of"],
    );
    let mut damaged = blktrace.clone();
    damaged[55] = 0;
    fails("b.blktrace", &damaged, None, &["byte 52", "begins with"]);
    let vscsi = fs::read(sample("sample.vscsi1")).unwrap();
    fails("v.vscsi", &vscsi[..70], Some(Format::Vscsi), &["byte 64", "6 bytes are left"]);
    let mut other = vscsi.clone();
    other[32 + 12] = 0x12;
    fails("v.vscsi", &other, Some(Format::Vscsi), &["byte 32", "operation code is 0x12"]);
    let known = &["no known format", "oracle-general", "lcs", "line 1 ", "dear reader"];
    fails("letter", b"dear reader,\nhow are you?\n", None, known);
    let long = [&b"a\tb"[..], &[b'x'; 500], b"\nmore\n"].concat();
    fails("long", &long, None, &["'a\\tbxxx", "xxx...'"]);
    fails("binary", &[7; 100], None, &["no known format", "07 07"]);
    fails("empty", b"", None, &["it is empty"]);
    fails("x.csv", b"nothing\n", Some(Format::Spc), &["line 1", "ASU", "'nothing'"]);
}

#[test]
fn big_endian_and_other_versions_of_blktrace_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    for (magic, word) in
        [([0x65, 0x61, 0x74, 0x07], "big-endian"), ([8, 0x74, 0x61, 0x65], "version 8")]
    {
        let mut bytes = vec![0; 48];
        bytes[..4].copy_from_slice(&magic);
        fs::write(&path, &bytes).unwrap();
        let error = Trace::open_file(&path).unwrap().next().unwrap().unwrap_err();
        assert_eq!(error.kind(), esker_base::ErrorKind::Unsupported);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn files_of_a_trace_are_found_by_its_name() {
    let stem = sample("sample");
    let found = esker_trace::read::files_of(&stem).unwrap();
    assert_eq!(found, files("sample.blktrace.0"));
    assert_eq!(esker_trace::read::files_of(&sample("sample.blktrace")).unwrap(), found);
    assert!(esker_trace::read::files_of(&sample("gone")).is_err());
    assert!(Trace::open_file(&sample("")).is_err());
}

/// Bytes are changed, cut, doubled and moved; any result is read to its end or refused.
#[test]
fn mutated_traces_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(1);
    let names = SAMPLES.iter().map(|(name, ..)| *name);
    let more = ["sample.u32le", "sample.oracleGeneral", "sample.msr.csv.zst", "sample.msr.csv.xz"];
    let more = more.into_iter().chain(["sample.msr.csv.gz", "sample.msr.csv.bz2"]);
    let (mut refused, mut accepted) = (0, 0);
    for name in names.chain(more) {
        let whole = fs::read(sample(name)).unwrap();
        let path = dir.path().join(name);
        for round in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..=rng.below(4) {
                mutate(&mut bytes, &mut rng);
            }
            fs::write(&path, &bytes).unwrap();
            // Now and then as something that it is not.
            let any = Format::ALL[usize::try_from(rng.below(Format::ALL.len() as u64)).unwrap()];
            let format = (round % 3 == 0).then_some(any);
            let options = Options { format, ..Options::default() };
            let outcome: Result<u64, TraceError> = (|| {
                let mut count = 0;
                for request in Trace::open(&[&path], &options)? {
                    let request = request?;
                    assert!(request.offset + request.length <= 1 << 56);
                    count += 1;
                }
                Ok(count)
            })();
            match outcome {
                Ok(_) => accepted += 1,
                Err(error) => {
                    assert!(error.to_string().contains(name), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 500 && accepted > 100, "{refused} and {accepted}");
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    let size = bytes.len() as u64;
    let mut place = || usize::try_from(rng.below(size)).unwrap();
    let (at, other) = (place(), place());
    match rng.below(6) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.u64().to_le_bytes()[0],
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at.min(other)..at.max(other).min(at.min(other) + 20))),
        4 => {
            let piece = bytes[at.min(other)..at.max(other)].to_vec();
            bytes.splice(at..at, piece);
        }
        _ => {
            let interesting: [&[u8]; 6] =
                [&[0xff; 8], &[0; 8], b"18446744073709551616", b"-1", b",,", b"\n\n"];
            let piece = interesting[usize::try_from(rng.below(6)).unwrap()];
            bytes.splice(at..at, piece.iter().copied());
        }
    }
}
