//! Hosts that may use a volume: as requests and answers name them, and as the pool keeps them.
//!
//! The pool keeps a host as text, `NQN?key-file=PATH&…`; `%` and `&` in a value are escaped.

use std::path::PathBuf;

use esker_nvmf::NvmfError;
use esker_nvmf::auth::Secret;
use esker_nvmf::target::HostConfig;
use esker_nvmf::target::config::check_nqn;
use esker_nvmf::tls::TlsKey;
use esker_volume::{VolumeError, VolumeInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Result, ServeError};

/// The host that stands for any.
pub(crate) const ANY_HOST: &str = "*";
/// The most hosts of a volume.
const HOSTS_MAX: usize = 256;
/// The longest host with its files, in bytes.
const HOST_MAX: usize = 2000;

/// A host that may use a volume. Keys are in files that the server reads: secrets are in no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostView {
    /// Its NQN, or `*` for any host, without proof of who it is.
    pub nqn: String,
    /// It may use this snapshot, and not the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The file with the secret that the host has to know (DH-HMAC-CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The file with the secret by which the host knows the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_key_file: Option<PathBuf>,
    /// The file with the host's key for TLS: it connects encrypted then, and not otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key_file: Option<PathBuf>,
}

/// The hosts of a volume.
pub(crate) struct Hosts(pub(crate) Vec<HostView>);

impl Hosts {
    pub(crate) fn of(info: &VolumeInfo) -> Hosts {
        Hosts(info.hosts.iter().map(|text| decoded(text)).collect())
    }

    /// As the pool keeps them.
    pub(crate) fn encoded(&self) -> Vec<String> {
        self.0.iter().map(encoded).collect()
    }

    /// As the pool keeps them, unless no target would take them.
    pub(crate) fn checked(&self, volume: &VolumeInfo) -> Result<Vec<String>> {
        if self.0.len() > HOSTS_MAX {
            let why = format!("a volume has at most {HOSTS_MAX} hosts; say any host, or fewer");
            return Err(ServeError::invalid(why));
        }
        for host in &self.0 {
            check(host, volume)?;
        }
        let encoded = self.encoded();
        match encoded.iter().find(|text| text.len() > HOST_MAX) {
            Some(_) => Err(ServeError::invalid("the paths of a host's keys are too long")),
            None => Ok(encoded),
        }
    }
}

fn check(host: &HostView, volume: &VolumeInfo) -> Result {
    let files = [&host.key_file, &host.controller_key_file, &host.tls_key_file];
    if host.nqn == ANY_HOST && files.iter().any(|file| file.is_some()) {
        return Err(ServeError::invalid("any host has no key; name the host that has it"));
    }
    if host.nqn != ANY_HOST {
        check_nqn(&host.nqn)?;
    }
    if host.nqn.contains(['?', '&', '%']) {
        let why = format!(
            "'{}': an NQN with ?, & or % cannot be kept; name the host otherwise",
            host.nqn
        );
        return Err(ServeError::invalid(why));
    }
    if host.controller_key_file.is_some() && host.key_file.is_none() {
        return Err(ServeError::invalid("a controller's key goes with a host's key; say both"));
    }
    if let Some(path) = files.into_iter().flatten().find(|path| !path.is_absolute()) {
        let why = format!("{}: the server needs the whole path of a key", path.display());
        return Err(ServeError::invalid(why));
    }
    let is_it = |snapshot: &String| volume.snapshots.iter().any(|one| one.name == *snapshot);
    if let Some(snapshot) = host.snapshot.as_ref().filter(|one| !is_it(one)) {
        let error = VolumeError::NotFound { what: "snapshot", name: snapshot.clone(), hint: "" };
        return Err(error.into());
    }
    config_of(host)?;
    Ok(())
}

/// Returns the target's configuration of a host, its keys included.
pub(crate) fn config_of(host: &HostView) -> Result<HostConfig, NvmfError> {
    let secret = |path: &Option<PathBuf>| path.as_deref().map(Secret::load).transpose();
    Ok(HostConfig {
        nqn: host.nqn.clone(),
        secret: secret(&host.key_file)?,
        controller_secret: secret(&host.controller_key_file)?,
        tls_key: host.tls_key_file.as_deref().map(TlsKey::load).transpose()?,
    })
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('&', "%26")
}

fn encoded(host: &HostView) -> String {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let more = [
        ("snapshot", host.snapshot.clone()),
        ("key-file", path(&host.key_file)),
        ("controller-key-file", path(&host.controller_key_file)),
        ("tls-key-file", path(&host.tls_key_file)),
    ];
    let mut text = host.nqn.clone();
    for (name, value) in more.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        let mark = if text.contains('?') { '&' } else { '?' };
        text.push_str(&format!("{mark}{name}={}", escaped(value)));
    }
    text
}

fn decoded(text: &str) -> HostView {
    let (nqn, rest) = text.split_once('?').unwrap_or((text, ""));
    let value = |name: &str| {
        let pairs = rest.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.into_iter().find(|(known, _)| *known == name)?.1;
        Some(found.replace("%26", "&").replace("%25", "%"))
    };
    let path = |name: &str| value(name).map(PathBuf::from);
    HostView {
        nqn: nqn.to_owned(),
        snapshot: value("snapshot"),
        key_file: path("key-file"),
        controller_key_file: path("controller-key-file"),
        tls_key_file: path("tls-key-file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_reads_back_as_it_was_kept() {
        let plain = HostView {
            nqn: "nqn.a".to_owned(),
            snapshot: None,
            key_file: None,
            controller_key_file: None,
            tls_key_file: None,
        };
        let whole = HostView {
            snapshot: Some("monday".to_owned()),
            key_file: Some("/etc/a & b=c?/100%25.key".into()),
            controller_key_file: Some("/etc/%26".into()),
            ..plain.clone()
        };
        assert_eq!(encoded(&plain), "nqn.a");
        for host in [plain, whole] {
            assert_eq!(decoded(&encoded(&host)), host);
        }
    }
}
