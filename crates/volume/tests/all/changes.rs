//! Changes of a pool beside a load that verifies what it reads: drives added, retired, replaced, volumes resized, snapshots
//! taken and deleted. Nothing fails, and no command stalls. Virtual time, with maintenance in a thread of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::paced::turns::Turns;
use crate::paced::{Handle, Paced};
use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, Nanos, Rng};
use esker_device::{Command, Device, Op, Tag};
use esker_volume::types::id::DriveIndex;
use esker_volume::{
    CreateOptions, MemberState, MemberStatus, OpenOptions, Pool, Role, VolumeOptions,
};

const BLOCKS: u64 = 8192;
const SHAPE: Shape = Shape { drives: 8, parity: 2, drive_bytes: 24 << 20, ..SMALL };
const DEPTH: usize = 8;
/// The longest that a command may take.
const STALL: Duration = Duration::from_millis(50);

struct Rig {
    clock: Clock,
    turns: Arc<Turns>,
    made: u64,
}

impl Rig {
    fn drive(&mut self) -> Arc<dyn Device> {
        let drive =
            Paced::new(&format!("d{}", self.made), SHAPE.drive_bytes, &self.clock, self.made);
        drive.limit_bandwidth(2_000_000_000);
        drive.share(&self.turns);
        self.made += 1;
        Arc::new(Handle(drive))
    }
}

/// Reads and writes at random until it is told to end, each read compared with what was written last; the longest that one
/// took, and how many there were.
fn verify(pool: &Pool, clock: &Clock, is_over: &AtomicBool) -> (Duration, u64) {
    let volume = pool.volume("a").unwrap();
    let mut queue = volume.queue_pair(DEPTH).unwrap();
    let mut rng = Rng::new(7);
    let mut written: BTreeMap<u64, u64> = BTreeMap::new();
    // Commands in flight: block, version written or expected, and when each began.
    let mut flights: BTreeMap<u64, (u64, Option<u64>, Nanos)> = BTreeMap::new();
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    let (mut count, mut longest, mut content) = (0, Duration::ZERO, vec![0; BLOCK]);
    while !is_over.load(Ordering::Acquire) || !flights.is_empty() {
        while flights.len() < DEPTH && !is_over.load(Ordering::Acquire) {
            let block = rng.below(BLOCKS);
            if flights.values().any(|(other, ..)| *other == block) {
                continue;
            }
            count += 1;
            let mut buf = AlignedBuf::zeroed(BLOCK);
            let lba = Lba(block);
            let (op, version) = match rng.chance(1, 2) {
                true => {
                    rig::fill(&mut buf, count);
                    (Op::Write { lba, buf, placement: None, fua: false }, Some(count))
                }
                false => (Op::Read { lba, buf }, None),
            };
            flights.insert(count, (block, version, clock.now()));
            batch.push_back(Command { tag: Tag(count), op });
        }
        queue.submit(&mut batch).unwrap();
        queue.wait(&mut done, Some(Duration::from_millis(1))).unwrap();
        for done in done.drain(..) {
            done.result.unwrap();
            let (block, version, began) = flights.remove(&done.tag.0).unwrap();
            longest = longest.max(clock.now().since(began));
            match version {
                Some(version) => drop(written.insert(block, version)),
                None => {
                    rig::fill(&mut content, written.get(&block).copied().unwrap_or(0));
                    assert!(content[..] == done.buf.unwrap()[..], "block {block}");
                }
            }
        }
    }
    (longest, count)
}

/// Steps of maintenance until nothing is left to do, or for so long.
fn maintain(pool: &Pool, rig: &Rig, span: Duration) {
    let end = rig.clock.now() + span;
    while rig.clock.now() < end {
        if !pool.step().unwrap() {
            rig.turns.wait_until(rig.clock.now() + Duration::from_micros(200));
        }
    }
}

#[test]
fn changes_beside_a_verifying_load_fail_nothing_and_stall_nobody() {
    let clock = Clock::virtual_time();
    let mut rig = Rig { clock: clock.clone(), turns: Turns::new(&clock), made: 0 };
    let devices: Vec<Arc<dyn Device>> = (0..SHAPE.drives).map(|_| rig.drive()).collect();
    let create = CreateOptions {
        width: Some(7),
        log_bytes: 4 << 20,
        root_bytes: Some(256 << 10),
        ..rig::create_options(&SHAPE)
    };
    Pool::create(&devices, &[], &create).unwrap();
    let open =
        OpenOptions { clock: clock.clone(), map_bytes: 1 << 20, ..rig::open_options(&SHAPE) };
    let pool = Pool::open(&devices, open).unwrap();
    pool.create_volume("a", BLOCKS * BLOCK as u64, VolumeOptions::default()).unwrap();
    pool.create_volume("b", 1 << 20, VolumeOptions::default()).unwrap();
    let is_over = AtomicBool::new(false);
    rig.turns.join();
    let (longest, count) = std::thread::scope(|scope| {
        rig.turns.join();
        let load = scope.spawn(|| verify(&pool, &clock, &is_over));
        let span = Duration::from_millis(150);
        maintain(&pool, &rig, span);
        for round in 0..2_u16 {
            pool.snapshot("a", &format!("s{round}")).unwrap();
            maintain(&pool, &rig, span);
            let new = rig.drive();
            let added = pool.add(&new, Role::Drive, false).unwrap();
            maintain(&pool, &rig, span);
            pool.retire(DriveIndex(round)).unwrap();
            maintain(&pool, &rig, span);
            let new = rig.drive();
            pool.replace(added, &new, false).unwrap();
            maintain(&pool, &rig, span);
            pool.resize("a", (BLOCKS + u64::from(round) * 100) * BLOCK as u64).unwrap();
            pool.resize("b", (2 << 20) - (u64::from(round) << 20)).unwrap();
            pool.delete_snapshot("a", &format!("s{round}")).unwrap();
            maintain(&pool, &rig, span);
            pool.scrub();
            maintain(&pool, &rig, span);
        }
        is_over.store(true, Ordering::Release);
        rig.turns.leave();
        load.join().unwrap()
    });
    println!("{count} commands, the longest took {longest:?}");
    let status = pool.status();
    let is_retired = |one: &&MemberStatus| one.state == MemberState::Retired;
    assert!(status.members.iter().filter(is_retired).count() >= 3, "{:#?}", status.members);
    assert!(count > 5_000, "{count}");
    assert!(longest <= STALL, "{longest:?}");
    rig.turns.leave();
    pool.check().unwrap();
}
