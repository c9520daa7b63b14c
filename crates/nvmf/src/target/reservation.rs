//! Reservations of one namespace (Base 2.1, 8.1.22): hosts register keys, one of them holds the
//! reservation, and its type says what the others may still do.
//!
//! With a file for them ([`Store`]), reservations outlive the target where hosts ask for it (PTPL).
//! Without one nothing persists, as RESCAP and PTPLS say. Linux asks for it in every registration,
//! whatever RESCAP says: it is served all the same.
//!
//! Invariants
//! 1. A holder is a registrant. With the all-registrants types every registrant holds.
//! 2. `is_active` is false only while there is no reservation: commands look no further then.
//! 3. While PTPL is set, `state` is what the file has: a change is synced before it is in force,
//!    and before it is answered. `changing` is held meanwhile, `state` is not.

mod omf;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::wire::capsule::Sqe;
use crate::wire::command::{Registrant, ReservationKeys, ReservationStatus, io};
use crate::wire::status::Status;
use omf::{Key, Record};
pub(crate) use store::Store;

/// A host identifier.
pub(crate) type HostId = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registration {
    host: HostId,
    cntlid: u16,
    key: u64,
}

/// The types of reservation (Figure 583).
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 2;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 3;
const WRITE_EXCLUSIVE_ALL: u8 = 5;
const EXCLUSIVE_ACCESS_ALL: u8 = 6;

/// What a host says of persistence when it registers (CPTPL): no change, off, on.
const CPTPL_KEEP: u32 = 0;
const CPTPL_OFF: u32 = 2;
const CPTPL_ON: u32 = 3;

/// The controller of a registrant that is not known to be connected.
const CNTLID_NONE: u16 = 0xffff;

#[derive(Clone, Debug, Default)]
struct State {
    generation: u32,
    registrations: Vec<Registration>,
    /// The type, and the holder. With the all-registrants types the holder is who acquired it.
    reservation: Option<(u8, HostId)>,
    /// Persist through power loss.
    persists: bool,
}

/// The reservations of a namespace.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    is_active: AtomicBool,
    state: Mutex<State>,
    changing: Mutex<()>,
    store: Option<(Arc<Store>, Key)>,
}

impl State {
    fn of(record: Record) -> State {
        let registrations = record.registrants.into_iter();
        let registration = |(host, key)| Registration { host, cntlid: CNTLID_NONE, key };
        State {
            generation: record.generation,
            registrations: registrations.map(registration).collect(),
            reservation: record.reservation,
            persists: true,
        }
    }

    fn record(&self) -> Option<Record> {
        self.persists.then(|| Record {
            generation: self.generation,
            reservation: self.reservation,
            registrants: self.registrations.iter().map(|one| (one.host, one.key)).collect(),
        })
    }

    fn registration(&self, host: &HostId) -> Option<&Registration> {
        self.registrations.iter().find(|one| one.host == *host)
    }

    fn is_holder(&self, host: &HostId) -> bool {
        self.reservation.is_some_and(|(kind, holder)| match kind {
            WRITE_EXCLUSIVE_ALL | EXCLUSIVE_ACCESS_ALL => self.registration(host).is_some(),
            _ => holder == *host,
        })
    }

    /// Removes registrations; the reservation goes with its holder.
    fn remove(&mut self, is_gone: impl Fn(&Registration) -> bool) {
        self.registrations.retain(|one| !is_gone(one));
        if let Some((kind, holder)) = self.reservation {
            let is_kept = match kind {
                WRITE_EXCLUSIVE_ALL | EXCLUSIVE_ACCESS_ALL => !self.registrations.is_empty(),
                _ => self.registration(&holder).is_some(),
            };
            if !is_kept {
                self.reservation = None;
            }
        }
    }
}

const CONFLICT: Status = Status::RESERVATION_CONFLICT.final_();
const INVALID: Status = Status::INVALID_FIELD.final_();

