//! An initiator: a namespace of a remote target, as a device.
//!
//! | module | content |
//! | --- | --- |
//! | [`config`] | which namespace, how to reach it |
//! | `link` | one connected queue |
//! | `health` | whether a path is worth a try |
//! | `path` | the controller behind one address: admin queue, events, ANA |
//! | `multipath` | the paths and the threads that keep them, the choice among them |
//! | `failover` | the way of a queue to the best path that works |
//! | `pending` | a command between its submission and its completion |
//! | `queue` | the queue pair: commands, and their way to another connection |
//! | `commands` | the NVMe commands for a command of the seam |
//! | `unflushed` | writes that completed and are not flushed |
//! | `restore` | writing that again after its controller was lost |
//! | `placement` | data placement, asked of the target |
//!
//! Each queue pair has a connection of its own, driven by the thread that uses it. A thread for
//! each path keeps the controller alive, connects it again, and hears of events.

mod commands;
pub mod config;
mod failover;
mod health;
mod link;
mod multipath;
mod path;
mod payload;
mod pending;
mod placement;
mod queue;
mod restore;
mod unflushed;

use std::sync::Arc;

use esker_base::Lba;
use esker_device::{
    DataPlacement, Device, DeviceError, DeviceStats, Geometry, Identity, OpKind, QueuePair,
};

pub use config::InitiatorConfig;

use crate::error::NvmfError;
use crate::target::config::check_nqn;
use multipath::{Keeper, Multipath};
use placement::RemotePlacement;
use queue::Queue;

/// A remote namespace.
pub struct Initiator {
    keeper: Arc<Keeper>,
    placement: Option<RemotePlacement>,
}

impl Initiator {
    /// Connects to a remote namespace; one path is enough, the others follow when they can.
    ///
    /// # Errors
    /// When no path can be connected, or the namespace is none that can be used.
    pub fn open(config: InitiatorConfig) -> Result<Initiator, NvmfError> {
        [&config.nqn, &config.host_nqn].into_iter().try_for_each(|name| check_nqn(name))?;
        let keeper = Arc::new(Keeper::start(Multipath::connect(config)?)?);
        let placement = placement::find(&keeper.shared);
        let handles = placement.as_ref().map_or(0, RemotePlacement::ids);
        keeper.shared.set_handles(handles);
        Ok(Initiator { keeper, placement })
    }

    /// How many of the paths work at the moment.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.keeper.shared.paths.iter().filter(|path| path.is_up()).count()
    }
}

impl Device for Initiator {
    fn name(&self) -> &str {
        &self.keeper.shared.name
    }

    fn geometry(&self) -> Geometry {
        self.keeper.shared.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(self.name(), depth)?;
        self.keeper.shared.check_owner()?;
        let queue = Queue::open(self.keeper.clone(), depth).map_err(|error| {
            DeviceError::new(self.name(), OpKind::Open, Lba(0), 0, error.cause())
        })?;
        Ok(Box::new(queue))
    }

    fn discards_zero(&self) -> bool {
        self.keeper.shared.discards_zero
    }

    /// The identifiers of the namespace, whichever target serves it.
    fn identity(&self) -> Option<Identity> {
        self.keeper.shared.device_identity.clone()
    }

    fn stats(&self) -> DeviceStats {
        self.keeper.shared.counters.snapshot(self.name())
    }

    fn remarks(&self) -> Vec<String> {
        let shared = &self.keeper.shared;
        let remark = |path: &path::Path| match path.health.remark() {
            Some(remark) => Some(format!("{} {remark}", path.peer)),
            None if !path.is_up() => Some(format!("{} is not connected", path.peer)),
            None => None,
        };
        let lost = shared.unflushed.as_ref().and_then(|unflushed| unflushed.lock().lost());
        shared.paths.iter().filter_map(remark).chain(lost).collect()
    }

    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        self.placement.as_ref().map(|placement| placement as &dyn DataPlacement)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use esker_base::{AlignedBuf, Clock};
    use esker_device::{MemoryDevice, Port};

    use super::*;
    use crate::target::{
        Access, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
    };
    use crate::wire::log::AnaState;

    #[test]
    fn a_path_that_a_queue_found_inaccessible_is_used_again_when_its_log_page_says_so() {
        let nqn = "nqn.2026-01.io.esker:test";
        let mut subsystem = SubsystemConfig::new(nqn);
        subsystem.access = Access::Any;
        let device = Arc::new(MemoryDevice::new("memory", 1 << 20, 512));
        subsystem.namespaces.push(NamespaceConfig { nsid: 1, device, uuid: None });
        let mut config = TargetConfig::default();
        config.portals.push(PortalConfig::new("127.0.0.1:0".parse().unwrap()));
        config.subsystems.push(subsystem);
        let target = Target::start(&config).unwrap();
        let initiator =
            Initiator::open(InitiatorConfig::new(target.addresses(), nqn, 1).unwrap()).unwrap();
        // As a queue does that is told so, after the page was read.
        let path = &initiator.keeper.shared.paths[0];
        path.set_ana(AnaState::Inaccessible);
        let clock = Clock::real();
        for _ in 0..1000 {
            if path.ana() == AnaState::Optimized {
                let mut port = Port::open(&initiator, 1).unwrap();
                port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
                return;
            }
            clock.sleep(Duration::from_millis(5));
        }
        panic!("it is not used any more");
    }
}
