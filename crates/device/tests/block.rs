//! The file device on a raw block device: a loop device, which needs root.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use common::{Loop, Mount, TempDir, skipped};
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::{Create, Device, FileDevice, FileOptions, Op, Port, Preference, conformance};

fn options(io_uring: Preference) -> FileOptions {
    FileOptions { create: Create::Never, io_uring, ..FileOptions::default() }
}

#[test]
fn a_block_device_conforms_has_its_size_and_frees_what_is_discarded() {
    let dir = TempDir::new();
    let Some(disk) = Loop::new(dir.path(), 16 << 20) else {
        return skipped("a raw block device: setting up a loop device needs root");
    };
    for io_uring in [Preference::Prefer, Preference::Never] {
        let device = FileDevice::open(disk.path(), &options(io_uring)).unwrap();
        assert!(device.is_direct(), "{:?}", device.remarks());
        assert_eq!(device.len_bytes(), Ok(16 << 20));
        let geometry = device.geometry();
        assert_eq!((geometry.lba_size, geometry.capacity.0), (4096, 4096));
        assert!(geometry.discard_granularity > 0 && !device.discards_zero());
        conformance::check(&device, 16, 800, 5);

        let mut port = Port::open(&device, 1).unwrap();
        let mut buf = AlignedBuf::zeroed(8 << 20);
        buf.fill(1);
        port.write(Lba(0), buf, None).unwrap();
        let blocks = || fs::metadata(dir.path().join("medium")).unwrap().blocks() * 512;
        let before = blocks();
        port.discard(Lba(0), LbaCount(4096)).unwrap();
        assert!(before >= 8 << 20 && blocks() < 1 << 20, "{} bytes are left", blocks());
    }
}

#[test]
fn a_block_device_in_use_is_refused() {
    let dir = TempDir::new();
    let Some(disk) = Loop::new(dir.path(), 1 << 20) else {
        return skipped("a raw block device: setting up a loop device needs root");
    };
    let device = FileDevice::open(disk.path(), &options(Preference::Prefer)).unwrap();
    let error = FileDevice::open(disk.path(), &options(Preference::Prefer)).map(drop);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Conflict);
    drop(device);
    FileDevice::open(disk.path(), &options(Preference::Prefer)).unwrap();
}

#[test]
fn a_block_device_of_an_odd_size_has_small_lbas() {
    let dir = TempDir::new();
    let Some(disk) = Loop::new(dir.path(), (1 << 20) + 512) else {
        return skipped("a raw block device: setting up a loop device needs root");
    };
    let device = FileDevice::open(disk.path(), &options(Preference::Prefer)).unwrap();
    assert!(device.is_direct(), "{:?}", device.remarks());
    assert_eq!(device.geometry().lba_size, 512);
    assert_eq!(device.geometry().capacity, LbaCount(2049));
    conformance::check(&device, 4, 200, 6);
}

#[test]
fn flushes_and_writes_with_fua_reach_the_drive() {
    let dir = TempDir::new();
    let Some(disk) = Loop::new(dir.path(), 1 << 20) else {
        return skipped("a raw block device: setting up a loop device needs root");
    };
    let name = disk.path().file_name().unwrap().to_str().unwrap();
    let flushes = || {
        // The 16th figure: flushes completed (Documentation/admin-guide/iostats.rst).
        let text = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let figure = text.split_whitespace().nth(15).unwrap();
        figure.parse::<u64>().unwrap()
    };
    for io_uring in [Preference::Prefer, Preference::Never] {
        let device = FileDevice::open(disk.path(), &options(io_uring)).unwrap();
        assert!(device.geometry().volatile_write_cache);
        let mut port = Port::open(&device, 1).unwrap();
        let write =
            |fua| Op::Write { lba: Lba(3), buf: AlignedBuf::zeroed(4096), placement: None, fua };
        let mut flushes_of = |op| {
            let before = flushes();
            port.run(op).unwrap();
            flushes() - before
        };
        assert_eq!(flushes_of(write(false)), 0);
        assert_ne!(flushes_of(write(true)), 0);
        assert_ne!(flushes_of(Op::Flush), 0);
    }
}

#[test]
fn a_mounted_block_device_is_refused_and_journalled_files_go_through_the_page_cache() {
    let dir = TempDir::new();
    let Some(disk) = Loop::new(dir.path(), 16 << 20) else {
        return skipped("a raw block device: setting up a loop device needs root");
    };
    let mounted = dir.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let Some(_mount) = Mount::ext4(disk.path(), &mounted, "data=journal") else {
        return skipped("a journalling file system: mkfs.ext4 or mount failed");
    };
    let error = FileDevice::open(disk.path(), &options(Preference::Prefer)).map(drop);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("it is mounted"), "{error}");

    let file = FileDevice::open(mounted.join("file"), &FileOptions::default()).unwrap();
    let remarks = file.remarks();
    assert!(remarks[0].contains("direct I/O is refused"), "{remarks:?}");
    assert!(!file.is_direct());
    conformance::check(&file, 8, 300, 7);
}
