//! NVMe Qualified Names (Base 2.1, 4.7), as hosts send them and as people write them.
//!
//! Names are compared byte by byte, without any text processing, as the specification asks. So a name is
//! either taken exactly as it came, or refused.
//!
//! | part | rule |
//! | --- | --- |
//! | all | UTF-8, 1 to 223 bytes, a zero byte behind it in a field of 256 |
//! | beginning | `nqn.`, a year and a month (`2026-01`), `.`, and the domain of whoever gave the name |
//! | characters | printable, no white space, no quotes, no backslash: a name stands in lines and in labels |

use super::fabrics::NQN_MAX;

/// Bytes of a field that holds a name.
pub const FIELD_SIZE: usize = 256;

/// Checks a name.
///
/// # Errors
/// The rule that it breaks.
pub fn check(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    if name.len() > NQN_MAX {
        return Err("it has more than 223 bytes");
    }
    // Nothing that a terminal or a reader of lines takes for more than a character.
    if name.contains(char::is_whitespace) || !name.escape_debug().eq(name.chars()) {
        return Err("it has white space, quotes, a backslash or characters that do not print");
    }
    let rest = name.strip_prefix("nqn.").ok_or("it does not begin with nqn.")?;
    let is_dated = rest.split_once('.').is_some_and(|(date, domain)| {
        is_date(date) && !domain.is_empty() && !domain.starts_with([':', '.'])
    });
    if is_dated { Ok(()) } else { Err("a date and a domain do not follow nqn.") }
}

/// Whether this is a year and a month.
fn is_date(date: &str) -> bool {
    let Some((year, month)) = date.split_once('-') else { return false };
    let is_number =
        |text: &str, size| text.len() == size && text.bytes().all(|b| b.is_ascii_digit());
    let is_month = month.parse::<u8>().is_ok_and(|month| (1..=12).contains(&month));
    is_number(year, 4) && is_number(month, 2) && is_month
}

/// The name in a field of a command's data.
///
/// # Errors
/// The rule that it breaks.
pub fn decode(field: &[u8; FIELD_SIZE]) -> Result<String, &'static str> {
    let end = field.iter().position(|&byte| byte == 0).ok_or("no zero byte ends it")?;
    let name = std::str::from_utf8(&field[..end]).map_err(|_| "it is not UTF-8")?;
    check(name).map(|()| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::fabrics::DISCOVERY_NQN;
    use crate::wire::padded;

    const PREFIX: &str = "nqn.2026-01.io.example:";

    #[test]
    fn names_that_hosts_have_are_taken_as_they_came() {
        for name in [
            DISCOVERY_NQN,
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2014-08.com.vmware:nvme:esx-1",
            "nqn.2014-08.localdomain:nvme:esx-1",
            "nqn.2016-06.io.spdk",
            "nqn.2026-12.io.example:größe/2_a%b",
        ] {
            assert_eq!(decode(&padded(name, 0)).as_deref(), Ok(name));
        }
        let longest = format!("{PREFIX}{}", "x".repeat(NQN_MAX - PREFIX.len()));
        assert_eq!(decode(&padded(&longest, 0)).as_deref(), Ok(&*longest));
    }

    #[test]
    fn malformed_names_are_refused() {
        let long = format!("{PREFIX}{}", "x".repeat(NQN_MAX + 1 - PREFIX.len()));
        let endless = format!("{PREFIX}{}", "x".repeat(FIELD_SIZE - PREFIX.len()));
        let wrong = [
            "",
            " ",
            "nqn.",
            "nqn.2026-01",
            "nqn.2026-01.",
            "nqn.2026-01.:a",
            "nqn.2026-13.io.a",
            "nqn.2026-00.io.a",
            "nqn.26-01.io.a",
            "nqn.2026-1.io.a",
            "nqn.+026-01.io.a",
            "NQN.2026-01.io.a",
            "iqn.2026-01.io.a",
            " nqn.2026-01.io.a",
            "nqn.x",
            "host",
        ];
        for name in wrong.into_iter().chain([&*long, &*endless]) {
            assert!(decode(&padded(name, 0)).is_err(), "{name:?}");
        }
        for tail in [
            " ",
            "a b",
            "a\n",
            "a\r",
            "\u{1b}[31m",
            "a\u{7f}",
            "a\u{9b}31m",
            "a\"",
            "a'",
            "a\\",
            "a\t",
            "\u{a0}",
            "\u{2028}",
            "\u{202e}a",
            "\u{200b}",
            "\u{feff}",
            "a\u{301}\u{e0001}",
        ] {
            let name = format!("{PREFIX}{tail}");
            assert!(decode(&padded(&name, 0)).is_err(), "{name:?}");
        }
        let mut field = padded(PREFIX, 0);
        field[PREFIX.len()] = 0xff;
        assert_eq!(decode(&field), Err("it is not UTF-8"));
        // Bytes behind the zero byte are not part of the name.
        field[PREFIX.len()..PREFIX.len() + 3].copy_from_slice(&[b'a', 0, 0xff]);
        assert_eq!(decode(&field), Ok(format!("{PREFIX}a")));
    }
}
