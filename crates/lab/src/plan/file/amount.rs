//! Amounts as people write them in a file: sizes (`"7.68TB"`, `"64MiB"`, or a whole number of bytes), and prices
//! (`449.90`).

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
        if !text.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(E::custom(format!("'{text}' is no size; write for example \"64MiB\"")));
        }
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

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Bytes, E> {
        Err(E::custom(format!("{number} is no size; write for example \"64MiB\"")))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Bytes, E> {
        i64::try_from(number).map_err(E::custom).and_then(|number| self.visit_i64(number))
    }
}

/// A price in the currency of the file, 0 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) struct Price(pub(in crate::plan) f64);

/// Advice after a value that is no price.
const PRICE: &str = "write a number without a unit, for example 450 or 449.90; `currency` in [prices] names the currency";

struct PriceReader;

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Price, D::Error> {
        deserializer.deserialize_any(PriceReader)
    }
}

impl Visitor<'_> for PriceReader {
    type Value = Price;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a price such as 450 or 449.90")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Price, E> {
        let is_number = text.trim().parse::<f64>().is_ok();
        let meant = match parse_bytes(text) {
            Ok(_) if !is_number => "is a size where a price is meant",
            _ => "is no price",
        };
        Err(E::custom(format!("'{text}' {meant}: {PRICE}")))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Price, E> {
        match number >= 0.0 && number.is_finite() {
            true => Ok(Price(number)),
            false => Err(E::custom(format!("{number} is no price, which is 0 or more: {PRICE}"))),
        }
    }

    #[allow(clippy::cast_precision_loss)] // no price needs more than 53 bits
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Price, E> {
        self.visit_f64(number as f64)
    }

    #[allow(clippy::cast_precision_loss)] // as above
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Price, E> {
        self.visit_f64(number as f64)
    }
}
