//! Every structure as an annotated dump, damaged in every byte, and made of random bytes.

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use esker_base::Rng;

pub(crate) fn superblock() -> Superblock {
    Superblock {
        version: VERSION,
        mode: 1,
        state: 0,
        mapping: 0,
        generation: 3,
        id: 0x1122_3344_5566_7788,
        origin_bytes: 1 << 40,
        flash_bytes: 1 << 36,
        set_slots: 4096,
        rows: Rows::of(&[3000, 1000, 96]),
        run_blocks: 64,
        sets: 4000,
        clean_epoch: 2,
        area_bytes: 64 << 20,
        origin: Origin {
            identity: "wwid=eui.0025388b01, part=sector-2048".to_owned(),
            samples: vec![
                Sample { block: 0, crc: 0x0102_0304 },
                Sample { block: 16, crc: 0x1112_1314 },
                Sample { block: 9_999, crc: 0x2122_2324 },
            ],
            armed: 0b101,
            untold: 0b010,
        },
    }
}

pub(crate) fn record() -> (RecordHeader, Vec<Change>) {
    let header = RecordHeader {
        kind: RecordKind::Names,
        needs_previous: true,
        id: 0x1122_3344_5566_7788,
        sequence: 5,
        number: 77,
        offset: 4096,
        previous_crc: 0xdead_beef,
        clean_epoch: 2,
        dirty: 1,
        named: 3,
        used_blocks: 1 << 24,
    };
    let changes = [Name::None, Name::Clean(9), Name::Dirty(0x1234)];
    let changes = (7..).zip(changes).map(|(slot, name)| Change { slot, name });
    (header, changes.collect())
}

pub(crate) fn page() -> TablePage {
    let names = vec![Name::Dirty(4), Name::None, Name::Clean(70)];
    TablePage { page: 12, clean_epoch: 2, generation: 9, names }
}

/// Lines of offset, bytes, field and meaning, by the tables of the format and not by the decoders.
fn dump(title: &str, bytes: &[u8], fields: &[(usize, &str)]) -> String {
    let mut text = format!("# {title}\n");
    let mut at = 0;
    for (size, name) in fields {
        let part = &bytes[at..at + size];
        let hex: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
        let number = (*size <= 8).then(|| {
            let mut raw = [0; 8];
            raw[..*size].copy_from_slice(part);
            u64::from_le_bytes(raw)
        });
        let value = number.map_or(String::new(), |number| number.to_string());
        writeln!(text, "{at:04x}  {:<23}  {name:<22}  {value}", hex.join(" ")).unwrap();
        at += size;
    }
    text
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "{}: the format has changed", path.display());
}

#[test]
fn the_bytes_on_the_medium_are_what_they_were() {
    let mut fields = vec![
        (8, "magic"),
        (4, "version"),
        (4, "crc"),
        (4, "copy"),
        (1, "mode"),
        (1, "state"),
        (1, "mapping"),
        (1, "reserved"),
        (8, "generation"),
        (8, "id"),
        (8, "origin bytes"),
        (8, "flash bytes"),
        (4, "slots in a set"),
        (4, "blocks in a run"),
        (4, "sets"),
        (4, "clean epoch"),
        (8, "area bytes"),
        (4, "rows"),
        (4, "reserved"),
    ];
    fields.extend([(4, "slots in a row"); MAX_ROWS]);
    fields.extend([(4, "samples"), (4, "bytes of the identity"), (8, "armed"), (8, "untold")]);
    for _ in 0..MAX_SAMPLES {
        fields.extend([(8, "sampled block"), (4, "its crc")]);
    }
    fields.extend([(16, "identity"); MAX_IDENTITY / 16]);
    golden("superblock.txt", &dump("Superblock, copy 2", &superblock().encode(2), &fields));
    let former = Superblock { version: SINGLE, ..superblock() };
    golden(
        "superblock-3.txt",
        &dump("Superblock of version 3, copy 1", &former.encode(1), &fields),
    );
    let mut fields = vec![
        (4, "magic"),
        (2, "version"),
        (1, "kind"),
        (1, "needs the area before"),
        (8, "id"),
        (8, "sequence"),
        (8, "number"),
        (4, "offset"),
        (4, "changes"),
        (4, "crc before"),
        (4, "clean epoch"),
        (4, "dirty"),
        (4, "named"),
        (4, "used blocks"),
        (4, "crc"),
    ];
    for _ in 0..3 {
        fields.extend([(4, "slot"), (8, "name")]);
    }
    let (header, changes) = record();
    golden("record.txt", &dump("Journal record", &header.encode(&changes).0, &fields));
    let fields = [
        (4, "magic"),
        (2, "version"),
        (2, "copy"),
        (8, "id"),
        (4, "page"),
        (4, "clean epoch"),
        (8, "generation"),
        (4, "crc"),
        (7, "reserved"),
        (7, "reserved"),
        (7, "reserved"),
        (7, "reserved"),
        (8, "dirty, block 4"),
        (8, "no name"),
        (8, "clean, block 70"),
    ];
    let id = superblock().id;
    golden("page.txt", &dump("Table page, copy 1", &page().encode(id, 1), &fields));
}

