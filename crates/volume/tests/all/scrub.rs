//! Scrubs: at once when asked for, and in the background so that everything is read in time.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{self, SMALL};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Device, Port};
use esker_volume::{OpenOptions, Pool, ScrubStatus, VolumeOptions};

const WITHIN: Duration = Duration::from_secs(200);
/// A pass takes half of the time.
const PASS: Duration = Duration::from_secs(100);

fn open(devices: &[Arc<dyn Device>], clock: &Clock) -> Pool {
    let options = OpenOptions {
        scrub_within: Some(WITHIN),
        clock: clock.clone(),
        ..rig::open_options(&SMALL)
    };
    Pool::open(devices, options).unwrap()
}

fn settle(pool: &Pool) -> ScrubStatus {
    while pool.step().unwrap() {}
    pool.status().scrub.unwrap()
}

/// A pool with a dozen of segments, at the time 1000.
fn filled(clock: &Clock) -> (Vec<Arc<dyn Device>>, Pool) {
    clock.advance(Duration::from_secs(1000).saturating_sub(clock.unix_time()));
    let devices = rig::create(&SMALL);
    let pool = open(&devices, clock);
    pool.create_volume("v1", 600 * 4096, VolumeOptions::default()).unwrap();
    for block in (0..512).step_by(8) {
        rig::write(&pool, 1, block, 8, 3 * block).unwrap();
        pool.step().unwrap();
    }
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    (devices, pool)
}

/// Has everything scrubbed at once: how many bytes that are. The next scrub is due one pass later.
fn scrub_all(pool: &Pool) -> u64 {
    pool.scrub();
    let scrub = settle(pool);
    assert!(!scrub.is_running && scrub.bytes > 0, "{scrub:?}");
    scrub.bytes
}

#[test]
fn background_scrub_is_spread_over_its_time() {
    let clock = Clock::virtual_time();
    let (_, pool) = filled(&clock);
    let all = scrub_all(&pool);
    clock.advance(PASS);
    let mut before = 0;
    for tenth in 0..10_u64 {
        let scrub = settle(&pool);
        assert!(scrub.is_running || tenth > 7, "{tenth}: {scrub:?}");
        let expected = all * tenth / 10;
        assert!(scrub.bytes >= expected && scrub.bytes <= expected + all / 4, "{tenth}: {scrub:?}");
        assert!(scrub.bytes >= before);
        before = scrub.bytes;
        clock.advance(PASS / 10 - Duration::from_millis(if tenth == 9 { 500 } else { 0 }));
    }
    let scrub = settle(&pool);
    assert!(!scrub.is_running && scrub.bytes == all && scrub.errors == 0, "{scrub:?} of {all}");
    assert!(pool.status().alarms.is_empty(), "{:?}", pool.status().alarms);
    // Nothing is due before the next pass.
    assert!(!settle(&pool).is_running);
}

#[test]
fn background_scrub_goes_on_where_it_was() {
    let clock = Clock::virtual_time();
    let (devices, pool) = filled(&clock);
    let all = scrub_all(&pool);
    clock.advance(PASS);
    settle(&pool);
    clock.advance(PASS * 6 / 10);
    let first = settle(&pool);
    assert!(first.is_running && first.bytes > all / 2, "{first:?} of {all}");
    pool.close().unwrap();
    let pool = open(&devices, &clock);
    clock.advance(PASS * 39 / 100);
    let second = settle(&pool);
    assert!(!second.is_running && second.finished > first.finished, "{second:?}");
    assert!(second.bytes > 0 && first.bytes + second.bytes <= all + all / 8, "{second:?} of {all}");
}

#[test]
fn background_scrub_finds_and_repairs_damage_and_says_when_it_is_late() {
    let clock = Clock::virtual_time();
    let (devices, pool) = filled(&clock);
    scrub_all(&pool);
    let mut port = Port::open(&*devices[2], 1).unwrap();
    for lba in (96..600).step_by(16) {
        port.write(Lba(lba), AlignedBuf::zeroed(4096), None).unwrap();
    }
    clock.advance(WITHIN + Duration::from_secs(1));
    let late = |pool: &Pool| pool.status().alarms.iter().any(|alarm| alarm.code == "SCRUB_OVERDUE");
    assert!(late(&pool));
    settle(&pool);
    clock.advance(PASS * 95 / 100);
    let scrub = settle(&pool);
    assert!(scrub.errors > 0 && !scrub.is_running && !late(&pool), "{scrub:?}");
    // One that is asked for does not wait.
    pool.scrub();
    let scrub = settle(&pool);
    assert!(scrub.errors == 0 && !scrub.is_running, "{scrub:?}");
}
