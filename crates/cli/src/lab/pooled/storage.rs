//! The storage of an arm: modelled drives in files or drives of the machine, striped or pooled, attached as block devices
//! with ext4.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use esker_base::files;
use esker_lab::pooled::OwnDrives;
use esker_lab::pooled::bench::DriveBytes;
use esker_lab::pooled::deployment::{Deployment, Storage};
use serde_json::Value;

use crate::lab::groups::Groups;
use crate::lab::programs::{Run, Server, at_once, call, folder, within, wrong};

/// The model of the drives.
const PROFILE: &str = "micron-9300";
/// The model of a pool's write buffer.
const BUFFER: &str = "optane-p4800x";
/// Its bytes: twice the source's share, 128 GB beside drives of 30.7 TB, of four drives of 1 GiB.
const BUFFER_BYTES: u64 = 32 * MIB;
/// The share of a pool's drives that its volumes have together.
const VOLUMES_PERCENT: u64 = 70;
const MIB: u64 = 1 << 20;
const CHUNK: &str = "1MiB";
const LOG: &str = "32MiB";
const POOL: &str = "tank";
/// How long a device may take to be attached, and a pool to be served.
const READY: Duration = Duration::from_secs(120);
/// How long it may take to be detached: the drives are slow, and there may be much to write back.
const DETACH: Duration = Duration::from_secs(1800);

/// The places and the program that storage is made with.
pub(super) struct Site<'a> {
    /// This program.
    pub(super) esker: &'a Path,
    /// The folder of the run: mount points, sockets, logs.
    pub(super) run: &'a Path,
    /// Cgroups.
    pub(super) groups: &'a Groups,
}

impl Site<'_> {
    fn esker(&self) -> Command {
        Command::new(self.esker)
    }

    /// Starts this program as a part of the storage.
    pub(super) fn server(&self, name: &str, arguments: impl FnOnce(&mut Command)) -> Run<Server> {
        let mut command = within(&self.groups.storage(), self.esker);
        arguments(&mut command);
        Server::start(name, &mut command, &self.run.join(format!("{name}.log")))
    }

    fn socket(&self) -> PathBuf {
        self.run.join("pool.sock")
    }

    /// Runs a command of this program that asks the served pool.
    pub(super) fn ask(&self, words: &[&str]) -> Run<String> {
        call(&words.join(" "), self.esker().args(words).arg("--socket").arg(self.socket()))
    }
}

/// Drives of an arm, and how many there are for each node.
#[derive(Clone, Debug)]
pub(super) struct Drives {
    origin: Origin,
    nodes: u32,
    each: u32,
    /// Bytes of each, of the smallest at least.
    capacity: u64,
}

/// The kind of drives.
#[derive(Clone, Debug)]
enum Origin {
    /// Models, whose files are in this folder.
    Models(PathBuf),
    /// Drives of the machine, of which no file is made.
    Own(OwnDrives),
}

impl Drives {
    /// Models whose files are in a folder.
    pub(super) fn at(folder: PathBuf, nodes: u32, drives: u32, capacity: u64) -> Drives {
        Drives { origin: Origin::Models(folder), nodes, each: drives / nodes, capacity }
    }

    /// Drives of the machine; `capacity` is that of the smallest, in bytes.
    pub(super) fn own(own: OwnDrives, nodes: u32, capacity: u64) -> Drives {
        let each = u32::try_from(own.drives.len()).unwrap_or(u32::MAX) / nodes;
        Drives { origin: Origin::Own(own), nodes, each, capacity }
    }

    fn count(&self) -> u32 {
        self.nodes * self.each
    }

    /// The specification of a drive; `time` as in `time=40x`, for models.
    pub(super) fn spec(&self, drive: u32, time: &str) -> String {
        match &self.origin {
            Origin::Models(folder) => model(&image(folder, drive), time),
            Origin::Own(own) => own.drives[drive as usize].clone(),
        }
    }

