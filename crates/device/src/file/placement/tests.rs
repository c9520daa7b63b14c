//! Placement ids offered for drives of all kinds.

use esker_base::{AlignedBuf, ErrorKind, LbaCount};

use super::*;
use crate::fdp::{Configuration, HandleStatus, Isolation, wire};

const WAYS: Ways = Ways { is_direct: true, uses_io_uring: true };

/// A drive by its answers; `None` where it refuses.
#[derive(Clone)]
struct Fake {
    attributes: u32,
    group: u16,
    groups: u32,
    ids: Option<Vec<u16>>,
}

const WHOLE: Fake = Fake { attributes: 1 << 19, group: 1, groups: 1, ids: None };

impl Passthrough for Fake {
    fn execute(
        &self,
        command: &NvmeCommand,
        data: Transfer<'_>,
    ) -> Result<(u64, AlignedBuf), PassthroughError> {
        let Transfer::In(size) = data else { unreachable!("nothing is sent") };
        let mut buf = AlignedBuf::zeroed(size);
        let mut put = |at: usize, bytes: &[u8]| {
            let count = bytes.len().min(size - at);
            buf[at..at + count].copy_from_slice(&bytes[..count]);
        };
        match (command.opcode, command.dwords[0]) {
            (6, 1) => {
                put(96, &self.attributes.to_le_bytes());
                put(4, b"SERIAL              ");
                put(768, b"nqn.2026-01.io.esker:drive");
            }
            (6, 0) => put(102, &self.group.to_le_bytes()),
            (2, _) => {
                let one = Configuration {
                    reclaim_groups: self.groups,
                    group_bits: 0,
                    handles: vec![Isolation::Initially; 8],
                    max_placement_ids: 8,
                    max_namespaces: 1,
                    reclaim_unit_bytes: 1 << 20,
                    time_limit_s: 0,
                    volatile_write_cache: false,
                    is_valid: true,
                };
                put(0, &wire::encode_configurations(&[one]));
            }
            _ => {
                let Some(ids) = &self.ids else {
                    let message = "disabled".to_owned();
                    return Err(PassthroughError::Refused { status: 0x29, message });
                };
                let of = |&id: &u16| HandleStatus {
                    placement: PlacementId(id),
                    handle: id,
                    time_left_s: 0,
                    writable: LbaCount(1),
                };
                put(0, &wire::encode_handles(&ids.iter().map(of).collect::<Vec<_>>()));
            }
        }
        Ok((0, buf))
    }
}

fn offered(drive: &Fake, streams: Streams, ways: Ways) -> Result<Option<u16>, String> {
    settle(drive.clone(), 1, streams, ways).map(|found| found.map(|(_, count)| count))
}

#[test]
fn a_drive_offers_the_ids_that_the_kernel_has_streams_for() {
    let drive = Fake { ids: Some(vec![0, 1, 2, 3]), ..WHOLE };
    assert_eq!(offered(&drive, Streams::Most(4), WAYS), Ok(Some(4)));
    assert_eq!(offered(&drive, Streams::Most(3), WAYS), Ok(Some(3)));
    let (placement, _) = settle(drive.clone(), 1, Streams::Most(9), WAYS).unwrap().unwrap();
    assert_eq!(placement.drive(), "nqn.2026-01.io.esker:drive endurance group 1");
    let plain = [Fake { attributes: !(1 << 19), ..drive.clone() }, Fake { group: 0, ..drive }];
    for drive in plain {
        assert_eq!(offered(&drive, Streams::Most(4), WAYS), Ok(None));
    }
}

#[test]
fn reason_that_keeps_a_drive_from_offering_ids_is_said() {
    let drive = Fake { ids: Some(vec![0, 1, 2, 3]), ..WHOLE };
    let why = |drive: &Fake, streams, ways, words: &str| {
        let why = offered(drive, streams, ways).unwrap_err();
        assert!(why.contains(words), "{why}");
    };
    why(&drive, Streams::Unknown, WAYS, "Linux 6.16");
    why(&drive, Streams::Most(0), WAYS, "max_write_streams is 0");
    why(&drive, Streams::OfPartition, WAYS, "a partition");
    why(&drive, Streams::Most(4), Ways { is_direct: false, ..WAYS }, "direct I/O");
    why(&drive, Streams::Most(4), Ways { uses_io_uring: false, ..WAYS }, "io_uring");
    why(&WHOLE, Streams::Most(4), WAYS, "enable a configuration");
    why(&Fake { groups: 2, ..drive.clone() }, Streams::Most(4), WAYS, "several reclaim groups");
    let upper = Fake { ids: Some(vec![0, 1 << 15]), ..drive };
    why(&upper, Streams::Most(2), WAYS, "several reclaim groups");
    assert!(remark("/dev/a", "so").contains("/dev/a: the drive has data placement, but"));
}

#[test]
fn streams_are_counted_from_one() {
    assert_eq!(stream(None, 4), 0);
    assert_eq!(stream(Some(PlacementId(0)), 4), 1);
    assert_eq!(stream(Some(PlacementId(3)), 4), 4);
    assert_eq!(stream(Some(PlacementId(4)), 4), 0);
    assert_eq!(stream(Some(PlacementId(255)), 300), 0);
}

#[test]
fn a_drive_that_does_not_answer_is_nothing_to_speak_of() {
    struct Silent;
    impl Passthrough for Silent {
        fn execute(
            &self,
            _: &NvmeCommand,
            _: Transfer<'_>,
        ) -> Result<(u64, AlignedBuf), PassthroughError> {
            let (kind, message) = (ErrorKind::Io, "no".to_owned());
            Err(PassthroughError::Failed { kind, message })
        }
    }
    assert!(settle(Silent, 1, Streams::Most(1), WAYS).unwrap().is_none());
}
