//! Namespaces of remote NVMe/TCP targets.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use esker_nvmf::auth::Secret;
use esker_nvmf::target::config::{NSID_MAX, check_nqn};
use esker_nvmf::{Initiator, InitiatorConfig, NvmfError};

use super::syntax::{
    Key, Keys, Parts, duration, name_of, number, one_of, show_duration, show_size, size,
};
use super::{absolute, bytes_of, path_of};

const DIGESTS: [(&str, bool); 4] = [("1", true), ("0", false), ("on", true), ("off", false)];
const DIGEST: &str = "0|1";
const DURATION: &str = "DURATION, such as 30s";

/// A namespace of a remote target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteSpec {
    /// The addresses of the target, `HOST` or `HOST:PORT`, the preferred one first. Each is a path.
    pub hosts: Vec<String>,
    /// NQN of the subsystem.
    pub nqn: String,
    /// The namespace; 1 where nothing is said.
    pub nsid: Option<u32>,
    /// NQN of this host; one is made up where nothing is said.
    pub host_nqn: Option<String>,
    /// Identifier of this host; one is made up where nothing is said.
    pub host_id: Option<[u8; 16]>,
    /// The file with the secret that this host proves to know.
    pub key_file: Option<PathBuf>,
    /// The file with the secret that the target has to prove to know.
    pub controller_key_file: Option<PathBuf>,
    /// Digests of headers.
    pub header_digest: Option<bool>,
    /// Digests of data.
    pub data_digest: Option<bool>,
    /// How long to wait for a connection, and for an answer.
    pub timeout: Option<Duration>,
    /// How long a path rests that has failed once.
    pub retry: Option<Duration>,
    /// How long a command that has lost its connection is tried before it fails.
    pub give_up: Option<Duration>,
    /// After how long the target drops a host that is silent.
    pub keep_alive: Option<Duration>,
    /// How many bytes of completed writes are kept until they are flushed; 0 for none.
    pub replay: Option<u64>,
}

impl fmt::Display for RemoteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvme-tcp:{}", self.parts())
    }
}

impl RemoteSpec {
    const KEYS: [Key; 12] = [
        ("nsid", "NUMBER"),
        ("hostnqn", "NQN"),
        ("hostid", "UUID"),
        ("key-file", "PATH"),
        ("controller-key-file", "PATH"),
        ("hdgst", DIGEST),
        ("ddgst", DIGEST),
        ("timeout", DURATION),
        ("retry", DURATION),
        ("give-up", DURATION),
        ("keep-alive", DURATION),
        ("replay", "SIZE"),
    ];

    pub(super) fn of(parts: &Parts) -> Result<RemoteSpec, String> {
        let mut keys = Keys::of("nvme-tcp:", parts, &RemoteSpec::KEYS)?;
        let (hosts, nqn) =
            parts
                .text()?
                .strip_prefix("//")
                .and_then(|rest| rest.split_once('/'))
                .ok_or("an address or an NQN is missing; write nvme-tcp://HOST:PORT/NQN")?;
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if hosts.iter().any(String::is_empty) {
            return Err("an address is empty; write nvme-tcp://HOST:PORT,HOST:PORT/NQN".to_owned());
        }
        Ok(RemoteSpec {
            hosts,
            nqn: nqn_of(nqn)?,
            nsid: keys.take("nsid", number(1, NSID_LAST))?,
            host_nqn: keys.take("hostnqn", nqn_of)?,
            host_id: keys.take("hostid", parse_uuid)?,
            key_file: keys.bytes("key-file")?.map(path_of).transpose()?,
            controller_key_file: keys.bytes("controller-key-file")?.map(path_of).transpose()?,
            header_digest: keys.take("hdgst", one_of(&DIGESTS))?,
            data_digest: keys.take("ddgst", one_of(&DIGESTS))?,
            timeout: keys.take("timeout", duration)?,
            retry: keys.take("retry", duration)?,
            give_up: keys.take("give-up", duration)?,
            keep_alive: keys.take("keep-alive", duration)?,
            replay: keys.take("replay", size_or_none)?,
        })
    }

    fn parts(&self) -> Parts {
        let mut parts = Parts::new(format!("//{}/{}", self.hosts.join(","), self.nqn));
        let digest = |is_on: Option<bool>| is_on.map(|is_on| name_of(&DIGESTS, &is_on));
        parts.push("nsid", self.nsid.map(|nsid| nsid.to_string()));
        parts.push("hostnqn", self.host_nqn.clone());
        parts.push("hostid", self.host_id.as_ref().map(show_uuid));
        parts.push("key-file", self.key_file.as_deref().map(bytes_of));
        parts.push("controller-key-file", self.controller_key_file.as_deref().map(bytes_of));
        parts.push("hdgst", digest(self.header_digest));
        parts.push("ddgst", digest(self.data_digest));
        parts.push("timeout", self.timeout.map(show_duration));
        parts.push("retry", self.retry.map(show_duration));
        parts.push("give-up", self.give_up.map(show_duration));
        parts.push("keep-alive", self.keep_alive.map(show_duration));
        parts.push("replay", self.replay.map(show_size));
        parts
    }

    /// Makes the paths of keys absolute.
    pub(super) fn make_absolute(&mut self) -> Result<(), String> {
        for path in [&mut self.key_file, &mut self.controller_key_file].into_iter().flatten() {
            *path = absolute(path)?;
        }
        Ok(())
    }