    fn specs(&self, drives: std::ops::Range<u32>, time: &str) -> Vec<String> {
        drives.map(|drive| self.spec(drive, time)).collect()
    }

    fn of_node(&self, node: u32) -> std::ops::Range<u32> {
        node * self.each..(node + 1) * self.each
    }

    /// The specification of the write buffer of a pool, if it has one of its own.
    fn buffer(&self, pool: u32, time: &str) -> Option<String> {
        match &self.origin {
            Origin::Models(folder) => Some(model(&buffer_image(folder, pool), time)),
            Origin::Own(own) => own.buffer.clone(),
        }
    }

    /// The drives of the pool of all nodes, and its write buffer.
    fn of_pool(&self, time: &str) -> Vec<String> {
        let mut specs = self.specs(0..self.count(), time);
        specs.extend(self.buffer(0, time));
        specs
    }

    /// The same of a node's own pool.
    fn of_own_pool(&self, node: u32, time: &str) -> Vec<String> {
        let mut specs = self.specs(self.of_node(node), time);
        specs.extend(self.buffer(node, time));
        specs
    }

    /// Makes the models of drives anew.
    pub(super) fn create(&self, esker: &Path) -> Run {
        let Origin::Models(at) = &self.origin else { return Ok(()) };
        folder(at)?;
        (0..self.count())
            .try_for_each(|drive| make_model(esker, PROFILE, &image(at, drive), self.capacity))
    }

    /// Makes the model of a pool's write buffer anew.
    fn create_buffer(&self, esker: &Path, pool: u32) -> Run {
        let Origin::Models(at) = &self.origin else { return Ok(()) };
        make_model(esker, BUFFER, &buffer_image(at, pool), BUFFER_BYTES)
    }

    /// Makes models anew, and pools where the arm has some.
    pub(super) fn create_all(&self, site: &Site<'_>, arm: Deployment) -> Run {
        self.create(site.esker)?;
        let volume = self.capacity * u64::from(self.each) * VOLUMES_PERCENT / 100 / MIB * MIB;
        let (has_buffer, is_small) = match &self.origin {
            Origin::Models(_) => (true, true),
            Origin::Own(own) => (own.buffer.is_some(), false),
        };
        let layout = Layout { parities: 0, has_buffer, is_small };
        match arm.storage() {
            Storage::Stripe => Ok(()),
            Storage::Pool => {
                self.create_buffer(site.esker, 0)?;
                let specs = self.of_pool("none");
                make_pool(site, POOL, &specs, layout)?;
                (0..self.nodes).try_for_each(|node| {
                    make_volume(
                        site,
                        POOL,
                        &format!("n{node}"),
                        &specs,
                        volume,
                        arm.pool_compresses(),
                    )
                })
            }
            Storage::PoolHere => (0..self.nodes).try_for_each(|node| {
                self.create_buffer(site.esker, node)?;
                let (pool, specs) = (format!("{POOL}{node}"), self.of_own_pool(node, "none"));
                make_pool(site, &pool, &specs, layout)?;
                make_volume(site, &pool, "n", &specs, volume, arm.pool_compresses())
            }),
        }
    }

    /// Bytes in all drives, while nobody has them; none if they are no models.
    pub(super) fn bytes(&self, esker: &Path) -> Run<Option<DriveBytes>> {
        let Origin::Models(folder) = &self.origin else { return Ok(None) };
        let mut sum = DriveBytes::default();
        for drive in 0..self.count() {
            let mut command = Command::new(esker);
            command.args(["ssd", "info", "--json"]).arg(image(folder, drive));
            let one = drive_bytes(&call("ssd info", &mut command)?)?;
            sum.taken += one.taken;
            sum.host_written += one.host_written;
            sum.media_written += one.media_written;
        }
        Ok(Some(sum))
    }
}

