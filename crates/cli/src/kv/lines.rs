//! Records as lines of text, for any bytes: key, a tab, value, a newline; and the lines around them in a
//! dump. The format is in `docs/format/dump.md`.
//!
//! | written | is |
//! | --- | --- |
//! | `\t` `\n` `\r` `\\` | a tab, a newline, a carriage return, a backslash |
//! | `\xNN` | the byte `NN`, two hexadecimal digits |
//! | anything else | itself; the writer does so for printable ASCII only |
//!
//! Invariants
//! 1. [`parse`] reads back the text that [`append`] and [`Mark::append`] write, and it is ASCII.
//! 2. No record's line begins as a mark does: a backslash and a letter that begins no escape.

/// The version of dumps.
pub(super) const VERSION: u32 = 1;

/// A line of a dump that is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// `\dump 1 COUNT`: the first line; so many KVSs follow.
    Dump(u64),
    /// `\kvs NAME ATTRIBUTE=VALUE …`: the records of a KVS follow.
    Kvs { name: String, attributes: Vec<(String, String)> },
    /// `\end COUNT`: so many records were those of the KVS.
    End(u64),
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Record(Vec<u8>, Vec<u8>),
    Mark(Mark),
}

impl Mark {
    /// Appends the line.
    pub(super) fn append(&self, line: &mut Vec<u8>) {
        match self {
            Mark::Dump(kvss) => {
                line.extend_from_slice(format!("\\dump {VERSION} {kvss}").as_bytes());
            }
            Mark::End(count) => line.extend_from_slice(format!("\\end {count}").as_bytes()),
            Mark::Kvs { name, attributes } => {
                line.extend_from_slice(format!("\\kvs {name}").as_bytes());
                for (attribute, value) in attributes {
                    line.extend_from_slice(format!(" {attribute}=").as_bytes());
                    let at = line.len();
                    append_escaped(line, value.as_bytes());
                    // A blank ends an attribute.
                    let escaped = line.split_off(at);
                    for byte in escaped {
                        match byte {
                            b' ' => line.extend_from_slice(b"\\x20"),
                            byte => line.push(byte),
                        }
                    }
                }
            }
        }
        line.push(b'\n');
    }

    fn parse(text: &str) -> Result<Mark, String> {
        let mut words = text.split(' ');
        let mark = match (words.next(), words.next()) {
            (Some("dump"), Some(version)) if version == VERSION.to_string() => {
                let kvss = words.next().and_then(count);
                Mark::Dump(kvss.ok_or("\\dump 1 is followed by how many KVSs there are")?)
            }
            (Some("dump"), Some(version)) => {
                return Err(format!(
                    "the dump has format version '{version}'; this build reads version {VERSION}"
                ));
            }
            (Some("end"), Some(records)) => {
                Mark::End(count(records).ok_or("\\end is followed by how many records there were")?)
            }
            (Some("kvs"), Some(name)) if is_name(name) => {
                let attributes = words.by_ref().map(attribute).collect::<Result<_, _>>()?;
                Mark::Kvs { name: name.to_owned(), attributes }
            }
            _ => return Err(format!("'\\{text}' is no line of a dump; \\\\ is a backslash")),
        };
        match words.next() {
            None => Ok(mark),
            Some(more) => Err(format!("'{more}' is more than the line takes")),
        }
    }
}

/// Whether a word names a KVS or an attribute: those that may not be there are refused by whoever looks for them.
fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A number as dumps write it.
fn count(word: &str) -> Option<u64> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| digits)
}

fn attribute(word: &str) -> Result<(String, String), String> {
    let (name, value) =
        word.split_once('=').ok_or_else(|| format!("'{word}' is no ATTRIBUTE=VALUE"))?;
    if !is_name(name) {
        return Err(format!("'{}' is no name of an attribute", name.escape_debug()));
    }
    let value = String::from_utf8(unescaped(value.as_bytes())?);
    let value = value.map_err(|_| format!("the value of '{name}' is not UTF-8"))?;
    Ok((name.to_owned(), value))
}

