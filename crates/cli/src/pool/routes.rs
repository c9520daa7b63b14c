//! What can be asked of an open pool: one table of routes, for the socket and for a pool that this process opens.
//!
//! Invariants
//! 1. A request that is refused has changed nothing.
//! 2. A request that is repeated gives the same answer: names are what tells volumes and snapshots apart.

use std::net::SocketAddr;
use std::sync::Arc;

use esker_base::ErrorKind;
use esker_base::units::human_bytes;
use esker_nvmf::target::config::check_nqn;
use esker_stack::{OpenPool, Spec, Stack, StackError};
use esker_volume::{DriveIndex, Role, VolumeError, VolumeInfo, VolumeOptions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::export::{ANY_HOST, Exports};
use super::view::{DuView, PoolView, VolumeView};
use crate::failure::Failure;

/// How long a volume stays in the trash where nothing is said: a day.
const KEEP_SECS: u64 = 86_400;

/// Why a request was refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into() }
    }
}

impl From<VolumeError> for Refusal {
    fn from(error: VolumeError) -> Refusal {
        Refusal::new(error.kind(), error.to_string())
    }
}

/// The answer to a request.
pub(crate) type Answer = Result<Value, Refusal>;

/// A request that is known.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// With names in braces.
    pub(crate) path: &'static str,
    pub(crate) about: &'static str,
    run: fn(&Served, &[&str], Value) -> Answer,
}

/// All requests.
pub(crate) const ROUTES: [Route; 17] = [
    Route { method: "GET", path: "/v1/pool", about: "How the pool is", run: status },
    Route { method: "POST", path: "/v1/drives", about: "Add a drive or a buffer device", run: add },
    Route {
        method: "POST",
        path: "/v1/drives/{drive}/replace",
        about: "Put a device in the place of a drive",
        run: replace,
    },
    Route {
        method: "POST",
        path: "/v1/drives/{drive}/retire",
        about: "Move all that a drive has to others",
        run: retire,
    },
    Route { method: "POST", path: "/v1/scrub", about: "Read everything and verify it", run: scrub },
    Route {
        method: "GET",
        path: "/v1/exports",
        about: "The volumes that hosts may use, and where",
        run: exports,
    },
    Route {
        method: "GET",
        path: "/v1/volumes",
        about: "All volumes, those in the trash included",
        run: list,
    },
    Route { method: "POST", path: "/v1/volumes", about: "Make a thin volume", run: create },
    Route {
        method: "GET",
        path: "/v1/volumes/{volume}",
        about: "A volume and its snapshots",
        run: show,
    },
    Route {
        method: "PATCH",
        path: "/v1/volumes/{volume}",
        about: "Change size, limits or hosts of a volume",
        run: change,
    },
    Route {
        method: "DELETE",
        path: "/v1/volumes/{volume}",
        about: "Put a volume into the trash",
        run: delete,
    },
    Route {
        method: "POST",
        path: "/v1/volumes/{volume}/restore",
        about: "Take a volume out of the trash",
        run: restore,
    },
    Route {
        method: "GET",
        path: "/v1/volumes/{volume}/space",
        about: "The space of a volume",
        run: space,
    },
    Route {
        method: "POST",
        path: "/v1/volumes/{volume}/snapshots",
        about: "Keep a volume as it is",
        run: snapshot,
    },
    Route {
        method: "DELETE",
        path: "/v1/volumes/{volume}/snapshots/{snapshot}",
        about: "Delete a snapshot",
        run: delete_snapshot,
    },
    Route {
        method: "POST",
        path: "/v1/volumes/{volume}/clones",
        about: "Make a volume of a snapshot",
        run: clone,
    },
    Route {
        method: "POST",
        path: "/v1/volumes/{volume}/rollback",
        about: "Set a volume back to a snapshot",
        run: rollback,
    },
];

/// A pool that answers requests.
pub(crate) struct Served {
    pool: Arc<OpenPool>,
    /// Opens devices that are added.
    stack: Stack,
    exports: Option<Exports>,
}

impl Served {
    /// A pool that is open in this process and exports nothing.
    pub(crate) fn new(stack: Stack, pool: Arc<OpenPool>) -> Served {
        Served { pool, stack, exports: None }
    }

