//! Reservations of one device that is a namespace (Base 2.1, 8.1.22): hosts register keys, one of them holds the
//! reservation, and its type says which commands the others may still run.
//!
//! With a file for them ([`Store`]), reservations outlive the target where hosts ask for it (PTPL).
//! Without one nothing persists, as RESCAP and PTPLS say. Linux asks for it in every registration,
//! whatever RESCAP says: it is served all the same.
//!
//! Invariants
//! 1. A holder is a registrant. With the all-registrants types every registrant holds.
//! 2. `is_active` is false only while there is no reservation: commands look no further then.
//! 3. While PTPL is set, `state` is the content of the file: a change is synced before it is in force,
//!    and before it is answered. `changing` is held meanwhile, `state` is not.

pub(crate) mod omf;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_base::sync::Mutex;

use crate::error::NvmfError;
use crate::wire::capsule::Sqe;
use crate::wire::command::{Registrant, ReservationKeys, ReservationStatus, io};
use crate::wire::status::Status;
use omf::{Key, Owner, Record};
pub(crate) use store::Store;

/// A host identifier.
pub(crate) type HostId = [u8; 16];

/// The identifier of a host that has none. Its controllers are associated with no other (Base 2.1,
/// 5.1.25.1.28).
pub(crate) const NO_HOST_ID: HostId = [0; 16];

/// Whose a registration, and a reservation, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimant {
    /// A host's, through whichever of its controllers.
    Host(HostId),
    /// That of a host without an identifier: of one controller, by its number, until that is reset or gone.
    Controller(u64),
}

