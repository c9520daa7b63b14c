//! Requests to a target that runs: one table of routes, for the socket and for the description of them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use esker_base::ErrorKind;
use esker_base::units::{counted, to_u64};
use esker_nvmf::wire::log::AnaState;
use esker_stack::Opened;
use parking_lot::Mutex;
use serde_json::Value;

use super::control::{Control, Edit, changed, subsystem};
use super::file::{
    Ana, HostFile, NamespaceFile, PortalFile, SubsystemFile, TargetFile, WriteCache,
};
use super::view::{ChangedView, ConnectedList, RefusedList, TargetView};
use crate::error::{Result, ServeError};
use crate::requests::body::{Nothing, requests};
use crate::requests::openapi;
use crate::requests::route::{self, Serves, known};

/// The host that stands for any.
const ANY_HOST: &str = "*";

/// How long commands are waited for when a portal is drained, where nothing is said, and at most.
const DRAIN_SECS: u64 = 10;
const DRAIN_SECS_MAX: u64 = 60;

/// The outcome of a change.
type Outcome = route::Outcome<ChangedView, ()>;
/// A request as a route sees it.
type Call<'a> = route::Call<'a, Control>;
/// A request that is known.
type Route = route::Route<Control>;

requests! {
    /// A device that is to be a namespace.
    AddNamespace {
        /// Its specification, which has to be there. The target opens it.
        device: String,
        /// Its number; the smallest that is free where none is said.
        nsid: Option<u32>,
        /// Whether hosts have the volatile write cache of the device; as the subsystem has it where that is not said.
        write_cache: Option<WriteCache>,
        /// Its identity, if the device has none of its own.
        uuid: Option<String>,
    }

    /// How much all hosts of a namespace have together. Hosts stay connected.
    LimitNamespace {
        /// The most operations a second; 0 for no limit, and as it is where nothing is said.
        iops_limit: Option<u64>,
        /// The most bytes a second, 4096 at least; 0 for no limit, and as it is where nothing is said.
        bytes_limit: Option<u64>,
    }

    /// A device that takes the place of a namespace's, with the same limits.
    ReplaceNamespace {
        /// Its specification, which has to be there. The target opens it.
        device: String,
        /// Whether hosts have the volatile write cache of the device; as the subsystem has it where that is not said.
        write_cache: Option<WriteCache>,
        /// Its identity, if the device has none of its own.
        uuid: Option<String>,
    }

    /// A host that may use a subsystem from now on.
    AllowHost {
        /// Its NQN, or `*` for any host, without proof of who it is.
        nqn: String,
        /// The file with the secret that the host has to know (DH-HMAC-CHAP).
        key_file: Option<PathBuf>,
        /// The file with the secret by which the host knows the target.
        controller_key_file: Option<PathBuf>,
        /// The file with the host's key for TLS: it connects encrypted then, and not otherwise.
        tls_key_file: Option<PathBuf>,
        /// Whether an identity that does not name its derivation has that of `libnvme` before 1.16.
        #[serde(default)]
        tls_key_old: bool,
        /// It may take the place of any host, or any host that of those which are named.
        #[serde(default)]
        force: bool,
    }

    /// An address that hosts connect to from now on.
    AddPortal {
        /// The address to listen on; port 0 is any that is free.
        listen: SocketAddr,
        /// The address that discovery announces, where it is another one.
        announce: Option<SocketAddr>,
        /// Whether connections through it are encrypted.
        #[serde(default)]
        tls: bool,
        /// How well namespaces are reached through it.
        #[serde(default)]
        ana: Ana,
    }

    /// How well namespaces are reached through a portal.
    ChangePortal {
        /// The state of asymmetric namespace access.
        ana: Ana,
    }

    /// The portals through which hosts reach a subsystem. The connections through others are closed.
    SetListeners {
        /// Numbers of portals; each portal where none is named.
        portals: Vec<usize>,
    }

    /// How a portal is drained: hosts go on through others, and it is removed then.
    DrainPortal {
        /// How many seconds commands under way are waited for: 10 where nothing is said, and 60 at most.
        secs: Option<u64>,
    }

    /// How a host is disconnected.
    DisconnectHost {
        /// From this subsystem; from all where none is said.
        subsystem: Option<String>,
    }
}

