//! The state of one TCP connection of a target, which is one queue.
//!
//! Invariants
//! 1. `in_device` is the number of commands of this connection that a device has or will get; the
//!    connection is not dropped, nor its socket closed, while there are any. So a host that sees
//!    the connection end knows that nothing it sent through it is still going to happen.
//! 2. `buffered` is the size of all buffers that hold data of this connection.
//! 3. A command is for the namespace that had its number when the command came. When that is gone, the command
//!    is refused, whatever has the number by then.
//! 4. The slot of a command is free when the command is answered and no device has a piece of it.

pub(crate) mod backend;
pub(crate) mod commands;
pub(crate) mod copies;
pub(crate) mod core;
pub(crate) mod memory;
pub(crate) mod reply;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::silence::Given;
use esker_base::{AlignedBuf, Nanos};

use self::core::{Core, DeviceQueue};
use super::config::Limits;
use super::controller::Controller;
use super::ids::{AbortId, Address, Id, Slots, Visitor};
use super::limits::budget::STRANGERS;
use super::limits::pace::{Pace, Slow};
use super::metrics::Flow;
use super::refusals::RefusalReason;
use super::subsystem::Namespace;
use super::subsystem::late::LateCommand;
use crate::auth::Verifier;
use crate::conn::{ControllerConnection, ControllerSettings, Slot};
use crate::stream::Stream;
use crate::wire::capsule::Sqe;
use crate::wire::status::Status;
use copies::Copies;

/// Data of commands before the admin queue is connected, and on it, in a capsule (TCP 1.1, 3.2).
pub(super) const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// Commands until Connect says how many the queue holds: itself.
const FIRST_SLOTS: u16 = 1;

/// Purpose of a connection.
pub(crate) enum Role {
    /// Not known before Connect.
    New,
    /// The admin queue of a controller.
    Admin(Arc<Controller>),
    /// An I/O queue of a controller.
    Io(Arc<Controller>, u16),
}

impl Role {
    pub(crate) fn controller(&self) -> Option<&Arc<Controller>> {
        match self {
            Role::New => None,
            Role::Admin(controller) | Role::Io(controller, _) => Some(controller),
        }
    }
}

/// A command in progress.
#[derive(Default)]
pub(crate) struct Job {
    pub(crate) sqe: Sqe,
    pub(crate) started: Nanos,
    /// When the device was given the first of its commands that it has.
    pub(crate) given: Option<Given>,
    /// It was answered before its devices were done, or the connection ends.
    pub(crate) late: Option<LateCommand>,
    /// Commands that the device has of it.
    pub(crate) pieces: u32,
    /// The first error of these.
    pub(super) status: Status,
    /// It is done when the device is flushed behind it: FUA of commands without data of their own.
    pub(crate) owes_flush: bool,
    /// The data that a Compare compares with.
    pub(crate) expected: Option<AlignedBuf>,
    /// When the host was asked for its data, which has not come.
    pub(crate) asked: Option<Nanos>,
    /// It is to be aborted when its data has come, or its devices are done: by this Abort.
    pub(crate) abort: Option<AbortId>,
    /// Its namespace: the one that had the number when the command came.
    pub(crate) used: Option<Id<Use>>,
}

impl Job {
    /// Whether the host has to be asked for its data.
    pub(crate) fn needs_data(&self, data: Option<&AlignedBuf>) -> bool {
        self.sqe.is_from_host() && data.is_none() && self.sqe.sgl.length > 0
    }
}

/// A namespace as this connection uses it, for as long as the worker has a queue pair on it.
pub(crate) struct Use {
    pub(crate) namespace: Arc<Namespace>,
    /// Of the subsystem when the namespace was looked up: it has the number at least as long as this is the same.
    pub(crate) generation: u64,
    /// The worker's queue pair.
    pub(crate) queue: Id<DeviceQueue>,
    /// Bytes of this connection's commands that the device has or will get.
    pub(crate) bytes: usize,
    pub(crate) flow: Arc<Flow>,
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) index: usize,
    pub(crate) portal: usize,
    pub(crate) visitor: Visitor,
    pub(crate) since: Nanos,
    pub(crate) wire: ControllerConnection,
    pub(crate) role: Role,
    pub(crate) verifier: Option<Verifier>,
    /// The host against whose limit it is counted.
    pub(crate) counted: Option<String>,
    pub(crate) jobs: Vec<Job>,
    /// Commands that wait for memory.
    pub(crate) waiting: VecDeque<u16>,
    /// Commands that wait for late ones, and the data of those that have it.
    pub(crate) fenced: VecDeque<(u16, Option<AlignedBuf>)>,
    pub(crate) copies: Copies,
    pub(crate) buffered: usize,
    /// Whose memory it holds, among those of the worker.
    pub(crate) share: usize,
    pub(crate) pace: Pace,
    pub(super) in_device: usize,
    pub(crate) uses: Slots<Use>,
    /// The generation of the subsystem whose namespaces have queue pairs of the worker.
    pub(super) opened: Option<u64>,
    /// No more input: it is closed when the devices are done with it.
    pub(crate) is_ending: bool,
    /// Until when the host has time to take a termination request. Bytes that it still sends are
    /// dropped meanwhile: a socket that is closed with received bytes in it is reset, and the reset
    /// overtakes the bytes sent.
    pub(super) parting: Option<Nanos>,
    /// Whether the socket takes no more for now.
    pub(super) is_blocked: bool,
    /// Whether it is among the worker's connections to be flushed.
    pub(crate) is_dirty: bool,
}

