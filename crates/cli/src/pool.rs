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

use crate::args::{PoolCommand, PoolCreateArgs};
use crate::failure::{Failure, Result};
use crate::output;
use link::Link;
use view::LabelView;

/// Runs a command.
pub(crate) fn run(command: &PoolCommand) -> Result {
    match command {
        PoolCommand::Create(args) => create(args),
        PoolCommand::Examine { devices, json } => examine(devices, *json),
        PoolCommand::Serve(args) => serve::serve(args),
        PoolCommand::Status { pool, at } => {
            let answer = Link::open(pool, at)?.ask("GET", "/v1/pool", Value::Null)?;
            tell(answer, at.json, show::pool)
        }
    }
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
