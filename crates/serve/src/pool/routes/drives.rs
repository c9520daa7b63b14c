//! Drives: added, replaced, taken in again, retired, scrubbed; and the time that their repair gets.

use std::sync::Arc;

use esker_base::ErrorKind;
use esker_stack::Spec;
use esker_volume::{DriveIndex, MemberState, Role, VolumeError, check_repair_share};

use super::route::{Call, Outcome, Route};
use crate::error::{Result, ServeError};
use crate::pool::answer::{DriveView, ScrubStarted, Settings};
use crate::pool::cycle;
use crate::pool::opening::{Found, Opened};
use crate::pool::operations::{Goal, chunks_to_move};
use crate::pool::request::{AddDrive, ChangeSettings, RejoinDrive, ReplaceDrive};
use crate::pool::served::Served;
use crate::requests::body::Nothing;
use crate::requests::route::Outcome::{Did, Would};

pub(super) fn routes() -> Vec<Route> {
    let add = ("POST", "/v1/drives");
    let replace = ("POST", "/v1/drives/{drive}/replace");
    let rejoin = ("POST", "/v1/drives/{drive}/rejoin");
    let retire = ("POST", "/v1/drives/{drive}/retire");
    let cancel = ("DELETE", "/v1/drives/{drive}/retire");
    vec![
        Route::change(add, "addDrive", "Add a drive or a buffer device", self::add)
            .opening(open_added),
        Route::change(replace, "replaceDrive", "Put a device in a drive's place", self::replace)
            .opening(open_replacement),
        Route::change(rejoin, "rejoinDrive", "Take a drive in again that was away", self::rejoin)
            .opening(open_returning),
        Route::change(retire, "retireDrive", "Move all that a drive has to others", self::retire),
        Route::change(cancel, "cancelRetire", "Let a drive stay that is being emptied", keep),
        Route::change(("POST", "/v1/scrub"), "scrub", "Read everything and verify it", scrub),
        Route::change(("POST", "/v1/settings"), "set", "Change how the pool goes on", set),
    ]
}

pub(super) fn index(text: &str) -> Result<DriveIndex> {
    let why = || format!("'{text}' is no number of a drive; the status shows them");
    text.parse().map(DriveIndex).map_err(|_| ServeError::invalid(why()))
}

type Device = Arc<dyn esker_device::Device>;

fn read(text: &str) -> Result<Spec> {
    let spec: Spec = text.parse::<Spec>()?;
    if !spec.is_lasting() {
        let why = "what it holds is gone when the process ends; name a file or a block device";
        return Err(ServeError::invalid(format!("{spec}: {why}")));
    }
    Ok(spec)
}

fn open(served: &Served, spec: &Spec) -> Result<Device> {
    cycle::check(served, spec)?;
    let device = served.stack.open_member(spec)?.device;
    cycle::check_open(served, spec, &*device)?;
    Ok(device)
}

/// Opens a device and looks at it, before the turn of its change.
fn prepared(
    served: &Served,
    spec: Spec,
    check: impl FnOnce(&Device) -> Result<(), VolumeError>,
) -> Found {
    let device = open(served, &spec)?;
    check(&device)?;
    Ok((device, Some(spec)))
}

/// The drive that this specification is already, if it is one of the pool.
fn member(served: &Served, spec: &Spec, role: Role) -> Option<DriveIndex> {
    let specs = served.pool.specs();
    let name = specs.iter().find(|(_, known)| is_same(Some(known), spec))?.0;
    let members = served.status().members;
    let mut found = members.iter().filter(|one| one.device.as_ref() == Some(name));
    found.find(|one| one.state == MemberState::Online && one.role == role).map(|one| one.index)
}

fn role_of(asked: &AddDrive) -> Role {
    if asked.buffer { Role::Buffer } else { Role::Drive }
}

/// The drive that a device is already which is to be added.
fn added(served: &Served, asked: &AddDrive, spec: &Spec) -> Option<DriveIndex> {
    member(served, spec, role_of(asked)).filter(|_| !asked.dry_run)
}

