//! A configuration to serve: its devices are open, its keys read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use esker_base::ErrorKind;
use esker_base::pace::Rate;
use esker_device::{Create, Device, WriteThrough};
use esker_nvmf::target::{Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig};
use esker_nvmf::{Target, TargetConfig};
use esker_stack::{Opened, Spec, Stack, parse_uuid};

use super::file::{HostFile, NamespaceFile, PortalFile, SubsystemFile, TargetFile, WriteCache};
use super::options::TargetOptions;
use crate::error::{Result, ServeError};
use crate::metrics::Roots;

/// The configuration to serve, with the devices open.
pub(super) struct Plan {
    pub(super) target: TargetConfig,
    file: TargetFile,
    open: Devices,
    keys: Keys,
    pub(super) remarks: Vec<String>,
}

impl Plan {
    /// The target listens on these portals of it, by their numbers: their addresses are known now.
    pub(super) fn listens(&mut self, target: &Target, numbers: &[usize]) {
        let portals = target.portals();
        for (file, number) in self.file.portal.iter_mut().zip(numbers) {
            let found = portals.iter().find(|one| one.portal == *number);
            file.listen = found.map_or(file.listen, |one| one.listen);
        }
    }
}

/// Devices that are open: subsystem, namespace, specification.
type Devices = BTreeMap<Place, Served>;
type Place = (String, u32, String);
/// Hosts with the keys that their files had when they were read.
type Keys = Vec<(HostFile, HostConfig)>;

/// The least bytes a second that a limit lets through: a block.
const LEAST_BYTES: u64 = 4096;

/// How devices that are not open, and keys that are not read, are had.
pub(super) enum Source {
    /// They are opened, and all keys are read again.
    Anew,
    /// This device is open, and no other is opened. Keys stay as they were read.
    Prepared(Option<Opened>),
}

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

/// Makes plans. Devices that are open already stay open.
pub(super) struct Planner {
    options: TargetOptions,
    stack: Arc<Stack>,
    /// The configuration in force.
    file: TargetFile,
    open: Devices,
    keys: Keys,
    roots: Roots,
    /// Requests have changed the configuration since it was read.
    is_changed: bool,
}

impl Planner {
    pub(super) fn new(options: TargetOptions, stack: Arc<Stack>) -> Planner {
        Planner {
            options,
            stack,
            file: TargetFile::default(),
            open: Devices::new(),
            keys: Keys::new(),
            roots: Roots::default(),
            is_changed: false,
        }
    }

    /// Returns the plan to serve what the file or the options say now.
    pub(super) fn plan(&self) -> Result<Plan> {
        self.plan_of(TargetFile::of(&self.options)?, Source::Anew)
    }

    /// Returns the plan to serve this.
    pub(super) fn plan_of(&self, file: TargetFile, mut source: Source) -> Result<Plan> {
        let mut target = TargetConfig {
            referrals: file.referrals.clone(),
            reservations: file.reservations.clone(),
            ..TargetConfig::default()
        };
        target.limits.workers = file.workers.unwrap_or(target.limits.workers);
        let patience = file.patience.map(|secs| Duration::from_secs(secs.into()));
        target.limits.command = self.options.patience.or(patience).unwrap_or(target.limits.command);
        if target.limits.command.is_zero() {
            return Err(ServeError::invalid("patience = 0: a device has at least a second"));
        }
        target.controller_ids = file.controller_ids.map(|(first, last)| first..=last);
        target.portals = file.portal.iter().map(portal).collect();
        let (open, keys, remarks) = (Devices::new(), Keys::new(), Vec::new());
        let mut plan = Plan { target, file: TargetFile::default(), open, keys, remarks };
        let mut left = self.left(&file.subsystem);
        for subsystem in &file.subsystem {
            self.add(&mut plan, &mut left, &mut source, subsystem)?;
        }
        if plan.open.is_empty() && !self.is_controlled() {
            return Err(ServeError::invalid(
                "nothing is served: name a subsystem with a namespace",
            ));
        }
        plan.file = file;
        Ok(plan)
    }

    /// The plan is in force, by a request or as it was read: its devices stay open, and no others.
    pub(super) fn keep(&mut self, plan: Plan, is_request: bool) {
        self.is_changed = is_request;
        (self.file, self.open, self.keys) = (plan.file, plan.open, plan.keys);
        self.roots.set(self.open.values().map(|served| served.opened.device.clone()).collect());
    }

    /// The configuration in force.
    pub(super) fn file(&self) -> &TargetFile {
        &self.file
    }

    /// Whether requests have changed it since it was read.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The devices that are open, as they change.
    pub(super) fn roots(&self) -> Roots {
        self.roots.clone()
    }

    /// Whether a device is open as this namespace.
    pub(super) fn has(&self, nqn: &str, nsid: u32, device: &str) -> bool {
        self.open.contains_key(&(nqn.to_owned(), nsid, device.to_owned()))
    }

    /// Whether requests change it: it may serve nothing yet then, and nobody.
    pub(super) fn is_controlled(&self) -> bool {
        self.options.control.is_some()
    }

