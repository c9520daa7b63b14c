//! Data placement of a remote namespace: its commands, carried over the network.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use esker_base::AlignedBuf;
use esker_device::fdp::controller::{ControllerPlacement, Passthrough, PassthroughError, Transfer};
use esker_device::fdp::wire::command::{NvmeCommand, Queue};

use super::failover::Start;
use super::multipath::Multipath;
use super::path::Admin;
use super::payload::{payload, received};
use crate::error::NvmfError;
use crate::wire::capsule::Sqe;
use crate::wire::identify::CTRATT_FDPS;

/// Data placement of a remote namespace.
pub(crate) type RemotePlacement = ControllerPlacement<Remote>;

/// Carries commands to the controllers of the namespace.
pub(crate) struct Remote(Arc<Multipath>);

/// Looks whether the namespace has data placement.
pub(crate) fn find(shared: &Arc<Multipath>) -> Option<RemotePlacement> {
    let (has_fdp, group) = on_a_path(shared, |admin| {
        let facts = &admin.facts;
        Ok((facts.controller.ctratt & CTRATT_FDPS != 0, facts.namespace.endgid))
    })
    .ok()?;
    if !has_fdp || group == 0 {
        return None;
    }
    let drive = format!("{} endurance group {group}", shared.config.nqn);
    ControllerPlacement::new(Remote(shared.clone()), shared.config.nsid, group, drive).ok()
}

impl Passthrough for Remote {
    fn execute(
        &self,
        command: &NvmeCommand,
        data: Transfer<'_>,
    ) -> Result<(u64, AlignedBuf), PassthroughError> {
        let [ten, eleven, twelve] = command.dwords;
        let sqe = Sqe::new(command.opcode, command.nsid)
            .with_dword(10, ten)
            .with_dword(11, eleven)
            .with_dword(12, twelve);
        let done = match command.queue {
            Queue::Admin => on_a_path(&self.0, |admin| admin.run(command.name, sqe, data)),
            Queue::Io => self.on_io_queue(command.name, sqe, data),
        };
        done.map_err(|error| match &error {
            NvmfError::Command { status, .. } => {
                PassthroughError::Refused { status: status.code(), message: error.to_string() }
            }
            _ => PassthroughError::Failed { kind: error.kind(), message: error.to_string() },
        })
    }
}

impl Remote {
    /// Runs a command on an I/O queue that is kept for the purpose.
    fn on_io_queue(
        &self,
        name: &'static str,
        sqe: Sqe,
        data: Transfer<'_>,
    ) -> Result<(u64, AlignedBuf), NvmfError> {
        let shared = &self.0;
        let mut place = shared.management.lock();
        let mut tries = 0;
        loop {
            tries += 1;
            let mut active = match place.take() {
                Some(active) if shared.is_current(&active) => active,
                _ => {
                    let deadline = shared.clock.now() + shared.config.timeout;
                    shared.obtain(1, Start::New, None, deadline, &AtomicBool::new(false))?
                }
            };
            match active.link.execute(name, sqe, payload(data)) {
                Ok((cqe, payload)) => {
                    *place = Some(active);
                    return Ok((cqe.result, received(payload)));
                }
                Err(error @ NvmfError::Command { .. }) => {
                    *place = Some(active);
                    return Err(error);
                }
                Err(error) => {
                    shared.release(&active);
                    shared.give_up(active.path, active.generation, &error);
                    if tries > 1 {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Does something with the controller of the first path that can.
fn on_a_path<T>(
    shared: &Multipath,
    act: impl Fn(&mut Admin) -> Result<T, NvmfError>,
) -> Result<T, NvmfError> {
    let mut outcome = None;
    for path in &shared.paths {
        match path.with(&act) {
            lost @ Err(NvmfError::Lost { .. } | NvmfError::Protocol { .. }) => outcome = Some(lost),
            answered => return answered,
        }
    }
    outcome.expect("at least one path")
}
