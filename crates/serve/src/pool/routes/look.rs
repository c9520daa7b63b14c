//! Requests that change nothing.

use esker_base::units::to_nanos;
use esker_base::{Clock, ErrorKind};
use esker_stack::served::OPENER;
use esker_volume::{Role, VolumeInfo};
use serde_json::Value;

use super::drives::index;
use super::route::{Call, Route};
use crate::error::{Result, ServeError};
use crate::pool::answer::{
    ConfigView, DriveLossView, ExplainView, FreedView, OperationList, OperationView, SnapshotList,
    StatsList, StatsView, VolumeConfig, VolumeList,
};
use crate::pool::explain;
use crate::pool::export::Exports;
use crate::pool::hosts::{HostView, Hosts};
use crate::pool::served::Served;
use crate::pool::view::{DuView, ExportView, PoolView, SnapshotView, VolumeView};
use crate::requests::openapi;
use crate::requests::route::known;

/// The most in one list.
const LIST_MAX: usize = 1000;
const PAGE: &[(&str, &str)] = &[
    ("max", "The most in the answer: 1,000 where nothing is said, and at most"),
    ("token", "Go on where the answer with this `next_token` has ended"),
];

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::look("/v1", "listRequests", "All requests", known),
        Route::look("/v1/openapi.json", "getOpenapi", "This description", described),
        Route::look("/v1/pool", "getPool", "How the pool is", status),
        Route::look("/v1/config", "getConfig", "What makes a pool like this one", config),
        Route::look("/v1/stats", "getStats", "What volumes were asked for", stats),
        Route::look("/v1/exports", "listExports", "The volumes that hosts may use", exports),
        Route::look("/v1/operations", "listOperations", "Changes that were made", operations),
        Route::look("/v1/operations/{operation}", "getOperation", "A change", operation),
        Route::look("/v1/volumes", "listVolumes", "Volumes, those in the trash too", volumes)
            .with(PAGE),
        Route::look("/v1/snapshots", "listSnapshots", "Snapshots", snapshots).with(PAGE),
        Route::look("/v1/volumes/{volume}", "getVolume", "A volume and its snapshots", volume),
        Route::look("/v1/volumes/{volume}/space", "getVolumeSpace", "The space of a volume", space),
        Route::look(
            "/v1/volumes/{volume}/explain",
            "explainVolume",
            "What a volume waits for",
            explained,
        ),
        Route::look(
            "/v1/volumes/{volume}/if-deleted",
            "ifVolumeDeleted",
            "What deleting a volume and its snapshots would free",
            if_volume_deleted,
        ),
        Route::look(
            "/v1/volumes/{volume}/snapshots/{snapshot}/if-deleted",
            "ifSnapshotDeleted",
            "What deleting a snapshot would free",
            if_snapshot_deleted,
        ),
        Route::look(
            "/v1/drives/{drive}/if-failed",
            "ifDriveFailed",
            "What would be if a drive failed",
            if_failed,
        ),
    ]
}

/// The description of all requests (OpenAPI 3.1).
#[must_use]
pub fn description() -> Value {
    let about =
        "Requests to a process that serves a pool (`esker pool serve`), over HTTP at its socket.";
    openapi::document::<Served>("Esker pool", about)
}

fn described(_: &Served, _: &Call<'_>) -> Result<Value> {
    Ok(description())
}

fn status(served: &Served, _: &Call<'_>) -> Result<PoolView> {
    Ok(served.view())
}

fn exports(served: &Served, _: &Call<'_>) -> Result<Vec<ExportView>> {
    Ok(served.exports.as_ref().map(Exports::list).unwrap_or_default())
}

fn operations(served: &Served, _: &Call<'_>) -> Result<OperationList> {
    Ok(OperationList { operations: served.operations.list(&served.status()) })
}

fn operation(served: &Served, call: &Call<'_>) -> Result<OperationView> {
    let id = call.name(0);
    let mut all = served.operations.list(&served.status()).into_iter();
    all.find(|one| one.id == id).ok_or_else(|| {
        let why = format!(
            "there is no operation '{id}': it is older than a day, or of a server that has ended; what it did is there"
        );
        ServeError::new(ErrorKind::NotFound, why)
    })
}

/// A part of a list in the order of ids, and the token of the rest.
fn page<T>(
    call: &Call<'_>,
    mut all: Vec<T>,
    id: impl Fn(&T) -> u64,
) -> Result<(Vec<T>, Option<String>)> {
    let number = |name: &str| match call.queries.get(name) {
        None => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            ServeError::invalid(format!("'{text}' is no {name}; leave it out to begin anew"))
        }),
    };
    let max = number("max")?.and_then(|max| usize::try_from(max).ok()).unwrap_or(LIST_MAX);
    let max = max.clamp(1, LIST_MAX);
    let after = number("token")?;
    all.sort_by_key(&id);
    all.retain(|one| after.is_none_or(|after| id(one) > after));
    let has_more = all.len() > max;
    all.truncate(max);
    let last = all.last().map(|one| id(one).to_string());
    Ok((all, last.filter(|_| has_more)))
}

