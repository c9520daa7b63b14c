//! The fields of a line of text: numbers and times, each with its name in errors.

/// Separator of the fields of a line.
#[derive(Clone, Copy)]
pub(crate) enum Between {
    /// One comma between any two.
    Comma,
    /// Any number of blanks and tabs.
    Blanks,
}

/// Walks the fields of a line.
pub(crate) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    between: Between,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(line: &'a [u8], between: Between) -> Fields<'a> {
        let rest = match between {
            Between::Comma => Some(line),
            Between::Blanks => Some(line.trim_ascii()).filter(|line| !line.is_empty()),
        };
        Fields { rest, between }
    }

    /// The next field, if the line has one more.
    pub(crate) fn optional(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let end = match self.between {
            Between::Comma => rest.iter().position(|&byte| byte == b','),
            Between::Blanks => rest.iter().position(|byte| matches!(byte, b' ' | b'\t')),
        };
        let Some(end) = end else {
            self.rest = None;
            return Some(rest.trim_ascii());
        };
        let field = &rest[..end];
        self.rest = match self.between {
            Between::Comma => Some(&rest[end + 1..]),
            Between::Blanks => Some(rest[end..].trim_ascii_start()),
        };
        Some(field.trim_ascii())
    }

    /// All that is left of the line.
    pub(crate) fn rest(&self) -> Option<&'a [u8]> {
        self.rest
    }

    /// The next field.
    pub(crate) fn field(&mut self, name: &str) -> Result<&'a [u8], String> {
        self.optional().ok_or_else(|| format!("the line ends before its field '{name}'"))
    }

    /// Passes a field.
    pub(crate) fn skip(&mut self, name: &str) -> Result<(), String> {
        self.field(name).map(drop)
    }

    /// The next field, a whole number.
    pub(crate) fn number(&mut self, name: &str) -> Result<u64, String> {
        number(self.field(name)?, name)
    }

    /// The next field, a number of units of `scale` in the result's unit.
    pub(crate) fn scaled(&mut self, name: &str, scale: u64) -> Result<u64, String> {
        let number = self.number(name)?;
        number.checked_mul(scale).ok_or_else(|| format!("{name} {number} is too large"))
    }

    /// The next field, a decimal number of units of `unit_ns` nanoseconds.
    pub(crate) fn time(&mut self, name: &str, unit_ns: u64) -> Result<u64, String> {
        time(self.field(name)?, name, unit_ns)
    }

    /// The next field, the identity of a device, which is a number or a word.
    pub(crate) fn word(&mut self, name: &str) -> Result<&'a [u8], String> {
        let word = self.field(name)?;
        if word.is_empty() || word.len() > 256 {
            return Err(format!("{name} has {} bytes, not 1 to 256", word.len()));
        }
        Ok(word)
    }

    /// The line has to end here.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        match self.optional() {
            None => Ok(()),
            Some(more) => Err(format!("{} follows where the line should end", quoted(more))),
        }
    }
}

/// A whole number.
pub(crate) fn number(field: &[u8], name: &str) -> Result<u64, String> {
    let mut value = 0u64;
    for &byte in field {
        let digit = byte.wrapping_sub(b'0');
        let next = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit)));
        match next {
            Some(next) if digit < 10 => value = next,
            _ => return Err(no_number(field, name)),
        }
    }
    if field.is_empty() { Err(no_number(field, name)) } else { Ok(value) }
}

/// A decimal number of units of `unit_ns` nanoseconds, in nanoseconds; finer digits are cut off.
pub(crate) fn time(field: &[u8], name: &str, unit_ns: u64) -> Result<u64, String> {
    let point = field.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&field[..at], &field[at + 1..]),
        None => (field, &[][..]),
    };
    let too_large = || format!("{name} {} is too large", quoted(field));
    let mut ns = number(whole, name)?.checked_mul(unit_ns).ok_or_else(too_large)?;
    let mut scale = unit_ns;
    for &byte in fraction {
        if !byte.is_ascii_digit() {
            return Err(no_number(field, name));
        }
        let worth = u128::from(scale) * u128::from(byte - b'0') / 10;
        let worth = u64::try_from(worth).expect("below the scale");
        ns = ns.checked_add(worth).ok_or_else(too_large)?;
        // Every unit in use is a power of ten times one nanosecond.
        scale /= 10;
    }
    Ok(ns)
}

fn no_number(field: &[u8], name: &str) -> String {
    format!("{name} is {}, which is no number of 64 bits", quoted(field))
}

/// A field in an error, cut where it is long.
pub(crate) fn quoted(field: &[u8]) -> String {
    cut(field, 40)
}

/// A line in an error, cut where it is long.
pub(crate) fn quoted_line(line: &[u8]) -> String {
    cut(line, 80)
}

/// Text between quotes and escaped, of at most `most` bytes.
fn cut(text: &[u8], most: usize) -> String {
    let shown = String::from_utf8_lossy(&text[..text.len().min(most)]).into_owned();
    let more = if text.len() > most { "..." } else { "" };
    format!("'{}{more}'", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(
            time(b"1456095145.133076000", "t", 1_000_000_000),
            Ok(1_456_095_145_133_076_000)
        );
        assert_eq!(time(b"0.551706", "t", 1_000_000_000), Ok(551_706_000));
        assert_eq!(time(b"12.5", "t", 1_000_000), Ok(12_500_000));
        assert_eq!(time(b"0.1234567899", "t", 1_000_000_000), Ok(123_456_789));
        assert_eq!(time(b"7", "t", 1), Ok(7));
        for wrong in [&b""[..], b".", b"1e9", b"-1", b"1.2.3", b"99999999999999999999", b" 1"] {
            assert!(time(wrong, "t", 1_000_000_000).is_err(), "{}", quoted(wrong));
        }
        assert!(time(b"18446744073709551615", "t", 10).unwrap_err().contains("too large"));
    }

    #[test]
    fn fields_are_parted_by_one_comma_or_by_many_blanks() {
        let mut fields = Fields::new(b"1,,x y", Between::Comma);
        assert_eq!(fields.number("a"), Ok(1));
        assert!(fields.number("b").unwrap_err().contains("b is ''"));
        assert_eq!(fields.field("c"), Ok(&b"x y"[..]));
        assert!(fields.field("d").unwrap_err().contains("'d'"));
        let mut fields = Fields::new(b"  1 \t 2  ", Between::Blanks);
        assert_eq!((fields.number("a"), fields.number("b")), (Ok(1), Ok(2)));
        assert_eq!(fields.end(), Ok(()));
    }
}