/// All requests.
static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let namespaces = "/v1/subsystems/{subsystem}/namespaces";
    let namespace = "/v1/subsystems/{subsystem}/namespaces/{nsid}";
    let hosts = "/v1/subsystems/{subsystem}/hosts";
    let host = "/v1/subsystems/{subsystem}/hosts/{host}";
    let disconnect = "/v1/hosts/{host}/disconnect";
    let portal = "/v1/portals/{portal}";
    vec![
        Route::look("/v1", "listRequests", "All requests", known),
        Route::look("/v1/openapi.json", "getOpenapi", "This description", |_, _| Ok(description())),
        Route::look("/v1/target", "getTarget", "How the target is", status),
        Route::look("/v1/config", "getConfig", "The configuration in force", config),
        Route::look("/v1/hosts", "listHosts", "Hosts that are connected", connected),
        Route::look("/v1/refused", "listRefused", "Hosts that were not let in", refused),
        Route::change(("POST", namespaces), "addNamespace", "Serve a device as a namespace", add)
            .opening(open_added),
        Route::change(("PUT", namespace), "replaceNamespace", "Serve another device", replace)
            .opening(open_replacement),
        Route::change(
            ("PATCH", namespace),
            "limitNamespace",
            "Limit the operations and bytes a second of a namespace",
            limit,
        ),
        Route::change(("DELETE", namespace), "removeNamespace", "Serve a device no more", remove),
        Route::change(("POST", hosts), "allowHost", "Let a host use a subsystem", allow),
        Route::change(("DELETE", host), "forbidHost", "Let a host use a subsystem no more", forbid),
        Route::change(
            ("PUT", "/v1/subsystems/{subsystem}/portals"),
            "setListeners",
            "Have hosts reach a subsystem through these portals alone",
            set_listeners,
        ),
        Route::change(("POST", "/v1/portals"), "addPortal", "Listen on an address", add_portal),
        Route::change(
            ("PATCH", portal),
            "changePortal",
            "Set how well namespaces are reached through a portal",
            change_portal,
        ),
        Route::change(
            ("DELETE", portal),
            "removePortal",
            "Listen on an address no more; connections through it are closed",
            remove_portal,
        ),
        Route::change(
            ("POST", "/v1/portals/{portal}/drain"),
            "drainPortal",
            "Have hosts go on through other portals, wait for their commands, and remove the portal",
            drain_portal,
        )
        .opening(await_commands),
        Route::change(
            ("POST", disconnect),
            "disconnectHost",
            "Close the connections of a host, which connects again if it is allowed",
            self::disconnect,
        ),
    ]
});

/// The description of all requests (OpenAPI 3.1).
#[must_use]
pub fn description() -> Value {
    let about = "Requests to a process that serves devices (`esker target serve --control`), over HTTP at its socket. \
        Changes last until the process ends or reads its configuration again.";
    openapi::document::<Control>("Esker target", about)
}

impl Serves for Control {
    type Goal = ();
    type Opened = Option<Opened>;

    fn routes() -> &'static [Route] {
        &ROUTES
    }

    fn changing(&self) -> &Mutex<()> {
        &self.changing
    }

    fn first(&self, key: &str, request: &str, body: &Value) -> Result<Option<Value>> {
        self.changes.first(key, request, body)
    }

    fn made(
        &self,
        _: &Route,
        key: Option<&str>,
        entered: (String, Value),
        answer: Value,
        (): (),
    ) -> Result<Value> {
        Ok(self.changes.enter(self.began, key, entered, answer, |_| ()))
    }
}

fn status(control: &Control, _: &Call<'_>) -> Result<TargetView> {
    Ok(control.view())
}

fn config(control: &Control, _: &Call<'_>) -> Result<TargetFile> {
    control.in_force().absolute()
}

fn connected(control: &Control, _: &Call<'_>) -> Result<ConnectedList> {
    let connected = control.target.connected().into_iter().map(Into::into).collect();
    Ok(ConnectedList { connected })
}

fn refused(control: &Control, _: &Call<'_>) -> Result<RefusedList> {
    Ok(RefusedList { refused: control.target.refusals().into_iter().map(Into::into).collect() })
}

fn number(text: &str) -> Result<u32> {
    let why = || format!("'{text}' is no number of a namespace; GET /v1/target shows them");
    text.parse().map_err(|_| ServeError::invalid(why()))
}

