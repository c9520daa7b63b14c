//! The host's end of a connection: sends commands with their data, takes data and responses.
//!
//! Invariants
//! 1. A command's identifier is its slot; its buffer is in the slot, or with the receiver while
//!    data comes, until the completion gives it back.
//! 2. A completion that comes before all queued data of its command was sent is a violation, so no
//!    buffer is given back that is still to be sent.

use std::io::{IoSlice, IoSliceMut};

use esker_base::AlignedBuf;
use esker_base::units::to_usize;

use super::receive::Header;
use super::{Receiver, Sender, Violation};
use crate::wire::capsule::{Cqe, Sgl, Sqe};
use crate::wire::pdu::{
    DATA_DIGEST, FatalStatus, HEADER_DIGEST, IcReq, IcResp, LAST_PDU, PduType, SUCCESS, Transfer,
};
use crate::wire::status::Status;

/// Settings of a host's end.
#[derive(Clone, Copy, Debug)]
pub struct HostSettings {
    /// The most commands outstanding.
    pub slots: u16,
    /// The most bytes of data in a command capsule.
    pub in_capsule_bytes: usize,
    /// Whether headers are to have digests.
    pub header_digest: bool,
    /// Whether data is to have digests.
    pub data_digest: bool,
    /// Bytes of the staging buffer.
    pub staging_bytes: usize,
}

/// The data of a command.
#[derive(Debug)]
pub enum Payload {
    /// None.
    None,
    /// To the controller: all of the buffer.
    Out(AlignedBuf),
    /// From the controller: fills the buffer.
    In(AlignedBuf),
}

impl Payload {
    /// The buffer.
    #[must_use]
    pub fn into_buf(self) -> Option<AlignedBuf> {
        match self {
            Payload::None => None,
            Payload::Out(buf) | Payload::In(buf) => Some(buf),
        }
    }
}

/// An event from the controller.
#[derive(Debug)]
pub enum HostEvent {
    /// The controller answered ICReq: commands may be sent.
    Ready,
    /// A command is completed.
    Completion {
        /// Which.
        cid: u16,
        /// How it ended.
        cqe: Cqe,
        /// Its buffer.
        payload: Payload,
    },
}

struct SlotState {
    is_used: bool,
    payload: Payload,
    /// Bytes received, or asked for by R2Ts.
    moved: usize,
    /// Pieces of data queued and not sent.
    queued: usize,
    is_bad: bool,
}

/// The host's end of a connection.
pub struct HostConnection {
    settings: HostSettings,
    receiver: Receiver,
    sender: Sender,
    slots: Vec<SlotState>,
    free: Vec<u16>,
    /// The command whose data is being received, how much, and the PDU's flags.
    pending: Option<(u16, usize, u8)>,
    is_ready: bool,
    /// Alignment of data sent to the controller.
    alignment: usize,
    max_h2c_bytes: usize,
}

impl HostConnection {
    /// An end with ICReq queued.
    #[must_use]
    pub fn new(settings: HostSettings) -> HostConnection {
        let mut sender = Sender::default();
        let digest = |wanted, flag| if wanted { flag } else { 0 };
        let dgst = digest(settings.header_digest, HEADER_DIGEST)
            | digest(settings.data_digest, DATA_DIGEST);
        sender.pdu(PduType::IcReq, &IcReq { dgst, ..IcReq::default() }.encode());
        let slot = || SlotState {
            is_used: false,
            payload: Payload::None,
            moved: 0,
            queued: 0,
            is_bad: false,
        };
        HostConnection {
            settings,
            receiver: Receiver::new(settings.staging_bytes),
            sender,
            slots: (0..settings.slots).map(|_| slot()).collect(),
            free: (0..settings.slots).rev().collect(),
            pending: None,
            is_ready: false,
            alignment: 1,
            max_h2c_bytes: 4096,
        }
    }

    /// Sets the bytes of data that fit into a capsule, which are known for sure after Connect.
    pub fn set_in_capsule_bytes(&mut self, bytes: usize) {
        self.settings.in_capsule_bytes = bytes;
    }

