//! The format does not change: every structure against an annotated dump of its bytes, and against forged bytes, their
//! checksums mended.
//!
//! The dumps in `testdata/` are walked by tables of the format and not by the decoders, so that an
//! encoder and a decoder that change together are noticed. `ESKER_UPDATE_GOLDEN=1` writes them anew.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::{Device, MemoryDevice, Port};

use super::*;
use crate::timing::HostQueues;
use crate::{Pace, Ssd};

/// A field: its size, its name, and a remark.
type Field = (usize, &'static str, &'static str);

/// Walks the fields of a structure and writes a line for each.
struct Dump<'a> {
    bytes: &'a [u8],
    at: usize,
    text: String,
}

impl<'a> Dump<'a> {
    fn new(title: &str, bytes: &'a [u8]) -> Dump<'a> {
        Dump { bytes, at: 0, text: format!("# {title}\n") }
    }

    /// The next fields, and the value of the last one.
    fn fields(&mut self, fields: &[Field]) -> u64 {
        let mut value = 0;
        for &(size, name, note) in fields {
            let bytes = &self.bytes[self.at..self.at + size];
            for (part, at) in bytes.chunks(16).zip((self.at..).step_by(16)) {
                let hex: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
                let (name, shown) = if at > self.at {
                    ("", String::new())
                } else if note == "text" {
                    (name, format!("\"{}\"", bytes.escape_ascii()))
                } else if note == "zeroes" {
                    assert!(bytes.iter().all(|&byte| byte == 0));
                    ("", "0".to_owned())
                } else {
                    let mut raw = [0; 8];
                    raw[..size.min(8)].copy_from_slice(&bytes[..size.min(8)]);
                    value = u64::from_le_bytes(raw);
                    (name, format!("{value} {note}"))
                };
                let line = format!("{at:04x}  {:<47}  {name:<22}  {shown}", hex.join(" "));
                writeln!(self.text, "{}", line.trim_end()).unwrap();
            }
            self.at += size;
        }
        value
    }

    fn part(&mut self, title: &str) {
        writeln!(self.text, "\n# {title}").unwrap();
    }

    /// The rest, or all before `end`, is zero.
    fn zeroes(&mut self, end: usize) {
        let left = &self.bytes[self.at..end];
        assert!(left.iter().all(|&byte| byte == 0), "only zeroes are left");
        writeln!(self.text, "{:04x}  00 times {:<38}  padding", self.at, left.len()).unwrap();
        self.at = end;
    }
}

/// The bytes that a dump shows.
fn bytes_of(dump: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in dump.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let shown = line[6..].split("  ").next().unwrap();
        match shown.strip_prefix("00 times ") {
            Some(count) => bytes.resize(bytes.len() + count.trim().parse::<usize>().unwrap(), 0),
            None => bytes
                .extend(shown.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap())),
        }
    }
    bytes
}

/// Compares a dump with the one in `testdata/`, and returns the bytes of that.
fn check(name: &str, bytes: &[u8], dump: &str) -> Vec<u8> {
    assert_eq!(bytes_of(dump), bytes, "{name}: the dump shows all bytes");
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata", name].iter().collect();
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, dump).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; ESKER_UPDATE_GOLDEN=1 writes it", path.display())
    });
    assert!(
        golden == dump,
        "{name}: the format changed. Images that were released stay readable: give it a new \
         version (docs/format/ssd.md). ESKER_UPDATE_GOLDEN=1 writes the dump anew:\n{dump}"
    );
    bytes_of(&golden)
}

fn parameters() -> Parameters {
    let configuration =
        Configuration { groups: 1, handles: vec![Isolation::Initially, Isolation::Persistently] };
    Parameters {
        capacity: 1 << 20,
        lba_size: 512,
        page_size: 4096,
        nand_page_size: 8192,
        program_size: 16 << 10,
        unit_size: 64 << 10,
        units: 32,
        channels: 2,
        dies: 4,
        media: Media::Flash,
        cleaning: Cleaning::Choices(5),
        frontier: Frontier::Separate,
        pace: CleaningPace::Steady,
        wear_spread: Some(20),
        rated_erasures: 3000,
        configurations: vec![configuration],
        max_namespaces: 4,
        timing: Timing {
            read_ns: 50_000,
            program_ns: 600_000,
            erase_ns: 3_000_000,
            cache_register: true,
            channel_bytes_per_s: 800_000_000,
            copy_bytes_per_s: 2_500_000_000,
            link_read_bytes_per_s: 3_000_000_000,
            link_write_bytes_per_s: 2_000_000_000,
            read_firmware_ns: 5_000,
            write_firmware_ns: 6_000,
            commands_per_s: 1_000_000,
            host_ns: 700,
            buffer_bytes: 1 << 20,
            reads_overtake: true,
            suspension: Some(Suspension { overhead_ns: 8_000, most: 3 }),
            host_queues: Some(HostQueues {
                window: 64,
                in_flight: 5,
                cached_pages: 16,
                copy_bytes_per_s: 4_000_000_000,
            }),
        },
    }
}

