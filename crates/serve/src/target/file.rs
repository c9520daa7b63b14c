//! The configuration of a target as a file says it, as requests change it, and as it is written out.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use esker_base::files;
use esker_nvmf::auth::Secret;
use esker_nvmf::target::HostConfig;
use esker_nvmf::tls::{Derivation, TlsKey};
use esker_nvmf::wire::log::AnaState;
use esker_stack::Spec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::options::TargetOptions;
use crate::error::{Result, ServeError};

/// Where a target listens unless it is told otherwise.
const LISTEN: &str = "127.0.0.1:4420";
/// The most bytes of a configuration file.
const FILE_MAX: u64 = 16 << 20;

/// The configuration of a target: the file that `esker target serve --config` reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetFile {
    /// Addresses to listen on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<SocketAddr>,
    /// The addresses that discovery announces, one for each that is listened on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announce: Vec<SocketAddr>,
    /// Addresses to listen on with TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen_tls: Vec<SocketAddr>,
    /// Other discovery services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<SocketAddr>,
    /// Event loops, each a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// The file in which reservations outlive the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<PathBuf>,
    /// Seconds for which a device may be silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    /// The first and the last id of its controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_ids: Option<(u16, u16)>,
    /// Addresses to listen on, with more to be said of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portal: Vec<PortalFile>,
    /// Its subsystems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subsystem: Vec<SubsystemFile>,
}

/// A portal: an address that hosts connect to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalFile {
    /// The address to listen on; port 0 is any that is free.
    pub listen: SocketAddr,
    /// The address that discovery announces, where it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce: Option<SocketAddr>,
    /// Whether connections through it are encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// How well namespaces are reached through it.
    #[serde(default, skip_serializing_if = "Ana::is_optimized")]
    pub ana: Ana,
}

/// A state of asymmetric namespace access (ANA).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ana {
    /// The best way.
    #[default]
    Optimized,
    /// A way that works, when there is no better one.
    NonOptimized,
    /// No way, for now.
    Inaccessible,
    /// No way, ever.
    PersistentLoss,
    /// About to become another state.
    Change,
}

/// Each state, and as the protocol has it.
const STATES: [(Ana, AnaState); 5] = [
    (Ana::Optimized, AnaState::Optimized),
    (Ana::NonOptimized, AnaState::NonOptimized),
    (Ana::Inaccessible, AnaState::Inaccessible),
    (Ana::PersistentLoss, AnaState::PersistentLoss),
    (Ana::Change, AnaState::Change),
];

impl Ana {
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
    fn is_optimized(&self) -> bool {
        *self == Ana::Optimized
    }
}

impl From<Ana> for AnaState {
    fn from(ana: Ana) -> AnaState {
        STATES.iter().find(|(one, _)| *one == ana).expect("each has one").1
    }
}

impl From<AnaState> for Ana {
    fn from(state: AnaState) -> Ana {
        STATES.iter().find(|(_, one)| *one == state).expect("each has one").0
    }
}

/// A subsystem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubsystemFile {
    /// Its NQN.
    pub nqn: String,
    /// Its serial number; derived from the NQN where none is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Whether any host may use it, without proof of who it is.
    #[serde(default)]
    pub allow_any: bool,
    /// Of its namespaces that do not say.
    #[serde(default)]
    pub write_cache: WriteCache,
    /// The addresses of the portals through which hosts reach it; through all where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<SocketAddr>,
    /// Hosts that may use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostFile>,
    /// Its namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace: Vec<NamespaceFile>,
}

/// A host that may use a subsystem. Keys are in files that the target reads: secrets are in no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// Its NQN.
    pub nqn: String,
    /// The file with the secret that the host has to know (DH-HMAC-CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The file with the secret by which the host knows the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_key_file: Option<PathBuf>,
    /// The file with the host's key for TLS: it connects encrypted then, and not otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key_file: Option<PathBuf>,
    /// Whether an identity that does not name its derivation has that of `libnvme` before 1.16.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls_key_old: bool,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceFile {
    /// Its number.
    pub nsid: u32,
    /// The specification of its device.
    pub device: String,
    /// Whether hosts have the volatile write cache of the device; as its subsystem has it where that is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<WriteCache>,
    /// Its identity, if the device has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The most operations a second that all its hosts have together; 0 for no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub iops_limit: u64,
    /// The most bytes a second that all its hosts have together; 0 for no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_limit: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Whether hosts have the volatile write cache of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WriteCache {
    /// As the device has it: what a host wants durable, it flushes.
    #[default]
    On,
    /// Writes complete when they are durable.
    Off,
}

