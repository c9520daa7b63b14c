//! The log pages of a controller.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::target::controller::{Controller, ERROR_ENTRIES};
use crate::target::fdp;
use crate::target::portal::Portal;
use crate::target::shared::Shared;
use crate::target::subsystem::{Namespace, Subsystem};
use crate::wire::capsule::Sqe;
use crate::wire::command::{admin, io};
use crate::wire::fabrics::{CNTLID_ANY, DISCOVERY_NQN};
use crate::wire::identify::ANA_GROUP;
use crate::wire::log::{
    AnaGroup, AnaHeader, AnaState, DiscoveryEntry, DiscoveryHeader, SECTYPE_TLS13, SUBTYPE_CURRENT,
    SUBTYPE_NVM, SUBTYPE_REFERRAL, SmartLog, TREQ_NO_FLOW_CONTROL, TREQ_SECURE, TRTYPE_TCP,
    effects, lid,
};
use crate::wire::status::Status;
use crate::wire::{feature, identify, log, padded};

/// Log pages of I/O controllers that are for the namespace or the controller.
const SUPPORTED: [u8; 14] = [
    lid::SUPPORTED,
    lid::ERROR,
    lid::SMART,
    lid::FIRMWARE,
    lid::CHANGED_NAMESPACES,
    lid::EFFECTS,
    lid::ANA,
    lid::RESERVATION,
    // These only where there is data placement.
    lid::ENDURANCE,
    lid::FDP_CONFIGURATIONS,
    lid::FDP_USAGE,
    lid::FDP_STATISTICS,
    lid::FDP_EVENTS,
    lid::SUPPORTED,
];

/// A log page, whole.
#[derive(Debug)]
pub(crate) struct LogPage {
    pub(crate) bytes: Vec<u8>,
    /// The namespaces that it says have changed.
    pub(crate) changed: BTreeSet<u32>,
}

/// A log page as it is now. It changes nothing: [`Controller::log_was_read`] does, when a host gets it.
pub(crate) fn page(shared: &Shared, controller: &Controller, sqe: &Sqe) -> Result<LogPage, Status> {
    if sqe.byte(10, 0) == lid::CHANGED_NAMESPACES && !controller.is_discovery() {
        let changed = controller.state.lock().changed.clone();
        let bytes = identify::namespace_list(changed.iter().copied(), 0);
        return Ok(LogPage { bytes, changed });
    }
    let bytes = bytes_of(shared, controller, sqe)?;
    Ok(LogPage { bytes, changed: BTreeSet::new() })
}

fn bytes_of(shared: &Shared, controller: &Controller, sqe: &Sqe) -> Result<Vec<u8>, Status> {
    let which = sqe.byte(10, 0);
    let Some(subsystem) = &controller.subsystem else {
        return match which {
            lid::DISCOVERY => Ok(discovery(shared, controller)),
            _ => Err(Status::INVALID_LOG.final_()),
        };
    };
    match which {
        lid::SUPPORTED => Ok(supported(subsystem)),
        lid::ERROR => {
            let state = controller.state.lock();
            let mut bytes: Vec<u8> =
                state.error_log.iter().flat_map(|entry| entry.encode()).collect();
            bytes.resize(ERROR_ENTRIES * log::ErrorEntry::SIZE, 0);
            Ok(bytes)
        }
        lid::SMART => Ok(smart(controller, subsystem).encode().to_vec()),
        lid::FIRMWARE => {
            let mut bytes = vec![0; 512];
            bytes[0] = 1; // slot 1 is active
            bytes[8..16].copy_from_slice(&padded::<8>(env!("CARGO_PKG_VERSION"), b' '));
            Ok(bytes)
        }
        lid::EFFECTS => Ok(match sqe.byte(14, 3) {
            0 => commands(),
            _ => vec![0; 4096],
        }),
        lid::ANA => Ok(ana(controller, subsystem, sqe.byte(10, 1) & 1 == 1)),
        lid::RESERVATION => Ok(vec![0; 64]), // no notifications: they are masked
        _ => {
            let namespace = of_group(subsystem, sqe.high(11))?;
            let fdp = namespace.placement().ok_or(Status::INVALID_FIELD.final_())?;
            fdp::log(fdp, sqe)
        }
    }
}

/// Any namespace of an endurance group.
pub(crate) fn of_group(subsystem: &Subsystem, group: u16) -> Result<Arc<Namespace>, Status> {
    if subsystem.endurance_groups() == 0 {
        return Err(Status::INVALID_LOG.final_());
    }
    let is_its = |one: &Arc<Namespace>| group > 0 && one.endurance_group == group;
    subsystem.namespaces().into_iter().find(is_its).ok_or(Status::INVALID_FIELD.final_())
}

fn supported(subsystem: &Subsystem) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let count = if subsystem.endurance_groups() > 0 { SUPPORTED.len() } else { 8 };
    for &which in &SUPPORTED[..count] {
        bytes[usize::from(which) * 4] = 1;
    }
    bytes
}

