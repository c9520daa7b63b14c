//! Newtypes where a mix-up would corrupt data, and conversions that cannot lose bits.
//!
//! `offset` and `size` are bytes, `lba` is a logical block address, `count` is how many.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

const _: () = assert!(usize::BITS == 64, "Esker needs a 64-bit target");

/// A logical block address: an index of LBAs from the start of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// A number of logical blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LbaCount(pub u64);

impl Lba {
    /// The byte offset of this LBA on a device with LBAs of `lba_size` bytes; the largest one for what is beyond it.
    #[must_use]
    pub const fn offset(self, lba_size: u32) -> u64 {
        self.0.saturating_mul(lba_size as u64)
    }
}

impl LbaCount {
    /// The size in bytes of this many LBAs of `lba_size` bytes; the largest one for more. A remote target may say that
    /// it has more.
    #[must_use]
    pub const fn bytes(self, lba_size: u32) -> u64 {
        self.0.saturating_mul(lba_size as u64)
    }

    /// The number of LBAs of `lba_size` bytes that hold `bytes` bytes, rounded up.
    #[must_use]
    pub const fn holding(bytes: u64, lba_size: u32) -> LbaCount {
        LbaCount(bytes.div_ceil(lba_size as u64))
    }
}

impl Add<LbaCount> for Lba {
    type Output = Lba;
    fn add(self, count: LbaCount) -> Lba {
        Lba(self.0 + count.0)
    }
}

impl Sub<Lba> for Lba {
    type Output = LbaCount;
    fn sub(self, start: Lba) -> LbaCount {
        LbaCount(self.0 - start.0)
    }
}

impl Add for LbaCount {
    type Output = LbaCount;
    fn add(self, other: LbaCount) -> LbaCount {
        LbaCount(self.0 + other.0)
    }
}

impl AddAssign for LbaCount {
    fn add_assign(&mut self, other: LbaCount) {
        self.0 += other.0;
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LBA {}", self.0)
    }
}

impl fmt::Display for LbaCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// `u64` to `usize`, which are the same on every target Esker builds for.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // asserted above: usize has 64 bits
pub const fn to_usize(value: u64) -> usize {
    value as usize
}

/// `usize` to `u64`.
#[must_use]
pub const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// Rounds `value` up to a multiple of `unit`.
///
/// # Panics
/// If `unit` is zero.
#[must_use]
pub const fn round_up(value: u64, unit: u64) -> u64 {
    value.div_ceil(unit) * unit
}

/// Rounds `value` down to a multiple of `unit`.
///
/// # Panics
/// If `unit` is zero.
#[must_use]
pub const fn round_down(value: u64, unit: u64) -> u64 {
    value / unit * unit
}

/// Bytes as people read them: `1.50 MiB`.
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    #[allow(clippy::cast_precision_loss)] // a figure for people, three digits
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// A number with commas between thousands.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many things of a kind, whose name is that of one: `1 drive`, `2 parities`, `1,024 flushes`.
#[must_use]
pub fn counted(number: u64, one: &str) -> String {
    if number == 1 {
        return format!("1 {one}");
    }
    let number = grouped(number);
    match one.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ if one.ends_with("sh") || one.ends_with("ch") => format!("{number} {one}es"),
        _ => format!("{number} {one}s"),
    }
}

/// Nanoseconds of a span; the longest number of them for a longer one.
#[must_use]
pub fn to_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A latency of a histogram, which tells the end of a bucket alone: `≤8.59 s`. The last bucket, from `open` on, has
/// no end: `≥51.5 s`. Nothing was counted where the end is zero.
#[must_use]
#[allow(clippy::cast_precision_loss)] // a figure for people, three digits
pub fn bound(end: Duration, open: Duration) -> String {
    const UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
    if end.is_zero() {
        return "-".to_owned();
    }
    let (ns, sign, round): (_, _, fn(f64) -> f64) = match end > open {
        true => (open.as_nanos() as f64, '≥', f64::floor),
        false => (end.as_nanos() as f64, '≤', f64::ceil),
    };
    let (scale, unit) = UNITS.into_iter().find(|(scale, _)| ns >= *scale).unwrap_or((1.0, "ns"));
    let value = ns / scale;
    let (digits, parts) = match value {
        _ if unit == "ns" => (0, 1.0),
        v if v <= 9.99 => (2, 100.0),
        v if v <= 99.9 => (1, 10.0),
        _ => (0, 1.0),
    };
    // Three digits that keep the promise.
    format!("{sign}{:.digits$} {unit}", round(value * parts) / parts)
}

/// Parses a size as people write it: `4096`, `64KiB`, `1.5GiB`, `100MB`.
///
/// # Errors
/// A sentence that names the expected form.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        "PiB" | "P" => 1 << 50,
        "EiB" | "E" => 1 << 60,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "PB" => 1_000_000_000_000_000,
        "EB" => 1_000_000_000_000_000_000,
        other => {
            return Err(format!(
                "'{text}': unknown unit '{other}'; use B, KiB, MiB, GiB, TiB, PiB, KB, MB, GB, TB or PB"
            ));
        }
    };
    let expected = || format!("'{text}' is not a size; write for example 64MiB, 1.5GiB or 4096");
    if number.contains('.') {
        let value: f64 = number.parse().map_err(|_| expected())?;
        #[allow(clippy::cast_precision_loss)] // scales are exact in f64
        let bytes = value * scale as f64;
        if bytes < 1.8e19 {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            // in range, not negative
            return Ok(bytes as u64);
        }
    } else if let Some(bytes) = number.parse::<u64>().map_err(|_| expected())?.checked_mul(scale) {
        return Ok(bytes);
    }
    Err(format!("'{text}' is larger than any device; give less than 16EiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_64_bits_are_the_largest() {
        for count in [u64::MAX, 1 << 63, u64::MAX / 512] {
            assert_eq!(LbaCount(count).bytes(4096), u64::MAX);
            assert_eq!(Lba(count).offset(4096), u64::MAX);
        }
        assert_eq!((LbaCount(3).bytes(512), Lba(3).offset(4096)), (1536, 12288));
    }

    #[test]
    fn latency_of_a_bucket_is_a_bound_that_holds() {
        let open = 51_539_607_552;
        let shown = [0, 256, 12_288, 999_424, 1_048_576, 8_589_934_592, open, 60_129_542_144]
            .map(|ns| bound(Duration::from_nanos(ns), Duration::from_nanos(open)));
        let expected =
            ["-", "≤256 ns", "≤12.3 µs", "≤1000 µs", "≤1.05 ms", "≤8.59 s", "≤51.6 s", "≥51.5 s"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn one_thing_is_not_many() {
        let texts = [(0, "key"), (1, "entry"), (2, "entry"), (1_024, "flush"), (2, "KVS")];
        let said = texts.map(|(number, one)| counted(number, one));
        assert_eq!(said, ["0 keys", "1 entry", "2 entries", "1,024 flushes", "2 KVSs"]);
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([0, 999, 1_234_567].map(grouped), ["0", "999", "1,234,567"]);
    }

    #[test]
    fn sizes_read_back_as_people_write_them() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("100MB"), Ok(100_000_000));
        assert!(parse_bytes("12 parsecs").unwrap_err().contains("unknown unit"));
        assert!(parse_bytes("").is_err());
        assert!(parse_bytes("99999999TiB").is_err());
        assert_eq!(human_bytes(1536), "1.50 KiB");
        assert_eq!(human_bytes(7), "7 B");
    }
}
