//! An annotated dump of a small trace, byte by byte, and the edges of the coding.
//!
//! The dump walks the fields by the tables of the format and not by the decoder.

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::Writer;

#[test]
fn zigzag_is_one_to_one() {
    for value in [0, 1, u64::MAX, 1 << 63, 12345, 0u64.wrapping_sub(12345)] {
        assert_eq!(unzigzag(zigzag(value)), value);
    }
    assert_eq!([zigzag(1), zigzag(u64::MAX), zigzag(2)], [2, 1, 4]);
}

#[test]
fn a_number_has_64_bits_at_most() {
    let ending = |last: u8| {
        let mut payload = [0x80; 10];
        payload[9] = last;
        varint(&payload, &mut 0).ok()
    };
    assert_eq!(ending(1), Some(1 << 63));
    assert_eq!([ending(2), ending(3), ending(0x7f), ending(0x81)], [None; 4]);
}

/// Each part of a request in each of its forms.
fn requests() -> Vec<Request> {
    let request =
        |time_ns, op, offset, length, device| Request { time_ns, offset, length, device, op };
    vec![
        request(1000, Op::Read, 8192, 4096, 0),
        request(3000, Op::Read, 12_288, 4096, 0),
        request(5000, Op::Write, 1024, 1536, 1),
        request(4000, Op::Flush, 0, 0, 1),
        request(4000, Op::Discard, 7, 13, 0),
        request(4000, Op::Write, 20, 1536, 0),
    ]
}

fn file() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Path::new("golden")).unwrap();
    writer.devices(&["7,0".to_owned(), "7,1".to_owned()]).unwrap();
    requests().iter().for_each(|request| writer.push(request).unwrap());
    writer.dropped(3);
    writer.finish().unwrap().0
}

struct Dump<'a> {
    bytes: &'a [u8],
    at: usize,
    text: String,
}

impl Dump<'_> {
    fn part(&mut self, title: &str) {
        writeln!(self.text, "\n# {title}").unwrap();
    }

    /// The next `size` bytes are a field; a number of them has its value as its meaning.
    fn field(&mut self, size: usize, name: &str, meaning: &str) -> u64 {
        let bytes = &self.bytes[self.at..self.at + size];
        let mut raw = [0; 8];
        raw[..size].copy_from_slice(bytes);
        let value = u64::from_le_bytes(raw);
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown =
            if name.ends_with("crc") { format!("{value:#010x}") } else { value.to_string() };
        let line = format!("{:04x}  {:<23}  {name:<12}  {shown} {meaning}", self.at, hex.join(" "));
        writeln!(self.text, "{}", line.trim_end()).unwrap();
        self.at += size;
        value
    }

    fn text(&mut self, size: usize, name: &str) {
        let bytes = self.bytes[self.at..self.at + size].to_vec();
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = String::from_utf8(bytes).unwrap();
        writeln!(self.text, "{:04x}  {:<23}  {name:<12}  '{text}'", self.at, hex.join(" "))
            .unwrap();
        self.at += size;
    }

    fn varint(&mut self, name: &str, meaning: &str) {
        let size = self.bytes[self.at..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let mut value = 0u64;
        for (index, byte) in self.bytes[self.at..self.at + size].iter().enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
        }
        let hex: Vec<String> =
            self.bytes[self.at..self.at + size].iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = match name {
            "time" | "offset" if value % 2 == 1 => format!("-{}", value / 2 + 1),
            "time" | "offset" => (value / 2).to_string(),
            _ => value.to_string(),
        };
        let line = format!("{:04x}  {:<23}  {name:<12}  {shown} {meaning}", self.at, hex.join(" "));
        writeln!(self.text, "{}", line.trim_end()).unwrap();
        self.at += size;
    }

    fn header(&mut self, title: &str) -> u64 {
        self.part(title);
        self.text(4, "magic");
        self.field(1, "kind", "");
        self.field(3, "reserved", "");
        self.field(8, "offset", "of this chunk");
        self.field(4, "size", "bytes of payload");
        let count = self.field(4, "count", "");
        self.field(8, "first", "");
        self.field(4, "payload crc", "");
        self.field(4, "crc", "of the 36 bytes before");
        count
    }
}

fn dump(bytes: &[u8]) -> String {
    let mut d = Dump { bytes, at: 0, text: String::from("# The header of the file\n") };
    d.text(8, "magic");
    d.field(2, "version", "");
    d.field(2, "reserved", "");
    d.field(4, "crc", "of the 12 bytes before");
    let count = d.header("Devices");
    for _ in 0..count {
        let size = d.field(2, "size", "bytes");
        d.text(to_usize(size), "name");
    }
    let count = d.header("Requests");
    for _ in 0..count {
        let control = u8::try_from(d.field(1, "control", "")).unwrap();
        if control & 0x40 != 0 {
            d.varint("device", "");
        }
        if control & 0x80 != 0 {
            d.varint("time", "ns after the last one");
        }
        let units =
            ["", "x 4096 from the last end", "x 512 from the last end", "bytes from the last end"];
        if control >> 4 & 3 != 0 {
            d.varint("offset", units[usize::from(control >> 4 & 3)]);
        }
        match control >> 2 & 3 {
            2 => d.varint("length", "x 512"),
            3 => d.varint("length", "bytes"),
            _ => {}
        }
    }
    d.header("End");
    d.field(8, "dropped", "requests");
    assert_eq!(d.at, bytes.len());
    d.text
}

#[test]
fn a_small_trace_has_these_bytes() {
    let (bytes, path) = (file(), Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/trace.txt"));
    let dump = dump(&bytes);
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &dump).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(golden == dump, "the format changed; a released one keeps its version:\n{dump}");
    // Every later build reads the bytes that the dump shows.
    let hex = golden.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let shown: Vec<u8> = hex
        .flat_map(|line| line[6..29].split_whitespace())
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("golden");
    std::fs::write(&path, shown).unwrap();
    let mut trace = crate::Trace::open_file(&path).unwrap();
    let found: Vec<Request> = (&mut trace).map(|request| request.unwrap()).collect();
    assert_eq!(found, requests());
    assert_eq!(trace.devices(), ["7,0", "7,1"]);
    assert!(trace.remarks()[0].contains("3 requests got lost"));
}

#[test]
fn payloads_that_make_no_sense_are_refused() {
    let header = |count| ChunkHeader {
        kind: ChunkKind::Requests,
        offset: 0,
        size: 0,
        count,
        first: 0,
        payload_crc: 0,
    };
    let decode = |payload: &[u8], count| {
        decode_requests(payload, &header(count), 1, &mut Vec::new()).unwrap_err()
    };
    assert!(decode(&[], 1).contains("behind its payload"));
    assert!(decode(&[0x80], 1).contains("behind its payload"));
    assert!(decode(&[0x40, 9], 1).contains("device 9; 1 have names"));
    assert!(decode(&[0x07], 1).contains("a flush with a range"));
    assert!(decode(&[0x00, 0x00], 1).contains("follow the last request"));
    assert!(
        decode(&[0x80, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], 1).contains("64 bits")
    );
    assert!(decode(&[0x30, 1], 1).contains("64 PiB"));
    assert!(decode(&[0x00], u32::MAX).contains("behind its payload"));
    let mut e = RequestEncoder::new(0);
    e.push(&Request { time_ns: 0, offset: 0, length: 0, device: 0, op: Op::Read });
    let (head, payload) = e.finish(16);
    assert_eq!((head.count, payload.len()), (1, 1));
    assert!(ChunkHeader::decode(&head.encode(), 17).unwrap_err().contains("belongs at byte 16"));
}
