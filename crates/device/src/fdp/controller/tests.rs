//! Commands that a host sends for its requests, as golden bytes, and its readings of the answers.

use std::fmt::Write as _;

use esker_base::LbaCount;
use esker_base::sync::Mutex;

use super::*;
use crate::fdp::Isolation;
use crate::fdp::wire::command::Queue;

/// A controller that answers as it was told, and writes down the commands.
#[derive(Default)]
pub(crate) struct Fake {
    asked: Mutex<String>,
    /// The status of all commands but those for configurations and handles.
    refusal: Option<u16>,
}

fn configuration() -> Configuration {
    Configuration {
        reclaim_groups: 1,
        group_bits: 0,
        handles: vec![Isolation::Initially; 8],
        max_placement_ids: 4,
        max_namespaces: 1,
        reclaim_unit_bytes: 8 << 20,
        time_limit_s: 0,
        volatile_write_cache: false,
        is_valid: true,
    }
}

fn handles() -> Vec<HandleStatus> {
    let of = |id| HandleStatus {
        placement: PlacementId(id),
        handle: id + 2,
        time_left_s: 0,
        writable: LbaCount(2048),
    };
    (0..4).map(of).collect()
}

impl Passthrough for Fake {
    fn execute(
        &self,
        command: &NvmeCommand,
        data: Transfer<'_>,
    ) -> Result<(u64, AlignedBuf), PassthroughError> {
        let queue = if command.queue == Queue::Admin { "admin" } else { "io" };
        let [ten, eleven, twelve] = command.dwords;
        let mut asked = self.asked.lock();
        let _ = writeln!(
            asked,
            "{:26} {queue:5} {:02x}  nsid {:08x}  {ten:08x} {eleven:08x} {twelve:08x}  {data:?}",
            command.name, command.opcode, command.nsid
        );
        let (which, opcode) = (ten.to_le_bytes()[0], command.opcode);
        let is_configurations = opcode == 2 && which == log::CONFIGURATIONS;
        let bytes = match (opcode, which) {
            (2, log::CONFIGURATIONS) => wire::encode_configurations(&[configuration()]),
            (2, log::USAGE) => wire::encode_usage(&[HandleUse::Host; 8]),
            (0x12, _) => wire::encode_handles(&handles()),
            _ => Vec::new(),
        };
        if let Some(status) = self.refusal.filter(|_| !is_configurations && opcode != 0x12) {
            let message = format!("{} failed with status {status:03x}h", command.name);
            return Err(PassthroughError::Refused { status, message });
        }
        let Transfer::In(size) = data else { return Ok((1, AlignedBuf::zeroed(0))) };
        let mut buf = AlignedBuf::zeroed(size);
        let count = size.min(bytes.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        Ok((1, buf))
    }
}

fn placement(refusal: Option<u16>) -> ControllerPlacement<Fake> {
    let fake = Fake { refusal, ..Fake::default() };
    ControllerPlacement::new(fake, 7, 3, "drive".to_owned()).unwrap()
}

#[test]
fn questions_are_the_commands_of_the_specification() {
    let fdp = placement(None);
    assert_eq!((fdp.ids(), fdp.configurations()), (4, vec![configuration()]));
    assert_eq!(fdp.enabled(), Some(0));
    fdp.enable(Some(2)).unwrap();
    assert_eq!(fdp.usage(), Ok(vec![HandleUse::Host; 8]));
    assert_eq!(fdp.statistics(), Ok(Statistics::default()));
    assert_eq!(fdp.events(Reporter::Host), Ok(Vec::new()));
    assert_eq!(fdp.events(Reporter::Controller), Ok(Vec::new()));
    assert_eq!(fdp.endurance(), Endurance::default());
    assert_eq!(fdp.handles(), Ok(handles()));
    fdp.update(&[PlacementId(1), PlacementId(3)]).unwrap();
    fdp.update(&[]).unwrap();
    assert_eq!(fdp.reported_events(PlacementId(2)).unwrap().len(), 1);
    let kinds = [EventType::NotFullyWritten, EventType::MediaReallocated];
    fdp.report_events(PlacementId(2), &kinds, true).unwrap();

    let asked = fdp.passthrough.asked.lock().clone();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/fdp-commands.txt");
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &asked).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert!(asked == golden, "{path} is not what is sent:\n{asked}");
}

#[test]
fn refusals_say_what_they_mean() {
    let fdp = placement(Some(FDP_DISABLED));
    assert_eq!(fdp.statistics(), Err(FdpError::Disabled { drive: "drive".to_owned() }));
    assert_eq!(fdp.enabled(), None);
    let fdp = placement(Some(SEQUENCE));
    assert!(matches!(fdp.enable(None), Err(FdpError::Sequence(_))));
    let fdp = placement(Some(2));
    assert_eq!(fdp.update(&[PlacementId(9)]), Err(FdpError::InvalidId { id: 9, count: 4 }));
    assert!(matches!(fdp.update(&[PlacementId(1)]), Err(FdpError::Invalid(_))));
    assert_eq!(fdp.endurance(), Endurance::default());
    // A target that passes on logs, but no feature.
    assert_eq!(fdp.enabled(), None);
}
