//! The file device on a raw block device: a loop device, which needs root.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use common::{Loop, TempDir, skipped};
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::{Create, Device, FileDevice, FileOptions, Port, Preference, conformance};

fn options(io_uring: Preference) -> FileOptions {
    FileOptions {
        create: Create::Never,
        io_uring,
        ..FileOptions::default()
    }
}

#[test]
fn a_block_device_conforms_has_its_size_and_frees_what_is_discarded() {
    let dir = TempDir::new();
    let Some(disk) = Loop::new(dir.path(), 16 << 20) else {
        return skipped("a raw block device: setting up a loop device needs root");
    };
    for io_uring in [Preference::Require, Preference::Never] {
        let device = FileDevice::open(disk.path(), &options(io_uring)).unwrap();
        assert!(device.is_direct(), "{:?}", device.remarks());
        assert_eq!(device.len_bytes(), Ok(16 << 20));
        let geometry = device.geometry();
        assert_eq!((geometry.lba_size, geometry.capacity.0), (4096, 4096));
        assert!(geometry.discard_granularity > 0);
        conformance::check(&device, 16, 800, 5);

        let mut port = Port::open(&device, 1).unwrap();
        let mut buf = AlignedBuf::zeroed(8 << 20);
        buf.fill(1);
        port.write(Lba(0), buf, None).unwrap();
        let blocks = || fs::metadata(dir.path().join("medium")).unwrap().blocks() * 512;
        let before = blocks();
        port.discard(Lba(0), LbaCount(4096)).unwrap();
        assert!(
            before >= 8 << 20 && blocks() < 1 << 20,
            "{} bytes are left",
            blocks()
        );
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