impl Connection {
    pub(crate) fn new(
        stream: Stream,
        index: usize,
        (portal, visitor): (usize, Visitor),
        limits: &Limits,
        now: Nanos,
    ) -> Connection {
        let settings = ControllerSettings {
            slots: FIRST_SLOTS,
            in_capsule_bytes: ADMIN_CAPSULE_BYTES,
            max_h2c_bytes: limits.transfer_bytes,
            digests: limits.digests,
            staging_bytes: 16 << 10,
        };
        Connection {
            stream,
            index,
            portal,
            visitor,
            since: now,
            wire: ControllerConnection::new(settings),
            role: Role::New,
            verifier: None,
            counted: None,
            jobs: Vec::new(),
            waiting: VecDeque::new(),
            fenced: VecDeque::new(),
            copies: Copies::default(),
            buffered: 0,
            share: STRANGERS,
            pace: Pace::default(),
            in_device: 0,
            uses: Slots::default(),
            opened: None,
            is_ending: false,
            parting: None,
            is_blocked: false,
            is_dirty: false,
        }
    }

    /// Whose it is, for people.
    pub(crate) fn who(&self) -> String {
        let peer = self.stream.tcp().peer_addr();
        let at = peer.map_or_else(|_| "a host that is gone".to_owned(), |peer| peer.to_string());
        match &self.role {
            Role::New => format!("{at}, before Connect"),
            Role::Admin(controller) => format!("{at}, admin queue of {}", controller.host.nqn),
            Role::Io(controller, qid) => format!("{at}, queue {qid} of {}", controller.host.nqn),
        }
    }

    /// The host that it names is not let in.
    pub(crate) fn refused(&self, core: &Core, host: &str, reason: RefusalReason) {
        let address = self.stream.tcp().peer_addr().ok().map(|peer| peer.ip());
        core.shared.metrics.refusals.enter(host, address, reason, core.shared.clock.unix_time());
    }

    /// Commands that devices have or will get, and those that wait.
    pub(crate) fn under_way(&self) -> usize {
        self.in_device + self.waiting.len() + self.fenced.len()
    }

    /// Whether it can be closed: it ends, the devices are done, and the last output is sent.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending && self.in_device == 0 && self.parting.is_none()
    }

    /// Whether its host has had time enough to take the last words.
    pub(crate) fn is_parted(&self, now: Nanos) -> bool {
        self.parting.is_some_and(|end| now >= end)
    }

    /// Whether the host has still to prove its identity.
    pub(crate) fn is_unproven(&self) -> bool {
        self.verifier.as_ref().is_some_and(|verifier| !verifier.is_done())
    }

    /// Where it is, for others.
    pub(crate) fn address(&self, worker: usize) -> Address {
        Address { worker, connection: self.index, visitor: self.visitor }
    }

    /// The namespace of a command, as this connection uses it; `None` when the worker has closed its queue pair.
    pub(crate) fn used(&mut self, slot: Slot) -> Option<&mut Use> {
        let id = self.job(slot).used?;
        self.uses.get_mut(id)
    }

    pub(crate) fn job(&mut self, slot: Slot) -> &mut Job {
        &mut self.jobs[usize::from(slot.0)]
    }

    /// Returns whether the host is too slow, and with which duty.
    pub(crate) fn is_slow(&mut self, now: Nanos, limit: Duration) -> Option<Slow> {
        let asked = self.jobs.iter().filter_map(|job| job.asked);
        self.pace.look(&self.wire, asked, now, limit)
    }
}
