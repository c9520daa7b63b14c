//! Subsystems and namespaces.

mod identity;
pub(crate) mod late;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use data_encoding::HEXLOWER;
use esker_base::Lba;
use esker_base::sync::{Mutex, RwLock};
use esker_device::{DataPlacement, Device, Geometry};
use sha2::{Digest, Sha256};

use super::config::{Access, HostConfig, Limits, NSID_MAX, NamespaceConfig, SubsystemConfig};
use super::limits::throttle::Throttle;
use super::portal::Portal;
use super::reservation::{Reservations, Store};
use crate::error::NvmfError;
use crate::wire::status::Status;
use identity::{Belongings, Devices, Uuid};
use late::Late;

/// A device under a number.
pub(crate) struct Namespace {
    pub(crate) nsid: u32,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) uuid: Uuid,
    /// The UUID that was configured, if one was.
    given: Option<Uuid>,
    /// The endurance group, 0 without data placement.
    pub(crate) endurance_group: u16,
    pub(crate) reservations: Arc<Reservations>,
    /// Commands that its device did not end in time.
    pub(crate) late: Arc<Late>,
    /// How much its hosts may have a second.
    pub(crate) throttle: Throttle,
    /// Hosts have it no more.
    is_removed: AtomicBool,
    /// Geometry of the device; its capacity is in `capacity`.
    geometry: Geometry,
    /// LBAs, as last told to hosts.
    capacity: AtomicU64,
}

impl Namespace {
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether hosts have it no more.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    pub(crate) fn lba_size(&self) -> u32 {
        self.geometry.lba_size
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(crate) fn placement(&self) -> Option<&dyn DataPlacement> {
        self.device.data_placement()
    }

    /// The first LBA of a range, if the namespace has all of it.
    pub(crate) fn check_range(&self, slba: u64, count: u64) -> Result<Lba, Status> {
        match slba.checked_add(count) {
            Some(end) if end <= self.capacity() => Ok(Lba(slba)),
            _ => Err(Status::LBA_RANGE.final_()),
        }
    }

    /// Looks at the device's size; says whether it is another than hosts know.
    fn refresh(&self) -> bool {
        let now = self.device.geometry().capacity.0;
        self.capacity.swap(now, Ordering::Relaxed) != now
    }
}

/// Namespaces, and the hosts that may use them.
pub(crate) struct Subsystem {
    pub(crate) nqn: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    access: RwLock<Access>,
    /// The portals through which it is reached; none for all.
    listeners: RwLock<Vec<SocketAddr>>,
    /// The largest transfer in bytes: a power of two.
    pub(crate) transfer_bytes: u32,
    namespaces: RwLock<BTreeMap<u32, Arc<Namespace>>>,
    /// Changes with `namespaces`.
    generation: AtomicU64,
    /// The drives behind namespaces with data placement; group n + 1 is drive n.
    drives: Mutex<Vec<String>>,
    devices: Mutex<Devices>,
    /// Where reservations persist.
    store: Option<Arc<Store>>,
}

impl Subsystem {
    pub(crate) fn new(
        config: &SubsystemConfig,
        limits: &Limits,
        store: Option<Arc<Store>>,
    ) -> Result<Subsystem, NvmfError> {
        let digest = Sha256::digest(config.nqn.as_bytes());
        let derived = || HEXLOWER.encode(&digest[..10]);
        let mut transfer_bytes = limits.transfer_bytes;
        for namespace in &config.namespaces {
            let most = namespace.device.geometry().max_transfer_size.max(4096);
            transfer_bytes = transfer_bytes.min(1 << most.ilog2());
        }
        let subsystem = Subsystem {
            nqn: config.nqn.clone(),
            serial: config.serial.clone().unwrap_or_else(derived),
            model: config.model.clone(),
            access: RwLock::new(config.access.clone()),
            listeners: RwLock::new(config.listeners.clone()),
            transfer_bytes,
            namespaces: RwLock::new(BTreeMap::new()),
            generation: AtomicU64::new(0),
            drives: Mutex::new(Vec::new()),
            devices: Mutex::default(),
            store,
        };
        for namespace in &config.namespaces {
            subsystem.add(namespace)?;
        }
        subsystem.limit(config);
        Ok(subsystem)
    }

