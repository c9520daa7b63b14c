//! A pool like another one: `esker pool export-config` prints it, and `esker pool create --config` makes it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use esker_base::units::{counted, to_u64};
use esker_device::Create;
use esker_serve::pool::Served;
use esker_serve::pool::answer::{ConfigView, VolumeConfig};
use esker_serve::requests::answer::WouldView;
use esker_stack::{Spec, VolumeSpec};
use esker_volume::{CreateOptions, Pool};
use serde_json::{Value, json};

use super::link::stack;
use super::{as_json, failed, open, tell};
use crate::args::PoolCreateArgs;
use crate::failure::{Failure, Result};
use crate::output;
use crate::unmade;

/// A configuration as TOML.
pub(super) fn as_toml(answer: Value) -> Result<String> {
    let no = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("the answer is no configuration: {error}"))
    };
    let view: ConfigView = serde_json::from_value(answer).map_err(|error| no(&error))?;
    toml::to_string(&view).map_err(|error| no(&error))
}

fn read(path: &Path) -> Result<ConfigView> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::file(path, &error, "check the path and its permissions"))?;
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("{}: {error}", path.display()).trim_end())
    };
    match text.trim_start().starts_with('{') {
        true => serde_json::from_str(&text)
            .and_then(serde_json::from_value)
            .map_err(|error| wrong(&error)),
        false => toml::from_str(&text).map_err(|error| wrong(&error)),
    }
}

/// Makes a pool, its volumes, and lets the same hosts use them.
pub(super) fn create(path: &Path, args: &PoolCreateArgs) -> Result {
    let view = read(path)?;
    let specs = |texts: &[String]| -> Result<Vec<Spec>> {
        texts.iter().map(|text| Ok(text.parse::<Spec>()?)).collect()
    };
    let (drives, buffers) = (specs(&view.drives)?, specs(&view.buffers)?);
    let options = CreateOptions {
        name: view.pool.clone(),
        parity: view.parity,
        width: view.width,
        chunk_bytes: view.chunk_bytes,
        log_bytes: view.log_bytes,
        spare_percent: view.spare_percent,
        overwrite: args.overwrite,
        ..CreateOptions::default()
    };
    let what = format!(
        "pool {} of {} and {}",
        view.pool,
        counted(to_u64(drives.len()), "drive"),
        counted(to_u64(view.volumes.len()), "volume")
    );
    let make_drives = || {
        let create = if args.dry_run { Create::Never } else { Create::IfMissing };
        let (drives, buffers) = (open(&drives, create)?, open(&buffers, create)?);
        let made = match args.dry_run {
            true => Pool::check_create(&drives, &buffers, &options),
            false => Pool::create(&drives, &buffers, &options),
        };
        made.map_err(failed)
    };
    unmade::or_nothing(drives.iter().chain(&buffers), make_drives)?;
    if args.dry_run {
        let would = WouldView { dry_run: true, would: format!("make {what}") };
        return tell(as_json(&would)?, args.json, |_: &Value| String::new());
    }
    let stack = Arc::new(stack());
    let pool = stack.pool(&VolumeSpec::of_pool(&view.pool, &drives, &buffers))?;
    let served = Served::new(stack, pool);
    let made = view.volumes.iter().try_for_each(|volume| make(&served, volume));
    let answer = served.ask("/v1/config");
    made?;
    match args.json {
        true => output::print(&format!("{:#}\n", answer?)),
        false => {
            answer?;
            output::print(&format!("{what}\n"))
        }
    }
}

fn make(served: &Served, volume: &VolumeConfig) -> Result {
    let VolumeConfig { name, bytes, compression, iops_limit, bytes_limit, hosts } = volume;
    let body = json!({
        "name": name,
        "bytes": bytes,
        "compression": compression,
        "iops_limit": iops_limit,
        "bytes_limit": bytes_limit,
    });
    served.run("POST", "/v1/volumes", None, body)?;
    if hosts.is_empty() {
        return Ok(());
    }
    // A snapshot is not made again, nor let to anybody.
    let hosts: Vec<_> = hosts.iter().filter(|host| host.snapshot.is_none()).collect();
    let path = format!("/v1/volumes/{name}");
    served.run("PATCH", &path, None, json!({ "hosts": hosts }))?;
    Ok(())
}
