//! Devices that a stack makes and those it does not, and how large a file is in each place of a specification.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use esker_base::{AlignedBuf, ErrorKind, Lba};
use esker_device::{Create, Port};
use esker_stack::{Opened, Spec, Stack, StackError};

const MIB: u64 = 1 << 20;

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file that is a hole.
    fn sparse(&self, name: &str, bytes: u64) {
        File::create(self.path(name)).unwrap().set_len(bytes).unwrap();
    }

    /// Opens a specification whose `@` stands for this directory.
    fn open(&self, stack: &Stack, text: &str, create: Create) -> Result<Opened, StackError> {
        let text = text.replace('@', self.0.path().to_str().unwrap());
        stack.open(&text.parse::<Spec>()?, create)
    }

    fn names(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }
}

fn bytes(opened: &Opened) -> u64 {
    let geometry = opened.device.geometry();
    geometry.capacity.bytes(geometry.lba_size)
}

#[test]
fn file_has_one_size_in_every_place_of_specification() {
    let scratch = Scratch::new();
    scratch.sparse("d", 64 * MIB);
    scratch.sparse("f", 16 * MIB);
    scratch.open(&Stack::new(), "cache:(@/d)?flash=(@/f)", Create::IfMissing).unwrap();
    for text in [
        "@/d",
        "file:@/d?lba=512",
        "traced:(@/d)?to=@/t1",
        "cache:(@/d)?flash=(@/f)",
        "traced:(cache:(@/d)?flash=(@/f))?to=@/t2",
        "cache:(traced:(@/d)?to=@/t3)?flash=(traced:(@/f)?to=@/t4)",
        "cache:(cache:(@/d)?flash=(@/f))?flash=(mem:16MiB)",
    ] {
        let opened = scratch.open(&Stack::new(), text, Create::Never).unwrap();
        assert_eq!(bytes(&opened), 64 * MIB, "{text}");
    }
    assert_eq!(fs::metadata(scratch.path("f")).unwrap().len(), 16 * MIB);
    let larger = scratch.open(&Stack::new(), "file:@/d?capacity=65MiB", Create::Never).unwrap();
    assert_eq!(bytes(&larger), 65 * MIB);
    assert_eq!(fs::metadata(scratch.path("d")).unwrap().len(), 65 * MIB);
}

#[test]
fn class_of_kvdb_grows_and_device_does_not() {
    let scratch = Scratch::new();
    let classes = Stack::new().growing(true);
    let opened = scratch.open(&classes, "file:@/class", Create::IfMissing).unwrap();
    assert!(bytes(&opened) > 1 << 40);
    let mut port = Port::open(&*opened.device, 1).unwrap();
    port.write(Lba(9), AlignedBuf::zeroed(4096), None).unwrap();
    drop((port, opened));
    assert_eq!(fs::metadata(scratch.path("class")).unwrap().len(), 10 * 4096);
    for text in ["@/class", "traced:(@/class)?to=@/t"] {
        assert!(bytes(&scratch.open(&classes, text, Create::Never).unwrap()) > 1 << 40);
    }
    // Devices of a cache never grow: its superblock knows both sizes.
    scratch.sparse("f", 16 * MIB);
    let cached = scratch.open(&classes, "cache:(@/class)?flash=(@/f)", Create::IfMissing);
    assert_eq!(bytes(&cached.unwrap()), 10 * 4096);
    assert_eq!(bytes(&scratch.open(&Stack::new(), "@/class", Create::Never).unwrap()), 10 * 4096);
}

#[test]
fn nothing_that_lasts_is_made_without_leave() {
    let scratch = Scratch::new();
    scratch.sparse("d", 64 * MIB);
    scratch.sparse("f", 16 * MIB);
    let before = scratch.names();
    for text in [
        "@/gone",
        "file:@/gone?capacity=1MiB",
        "ssd:micron-7450?capacity=2GiB&image=@/gone",
        "disk:sata-7200?capacity=1GiB&image=@/gone",
        "traced:(@/gone)?to=@/trace",
        "cache:(@/gone)?flash=(@/f)",
        "cache:(@/d)?flash=(file:@/gone?capacity=16MiB)",
        "cache:(@/d)?flash=(@/f)",
        "cache:(mem:64MiB)?flash=(@/f)",
        "cache:(@/d)?flash=(ssd:micron-7450?capacity=2GiB&image=@/gone)",
    ] {
        let error = scratch.open(&Stack::new(), text, Create::Never).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(scratch.names(), before, "{text}");
    }
    let blocks = fs::metadata(scratch.path("f")).unwrap().blocks();
    assert_eq!(blocks, 0, "no cache was made");
    // A new file needs a size.
    let error = scratch.open(&Stack::new(), "@/gone", Create::IfMissing).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("capacity=8GiB"), "{error}");
    // A device that ends with the process is new each time.
    for text in [
        "mem:1MiB",
        "ssd:micron-7450?capacity=2GiB",
        "cache:(@/d)?flash=(mem:16MiB)",
        "disk:sas-10k",
    ] {
        scratch.open(&Stack::new(), text, Create::Never).unwrap();
    }
}