pub(crate) fn superblock() -> Superblock {
    Superblock { sequence: 7, epoch: 8, slot: 1, name: "scratch".into(), parameters: parameters() }
}

pub(crate) fn checkpoint() -> Checkpoint {
    let unit = |phase, writer, next| UnitRecord { phase, writer, erasures: 2, closed_at: 30, next };
    Checkpoint {
        configuration: Some(0),
        counts: PageCounts { host: 40, copied: 6, erased: 16, trimmed: 3 },
        host: HostCounts { reads: 7, writes: 5, read_bytes: 28_000, written_bytes: 150_000 },
        since: Totals { host: 4096, media: 8192, erased: 65_536 },
        namespaces: vec![NamespaceRecord {
            id: 1,
            birth: 0,
            pages: Extent { first: LogicalPage(16), count: 32 },
            handles: vec![1, 0],
            is_host_specified: true,
        }],
        units: vec![
            unit(Phase::Closed, Writer::Host(1), 0),
            unit(Phase::Open, Writer::CleaningOf(1), 5),
            unit(Phase::Free, Writer::Cleaning, 0),
        ],
        map: [3, u32::MAX, 17].map(MediaPage).to_vec(),
        dies: vec![2, u16::MAX],
    }
}

pub(crate) fn frame() -> Frame {
    let events = vec![
        Event::Open { unit: UnitId(2), writer: Writer::Host(1) },
        Event::Program { page: LogicalPage(16), at: MediaPage(32), count: 4 },
        Event::Copy { page: LogicalPage(20), at: MediaPage(21), count: 1 },
        Event::Close { unit: UnitId(2) },
        Event::Erase { unit: UnitId(0) },
        Event::Trim { page: LogicalPage(18), count: 2 },
        Event::Place { stripe: 9, die: 3 },
    ];
    let host = HostCounts { reads: 9, writes: 6, read_bytes: 36_000, written_bytes: 160_000 };
    Frame { epoch: 8, index: 3, commit: 2, host, events }
}

#[test]
fn the_superblock_has_these_bytes() {
    let bytes = superblock().encode().unwrap();
    let mut d = Dump::new("Superblock", &bytes);
    let name = d.fields(&[
        (8, "magic", "text"),
        (4, "version", ""),
        (8, "sequence", ""),
        (8, "epoch", ""),
        (1, "slot", ""),
        (2, "name_size", "bytes"),
    ]);
    d.fields(&[(to_usize(name), "name", "text")]);
    d.part("Parameters");
    let configurations = d.fields(&[
        (8, "capacity", "bytes"),
        (4, "lba_size", "bytes"),
        (4, "page_size", "bytes"),
        (4, "nand_page_size", "bytes"),
        (4, "program_size", "bytes"),
        (8, "unit_size", "bytes"),
        (4, "units", ""),
        (4, "channels", ""),
        (4, "dies", ""),
        (1, "media", "flash"),
        (1, "cleaning", "choices"),
        (4, "choices", ""),
        (1, "frontier", "separate"),
        (1, "pace", "steady"),
        (1, "is_levelled", ""),
        (4, "wear_spread", "erasures"),
        (4, "rated_erasures", ""),
        (4, "max_namespaces", ""),
        (2, "configurations", ""),
    ]);
    for _ in 0..configurations {
        let handles = d.fields(&[(2, "groups", ""), (2, "handles", "")]);
        for _ in 0..handles {
            d.fields(&[(1, "isolation", "(1 initially, 2 persistently)")]);
        }
    }
    d.part("Timing");
    d.fields(&[
        (8, "read", "ns"),
        (8, "program", "ns"),
        (8, "erase", "ns"),
        (8, "channel", "bytes/s"),
        (8, "link_read", "bytes/s"),
        (8, "link_write", "bytes/s"),
        (8, "read_firmware", "ns"),
        (8, "write_firmware", "ns"),
        (8, "commands", "/s"),
        (8, "host", "ns"),
        (8, "buffer", "bytes"),
        (8, "suspension_overhead", "ns"),
        (4, "suspensions", "at most"),
        (1, "may_suspend", ""),
        (1, "cache_register", ""),
        (1, "reads_overtake", ""),
        (1, "has_host_queues", ""),
        (4, "window", "reads"),
        (4, "in_flight", "reads"),
        (4, "cached_pages", ""),
        (8, "copy", "bytes/s"),
        (8, "cleaning_copy", "bytes/s"),
        (4, "crc", "of all bytes before"),
    ]);
    d.zeroes(BLOCK);
    let golden = check("superblock.txt", &bytes, &d.text);
    assert_eq!(Superblock::decode(&golden).unwrap(), superblock());
}

