//! Volumes, their snapshots, and the hosts that may use them.

use esker_base::ErrorKind;
use esker_base::units::{counted, human_bytes, to_u64};
use esker_stack::OpenPool;
use esker_stack::served::OPENER;
use esker_volume::{VolumeError, VolumeInfo, VolumeOptions};

use super::route::{Call, Outcome, Route};
use super::users::Users;
use crate::error::{Result, ServeError};
use crate::pool::answer::DeletedView;
use crate::pool::export::export_of;
use crate::pool::hosts::{HostView, Hosts};
use crate::pool::operations::Goal;
use crate::pool::request::{
    AddHost, ChangeVolume, CloneSnapshot, CreateSnapshot, CreateVolume, DeleteSnapshot,
    DeleteVolume, RemoveHost, Rollback,
};
use crate::pool::served::Served;
use crate::pool::view::{ExportView, SnapshotView, VolumeView};
use crate::requests::body::Nothing;
use crate::requests::route::Outcome::{Did, Would};

/// How long a volume stays in the trash where nothing is said: a day.
const KEEP_SECS: u64 = 86_400;

pub(super) fn routes() -> Vec<Route> {
    let of = |method, path| (method, path);
    let one = "/v1/volumes/{volume}";
    let at = "/v1/volumes/{volume}/snapshots/{snapshot}";
    let host = "/v1/volumes/{volume}/hosts/{host}";
    vec![
        Route::change(of("POST", "/v1/volumes"), "createVolume", "Make a thin volume", create)
            .unseen(),
        Route::change(of("PATCH", one), "changeVolume", "Change size, limits or hosts", change),
        Route::change(of("DELETE", one), "deleteVolume", "Put a volume into the trash", delete),
        Route::change(
            of("POST", "/v1/volumes/{volume}/restore"),
            "restoreVolume",
            "Take a volume out of the trash",
            restore,
        ),
        Route::change(
            of("POST", "/v1/volumes/{volume}/snapshots"),
            "createSnapshot",
            "Keep a volume as it is",
            snapshot,
        ),
        Route::change(of("DELETE", at), "deleteSnapshot", "Delete a snapshot", delete_snapshot),
        Route::change(
            of("POST", "/v1/volumes/{volume}/clones"),
            "cloneSnapshot",
            "Make a volume of a snapshot",
            clone,
        ),
        Route::change(
            of("POST", "/v1/volumes/{volume}/rollback"),
            "rollbackVolume",
            "Set a volume back to a snapshot",
            rollback,
        ),
        Route::change(
            of("POST", "/v1/volumes/{volume}/hosts"),
            "addHost",
            "Let a host use a volume or a snapshot",
            add_host,
        ),
        Route::change(of("DELETE", host), "removeHost", "Let a host use it no more", remove_host),
    ]
}

fn has_snapshot(info: &VolumeInfo, name: &str) -> Result {
    match info.snapshots.iter().any(|snapshot| snapshot.name == name) {
        true => Ok(()),
        false => {
            let name = name.to_owned();
            Err(VolumeError::NotFound { what: "snapshot", name, hint: "" }.into())
        }
    }
}

/// Refuses a name that a volume has already.
fn check_new(pool: &OpenPool, name: &str) -> Result {
    match pool.show(name) {
        Ok(_) => Err(VolumeError::Exists { what: "volume", name: name.to_owned() }.into()),
        Err(_) => Ok(()),
    }
}

fn did(info: &VolumeInfo) -> Outcome<VolumeView> {
    Did(VolumeView::new(info), Goal::Reached)
}

fn create(served: &Served, _: &Call<'_>, asked: CreateVolume) -> Result<Outcome<VolumeView>> {
    let pool = &served.pool;
    let CreateVolume { name, bytes, compression, iops_limit, bytes_limit, dry_run } = asked;
    if dry_run {
        check_new(pool, &name)?;
        return Ok(Would(format!("make volume {name} of {}", human_bytes(bytes))));
    }
    let options = VolumeOptions { compression, iops_limit, bytes_limit };
    Ok(did(&pool.create_volume(&name, bytes, options)?))
}

