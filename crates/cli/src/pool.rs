//! `esker pool`: pools of drives, made, looked at and served.
//!
//! | module | what |
//! | --- | --- |
//! | `routes` | what can be asked of an open pool |
//! | `view` | what it tells, as JSON |
//! | `show` | the same as tables |
//! | `link`, `socket` | the way to a pool: in this process, or over HTTP at a socket |
//! | `export` | volumes over NVMe/TCP |
//! | `serve` | the process that owns a pool |

mod export;
pub(crate) mod link;
pub(crate) mod routes;
mod serve;
pub(crate) mod show;
mod socket;
pub(crate) mod view;

use std::sync::Arc;

use esker_device::{Create, Device};
use esker_stack::{Spec, Stack};
use esker_volume::{CreateOptions, Pool, VolumeError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::args::{Change, NewDevice, PoolCommand, PoolCreateArgs};
use crate::failure::{Failure, Result};
use crate::output;
use link::Link;
use view::{LabelView, PoolView};

/// Runs a command.
pub(crate) fn run(command: &PoolCommand) -> Result {
    match command {
        PoolCommand::Create(args) => create(args),
        PoolCommand::Examine { devices, json } => examine(devices, *json),
        PoolCommand::Add { pool, device, as_buffer, how } => {
            let mut body = described(device)?;
            body["buffer"] = json!(as_buffer);
            change(pool, how, "/v1/drives", body, None::<fn(&PoolView) -> bool>)
        }
        PoolCommand::Replace { pool, drive, device, wait, how } => {
            let path = format!("/v1/drives/{drive}/replace");
            change(pool, how, &path, described(device)?, wait.then_some(is_retired(*drive)))
        }
        PoolCommand::Retire { pool, drive, wait, how } => {
            let path = format!("/v1/drives/{drive}/retire");
            change(pool, how, &path, json!({}), wait.then_some(is_retired(*drive)))
        }
        PoolCommand::Scrub { pool, wait, how } => {
            // A scrub ends with the process.
            let wait = *wait || !how.at.drives.is_empty();
            let is_done = |view: &PoolView| view.scrub.as_ref().is_none_or(|it| !it.is_running);
            change(pool, how, "/v1/scrub", json!({}), wait.then_some(is_done))
        }
        PoolCommand::Serve(args) => serve::serve(args),
        PoolCommand::Status { pool, at } => {
            let answer = Link::open(pool, at)?.ask("GET", "/v1/pool", Value::Null)?;
            tell(answer, at.json, show::pool)
        }
    }
}

/// Whether a drive has nothing any more, and no segment lacks a chunk that can be rebuilt.
fn is_retired(drive: u16) -> impl Fn(&PoolView) -> bool {
    move |view| {
        let mut members = view.members.iter();
        let is_whole = view.segments[1..].iter().sum::<u64>() <= view.beyond_repair;
        is_whole && members.any(|one| one.index == drive && one.state == "retired")
    }
}

/// A device in a request: found from any directory.
fn described(new: &NewDevice) -> Result<Value> {
    let device = new.device.for_reopening()?.to_string();
    Ok(json!({ "device": device, "overwrite": new.overwrite }))
}

/// Changes the members of a pool, or has it scrubbed.
fn change(
    pool: &str,
    how: &Change,
    path: &str,
    body: Value,
    is_done: Option<impl Fn(&PoolView) -> bool>,
) -> Result {
    let body = rehearsed(body, how.dry_run);
    let is_done = is_done.filter(|_| !how.dry_run);
    let waited = is_done.is_some();
    let answer = Link::open(pool, &how.at)?.ask_and_wait("POST", path, body, is_done)?;
    tell(answer, how.at.json, |view: &Value| {
        let what = match (view["drive"].as_u64(), view["device"].as_str()) {
            (Some(drive), Some(device)) => format!("{device} is drive {drive} of {pool}"),
            (Some(drive), None) => format!("drive {drive} of {pool} is being emptied"),
            _ => format!("{pool} is being scrubbed"),
        };
        let state = if waited { "done: " } else { "" };
        format!("{state}{what}; esker pool status {pool} shows it\n")
    })
}

/// Prints an answer, as JSON or for people.
pub(crate) fn tell<T: DeserializeOwned>(
    answer: Value,
    json: bool,
    shown: impl FnOnce(&T) -> String,
) -> Result {
    if json {
        return output::print(&format!("{answer:#}\n"));
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
    let stack = Stack::new();
    let open = |spec: &Spec| Ok(stack.open(spec, create)?.device);
    specs.iter().map(open).collect()
}

fn create(args: &PoolCreateArgs) -> Result {
    if let Some(spec) = args.drives.iter().chain(&args.buffers).find(|spec| !spec.is_lasting()) {
        let why = "what it holds is gone when the command ends, and a pool is to be kept";
        return Err(Failure::usage(format!("{spec}: {why}; name a file or a block device")));
    }
    let usual = CreateOptions::default();
    let options = CreateOptions {
        name: args.pool.clone(),
        parity: args.parity,
        width: args.width,
        chunk_bytes: args.chunk.unwrap_or(usual.chunk_bytes),
        log_bytes: args.log.unwrap_or(usual.log_bytes),
        spare_percent: args.spare.unwrap_or(usual.spare_percent),
        overwrite: args.overwrite,
        ..usual
    };
    let create = if args.dry_run { Create::Never } else { Create::IfMissing };
    let (drives, buffers) = (open(&args.drives, create)?, open(&args.buffers, create)?);
    if args.dry_run {
        Pool::check_create(&drives, &buffers, &options).map_err(failed)?;
        let what = format!("make pool {} of {} drives", args.pool, drives.len());
        return output::print(&format!("would {what}; nothing was changed\n"));
    }
    Pool::create(&drives, &buffers, &options).map_err(failed)?;
    let names: Vec<String> = args.drives.iter().map(|spec| format!("'{spec}'")).collect();
    let mut text = format!(
        "pool {}: {} drives, {} parities\nstatus: esker pool status {} --drives {}",
        args.pool,
        drives.len(),
        args.parity,
        args.pool,
        names.join(" ")
    );
    for buffer in &args.buffers {
        text.push_str(&format!(" --buffer '{buffer}'"));
    }
    output::print(&format!("{text}\n"))
}

fn examine(specs: &[Spec], json: bool) -> Result {
    let devices = open(specs, Create::Never)?;
    let labels = devices.iter().map(|device| {
        let found = Pool::examine(&**device).map_err(failed)?;
        Ok(LabelView::new(device.name(), &found))
    });
    let labels = labels.collect::<Result<Vec<_>>>()?;
    match json {
        true => output::print(&format!("{:#}\n", as_json(&labels)?)),
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
