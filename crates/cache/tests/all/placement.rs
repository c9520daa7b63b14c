//! Placement ids: metadata and data of the flash device are told apart, the host's go to the origin.

use crate::rig;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use esker_base::{AlignedBuf, Lba};
use esker_cache::{Cache, Mode};
use esker_device::{Device, MemoryDevice, Op, PlacementId, Port};
use esker_sim::{Fate, HookDevice};

type Seen = Arc<Mutex<Vec<(Lba, Option<PlacementId>)>>>;

/// Memory with placement handles whose writes are noted.
fn noting(name: &str, bytes: u64) -> (Arc<dyn Device>, Seen) {
    let (memory, seen) = (MemoryDevice::new(name, bytes, 4096), Seen::default());
    let noted = seen.clone();
    let device = HookDevice::new(Arc::new(memory))
        .with_geometry(|shown| shown.placement_handles = 8)
        .on_command(move |op| {
            if let Op::Write { lba, placement, .. } = op {
                noted.lock().unwrap().push((*lba, *placement));
            }
            Fate::Pass
        });
    (Arc::new(device), seen)
}

#[test]
fn metadata_and_data_have_ids_of_their_own_and_the_hosts_pass_through() {
    for mode in rig::MODES {
        let (origin, at_origin) = noting("origin", rig::ORIGIN);
        let (flash, at_flash) = noting("flash", rig::FLASH);
        Cache::create(&*origin, &flash, &rig::create_options(mode)).unwrap();
        let cache = rig::open(&origin, &flash);
        assert_eq!(cache.geometry().placement_handles, 8);
        at_flash.lock().unwrap().clear();
        let mut port = Port::open(&cache, 4).unwrap();
        for lba in 0..8 {
            let buf = AlignedBuf::zeroed(4096);
            port.write(Lba(lba), buf, Some(PlacementId(5))).unwrap();
            port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap();
        }
        port.flush().unwrap();
        cache.close().unwrap();
        let slots = rig::DATA / 4096..rig::LAST / 4096;
        let ids = |is_data: bool| -> BTreeSet<Option<PlacementId>> {
            let seen = at_flash.lock().unwrap();
            let of = seen.iter().filter(|(lba, _)| slots.contains(&lba.0) == is_data);
            of.map(|(_, id)| *id).collect()
        };
        assert_eq!(ids(true), BTreeSet::from([Some(PlacementId(1))]), "{mode}: data");
        assert_eq!(ids(false), BTreeSet::from([Some(PlacementId(0))]), "{mode}: metadata");
        let written = at_origin.lock().unwrap();
        let carried = written.iter().all(|(_, id)| *id == Some(PlacementId(5)));
        assert!(carried && written.is_empty() == (mode == Mode::WriteBack), "{mode}: {written:?}");
    }
}
