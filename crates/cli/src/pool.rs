//! `esker pool`: pools of drives, made, looked at and served.
//!
//! | module | content |
//! | --- | --- |
//! | `show` | answers as tables |
//! | `link`, `socket` | the way to a pool: in this process, or over HTTP at a socket |
//! | `config` | a pool like another one |

mod config;
pub(crate) mod link;
pub(crate) mod show;
pub(crate) mod socket;

use std::sync::Arc;

use esker_base::units::{counted, to_u64};
use esker_device::{Create, Device};
use esker_serve::events::Waiting;
use esker_serve::pool::answer::{DriveView, OperationList, OperationView, ScrubStarted, Settings};
use esker_serve::pool::view::LabelView;
use esker_serve::pool::{PoolService, Served, description};
use esker_serve::requests::answer::WouldView;
use esker_stack::{Spec, VolumeSpec};
use esker_volume::{CreateOptions, Pool, VolumeError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::args::{
    Change, Explained, NewDevice, PoolCommand, PoolCreateArgs, PoolServeArgs, Where,
};
use crate::failure::{Failure, Result};
use crate::host;
use crate::output;
use crate::unmade;
use link::{Link, stack};

/// Runs a command.
pub(crate) fn run(command: &PoolCommand) -> Result {
    match command {
        PoolCommand::Create(args) => create(args),
        PoolCommand::Examine { devices, json } => examine(devices, *json),
        PoolCommand::Add { pool, device, as_buffer, how } => {
            let mut body = described(device)?;
            body["buffer"] = json!(as_buffer);
            let answer = change(pool, how, "/v1/drives", body)?;
            tell(answer, how.at.json, |view: &DriveView| format!("{}\n", placed(pool, view)))
        }
        PoolCommand::Replace { pool, drive, device, how } => {
            let path = format!("/v1/drives/{drive}/replace");
            let answer = change(pool, how, &path, described(device)?)?;
            tell(answer, how.at.json, |view: &DriveView| {
                ended(pool, how, &format!("{}; drive {drive} is being emptied", placed(pool, view)))
            })
        }
        PoolCommand::Rejoin { pool, drive, device, how } => {
            let device = device.as_ref().map(Spec::for_reopening).transpose()?;
            let body = device.map_or(json!({}), |it| json!({ "device": it.to_string() }));
            let answer = change(pool, how, &format!("/v1/drives/{drive}/rejoin"), body)?;
            tell(answer, how.at.json, |_: &DriveView| {
                ended(pool, how, &format!("drive {drive} of {pool} is being verified"))
            })
        }
        PoolCommand::Retire { pool, drive, cancel: true, how } => {
            let path = format!("/v1/drives/{drive}/retire");
            let body = rehearsed(json!({}), how.dry_run);
            let answer = Link::open(pool, &how.at)?.change(how, how.wait, "DELETE", &path, body)?;
            tell(answer, how.at.json, |_: &DriveView| format!("drive {drive} of {pool} stays\n"))
        }
        PoolCommand::Retire { pool, drive, cancel: false, how } => {
            let answer = change(pool, how, &format!("/v1/drives/{drive}/retire"), json!({}))?;
            tell(answer, how.at.json, |_: &DriveView| {
                ended(pool, how, &format!("drive {drive} of {pool} is being emptied"))
            })
        }
        PoolCommand::Set { pool, repair_share, how } => {
            let asked = json!({ "repair_share": repair_share });
            let answer = change(pool, how, "/v1/settings", asked)?;
            tell(answer, how.at.json, |set: &Settings| {
                format!("repair and sweeps of {pool} get {} % at least\n", set.repair_share)
            })
        }
        PoolCommand::Scrub { pool, how } => {
            let answer = change(pool, how, "/v1/scrub", json!({}))?;
            tell(answer, how.at.json, |_: &ScrubStarted| {
                ended(pool, how, &format!("{pool} is being scrubbed"))
            })
        }
        PoolCommand::Serve(args) => serve(args),
        PoolCommand::Status { pool, at } => {
            tell(Link::open(pool, at)?.look("/v1/pool")?, at.json, show::pool)
        }
        PoolCommand::Explain { pool, what, at } => explained(pool, what, at),
        PoolCommand::Operations { pool, id, at } => {
            let link = Link::open(pool, at)?;
            match id {
                Some(id) => {
                    let answer = link.look(&format!("/v1/operations/{id}"))?;
                    tell(answer, at.json, |view: &OperationView| {
                        show::operations(std::slice::from_ref(view))
                    })
                }
                None => tell(link.look("/v1/operations")?, at.json, |list: &OperationList| {
                    show::operations(&list.operations)
                }),
            }
        }
        PoolCommand::ExportConfig { pool, at } => {
            let answer = Link::open(pool, at)?.look("/v1/config")?;
            if at.json {
                return output::print(&format!("{answer:#}\n"));
            }
            output::print(&config::as_toml(answer)?)
        }
        PoolCommand::Openapi => output::print(&format!("{:#}\n", description())),
    }
}

/// Serves a pool until it is ended.
fn serve(args: &PoolServeArgs) -> Result {
    // Before anything is open: a signal that comes early ends it in order, too.
    let mut events = Waiting::new(args.time)?;
    let tell = &output::tell;
    let options = args.options(socket::default_path(&args.pool));
    options.workers.iter().for_each(|workers| host::note_threads(*workers));
    let pool = PoolService::start(&options, Arc::new(stack()), tell)?;
    output::print(pool.greeting())?;
    pool.run(&mut events, tell);
    Ok(pool.close()?)
}

fn placed(pool: &str, view: &DriveView) -> String {
    format!("{} is drive {} of {pool}", view.device.as_deref().unwrap_or("it"), view.drive)
}

/// The line that a change has begun, or has come to its end.
fn ended(pool: &str, how: &Change, what: &str) -> String {
    let has_waited = how.wait || !how.at.drives.is_empty();
    match has_waited {
        true => format!("done: {what}\n"),
        false => format!("{what}; esker pool operations {pool} shows how far it is\n"),
    }
}

/// A device in a request: found from any directory.
fn described(new: &NewDevice) -> Result<Value> {
    let device = new.device.for_reopening()?.to_string();
    Ok(json!({ "device": device, "overwrite": new.overwrite }))
}

/// Changes the members of a pool, or has it scrubbed. Work of a pool that this process opens ends with the process,
/// which waits for it.
fn change(pool: &str, how: &Change, path: &str, body: Value) -> Result<Value> {
    let body = rehearsed(body, how.dry_run);
    let wait = how.wait || path == "/v1/scrub" && !how.at.drives.is_empty();
    Link::open(pool, &how.at)?.change(how, wait, "POST", path, body)
}

fn explained(pool: &str, what: &Explained, at: &Where) -> Result {
    let link = Link::open(pool, at)?;
    if let Some(drive) = what.if_fails {
        let answer = link.look(&format!("/v1/drives/{drive}/if-failed"))?;
        return tell(answer, at.json, show::drive_loss);
    }
    if let Some((volume, snapshot)) = &what.if_deleted {
        let at_snapshot = snapshot.iter().map(|name| format!("/snapshots/{name}"));
        let path = format!("/v1/volumes/{volume}{}/if-deleted", at_snapshot.collect::<String>());
        return tell(link.look(&path)?, at.json, show::freed);
    }
    if let Some(volume) = &what.volume {
        let answer = link.look(&format!("/v1/volumes/{volume}/explain"))?;
        return tell(answer, at.json, show::explain);
    }
    tell(link.look("/v1/stats")?, at.json, show::stages)
}

/// The form of a pool's answers, which docs/api/pool.openapi.json describes.
pub(crate) const FORMAT: &str = "esker-pool/1";

/// Prints an answer of a pool, as JSON or for people.
pub(crate) fn tell<T: DeserializeOwned>(
    answer: Value,
    json: bool,
    shown: impl FnOnce(&T) -> String,
) -> Result {
    tell_as(FORMAT, answer, json, shown)
}

/// Prints an answer of a server, whose form is `format`.
pub(crate) fn tell_as<T: DeserializeOwned>(
    format: &str,
    answer: Value,
    json: bool,
    shown: impl FnOnce(&T) -> String,
) -> Result {
    if json {
        return output::document(format, answer);
    }
    if let Some(would) = answer.get("would").and_then(Value::as_str) {
        return output::print(&format!("would {would}; nothing was changed\n"));
    }
    let view = serde_json::from_value(answer)
        .map_err(|error| Failure::usage(format!("the answer is no such thing: {error}")))?;
    output::print(&shown(&view))
}

fn failed(error: VolumeError) -> Failure {
    let failure = Failure::new(error.kind(), &error);
    match error {
        VolumeError::Occupied { .. } | VolumeError::Member { .. } => failure.and("(--overwrite)"),
        _ => failure,
    }
}

fn open(specs: &[Spec], create: Create) -> Result<Vec<Arc<dyn Device>>> {
    let stack = stack();
    let open = |spec: &Spec| Ok(stack.open(spec, create)?.device);
    specs.iter().map(open).collect()
}

fn create(args: &PoolCreateArgs) -> Result {
    if let Some(path) = &args.config {
        return config::create(path, args);
    }
    let name = args.pool.clone().unwrap_or_default();
    if let Some(spec) = args.drives.iter().chain(&args.buffers).find(|spec| !spec.is_lasting()) {
        let why = "what it holds is gone when the command ends, and a pool is to be kept";
        return Err(Failure::usage(format!("{spec}: {why}; name a file or a block device")));
    }
    unmade::or_nothing(args.drives.iter().chain(&args.buffers), || make(args, &name))?;
    if args.dry_run {
        let would = format!("make pool {name} of {}", counted(to_u64(args.drives.len()), "drive"));
        return tell(as_json(&WouldView { dry_run: true, would })?, args.json, |_: &Value| {
            String::new()
        });
    }
    if args.json {
        let pool = stack().pool(&VolumeSpec::of_pool(&name, &args.drives, &args.buffers))?;
        let made = Served::new(Arc::new(stack()), pool).ask("/v1/config")?;
        return output::print(&format!("{made:#}\n"));
    }
    let names: Vec<String> = args.drives.iter().map(|spec| format!("'{spec}'")).collect();
    let mut text = format!(
        "pool {name}: {}, {}\nserve it: esker pool serve {name} --drives {}",
        counted(to_u64(args.drives.len()), "drive"),
        counted(args.parity.into(), "parity"),
        names.join(" ")
    );
    for buffer in &args.buffers {
        text.push_str(&format!(" --buffer '{buffer}'"));
    }
    output::print(&format!("{text}\n"))
}

/// Makes a pool, or finds out whether it could be made.
fn make(args: &PoolCreateArgs, name: &str) -> Result {
    let create = if args.dry_run { Create::Never } else { Create::IfMissing };
    let (drives, buffers) = (open(&args.drives, create)?, open(&args.buffers, create)?);
    let bytes = drives.iter().map(|drive| {
        let geometry = drive.geometry();
        geometry.capacity.bytes(geometry.lba_size)
    });
    let smallest = bytes.min().unwrap_or(0);
    let usual = CreateOptions::default();
    let options = CreateOptions {
        name: name.to_owned(),
        parity: args.parity,
        width: args.width,
        chunk_bytes: args.chunk.unwrap_or(usual.chunk_bytes),
        log_bytes: args.log.unwrap_or_else(|| CreateOptions::log_bytes_for(smallest)),
        spare_percent: args.spare.unwrap_or(usual.spare_percent),
        overwrite: args.overwrite,
        ..usual
    };
    if args.dry_run {
        return Pool::check_create(&drives, &buffers, &options).map_err(failed);
    }
    Pool::create(&drives, &buffers, &options).map_err(failed)
}

fn examine(specs: &[Spec], json: bool) -> Result {
    let devices = open(specs, Create::Never)?;
    let labels = devices.iter().map(|device| {
        let found = Pool::examine(&**device).map_err(failed)?;
        Ok(LabelView::new(device.name(), &found))
    });
    let labels = labels.collect::<Result<Vec<_>>>()?;
    match json {
        true => output::document(FORMAT, json!({ "labels": as_json(&labels)? })),
        false => output::print(&show::labels(&labels)),
    }
}

fn as_json(view: &impl Serialize) -> Result<Value> {
    serde_json::to_value(view).map_err(|error| Failure::usage(error.to_string()))
}

/// The body of a request that may be a rehearsal.
pub(crate) fn rehearsed(mut body: Value, dry_run: bool) -> Value {
    if dry_run {
        body["dry_run"] = json!(true);
    }
    body
}
