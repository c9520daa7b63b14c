//! A target whose namespace 1 is a file, memory, or a namespace of a drive with data placement.
//!
//! Options: `mib=`, `lba=`, `file=`, `drive=PATH` (as it is), `fdp=1`, `nqn=`, `announce=ADDRESS`,
//! `second=ADDRESS`, `host=NQN[,SECRET[,CONTROLLER-SECRET]]` (without one, anybody), `tls=NQN,KEY` (a
//! host with a key for TLS, which the first address has then), `workers=`.
//!
//! Lines of the standard input: `add NSID MIB`, `remove NSID`, `resize MIB`, `ana PORTAL STATE`,
//! `metrics`. Each is answered with a line, `done` or the error.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::LbaCount;
use esker_device::fdp::Isolation;
use esker_device::{
    Create, Device, DeviceError, DeviceStats, FileDevice, FileOptions, Geometry, MemoryDevice,
    QueuePair,
};
use esker_flash::drive::Configuration;
use esker_flash::{Pace, Profile, Ssd};
use esker_nvmf::auth::Secret;
use esker_nvmf::target::{
    Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_nvmf::tls::TlsKey;
use esker_nvmf::wire::log::AnaState;

use super::Failure;

/// The most that a namespace may be resized to.
const MOST_BYTES: u64 = 4 << 30;

/// A device that shows as much of another as it is told to.
struct Resizable {
    whole: Box<dyn Device>,
    lbas: AtomicU64,
}

impl Resizable {
    fn resize(&self, mib: u64) {
        let bytes = (mib << 20).min(MOST_BYTES);
        self.lbas.store(bytes / u64::from(self.whole.geometry().lba_size), Ordering::Relaxed);
    }
}

impl Device for Resizable {
    fn name(&self) -> &str {
        self.whole.name()
    }

    fn geometry(&self) -> Geometry {
        let capacity = LbaCount(self.lbas.load(Ordering::Relaxed));
        Geometry { capacity, ..self.whole.geometry() }
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.whole.queue_pair(depth)
    }

    fn stats(&self) -> DeviceStats {
        self.whole.stats()
    }
}

/// A drive like the one that QEMU emulates: one reclaim group, 8 handles, reclaim units of 8 MiB,
/// and a namespace with 4 placement ids.
fn drive() -> Result<Arc<dyn Device>, Failure> {
    let profile = Profile::find("micron-7450")?;
    let mut parameters = profile.ssd().expect("a solid-state drive").clone();
    parameters.capacity = 256 << 20;
    parameters.program_size = 64 << 10;
    parameters.unit_size = 8 << 20;
    parameters.units = 64;
    parameters.channels = 4;
    parameters.dies = 8;
    parameters.configurations =
        vec![Configuration { groups: 1, handles: vec![Isolation::Initially; 8] }];
    let ssd = Ssd::new("drive", &parameters, Pace::untimed())?;
    ssd.enable_placement(Some(0))?;
    let id = ssd.create_namespace(parameters.capacity, Some(&[0, 1, 2, 3]))?;
    Ok(Arc::new(ssd.namespace(id)?))
}

/// Serves until the standard input ends.
pub(crate) fn run(listen: &str, options: &[&str]) -> Result<(), Failure> {
    let mut config = TargetConfig::default();
    config.portals.push(PortalConfig::new(listen.parse()?));
    let mut subsystem = SubsystemConfig::new("nqn.2026-01.io.esker:vol1");
    let (mut hosts, mut mib, mut lba_size) = (Vec::new(), 256u64, 4096);
    let (mut file, mut whole_drive, mut has_fdp) = (None, None, false);
    for option in options {
        let (name, value) = option.split_once('=').ok_or("options are NAME=VALUE")?;
        match name {
            "mib" => mib = value.parse()?,
            "lba" => lba_size = value.parse()?,
            "file" => file = Some(value),
            "drive" => whole_drive = Some(value),
            "fdp" => has_fdp = value == "1",
            "nqn" => value.clone_into(&mut subsystem.nqn),
            "announce" => config.portals[0].announce = Some(value.parse()?),
            "second" => {
                let mut portal = PortalConfig::new(value.parse()?);
                let first = config.portals[0].announce.unwrap_or(portal.listen);
                portal.announce = Some((first.ip(), portal.listen.port()).into());
                config.portals.push(portal);
            }
            "host" => hosts.push(host(value)?),
            "tls" => {
                let (nqn, key) = value.split_once(',').ok_or("tls=NQN,KEY")?;
                let tls_key = Some(TlsKey::parse(key)?);
                hosts.push(HostConfig { tls_key, ..HostConfig::new(nqn) });
                config.portals[0].tls = true;
            }
            "workers" => config.limits.workers = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    subsystem.access = if hosts.is_empty() { Access::Any } else { Access::Hosts(hosts) };
    let (device, resizable): (Arc<dyn Device>, _) = if has_fdp {
        (drive()?, None)
    } else if let Some(path) = whole_drive {
        let options = FileOptions { create: Create::Never, ..FileOptions::default() };
        (Arc::new(FileDevice::open(path, &options)?), None)
    } else {
        let whole: Box<dyn Device> = match file {
            None => Box::new(MemoryDevice::new("memory", MOST_BYTES, lba_size)),
            Some(path) => {
                let (capacity_bytes, lba_size) = (Some(MOST_BYTES), Some(lba_size));
                let options = FileOptions { capacity_bytes, lba_size, ..FileOptions::default() };
                Box::new(FileDevice::open(path, &options)?)
            }
        };
        let resizable = Arc::new(Resizable { whole, lbas: AtomicU64::new(0) });
        resizable.resize(mib);
        (resizable.clone(), Some(resizable))
    };
    subsystem.namespaces.push(NamespaceConfig { nsid: 1, device, uuid: None });
    let nqn = subsystem.nqn.clone();
    config.subsystems.push(subsystem);
    let target = Target::start(&config)?;
    println!("serving {nqn} at {:?}", target.addresses());
    for line in std::io::stdin().lock().lines() {
        match obey(&target, &nqn, resizable.as_deref(), &line?) {
            Ok(()) => println!("done"),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}

fn host(text: &str) -> Result<HostConfig, Failure> {
    let mut parts = text.split(',');
    let nqn = parts.next().unwrap_or_default().to_owned();
    let secret = parts.next().map(Secret::parse).transpose()?;
    let controller_secret = parts.next().map(Secret::parse).transpose()?;
    Ok(HostConfig { nqn, secret, controller_secret, tls_key: None })
}

fn obey(
    target: &Target,
    nqn: &str,
    resizable: Option<&Resizable>,
    line: &str,
) -> Result<(), Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["add", nsid, mib] => {
            let device = Arc::new(MemoryDevice::new("added", mib.parse::<u64>()? << 20, 4096));
            target
                .add_namespace(nqn, &NamespaceConfig { nsid: nsid.parse()?, device, uuid: None })?;
        }
        ["remove", nsid] => target.remove_namespace(nqn, nsid.parse()?)?,
        ["resize", mib] => {
            resizable.ok_or("the drive has the size it has")?.resize(mib.parse()?);
            target.refresh();
        }
        ["ana", portal, state] => {
            let state = AnaState::from_u8(state.parse()?).ok_or("a state: 1, 2, 3, 4 or 15")?;
            target.set_ana(portal.parse()?, state)?;
        }
        ["metrics"] => println!("{:?}", target.metrics()),
        _ => return Err(format!("unknown command: {line}").into()),
    }
    Ok(())
}
