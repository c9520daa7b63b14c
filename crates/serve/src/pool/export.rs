//! Volumes that hosts may use, over NVMe/TCP: each is a subsystem of its own with one namespace, and so is each
//! snapshot that a host may use.
//!
//! Which hosts may use a volume is kept in the pool, so a server that starts again exports what the one before did. Keys
//! are in files, and the pool has their paths: `NQN?key-file=PATH`. A host whose key cannot be read is not let in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, Nanos};
use esker_device::Device;
use esker_nvmf::target::{Access, NamespaceConfig, PortalConfig, SubsystemConfig, TargetConfig};
use esker_nvmf::{NvmfError, Target};
use esker_stack::OpenPool;
use esker_stack::served::OPENER;
use esker_volume::{VolumeError, VolumeInfo};
use parking_lot::Mutex;

use super::hosts::{ANY_HOST, HostView, Hosts, config_of};
use super::view::{AlarmView, ExportView};
use crate::error::Result;

/// A host that was made up for a device, and is not connected for so long, has ended without letting go.
const LOST: Duration = Duration::from_secs(120);

/// The NQN under which a volume, or a snapshot, is exported.
pub(crate) fn nqn(pool: &str, volume: &str, snapshot: Option<&str>) -> String {
    let at = snapshot.map(|snapshot| format!("@{snapshot}")).unwrap_or_default();
    format!("nqn.2026-01.io.esker:{pool}:{volume}{at}")
}

/// The UUID of the namespace that a volume, or a snapshot, of this number is.
pub(crate) fn namespace_uuid(pool: u128, id: u64) -> [u8; 16] {
    (pool ^ u128::from(id)).to_be_bytes()
}

/// A target that serves the volumes of a pool which have hosts.
pub(crate) struct Exports {
    target: Arc<Target>,
    pool: Arc<OpenPool>,
    /// For each address that is listened on, in the order of the target's, whether it is with TLS.
    with_tls: Vec<bool>,
    clock: Clock,
    state: Mutex<State>,
    /// Hosts that were made up for a device and are not connected, since when.
    unseen: Mutex<BTreeMap<String, Nanos>>,
}

/// Devices of exported volumes and snapshots, by id: a namespace stays the same as long as its device does.
type Devices = BTreeMap<u64, Arc<dyn Device>>;

/// Hosts that are not let in, with their volumes and the reasons.
type Refused = Vec<(String, HostView, String)>;

/// A host that is connected to a volume, or to a snapshot of it.
pub(crate) struct User {
    /// Its NQN.
    pub(crate) host: String,
    /// The snapshot, where it uses one.
    pub(crate) snapshot: Option<String>,
    /// The NQN of the subsystem that it is connected to.
    pub(crate) subsystem: String,
}

struct State {
    config: TargetConfig,
    devices: Devices,
    refused: Refused,
}

impl Exports {
    /// Exports volumes and snapshots that have hosts. All of them are there before the first host can ask: one that is
    /// told that a subsystem does not exist does not ask again.
    pub(crate) fn start(
        pool: &Arc<OpenPool>,
        listen: &[SocketAddr],
        listen_tls: &[SocketAddr],
        workers: Option<usize>,
    ) -> Result<Exports> {
        let plain = listen.iter().map(|&address| PortalConfig::new(address));
        let tls = listen_tls
            .iter()
            .map(|&address| PortalConfig { tls: true, ..PortalConfig::new(address) });
        let mut config =
            TargetConfig { portals: plain.chain(tls).collect(), ..TargetConfig::default() };
        config.limits.workers = workers.unwrap_or(config.limits.workers);
        let with_tls = config.portals.iter().map(|portal| portal.tls).collect();
        let (devices, kept_out);
        (config.subsystems, devices, kept_out) = wanted(pool, &BTreeMap::new())?;
        let target = Arc::new(Target::start(&config)?);
        let state = Mutex::new(State { config, devices, refused: kept_out });
        let (pool, clock, unseen) = (pool.clone(), Clock::real(), Mutex::default());
        Ok(Exports { target, pool, with_tls, clock, state, unseen })
    }

    /// The target, for its metrics.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Where hosts reach it, with TLS or without.
    fn addresses(&self, tls: bool) -> Vec<String> {
        let all = self.target.addresses().into_iter().zip(&self.with_tls);
        all.filter(|(_, is_tls)| **is_tls == tls).map(|(address, _)| address.to_string()).collect()
    }

    /// Exports volumes and snapshots that have hosts now, and nothing else; connected hosts are told of changes.
    pub(crate) fn refresh(&self) -> Result {
        let mut state = self.state.lock();
        let (subsystems, devices, kept_out) = wanted(&self.pool, &state.devices)?;
        let config = TargetConfig { subsystems, ..state.config.clone() };
        self.target.reconfigure(&config)?;
        self.target.refresh();
        *state = State { config, devices, refused: kept_out };
        Ok(())
    }

    /// Lists the exported volumes and snapshots, their hosts, and the addresses.
    pub(crate) fn list(&self) -> Vec<ExportView> {
        let pool = self.pool.name();
        let view = |(volume, snapshot, _): (VolumeInfo, Option<String>, _)| {
            export_of(pool, &volume, snapshot.as_deref(), Some(self))
        };
        exported(&self.pool).into_iter().map(view).collect()
    }