/// The place of a namespace among those of its subsystem.
fn place(subsystem: &SubsystemFile, nsid: u32) -> Result<usize> {
    subsystem.namespace.iter().position(|one| one.nsid == nsid).ok_or_else(|| {
        let why = format!("{} has no namespace {nsid}; GET /v1/target shows them", subsystem.nqn);
        ServeError::new(ErrorKind::NotFound, why)
    })
}

fn open_added(control: &Control, call: &Call<'_>, asked: &AddNamespace) -> Result<Option<Opened>> {
    // A wrong name is refused before a device is touched.
    subsystem(&mut control.in_force(), call.name(0))?;
    control.open(call.name(0), asked.nsid, &asked.device)
}

fn add(control: &Control, call: &Call<'_>, asked: AddNamespace) -> Result<Outcome> {
    let AddNamespace { device, nsid, write_cache, uuid, dry_run } = asked;
    control.change(call.opened.take().flatten(), dry_run, |file| {
        let its = subsystem(file, call.name(0))?;
        let has = |nsid: u32| its.namespace.iter().any(|one| one.nsid == nsid);
        let nsid = nsid.unwrap_or_else(|| (1..).find(|nsid| !has(*nsid)).expect("a free number"));
        if has(nsid) {
            let why = format!(
                "{} has a namespace {nsid} already; say another number, or replace its device",
                its.nqn
            );
            return Err(ServeError::new(ErrorKind::Exists, why));
        }
        let did = format!("serve {device} as namespace {nsid} of {}", its.nqn);
        let (iops_limit, bytes_limit) = (0, 0);
        let made = NamespaceFile { nsid, device, write_cache, uuid, iops_limit, bytes_limit };
        its.namespace.push(made);
        Ok(Edit { nsid: Some(nsid), ..Edit::new(did) })
    })
}

fn open_replacement(
    control: &Control,
    call: &Call<'_>,
    asked: &ReplaceNamespace,
) -> Result<Option<Opened>> {
    let nsid = number(call.name(1))?;
    place(subsystem(&mut control.in_force(), call.name(0))?, nsid)?;
    control.open(call.name(0), Some(nsid), &asked.device)
}

fn replace(control: &Control, call: &Call<'_>, asked: ReplaceNamespace) -> Result<Outcome> {
    let ReplaceNamespace { device, write_cache, uuid, dry_run } = asked;
    let nsid = number(call.name(1))?;
    control.change(call.opened.take().flatten(), dry_run, |file| {
        let its = subsystem(file, call.name(0))?;
        let at = place(its, nsid)?;
        let NamespaceFile { iops_limit, bytes_limit, device: before, .. } =
            its.namespace[at].clone();
        let did = format!("serve {device} as namespace {nsid} of {}, not {before}", its.nqn);
        its.namespace[at] =
            NamespaceFile { nsid, device, write_cache, uuid, iops_limit, bytes_limit };
        Ok(Edit { nsid: Some(nsid), ..Edit::new(did) })
    })
}

fn limit(control: &Control, call: &Call<'_>, asked: LimitNamespace) -> Result<Outcome> {
    let nsid = number(call.name(1))?;
    control.change(None, asked.dry_run, |file| {
        let its = subsystem(file, call.name(0))?;
        let at = place(its, nsid)?;
        let one = &mut its.namespace[at];
        one.iops_limit = asked.iops_limit.unwrap_or(one.iops_limit);
        one.bytes_limit = asked.bytes_limit.unwrap_or(one.bytes_limit);
        let said = |limit: u64, what: &str| match limit {
            0 => format!("any number of {what}s"),
            _ => counted(limit, what),
        };
        let (operations, bytes) =
            (said(one.iops_limit, "operation"), said(one.bytes_limit, "byte"));
        let did =
            format!("let namespace {nsid} of {} have {operations} and {bytes} a second", its.nqn);
        Ok(Edit { nsid: Some(nsid), ..Edit::new(did) })
    })
}