impl Claimant {
    fn host_id(self) -> Option<HostId> {
        match self {
            Claimant::Host(id) => Some(id),
            Claimant::Controller(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registration {
    claimant: Claimant,
    cntlid: u16,
    key: u64,
}

/// The types of reservation (Figure 583).
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 2;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 3;
const WRITE_EXCLUSIVE_ALL: u8 = 5;
const EXCLUSIVE_ACCESS_ALL: u8 = 6;

/// Persistence that a host asks for when it registers (CPTPL): no change, off, on.
const CPTPL_KEEP: u32 = 0;
const CPTPL_OFF: u32 = 2;
const CPTPL_ON: u32 = 3;

/// The controller of a registrant that is not known to be connected.
const CNTLID_NONE: u16 = 0xffff;

#[derive(Clone, Debug, Default)]
struct State {
    generation: u32,
    registrations: Vec<Registration>,
    /// The type, and the holder. With the all-registrants types the holder is the host that acquired it.
    reservation: Option<(u8, Claimant)>,
    /// Persist through power loss.
    persists: bool,
}

/// The reservations of a device.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    is_active: AtomicBool,
    state: Mutex<State>,
    changing: Mutex<()>,
    store: Option<(Arc<Store>, Key)>,
}

impl State {
    fn of(record: Record) -> State {
        // An older file may have hosts without an identifier: nobody can be one of them any more.
        let is_named = |host: &HostId| *host != NO_HOST_ID;
        let registrations = record.registrants.into_iter().filter(|(host, _)| is_named(host));
        let registration =
            |(host, key)| Registration { claimant: Claimant::Host(host), cntlid: CNTLID_NONE, key };
        let reservation = record.reservation.filter(|(_, host)| is_named(host));
        let reservation = reservation.map(|(kind, host)| (kind, Claimant::Host(host)));
        State {
            generation: record.generation,
            registrations: registrations.map(registration).collect(),
            reservation,
            persists: true,
        }
    }

    /// The persistent part: nothing of hosts without an identifier, which are others after a reset.
    fn record(&self) -> Option<Record> {
        let named = self.registrations.iter();
        let registrants: Vec<(HostId, u64)> =
            named.filter_map(|one| Some((one.claimant.host_id()?, one.key))).collect();
        let reservation = self.reservation.and_then(|(kind, holder)| {
            let first = || registrants.first().map(|&(host, _)| host).filter(|_| is_of_all(kind));
            Some((kind, holder.host_id().or_else(first)?))
        });
        self.persists.then_some(Record { generation: self.generation, reservation, registrants })
    }

    fn registration(&self, claimant: Claimant) -> Option<&Registration> {
        self.registrations.iter().find(|one| one.claimant == claimant)
    }

    fn is_holder(&self, claimant: Claimant) -> bool {
        self.reservation.is_some_and(|(kind, holder)| match is_of_all(kind) {
            true => self.registration(claimant).is_some(),
            false => holder == claimant,
        })
    }

    /// Removes registrations; the reservation goes with its holder.
    fn remove(&mut self, is_gone: impl Fn(&Registration) -> bool) {
        self.registrations.retain(|one| !is_gone(one));
        if let Some((kind, holder)) = self.reservation {
            let is_kept = match is_of_all(kind) {
                true => !self.registrations.is_empty(),
                false => self.registration(holder).is_some(),
            };
            if !is_kept {
                self.reservation = None;
            }
        }
    }
}

/// Whether every registrant holds a reservation of this type.
fn is_of_all(kind: u8) -> bool {
    matches!(kind, WRITE_EXCLUSIVE_ALL | EXCLUSIVE_ACCESS_ALL)
}

const CONFLICT: Status = Status::RESERVATION_CONFLICT.final_();
const INVALID: Status = Status::INVALID_FIELD.final_();

impl Reservations {
    /// The reservations of the device with an identity, in a subsystem that has it as namespace `nsid`: those
    /// that persisted, if any.
    ///
    /// # Errors
    /// When the file has those of the number, and cannot be told that they are the device's.
    pub(crate) fn new(
        store: Option<&Arc<Store>>,
        nqn: &str,
        nsid: u32,
        uuid: [u8; 16],
    ) -> Result<Reservations, NvmfError> {
        let record = store.map(|store| store.claim(nqn, nsid, uuid)).transpose()?.flatten();
        let store = store.map(|store| (store.clone(), (nqn.to_owned(), Owner::Device(uuid))));
        let state = record.map(State::of).unwrap_or_default();
        let is_active = AtomicBool::new(state.reservation.is_some());
        Ok(Reservations { is_active, state: Mutex::new(state), changing: Mutex::default(), store })
    }

    /// Whether no host is registered, and none ever was.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.registrations.is_empty() && state.generation == 0 && !state.persists
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

    /// Ends the registration of a claimant of which nothing persists.
    pub(crate) fn forget(&self, claimant: Claimant) {
        let _changing = self.changing.lock();
        let mut state = self.state.lock();
        state.remove(|one| one.claimant == claimant);
        self.is_active.store(state.reservation.is_some(), Ordering::Release);
    }

    /// Whether `claimant` may run a command with this opcode.
    pub(crate) fn check(&self, claimant: Claimant, opcode: u8) -> Result<(), Status> {
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
            WRITE_EXCLUSIVE | EXCLUSIVE_ACCESS => state.is_holder(claimant),
            _ => state.registration(claimant).is_some(),
        };
        if is_free || is_allowed { Ok(()) } else { Err(CONFLICT) }
    }

    /// Runs Reservation Register, Acquire or Release of `claimant` with its data.
    pub(crate) fn run(
        &self,
        claimant: Claimant,
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
                let new = Registration { claimant, cntlid, key: keys.other };
                register(state, new, |key| ignores_key || key == keys.crkey, action)?;
                match cptpl {
                    CPTPL_KEEP => {}
                    CPTPL_OFF => state.persists = false,
                    CPTPL_ON => state.persists = self.can_persist(),
                    _ => return Err(INVALID),
                }
                Ok(())
            }
            io::RESERVATION_ACQUIRE => acquire(state, claimant, &keys, action, kind),
            _ => release(state, claimant, &keys, action, kind),
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
                rcsts: u8::from(state.is_holder(one.claimant)),
                rkey: one.key,
                hostid: one.claimant.host_id().unwrap_or(NO_HOST_ID),
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
    let known = state.registration(new.claimant).copied();
    match (action, known) {
        (0, None) if new.key != 0 => state.registrations.push(new),
        (0, Some(old)) if old.key == new.key => return Ok(()),
        (0, Some(_)) => return Err(CONFLICT),
        (1, Some(old)) if is_key(old.key) => state.remove(|one| one.claimant == new.claimant),
        (2, Some(old)) if is_key(old.key) && new.key != 0 => {
            for one in &mut state.registrations {
                if one.claimant == new.claimant {
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
    claimant: Claimant,
    keys: &ReservationKeys,
    action: u8,
    kind: u8,
) -> Result<(), Status> {
    if !(WRITE_EXCLUSIVE..=EXCLUSIVE_ACCESS_ALL).contains(&kind) || action > 2 {
        return Err(INVALID);
    }
    if state.registration(claimant).is_none_or(|one| one.key != keys.crkey) {
        return Err(CONFLICT);
    }
    if action == 0 {
        return match state.reservation {
            None => {
                state.reservation = Some((kind, claimant));
                Ok(())
            }
            Some((held, _)) if state.is_holder(claimant) && held == kind => Ok(()),
            Some(_) => Err(CONFLICT),
        };
    }
    // Preempt: a key of zero means all others, with the all-registrants types only.
    let victim = keys.other;
    let holders_key = state
        .reservation
        .and_then(|(_, holder)| state.registration(holder).map(|registration| registration.key));
    let is_all = state.reservation.is_some_and(|(held, _)| held >= WRITE_EXCLUSIVE_ALL);
    if victim == 0 {
        if !is_all {
            return Err(INVALID);
        }
        state.remove(|one| one.claimant != claimant);
        state.reservation = Some((kind, claimant));
    } else {
        if !state.registrations.iter().any(|one| one.key == victim) {
            return Err(CONFLICT);
        }
        let takes_over = holders_key == Some(victim) && !is_all;
        state.remove(|one| one.key == victim && one.claimant != claimant);
        if takes_over {
            state.reservation = Some((kind, claimant));
        }
    }
    state.generation = state.generation.wrapping_add(1);
    Ok(())
}

fn release(
    state: &mut State,
    claimant: Claimant,
    keys: &ReservationKeys,
    action: u8,
    kind: u8,
) -> Result<(), Status> {
    if state.registration(claimant).is_none_or(|one| one.key != keys.crkey) {
        return Err(CONFLICT);
    }
    match action {
        0 => match state.reservation {
            Some((held, _)) if state.is_holder(claimant) && held != kind => Err(INVALID),
            Some(_) if state.is_holder(claimant) => {
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

    const A: Claimant = Claimant::Host([1; 16]);
    const B: Claimant = Claimant::Host([2; 16]);

    fn run(on: &Reservations, host: Claimant, opcode: u8, cdw10: u32, keys: [u64; 2]) -> Status {
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
            assert_eq!(on.check(A, io::WRITE), Ok(()), "type {kind}");
            assert_eq!(on.check(B, io::READ).is_ok(), read, "type {kind}");
            assert_eq!(on.check(B, io::WRITE).is_ok(), write, "type {kind}");
            assert!(run(&on, B, io::RESERVATION_REGISTER, 0, [0, 8]).is_success());
            assert_eq!(on.check(B, io::READ).is_ok(), registrant_reads, "type {kind}");
            assert_eq!(on.check(B, io::WRITE).is_ok(), registrant_writes, "type {kind}");
        }
    }

    #[test]
    fn preempting_takes_over_and_releasing_ends_it() {
        let on = held(1);
        assert!(run(&on, B, io::RESERVATION_REGISTER, 0, [0, 8]).is_success());
        assert_eq!(run(&on, B, io::RESERVATION_ACQUIRE, 1 << 8, [8, 0]), CONFLICT);
        assert!(run(&on, B, io::RESERVATION_ACQUIRE, 1 << 8 | 1, [8, 7]).is_success());
        assert_eq!(on.check(A, io::WRITE), Err(CONFLICT));
        assert_eq!(run(&on, A, io::RESERVATION_RELEASE, 1 << 8, [7, 0]), CONFLICT);
        assert!(run(&on, B, io::RESERVATION_RELEASE, 1 << 8, [8, 0]).is_success());
        assert_eq!(on.check(A, io::WRITE), Ok(()));
    }

    #[test]
    fn only_register_ignores_keys() {
        const IGNORE: u32 = 8;
        let on = held(1);
        assert_eq!(run(&on, A, io::RESERVATION_ACQUIRE, 1 << 8 | IGNORE, [7, 0]), INVALID);
        assert_eq!(run(&on, A, io::RESERVATION_RELEASE, 1 << 8 | IGNORE, [7, 0]), INVALID);
        assert_eq!(on.check(B, io::WRITE), Err(CONFLICT));
        assert!(run(&on, A, io::RESERVATION_REGISTER, 2 | IGNORE, [0, 9]).is_success());
        assert!(run(&on, A, io::RESERVATION_RELEASE, 1 << 8, [9, 0]).is_success());
    }

    #[test]
    fn a_reservation_goes_with_its_holder() {
        let on = held(2);
        assert_eq!(run(&on, A, io::RESERVATION_REGISTER, 1, [6, 0]), CONFLICT);
        assert!(run(&on, A, io::RESERVATION_REGISTER, 1, [7, 0]).is_success());
        assert_eq!(on.check(B, io::WRITE), Ok(()));
        let report = ReservationStatus::decode(&on.report()).unwrap();
        assert_eq!((report.regctl, report.rtype, report.gen_), (0, 0, 2));
    }

    /// Hosts without an identifier, each with a controller.
    const X: Claimant = Claimant::Controller(7);
    const Y: Claimant = Claimant::Controller(8);

    #[test]
    fn hosts_without_identifiers_are_different_hosts() {
        let on = Reservations::default();
        assert!(run(&on, X, io::RESERVATION_REGISTER, 0, [0, 7]).is_success());
        assert!(run(&on, X, io::RESERVATION_ACQUIRE, 1 << 8, [7, 0]).is_success());
        assert_eq!(on.check(Y, io::WRITE), Err(CONFLICT));
        assert_eq!(run(&on, Y, io::RESERVATION_RELEASE, 1 << 8, [7, 0]), CONFLICT);
        assert!(run(&on, Y, io::RESERVATION_REGISTER, 0, [0, 7]).is_success(), "its own key");
        assert_eq!(ReservationStatus::decode(&on.report()).unwrap().regctl, 2);
        on.forget(X);
        assert_eq!(on.check(Y, io::WRITE), Ok(()), "a reservation goes with its holder");
        assert_eq!(ReservationStatus::decode(&on.report()).unwrap().regctl, 1);
    }

    #[test]
    fn nothing_persists_of_hosts_without_identifiers() {
        let register = |claimant, key| Registration { claimant, cntlid: 1, key };
        let mut state = State {
            registrations: vec![register(X, 7), register(A, 8)],
            reservation: Some((WRITE_EXCLUSIVE, X)),
            persists: true,
            ..State::default()
        };
        let record = state.record().unwrap();
        assert_eq!((record.reservation, record.registrants), (None, vec![([1; 16], 8)]));
        // One that all registrants hold is left to those that are still there.
        state.reservation = Some((WRITE_EXCLUSIVE_ALL, X));
        assert_eq!(state.record().unwrap().reservation, Some((WRITE_EXCLUSIVE_ALL, [1; 16])));
    }
}