    /// How many more commands can be submitted now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.is_ready { self.free.len() } else { 0 }
    }

    /// How many commands are outstanding.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Queues a command and returns its identifier.
    ///
    /// # Panics
    /// Without room.
    pub fn submit(&mut self, sqe: Sqe, payload: Payload) -> u16 {
        assert!(self.is_ready, "commands follow ICResp");
        let cid = self.free.pop().expect("room for a command");
        let length = match &payload {
            Payload::None => 0,
            Payload::Out(buf) | Payload::In(buf) => buf.len(),
        };
        let in_capsule = matches!(&payload, Payload::Out(_))
            && length <= self.settings.in_capsule_bytes
            && length > 0;
        let kind = if in_capsule { Sgl::IN_CAPSULE } else { Sgl::TRANSPORT };
        let length = u32::try_from(length).expect("transfers are below 4 GiB");
        let sgl = if length == 0 { Sgl::default() } else { Sgl { address: 0, length, kind } };
        let sqe = Sqe { cid, sgl, ..sqe }.encode();
        let state = &mut self.slots[usize::from(cid)];
        *state = SlotState { is_used: true, payload, moved: 0, queued: 0, is_bad: false };
        match &state.payload {
            Payload::Out(buf) if in_capsule => {
                let lent = (cid, 0, &buf[..]);
                self.sender.pdu_with_data(PduType::CapsuleCmd, 0, &sqe, self.alignment, lent);
                state.queued = 1;
                state.moved = buf.len();
            }
            _ => self.sender.pdu(PduType::CapsuleCmd, &sqe),
        }
        cid
    }

    /// Where received bytes go.
    pub fn spaces(&mut self) -> [IoSliceMut<'_>; 2] {
        self.receiver.spaces()
    }

    /// Takes note of received bytes.
    pub fn received(&mut self, count: usize) {
        self.receiver.received(count);
    }

    /// Returns the next event in the received bytes.
    ///
    /// # Errors
    /// When the controller broke the protocol. A termination request is queued then.
    pub fn poll(&mut self) -> Result<Option<HostEvent>, Violation> {
        loop {
            if self.receiver.expects_data() {
                let Some((buf, is_good)) = self.receiver.data() else { return Ok(None) };
                if let Some(event) = self.data(buf, is_good) {
                    return Ok(Some(event));
                }
                continue;
            }
            let header = match self.receiver.header() {
                Ok(Some(header)) => header,
                Ok(None) => return Ok(None),
                Err(violation) => {
                    let staged = self.receiver.staged();
                    self.sender.terminate(PduType::H2cTermReq, &violation, staged);
                    return Err(violation);
                }
            };
            match self.pdu(&header) {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(violation) => {
                    if header.kind != PduType::C2hTermReq {
                        self.sender.terminate(PduType::H2cTermReq, &violation, header.bytes());
                    }
                    return Err(violation);
                }
            }
        }
    }

    fn pdu(&mut self, header: &Header) -> Result<Option<HostEvent>, Violation> {
        match header.kind {
            PduType::C2hTermReq => {
                Err(Violation::sequence("the controller terminated the connection"))
            }
            PduType::IcResp => self.ready(header).map(Some),
            _ if !self.is_ready => Err(Violation::sequence("a PDU before ICResp")),
            PduType::CapsuleResp => {
                let cqe = Cqe::decode(header.body())?;
                self.complete(cqe).map(Some)
            }
            PduType::C2hData => self.c2h_data(header).map(|()| None),
            PduType::R2t => self.r2t(header).map(|()| None),
            _ => Err(Violation::sequence("a PDU that only hosts send")),
        }
    }

    fn ready(&mut self, header: &Header) -> Result<HostEvent, Violation> {
        if self.is_ready {
            return Err(Violation::sequence("a second ICResp"));
        }
        let response = IcResp::decode(header.body())?;
        let status = FatalStatus::UnsupportedParameter;
        if response.pfv != 0 {
            return Err(Violation {
                status,
                offset: 8,
                what: "a PDU format version that is not 0",
            });
        }
        if response.cpda > 31 {
            return Err(Violation::field(10, "a data alignment above 128 bytes"));
        }
        if response.maxh2cdata < 4096 {
            return Err(Violation::field(12, "MAXH2CDATA below 4,096"));
        }
        let digests = (response.dgst & HEADER_DIGEST != 0, response.dgst & DATA_DIGEST != 0);
        if digests.0 && !self.settings.header_digest || digests.1 && !self.settings.data_digest {
            return Err(Violation { status, offset: 11, what: "digests that were not asked for" });
        }
        (self.sender.header_digest, self.sender.data_digest) = digests;
        (self.receiver.header_digest, self.receiver.data_digest) = digests;
        self.alignment = (usize::from(response.cpda) + 1) * 4;
        self.max_h2c_bytes = to_usize(response.maxh2cdata.into());
        self.is_ready = true;
        Ok(HostEvent::Ready)
    }

    fn c2h_data(&mut self, header: &Header) -> Result<(), Violation> {
        let transfer = Transfer::decode(header.body())?;
        let (offset, length) = (to_usize(transfer.offset.into()), to_usize(transfer.length.into()));
        let state = self
            .slots
            .get_mut(usize::from(transfer.cccid))
            .filter(|state| state.is_used && matches!(state.payload, Payload::In(_)))
            .ok_or(Violation::field(8, "data for a command that takes none"))?;
        if length == 0 {
            // Nothing would end a transfer in pieces of nothing.
            return Err(Violation::field(16, "a data PDU without data"));
        }
        let Payload::In(buf) = std::mem::replace(&mut state.payload, Payload::None) else {
            unreachable!("checked above");
        };
        if length != header.data || offset != state.moved || length > buf.len() - offset {
            state.payload = Payload::In(buf);
            return Err(Violation::range("data outside of what was asked for"));
        }
        self.receiver.expect_data(buf, offset, length);
        self.pending = Some((transfer.cccid, length, header.flags));
        Ok(())
    }

    /// Data has come whole.
    fn data(&mut self, buf: AlignedBuf, is_good: bool) -> Option<HostEvent> {
        let (cid, size, flags) = self.pending.take().expect("data is expected for a command");
        let state = &mut self.slots[usize::from(cid)];
        state.payload = Payload::In(buf);
        state.moved += size;
        state.is_bad |= !is_good;
        if flags & LAST_PDU == 0 || flags & SUCCESS == 0 {
            return None;
        }
        self.complete(Cqe { cid, ..Cqe::default() }).ok()
    }

    fn r2t(&mut self, header: &Header) -> Result<(), Violation> {
        let transfer = Transfer::decode(header.body())?;
        let (offset, length) = (to_usize(transfer.offset.into()), to_usize(transfer.length.into()));
        let state = self
            .slots
            .get_mut(usize::from(transfer.cccid))
            .filter(|state| state.is_used)
            .ok_or(Violation::field(8, "R2T for a command that is not outstanding"))?;
        let Payload::Out(buf) = &state.payload else {
            return Err(Violation::field(8, "R2T for a command without data to send"));
        };
        if length == 0 || offset != state.moved || length > buf.len() - offset {
            return Err(Violation::range("R2T outside of the command's data"));
        }
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let size = self.max_h2c_bytes.min(end - at);
            let flags = if at + size == end { LAST_PDU } else { 0 };
            let body = Transfer {
                cccid: transfer.cccid,
                ttag: transfer.ttag,
                offset: u32::try_from(at).expect("transfers are below 4 GiB"),
                length: u32::try_from(size).expect("transfers are below 4 GiB"),
            };
            let lent = (transfer.cccid, at, &buf[at..at + size]);
            let (kind, body) = (PduType::H2cData, body.encode());
            self.sender.pdu_with_data(kind, flags, &body, self.alignment, lent);
            state.queued += 1;
            at += size;
        }
        state.moved = end;
        Ok(())
    }

    fn complete(&mut self, mut cqe: Cqe) -> Result<HostEvent, Violation> {
        let cid = cqe.cid;
        let state = self
            .slots
            .get_mut(usize::from(cid))
            .filter(|state| state.is_used)
            .ok_or(Violation::field(20, "a response for a command that is not outstanding"))?;
        if state.queued > 0 {
            return Err(Violation::sequence("a response before the command was sent"));
        }
        let payload = std::mem::replace(&mut state.payload, Payload::None);
        if let Payload::In(buf) | Payload::Out(buf) = &payload
            && cqe.status.is_success()
            && state.moved < buf.len()
        {
            cqe.status = Status::DATA_TRANSFER;
        }
        if state.is_bad && cqe.status.is_success() {
            cqe.status = Status::TRANSIENT_TRANSPORT;
        }
        state.is_used = false;
        self.free.push(cid);
        Ok(HostEvent::Completion { cid, cqe, payload })
    }

    /// Whether something is to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.sender.is_empty()
    }

    /// Fills `slices` with the output, and returns how many there are.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.sender.slices(slices, |cid| match &self.slots[usize::from(cid)].payload {
            Payload::Out(buf) => buf,
            _ => unreachable!("data stays until it is sent"),
        })
    }

    /// Takes note of sent bytes.
    pub fn sent(&mut self, count: usize) {
        let slots = &mut self.slots;
        self.sender.sent(count, |cid| slots[usize::from(cid)].queued -= 1);
    }

    /// Gives back the commands that were not completed: identifiers and buffers.
    pub fn abandon(mut self) -> impl Iterator<Item = (u16, Payload)> {
        if let (Some((cid, ..)), Some(buf)) = (self.pending, self.receiver.abandon()) {
            self.slots[usize::from(cid)].payload = Payload::In(buf);
        }
        (0u16..).zip(self.slots).filter(|(_, state)| state.is_used).map(|(n, s)| (n, s.payload))
    }
}
