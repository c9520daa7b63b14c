//! Formats of text: a line is a request.
//!
//! Each parser names its source. Sizes and places are turned into bytes, times into nanoseconds.

mod blkparse;
mod line;
mod objects;

pub(crate) use blkparse::rwbs;

use crate::decode::{BATCH, Decode, Events, Options};
use crate::error::Result;
use crate::format::Format;
use crate::input::Input;
use crate::names::Names;
pub(crate) use line::Line;
use line::{MICROSECOND_NS, SECOND_NS, SECTOR, unknown_op};

use crate::read::fields::{Between, Fields, number, quoted_line};
use crate::request::{Op, Request};

/// The parser of a format of text.
pub(crate) fn parser(format: Format, options: &Options) -> Option<Box<dyn Line>> {
    Some(match format {
        Format::Blkparse => Box::new(blkparse::Blkparse::new(options.event)),
        Format::Msr => Box::new(Msr::default()),
        Format::Spc => Box::new(Spc),
        Format::Alibaba => Box::new(Alibaba),
        Format::Tencent => Box::new(Tencent),
        Format::Lis => Box::new(Lis { unit: options.unit(format), lines: 0 }),
        Format::Disksim => Box::new(Disksim::default()),
        Format::Systor => Box::new(Systor::default()),
        Format::Fiu => Box::new(Fiu::default()),
        Format::Cachelib => Box::new(Cachelib::default()),
        Format::Twitter => Box::new(objects::Twitter::new(options.unit(format))),
        Format::ObjectStore => Box::new(objects::ObjectStore::new(options.unit(format))),
        Format::Csv => Box::new(objects::Csv::new(options.unit(format), options.columns)),
        // Any line may be a word: words are ids where the format was named.
        Format::Text => {
            Box::new(objects::Ids::new(options.unit(format), options.format == Some(Format::Text)))
        }
        _ => return None,
    })
}

/// Requests from the lines of a file.
pub(crate) struct TextDecoder {
    input: Input,
    parser: Box<dyn Line>,
    format: Format,
}

impl TextDecoder {
    pub(crate) fn new(input: Input, parser: Box<dyn Line>, format: Format) -> TextDecoder {
        TextDecoder { input, parser, format }
    }
}

impl Decode for TextDecoder {
    fn decode(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<bool> {
        let enough = batch.len() + BATCH;
        while batch.len() < enough {
            let Some(line) = self.input.line()? else { return Ok(false) };
            if line.is_empty() {
                continue;
            }
            if let Err(what) = self.parser.line(line, names, batch) {
                let what = format!("{what}, in {}", quoted_line(line));
                return Err(self.input.malformed_line(what, self.format.name()));
            }
        }
        Ok(true)
    }

    fn input(&self) -> Option<&Input> {
        Some(&self.input)
    }

    fn remarks(&self) -> Vec<String> {
        let path = self.input.path().display();
        self.parser.remarks().iter().map(|remark| format!("{path}: {remark}")).collect()
    }

    fn events(&self) -> Events {
        self.parser.events()
    }
}

/// Hundreds of nanoseconds, as Windows counts time.
const FILETIME_NS: u64 = 100;
/// `R`, `W` and words that begin with them, in either case.
fn read_or_write(field: &[u8], name: &str) -> Result<Op, String> {
    match field {
        b"R" | b"r" | b"Read" | b"read" | b"READ" => Ok(Op::Read),
        b"W" | b"w" | b"Write" | b"write" | b"WRITE" => Ok(Op::Write),
        other => Err(unknown_op(name, other, "a read or a write (R or W)")),
    }
}

/// MSR Cambridge (Narayanan et al., FAST 2008): `time, host, disk, Read|Write, offset, bytes,
/// response`, the time in 100 ns since 1601.
#[derive(Default)]
struct Msr {
    device: Vec<u8>,
}

impl Line for Msr {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let mut fields = Fields::new(line, Between::Comma);
        let time_ns = fields.scaled("Timestamp", FILETIME_NS)?;
        self.device.clear();
        self.device.extend_from_slice(fields.word("Hostname")?);
        self.device.push(b'.');
        self.device.extend_from_slice(fields.word("DiskNumber")?);
        let op = match fields.field("Type")? {
            b"Read" | b"read" => Op::Read,
            b"Write" | b"write" => Op::Write,
            other => return Err(unknown_op("Type", other, "Read or Write")),
        };
        let (offset, length) = (fields.number("Offset")?, fields.number("Size")?);
        fields.number("ResponseTime")?;
        fields.end()?;
        let request = Request::checked(time_ns, op, offset, length, names.number(&self.device)?)?;
        out.push(request);
        Ok(())
    }
}

