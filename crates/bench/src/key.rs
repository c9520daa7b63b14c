//! Keys: a record's number written as YCSB writes it.

use serde::{Deserialize, Serialize};

/// In which order records are inserted, seen by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrder {
    /// The number is hashed with [`fnv64`]: neighbours in time are scattered in key space.
    #[default]
    Hashed,
    /// The number itself: keys ascend as they are inserted, when zero-padded wide enough.
    Ordered,
}

/// How a record's number becomes its key: `user`, then a decimal number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFormat {
    /// Whether the number is hashed.
    pub order: KeyOrder,
    /// The least number of digits; shorter numbers get leading zeroes. At most 64.
    pub zero_padding: u8,
}

/// The widest padding of a key's number, in digits.
pub const MAX_ZERO_PADDING: u8 = 64;

impl KeyFormat {
    /// Replaces the content of `key` by the key of record `number`.
    pub fn write(&self, number: u64, key: &mut Vec<u8>) {
        let number = match self.order {
            KeyOrder::Hashed => fnv64(number),
            KeyOrder::Ordered => number,
        };
        key.clear();
        key.extend_from_slice(b"user");
        append_decimal(number, usize::from(self.zero_padding), key);
    }
}

/// YCSB's key hash: 64-bit FNV-1a over the eight octets of `number`, lowest first, then
/// the absolute value of the result as a signed number.
#[must_use]
pub fn fnv64(number: u64) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let hash = number
        .to_le_bytes()
        .iter()
        .fold(OFFSET_BASIS, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(PRIME));
    hash.cast_signed().unsigned_abs()
}

fn append_decimal(mut number: u64, width: usize, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    while number > 0 || first == digits.len() {
        first -= 1;
        digits[first] += u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
    let padding = width.saturating_sub(digits.len() - first);
    out.resize(out.len() + padding, b'0');
    out.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(format: KeyFormat, number: u64) -> String {
        let mut key = b"whatever was here before".to_vec();
        format.write(number, &mut key);
        String::from_utf8(key).unwrap()
    }

    /// The expected numbers were printed by YCSB 0.17's own `Utils.hash`.
    #[test]
    fn keys_are_those_of_ycsb() {
        let hashed = KeyFormat::default();
        assert_eq!(key(hashed, 0), "user6284781860667377211");
        assert_eq!(key(hashed, 1), "user8517097267634966620");
        assert_eq!(key(hashed, 999), "user2071219101098386137");
        assert_eq!(fnv64(123_456_789_012), 2_556_987_882_972_209_844);
    }

    #[test]
    fn ordered_keys_with_padding_sort_by_number() {
        let format = KeyFormat { order: KeyOrder::Ordered, zero_padding: 12 };
        assert_eq!(key(format, 0), "user000000000000");
        assert_eq!(key(format, 1_234), "user000000001234");
        assert!(key(format, 999) < key(format, 1_000));
        let plain = KeyFormat { zero_padding: 0, ..format };
        assert_eq!(key(plain, u64::MAX), format!("user{}", u64::MAX));
        assert_eq!(key(plain, 0), "user0");
    }
}
