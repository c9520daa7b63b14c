//! Traces of objects: libCacheSim's csv, text and lcs, Twitter's caches, IBM's object store; and remarks on block traces.

use std::fs;
use std::path::{Path, PathBuf};

use esker_base::ErrorKind;
use esker_trace::{Event, Format, Op, Options, Request, Trace, TraceError};

const UNIT: u64 = 4096;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

/// The format that was found, all requests, and the remarks.
fn read(path: &Path, options: &Options) -> Result<(Format, Vec<Request>, String), TraceError> {
    let mut trace = Trace::open(&[path], options)?;
    let requests = (&mut trace).collect::<Result<Vec<Request>, _>>()?;
    Ok((trace.format(), requests, trace.remarks().join("\n")))
}

fn found(path: &Path) -> (Format, Vec<Request>, String) {
    read(path, &Options::default()).unwrap()
}

fn ops(requests: &[Request]) -> Vec<Op> {
    requests.iter().map(|one| one.op).collect()
}

#[test]
fn csv_is_read_by_its_header_in_any_order() {
    let folder = Folder::new();
    let text = "version,time,op,size,lbn\n1,5,28,512,40\n1,5.5,2a,6656,41\n1,7,zz,512,40\n";
    let (format, requests, remarks) = found(&folder.file("a.csv", text));
    assert_eq!((format, ops(&requests)), (Format::Csv, vec![Op::Read, Op::Write, Op::Read]));
    assert_eq!((requests[1].offset, requests[1].length), (41 * UNIT, UNIT));
    assert_eq!(requests[1].time_ns - requests[0].time_ns, 500_000_000);
    assert_eq!(requests[0].offset, requests[2].offset);
    for part in ["sizes of objects do not count", "4.00 KiB", "512 B", "6.50 KiB", "'zz'"] {
        assert!(remarks.contains(part), "no '{part}' in {remarks}");
    }
}

#[test]
fn csv_has_columns_by_name_or_the_usual_ones_and_ids_of_text() {
    let folder = Folder::new();
    let path = folder.file("a.csv", "1,obj-a,100,-1\n2,obj-b,200,9\n3,obj-a,100,-1\n");
    let (format, requests, remarks) = found(&path);
    assert_eq!((format, requests.len()), (Format::Csv, 3));
    assert!(requests[0].offset == requests[2].offset && requests[0].offset != requests[1].offset);
    assert!(remarks.contains("taken to be time=1,id=2,size=3"), "{remarks}");

    let path = folder.file("b.csv", "x;7;2;get\nx;8;3;set\nx;7;4;delete\n");
    let columns = Some("time-col=3, obj-id-col=2, op-col=4".parse().unwrap());
    let options = Options { format: Some(Format::Csv), columns, ..Options::default() };
    let (_, requests, remarks) = read(&path, &options).unwrap();
    assert_eq!(ops(&requests), [Op::Read, Op::Write, Op::Discard]);
    assert_eq!((requests[1].offset, requests[1].time_ns), (8 * UNIT, 3_000_000_000));
    assert_eq!(remarks, "", "no size is named");
    for wrong in ["time=1", "id=0", "id", "id=1,where=2"] {
        let why = wrong.parse::<esker_trace::Columns>().unwrap_err();
        assert!(why.contains("time=1,id=2"), "{why}");
    }
}

#[test]
fn ids_alone_are_read_where_they_are_numbers_or_the_format_is_named() {
    let folder = Folder::new();
    let (format, requests, _) = found(&folder.file("a.txt", "42932745\n42932746\n42932745\n"));
    assert_eq!((format, requests[0].offset), (Format::Text, 42_932_745 * UNIT));
    let path = folder.file("b.txt", "one\ntwo\none\n");
    assert!(read(&path, &Options::default()).is_err());
    let options = Options { format: Some(Format::Text), ..Options::default() };
    let (_, requests, _) = read(&path, &options).unwrap();
    assert!(requests[0].offset == requests[2].offset && requests[0].offset != requests[1].offset);
}

