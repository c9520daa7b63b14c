//! `esker kv`: databases at the prompt.

mod compact;
mod copies;
pub(crate) mod lines;
mod screen;
mod transfer;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use data_encoding::HEXLOWER;
use esker_base::ErrorKind;
use esker_base::units::{counted, human_bytes, to_u64};
use esker_kv::{
    CompactRequest, Compression, KvError, Kvdb, Kvs, KvsOptions, MediaClass, Options, Policy,
    VALUE_MAX,
};
use esker_stack::Spec;

use crate::args::{CopyArgs, Escaped, KvCommand, Medium, Opening, engine_options};
use crate::failure::{Failure, Result};
use crate::media::{Devices, Media};
use crate::progress::Watch;
use crate::{output, place};

/// The exit code when a key is absent.
const ABSENT: u8 = 1;

/// Runs a command.
pub(crate) fn run(command: &KvCommand) -> Result {
    match command {
        KvCommand::Create { opening, staging, capacity, kvs, compression } => {
            let mut names: Vec<&str> = Vec::new();
            for (name, _) in kvs {
                if names.contains(&name.as_str()) {
                    return Err(Failure::usage(format!("--kvs {name} comes twice; name it once")));
                }
                names.push(name);
            }
            let media = Media::new(staging, capacity.as_ref());
            let devices = place::create_with(&opening.dir, &media, engine(opening), |db| {
                place::warn_of_remarks(db);
                kvs.iter().try_for_each(|(name, policy)| {
                    db.create_kvs(name, options(*policy, *compression)).map(drop)
                })
            })?;
            let (dir, names) = (opening.dir.display(), names.join(", "));
            let on = devices.introduction();
            output::print(&format!("created {dir} with KVS {names}\n{on}"))
        }
        KvCommand::Info { opening, json } => info(opening, *json),
        KvCommand::Put { opening, kvs, key, value, escaped } => {
            let value = match value.as_bytes() {
                b"-" => value_from(io::stdin().lock())?,
                _ => argument(value, escaped)?,
            };
            let key = argument(key, escaped)?;
            with_kvs(opening, kvs, |_, kvs| Ok(kvs.put(&key, &value)?))
        }
        KvCommand::Get { opening, kvs, key, hex, escaped } => {
            let key = argument(key, escaped)?;
            reading_kvs(opening, kvs, |kvs| get(kvs, &key, *hex))
        }
        KvCommand::Delete { opening, kvs, key, escaped } => {
            let key = argument(key, escaped)?;
            with_kvs(opening, kvs, |_, kvs| Ok(kvs.delete(&key)?))
        }
        KvCommand::DeletePrefix { opening, kvs, prefix, escaped } => {
            let prefix = argument(prefix, escaped)?;
            with_kvs(opening, kvs, |_, kvs| Ok(kvs.delete_prefix(&prefix)?))
        }
        KvCommand::DeleteRange { opening, kvs, from, to, escaped } => {
            let bound = |key: &Option<std::ffi::OsString>, bound: fn(Vec<u8>) -> Bound<Vec<u8>>| {
                let key = key.as_deref().map(|key| argument(key, escaped)).transpose()?;
                Ok::<_, Failure>(key.map_or(Bound::Unbounded, bound))
            };
            let range = (bound(from, Bound::Included)?, bound(to, Bound::Excluded)?);
            with_kvs(opening, kvs, |_, kvs| Ok(kvs.delete_range(range)?))
        }
        KvCommand::Scan { opening, kvs, range, escaped } => {
            let bound = |key: &Option<std::ffi::OsString>| {
                key.as_deref().map(|key| argument(key, escaped)).transpose()
            };
            let range = transfer::Range {
                from: bound(&range.from)?,
                to: bound(&range.to)?,
                prefix: bound(&range.prefix)?.unwrap_or_default(),
                reverse: range.reverse,
                limit: range.limit.unwrap_or(u64::MAX),
                keys_only: range.keys,
            };
            reading_kvs(opening, kvs, |kvs| {
                let mut out = io::BufWriter::new(io::stdout().lock());
                range.write(kvs.cursor()?, &mut out, Failure::from)?;
                Ok(out.flush()?)
            })
        }
        KvCommand::Load { opening, kvs, file } => {
            let (mut input, bytes) = transfer::input(file)?;
            with_db(opening, |db| {
                let named = |name: &String| match Path::new(name).is_file() {
                    true => find_or(db, opening, name, &file_alone("load", opening, '<', name)),
                    false => find(db, opening, name),
                };
                let kvs = kvs.as_ref().map(named).transpose()?;
                transfer::load(db, kvs.as_ref(), &mut input, (file, bytes))
            })
        }
        KvCommand::Dump { opening, damage, kvs, file } => reading(opening, |db| {
            let names = kvs.as_ref().map_or_else(|| db.kvs_names(), |name| vec![name.clone()]);
            let kvss = names.iter().map(|name| match output::is_dash(file) {
                true => find_or(db, opening, name, &file_alone("dump", opening, '>', name)),
                false => find(db, opening, name),
            });
            transfer::dump(db, &kvss.collect::<Result<Vec<_>>>()?, file, damage.skip_corrupted)
        }),
        KvCommand::Check { dir, json } => check(dir, *json),
        KvCommand::Backup { opening, to, copy, damage, json } if damage.skip_corrupted => {
            copies::back_up_sound(&opening.dir, &copy.target(to), engine(opening), *json)
        }
        KvCommand::Backup { opening, to, copy, json, .. } => {
            copies::back_up(&opening.dir, &copy.target(to), reader(opening), *json)
        }
        KvCommand::Repair { opening, to, copy, old_staging, old_capacity, json } => {
            let classes = [MediaClass::Staging, MediaClass::Capacity];
            let old = classes.into_iter().zip([old_staging, old_capacity]);
            let old = old.filter_map(|(class, place)| Some((class, place.as_ref()?))).collect();
            copies::repair(&opening.dir, &old, &copy.target(to), engine(opening), *json)
        }
        KvCommand::CreateKvs { opening, name, policy, compression, ttl } => {
            let options = options(*policy, *compression).ttl_ms(ttl_ms(*ttl));
            with_db(opening, |db| {
                db.create_kvs(name, options)?;
                let ttl = ttl.map_or_else(String::new, |_| format!(", {}", lives(*ttl)));
                output::print(&format!(
                    "created KVS {name}, policy {policy}, compression {compression}{ttl}\n"
                ))
            })
        }
        KvCommand::SetTtl { opening, kvs, ttl } => with_kvs(opening, kvs, |_, kvs| {
            kvs.set_ttl_ms(ttl_ms(*ttl))?;
            output::print(&format!("KVS {}, {}\n", kvs.name(), lives(*ttl)))
        }),
        KvCommand::SetPolicy { opening, kvs, policy } => with_kvs(opening, kvs, |_, kvs| {
            kvs.set_policy(*policy)?;
            output::print(&format!("KVS {}, policy {policy}\n", kvs.name()))
        }),
        KvCommand::SetCompression { opening, kvs, compression } => {
            with_kvs(opening, kvs, |_, kvs| {
                kvs.set_compression(*compression)?;
                output::print(&format!("KVS {}, compression {compression}\n", kvs.name()))
            })
        }
        KvCommand::DropKvs { opening, name } => with_db(opening, |db| {
            db.drop_kvs(find(db, opening, name)?.name())?;
            output::print(&format!("dropped KVS {name}\n"))
        }),
        KvCommand::Compact { opening, goal, scrub } => {
            let request = match goal {
                _ if *scrub => CompactRequest::Scrub,
                Some(goal) => CompactRequest::SpaceAmplification(*goal),
                None => CompactRequest::Full,
            };
            with_db(opening, |db| compact::compact(db, request))
        }
        KvCommand::RemoveStaging { opening } => with_db(opening, compact::remove_staging),
        KvCommand::Upgrade { opening } => with_db(opening, |db| {
            let (dir, before) = (opening.dir.display(), db.upgrade()?);
            let version = db.format_version();
            output::print(&match before == version {
                true => format!("{dir}: it has version {version} of the format already\n"),
                false => {
                    format!("{dir}: upgraded from version {before} of the format to {version}\n")
                }
            })
        }),
        KvCommand::AddStaging { opening, device } => with_db(opening, |db| {
            match device {
                None => db.add_staging(&esker_kv::Medium::InDir)?,
                Some(Medium::Path(path)) => {
                    db.add_staging(&esker_kv::Medium::Path(path.clone()))?
                }
                Some(Medium::Device(spec)) => add_staging(db, spec)?,
            }
            place::warn_of_remarks(db);
            let staging =
                db.stats().classes.into_iter().find(|class| class.class == MediaClass::Staging);
            let device = staging.map_or_else(String::new, |class| class.device);
            output::print(&format!("staging class: {device}\n"))
        }),
    }
}

