//! Serves a device in memory until its standard input ends.
//!
//! `cargo run --release -p esker-nvmf --example serve -- 127.0.0.1:4420 256 [OPTION=VALUE]...`
//!
//! The arguments are the address, the size in MiB, and options: `nqn=`, `announce=` an address,
//! `second=` another address to listen on, `host=NQN[,SECRET[,CONTROLLER-SECRET]]`, `workers=`,
//! `spin_us=`, `lba=`, `file=` a path to serve instead of memory.
//!
//! Lines of the standard input: `ana PORTAL STATE`, `add NSID MIB`, `remove NSID`, `metrics`.

#![allow(clippy::print_stdout)]

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use esker_device::{Device, FileDevice, FileOptions, MemoryDevice};
use esker_nvmf::auth::Secret;
use esker_nvmf::target::{
    Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_nvmf::wire::log::AnaState;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().ok_or("an address, such as 127.0.0.1:4420")?;
    let mib: u64 = arguments.next().ok_or("a size in MiB")?.parse()?;
    let mut config = TargetConfig::default();
    config.portals.push(PortalConfig::new(listen.parse()?));
    let mut subsystem = SubsystemConfig::new("nqn.2026-01.io.esker:vol1");
    let (mut hosts, mut lba_size, mut file) = (Vec::new(), 4096, None);
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
            "file" => file = Some(value.to_owned()),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    subsystem.access = if hosts.is_empty() { Access::Any } else { Access::Hosts(hosts) };
    let device: Arc<dyn Device> = match file {
        None => Arc::new(MemoryDevice::new("memory", mib << 20, lba_size)),
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
        if let Err(error) = obey(&target, &nqn, &line?) {
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
