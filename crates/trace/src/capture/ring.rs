//! The kernel's ring buffer as `trace_pipe_raw` gives it: pages of events.
//!
//! A page has 16 bytes of header (a time in nanoseconds; how many bytes of events follow, with two
//! flags of lost events above) and events. An event begins with 32 bits: 5 of type, 27 of time since
//! the one before.
//!
//! | type | then | meaning |
//! | --- | --- | --- |
//! | 0 | u32 size, with itself | an event longer than 112 bytes |
//! | 1 to 28 | 4 times as many bytes | an event |
//! | 29 | u32 size, unless the time is zero | nothing: up to the end of the page, if the time is zero |
//! | 30 | u32 | a longer time: the 27 bits, and these above them |
//! | 31 | u32 | the time itself, in the same form; its upper 5 bits are those of the page |
//!
//! Sources: Linux `Documentation/trace/ring-buffer-design.rst`, `include/linux/ring_buffer.h`, and the
//! files `header_page`, `header_event` and `format` that the kernel itself offers.

use crate::read::binary::{u32_at, u64_at};
use crate::read::text::rwbs;
use crate::request::{Op, Request};

const HEADER: usize = 16;
/// The size within a page's second word; the flags of lost events stand above.
const SIZE_MASK: u64 = (1 << 30) - 1;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const TIME_BITS: u32 = 27;
/// The high bits of a time for which an absolute time has no room.
const TIME_TOP: u64 = !((1 << 59) - 1);

/// Where in an event the fields are, which the kernel says in its file `format`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    id: u32,
    dev: usize,
    sector: usize,
    sectors: usize,
    letters: std::ops::Range<usize>,
}

impl Event {
    pub(super) fn parse(format: &str) -> Result<Event, String> {
        let id = format.lines().find_map(|line| line.strip_prefix("ID:"));
        let id = id.and_then(|id| id.trim().parse().ok()).ok_or("its format has no ID")?;
        let field = |name: &str, size: Option<usize>| {
            let missing = || format!("its format has no field {name} of the expected size");
            let line = format.lines().find(|line| {
                let declared = line.trim().strip_prefix("field:");
                let declared = declared.and_then(|rest| rest.split(';').next());
                let declared = declared.and_then(|rest| rest.split_whitespace().last());
                declared.is_some_and(|last| last.split('[').next() == Some(name))
            });
            let line = line.ok_or_else(missing)?;
            let number = |key: &str| {
                let mut parts = line.split(';').map(str::trim);
                let value = parts.find_map(|part| part.strip_prefix(key));
                value.and_then(|value| value.parse::<usize>().ok()).filter(|&n| n < 4096)
            };
            let (Some(offset), Some(found)) = (number("offset:"), number("size:")) else {
                return Err(missing());
            };
            if size.is_some_and(|size| size != found) {
                return Err(missing());
            }
            Ok((offset, found))
        };
        let (letters, size) = field("rwbs", None)?;
        Ok(Event {
            id,
            dev: field("dev", Some(4))?.0,
            sector: field("sector", Some(8))?.0,
            sectors: field("nr_sector", Some(4))?.0,
            letters: letters..letters + size,
        })
    }

    /// Appends the request of an event. Other events are passed.
    fn request(&self, time_ns: u64, event: &[u8], out: &mut Vec<Request>) -> Result<(), String> {
        let ends = [self.dev + 4, self.sector + 8, self.sectors + 4, self.letters.end, 8];
        if ends.iter().any(|&end| end > event.len()) {
            return Err(format!("an event of {} bytes, too few for its format", event.len()));
        }
        if u32_at(event, 0) & 0xffff != self.id {
            return Ok(());
        }
        let letters = &event[self.letters.clone()];
        let size = letters.iter().position(|&byte| byte == 0).unwrap_or(letters.len());
        let kind = rwbs(&letters[..size])?;
        if kind.flush {
            out.push(Request::checked(time_ns, Op::Flush, 0, 0, 0)?);
        }
        let length = u64::from(u32_at(event, self.sectors)) * 512;
        if length == 0 {
            return Ok(());
        }
        let sector = u64_at(event, self.sector);
        let offset = sector.checked_mul(512).ok_or_else(|| format!("sector {sector}"))?;
        // Only writing zeroes has a range and no letter.
        let op = kind.op.unwrap_or(Op::Write);
        out.push(Request::checked(time_ns, op, offset, length, 0)?);
        Ok(())
    }
}

/// A page of events.
pub(super) struct Page<'a> {
    time_ns: u64,
    events: &'a [u8],
}

impl<'a> Page<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Page<'a>, String> {
        if bytes.len() < HEADER {
            return Err(format!("a page of {} bytes", bytes.len()));
        }
        let size = usize::try_from(u64_at(bytes, 8) & SIZE_MASK).unwrap_or(usize::MAX);
        let events = bytes[HEADER..].get(..size);
        let events = events.ok_or_else(|| format!("a page of {} has {size}", bytes.len()))?;
        Ok(Page { time_ns: u64_at(bytes, 0), events })
    }

    /// Appends the requests of the page.
    pub(super) fn requests(&self, event: &Event, out: &mut Vec<Request>) -> Result<(), String> {
        let (mut time_ns, mut at) = (self.time_ns, 0);
        while at + 4 <= self.events.len() {
            let head = u32_at(self.events, at);
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            let second = self.events.get(at + 4..at + 8).map(|bytes| u32_at(bytes, 0));
            let second = || second.ok_or("an event that goes on behind its page".to_owned());
            let (begin, size) = match kind {
                PADDING if delta == 0 => return Ok(()),
                PADDING => {
                    time_ns = time_ns.wrapping_add(delta);
                    at += 4 + as_size(second()?);
                    continue;
                }
                TIME_EXTEND => {
                    let more = u64::from(second()?) << TIME_BITS;
                    time_ns = time_ns.wrapping_add(more + delta);
                    at += 8;
                    continue;
                }
                TIME_STAMP => {
                    let time = u64::from(second()?) << TIME_BITS | delta;
                    time_ns = time_ns & TIME_TOP | time;
                    at += 8;
                    continue;
                }
                0 => (at + 8, as_size(second()?).saturating_sub(4)),
                words => (at + 4, 4 * as_size(words)),
            };
            time_ns = time_ns.wrapping_add(delta);
            let bytes = self.events.get(begin..begin.saturating_add(size));
            let bytes = bytes.ok_or("an event that goes on behind its page")?;
            event.request(time_ns, bytes, out)?;
            at = begin + size;
        }
        Ok(())
    }
}

/// The requests of a page, of an event of this form.
#[cfg(any(test, fuzzing))]
pub(crate) fn requests_of(format: &str, page: &[u8]) -> Result<Vec<Request>, String> {
    let (event, mut requests) = (Event::parse(format)?, Vec::new());
    Page::parse(page)?.requests(&event, &mut requests)?;
    Ok(requests)
}

fn as_size(size: u32) -> usize {
    esker_base::units::to_usize(u64::from(size))
}

#[cfg(test)]
pub(crate) mod tests;