#[test]
fn decoders_read_back_encoded_structures() {
    for version in [SINGLE, VERSION] {
        let superblock = Superblock { version, ..superblock() };
        for copy in 0..COPIES {
            let bytes = superblock.encode(copy);
            assert_eq!(Superblock::decode(&bytes, copy), Ok(superblock.clone()));
            assert!(Superblock::decode(&bytes, (copy + 1) % COPIES).is_err());
        }
    }
    let (header, changes) = record();
    let (bytes, crc) = header.encode(&changes);
    assert_eq!(RecordHeader::decode(&bytes), Ok((header, changes, crc)));
    let id = superblock().id;
    let bytes = page().encode(id, 1);
    assert_eq!(TablePage::decode(&bytes, id, 12, 1, 3), Ok(page()));
    for (id, page, copy) in [(id + 1, 12, 1), (id, 13, 1), (id, 12, 0)] {
        assert!(TablePage::decode(&bytes, id, page, copy, 3).is_err());
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = superblock().encode(0);
    let (header, changes) = record();
    let record = header.encode(&changes).0;
    let page = page().encode(1, 0);
    for bit in 0..8 {
        for at in 0..BLOCK_SIZE {
            let flipped = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= 1 << bit;
                bytes
            };
            assert!(Superblock::decode(&flipped(&bytes), 0).is_err(), "{at} {bit}");
            assert!(TablePage::decode(&flipped(&page), 1, 12, 0, 3).is_err(), "{at} {bit}");
            if at < record.len() {
                assert!(RecordHeader::decode(&flipped(&record)).is_err(), "{at} {bit}");
            }
        }
    }
}

#[test]
fn any_bytes_may_be_decoded() {
    let mut rng = Rng::new(3);
    let (header, changes) = record();
    let good = [superblock().encode(0), header.encode(&changes).0, page().encode(1, 0)];
    for _ in 0..20_000 {
        let mut bytes = match rng.below(4) {
            3 => vec![0; usize::try_from(rng.below(200)).unwrap()],
            n => good[usize::try_from(n).unwrap()].clone(),
        };
        let size = bytes.len();
        for _ in 0..rng.below(6) {
            if size > 0 {
                let at = usize::try_from(rng.below(size as u64)).unwrap();
                bytes[at] = u8::try_from(rng.below(256)).unwrap();
            }
        }
        bytes.truncate(usize::try_from(rng.below(size as u64 + 1)).unwrap());
        let _ = Superblock::decode(&bytes, 0);
        let _ = RecordHeader::decode(&bytes);
        let _ = TablePage::decode(&bytes, 1, 12, 0, 504);
        let _ = Name::decode(rng.u64());
    }
}

#[test]
fn a_superblock_of_version_1_has_one_row() {
    let former = Superblock { version: SINGLE, ..superblock() };
    let mut bytes = Superblock { rows: Rows::one(4096), ..former }.encode(0);
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    bytes[80..].fill(0);
    let crc = crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    let found = Superblock::decode(&bytes, 0).unwrap();
    assert_eq!((found.rows.as_slice(), found.origin), (&[4096][..], Origin::default()));
    // In version 2 there have to be rows, and as many slots as there are in a set.
    bytes[8..12].copy_from_slice(&2u32.to_le_bytes());
    let crc = crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    assert!(Superblock::decode(&bytes, 0).is_err());
    let other = Superblock { rows: Rows::of(&[4000, 95]), ..superblock() };
    assert!(Superblock::decode(&other.encode(0), 0).is_err());
}

#[test]
fn superblock_of_version_2_knows_no_origin() {
    let of_version = |version: u32, mut bytes: Vec<u8>| {
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        Superblock::decode(&bytes, 0)
    };
    let former = Superblock { version: SINGLE, ..superblock() };
    let old = Superblock { origin: Origin::default(), ..former.clone() };
    assert_eq!(of_version(2, old.encode(0)), Ok(old));
    let hidden = of_version(2, former.encode(0));
    assert_eq!(hidden, Err(FormatError::Value { what: "the version", found: 2 }));
    let mut bytes = superblock().encode(0);
    bytes[8..12].copy_from_slice(&SINGLE.to_le_bytes());
    assert!(Superblock::decode(&bytes, 0).is_err(), "the layout would be another");
    let later = VERSION + 1;
    let error = FormatError::Version { found: later };
    assert_eq!(of_version(later, superblock().encode(0)), Err(error));
}

#[test]
fn impossible_origins_are_refused() {
    let sample = |block| Sample { block, crc: 1 };
    let samples = |blocks: &[u64]| blocks.iter().map(|&block| sample(block)).collect::<Vec<_>>();
    let refused = [
        Origin { samples: samples(&[5, 5]), ..Origin::default() },
        Origin { samples: samples(&[6, 5]), ..Origin::default() },
        Origin { samples: samples(&[(1 << 40) / BLOCK]), ..Origin::default() },
        Origin { samples: samples(&[5]), armed: 0b10, ..Origin::default() },
        Origin { samples: samples(&[5]), untold: 0b10, ..Origin::default() },
    ];
    for origin in refused {
        let bytes = Superblock { origin: origin.clone(), ..superblock() }.encode(0);
        assert!(Superblock::decode(&bytes, 0).is_err(), "{origin:?}");
    }
    let of = |at: usize, value: u32| {
        let mut bytes = superblock().encode(0);
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let crc = super_crc(VERSION, &bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        Superblock::decode(&bytes, 0)
    };
    assert!(of(152, 2).is_err() && of(152, 65).is_err(), "the number of samples");
    assert!(of(156, 513).is_err() && of(944, u32::MAX).is_err(), "the identity");
    let all = samples(&(0..64).collect::<Vec<_>>());
    let full = Origin { samples: all, armed: u64::MAX, ..Origin::default() };
    let bytes = Superblock { origin: full.clone(), ..superblock() }.encode(0);
    assert_eq!(Superblock::decode(&bytes, 0).map(|found| found.origin), Ok(full));
}
