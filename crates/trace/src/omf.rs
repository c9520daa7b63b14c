//! The bytes of the compact format of traces: docs/format/trace.md has the drawing.
//!
//! Called by [`crate::compact`], which writes, and by the decoder of [`crate::read`].
//!
//! # The file's header
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 8 | magic | `ESKTRACE` |
//! | 8 | 2 | version | 1 |
//! | 10 | 2 | reserved | 0 |
//! | 12 | 4 | crc | CRC-32C of the 12 bytes before |
//!
//! # The header of a chunk
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 4 | magic | `ETCK` |
//! | 4 | 1 | kind | 1 requests, 2 devices, 3 end |
//! | 5 | 3 | reserved | 0 |
//! | 8 | 8 | offset | of this chunk in the file |
//! | 16 | 4 | size | of the payload in bytes |
//! | 20 | 4 | count | of requests or devices in the payload; 0 at the end |
//! | 24 | 8 | first | requests: the time before the first one in ns; devices: the first number; end: requests in all |
//! | 32 | 4 | payload crc | CRC-32C of the payload |
//! | 36 | 4 | crc | CRC-32C of the 36 bytes before |
//!
//! # A request
//!
//! A control byte, then the parts that it announces, in this order: device (varint), time (varint,
//! zigzag: difference to the last time), offset (varint, zigzag: difference to the end of the last
//! range of this device), length (varint). A flush has neither offset nor length.
//!
//! | bits | name | meaning |
//! | --- | --- | --- |
//! | 0-1 | op | 0 read, 1 write, 2 discard, 3 flush |
//! | 2-3 | length | 0 as the last one of this op, 1 4,096, 2 follows in units of 512, 3 follows in bytes |
//! | 4-5 | offset | 0 no difference, 1 follows in units of 4,096, 2 in 512, 3 in bytes |
//! | 6 | device | 0 as before, 1 follows |
//! | 7 | time | 0 as long after the last request as that after the one before, 1 follows |
//!
//! Invariants
//! 1. A chunk is decoded by itself: its context begins anew, with zeroes and the time of its header.
//! 2. Encoding decoded requests gives a chunk that decodes to the same requests.
//! 3. Any bytes may be decoded: wrong ones are an error, and counts are not trusted for allocation.

use esker_base::checksum::crc32c;
use esker_base::codec::{Decoder, Encoder, Truncated};
use esker_base::units::to_usize;

use crate::request::{Op, Request};

/// The first bytes of a file.
pub(crate) const MAGIC: [u8; 8] = *b"ESKTRACE";
pub(crate) const VERSION: u16 = 1;
pub(crate) const FILE_HEADER: usize = 16;
pub(crate) const CHUNK_HEADER: usize = 40;

const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"ETCK");
const FILE_CHECKED: usize = FILE_HEADER - size_of::<u32>();
const CHUNK_CHECKED: usize = CHUNK_HEADER - size_of::<u32>();
const _: () = assert!(FILE_CHECKED == MAGIC.len() + 2 + 2);
const _: () = assert!(CHUNK_CHECKED == 4 + 1 + 3 + 8 + 4 + 4 + 8 + 4);

/// How many requests a writer puts into a chunk.
pub(crate) const CHUNK_REQUESTS: u32 = 8192;
/// The largest payload that is read.
pub(crate) const MAX_PAYLOAD: u32 = 1 << 20;
/// A request takes at most its control byte and four varints of ten bytes.
const MAX_REQUEST: usize = 1 + 4 * 10;
const _: () =
    assert!(to_usize(CHUNK_REQUESTS as u64) * MAX_REQUEST <= to_usize(MAX_PAYLOAD as u64));

/// The header of a file.
pub(crate) fn encode_file_header() -> Vec<u8> {
    let mut e = Encoder::default();
    e.bytes(&MAGIC).u16(VERSION).u16(0);
    let crc = crc32c(&e.0);
    e.u32(crc);
    e.0
}

