//! One queue of a remote controller: a socket with the host's end of the protocol.

use std::io::IoSlice;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use esker_base::process::{Withheld, withhold};
use esker_base::{AlignedBuf, Clock, Nanos};

use super::config::InitiatorConfig;
use crate::auth::{Names, Prover};
use crate::conn::{HostConnection, HostEvent, HostSettings, Payload};
use crate::error::NvmfError;
use crate::socket::{self, SLICES};
use crate::stream::Stream;
use crate::wire::auth::SECURITY_PROTOCOL;
use crate::wire::capsule::{Cqe, Sqe};
use crate::wire::fabrics::{
    AUTH_RECEIVE, AUTH_SEND, AUTHREQ_ATR, AuthTransfer, CATTR_NO_FLOW_CONTROL, CONNECT, Connect,
    ConnectData, OPCODE,
};
use crate::wire::padded;
use crate::wire::status::Status;

/// Room for a message of the authentication.
const AUTH_BYTES: usize = 4096;
/// Number of receives before the clock is read: a peer that sends without end cannot hold a thread.
pub(crate) const RECEIVES: u32 = 64;

/// Properties of a new queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueShape {
    pub(crate) qid: u16,
    /// The controller; [`crate::wire::fabrics::CNTLID_ANY`] for a new one.
    pub(crate) cntlid: u16,
    /// Entries of the submission queue; one less can be used.
    pub(crate) entries: u16,
    /// The most bytes of data in a capsule.
    pub(crate) in_capsule_bytes: usize,
}

/// A connected queue.
pub(crate) struct Link {
    pub(crate) peer: SocketAddr,
    /// Keeps the socket from forked children.
    _withheld: Withheld,
    pub(crate) stream: Stream,
    pub(crate) wire: HostConnection,
    clock: Clock,
    timeout: Duration,
    /// By when everything that is done now has to be done, however many answers it takes.
    pub(crate) deadline: Option<Nanos>,
    /// Completions of commands that nobody waits for: Asynchronous Event Requests.
    pub(crate) others: Vec<(u16, Cqe)>,
}

