//! blktrace, version 7 (`struct blk_io_trace` of Linux `blktrace_api.h`), as blktrace(8) writes it,
//! one file for each processor, or as the kernel's tracer gives it, all in one stream.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 4 | magic 0x65617400 and the version in the lowest byte |
//! | 4 | 4 | sequence |
//! | 8 | 8 | nanoseconds |
//! | 16 | 8 | sector of 512 bytes |
//! | 24 | 4 | bytes |
//! | 28 | 4 | action in the lower half (bit 8: a control group is noted), category bits in the upper |
//! | 32 | 4 | pid |
//! | 36 | 4 | device: major << 20, minor |
//! | 40 | 4 | CPU |
//! | 44 | 2 | error |
//! | 46 | 2 | bytes of payload that follow |

use std::collections::BTreeMap;

use crate::decode::{BATCH, Decode, Event, Events};
use crate::error::Result;
use crate::format::Format;
use crate::input::Input;
use crate::names::Names;
use crate::read::binary::{u16_at, u32_at, u64_at, unsupported};
use crate::request::{Op, Request};

const RECORD: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;

const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;

/// The bits of an action without that of a control group.
const ACTION: u32 = 0xffff & !(1 << 8);
const CATEGORY_SHIFT: u32 = 16;
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
/// The request passes a SCSI command through (`BLK_TC_PC`): its place and its size are no blocks.
const PASS_THROUGH: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;

/// Whether a file begins as blktrace's do, in either byte order and any version.
pub(crate) fn is_blktrace(sample: &[u8]) -> bool {
    sample.len() >= 4 && {
        let magic = u32_at(sample, 0);
        magic & !0xff == MAGIC || magic.swap_bytes() & !0xff == MAGIC
    }
}

/// Requests from a stream of blktrace records.
pub(crate) struct BlktraceDecoder {
    input: Input,
    action: u32,
    events: Events,
    devices: BTreeMap<u32, u32>,
    last_device: Option<(u32, u32)>,
}

impl BlktraceDecoder {
    pub(crate) fn new(input: Input, event: Event) -> BlktraceDecoder {
        let action = match event {
            Event::Queue => QUEUE,
            Event::Issue => ISSUE,
            Event::Complete => COMPLETE,
        };
        let (events, devices) = (Events::default(), BTreeMap::new());
        BlktraceDecoder { input, action, events, devices, last_device: None }
    }

    fn device(&mut self, device: u32, names: &mut Names) -> Result<u32, String> {
        if let Some((last, number)) = self.last_device
            && last == device
        {
            return Ok(number);
        }
        let number = match self.devices.get(&device) {
            Some(number) => *number,
            None => {
                let name = format!("{},{}", device >> 20, device & ((1 << 20) - 1));
                let number = names.number(name.as_bytes())?;
                self.devices.insert(device, number);
                number
            }
        };
        self.last_device = Some((device, number));
        Ok(number)
    }

    /// Appends the request of a record.
    fn record(
        &mut self,
        record: &Record,
        names: &mut Names,
        batch: &mut Vec<Request>,
    ) -> Result<(), String> {
        let category = record.action >> CATEGORY_SHIFT;
        if category & NOTIFY != 0 {
            return Ok(());
        }
        let action = record.action & ACTION;
        self.events.count(match action {
            QUEUE => Some(Event::Queue),
            ISSUE => Some(Event::Issue),
            COMPLETE => Some(Event::Complete),
            _ => None,
        });
        if action != self.action {
            return Ok(());
        }
        if category & PASS_THROUGH != 0 {
            self.events.pass_through += 1;
            return Ok(());
        }
        let device = self.device(record.device, names)?;
        if category & FLUSH != 0 {
            batch.push(Request::checked(record.time_ns, Op::Flush, 0, 0, device)?);
        }
        if record.bytes == 0 {
            return Ok(());
        }
        let op = if category & DISCARD != 0 {
            Op::Discard
        } else if category & WRITE != 0 {
            Op::Write
        } else {
            Op::Read
        };
        let offset = record.sector.checked_mul(512);
        let offset = offset.ok_or_else(|| format!("sector {} is too large", record.sector))?;
        let length = u64::from(record.bytes);
        batch.push(Request::checked(record.time_ns, op, offset, length, device)?);
        Ok(())
    }
}

/// The fields of a record that are of use.
struct Record {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
}

impl Decode for BlktraceDecoder {
    fn decode(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<bool> {
        let enough = batch.len() + BATCH;
        let mut consumed = 0;
        loop {
            let window = &self.input.window()[consumed..];
            let payload = if window.len() >= RECORD { usize::from(u16_at(window, 46)) } else { 0 };
            if window.len() < RECORD + payload {
                self.input.consume(consumed);
                consumed = 0;
                let before = self.input.window().len();
                let after = self.input.fill((RECORD + payload).max(before + 1))?.len();
                if after > before {
                    continue;
                }
                if after == 0 || self.input.is_cut() {
                    return Ok(false);
                }
                let what = format!(
                    "{after} bytes are left of a record of {}: the end is missing",
                    RECORD + payload
                );
                return Err(self.input.malformed_byte(0, what, Format::Blktrace.name()));
            }
            let magic = u32_at(window, 0);
            if magic != MAGIC | VERSION {
                return Err(self.no_record(consumed, magic));
            }
            let record = Record {
                time_ns: u64_at(window, 8),
                sector: u64_at(window, 16),
                bytes: u32_at(window, 24),
                action: u32_at(window, 28),
                device: u32_at(window, 36),
            };
            if let Err(what) = self.record(&record, names, batch) {
                return Err(self.input.malformed_byte(consumed, what, Format::Blktrace.name()));
            }
            consumed += RECORD + payload;
            if batch.len() >= enough {
                self.input.consume(consumed);
                return Ok(true);
            }
        }
    }

    fn input(&self) -> Option<&Input> {
        Some(&self.input)
    }

    fn events(&self) -> Events {
        self.events
    }
}

impl BlktraceDecoder {
    /// Returns the problem of a record that does not begin as one.
    fn no_record(&self, at: usize, magic: u32) -> crate::TraceError {
        if magic & !0xff == MAGIC {
            let what = format!("blktrace version {}; version {VERSION} is read", magic & 0xff);
            return unsupported(&self.input, &what);
        }
        if magic.swap_bytes() & !0xff == MAGIC {
            return unsupported(&self.input, "blktrace of a big-endian machine is not read");
        }
        let what = format!("a record begins with {magic:#010x}, not {:#010x}", MAGIC | VERSION);
        self.input.malformed_byte(at, what, Format::Blktrace.name())
    }
}
