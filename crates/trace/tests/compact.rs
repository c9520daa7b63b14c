//! The compact format, through files.

use std::fs;
use std::path::Path;

use esker_base::{Clock, ErrorKind, Rng};
use esker_trace::{Op, Options, Recorder, Recording, Request, Trace, TraceError, Writer};
use proptest::prelude::*;

fn request() -> impl Strategy<Value = Request> {
    let op = prop::sample::select(Op::ALL.to_vec());
    let offset = prop_oneof![
        (0..1u64 << 20).prop_map(|block| block * 4096),
        (0..1u64 << 20).prop_map(|sector| sector * 512),
        0..1u64 << 56,
        Just(0),
    ];
    let length = prop_oneof![Just(4096), (0..300u64).prop_map(|n| n * 512), 0..1u64 << 40, Just(0)];
    let time = prop_oneof![0..1u64 << 20, any::<u64>(), Just(5)];
    (op, offset, length, time, 0..4u32).prop_map(|(op, offset, length, time_ns, device)| {
        let length = length.min((1 << 56) - offset);
        let (offset, length) = if op == Op::Flush { (0, 0) } else { (offset, length) };
        Request { time_ns, offset, length, device, op }
    })
}

const DEVICES: [&str; 4] = ["7,0", "7,1", "", "a device with a name"];

fn write(path: &Path, requests: &[Request]) {
    let mut writer = Writer::create(path).unwrap();
    for device in DEVICES {
        writer.device(device).unwrap();
    }
    for request in requests {
        writer.push(request).unwrap();
    }
    let (_, written) = writer.finish().unwrap();
    assert_eq!(written.requests, requests.len() as u64);
    assert_eq!(written.bytes, fs::metadata(path).unwrap().len());
}

fn read(path: &Path) -> (Vec<Request>, Option<TraceError>, Vec<String>) {
    let mut trace = match Trace::open_file(path) {
        Ok(trace) => trace,
        Err(error) => return (Vec::new(), Some(error), Vec::new()),
    };
    let (mut requests, mut error) = (Vec::new(), None);
    for request in &mut trace {
        match request {
            Ok(request) => requests.push(request),
            Err(found) => error = Some(found),
        }
    }
    assert!(trace.next().is_none());
    (requests, error, trace.remarks())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reader_returns_written_requests(requests in prop::collection::vec(request(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        write(&path, &requests);
        let (found, error, remarks) = read(&path);
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert!(remarks.is_empty(), "{remarks:?}");
        prop_assert_eq!(found, requests);
    }
}

/// Like a program's: mostly small, mostly near each other.
fn plausible(count: usize) -> Vec<Request> {
    let mut rng = Rng::new(7);
    let mut time_ns = 1 << 40;
    (0..count)
        .map(|_| {
            time_ns += rng.below(100_000);
            let op = if rng.chance(2, 3) { Op::Read } else { Op::Write };
            let (offset, length) = (rng.below(1 << 20) * 4096, (1 + rng.below(8)) * 4096);
            Request { time_ns, offset, length, device: 0, op }
        })
        .collect()
}

#[test]
fn many_chunks_are_read_and_a_request_takes_few_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let requests = plausible(50_000);
    write(&path, &requests);
    assert!(fs::metadata(&path).unwrap().len() < 9 * 50_000);
    let (found, error, _) = read(&path);
    assert!(error.is_none() && found == requests);
    let mut trace = Trace::open_file(&path).unwrap();
    let mut batches = Vec::new();
    while trace.next_batch(&mut batches).unwrap() {}
    assert_eq!(batches, requests);
}

#[test]
fn every_flipped_bit_is_noticed_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let requests = plausible(60);
    write(&path, &requests);
    let whole = fs::read(&path).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        let options = Options { format: Some(esker_trace::Format::Compact), ..Options::default() };
        let mut trace = Trace::open(&[&path], &options).unwrap();
        let outcome: Result<Vec<Request>, TraceError> = (&mut trace).collect();
        // A size that was made larger looks like a file that was cut: its header's checksum tells.
        let error = outcome.expect_err(&format!("bit {bit}"));
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn a_file_that_was_cut_is_read_up_to_its_last_whole_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let requests = plausible(20_000);
    write(&path, &requests);
    let whole = fs::read(&path).unwrap();
    for size in [17, 60, 100, 30_000, 60_000, 90_000, whole.len() - 49, whole.len() - 1] {
        fs::write(&path, &whole[..size]).unwrap();
        let (found, error, remarks) = read(&path);
        assert!(error.is_none(), "{size}: {error:?}");
        assert!(found.len() % 8192 == 0 || found.len() == 20_000, "{size}: {}", found.len());
        assert_eq!(found, requests[..found.len()]);
        assert!(remarks[0].contains("no end"), "{remarks:?}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    fs::write(&path, longer).unwrap();
    let (found, error, _) = read(&path);
    assert_eq!(found.len(), requests.len());
    assert!(error.unwrap().to_string().contains("follow the end"));
}

#[test]
fn devices_need_names_and_ranges_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&dir.path().join("t")).unwrap();
    let request = Request { time_ns: 0, offset: 0, length: 1, device: 1, op: Op::Read };
    assert_eq!(writer.device("a").unwrap(), 0);
    assert!(writer.push(&request).unwrap_err().to_string().contains("device 1; 1 have names"));
    let beyond = Request { offset: 1 << 56, device: 0, ..request };
    assert!(writer.push(&beyond).unwrap_err().to_string().contains("64 PiB"));
    assert!(writer.devices(&["b".to_owned(), "a".to_owned()]).is_err());
    assert!(writer.device(&"x".repeat(1 << 16)).is_err());
}