/// Checks the header of a file.
pub(crate) fn decode_file_header(bytes: &[u8]) -> Result<(), String> {
    let mut d = Decoder::new(bytes);
    let fields = (|| {
        let magic = d.bytes(MAGIC.len(), "magic")?;
        let (version, reserved) = (d.u16("version")?, d.u16("reserved")?);
        Ok::<_, Truncated>((magic, version, reserved, d.u32("crc")?))
    })();
    let (magic, version, reserved, crc) = fields.map_err(|error| error.to_string())?;
    if magic != MAGIC {
        return Err("the file does not begin with ESKTRACE".to_owned());
    }
    let found = crc32c(&bytes[..FILE_CHECKED]);
    if found != crc {
        return Err(format!("the header's checksum is {found:#010x}, not {crc:#010x}"));
    }
    if version != VERSION {
        return Err(format!("version {version}; this build reads version {VERSION}"));
    }
    if reserved != 0 {
        return Err(format!("a reserved field of the header holds {reserved}, not 0"));
    }
    Ok(())
}

/// Kind of a chunk's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    Requests,
    Devices,
    End,
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) kind: ChunkKind,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) count: u32,
    pub(crate) first: u64,
    pub(crate) payload_crc: u32,
}

impl ChunkHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            ChunkKind::Requests => 1,
            ChunkKind::Devices => 2,
            ChunkKind::End => 3,
        };
        let mut e = Encoder::default();
        e.u32(CHUNK_MAGIC).u8(kind).bytes(&[0; 3]).u64(self.offset).u32(self.size);
        e.u32(self.count).u64(self.first).u32(self.payload_crc);
        let crc = crc32c(&e.0);
        e.u32(crc);
        e.0
    }

    /// Decodes the header of the chunk at `offset`.
    pub(crate) fn decode(bytes: &[u8], offset: u64) -> Result<ChunkHeader, String> {
        let mut d = Decoder::new(bytes);
        let fields = (|| {
            let (magic, kind) = (d.u32("magic")?, d.u8("kind")?);
            let reserved = d.bytes(3, "reserved")?;
            let (at, size, count) = (d.u64("offset")?, d.u32("size")?, d.u32("count")?);
            let (first, payload_crc) = (d.u64("first")?, d.u32("payload crc")?);
            Ok::<_, Truncated>((magic, kind, reserved, at, size, count, first, payload_crc))
        })();
        let fields = fields.map_err(|error| error.to_string())?;
        let (magic, kind, reserved, at, size, count, first, payload_crc) = fields;
        let crc = d.u32("crc").map_err(|error| error.to_string())?;
        if magic != CHUNK_MAGIC {
            return Err(format!("a chunk begins with {magic:#010x}, not ETCK"));
        }
        let found = crc32c(&bytes[..CHUNK_CHECKED]);
        if found != crc {
            return Err(format!("the chunk header's checksum is {found:#010x}, not {crc:#010x}"));
        }
        if at != offset {
            return Err(format!("a chunk that belongs at byte {at}"));
        }
        let kind = match kind {
            1 => ChunkKind::Requests,
            2 => ChunkKind::Devices,
            3 => ChunkKind::End,
            other => {
                return Err(format!("a chunk of kind {other}, which this build does not know"));
            }
        };
        if reserved != [0; 3] {
            return Err("a reserved field of the chunk's header is not 0".to_owned());
        }
        if size > MAX_PAYLOAD {
            return Err(format!("a payload of {size} bytes; at most {MAX_PAYLOAD} are read"));
        }
        Ok(ChunkHeader { kind, offset, size, count, first, payload_crc })
    }

    /// Checks a payload against its header.
    pub(crate) fn check(&self, payload: &[u8]) -> Result<(), String> {
        let (found, expected) = (crc32c(payload), self.payload_crc);
        if found == expected {
            return Ok(());
        }
        Err(format!("the payload's checksum is {found:#010x}, not {expected:#010x}"))
    }
}

/// Encodes the names of devices.
pub(crate) fn encode_devices(names: &[String]) -> Vec<u8> {
    let mut e = Encoder::default();
    for name in names {
        e.bytes16(name.as_bytes());
    }
    e.0
}

