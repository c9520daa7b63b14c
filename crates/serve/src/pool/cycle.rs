//! Devices that stand on a volume of the pool: a pool on its own volume would wait for itself for good.
//!
//! They are told before they are opened, because opening one may wait for the pool: by the pool's name in a
//! specification, by its subsystems at its own addresses, and by the layers below a file or a block device (file
//! system, partition, loop device, mapped devices, NVMe over TCP, an attachment of Esker). A device that is open is told by
//! the namespace's UUID. A path through another machine is not seen.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::HEXLOWER_PERMISSIVE;
use esker_device::{Device, Fact, Identity};
use esker_nvmf::InitiatorConfig;
use esker_stack::served::{Patience, ask};
use esker_stack::{Spec, VolumeSpec, show_uuid};
use serde_json::Value;

use super::export::{namespace_uuid, nqn};
use super::served::Served;
use crate::error::{Result, ServeError};

/// The most layers that are looked through.
const LAYERS_MAX: usize = 16;
/// How long another pool's server may take to tell its devices.
const ANSWER: Duration = Duration::from_secs(5);
/// The kernel's description of block devices, by number.
const SYS: &str = "/sys/dev/block";

/// Refuses a specification that leads back to the pool.
pub(super) fn check(served: &Served, spec: &Spec) -> Result {
    Search::new(served).spec(spec, 0).map_or(Ok(()), |found| Err(refused(served, spec, &found)))
}

/// Refuses an open device that is a volume of the pool, or a part of one.
pub(super) fn check_open(served: &Served, spec: &Spec, device: &dyn Device) -> Result {
    let Some(identity) = device.identity() else { return Ok(()) };
    let uuid = served.status().uuid.0;
    let is_it = |id: u64| {
        let shown = show_uuid(&namespace_uuid(uuid, id));
        identity.is_beside(&Identity::default().with(Fact::Uuid, &shown))
    };
    let volumes = served.pool.volumes();
    let its = |one: &esker_volume::VolumeInfo| {
        is_it(one.id.0) || one.snapshots.iter().any(|snapshot| is_it(snapshot.id.0))
    };
    match volumes.iter().find(|one| its(one)) {
        Some(found) => Err(refused(served, spec, &format!("it is volume {}", found.name))),
        None => Ok(()),
    }
}

fn refused(served: &Served, spec: &Spec, found: &str) -> ServeError {
    let pool = served.pool.name();
    ServeError::invalid(format!(
        "{spec}: {found}, so pool {pool} would stand on its own volume and wait for itself; name another device"
    ))
}

/// A search below a device. Each step returns the reason why the device leads back to the pool.
struct Search<'a> {
    served: &'a Served,
    /// The pool's subsystems begin so.
    subsystems: String,
    addresses: Vec<SocketAddr>,
}

