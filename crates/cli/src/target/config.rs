//! What a target is to serve: from a file or from the command line.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use esker_device::Create;
use esker_nvmf::TargetConfig;
use esker_nvmf::auth::Secret;
use esker_nvmf::target::{Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig};
use esker_stack::{Spec, Stack};
use serde::Deserialize;

use crate::args::ServeArgs;
use crate::failure::{Failure, Result};

/// Where a target listens unless it is told otherwise.
const LISTEN: &str = "127.0.0.1:4420";

/// What to serve, with the devices open.
pub(super) struct Plan {
    pub(super) target: TargetConfig,
    /// Subsystem, namespace and device of all that is served.
    pub(super) served: Vec<(String, u32, String)>,
    pub(super) remarks: Vec<String>,
}

/// A configuration file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    listen: Vec<SocketAddr>,
    #[serde(default)]
    announce: Vec<SocketAddr>,
    #[serde(default)]
    referrals: Vec<SocketAddr>,
    workers: Option<usize>,
    reservations: Option<PathBuf>,
    #[serde(default)]
    subsystem: Vec<Subsystem>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subsystem {
    nqn: String,
    serial: Option<String>,
    #[serde(default)]
    allow_any: bool,
    #[serde(default)]
    host: Vec<Host>,
    #[serde(default)]
    namespace: Vec<Namespace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    nqn: String,
    key_file: Option<PathBuf>,
    controller_key_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespace {
    nsid: u32,
    device: String,
}

/// Reads the file or the options, and opens the devices.
pub(super) fn plan(args: &ServeArgs) -> Result<Plan> {
    let mut file = match &args.config {
        Some(path) => read(path)?,
        None => of_options(args),
    };
    // What is said on the command line goes before the file.
    if !args.listen.is_empty() {
        file.listen.clone_from(&args.listen);
    }
    if !args.announce.is_empty() {
        file.announce.clone_from(&args.announce);
    }
    file.workers = args.workers.or(file.workers);
    file.reservations = args.reservations.clone().or(file.reservations);
    if file.listen.is_empty() {
        file.listen.push(LISTEN.parse().expect("an address"));
    }
    if !file.announce.is_empty() && file.announce.len() != file.listen.len() {
        let why = format!(
            "{} addresses to announce for {} to listen on; give one for each, or none",
            file.announce.len(),
            file.listen.len()
        );
        return Err(Failure::usage(why));
    }
    let mut target = TargetConfig {
        referrals: file.referrals,
        reservations: file.reservations,
        ..TargetConfig::default()
    };
    target.limits.workers = file.workers.unwrap_or(target.limits.workers);
    for (index, &listen) in file.listen.iter().enumerate() {
        let announce = file.announce.get(index).copied();
        target.portals.push(PortalConfig { announce, ..PortalConfig::new(listen) });
    }
    let stack = Stack::new();
    let mut plan = Plan { target, served: Vec::new(), remarks: Vec::new() };
    for subsystem in file.subsystem {
        plan.add(subsystem, &stack)?;
    }
    if plan.served.is_empty() {
        return Err(Failure::usage("nothing is served: name a subsystem with a namespace"));
    }
    Ok(plan)
}

fn read(path: &Path) -> Result<File> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::file(path, &error, "check the path and its permissions"))?;
    toml::from_str(&text)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display()).trim_end()))
}

fn of_options(args: &ServeArgs) -> File {
    let host = |nqn: &String| Host {
        nqn: nqn.clone(),
        key_file: args.key_file.clone(),
        controller_key_file: args.controller_key_file.clone(),
    };
    let namespace = |(device, nsid): (&String, u32)| Namespace { nsid, device: device.clone() };
    File {
        listen: Vec::new(),
        announce: Vec::new(),
        referrals: Vec::new(),
        workers: None,
        reservations: None,
        subsystem: vec![Subsystem {
            nqn: args.subsystem.clone().unwrap_or_default(),
            serial: None,
            allow_any: args.allow_any,
            host: args.allow.iter().map(host).collect(),
            namespace: args.devices.iter().zip(1..).map(namespace).collect(),
        }],
    }
}

impl Plan {
    fn add(&mut self, subsystem: Subsystem, stack: &Stack) -> Result {
        let Subsystem { nqn, serial, allow_any, host, namespace } = subsystem;
        if !allow_any && host.is_empty() {
            let why = "nobody may use it: name the hosts that may, or allow any";
            return Err(Failure::usage(format!("{nqn}: {why}")));
        }
        if allow_any && !host.is_empty() {
            let why = "either any host may use it or those that are named, not both";
            return Err(Failure::usage(format!("{nqn}: {why}")));
        }
        let access = if allow_any {
            self.remarks.push(format!("{nqn}: any host that reaches this machine may use it"));
            Access::Any
        } else {
            Access::Hosts(host.into_iter().map(allowed).collect::<Result<_>>()?)
        };
        let mut namespaces = Vec::new();
        for Namespace { nsid, device } in namespace {
            let spec: Spec = device.parse()?;
            let opened = stack.open(&spec, Create::IfMissing)?;
            self.remarks.extend(opened.remarks());
            self.served.push((nqn.clone(), nsid, device));
            namespaces.push(NamespaceConfig { nsid, device: opened.device, uuid: None });
        }
        let plain = SubsystemConfig::new(&nqn);
        self.target.subsystems.push(SubsystemConfig { serial, access, namespaces, ..plain });
        Ok(())
    }
}

fn allowed(host: Host) -> Result<HostConfig> {
    let load = |path: Option<PathBuf>| path.map(|path| Secret::load(&path)).transpose();
    Ok(HostConfig {
        nqn: host.nqn,
        secret: load(host.key_file)?,
        controller_secret: load(host.controller_key_file)?,
    })
}
