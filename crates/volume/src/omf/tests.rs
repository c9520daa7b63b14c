//! Every structure as an annotated dump, damaged in every byte, and made of random bytes.
//!
//! `ESKER_UPDATE_GOLDEN=1 cargo test -p esker-volume omf` writes the dumps anew.

use std::fmt::Write as _;
use std::path::Path;

use super::envelope::{self, Kind, VERSION};
use super::frame::{self, Change, FrameHead, Record};
use super::label::{Config, Label, LogPlace, Member, MemberState, Role, RootPointer, Shape};
use super::leaf::{self, Fragment, Place, Version};
use super::mark::{LogEnd, Mark};
use super::root::{
    Extent, LineageRow, LogTail, NodeRow, Root, ScrubRow, SegmentRow, SnapshotRow, VolumeRow,
};
use super::seal::Seal;
use super::summary::{self, Item, ItemKind};
use crate::types::id::{
    Block, DriveIndex, DriveUuid, Epoch, FrameSeq, Generation, Incarnation, LineageId, PoolUuid,
    SegmentId, Seqno, SlotIndex, SnapshotId, VolumeId,
};
use crate::types::options::VolumeOptions;
use esker_base::Rng;
use esker_base::units::to_usize;

const POOL: PoolUuid = PoolUuid(0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00);

fn label() -> Label {
    let member = |uuid, role, state| Member {
        uuid: DriveUuid(uuid),
        role,
        state,
        since: Epoch(2),
        bytes: 1 << 40,
        last_label: 8,
        gone_at: 1_700_000_002,
        name: "/dev/nvme1n1".to_owned(),
    };
    Label {
        index: DriveIndex(1),
        drive: DriveUuid(0xd1),
        config: Config {
            pool: POOL,
            name: "tank".to_owned(),
            sequence: 9,
            epoch: Epoch(3),
            incarnation: Incarnation(4),
            is_clean: true,
            shape: Shape {
                parity: 2,
                width: 8,
                spare_percent: 15,
                unit_bytes: 64 << 10,
                chunk_bytes: 16 << 20,
                log_bytes: 256 << 20,
                root_bytes: 1 << 20,
            },
            root: RootPointer { area: 1, number: 77, bytes: 5000, crc: 0xdead_beef },
            log: LogPlace {
                epoch: 6,
                ring_bytes: 1 << 30,
                members: vec![DriveIndex(0)],
                durable: Some(LogEnd { frame: FrameSeq(13), seqno: Seqno(44) }),
            },
            members: vec![
                member(0xb0, Role::Buffer, MemberState::Online),
                member(0xd1, Role::Drive, MemberState::Missing),
            ],
        },
    }
}

fn volume() -> VolumeRow {
    VolumeRow {
        id: VolumeId(5),
        name: "db".to_owned(),
        lineage: LineageId(6),
        blocks: 1 << 20,
        options: VolumeOptions { compression: true, iops_limit: 100, bytes_limit: 0 },
        made: 1_700_000_000,
        trashed: Some(1_700_000_009),
        hosts: vec!["nqn.a".to_owned()],
    }
}

fn root() -> Root {
    let lineage = LineageRow {
        id: LineageId(6),
        parent: Some((LineageId(2), Seqno(40))),
        head: Some(VolumeId(5)),
        sweep: Some(3),
    };
    let snapshot = SnapshotRow {
        id: SnapshotId(7),
        name: "monday".to_owned(),
        volume: VolumeId(5),
        lineage: LineageId(6),
        at: Seqno(41),
        blocks: 1 << 20,
        made: 1_700_000_001,
    };
    let segment = SegmentRow {
        id: SegmentId(8),
        generation: Generation(1 << 40),
        class: 1,
        parity: 1,
        seal_copy: 1,
        rows: 7,
        live_bytes: 4096,
        born: Seqno(42),
        chunks: vec![(DriveIndex(0), SlotIndex(3)), (DriveIndex(1), SlotIndex(4))],
        summaries: vec![(16, 93, 0xfeed_f00d)],
    };
    let extent = Extent { segment: SegmentId(8), sector: 24, bytes: 600, crc: 0xcafe };
    Root {
        number: 77,
        applied: Seqno(43),
        catalogued: Seqno(44),
        next_generation: Generation(10),
        next_id: 11,
        scrub: ScrubRow { began: 1_700_000_003, finished: 1_700_000_001, next: SegmentId(3) },
        tail: LogTail { frame: FrameSeq(12), offset: 8192, previous_crc: 0xabcd },
        lineages: vec![lineage],
        volumes: vec![volume()],
        snapshots: vec![snapshot],
        segments: vec![segment],
        nodes: vec![NodeRow { lineage: LineageId(6), index: 0, extent }],
    }
}

