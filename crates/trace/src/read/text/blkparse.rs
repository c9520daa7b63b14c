//! Default output of blkparse (blkparse(1)): `major,minor cpu sequence seconds pid action rwbs
//! sector + sectors [process]`, and a summary at the end.

use std::collections::BTreeMap;

use super::line::{Line, SECOND_NS, SECTOR};
use crate::decode::{Event, Events};
use crate::names::Names;
use crate::read::fields::{Between, Fields, number, quoted};
use crate::request::{Op, Request};

/// Lines of blkparse.
pub(super) struct Blkparse {
    action: &'static [u8],
    begun: bool,
    /// The summary has begun, which is for people.
    ended: bool,
    /// Letters that this reader does not know, and how many requests had each.
    unknown: BTreeMap<u8, u64>,
    events: Events,
}

impl Blkparse {
    pub(super) fn new(event: Event) -> Blkparse {
        let action: &[u8] = match event {
            Event::Queue => b"Q",
            Event::Issue => b"D",
            Event::Complete => b"C",
        };
        let (unknown, events) = (BTreeMap::new(), Events::default());
        Blkparse { action, begun: false, ended: false, unknown, events }
    }
}

/// Meaning of a request's letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// It asks for a flush before its data.
    pub(crate) flush: bool,
    /// Its operation on its range; `None` for one that has no letter of its own.
    pub(crate) op: Option<Op>,
    /// Modifiers that are not known: they change neither the operation nor the range.
    pub(crate) unknown: Vec<u8>,
}

/// The modifiers of requests: `FASMEU` of Linux today, `B` of Linux before 2.6.37, and the letters that follow the `Z`
/// of operations on zones.
const MODIFIERS: &[u8] = b"FASMEUBPROC";

/// Reads the letters that the kernel writes for a request (`blk_fill_rwbs` of Linux): `F` before
/// the operation for a flush, then `R`, `W`, `D`, `Z` for zones, or `N` for anything else, then modifiers. A
/// barrier (`B`) of older kernels is a flush before its data, as blktrace's own bit for it is.
pub(crate) fn rwbs(letters: &[u8]) -> Result<Kind, String> {
    let (flush, rest) = match letters {
        [b'F', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let op = match rest {
        [b'R', ..] => Some(Op::Read),
        // An append to a zone writes.
        [b'W', ..] | [b'Z', b'A', ..] => Some(Op::Write),
        [b'D', ..] => Some(Op::Discard),
        [b'N' | b'Z', ..] => None,
        // A bare flush is one letter.
        [] if flush => None,
        // Whether it reads or writes is not known, and that matters.
        _ => return Err(format!("{} are no letters of a request", quoted(letters))),
    };
    let modifiers = rest.get(1..).unwrap_or_default();
    if !modifiers.iter().all(u8::is_ascii_uppercase) {
        return Err(format!("{} are no letters of a request", quoted(letters)));
    }
    let unknown = modifiers.iter().copied().filter(|letter| !MODIFIERS.contains(letter)).collect();
    Ok(Kind { flush: flush || modifiers.contains(&b'B'), op, unknown })
}

impl Line for Blkparse {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        if self.ended || (self.begun && line.starts_with(b"CPU")) {
            self.ended = true;
            return Ok(());
        }
        let mut fields = Fields::new(line, Between::Blanks);
        let device = fields.word("device")?;
        let comma = device.iter().position(|&byte| byte == b',');
        let comma = comma.ok_or_else(|| format!("the device is {}, not 8,0", quoted(device)))?;
        number(&device[..comma], "the major number")?;
        number(&device[comma + 1..], "the minor number")?;
        fields.number("CPU")?;
        fields.number("sequence")?;
        let time_ns = fields.time("time", SECOND_NS)?;
        fields.number("pid")?;
        let action = fields.field("action")?;
        if action.is_empty() || action.len() > 3 {
            return Err(format!("the action is {}", quoted(action)));
        }
        self.begun = true;
        self.events.count(match action {
            b"Q" => Some(Event::Queue),
            b"D" => Some(Event::Issue),
            b"C" => Some(Event::Complete),
            _ => None,
        });
        if action != self.action {
            return Ok(());
        }
        let kind = rwbs(fields.field("RWBS")?)?;
        // Without a range, the next field is the name of the process.
        let range = match fields.optional() {
            Some(sector) if sector.first().is_some_and(u8::is_ascii_digit) => {
                let sector = number(sector, "sector")?;
                match fields.optional() {
                    Some(b"+") => Some((sector, fields.scaled("sectors", SECTOR)?)),
                    // The number is one of bytes, and a SCSI command follows, in parentheses.
                    Some([b'(', ..]) => {
                        self.events.pass_through += 1;
                        return Ok(());
                    }
                    _ => Some((sector, 0)),
                }
            }
            Some([b'(', ..]) => {
                self.events.pass_through += 1;
                return Ok(());
            }
            _ => None,
        };
        for letter in kind.unknown {
            *self.unknown.entry(letter).or_default() += 1;
        }
        let device = names.number(device)?;
        if kind.flush {
            out.push(Request::checked(time_ns, Op::Flush, 0, 0, device)?);
        }
        if let (Some(op), Some((sector, length))) = (kind.op, range)
            && length > 0
        {
            let offset = sector.checked_mul(SECTOR);
            let offset = offset.ok_or_else(|| format!("sector {sector} is too large"))?;
            out.push(Request::checked(time_ns, op, offset, length, device)?);
        }
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn remarks(&self) -> Vec<String> {
        let remark = |(&letter, count): (&u8, &u64)| {
            let letter = char::from(letter);
            format!(
                "{count} requests have the letter {letter} in RWBS, which is not known: it was skipped"
            )
        };
        self.unknown.iter().map(remark).collect()
    }

    fn events(&self) -> Events {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_say_what_a_request_does() {
        let kind = |flush, op| Ok(Kind { flush, op, unknown: Vec::new() });
        assert_eq!(rwbs(b"R"), kind(false, Some(Op::Read)));
        assert_eq!(rwbs(b"FWFS"), kind(true, Some(Op::Write)));
        assert_eq!(rwbs(b"DE"), kind(false, Some(Op::Discard)));
        assert_eq!(rwbs(b"WFSM"), kind(false, Some(Op::Write)));
        assert_eq!(rwbs(b"FN"), kind(true, None));
        assert_eq!(rwbs(b"F"), kind(true, None));
        assert_eq!(rwbs(b"N"), kind(false, None));
        assert_eq!(rwbs(b"WBS"), kind(true, Some(Op::Write)));
        assert_eq!(rwbs(b"RB"), kind(true, Some(Op::Read)));
        assert_eq!(rwbs(b"ZA"), kind(false, Some(Op::Write)));
        assert_eq!(rwbs(b"ZR"), kind(false, None));
        let unknown = Kind { flush: false, op: Some(Op::Write), unknown: b"XV".to_vec() };
        assert_eq!(rwbs(b"WXSV"), Ok(unknown));
        for wrong in [&b""[..], b"Q", b"R+", b"FX", b"[fio]", b"XR", b"S", b"r", b"W1"] {
            assert!(rwbs(wrong).is_err(), "{}", quoted(wrong));
        }
    }
}