    /// A pool whose volumes are exported.
    pub(crate) fn exporting(stack: Stack, pool: Arc<OpenPool>, exports: Exports) -> Served {
        Served { pool, stack, exports: Some(exports) }
    }

    /// Where hosts reach its volumes.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.exports.as_ref().map(|exports| exports.target().addresses()).unwrap_or_default()
    }

    /// Whether hosts are served, if they are to be.
    pub(crate) fn is_running(&self) -> bool {
        self.exports.as_ref().is_none_or(|exports| exports.target().is_running())
    }

    /// Runs a request; `body` is null where there is none.
    pub(crate) fn run(&self, method: &str, path: &str, body: Value) -> Answer {
        if path == "/v1" && method == "GET" {
            let shown = |r: &Route| json!({ "method": r.method, "path": r.path, "about": r.about });
            return Ok(ROUTES.iter().map(shown).collect());
        }
        let named = ROUTES.iter().filter_map(|route| Some((route, matched(route.path, path)?)));
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            let why = format!("there is no {path}; GET /v1 tells what there is");
            return Err(Refusal::new(ErrorKind::NotFound, why));
        }
        let Some((route, names)) = named.iter().find(|(route, _)| route.method == method) else {
            let known: Vec<_> = named.iter().map(|(route, _)| route.method).collect();
            let why = format!("{path} takes {}, not {method}", known.join(", "));
            return Err(Refusal::new(ErrorKind::Unsupported, why));
        };
        let answer = (route.run)(self, names, body)?;
        if method != "GET"
            && let Some(exports) = &self.exports
        {
            exports.refresh().map_err(|refusal| Refusal {
                message: format!("it was done, and is not exported: {}", refusal.message),
                ..refusal
            })?;
        }
        Ok(answer)
    }

    /// Ends exports in order, then closes the pool if nobody else has it.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Served { pool, exports, .. } = self;
        let ended = exports.map_or(Ok(()), Exports::close);
        let closed = pool.close();
        ended?;
        closed.map_err(|error| Failure::new(error.kind(), error))
    }
}

/// What stands for the names in a template, if a path fits it.
fn matched<'a>(template: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let (parts, found): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    let mut names = Vec::new();
    for (part, found) in parts.iter().zip(&found) {
        match part.starts_with('{') {
            true if !found.is_empty() => names.push(*found),
            false if part == found => {}
            _ => return None,
        }
    }
    (parts.len() == found.len()).then_some(names)
}

fn read<T: DeserializeOwned>(body: Value) -> Result<T, Refusal> {
    let body = if body.is_null() { json!({}) } else { body };
    serde_json::from_value(body)
        .map_err(|error| Refusal::new(ErrorKind::Invalid, format!("the request's body: {error}")))
}

fn answer(view: &impl Serialize) -> Answer {
    serde_json::to_value(view).map_err(|error| Refusal::new(ErrorKind::Invalid, error.to_string()))
}

fn volume(info: &VolumeInfo) -> Answer {
    answer(&VolumeView::new(info))
}

fn would(text: String) -> Answer {
    Ok(json!({ "dry_run": true, "would": text }))
}

fn has_snapshot(info: &VolumeInfo, name: &str) -> Result<(), Refusal> {
    match info.snapshots.iter().any(|snapshot| snapshot.name == name) {
        true => Ok(()),
        false => {
            let name = name.to_owned();
            Err(VolumeError::NotFound { what: "snapshot", name }.into())
        }
    }
}

/// Refuses a name that a volume has already.
fn check_new(pool: &OpenPool, name: &str) -> Result<(), Refusal> {
    match pool.show(name) {
        Ok(_) => Err(VolumeError::Exists { what: "volume", name: name.to_owned() }.into()),
        Err(_) => Ok(()),
    }
}

fn status(served: &Served, _: &[&str], _: Value) -> Answer {
    let pool = &served.pool;
    answer(&PoolView::new(&pool.status(), pool.remarks()))
}

fn list(served: &Served, _: &[&str], _: Value) -> Answer {
    let pool = &served.pool;
    answer(&pool.volumes().iter().map(VolumeView::new).collect::<Vec<_>>())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    /// A device specification.
    device: String,
    #[serde(default)]
    buffer: bool,
    #[serde(default)]
    overwrite: bool,
    #[serde(default)]
    dry_run: bool,
}

