//! Fabrics commands: Connect, properties, authentication.

use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;

use crate::auth::{Names, Verifier};
use crate::conn::Slot;
use crate::target::connection::core::Core;
use crate::target::connection::reply::Reply;
use crate::target::connection::{Connection, Role};
use crate::target::controller::{Controller, Ends, Host, NotEntered};
use crate::target::metrics;
use crate::target::refusals::RefusalReason;
use crate::wire::auth::SECURITY_PROTOCOL;
use crate::wire::capsule::Sqe;
use crate::wire::fabrics::{
    AUTH_RECEIVE, AUTH_SEND, AUTHREQ_ATR, AuthTransfer, CAP, CATTR_NO_FLOW_CONTROL, CC, CNTLID_ANY,
    CONNECT, CSTS, Connect, ConnectData, DISCONNECT, DISCOVERY_NQN, NSSR, PROPERTY_GET,
    PROPERTY_SET, Property, VERSION, VS, capabilities,
};
use crate::wire::nqn;
use crate::wire::status::Status;

/// Where the names are in the data of Connect.
const SUBSYSTEM_NQN_AT: u16 = 256;
const HOST_NQN_AT: u16 = 512;
/// Bytes of a message of the authentication, at most.
const AUTH_BYTES: u32 = 4096;

/// Runs a fabrics command.
pub(crate) fn execute(
    connection: &mut Connection,
    core: &mut Core,
    slot: Slot,
    data: Option<AlignedBuf>,
) {
    let sqe = connection.job(slot).sqe;
    let bytes = data.as_deref().unwrap_or(&[]);
    let is_unproven = connection.is_unproven();
    let reply = match sqe.fctype() {
        CONNECT => connect(connection, core, slot, &sqe, bytes),
        AUTH_SEND => auth_send(connection, core, &sqe, bytes),
        AUTH_RECEIVE => auth_receive(connection, &sqe),
        _ if is_unproven => Reply::Failed(Status::AUTHENTICATION_REQUIRED.final_()),
        PROPERTY_GET => property_get(connection, core, &sqe),
        PROPERTY_SET => property_set(connection, core, &sqe),
        DISCONNECT => Reply::Failed(Status::INVALID_OPCODE.final_()),
        _ => Reply::Failed(Status::INVALID_FIELD.final_()),
    };
    connection.give_back(core, data);
    connection.reply(core, slot, reply);
    if is_unproven
        && !connection.is_unproven()
        && let Some(controller) = connection.role.controller()
    {
        name(connection, core, controller);
    }
}

/// Connect Invalid Parameters, with where the wrong one is.
struct Wrong {
    status: Status,
    result: u64,
    reason: RefusalReason,
}

impl Wrong {
    fn status(status: Status) -> Wrong {
        Wrong { status: status.final_(), result: 0, reason: RefusalReason::Connect }
    }

    /// Too many connections or controllers.
    fn busy() -> Wrong {
        Wrong { status: Status::CONNECT_BUSY, result: 0, reason: RefusalReason::Busy }
    }

    /// In the command, at byte `offset`.
    fn field(offset: u16) -> Wrong {
        Wrong { result: offset.into(), ..Wrong::status(Status::CONNECT_INVALID) }
    }

    /// In the data, at byte `offset` (IATTR 1).
    fn data(offset: u16) -> Wrong {
        let result = u64::from(offset) | 1 << 16;
        Wrong { result, ..Wrong::status(Status::CONNECT_INVALID) }
    }

    /// The host gets the same answer whether the subsystem is missing or not for it.
    fn missing(reason: RefusalReason) -> Wrong {
        Wrong { reason, ..Wrong::data(SUBSYSTEM_NQN_AT) }
    }
}

fn connect(
    connection: &mut Connection,
    core: &mut Core,
    slot: Slot,
    sqe: &Sqe,
    data: &[u8],
) -> Reply {
    let mut host = String::new();
    let connected = check(connection, core, sqe, data).and_then(|asked| {
        host.clone_from(&asked.host.nqn);
        // The key tells which host it is, and for which subsystem.
        if let Some(peer) = connection.stream.peer() {
            if peer.host != asked.host.nqn {
                return Err(Wrong::data(HOST_NQN_AT));
            }
            if peer.subsystem != asked.subsystem {
                return Err(Wrong::data(SUBSYSTEM_NQN_AT));
            }
        }
        enter_host(connection, core, &asked.host)?;
        match asked.request.qid {
            0 => admin_queue(connection, core, asked),
            _ => io_queue(connection, core, &asked),
        }
    });
    match connected {
        Ok(controller) => {
            controller.heard(core.now);
            connection.enter_share(core, &controller.host.nqn);
            connection.open_devices(core);
            if !connection.is_unproven() {
                name(connection, core, &controller);
            }
            let mut result = u64::from(controller.id);
            if connection.verifier.is_some() {
                result |= u64::from(AUTHREQ_ATR);
            }
            connection.wire.respond_to_connect(slot, result);
            Reply::Later
        }
        Err(wrong) => {
            metrics::count(&core.shared.metrics.refused);
            connection.refused(core, &host, wrong.reason);
            connection.wire.respond(slot, wrong.result, wrong.status);
            Reply::Later
        }
    }
}

