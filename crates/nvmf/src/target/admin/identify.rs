//! Identify data of a controller and its namespaces.

use crate::target::config::NSID_MAX;
use crate::target::controller::{AERL, Controller, ERROR_ENTRIES};
use crate::target::shared::Shared;
use crate::target::subsystem::{Namespace, Subsystem};
use crate::wire::capsule::NSID_ALL;
use crate::wire::capsule::Sqe;
use crate::wire::fabrics::{DISCOVERY_NQN, VERSION};
use crate::wire::identify::{
    ANA_GROUP, CMIC_MULTI_ANA, CTRATT_ENDURANCE_GROUPS, CTRATT_FDPS, CTRATT_HOSTID_128,
    CTRATT_TBKAS, DLFEAT_ZEROES, IdentifyController, IdentifyNamespace, IndependentNamespace,
    NSFEAT_OPTPERF, NSFEAT_VWCNP, NvmController, OAES_ANA, OAES_DISCOVERY, OAES_NAMESPACE, OCFS_0,
    ONCS_COMPARE, ONCS_COPY, ONCS_DSM, ONCS_RESERVATIONS, ONCS_VERIFY, ONCS_WRITE_ZEROES,
    RESCAP_ALL, RESCAP_PERSIST, SIZE, cns, descriptors, id_list, namespace_list,
};
use crate::wire::status::Status;
use crate::wire::{padded, saturate16};

const INVALID_FIELD: Status = Status::INVALID_FIELD.final_();
const INVALID_NAMESPACE: Status = Status::INVALID_NAMESPACE.final_();

/// The data of an Identify command.
pub(crate) fn identify(
    shared: &Shared,
    controller: &Controller,
    sqe: &Sqe,
) -> Result<Vec<u8>, Status> {
    let (which, csi) = (sqe.byte(10, 0), sqe.byte(11, 3));
    let Some(subsystem) = &controller.subsystem else {
        return match which {
            cns::CONTROLLER => Ok(discovery_controller(controller).encode().to_vec()),
            _ => Err(INVALID_FIELD),
        };
    };
    let namespace = || match sqe.nsid {
        0 | NSID_ALL => Err(INVALID_NAMESPACE),
        nsid if nsid > NSID_MAX => Err(INVALID_NAMESPACE),
        nsid => Ok(subsystem.namespace(nsid)),
    };
    let active = || {
        let ids = subsystem.namespaces().into_iter().map(|one| one.nsid);
        if sqe.nsid >= 0xffff_fffe {
            Err(INVALID_NAMESPACE)
        } else {
            Ok(namespace_list(ids, sqe.nsid))
        }
    };
    // Identify data of a namespace that is not there is zero (Base 2.1, 5.1.13).
    match (which, csi) {
        (cns::NAMESPACE, _) => {
            Ok(namespace()?
                .map_or_else(|| vec![0; SIZE], |one| of_namespace(&one).encode().to_vec()))
        }
        (cns::CONTROLLER, _) => Ok(of_controller(shared, controller, subsystem).encode().to_vec()),
        (cns::ACTIVE_NAMESPACES, _) | (cns::IO_ACTIVE_NAMESPACES, 0) => active(),
        (cns::DESCRIPTORS, _) => {
            let one = namespace()?.ok_or(INVALID_NAMESPACE)?;
            Ok(descriptors(&one.uuid, &one.uuid))
        }
        (cns::IO_NAMESPACE, 0) => namespace().map(|_| vec![0; SIZE]),
        (cns::IO_CONTROLLER, 0) => {
            let vsl = mdts(subsystem);
            Ok(NvmController { vsl, ..NvmController::default() }.encode().to_vec())
        }
        (cns::INDEPENDENT_NAMESPACE, _) => {
            Ok(namespace()?
                .map_or_else(|| vec![0; SIZE], |one| independent(&one).encode().to_vec()))
        }
        (cns::CONTROLLERS, _) | (cns::ATTACHED_CONTROLLERS, _) => {
            if which == cns::ATTACHED_CONTROLLERS {
                namespace()?.ok_or(INVALID_NAMESPACE)?;
            }
            let controllers = shared.controllers.lock();
            let is_its = |one: &&std::sync::Arc<Controller>| {
                let other = one.subsystem.as_ref();
                one.id >= sqe.high(10)
                    && other.is_some_and(|other| std::sync::Arc::ptr_eq(other, subsystem))
            };
            let ids: Vec<u16> = controllers.values().filter(is_its).map(|one| one.id).collect();
            Ok(id_list(&ids))
        }
        (cns::ENDURANCE_GROUPS, _) => {
            let groups: Vec<u16> =
                (1..=subsystem.endurance_groups()).filter(|id| *id > sqe.low(11)).collect();
            Ok(id_list(&groups))
        }
        (cns::IO_COMMAND_SETS, _) => {
            let mut bytes = vec![0; SIZE];
            bytes[0] = 1; // combination 0: the NVM command set
            Ok(bytes)
        }
        _ => Err(INVALID_FIELD),
    }
}