impl Device {
    fn open(&self, served: &Served) -> Result<Arc<dyn esker_device::Device>, Refusal> {
        let failed = |error: StackError| Refusal::new(error.kind(), error.to_string());
        let spec: Spec = self.device.parse().map_err(failed)?;
        if !spec.is_lasting() {
            let why = "what it holds is gone when the process ends; name a file or a block device";
            return Err(Refusal::new(ErrorKind::Invalid, format!("{spec}: {why}")));
        }
        Ok(served.stack.open(&spec, esker_device::Create::Never).map_err(failed)?.device)
    }
}

fn index(text: &str) -> Result<DriveIndex, Refusal> {
    let why = || format!("'{text}' is no number of a drive; the status shows them");
    text.parse().map(DriveIndex).map_err(|_| Refusal::new(ErrorKind::Invalid, why()))
}

fn add(served: &Served, _: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let asked: Device = read(body)?;
    let device = asked.open(served)?;
    let role = if asked.buffer { Role::Buffer } else { Role::Drive };
    if asked.dry_run {
        pool.check_add(&device, role, asked.overwrite)?;
        return would(format!("add {} to {}", asked.device, pool.name()));
    }
    let index = pool.add(&device, role, asked.overwrite)?;
    Ok(json!({ "drive": index.0, "device": asked.device }))
}

fn replace(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let asked: Device = read(body)?;
    let old = index(names[0])?;
    let role = pool.role(old)?;
    let device = asked.open(served)?;
    if asked.dry_run {
        pool.check_add(&device, role, asked.overwrite)?;
        return would(format!("put {} in the place of {old}", asked.device));
    }
    let index = pool.replace(old, &device, asked.overwrite)?;
    Ok(json!({ "drive": index.0, "device": asked.device }))
}

fn retire(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let Dry { dry_run } = read(body)?;
    let drive = index(names[0])?;
    if dry_run {
        pool.check_retire(drive)?;
        return would(format!("move all that {drive} has to others, and retire it"));
    }
    pool.retire(drive)?;
    Ok(json!({ "drive": drive.0, "device": Value::Null }))
}

fn scrub(served: &Served, _: &[&str], body: Value) -> Answer {
    let Dry { dry_run } = read(body)?;
    if dry_run {
        return would(format!("read all that {} holds, and verify it", served.pool.name()));
    }
    served.pool.scrub();
    Ok(json!({ "drive": Value::Null, "device": Value::Null }))
}

fn exports(served: &Served, _: &[&str], _: Value) -> Answer {
    let list = served.exports.as_ref().map(Exports::list);
    answer(&list.unwrap_or_default())
}

