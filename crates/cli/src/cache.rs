//! `esker cache`: a flash device in front of an origin: made, looked at, changed, let go of.

use std::sync::Arc;

use esker_base::units::human_bytes;
use esker_cache::{Cache, CacheError, CreateOptions, Dirty, Info, Mode, OpenOptions};
use esker_device::{Create, Device};
use esker_stack::{CacheParts, CacheSpec, Spec};

use crate::args::{CacheCommand, CacheDevices};
use crate::failure::{Failure, Result};
use crate::output;
use crate::pool::link::stack;

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
        CacheCommand::Accept { devices, dirty } => accept(devices, dirty.as_deref()),
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

/// Says the consequences for a cache whose origin is to be another, and carries them out.
fn accept(devices: &CacheDevices, dirty: Option<&str>) -> Result {
    let chosen = match dirty {
        None => None,
        Some("keep") => Some(Dirty::Keep),
        Some("drop") => Some(Dirty::Drop),
        Some(other) => {
            let why = "what becomes of dirty blocks is keep or drop";
            return Err(invalid(format!("'{other}': {why}")));
        }
    };
    let CacheParts { origin, flash } = both(devices)?;
    let pair = Cache::pairing(&*origin, &flash).map_err(failed)?;
    if pair.is_right() {
        return output::print(&format!("{pair}: there is nothing to accept\n"));
    }
    let name = origin.name();
    let dirty = human_bytes(pair.dirty_blocks * 4096);
    let keep = format!("{dirty} are kept, and go over what {name} holds there when written back");
    let drop = format!("{dirty} are dropped, and lost; {name} stays as it is");
    let dirty_blocks = match (pair.dirty_blocks, chosen) {
        (0, _) => "dirty blocks: there are none".to_owned(),
        (_, Some(Dirty::Keep)) => format!("dirty blocks: {keep}"),
        (_, Some(Dirty::Drop)) => format!("dirty blocks: {drop}"),
        (_, None) => {
            format!(
                "dirty blocks, with --dirty keep: {keep}\ndirty blocks, with --dirty drop: {drop}"
            )
        }
    };
    let clean = human_bytes(pair.clean_blocks * 4096);
    output::print(&format!(
        "{pair}\nclean blocks: {clean} are forgotten, and read from {name} anew\n{dirty_blocks}\n"
    ))?;
    if pair.dirty_blocks > 0 && chosen.is_none() {
        let why = "nothing was changed: say with --dirty keep or --dirty drop what becomes of dirty blocks";
        return Err(invalid(why.to_owned()));
    }
    Cache::accept(&*origin, &flash, chosen.unwrap_or(Dirty::Keep)).map_err(failed)?;
    output::print(&format!("done: {name} is the origin of the cache on {}\n", flash.name()))
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
    Ok(stack().open(&device.parse::<Spec>()?, create)?.device)
}

/// Origin and flash, which are there.
fn both(devices: &CacheDevices) -> Result<CacheParts> {
    let spec = spec(devices, None, [("size", &None), ("sets", &None), ("run", &None)], &None)?;
    Ok(stack().cache_devices(&spec, Create::Never)?)
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
    let CacheParts { origin, flash } = stack().cache_devices(&spec, Create::IfMissing)?;
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
    let known = info.origin.as_deref().unwrap_or("of no known identity");
    let attached = if info.is_detached { "detached" } else { "attached" };
    format!(
        "{mode}, {attached}\n\
         origin      {}: {known}\n\
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