fn volumes(served: &Served, call: &Call<'_>) -> Result<VolumeList> {
    let (volumes, next_token) = page(call, served.pool.volumes(), |one| one.id.0)?;
    Ok(VolumeList { volumes: volumes.iter().map(VolumeView::new).collect(), next_token })
}

fn snapshots(served: &Served, call: &Call<'_>) -> Result<SnapshotList> {
    let volumes = served.pool.volumes();
    let of = |one: &VolumeInfo| -> Vec<SnapshotView> {
        one.snapshots.iter().map(|snapshot| SnapshotView::new(&one.name, snapshot)).collect()
    };
    let (snapshots, next_token) = page(call, volumes.iter().flat_map(of).collect(), |one| one.id)?;
    Ok(SnapshotList { snapshots, next_token })
}

fn volume(served: &Served, call: &Call<'_>) -> Result<VolumeView> {
    Ok(VolumeView::new(&served.pool.show(call.name(0))?))
}

fn space(served: &Served, call: &Call<'_>) -> Result<DuView> {
    Ok(served.pool.du(call.name(0))?.into())
}

fn stats(served: &Served, _: &Call<'_>) -> Result<StatsList> {
    let names = served.pool.volumes();
    let name = |id| names.iter().find(|one| one.id == id).map(|one| one.name.as_str());
    let found = served.pool.stats();
    let volumes = found.iter().filter_map(|(id, stats)| Some(StatsView::new(name(*id)?, stats)));
    let at_ns = to_nanos(Clock::real().unix_time());
    Ok(StatsList { at_ns, volumes: volumes.collect() })
}

fn explained(served: &Served, call: &Call<'_>) -> Result<ExplainView> {
    let info = served.pool.show(call.name(0))?;
    let stats = served.pool.stats().into_iter().find(|(id, _)| *id == info.id);
    let (_, stats) = stats.ok_or_else(|| ServeError::new(ErrorKind::NotFound, "it was deleted"))?;
    let inherits = info.ancestors > 0;
    let space = inherits.then(|| served.pool.du(&info.name)).transpose()?;
    let stats = StatsView::new(&info.name, &stats);
    Ok(explain::volume(&served.status(), &info, space.as_ref(), stats))
}

fn if_volume_deleted(served: &Served, call: &Call<'_>) -> Result<FreedView> {
    let name = call.name(0);
    let snapshots = served.pool.show(name)?.snapshots.len() as u64;
    let freed = served.pool.if_deleted(name, None)?;
    Ok(FreedView { name: name.to_owned(), freed, snapshots })
}

fn if_snapshot_deleted(served: &Served, call: &Call<'_>) -> Result<FreedView> {
    let (volume, snapshot) = (call.name(0), call.name(1));
    let freed = served.pool.if_deleted(volume, Some(snapshot))?;
    Ok(FreedView { name: format!("{volume}@{snapshot}"), freed, snapshots: 0 })
}

fn if_failed(served: &Served, call: &Call<'_>) -> Result<DriveLossView> {
    let drive = index(call.name(0))?;
    Ok(DriveLossView::new(drive.0, &served.pool.if_failed(drive)?))
}

/// A specification that finds the device from any directory.
fn from_anywhere(spec: &esker_stack::Spec) -> String {
    spec.for_reopening().unwrap_or_else(|_| spec.clone()).to_string()
}

fn config(served: &Served, _: &Call<'_>) -> Result<ConfigView> {
    let (pool, status) = (&served.pool, served.status());
    let specs = pool.specs();
    let devices = |role: Role| {
        let its = status.members.iter().filter(|one| one.role == role);
        let its = its.filter(|one| one.state == esker_volume::MemberState::Online);
        let names = its.filter_map(|one| one.device.clone());
        names.map(|name| specs.get(&name).map_or(name, from_anywhere)).collect()
    };
    let options = pool.create_options();
    let is_kept = |host: &HostView| !host.nqn.starts_with(OPENER);
    let volume = |info: VolumeInfo| VolumeConfig {
        hosts: Hosts::of(&info).0.into_iter().filter(is_kept).collect(),
        name: info.name,
        bytes: info.bytes,
        compression: info.options.compression,
        iops_limit: info.options.iops_limit,
        bytes_limit: info.options.bytes_limit,
    };
    let volumes = pool.volumes().into_iter().filter(|one| one.trashed_until.is_none());
    Ok(ConfigView {
        pool: options.name,
        parity: options.parity,
        width: options.width,
        chunk_bytes: options.chunk_bytes,
        log_bytes: options.log_bytes,
        spare_percent: options.spare_percent,
        drives: devices(Role::Drive),
        buffers: devices(Role::Buffer),
        volumes: volumes.map(volume).collect(),
    })
}
