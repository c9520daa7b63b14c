//! Formats of fixed records: vscsi, oracleGeneral, block numbers.
//!
//! Each has a table of its fields here, with the source. All are little-endian.

use crate::decode::{BATCH, Decode, Options};
use crate::error::{Result, TraceError};
use crate::format::Format;
use crate::input::Input;
use crate::names::Names;
use crate::read::objects::{Object, Objects};
use crate::request::{Op, Request};

/// The decoder of a binary format.
pub(crate) fn decoder(format: Format, input: Input, options: &Options) -> Box<dyn Decode> {
    let unit = options.unit(format);
    let name = input.name();
    match format {
        Format::Vscsi => Box::new(Vscsi { input, name, version: None }),
        Format::OracleGeneral => {
            let record = OracleGeneral { objects: Objects::new(unit) };
            Box::new(Records { input, name, format, record })
        }
        _ => Box::new(Records { input, name, format, record: BlockNumbers { unit, seen: 0 } }),
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A record of constant size that is a request.
trait Record: Send {
    const SIZE: usize;

    fn request(&mut self, bytes: &[u8], device: u32) -> Result<Request, String>;

    /// Says how its objects and their sizes count.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// Requests from records of constant size.
struct Records<R> {
    input: Input,
    name: String,
    format: Format,
    record: R,
}

impl<R: Record> Decode for Records<R> {
    fn decode(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<bool> {
        records(&mut self.input, &mut self.record, &self.name, self.format, names, batch)
    }

    fn input(&self) -> Option<&Input> {
        Some(&self.input)
    }

    fn remarks(&self) -> Vec<String> {
        let path = self.input.path().display();
        self.record.remark().map(|remark| format!("{path}: {remark}")).into_iter().collect()
    }
}

fn records<R: Record>(
    input: &mut Input,
    record: &mut R,
    name: &str,
    format: Format,
    names: &mut Names,
    batch: &mut Vec<Request>,
) -> Result<bool> {
    input.fill(R::SIZE * BATCH)?;
    let (mut at, mut wrong) = (0, None);
    let window = input.window();
    if !window.is_empty() {
        match names.number(name.as_bytes()) {
            Err(what) => wrong = Some(what),
            Ok(device) => {
                for bytes in window.chunks_exact(R::SIZE).take(BATCH) {
                    match record.request(bytes, device) {
                        Ok(request) => batch.push(request),
                        Err(what) => {
                            wrong = Some(what);
                            break;
                        }
                    }
                    at += R::SIZE;
                }
            }
        }
    }
    let left = window.len() - at;
    if wrong.is_none() && left > 0 && left < R::SIZE && !input.is_cut() {
        wrong =
            Some(format!("{left} bytes are left of a record of {}: the end is missing", R::SIZE));
    }
    if let Some(what) = wrong {
        return Err(input.malformed_byte(at, what, format.name()));
    }
    input.consume(at);
    Ok(at > 0)
}

/// VMware's vscsiStats, as libCacheSim's `vscsi.h` lays it out.
///
/// | version 1 | version 2 | size | field |
/// | --- | --- | --- | --- |
/// | 12 | 0 | 2 | SCSI operation code |
/// | 14 | 2 | 2 | version, in the upper byte |
/// | 0 | 4 | 4 | sequence number |
/// | 4 | 8 | 4 | length in bytes |
/// | 8 | 12 | 4 | scatter-gather entries |
/// | 16 | 16 | 8 | sector of 512 bytes |
/// | 24 | 24 | 8 | microseconds |
/// | | 32 | 8 | response time |
struct Vscsi {
    input: Input,
    name: String,
    version: Option<u8>,
}

struct Vscsi1;
struct Vscsi2;

/// A record of version 1, and one of version 2.
const VSCSI_SIZE: [usize; 2] = [32, 40];

impl Record for Vscsi1 {
    const SIZE: usize = VSCSI_SIZE[0];

    fn request(&mut self, bytes: &[u8], device: u32) -> Result<Request, String> {
        vscsi(bytes, 4, 12, 1, device)
    }
}

impl Record for Vscsi2 {
    const SIZE: usize = VSCSI_SIZE[1];

    fn request(&mut self, bytes: &[u8], device: u32) -> Result<Request, String> {
        vscsi(bytes, 8, 0, 2, device)
    }
}

fn vscsi(
    bytes: &[u8],
    length: usize,
    command: usize,
    version: u16,
    device: u32,
) -> Result<Request, String> {
    let found = u16_at(bytes, command + 2) >> 8;
    if found != version {
        return Err(format!("a record of version {found} among those of version {version}"));
    }
    // READ and WRITE of 6, 10, 12 and 16 bytes (SBC-4).
    let op = match u16_at(bytes, command) {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
        0x42 => Op::Discard,
        0x35 | 0x91 => Op::Flush,
        other => return Err(format!("the SCSI operation code is {other:#04x}, no read or write")),
    };
    let length = if op == Op::Flush { 0 } else { u64::from(u32_at(bytes, length)) };
    let (sector, micros) = (u64_at(bytes, 16), u64_at(bytes, 24));
    let offset = sector.checked_mul(512).ok_or_else(|| format!("sector {sector} is too large"))?;
    let time = micros.checked_mul(1000).ok_or_else(|| format!("time {micros} is too large"))?;
    Request::checked(time, op, if op == Op::Flush { 0 } else { offset }, length, device)
}

/// Whether every record of a sample is one of either version.
pub(crate) fn is_vscsi(sample: &[u8]) -> bool {
    vscsi_version(sample).is_some()
}

fn vscsi_version(sample: &[u8]) -> Option<u8> {
    let all = |size: usize, read: &mut dyn FnMut(&[u8]) -> bool| {
        sample.len() >= size && sample.chunks_exact(size).all(read)
    };
    if all(VSCSI_SIZE[0], &mut |bytes| Vscsi1.request(bytes, 0).is_ok()) {
        return Some(1);
    }
    all(VSCSI_SIZE[1], &mut |bytes| Vscsi2.request(bytes, 0).is_ok()).then_some(2)
}

impl Decode for Vscsi {
    fn decode(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<bool> {
        let (input, format) = (&mut self.input, Format::Vscsi);
        if self.version.is_none() {
            let first = input.fill(VSCSI_SIZE[1])?;
            let found = first.get(..VSCSI_SIZE[0]).map(|bytes| (bytes[15], bytes[3]));
            self.version = match found {
                Some((1, _)) => Some(1),
                Some((_, 2)) => Some(2),
                // The reader of version 1 reports faults of it.
                _ => Some(1),
            };
        }
        match self.version {
            Some(2) => records(input, &mut Vscsi2, &self.name, format, names, batch),
            _ => records(input, &mut Vscsi1, &self.name, format, names, batch),
        }
    }

    fn input(&self) -> Option<&Input> {
        Some(&self.input)
    }
}

/// libCacheSim's oracleGeneral: u32 seconds, u64 object, u32 size, i64 index of the next request for
/// the object (-1 for none), packed to 24 bytes. All requests are reads.
struct OracleGeneral {
    objects: Objects,
}

impl Record for OracleGeneral {
    const SIZE: usize = 24;

    fn request(&mut self, bytes: &[u8], device: u32) -> Result<Request, String> {
        let time = u64::from(u32_at(bytes, 0)) * 1_000_000_000;
        let (object, size) = (Object::Number(u64_at(bytes, 4)), u64::from(u32_at(bytes, 12)));
        self.objects.request(time, Op::Read, object, Some(size), device)
    }

    fn remark(&self) -> Option<String> {
        self.objects.remark()
    }
}

/// Whether the fields of every record of a sample are plausible.
pub(crate) fn is_oracle_general(sample: &[u8]) -> bool {
    const SIZE: usize = OracleGeneral::SIZE;
    let mut last = 0;
    sample.len() >= SIZE
        && (0u64..).zip(sample.chunks_exact(SIZE)).all(|(index, bytes)| {
            let (time, size) = (u32_at(bytes, 0), u32_at(bytes, 12));
            let next = i64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
            let ordered = time >= last;
            last = time;
            let plausible = u64::try_from(next).map_or(next == -1, |n| n > index && n < 1 << 40);
            ordered && size > 0 && size < 1 << 30 && (plausible || next == i64::MAX)
        })
}

/// 32-bit numbers of blocks, nothing else: reads, a microsecond apart.
struct BlockNumbers {
    unit: u64,
    seen: u64,
}

impl Record for BlockNumbers {
    const SIZE: usize = 4;

    fn request(&mut self, bytes: &[u8], device: u32) -> Result<Request, String> {
        let time = self.seen * 1000;
        self.seen += 1;
        let offset = u64::from(u32_at(bytes, 0)) * self.unit;
        Request::checked(time, Op::Read, offset, self.unit, device)
    }
}

/// A trace that another byte order wrote, or another version of a program.
pub(crate) fn unsupported(input: &Input, what: &str) -> TraceError {
    TraceError::Unsupported(format!("{}: {what}", input.path().display()))
}
