//! The configuration of a target: from a file or from options.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_base::files;
use esker_device::{Create, Device, WriteThrough};
use esker_nvmf::TargetConfig;
use esker_nvmf::auth::Secret;
use esker_nvmf::target::{Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig};
use esker_nvmf::tls::{Derivation, TlsKey};
use esker_stack::{Opened, Spec, Stack, parse_uuid};
use serde::Deserialize;

use super::options::TargetOptions;
use crate::error::{Result, ServeError};
use crate::metrics::Roots;

/// Where a target listens unless it is told otherwise.
const LISTEN: &str = "127.0.0.1:4420";

/// The configuration to serve, with the devices open.
pub(super) struct Plan {
    pub(super) target: TargetConfig,
    open: Devices,
    pub(super) remarks: Vec<String>,
}

/// A configuration file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    listen: Vec<SocketAddr>,
    #[serde(default)]
    announce: Vec<SocketAddr>,
    #[serde(default)]
    listen_tls: Vec<SocketAddr>,
    #[serde(default)]
    referrals: Vec<SocketAddr>,
    workers: Option<usize>,
    reservations: Option<PathBuf>,
    /// Seconds for which a device may be silent.
    patience: Option<u32>,
    /// The first and the last one.
    controller_ids: Option<(u16, u16)>,
    #[serde(default)]
    subsystem: Vec<Subsystem>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subsystem {
    nqn: String,
    serial: Option<String>,
    #[serde(default)]
    allow_any: bool,
    /// Of its namespaces that do not say.
    #[serde(default)]
    write_cache: WriteCache,
    #[serde(default)]
    host: Vec<Host>,
    #[serde(default)]
    namespace: Vec<Namespace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    nqn: String,
    key_file: Option<PathBuf>,
    controller_key_file: Option<PathBuf>,
    tls_key_file: Option<PathBuf>,
    /// Whether an identity that does not name its derivation has that of `libnvme` before 1.16.
    #[serde(default)]
    tls_key_old: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespace {
    nsid: u32,
    device: String,
    write_cache: Option<WriteCache>,
    /// Its identity, if the device has none of its own.
    uuid: Option<String>,
}

/// Whether hosts have the volatile write cache of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WriteCache {
    /// As the device has it: what a host wants durable, it flushes.
    #[default]
    On,
    /// Writes complete when they are durable.
    Off,
}

/// Devices that are open: subsystem, namespace, specification.
type Devices = BTreeMap<Place, Served>;
type Place = (String, u32, String);

/// A device that is open, and the device as hosts have it.
#[derive(Clone)]
struct Served {
    opened: Opened,
    device: Arc<dyn Device>,
    write_cache: WriteCache,
}

impl Served {
    fn new(opened: Opened, write_cache: WriteCache) -> Served {
        let device = match write_cache {
            WriteCache::On => opened.device.clone(),
            WriteCache::Off => WriteThrough::over(opened.device.clone()),
        };
        Served { opened, device, write_cache }
    }

    /// The same device, with or without its write cache: the same object if that does not change.
    fn with(self, write_cache: WriteCache) -> Served {
        if self.write_cache == write_cache { self } else { Served::new(self.opened, write_cache) }
    }
}

/// Reads the file or the options, and opens the devices. Devices that are open already stay open.
pub(super) struct Planner {
    options: TargetOptions,
    stack: Arc<Stack>,
    open: Devices,
    roots: Roots,
}

impl Planner {
    pub(super) fn new(options: TargetOptions, stack: Arc<Stack>) -> Planner {
        Planner { options, stack, open: Devices::new(), roots: Roots::default() }
    }