fn options(policy: Policy, compression: Compression) -> KvsOptions {
    KvsOptions::from(policy).compression(compression)
}

fn ttl_ms(ttl: Option<Duration>) -> Option<u64> {
    ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// A time to live, in words.
fn lives(ttl: Option<Duration>) -> String {
    ttl.map_or_else(|| "no time to live".into(), |ttl| format!("time to live {ttl:?}"))
}

impl CopyArgs {
    fn target<'a>(&'a self, dir: &'a Path) -> copies::Target<'a> {
        copies::Target { dir, staging: self.staging.as_ref(), capacity: self.capacity.as_ref() }
    }
}

fn engine(opening: &Opening) -> Options {
    engine_options(opening.memory, opening.durability_ms, None)
}

/// Opens, works, and closes, so that all writes are durable and the next open has nothing to
/// replay. When the work fails, its writes before the failure are durable as well.
fn with_db(opening: &Opening, work: impl FnOnce(&Kvdb) -> Result) -> Result {
    let (db, _devices) = place::open_in(&opening.dir, engine(opening))?;
    let outcome = work(&db);
    let closed = db.close();
    outcome?;
    Ok(closed?)
}

/// To open to read only: others may do so at the same time.
fn reader(opening: &Opening) -> Options {
    engine(opening).with(|set| set.read_only = true)
}

fn reading(opening: &Opening, work: impl FnOnce(&Kvdb) -> Result) -> Result {
    let (db, _devices) = place::open_in(&opening.dir, reader(opening))?;
    work(&db)
}

fn reading_kvs(opening: &Opening, name: &str, work: impl FnOnce(&Kvs) -> Result) -> Result {
    reading(opening, |db| work(&find(db, opening, name)?))
}

fn with_kvs(opening: &Opening, name: &str, work: impl FnOnce(&Kvdb, &Kvs) -> Result) -> Result {
    with_db(opening, |db| work(db, &find(db, opening, name)?))
}

/// The KVS of this name, or which ones there are.
fn find(db: &Kvdb, opening: &Opening, name: &str) -> Result<Kvs> {
    let dir = opening.dir.display();
    find_or(db, opening, name, &format!("create it with `esker kv create-kvs {dir} {name}`"))
}

fn find_or(db: &Kvdb, opening: &Opening, name: &str, advice: &str) -> Result<Kvs> {
    match db.kvs(name) {
        Err(error @ KvError::UnknownKvs(_)) => {
            let (dir, names) = (opening.dir.display(), db.kvs_names().join(", "));
            let has = if names.is_empty() { "none".to_owned() } else { names };
            let message = format!("{dir}: there is no KVS '{name}', only: {has}; {advice}");
            Err(Failure::new(error.kind(), message))
        }
        found => Ok(found?),
    }
}

/// The remedy when the name of a file was given alone, in the place of a KVS.
fn file_alone(verb: &str, opening: &Opening, redirection: char, file: &str) -> String {
    let dir = opening.dir.display();
    format!(
        "a file comes after the KVS, or for all of them: `esker kv {verb} {dir} {redirection} {file}`"
    )
}

/// The bytes of an argument.
fn argument(text: &OsStr, escaped: &Escaped) -> Result<Vec<u8>> {
    let bytes = text.as_bytes();
    if !escaped.escaped {
        return Ok(bytes.to_vec());
    }
    lines::unescaped(bytes)
        .map_err(|why| Failure::usage(format!("'{}': {why}", bytes.escape_ascii())))
}

fn value_from(input: impl Read) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let limit = to_u64(VALUE_MAX);
    input.take(limit + 1).read_to_end(&mut value).map_err(|error| {
        let kind = ErrorKind::from(&error);
        Failure::new(kind, format!("standard input could not be read: {error}"))
    })?;
    if value.len() > VALUE_MAX {
        return Err(Failure::usage(format!(
            "standard input holds more than a value can: at most {limit} bytes (1 MiB); split it \
             over several keys"
        )));
    }
    Ok(value)
}

