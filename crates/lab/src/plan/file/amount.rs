//! Sizes as people write them in a file: `"7.68TB"`, `"64MiB"`, or a whole number of bytes.

use std::fmt;

use esker_base::units::parse_bytes;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// A size in bytes, which is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::plan) struct Bytes(pub(in crate::plan) u64);

struct Reader;

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

impl Visitor<'_> for Reader {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"64MiB\", \"7.68TB\" or 4096")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
        match parse_bytes(text).map_err(E::custom)? {
            0 => Err(E::custom("0 bytes are too few; write for example \"64MiB\"")),
            bytes => Ok(Bytes(bytes)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Bytes, E> {
        match u64::try_from(number) {
            Ok(bytes) if bytes > 0 => Ok(Bytes(bytes)),
            _ => Err(E::custom(format!("{number} bytes are no size; write for example \"64MiB\""))),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Bytes, E> {
        i64::try_from(number).map_err(E::custom).and_then(|number| self.visit_i64(number))
    }
}