    /// Hosts that are connected now to a volume or one of its snapshots.
    pub(crate) fn users(&self, volume: &VolumeInfo) -> Vec<User> {
        let exported: BTreeSet<Option<String>> =
            Hosts::of(volume).0.into_iter().map(|host| host.snapshot).collect();
        let of = |snapshot: Option<String>| {
            let subsystem = nqn(self.pool.name(), &volume.name, snapshot.as_deref());
            let hosts = self.target.hosts_of(&subsystem).into_iter();
            hosts.map(move |host| User {
                host,
                snapshot: snapshot.clone(),
                subsystem: subsystem.clone(),
            })
        };
        exported.into_iter().flat_map(of).collect()
    }

    /// Alarms about hosts that are allowed to use a volume and cannot.
    pub(crate) fn alarms(&self) -> Vec<AlarmView> {
        let pool = self.pool.name();
        let state = self.state.lock();
        let alarm = |(volume, host, why): &(String, HostView, String)| AlarmView {
            code: "HOST_KEY_UNREADABLE".to_owned(),
            text: format!("Host {} cannot use {volume}, because {why}.", host.nqn),
            action: "mend the file, or name another one".to_owned(),
            command: format!("esker volume export {pool}/{volume} --host {} --key FILE", host.nqn),
        };
        state.refused.iter().map(alarm).collect()
    }

    /// Volumes from which hosts that were made up for a device, and are gone, are to be taken; with the hosts that stay.
    pub(crate) fn without_lost_openers(&self) -> Vec<(String, Hosts)> {
        let (now, connected) = (self.clock.now(), self.target.hosts());
        let mut unseen = self.unseen.lock();
        let mut all = Vec::new();
        let mut there = Vec::new();
        for volume in self.pool.exported_volumes() {
            let mut hosts = Hosts::of(&volume);
            let count = hosts.0.len();
            hosts.0.retain(|host| {
                if !host.nqn.starts_with(OPENER) || connected.contains(&host.nqn) {
                    return true;
                }
                there.push(host.nqn.clone());
                now.since(*unseen.entry(host.nqn.clone()).or_insert(now)) < LOST
            });
            if hosts.0.len() < count {
                all.push((volume.name, hosts));
            }
        }
        unseen.retain(|nqn, _| there.contains(nqn));
        all
    }

    /// Ends in order: connections are closed, and requests to the volumes are finished.
    pub(crate) fn close(self) -> Result<(), NvmfError> {
        match Arc::into_inner(self.target) {
            Some(target) => target.close(),
            None => Ok(()),
        }
    }
}

/// The subsystems of exported volumes, their devices, which are those of `open` or new ones, and hosts not let in.
fn wanted(
    pool: &Arc<OpenPool>,
    open: &Devices,
) -> Result<(Vec<SubsystemConfig>, Devices, Refused)> {
    let uuid = pool.status().uuid.0;
    let (mut subsystems, mut devices, mut kept_out) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (volume, snapshot, hosts) in exported(pool) {
        let found = snapshot
            .as_ref()
            .map(|name| volume.snapshots.iter().find(|one| one.name == *name).map(|one| one.id.0));
        let Some(id) = found.unwrap_or(Some(volume.id.0)) else { continue };
        let device = match open.get(&id) {
            Some(device) => device.clone(),
            None => match pool.device(&volume.name, snapshot.as_deref()) {
                Ok(device) => device,
                // It was deleted just now.
                Err(VolumeError::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            },
        };
        devices.insert(id, device.clone());
        let mut access = Vec::new();
        for host in &hosts {
            match config_of(host) {
                Ok(config) => access.push(config),
                Err(error) => {
                    kept_out.push((volume.name.clone(), host.clone(), error.to_string()));
                }
            }
        }
        let is_any = hosts.iter().any(|host| host.nqn == ANY_HOST);
        let uuid = Some(namespace_uuid(uuid, id));
        subsystems.push(SubsystemConfig {
            access: if is_any { Access::Any } else { Access::Hosts(access) },
            namespaces: vec![NamespaceConfig { nsid: 1, device, uuid }],
            ..SubsystemConfig::new(&nqn(pool.name(), &volume.name, snapshot.as_deref()))
        });
    }
    Ok((subsystems, devices, kept_out))
}

/// How a volume, or a snapshot of it, is exported.
pub(crate) fn export_of(
    pool: &str,
    volume: &VolumeInfo,
    snapshot: Option<&str>,
    exports: Option<&Exports>,
) -> ExportView {
    let hosts = Hosts::of(volume).0.into_iter();
    let addresses = |tls| exports.map(|exports| exports.addresses(tls)).unwrap_or_default();
    ExportView {
        volume: volume.name.clone(),
        snapshot: snapshot.map(str::to_owned),
        nqn: nqn(pool, &volume.name, snapshot),
        hosts: hosts.filter(|host| host.snapshot.as_deref() == snapshot).collect(),
        addresses: addresses(false),
        tls_addresses: addresses(true),
    }
}

/// Volumes and snapshots with the hosts that may use them.
fn exported(pool: &OpenPool) -> Vec<(VolumeInfo, Option<String>, Vec<HostView>)> {
    let mut all = Vec::new();
    for volume in pool.exported_volumes() {
        let mut by_snapshot: BTreeMap<Option<String>, Vec<HostView>> = BTreeMap::new();
        for host in Hosts::of(&volume).0 {
            by_snapshot.entry(host.snapshot.clone()).or_default().push(host);
        }
        for (snapshot, hosts) in by_snapshot {
            all.push((volume.clone(), snapshot, hosts));
        }
    }
    all
}