fn remove(control: &Control, call: &Call<'_>, asked: Nothing) -> Result<Outcome> {
    let nsid = number(call.name(1))?;
    control.change(None, asked.dry_run, |file| {
        let its = subsystem(file, call.name(0))?;
        let at = place(its, nsid)?;
        let device = its.namespace.remove(at).device;
        let did = format!("serve {device} as namespace {nsid} of {} no more", its.nqn);
        Ok(Edit::new(did))
    })
}

fn allow(control: &Control, call: &Call<'_>, asked: AllowHost) -> Result<Outcome> {
    let AllowHost { nqn, key_file, controller_key_file, tls_key_file, tls_key_old, .. } = asked;
    let host = HostFile { nqn, key_file, controller_key_file, tls_key_file, tls_key_old };
    let files = [&host.key_file, &host.controller_key_file, &host.tls_key_file];
    if let Some(path) = files.into_iter().flatten().find(|path| !path.is_absolute()) {
        let why = format!("{}: the target needs the whole path of a key", path.display());
        return Err(ServeError::invalid(why));
    }
    let is_any = host.nqn == ANY_HOST;
    if is_any && files.iter().any(|file| file.is_some()) {
        return Err(ServeError::invalid("any host has no key; name the host that has it"));
    }
    control.change(None, asked.dry_run, |file| {
        let its = subsystem(file, call.name(0))?;
        let conflict = match is_any {
            true => (!its.host.is_empty()).then_some("it names hosts, which would need no key"),
            false => its.allow_any.then_some("any host may use it, and the others would lose it"),
        };
        if let Some(why) = conflict.filter(|_| !asked.force) {
            let why = format!("{}: {why}; say force to have it so", its.nqn);
            return Err(ServeError::new(ErrorKind::Conflict, why));
        }
        its.allow_any = is_any;
        let did = match is_any {
            true => format!("let any host use {}", its.nqn),
            false => format!("let {} use {}", host.nqn, its.nqn),
        };
        match is_any {
            true => its.host.clear(),
            false => {
                its.host.retain(|one| one.nqn != host.nqn);
                its.host.push(host);
            }
        }
        Ok(Edit::new(did))
    })
}

fn forbid(control: &Control, call: &Call<'_>, asked: Nothing) -> Result<Outcome> {
    let host = call.name(1);
    control.change(None, asked.dry_run, |file| {
        let its = subsystem(file, call.name(0))?;
        let count = its.host.len();
        its.host.retain(|one| one.nqn != host);
        let was_any = host == ANY_HOST && std::mem::take(&mut its.allow_any);
        if its.host.len() == count && !was_any {
            let why = format!("{} does not name {host}; GET /v1/target shows its hosts", its.nqn);
            return Err(ServeError::new(ErrorKind::NotFound, why));
        }
        let who = if was_any { "any host that it does not name" } else { host };
        Ok(Edit::new(format!("let {who} use {} no more", its.nqn)))
    })
}

fn portal_number(text: &str) -> Result<usize> {
    let why = || format!("'{text}' is no number of a portal; GET /v1/target shows them");
    text.parse().map_err(|_| ServeError::invalid(why()))
}

fn add_portal(control: &Control, _: &Call<'_>, asked: AddPortal) -> Result<Outcome> {
    let AddPortal { listen, announce, tls, ana, dry_run } = asked;
    control.change(None, dry_run, |file| {
        if file.portal.iter().any(|one| one.listen == listen) {
            let why = format!("{listen} is a portal already; GET /v1/target shows them");
            return Err(ServeError::new(ErrorKind::Exists, why));
        }
        file.portal.push(PortalFile { listen, announce, tls, ana });
        Ok(Edit { adds_portal: true, ..Edit::new(format!("listen on {listen}")) })
    })
}

fn change_portal(control: &Control, call: &Call<'_>, asked: ChangePortal) -> Result<Outcome> {
    let number = portal_number(call.name(0))?;
    control.change(None, asked.dry_run, |file| {
        let portal = control.portal_of(file, number)?;
        portal.ana = asked.ana;
        let state = AnaState::from(asked.ana);
        Ok(Edit::new(format!("set portal {number} ({}) to {state:?}", portal.listen)))
    })
}

