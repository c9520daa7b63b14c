//! Records as lines of text, for any bytes: key, a tab, value, a newline.
//!
//! | written | is |
//! | --- | --- |
//! | `\t` `\n` `\r` `\\` | a tab, a newline, a carriage return, a backslash |
//! | `\xNN` | the byte `NN`, two hexadecimal digits |
//! | anything else | itself; the writer does so for printable ASCII only |
//!
//! Invariant: what [`append`] writes, [`parse`] reads back, and it is ASCII.

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

/// Key and value of a line without its newline.
pub(super) fn parse(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
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
            assert_eq!(parse(body), Ok((key, value)));
        }
    }

    #[test]
    fn unescaped_bytes_stand_for_themselves() {
        assert_eq!(parse("clé\tvaleur é".as_bytes()).unwrap().0, "clé".as_bytes());
        assert_eq!(parse(b"k\t").unwrap(), (b"k".to_vec(), Vec::new()));
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
    }
}