impl Reservations {
    /// The reservations of namespace `nsid` of a subsystem: those that persisted, if any.
    pub(crate) fn new(store: Option<&Arc<Store>>, nqn: &str, nsid: u32) -> Reservations {
        let store = store.map(|store| (store.clone(), (nqn.to_owned(), nsid)));
        let record = store.as_ref().and_then(|(store, key)| store.get(key));
        let state = record.map(State::of).unwrap_or_default();
        let is_active = AtomicBool::new(state.reservation.is_some());
        Reservations { is_active, state: Mutex::new(state), changing: Mutex::default(), store }
    }

    /// Whether they can persist.
    pub(crate) fn can_persist(&self) -> bool {
        self.store.is_some()
    }

    /// Whether they do (PTPL).
    pub(crate) fn persists(&self) -> bool {
        self.state.lock().persists
    }

    /// Sets whether they persist.
    pub(crate) fn set_persists(&self, persists: bool) -> Result<(), Status> {
        if !self.can_persist() {
            return Err(Status::NOT_CHANGEABLE.final_());
        }
        self.change(|state| {
            state.persists = persists;
            Ok(())
        })
    }

    /// Makes a change, and makes it durable if it is to persist.
    fn change(&self, change: impl FnOnce(&mut State) -> Result<(), Status>) -> Result<(), Status> {
        let _changing = self.changing.lock();
        let mut next = self.state.lock().clone();
        change(&mut next)?;
        if let Some((store, key)) = &self.store {
            // Whatever was wrong with the file may be mended when the host tries again.
            store.put(key, next.record()).map_err(|_| Status::INTERNAL)?;
        }
        self.is_active.store(next.reservation.is_some(), Ordering::Release);
        *self.state.lock() = next;
        Ok(())
    }

    /// Whether `host` may run a command with this opcode.
    pub(crate) fn check(&self, host: &HostId, opcode: u8) -> Result<(), Status> {
        if !self.is_active.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.state.lock();
        let Some((kind, _)) = state.reservation else { return Ok(()) };
        let reads = matches!(opcode, io::READ | io::COMPARE | io::VERIFY);
        let is_free = match kind {
            WRITE_EXCLUSIVE | WRITE_EXCLUSIVE_REGISTRANTS | WRITE_EXCLUSIVE_ALL => reads,
            _ => false,
        };
        let is_allowed = match kind {
            WRITE_EXCLUSIVE | EXCLUSIVE_ACCESS => state.is_holder(host),
            _ => state.registration(host).is_some(),
        };
        if is_free || is_allowed { Ok(()) } else { Err(CONFLICT) }
    }

