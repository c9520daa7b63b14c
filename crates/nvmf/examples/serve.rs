//! Serves a device in memory until its standard input ends.
//!
//! `cargo run --release -p esker-nvmf --example serve -- 127.0.0.1:4420 256 [OPTION=VALUE]...`
//!
//! The arguments are the address, the size in MiB, and options: `nqn=`, `announce=` an address,
//! `second=` another address to listen on, `host=NQN[,SECRET[,CONTROLLER-SECRET]]`, `workers=`,
//! `spin_us=`, `lba=`, `file=` a path to serve instead of memory, `fdp=1` for a drive with data
//! placement that keeps books but cleans nothing.
//!
//! Lines of the standard input: `ana PORTAL STATE`, `close PORTAL`, `add NSID MIB`, `remove NSID`, `grow MIB`,
//! `metrics`.

#![allow(clippy::print_stdout)]

#[path = "../tests/common/drive.rs"]
mod drive;

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::LbaCount;
use esker_device::{
    Device, DeviceError, DeviceStats, FileDevice, FileOptions, Geometry, MemoryDevice, QueuePair,
};
use esker_nvmf::auth::Secret;
use esker_nvmf::target::{
    Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_nvmf::wire::log::AnaState;

type Failure = Box<dyn std::error::Error>;

/// Memory of which less is shown than there is, so that it can grow.
struct Growing(MemoryDevice, AtomicU64);

impl Device for Growing {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn geometry(&self) -> Geometry {
        Geometry { capacity: LbaCount(self.1.load(Ordering::Relaxed)), ..self.0.geometry() }
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.0.queue_pair(depth)
    }
    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().ok_or("an address, such as 127.0.0.1:4420")?;
    let mib: u64 = arguments.next().ok_or("a size in MiB")?.parse()?;
    let mut config = TargetConfig::default();
    config.portals.push(PortalConfig::new(listen.parse()?));
    let mut subsystem = SubsystemConfig::new("nqn.2026-01.io.esker:vol1");
    let (mut hosts, mut lba_size, mut file, mut fdp) = (Vec::new(), 4096u32, None, false);
    for argument in arguments {
        let (name, value) = argument.split_once('=').ok_or("options are NAME=VALUE")?;
        match name {
            "nqn" => value.clone_into(&mut subsystem.nqn),
            "announce" => config.portals[0].announce = Some(value.parse()?),
            "second" => {
                let mut portal = PortalConfig::new(value.parse()?);
                if let Some(first) = config.portals[0].announce {
                    portal.announce = Some((first.ip(), portal.listen.port()).into());
                }
                config.portals.push(portal);
            }
            "host" => hosts.push(host(value)?),
            "workers" => config.limits.workers = value.parse()?,
            "spin_us" => config.limits.spin = Duration::from_micros(value.parse()?),
            "lba" => lba_size = value.parse()?,
            "fdp" => fdp = value == "1",
            "file" => file = Some(value.to_owned()),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    subsystem.access = if hosts.is_empty() { Access::Any } else { Access::Hosts(hosts) };
    let lbas = |mib: u64| (mib << 20) / u64::from(lba_size);
    let memory = MemoryDevice::new("memory", 1 << 40, lba_size); // sparse
    let growing = Arc::new(Growing(memory, AtomicU64::new(lbas(mib))));
    let device: Arc<dyn Device> = match file {
        None if fdp => Arc::new(drive::Drive::new(mib, lba_size)),
        None => growing.clone(),
        Some(path) => {
            let options = FileOptions { capacity_bytes: Some(mib << 20), ..FileOptions::default() };
            Arc::new(FileDevice::open(&path, &options)?)
        }
    };
    subsystem.namespaces.push(NamespaceConfig { nsid: 1, device, uuid: None });
    let nqn = subsystem.nqn.clone();
    config.subsystems.push(subsystem);
    let target = Target::start(&config)?;
    println!("serving {nqn} at {:?}", target.addresses());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if let Some(mib) = line.strip_prefix("grow ") {
            growing.1.store(lbas(mib.trim().parse()?), Ordering::Relaxed);
        } else if let Err(error) = obey(&target, &nqn, &line) {
            println!("{error}");
        }
    }
    Ok(())
}

fn host(text: &str) -> Result<HostConfig, Failure> {
    let mut parts = text.split(',');
    let nqn = parts.next().unwrap_or_default().to_owned();
    let secret = parts.next().map(Secret::parse).transpose()?;
    let controller_secret = parts.next().map(Secret::parse).transpose()?;
    Ok(HostConfig { nqn, secret, controller_secret })
}

fn obey(target: &Target, nqn: &str, line: &str) -> Result<(), Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["ana", portal, state] => {
            let state = AnaState::from_u8(state.parse()?).ok_or("a state: 1, 2, 3, 4 or 15")?;
            target.set_ana(portal.parse()?, state)?;
        }
        ["close", portal] => target.close_portal(portal.parse()?)?,
        ["add", nsid, mib] => {
            let device = Arc::new(MemoryDevice::new("added", mib.parse::<u64>()? << 20, 4096));
            let config = NamespaceConfig { nsid: nsid.parse()?, device, uuid: None };
            target.add_namespace(nqn, &config)?;
        }
        ["remove", nsid] => target.remove_namespace(nqn, nsid.parse()?)?,
        ["metrics"] => println!("{:?}", target.metrics()),
        [] => {}
        _ => return Err(format!("unknown command: {line}").into()),
    }
    Ok(())
}