    /// Returns the plan to serve now.
    pub(super) fn plan(&self) -> Result<Plan> {
        let options = &self.options;
        let mut file = match &options.config {
            Some(path) => read(path)?,
            None => of_options(options),
        };
        // Options go before the file.
        if !options.listen.is_empty() {
            file.listen.clone_from(&options.listen);
        }
        if !options.announce.is_empty() {
            file.announce.clone_from(&options.announce);
        }
        file.workers = options.workers.or(file.workers);
        file.reservations = options.reservations.clone().or(file.reservations);
        if !options.listen_tls.is_empty() {
            file.listen_tls.clone_from(&options.listen_tls);
        }
        if file.listen.is_empty() && file.listen_tls.is_empty() {
            file.listen.push(LISTEN.parse().expect("an address"));
        }
        let count = file.listen.len() + file.listen_tls.len();
        if !file.announce.is_empty() && file.announce.len() != count {
            let why = format!(
                "{} addresses to announce for {} to listen on; give one for each, or none",
                file.announce.len(),
                count
            );
            return Err(ServeError::invalid(why));
        }
        let mut target = TargetConfig {
            referrals: file.referrals,
            reservations: file.reservations,
            ..TargetConfig::default()
        };
        target.limits.workers = file.workers.unwrap_or(target.limits.workers);
        let patience = file.patience.map(|secs| Duration::from_secs(secs.into()));
        target.limits.command = options.patience.or(patience).unwrap_or(target.limits.command);
        if target.limits.command.is_zero() {
            return Err(ServeError::invalid("patience = 0: a device has at least a second"));
        }
        let ids = file.controller_ids.map(|(first, last)| first..=last);
        target.controller_ids = options.controller_ids.clone().or(ids);
        let plain = file.listen.iter().map(|&listen| (listen, false));
        let listened = plain.chain(file.listen_tls.iter().map(|&listen| (listen, true)));
        for (index, (listen, tls)) in listened.enumerate() {
            let announce = file.announce.get(index).copied();
            target.portals.push(PortalConfig { announce, tls, ..PortalConfig::new(listen) });
        }
        let mut plan = Plan { target, open: Devices::new(), remarks: Vec::new() };
        let mut left = self.left(&file.subsystem);
        for subsystem in file.subsystem {
            self.add(&mut plan, &mut left, subsystem)?;
        }
        if plan.open.is_empty() {
            return Err(ServeError::invalid(
                "nothing is served: name a subsystem with a namespace",
            ));
        }
        Ok(plan)
    }

    /// The plan is in force: its devices stay open, and no others.
    pub(super) fn keep(&mut self, plan: &Plan) {
        self.open.clone_from(&plan.open);
        self.roots.set(self.open.values().map(|served| served.opened.device.clone()).collect());
    }

    /// The devices that are open, as they change.
    pub(super) fn roots(&self) -> Roots {
        self.roots.clone()
    }

    /// Returns the served namespaces, a line each.
    pub(super) fn served(&self) -> String {
        let line =
            |(nqn, nsid, device): &Place| format!("serving {nqn} namespace {nsid}: {device}\n");
        self.open.keys().map(line).collect()
    }

    /// The open devices that are not named where they are: those that are named elsewhere move.
    fn left(&self, subsystems: &[Subsystem]) -> Devices {
        let named = |(nqn, nsid, device): &Place| {
            let is_it = |one: &Namespace| one.nsid == *nsid && one.device == *device;
            let mut its = subsystems.iter().filter(|one| one.nqn == *nqn);
            its.any(|one| one.namespace.iter().any(is_it))
        };
        let left = self.open.iter().filter(|(place, _)| !named(place));
        left.map(|(place, opened)| (place.clone(), opened.clone())).collect()
    }