impl Search<'_> {
    fn new(served: &Served) -> Search<'_> {
        let subsystems = nqn(served.pool.name(), "", None);
        Search { served, subsystems, addresses: served.addresses() }
    }

    fn spec(&self, spec: &Spec, layer: usize) -> Option<String> {
        let any = |specs: &[Spec]| specs.iter().find_map(|one| self.spec(one, layer));
        match spec {
            Spec::Memory(_) | Spec::Null(_) => None,
            Spec::File(_) | Spec::Ssd(_) | Spec::Disk(_) => {
                spec.paths().into_iter().find_map(|path| self.path(path, layer))
            }
            Spec::Remote(remote) => {
                let is_here = |host: &String| {
                    InitiatorConfig::look_up(host).is_ok_and(|address| self.is_own(address))
                };
                let is_it =
                    remote.nqn.starts_with(&self.subsystems) && remote.hosts.iter().any(is_here);
                is_it.then(|| format!("{} is served here", remote.nqn))
            }
            Spec::Traced(traced) => self.spec(&traced.inner, layer),
            Spec::Cache(cache) => {
                self.spec(&cache.origin, layer).or_else(|| self.spec(&cache.flash, layer))
            }
            Spec::Stripe(stripe) => any(&stripe.drives),
            Spec::Volume(volume) if volume.pool == self.served.pool.name() => {
                Some(format!("{} is a volume of it", volume.name))
            }
            Spec::Volume(volume) if volume.drives.is_empty() => self.served_volume(volume, layer),
            Spec::Volume(volume) => any(&volume.drives).or_else(|| any(&volume.buffers)),
        }
    }

    /// A volume of a pool that another process serves: that process tells its devices.
    fn served_volume(&self, volume: &VolumeSpec, layer: usize) -> Option<String> {
        let layer = next(layer)?;
        let socket = self.served.stack.socket_of(volume);
        let patience = Patience { limit: ANSWER, ..Patience::default() };
        let config = ask(&socket, "GET", "/v1/config", None, &Value::Null, patience).ok()?;
        let devices = ["drives", "buffers"].into_iter().filter_map(|list| config[list].as_array());
        let specs = devices.flatten().filter_map(|one| one.as_str()?.parse::<Spec>().ok());
        specs.into_iter().find_map(|one| self.spec(&one, layer))
    }

    fn path(&self, path: &Path, layer: usize) -> Option<String> {
        let found = fs::metadata(path).ok()?; // opening it tells why
        self.file(&found, next(layer)?)
    }

    /// A file, by its file system, or a block device.
    fn file(&self, found: &Metadata, layer: usize) -> Option<String> {
        match found.file_type().is_block_device() {
            true => self.numbered(found.rdev(), layer),
            false => self.file_system(found.dev(), layer),
        }
    }

    fn numbered(&self, number: u64, layer: usize) -> Option<String> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let folder = fs::canonicalize(format!("{SYS}/{major}:{minor}")).ok()?;
        self.block_device(&folder, next(layer)?)
    }

    /// A block device, by its folder in `/sys`.
    fn block_device(&self, folder: &Path, layer: usize) -> Option<String> {
        let layer = next(layer)?;
        if folder.join("partition").exists() {
            return self.block_device(folder.parent()?, layer);
        }
        if let Ok(file) = fs::read_to_string(folder.join("loop/backing_file")) {
            return self.path(Path::new(file.trim_end_matches('\n')), layer);
        }
        let subsystem = fs::read_to_string(folder.join("device/subsysnqn")).unwrap_or_default();
        if subsystem.starts_with(&self.subsystems)
            && self.paths_of(folder).into_iter().any(|address| self.is_own(address))
        {
            return Some(format!("{} is served here", subsystem.trim()));
        }
        let below = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        let mut below = below.filter_map(|one| fs::canonicalize(one.path()).ok());
        below.find_map(|one| self.block_device(&one, layer))
    }

    /// Addresses at which the kernel reaches a namespace: of its controller, or of each of its subsystem.
    fn paths_of(&self, folder: &Path) -> Vec<SocketAddr> {
        let device = folder.join("device");
        let controllers = fs::read_dir(&device).into_iter().flatten().flatten();
        let folders = controllers.map(|one| one.path()).chain([device]);
        let text = |folder: PathBuf| fs::read_to_string(folder.join("address")).ok();
        folders.filter_map(text).filter_map(|text| kernel_address(&text)).collect()
    }

    /// A file system, by the number of its device: the block device that it lies on, or an attachment.
    fn file_system(&self, number: u64, layer: usize) -> Option<String> {
        let layer = next(layer)?;
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let wanted = format!("{major}:{minor}");
        let mount = table.lines().filter_map(mount).find(|mount| mount.device == wanted)?;
        if mount.kind == "fuse.esker" {
            return self.attachment(esker_attach::server(minor), layer);
        }
        if major != 0 {
            return self.numbered(number, layer);
        }
        // Btrfs and others have numbers of their own, and name the block device.
        let source = Path::new(mount.source);
        let is_device = fs::metadata(source).is_ok_and(|it| it.file_type().is_block_device());
        if is_device { self.path(source, layer) } else { None }
    }

    /// A device that a process attaches: by the process's connections, and by the files that it has open.
    fn attachment(&self, process: Option<u32>, layer: usize) -> Option<String> {
        // In another namespace, or of another user.
        let Some(process) = process else {
            return Some("it is attached by a process that cannot be looked at".to_owned());
        };
        let folder = PathBuf::from(format!("/proc/{process}"));
        let files = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
        let files: Vec<PathBuf> = files.map(|one| one.path()).collect();
        let targets: Vec<PathBuf> =
            files.iter().filter_map(|file| fs::read_link(file).ok()).collect();
        let sockets: BTreeSet<&str> = targets
            .iter()
            .filter_map(|target| target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']'))
            .collect();
        for name in ["net/tcp", "net/tcp6"] {
            let table = fs::read_to_string(folder.join(name)).unwrap_or_default();
            let mut rows = table.lines().skip(1).filter_map(connection);
            if rows.any(|(peer, socket)| sockets.contains(socket) && self.is_own(peer)) {
                return Some(format!("process {process} attaches a volume that is served here"));
            }
        }
        let stored = files.iter().filter_map(|file| fs::metadata(file).ok());
        let mut stored =
            stored.filter(|found| found.is_file() || found.file_type().is_block_device());
        stored.find_map(|found| self.file(&found, layer))
    }

    /// Whether the pool listens at an address, as this machine reaches it.
    fn is_own(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let is_local = || ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok();
        self.addresses.iter().any(|own| {
            let listens = own.ip() == ip || own.ip().is_unspecified() && is_local();
            own.port() == address.port() && listens
        })
    }
}

