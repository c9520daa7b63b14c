//! Whether writes to a block device can carry placement ids, and which.
//!
//! The kernel (Linux 6.16) gives a namespace with data placement as many *write streams* as it has
//! placement ids, in the order in which the drive names them; stream 0 is none. Only writes through
//! `io_uring` and around the page cache carry one.

use std::fs::File;

use crate::fdp::controller::{ControllerPlacement, Passthrough, PassthroughError, Transfer};
use crate::fdp::wire::command::{IDENTIFY_SIZE, NvmeCommand, decode_controller, decode_group};
use crate::fdp::{DataPlacement, FdpError};
use crate::{PlacementId, fdp};

use super::nvme::Drive;
use super::probe::{Medium, Streams};

/// Data placement of a drive in this machine.
pub(super) type DrivePlacement = ControllerPlacement<Drive>;

/// How commands are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    pub(super) is_direct: bool,
    pub(super) uses_io_uring: bool,
}

/// Placement, and how many ids writes can carry.
pub(super) type Found<P> = (ControllerPlacement<P>, u16);

/// Looks whether the open block device has data placement that can be used. A drive that has none is
/// nothing to speak of.
///
/// # Errors
/// Why a drive that has data placement offers no ids.
pub(super) fn find(
    file: &File,
    name: &str,
    medium: &Medium,
    ways: Ways,
) -> Result<Option<Found<Drive>>, String> {
    if !medium.is_block_device {
        return Ok(None);
    }
    let Ok(file) = file.try_clone() else { return Ok(None) };
    let drive = Drive::new(file, name);
    let Some(nsid) = drive.namespace() else { return Ok(None) };
    settle(drive, nsid, medium.streams, ways)
}

/// The same, for a namespace of a drive that takes commands.
fn settle<P: Passthrough>(
    drive: P,
    nsid: u32,
    streams: Streams,
    ways: Ways,
) -> Result<Option<Found<P>>, String> {
    let Ok(Some((group, name))) = group_of(&drive, nsid) else { return Ok(None) };
    if streams == Streams::OfPartition {
        return Err("it is a partition; open the whole namespace".to_owned());
    }
    let placement = ControllerPlacement::new(drive, nsid, group, name)
        .map_err(|error| format!("it does not tell its configurations: {error}"))?;
    let handles = placement.handles().map_err(|error| match error {
        FdpError::Disabled { .. } => {
            "data placement is disabled: delete its namespaces, enable a configuration (nvme fdp \
             feature --enable-conf-idx=0), and create namespaces with handles"
                .to_owned()
        }
        other => other.to_string(),
    })?;
    let Streams::Most(streams) = streams else {
        return Err("the kernel has no write streams; they are in Linux 6.16 and later".to_owned());
    };
    if streams == 0 {
        let why = "the kernel offers no write streams for it (queue/max_write_streams is 0)";
        return Err(why.to_owned());
    }
    if !ways.is_direct || !ways.uses_io_uring {
        return Err("only direct I/O through io_uring carries them".to_owned());
    }
    let one_group = |one: &fdp::Configuration| one.reclaim_groups == 1;
    let is_plain = handles.iter().zip(0..).all(|(one, id)| one.placement == PlacementId(id));
    if !placement.configurations().iter().all(one_group) || !is_plain {
        return Err("it has several reclaim groups".to_owned());
    }
    let count = u16::try_from(handles.len()).unwrap_or(u16::MAX).min(streams);
    Ok((count > 0).then_some((placement, count)))
}

/// The endurance group with data placement that a namespace is in, and the name of that.
fn group_of(
    drive: &impl Passthrough,
    nsid: u32,
) -> Result<Option<(u16, String)>, PassthroughError> {
    let identify = |command: NvmeCommand| {
        drive.execute(&command, Transfer::In(IDENTIFY_SIZE)).map(|(_, bytes)| bytes)
    };
    let controller = identify(NvmeCommand::identify_controller())?;
    let Some(controller) = decode_controller(&controller).ok().filter(|one| one.has_placement)
    else {
        return Ok(None);
    };
    let group = decode_group(&identify(NvmeCommand::identify_namespace(nsid))?).unwrap_or(0);
    let of = if controller.subsystem.is_empty() { controller.serial } else { controller.subsystem };
    Ok((group > 0).then(|| (group, format!("{of} endurance group {group}"))))
}

/// The write stream of a placement id, of a device that offers so many.
pub(super) fn stream(placement: Option<PlacementId>, count: u16) -> u8 {
    let id = placement.filter(|id| id.0 < count);
    id.and_then(|id| u8::try_from(id.0 + 1).ok()).unwrap_or(0)
}

pub(super) fn remark(name: &str, why: &str) -> String {
    format!("{name}: the drive has data placement, but writes carry no placement ids: {why}.")
}

#[cfg(test)]
mod tests;
