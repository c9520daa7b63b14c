//! A drive that is slow: reads go round it, it is named, and nothing new is put on it. Virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::paced::{Handle, Paced, Took, load, per_mille};
use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Device, Op, Port, QueuePair};
use esker_volume::{CreateOptions, OpenOptions, Pool, VolumeOptions};

const BLOCKS: u64 = 1500;
const SHAPE: Shape = Shape { drives: 9, parity: 2, drive_bytes: 6 << 20, ..SMALL };

struct Rig {
    clock: Clock,
    drives: Vec<Arc<Paced>>,
    pool: Pool,
    queue: Box<dyn QueuePair>,
    rng: Rng,
}

/// Nine drives, segments of seven chunks with two parities, the log on three of the drives; a volume in segments.
fn rig() -> Rig {
    let clock = Clock::virtual_time();
    let drives: Vec<Arc<Paced>> =
        (0..9).map(|n| Paced::new(&format!("d{n}"), SHAPE.drive_bytes, &clock, n)).collect();
    let devices = drives.iter().map(|drive| Arc::new(Handle(drive.clone())) as Arc<dyn Device>);
    let devices: Vec<_> = devices.collect();
    let create =
        CreateOptions { width: Some(7), log_bytes: 2 << 20, ..rig::create_options(&SHAPE) };
    Pool::create(&devices, &[], &create).unwrap();
    let open =
        OpenOptions { clock: clock.clone(), map_bytes: 1 << 20, ..rig::open_options(&SHAPE) };
    let pool = Pool::open(&devices, open).unwrap();
    pool.create_volume("a", BLOCKS * BLOCK as u64, VolumeOptions::default()).unwrap();
    let volume = pool.volume("a").unwrap();
    let mut port = Port::open(&*volume, 16).unwrap();
    let write = |n: u64| {
        let mut buf = AlignedBuf::zeroed(BLOCK);
        rig::fill(&mut buf, 3 * n + 3);
        Op::Write { lba: Lba(n), buf, placement: None, fua: false }
    };
    port.run_all((0..BLOCKS).map(write).collect::<Vec<_>>(), |_, result| drop(result.unwrap()))
        .unwrap();
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    let queue = volume.queue_pair(16).unwrap();
    Rig { clock, drives, pool, queue, rng: Rng::new(5) }
}

impl Rig {
    /// Runs the load for so long, or until `until`. Maintenance does what is due after each round.
    fn run(&mut self, secs: u64, until: impl Fn(&Pool) -> bool) -> Took {
        let Rig { clock, pool, queue, rng, .. } = self;
        let span = Duration::from_secs(secs);
        load(&mut **queue, clock, BLOCKS, span, rng, || {
            while pool.step().unwrap() {}
            until(pool)
        })
    }
}

fn is_named(pool: &Pool, drive: usize) -> bool {
    let status = pool.status();
    let alarm = status.alarms.iter().find(|alarm| alarm.code == "DRIVE_SLOW");
    status.members[drive].is_slow && alarm.is_some_and(|a| a.text.contains(&format!("d{drive}")))
}

#[test]
fn late_read_is_computed_from_other_drives() {
    let mut rig = rig();
    let healthy = rig.run(3, |_| false);
    let mut port = Port::open(&*rig.pool.volume("a").unwrap(), 1).unwrap();
    for drive in &rig.drives {
        drive.delay_next_read(Duration::from_secs(1));
        let mut block = 0;
        while !drive.has_delayed() {
            let began = rig.clock.now();
            port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
            let took = rig.clock.now().since(began);
            assert!(took < Duration::from_millis(2), "block {block} took {took:?}");
            block += 1;
        }
    }
    let status = rig.pool.status();
    assert_eq!(status.written.reconstructed, 0, "late is not wrong");
    assert!(status.members.iter().all(|member| member.checksum_errors == 0));
    assert!(per_mille(&healthy.reads, 999) < 500_000, "{}", per_mille(&healthy.reads, 999));
}

#[test]
fn slow_drive_is_named_and_gone_round() {
    let mut rig = rig();
    let healthy = rig.run(5, |_| false);
    assert!(rig.pool.status().alarms.is_empty());
    let log = rig.pool.status().log.members;
    let slow = log[0].index();
    rig.drives[slow].slow_down(10);
    let began = rig.clock.now();
    let before = rig.run(10, |pool| is_named(pool, slow));
    let after = rig.clock.now().since(began);
    assert!(is_named(&rig.pool, slow), "{:#?}", rig.pool.status());
    // The log has moved, and new segments are elsewhere.
    rig.run(1, |_| false);
    let status = rig.pool.status();
    assert!(!status.log.members.contains(&log[0]), "{:?}", status.log);
    assert_eq!(status.log.members.len(), 3);
    let free = status.members[slow].slots.0;
    let gone_round = rig.run(10, |_| false);
    assert!(rig.pool.status().members[slow].slots.0 >= free, "it only loses segments");
    println!(
        "suspected after {after:?}; p99.9 in us of reads {} healthy, {} until then, {} since; of writes {}, {}, {}",
        per_mille(&healthy.reads, 999) / 1000,
        per_mille(&before.reads, 999) / 1000,
        per_mille(&gone_round.reads, 999) / 1000,
        per_mille(&healthy.writes, 999) / 1000,
        per_mille(&before.writes, 999) / 1000,
        per_mille(&gone_round.writes, 999) / 1000,
    );
    assert!(per_mille(&gone_round.reads, 999) <= 2 * per_mille(&healthy.reads, 999));
    assert!(per_mille(&gone_round.writes, 999) <= 2 * per_mille(&healthy.writes, 999));
    // It becomes well, and is trusted again.
    rig.drives[slow].slow_down(1);
    rig.run(30, |pool| !pool.status().members[slow].is_slow);
    assert!(!is_named(&rig.pool, slow));
}

#[test]
fn reads_of_a_degraded_pool_are_not_much_slower() {
    let mut rig = rig();
    let healthy = rig.run(5, |_| false);
    rig.drives[4].fail();
    // Without maintenance nothing is moved: reads are computed all the time.
    let Rig { clock, queue, rng, pool, .. } = &mut rig;
    let degraded = load(&mut **queue, clock, BLOCKS, Duration::from_millis(800), rng, || false);
    assert!(pool.status().segments[1] > 0, "{:?}", pool.status().segments);
    let (healthy, degraded) = (per_mille(&healthy.reads, 999), per_mille(&degraded.reads, 999));
    println!("p99.9 of reads: {} us healthy, {} degraded", healthy / 1000, degraded / 1000);
    assert!(degraded <= 3 * healthy);
}
