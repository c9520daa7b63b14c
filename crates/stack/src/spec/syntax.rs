//! `scheme:body?key=value&…`, whatever the scheme.
//!
//! Body and values are bytes, because paths are; or each is one or more specifications in parentheses,
//! whose text is left as it is.

use std::fmt;
use std::time::Duration;

use esker_base::units::parse_bytes;

use super::Spec;

/// How many specifications may lie within one another.
const MOST_NESTED: usize = 8;

/// A body, or the value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Bytes as written, decoded.
    Bytes(Vec<u8>),
    /// Specifications in parentheses, one or more.
    Specs(Vec<Spec>),
}

/// The parts of a specification.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parts {
    pub(crate) body: Value,
    pub(crate) pairs: Vec<(String, Value)>,
}

/// The scheme of a text and the rest after its colon, if it has one. Anything else is a path.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let starts = scheme.starts_with(|c: char| c.is_ascii_lowercase());
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-".contains(c);
    (starts && scheme.chars().all(fine)).then_some((scheme, rest))
}

impl Parts {
    /// A specification that so far is its body.
    pub(crate) fn new(body: impl Into<Value>) -> Parts {
        Parts { body: body.into(), pairs: Vec::new() }
    }

    /// Parses the text after the colon.
    pub(crate) fn parse(rest: &str) -> Result<Parts, String> {
        check_parentheses(rest)?;
        let (body, pairs) = split_outside(rest, '?').unwrap_or((rest, ""));
        let mut parts = Parts::new(Value::parse(body)?);
        let mut left = Some(pairs);
        while let Some(text) = left {
            let (pair, after) = match split_outside(text, '&') {
                Some((pair, after)) => (pair, Some(after)),
                None => (text, None),
            };
            left = after;
            if pair.is_empty() {
                continue;
            }
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("'{pair}' is no key=value"));
            };
            if parts.pairs.iter().any(|(known, _)| known == key) {
                return Err(format!("'{key}' is said twice"));
            }
            let value = Value::parse(value).map_err(|why| format!("{key}: {why}"))?;
            parts.pairs.push((key.to_owned(), value));
        }
        Ok(parts)
    }

    /// Adds a key with its value, if there is one.
    pub(crate) fn push(&mut self, key: &str, value: Option<impl Into<Value>>) {
        self.pairs.extend(value.map(|value| (key.to_owned(), value.into())));
    }

    /// The body as bytes.
    pub(crate) fn bytes(&self) -> Result<&[u8], String> {
        self.body.bytes()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> Result<&str, String> {
        as_text(self.bytes()?)
    }

    /// The specification that the body is; `example` says how it is written.
    pub(crate) fn spec(&self, example: &str) -> Result<&Spec, String> {
        self.body.spec(example)
    }

    /// The specifications that the body is, one or more.
    pub(crate) fn specs(&self, example: &str) -> Result<&[Spec], String> {
        self.body.specs(example)
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.body.fmt(f)?;
        for (index, (key, value)) in self.pairs.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(f, "{mark}{key}={value}")?;
        }
        Ok(())
    }
}

impl Value {
    fn parse(text: &str) -> Result<Value, String> {
        let Some(within) = groups(text) else { return decode(text).map(Value::Bytes) };
        let specs = within.into_iter().map(|one| one.parse::<Spec>().map_err(|e| e.to_string()));
        specs.collect::<Result<_, _>>().map(Value::Specs)
    }