#[test]
fn the_checkpoint_has_these_bytes() {
    let bytes = checkpoint().encode(8).unwrap();
    let mut d = Dump::new("Checkpoint of three units and three pages", &bytes);
    let namespaces = d.fields(&[
        (8, "magic", "text"),
        (8, "epoch", ""),
        (8, "size", "bytes, the checksum included"),
        (4, "configuration", ""),
        (8, "host_pages", ""),
        (8, "copied_pages", ""),
        (8, "erased_pages", ""),
        (8, "trimmed_pages", ""),
        (8, "host_bytes", ""),
        (8, "since.host", "bytes"),
        (8, "since.media", "bytes"),
        (8, "since.erased", "bytes"),
        (4, "namespaces", ""),
    ]);
    for _ in 0..namespaces {
        d.part("Namespace");
        let handles = d.fields(&[
            (4, "id", ""),
            (4, "first_page", ""),
            (4, "pages", ""),
            (1, "is_host_specified", ""),
            (2, "handles", ""),
        ]);
        for _ in 0..handles {
            d.fields(&[(2, "handle", "")]);
        }
    }
    d.part("Units");
    let units = d.fields(&[(4, "units", "")]);
    for _ in 0..units {
        d.fields(&[
            (1, "phase", "(0 free, 1 open, 2 closed)"),
            (1, "writer", "(0 host, 1 cleaning, 2 cleaning of a handle)"),
            (2, "handle", ""),
            (4, "erasures", ""),
            (8, "closed_at", "host pages"),
            (4, "next", "page"),
        ]);
    }
    d.part("Map");
    let pages = d.fields(&[(4, "pages", "")]);
    for _ in 0..pages {
        d.fields(&[(4, "media_page", "")]);
    }
    d.part("Dies of stripes");
    let stripes = d.fields(&[(4, "stripes", "")]);
    for _ in 0..stripes {
        d.fields(&[(2, "die", "")]);
    }
    d.part("Commands of the host");
    d.fields(&[(8, "reads", ""), (8, "writes", ""), (8, "read_bytes", "")]);
    d.fields(&[(4, "crc", "of all bytes before")]);
    d.zeroes(BLOCK);
    let golden = check("checkpoint.txt", &bytes, &d.text);
    assert_eq!(Checkpoint::decode(&golden, 8).unwrap(), checkpoint());
    assert_eq!(Checkpoint::size(&golden, 8).unwrap(), 231);
}

#[test]
fn the_frame_has_these_bytes() {
    let bytes = frame().encode();
    let mut d = Dump::new("Frame with an event of every kind", &bytes);
    d.fields(&[
        (4, "magic", "text"),
        (4, "index", ""),
        (8, "epoch", ""),
        (8, "host_bytes", ""),
        (4, "events", ""),
        (4, "commit", ""),
        (8, "reads", ""),
        (8, "writes", ""),
        (8, "read_bytes", ""),
        (8, "", "zeroes"),
    ]);
    d.part("Open");
    d.fields(&[(1, "kind", ""), (1, "writer", ""), (2, "handle", ""), (4, "unit", "")]);
    d.fields(&[(8, "", "zeroes")]);
    for kind in ["Program", "Copy", "Close", "Erase", "Trim", "Place"] {
        d.part(kind);
        let (first, second) = match kind {
            "Close" | "Erase" => ("unit", "media_page"),
            "Place" => ("stripe", "die"),
            _ => ("page", "media_page"),
        };
        d.fields(&[(1, "kind", ""), (3, "", "zeroes"), (4, first, "")]);
        d.fields(&[(4, second, ""), (4, "count", "")]);
    }
    d.part("To the end of the block");
    d.zeroes(BLOCK - 4);
    d.fields(&[(4, "crc", "of all bytes before")]);
    let golden = check("frame.txt", &bytes, &d.text);
    assert_eq!(Frame::decode(&golden, 8, 3).unwrap().unwrap(), frame());
    for (epoch, index) in [(7, 3), (9, 3), (8, 2), (8, 4)] {
        assert_eq!(Frame::decode(&golden, epoch, index).unwrap(), None);
    }
}

