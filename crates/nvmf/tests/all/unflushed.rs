//! Writes that were completed and not flushed, when the target is lost with its volatile write cache:
//! a flush that says it has worked has made them durable, or it says that it has not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::forgetful::{Forgetful, LBA};
use crate::common::{config, reach};
use esker_base::sync::Mutex;
use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng, thread};
use esker_device::{Device, Op, Port};
use esker_nvmf::target::Target;
use esker_nvmf::wire::log::AnaState;
use esker_nvmf::{Initiator, InitiatorConfig};

/// A target over a forgetful device, at an address that stays.
struct Fragile {
    device: Arc<Forgetful>,
    target: Option<Target>,
    address: SocketAddr,
}

impl Fragile {
    fn new(device: Arc<Forgetful>) -> Fragile {
        let target = Target::start(&config(device.clone())).unwrap();
        let address = target.addresses()[0];
        Fragile { device, target: Some(target), address }
    }

    /// The power fails, and comes back.
    fn fail(&mut self) {
        self.device.power_off();
        drop(self.target.take());
        self.device.power_on();
        let mut config = config(self.device.clone());
        config.portals[0].listen = self.address;
        self.target = Some(Target::start(&config).unwrap());
    }

    fn reach(&self, replay: u64) -> Initiator {
        Initiator::open(InitiatorConfig { replay, ..reach(vec![self.address]) }).unwrap()
    }
}

fn filled(size: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(size);
    buf.fill(byte);
    buf
}

fn write(port: &mut Port, lba: u64, size: usize, byte: u8) {
    port.write(Lba(lba), filled(size, byte), None).map(drop).unwrap();
}

/// The bytes of some LBAs are all this one.
#[track_caller]
fn has(bytes: &[u8], lbas: std::ops::Range<usize>, byte: u8) {
    let part = &bytes[lbas.start * LBA..lbas.end * LBA];
    let wrong = part.iter().position(|it| *it != byte);
    assert_eq!(wrong.map(|at| (lbas.start + at / LBA, part[at])), None, "LBAs {lbas:?}: {byte}");
}

#[test]
fn flush_after_loss_of_target_makes_earlier_writes_durable() {
    let mut fragile = Fragile::new(Forgetful::new(8));
    let initiator = fragile.reach(64 << 20);
    let mut port = Port::open(&initiator, 8).unwrap();
    // All of it, and then a part anew, a part zeroed, a part discarded.
    let ops = (0u64..8).map(|n| {
        let buf = filled(1 << 20, u8::try_from(n + 1).unwrap());
        Op::Write { lba: Lba(n * 2048), buf, placement: None, fua: false }
    });
    port.run_all(ops, |_, outcome| drop(outcome.unwrap())).unwrap();
    write(&mut port, 1000, 4096, 0xaa);
    port.run(Op::WriteZeroes { lba: Lba(3000), count: LbaCount(2000) }).unwrap();
    write(&mut port, 3500, 512, 0xbb);
    port.discard(Lba(10_000), LbaCount(500)).unwrap();
    let fua = Op::Write { lba: Lba(12_000), buf: filled(512, 0xcc), placement: None, fua: true };
    port.run(fua).unwrap();
    let check = |bytes: &[u8]| {
        for (lbas, byte) in [
            (0..1000, 1),
            (1000..1008, 0xaa),
            (1008..2048, 1),
            (2048..3000, 2),
            (3000..3500, 0),
            (3500..3501, 0xbb),
            (3501..5000, 0),
            (5000..6144, 3),
            (8192..10_000, 5),
            (10_000..10_500, 0),
            (10_500..12_000, 6),
            (12_000..12_001, 0xcc),
            (12_001..12_288, 6),
            (14_336..16_384, 8),
        ] {
            has(bytes, lbas, byte);
        }
    };
    fragile.fail();
    // Data that was read before is read now, too.
    let mut read = Vec::new();
    for n in 0..8 {
        read.extend_from_slice(&port.read(Lba(n * 2048), AlignedBuf::zeroed(1 << 20)).unwrap());
    }
    check(&read);
    port.flush().unwrap();
    fragile.device.power_off();
    check(&fragile.device.medium());
}