    fn bytes(&self) -> Result<&[u8], String> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Specs(_) => {
                let why =
                    "is a specification where none is taken; for parentheses, write %28 and %29";
                Err(format!("{self} {why}"))
            }
        }
    }

    fn spec(&self, example: &str) -> Result<&Spec, String> {
        match self.specs(example)? {
            [spec] => Ok(spec),
            several => {
                let count = several.len();
                Err(format!("{count} specifications stand where one is taken; write {example}"))
            }
        }
    }

    fn specs(&self, example: &str) -> Result<&[Spec], String> {
        match self {
            Value::Specs(specs) => Ok(specs),
            Value::Bytes(bytes) => {
                let found = bytes.escape_ascii();
                Err(format!("'{found}' is no specification in parentheses; write {example}"))
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bytes(bytes) => f.write_str(&encode(bytes)),
            Value::Specs(specs) => specs.iter().try_for_each(|spec| write!(f, "({spec})")),
        }
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::Bytes(bytes)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Bytes(text.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Bytes(text.into())
    }
}

impl From<Spec> for Value {
    fn from(spec: Spec) -> Value {
        Value::Specs(vec![spec])
    }
}

impl From<Vec<Spec>> for Value {
    fn from(specs: Vec<Spec>) -> Value {
        Value::Specs(specs)
    }
}

/// Returns the content of each pair of parentheses, if a text is one pair after the other.
fn groups(text: &str) -> Option<Vec<&str>> {
    let (mut found, mut start) = (Vec::new(), 0);
    for (at, _, open) in depths(text) {
        match open {
            0 => {
                found.push(text.get(start..=at)?.strip_prefix('(')?.strip_suffix(')')?);
                start = at + 1;
            }
            _ if open < 0 => return None,
            _ => {}
        }
    }
    (start == text.len() && !found.is_empty()).then_some(found)
}

/// Each byte with how many parentheses are open around it; below zero where one closes that was
/// not opened.
fn depths(text: &str) -> impl Iterator<Item = (usize, u8, isize)> {
    let mut open = 0;
    text.bytes().enumerate().map(move |(at, byte)| {
        match byte {
            b'(' => open += 1,
            b')' => open -= 1,
            _ => {}
        }
        (at, byte, open)
    })
}

fn is_balanced(text: &str) -> bool {
    let last = depths(text).last().map_or(0, |(_, _, open)| open);
    last == 0 && depths(text).all(|(_, _, open)| open >= 0)
}

fn check_parentheses(text: &str) -> Result<(), String> {
    if !is_balanced(text) {
        let why = "a parenthesis has no other; for one by itself, write %28 or %29";
        return Err(why.to_owned());
    }
    let deepest = depths(text).map(|(_, _, open)| open.unsigned_abs()).max().unwrap_or(0);
    if deepest > MOST_NESTED {
        return Err(format!("more than {MOST_NESTED} specifications within one another"));
    }
    Ok(())
}

/// Splits at the first `mark` that is not within parentheses.
fn split_outside(text: &str, mark: char) -> Option<(&str, &str)> {
    let is_it = |byte: u8| char::from(byte) == mark;
    let at = depths(text).find(|(_, byte, open)| *open == 0 && is_it(*byte))?.0;
    Some((&text[..at], &text[at + 1..]))
}

fn as_text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("'{}' is no text", bytes.escape_ascii()))
}

fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match (first, after) {
            (b'%', [high, low, after @ ..]) if let Some(byte) = byte_of(*high, *low) => {
                rest = after;
                byte
            }
            (b'%', _) => {
                let why = "'%' stands before two hexadecimal digits; write %25 for itself";
                return Err(why.to_owned());
            }
            (b'(' | b')', _) => {
                let why = "parentheses hold a specification that is the whole of a body or a \
                           value; for others, write %28 and %29";
                return Err(why.to_owned());
            }
            (byte, _) => byte,
        });
    }
    Ok(bytes)
}

fn byte_of(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Encodes characters with a meaning, control characters, and bytes that are no text.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if "%&?()".contains(c) || c.is_control() {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer).bytes().for_each(|byte| encode_byte(&mut text, byte));
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|&byte| encode_byte(&mut text, byte));
    }
    text
}