fn open_added(served: &Served, _: &Call<'_>, asked: &AddDrive) -> Result<Opened> {
    let spec = read(&asked.device)?;
    let turn = served.openings.take(&spec)?;
    if added(served, asked, &spec).is_some() {
        return Ok(Opened::not_needed(turn));
    }
    let check = |device: &Device| served.pool.check_add(device, role_of(asked), asked.overwrite);
    Ok(Opened::new(turn, prepared(served, spec, check)))
}

fn add(served: &Served, call: &Call<'_>, asked: AddDrive) -> Result<Outcome<DriveView>> {
    let pool = &served.pool;
    let role = role_of(&asked);
    let spec = read(&asked.device)?;
    if let Some(index) = added(served, &asked, &spec) {
        return Ok(Did(DriveView { drive: index.0, device: Some(asked.device) }, Goal::Reached));
    }
    let (device, _) = call.opened()?;
    if asked.dry_run {
        pool.check_add(&device, role, asked.overwrite)?;
        return Ok(Would(format!("add {} to {}", asked.device, pool.name())));
    }
    let index = pool.add(&device, role, asked.overwrite)?;
    pool.learn(device.name(), &spec);
    Ok(Did(DriveView { drive: index.0, device: Some(asked.device) }, Goal::Reached))
}

/// The drive that has taken the place of another one before, if this device is it.
fn replacement(
    served: &Served,
    old: DriveIndex,
    asked: &ReplaceDrive,
    spec: &Spec,
) -> Option<DriveIndex> {
    let members = served.status().members;
    let old = members.iter().find(|one| one.index == old)?;
    let is_replaced = matches!(old.state, MemberState::Draining | MemberState::Retired);
    if is_replaced && !asked.dry_run { member(served, spec, old.role) } else { None }
}

fn open_replacement(served: &Served, call: &Call<'_>, asked: &ReplaceDrive) -> Result<Opened> {
    let old = index(call.name(0))?;
    let spec = read(&asked.device)?;
    let turn = served.openings.take(&spec)?;
    if replacement(served, old, asked, &spec).is_some() {
        return Ok(Opened::not_needed(turn));
    }
    let role = served.pool.role(old)?;
    let check = |device: &Device| served.pool.check_add(device, role, asked.overwrite);
    Ok(Opened::new(turn, prepared(served, spec, check)))
}

fn replace(served: &Served, call: &Call<'_>, asked: ReplaceDrive) -> Result<Outcome<DriveView>> {
    let pool = &served.pool;
    let old = index(call.name(0))?;
    let spec = read(&asked.device)?;
    if let Some(index) = replacement(served, old, &asked, &spec) {
        return Ok(emptied(served, old, DriveView { drive: index.0, device: Some(asked.device) }));
    }
    pool.role(old)?;
    let (device, _) = call.opened()?;
    if asked.dry_run {
        pool.check_replace(old, &device, asked.overwrite)?;
        return Ok(Would(format!("put {} in the place of {old}", asked.device)));
    }
    let index = pool.replace(old, &device, asked.overwrite)?;
    pool.learn(device.name(), &spec);
    Ok(emptied(served, old, DriveView { drive: index.0, device: Some(asked.device) }))
}

fn emptied(served: &Served, drive: DriveIndex, view: DriveView) -> Outcome<DriveView> {
    let chunks = chunks_to_move(&served.status(), drive);
    Did(view, Goal::Emptied { drive, chunks })
}

/// The device that a drive returns with: the one that is named, or the one that it had. That one is opened anew, or
/// used as it is while this process still has it.
fn open_returning(served: &Served, call: &Call<'_>, asked: &RejoinDrive) -> Result<Opened> {
    let pool = &served.pool;
    let drive = index(call.name(0))?;
    pool.role(drive)?;
    let had = pool.device_of(drive);
    let known = had.as_ref().and_then(|had| pool.specs().get(had.name()).cloned());
    let spec = asked.device.as_deref().map(read).transpose()?.or_else(|| known.clone());
    let Some(spec) = spec else {
        let why = format!("{drive} was not there since the pool was opened; name its device");
        return Err(ServeError::invalid(why));
    };
    let turn = served.openings.take(&spec)?;
    if returned(served, drive, asked) {
        return Ok(Opened::not_needed(turn));
    }
    let device = match open(served, &spec) {
        Ok(device) => Ok((device, Some(spec))),
        Err(error) if error.kind() == ErrorKind::Conflict && is_same(known.as_ref(), &spec) => {
            Ok((had.expect("it has a specification"), None))
        }
        Err(error) => Err(error),
    };
    let checked = device.and_then(|opened| {
        pool.check_rejoin(drive, &opened.0)?;
        Ok(opened)
    });
    Ok(Opened::new(turn, checked))
}

