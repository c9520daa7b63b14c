//! The experiment over the network: each workload runs twice on equal drives in software, once on
//! their namespaces and once through a target and initiators on the loopback, placement ids and all.
//! The same commands reach the drive, one after the other, so it must have written the same, to the byte.

use std::sync::Arc;

use esker_device::Device;
use esker_nvmf::target::{
    Access, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_nvmf::{Initiator, InitiatorConfig};
use esker_report::{Assumption, Page, Verdict};
use serde::{Deserialize, Serialize};

use super::configuration::{Configuration, InitialState};
use super::course::Measured;
use super::engine::{EngineRun, StoreDevices};
use super::in_turn::InTurn;
use super::jobs::{self, Job, Work};
use super::measure::{OnShare, measure_on};
use super::options::{ABOUT, FdpOptions};
use super::report::assumptions;
use super::sink::DeviceDrive;
use super::{emulated, plan};
use crate::LabError;
use crate::study::{About, Follow, Study};

const NQN: &str = "nqn.2026-01.io.esker:lab";
/// Reclaim units of the drive under circular writers, and under stores with records.
const UNITS: (u32, u32) = (256, 128);

/// A workload, and the drive under it.
pub(super) enum Workload {
    /// Stores that write blocks.
    Stores(Box<Configuration>),
    /// Four KVDBs.
    Engine(EngineRun),
}

/// A workload that runs twice.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) workload: Workload,
}

/// Results of a workload, both ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The workload.
    pub name: String,
    /// Everything its factor depends on.
    pub assumptions: Vec<Assumption>,
    /// On the drive itself.
    pub in_process: Measured,
    /// Through a target and initiators.
    pub over_network: Measured,
    /// Bytes that hosts sent to the target for writes, as it counts them.
    pub network_bytes: u64,
}

impl Pair {
    /// Whether the drive wrote the same, byte for byte, all along.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.in_process == self.over_network
    }
}

/// The whole of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkFigures {
    /// The workloads.
    pub pairs: Vec<Pair>,
}

impl NetworkFigures {
    /// Makes sure that all pairs are equal.
    ///
    /// # Errors
    /// `Differs` for the first that is not.
    pub fn check(&self) -> Result<(), LabError> {
        let Some(pair) = self.pairs.iter().find(|pair| !pair.is_equal()) else { return Ok(()) };
        let written = |of: &Measured| format!("{} of {}", of.media_bytes, of.host_bytes);
        Err(LabError::Differs {
            name: pair.name.clone(),
            in_process: written(&pair.in_process),
            over_network: written(&pair.over_network),
        })
    }
}

/// The study over the network. The drive has a 64th of the size that the options say, and at least 256 MiB: it stores
/// its data in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverNetwork;

impl Study for OverNetwork {
    const ABOUT: About = About { format: "esker-fdp-network/1", ..ABOUT };

    type Options = FdpOptions;
    type Machine<'a> = ();
    type Figures = NetworkFigures;

    fn check(options: &FdpOptions) -> Result<(), LabError> {
        options.check()
    }

    fn run(
        options: &FdpOptions,
        (): &mut (),
        follow: &mut Follow<'_>,
    ) -> Result<NetworkFigures, LabError> {
        let planned = workloads(options);
        let jobs =
            planned.iter().map(|one| Job { name: one.name.clone(), work: Work::Network(one) });
        let jobs: Vec<Job<'_>> = jobs.collect();
        let outcomes = jobs::run(&jobs, options.threads, follow)?;
        Ok(NetworkFigures {
            pairs: outcomes.into_iter().flatten().map(jobs::Outcome::pair).collect(),
        })
    }

    /// Nothing was published: [`NetworkFigures::check`] says whether all are equal.
    fn verdicts(_: &NetworkFigures) -> Vec<Verdict> {
        Vec::new()
    }

    fn document(figures: &NetworkFigures) -> Page {
        figures.document()
    }
}