fn encode_byte(text: &mut String, byte: u8) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    text.extend(['%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// A key of a kind of specification.
pub(crate) type Key = (&'static str, &'static str);

/// The keys of one specification, taken one after the other.
pub(crate) struct Keys {
    pairs: Vec<(String, Value)>,
}

impl Keys {
    /// The pairs, if all of them are among `known`: names and their values' forms.
    pub(crate) fn of(scheme: &str, parts: &Parts, known: &[Key]) -> Result<Keys, String> {
        for (key, _) in &parts.pairs {
            if known.iter().all(|(name, _)| name != key) {
                let all: Vec<String> =
                    known.iter().map(|(name, takes)| format!("{name}={takes}")).collect();
                return Err(format!("'{scheme}' has no key '{key}'; there are {}", all.join(", ")));
            }
        }
        Ok(Keys { pairs: parts.pairs.clone() })
    }

    fn value(&mut self, key: &str) -> Option<Value> {
        let at = self.pairs.iter().position(|(name, _)| name == key)?;
        Some(self.pairs.swap_remove(at).1)
    }

    /// The value of a key as bytes.
    pub(crate) fn bytes(&mut self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let bytes = value.bytes().map(<[u8]>::to_vec);
        bytes.map(Some).map_err(|why| format!("{key}: {why}"))
    }

    /// The specification that the value of a key is.
    pub(crate) fn spec(&mut self, key: &str) -> Result<Option<Spec>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let example = format!("{key}=(mem:1GiB)");
        let spec = value.spec(&example).cloned();
        spec.map(Some).map_err(|why| format!("{key}: {why}"))
    }

    /// The specifications that the value of a key is, one or more.
    pub(crate) fn specs(&mut self, key: &str) -> Result<Option<Vec<Spec>>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let example = format!("{key}=(/dev/nvme0n1)(/dev/nvme1n1)");
        let specs = value.specs(&example).map(<[Spec]>::to_vec);
        specs.map(Some).map_err(|why| format!("{key}: {why}"))
    }

    /// The value of a key, read by `read`, whose refusal says the right form.
    pub(crate) fn take<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.bytes(key)? else { return Ok(None) };
        let value = as_text(&value).and_then(read);
        value.map(Some).map_err(|why| format!("{key}: {why}"))
    }
}

/// A size that is not zero.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("0 bytes are too few; write for example 8GiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A size in the largest unit in which it is a whole number.
pub(crate) fn show_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = units.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    fitting.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// A number in a range.
pub(crate) fn number(least: u32, most: u32) -> impl FnOnce(&str) -> Result<u32, String> {
    move |text| match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("'{text}' is no number from {least} to {most}")),
    }
}

/// A duration that is not zero, in whole milliseconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let in_unit = |(unit, ms): (&str, u64)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(ms).filter(|&ms| ms > 0)
    };
    let found = units.into_iter().find_map(in_unit);
    found
        .map(Duration::from_millis)
        .ok_or_else(|| format!("'{text}' is no duration; write for example 30s, 200ms or 2min"))
}

/// A duration in the largest unit in which it is a whole number.
pub(crate) fn show_duration(duration: Duration) -> String {
    match duration.as_millis() {
        ms if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// Bytes per LBA.
pub(crate) fn lba_size(text: &str) -> Result<u32, String> {
    let found = parse_bytes(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
    found.filter(|size| size.is_power_of_two() && (512..=4096).contains(size)).ok_or_else(|| {
        format!("'{text}' is no size of an LBA; it has 512, 1024, 2048 or 4096 bytes")
    })
}

/// One of several names.
pub(crate) fn one_of<T: Copy>(
    names: &'static [(&'static str, T)],
) -> impl FnOnce(&str) -> Result<T, String> {
    move |text| {
        let found = names.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            format!("'{text}' is unknown; write {}", all.join(" or "))
        })
    }
}