/// The host of a connection is known, and has proved itself if it has to.
fn name(connection: &Connection, core: &Core, controller: &Controller) {
    let host = &controller.host.nqn;
    core.shared.admission.named(connection.visitor, host, core.shared.is_listed(host));
}

/// Request of a Connect.
struct Asked {
    request: Connect,
    host: Host,
    cntlid: u16,
    /// NQN of the subsystem, or of the discovery service.
    subsystem: String,
}

fn check(connection: &Connection, core: &Core, sqe: &Sqe, data: &[u8]) -> Result<Asked, Wrong> {
    if !matches!(connection.role, Role::New) {
        return Err(Wrong::status(Status::SEQUENCE));
    }
    let short = |_| Wrong::status(Status::DATA_LENGTH);
    let request = Connect::decode(&sqe.arguments()).map_err(short)?;
    let data = ConnectData::decode(data).map_err(short)?;
    if request.recfmt != 0 {
        return Err(Wrong::status(Status::CONNECT_FORMAT));
    }
    if request.sqsize == 0 || request.sqsize >= core.shared.limits.queue_entries {
        return Err(Wrong::field(44));
    }
    let subsystem = nqn::decode(&data.subnqn).map_err(|_| Wrong::data(SUBSYSTEM_NQN_AT))?;
    let nqn = nqn::decode(&data.hostnqn).map_err(|_| Wrong::data(HOST_NQN_AT))?;
    let host = Host { nqn, id: data.hostid };
    Ok(Asked { request, host, cntlid: data.cntlid, subsystem })
}

/// Counts the connection against the limit of its host: the one that it names now, and no longer
/// one that it has named before.
fn enter_host(connection: &mut Connection, core: &Core, host: &Host) -> Result<(), Wrong> {
    if connection.counted.as_ref() == Some(&host.nqn) {
        return Ok(());
    }
    let is_entered = core.shared.enter_host(&host.nqn);
    if let Some(before) = connection.counted.take() {
        core.shared.leave_host(&before);
    }
    if !is_entered {
        return Err(Wrong::busy());
    }
    connection.counted = Some(host.nqn.clone());
    Ok(())
}

fn admin_queue(
    connection: &mut Connection,
    core: &mut Core,
    asked: Asked,
) -> Result<Arc<Controller>, Wrong> {
    let Asked { request, host, cntlid, subsystem: nqn } = asked;
    let shared = core.shared.clone();
    let through = shared.portals.get(connection.portal).expect("it came through it");
    let subsystem = match nqn.as_str() {
        DISCOVERY_NQN => None,
        _ => Some(
            shared
                .subsystem(&nqn)
                .ok_or_else(|| Wrong::missing(RefusalReason::UnknownSubsystem))?,
        ),
    };
    let mut credentials = None;
    if let Some(subsystem) = &subsystem {
        // A host that may not use it gets the same answer as one that asks for a missing subsystem.
        let barred = || Wrong::missing(RefusalReason::NotAllowed);
        credentials = subsystem.admits(&host.nqn).ok_or_else(barred)?;
        if !subsystem.is_at(&through) {
            return Err(Wrong::missing(RefusalReason::OtherPortal));
        }
        let has_key = credentials.as_ref().is_some_and(|one| one.tls_key.is_some());
        if has_key != through.tls {
            return Err(Wrong::missing(RefusalReason::Tls));
        }
    }
    if cntlid != CNTLID_ANY {
        return Err(Wrong::data(16));
    }
    let verifier = credentials.as_ref().and_then(|one| verifier(one, &host.nqn, &nqn));
    let at = connection.address(core.index);
    let reached = connection.stream.tcp().local_addr().ok().map(|at| at.ip());
    let from = connection.stream.tcp().peer_addr().ok();
    let portal = ((connection.portal, through), Ends { reached, from }, at);
    let controller = shared
        .admit(|id| Controller::new(id, host, subsystem, credentials, portal))
        .ok_or_else(Wrong::busy)?;
    // From here on a change of the configuration finds it; one just before did not.
    if !shared.is_admitted(&controller) {
        shared.controllers.lock().remove(&controller.id);
        return Err(Wrong::missing(RefusalReason::NotAllowed));
    }
    controller.set_keep_alive(request.kato);
    connection.verifier = verifier;
    connection.wire.configure(request.sqsize, has_flow_control(&request), 8192);
    connection.role = Role::Admin(controller.clone());
    Ok(controller)
}

fn verifier(
    credentials: &crate::target::config::HostConfig,
    host: &str,
    nqn: &str,
) -> Option<Verifier> {
    let secret = credentials.secret.clone()?;
    let names = Names { host: host.to_owned(), subsystem: nqn.to_owned() };
    Some(Verifier::new(names, secret, credentials.controller_secret.clone()))
}