fn frame_bytes() -> Vec<u8> {
    let head = FrameHead {
        offset: 12_288,
        epoch: 6,
        number: FrameSeq(13),
        first: Seqno(45),
        previous_crc: 0x1234,
        incarnation: Incarnation(5),
        in_flight: 2,
    };
    let data = [7; 4096];
    let (lineage, block) = (LineageId(6), Block(9));
    let records = [
        Record::Write { lineage, block, data: &data[..] },
        Record::Zero { lineage, block, blocks: 3, at_once: true },
        Record::Change(Change::PutVolume(volume())),
        Record::Change(Change::RemoveSnapshot(SnapshotId(7))),
    ];
    let mut bytes = vec![0xff; 32 << 10];
    frame::encode_into(POOL, &head, &records, &mut bytes);
    let length = frame::length_of(&bytes).unwrap();
    assert!(bytes[length..].iter().all(|byte| *byte == 0));
    bytes.truncate(length);
    bytes
}

fn versions() -> Vec<(u16, Version)> {
    let fragment =
        Fragment { segment: SegmentId(8), sector: 16, sectors: 3, blocks: 1, crc: 0xbeef };
    vec![
        (3, Version { birth: Seqno(40), place: Place::Fragment(fragment) }),
        (511, Version { birth: Seqno(41), place: Place::Zero }),
    ]
}

fn item() -> Item {
    Item {
        kind: ItemKind::Block,
        lineage: LineageId(6),
        index: 9,
        birth: Seqno(40),
        sector: 16,
        bytes: 1536,
        crc: 0xbeef,
    }
}

fn seal() -> Seal {
    Seal {
        segment: SegmentId(8),
        generation: Generation(10),
        copy: 1,
        parity: 1,
        class: 2,
        chunk: 1,
        chunks: vec![(DriveIndex(0), SlotIndex(3)), (DriveIndex(1), SlotIndex(4))],
        unit_crcs: vec![0x0101, 0x0202],
    }
}

fn mark() -> Mark {
    Mark { number: 3, end: LogEnd { frame: FrameSeq(13), seqno: Seqno(44) } }
}

/// Its name, its bytes, and whether bytes are taken for it.
pub(crate) type Structure = (&'static str, Vec<u8>, fn(&[u8]) -> bool);

pub(crate) fn structures() -> Vec<Structure> {
    let (lineage, generation) = (LineageId(6), Generation(10));
    let extent = Extent { segment: SegmentId(8), sector: 24, bytes: 600, crc: 0xcafe };
    vec![
        ("label", label().encode(2), |bytes| Label::decode(bytes, 2).is_ok_and(|l| l == label())),
        ("root", root().encode(POOL, 1), |bytes| {
            Root::decode(bytes, POOL, 1, 77).is_ok_and(|r| r == root())
        }),
        ("frame", frame_bytes(), |bytes| {
            frame::decode(bytes, POOL, 12_288, 6).is_ok_and(|f| f.records.len() == 4)
        }),
        ("leaf", leaf::encode(POOL, lineage, 2, generation, &versions(), &[3, 4]), |bytes| {
            leaf::decode(bytes, POOL, LineageId(6), 2, Generation(10))
                .is_ok_and(|page| page.versions == versions() && page.replaced == [3, 4])
        }),
        ("node", leaf::encode_node(POOL, lineage, 0, generation, &[(5, extent)]), |bytes| {
            leaf::decode_node(bytes, POOL, LineageId(6), 0, Generation(10))
                .is_ok_and(|leaves| leaves.len() == 1)
        }),
        ("seal", seal().encode(POOL), |bytes| {
            Seal::decode(bytes, POOL, DriveIndex(1), SlotIndex(4), Generation(10))
                .is_ok_and(|s| s == seal())
        }),
        ("mark", mark().encode(POOL, 6), |bytes| {
            Mark::decode(bytes, POOL, 6, 1).is_ok_and(|m| m == mark())
        }),
        ("summary", summary::encode(POOL, SegmentId(8), generation, 40, &[item()]), |bytes| {
            summary::decode(bytes, POOL, SegmentId(8), Generation(10), 40)
                .is_ok_and(|items| items == [item()])
        }),
    ]
}

/// The envelope field by field, then the body in lines of 16 bytes; data that repeats is cut.
fn dump(name: &str, bytes: &[u8]) -> String {
    let hex =
        |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    let mut text = format!("# {name}, version {VERSION}, {} bytes\n", bytes.len());
    let fields = [
        (4, "magic"),
        (2, "version"),
        (2, "kind"),
        (4, "length"),
        (4, "CRC-32C"),
        (16, "pool"),
        (8, "address"),
        (8, "address"),
        (8, "generation"),
    ];
    let mut at = 0;
    for (size, field) in fields {
        writeln!(text, "{at:5}  {:<48} {field}", hex(&bytes[at..at + size])).unwrap();
        at += size;
    }
    let mut last: &[u8] = &[];
    for (offset, line) in (at..).step_by(16).zip(bytes[at..].chunks(16)) {
        match line == last {
            true if text.ends_with("*\n") => {}
            true => text.push_str("*\n"),
            false => writeln!(text, "{offset:5}  {}", hex(line)).unwrap(),
        }
        last = line;
    }
    text
}

#[test]
fn structures_are_what_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    for (name, bytes, decodes) in structures() {
        assert!(decodes(&bytes), "{name}");
        let (path, text) = (folder.join(format!("{name}.txt")), dump(name, &bytes));
        if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert!(golden == text, "{name} has changed; see {}", path.display());
    }
}