/// Refuses hosts that no target takes.
fn check_hosts(hosts: &[String]) -> Result<(), Refusal> {
    for host in hosts.iter().filter(|host| *host != ANY_HOST) {
        check_nqn(host).map_err(|error| Refusal::new(ErrorKind::Invalid, error.to_string()))?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    bytes: u64,
    #[serde(default = "yes")]
    compression: bool,
    #[serde(default)]
    iops_limit: u64,
    #[serde(default)]
    bytes_limit: u64,
    #[serde(default)]
    dry_run: bool,
}

fn yes() -> bool {
    true
}

fn create(served: &Served, _: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let Create { name, bytes, compression, iops_limit, bytes_limit, dry_run } = read(body)?;
    if dry_run {
        check_new(pool, &name)?;
        return would(format!("make volume {name} of {}", human_bytes(bytes)));
    }
    let options = VolumeOptions { compression, iops_limit, bytes_limit };
    volume(&pool.create_volume(&name, bytes, options)?)
}

fn show(served: &Served, names: &[&str], _: Value) -> Answer {
    let pool = &served.pool;
    volume(&pool.show(names[0])?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    bytes: Option<u64>,
    #[serde(default)]
    shrink: bool,
    compression: Option<bool>,
    iops_limit: Option<u64>,
    bytes_limit: Option<u64>,
    hosts: Option<Vec<String>>,
    #[serde(default)]
    dry_run: bool,
}

fn change(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let changes: Changes = read(body)?;
    let mut info = pool.show(names[0])?;
    if let Some(bytes) = changes.bytes.filter(|bytes| *bytes < info.bytes)
        && !changes.shrink
    {
        let why = format!(
            "{} has {}, and {} is less: what lies behind would be lost; say shrink if it may be",
            info.name,
            human_bytes(info.bytes),
            human_bytes(bytes)
        );
        return Err(Refusal::new(ErrorKind::Invalid, why));
    }
    if let Some(hosts) = &changes.hosts {
        check_hosts(hosts)?;
    }
    if changes.dry_run {
        let bytes = changes.bytes.unwrap_or(info.bytes);
        return would(format!(
            "change {} from {} to {}",
            info.name,
            human_bytes(info.bytes),
            human_bytes(bytes)
        ));
    }
    let old = info.options;
    let options = VolumeOptions {
        compression: changes.compression.unwrap_or(old.compression),
        iops_limit: changes.iops_limit.unwrap_or(old.iops_limit),
        bytes_limit: changes.bytes_limit.unwrap_or(old.bytes_limit),
    };
    let hosts = changes.hosts.unwrap_or_else(|| info.hosts.clone());
    if options != old || hosts != info.hosts {
        info = pool.configure(names[0], options, &hosts)?;
    }
    if let Some(bytes) = changes.bytes.filter(|bytes| *bytes != info.bytes) {
        info = pool.resize(names[0], bytes)?;
    }
    volume(&info)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    keep_secs: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

fn delete(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let Delete { keep_secs, dry_run } = read(body)?;
    let name = names[0];
    if dry_run {
        let info = pool.show(name)?;
        let unique = pool.du(name)?.unique;
        let count = info.snapshots.len();
        return would(format!(
            "delete {name} and its {count} snapshots; {} are the volume's alone",
            human_bytes(unique)
        ));
    }
    pool.delete_volume(name, keep_secs.unwrap_or(KEEP_SECS))?;
    Ok(json!({ "deleted": name }))
}

fn restore(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let Dry { dry_run } = read(body)?;
    if dry_run {
        check_new(pool, names[0])?;
        let is_it = |one: &VolumeInfo| one.name == names[0] && one.trashed_until.is_some();
        if !pool.volumes().iter().any(is_it) {
            let (what, name) = ("volume in the trash", names[0].to_owned());
            return Err(VolumeError::NotFound { what, name }.into());
        }
        return would(format!("take {} out of the trash", names[0]));
    }
    volume(&pool.restore(names[0])?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dry {
    #[serde(default)]
    dry_run: bool,
}

fn space(served: &Served, names: &[&str], _: Value) -> Answer {
    let pool = &served.pool;
    answer(&DuView::from(pool.du(names[0])?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    #[serde(default)]
    dry_run: bool,
}

fn snapshot(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let Named { name, dry_run } = read(body)?;
    if dry_run {
        pool.show(names[0])?;
        return would(format!("keep {} as {name}", names[0]));
    }
    let made = pool.snapshot(names[0], &name)?;
    Ok(json!({ "id": made.id.0, "name": made.name, "bytes": made.bytes, "made": made.made }))
}

fn delete_snapshot(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let Dry { dry_run } = read(body)?;
    if dry_run {
        has_snapshot(&pool.show(names[0])?, names[1])?;
        return would(format!("delete {}@{}", names[0], names[1]));
    }
    pool.delete_snapshot(names[0], names[1])?;
    Ok(json!({ "deleted": format!("{}@{}", names[0], names[1]) }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clone {
    snapshot: String,
    name: String,
    #[serde(default)]
    dry_run: bool,
}

fn clone(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let Clone { snapshot, name, dry_run } = read(body)?;
    if dry_run {
        has_snapshot(&pool.show(names[0])?, &snapshot)?;
        check_new(pool, &name)?;
        return would(format!("make volume {name} of {}@{snapshot}", names[0]));
    }
    volume(&pool.clone_volume(names[0], &snapshot, &name)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollback {
    snapshot: String,
    #[serde(default)]
    dry_run: bool,
}

fn rollback(served: &Served, names: &[&str], body: Value) -> Answer {
    let pool = &served.pool;
    let Rollback { snapshot, dry_run } = read(body)?;
    if dry_run {
        has_snapshot(&pool.show(names[0])?, &snapshot)?;
        return would(format!(
            "set {} back to {snapshot}; what was written since is lost",
            names[0]
        ));
    }
    volume(&pool.rollback(names[0], &snapshot)?)
}