    /// Runs Reservation Register, Acquire or Release of `host` with its data.
    pub(crate) fn run(
        &self,
        host: HostId,
        cntlid: u16,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<(), Status> {
        let size = if sqe.opcode == io::RESERVATION_RELEASE { 8 } else { 16 };
        if data.len() < size {
            return Err(Status::DATA_LENGTH.final_());
        }
        let mut bytes = [0; 16];
        bytes[..size].copy_from_slice(&data[..size]);
        let keys = ReservationKeys::decode(&bytes).map_err(|_| INVALID)?;
        let action = sqe.byte(10, 0) & 7;
        let ignores_key = sqe.dword(10) & 8 != 0;
        let kind = sqe.byte(10, 1);
        // Only Register can be told to ignore the key (Base 2.1, 7.5 to 7.7).
        if ignores_key && sqe.opcode != io::RESERVATION_REGISTER {
            return Err(INVALID);
        }
        let cptpl = sqe.dword(10) >> 30;
        self.change(|state| match sqe.opcode {
            io::RESERVATION_REGISTER => {
                let new = Registration { host, cntlid, key: keys.other };
                register(state, new, |key| ignores_key || key == keys.crkey, action)?;
                match cptpl {
                    CPTPL_KEEP => {}
                    CPTPL_OFF => state.persists = false,
                    CPTPL_ON => state.persists = self.can_persist(),
                    _ => return Err(INVALID),
                }
                Ok(())
            }
            io::RESERVATION_ACQUIRE => acquire(state, &host, &keys, action, kind),
            _ => release(state, &host, &keys, action, kind),
        })
    }

    /// The data of Reservation Report, in its extended form.
    pub(crate) fn report(&self) -> Vec<u8> {
        let state = self.state.lock();
        let status = ReservationStatus {
            gen_: state.generation,
            rtype: state.reservation.map_or(0, |(kind, _)| kind),
            regctl: u16::try_from(state.registrations.len()).unwrap_or(u16::MAX),
            ptpls: u8::from(state.persists),
        };
        let mut bytes = status.encode().to_vec();
        bytes.resize(64, 0);
        for one in &state.registrations {
            let registrant = Registrant {
                cntlid: one.cntlid,
                rcsts: u8::from(state.is_holder(&one.host)),
                rkey: one.key,
                hostid: one.host,
            };
            bytes.extend(registrant.encode());
        }
        bytes
    }
}

fn register(
    state: &mut State,
    new: Registration,
    is_key: impl Fn(u64) -> bool,
    action: u8,
) -> Result<(), Status> {
    let known = state.registration(&new.host).copied();
    match (action, known) {
        (0, None) if new.key != 0 => state.registrations.push(new),
        (0, Some(old)) if old.key == new.key => return Ok(()),
        (0, Some(_)) => return Err(CONFLICT),
        (1, Some(old)) if is_key(old.key) => state.remove(|one| one.host == new.host),
        (2, Some(old)) if is_key(old.key) && new.key != 0 => {
            for one in &mut state.registrations {
                if one.host == new.host {
                    one.key = new.key;
                }
            }
        }
        // A host that is not registered may replace its key by registering (8.1.22.3).
        (2, None) if is_key(0) && new.key != 0 => state.registrations.push(new),
        (1 | 2, _) => return Err(CONFLICT),
        _ => return Err(INVALID),
    }
    state.generation = state.generation.wrapping_add(1);
    Ok(())
}

fn acquire(
    state: &mut State,
    host: &HostId,
    keys: &ReservationKeys,
    action: u8,
    kind: u8,
) -> Result<(), Status> {
    if !(WRITE_EXCLUSIVE..=EXCLUSIVE_ACCESS_ALL).contains(&kind) || action > 2 {
        return Err(INVALID);
    }
    if state.registration(host).is_none_or(|one| one.key != keys.crkey) {
        return Err(CONFLICT);
    }
    if action == 0 {
        return match state.reservation {
            None => {
                state.reservation = Some((kind, *host));
                Ok(())
            }
            Some((held, _)) if state.is_holder(host) && held == kind => Ok(()),
            Some(_) => Err(CONFLICT),
        };
    }
    // Preempt: a key of zero means all others, with the all-registrants types only.
    let victim = keys.other;
    let holders_key = state
        .reservation
        .and_then(|(_, holder)| state.registration(&holder).map(|registration| registration.key));
    let is_all = state.reservation.is_some_and(|(held, _)| held >= WRITE_EXCLUSIVE_ALL);
    if victim == 0 {
        if !is_all {
            return Err(INVALID);
        }
        state.remove(|one| one.host != *host);
        state.reservation = Some((kind, *host));
    } else {
        if !state.registrations.iter().any(|one| one.key == victim) {
            return Err(CONFLICT);
        }
        let takes_over = holders_key == Some(victim) && !is_all;
        state.remove(|one| one.key == victim && one.host != *host);
        if takes_over {
            state.reservation = Some((kind, *host));
        }
    }
    state.generation = state.generation.wrapping_add(1);
    Ok(())
}

fn release(
    state: &mut State,
    host: &HostId,
    keys: &ReservationKeys,
    action: u8,
    kind: u8,
) -> Result<(), Status> {
    if state.registration(host).is_none_or(|one| one.key != keys.crkey) {
        return Err(CONFLICT);
    }
    match action {
        0 => match state.reservation {
            Some((held, _)) if state.is_holder(host) && held != kind => Err(INVALID),
            Some(_) if state.is_holder(host) => {
                state.reservation = None;
                Ok(())
            }
            _ => Ok(()),
        },
        1 => {
            state.registrations.clear();
            state.reservation = None;
            state.generation = state.generation.wrapping_add(1);
            Ok(())
        }
        _ => Err(INVALID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostId = [1; 16];
    const B: HostId = [2; 16];

    fn run(on: &Reservations, host: HostId, opcode: u8, cdw10: u32, keys: [u64; 2]) -> Status {
        let sqe = Sqe::new(opcode, 1).with_dword(10, cdw10);
        let data = ReservationKeys { crkey: keys[0], other: keys[1] }.encode();
        on.run(host, 1, &sqe, &data).err().unwrap_or(Status::SUCCESS)
    }

    fn held(kind: u32) -> Reservations {
        let on = Reservations::default();
        assert!(run(&on, A, io::RESERVATION_REGISTER, 0, [0, 7]).is_success());
        assert!(run(&on, A, io::RESERVATION_ACQUIRE, kind << 8, [7, 0]).is_success());
        on
    }

    #[test]
    fn each_type_admits_whom_the_specification_admits() {
        // Type: may a stranger read, may a stranger write, may a registrant read and write.
        let table = [
            (1, true, false, true, false),
            (2, false, false, false, false),
            (3, true, false, true, true),
            (4, false, false, true, true),
            (5, true, false, true, true),
            (6, false, false, true, true),
        ];
        for (kind, read, write, registrant_reads, registrant_writes) in table {
            let on = held(kind);
            assert_eq!(on.check(&A, io::WRITE), Ok(()), "type {kind}");
            assert_eq!(on.check(&B, io::READ).is_ok(), read, "type {kind}");
            assert_eq!(on.check(&B, io::WRITE).is_ok(), write, "type {kind}");
            assert!(run(&on, B, io::RESERVATION_REGISTER, 0, [0, 8]).is_success());
            assert_eq!(on.check(&B, io::READ).is_ok(), registrant_reads, "type {kind}");
            assert_eq!(on.check(&B, io::WRITE).is_ok(), registrant_writes, "type {kind}");
        }
    }

    #[test]
    fn preempting_takes_over_and_releasing_ends_it() {
        let on = held(1);
        assert!(run(&on, B, io::RESERVATION_REGISTER, 0, [0, 8]).is_success());
        assert_eq!(run(&on, B, io::RESERVATION_ACQUIRE, 1 << 8, [8, 0]), CONFLICT);
        assert!(run(&on, B, io::RESERVATION_ACQUIRE, 1 << 8 | 1, [8, 7]).is_success());
        assert_eq!(on.check(&A, io::WRITE), Err(CONFLICT));
        assert_eq!(run(&on, A, io::RESERVATION_RELEASE, 1 << 8, [7, 0]), CONFLICT);
        assert!(run(&on, B, io::RESERVATION_RELEASE, 1 << 8, [8, 0]).is_success());
        assert_eq!(on.check(&A, io::WRITE), Ok(()));
    }

    #[test]
    fn only_register_ignores_keys() {
        const IGNORE: u32 = 8;
        let on = held(1);
        assert_eq!(run(&on, A, io::RESERVATION_ACQUIRE, 1 << 8 | IGNORE, [7, 0]), INVALID);
        assert_eq!(run(&on, A, io::RESERVATION_RELEASE, 1 << 8 | IGNORE, [7, 0]), INVALID);
        assert_eq!(on.check(&B, io::WRITE), Err(CONFLICT));
        assert!(run(&on, A, io::RESERVATION_REGISTER, 2 | IGNORE, [0, 9]).is_success());
        assert!(run(&on, A, io::RESERVATION_RELEASE, 1 << 8, [9, 0]).is_success());
    }

    #[test]
    fn a_reservation_goes_with_its_holder() {
        let on = held(2);
        assert_eq!(run(&on, A, io::RESERVATION_REGISTER, 1, [6, 0]), CONFLICT);
        assert!(run(&on, A, io::RESERVATION_REGISTER, 1, [7, 0]).is_success());
        assert_eq!(on.check(&B, io::WRITE), Ok(()));
        let report = ReservationStatus::decode(&on.report()).unwrap();
        assert_eq!((report.regctl, report.rtype, report.gen_), (0, 0, 2));
    }
}
