//! An open pool, and an open queue pair of a volume, have all descriptors that I/O needs: running out of
//! descriptors later fails no command, and takes no drive out.

#[path = "support/rig.rs"]
mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_base::{AlignedBuf, ErrorKind, Lba};
use esker_device::{Cause, Device, Port};
use esker_sim::HookDevice;
use esker_volume::{MemberState, Pool, VolumeOptions};
use rig::{BLOCK, SMALL, Shape};

/// Devices that open no queue pair once there are no descriptors.
fn scarce(shape: &Shape) -> (Vec<Arc<dyn Device>>, Vec<Arc<AtomicBool>>) {
    let wrap = |inner: Arc<dyn Device>| {
        let are_gone = Arc::new(AtomicBool::new(false));
        let gone = are_gone.clone();
        let device = HookDevice::new(inner).on_open(move || match gone.load(Ordering::Acquire) {
            true => {
                Err(Cause::Os { kind: ErrorKind::Io, message: "too many open files".to_owned() })
            }
            false => Ok(()),
        });
        (Arc::new(device) as Arc<dyn Device>, are_gone)
    };
    rig::create(shape).into_iter().map(wrap).unzip()
}

#[test]
fn pool_without_descriptors_serves_who_is_connected() {
    let single = Shape { drives: 1, parity: 0, drive_bytes: 7 << 20, ..SMALL };
    for shape in [SMALL, single, Shape { buffers: 2, ..SMALL }] {
        let (devices, gone) = scarce(&shape);
        let pool = rig::open(&devices, &shape);
        let set = |are_gone| gone.iter().for_each(|one| one.store(are_gone, Ordering::Release));
        pool.create_volume("v1", 1 << 20, VolumeOptions::default()).unwrap();
        let volume = pool.volume("v1").unwrap();
        let mut port = Port::open(&*volume, 8).unwrap();
        set(true);
        // Nothing was read, written or moved before.
        for round in 0..40 {
            for block in 0..64 {
                let mut buf = AlignedBuf::zeroed(BLOCK);
                rig::fill(&mut buf, 1 + round * 64 + block);
                port.write(Lba(block), buf, None).unwrap();
            }
            pool.snapshot("v1", "s").unwrap();
            pool.delete_snapshot("v1", "s").unwrap();
            while pool.step().unwrap() {}
        }
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        let versions: Vec<u64> =
            (0..256).map(|at| if at < 64 { 1 + 39 * 64 + at } else { 0 }).collect();
        for (block, version) in (0..).zip(&versions) {
            let mut expected = vec![0; BLOCK];
            rig::fill(&mut expected, *version);
            assert_eq!(port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap()[..], expected);
        }
        let status = pool.status();
        assert!(status.members.iter().all(|member| member.state == MemberState::Online));
        assert_eq!(
            status.members.iter().map(|one| one.read_errors + one.write_errors).sum::<u64>(),
            0
        );
        // A new host is refused, and told why; with descriptors it is served.
        let error = volume.queue_pair(8).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(error.to_string().contains("too many open files"), "{error}");
        assert!(Pool::open(&devices, rig::open_options(&shape)).is_err());
        set(false);
        rig::compare(&*volume, &versions).unwrap();
        pool.check().unwrap();
    }
}

/// One drive refuses, and the others do not: it is at fault, and no reason to refuse a host.
#[test]
fn drive_that_opens_no_queue_pair_is_done_without() {
    let (devices, gone) = scarce(&SMALL);
    let pool = rig::open(&devices, &SMALL);
    pool.create_volume("v1", 1 << 20, VolumeOptions::default()).unwrap();
    rig::write(&pool, 1, 0, 8, 1).unwrap();
    pool.drain().unwrap();
    gone[2].store(true, Ordering::Release);
    let versions: Vec<u64> = (0..256).map(|at| if at < 8 { 1 + at } else { 0 }).collect();
    rig::compare(&*pool.volume("v1").unwrap(), &versions).unwrap();
}
