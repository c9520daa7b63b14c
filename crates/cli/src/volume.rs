//! `esker volume`: volumes of a pool, made, changed, kept, counted, attached and watched.

mod top;

use std::path::PathBuf;

use esker_base::ErrorKind;
use esker_serve::pool::HostView;
use esker_serve::pool::answer::{DeletedView, VolumeList};
use esker_serve::pool::view::{PoolView, SnapshotView};
use esker_stack::{Spec, VolumeSpec};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::args::{Change, VolumeCommand, VolumeName, Where};
use crate::attach::attach_to;
use crate::failure::{Failure, Result};
use crate::pool::link::Link;
use crate::pool::{rehearsed, show, tell};

/// Runs a command.
pub(crate) fn run(command: &VolumeCommand) -> Result {
    match command {
        VolumeCommand::Create { volume, size, no_compression, iops, bandwidth, how } => {
            plain(volume)?;
            let body = json!({
                "name": volume.name,
                "bytes": size,
                "compression": !no_compression,
                "iops_limit": iops,
                "bytes_limit": bandwidth,
            });
            shown(ask(&volume.pool, how, "POST", "/v1/volumes", body)?, &how.at)
        }
        VolumeCommand::List { pool, at } => {
            let link = Link::open(pool, at)?;
            let found = list(&link).and_then(|list| {
                let pool: PoolView = view(link.get("/v1/pool")?)?;
                Ok((list, pool.space))
            });
            let (all, space) = link.close(found)?;
            tell(json!(all), at.json, |list: &VolumeList| show::volumes(&list.volumes, &space))
        }
        VolumeCommand::Show { volume, at } => {
            let path = path(volume)?;
            shown(Link::open(&volume.pool, at)?.look(&path)?, at)
        }
        VolumeCommand::Resize { volume, size, shrink, force, how } => {
            let body = json!({ "bytes": size, "shrink": shrink, "force": force });
            shown(ask(&volume.pool, how, "PATCH", &path(volume)?, body)?, &how.at)
        }
        VolumeCommand::Snapshot { snapshot, how } => {
            let (path, name) = parts(snapshot)?;
            let body = json!({ "name": name });
            let answer = ask(&snapshot.pool, how, "POST", &format!("{path}/snapshots"), body)?;
            let volume = &snapshot.name;
            tell(answer, how.at.json, |view: &SnapshotView| format!("{volume}@{}\n", view.name))
        }
        VolumeCommand::Clone { snapshot, name, how } => {
            let (path, of) = parts(snapshot)?;
            let body = json!({ "snapshot": of, "name": name });
            shown(ask(&snapshot.pool, how, "POST", &format!("{path}/clones"), body)?, &how.at)
        }
        VolumeCommand::Rollback { snapshot, force, how } => {
            let (path, to) = parts(snapshot)?;
            let body = json!({ "snapshot": to, "force": force });
            shown(ask(&snapshot.pool, how, "POST", &format!("{path}/rollback"), body)?, &how.at)
        }
        VolumeCommand::Delete { volume, keep, force, how } => {
            let (path, body) = match volume.snapshot {
                Some(_) => {
                    let (path, snapshot) = parts(volume)?;
                    (format!("{path}/snapshots/{snapshot}"), json!({ "force": force }))
                }
                None => (path(volume)?, json!({ "keep_secs": keep, "force": force })),
            };
            let answer = ask(&volume.pool, how, "DELETE", &path, body)?;
            tell(answer, how.at.json, |view: &DeletedView| format!("{} is deleted\n", view.deleted))
        }
        VolumeCommand::Export {
            volume,
            hosts,
            key,
            controller_key,
            tls_key,
            any_host,
            nobody: _,
            force,
            how,
        } => {
            let hosts = if *any_host { vec!["*".to_owned()] } else { hosts.clone() };
            let (key, controller_key, tls_key) =
                (absolute(key)?, absolute(controller_key)?, absolute(tls_key)?);
            let host = |nqn| HostView {
                nqn,
                snapshot: None,
                key_file: key.clone(),
                controller_key_file: controller_key.clone(),
                tls_key_file: tls_key.clone(),
            };
            let hosts: Vec<HostView> = hosts.into_iter().map(host).collect();
            let body = json!({ "hosts": hosts, "force": force });
            shown(ask(&volume.pool, how, "PATCH", &path(volume)?, body)?, &how.at)
        }
        VolumeCommand::Limit { volume, rate, how } => {
            shown(ask(&volume.pool, how, "PATCH", &path(volume)?, rate.body())?, &how.at)
        }
        VolumeCommand::Attach { volume, to, drives, buffers, opening, socket } => {
            let VolumeName { pool, name, snapshot } = volume.clone();
            let pool = opening.of(VolumeSpec::of_pool(&pool, drives, buffers));
            let spec = VolumeSpec { name, snapshot, socket: socket.clone(), ..pool };
            attach_to(&Spec::Volume(Box::new(spec)), to)
        }
        VolumeCommand::Top { pool, once, interval, at } => top::run(pool, *once, *interval, at),
        VolumeCommand::Restore { volume, how } => {
            let path = format!("{}/restore", path(volume)?);
            shown(ask(&volume.pool, how, "POST", &path, json!({}))?, &how.at)
        }
        VolumeCommand::Du { volume, at } => {
            let path = format!("{}/space", path(volume)?);
            let answer = Link::open(&volume.pool, at)?.look(&path)?;
            tell(answer, at.json, show::space)
        }
    }
}

