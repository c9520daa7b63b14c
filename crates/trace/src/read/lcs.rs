//! libCacheSim's binary format `lcs`, versions 1 to 8, as its `lcs.h` lays it out. Little-endian.
//!
//! The file has a header of 8,192 bytes: a magic number at 0 and once more at 8,184, the version at 8, and figures
//! of the trace, which are not used here. Records follow:
//!
//! | version 1 | version 2 | from version 3 on | size | field |
//! | --- | --- | --- | --- | --- |
//! | 0 | 0 | 0 | 4 | seconds |
//! | 4 | 4 | 4 | 8 | object |
//! | 12 | 12 | 12 | 4; 8 from version 3 on | size of the object |
//! | | 16 | 20 | 4 | operation in the lowest byte, tenant above |
//! | | | 24 | 4 | time to live |
//! | 16 | 20 | 28 | 8 | next request for the object |
//! | | | 36 | 4 each | features: 1, 2, 4, 8 or 16 from version 4 to 8 |

use crate::decode::{BATCH, Decode};
use crate::error::Result;
use crate::format::Format;
use crate::input::Input;
use crate::names::Names;
use crate::read::binary::{u32_at, u64_at, unsupported};
use crate::read::objects::{Object, Objects};
use crate::request::{Op, Request};

const MAGIC: u64 = 0x1234_5678_9abc_def0;
const HEADER: usize = 8192;

/// The size of a record, by version.
const SIZES: [usize; 8] = [24, 28, 36, 40, 44, 52, 68, 100];

/// Whether a file begins as one in this format.
pub(super) fn is_lcs(sample: &[u8]) -> bool {
    sample.len() >= 16 && u64_at(sample, 0) == MAGIC
}

/// Requests from the records of a file.
pub(super) struct Lcs {
    input: Input,
    name: String,
    objects: Objects,
    /// The version and the size of its records, once the header was read.
    version: Option<(u64, usize)>,
}

impl Lcs {
    pub(super) fn new(input: Input, name: String, unit: u64) -> Lcs {
        Lcs { input, name, objects: Objects::new(unit), version: None }
    }

    /// Reads the header.
    fn version(&mut self) -> Result<(u64, usize)> {
        if let Some(version) = self.version {
            return Ok(version);
        }
        let header = self.input.fill(HEADER)?;
        if header.len() < HEADER || u64_at(header, 0) != MAGIC {
            let what = format!("{} bytes are no header of {HEADER}", header.len());
            return Err(self.input.malformed_byte(0, what, Format::Lcs.name()));
        }
        let number = u64_at(header, 8);
        let end = u64_at(header, HEADER - 8);
        let place = usize::try_from(number.wrapping_sub(1)).unwrap_or(usize::MAX);
        let Some(size) = SIZES.get(place) else {
            let what = format!(
                "its header has version {number} of lcs; versions 1 to 8 are read: write it anew with libCacheSim's \
                 traceConv"
            );
            return Err(unsupported(&self.input, &what));
        };
        if end != MAGIC {
            let what = format!("the header ends with {end:#x}, not {MAGIC:#x}");
            return Err(self.input.malformed_byte(HEADER - 8, what, Format::Lcs.name()));
        }
        self.input.consume(HEADER);
        self.version = Some((number, *size));
        Ok((number, *size))
    }
}

/// The operation by libCacheSim's numbers (`req_op_e`); one that is not told is a read.
fn op(number: u32) -> Op {
    match number {
        3..=8 | 10 | 11 | 13 | 14 => Op::Write,
        9 => Op::Discard,
        _ => Op::Read,
    }
}

fn request(
    objects: &mut Objects,
    record: &[u8],
    version: u64,
    device: u32,
) -> Result<Request, String> {
    let time_ns = u64::from(u32_at(record, 0)) * 1_000_000_000;
    let size = if version < 3 { u64::from(u32_at(record, 12)) } else { u64_at(record, 12) };
    let op = match version {
        1 => Op::Read,
        2 => op(u32_at(record, 16) & 0xff),
        _ => op(u32_at(record, 20) & 0xff),
    };
    objects.request(time_ns, op, Object::Number(u64_at(record, 4)), Some(size), device)
}

impl Decode for Lcs {
    fn decode(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<bool> {
        let (version, size) = self.version()?;
        self.input.fill(size * BATCH)?;
        let (mut at, window) = (0, self.input.window());
        let mut wrong = None;
        match names.number(self.name.as_bytes()) {
            Err(what) => wrong = Some(what),
            Ok(device) => {
                for record in window.chunks_exact(size).take(BATCH) {
                    match request(&mut self.objects, record, version, device) {
                        Ok(request) => batch.push(request),
                        Err(what) => {
                            wrong = Some(what);
                            break;
                        }
                    }
                    at += size;
                }
            }
        }
        let left = window.len() - at;
        if wrong.is_none() && left > 0 && left < size && !self.input.is_cut() {
            wrong =
                Some(format!("{left} bytes are left of a record of {size}: the end is missing"));
        }
        if let Some(what) = wrong {
            return Err(self.input.malformed_byte(at, what, Format::Lcs.name()));
        }
        self.input.consume(at);
        Ok(at > 0)
    }

    fn input(&self) -> Option<&Input> {
        Some(&self.input)
    }

    fn remarks(&self) -> Vec<String> {
        let path = self.input.path().display();
        self.objects.remark().map(|remark| format!("{path}: {remark}")).into_iter().collect()
    }
}
