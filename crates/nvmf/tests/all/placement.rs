//! Data placement over the network: the drive's answers arrive as they are, and the host's settings, too.

use std::sync::Arc;

use crate::common::{open, serve};
use crate::drive::Drive;
use esker_base::{AlignedBuf, Lba};
use esker_device::fdp::{EventType, FdpError, Reporter};
use esker_device::{DataPlacement, Device, PlacementId, Port};

#[test]
fn a_remote_drive_says_what_the_drive_says() {
    let drive = Arc::new(Drive::new(4, 512));
    let target = serve(drive.clone());
    let initiator = open(&target);
    assert_eq!(initiator.geometry().placement_handles, 4);
    let remote = initiator.data_placement().expect("data placement");
    assert_eq!(remote.configurations(), drive.configurations());
    assert_eq!(remote.enabled(), Some(0));
    assert_eq!(remote.usage(), drive.usage());

    let mut port = Port::open(&initiator, 1).unwrap();
    port.write(Lba(0), AlignedBuf::zeroed(100 * 512), Some(PlacementId(2))).unwrap();
    port.write(Lba(100), AlignedBuf::zeroed(7 * 512), None).unwrap();
    assert_eq!(remote.handles(), drive.handles());
    let left = |id: usize| remote.handles().unwrap()[id].writable.0;
    assert_eq!((left(0), left(1), left(2)), (249, 256, 156));
    assert_eq!(remote.statistics().unwrap().host_bytes, 107 * 512);

    let kinds = [EventType::NotFullyWritten];
    remote.report_events(PlacementId(2), &kinds, true).unwrap();
    assert_eq!(remote.reported_events(PlacementId(2)), drive.reported_events(PlacementId(2)));
    remote.update(&[PlacementId(2), PlacementId(0)]).unwrap();
    assert_eq!((left(0), left(2)), (256, 256));
    let events = remote.events(Reporter::Host).unwrap();
    assert_eq!(events, drive.events(Reporter::Host).unwrap());
    assert_eq!((events.len(), events[0].placement), (1, Some(PlacementId(2))));
    assert_eq!(remote.events(Reporter::Controller), Ok(Vec::new()));
    assert_eq!(remote.endurance().spare_percent, 100);
}

#[test]
fn a_remote_drive_refuses_what_the_drive_refuses() {
    let target = serve(Arc::new(Drive::new(4, 4096)));
    let initiator = open(&target);
    let remote = initiator.data_placement().unwrap();
    let wrong = remote.update(&[PlacementId(1), PlacementId(9)]).unwrap_err();
    assert_eq!(wrong, FdpError::InvalidId { id: 9, count: 4 });
    // A list may name an id twice, but not be longer than a drive's largest.
    remote.update(&[PlacementId(1); 4]).unwrap();
    assert!(matches!(remote.update(&[PlacementId(1); 5]), Err(FdpError::Invalid(_))));
    assert!(matches!(remote.enable(None), Err(FdpError::Sequence(_))));
    assert!(remote.reported_events(PlacementId(9)).is_err());
}