impl Link {
    /// Connects a queue, authenticates it if asked, and returns it with the controller's id: all of
    /// that within the timeout, and before `latest`.
    pub(crate) fn open(
        config: &InitiatorConfig,
        peer: SocketAddr,
        shape: QueueShape,
        clock: &Clock,
        latest: Nanos,
    ) -> Result<(Link, u16), NvmfError> {
        let failed = |error| NvmfError::os(format!("connecting to {peer}"), &error);
        let now = clock.now();
        let deadline = latest.min(now + config.timeout);
        let span = deadline.since(now).max(Duration::from_millis(1)); // zero is refused
        let stream = TcpStream::connect_timeout(&peer, span).map_err(failed)?;
        socket::prepare(&stream).map_err(failed)?;
        let _withheld = withhold(&stream);
        let stream = secure(stream, config, peer, clock, deadline)?;
        let is_admin = shape.qid == 0;
        let wire = HostConnection::new(HostSettings {
            slots: shape.entries - 1,
            in_capsule_bytes: shape.in_capsule_bytes.max(1024),
            header_digest: config.header_digest,
            data_digest: config.data_digest,
            staging_bytes: if is_admin { 16 << 10 } else { 128 << 10 },
        });
        let (clock, timeout) = (clock.clone(), config.timeout);
        let others = Vec::new();
        let mut link = Link {
            peer,
            _withheld,
            stream,
            wire,
            clock,
            timeout,
            deadline: Some(deadline),
            others,
        };
        link.wait_for("ICResp", |event| matches!(event, HostEvent::Ready).then_some(()))?;
        let kato = if is_admin {
            u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX)
        } else {
            0
        };
        let connect = Connect {
            qid: shape.qid,
            sqsize: shape.entries - 1,
            cattr: CATTR_NO_FLOW_CONTROL,
            kato,
            ..Connect::default()
        };
        let data = ConnectData {
            hostid: config.host_id,
            cntlid: shape.cntlid,
            subnqn: padded(&config.nqn, 0),
            hostnqn: padded(&config.host_nqn, 0),
        };
        let sqe = fabrics(CONNECT).with_arguments(&connect.encode());
        let data = AlignedBuf::padded(&data.encode(), 1);
        let refused = |error| match error {
            NvmfError::Command { peer, status, .. } => {
                NvmfError::Refused { peer, host: config.host_nqn.clone(), status }
            }
            other => other,
        };
        let connected = link.execute("Connect", sqe, Payload::Out(data));
        let (cqe, _) = connected.map_err(refused)?;
        // The data of Connect is always in its capsule; that of other commands is if it fits.
        link.wire.set_in_capsule_bytes(shape.in_capsule_bytes);
        let [a, b, ..] = cqe.result.to_le_bytes();
        if cqe.result & u64::from(AUTHREQ_ATR) != 0 {
            link.authenticate(config)?;
        } else if is_admin && config.controller_secret.is_some() {
            // A controller that has proved itself need not for each of its I/O queues.
            let what = format!(
                "{peer} does not ask for authentication, so it cannot prove itself, as controller-key-file wants"
            );
            return Err(NvmfError::Authentication(what));
        }
        link.deadline = None;
        Ok((link, u16::from_le_bytes([a, b])))
    }

    fn authenticate(&mut self, config: &InitiatorConfig) -> Result<(), NvmfError> {
        let Some(secret) = &config.secret else {
            let what = format!(
                "{} asks host {} for a key; key-file=PATH names the file with it",
                self.peer, config.host_nqn
            );
            return Err(NvmfError::Authentication(what));
        };
        let names = Names { host: config.host_nqn.clone(), subsystem: config.nqn.clone() };
        let mut prover = Prover::new(names, secret.clone(), config.controller_secret.clone());
        self.auth_send(&prover.negotiate())?;
        let challenge = self.auth_receive()?;
        self.auth_send(&prover.reply(&challenge)?)?;
        let outcome = self.auth_receive()?;
        match prover.finish(&outcome)? {
            Some(last) => self.auth_send(&last),
            None => Ok(()),
        }
    }

    fn auth_send(&mut self, message: &[u8]) -> Result<(), NvmfError> {
        let sqe = auth_transfer(AUTH_SEND, message.len());
        let data = AlignedBuf::padded(message, 1);
        self.execute("Authentication Send", sqe, Payload::Out(data)).map(drop)
    }

    fn auth_receive(&mut self) -> Result<AlignedBuf, NvmfError> {
        let sqe = auth_transfer(AUTH_RECEIVE, AUTH_BYTES);
        let room = Payload::In(AlignedBuf::zeroed(AUTH_BYTES));
        let (_, payload) = self.execute("Authentication Receive", sqe, room)?;
        Ok(payload.into_buf().expect("a command with a buffer gives it back"))
    }

    /// Runs a command to its end.
    pub(crate) fn execute(
        &mut self,
        name: &'static str,
        sqe: Sqe,
        payload: Payload,
    ) -> Result<(Cqe, Payload), NvmfError> {
        let wanted = self.wire.submit(sqe, payload);
        let mut others = std::mem::take(&mut self.others);
        let done = self.wait_for(name, |event| match event {
            HostEvent::Completion { cid, cqe, payload } if cid == wanted => Some((cqe, payload)),
            HostEvent::Completion { cid, cqe, .. } => {
                others.push((cid, cqe));
                None
            }
            HostEvent::Ready => None,
        });
        self.others = others;
        let (cqe, payload) = done?;
        if cqe.status.is_success() {
            return Ok((cqe, payload));
        }
        Err(NvmfError::Command { peer: self.peer, command: name, status: cqe.status })
    }

    /// Runs commands to their end, as many at once as the queue has room for, and says how each
    /// has ended.
    pub(crate) fn execute_all(
        &mut self,
        name: &'static str,
        commands: impl IntoIterator<Item = (Sqe, Payload)>,
    ) -> Result<Vec<Status>, NvmfError> {
        let mut commands = commands.into_iter();
        let (mut statuses, mut sent) = (Vec::new(), Vec::new());
        loop {
            while self.wire.room() > 0
                && let Some((sqe, payload)) = commands.next()
            {
                sent.push((self.wire.submit(sqe, payload), statuses.len()));
                statuses.push(Status::SUCCESS);
            }
            if sent.is_empty() {
                return Ok(statuses);
            }
            let (cid, status) = self.wait_for(name, |event| match event {
                HostEvent::Completion { cid, cqe, .. } => Some((cid, cqe.status)),
                HostEvent::Ready => None,
            })?;
            if let Some(at) = sent.iter().position(|(one, _)| *one == cid) {
                statuses[sent.swap_remove(at).1] = status;
            }
        }
    }

    fn wait_for<T>(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(HostEvent) -> Option<T>,
    ) -> Result<T, NvmfError> {
        let latest = self.clock.now() + self.timeout;
        let deadline = self.deadline.map_or(latest, |deadline| deadline.min(latest));
        loop {
            self.flush()?;
            let mut receives = RECEIVES;
            while let Some(event) = self.next(&mut receives)? {
                if let Some(found) = wanted(event) {
                    return Ok(found);
                }
            }
            let left = deadline.since(self.clock.now());
            if left.is_zero() {
                let what = format!("no answer to {what} within {:?} (timeout)", self.timeout);
                return Err(NvmfError::Lost { peer: self.peer, what });
            }
            self.sleep(left)?;
        }
    }

    /// Takes completions of commands that nobody waits for.
    pub(crate) fn listen(&mut self) -> Result<(), NvmfError> {
        self.flush()?;
        let mut receives = RECEIVES;
        while let Some(event) = self.next(&mut receives)? {
            if let HostEvent::Completion { cid, cqe, .. } = event {
                self.others.push((cid, cqe));
            }
        }
        Ok(())
    }

    fn lost(&self, error: &std::io::Error) -> NvmfError {
        NvmfError::Lost { peer: self.peer, what: format!("the connection failed: {error}") }
    }

    /// Waits until there is something to do, at most for `span`.
    pub(crate) fn sleep(&self, span: Duration) -> Result<(), NvmfError> {
        if self.stream.has_pending() {
            return Ok(());
        }
        let ready = socket::wait(self.stream.tcp(), self.wire.has_output(), span);
        ready.map(drop).map_err(|error| self.lost(&error))
    }

    /// Sends as much as the socket takes.
    pub(crate) fn flush(&mut self) -> Result<(), NvmfError> {
        while self.wire.has_output() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.wire.slices(&mut slices);
            match self.stream.send(&slices[..count]) {
                Ok(Some(sent)) => self.wire.sent(sent),
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(())
    }

    /// Receives the bytes at hand; says whether there were any.
    pub(crate) fn receive(&mut self) -> Result<bool, NvmfError> {
        match self.stream.receive(&mut self.wire.spaces()) {
            Ok(Some(0)) => {
                let what = "the target closed the connection".to_owned();
                Err(NvmfError::Lost { peer: self.peer, what })
            }
            Ok(Some(count)) => {
                self.wire.received(count);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// Returns the next event in the received bytes.
    pub(crate) fn event(&mut self) -> Result<Option<HostEvent>, NvmfError> {
        self.wire.poll().map_err(|violation| {
            // The termination request, as far as the socket takes it: the target may be gone.
            let _ = self.flush();
            NvmfError::Protocol { peer: self.peer, violation }
        })
    }

    /// Returns the next event, of bytes at hand or received in at most so many `receives`.
    fn next(&mut self, receives: &mut u32) -> Result<Option<HostEvent>, NvmfError> {
        loop {
            if let Some(event) = self.event()? {
                return Ok(Some(event));
            }
            if *receives == 0 || !self.receive()? {
                return Ok(None);
            }
            *receives -= 1;
        }
    }
}

/// The stream over a new connection: encrypted, if there is a key.
#[cfg(feature = "tls")]
fn secure(
    stream: TcpStream,
    config: &InitiatorConfig,
    peer: SocketAddr,
    clock: &Clock,
    deadline: Nanos,
) -> Result<Stream, NvmfError> {
    use crate::tls::{Peer, Progress, session::Session};
    let Some(key) = &config.tls_key else { return Ok(Stream::Plain(stream)) };
    let failed = |error: std::io::Error| {
        let advice = "is TLS spoken there, and does it have this key for this host?";
        NvmfError::Authentication(format!("TLS with {peer}: {error}; {advice}"))
    };
    let names = Peer { host: config.host_nqn.clone(), subsystem: config.nqn.clone() };
    let mut session = Session::client(stream, key.offered(&names)).map_err(failed)?;
    loop {
        let writes = match session.handshake().map_err(failed)? {
            Progress::Done => return Ok(Stream::Tls(Box::new(session))),
            Progress::Reads => false,
            Progress::Writes => true,
        };
        let left = deadline.since(clock.now());
        if left.is_zero() {
            return Err(failed(std::io::ErrorKind::TimedOut.into()));
        }
        socket::wait(session.tcp(), writes, left).map_err(failed)?;
    }
}

/// The stream over a new connection, which is plain in this build.
#[cfg(not(feature = "tls"))]
fn secure(
    stream: TcpStream,
    config: &InitiatorConfig,
    _: SocketAddr,
    _: &Clock,
    _: Nanos,
) -> Result<Stream, NvmfError> {
    match config.tls_key {
        None => Ok(Stream::Plain(stream)),
        Some(_) => Err(NvmfError::Config(crate::tls::NOT_BUILT.to_owned())),
    }
}

/// Lets the target know that nothing more comes, and waits until it has closed its end, which it
/// does when no command of the connection is still to be executed; at most for `span`. Returns
/// whether it has.
pub(crate) fn drain(stream: &TcpStream, clock: &Clock, span: Duration) -> bool {
    if stream.shutdown(Shutdown::Write).is_err() {
        return true; // it is closed already
    }
    let deadline = clock.now() + span;
    let mut sink = [0; 4096];
    let mut rest = [0; 4096];
    loop {
        let mut spaces = [std::io::IoSliceMut::new(&mut sink), std::io::IoSliceMut::new(&mut rest)];
        match socket::receive(stream, &mut spaces) {
            Ok(Some(0)) | Err(_) => return true,
            Ok(Some(_)) => {}
            Ok(None) => {
                let left = deadline.since(clock.now());
                if left.is_zero() || socket::wait(stream, false, left).is_err() {
                    return false;
                }
            }
        }
        if clock.now() >= deadline {
            return false;
        }
    }
}

/// A fabrics command.
pub(crate) fn fabrics(fctype: u8) -> Sqe {
    Sqe::new(OPCODE, u32::from(fctype))
}

fn auth_transfer(fctype: u8, size: usize) -> Sqe {
    let transfer = AuthTransfer {
        spsp0: 1,
        spsp1: 1,
        secp: SECURITY_PROTOCOL,
        length: u32::try_from(size).expect("messages are small"),
    };
    fabrics(fctype).with_arguments(&transfer.encode())
}

/// The time left until `deadline`, seen from `now`.
pub(crate) fn left(deadline: Option<Nanos>, now: Nanos) -> Option<Duration> {
    deadline.map(|deadline| deadline.since(now))
}
