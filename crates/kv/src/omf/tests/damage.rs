//! A decoder answers to any bytes of a medium: the value that was encoded, or an error. It never
//! panics, and allocates no more than a small multiple of the bytes it was given.

use esker_base::Rng;

use super::*;

use crate::fuzz::{mend_class, mend_frame, mend_manifest, mend_meta, mend_page};
use crate::types::ids::KvsetId;

/// A structure, how many of its bytes carry meaning (the rest is padding), how it is decoded, and
/// how its checksums are made to fit again after it was changed.
struct Sample {
    name: &'static str,
    bytes: Vec<u8>,
    meant: usize,
    decode: Decode,
    mend: fn(&mut [u8]),
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    to_usize(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()).into())
}

fn samples() -> Vec<Sample> {
    let frame = |name, kind, records: Vec<Record<'_>>| Sample {
        name,
        bytes: frame_of(kind, &records),
        meant: 64 + records.iter().map(Record::size).sum::<usize>(),
        decode: decode_frame,
        mend: mend_frame,
    };
    let manifest = manifest_record(FormatVersion::V1);
    let (meta, with_ranges) = (kvset_meta(), kvset_meta_with_ranges());
    vec![
        Sample {
            name: "class header",
            bytes: padded(class_header().encode()),
            meant: super::super::class::SIZE,
            decode: decode_class,
            mend: mend_class,
        },
        frame("log frame", FrameKind::Log, log_records()),
        frame("log frame with ranges", FrameKind::Log, range_records()),
        frame("aged frame", FrameKind::Aged, aged_records()),
        Sample {
            name: "compressed frame",
            bytes: packed_frame(),
            meant: 64 + 2 * (16 + 3) + LETTERS_LZ4.len() + LETTERS_ZSTD.len(),
            decode: decode_frame,
            mend: mend_frame,
        },
        Sample {
            name: "key page",
            bytes: page(),
            meant: PAGE_SIZE,
            decode: decode_page,
            mend: mend_page,
        },
        Sample {
            name: "kvset meta",
            meant: meta.len(),
            bytes: meta,
            decode: decode_meta,
            mend: mend_meta,
        },
        Sample {
            name: "kvset meta with ranges",
            meant: with_ranges.len(),
            bytes: with_ranges,
            decode: decode_meta,
            mend: mend_meta,
        },
        Sample {
            name: "manifest record",
            meant: 64 + u32_at(&manifest, 12),
            bytes: manifest,
            decode: decode_manifest,
            mend: mend_manifest,
        },
    ]
}

