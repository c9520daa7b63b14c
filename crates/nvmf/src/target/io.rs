//! I/O commands: checked here, done by the device of the namespace.

pub(crate) mod copy;
pub(crate) mod deadline;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::Op;

use super::connection::core::Core;
use super::connection::reply::Reply;
use super::connection::{Connection, Role};
use super::controller::Controller;
use super::fdp;
use super::subsystem::Namespace;
use crate::conn::Slot;
use crate::wire::capsule::Sqe;
use crate::wire::command::{DEALLOCATE, DSM_DEALLOCATE, DsmRange, LbaRange, dsm_ranges, io};
use crate::wire::log::AnaState;
use crate::wire::status::Status;

/// Runs an I/O command.
pub(crate) fn execute(
    connection: &mut Connection,
    core: &mut Core,
    slot: Slot,
    data: Option<AlignedBuf>,
) {
    let sqe = connection.job(slot).sqe;
    let Role::Io(controller, _) = &connection.role else { unreachable!("an I/O queue") };
    let controller = controller.clone();
    let prepared = check_path(&controller)
        .and_then(|()| connection.namespace(core, slot))
        .and_then(|namespace| {
            namespace.reservations.check(controller.claimant(), sqe.opcode).or_else(
                |conflict| {
                    // Commands that a reservation never stops (Base 2.1, Figure 128).
                    if is_about_reservations(sqe.opcode) { Ok(()) } else { Err(conflict) }
                },
            )?;
            Ok(namespace)
        });
    let namespace = match prepared {
        Ok(prepared) => prepared,
        Err(status) => return connection.refuse(core, slot, data, status),
    };
    if namespace.late.fences(&sqe) {
        return connection.wait_for_late(core, slot, data);
    }
    match sqe.opcode {
        io::READ => read(connection, core, slot, &namespace),
        io::WRITE => write(connection, core, slot, &namespace, data),
        io::FLUSH => {
            connection.give_back(core, data);
            connection.submit(core, slot, Op::Flush);
        }
        io::WRITE_ZEROES => {
            connection.give_back(core, data);
            let range = LbaRange::of(&sqe);
            match namespace.check_range(range.slba, range.count.into()) {
                Err(status) => connection.finish(core, slot, status),
                Ok(lba) => {
                    let count = LbaCount(range.count.into());
                    let may_free = sqe.dword(12) & DEALLOCATE != 0;
                    let op = match may_free && namespace.device.discards_zero() {
                        true => Op::Discard { lba, count },
                        false => Op::WriteZeroes { lba, count },
                    };
                    connection.job(slot).owes_flush = range.fua;
                    connection.submit(core, slot, op);
                }
            }
        }
        io::DSM => dataset_management(connection, core, slot, &namespace, data),
        io::COMPARE => compare(connection, core, slot, &namespace, data),
        io::VERIFY => verify(connection, core, slot, &namespace),
        io::COPY => copy::execute(connection, core, slot, &namespace, data),
        _ => {
            let bytes = data.as_deref().unwrap_or(&[]);
            let reply = match sqe.opcode {
                io::IO_MANAGEMENT_RECEIVE => fdp::receive(&namespace, &sqe),
                io::IO_MANAGEMENT_SEND => fdp::send(&namespace, &sqe, bytes),
                _ => reservation(&controller, &namespace, &sqe, bytes),
            };
            connection.give_back(core, data);
            connection.reply(core, slot, reply);
        }
    }
}

fn is_about_reservations(opcode: u8) -> bool {
    matches!(
        opcode,
        io::RESERVATION_REGISTER
            | io::RESERVATION_REPORT
            | io::RESERVATION_ACQUIRE
            | io::RESERVATION_RELEASE
            | io::IO_MANAGEMENT_RECEIVE
    )
}

/// Runs a reservation command.
fn reservation(controller: &Controller, namespace: &Namespace, sqe: &Sqe, data: &[u8]) -> Reply {
    let (host, reservations) = (controller.claimant(), &namespace.reservations);
    match sqe.opcode {
        io::RESERVATION_REGISTER | io::RESERVATION_ACQUIRE | io::RESERVATION_RELEASE => {
            match reservations.run(host, controller.id, sqe, data) {
                Ok(()) => Reply::Done(0),
                Err(status) => Reply::Failed(status),
            }
        }
        // Host identifiers have 128 bits, which only the extended form (EDS) has room for.
        io::RESERVATION_REPORT if sqe.dword(11) & 1 == 0 => {
            Reply::Failed(Status::HOST_ID_INCONSISTENT.final_())
        }
        io::RESERVATION_REPORT => Reply::dwords(reservations.report(), sqe.dword(10)),
        _ => Reply::Failed(Status::INVALID_OPCODE.final_()),
    }
}