/// SPC-1's format, as UMass publishes it: `ASU, LBA, bytes, R|W, seconds`, LBAs of 512 bytes; an
/// ASU is a device.
struct Spc;

impl Line for Spc {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let mut fields = Fields::new(line, Between::Comma);
        let asu = fields.word("ASU")?;
        number(asu, "ASU")?;
        let offset = fields.scaled("LBA", SECTOR)?;
        let length = fields.number("Size")?;
        let op = read_or_write(fields.field("Opcode")?, "Opcode")?;
        // The standard allows fields of a vendor after the time.
        let time_ns = fields.time("Timestamp", SECOND_NS)?;
        out.push(Request::checked(time_ns, op, offset, length, names.number(asu)?)?);
        Ok(())
    }
}

/// Alibaba Cloud's block storage (Li et al., IISWC 2020): `device, R|W, offset, bytes,
/// microseconds`.
struct Alibaba;

impl Line for Alibaba {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let mut fields = Fields::new(line, Between::Comma);
        let device = fields.word("device_id")?;
        let op = read_or_write(fields.field("opcode")?, "opcode")?;
        let (offset, length) = (fields.number("offset")?, fields.number("length")?);
        let time_ns = fields.scaled("timestamp", MICROSECOND_NS)?;
        fields.end()?;
        out.push(Request::checked(time_ns, op, offset, length, names.number(device)?)?);
        Ok(())
    }
}

/// Tencent's cloud block storage (Zhang et al., USENIX ATC 2020): `seconds, sector, sectors,
/// 0 read | 1 write, volume`.
struct Tencent;

impl Line for Tencent {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let mut fields = Fields::new(line, Between::Comma);
        let time_ns = fields.scaled("Timestamp", SECOND_NS)?;
        let offset = fields.scaled("Offset", SECTOR)?;
        let length = fields.scaled("Size", SECTOR)?;
        let op = match fields.field("IOType")? {
            b"0" => Op::Read,
            b"1" => Op::Write,
            other => return Err(unknown_op("IOType", other, "0 (read) or 1 (write)")),
        };
        let volume = fields.word("VolumeID")?;
        fields.end()?;
        out.push(Request::checked(time_ns, op, offset, length, names.number(volume)?)?);
        Ok(())
    }
}

/// The traces of Megiddo and Modha, "ARC" (FAST 2003): `first count ignored number`, all reads; the
/// unit is 512 bytes in most of them and a page of a database in some. There is no time: lines are
/// taken to be a microsecond apart.
struct Lis {
    unit: u64,
    lines: u64,
}

impl Line for Lis {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let mut fields = Fields::new(line, Between::Blanks);
        let offset = fields.scaled("starting block", self.unit)?;
        let length = fields.scaled("number of blocks", self.unit)?;
        fields.number("ignored")?;
        fields.number("request number")?;
        fields.end()?;
        let time_ns = self.lines * MICROSECOND_NS;
        self.lines += 1;
        out.push(Request::checked(time_ns, Op::Read, offset, length, names.number(b"0")?)?);
        Ok(())
    }
}

/// DiskSim's ASCII format (Bucy et al., CMU-PDL-08-101), used by SSDsim and MQSim: `time device
/// sector sectors flags`. Bit 0 of the flags is a read. DiskSim's time is in milliseconds with a
/// point; that of the others in nanoseconds without one.
#[derive(Default)]
struct Disksim {
    /// Requests with other flags than that of a read.
    flagged: u64,
}

impl Line for Disksim {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let mut fields = Fields::new(line, Between::Blanks);
        let time = fields.field("time")?;
        let unit_ns = if time.contains(&b'.') { 1_000_000 } else { 1 };
        let time_ns = super::fields::time(time, "time", unit_ns)?;
        let device = fields.word("device")?;
        number(device, "device")?;
        let offset = fields.scaled("sector", SECTOR)?;
        let length = fields.scaled("size", SECTOR)?;
        let flags = fields.number("flags")?;
        let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
        fields.end()?;
        out.push(Request::checked(time_ns, op, offset, length, names.number(device)?)?);
        self.flagged += u64::from(flags > 1);
        Ok(())
    }

    fn remarks(&self) -> Vec<String> {
        match self.flagged {
            0 => Vec::new(),
            count => vec![format!(
                "{count} requests have flags beside that of a read: they were skipped"
            )],
        }
    }
}