/// The file of a model.
fn image(folder: &Path, drive: u32) -> PathBuf {
    folder.join(format!("drive{drive}.img"))
}

/// The file of the model of a write buffer.
fn buffer_image(folder: &Path, pool: u32) -> PathBuf {
    folder.join(format!("buffer{pool}.img"))
}

fn model(image: &Path, time: &str) -> String {
    format!("ssd:?image={}&time={time}", image.display())
}

/// Reads the answer of `ssd info --json`.
fn drive_bytes(text: &str) -> Run<DriveBytes> {
    let info: Value = serde_json::from_str(text).map_err(|error| wrong("ssd info", error))?;
    let number = |value: &Value, name: &str| {
        value[name].as_u64().ok_or_else(|| wrong("ssd info", format!("it has no number {name}")))
    };
    let mut pages = 0;
    for writer in info["writers"].as_array().into_iter().flatten() {
        pages += number(writer, "valid_pages")?;
    }
    Ok(DriveBytes {
        taken: pages * number(&info, "page_bytes")?,
        host_written: number(&info, "host_written_bytes")?,
        media_written: number(&info, "media_written_bytes")?,
    })
}

/// Makes a model anew.
fn make_model(esker: &Path, profile: &str, image: &Path, capacity: u64) -> Run {
    if image.exists() {
        fs::remove_file(image).map_err(|error| wrong(&image.display().to_string(), error))?;
    }
    let mut command = Command::new(esker);
    command.args(["ssd", "create", profile]).arg(image);
    call("ssd create", command.arg("--capacity").arg(capacity.to_string())).map(|_| ())
}

/// The form of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// How many drives may be lost.
    pub(super) parities: u32,
    /// Whether the last device is its write buffer, which lies on the drives otherwise.
    pub(super) has_buffer: bool,
    /// Whether drives are models, which are small.
    pub(super) is_small: bool,
}

/// Makes a pool on devices, whose content is lost.
pub(super) fn make_pool(site: &Site<'_>, pool: &str, specs: &[String], layout: Layout) -> Run {
    let (drives, buffer) = match specs {
        [drives @ .., buffer] if layout.has_buffer => (drives, Some(buffer)),
        drives => (drives, None),
    };
    let mut command = site.esker();
    command.args(["pool", "create", pool, "--overwrite"]).args(drives);
    command.args(["--parity", &layout.parities.to_string()]);
    if let Some(buffer) = buffer {
        command.args(["--buffer", buffer]);
    }
    if layout.is_small {
        command.args(["--chunk", CHUNK]);
        command.args(if layout.has_buffer { &[][..] } else { &["--log", LOG] });
    }
    call("pool create", &mut command).map(|_| ())
}

/// Makes a volume of a pool that nobody serves, for any host.
pub(super) fn make_volume(
    site: &Site<'_>,
    pool: &str,
    name: &str,
    specs: &[String],
    bytes: u64,
    compressed: bool,
) -> Run {
    let volume = format!("{pool}/{name}");
    let mut command = site.esker();
    command.args(["volume", "create", &volume, "--size", &bytes.to_string()]);
    command.args(compressed.then_some(()).map_or(&["--no-compression"][..], |()| &[]));
    call("volume create", command.arg("--drives").args(specs))?;
    let mut command = site.esker();
    command.args(["volume", "export", &volume, "--any-host", "--drives"]).args(specs);
    call("volume export", &mut command).map(|_| ())
}

/// Serves a pool, and gives the address at which hosts find it.
pub(super) fn serve_pool(site: &Site<'_>, pool: &str, specs: &[String]) -> Run<(Server, String)> {
    let mut server = site.server("pool", |command| {
        command.args([
            "pool",
            "serve",
            pool,
            "--listen",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ]);
        command.arg("--socket").arg(site.socket()).arg("--drives").args(specs);
    })?;
    let address = server.until(READY, listening)?;
    Ok((server, address))
}

