//! Fuzz targets: any text in place of a size or a policy, and any bytes in place of fields. Each says whether they were
//! accepted. Run by `fuzz/`, and on their corpora by the test below.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use crate::codec::{Decoder, Encoder};
use crate::policy::Kind;
use crate::units::{human_bytes, parse_bytes};

/// A size, or a replacement policy, as a user says it.
pub fn base_text(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let size = parse_bytes(text);
    if let Ok(size) = size {
        assert_eq!(parse_bytes(&size.to_string()), Ok(size));
        assert!(human_bytes(size).len() < 16 + text.len());
    }
    let kind = text.parse::<Kind>();
    if let Ok(kind) = kind {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    size.is_ok() | kind.is_ok()
}

/// Fields one after the other, each after a byte that says its type.
pub fn base_codec(data: &[u8]) -> bool {
    let (mut d, mut e) = (Decoder::new(data), Encoder::default());
    let mut next = || {
        match d.u8("type")? % 6 {
            0 => e.u8(0).u8(d.u8("field")?),
            1 => e.u8(1).u16(d.u16("field")?),
            2 => e.u8(2).u32(d.u32("field")?),
            3 => e.u8(3).u64(d.u64("field")?),
            4 => e.u8(4).bytes16(d.bytes16("field")?),
            _ => e.u8(5).varint(d.varint("field")?),
        };
        Ok::<_, crate::codec::Truncated>(d.left())
    };
    let whole = loop {
        match next() {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => {
                assert!(error.offset <= data.len());
                break false;
            }
        }
    };
    // A number may have been written in more bytes than it needs, and a type as another byte.
    assert!(e.0.len() <= data.len());
    whole
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        let mut e = Encoder::default();
        e.u8(0).u8(1).u8(1).u16(2).u8(2).u32(3).u8(3).u64(4).u8(4).bytes16(b"five");
        e.u8(5).varint(300).u8(5).varint(u64::MAX);
        replay(&[
            Target::of_texts(
                "base_text",
                base_text,
                &[
                    ("size", "1.5GiB"),
                    ("bytes", "4096"),
                    ("decimal", "100 MB"),
                    ("policy", "s3-fifo"),
                    ("percentile", "mid-75"),
                ],
            ),
            Target::new("base_codec", base_codec, vec![("fields", e.0)]),
        ]);
    }
}