/// The layer below one, up to the last that is looked at.
fn next(layer: usize) -> Option<usize> {
    (layer < LAYERS_MAX).then_some(layer + 1)
}

/// A line of the table of mounts (proc(5)).
struct Mount<'a> {
    device: &'a str,
    kind: &'a str,
    source: &'a str,
}

fn mount(line: &str) -> Option<Mount<'_>> {
    let (about, of) = line.split_once(" - ")?;
    let mut of = of.split(' ');
    Some(Mount { device: about.split(' ').nth(2)?, kind: of.next()?, source: of.next()? })
}

/// The address of an NVMe controller as `/sys` has it: `traddr=127.0.0.1,trsvcid=4420`.
fn kernel_address(text: &str) -> Option<SocketAddr> {
    let value = |name| text.trim().split(',').find_map(|one| one.strip_prefix(name));
    let ip: IpAddr = value("traddr=")?.parse().ok()?;
    Some(SocketAddr::new(ip, value("trsvcid=")?.parse().ok()?))
}

/// The peer of a connection, and the inode of its socket, from a row of `/proc/PID/net/tcp` (proc(5)).
fn connection(row: &str) -> Option<(SocketAddr, &str)> {
    let words: Vec<&str> = row.split_whitespace().collect();
    let (ip, port) = words.get(2)?.split_once(':')?;
    let bytes = HEXLOWER_PERMISSIVE.decode(ip.as_bytes()).ok()?;
    // Each word of 4 bytes is a number of the machine.
    let bytes: Vec<u8> = bytes.chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
    let ip = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?)),
    };
    Some((SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?), words.get(9)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_kernel_are_read() {
        let row = "   1: 0100007F:C5F2 0100007F:1144 01 00000000:00000000 00:00000000 00000000  0 0 4242 1";
        assert_eq!(connection(row), Some(("127.0.0.1:4420".parse().unwrap(), "4242")));
        let row = "0: 0:0 00000000000000000000000001000000:1145 01 0:0 0:0 0 0 0 7 1";
        assert_eq!(connection(row), Some(("[::1]:4421".parse().unwrap(), "7")));
        assert_eq!(connection("0: 0:0 01:1145 01"), None);
        let found =
            mount("36 35 0:98 / /mnt/db rw,noatime shared:2 - fuse.esker esker:17 rw").unwrap();
        assert_eq!((found.device, found.kind, found.source), ("0:98", "fuse.esker", "esker:17"));
        let address = kernel_address("traddr=10.0.0.5,trsvcid=4420,src_addr=10.0.0.5\n");
        assert_eq!(address, Some("10.0.0.5:4420".parse().unwrap()));
    }
}