fn commands() -> Vec<u8> {
    const SUPPORTED: u32 = 1;
    const CHANGES_DATA: u32 = 3;
    let admin = [
        log::OPCODE,
        identify::OPCODE,
        admin::ABORT,
        feature::SET,
        feature::GET,
        admin::ASYNC_EVENT,
        admin::KEEP_ALIVE,
    ];
    let reads = [
        io::READ,
        io::FLUSH,
        io::COMPARE,
        io::VERIFY,
        io::RESERVATION_REGISTER,
        io::RESERVATION_REPORT,
        io::RESERVATION_ACQUIRE,
        io::RESERVATION_RELEASE,
        io::IO_MANAGEMENT_RECEIVE,
        io::IO_MANAGEMENT_SEND,
    ];
    let writes = [io::WRITE, io::WRITE_ZEROES, io::DSM, io::COPY];
    let admin: Vec<_> = admin.iter().map(|&opcode| (opcode, SUPPORTED)).collect();
    let mut io: Vec<_> = reads.iter().map(|&opcode| (opcode, SUPPORTED)).collect();
    io.extend(writes.iter().map(|&opcode| (opcode, CHANGES_DATA)));
    effects(&admin, &io)
}

fn smart(controller: &Controller, subsystem: &Subsystem) -> SmartLog {
    let mut log =
        SmartLog { temperature: 300, avail_spare: 100, spare_threshold: 10, ..SmartLog::default() };
    let units = |bytes: u64| u128::from(bytes.div_ceil(512_000));
    for namespace in subsystem.namespaces() {
        let stats = namespace.device.stats();
        log.data_units_read += units(stats.read_bytes);
        log.data_units_written += units(stats.written_bytes);
        log.host_reads += u128::from(stats.reads);
        log.host_writes += u128::from(stats.writes);
        if let Some(fdp) = namespace.placement() {
            let endurance = fdp.endurance();
            log.percent_used = log.percent_used.max(endurance.used_percent);
            log.avail_spare = log.avail_spare.min(endurance.spare_percent);
        }
    }
    log.error_entries = u128::from(controller.state.lock().errors);
    log
}

fn ana(controller: &Controller, subsystem: &Subsystem, groups_only: bool) -> Vec<u8> {
    let portal = &controller.through;
    let chgcnt = portal.ana_changes.load(Ordering::Relaxed);
    let state: AnaState = portal.ana();
    let namespaces = if groups_only { Vec::new() } else { subsystem.namespaces() };
    let group = AnaGroup {
        grpid: ANA_GROUP,
        nnsids: u32::try_from(namespaces.len()).expect("at most 1,024 namespaces"),
        chgcnt,
        state: state as u8,
    };
    let mut bytes = AnaHeader { chgcnt, ngrps: 1 }.encode().to_vec();
    bytes.extend(group.encode());
    bytes.extend(namespaces.iter().flat_map(|one| one.nsid.to_le_bytes()));
    bytes
}

fn discovery(shared: &Shared, controller: &Controller) -> Vec<u8> {
    let mut entries = Vec::new();
    let entry = |subtype, nqn: &str, portid: usize, at: SocketAddr| DiscoveryEntry {
        trtype: TRTYPE_TCP,
        adrfam: if at.is_ipv4() { 1 } else { 2 },
        subtype,
        // Disabling flow control is possible.
        treq: TREQ_NO_FLOW_CONTROL,
        portid: u16::try_from(portid).unwrap_or(u16::MAX),
        cntlid: CNTLID_ANY,
        asqsz: 32,
        trsvcid: padded(&at.port().to_string(), b' '),
        subnqn: padded(nqn, 0),
        traddr: padded(&at.ip().to_string(), b' '),
        ..DiscoveryEntry::default()
    };
    let through = |subtype, nqn: &str, number, portal: &Portal| {
        let mut entry = entry(subtype, nqn, number, portal.announced(controller.ends.reached)?);
        if portal.tls {
            entry.treq |= TREQ_SECURE;
            entry.tsas[0] = SECTYPE_TLS13;
        }
        Some(entry)
    };
    let portals = shared.portals.open();
    for (number, portal) in &portals {
        entries.extend(through(SUBTYPE_CURRENT, DISCOVERY_NQN, number + 1, portal));
    }
    // A host sees the subsystems that it may use.
    for subsystem in &*shared.subsystems.read() {
        let Some(host) = subsystem.admits(&controller.host.nqn) else { continue };
        let has_key = host.is_some_and(|host| host.tls_key.is_some());
        let is_its = |one: &Portal| one.tls == has_key && subsystem.is_at(one);
        for (number, portal) in portals.iter().filter(|(_, one)| is_its(one)) {
            entries.extend(through(SUBTYPE_NVM, &subsystem.nqn, number + 1, portal));
        }
    }
    let first = portals.last().map_or(0, |(number, _)| number + 1) + 1;
    for (number, &referral) in (first..).zip(&*shared.referrals.read()) {
        entries.push(entry(SUBTYPE_REFERRAL, DISCOVERY_NQN, number, referral));
    }
    let header = DiscoveryHeader {
        genctr: shared.generation.load(Ordering::Relaxed),
        numrec: u64::try_from(entries.len()).expect("64 bits"),
        recfmt: 0,
    };
    let mut bytes = header.encode().to_vec();
    bytes.extend(entries.iter().flat_map(DiscoveryEntry::encode));
    bytes
}