/// The address in the output of a program that serves.
pub(super) fn listening(said: &str) -> Option<String> {
    // The line is complete when another one follows, or its end is there.
    let line = said
        .split_inclusive('\n')
        .find(|line| line.starts_with("listening on ") && line.ends_with('\n'))?;
    Some(line.trim_start_matches("listening on ").trim().to_owned())
}

/// The specification of a served volume.
fn remote(address: &str, pool: &str, volume: &str, dilation: Option<u32>) -> String {
    // An answer takes a second at most, and so many times longer where drives are slower.
    let timeout = dilation.unwrap_or(1).max(120);
    let give_up = 2 * timeout;
    format!(
        "nvme-tcp://{address}/nqn.2026-01.io.esker:{pool}:{volume}?give-up={give_up}s&timeout={timeout}s"
    )
}

/// A device that is attached and mounted.
struct Mounted {
    server: Server,
    at: PathBuf,
    files: PathBuf,
    /// As in `/sys/block`.
    block: String,
}

impl Mounted {
    /// Attaches the device of a node, and mounts it; makes a file system if it is new.
    fn new(site: &Site<'_>, node: u32, spec: &str, is_new: bool) -> Run<Mounted> {
        let at = folder(&site.run.join(format!("at-{node}")))?;
        let files = folder(&site.run.join(format!("files-{node}")))?;
        let mut server = site.server(&format!("attach-{node}"), |command| {
            command.args(["attach", "--loop", spec]).arg(&at);
        })?;
        let device = server.until(READY, |said| {
            let line =
                said.split_inclusive('\n').find(|line| line.starts_with("block device: "))?;
            line.ends_with('\n')
                .then(|| line.trim_start_matches("block device: ").trim().to_owned())
        })?;
        if is_new {
            call("mkfs.ext4", Command::new("mkfs.ext4").args(["-q", "-F", &device]))?;
        }
        call("mount", Command::new("mount").args(["-o", "noatime,discard", &device]).arg(&files))?;
        let block = device.trim_start_matches("/dev/").to_owned();
        Ok(Mounted { server, at, files, block })
    }

    /// Unmounts and detaches it.
    fn close(self, esker: &Path) -> Run {
        call("umount", Command::new("umount").arg(&self.files))?;
        call("detach", Command::new(esker).args(["detach", "--wait", "60"]).arg(&self.at))?;
        self.server.succeed(DETACH).map(|_| ())
    }
}

/// Storage of an arm in use.
pub(super) struct Mounts {
    mounted: Vec<Mounted>,
    pool: Option<Server>,
}

impl Mounts {
    /// Attaches and mounts the devices of an arm's nodes; makes file systems if they are new.
    pub(super) fn open(
        site: &Site<'_>,
        arm: Deployment,
        drives: &Drives,
        dilation: Option<u32>,
        are_new: bool,
    ) -> Run<Mounts> {
        let time = &dilation.map_or("none".to_owned(), |times| format!("{times}x"));
        let mut mounts = Mounts { mounted: Vec::new(), pool: None };
        let mut address = String::new();
        if arm.storage() == Storage::Pool {
            let (server, at) = serve_pool(site, POOL, &drives.of_pool(time))?;
            (mounts.pool, address) = (Some(server), at);
        }
        let mount = |node| {
            let all = |specs: Vec<String>| -> String {
                specs.iter().map(|spec| format!("({spec})")).collect()
            };
            let spec = match arm.storage() {
                Storage::Stripe => {
                    format!("stripe:{}", all(drives.specs(drives.of_node(node), time)))
                }
                Storage::Pool => remote(&address, POOL, &format!("n{node}"), dilation),
                Storage::PoolHere => {
                    let own = all(drives.of_own_pool(node, time));
                    format!("volume:{POOL}{node}/n?drives={own}")
                }
            };
            Mounted::new(site, node, &spec, are_new)
        };
        mounts.mounted = at_once(0..drives.nodes, mount)?;
        Ok(mounts)
    }

