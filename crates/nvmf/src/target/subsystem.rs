//! Subsystems and namespaces.

pub(crate) mod late;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use data_encoding::HEXLOWER;
use esker_base::Lba;
use esker_device::{DataPlacement, Device, Geometry};
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};

use super::config::{Access, HostConfig, Limits, NSID_MAX, NamespaceConfig, SubsystemConfig};
use super::reservation::{Reservations, Store};
use crate::error::NvmfError;
use crate::wire::status::Status;
use late::Late;

/// A device under a number.
pub(crate) struct Namespace {
    pub(crate) nsid: u32,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) uuid: [u8; 16],
    /// The endurance group, 0 without data placement.
    pub(crate) endurance_group: u16,
    pub(crate) reservations: Reservations,
    /// Commands that its device did not end in time.
    pub(crate) late: Late,
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
    /// The largest transfer in bytes: a power of two.
    pub(crate) transfer_bytes: u32,
    namespaces: RwLock<BTreeMap<u32, Arc<Namespace>>>,
    /// Changes with `namespaces`.
    generation: AtomicU64,
    /// The drives behind namespaces with data placement; group n + 1 is drive n.
    drives: Mutex<Vec<String>>,
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
            transfer_bytes,
            namespaces: RwLock::new(BTreeMap::new()),
            generation: AtomicU64::new(0),
            drives: Mutex::new(Vec::new()),
            store,
        };
        for namespace in &config.namespaces {
            subsystem.add(namespace)?;
        }
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
        let NamespaceConfig { nsid, device, uuid } = config;
        let geometry = device.geometry();
        let mut namespaces = self.namespaces.write();
        if namespaces.contains_key(nsid) {
            let why = format!("namespace {nsid}: {} has it already", self.nqn);
            return Err(NvmfError::Config(why));
        }
        let namespace = Namespace {
            nsid: *nsid,
            device: device.clone(),
            uuid: uuid.unwrap_or_else(|| self.derived_uuid(*nsid)),
            endurance_group: device.data_placement().map_or(0, |fdp| self.group_of(fdp.drive())),
            reservations: Reservations::new(self.store.as_ref(), &self.nqn, *nsid),
            late: Late::default(),
            is_removed: AtomicBool::new(false),
            geometry,
            capacity: AtomicU64::new(geometry.capacity.0),
        };
        namespaces.insert(*nsid, Arc::new(namespace));
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn remove(&self, nsid: u32) -> bool {
        let removed = self.namespaces.write().remove(&nsid);
        self.generation.fetch_add(1, Ordering::Release);
        removed.is_some_and(|one| !one.is_removed.swap(true, Ordering::Release))
    }

    /// A UUID of version 8 (RFC 9562, 5.8): the same for the same subsystem and number.
    fn derived_uuid(&self, nsid: u32) -> [u8; 16] {
        let digest = Sha256::new_with_prefix(self.nqn.as_bytes()).chain_update(nsid.to_le_bytes());
        let mut uuid: [u8; 16] = digest.finalize()[..16].try_into().expect("16 bytes");
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
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
    /// hosts that may connect did.
    pub(crate) fn become_(&self, config: &SubsystemConfig) -> Result<(Vec<u32>, bool), NvmfError> {
        let is_kept = |one: &Namespace, wanted: &NamespaceConfig| {
            one.nsid == wanted.nsid
                && Arc::ptr_eq(&one.device, &wanted.device)
                && wanted.uuid.is_none_or(|uuid| uuid == one.uuid)
        };
        let known = self.namespaces();
        let mut changed = Vec::new();
        for one in &known {
            if !config.namespaces.iter().any(|wanted| is_kept(one, wanted)) {
                self.remove(one.nsid);
                changed.push(one.nsid);
            }
        }
        for wanted in &config.namespaces {
            if !known.iter().any(|one| is_kept(one, wanted)) {
                self.add(wanted)?;
                changed.push(wanted.nsid);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        let before = std::mem::replace(&mut *self.access.write(), config.access.clone());
        Ok((changed, before != config.access))
    }

    /// Hosts have none of it any more.
    pub(crate) fn retire(&self) {
        for namespace in self.namespaces() {
            self.remove(namespace.nsid);
        }
    }
}