    pub(crate) fn open(&self) -> Result<Initiator, NvmfError> {
        let look_up = |host: &String| InitiatorConfig::look_up(host);
        let portals = self.hosts.iter().map(look_up).collect::<Result<Vec<SocketAddr>, _>>()?;
        let made_up = InitiatorConfig::new(portals, &self.nqn, self.nsid.unwrap_or(1))?;
        let load = |path: &Option<PathBuf>| path.as_deref().map(Secret::load).transpose();
        Initiator::open(InitiatorConfig {
            host_nqn: self.host_nqn.clone().unwrap_or(made_up.host_nqn),
            host_id: self.host_id.unwrap_or(made_up.host_id),
            secret: load(&self.key_file)?,
            controller_secret: load(&self.controller_key_file)?,
            header_digest: self.header_digest.unwrap_or(made_up.header_digest),
            data_digest: self.data_digest.unwrap_or(made_up.data_digest),
            timeout: self.timeout.unwrap_or(made_up.timeout),
            retry: self.retry.unwrap_or(made_up.retry),
            give_up: self.give_up.unwrap_or(made_up.give_up),
            keep_alive: self.keep_alive.unwrap_or(made_up.keep_alive),
            replay: self.replay.unwrap_or(made_up.replay),
            ..made_up
        })
    }
}

/// The last number that a namespace can have; larger ones mean all of them.
const NSID_LAST: u32 = 0xffff_fffe;
const _: () = assert!(NSID_MAX < NSID_LAST);

/// A size; 0 is one.
fn size_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size(text) }
}

fn nqn_of(text: &str) -> Result<String, String> {
    match check_nqn(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a UUID as RFC 9562 writes it.
///
/// # Errors
/// A sentence with an example.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let bytes = HEXLOWER_PERMISSIVE.decode(text.replace('-', "").as_bytes()).ok();
    let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let fitting = bytes.filter(|bytes| show_uuid(bytes).eq_ignore_ascii_case(text));
    fitting
        .ok_or_else(|| format!("'{text}' is no UUID, such as 0b0a0908-0706-4504-8302-010012345678"))
}

/// A UUID as RFC 9562 writes it.
#[must_use]
pub fn show_uuid(bytes: &[u8; 16]) -> String {
    let parts = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]];
    parts.map(|part| HEXLOWER.encode(part)).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;

    fn remote(text: &str) -> RemoteSpec {
        match text.parse() {
            Ok(Spec::Remote(remote)) => *remote,
            other => panic!("a remote namespace: {other:?}"),
        }
    }

    #[test]
    fn remote_specifications_parse_to_their_meaning() {
        let id = "00010203-0405-4607-8809-0a0b0c0d0e0f";
        let text = format!(
            "nvme-tcp://disks,[::1]:4421/nqn.2026-01.io.esker:a?nsid=7&hostid={id}&key-file=k&\
             hdgst=1&ddgst=0&retry=50ms&give-up=90s&replay=16MiB"
        );
        let spec = remote(&text);
        assert_eq!((spec.hosts.len(), &*spec.hosts[1]), (2, "[::1]:4421"));
        assert_eq!((&*spec.nqn, spec.nsid), ("nqn.2026-01.io.esker:a", Some(7)));
        assert_eq!((spec.header_digest, spec.data_digest), (Some(true), Some(false)));
        assert_eq!(spec.host_id.map(|id| (id[6], id[15])), Some((0x46, 15)));
        assert_eq!(spec.give_up, Some(Duration::from_secs(90)));
        assert_eq!(spec.replay, Some(16 << 20));
        assert_eq!(spec.to_string(), text);
        let spec = Spec::Remote(Box::new(spec));
        assert!(spec.is_lasting() && spec.paths().is_empty());
        let Spec::Remote(again) = spec.for_reopening().unwrap() else { panic!("the same kind") };
        assert_eq!(again.key_file, Some(std::env::current_dir().unwrap().join("k")));
    }

    #[test]
    fn nothing_is_kept_when_that_is_said() {
        let text = "nvme-tcp://host/nqn.2026-01.io.esker:a?replay=0";
        assert_eq!(remote(text).replay, Some(0));
        assert_eq!(remote(text).to_string(), text);
    }

    #[test]
    fn wrong_specifications_are_answered_with_right_forms() {
        let nqn = "nqn.2026-01.io.esker:a";
        for (text, why) in [
            ("nvme-tcp:host/nqn".to_owned(), "write nvme-tcp://HOST:PORT/NQN"),
            ("nvme-tcp://host".to_owned(), "an NQN is missing"),
            ("nvme-tcp://host/disk".to_owned(), "is not an NQN"),
            (format!("nvme-tcp://host,/{nqn}"), "an address is empty"),
            (format!("nvme-tcp://host/{nqn}?nsid=0"), "from 1"),
            (format!("nvme-tcp://host/{nqn}?hostid=12"), "no UUID"),
            (format!("nvme-tcp://host/{nqn}?hostnqn=me"), "hostnqn: \"me\" is not an NQN"),
            (format!("nvme-tcp://host/{nqn}?give-up=long"), "give-up: 'long' is no duration"),
            (format!("nvme-tcp://host/{nqn}?replay=some"), "replay: "),
            (format!("nvme-tcp://host/{nqn}?color=red"), "there are nsid=NUMBER"),
        ] {
            let message = text.parse::<Spec>().unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }
}