#[test]
fn two_files_are_merged_by_time_and_their_devices_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    let requests = plausible(3000);
    for (index, path) in paths.iter().enumerate() {
        let mut writer = Writer::create(path).unwrap();
        writer.device(["one", "two"][index]).unwrap();
        for request in requests.iter().skip(index).step_by(2) {
            writer.push(request).unwrap();
        }
        writer.finish().unwrap();
    }
    let mut trace = Trace::open(&paths, &Options::default()).unwrap();
    let merged: Vec<Request> = (&mut trace).map(|request| request.unwrap()).collect();
    assert_eq!(trace.devices(), ["one", "two"]);
    assert_eq!(merged.len(), requests.len());
    for (index, (found, expected)) in merged.iter().zip(&requests).enumerate() {
        assert_eq!(*found, Request { device: u32::from(index % 2 == 1), ..*expected });
    }
}

#[test]
fn an_error_in_one_of_two_files_ends_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    fs::write(&paths[0], "0,0,512,R,0.1\n0,0,512,R,0.3\nnonsense\n").unwrap();
    fs::write(&paths[1], "0,0,512,R,0.2\n0,0,512,R,0.4\n").unwrap();
    let options = Options { format: Some(esker_trace::Format::Spc), ..Options::default() };
    let mut trace = Trace::open(&paths, &options).unwrap();
    let mut times = Vec::new();
    let error = loop {
        match trace.next().unwrap() {
            Ok(request) => times.push(request.time_ns / 100_000_000),
            Err(error) => break error,
        }
    };
    assert_eq!(times, [1, 2, 3]);
    assert!(error.to_string().contains("a, line 3"), "{error}");
    assert!(trace.next().is_none());
}

#[test]
fn a_full_recorder_counts_what_it_drops() {
    let clock = Clock::virtual_time();
    let recorder = Recorder::new(clock.clone(), 3);
    for index in 0..5u64 {
        clock.advance(std::time::Duration::from_nanos(10));
        assert_eq!(recorder.record(0, Op::Write, index * 4096, 4096), index < 3);
    }
    assert_eq!(recorder.dropped(), 2);
    let mut requests = Vec::new();
    recorder.drain(&mut requests);
    assert_eq!(requests.iter().map(|r| r.time_ns).collect::<Vec<_>>(), [10, 20, 30]);
    assert!(recorder.record(0, Op::Flush, 0, 0));
    assert!(!recorder.record(0, Op::Read, u64::MAX, 1));
    assert_eq!(recorder.dropped(), 3);
}