#[test]
fn caches_of_twitter_are_read_with_commas_in_keys() {
    let folder = Folder::new();
    let text = "0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n1,a,b,3,10,4,set,600\n2,a,b,3,0,9,delete,0\n";
    let (format, requests, remarks) = found(&folder.file("cluster.csv", text));
    assert_eq!((format, ops(&requests)), (Format::Twitter, vec![Op::Read, Op::Write, Op::Discard]));
    assert!(requests[1].offset == requests[2].offset && requests[0].offset != requests[1].offset);
    assert!(remarks.contains("from 3 B to 230 B"), "{remarks}");
}

#[test]
fn object_store_of_ibm_is_read_and_its_ranges_are_told() {
    let folder = Folder::new();
    let text = "1219008 REST.PUT.OBJECT 8d4fcda3d675bac9 1056\n\
                1221974 REST.HEAD.OBJECT 39d177fb735ac5df 528\n\
                1232437 REST.GET.OBJECT 8d4fcda3d675bac9 1056 528 1055\n\
                1232488 REST.DELETE.OBJECT 8d4fcda3d675bac9\n";
    let (format, requests, remarks) = found(&folder.file("IBMObjectStoreTrace000Part0", text));
    assert_eq!(format, Format::ObjectStore);
    assert_eq!(ops(&requests), [Op::Write, Op::Read, Op::Discard]);
    assert_eq!(requests[1].time_ns, 1_232_437_000_000);
    for part in ["1 HEAD requests", "1 requests name a range", "1.03 KiB"] {
        assert!(remarks.contains(part), "no '{part}' in {remarks}");
    }
}

fn lcs(version: u64, records: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    let magic = 0x1234_5678_9abc_def0u64.to_le_bytes();
    bytes[..8].copy_from_slice(&magic);
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes[8184..].copy_from_slice(&magic);
    bytes.extend_from_slice(records);
    bytes
}

/// A record of any version: seconds, object, size, operation.
fn record(version: u64, seconds: u32, object: u64, size: u32, op: u32) -> Vec<u8> {
    let mut bytes = [&seconds.to_le_bytes()[..], &object.to_le_bytes()].concat();
    bytes.extend(size.to_le_bytes());
    if version >= 3 {
        bytes.extend([0; 4]);
    }
    if version >= 2 {
        bytes.extend((op | 77 << 8).to_le_bytes());
    }
    if version >= 3 {
        bytes.extend(600u32.to_le_bytes());
    }
    bytes.extend((-1i64).to_le_bytes());
    let features = [0, 0, 0, 0, 4, 8, 16, 32, 64][usize::try_from(version).unwrap()];
    bytes.extend(vec![0; features]);
    bytes
}

