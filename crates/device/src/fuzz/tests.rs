//! The corpora, and mutations of them.

use esker_base::{Lba, LbaCount};
use esker_sim::fuzz::{Target, Watched, replay};

use super::*;
use crate::PlacementId;
use crate::fdp::{Configuration, Event, EventType, HandleStatus, HandleUse, Isolation, Statistics};

#[global_allocator]
static MEMORY: Watched = Watched;

fn pages() -> Vec<(&'static str, Vec<u8>)> {
    let with = |kind: u8, bytes: &[u8]| [&[kind][..], bytes].concat();
    let configuration = Configuration {
        reclaim_groups: 1,
        group_bits: 0,
        handles: vec![Isolation::Initially, Isolation::Persistently],
        max_placement_ids: 8,
        max_namespaces: 16,
        reclaim_unit_bytes: 1 << 30,
        time_limit_s: 60,
        volatile_write_cache: true,
        is_valid: true,
    };
    let statistics = Statistics { host_bytes: 7, media_bytes: 8, erased_bytes: 9 };
    let event = Event {
        kind: EventType::MediaReallocated,
        timestamp_ms: 1000,
        placement: Some(PlacementId(3)),
        namespace: Some(1),
        location: Some((0, 2)),
        moved: Some((8, Some(Lba(64)))),
    };
    let handle = HandleStatus {
        placement: PlacementId(1),
        handle: 1,
        time_left_s: 0,
        writable: LbaCount(4096),
    };
    let usage = [HandleUse::Unused, HandleUse::Host, HandleUse::Controller];
    let mut endurance = vec![0; 512];
    (endurance[3], endurance[5], endurance[48]) = (90, 3, 17);
    let mut controller = vec![0; 1024];
    controller[4..8].copy_from_slice(b"S123");
    controller[768..779].copy_from_slice(b"nqn.2026-01");
    vec![
        ("endurance", with(0, &endurance)),
        ("configurations", with(1, &wire::encode_configurations(&[configuration]))),
        ("usage", with(2, &wire::encode_usage(&usage))),
        ("statistics", with(3, &wire::encode_statistics(&statistics))),
        ("events", with(4, &wire::encode_events(&[event]))),
        ("handles", with(5, &wire::encode_handles(&[handle]))),
        ("reported", with(6, &wire::encode_reported(&[(EventType::MediaReallocated, true)]))),
        ("controller", with(7, &controller)),
        ("group", with(8, &[1; 104])),
        ("enabled", with(9, &wire::encode_enabled(Some(1)).to_le_bytes())),
    ]
}

#[test]
fn corpora_are_accepted_and_mutations_do_no_harm() {
    replay(&[
        Target::new("device_placement", device_placement, pages()),
        Target::of_texts(
            "device_identity",
            device_identity,
            &[
                ("drive", "wwid=eui.0025388b01, part=sector-2048"),
                ("unknown", "inode=7, colour=red"),
            ],
        ),
    ]);
}