/// The workloads that run.
pub(super) fn workloads(options: &FdpOptions) -> Vec<Planned> {
    let mut engines = EngineRun::all(options);
    engines.retain(|run| [0, 5].contains(&run.handles_each));
    let drive_bytes = engines[0].drive_bytes;
    let mut circular = plan::circular_base(options);
    circular.drive.units = UNITS.0;
    let mut records = Configuration { initial: InitialState::Fresh, ..plan::stores_base(options) };
    records.drive.units = UNITS.1;
    let mut all = Vec::new();
    for (name, mut base) in [("circular writers", circular), ("Aerospike-like stores", records)] {
        base.drive.bytes = drive_bytes;
        for (handles, placed) in [(0, "no placement"), (1, "a handle each")] {
            let name = format!("{name} at 1:2:4:8, {placed}");
            let workload = Workload::Stores(Box::new(plan::with_handles(&base, handles)));
            all.push(Planned { name, workload });
        }
    }
    if options.engine {
        let engine = |run: EngineRun| Planned { name: run.name(), workload: Workload::Engine(run) };
        all.extend(engines.into_iter().map(engine));
    }
    all
}

impl Planned {
    /// Runs the workload both ways.
    pub(super) fn run(&self, watch: OnShare<'_>) -> Result<Pair, LabError> {
        let (in_process, _) =
            self.measure(&|devices| Ok((devices, None)), &mut |share| watch(share / 2.0))?;
        let (over_network, target) = self.measure(
            &|devices| serve(devices).map(|(devices, target)| (devices, Some(target))),
            &mut |share| watch(0.5 + share / 2.0),
        )?;
        let flows = target.map(|target| target.metrics().flows).unwrap_or_default();
        let assumptions = match &self.workload {
            Workload::Stores(of) => assumptions(of),
            Workload::Engine(of) => of.assumptions(),
        };
        Ok(Pair {
            name: self.name.clone(),
            assumptions,
            in_process,
            over_network,
            network_bytes: flows.iter().map(|flow| flow.written_bytes).sum(),
        })
    }

    /// Runs it on a new drive, whose namespaces are given to `through` first.
    fn measure(
        &self,
        through: &dyn Fn(Vec<Arc<dyn Device>>) -> Result<Served, LabError>,
        watch: OnShare<'_>,
    ) -> Result<(Measured, Option<Target>), LabError> {
        match &self.workload {
            Workload::Stores(of) => {
                let (devices, target) = through(emulated::namespaces(of)?)?;
                let measured = measure_on(&mut DeviceDrive::new(devices)?, of, watch)?;
                Ok((measured, target))
            }
            Workload::Engine(of) => {
                let mut devices = Vec::new();
                for StoreDevices { manifest, capacity } in of.devices()? {
                    devices.extend([manifest, capacity]);
                }
                let (devices, target) = through(devices)?;
                let in_turn = (1..).zip(devices).map(|(nsid, device)| -> Result<_, LabError> {
                    let device: Arc<dyn Device> =
                        Arc::new(InTurn::new(format!("namespace {nsid}"), device)?);
                    Ok(device)
                });
                let devices = in_turn.collect::<Result<Vec<_>, _>>()?;
                let pairs = devices.chunks_exact(2).map(|pair| StoreDevices {
                    manifest: pair[0].clone(),
                    capacity: pair[1].clone(),
                });
                Ok((of.measure_on(pairs.collect(), watch)?, target))
            }
        }
    }
}

type Served = (Vec<Arc<dyn Device>>, Option<Target>);

/// Serves devices on the loopback; returns the remote ones in their order.
pub(super) fn serve(
    devices: Vec<Arc<dyn Device>>,
) -> Result<(Vec<Arc<dyn Device>>, Target), LabError> {
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.access = Access::Any;
    for (nsid, device) in (1..).zip(devices) {
        subsystem.namespaces.push(NamespaceConfig { nsid, device, uuid: None });
    }
    let count = u32::try_from(subsystem.namespaces.len()).unwrap_or(u32::MAX);
    let target = Target::start(&TargetConfig {
        portals: vec![PortalConfig::new(([127, 0, 0, 1], 0).into())],
        subsystems: vec![subsystem],
        ..TargetConfig::default()
    })?;
    let remote = |nsid| -> Result<Arc<dyn Device>, LabError> {
        let config = InitiatorConfig::new(target.addresses(), NQN, nsid)?;
        Ok(Arc::new(Initiator::open(config)?))
    };
    let devices = (1..=count).map(remote).collect::<Result<_, _>>()?;
    Ok((devices, target))
}
