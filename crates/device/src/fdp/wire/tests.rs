//! Golden bytes, read back; and decoders that meet any bytes at all.

use super::*;
use esker_base::Rng;

/// Lines of 16 bytes, without those that are zero.
fn dump(title: &str, bytes: &[u8]) -> String {
    let mut text = format!("# {title}, {} bytes\n", bytes.len());
    for (line, part) in bytes.chunks(16).enumerate() {
        if part.iter().any(|&byte| byte != 0) {
            let hex: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{:04x}  {}\n", line * 16, hex.join(" "));
        }
    }
    text + "\n"
}

fn configurations() -> Vec<Configuration> {
    let one = Configuration {
        reclaim_groups: 1,
        group_bits: 0,
        handles: vec![Isolation::Initially, Isolation::Persistently, Isolation::Initially],
        max_placement_ids: 128,
        max_namespaces: 16,
        reclaim_unit_bytes: 8 << 20,
        time_limit_s: 60,
        volatile_write_cache: true,
        is_valid: true,
    };
    let other =
        Configuration { handles: Vec::new(), group_bits: 3, is_valid: false, ..one.clone() };
    vec![one, other]
}

fn statistics() -> Statistics {
    Statistics { host_bytes: 1 << 70, media_bytes: 3 << 69, erased_bytes: 0x1234_5678 }
}

fn endurance() -> Endurance {
    Endurance {
        used_percent: 7,
        spare_percent: 99,
        host_read_bytes: 5 * DATA_UNIT,
        host_written_bytes: 6 * DATA_UNIT,
        media_written_bytes: 11 * DATA_UNIT,
        host_reads: 1000,
        host_writes: 2000,
        capacity_bytes: 1 << 40,
        unallocated_bytes: 1 << 30,
    }
}

fn events() -> Vec<Event> {
    let bare = Event {
        kind: EventType::NotFullyWritten,
        timestamp_ms: 0x1234_5678_9abc,
        placement: Some(PlacementId(3)),
        namespace: Some(1),
        location: Some((0, 5)),
        moved: None,
    };
    let moved = Some((4096, Some(Lba(0x0102_0304_0506))));
    let silent = Event { placement: None, namespace: None, location: None, ..bare };
    vec![
        bare,
        Event { kind: EventType::MediaReallocated, moved, ..silent },
        Event { kind: EventType::MediaReallocated, moved: Some((1, None)), ..silent },
    ]
}

fn handles() -> Vec<HandleStatus> {
    let one = |id, handle, writable| HandleStatus {
        placement: PlacementId(id),
        handle,
        time_left_s: 30,
        writable: LbaCount(writable),
    };
    vec![one(0, 2, 2048), one(1, 7, 1)]
}

fn golden() -> String {
    let reported = [(EventType::NotFullyWritten, true), (EventType::HandleModified, false)];
    dump("Log page 09h", &encode_endurance(&endurance()))
        + &dump("Log page 20h", &encode_configurations(&configurations()))
        + &dump(
            "Log page 21h",
            &encode_usage(&[HandleUse::Host, HandleUse::Controller, HandleUse::Unused]),
        )
        + &dump("Log page 22h", &encode_statistics(&statistics()))
        + &dump("Log page 23h", &encode_events(&events()))
        + &dump("Reclaim unit handle status", &encode_handles(&handles()))
        + &dump("Feature 1Eh", &encode_reported(&reported))
}

#[test]
fn the_bytes_are_those_of_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/fdp.txt");
    let text = golden();
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

#[test]
fn encoded_structures_are_decoded() {
    assert_eq!(decode_endurance(&encode_endurance(&endurance())), Ok(endurance()));
    let bytes = encode_configurations(&configurations());
    assert_eq!(configurations_size(&bytes), Ok(u32::try_from(bytes.len()).unwrap()));
    assert_eq!(decode_configurations(&bytes), Ok(configurations()));
    let usage = vec![HandleUse::Host, HandleUse::Unused, HandleUse::Controller];
    assert_eq!(decode_usage(&encode_usage(&usage)), Ok(usage));
    assert_eq!(decode_statistics(&encode_statistics(&statistics())), Ok(statistics()));
    assert_eq!(decode_events(&encode_events(&events())), Ok(events()));
    assert_eq!(decode_handles(&encode_handles(&handles())), Ok(handles()));
    for enabled in [None, Some(0), Some(3)] {
        assert_eq!(decode_enabled(encode_enabled(enabled)), enabled);
    }
}

#[test]
fn sizes_are_known_from_headers() {
    let (usage, events, handles) =
        (encode_usage(&[HandleUse::Host; 9]), encode_events(&events()), encode_handles(&handles()));
    assert_eq!(usage_size(&usage[..USAGE_HEADER]), Ok(usage.len()));
    assert_eq!(events_size(&events[..EVENT_SIZE]), Ok(events.len()));
    assert_eq!(handles_size(&handles[..STATUS_HEADER]), Ok(handles.len()));
}

#[test]
fn a_log_holds_the_latest_events() {
    let many: Vec<Event> = (0..100).map(|n| Event { timestamp_ms: n, ..events()[0] }).collect();
    let bytes = encode_events(&many);
    assert_eq!(bytes.len(), EVENT_SIZE * (1 + EVENTS_MAX));
    assert_eq!(decode_events(&bytes).unwrap(), many[100 - EVENTS_MAX..]);
}

#[test]
fn decoders_survive_cut_and_changed_bytes() {
    let whole = [
        encode_endurance(&endurance()).to_vec(),
        encode_configurations(&configurations()),
        encode_usage(&[HandleUse::Host; 9]),
        encode_statistics(&statistics()).to_vec(),
        encode_events(&events()),
        encode_handles(&handles()),
    ];
    let decode_all = |bytes: &[u8]| {
        let _ = usage_size(bytes);
        let _ = events_size(bytes);
        let _ = handles_size(bytes);
        let _ = decode_endurance(bytes);
        let _ = decode_configurations(bytes);
        let _ = decode_usage(bytes);
        let _ = decode_statistics(bytes);
        let _ = decode_events(bytes);
        let _ = decode_handles(bytes);
        let _ = decode_reported(bytes, bytes.len());
    };
    let mut rng = Rng::new(1);
    for bytes in whole {
        (0..bytes.len()).for_each(|size| decode_all(&bytes[..size]));
        for _ in 0..2000 {
            let mut changed = bytes.clone();
            for _ in 0..=rng.below(4) {
                let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                changed[at] = rng.u64().to_le_bytes()[0];
            }
            decode_all(&changed);
        }
    }
}