#[test]
fn a_full_frame_has_all_its_events() {
    let events = vec![
        Event::Program { page: LogicalPage(1), at: MediaPage(2), count: u32::MAX };
        FRAME_EVENTS
    ];
    let full = Frame { epoch: 1, index: 0, commit: 0, host: HostCounts::default(), events };
    assert_eq!(full.encode().len(), BLOCK);
    assert_eq!(Frame::decode(&full.encode(), 1, 0).unwrap(), Some(full));
}

#[test]
fn the_largest_checkpoint_fits_its_slot() {
    let parameters = parameters();
    let pages = parameters.logical_pages().unwrap();
    let namespace = NamespaceRecord { handles: vec![0; 128], ..checkpoint().namespaces[0].clone() };
    let largest = Checkpoint {
        namespaces: vec![namespace; parameters.max_namespaces as usize],
        units: vec![checkpoint().units[0]; parameters.units as usize],
        map: vec![MediaPage(0); pages as usize],
        dies: vec![0; (parameters.units * parameters.unit_stripes()) as usize],
        ..checkpoint()
    };
    let most = Checkpoint::most_bytes(&parameters, pages);
    assert!(to_u64(largest.encode(1).unwrap().len()) <= most);
}

/// An image that a stranger made, with right checksums, opens as an error or a drive.
#[test]
fn an_image_of_somebody_else_is_opened_or_refused_and_nothing_worse() {
    let parameters = parameters();
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("hostile", bytes, 4096));
    let ssd = Ssd::create("hostile", &parameters, device.clone(), Pace::untimed()).unwrap();
    let id = ssd.create_namespace(256 << 10, None).unwrap();
    let namespace = ssd.namespace(id).unwrap();
    let mut port = Port::open(&namespace, 1).unwrap();
    for n in 0..60u64 {
        port.write(Lba(n * 56 % 512), AlignedBuf::zeroed(4096), None).unwrap();
        port.flush().unwrap();
    }
    drop((port, namespace, ssd));
    let mut port = Port::open(&*device, 1).unwrap();
    let mut block =
        |number: u64| port.read(Lba(number), AlignedBuf::zeroed(BLOCK)).unwrap().to_vec();
    let found = Superblock::decode(&block(0)).unwrap();
    let layout_slot = Checkpoint::most_bytes(&parameters, 256) / BLOCK as u64;
    let slot = 2 + u64::from(found.slot) * layout_slot;
    let journal = 2 + 2 * layout_slot;
    let sound: Vec<(u64, Vec<u8>)> =
        [0, 1, slot, journal, journal + 1, journal + 2].map(|at| (at, block(at))).to_vec();
    let mut write = |number: u64, bytes: &[u8]| {
        port.write(Lba(number), AlignedBuf::padded(bytes, BLOCK), None).unwrap();
    };
    let superblock_size = found.encode().unwrap().iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let checkpoint_size = to_usize(Checkpoint::size(&sound[2].1, found.epoch).unwrap());
    let mut rng = Rng::new(12);
    let (mut opened, mut refused) = (0, 0);
    for round in 0..6000 {
        for (number, bytes) in &sound {
            write(*number, bytes);
        }
        let (at, size) = match round % 3 {
            0 => (0, superblock_size - 4),
            1 => (2, checkpoint_size - 4),
            _ => (3 + round % 2, BLOCK - 4),
        };
        let (number, mut bytes) = sound[at].clone();
        for _ in 0..1 + rng.below(3) {
            let span = if at >= 3 { 160 } else { to_u64(size) };
            let extreme = [0, 1, 0x7f, 0x80, 0xff, rng.u64().to_le_bytes()[0]];
            let many = to_usize(1 + rng.below(8));
            let from = to_usize(8 + rng.below(span - 16));
            let value = extreme[to_usize(rng.below(6))];
            bytes[from..from + many].fill(value);
        }
        let crc = crc32c(&bytes[..size]);
        bytes[size..size + 4].copy_from_slice(&crc.to_le_bytes());
        write(number, &bytes);
        if at == 0 {
            write(1, &bytes);
        }
        match Ssd::open(device.clone(), Pace::untimed()) {
            Ok(ssd) => {
                opened += 1;
                for id in ssd.namespaces() {
                    let namespace = ssd.namespace(id).unwrap();
                    let mut port = Port::open(&namespace, 1).unwrap();
                    let lba_size = namespace.geometry().lba_size;
                    port.read(Lba(0), AlignedBuf::zeroed(lba_size as usize)).unwrap();
                }
                drop(ssd.report());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(opened > 500 && refused > 500, "{opened} opened, {refused} refused");
}