#[test]
fn lcs_of_every_version_is_read() {
    let folder = Folder::new();
    for version in 1..=8 {
        let records: Vec<u8> = [(1, 9, 100, 1), (2, u64::MAX, 70_000, 3), (4, 9, 100, 9)]
            .iter()
            .flat_map(|&(seconds, object, size, op)| record(version, seconds, object, size, op))
            .collect();
        let path = folder.file("a.lcs", lcs(version, &records));
        let (format, requests, remarks) = found(&path);
        assert_eq!((format, requests.len()), (Format::Lcs, 3), "{version}");
        assert_eq!((requests[0].offset, requests[2].time_ns), (9 * UNIT, 4_000_000_000));
        let expected = [Op::Read, Op::Write, Op::Discard];
        let expected = if version == 1 { [Op::Read; 3] } else { expected };
        assert_eq!(ops(&requests), expected, "{version}");
        assert!(remarks.contains("from 100 B to 68.36 KiB"), "{remarks}");
    }
    let fails =
        |content: Vec<u8>| read(&folder.file("b.lcs", content), &Options::default()).unwrap_err();
    let old = fails(lcs(u64::from_le_bytes(*b"<IQIQ\0\0\0"), &[]));
    assert_eq!(old.kind(), ErrorKind::Unsupported);
    assert!(old.to_string().contains("versions 1 to 8"), "{old}");
    let cut = fails(lcs(2, &[0; 30])).to_string();
    assert!(cut.contains("byte 8220: 2 bytes are left"), "{cut}");
    let short = fails(lcs(2, &[])[..100].to_vec()).to_string();
    assert!(short.contains("no header of 8192"), "{short}");
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

#[test]
fn commands_that_are_passed_through_are_no_reads() {
    let folder = Folder::new();
    let mut bytes = fs::read(sample("sample.blktrace.0")).unwrap();
    let whole = found(&folder.file("a", &bytes)).1.len();
    let (mut at, mut marked) = (0, 0);
    while at < bytes.len() {
        let action = u32::from_le_bytes(bytes[at + 28..at + 32].try_into().unwrap());
        if action & 0xffff == 1 && marked < 2 {
            bytes[at + 31] |= 1 << 1; // bit 9 of the upper half
            marked += 1;
        }
        at += 48 + usize::from(u16::from_le_bytes([bytes[at + 46], bytes[at + 47]]));
    }
    let (_, requests, remarks) = found(&folder.file("b", &bytes));
    assert_eq!(requests.len(), whole - marked);
    assert!(remarks.contains("2 events pass SCSI commands through"), "{remarks}");

    let mut text = String::from_utf8(fs::read(sample("sample.blkparse")).unwrap()).unwrap();
    let whole = found(&sample("sample.blkparse")).1.len();
    text.insert_str(
        0,
        "  8,16   0        1     0.000000001   99  Q   R 36 (12 00 00 00 24 00) [hald]\n",
    );
    let (_, requests, remarks) = found(&folder.file("c", text));
    assert_eq!(requests.len(), whole);
    assert!(remarks.contains("1 events pass SCSI commands through"), "{remarks}");
}

#[test]
fn events_that_are_not_there_are_told() {
    let folder = Folder::new();
    let text = fs::read_to_string(sample("sample.blkparse")).unwrap();
    let text: String = text
        .lines()
        .filter(|line| !line.contains("  Q "))
        .map(|line| format!("{line}\n"))
        .collect();
    let path = folder.file("a", text);
    let (_, requests, remarks) = found(&path);
    assert_eq!(requests.len(), 0);
    assert!(remarks.contains("queue (Q)") && remarks.contains("12 of issue"), "{remarks}");
    let options = Options { event: Event::Issue, ..Options::default() };
    let (_, requests, remarks) = read(&path, &options).unwrap();
    assert_eq!((requests.len(), &remarks[..]), (12, ""));
}

#[test]
fn files_of_processors_that_are_missing_unread_or_empty_are_told() {
    let folder = Folder::new();
    let [zero, one] =
        ["sample.blktrace.0", "sample.blktrace.1"].map(|name| fs::read(sample(name)).unwrap());
    let remarks = |paths: &[&PathBuf]| {
        let mut trace = Trace::open(paths, &Options::default()).unwrap();
        assert!(trace.all(|request| request.is_ok()));
        trace.remarks().join("\n")
    };
    let first = folder.file("t.blktrace.0", &zero);
    assert!(remarks(&[&first]).contains("of one processor alone"));
    let third = folder.file("t.blktrace.2", &one);
    let told = remarks(&[&first]);
    assert!(told.contains("(2) lie beside it") && told.contains("t to read all"), "{told}");
    let told = remarks(&[&first, &third]);
    assert!(told.contains("no file of processor 1"), "{told}");
    let second = folder.file("t.blktrace.1", "");
    let told = remarks(&[&first, &second, &third]);
    assert!(told.contains("t.blktrace.1 is empty") && told.lines().count() == 1, "{told}");
}
