//! `esker target`: devices served over NVMe/TCP, and their traffic.
//!
//! | module | content |
//! | --- | --- |
//! | `show` | answers as tables |

mod show;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_serve::events::Waiting;
use esker_serve::target::file::{Ana, TargetFile};
use esker_serve::target::view::{ConnectedList, PortalView, RefusedList, TargetView};
use esker_serve::target::{TargetService, description, status};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::args::{
    AnaArg, HostCommand, PortalCommand, ServeArgs, ServedCommand, TargetAt, TargetChange,
    TargetCommand, WriteCache,
};
use crate::failure::{Failure, Result};
use crate::host;
use crate::output;
use crate::pool::link::stack;
use crate::pool::{rehearsed, socket, tell_as};

/// The form of a target's answers, which docs/api/target.openapi.json describes.
const FORMAT: &str = "esker-target/1";

/// Prints an answer of a target, as JSON or for people.
fn tell<T: DeserializeOwned>(
    answer: Value,
    json: bool,
    shown: impl FnOnce(&T) -> String,
) -> Result {
    tell_as(FORMAT, answer, json, shown)
}

/// Runs a command.
pub(crate) fn run(command: &TargetCommand) -> Result {
    match command {
        TargetCommand::Serve(args) => serve(args),
        TargetCommand::Status { metrics, control: None, .. } => output::print(&status(*metrics)?),
        TargetCommand::Status { control: Some(control), json, .. } => {
            let at = TargetAt { control: control.clone(), json: *json };
            tell(look(&at, "/v1/target")?, *json, |view: &TargetView| show::target(view))
        }
        TargetCommand::Namespace(command) => namespace(command),
        TargetCommand::Host(command) => host(command),
        TargetCommand::Portal(command) => portal(command),
        TargetCommand::Refused { at } => {
            tell(look(at, "/v1/refused")?, at.json, |list: &RefusedList| {
                show::refused(&list.refused)
            })
        }
        TargetCommand::Export { output, at } => export(output.as_deref(), at),
        TargetCommand::Openapi => output::print(&format!("{:#}\n", description())),
    }
}

fn serve(args: &ServeArgs) -> Result {
    // Before anything is open: a signal that comes early ends it in order, too.
    let mut events = Waiting::new(args.time)?;
    let tell = &output::tell;
    let options = args.options(default_path());
    options.workers.iter().for_each(|workers| host::note_threads(*workers));
    let mut target = TargetService::start(options, Arc::new(stack()), tell)?;
    output::print(&target.greeting())?;
    target.run(&mut events, tell);
    Ok(target.close()?)
}

/// Where a target answers requests unless something else is said. No pool has its socket there.
fn default_path() -> PathBuf {
    socket::directory().join("target").join("control.sock")
}

fn ask(at: &TargetAt, method: &str, url: &str, key: Option<&str>, body: &Value) -> Result<Value> {
    let path = at.control.clone().unwrap_or_else(default_path);
    socket::asked(&path, method, url, key, body, |error| {
        let path = path.display();
        format!(
            "no target answers at {path}: {error}; start `esker target serve … --control {path}`, or say --control"
        )
    })
}

fn look(at: &TargetAt, url: &str) -> Result<Value> {
    ask(at, "GET", url, None, &Value::Null)
}

/// Makes a change, and says what was done.
fn change(how: &TargetChange, method: &str, url: &str, body: Value) -> Result {
    let key = how.operation.as_deref().filter(|_| !how.dry_run);
    let answer = ask(&how.at, method, url, key, &rehearsed(body, how.dry_run))?;
    tell(answer, how.at.json, show::changed)
}

/// A part of a path: bytes that mean something there are written as `%` and two digits.
fn part(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:~".contains(byte);
    let written = |byte: u8| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    };
    text.bytes().map(written).collect()
}

fn namespace(command: &ServedCommand) -> Result {
    let of = |subsystem: &str| format!("/v1/subsystems/{}/namespaces", part(subsystem));
    match command {
        ServedCommand::Add { subsystem, device, nsid, how } => {
            let body = json!({
                "device": device.device.for_reopening()?.to_string(),
                "nsid": nsid,
                "write_cache": write_cache(device.write_cache),
                "uuid": device.uuid,
            });
            change(how, "POST", &of(subsystem), body)
        }
        ServedCommand::Replace { subsystem, nsid, device, how } => {
            let body = json!({
                "device": device.device.for_reopening()?.to_string(),
                "write_cache": write_cache(device.write_cache),
                "uuid": device.uuid,
            });
            change(how, "PUT", &format!("{}/{nsid}", of(subsystem)), body)
        }
        ServedCommand::Limit { subsystem, nsid, rate, how } => {
            change(how, "PATCH", &format!("{}/{nsid}", of(subsystem)), rate.body())
        }
        ServedCommand::Remove { subsystem, nsid, how } => {
            change(how, "DELETE", &format!("{}/{nsid}", of(subsystem)), json!({}))
        }
    }
}