/// Appends the line of a record, or of its key alone.
pub(super) fn append(line: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    append_escaped(line, key);
    if let Some(value) = value {
        line.push(b'\t');
        append_escaped(line, value);
    }
    line.push(b'\n');
}

fn append_escaped(line: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        match byte {
            b'\t' => line.extend_from_slice(b"\\t"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\\' => line.extend_from_slice(b"\\\\"),
            b' '..=b'~' => line.push(byte),
            _ => {
                let digit = |nibble: u8| DIGITS[usize::from(nibble)];
                line.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
}

/// Parses a line, without its newline.
pub(super) fn parse(line: &[u8]) -> Result<Line, String> {
    if let [b'\\', b'd' | b'e' | b'k', ..] = line {
        let text = str::from_utf8(&line[1..]).map_err(|_| "the line is not UTF-8".to_owned())?;
        return Ok(Line::Mark(Mark::parse(text)?));
    }
    record(line).map(|(key, value)| Line::Record(key, value))
}

/// The line as it is written, of one that was read.
#[cfg(any(test, fuzzing))]
pub(crate) fn rewritten(line: &[u8]) -> Result<Vec<u8>, String> {
    let mut written = Vec::new();
    match parse(line)? {
        Line::Record(key, value) => append(&mut written, &key, Some(&value)),
        Line::Mark(mark) => mark.append(&mut written),
    }
    assert_eq!(written.pop(), Some(b'\n'));
    Ok(written)
}

fn record(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut fields = line.split(|byte| *byte == b'\t');
    let (key, value) = (fields.next().unwrap_or_default(), fields.next());
    let Some(value) = value else {
        return Err("there is no tab between key and value".to_owned());
    };
    if fields.next().is_some() {
        return Err("there is a second tab; write \\t for a tab in key or value".to_owned());
    }
    Ok((unescaped(key)?, unescaped(value)?))
}

/// The bytes that `text` stands for.
pub(super) fn unescaped(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        bytes.extend_from_slice(&rest[..at]);
        let (byte, length) = escape(&rest[at..]).ok_or_else(|| {
            let shown = &rest[at..rest.len().min(at + 4)];
            format!(
                "'{}' is no escape; use \\t \\n \\r \\\\ or \\xNN",
                String::from_utf8_lossy(shown)
            )
        })?;
        bytes.push(byte);
        rest = &rest[at + length..];
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

/// The byte that the escape at the start of `text` stands for, and the escape's length.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    Some(match text.get(1)? {
        b't' => (b'\t', 2),
        b'n' => (b'\n', 2),
        b'r' => (b'\r', 2),
        b'\\' => (b'\\', 2),
        b'x' => {
            let digit = |index: usize| char::from(*text.get(index)?).to_digit(16);
            (u8::try_from(digit(2)? * 16 + digit(3)?).ok()?, 4)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    #[test]
    fn any_bytes_come_back_from_a_line_of_printable_ascii() {
        let mut rng = Rng::new(1);
        let mut bytes = |length: u64| {
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            rng.fill(&mut bytes);
            bytes
        };
        let mut pairs =
            vec![((0..=255).collect(), Vec::new()), (b"a\\tb".to_vec(), b"\\x".to_vec())];
        pairs.extend((0..300).map(|n| (bytes(n % 17), bytes(n))));
        for (key, value) in pairs {
            let mut line = Vec::new();
            append(&mut line, &key, Some(&value));
            let body = line.strip_suffix(b"\n").unwrap();
            assert!(body.iter().all(|&b| b == b'\t' || (b' '..=b'~').contains(&b)));
            assert_eq!(parse(body), Ok(Line::Record(key, value)));
        }
    }

    #[test]
    fn unescaped_bytes_stand_for_themselves() {
        assert_eq!(record("clé\tvaleur é".as_bytes()).unwrap().0, "clé".as_bytes());
        assert_eq!(record(b"k\t").unwrap(), (b"k".to_vec(), Vec::new()));
    }

    #[test]
    fn a_malformed_line_says_what_is_wrong() {
        let refused = |line: &[u8], why: &str| {
            let message = parse(line).unwrap_err();
            assert!(message.contains(why), "{message}");
        };
        refused(b"", "no tab");
        refused(b"key value", "no tab");
        refused(b"a\tb\tc", "second tab");
        refused(b"a\t\\q", "'\\q' is no escape");
        refused(b"a\\x4\tb", "'\\x4' is no escape");
        refused(b"a\tb\\", "'\\' is no escape");
        refused(b"a\tb\\xg0", "'\\xg0' is no escape");
        refused(b"\\dump 2", "reads version 1");
        refused(b"\\dump", "no line of a dump");
        refused(b"\\end +5", "how many");
        refused(b"\\end 5 6", "more than");
        refused(b"\\kvs a b", "no ATTRIBUTE=VALUE");
        refused(b"\\kvs a b=\\q", "no escape");
        refused(b"\\elephant\tvalue", "no line of a dump");
    }

    #[test]
    fn marks_come_back_and_are_no_records() {
        let attributes = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
        };
        let marks = [
            Mark::Dump(2),
            Mark::End(0),
            Mark::End(u64::MAX),
            Mark::Kvs { name: "users".into(), attributes: Vec::new() },
            Mark::Kvs {
                name: "a.b-c_1".into(),
                attributes: attributes(&[("policy", "all of it\\here"), ("x", "é=\n"), ("y", "")]),
            },
        ];
        for mark in marks {
            let mut line = Vec::new();
            mark.append(&mut line);
            let body = line.strip_suffix(b"\n").unwrap();
            assert!(body.is_ascii() && !body.contains(&b'\n') && record(body).is_err());
            assert_eq!(parse(body), Ok(Line::Mark(mark)));
        }
    }

    /// Lines of any bytes, and lines with a few bytes changed: parsed or refused, and a parsed line is
    /// written so that it comes back.
    #[test]
    fn any_line_is_parsed_or_refused() {
        let mut rng = Rng::new(7);
        let seeds: [&[u8]; 5] = [
            b"key\tvalue",
            b"\\x00\\xff\\t\t\\n\\\\",
            b"\\dump 1 12",
            b"\\kvs users policy=staging-only x=\\x20y",
            b"\\end 12345",
        ];
        let (mut parsed, mut refused) = (0, 0);
        for n in 0..60_000usize {
            let mut line = seeds[n % seeds.len()].to_vec();
            for _ in 0..rng.below(4) {
                let at = usize::try_from(rng.below(line.len() as u64 + 1)).unwrap();
                let bytes = b"\\xtndke \t=019af\0\xff\r\"";
                let byte = bytes[usize::try_from(rng.below(bytes.len() as u64)).unwrap()];
                match rng.below(3) {
                    0 => line.insert(at, byte),
                    1 if at < line.len() => drop(line.remove(at)),
                    _ if at < line.len() => line[at] = byte,
                    _ => line.truncate(at / 2),
                }
            }
            let mut again = Vec::new();
            match parse(&line) {
                Ok(Line::Record(key, value)) => {
                    append(&mut again, &key, Some(&value));
                    let back = parse(again.strip_suffix(b"\n").unwrap());
                    assert_eq!(back, Ok(Line::Record(key, value)));
                    parsed += 1;
                }
                Ok(Line::Mark(mark)) => {
                    mark.append(&mut again);
                    assert_eq!(parse(again.strip_suffix(b"\n").unwrap()), Ok(Line::Mark(mark)));
                    parsed += 1;
                }
                Err(_) => refused += 1,
            }
        }
        assert!(parsed > 1_000 && refused > 1_000, "{parsed} parsed, {refused} refused");
    }
}