/// All volumes, a page of them after the other.
fn list(link: &Link) -> Result<VolumeList> {
    let mut all = VolumeList { volumes: Vec::new(), next_token: None };
    loop {
        let path = match &all.next_token {
            None => "/v1/volumes".to_owned(),
            Some(token) => format!("/v1/volumes?token={token}"),
        };
        let page: VolumeList = view(link.get(&path)?)?;
        all.volumes.extend(page.volumes);
        all.next_token = page.next_token;
        if all.next_token.is_none() {
            return Ok(all);
        }
    }
}

fn view<T: DeserializeOwned>(answer: Value) -> Result<T> {
    serde_json::from_value(answer).map_err(|error| {
        Failure::usage(format!("the answer of the pool is not understood: {error}"))
    })
}

fn ask(pool: &str, how: &Change, method: &str, path: &str, body: Value) -> Result<Value> {
    let body = rehearsed(body, how.dry_run);
    Link::open(pool, &how.at)?.change(how, how.wait, method, path, body)
}

fn shown(answer: Value, at: &Where) -> Result {
    tell(answer, at.json, show::volume)
}

/// Refuses a snapshot where a volume is meant.
fn plain(volume: &VolumeName) -> Result {
    match &volume.snapshot {
        None => Ok(()),
        Some(snapshot) => {
            let why = format!("'@{snapshot}' is a snapshot where a volume is meant; leave it out");
            Err(Failure::new(ErrorKind::Invalid, why))
        }
    }
}

/// A path that the server finds from where it is.
fn absolute(path: &Option<PathBuf>) -> Result<Option<PathBuf>> {
    let found = |path: &PathBuf| {
        let whole = std::path::absolute(path)
            .map_err(|error| Failure::file(path, &error, "check the path"))?;
        if whole.to_str().is_none() {
            let why = "a request can only name a path in UTF-8; rename it";
            return Err(Failure::usage(format!("{}: {why}", whole.display())));
        }
        Ok(whole)
    };
    path.as_ref().map(found).transpose()
}

/// The path of a volume.
fn path(volume: &VolumeName) -> Result<String> {
    plain(volume)?;
    Ok(format!("/v1/volumes/{}", volume.name))
}

/// The path of a snapshot's volume, and its name.
fn parts(snapshot: &VolumeName) -> Result<(String, &str)> {
    let VolumeName { pool, name, snapshot } = snapshot;
    match snapshot {
        Some(snapshot) => Ok((format!("/v1/volumes/{name}"), snapshot)),
        None => {
            let why =
                format!("'{pool}/{name}' is no snapshot; write for example {pool}/{name}@monday");
            Err(Failure::new(ErrorKind::Invalid, why))
        }
    }
}
