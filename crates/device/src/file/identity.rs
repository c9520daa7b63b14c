//! Facts that tell a file or a block device from others, as far as the system reports them.
//!
//! A number that the kernel gives anew each time it starts is of no use: device numbers are not asked, nor
//! is the identifier of a file system that is made of them (XFS).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};

use crate::{Fact, Identity};

/// File systems whose identifier lasts: ext2 to ext4, btrfs, F2FS, ZFS (`linux/magic.h`, and OpenZFS).
const LASTING: [u32; 4] = [0xef53, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1];
/// File systems whose inodes may not last: FUSE numbers files as it meets them.
const PASSING: [u32; 1] = [0x6573_5546];
/// Folder that describes the block devices of this machine, by device number.
const SYS: &str = "/sys/dev/block";

/// The identity of an open file or block device.
pub(super) fn of(file: &File, is_block_device: bool) -> Option<Identity> {
    let found = match is_block_device {
        true => BlockDevice::numbered(Path::new(SYS), file.metadata().ok()?.rdev()).identity(),
        false => of_file(file).unwrap_or_default(),
    };
    found.found()
}

fn of_file(file: &File) -> io::Result<Identity> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    let is_one_of = |kinds: &[u32]| u32::try_from(kind).is_ok_and(|kind| kinds.contains(&kind));
    if is_one_of(&PASSING) {
        return Ok(Identity::default());
    }
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
    let mut found = Identity::default().with(Fact::Inode, &told.stx_ino.to_string());
    if StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::BTIME) {
        let made = told.stx_btime;
        found = found.with(Fact::Made, &format!("{}.{:09}", made.tv_sec, made.tv_nsec));
    }
    if is_one_of(&LASTING) {
        let id = rustix::fs::fstatvfs(file)?.f_fsid;
        found = found.with(Fact::FileSystem, &format!("{id:016x}"));
    }
    Ok(found)
}

/// A block device as `/sys` shows it (Documentation/ABI/stable/sysfs-block of Linux).
struct BlockDevice(PathBuf);

impl BlockDevice {
    fn numbered(sys: &Path, number: u64) -> BlockDevice {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        BlockDevice(sys.join(format!("{major}:{minor}")))
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join(name)).ok()
    }

    fn identity(&self) -> Identity {
        if let Some(start) = self.read("partition").and_then(|_| self.read("start")) {
            // Through the link that `/sys/dev/block` has for it: `..` of a link is not where it is.
            let Ok(own) = fs::canonicalize(&self.0) else { return Identity::default() };
            let whole = own.parent().map(|parent| BlockDevice(parent.to_owned()));
            let whole = whole.map_or_else(Identity::default, |whole| whole.identity());
            return whole.part(&format!("sector-{}", start.trim()));
        }
        if let Some(path) = self.read("loop/backing_file") {
            let backing = File::open(path.trim_end_matches('\n'));
            let found = backing.and_then(|file| of_file(&file)).unwrap_or_default();
            return match self.read("loop/offset").as_deref().map(str::trim) {
                None | Some("0") => found,
                Some(offset) => found.part(&format!("byte-{offset}")),
            };
        }
        let facts = [
            (Fact::Wwid, "wwid"),
            (Fact::Wwid, "device/wwid"),
            (Fact::Wwid, "device/cid"), // a card's
            (Fact::Serial, "serial"),
            (Fact::Uuid, "uuid"),
            (Fact::Uuid, "md/uuid"),
            (Fact::Nguid, "nguid"),
            (Fact::Eui64, "eui"),
            (Fact::Mapped, "dm/uuid"),
        ];
        // The first of a kind counts.
        facts.iter().rev().fold(Identity::default(), |found, (fact, name)| {
            found.with(*fact, &self.read(name).unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as `/sys/dev/block`, with these files.
    fn sys(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("esker-sys-{}-{name}", std::process::id()));
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn shown(device: PathBuf) -> String {
        BlockDevice(device).identity().to_string()
    }

    #[test]
    fn drive_is_known_by_its_identifiers_and_partition_by_where_it_begins() {
        let root = sys(
            "drive",
            &[
                ("nvme0n1/wwid", "eui.0025388b01\n"),
                ("nvme0n1/nguid", "00000000-0000-0000-0000-000000000000\n"),
                ("nvme0n1/uuid", "2a6c\n"),
                ("nvme0n1/nvme0n1p2/partition", "2\n"),
                ("nvme0n1/nvme0n1p2/start", "2048\n"),
                ("sda/device/wwid", "t10.ATA     DISK   7\n"),
                ("vda/serial", ""),
                ("dm-0/dm/uuid", "LVM-abc\n"),
            ],
        );
        fs::create_dir_all(root.join("block")).unwrap();
        std::os::unix::fs::symlink(root.join("nvme0n1/nvme0n1p2"), root.join("block/259:2"))
            .unwrap();
        let whole = "wwid=eui.0025388b01, uuid=2a6c";
        assert_eq!(shown(root.join("nvme0n1")), whole);
        assert_eq!(shown(root.join("block/259:2")), format!("{whole}, part=sector-2048"));
        assert_eq!(shown(root.join("sda")), "wwid=t10.ATA_DISK_7");
        assert_eq!(shown(root.join("dm-0")), "mapped=LVM-abc");
        assert_eq!(BlockDevice(root.join("vda")).identity().found(), None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn file_is_itself_and_no_other_and_a_loop_device_is_its_file() {
        let root = sys("file", &[("a", "a"), ("b", "b")]);
        let open = |name: &str| File::open(root.join(name)).unwrap();
        let [a, b] = ["a", "b"].map(|name| of(&open(name), false).unwrap());
        assert!(a.is_same(&of(&open("a"), false).unwrap()) && !a.is_same(&b), "{a} {b}");
        fs::rename(root.join("a"), root.join("c")).unwrap();
        assert!(a.is_same(&of(&open("c"), false).unwrap()), "a name is no part of it");
        let file = format!("{}\n", root.join("c").display());
        for (name, offset) in [("loop0", "0\n"), ("loop1", "4096\n")] {
            fs::create_dir_all(root.join(name).join("loop")).unwrap();
            fs::write(root.join(name).join("loop/backing_file"), &file).unwrap();
            fs::write(root.join(name).join("loop/offset"), offset).unwrap();
        }
        assert_eq!(shown(root.join("loop0")), a.to_string());
        assert_eq!(shown(root.join("loop1")), format!("{a}, part=byte-4096"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn file_in_the_place_of_another_is_another() {
        let root = sys("anew", &[("a", "a")]);
        let path = root.join("a");
        let old = of(&File::open(&path).unwrap(), false).unwrap();
        fs::remove_file(&path).unwrap();
        // It may get the same inode; the kernel tells times apart that are a tick away from each other.
        esker_base::Clock::real().sleep(std::time::Duration::from_millis(50));
        fs::write(&path, "a").unwrap();
        let new = of(&File::open(&path).unwrap(), false).unwrap();
        assert!(!old.is_same(&new), "{old} {new}");
        fs::remove_dir_all(root).unwrap();
    }
}
