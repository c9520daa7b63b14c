//! The controller's end of a connection: takes commands with their data, sends data and responses.
//!
//! Invariants
//! 1. A command holds one slot from its capsule until its response is queued and its data sent.
//! 2. A slot has one R2T outstanding at most, for all of its data; data for it must be in
//!    order, within it, and no more than was announced in one PDU.
//! 3. After a violation nothing is received any more.
//! 4. `identifiers` has the identifiers of the commands that have no answer yet. A command with one of them is
//!    a conflict: it is answered so, and the identifier stays that of the first.

use std::io::{IoSlice, IoSliceMut};

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, BufPool};

use super::receive::Header;
use super::{Receiver, Sender, Violation};
use crate::wire::capsule::{Cqe, FLAG_FUSE, FLAG_PSDT, FLAG_SGL, Sgl, Sqe};
use crate::wire::fabrics;
use crate::wire::pdu::{
    DATA_DIGEST, FatalStatus, HEADER_DIGEST, IcReq, IcResp, LAST_PDU, PduType, SUCCESS, Transfer,
};
use crate::wire::status::Status;

/// Capabilities of a controller's end.
#[derive(Clone, Copy, Debug)]
pub struct ControllerSettings {
    /// The most commands outstanding.
    pub slots: u16,
    /// The most bytes of data in a command capsule.
    pub in_capsule_bytes: u32,
    /// The most bytes of data in one H2CData PDU: at least 4,096, a multiple of 4.
    pub max_h2c_bytes: u32,
    /// Whether digests are used when the host asks for them.
    pub digests: bool,
    /// Bytes of the staging buffer.
    pub staging_bytes: usize,
}

/// A command in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u16);

/// An event from the host.
#[derive(Debug)]
pub enum ControllerEvent {
    /// A command, with the data of its capsule.
    Command {
        /// Where it is kept.
        slot: Slot,
        /// The command.
        sqe: Sqe,
        /// The data of its capsule.
        data: Option<AlignedBuf>,
        /// The status to answer it with, if it is not to be executed.
        fault: Option<Status>,
    },
    /// All the data that was asked for with [`ControllerConnection::request_data`].
    Data {
        /// The command it belongs to.
        slot: Slot,
        /// The data.
        buf: AlignedBuf,
        /// Whether the data arrived as the host sent it.
        is_good: bool,
    },
}

#[derive(Debug, Default)]
struct SlotState {
    is_used: bool,
    cid: u16,
    /// Whether its identifier was that of a command in progress when it came.
    is_conflict: bool,
    /// Bytes asked for; zero when nothing was asked for or all of it came.
    wanted: usize,
    received: usize,
    is_bad: bool,
    /// Where requested data goes, or data being sent.
    buf: Option<AlignedBuf>,
}

/// Identifiers of commands: one bit each, as far as the largest one that came.
#[derive(Debug, Default)]
struct Identifiers(Vec<u64>);

impl Identifiers {
    fn place(cid: u16) -> (usize, u64) {
        (usize::from(cid / 64), 1 << (cid % 64))
    }

    /// Enters one; false when it is there already.
    fn enter(&mut self, cid: u16) -> bool {
        let (word, bit) = Identifiers::place(cid);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// A command is answered.
    fn leave(&mut self, state: &SlotState) {
        if !state.is_conflict {
            let (word, bit) = Identifiers::place(state.cid);
            self.0[word] &= !bit;
        }
    }
}

/// The PDU that the data being received belongs to.
enum Pending {
    Capsule { slot: Slot, sqe: Sqe },
    H2c { slot: Slot, size: usize },
}

/// The controller's end of a connection.
pub struct ControllerConnection {
    settings: ControllerSettings,
    receiver: Receiver,
    sender: Sender,
    slots: Vec<SlotState>,
    free: Vec<u16>,
    identifiers: Identifiers,
    /// Slots that only commands had that were answered early, and are done.
    spare: Vec<u16>,
    pending: Option<Pending>,
    is_initialized: bool,
    is_closed: bool,
    /// Alignment of data sent to the host.
    alignment: usize,
    sq_entries: u16,
    sqhd: u16,
    has_flow_control: bool,
}

impl ControllerConnection {
    /// An end that waits for ICReq.
    #[must_use]
    pub fn new(settings: ControllerSettings) -> ControllerConnection {
        let mut connection = ControllerConnection {
            settings,
            receiver: Receiver::new(settings.staging_bytes),
            sender: Sender::default(),
            slots: Vec::new(),
            free: Vec::new(),
            identifiers: Identifiers::default(),
            spare: Vec::new(),
            pending: None,
            is_initialized: false,
            is_closed: false,
            alignment: 1,
            sq_entries: settings.slots,
            sqhd: 0,
            has_flow_control: true,
        };
        connection.grow(settings.slots);
        connection
    }