fn is_same(known: Option<&Spec>, spec: &Spec) -> bool {
    known.is_some_and(|known| {
        known == spec
            || known.for_reopening().ok().is_some_and(|it| Some(it) == spec.for_reopening().ok())
    })
}

/// Whether a drive serves already with the device that it is to return with.
fn returned(served: &Served, drive: DriveIndex, asked: &RejoinDrive) -> bool {
    let members = served.status().members;
    let is_there = |state| matches!(state, MemberState::Online | MemberState::Rejoining);
    let Some(member) = members.iter().find(|one| one.index == drive) else { return false };
    let is_its = |named: &str| {
        let specs = served.pool.specs();
        let known = member.device.as_ref().and_then(|name| specs.get(name));
        named.parse().is_ok_and(|named| is_same(known, &named))
    };
    is_there(member.state) && !asked.dry_run && asked.device.as_deref().is_none_or(is_its)
}

fn rejoin(served: &Served, call: &Call<'_>, asked: RejoinDrive) -> Result<Outcome<DriveView>> {
    let pool = &served.pool;
    let drive = index(call.name(0))?;
    if returned(served, drive, &asked) {
        return Ok(verified(served, drive, asked.device));
    }
    pool.role(drive)?;
    let (device, spec) = call.opened()?;
    if asked.dry_run {
        pool.check_rejoin(drive, &device)?;
        return Ok(Would(format!("take {} in again as {drive}", device.name())));
    }
    pool.rejoin(drive, &device)?;
    if let Some(spec) = spec {
        pool.learn(device.name(), &spec);
    }
    Ok(verified(served, drive, asked.device))
}

fn verified(served: &Served, drive: DriveIndex, device: Option<String>) -> Outcome<DriveView> {
    let chunks = chunks_to_move(&served.status(), drive);
    Did(DriveView { drive: drive.0, device }, Goal::Verified { drive, chunks })
}

fn retire(served: &Served, call: &Call<'_>, asked: Nothing) -> Result<Outcome<DriveView>> {
    let pool = &served.pool;
    let drive = index(call.name(0))?;
    let members = served.status().members;
    let is_retired = |one: &esker_volume::MemberStatus| {
        one.index == drive && matches!(one.state, MemberState::Retired | MemberState::Draining)
    };
    if asked.dry_run {
        pool.check_retire(drive)?;
        return Ok(Would(format!("move all that {drive} has to others, and retire it")));
    }
    if !members.iter().any(is_retired) {
        pool.retire(drive)?;
    }
    Ok(emptied(served, drive, DriveView { drive: drive.0, device: None }))
}

fn keep(served: &Served, call: &Call<'_>, asked: Nothing) -> Result<Outcome<DriveView>> {
    let pool = &served.pool;
    let drive = index(call.name(0))?;
    if asked.dry_run {
        pool.check_cancel_retire(drive)?;
        return Ok(Would(format!("let {drive} stay")));
    }
    pool.cancel_retire(drive)?;
    Ok(Did(DriveView { drive: drive.0, device: None }, Goal::Reached))
}

fn scrub(served: &Served, _: &Call<'_>, asked: Nothing) -> Result<Outcome<ScrubStarted>> {
    let pool = &served.pool;
    if asked.dry_run {
        return Ok(Would(format!("read all that {} holds, and verify it", pool.name())));
    }
    pool.scrub();
    Ok(Did(ScrubStarted { pool: pool.name().to_owned() }, Goal::Scrubbed))
}

fn set(served: &Served, _: &Call<'_>, asked: ChangeSettings) -> Result<Outcome<Settings>> {
    let (pool, repair_share) = (&served.pool, asked.repair_share);
    check_repair_share(repair_share)?;
    if asked.dry_run {
        return Ok(Would(format!("give repair and sweeps {repair_share} %")));
    }
    pool.set_repair_share(repair_share)?;
    Ok(Did(Settings { repair_share: pool.repair_share() }, Goal::Reached))
}