fn io_queue(
    connection: &mut Connection,
    core: &mut Core,
    asked: &Asked,
) -> Result<Arc<Controller>, Wrong> {
    let (Asked { request, host, cntlid, subsystem: nqn }, shared) = (asked, &core.shared);
    let controller = shared.controllers.lock().get(cntlid).cloned().ok_or(Wrong::data(16))?;
    let subsystem = controller.subsystem.as_ref().ok_or(Wrong::field(42))?;
    let is_its = controller.host == *host && subsystem.nqn == *nqn;
    if !is_its || controller.portal != connection.portal {
        return Err(Wrong::data(16));
    }
    let verifier =
        controller.credentials.as_ref().and_then(|one| verifier(one, &host.nqn, &subsystem.nqn));
    if verifier.is_none() {
        name(connection, core, &controller);
        if !shared.admission.may_be_guest(connection.visitor) {
            return Err(Wrong::busy());
        }
    }
    let at = connection.address(core.index);
    controller.enter(request.qid, at).map_err(|why| match why {
        NotEntered::Number => Wrong::field(42),
        NotEntered::Sequence => Wrong::status(Status::SEQUENCE),
    })?;
    connection.verifier = verifier;
    let in_capsule_bytes = shared.limits.in_capsule_bytes;
    connection.wire.configure(request.sqsize, has_flow_control(request), in_capsule_bytes);
    connection.role = Role::Io(controller.clone(), request.qid);
    Ok(controller)
}

fn has_flow_control(request: &Connect) -> bool {
    request.cattr & CATTR_NO_FLOW_CONTROL == 0
}

fn property_get(connection: &Connection, core: &Core, sqe: &Sqe) -> Reply {
    let invalid = Reply::Failed(Status::INVALID_FIELD.final_());
    let (Role::Admin(controller), Ok(property)) =
        (&connection.role, Property::decode(&sqe.arguments()))
    else {
        return invalid;
    };
    match (property.ofst, property.attrib & 7) {
        (CAP, 1) => Reply::Done(capabilities(core.shared.limits.queue_entries)),
        (VS, 0) => Reply::Done(VERSION.into()),
        (CC, 0) => Reply::Done(controller.configuration().into()),
        (CSTS, 0) => Reply::Done(controller.status().into()),
        (NSSR, 0) => Reply::Done(0),
        _ => invalid,
    }
}

fn property_set(connection: &mut Connection, core: &Core, sqe: &Sqe) -> Reply {
    let invalid = Reply::Failed(Status::INVALID_FIELD.final_());
    let (Role::Admin(controller), Ok(property)) =
        (&connection.role, Property::decode(&sqe.arguments()))
    else {
        return invalid;
    };
    if property.ofst != CC || property.attrib & 7 != 0 {
        return invalid;
    }
    let [a, b, c, d, ..] = property.value.to_le_bytes();
    let ended = controller.configure(u32::from_le_bytes([a, b, c, d]));
    for at in ended.queues {
        core.shared.close(at);
    }
    controller.forget_reservations();
    // They are answered before the host is told that the reset has begun, and not afterwards.
    for slot in ended.commands {
        connection.wire.respond(slot, 0, Status::ABORTED);
    }
    Reply::Done(0)
}

fn is_authentication(sqe: &Sqe) -> Option<AuthTransfer> {
    let transfer = AuthTransfer::decode(&sqe.arguments()).ok()?;
    let is_it = transfer.secp == SECURITY_PROTOCOL && (transfer.spsp0, transfer.spsp1) == (1, 1);
    (is_it && transfer.length <= AUTH_BYTES && transfer.length > 0).then_some(transfer)
}

fn auth_send(connection: &mut Connection, core: &Core, sqe: &Sqe, data: &[u8]) -> Reply {
    let invalid = Reply::Failed(Status::INVALID_FIELD.final_());
    let Some(transfer) = is_authentication(sqe) else { return invalid };
    let Some(verifier) = &mut connection.verifier else {
        return Reply::Failed(Status::SEQUENCE.final_());
    };
    if to_usize(transfer.length.into()) != data.len() {
        return Reply::Failed(Status::DATA_LENGTH.final_());
    }
    if verifier.receive(data).is_err() {
        return Reply::Failed(Status::INTERNAL);
    }
    if verifier.has_failed() {
        metrics::count(&core.shared.metrics.unauthenticated);
        if let Some(controller) = connection.role.controller().cloned() {
            connection.refused(core, &controller.host.nqn, RefusalReason::Authentication);
        }
    }
    Reply::Done(0)
}

fn auth_receive(connection: &mut Connection, sqe: &Sqe) -> Reply {
    let invalid = Reply::Failed(Status::INVALID_FIELD.final_());
    let Some(transfer) = is_authentication(sqe) else { return invalid };
    let Some((verifier, mut message)) =
        connection.verifier.as_mut().and_then(|one| one.outgoing().map(|message| (one, message)))
    else {
        return Reply::Failed(Status::SEQUENCE.final_());
    };
    if message.len() > to_usize(transfer.length.into()) {
        return invalid;
    }
    if sqe.sgl.length < transfer.length {
        return Reply::Failed(Status::DATA_LENGTH.final_());
    }
    // Only now: a host that had no room for it asks again.
    verifier.sent();
    message.resize(to_usize(transfer.length.into()), 0);
    Reply::Data(message, 0)
}