    fn check_namespace(&self, config: &NamespaceConfig) -> Result<(), NvmfError> {
        let NamespaceConfig { nsid, device, .. } = config;
        let wrong = |why: String| Err(NvmfError::Config(format!("namespace {nsid}: {why}")));
        if !(1..=NSID_MAX).contains(nsid) {
            return wrong(format!("its number must be from 1 to {NSID_MAX}"));
        }
        let geometry = device.geometry();
        if geometry.max_transfer_size < self.transfer_bytes {
            return wrong(format!(
                "{} takes {} bytes at once, hosts were told {}",
                device.name(),
                geometry.max_transfer_size,
                self.transfer_bytes
            ));
        }
        Ok(())
    }

    pub(crate) fn add(&self, config: &NamespaceConfig) -> Result<(), NvmfError> {
        self.check_namespace(config)?;
        let nsid = config.nsid;
        let mut namespaces = self.namespaces.write();
        if namespaces.contains_key(&nsid) {
            let why = format!("namespace {nsid}: {} has it already", self.nqn);
            return Err(NvmfError::Config(why));
        }
        let namespace = self.make(config, &namespaces)?;
        namespaces.insert(nsid, namespace);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// A namespace beside others.
    fn make(
        &self,
        config: &NamespaceConfig,
        others: &BTreeMap<u32, Arc<Namespace>>,
    ) -> Result<Arc<Namespace>, NvmfError> {
        let NamespaceConfig { nsid, device, uuid: given } = config;
        let (geometry, mut devices) = (device.geometry(), self.devices.lock());
        let taken: Vec<Uuid> = others.values().map(|one| one.uuid).collect();
        let uuid = devices.identify(&self.nqn, config, &taken, self.store.as_deref())?;
        let Belongings { reservations, late } =
            devices.belongings((&self.nqn, *nsid), uuid, self.store.as_ref())?;
        Ok(Arc::new(Namespace {
            nsid: *nsid,
            device: device.clone(),
            uuid,
            given: *given,
            endurance_group: device.data_placement().map_or(0, |fdp| self.group_of(fdp.drive())),
            reservations,
            late,
            throttle: Throttle::default(),
            is_removed: AtomicBool::new(false),
            geometry,
            capacity: AtomicU64::new(geometry.capacity.0),
        }))
    }

    pub(crate) fn remove(&self, nsid: u32) -> bool {
        let removed = self.namespaces.write().remove(&nsid);
        self.generation.fetch_add(1, Ordering::Release);
        removed.is_some_and(|one| !one.is_removed.swap(true, Ordering::Release))
    }

    /// Sets the limits of all namespaces.
    fn limit(&self, config: &SubsystemConfig) {
        for (nsid, namespace) in &*self.namespaces.read() {
            namespace.throttle.set(config.rates.get(nsid).copied().unwrap_or_default());
        }
    }

    fn group_of(&self, drive: &str) -> u16 {
        let mut drives = self.drives.lock();
        let index = drives.iter().position(|known| known == drive).unwrap_or_else(|| {
            drives.push(drive.to_owned());
            drives.len() - 1
        });
        u16::try_from(index + 1).unwrap_or(u16::MAX)
    }

    /// How many endurance groups there are.
    pub(crate) fn endurance_groups(&self) -> u16 {
        u16::try_from(self.drives.lock().len()).unwrap_or(u16::MAX)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn namespace(&self, nsid: u32) -> Option<Arc<Namespace>> {
        self.namespaces.read().get(&nsid).cloned()
    }

    pub(crate) fn namespaces(&self) -> Vec<Arc<Namespace>> {
        self.namespaces.read().values().cloned().collect()
    }

    /// Whether a namespace has a volatile write cache.
    pub(crate) fn is_volatile(&self) -> bool {
        self.namespaces.read().values().any(|one| one.geometry().volatile_write_cache)
    }

    /// The namespaces whose device has another size than hosts know; they know it from now on.
    pub(crate) fn refresh(&self) -> Vec<u32> {
        let namespaces = self.namespaces();
        namespaces.iter().filter(|one| one.refresh()).map(|one| one.nsid).collect()
    }

    /// Returns whether a host may connect, and the credentials asked of it. `None`: it may not.
    pub(crate) fn admits(&self, hostnqn: &str) -> Option<Option<HostConfig>> {
        match &*self.access.read() {
            Access::Any => Some(None),
            Access::Hosts(hosts) => {
                hosts.iter().find(|host| host.nqn == hostnqn).cloned().map(Some)
            }
        }
    }

    /// Whether hosts reach it through a portal.
    pub(crate) fn is_at(&self, portal: &Portal) -> bool {
        let listeners = self.listeners.read();
        listeners.is_empty() || listeners.contains(&portal.listen)
    }

    /// Whether it names the host.
    pub(crate) fn lists(&self, hostnqn: &str) -> bool {
        matches!(self.admits(hostnqn), Some(Some(_)))
    }

    /// Whether the namespaces of `config` can be had, together.
    pub(crate) fn check(&self, config: &SubsystemConfig) -> Result<(), NvmfError> {
        let mut nsids = Vec::new();
        for namespace in &config.namespaces {
            self.check_namespace(namespace)?;
            if nsids.contains(&namespace.nsid) {
                let why = format!("{} has namespace {} twice", self.nqn, namespace.nsid);
                return Err(NvmfError::Config(why));
            }
            nsids.push(namespace.nsid);
        }
        Ok(())
    }

    /// Takes on `config`, which was checked. Returns the namespaces that changed, and whether the
    /// hosts that may connect did, or the portals for them.
    pub(crate) fn become_(&self, config: &SubsystemConfig) -> Result<(Vec<u32>, bool), NvmfError> {
        let is_kept = |one: &Namespace, wanted: &NamespaceConfig| {
            one.nsid == wanted.nsid
                && Arc::ptr_eq(&one.device, &wanted.device)
                && one.given == wanted.uuid
        };
        let mut namespaces = self.namespaces.write();
        let is_wanted = |one: &Namespace| config.namespaces.iter().any(|it| is_kept(one, it));
        let kept = namespaces.iter().filter(|(_, one)| is_wanted(one));
        let mut next: BTreeMap<_, _> = kept.map(|(nsid, one)| (*nsid, one.clone())).collect();
        let mut changed: BTreeSet<u32> =
            namespaces.keys().filter(|nsid| !next.contains_key(nsid)).copied().collect();
        for wanted in &config.namespaces {
            if !next.contains_key(&wanted.nsid) {
                let namespace = self.make(wanted, &next)?;
                next.insert(wanted.nsid, namespace);
                changed.insert(wanted.nsid);
            }
        }
        let before = std::mem::replace(&mut *namespaces, next);
        self.generation.fetch_add(1, Ordering::Release);
        for one in before.values().filter(|one| !is_wanted(one)) {
            one.is_removed.store(true, Ordering::Release);
        }
        drop(namespaces);
        self.limit(config);
        let changed = changed.into_iter().collect();
        let before = std::mem::replace(&mut *self.access.write(), config.access.clone());
        let listeners = std::mem::replace(&mut *self.listeners.write(), config.listeners.clone());
        Ok((changed, before != config.access || listeners != config.listeners))
    }

    /// Hosts have none of it any more.
    pub(crate) fn retire(&self) {
        for namespace in self.namespaces() {
            self.remove(namespace.nsid);
        }
    }
}
