//! The options of a KVS that may change: a sequence of options, each one byte of tag and its fields. One that
//! is not there has its default.
//!
//! | tag | size | fields |
//! | --- | --- | --- |
//! | 1 | 5 | policy: the places of young keys, young values, old keys, old values |
//! | 2 | 2 | compression of values: 0 none, 1 LZ4, 2 Zstandard, 3 auto |
//! | 3 | 9 | u64 time to live in milliseconds, at least 1 |
//!
//! A place is one byte: bit 0 is the class (as in the class header), bit 1 is set when the other
//! class will not do.

use esker_base::codec::{Decoder, Encoder};

use super::class::{class_code, class_of};
use super::{Malformed, expect};
use crate::types::compression::Compression;
use crate::types::policy::{KvsOptions, Place, Policy};

const POLICY: u8 = 1;
const COMPRESSION: u8 = 2;
const TTL: u8 = 3;
/// By their numbers.
const COMPRESSIONS: [Compression; 4] =
    [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Auto];
/// The bit of a place that must not be left.
const ONLY: u8 = 2;

fn put_place(e: &mut Encoder, place: Place) {
    e.u8(class_code(place.class) | if place.overflows { 0 } else { ONLY });
}

fn take_place(d: &mut Decoder<'_>) -> Result<Place, Malformed> {
    let code = d.u8("place")?;
    Ok(Place { class: class_of(code & !ONLY)?, overflows: code & ONLY == 0 })
}

pub(crate) fn encode(options: &KvsOptions) -> Vec<u8> {
    let mut e = Encoder::default();
    e.u8(POLICY);
    options.policy.cells().into_iter().for_each(|(_, place)| put_place(&mut e, place));
    let code = (0..).zip(COMPRESSIONS).find(|(_, known)| *known == options.compression);
    e.u8(COMPRESSION).u8(code.expect("all are listed").0);
    if let Some(ttl_ms) = options.ttl_ms {
        e.u8(TTL).u64(ttl_ms);
    }
    e.0
}

pub(crate) fn decode(bytes: &[u8]) -> Result<KvsOptions, Malformed> {
    let mut options = KvsOptions::default();
    let mut d = Decoder::new(bytes);
    while d.left() > 0 {
        match d.u8("option")? {
            POLICY => {
                options.policy = Policy {
                    young_keys: take_place(&mut d)?,
                    young_values: take_place(&mut d)?,
                    old_keys: take_place(&mut d)?,
                    old_values: take_place(&mut d)?,
                }
            }
            COMPRESSION => {
                let code = d.u8("compression")?;
                let known = COMPRESSIONS.get(usize::from(code)).copied();
                options.compression =
                    known.ok_or_else(|| Malformed(format!("compression {code} of a KVS")))?;
            }
            TTL => {
                let ttl_ms = d.u64("time to live")?;
                expect(ttl_ms > 0, || "a time to live of 0 ms".into())?;
                options.ttl_ms = Some(ttl_ms);
            }
            tag => return Err(Malformed(format!("unknown option {tag} of a KVS"))),
        }
    }
    Ok(options)
}