    fn add(&self, plan: &mut Plan, left: &mut Devices, subsystem: Subsystem) -> Result {
        let Subsystem { nqn, serial, allow_any, write_cache, host, namespace } = subsystem;
        if !allow_any && host.is_empty() {
            let why = "nobody may use it: name the hosts that may, or allow any";
            return Err(ServeError::invalid(format!("{nqn}: {why}")));
        }
        if allow_any && !host.is_empty() {
            let why = "either any host may use it or those that are named, not both";
            return Err(ServeError::invalid(format!("{nqn}: {why}")));
        }
        let access = if allow_any {
            plan.remarks.push(format!("{nqn}: any host that reaches this machine may use it"));
            Access::Any
        } else {
            Access::Hosts(host.into_iter().map(allowed).collect::<Result<_>>()?)
        };
        let mut namespaces = Vec::new();
        for Namespace { nsid, device, write_cache: own, uuid } in namespace {
            let write_cache = own.unwrap_or(write_cache);
            let key = (nqn.clone(), nsid, device);
            let served = match self.open.get(&key).cloned().or_else(|| take(left, &key.2)) {
                Some(served) => served.with(write_cache),
                None => {
                    let spec = key.2.parse::<Spec>()?;
                    let opened = self.stack.open(&spec, Create::Never)?;
                    plan.remarks.extend(opened.remarks());
                    Served::new(opened, write_cache)
                }
            };
            let device = served.device.clone();
            let wrong = |why| ServeError::invalid(format!("{nqn}: namespace {nsid}: uuid: {why}"));
            let uuid = uuid.as_deref().map(parse_uuid).transpose().map_err(wrong)?;
            let is_known = device.identity().is_some();
            if uuid.is_some() && is_known {
                let why = "its uuid is not used, because the device has an identity of its own";
                plan.remarks.push(format!("{nqn}: namespace {nsid}: {why}"));
            }
            let uuid = uuid.filter(|_| !is_known);
            namespaces.push(NamespaceConfig { nsid, device, uuid });
            plan.open.insert(key, served);
        }
        let plain = SubsystemConfig::new(&nqn);
        plan.target.subsystems.push(SubsystemConfig { serial, access, namespaces, ..plain });
        Ok(())
    }
}

/// A device with this specification, wherever it was.
fn take(left: &mut Devices, device: &str) -> Option<Served> {
    let place = left.keys().find(|place| place.2 == device)?.clone();
    left.remove(&place)
}

/// The most bytes of a configuration file.
const FILE_MAX: u64 = 16 << 20;

/// Reads the configuration, which is read again later: it is a regular file.
fn read(path: &Path) -> Result<File> {
    let text = files::read_text(path, FILE_MAX)
        .map_err(|error| ServeError::file(path, error, "check the path and its permissions"))?;
    toml::from_str(&text)
        .map_err(|error| ServeError::invalid(format!("{}: {error}", path.display()).trim_end()))
}

/// Whether a text is a configuration.
#[cfg(any(test, fuzzing))]
pub(crate) fn is_configuration(text: &str) -> bool {
    toml::from_str::<File>(text).is_ok()
}

fn of_options(options: &TargetOptions) -> File {
    let host = |nqn: &String| Host {
        nqn: nqn.clone(),
        key_file: options.key_file.clone(),
        controller_key_file: options.controller_key_file.clone(),
        tls_key_file: options.tls_key_file.clone(),
        tls_key_old: false,
    };
    let namespace = |(device, nsid): (&String, u32)| Namespace {
        nsid,
        device: device.clone(),
        write_cache: None,
        uuid: None,
    };
    File {
        listen: Vec::new(),
        announce: Vec::new(),
        listen_tls: Vec::new(),
        referrals: Vec::new(),
        workers: None,
        reservations: None,
        patience: None,
        controller_ids: None,
        subsystem: vec![Subsystem {
            nqn: options.subsystem.clone().unwrap_or_default(),
            serial: None,
            allow_any: options.allow_any,
            write_cache: if options.write_cache { WriteCache::On } else { WriteCache::Off },
            host: options.allow.iter().map(host).collect(),
            namespace: options.devices.iter().zip(1..).map(namespace).collect(),
        }],
    }
}

fn allowed(host: Host) -> Result<HostConfig> {
    let derivation = if host.tls_key_old { Derivation::Old } else { Derivation::Standard };
    let tls_key = host
        .tls_key_file
        .map(|path| TlsKey::load(&path).map(|key| key.with_derivation(derivation)));
    let load = |path: Option<PathBuf>| path.map(|path| Secret::load(&path)).transpose();
    Ok(HostConfig {
        nqn: host.nqn,
        secret: load(host.key_file)?,
        controller_secret: load(host.controller_key_file)?,
        tls_key: tls_key.transpose()?,
    })
}