    /// Serves a pool of volumes `n0`, `n1`…, and mounts one for each node.
    pub(super) fn of_pool(
        site: &Site<'_>,
        pool: &str,
        specs: &[String],
        nodes: u32,
    ) -> Run<Mounts> {
        let (server, address) = serve_pool(site, pool, specs)?;
        let mount = |node| {
            let spec = remote(&address, pool, &format!("n{node}"), None);
            Mounted::new(site, node, &spec, true)
        };
        Ok(Mounts { mounted: at_once(0..nodes, mount)?, pool: Some(server) })
    }

    /// Where each node's files are.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.mounted.iter().map(|one| one.files.clone()).collect()
    }

    /// The nodes' block devices.
    pub(super) fn blocks(&self) -> Vec<String> {
        self.mounted.iter().map(|one| one.block.clone()).collect()
    }

    /// Its processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.mounted
            .iter()
            .map(|one| one.server.pid())
            .chain(self.pool.as_ref().map(Server::pid))
            .collect()
    }

    /// Bytes that the nodes' file systems have in use.
    pub(super) fn used(&self) -> Run<u64> {
        let used = |one: &Mounted| {
            let found = rustix::fs::statvfs(&one.files).map_err(|error| wrong("statvfs", error))?;
            Ok((found.f_blocks - found.f_bfree) * found.f_frsize)
        };
        self.mounted.iter().map(used).sum()
    }

    /// Unmounts and detaches all of it in order, and ends the pool.
    pub(super) fn close(self, esker: &Path) -> Run {
        at_once(self.mounted, |one| one.close(esker))?;
        self.pool.map_or(Ok(()), |pool| pool.end(DETACH))
    }
}

/// Removes a folder of drives.
pub(super) fn remove(at: &Path) -> Run {
    match fs::remove_dir_all(at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(wrong(&at.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

/// Whether a path stands in a specification as it is.
pub(super) fn is_plain(path: &Path) -> bool {
    path.to_str()
        .is_some_and(|text| text.chars().all(|one| one.is_alphanumeric() || "/._-+".contains(one)))
}

/// Whether files can be made in a folder.
pub(super) fn can_write(at: &Path) -> Result<(), std::io::Error> {
    let probe = at.join(".probe");
    files::write(&probe, "")?;
    fs::remove_file(probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_divided_among_nodes_in_turn() {
        let drives = Drives::at(PathBuf::from("/w/local"), 2, 4, 1 << 30);
        assert_eq!(drives.of_node(1), 2..4);
        assert_eq!(drives.spec(3, "40x"), "ssd:?image=/w/local/drive3.img&time=40x");
    }

    #[test]
    fn bytes_of_a_drive_are_read_from_its_description() {
        let text = r#"{"page_bytes": 4096, "host_written_bytes": 10, "media_written_bytes": 12,
            "writers": [{"valid_pages": 2}, {"valid_pages": 1}]}"#;
        let bytes = drive_bytes(text).unwrap();
        assert_eq!((bytes.taken, bytes.host_written, bytes.media_written), (3 * 4096, 10, 12));
        assert!(drive_bytes("{}").unwrap_err().to_string().contains("page_bytes"));
    }

    #[test]
    fn an_address_is_taken_from_a_whole_line() {
        assert_eq!(listening("pool\nlistening on 127.0.0.1:4\n").as_deref(), Some("127.0.0.1:4"));
        assert_eq!(listening("pool\nlistening on 127.0.0.1:4"), None);
    }

    #[test]
    fn paths_that_mean_something_in_specifications_are_not_plain() {
        assert!(is_plain(Path::new("/var/tmp/esker-pooled_1.d")));
        for path in ["/a b", "/a%20", "/a(b)", "/a&b", "/a?b"] {
            assert!(!is_plain(Path::new(path)), "{path}");
        }
    }
}