/// Decodes `count` names of devices.
pub(crate) fn decode_devices(payload: &[u8], count: u32) -> Result<Vec<Vec<u8>>, String> {
    let mut d = Decoder::new(payload);
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(d.bytes16("name").map_err(|error| error.to_string())?.to_vec());
    }
    all_used(&d)?;
    Ok(names)
}

/// Encodes the last chunk: how many requests got lost before they were written.
pub(crate) fn encode_end(dropped: u64) -> Vec<u8> {
    let mut e = Encoder::default();
    e.u64(dropped);
    e.0
}

/// Decodes the last chunk.
pub(crate) fn decode_end(payload: &[u8]) -> Result<u64, String> {
    let mut d = Decoder::new(payload);
    let dropped = d.u64("dropped").map_err(|error| error.to_string())?;
    all_used(&d)?;
    Ok(dropped)
}

fn all_used(d: &Decoder<'_>) -> Result<(), String> {
    match d.left() {
        0 => Ok(()),
        left => Err(format!("{left} bytes follow the end of a chunk's content")),
    }
}

const OFFSET_SHIFT: u8 = 4;
const LENGTH_SHIFT: u8 = 2;
const HAS_DEVICE: u8 = 1 << 6;
const HAS_TIME: u8 = 1 << 7;

/// How many devices have an end of their own to be compared with; others share one.
const ENDS: usize = 256;

/// State with which the requests of a chunk are compared.
struct Context {
    time_ns: u64,
    step_ns: u64,
    device: u32,
    lengths: [u64; 4],
    ends: [u64; ENDS],
}

impl Context {
    fn new(time_ns: u64) -> Context {
        Context { time_ns, step_ns: 0, device: 0, lengths: [0; 4], ends: [0; ENDS] }
    }

    fn end(&mut self) -> &mut u64 {
        &mut self.ends[self.device as usize % ENDS]
    }
}

fn code_of(op: Op) -> u8 {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Discard => 2,
        Op::Flush => 3,
    }
}

fn zigzag(difference: u64) -> u64 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ 0u64.wrapping_sub(coded & 1)
}

/// Appends requests to the payload of a chunk.
pub(crate) struct RequestEncoder {
    context: Context,
    encoder: Encoder,
    count: u32,
    first_ns: u64,
}