impl TargetFile {
    /// Reads the file or the options. Options go before the file.
    pub(super) fn of(options: &TargetOptions) -> Result<TargetFile> {
        let mut file = match &options.config {
            Some(path) => read(path)?,
            None => TargetFile { subsystem: vec![subsystem_of(options)], ..TargetFile::default() },
        };
        for (here, option) in [
            (&mut file.listen, &options.listen),
            (&mut file.listen_tls, &options.listen_tls),
            (&mut file.announce, &options.announce),
        ] {
            if !option.is_empty() {
                here.clone_from(option);
            }
        }
        if !options.listen.is_empty() || !options.listen_tls.is_empty() {
            file.portal.clear();
        }
        file.name_portals()?;
        file.workers = options.workers.or(file.workers);
        file.reservations = options.reservations.clone().or(file.reservations);
        let patience =
            options.patience.map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
        file.patience = patience.or(file.patience);
        let ids = options.controller_ids.clone().map(std::ops::RangeInclusive::into_inner);
        file.controller_ids = ids.or(file.controller_ids);
        Ok(file)
    }

    /// Says of each address that is listened on what there is to say of it.
    fn name_portals(&mut self) -> Result {
        let plain = std::mem::take(&mut self.listen).into_iter().map(|listen| (listen, false));
        let tls = std::mem::take(&mut self.listen_tls).into_iter().map(|listen| (listen, true));
        let listened: Vec<_> = plain.chain(tls).collect();
        let announced = std::mem::take(&mut self.announce);
        if !announced.is_empty() && announced.len() != listened.len() {
            let why = format!(
                "{} addresses to announce for {} to listen on; give one for each, or none",
                announced.len(),
                listened.len()
            );
            return Err(ServeError::invalid(why));
        }
        let portals = listened.into_iter().enumerate().map(|(index, (listen, tls))| PortalFile {
            listen,
            announce: announced.get(index).copied(),
            tls,
            ana: Ana::Optimized,
        });
        let own = std::mem::take(&mut self.portal);
        self.portal = portals.chain(own).collect();
        if self.portal.is_empty() {
            let listen = LISTEN.parse().expect("an address");
            let (announce, tls, ana) = (None, false, Ana::Optimized);
            self.portal.push(PortalFile { listen, announce, tls, ana });
        }
        Ok(())
    }

    /// The same, which can be read from any directory.
    pub(super) fn absolute(mut self) -> Result<TargetFile> {
        let absolute = |path: &mut PathBuf| match std::path::absolute(&*path) {
            Ok(found) => {
                *path = found;
                Ok(())
            }
            Err(error) => Err(ServeError::file(path, error, "name its whole path")),
        };
        self.reservations.as_mut().map_or(Ok(()), absolute)?;
        for subsystem in &mut self.subsystem {
            for host in &mut subsystem.host {
                let files =
                    [&mut host.key_file, &mut host.controller_key_file, &mut host.tls_key_file];
                files.into_iter().flatten().try_for_each(absolute)?;
            }
            for namespace in &mut subsystem.namespace {
                let device = namespace.device.parse::<Spec>()?;
                if device.is_lasting() && device.paths().iter().any(|path| path.is_relative()) {
                    namespace.device = device.for_reopening()?.to_string();
                }
            }
        }
        Ok(self)
    }
}

impl HostFile {
    /// The host with its keys.
    pub(super) fn load(&self) -> Result<HostConfig> {
        let derivation = if self.tls_key_old { Derivation::Old } else { Derivation::Standard };
        let tls_key = self.tls_key_file.as_deref().map(TlsKey::load).transpose()?;
        let secret = |path: &Option<PathBuf>| path.as_deref().map(Secret::load).transpose();
        Ok(HostConfig {
            nqn: self.nqn.clone(),
            secret: secret(&self.key_file)?,
            controller_secret: secret(&self.controller_key_file)?,
            tls_key: tls_key.map(|key| key.with_derivation(derivation)),
        })
    }
}

/// Reads the configuration, which is read again later: it is a regular file.
fn read(path: &Path) -> Result<TargetFile> {
    let text = files::read_text(path, FILE_MAX)
        .map_err(|error| ServeError::file(path, error, "check the path and its permissions"))?;
    toml::from_str(&text)
        .map_err(|error| ServeError::invalid(format!("{}: {error}", path.display()).trim_end()))
}

/// The subsystem that options name.
fn subsystem_of(options: &TargetOptions) -> SubsystemFile {
    let host = |nqn: &String| HostFile {
        nqn: nqn.clone(),
        key_file: options.key_file.clone(),
        controller_key_file: options.controller_key_file.clone(),
        tls_key_file: options.tls_key_file.clone(),
        tls_key_old: false,
    };
    let namespace = |(device, nsid): (&String, u32)| NamespaceFile {
        nsid,
        device: device.clone(),
        write_cache: None,
        uuid: None,
        iops_limit: 0,
        bytes_limit: 0,
    };
    SubsystemFile {
        nqn: options.subsystem.clone().unwrap_or_default(),
        serial: None,
        allow_any: options.allow_any,
        write_cache: if options.write_cache { WriteCache::On } else { WriteCache::Off },
        listen: Vec::new(),
        host: options.allow.iter().map(host).collect(),
        namespace: options.devices.iter().zip(1..).map(namespace).collect(),
    }
}