    /// Returns the served namespaces, a line each.
    pub(super) fn served(&self) -> String {
        let line =
            |(nqn, nsid, device): &Place| format!("serving {nqn} namespace {nsid}: {device}\n");
        self.open.keys().map(line).collect()
    }

    /// The open devices that are not named where they are: those that are named elsewhere move.
    fn left(&self, subsystems: &[SubsystemFile]) -> Devices {
        let named = |(nqn, nsid, device): &Place| {
            let is_it = |one: &NamespaceFile| one.nsid == *nsid && one.device == *device;
            let mut its = subsystems.iter().filter(|one| one.nqn == *nqn);
            its.any(|one| one.namespace.iter().any(is_it))
        };
        let left = self.open.iter().filter(|(place, _)| !named(place));
        left.map(|(place, opened)| (place.clone(), opened.clone())).collect()
    }

    fn add(
        &self,
        plan: &mut Plan,
        left: &mut Devices,
        source: &mut Source,
        subsystem: &SubsystemFile,
    ) -> Result {
        let SubsystemFile { nqn, serial, allow_any, write_cache, listen, host, namespace } =
            subsystem;
        if !allow_any && host.is_empty() && !self.is_controlled() {
            let why = "nobody may use it: name the hosts that may, or allow any";
            return Err(ServeError::invalid(format!("{nqn}: {why}")));
        }
        let portals = &plan.target.portals;
        let is_missing =
            |at: &&SocketAddr| at.port() == 0 || !portals.iter().any(|one| one.listen == **at);
        if let Some(at) = listen.iter().find(is_missing) {
            let why = format!("listen: {at} is no portal; name one that the target listens on");
            return Err(ServeError::invalid(format!("{nqn}: {why}")));
        }
        if *allow_any && !host.is_empty() {
            let why = "either any host may use it or those that are named, not both";
            return Err(ServeError::invalid(format!("{nqn}: {why}")));
        }
        let access = if *allow_any {
            plan.remarks.push(format!("{nqn}: any host that reaches this machine may use it"));
            Access::Any
        } else {
            let mut hosts = Vec::new();
            for host in host {
                let known = match source {
                    Source::Anew => None,
                    Source::Prepared(_) => self.keys.iter().find(|(file, _)| file == host),
                };
                let config = known.map_or_else(|| host.load(), |(_, config)| Ok(config.clone()))?;
                plan.keys.push((host.clone(), config.clone()));
                hosts.push(config);
            }
            Access::Hosts(hosts)
        };
        let (mut namespaces, mut rates) = (Vec::new(), BTreeMap::new());
        for NamespaceFile { nsid, device, write_cache: own, uuid, iops_limit, bytes_limit } in
            namespace
        {
            let (nsid, write_cache) = (*nsid, own.unwrap_or(*write_cache));
            if (1..LEAST_BYTES).contains(bytes_limit) {
                let why = format!(
                    "a second let no block through; say {LEAST_BYTES} or more, or 0 for no limit"
                );
                let what =
                    format!("{nqn}: namespace {nsid}: bytes_limit: {bytes_limit} bytes {why}");
                return Err(ServeError::invalid(what));
            }
            rates.insert(nsid, Rate { operations: *iops_limit, bytes: *bytes_limit });
            let key = (nqn.clone(), nsid, device.clone());
            let served = match self.open.get(&key).cloned().or_else(|| take(left, &key.2)) {
                Some(served) => served.with(write_cache),
                None => {
                    let opened = self.open(source, &key.2)?;
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
        let (serial, plain) = (serial.clone(), SubsystemConfig::new(nqn));
        plan.target.subsystems.push(SubsystemConfig {
            serial,
            access,
            namespaces,
            listeners: listen.clone(),
            rates,
            ..plain
        });
        Ok(())
    }

    fn open(&self, source: &mut Source, device: &str) -> Result<Opened> {
        match source {
            Source::Anew => Ok(self.stack.open(&device.parse::<Spec>()?, Create::Never)?),
            Source::Prepared(opened) => opened.take().ok_or_else(|| {
                let why = format!("{device}: it has changed while the request waited; ask again");
                ServeError::new(ErrorKind::Retry, why)
            }),
        }
    }
}

fn portal(file: &PortalFile) -> PortalConfig {
    let PortalFile { listen, announce, tls, ana } = *file;
    PortalConfig { listen, announce, tls, ana: ana.into() }
}

/// A device with this specification, wherever it was.
fn take(left: &mut Devices, device: &str) -> Option<Served> {
    let place = left.keys().find(|place| place.2 == device)?.clone();
    left.remove(&place)
}

/// Whether a text is a configuration, which is the same when it is written and read again.
#[cfg(any(test, fuzzing))]
pub(crate) fn is_configuration(text: &str) -> bool {
    let Ok(file) = toml::from_str::<TargetFile>(text) else { return false };
    let written = toml::to_string(&file).expect("what was read can be written");
    assert_eq!(toml::from_str::<TargetFile>(&written).ok(), Some(file));
    true
}