/// Whether namespaces are reached through the portal of the controller.
fn check_path(controller: &Controller) -> Result<(), Status> {
    match controller.through.ana() {
        AnaState::Optimized | AnaState::NonOptimized => Ok(()),
        AnaState::Inaccessible => Err(Status::ANA_INACCESSIBLE),
        AnaState::PersistentLoss => Err(Status::ANA_LOST),
        AnaState::Change => Err(Status::ANA_TRANSITION),
    }
}

/// The range of a command that moves data, and its size in bytes.
fn transfer(
    core: &Core,
    namespace: &Namespace,
    sqe: &Sqe,
) -> Result<(LbaRange, Lba, usize), Status> {
    let range = LbaRange::of(sqe);
    let lba = namespace.check_range(range.slba, range.count.into())?;
    let bytes = LbaCount(range.count.into()).bytes(namespace.lba_size());
    let most = core.shared.limits.transfer_bytes.min(namespace.geometry().max_transfer_size);
    if bytes > u64::from(most) {
        return Err(Status::INVALID_FIELD.final_());
    }
    Ok((range, lba, to_usize(bytes)))
}

fn read(connection: &mut Connection, core: &mut Core, slot: Slot, namespace: &Namespace) {
    let sqe = connection.job(slot).sqe;
    let (_, lba, bytes) = match transfer(core, namespace, &sqe) {
        Ok((.., bytes)) if to_usize(sqe.sgl.length.into()) != bytes => {
            return connection.finish(core, slot, Status::DATA_LENGTH.final_());
        }
        Ok(transfer) => transfer,
        Err(status) => return connection.finish(core, slot, status),
    };
    if let Some(buf) = connection.take(core, slot, bytes) {
        connection.submit(core, slot, Op::Read { lba, buf });
    }
}

fn write(
    connection: &mut Connection,
    core: &mut Core,
    slot: Slot,
    namespace: &Namespace,
    data: Option<AlignedBuf>,
) {
    let sqe = connection.job(slot).sqe;
    match (transfer(core, namespace, &sqe), data) {
        (Ok((range, lba, bytes)), Some(buf)) if buf.len() == bytes => {
            let LbaRange { placement, fua, .. } = range;
            connection.submit(core, slot, Op::Write { lba, buf, placement, fua });
        }
        (Ok(_), data) => connection.refuse(core, slot, data, Status::DATA_LENGTH.final_()),
        (Err(status), data) => connection.refuse(core, slot, data, status),
    }
}

fn compare(
    connection: &mut Connection,
    core: &mut Core,
    slot: Slot,
    namespace: &Namespace,
    data: Option<AlignedBuf>,
) {
    let sqe = connection.job(slot).sqe;
    let (lba, expected) = match (transfer(core, namespace, &sqe), data) {
        (Ok((_, lba, bytes)), Some(expected)) if expected.len() == bytes => (lba, expected),
        (Ok(_), data) => {
            return connection.refuse(core, slot, data, Status::DATA_LENGTH.final_());
        }
        (Err(status), data) => return connection.refuse(core, slot, data, status),
    };
    // The data of the host is here already: the buffer it is compared with does not wait for memory.
    let buf = connection.take_anyway(core, expected.len());
    connection.job(slot).expected = Some(expected);
    connection.submit(core, slot, Op::Read { lba, buf });
}

/// Verify reads the range and drops the data.
fn verify(connection: &mut Connection, core: &mut Core, slot: Slot, namespace: &Namespace) {
    match transfer(core, namespace, &connection.job(slot).sqe) {
        Ok((_, lba, bytes)) => {
            if let Some(buf) = connection.take(core, slot, bytes) {
                connection.submit(core, slot, Op::Read { lba, buf });
            }
        }
        Err(status) => connection.finish(core, slot, status),
    }
}

fn dataset_management(
    connection: &mut Connection,
    core: &mut Core,
    slot: Slot,
    namespace: &Namespace,
    data: Option<AlignedBuf>,
) {
    let sqe = connection.job(slot).sqe;
    let ranges = dsm_ranges(&sqe, data.as_deref().unwrap_or(&[]));
    connection.give_back(core, data);
    let Ok(ranges) = ranges else {
        return connection.finish(core, slot, Status::DATA_LENGTH.final_());
    };
    let is_valid = |one: &DsmRange| namespace.check_range(one.slba, one.count.into()).is_ok();
    if !ranges.iter().all(is_valid) {
        return connection.finish(core, slot, Status::LBA_RANGE.final_());
    }
    if sqe.dword(11) & DSM_DEALLOCATE != 0 {
        for range in ranges.iter().filter(|range| range.count > 0) {
            let (lba, count) = (Lba(range.slba), LbaCount(range.count.into()));
            connection.submit(core, slot, Op::Discard { lba, count });
        }
    }
    // The other attributes are hints.
    if connection.job(slot).pieces == 0 {
        connection.finish(core, slot, Status::SUCCESS);
    }
}
