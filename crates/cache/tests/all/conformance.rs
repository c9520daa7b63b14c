//! The cache is a device like any other: the contract, in every mode, over devices with any LBAs.

use crate::rig;
use std::sync::Arc;

use esker_base::policy::Kind;
use esker_cache::{Background, Cache, CreateOptions, Mode, OpenOptions};
use esker_device::{Device, MemoryDevice, conformance};

#[test]
fn the_cache_keeps_the_contract_of_devices() {
    for mode in rig::MODES {
        for (origin_lba, flash_lba) in [(512, 512), (4096, 4096), (512, 4096), (4096, 512)] {
            for depth in [1, 7, 64] {
                let (origin, flash) = rig::devices(mode, origin_lba, flash_lba);
                let cache = rig::open(&origin, &flash);
                conformance::check(&cache, depth, 1_500, u64::from(origin_lba) + depth as u64);
            }
        }
    }
}

#[test]
fn a_cache_with_a_thread_keeps_the_contract_too() {
    for mode in rig::MODES {
        for policy in Kind::ALL {
            let origin: Arc<dyn Device> = Arc::new(MemoryDevice::new("origin", 1 << 20, 512));
            let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", 1 << 20, 4096));
            let options =
                CreateOptions { set_bytes: 64 << 10, run_bytes: 8192, ..rig::create_options(mode) };
            Cache::create(&*origin, &flash, &options).unwrap();
            let options = OpenOptions {
                background: Background::Thread,
                dirty_percent: 10,
                policy,
                ..OpenOptions::default()
            };
            let cache = Cache::open(origin, flash, options).unwrap();
            conformance::check(&cache, 16, 1_000, 3);
        }
    }
}

#[test]
fn modes_are_changed_while_the_cache_is_in_use() {
    let (origin, flash) = rig::devices(Mode::WriteBack, 512, 512);
    let cache = rig::open(&origin, &flash);
    for round in 0..12 {
        cache.set_mode(rig::MODES[round % 3]).unwrap();
        conformance::check(&cache, 16, 300, round as u64);
        cache.step(round % 2 == 0).unwrap();
    }
    assert_eq!(Cache::inspect(&flash).unwrap().mode, Mode::WriteAround);
}
