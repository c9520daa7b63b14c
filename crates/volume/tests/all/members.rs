//! Drives come and go while a pool is written to.

use std::sync::Arc;

use crate::rig::{self, Act, Oracle, SMALL};
use esker_base::{ErrorKind, Rng};
use esker_device::{Device, MemoryDevice};
use esker_volume::types::id::DriveIndex;
use esker_volume::{MemberState, Pool, Role, VolumeOptions};

fn churn(pool: &Pool, oracle: &mut Oracle, rng: &mut Rng, from: u64, acts: u64) {
    for n in from..from + acts {
        let act = oracle.random(rng, 1 + n * 16, 64);
        if !matches!(act, Act::Reopen | Act::Abandon) {
            rig::run(pool, &act).unwrap_or_else(|error| panic!("act {n}, {act:?}: {error}"));
            oracle.apply(&act);
        }
    }
    rig::compare_all(pool, oracle).unwrap();
    pool.check().unwrap();
}

fn settle(pool: &Pool) {
    for _ in 0..500 {
        if !pool.step().unwrap() {
            return;
        }
    }
    panic!("maintenance does not end: {:#?}", pool.status());
}

#[test]
fn drives_are_added_and_retired_while_the_pool_is_written() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut devices = rig::create(&SMALL);
        let pool = rig::open(&devices, &SMALL);
        let mut oracle = Oracle::default();
        churn(&pool, &mut oracle, &mut rng, 0, 40);
        let before = pool.status().space;
        for (n, bytes) in [(4, 3 << 20), (5, 2 << 20)] {
            let lba_size = if n == 4 { 512 } else { 4096 };
            let device = MemoryDevice::new(&format!("d{n}"), bytes, lba_size);
            let device: Arc<dyn Device> = Arc::new(device);
            assert_eq!(pool.add(&device, Role::Drive, false).unwrap(), DriveIndex(n));
            devices.push(device);
            churn(&pool, &mut oracle, &mut rng, 100 * u64::from(n), 20);
        }
        assert!(pool.status().space.raw > before.raw && pool.status().space.usable > before.usable);
        for index in [0, 1] {
            pool.retire(DriveIndex(index)).unwrap();
            churn(&pool, &mut oracle, &mut rng, 1000 + 100 * u64::from(index), 20);
            settle(&pool);
            let state = pool.status().members[usize::from(index)].state;
            assert_eq!(state, MemberState::Retired, "{:#?}", pool.status());
        }
        churn(&pool, &mut oracle, &mut rng, 2000, 20);
        drop(pool);
        // Without those that were retired, and with them: they are refused, and named.
        drop(rig::open(&devices[2..], &SMALL));
        let pool = rig::open(&devices, &SMALL);
        let refused = pool.remarks().iter().filter(|remark| remark.contains("retired"));
        assert_eq!(refused.count(), 2, "{:?}", pool.remarks());
        rig::compare_all(&pool, &oracle).unwrap();
    }
}

#[test]
fn buffer_device_that_is_added_takes_the_log() {
    let mut devices = rig::create(&SMALL);
    let pool = rig::open(&devices, &SMALL);
    let mut oracle = Oracle::default();
    let mut rng = Rng::new(3);
    churn(&pool, &mut oracle, &mut rng, 0, 30);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("fast", 1 << 20, 512));
    pool.add(&device, Role::Buffer, false).unwrap();
    devices.push(device.clone());
    assert_eq!(pool.status().log.members, [DriveIndex(4)]);
    let before = device.stats().written_bytes;
    churn(&pool, &mut oracle, &mut rng, 100, 30);
    assert!(device.stats().written_bytes > before);
    drop(pool);
    let pool = rig::open(&devices, &SMALL);
    rig::compare_all(&pool, &oracle).unwrap();
}

#[test]
fn wrong_requests_are_answered_and_change_nothing() {
    let devices = rig::create(&SMALL);
    let pool = rig::open(&devices, &SMALL);
    let kind = |result: Result<_, esker_volume::VolumeError>| result.map(drop).unwrap_err().kind();
    let default = VolumeOptions::default();
    let create = |name: &str, bytes| pool.create_volume(name, bytes, default).map(drop);
    create("a", 1 << 20).unwrap();
    create("a", 1 << 20).unwrap(); // the same again
    pool.snapshot("a", "s").unwrap();
    pool.snapshot("a", "s").unwrap();
    assert_eq!(kind(create("a", 2 << 20)), ErrorKind::Exists);
    for bytes in [0, 5, 4095, u64::MAX] {
        assert_eq!(kind(create("b", bytes)), ErrorKind::Invalid);
    }
    for name in ["", "../x", "a b", "-x", &"x".repeat(200)] {
        assert_eq!(kind(create(name, 4096)), ErrorKind::Invalid, "{name}");
    }
    assert_eq!(kind(pool.resize("b", 4096).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(pool.rollback("a", "t").map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(pool.clone_volume("a", "s", "a").map(drop)), ErrorKind::Exists);
    assert_eq!(kind(pool.restore("a").map(drop)), ErrorKind::Exists);
    assert_eq!(kind(pool.restore("c").map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(pool.retire(DriveIndex(9))), ErrorKind::NotFound);
    let small: Arc<dyn Device> = Arc::new(MemoryDevice::new("small", 256 << 10, 512));
    assert_eq!(kind(pool.add(&small, Role::Drive, false).map(drop)), ErrorKind::Invalid);
    let own = devices[0].clone();
    assert_eq!(kind(pool.add(&own, Role::Drive, false).map(drop)), ErrorKind::Exists);
    assert_eq!((pool.volumes().len(), pool.show("a").unwrap().snapshots.len()), (1, 1));
    // Making a pool.
    let options = rig::create_options(&SMALL);
    let make = |devices: &[Arc<dyn Device>], options: &esker_volume::CreateOptions| {
        Pool::create(devices, &[], options)
    };
    assert_eq!(kind(make(&devices, &options)), ErrorKind::Exists);
    let (bare, _) = rig::devices(&SMALL);
    assert_eq!(kind(make(&bare[..1], &options)), ErrorKind::Invalid);
    for wrong in [
        esker_volume::CreateOptions { parity: 3, ..options.clone() },
        esker_volume::CreateOptions { width: Some(9), ..options.clone() },
        esker_volume::CreateOptions { unit_bytes: 1000, ..options.clone() },
        esker_volume::CreateOptions { chunk_bytes: 8 << 10, ..options.clone() },
        esker_volume::CreateOptions { log_bytes: 4096, ..options.clone() },
        esker_volume::CreateOptions { name: "a/b".to_owned(), ..options.clone() },
    ] {
        assert_eq!(kind(make(&bare, &wrong)), ErrorKind::Invalid, "{wrong:?}");
    }
    // Opening one.
    let foreign = rig::create(&SMALL);
    let other = esker_volume::CreateOptions { seed: Some(8), overwrite: true, ..options };
    make(&foreign, &other).unwrap();
    let mixed = [devices[0].clone(), foreign[1].clone()];
    let error = Pool::open(&mixed, rig::open_options(&SMALL)).err().unwrap();
    assert!(error.to_string().contains("belongs to pool 'tank'"), "{error}");
    let twice = [devices[0].clone(), devices[0].clone(), devices[1].clone()];
    let error = Pool::open(&twice, rig::open_options(&SMALL)).err().unwrap();
    assert!(error.to_string().contains("are both drive"), "{error}");
    assert!(Pool::open(&[], rig::open_options(&SMALL)).is_err());
    assert!(Pool::open(&bare, rig::open_options(&SMALL)).is_err());
}