#[test]
fn writes_of_one_queue_pair_are_flushed_by_another_after_a_loss() {
    let mut fragile = Fragile::new(Forgetful::new(1));
    let initiator = fragile.reach(64 << 20);
    let mut flusher = Port::open(&initiator, 1).unwrap();
    {
        let mut writer = Port::open(&initiator, 1).unwrap();
        write(&mut writer, 7, 4096, 7);
    }
    fragile.fail();
    flusher.flush().unwrap();
    has(&fragile.device.medium(), 7..15, 7);
}

#[test]
fn loss_without_any_queue_pair_is_made_good_by_the_next() {
    let mut fragile = Fragile::new(Forgetful::new(1));
    let initiator = fragile.reach(64 << 20);
    write(&mut Port::open(&initiator, 1).unwrap(), 9, 4096, 9);
    fragile.fail();
    let clock = Clock::real();
    while initiator.paths() > 0 {
        clock.sleep(Duration::from_millis(1));
    }
    fragile.fail();
    Port::open(&initiator, 1).unwrap().flush().unwrap();
    has(&fragile.device.medium(), 9..17, 9);
}

#[test]
fn flush_fails_through_every_queue_pair_until_lost_writes_are_written_again() {
    let mut fragile = Fragile::new(Forgetful::new(1));
    let initiator = fragile.reach(0);
    let mut first = Port::open(&initiator, 1).unwrap();
    let mut second = Port::open(&initiator, 1).unwrap();
    write(&mut first, 0, 4096, 1);
    first.flush().unwrap();
    write(&mut first, 8, 4096, 2);
    write(&mut first, 16, 4096, 3);
    fragile.fail();
    for _ in 0..3 {
        for port in [&mut first, &mut second] {
            let error = port.flush().unwrap_err().to_string();
            assert!(error.contains("16 LBAs") && error.contains("8 to 23"), "{error}");
        }
    }
    Port::open(&initiator, 1).unwrap().flush().unwrap_err();
    let remarks = initiator.remarks().join("\n");
    assert!(remarks.contains("lost"), "{remarks}");
    // Lost LBAs must not read as the content before those writes.
    let error = second.read(Lba(15), AlignedBuf::zeroed(1024)).unwrap_err().to_string();
    assert!(error.contains("lost"), "{error}");
    has(&second.read(Lba(0), AlignedBuf::zeroed(4096)).unwrap(), 0..8, 1);
    write(&mut second, 8, 4096, 4);
    second.flush().unwrap_err();
    first.run(Op::WriteZeroes { lba: Lba(16), count: LbaCount(8) }).unwrap();
    second.flush().unwrap();
    first.flush().unwrap();
    has(&fragile.device.medium(), 0..8, 1);
    has(&fragile.device.medium(), 8..16, 4);
}

#[test]
fn flushed_writes_are_not_lost_with_the_target_though_nothing_is_kept() {
    let mut fragile = Fragile::new(Forgetful::new(1));
    let initiator = fragile.reach(0);
    let mut port = Port::open(&initiator, 1).unwrap();
    for round in 1..4 {
        write(&mut port, 0, 65_536, round);
        port.flush().unwrap();
        fragile.fail();
        port.flush().unwrap();
        has(&port.read(Lba(0), AlignedBuf::zeroed(65_536)).unwrap(), 0..128, round);
    }
}

#[test]
fn no_more_than_the_bound_is_kept_and_nothing_is_lost() {
    let mut fragile = Fragile::new(Forgetful::new(4));
    for (round, replay) in [(0, 4096), (1, 256 << 10)] {
        let initiator = fragile.reach(replay);
        let mut port = Port::open(&initiator, 32).unwrap();
        let before = fragile.device.flushes();
        for pass in 1..3u8 {
            let ops = (0..256).map(|n| {
                let buf = filled(16 << 10, round * 2 + pass);
                Op::Write { lba: Lba(n * 32), buf, placement: None, fua: false }
            });
            port.run_all(ops, |_, outcome| drop(outcome.unwrap())).unwrap();
        }
        let flushes = fragile.device.flushes() - before;
        // A flush covers kept writes, and those that wait for room; the last of them need none.
        let most = replay + (32 << 14);
        assert!((8 << 20) / most <= flushes + 1 && flushes < 600, "{flushes}");
        let dirty = fragile.device.dirty_bytes() as u64;
        assert!(dirty <= most, "{dirty} bytes");
        fragile.fail();
        port.flush().unwrap();
        has(&fragile.device.medium(), 0..8192, round * 2 + 2);
    }
}

