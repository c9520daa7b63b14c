//! A target on a free port, and initiators for it.

#![allow(dead_code)] // each test uses some of it

pub(crate) mod client;
pub(crate) mod forgetful;
pub(crate) mod paced;
pub(crate) mod relay;
pub(crate) mod script;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use esker_device::{Device, MemoryDevice};
use esker_nvmf::target::{
    Access, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_nvmf::{Initiator, InitiatorConfig};

pub(crate) const NQN: &str = "nqn.2026-01.io.esker:test";

pub(crate) fn memory(mib: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new("memory", mib << 20, 512))
}

/// A target with one namespace, for anyone, on a free port.
pub(crate) fn config(device: Arc<dyn Device>) -> TargetConfig {
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.access = Access::Any;
    subsystem.namespaces.push(NamespaceConfig { nsid: 1, device, uuid: None });
    let mut config = TargetConfig::default();
    config.portals.push(PortalConfig::new("127.0.0.1:0".parse().unwrap()));
    config.subsystems.push(subsystem);
    config
}

pub(crate) fn serve(device: Arc<dyn Device>) -> Target {
    Target::start(&config(device)).unwrap()
}

/// How to reach it; quick to notice and to try again.
pub(crate) fn reach(portals: Vec<SocketAddr>) -> InitiatorConfig {
    InitiatorConfig {
        retry: Duration::from_millis(10),
        keep_alive: Duration::from_secs(2),
        timeout: Duration::from_secs(5),
        ..InitiatorConfig::new(portals, NQN, 1).unwrap()
    }
}

pub(crate) fn open(target: &Target) -> Initiator {
    Initiator::open(reach(target.addresses())).unwrap()
}