fn revision() -> [u8; 8] {
    padded(env!("CARGO_PKG_VERSION"), b' ')
}

fn mdts(subsystem: &Subsystem) -> u8 {
    u8::try_from((subsystem.transfer_bytes / 4096).trailing_zeros()).expect("a count of bits")
}

/// Fields that both kinds of controller share.
fn common(controller: &Controller) -> IdentifyController {
    IdentifyController {
        fr: revision(),
        cntlid: controller.id,
        ver: VERSION,
        ctratt: CTRATT_HOSTID_128 | CTRATT_TBKAS,
        acl: crate::target::controller::ABORTS - 1,
        aerl: AERL,
        lpa: 0x07,
        elpe: u8::try_from(ERROR_ENTRIES - 1).expect("at most 256 entries"),
        kas: crate::target::controller::KAS,
        sqes: 0x66,
        cqes: 0x44,
        // SGLs without alignment, and with offsets into the capsule.
        sgls: 1 | 1 << 20,
        iorcsz: 1,
        msdbd: 1,
        ..IdentifyController::default()
    }
}

fn discovery_controller(controller: &Controller) -> IdentifyController {
    IdentifyController {
        sn: padded("discovery", b' '),
        mn: padded("Esker discovery", b' '),
        cntrltype: 2,
        oaes: OAES_DISCOVERY,
        maxcmd: 128,
        subnqn: padded(DISCOVERY_NQN, 0),
        ioccsz: 4,
        ..common(controller)
    }
}

fn of_controller(
    shared: &Shared,
    controller: &Controller,
    subsystem: &Subsystem,
) -> IdentifyController {
    let base = common(controller);
    let groups = subsystem.endurance_groups();
    let fdp = if groups > 0 { CTRATT_ENDURANCE_GROUPS | CTRATT_FDPS } else { 0 };
    IdentifyController {
        sn: padded(&subsystem.serial, b' '),
        mn: padded(&subsystem.model, b' '),
        cmic: CMIC_MULTI_ANA,
        mdts: mdts(subsystem),
        oaes: OAES_NAMESPACE | OAES_ANA,
        ctratt: base.ctratt | fdp,
        cntrltype: 1,
        frmw: 0x03,
        wctemp: 343,
        cctemp: 358,
        endgidmax: groups,
        anatt: 10,
        // All states are reported; the group of a namespace does not change.
        anacap: 0x5f,
        anagrpmax: ANA_GROUP,
        nanagrpid: ANA_GROUP,
        maxcmd: shared.limits.queue_entries,
        nn: NSID_MAX,
        mnan: NSID_MAX,
        oncs: ONCS_COMPARE
            | ONCS_DSM
            | ONCS_WRITE_ZEROES
            | ONCS_RESERVATIONS
            | ONCS_VERIFY
            | ONCS_COPY,
        ocfs: OCFS_0,
        // Flush takes a namespace, not all of them at once.
        vwc: 0x04 | u8::from(subsystem.is_volatile()),
        subnqn: padded(&subsystem.nqn, 0),
        ioccsz: (64 + shared.limits.in_capsule_bytes) / 16,
        ..base
    }
}

fn rescap(namespace: &Namespace) -> u8 {
    RESCAP_ALL | if namespace.reservations.can_persist() { RESCAP_PERSIST } else { 0 }
}

fn of_namespace(namespace: &Namespace) -> IdentifyNamespace {
    let geometry = namespace.geometry();
    let capacity = namespace.capacity();
    let lbas = |bytes: u32| saturate16(u64::from((bytes / geometry.lba_size).max(1)) - 1);
    let (write, discard) =
        (lbas(geometry.preferred_write_size), lbas(geometry.discard_granularity));
    IdentifyNamespace {
        nsze: capacity,
        ncap: capacity,
        nuse: capacity,
        nsfeat: NSFEAT_OPTPERF,
        nmic: 1,
        rescap: rescap(namespace),
        dlfeat: if namespace.device.discards_zero() { DLFEAT_ZEROES } else { 0 },
        npwg: write,
        npwa: write,
        npdg: discard,
        npda: discard,
        nows: write,
        mssrl: crate::target::connection::copies::range_lbas(geometry.lba_size),
        mcl: crate::target::connection::copies::copy_lbas(geometry.lba_size),
        msrc: crate::target::connection::copies::MOST_RANGES - 1,
        anagrpid: ANA_GROUP,
        endgid: namespace.endurance_group,
        nguid: namespace.uuid,
        lbaf0_lbads: u8::try_from(geometry.lba_size.trailing_zeros()).expect("a count of bits"),
        ..IdentifyNamespace::default()
    }
}

fn independent(namespace: &Namespace) -> IndependentNamespace {
    IndependentNamespace {
        nsfeat: if namespace.geometry().volatile_write_cache { 0 } else { NSFEAT_VWCNP },
        nmic: 1,
        rescap: rescap(namespace),
        anagrpid: ANA_GROUP,
        endgid: namespace.endurance_group,
        nstat: 1,
        ..IndependentNamespace::default()
    }
}
