//! Which remote namespace, and how to reach it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use data_encoding::HEXLOWER;

use crate::auth::Secret;
use crate::error::NvmfError;
use crate::socket::random;
use crate::target::config::check_nqn;
use crate::tls::TlsKey;

/// The port of NVMe/TCP (TCP Transport 1.1, 3.1).
pub const PORT: u16 = 4420;
const SCHEME: &str = "nvme-tcp://";
/// The numbers that a namespace may have.
const NAMESPACES: std::ops::RangeInclusive<u32> = 1..=0xffff_fffe;

/// Which remote namespace, and how to reach it.
#[derive(Clone, Debug)]
pub struct InitiatorConfig {
    /// The addresses of the target, the preferred one first.
    pub portals: Vec<SocketAddr>,
    /// NQN of the subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// NQN of this host.
    pub host_nqn: String,
    /// Identifier of this host. Hosts with the same share reservations.
    pub host_id: [u8; 16],
    /// The secret that this host proves to know, if the target asks.
    pub secret: Option<Secret>,
    /// The secret that the target has to prove to know.
    pub controller_secret: Option<Secret>,
    /// With a key for TLS, connections are encrypted, and both ends know each other by it.
    pub tls_key: Option<TlsKey>,
    /// Digests of headers.
    pub header_digest: bool,
    /// Digests of data.
    pub data_digest: bool,
    /// Keep alive timeout: after this the target drops a host that is silent.
    pub keep_alive: Duration,
    /// How long to wait for a connection, and for the answer to a command.
    pub timeout: Duration,
    /// How long a command that has lost its connection is tried without progress before it fails.
    pub give_up: Duration,
    /// How long a path rests that has failed once; twice as long after each further failure.
    pub retry: Duration,
    /// How many bytes of completed writes are kept until they are flushed, where the target has a
    /// volatile write cache, to be written again if it is lost. When they are more, the initiator
    /// flushes. With 0 nothing is kept, and such writes may be lost.
    pub replay: u64,
    /// How long a queue pair that waits looks for completions before it sleeps.
    pub spin: Duration,
}

impl InitiatorConfig {
    /// A namespace behind these addresses, with a host identity made up for the occasion.
    ///
    /// # Errors
    /// When the NQN is none, there are no addresses, or the operating system has no random numbers.
    pub fn new(
        portals: Vec<SocketAddr>,
        nqn: &str,
        nsid: u32,
    ) -> Result<InitiatorConfig, NvmfError> {
        check_nqn(nqn)?;
        if portals.is_empty() || !NAMESPACES.contains(&nsid) {
            let text = "a remote namespace has an address, and a number from 1 on".to_owned();
            return Err(NvmfError::Config(text));
        }
        let mut host_id = [0; 16];
        random(&mut host_id).map_err(|error| NvmfError::os("random numbers", &error))?;
        host_id[6] = host_id[6] & 0x0f | 0x40;
        host_id[8] = host_id[8] & 0x3f | 0x80;
        let hex = |range: std::ops::Range<usize>| HEXLOWER.encode(&host_id[range]);
        let uuid = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-");
        Ok(InitiatorConfig {
            portals,
            nqn: nqn.to_owned(),
            nsid,
            host_nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}"),
            host_id,
            secret: None,
            controller_secret: None,
            tls_key: None,
            header_digest: false,
            data_digest: false,
            keep_alive: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            give_up: Duration::from_secs(30),
            retry: Duration::from_millis(200),
            replay: 64 << 20,
            spin: Duration::from_micros(20),
        })
    }

    /// Reads `nvme-tcp://HOST[:PORT][,HOST[:PORT]]/NQN[?OPTION=VALUE&...]`. The options are `nsid`
    /// (1), `hostnqn`, `hdgst`, `ddgst` (0 or 1), `key-file`, `controller-key-file` and
    /// `tls-key-file`.
    ///
    /// # Errors
    /// When the text is something else, a name is not known, or a key cannot be read.
    pub fn parse(url: &str) -> Result<InitiatorConfig, NvmfError> {
        let wrong = |why: &str| {
            NvmfError::Config(format!("'{url}': {why}; write nvme-tcp://HOST:PORT/NQN?nsid=1"))
        };
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| wrong("it begins otherwise"))?;
        let (hosts, rest) = rest.split_once('/').ok_or_else(|| wrong("an NQN is missing"))?;
        let (nqn, options) = rest.split_once('?').unwrap_or((rest, ""));
        let portals = hosts.split(',').map(InitiatorConfig::look_up).collect::<Result<_, _>>()?;
        let mut config = InitiatorConfig::new(portals, nqn, 1)?;
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) =
                option.split_once('=').ok_or_else(|| wrong("an option has no ="))?;
            let flag = || match value {
                "0" => Ok(false),
                "1" => Ok(true),
                _ => Err(wrong("a digest is 0 or 1")),
            };
            match name {
                "nsid" => {
                    let nsid = value.parse().ok().filter(|nsid| NAMESPACES.contains(nsid));
                    config.nsid = nsid.ok_or_else(|| wrong("nsid is a number from 1 on"))?;
                }
                "hostnqn" => {
                    check_nqn(value)?;
                    value.clone_into(&mut config.host_nqn);
                }
                "hdgst" => config.header_digest = flag()?,
                "ddgst" => config.data_digest = flag()?,
                "key-file" => config.secret = Some(Secret::load(Path::new(value))?),
                "controller-key-file" => {
                    config.controller_secret = Some(Secret::load(Path::new(value))?);
                }
                "tls-key-file" => config.tls_key = Some(TlsKey::load(Path::new(value))?),
                _ => return Err(wrong(&format!("there is no option {name}"))),
            }
        }
        Ok(config)
    }

    /// The address of `HOST` or `HOST:PORT`.
    ///
    /// # Errors
    /// When the name is not known.
    pub fn look_up(host: &str) -> Result<SocketAddr, NvmfError> {
        let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
            port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
        });
        let address = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        let mut found = address
            .to_socket_addrs()
            .map_err(|error| NvmfError::os(format!("looking up {host}"), &error))?;
        found.next().ok_or_else(|| NvmfError::Config(format!("{host} has no address")))
    }

    /// The URL of the namespace, without secrets: its name in errors and statistics.
    #[must_use]
    pub fn url(&self) -> String {
        let portals: Vec<String> = self.portals.iter().map(SocketAddr::to_string).collect();
        format!("{SCHEME}{}/{}?nsid={}", portals.join(","), self.nqn, self.nsid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let url = "nvme-tcp://127.0.0.1:4421,[::1],127.0.0.2/nqn.2026-01.io.esker:a?nsid=7&ddgst=1";
        let config = InitiatorConfig::parse(url).unwrap();
        assert_eq!(config.portals[0], "127.0.0.1:4421".parse().unwrap());
        assert_eq!(config.portals[1], "[::1]:4420".parse().unwrap());
        assert_eq!(config.portals[2].port(), PORT);
        assert_eq!((config.nsid, config.data_digest, config.header_digest), (7, true, false));
        assert!(config.host_nqn.len() > 60, "{}", config.host_nqn);
        for wrong in [
            "http://a/nqn.x",
            "nvme-tcp://127.0.0.1",
            "nvme-tcp://127.0.0.1/disk",
            "nvme-tcp://127.0.0.1/nqn.2026-01.io.esker:a?nsid=x",
            "nvme-tcp://127.0.0.1/nqn.2026-01.io.esker:a?color=red",
        ] {
            assert!(InitiatorConfig::parse(wrong).is_err(), "{wrong}");
        }
    }
}