impl RequestEncoder {
    /// A chunk whose first request is not far from this time.
    pub(crate) fn new(first_ns: u64) -> RequestEncoder {
        RequestEncoder {
            context: Context::new(first_ns),
            encoder: Encoder::default(),
            count: 0,
            first_ns,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn push(&mut self, request: &Request) {
        let context = &mut self.context;
        let op = code_of(request.op);
        let mut control = op;
        let control_at = self.encoder.0.len();
        self.encoder.u8(0);
        if request.device != context.device {
            control |= HAS_DEVICE;
            context.device = request.device;
            self.encoder.varint(u64::from(request.device));
        }
        let step = request.time_ns.wrapping_sub(context.time_ns);
        if step != context.step_ns {
            control |= HAS_TIME;
            self.encoder.varint(zigzag(step));
        }
        context.time_ns = request.time_ns;
        context.step_ns = step;
        if request.op != Op::Flush {
            let end = context.end();
            let difference = zigzag(request.offset.wrapping_sub(*end));
            *end = request.offset.wrapping_add(request.length);
            // The lowest bit is the sign, and a negative one's other bits are inverted: only the
            // plain difference tells whether it is a multiple.
            let plain = unzigzag(difference).cast_signed();
            let code = match plain {
                0 => 0,
                plain if plain % 4096 == 0 => 1,
                plain if plain % 512 == 0 => 2,
                _ => 3,
            };
            let unit = OFFSET_UNITS[usize::from(code)].cast_signed();
            if code > 0 {
                self.encoder.varint(zigzag((plain / unit).cast_unsigned()));
            }
            control |= code << OFFSET_SHIFT;
            let last = &mut context.lengths[usize::from(op)];
            let code = match request.length {
                length if length == *last => 0,
                4096 => 1,
                length if length % 512 == 0 => 2,
                _ => 3,
            };
            match code {
                2 => drop(self.encoder.varint(request.length / 512)),
                3 => drop(self.encoder.varint(request.length)),
                _ => {}
            }
            *last = request.length;
            control |= code << LENGTH_SHIFT;
        }
        self.encoder.0[control_at] = control;
        self.count += 1;
    }

    /// The header and the payload of the chunk at `offset`.
    pub(crate) fn finish(self, offset: u64) -> (ChunkHeader, Vec<u8>) {
        chunk(ChunkKind::Requests, offset, self.count, self.first_ns, self.encoder.0)
    }
}

const OFFSET_UNITS: [u64; 4] = [0, 4096, 512, 1];

/// A chunk of any kind.
///
/// # Panics
/// With a payload beyond [`MAX_PAYLOAD`], which callers do not make.
pub(crate) fn chunk(
    kind: ChunkKind,
    offset: u64,
    count: u32,
    first: u64,
    payload: Vec<u8>,
) -> (ChunkHeader, Vec<u8>) {
    let size = u32::try_from(payload.len()).expect("a payload below 1 MiB");
    assert!(size <= MAX_PAYLOAD, "a payload of {size} bytes");
    let payload_crc = crc32c(&payload);
    (ChunkHeader { kind, offset, size, count, first, payload_crc }, payload)
}

/// Appends the requests of a chunk whose payload has been checked.
pub(crate) fn decode_requests(
    payload: &[u8],
    header: &ChunkHeader,
    devices: u32,
    requests: &mut Vec<Request>,
) -> Result<(), String> {
    let mut context = Context::new(header.first);
    let mut at = 0;
    // A request has one byte at least.
    requests.reserve(payload.len().min(to_usize(u64::from(header.count))));
    for _ in 0..header.count {
        let control = byte(payload, &mut at)?;
        if control & HAS_DEVICE != 0 {
            let device = varint(payload, &mut at)?;
            context.device = u32::try_from(device).unwrap_or(u32::MAX);
        }
        if context.device >= devices {
            return Err(format!("a request for device {}; {devices} have names", context.device));
        }
        if control & HAS_TIME != 0 {
            context.step_ns = unzigzag(varint(payload, &mut at)?);
        }
        context.time_ns = context.time_ns.wrapping_add(context.step_ns);
        let (time_ns, device) = (context.time_ns, context.device);
        let (offset_code, length_code) = (control >> OFFSET_SHIFT & 3, control >> LENGTH_SHIFT & 3);
        let op = match control & 3 {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Discard,
            _ => {
                if offset_code | length_code != 0 {
                    return Err("a flush with a range".to_owned());
                }
                requests.push(Request { time_ns, offset: 0, length: 0, device, op: Op::Flush });
                continue;
            }
        };
        let end = *context.end();
        let offset = match offset_code {
            0 => end,
            code => {
                let units = unzigzag(varint(payload, &mut at)?);
                end.wrapping_add(units.wrapping_mul(OFFSET_UNITS[usize::from(code)]))
            }
        };
        let last = &mut context.lengths[usize::from(control & 3)];
        let length = match length_code {
            0 => *last,
            1 => 4096,
            2 => varint(payload, &mut at)?.saturating_mul(512),
            _ => varint(payload, &mut at)?,
        };
        *last = length;
        let request = Request::checked(time_ns, op, offset, length, device)?;
        *context.end() = offset + length;
        requests.push(request);
    }
    match payload.len() - at {
        0 => Ok(()),
        left => Err(format!("{left} bytes follow the last request of a chunk")),
    }
}

fn byte(payload: &[u8], at: &mut usize) -> Result<u8, String> {
    let Some(&byte) = payload.get(*at) else { return Err(cut()) };
    *at += 1;
    Ok(byte)
}

#[inline]
fn varint(payload: &[u8], at: &mut usize) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = byte(payload, at)?;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number of more than 64 bits".to_owned())
}

#[cold]
fn cut() -> String {
    "the requests of a chunk go on behind its payload".to_owned()
}

#[cfg(test)]
mod tests;
