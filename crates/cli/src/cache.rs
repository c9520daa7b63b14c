//! `esker cache`: a flash device in front of an origin: made, looked at, changed, let go of.

use std::sync::Arc;

use esker_base::units::human_bytes;
use esker_cache::{Cache, CacheError, CreateOptions, Info, Mode, OpenOptions};
use esker_device::{Create, Device};
use esker_stack::{CacheParts, CacheSpec, Spec, Stack};

use crate::args::{CacheCommand, CacheDevices};
use crate::failure::{Failure, Result};
use crate::output;

/// Runs a command.
pub(crate) fn run(command: &CacheCommand) -> Result {
    match command {
        CacheCommand::Create { devices, mode, size, sets, run, map, overwrite } => {
            let spec =
                spec(devices, Some(mode), [("size", size), ("sets", sets), ("run", run)], map)?;
            create(spec, *overwrite)
        }
        CacheCommand::Info { flash, json } => {
            let info = Cache::inspect(&open(flash, Create::Never)?).map_err(failed)?;
            match json {
                true => output::print(&format!("{}\n", pretty(&info)?)),
                false => output::print(&shown(&info)),
            }
        }
        CacheCommand::Mode { flash, mode } => {
            let mode: Mode = mode.parse().map_err(invalid)?;
            Cache::change_mode(&open(flash, Create::Never)?, mode).map_err(failed)?;
            output::print(&format!("{flash}: {mode} from now on\n"))
        }
        CacheCommand::Resize { devices, size, anew } => {
            let CacheParts { origin, flash } = both(devices)?;
            match anew {
                true => Cache::remake(&origin, &flash, *size).map_err(failed)?,
                false => {
                    let geometry = flash.geometry();
                    let all = geometry.capacity.bytes(geometry.lba_size);
                    let options = OpenOptions::default();
                    let cache = Cache::open(origin, flash.clone(), options).map_err(failed)?;
                    cache.resize(size.unwrap_or(all)).map_err(not_resized)?;
                    cache.close().map_err(failed)?;
                }
            }
            output::print(&shown(&Cache::inspect(&flash).map_err(failed)?))
        }
        CacheCommand::Detach { devices } => {
            let CacheParts { origin, flash } = both(devices)?;
            let cache = Cache::open(origin, flash, OpenOptions::default()).map_err(failed)?;
            let dirty = cache.figures().dirty_blocks;
            cache.detach().map_err(failed)?;
            let written = human_bytes(dirty * 4096);
            let origin = &devices.origin;
            output::print(&format!("{written} written back; {origin} has everything\n"))
        }
    }
}

fn failed(error: CacheError) -> Failure {
    Failure::new(error.kind(), error.to_string())
}

fn not_resized(error: CacheError) -> Failure {
    match error {
        CacheError::NotInPlace { .. } => Failure::new(error.kind(), format!("{error} (--anew)")),
        error => failed(error),
    }
}

fn invalid(why: String) -> Failure {
    Failure::new(esker_base::ErrorKind::Invalid, why)
}

fn open(device: &str, create: Create) -> Result<Arc<dyn Device>> {
    Ok(Stack::new().open(&device.parse::<Spec>()?, create)?.device)
}

/// Origin and flash, which are there.
fn both(devices: &CacheDevices) -> Result<CacheParts> {
    let spec = spec(devices, None, [("size", &None), ("sets", &None), ("run", &None)], &None)?;
    Ok(Stack::new().cache_devices(&spec, Create::Never)?)
}

/// The specification that these arguments mean; it checks them all.
fn spec(
    devices: &CacheDevices,
    mode: Option<&String>,
    sizes: [(&str, &Option<String>); 3],
    map: &Option<String>,
) -> Result<CacheSpec> {
    let (origin, flash): (Spec, Spec) = (devices.origin.parse()?, devices.flash.parse()?);
    let mut text = format!("cache:({origin})?flash=({flash})");
    let more = sizes.into_iter().map(|(key, value)| (key, value.as_ref()));
    for (key, value) in more.chain([("mode", mode), ("map", map.as_ref())]) {
        if let Some(value) = value {
            text.push_str(&format!("&{key}={value}"));
        }
    }
    match text.parse()? {
        Spec::Cache(spec) => Ok(*spec),
        _ => unreachable!("it begins with cache:"),
    }
}

fn create(spec: CacheSpec, overwrite: bool) -> Result {
    let CacheParts { origin, flash } = Stack::new().cache_devices(&spec, Create::IfMissing)?;
    let options = CreateOptions { overwrite, ..spec.create_options() };
    Cache::create(&*origin, &flash, &options).map_err(failed)?;
    let device = Spec::Cache(Box::new(CacheSpec {
        origin: spec.origin.for_reopening()?,
        flash: spec.flash.for_reopening()?,
        mode: None,
        size: None,
        sets: None,
        run: None,
        map: None,
        ..spec
    }));
    let info = Cache::inspect(&flash).map_err(failed)?;
    output::print(&format!("{}as a device: '{device}'\n", shown(&info)))
}

fn pretty(info: &Info) -> Result<String> {
    serde_json::to_string_pretty(info).map_err(|error| invalid(error.to_string()))
}

fn shown(info: &Info) -> String {
    let Info { mode, sets, mapping, .. } = info;
    let attached = if info.is_detached { "detached" } else { "attached" };
    format!(
        "{mode}, {attached}\n\
         origin      {}\n\
         flash       {}, of which {} for blocks\n\
         sets        {sets} of {}, runs of {}, {mapping}\n\
         dirty       {}\n\
         lasting     {}\n",
        human_bytes(info.origin_bytes),
        human_bytes(info.flash_bytes),
        human_bytes(info.capacity_bytes),
        human_bytes(info.set_bytes),
        human_bytes(info.run_bytes),
        human_bytes(info.dirty_blocks * 4096),
        human_bytes(info.named_blocks * 4096),
    )
}