/// Systor '17 (Lee et al.): a header, then `seconds, response, R|W, LUN, offset, bytes`.
#[derive(Default)]
struct Systor {
    begun: bool,
}

impl Line for Systor {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        if line.starts_with(b"Timestamp,Response,IOType,LUN,Offset,Size") {
            self.begun = true;
            return Ok(());
        }
        let mut fields = Fields::new(line, Between::Comma);
        let time_ns = fields.time("Timestamp", SECOND_NS)?;
        // Requests that got no answer leave it empty.
        fields.skip("Response")?;
        let op = match fields.field("IOType")? {
            b"" => return Ok(()),
            field => read_or_write(field, "IOType")?,
        };
        let lun = fields.word("LUN")?;
        let (offset, length) = (fields.number("Offset")?, fields.number("Size")?);
        fields.end()?;
        out.push(Request::checked(time_ns, op, offset, length, names.number(lun)?)?);
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.begun
    }
}

/// FIU (Koller and Rangaswami, FAST 2010): `nanoseconds pid process sector sectors R|W major minor
/// MD5`.
#[derive(Default)]
struct Fiu {
    device: Vec<u8>,
}

impl Line for Fiu {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let mut fields = Fields::new(line, Between::Blanks);
        let time_ns = fields.number("time")?;
        fields.number("pid")?;
        fields.skip("process")?;
        let offset = fields.scaled("sector", SECTOR)?;
        let length = fields.scaled("size", SECTOR)?;
        let op = read_or_write(fields.field("op")?, "op")?;
        self.device.clear();
        self.device.extend_from_slice(fields.word("major")?);
        self.device.push(b',');
        self.device.extend_from_slice(fields.word("minor")?);
        out.push(Request::checked(time_ns, op, offset, length, names.number(&self.device)?)?);
        Ok(())
    }
}

/// Address space of each chunk of CacheLib's traces.
const CHUNK_BYTES: u64 = 64 << 20;

/// CacheLib's traces of a store of block chunks: a header that names the columns. Chunks are
/// numbered as they appear and laid side by side, 64 MiB of address each, on one device. Names of
/// operations that begin with `get` or `read` read, with `put` or `write` write.
#[derive(Default)]
struct Cachelib {
    columns: Option<Columns>,
    chunks: Names,
}

struct Columns {
    time: usize,
    chunk: usize,
    offset: usize,
    size: usize,
    op: usize,
}

impl Cachelib {
    fn header(line: &[u8]) -> Result<Columns, String> {
        let names: Vec<&[u8]> = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
        let find = |wanted: &str| {
            let found = names.iter().position(|name| *name == wanted.as_bytes());
            found.ok_or_else(|| format!("the header has no column {wanted}"))
        };
        Ok(Columns {
            time: find("op_time")?,
            chunk: find("block_id")?,
            offset: find("io_offset")?,
            size: find("io_size")?,
            op: find("op_name")?,
        })
    }
}

impl Line for Cachelib {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let Some(columns) = &self.columns else {
            self.columns = Some(Cachelib::header(line)?);
            return Ok(());
        };
        let cells: Vec<&[u8]> = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
        let cell = |index: usize, name: &str| {
            let found = cells.get(index).copied();
            found.ok_or_else(|| format!("the line ends before its field '{name}'"))
        };
        let time_ns = super::fields::time(cell(columns.time, "op_time")?, "op_time", SECOND_NS)?;
        let within = number(cell(columns.offset, "io_offset")?, "io_offset")?;
        let length = number(cell(columns.size, "io_size")?, "io_size")?;
        if within.checked_add(length).is_none_or(|end| end > CHUNK_BYTES) {
            return Err(format!("{length} bytes at {within} end beyond a chunk of 64 MiB"));
        }
        let name = cell(columns.op, "op_name")?;
        let lower = name.to_ascii_lowercase();
        let op = if lower.starts_with(b"get") || lower.starts_with(b"read") {
            Op::Read
        } else if lower.starts_with(b"put") || lower.starts_with(b"write") {
            Op::Write
        } else {
            return Err(unknown_op("op_name", name, "get..., read..., put... or write..."));
        };
        let chunk = self.chunks.number(cell(columns.chunk, "block_id")?)?;
        let offset = u64::from(chunk) * CHUNK_BYTES + within;
        out.push(Request::checked(time_ns, op, offset, length, names.number(b"chunks")?)?);
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.columns.is_some()
    }
}
