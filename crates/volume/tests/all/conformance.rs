//! A volume keeps the contract of devices.

use crate::rig::{self, SMALL, Shape};
use esker_device::conformance;
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeOptions};

#[test]
fn volume_keeps_the_contract() {
    for (seed, compression) in [(1, true), (2, false), (3, true)] {
        let shape = Shape { drive_bytes: 8 << 20, ..SMALL };
        let (drives, buffers) = rig::devices(&shape);
        let options = CreateOptions { log_bytes: 2 << 20, ..rig::create_options(&shape) };
        Pool::create(&drives, &buffers, &options).unwrap();
        let open = OpenOptions { maintenance: Maintenance::Thread, ..rig::open_options(&shape) };
        let pool = Pool::open(&drives, open).unwrap();
        let options = VolumeOptions { compression, ..VolumeOptions::default() };
        pool.create_volume("a", 2 << 20, options).unwrap();
        let volume = pool.volume("a").unwrap();
        assert!(!volume.geometry().volatile_write_cache);
        conformance::check(&*volume, 16, 4000, seed);
        let identity = volume.identity().unwrap();
        pool.check().unwrap();
        pool.close().unwrap();
        let pool = Pool::open(&drives, rig::open_options(&shape)).unwrap();
        pool.create_volume("b", 1 << 20, options).unwrap();
        assert_eq!(pool.volume("a").unwrap().identity(), Some(identity.clone()));
        assert_ne!(pool.volume("b").unwrap().identity(), Some(identity));
    }
}
