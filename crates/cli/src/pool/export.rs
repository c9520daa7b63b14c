//! Volumes that hosts may use, over NVMe/TCP: each is a subsystem of its own with one namespace.
//!
//! Which hosts may use a volume is kept in the pool, so a server that starts again exports what the one before did.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use esker_device::Device;
use esker_nvmf::target::{
    Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig, TargetConfig,
};
use esker_nvmf::{NvmfError, Target};
use esker_stack::OpenPool;
use esker_volume::{VolumeError, VolumeInfo};
use parking_lot::Mutex;

use super::routes::Refusal;
use super::view::ExportView;

/// The host that stands for any.
pub(crate) const ANY_HOST: &str = "*";

/// The NQN under which a volume is exported.
pub(crate) fn nqn(pool: &str, volume: &str) -> String {
    format!("nqn.2026-01.io.esker:{pool}:{volume}")
}

/// A target that serves the volumes of a pool which have hosts.
pub(crate) struct Exports {
    target: Arc<Target>,
    pool: Arc<OpenPool>,
    state: Mutex<State>,
}

/// Devices of exported volumes, by the volume's id: a namespace stays the same as long as its device does.
type Devices = BTreeMap<u64, Arc<dyn Device>>;

struct State {
    config: TargetConfig,
    devices: Devices,
}

impl Exports {
    /// Exports what has hosts. All of it is there before the first host can ask: one that is told that a subsystem
    /// does not exist does not ask again.
    pub(crate) fn start(
        pool: &Arc<OpenPool>,
        listen: &[SocketAddr],
        workers: Option<usize>,
    ) -> Result<Exports, Refusal> {
        let portals = listen.iter().map(|&address| PortalConfig::new(address));
        let mut config = TargetConfig { portals: portals.collect(), ..TargetConfig::default() };
        config.limits.workers = workers.unwrap_or(config.limits.workers);
        let devices;
        (config.subsystems, devices) = wanted(pool, &BTreeMap::new())?;
        let target = Arc::new(Target::start(&config).map_err(refused)?);
        let state = Mutex::new(State { config, devices });
        Ok(Exports { target, pool: pool.clone(), state })
    }

    /// The target, for its metrics.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Exports what has hosts now, and nothing else; connected hosts are told of what has changed.
    pub(crate) fn refresh(&self) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let (subsystems, devices) = wanted(&self.pool, &state.devices)?;
        let config = TargetConfig { subsystems, ..state.config.clone() };
        self.target.reconfigure(&config).map_err(refused)?;
        self.target.refresh();
        *state = State { config, devices };
        Ok(())
    }

    /// What is exported, to whom, and where.
    pub(crate) fn list(&self) -> Vec<ExportView> {
        let addresses: Vec<String> =
            self.target.addresses().iter().map(SocketAddr::to_string).collect();
        let view = |volume: VolumeInfo| ExportView {
            nqn: nqn(self.pool.name(), &volume.name),
            volume: volume.name,
            hosts: volume.hosts,
            addresses: addresses.clone(),
        };
        exported(&self.pool).map(view).collect()
    }

    /// Ends in order: connections are closed, and what the volumes have is finished.
    pub(crate) fn close(self) -> Result<(), NvmfError> {
        match Arc::into_inner(self.target) {
            Some(target) => target.close(),
            None => Ok(()),
        }
    }
}

/// The subsystems of what has hosts, and their devices: those of `open`, or new ones.
fn wanted(
    pool: &Arc<OpenPool>,
    open: &Devices,
) -> Result<(Vec<SubsystemConfig>, Devices), Refusal> {
    let uuid = pool.status().uuid.0;
    let (mut subsystems, mut devices) = (Vec::new(), BTreeMap::new());
    for volume in exported(pool) {
        let id = volume.id.0;
        let device = match open.get(&id) {
            Some(device) => device.clone(),
            None => match pool.device(&volume.name, None) {
                Ok(device) => device,
                // It was deleted just now.
                Err(VolumeError::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            },
        };
        devices.insert(id, device.clone());
        let hosts = volume.hosts.iter().map(|host| HostConfig::new(host)).collect();
        let is_any = volume.hosts.iter().any(|host| host == ANY_HOST);
        let uuid = Some((uuid ^ u128::from(id)).to_be_bytes());
        subsystems.push(SubsystemConfig {
            access: if is_any { Access::Any } else { Access::Hosts(hosts) },
            namespaces: vec![NamespaceConfig { nsid: 1, device, uuid }],
            ..SubsystemConfig::new(&nqn(pool.name(), &volume.name))
        });
    }
    Ok((subsystems, devices))
}

fn exported(pool: &OpenPool) -> impl Iterator<Item = VolumeInfo> {
    let is_exported = |one: &VolumeInfo| one.trashed_until.is_none() && !one.hosts.is_empty();
    pool.volumes().into_iter().filter(is_exported)
}

fn refused(error: NvmfError) -> Refusal {
    Refusal::new(error.kind(), error.to_string())
}