#[test]
fn flushed_writes_are_not_written_again() {
    let mut fragile = Fragile::new(Forgetful::new(1));
    let initiator = fragile.reach(64 << 20);
    let mut port = Port::open(&initiator, 4).unwrap();
    write(&mut port, 0, 65_536, 1);
    port.flush().unwrap();
    write(&mut port, 0, 4096, 2);
    let before = fragile.device.writes();
    fragile.fail();
    port.flush().unwrap();
    assert_eq!(fragile.device.writes() - before, 1);
    fragile.fail();
    port.flush().unwrap();
    assert_eq!(fragile.device.writes() - before, 1);
}

#[test]
fn flush_covers_what_another_path_has_completed_and_lives() {
    let medium = Arc::new(Mutex::new(vec![0; 1 << 20]));
    let (near, far) = (Forgetful::over(medium.clone()), Forgetful::over(medium.clone()));
    let start = |device: &Arc<Forgetful>, ana| {
        let mut config = config(device.clone());
        config.subsystems[0].namespaces[0].uuid = Some([9; 16]);
        config.portals[0].ana = ana;
        Target::start(&config).unwrap()
    };
    let (a, b) = (start(&near, AnaState::Optimized), start(&far, AnaState::NonOptimized));
    for replay in [0, 64 << 20] {
        let portals = vec![a.addresses()[0], b.addresses()[0]];
        let config = InitiatorConfig { replay, ..reach(portals) };
        let initiator = Initiator::open(config).unwrap();
        let mut first = Port::open(&initiator, 1).unwrap();
        a.set_ana(0, AnaState::NonOptimized).unwrap();
        b.set_ana(0, AnaState::Optimized).unwrap();
        // Until a new queue pair takes the other path.
        let clock = Clock::real();
        let mut second = loop {
            let mut port = Port::open(&initiator, 1).unwrap();
            let before = far.writes();
            write(&mut port, 100, 512, 1);
            if far.writes() > before {
                break port;
            }
            clock.sleep(Duration::from_millis(10));
        };
        let _ = &mut first;
        assert_eq!(initiator.paths(), 2);
        second.flush().unwrap();
        near.power_off();
        far.power_off();
        has(&medium.lock(), 100..101, 1);
        near.power_on();
        far.power_on();
        a.set_ana(0, AnaState::Optimized).unwrap();
        b.set_ana(0, AnaState::NonOptimized).unwrap();
        medium.lock().fill(0);
    }
}

#[test]
fn writes_are_durable_at_once_on_a_target_that_has_got_a_cache() {
    let device = Forgetful::new(1);
    device.set_volatile(false);
    let mut fragile = Fragile::new(device);
    let initiator = fragile.reach(64 << 20);
    assert!(!initiator.geometry().volatile_write_cache);
    let mut port = Port::open(&initiator, 1).unwrap();
    write(&mut port, 0, 512, 1);
    fragile.device.set_volatile(true);
    fragile.fail();
    // Nobody has been told that a flush is needed.
    write(&mut port, 1, 512, 2);
    has(&fragile.device.medium(), 0..1, 1);
    has(&fragile.device.medium(), 1..2, 2);
}

/// LBAs of one thread of the campaign.
const SHARE: u64 = 256;

/// Steps of one thread on its LBAs: versions of each.
struct Ledger {
    written: Vec<AtomicU64>,
    /// Of the last flush that worked.
    flushed: Vec<AtomicU64>,
}