fn change(served: &Served, call: &Call<'_>, changes: ChangeVolume) -> Result<Outcome<VolumeView>> {
    let pool = &served.pool;
    let name = call.name(0);
    let mut info = pool.show(name)?;
    let mut warning = String::new();
    if let Some(bytes) = changes.bytes.filter(|bytes| *bytes < info.bytes) {
        let users = Users::of_content(served, &info);
        users.check(name, changes.force)?;
        warning += &users.warning();
        if !changes.shrink {
            let why = format!(
                "{} has {}, and {} is less: what lies behind would be lost; say shrink if it may be",
                info.name,
                human_bytes(info.bytes),
                human_bytes(bytes)
            );
            return Err(ServeError::invalid(why));
        }
    }
    let hosts = match changes.hosts {
        Some(hosts) => {
            let users = Users::beyond(served, &info, &hosts);
            users.check(name, changes.force)?;
            warning += &users.warning();
            Hosts(hosts).checked(&info)?
        }
        None => info.hosts.clone(),
    };
    if changes.dry_run {
        let bytes = changes.bytes.unwrap_or(info.bytes);
        return Ok(Would(format!(
            "change {} from {} to {}{warning}",
            info.name,
            human_bytes(info.bytes),
            human_bytes(bytes)
        )));
    }
    let old = info.options;
    let options = VolumeOptions {
        compression: changes.compression.unwrap_or(old.compression),
        iops_limit: changes.iops_limit.unwrap_or(old.iops_limit),
        bytes_limit: changes.bytes_limit.unwrap_or(old.bytes_limit),
    };
    // The size first, which may be refused.
    if let Some(bytes) = changes.bytes.filter(|bytes| *bytes != info.bytes) {
        info = pool.resize(name, bytes)?;
    }
    if options != old || hosts != info.hosts {
        info = pool.configure(name, options, &hosts)?;
    }
    Ok(did(&info))
}

/// To a request that may be a repetition, a volume that is not there any more is deleted.
fn gone<T>(result: Result<T, VolumeError>, call: &Call<'_>) -> Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(VolumeError::NotFound { .. }) if call.has_key => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn delete(served: &Served, call: &Call<'_>, asked: DeleteVolume) -> Result<Outcome<DeletedView>> {
    let pool = &served.pool;
    let name = call.name(0);
    let users = Users::of(served, name);
    users.check(name, asked.force)?;
    if asked.dry_run {
        let is_meant = |one: &&VolumeInfo| {
            one.name == name && (one.trashed_until.is_none() || asked.keep_secs == Some(0))
        };
        let volumes = pool.volumes();
        let found = volumes.iter().filter(is_meant).min_by_key(|one| one.trashed_until.is_some());
        let count = match found {
            Some(found) => found.snapshots.len(),
            None => pool.show(name)?.snapshots.len(),
        };
        let freed = human_bytes(pool.if_deleted(name, None)?);
        let warning = users.warning();
        return Ok(Would(format!(
            "delete {name} and its {}, which frees {freed}{warning}",
            counted(to_u64(count), "snapshot")
        )));
    }
    let keep_secs = asked.keep_secs.unwrap_or(KEEP_SECS);
    let deleted = gone(pool.delete_volume(name, keep_secs), call)?;
    let goal = if deleted.is_some() && keep_secs == 0 { Goal::Swept } else { Goal::Reached };
    Ok(Did(DeletedView { deleted: name.to_owned() }, goal))
}

fn restore(served: &Served, call: &Call<'_>, asked: Nothing) -> Result<Outcome<VolumeView>> {
    let pool = &served.pool;
    let name = call.name(0);
    let is_it = |one: &VolumeInfo| one.name == name && one.trashed_until.is_some();
    let is_in_trash = pool.volumes().iter().any(is_it);
    if asked.dry_run {
        check_new(pool, name)?;
        if !is_in_trash {
            let (what, name) = ("volume in the trash", name.to_owned());
            return Err(VolumeError::NotFound { what, name, hint: "" }.into());
        }
        return Ok(Would(format!("take {name} out of the trash")));
    }
    if call.has_key && !is_in_trash {
        return Ok(did(&pool.show(name)?)); // it was restored before
    }
    Ok(did(&pool.restore(name)?))
}

fn snapshot(
    served: &Served,
    call: &Call<'_>,
    asked: CreateSnapshot,
) -> Result<Outcome<SnapshotView>> {
    let pool = &served.pool;
    let volume = call.name(0);
    if asked.dry_run {
        pool.show(volume)?;
        return Ok(Would(format!("keep {volume} as {}", asked.name)));
    }
    let made = pool.snapshot(volume, &asked.name)?;
    Ok(Did(SnapshotView::new(volume, &made), Goal::Reached))
}

fn delete_snapshot(
    served: &Served,
    call: &Call<'_>,
    asked: DeleteSnapshot,
) -> Result<Outcome<DeletedView>> {
    let pool = &served.pool;
    let (volume, snapshot) = (call.name(0), call.name(1));
    let users = Users::of_snapshot(served, volume, snapshot);
    users.check(&format!("{volume}@{snapshot}"), asked.force)?;
    if asked.dry_run {
        has_snapshot(&pool.show(volume)?, snapshot)?;
        let freed = human_bytes(pool.if_deleted(volume, Some(snapshot))?);
        let warning = users.warning();
        return Ok(Would(format!("delete {volume}@{snapshot}, which frees {freed}{warning}")));
    }
    let deleted = gone(pool.delete_snapshot(volume, snapshot), call)?;
    let goal = if deleted.is_some() { Goal::Swept } else { Goal::Reached };
    Ok(Did(DeletedView { deleted: format!("{volume}@{snapshot}") }, goal))
}