/// The name of a value among several.
pub(crate) fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_lower_case_and_a_path_has_none() {
        assert_eq!(split_scheme("ssd:x?y"), Some(("ssd", "x?y")));
        assert_eq!(split_scheme("nvme-tcp://host"), Some(("nvme-tcp", "//host")));
        for path in ["/dev/nvme0n1", "./ssd:x", "a/b:c", "C:\\x", "9p:x", "plain", "", ":x"] {
            assert_eq!(split_scheme(path), None, "{path}");
        }
    }

    #[test]
    fn characters_with_a_meaning_are_written_as_hexadecimal_digits() {
        let parts = Parts::parse("/a%3Fb%26?key=1%25&other=%ff").unwrap();
        assert_eq!(parts.bytes(), Ok(&b"/a?b&"[..]));
        let expected = [("key".to_owned(), "1%".into()), ("other".to_owned(), vec![255].into())];
        assert_eq!(parts.pairs, expected);
        assert_eq!(parts.to_string(), "/a%3Fb%26?key=1%25&other=%FF");
    }

    #[test]
    fn malformed_texts_are_answered_with_right_forms() {
        let refused = |text: &str, why: &str| {
            let message = Parts::parse(text).unwrap_err();
            assert!(message.contains(why), "{message}");
        };
        refused("x?y", "no key=value");
        refused("x?y=1&y=2", "said twice");
        refused("50%", "write %25");
        refused("50%zz", "write %25");
        refused("x?y=1(mem:1MiB)", "%28 and %29");
        refused("x?y=(mem:1MiB)x(mem:1MiB)", "%28 and %29");
        refused("x?y=(mem:1MiB)(mem:1)", "y: 'mem:1': 1 bytes are no multiple");
        refused("x?y=(mem:1MiB", "has no other");
        refused("x)?y=(", "has no other");
        refused("(tape:x)", "no devices 'tape:'");
        refused("x?y=(mem:1)", "y: 'mem:1': 1 bytes are no multiple");
        let deep = |depth: usize| format!("{}mem:1MiB{}", "(".repeat(depth), ")".repeat(depth));
        refused(&deep(9), "more than 8");
        refused(&deep(100_000), "more than 8");
    }

    #[test]
    fn a_specification_in_parentheses_is_left_to_itself() {
        let parts = Parts::parse("(mem:1MiB?lba=512)?other=(file:/a%28?lba=512&uring=never)&key=1");
        let parts = parts.unwrap();
        assert_eq!(parts.spec("").unwrap().to_string(), "mem:1MiB?lba=512");
        let mut keys = Keys::of("x:", &parts, &[("other", "DEVICE"), ("key", "1")]).unwrap();
        assert_eq!(keys.take("key", number(0, 1)), Ok(Some(1)));
        let spec = keys.spec("other").unwrap().unwrap();
        assert_eq!(spec.to_string(), "file:/a%28?lba=512&uring=never");
        assert_eq!(Parts::parse(&parts.to_string()), Ok(parts.clone()));
        assert!(parts.text().unwrap_err().contains("where none is taken"));
        let path = Parts::parse("(/a(b)?c&d)").unwrap();
        assert_eq!(path.to_string(), "(file:/a%28b%29%3Fc%26d)");
        let plain = Parts::parse("x?other=mem:1MiB").unwrap();
        let mut keys = Keys::of("x:", &plain, &[("other", "DEVICE")]).unwrap();
        assert!(keys.spec("other").unwrap_err().contains("write other=(mem:1GiB)"));
    }

    #[test]
    fn several_specifications_stand_one_after_the_other() {
        let parts = Parts::parse("(mem:1MiB)(/a(b))?one=(mem:1MiB)(mem:2MiB)").unwrap();
        assert_eq!(parts.specs("").unwrap().len(), 2);
        assert_eq!(parts.to_string(), "(mem:1MiB)(file:/a%28b%29)?one=(mem:1MiB)(mem:2MiB)");
        assert!(parts.spec("x:(SPEC)").unwrap_err().contains("2 specifications"));
        assert!(parts.text().unwrap_err().contains("(mem:1MiB)(file:/a"));
        let mut keys = Keys::of("x:", &parts, &[("one", "DEVICE")]).unwrap();
        assert!(keys.spec("one").unwrap_err().contains("write one=(mem:1GiB)"));
        let plain = Parts::parse("x?other=mem:1MiB").unwrap();
        let mut keys = Keys::of("x:", &plain, &[("other", "DEVICES")]).unwrap();
        assert!(keys.specs("other").unwrap_err().contains("write other=(/dev/nvme0n1)"));
    }

    #[test]
    fn durations_are_shown_as_they_are_read() {
        for (text, ms) in [("1ms", 1), ("1500ms", 1500), ("30s", 30_000), ("120s", 120_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
            assert_eq!(show_duration(Duration::from_millis(ms)), text);
        }
        assert_eq!(duration("2min"), duration("120s"));
        assert_eq!(duration("1h"), duration("60min"));
        assert_eq!(duration("2d"), duration("48h"));
        for wrong in
            ["", "0s", "30", "s", "-1s", "1w", "18446744073709551615s", "18446744073709551615d"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_divides_them() {
        let sizes = [0, 1, 1 << 10, 1025, 3 << 30, 5 << 40, u64::MAX];
        for bytes in sizes {
            assert_eq!(parse_bytes(&show_size(bytes)), Ok(bytes));
        }
        assert_eq!(show_size(3 << 30), "3GiB");
    }
}
