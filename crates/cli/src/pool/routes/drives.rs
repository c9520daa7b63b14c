//! Drives: added, replaced, taken in again, retired, scrubbed.

use std::sync::Arc;

use esker_base::ErrorKind;
use esker_stack::{Spec, StackError};
use esker_volume::{DriveIndex, MemberState, Role};

use super::route::Outcome::{Did, Would};
use super::route::{Call, Outcome, Route};
use crate::pool::answer::{DriveView, ScrubStarted};
use crate::pool::operations::{Goal, chunks_to_move};
use crate::pool::refusal::Refusal;
use crate::pool::request::{AddDrive, Nothing, RejoinDrive, ReplaceDrive};
use crate::pool::served::Served;

pub(super) fn routes() -> Vec<Route> {
    let add = ("POST", "/v1/drives");
    let replace = ("POST", "/v1/drives/{drive}/replace");
    let rejoin = ("POST", "/v1/drives/{drive}/rejoin");
    let retire = ("POST", "/v1/drives/{drive}/retire");
    let cancel = ("DELETE", "/v1/drives/{drive}/retire");
    vec![
        Route::change(add, "addDrive", "Add a drive or a buffer device", self::add),
        Route::change(replace, "replaceDrive", "Put a device in a drive's place", self::replace),
        Route::change(rejoin, "rejoinDrive", "Take a drive in again that was away", self::rejoin),
        Route::change(retire, "retireDrive", "Move all that a drive has to others", self::retire),
        Route::change(cancel, "cancelRetire", "Let a drive stay that is being emptied", keep),
        Route::change(("POST", "/v1/scrub"), "scrub", "Read everything and verify it", scrub),
    ]
}

pub(super) fn index(text: &str) -> Result<DriveIndex, Refusal> {
    let why = || format!("'{text}' is no number of a drive; the status shows them");
    text.parse().map(DriveIndex).map_err(|_| Refusal::invalid(why()))
}

type Device = Arc<dyn esker_device::Device>;

fn read(text: &str) -> Result<Spec, Refusal> {
    let spec: Spec = text.parse::<Spec>()?;
    if !spec.is_lasting() {
        let why = "what it holds is gone when the process ends; name a file or a block device";
        return Err(Refusal::invalid(format!("{spec}: {why}")));
    }
    Ok(spec)
}

fn open(served: &Served, spec: &Spec) -> Result<Device, StackError> {
    Ok(served.stack.open(spec, esker_device::Create::Never)?.device)
}

/// The drive that this specification is already, if it is one of the pool.
fn member(served: &Served, spec: &Spec, role: Role) -> Option<DriveIndex> {
    let specs = served.pool.specs();
    let name = specs.iter().find(|(_, known)| is_same(Some(known), spec))?.0;
    let members = served.status().members;
    let mut found = members.iter().filter(|one| one.device.as_ref() == Some(name));
    found.find(|one| one.state == MemberState::Online && one.role == role).map(|one| one.index)
}

fn add(served: &Served, _: &Call<'_>, asked: AddDrive) -> Result<Outcome<DriveView>, Refusal> {
    let pool = &served.pool;
    let role = if asked.buffer { Role::Buffer } else { Role::Drive };
    let spec = read(&asked.device)?;
    if let (Some(index), false) = (member(served, &spec, role), asked.dry_run) {
        return Ok(Did(DriveView { drive: index.0, device: Some(asked.device) }, Goal::Reached));
    }
    let device = open(served, &spec)?;
    if asked.dry_run {
        pool.check_add(&device, role, asked.overwrite)?;
        return Ok(Would(format!("add {} to {}", asked.device, pool.name())));
    }
    let index = pool.add(&device, role, asked.overwrite)?;
    pool.learn(device.name(), &spec);
    Ok(Did(DriveView { drive: index.0, device: Some(asked.device) }, Goal::Reached))
}