fn get(kvs: &Kvs, key: &[u8], hex: bool) -> Result {
    let Some(value) = kvs.get(key)? else {
        return Err(Failure::coded(
            ABSENT,
            format!("no key '{}' in KVS '{}'", key.escape_ascii(), kvs.name()),
        ));
    };
    let mut out = io::stdout().lock();
    if hex {
        writeln!(out, "{}", HEXLOWER.encode(&value))?;
    } else {
        out.write_all(&value)?;
    }
    Ok(out.flush()?)
}

fn info(opening: &Opening, json: bool) -> Result {
    let (db, devices) = place::open_in(&opening.dir, reader(opening))?;
    let (stats, remarks) = (db.stats(), devices.remarks(&db));
    let printed = if json {
        let models = devices.json();
        let whole = serde_json::json!({ "kvdb": stats, "devices": models, "remarks": remarks });
        output::document("esker-kv-info/1", whole)
    } else {
        let mut text = screen::Screen(&stats).to_string();
        text.push_str(&devices.conclusion());
        for (class, spec) in devices.specs() {
            let _ = writeln!(text, "{class} class on {spec}");
        }
        for remark in remarks {
            let _ = writeln!(text, "note: {remark}");
        }
        output::print(&text)
    };
    let closed = db.close();
    printed?;
    Ok(closed?)
}