fn set_listeners(control: &Control, call: &Call<'_>, asked: SetListeners) -> Result<Outcome> {
    control.change(None, asked.dry_run, |file| {
        let listen =
            asked.portals.iter().map(|number| Ok(control.portal_of(file, *number)?.listen));
        let listen = listen.collect::<Result<Vec<_>>>()?;
        let its = subsystem(file, call.name(0))?;
        let through: Vec<String> = listen.iter().map(ToString::to_string).collect();
        let through = match through.is_empty() {
            true => "each portal".to_owned(),
            false => through.join(", "),
        };
        its.listen = listen;
        Ok(Edit::new(format!("have hosts reach {} through {through}", its.nqn)))
    })
}

/// Takes a portal out of a configuration; it is not the last one, of the target or of a subsystem.
fn without_portal(control: &Control, file: &mut TargetFile, number: usize) -> Result<SocketAddr> {
    let listen = control.portal_of(file, number)?.listen;
    if file.portal.len() == 1 {
        let why = format!("portal {number} is the last one; add another one first");
        return Err(ServeError::new(ErrorKind::Conflict, why));
    }
    for its in file.subsystem.iter_mut().filter(|its| its.listen.contains(&listen)) {
        if its.listen.len() == 1 {
            let why = format!(
                "portal {number} is the last one of {}; give it another one first",
                its.nqn
            );
            return Err(ServeError::new(ErrorKind::Conflict, why));
        }
        its.listen.retain(|at| *at != listen);
    }
    file.portal.retain(|one| one.listen != listen);
    Ok(listen)
}

fn remove_portal(control: &Control, call: &Call<'_>, asked: Nothing) -> Result<Outcome> {
    let number = portal_number(call.name(0))?;
    control.change(None, asked.dry_run, |file| {
        let listen = without_portal(control, file, number)?;
        Ok(Edit::new(format!("listen on {listen} (portal {number}) no more")))
    })
}

fn await_commands(
    control: &Control,
    call: &Call<'_>,
    asked: &DrainPortal,
) -> Result<Option<Opened>> {
    let (number, secs) = (portal_number(call.name(0))?, asked.secs.unwrap_or(DRAIN_SECS));
    if secs > DRAIN_SECS_MAX {
        let why = format!(
            "secs is {DRAIN_SECS_MAX} at most; commands that devices have are finished anyway"
        );
        return Err(ServeError::invalid(why));
    }
    without_portal(control, &mut control.in_force(), number)?;
    if !asked.dry_run {
        control.drain(number, Duration::from_secs(secs))?;
    }
    Ok(None)
}

fn drain_portal(control: &Control, call: &Call<'_>, asked: DrainPortal) -> Result<Outcome> {
    let number = portal_number(call.name(0))?;
    let left = control.target.commands_through(number);
    control.change(None, asked.dry_run, |file| {
        if !asked.dry_run && control.portal_of(file, number)?.ana != Ana::Inaccessible {
            let why = format!("portal {number} was set to another state meanwhile; it stays");
            return Err(ServeError::new(ErrorKind::Conflict, why));
        }
        let listen = without_portal(control, file, number)?;
        let left = match left {
            Some(0) => "no command was under way".to_owned(),
            Some(count) => {
                format!("{} under way: devices finish them", counted(to_u64(count), "command"))
            }
            None => "a worker did not say which commands are under way".to_owned(),
        };
        Ok(Edit::new(format!("listen on {listen} (portal {number}) no more; {left}")))
    })
}

fn disconnect(control: &Control, call: &Call<'_>, asked: DisconnectHost) -> Result<Outcome> {
    let (host, nqn) = (call.name(0), asked.subsystem.as_deref());
    let its = |one: &esker_nvmf::target::ConnectedHost| {
        one.host == host && (nqn.is_none() || one.subsystem.as_deref() == nqn)
    };
    let from = nqn.map(|nqn| format!(" from {nqn}")).unwrap_or_default();
    if !control.target.connected().iter().any(its) {
        let why = format!("{host} is not connected{from}; GET /v1/hosts shows those that are");
        return Err(ServeError::new(ErrorKind::NotFound, why));
    }
    if asked.dry_run {
        return Ok(Outcome::Would(format!("disconnect {host}{from}")));
    }
    let count = control.target.disconnect(host, nqn);
    let did = format!("disconnect {host}{from}: {}", counted(to_u64(count), "controller"));
    Ok(Outcome::Did(changed(did, Vec::new()), ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_path_and_name() {
        route::check_names(&ROUTES);
    }
}