fn replace(
    served: &Served,
    call: &Call<'_>,
    asked: ReplaceDrive,
) -> Result<Outcome<DriveView>, Refusal> {
    let pool = &served.pool;
    let old = index(call.name(0))?;
    let spec = read(&asked.device)?;
    let members = served.status().members;
    let state = members.iter().find(|one| one.index == old).map(|one| (one.state, one.role));
    // It was replaced by this one before.
    if let (Some((MemberState::Draining | MemberState::Retired, role)), false) =
        (state, asked.dry_run)
        && let Some(index) = member(served, &spec, role)
    {
        return Ok(emptied(served, old, DriveView { drive: index.0, device: Some(asked.device) }));
    }
    pool.role(old)?;
    let device = open(served, &spec)?;
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
fn returning(
    served: &Served,
    drive: DriveIndex,
    named: Option<&str>,
) -> Result<(Device, Option<Spec>), Refusal> {
    let pool = &served.pool;
    let had = pool.device_of(drive);
    let known = had.as_ref().and_then(|had| pool.specs().get(had.name()).cloned());
    let spec = named.map(read).transpose()?.or_else(|| known.clone());
    let Some(spec) = spec else {
        let why = format!("{drive} was not there since the pool was opened; name its device");
        return Err(Refusal::invalid(why));
    };
    match open(served, &spec) {
        Ok(device) => Ok((device, Some(spec))),
        Err(error) if error.kind() == ErrorKind::Conflict && is_same(known.as_ref(), &spec) => {
            Ok((had.expect("it has a specification"), None))
        }
        Err(error) => Err(error.into()),
    }
}

fn is_same(known: Option<&Spec>, spec: &Spec) -> bool {
    known.is_some_and(|known| {
        known == spec
            || known.for_reopening().ok().is_some_and(|it| Some(it) == spec.for_reopening().ok())
    })
}

fn rejoin(
    served: &Served,
    call: &Call<'_>,
    asked: RejoinDrive,
) -> Result<Outcome<DriveView>, Refusal> {
    let pool = &served.pool;
    let drive = index(call.name(0))?;
    let members = served.status().members;
    let member = members.iter().find(|one| one.index == drive);
    let is_there = |state| matches!(state, MemberState::Online | MemberState::Rejoining);
    let view = |device| DriveView { drive: drive.0, device };
    if let Some(member) = member.filter(|one| is_there(one.state))
        && !asked.dry_run
        && asked.device.as_deref().is_none_or(|it| {
            let spec = member.device.as_ref().and_then(|name| pool.specs().get(name).cloned());
            it.parse().is_ok_and(|it| is_same(spec.as_ref(), &it))
        })
    {
        return Ok(Did(view(asked.device), Goal::Verified { drive }));
    }
    pool.role(drive)?;
    let (device, spec) = returning(served, drive, asked.device.as_deref())?;
    if asked.dry_run {
        pool.check_rejoin(drive, &device)?;
        return Ok(Would(format!("take {} in again as {drive}", device.name())));
    }
    pool.rejoin(drive, &device)?;
    if let Some(spec) = spec {
        pool.learn(device.name(), &spec);
    }
    Ok(Did(view(asked.device), Goal::Verified { drive }))
}

fn retire(served: &Served, call: &Call<'_>, asked: Nothing) -> Result<Outcome<DriveView>, Refusal> {
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

fn keep(served: &Served, call: &Call<'_>, asked: Nothing) -> Result<Outcome<DriveView>, Refusal> {
    let pool = &served.pool;
    let drive = index(call.name(0))?;
    if asked.dry_run {
        pool.check_cancel_retire(drive)?;
        return Ok(Would(format!("let {drive} stay")));
    }
    pool.cancel_retire(drive)?;
    Ok(Did(DriveView { drive: drive.0, device: None }, Goal::Reached))
}

fn scrub(served: &Served, _: &Call<'_>, asked: Nothing) -> Result<Outcome<ScrubStarted>, Refusal> {
    let pool = &served.pool;
    if asked.dry_run {
        return Ok(Would(format!("read all that {} holds, and verify it", pool.name())));
    }
    pool.scrub();
    Ok(Did(ScrubStarted { pool: pool.name().to_owned() }, Goal::Scrubbed))
}