    fn grow(&mut self, slots: u16) {
        let from = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        self.slots.resize_with(usize::from(slots).max(self.slots.len()), SlotState::default);
        self.free.extend((from..slots).rev());
    }

    /// Sets the values of Connect: SQSIZE, which is the entries of the queue less one, and whether
    /// it has flow control. A queue is full with one entry free (Base 2.1, 3.3.1), so SQSIZE
    /// commands can be outstanding. The in-capsule size of an I/O queue is not that of the admin
    /// queue.
    pub fn configure(&mut self, sqsize: u16, has_flow_control: bool, in_capsule_bytes: u32) {
        self.sq_entries = sqsize.saturating_add(1);
        self.has_flow_control = has_flow_control;
        self.settings.in_capsule_bytes = in_capsule_bytes;
        self.grow(sqsize);
    }

    /// Whether the queue has flow control.
    #[must_use]
    pub fn has_flow_control(&self) -> bool {
        self.has_flow_control
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
    /// When the host broke the protocol. A termination request is queued then.
    pub fn poll(&mut self, pool: &mut BufPool) -> Result<Option<ControllerEvent>, Violation> {
        if self.is_closed {
            return Ok(None);
        }
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
                    self.sender.terminate(PduType::C2hTermReq, &violation, staged);
                    self.is_closed = true;
                    return Err(violation);
                }
            };
            match self.pdu(&header, pool) {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(violation) => {
                    self.is_closed = true;
                    if header.kind != PduType::H2cTermReq {
                        self.sender.terminate(PduType::C2hTermReq, &violation, header.bytes());
                    }
                    return Err(violation);
                }
            }
        }
    }

    fn pdu(
        &mut self,
        header: &Header,
        pool: &mut BufPool,
    ) -> Result<Option<ControllerEvent>, Violation> {
        match header.kind {
            PduType::IcReq => self.initialize(header).map(|()| None),
            PduType::H2cTermReq => Err(Violation::sequence("the host terminated the connection")),
            _ if !self.is_initialized => Err(Violation::sequence("a PDU before ICReq")),
            PduType::CapsuleCmd => self.command(header, pool),
            PduType::H2cData => self.h2c_data(header).map(|()| None),
            _ => Err(Violation::sequence("a PDU that only controllers send")),
        }
    }

    fn initialize(&mut self, header: &Header) -> Result<(), Violation> {
        if self.is_initialized {
            return Err(Violation::sequence("a second ICReq"));
        }
        let request = IcReq::decode(header.body())?;
        if request.pfv != 0 {
            let status = FatalStatus::UnsupportedParameter;
            return Err(Violation {
                status,
                offset: 8,
                what: "a PDU format version that is not 0",
            });
        }
        if request.hpda > 31 {
            return Err(Violation::field(10, "a data alignment above 128 bytes"));
        }
        let offered = if self.settings.digests { HEADER_DIGEST | DATA_DIGEST } else { 0 };
        let dgst = request.dgst & offered;
        let maxh2cdata = self.settings.max_h2c_bytes;
        let response = IcResp { maxh2cdata, dgst, ..IcResp::default() };
        self.sender.pdu(PduType::IcResp, &response.encode());
        self.sender.header_digest = dgst & HEADER_DIGEST != 0;
        self.sender.data_digest = dgst & DATA_DIGEST != 0;
        self.receiver.header_digest = self.sender.header_digest;
        self.receiver.data_digest = self.sender.data_digest;
        self.alignment = (usize::from(request.hpda) + 1) * 4;
        self.is_initialized = true;
        Ok(())
    }

    fn command(
        &mut self,
        header: &Header,
        pool: &mut BufPool,
    ) -> Result<Option<ControllerEvent>, Violation> {
        let sqe = Sqe::decode(header.body())?;
        let in_capsule_bytes = usize::try_from(self.settings.in_capsule_bytes).expect("32 bits");
        if header.data > in_capsule_bytes {
            return Err(Violation::range("more data in a capsule than was announced"));
        }
        let Some(index) = self.free.pop() else {
            return Err(Violation::sequence("more commands than the queue holds"));
        };
        let slot = Slot(index);
        let is_conflict = !self.identifiers.enter(sqe.cid);
        let state = &mut self.slots[usize::from(index)];
        *state = SlotState { is_used: true, cid: sqe.cid, is_conflict, ..SlotState::default() };
        if header.data > 0 {
            self.receiver.expect_data(pool.take(header.data), 0, header.data);
            self.pending = Some(Pending::Capsule { slot, sqe });
            return Ok(None);
        }
        let fault = self.fault(slot, &sqe);
        Ok(Some(ControllerEvent::Command { slot, sqe, data: None, fault }))
    }

    /// Returns the status of a command that is wrong whatever its opcode: its identifier, PSDT or FUSE.
    fn fault(&self, slot: Slot, sqe: &Sqe) -> Option<Status> {
        if self.slots[usize::from(slot.0)].is_conflict {
            return Some(Status::ID_CONFLICT.final_());
        }
        // In fabrics there are SGLs and no PRPs (Base 2.1, 4.1.1). Where other commands have PSDT, fabrics
        // commands have had reserved bits.
        let is_fabrics = sqe.opcode == fabrics::OPCODE;
        let is_known = match sqe.flags & FLAG_PSDT {
            FLAG_SGL => true,
            0 => is_fabrics,
            _ => false,
        };
        let is_fused = !is_fabrics && sqe.flags & FLAG_FUSE != 0;
        (!is_known || is_fused).then_some(Status::INVALID_FIELD.final_())
    }

    fn h2c_data(&mut self, header: &Header) -> Result<(), Violation> {
        let transfer = Transfer::decode(header.body())?;
        let (offset, length) = (to_usize(transfer.offset.into()), to_usize(transfer.length.into()));
        let state = self
            .slots
            .get_mut(usize::from(transfer.ttag))
            .filter(|state| state.is_used && state.wanted > 0)
            .ok_or(Violation::field(10, "data for a transfer tag that is not in use"))?;
        if transfer.cccid != state.cid {
            return Err(Violation::field(8, "data for another command than the tag's"));
        }
        if length != header.data || length == 0 {
            return Err(Violation::field(16, "a data length that is not the PDU's"));
        }
        if transfer.length > self.settings.max_h2c_bytes {
            let status = FatalStatus::LimitExceeded;
            return Err(Violation {
                status,
                offset: 0,
                what: "more data than MAXH2CDATA in a PDU",
            });
        }
        if offset != state.received || length > state.wanted - state.received {
            return Err(Violation::range("data outside of what was asked for"));
        }
        let is_last = header.flags & LAST_PDU != 0;
        if is_last != (offset + length == state.wanted) {
            return Err(Violation::field(1, "the last-PDU flag where it does not belong"));
        }
        let buf = state.buf.take().expect("data was asked for into a buffer");
        self.receiver.expect_data(buf, offset, length);
        self.pending = Some(Pending::H2c { slot: Slot(transfer.ttag), size: length });
        Ok(())
    }

    /// Data has come whole.
    fn data(&mut self, buf: AlignedBuf, is_good: bool) -> Option<ControllerEvent> {
        match self.pending.take().expect("data is expected for something") {
            Pending::Capsule { slot, sqe } => {
                let lost = (!is_good).then_some(Status::TRANSIENT_TRANSPORT);
                let fault = lost.or_else(|| self.fault(slot, &sqe));
                Some(ControllerEvent::Command { slot, sqe, data: Some(buf), fault })
            }
            Pending::H2c { slot, size } => {
                let state = &mut self.slots[usize::from(slot.0)];
                state.received += size;
                state.is_bad |= !is_good;
                if state.received < state.wanted {
                    state.buf = Some(buf);
                    return None;
                }
                state.wanted = 0;
                Some(ControllerEvent::Data { slot, buf, is_good: !state.is_bad })
            }
        }
    }

    /// Asks for all the data of a command, into `buf`.
    ///
    /// # Panics
    /// If the buffer is empty.
    pub fn request_data(&mut self, slot: Slot, buf: AlignedBuf) {
        assert!(!buf.is_empty(), "some data is asked for");
        let state = &mut self.slots[usize::from(slot.0)];
        let length = u32::try_from(buf.len()).expect("transfers are below 4 GiB");
        let transfer = Transfer { cccid: state.cid, ttag: slot.0, offset: 0, length };
        state.wanted = buf.len();
        state.received = 0;
        state.buf = Some(buf);
        self.sender.pdu(PduType::R2t, &transfer.encode());
    }

    /// Answers a command.
    pub fn respond(&mut self, slot: Slot, result: u64, status: Status) {
        let cqe = self.completion(slot, result, status);
        self.sender.pdu(PduType::CapsuleResp, &cqe.encode());
        self.release(slot);
    }

    /// Answers a command whose slot stays in use until [`ControllerConnection::release_late`]. The host may
    /// send another one, which gets a slot more.
    pub fn respond_early(&mut self, slot: Slot, status: Status) {
        let cqe = self.completion(slot, 0, status);
        self.sender.pdu(PduType::CapsuleResp, &cqe.encode());
        self.identifiers.leave(&self.slots[usize::from(slot.0)]);
        let more = self.spare.pop().or_else(|| {
            let index = u16::try_from(self.slots.len()).ok()?;
            self.slots.push(SlotState::default());
            Some(index)
        });
        self.free.extend(more);
    }

    /// A command that was answered early is done: its slot can be used again.
    pub fn release_late(&mut self, slot: Slot) {
        self.slots[usize::from(slot.0)].is_used = false;
        self.spare.push(slot.0);
    }

    /// Answers Connect, whose response says with SQHD whether there is flow control (Base 2.1, 6.3).
    pub fn respond_to_connect(&mut self, slot: Slot, result: u64) {
        let mut cqe = self.completion(slot, result, Status::SUCCESS);
        if !self.has_flow_control {
            cqe.sqhd = 0xffff;
        }
        self.sender.pdu(PduType::CapsuleResp, &cqe.encode());
        self.release(slot);
    }

    /// Answers a command that succeeded with data, which is sent before. The response is left out
    /// when it would say nothing: on queues without flow control, when the result is zero.
    pub fn respond_with_data(&mut self, slot: Slot, buf: AlignedBuf, result: u64) {
        if buf.is_empty() {
            return self.respond(slot, result, Status::SUCCESS);
        }
        let is_silent = !self.has_flow_control && result == 0;
        let flags = if is_silent { LAST_PDU | SUCCESS } else { LAST_PDU };
        let length = u32::try_from(buf.len()).expect("transfers are below 4 GiB");
        let cccid = self.slots[usize::from(slot.0)].cid;
        let transfer = Transfer { cccid, length, ..Transfer::default() };
        let lent = (slot.0, 0, &buf[..]);
        let (kind, body) = (PduType::C2hData, transfer.encode());
        self.sender.pdu_with_data(kind, flags, &body, self.alignment, lent);
        if !is_silent {
            let cqe = self.completion(slot, result, Status::SUCCESS);
            self.sender.pdu(PduType::CapsuleResp, &cqe.encode());
        }
        self.slots[usize::from(slot.0)].buf = Some(buf);
    }

    fn completion(&mut self, slot: Slot, result: u64, status: Status) -> Cqe {
        let mut sqhd = 0;
        if self.has_flow_control {
            self.sqhd = (self.sqhd + 1) % self.sq_entries.max(1);
            sqhd = self.sqhd;
        }
        Cqe { result, sqhd, cid: self.slots[usize::from(slot.0)].cid, status }
    }

    fn release(&mut self, slot: Slot) {
        let state = &mut self.slots[usize::from(slot.0)];
        debug_assert!(state.is_used, "a command is answered once");
        state.is_used = false;
        self.identifiers.leave(state);
        self.free.push(slot.0);
    }

    /// The SGL of a command if its data is in the capsule and as long as the data is.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn check_sgl(sgl: &Sgl, in_capsule: Option<usize>) -> Result<(), Status> {
        let length = to_usize(sgl.length.into());
        match (sgl.kind, in_capsule) {
            (Sgl::IN_CAPSULE, Some(size)) if sgl.address != 0 || size < length => {
                Err(Status::SGL_OFFSET.final_())
            }
            (Sgl::IN_CAPSULE, Some(size)) if size != length => Err(Status::DATA_LENGTH.final_()),
            (Sgl::IN_CAPSULE, None) if length > 0 => Err(Status::DATA_LENGTH.final_()),
            (Sgl::IN_CAPSULE, _) | (Sgl::TRANSPORT, None) => Ok(()),
            _ if length == 0 && in_capsule.is_none() => Ok(()),
            _ => Err(Status::SGL_TYPE.final_()),
        }
    }

    /// Whether a PDU has begun to come that has not ended, and how many headers came so far: the two
    /// together tell one PDU from the next.
    #[must_use]
    pub fn pdu_under_way(&self) -> (bool, u64) {
        self.receiver.pdu_under_way()
    }

    /// Bytes to be sent since the beginning, and how many of them are.
    #[must_use]
    pub fn output_bytes(&self) -> (u64, u64) {
        self.sender.totals()
    }

    /// Whether something is to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.sender.is_empty()
    }

    /// Fills `slices` with the output, and returns how many there are.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.sender.slices(slices, |slot| {
            self.slots[usize::from(slot)].buf.as_deref().expect("data stays until it is sent")
        })
    }

    /// Takes note of sent bytes. Buffers whose data is out go to `pool`; returns their bytes.
    pub fn sent(&mut self, count: usize, pool: &mut BufPool) -> usize {
        let (slots, free, mut freed) = (&mut self.slots, &mut self.free, 0);
        let identifiers = &mut self.identifiers;
        self.sender.sent(count, |slot| {
            let state = &mut slots[usize::from(slot)];
            state.is_used = false;
            identifiers.leave(state);
            let buf = state.buf.take().expect("data stays until it is sent");
            freed += buf.len();
            pool.give(buf);
            free.push(slot);
        });
        freed
    }
}