#[test]
fn every_flipped_bit_is_noticed_and_padding_means_nothing() {
    for Sample { name, mut bytes, meant, decode, .. } in samples() {
        let value = decode(&bytes).unwrap();
        for at in 0..bytes.len() {
            // All bits of bytes that carry fields; of the zeroes behind, one.
            let bits = if at < 512 { 0..8 } else { at % 8..at % 8 + 1 };
            for bit in bits {
                bytes[at] ^= 1 << bit;
                match decode(&bytes) {
                    Ok(found) => assert!(at >= meant && found == value, "{name}: byte {at}"),
                    Err(_) => assert!(at < meant, "{name}: byte {at} of the padding matters"),
                }
                bytes[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    for Sample { name, bytes, meant, decode, .. } in samples() {
        for size in 0..meant {
            assert!(decode(&bytes[..size]).is_err(), "{name}: {size} bytes of {meant}");
        }
        assert_eq!(decode(&bytes[..meant]), decode(&bytes), "{name}");
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    for Sample { name, mut bytes, decode, mend, .. } in samples() {
        if name == "key page" {
            continue; // its kvset's meta has the version
        }
        bytes[8] = 3;
        mend(&mut bytes);
        let Malformed(why) = decode(&bytes).unwrap_err();
        let newest = if name == "class header" { 1 } else { 2 };
        let expected = format!("format version 3 found; this build reads versions 1 to {newest}");
        assert_eq!(why, expected, "{name}");
    }
}

#[test]
fn a_structure_of_another_owner_is_refused() {
    let own =
        |bytes: &[u8]| KvsetMeta::decode(bytes, KvsetId(KVSET.0 + 1)).map(drop).unwrap_err().0;
    assert_eq!(own(&kvset_meta()), "meta of kvset 10 expected, of 9 found");
    for (kvset, index) in [(KvsetId(KVSET.0 + 1), PAGE_INDEX), (KVSET, PAGE_INDEX + 1)] {
        let Malformed(why) = Page::verify(page(), kvset, index).map(drop).unwrap_err();
        assert!(why.contains("page 3 of kvset 9 found"), "{why}");
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut rng = Rng::new(1);
    for Sample { name, bytes, decode, .. } in samples() {
        for _ in 0..10_000 {
            let mut random = vec![0; to_usize(rng.below(700))];
            rng.fill(&mut random);
            if rng.chance(1, 2) {
                // Past the magic, at least.
                let known = random.len().min(10);
                random[..known].copy_from_slice(&bytes[..known]);
            }
            assert!(decode(&random).is_err(), "{name}: {}", random.escape_ascii());
        }
    }
}

/// Behind a checksum that fits there may be anything: a bug of ours wrote it, or somebody else.
#[test]
fn mutations_with_mended_checksums_are_decoded_or_refused() {
    let mut rng = Rng::new(2);
    for Sample { name, bytes, decode, mend, .. } in samples() {
        let rich = 1 + bytes.iter().rposition(|&byte| byte != 0).unwrap();
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut mutant = bytes.clone();
            for _ in 0..=rng.below(4) {
                let at = to_usize(rng.below(rich as u64));
                let byte = u8::try_from(rng.below(256)).unwrap();
                match rng.below(4) {
                    0 => mutant[at] = byte,
                    1 => mutant[at] = [0, 1, 0x7f, 0x80, 0xff][usize::from(byte) % 5],
                    2 => mutant[at] ^= 1 << (byte % 8),
                    _ => {
                        let end = (at + usize::from(byte % 8)).min(mutant.len());
                        mutant[at..end].fill([0, 0x80, 0xff][usize::from(byte) % 3]);
                    }
                }
            }
            mend(&mut mutant);
            match decode(&mutant) {
                Ok(_) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(accepted > 100 && refused > 100, "{name}: {accepted}, {refused}");
    }
}

#[test]
fn counts_that_no_bytes_stand_behind_cost_nothing() {
    let (_, extents_at) = kvset_edit();
    for count in [1000, u32::MAX] {
        let (mut edit, _) = kvset_edit();
        edit[extents_at..extents_at + 4].copy_from_slice(&count.to_le_bytes());
        assert!(Edit::decode_all(&edit).is_err());
    }
    let mut meta = kvset_meta();
    meta[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    mend_meta(&mut meta);
    assert!(decode_meta(&meta).is_err());
    let mut frame = frame_of(FrameKind::Log, &log_records());
    frame[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    mend_frame(&mut frame);
    assert!(decode_frame(&frame).is_err());
}

/// An encoded kvset edit, and where its number of extents stands.
fn kvset_edit() -> (Vec<u8>, usize) {
    let mut e = Encoder::default();
    let kvset = edits().into_iter().find(|edit| matches!(edit, Edit::Kvset(_)));
    kvset.unwrap().encode_to(&mut e);
    (e.0, 1 + 8 + 4 + 4 * 8 + 2 * 4)
}

#[test]
fn a_kvset_without_pages_or_extents_and_an_extent_beyond_all_lbas_are_refused() {
    let refused = |at: usize, bytes: &[u8]| {
        let (mut edit, _) = kvset_edit();
        edit[at..at + bytes.len()].copy_from_slice(bytes);
        Edit::decode_all(&edit).unwrap_err().0
    };
    let (edit, extents_at) = kvset_edit();
    assert_eq!(refused(extents_at - 8, &[0]), "kvset 9 with 300 entries, 0 pages, 1 extents");
    let why = refused(extents_at + 5, &[0xff; 8]);
    assert_eq!(why, "an extent of 16 LBAs from LBA 18446744073709551615 on");
    // The number of extents, and then those that are left out.
    let mut none = edit[..extents_at].to_vec();
    none.extend_from_slice(&[0; 4]);
    none.extend_from_slice(&edit[extents_at + 4 + 17..]);
    let Malformed(why) = Edit::decode_all(&none).unwrap_err();
    assert_eq!(why, "kvset 9 with 300 entries, 2 pages, 0 extents");
}