#[test]
fn every_damaged_byte_is_found() {
    for (name, bytes, decodes) in structures() {
        for at in 0..bytes.len() {
            for mask in [1, 0x80] {
                let mut damaged = bytes.clone();
                damaged[at] ^= mask;
                assert!(!decodes(&damaged), "{name}: byte {at}");
            }
        }
        for length in 0..bytes.len() {
            assert!(!decodes(&bytes[..length]), "{name}: {length} bytes");
        }
    }
}

#[test]
fn structures_of_other_places_are_refused() {
    let leaf = leaf::encode(POOL, LineageId(6), 2, Generation(10), &versions(), &[]);
    let decode = |pool, lineage, index, generation| {
        leaf::decode(&leaf, PoolUuid(pool), LineageId(lineage), index, Generation(generation))
            .is_ok()
    };
    assert!(decode(POOL.0, 6, 2, 10));
    assert!(!decode(1, 6, 2, 10) && !decode(POOL.0, 7, 2, 10));
    assert!(!decode(POOL.0, 6, 3, 10) && !decode(POOL.0, 6, 2, 11));
    assert!(Label::decode(&label().encode(2), 1).is_err());
    assert!(frame::decode(&frame_bytes(), POOL, 0, 6).is_err());
    assert!(frame::decode(&frame_bytes(), POOL, 12_288, 7).is_err());
}

#[test]
fn frame_of_earlier_software_had_none_beside_it_in_flight() {
    let mut bytes = frame_bytes();
    let frame = frame::decode(&bytes, POOL, 12_288, 6).unwrap();
    assert_eq!((frame.head.incarnation, frame.head.in_flight), (Incarnation(5), 2));
    assert_eq!(frame.head.first_in_flight(), FrameSeq(11));
    bytes.truncate(bytes.len() - 9);
    envelope::finish_in(&mut bytes);
    let earlier = frame::decode(&bytes, POOL, 12_288, 6).unwrap();
    assert_eq!((earlier.head.incarnation, earlier.head.in_flight), (Incarnation(0), 0));
    assert_eq!((earlier.records, earlier.head.first_in_flight()), (frame.records, FrameSeq(13)));
}

#[test]
fn label_of_earlier_software_does_not_say_what_was_durable() {
    let mut bytes = label().encode(2);
    bytes.truncate(bytes.len() - 16);
    envelope::finish_in(&mut bytes);
    let earlier = Label::decode(&bytes, 2).unwrap();
    assert_eq!(earlier.config.log.durable, None);
    let log = LogPlace { durable: label().config.log.durable, ..earlier.config.log.clone() };
    assert_eq!(Label { config: Config { log, ..earlier.config }, ..earlier }, label());
}

#[test]
fn mark_of_another_ring_or_copy_is_refused() {
    let bytes = mark().encode(POOL, 6);
    assert!(Mark::decode(&bytes, POOL, 7, 1).is_err());
    assert!(Mark::decode(&bytes, POOL, 6, 0).is_err());
    assert!(Mark::decode(&bytes, PoolUuid(1), 6, 1).is_err());
}

#[test]
fn any_body_is_decoded_or_refused_without_harm() {
    let mut rng = Rng::new(3);
    for (name, bytes, decodes) in structures() {
        let kinds = [
            Kind::Label,
            Kind::Root,
            Kind::Frame,
            Kind::Leaf,
            Kind::Node,
            Kind::Seal,
            Kind::Summary,
            Kind::Mark,
        ];
        assert!(kinds.iter().any(|kind| envelope::open(*kind, &bytes).is_ok()), "{name}");
        for _ in 0..3000 {
            // The envelope stays right, so that the decoder of the body sees it.
            let mut damaged = bytes.clone();
            for _ in 0..=rng.below(4) {
                let body = (damaged.len() - envelope::ENVELOPE) as u64;
                let at = envelope::ENVELOPE + to_usize(rng.below(body));
                damaged[at] = if rng.chance(1, 3) { 0xff } else { rng.below(256).to_le_bytes()[0] };
            }
            let crc = esker_base::checksum::crc32c(&damaged[16..]);
            damaged[12..16].copy_from_slice(&crc.to_le_bytes());
            decodes(&damaged);
        }
    }
}