fn clone(served: &Served, call: &Call<'_>, asked: CloneSnapshot) -> Result<Outcome<VolumeView>> {
    let pool = &served.pool;
    let CloneSnapshot { snapshot, name, dry_run } = asked;
    let volume = call.name(0);
    if dry_run {
        has_snapshot(&pool.show(volume)?, &snapshot)?;
        check_new(pool, &name)?;
        return Ok(Would(format!("make volume {name} of {volume}@{snapshot}")));
    }
    Ok(did(&pool.clone_volume(volume, &snapshot, &name)?))
}

fn rollback(served: &Served, call: &Call<'_>, asked: Rollback) -> Result<Outcome<VolumeView>> {
    let pool = &served.pool;
    let Rollback { snapshot, if_generation, force, dry_run } = asked;
    let volume = call.name(0);
    let info = pool.show(volume)?;
    has_snapshot(&info, &snapshot)?;
    if let Some(generation) = if_generation.filter(|generation| *generation != info.generation) {
        if call.has_key && !dry_run && was_set_back_before(served, &info, &snapshot)? {
            return Ok(did(&info));
        }
        let why = format!(
            "{volume} has generation {}, not {generation}: it was set back meanwhile; look at it and ask again",
            info.generation
        );
        return Err(ServeError::new(ErrorKind::Conflict, why));
    }
    let users = Users::of_content(served, &info);
    users.check(volume, force)?;
    if dry_run {
        let warning = users.warning();
        let what =
            format!("set {volume} back to {snapshot}; what was written since is lost{warning}");
        return Ok(Would(what));
    }
    Ok(Did(VolumeView::new(&pool.rollback(volume, &snapshot)?), Goal::Swept))
}

/// Whether a volume was set back to this snapshot before this process opened the pool. Then a request whose key is not
/// known may be the repetition of the one that did it; those of this process are known by their keys.
fn was_set_back_before(served: &Served, info: &VolumeInfo, snapshot: &str) -> Result<bool> {
    Ok(info.generation <= served.newest_at_open && served.pool.is_from(&info.name, snapshot)?)
}

fn add_host(served: &Served, call: &Call<'_>, asked: AddHost) -> Result<Outcome<ExportView>> {
    let pool = &served.pool;
    let AddHost { nqn, snapshot, key_file, controller_key_file, tls_key_file, dry_run } = asked;
    forget_openers(served)?;
    let volume = call.name(0);
    let info = pool.show(volume)?;
    let mut hosts = Hosts::of(&info);
    hosts.0.retain(|one| (&one.nqn, &one.snapshot) != (&nqn, &snapshot));
    let host = HostView { nqn, snapshot, key_file, controller_key_file, tls_key_file };
    let (nqn, snapshot) = (host.nqn.clone(), host.snapshot.clone());
    hosts.0.push(host);
    let hosts = hosts.checked(&info)?;
    if dry_run {
        return Ok(Would(format!("let {nqn} use {volume}")));
    }
    let info = match hosts == info.hosts {
        true => info,
        false => pool.configure(volume, info.options, &hosts)?,
    };
    let export = export_of(pool.name(), &info, snapshot.as_deref(), served.exports.as_ref());
    Ok(Did(export, Goal::Reached))
}

fn remove_host(served: &Served, call: &Call<'_>, asked: RemoveHost) -> Result<Outcome<VolumeView>> {
    let pool = &served.pool;
    let (volume, nqn) = (call.name(0), call.name(1));
    let mut info = pool.show(volume)?;
    let mut hosts = Hosts::of(&info);
    hosts.0.retain(|one| one.nqn != nqn);
    let users = Users::beyond(served, &info, &hosts.0);
    // A host that was made up for a device lets go of it by itself, perhaps before its connections have ended.
    users.check(volume, asked.force || nqn.starts_with(OPENER))?;
    if asked.dry_run {
        return Ok(Would(format!("let {nqn} use {volume} no more{}", users.warning())));
    }
    let hosts = hosts.encoded();
    if hosts != info.hosts {
        info = pool.configure(volume, info.options, &hosts)?;
    }
    Ok(did(&info))
}

/// Takes hosts off that were made up for a device, and have not been seen for a while.
fn forget_openers(served: &Served) -> Result {
    let Some(exports) = &served.exports else { return Ok(()) };
    for (volume, hosts) in exports.without_lost_openers() {
        let Ok(info) = served.pool.show(&volume) else { continue };
        served.pool.configure(&volume, info.options, &hosts.encoded())?;
    }
    Ok(())
}