#[test]
fn a_recording_of_many_threads_is_whole() {
    const THREADS: u64 = 4;
    const EACH: u64 = 5000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let recording = Recording::start(&path, &["a", "b"], Clock::real(), 1 << 20).unwrap();
    let recorder = recording.recorder();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let recorder = &recorder;
            let run = move || {
                for index in 0..EACH {
                    assert!(recorder.record(1, Op::Write, (thread * EACH + index) * 512, 512));
                }
            };
            esker_base::thread::spawn_scoped(scope, "recording", run).unwrap();
        }
    });
    let written = recording.finish().unwrap();
    assert_eq!((written.requests, written.dropped), (THREADS * EACH, 0));
    assert!(!recorder.record(1, Op::Read, 0, 512));
    let (requests, error, remarks) = read(&path);
    assert!(error.is_none() && remarks.is_empty());
    assert!(requests.is_sorted_by_key(|request| request.time_ns));
    let mut sectors: Vec<u64> = requests.iter().map(|request| request.offset / 512).collect();
    sectors.sort_unstable();
    assert!(sectors.iter().copied().eq(0..THREADS * EACH));
}

#[test]
fn a_recording_that_lost_requests_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let recording = Recording::start(&path, &["a"], Clock::real(), 0).unwrap();
    assert!(!recording.recorder().record(0, Op::Read, 0, 512));
    assert_eq!(recording.finish().unwrap().dropped, 1);
    assert!(read(&path).2[0].contains("1 requests got lost"));
}

#[test]
fn appended_trace_is_one_trace_with_its_devices_and_later_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let at =
        |time_ns, device, offset| Request { time_ns, offset, length: 512, device, op: Op::Read };
    let push = |mut writer: Writer<_>, names: &[&str], requests: &[Request]| {
        for name in names {
            writer.device(name).unwrap();
        }
        requests.iter().for_each(|request| writer.push(request).unwrap());
        writer
    };
    let many: Vec<Request> = (0..9000).map(|n| at(n * 10, 0, n * 512)).collect();
    let mut writer = push(Writer::create_new(&path).unwrap(), &["a"], &many);
    writer.dropped(2);
    let busy = Writer::append(&path).map(drop).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Conflict);
    writer.finish().unwrap();
    assert_eq!(Writer::create_new(&path).map(drop).unwrap_err().kind(), ErrorKind::Exists);

    let mut writer = push(Writer::append(&path).unwrap(), &["b", "a"], &[at(5, 1, 0), at(7, 0, 0)]);
    writer.dropped(3);
    let written = writer.finish().unwrap().1;
    assert_eq!((written.requests, written.dropped), (9002, 5));
    assert!(read(&path).2[0].contains("5 requests got lost"));
    // A recorder that is killed leaves no end.
    let mut writer = push(Writer::append(&path).unwrap(), &["b"], &[at(1, 1, 512)]);
    writer.flush().unwrap();
    drop(writer);
    let writer = push(Writer::append(&path).unwrap(), &["b"], &[]);
    assert_eq!(writer.finish().unwrap().1.requests, 9003);
    let (requests, error, remarks) = read(&path);
    assert!(error.is_none() && remarks.is_empty(), "{error:?} {remarks:?}");
    assert_eq!(requests[..9000], many[..]);
    let last = 8999 * 10;
    assert_eq!(requests[9000..], [at(last + 5, 1, 0), at(last + 7, 0, 0), at(last + 8, 1, 512)]);

    // A file that is no trace, or is damaged, is left as it was.
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    for (content, part) in [(bytes, "checksum"), (b"dear reader".to_vec(), ""), (Vec::new(), "")] {
        fs::write(&path, &content).unwrap();
        let refused = Writer::append(&path).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        assert!(refused.to_string().contains(part), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}
