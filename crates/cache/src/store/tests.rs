//! Names that cannot be, and records that may be there or not.

use super::*;
use crate::{Background, Cache, CreateOptions, Division, Mode, OpenOptions};
use esker_base::{AlignedBuf, Lba};
use esker_device::{Device, MemoryDevice, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};
use std::sync::Arc;

/// An origin, and a flash device with a cache whose first run is in its first set.
fn devices() -> (Arc<dyn Device>, Arc<dyn Device>) {
    let origin: Arc<dyn Device> = Arc::new(MemoryDevice::new("origin", 1 << 20, 4096));
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", 1 << 20, 4096));
    let options = CreateOptions {
        mode: Mode::WriteBack,
        set_bytes: 64 << 10,
        run_bytes: 8192,
        division: Division::Linear,
        ..CreateOptions::default()
    };
    Cache::create(&*origin, &flash, &options).unwrap();
    (origin, flash)
}

fn open(flash: &Arc<dyn Device>) -> Store {
    let mut medium = Medium::open(flash).unwrap();
    let found = copies::find(&mut medium).unwrap();
    Store::open(medium, found.superblock).unwrap()
}

fn dirty(slot: u32, block: u64) -> Change {
    Change { slot, name: Name::Dirty(block) }
}

#[test]
fn a_set_whose_names_cannot_be_is_refused_each_time() {
    let (origin, flash) = devices();
    open(&flash).append(&[dirty(0, 1), dirty(1, 1)], (2, 2)).unwrap();
    let options = OpenOptions { background: Background::Manual, ..OpenOptions::default() };
    let cache = Cache::open(origin, flash, options).unwrap();
    let mut port = Port::open(&cache, 1).unwrap();
    for n in 0..3 {
        assert!(port.read(Lba(1), AlignedBuf::zeroed(4096)).is_err(), "{n}");
    }
}

#[test]
fn dirty_names_in_a_failed_record_count() {
    // It may be there, and the names that it takes away as well.
    for (change, counts, expected) in
        [(dirty(2, 4), (3, 3), 3), (Change { slot: 0, name: Name::None }, (1, 1), 2)]
    {
        let (_, flash) = devices();
        let plan = FaultPlan::new();
        let bad: Arc<dyn Device> = Arc::new(FaultDevice::new(flash, &plan));
        let mut store = open(&bad);
        store.append(&[dirty(0, 1), dirty(1, 3)], (2, 2)).unwrap();
        plan.from_then_on(Target::Write, plan.seen(Target::Write), Effect::Fail);
        assert!(store.append(&[change], counts).is_err());
        assert_eq!((store.dirty, store.named), (expected, expected), "{change:?}");
    }
}