fn version(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Writes and flushes until told to stop, and checks every read.
fn work(initiator: &Initiator, number: u64, ledger: &Ledger, is_over: &AtomicBool) -> u64 {
    let mut port = Port::open(initiator, 16).unwrap();
    let (mut rng, mut flushes) = (Rng::new(number), 0);
    let first = number * SHARE;
    let at = |lba: u64| usize::try_from(lba).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        // Runs that do not overlap, in flight together.
        let (mut ops, mut runs, mut lba) = (Vec::new(), Vec::new(), rng.below(8));
        while lba < SHARE - 8 && ops.len() < 16 {
            let count = 1 + rng.below(8);
            let mut buf = AlignedBuf::zeroed(at(count) * LBA);
            for (n, block) in (0..).zip(buf.chunks_mut(LBA)) {
                let next = ledger.written[at(lba + n)].load(Ordering::Relaxed) + 1;
                ledger.written[at(lba + n)].store(next, Ordering::Relaxed);
                block[..8].copy_from_slice(&next.to_le_bytes());
            }
            let (lba_of, fua) = (Lba(first + lba), rng.chance(1, 30));
            runs.push((lba_of, buf.clone()));
            ops.push(Op::Write { lba: lba_of, buf, placement: None, fua });
            lba += count + rng.below(24);
        }
        let mut failed = Vec::new();
        port.run_all(ops, |index, outcome| failed.extend(outcome.is_err().then_some(index)))
            .unwrap();
        for index in failed {
            // It had to be durable, while the power failed: its LBAs are undefined.
            let (lba, buf) = &runs[index];
            while port.write(*lba, buf.clone(), None).is_err() {}
        }
        let before: Vec<u64> =
            ledger.written.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        if rng.chance(1, 4) && port.flush().is_ok() {
            flushes += 1;
            for (flushed, before) in ledger.flushed.iter().zip(&before) {
                flushed.store(*before, Ordering::SeqCst);
            }
        }
        let lba = rng.below(SHARE - 8);
        if let Ok(read) = port.read(Lba(first + lba), AlignedBuf::zeroed(8 * LBA)) {
            for (n, block) in (0..).zip(read.chunks(LBA)) {
                assert_eq!(version(block), before[at(lba + n)], "thread {number}, LBA {}", lba + n);
            }
        }
    }
    flushes
}

/// Power failures while four queue pairs write and flush: nothing that a flush has covered is
/// missing or older, and completed writes are read.
fn campaign(replay: u64, failures: u64, seed: u64) {
    let mut fragile = Fragile::new(Forgetful::new(1));
    let initiator = fragile.reach(replay);
    let ledgers: Vec<Ledger> = (0..4)
        .map(|_| Ledger {
            written: (0..SHARE).map(|_| AtomicU64::new(0)).collect(),
            flushed: (0..SHARE).map(|_| AtomicU64::new(0)).collect(),
        })
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .zip(&ledgers)
            .map(|(number, ledger)| {
                let (initiator, is_over) = (&initiator, &is_over);
                let run = move || work(initiator, number, ledger, is_over);
                thread::spawn_scoped(scope, "worker", run).unwrap()
            })
            .collect();
        let (clock, mut rng) = (Clock::real(), Rng::new(seed));
        for failure in 0..failures {
            clock.sleep(Duration::from_millis(20 + rng.below(60)));
            let flushed: Vec<u64> = ledgers
                .iter()
                .flat_map(|ledger| ledger.flushed.iter().map(|one| one.load(Ordering::SeqCst)))
                .collect();
            fragile.device.power_off();
            let medium = fragile.device.medium();
            for (lba, (block, flushed)) in medium.chunks(LBA).zip(&flushed).enumerate() {
                let found = version(block);
                assert!(found >= *flushed, "failure {failure}, LBA {lba}: {found} < {flushed}");
            }
            fragile.fail();
            if workers.iter().any(|worker| worker.is_finished()) {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let flushes: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert!(flushes.iter().all(|count| *count > 0), "{flushes:?}");
    });
}

#[test]
fn no_flushed_write_is_missing_after_any_of_many_power_failures() {
    let soak = std::env::var("ESKER_SOAK").ok().and_then(|count| count.parse().ok());
    let failures = soak.unwrap_or(20);
    campaign(64 << 20, failures, 1);
    campaign(64 << 10, failures, 2);
}
