//! Placement handles of volumes: what is written with different ones lies in different segments, and the drives are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::sync::Mutex;
use esker_base::{AlignedBuf, Lba};
use esker_device::fdp::{FdpError, HandleUse};
use esker_device::{Device, Op, PlacementId, Port};
use esker_sim::{Fate, HookDevice};
use esker_volume::{CreateOptions, Pool, VolumeOptions};

/// Bytes written with each placement id.
type Seen = Arc<Mutex<BTreeMap<Option<PlacementId>, Vec<u8>>>>;

/// A drive with eight placement handles whose writes are noted.
fn noted(inner: Arc<dyn Device>, seen: Seen) -> Arc<dyn Device> {
    let hooked = HookDevice::new(inner).with_geometry(|shown| shown.placement_handles = 8);
    Arc::new(hooked.on_command(move |op| {
        if let Op::Write { buf, placement, .. } = op {
            seen.lock().entry(*placement).or_default().extend_from_slice(buf);
        }
        Fate::Pass
    }))
}

fn pool() -> (Pool, Seen) {
    let seen = Seen::default();
    let shape = Shape { parity: 0, drive_bytes: 4 << 20, ..SMALL };
    let (drives, _) = rig::devices(&shape);
    let drives: Vec<_> = drives.into_iter().map(|inner| noted(inner, seen.clone())).collect();
    let options = CreateOptions { log_bytes: 1 << 20, ..rig::create_options(&shape) };
    Pool::create(&drives, &[], &options).unwrap();
    let pool = rig::open(&drives, &shape);
    let raw = VolumeOptions { compression: false, ..VolumeOptions::default() };
    pool.create_volume("a", 1000 * BLOCK as u64, raw).unwrap();
    (pool, seen)
}

#[test]
fn streams_lie_in_segments_and_reclaim_units_of_their_own() {
    let (pool, seen) = pool();
    let volume = pool.volume("a").unwrap();
    assert_eq!(volume.geometry().placement_handles, 4);
    let mut port = Port::open(&*volume, 1).unwrap();
    for block in 0..400 {
        let handle = u8::try_from(block % 4).unwrap();
        let mut buf = AlignedBuf::zeroed(BLOCK);
        buf.fill(0x80 | handle);
        port.write(Lba(block), buf, Some(PlacementId(handle.into()))).unwrap();
    }
    pool.drain().unwrap();
    let seen = seen.lock();
    // Handle 0 is the class of what nobody names, 1; the others are 5 to 7.
    for (handle, id) in [(0, 1), (1, 5), (2, 6), (3, 7)] {
        let written = &seen[&Some(PlacementId(id))];
        let count = |byte: u8| written.iter().filter(|&&b| b == byte).count();
        assert!(count(0x80 | handle) >= 100 * BLOCK, "handle {handle}");
        for other in (0..4).filter(|other| *other != handle) {
            let stray = count(0x80 | other); // summaries have some
            assert!(stray < BLOCK, "{stray} bytes of handle {other} with those of {handle}");
        }
    }
    drop(seen);
    pool.check().unwrap();
    for block in 0..400 {
        let read = port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
        assert!(read.iter().all(|&byte| u64::from(byte) == 0x80 | (block % 4)), "block {block}");
    }
}

#[test]
fn volume_says_what_a_drive_with_data_placement_says() {
    let (pool, _) = pool();
    let volume = pool.volume("a").unwrap();
    let fdp = volume.data_placement().unwrap();
    assert_eq!((fdp.drive(), fdp.enabled()), ("tank", Some(0)));
    assert_eq!(fdp.usage().unwrap(), [HandleUse::Host; 4]);
    let whole = fdp.handles().unwrap()[2].writable;
    assert_eq!(whole.0 * 4096, fdp.configurations()[0].reclaim_unit_bytes);
    let mut port = Port::open(&*volume, 1).unwrap();
    for block in 0..10 {
        port.write(Lba(block), AlignedBuf::zeroed(BLOCK), Some(PlacementId(2))).unwrap();
    }
    assert_eq!(fdp.statistics().unwrap().host_bytes, 10 * BLOCK as u128);
    pool.drain().unwrap();
    assert!(fdp.handles().unwrap()[2].writable < whole);
    fdp.update(&[PlacementId(2)]).unwrap();
    assert_eq!(fdp.handles().unwrap()[2].writable, whole);
    assert_eq!(fdp.update(&[PlacementId(4)]), Err(FdpError::InvalidId { id: 4, count: 4 }));
    assert!(fdp.enable(None).is_err());
    // A snapshot is not written to.
    pool.snapshot("a", "s").unwrap();
    let snapshot = pool.volume_at("a", "s").unwrap();
    assert!(snapshot.data_placement().is_none() && snapshot.geometry().placement_handles == 0);
}

#[test]
fn versions_of_a_block_stay_in_order_whatever_handle_each_was_written_with() {
    let (pool, _) = pool();
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    let mut write = |block: u64, byte: u8, handle: u16| {
        let mut buf = AlignedBuf::zeroed(BLOCK);
        buf.fill(byte);
        port.write(Lba(block), buf, Some(PlacementId(handle))).unwrap();
    };
    // The older version is in the class with fewer blocks, and a snapshot keeps it.
    write(0, 1, 1);
    pool.snapshot("a", "s").unwrap();
    write(0, 2, 2);
    (1..50).for_each(|block| write(block, 3, 2));
    while pool.step().unwrap() {}
    pool.drain().unwrap();
    let read = |device: Arc<dyn Device>| {
        let mut port = Port::open(&*device, 1).unwrap();
        port.read(Lba(0), AlignedBuf::zeroed(BLOCK)).unwrap()[0]
    };
    assert_eq!(read(pool.volume("a").unwrap()), 2);
    assert_eq!(read(pool.volume_at("a", "s").unwrap()), 1);
}