/// Gives a database a staging class on a device that is no path.
fn add_staging(db: &Kvdb, spec: &Spec) -> Result {
    let devices = Devices::staging(spec)?;
    for (_, medium) in devices.named()? {
        db.add_staging(&medium)?;
    }
    output::print(&devices.introduction())
}

fn check(dir: &Path, json: bool) -> Result {
    place::find_in(dir)?;
    let devices = Devices::untimed_of_database(dir)?;
    let watch = Watch::start()?;
    let report = Kvdb::builder(devices.location(dir)).on_progress(watch.observer()).check()?;
    watch.bar.end();
    let damages = report.findings.len();
    // That nobody reads the text changes nothing about the damage.
    let verdict = if report.interrupted {
        watch.outcome(&format!("{damages} damages found in what was checked until then"))
    } else if damages == 0 {
        Ok(())
    } else {
        Err(Failure::new(
            ErrorKind::Corrupt,
            format!(
                "{}: {damages} damages found; restore it from a copy, or salvage it with `esker kv repair`",
                dir.display()
            ),
        ))
    };
    if json {
        let whole = serde_json::to_value(&report).map_err(io::Error::from)?;
        let printed = output::document("esker-kv-check/1", whole);
        return verdict.and(printed);
    }
    let mut text = String::new();
    for finding in &report.findings {
        let _ = writeln!(text, "damaged: {finding}");
    }
    let _ = writeln!(
        text,
        "{}: read {}, {} with {}, {} of {}, {}",
        dir.display(),
        counted(report.kvss, "KVS"),
        counted(report.kvsets, "kvset"),
        counted(report.entries, "entry"),
        counted(report.values, "value"),
        human_bytes(report.value_bytes),
        counted(report.log_records, "log record")
    );
    text.push_str(match (report.interrupted, damages) {
        (true, _) => "interrupted: the rest is unchecked\n",
        (false, 0) => "sound\n",
        (false, _) => "",
    });
    let printed = output::print(&text);
    verdict.and(printed)
}
