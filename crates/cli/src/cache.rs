//! `esker cache`: a flash device in front of an origin: made, looked at, changed, let go of.

use std::sync::Arc;
use std::time::Duration;

use esker_base::ErrorKind;
use esker_base::units::human_bytes;
use esker_cache::{Cache, CacheError, CreateOptions, Dirty, Info, Mode, OpenOptions};
use esker_device::{Create, Device};
use esker_serve::caches::{self, CacheChange, CacheView, InUse};
use esker_stack::served::{self, NoAnswer};
use esker_stack::{CacheParts, CacheSpec, Spec};
use serde_json::Value;

use crate::args::{CacheCommand, CacheDevices};
use crate::failure::{Failure, Result};
use crate::output;
use crate::pool::link::stack;
use crate::pool::socket;
use crate::unmade;

/// Runs a command.
pub(crate) fn run(command: &CacheCommand) -> Result {
    match command {
        CacheCommand::Create { devices, mode, size, sets, run, map, overwrite } => {
            let spec =
                spec(devices, Some(mode), [("size", size), ("sets", sets), ("run", run)], map)?;
            create(spec, *overwrite)
        }
        CacheCommand::Info { flash, json } => info(&flash.parse()?, *json),
        CacheCommand::Mode { flash, mode } => {
            let mode: Mode = mode.parse().map_err(invalid)?;
            let change = CacheChange { mode: Some(mode), ..CacheChange::default() };
            if changed(&flash.parse()?, &change)?.is_none() {
                Cache::change_mode(&open(flash, Create::Never)?, mode).map_err(failed)?;
            }
            output::print(&format!("{flash}: {mode} from now on\n"))
        }
        CacheCommand::Set { flash, dirty, dirty_age, name_age } => {
            let ms = |age: &Option<Duration>| {
                age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
            };
            let change = CacheChange {
                mode: None,
                dirty_percent: *dirty,
                dirty_age_ms: ms(dirty_age),
                name_age_ms: ms(name_age),
            };
            let view = changed(&flash.parse()?, &change)?.ok_or_else(|| {
                let why = "no process has this cache open; say bounds in its specification when it is opened, such as \
                           dirty=50&dirty-age=10s";
                Failure::new(ErrorKind::NotFound, format!("{flash}: {why}"))
            })?;
            output::print(&in_use(&view.in_use))
        }
        CacheCommand::Flush { flash } => {
            let spec = flash.parse()?;
            let answer = ask(&spec, "POST", "/v1/cache/flush", &Value::Null)?;
            let Some(answer) = answer else {
                let why = "no process has this cache open; `esker cache detach ORIGIN FLASH` writes everything back";
                return Err(Failure::new(ErrorKind::NotFound, format!("{flash}: {why}")));
            };
            let blocks = answer["written_back_blocks"].as_u64().unwrap_or(0);
            output::print(&format!("{flash}: {} written back\n", human_bytes(blocks * 4096)))
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
        CacheCommand::Detach { devices, dirty: Some(_) } => abandon(devices),
        CacheCommand::Detach { devices, dirty: None } => {
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

/// Asks the process that has the cache on this flash device open; nothing when there is none.
fn ask(flash: &Spec, method: &str, url: &str, body: &Value) -> Result<Option<Value>> {
    let Some(path) = caches::path(&socket::directory(), flash) else { return Ok(None) };
    match served::ask(&path, method, url, None, body, socket::patience()) {
        Ok(answer) => Ok(Some(answer)),
        Err(NoAnswer::Absent(_)) => Ok(None),
        Err(error) => Err(Failure::new(error.kind(), error)),
    }
}

/// An answer as what it stands for.
fn view(answer: Value) -> Result<CacheView> {
    serde_json::from_value(answer).map_err(|error| {
        Failure::new(ErrorKind::Unsupported, format!("the answer is of another version: {error}"))
    })
}

/// Shows a cache, as the process that has it open or the flash device knows it.
fn info(flash: &Spec, json: bool) -> Result {
    let (value, text) = match ask(flash, "GET", "/v1/cache", &Value::Null)? {
        Some(answer) => {
            let view = view(answer.clone())?;
            (answer, format!("{}{}", shown(&view.info), in_use(&view.in_use)))
        }
        None => {
            let flash = stack().open(flash, Create::Never)?.device;
            let info = Cache::inspect(&flash).map_err(failed)?;
            (serde_json::json!(info), shown(&info))
        }
    };
    match json {
        true => output::document("esker-cache-info/1", value),
        false => output::print(&text),
    }
}

/// Changes a cache in use; nothing when no process has it open.
fn changed(flash: &Spec, change: &CacheChange) -> Result<Option<CacheView>> {
    ask(flash, "PATCH", "/v1/cache", &serde_json::json!(change))?.map(view).transpose()
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

/// Detaches a cache without writing back, also one whose flash device was wiped, is damaged or gone.
fn abandon(devices: &CacheDevices) -> Result {
    let CacheDevices { origin: origin_name, flash: flash_name } = devices;
    let origin = open(origin_name, Create::Never)?;
    let outcome = match stack().open(&flash_name.parse()?, Create::Never) {
        Ok(flash) => Cache::abandon(&*origin, &flash.device),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return output::print(&format!(
                "{flash_name}: it is not there; check the path. {LOST}. If it comes back, do not use it with {origin_name} \
                 before this command has said that it is detached.\n{}",
                alone(origin_name)
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let lost = match outcome {
        Ok(Some(0)) => format!("nothing was dirty, and nothing is lost; {flash_name} is detached"),
        Ok(Some(blocks)) => {
            format!("{} dropped, and lost; {flash_name} is detached", human_bytes(blocks * 4096))
        }
        Ok(None) => {
            format!(
                "its journal is damaged and does not tell how much is dropped. {LOST}; {flash_name} is detached"
            )
        }
        Err(CacheError::NoCache { device, .. }) => {
            format!("{device}: there is no cache on it. {LOST}")
        }
        Err(error) => return Err(failed(error)),
    };
    output::print(&format!("{lost}\n{}", alone(origin_name)))
}

/// The loss when no flash device tells it.
const LOST: &str = "If the cache was in write-back mode, what was not written back is lost: writes of the last 30 s, \
                    or of a longer dirty-age, and of longer if the origin was slow";

/// How an origin is used after a loss.
fn alone(origin: &str) -> String {
    format!(
        "{origin} has the rest, and stays as it is: check the file system on it, and use it alone, by its own \
         specification in place of `cache:`\n"
    )
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
    Failure::new(ErrorKind::Invalid, why)
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
    let flash = unmade::or_nothing([&spec.origin, &spec.flash], || make(&spec, overwrite))?;
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

/// Makes the cache, and returns its flash device.
fn make(spec: &CacheSpec, overwrite: bool) -> Result<Arc<dyn Device>> {
    let CacheParts { origin, flash } = stack().cache_devices(spec, Create::IfMissing)?;
    let options = CreateOptions { overwrite, ..spec.create_options() };
    Cache::create(&*origin, &flash, &options).map_err(failed)?;
    Ok(flash)
}

fn in_use(it: &InUse) -> String {
    let age = |ms: u64| match ms {
        0 => "any time".to_owned(),
        ms => format!("{:?}", Duration::from_millis(ms)),
    };
    format!(
        "in use      by process {}: at most {} % of a set dirty, for {}; named within {}\n",
        it.process,
        it.dirty_percent,
        age(it.dirty_age_ms),
        age(it.name_age_ms)
    )
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