fn write_cache(said: Option<WriteCache>) -> Option<&'static str> {
    said.map(|said| if said == WriteCache::On { "on" } else { "off" })
}

fn host(command: &HostCommand) -> Result {
    let of = |subsystem: &str| format!("/v1/subsystems/{}/hosts", part(subsystem));
    match command {
        HostCommand::List { at } => {
            tell(look(at, "/v1/hosts")?, at.json, |list: &ConnectedList| {
                show::connected(&list.connected)
            })
        }
        HostCommand::Allow {
            subsystem,
            host,
            key_file,
            controller_key_file,
            tls_key_file,
            force,
            how,
        } => {
            let body = json!({
                "nqn": host,
                "key_file": whole(key_file.as_deref())?,
                "controller_key_file": whole(controller_key_file.as_deref())?,
                "tls_key_file": whole(tls_key_file.as_deref())?,
                "force": force,
            });
            change(how, "POST", &of(subsystem), body)
        }
        HostCommand::Forbid { subsystem, host, how } => {
            change(how, "DELETE", &format!("{}/{}", of(subsystem), part(host)), json!({}))
        }
        HostCommand::Disconnect { host, subsystem, how } => {
            let url = format!("/v1/hosts/{}/disconnect", part(host));
            change(how, "POST", &url, json!({ "subsystem": subsystem }))
        }
    }
}

fn portal(command: &PortalCommand) -> Result {
    let of = |portal: &usize| format!("/v1/portals/{portal}");
    match command {
        PortalCommand::List { at } => {
            let portals = look(at, "/v1/target")?["portals"].take();
            tell(
                json!({ "portals": portals }),
                at.json,
                |list: &BTreeMap<String, Vec<PortalView>>| {
                    list.values().map(|portals| show::portals(portals)).collect()
                },
            )
        }
        PortalCommand::Add { listen, announce, tls, ana, how } => {
            let body =
                json!({ "listen": listen, "announce": announce, "tls": tls, "ana": name(*ana) });
            change(how, "POST", "/v1/portals", body)
        }
        PortalCommand::Set { portal, ana, how } => {
            change(how, "PATCH", &of(portal), json!({ "ana": name(*ana) }))
        }
        PortalCommand::Assign { subsystem, portals, how, .. } => {
            let url = format!("/v1/subsystems/{}/portals", part(subsystem));
            change(how, "PUT", &url, json!({ "portals": portals }))
        }
        PortalCommand::Drain { portal, secs, how } => {
            change(how, "POST", &format!("{}/drain", of(portal)), json!({ "secs": secs }))
        }
        PortalCommand::Remove { portal, how } => change(how, "DELETE", &of(portal), json!({})),
    }
}

fn name(ana: AnaArg) -> Ana {
    match ana {
        AnaArg::Optimized => Ana::Optimized,
        AnaArg::NonOptimized => Ana::NonOptimized,
        AnaArg::Inaccessible => Ana::Inaccessible,
        AnaArg::PersistentLoss => Ana::PersistentLoss,
        AnaArg::Change => Ana::Change,
    }
}

/// The whole path of a file: the target runs in another directory.
fn whole(path: Option<&Path>) -> Result<Option<PathBuf>> {
    let Some(path) = path else { return Ok(None) };
    let failed = |error| Failure::file(path, &error, "name its whole path");
    std::path::absolute(path).map(Some).map_err(failed)
}

/// Writes the configuration in force.
fn export(file: Option<&Path>, at: &TargetAt) -> Result {
    let answer = look(at, "/v1/config")?;
    let text = if at.json {
        format!("{answer:#}\n")
    } else {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("the answer is no configuration: {error}"))
        };
        let view: TargetFile = serde_json::from_value(answer).map_err(|error| wrong(&error))?;
        toml::to_string(&view).map_err(|error| wrong(&error))?
    };
    let Some(path) = file else { return output::print(&text) };
    let failed = |error| Failure::file(path, &error, "make room, or name another file");
    output::write_whole(path, failed, |out| out.write_all(text.as_bytes()).map_err(failed))
}
