//! Esker's target, with one worker.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Lba};
use esker_device::{Device, MemoryDevice, Op, Port};
use esker_nvmf::target::{
    Access, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};

use super::{Failure, Load};

pub(crate) const NQN: &str = "nqn.2026-01.io.esker:vol1";
const BYTES: u64 = 256 << 20;
const FILL: u64 = 1 << 20;

/// Prints its address, and serves until its input is closed.
pub(crate) fn serve(load: &Load) -> Result<(), Failure> {
    let device = Arc::new(MemoryDevice::new("memory", BYTES, 4096));
    fill(&*device)?;
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.access = Access::Any;
    subsystem.namespaces.push(NamespaceConfig { nsid: 1, device, uuid: None });
    let mut config = TargetConfig {
        portals: vec![PortalConfig::new("127.0.0.1:0".parse()?)],
        subsystems: vec![subsystem],
        ..TargetConfig::default()
    };
    config.limits.spin = Duration::from_micros(load.server_spin_us);
    let target = Target::start(&config)?;
    println!("{}", target.addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Memory that was never written is not there to be read.
fn fill(device: &dyn Device) -> Result<(), Failure> {
    let mut port = Port::open(device, 1)?;
    let lbas = FILL / u64::from(device.geometry().lba_size);
    for at in 0..BYTES / FILL {
        let mut buf = AlignedBuf::zeroed(usize::try_from(FILL)?);
        buf.fill(u8::try_from(at % 251)? + 1);
        let op = Op::Write { lba: Lba(at * lbas), buf, placement: None, fua: false };
        port.run(op)?;
    }
    Ok(())
}
