//! Drives that are slow, silent or refuse, one or more of them, and come back: what volumes' users see, what the pool says,
//! and how it is afterwards. Real time, and a short patience.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::moody::{Mood, Moody};
use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, Rng, thread};
use esker_device::{Command, Device, Op, Port, Tag};
use esker_volume::{
    CreateOptions, DriveIndex, Maintenance, MemberState, OpenOptions, Pool, VolumeOptions,
};

const PATIENCE: Duration = Duration::from_millis(600);
const BLOCKS: u64 = 256;
const RAW: VolumeOptions = VolumeOptions { compression: false, iops_limit: 0, bytes_limit: 0 };
/// Four drives, one parity, the write buffer on two of them.
const SHAPE: Shape = Shape { drive_bytes: 8 << 20, map_bytes: 1 << 20, ..SMALL };

struct Rig {
    drives: Vec<Moody>,
    pool: Arc<Pool>,
    clock: Clock,
}

/// A pool with a volume whose blocks are in segments.
fn rig() -> Rig {
    let drives: Vec<Moody> =
        (0..SHAPE.drives).map(|n| Moody::new(&format!("d{n}"), SHAPE.drive_bytes)).collect();
    let devices: Vec<Arc<dyn Device>> =
        drives.iter().map(|drive| Arc::new(drive.clone()) as Arc<dyn Device>).collect();
    let create = CreateOptions { log_bytes: 1 << 20, ..rig::create_options(&SHAPE) };
    Pool::create(&devices, &[], &create).unwrap();
    let options = OpenOptions {
        maintenance: Maintenance::Thread,
        patience: PATIENCE,
        clock: Clock::real(),
        ..rig::open_options(&SHAPE)
    };
    let pool = Arc::new(Pool::open(&devices, options).unwrap());
    pool.create_volume("v", BLOCKS * BLOCK as u64, RAW).unwrap();
    let mut port = Port::open(&*pool.volume("v").unwrap(), 1).unwrap();
    for block in 0..BLOCKS {
        port.write(Lba(block), content(block), None).unwrap();
    }
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    Rig { drives, pool, clock: Clock::real() }
}

fn content(version: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    rig::fill(&mut buf, 3 * version + 3);
    buf
}

/// Observations while drives were in a mood.
#[derive(Debug)]
struct Seen {
    /// The longest that a user waited for a write or a read, and the errors.
    longest: Duration,
    errors: Vec<String>,
    /// The alarms that were raised, and the last text of the one of drives that do not answer.
    alarms: BTreeSet<&'static str>,
    silent: String,
    /// The longest that anybody waited for the status.
    status: Duration,
}

impl Rig {
    fn be(&self, drives: &[usize], mood: Mood) {
        drives.iter().for_each(|drive| self.drives[*drive].be(mood));
    }

    /// Drives are in this mood for so long while a volume is used, then as before.
    fn run(&self, drives: &[usize], mood: Mood, span: Duration) -> Seen {
        let is_over = Arc::new(AtomicBool::new(false));
        let user = {
            let (pool, is_over, clock) = (self.pool.clone(), is_over.clone(), self.clock.clone());
            thread::spawn("user", move || use_volume(&pool, &clock, &is_over)).unwrap()
        };
        self.clock.sleep(Duration::from_millis(50));
        self.be(drives, mood);
        let mut seen = Seen {
            longest: Duration::ZERO,
            errors: Vec::new(),
            alarms: BTreeSet::new(),
            silent: String::new(),
            status: Duration::ZERO,
        };
        let began = self.clock.now();
        while self.clock.now() - began < span {
            let asked = self.clock.now();
            let status = self.pool.status();
            seen.status = seen.status.max(self.clock.now() - asked);
            for alarm in status.alarms {
                seen.alarms.insert(alarm.code);
                if alarm.code == "DRIVES_SILENT" {
                    seen.silent = alarm.text;
                }
            }
            self.clock.sleep(Duration::from_millis(10));
        }
        self.be(drives, Mood::Prompt);
        self.clock.sleep(Duration::from_millis(700));
        is_over.store(true, Ordering::Relaxed);
        (seen.longest, seen.errors) = user.join().unwrap();
        seen
    }

    fn states(&self) -> Vec<MemberState> {
        self.pool.status().members.iter().map(|member| member.state).collect()
    }

    fn alarms(&self) -> Vec<&'static str> {
        self.pool.status().alarms.iter().map(|alarm| alarm.code).collect()
    }

    /// Waits until this holds.
    fn wait(&self, what: &str, is_so: impl Fn(&Rig) -> bool) {
        let began = self.clock.now();
        while !is_so(self) {
            let waited = self.clock.now() - began;
            assert!(waited < Duration::from_secs(30), "{what}: {:#?}", self.pool.status());
            self.clock.sleep(Duration::from_millis(20));
        }
    }

    /// All blocks are there, and nobody was taken out.
    fn is_as_before(&self) {
        assert_eq!(self.states(), [MemberState::Online; SHAPE.drives]);
        self.wait("alarms end", |rig| rig.alarms().is_empty());
        self.pool.check().unwrap();
    }

    /// Takes the drives in again that are out, which makes none of them suspect.
    fn rejoin(&self) {
        for index in (0..).map(DriveIndex).take(SHAPE.drives) {
            if self.states()[usize::from(index.0)] == MemberState::Faulted {
                let device = self.pool.device_of(index).unwrap();
                self.pool.rejoin(index, &device).unwrap();
            }
        }
        self.wait("all drives are online", |rig| {
            rig.states() == [MemberState::Online; SHAPE.drives] && rig.alarms().is_empty()
        });
        assert!(self.pool.status().members.iter().all(|member| member.checksum_errors == 0));
        self.pool.check().unwrap();
    }
}

/// Writes and reads one block after another; every one has what it was given last.
fn use_volume(pool: &Pool, clock: &Clock, is_over: &AtomicBool) -> (Duration, Vec<String>) {
    let mut port = Port::open(&*pool.volume("v").unwrap(), 1).unwrap();
    let mut versions: Vec<u64> = (0..BLOCKS).collect();
    let (mut rng, mut longest, mut errors) = (Rng::new(1), Duration::ZERO, Vec::new());
    for next in BLOCKS.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let began = clock.now();
        let (block, other) = (rng.below(BLOCKS), rng.below(BLOCKS));
        match port.write(Lba(block), content(next), None) {
            Ok(_) => versions[usize::try_from(block).unwrap()] = next,
            Err(error) => errors.push(error.to_string()),
        }
        match port.read(Lba(other), AlignedBuf::zeroed(BLOCK)) {
            Ok(read) => assert!(read[..] == content(versions[usize::try_from(other).unwrap()])[..]),
            Err(error) => errors.push(error.to_string()),
        }
        longest = longest.max(clock.now() - began);
        clock.sleep(Duration::from_millis(1));
    }
    for (block, version) in (0..).zip(&versions) {
        match port.read(Lba(block), AlignedBuf::zeroed(BLOCK)) {
            Ok(read) => assert!(read[..] == content(*version)[..], "block {block}"),
            Err(error) => errors.push(error.to_string()),
        }
    }
    (longest, errors)
}

const ALL: [usize; 4] = [0, 1, 2, 3];

#[test]
fn drives_that_answer_slowly_under_a_deep_queue_stay() {
    let rig = rig();
    rig.be(&ALL, Mood::Slow(Duration::from_millis(25)));
    // Each waits for all before it: most wait for longer than the patience.
    let mut queue = rig.pool.volume("v").unwrap().queue_pair(128).unwrap();
    let read =
        |n| Command { tag: Tag(n), op: Op::Read { lba: Lba(n), buf: AlignedBuf::zeroed(BLOCK) } };
    let mut reads: VecDeque<Command> = (0..BLOCKS).map(read).collect();
    let (mut done, mut longest, began) = (Vec::new(), Duration::ZERO, rig.clock.now());
    let mut left = BLOCKS;
    while left > 0 {
        queue.submit(&mut reads).unwrap();
        queue.wait(&mut done, None).unwrap();
        for completion in done.drain(..) {
            completion.result.unwrap();
            assert!(completion.buf.unwrap()[..] == content(completion.tag.0)[..]);
            longest = rig.clock.now() - began;
            left -= 1;
        }
    }
    assert!(longest > 2 * PATIENCE, "{longest:?}: they have to be slow");
    let seen = rig.run(&[], Mood::Prompt, Duration::from_millis(300));
    assert!(seen.errors.is_empty() && !seen.alarms.contains("DATA_LOST"), "{seen:?}");
    rig.be(&ALL, Mood::Prompt);
    assert_eq!(rig.states(), [MemberState::Online; SHAPE.drives]);
}

#[test]
fn slow_drives_stay() {
    for drives in [&ALL[..1], &ALL[1..3], &ALL] {
        let rig = rig();
        let seen = rig.run(drives, Mood::Slow(Duration::from_millis(4)), 2 * PATIENCE);
        assert!(seen.errors.is_empty(), "{seen:?}");
        assert!(!seen.alarms.contains("DRIVES_SILENT"), "{seen:?}");
        assert_eq!(rig.states(), [MemberState::Online; SHAPE.drives]);
    }
}

#[test]
fn drive_that_is_silent_for_less_than_the_patience_stays() {
    for drives in [&ALL[..1], &ALL[2..], &ALL] {
        let rig = rig();
        let seen = rig.run(drives, Mood::Silent, PATIENCE / 3);
        assert!(seen.errors.is_empty() && seen.longest < 2 * PATIENCE, "{seen:?}");
        rig.is_as_before();
    }
}

#[test]
fn one_silent_drive_is_out_after_the_patience() {
    // One that has the write buffer, and one that has not.
    for drive in [0, 3] {
        let rig = rig();
        let seen = rig.run(&[drive], Mood::Silent, 4 * PATIENCE);
        assert!(seen.errors.is_empty(), "{seen:?}");
        assert!(seen.longest < 3 * PATIENCE && seen.status < PATIENCE, "{seen:?}");
        assert!(seen.alarms.contains("DRIVE_FAULTED"), "{seen:?}");
        assert!(!seen.alarms.contains("DATA_LOST"), "{seen:?}");
        let faulted =
            |rig: &Rig| rig.states().iter().filter(|s| **s == MemberState::Faulted).count();
        assert_eq!((rig.states()[drive], faulted(&rig)), (MemberState::Faulted, 1));
        rig.rejoin();
    }
}

#[test]
fn one_refusing_drive_is_out_at_once() {
    for drive in [0, 3] {
        let rig = rig();
        let seen = rig.run(&[drive], Mood::Refusing, 4 * PATIENCE);
        assert!(seen.errors.is_empty(), "{seen:?}");
        assert!(seen.longest < Duration::from_secs(2), "{seen:?}");
        assert_eq!(rig.states()[drive], MemberState::Faulted, "{seen:?}");
        rig.rejoin();
    }
}

#[test]
fn more_drives_than_parities_that_do_not_answer_are_waited_for() {
    for mood in [Mood::Silent, Mood::Refusing] {
        for drives in [&ALL[..2], &ALL[1..3], &ALL[2..], &ALL] {
            let rig = rig();
            let span = 4 * PATIENCE;
            let seen = rig.run(drives, mood, span);
            assert!(seen.errors.is_empty(), "{mood:?} {drives:?}: {seen:?}");
            assert!(seen.longest < span + 2 * PATIENCE, "{mood:?} {drives:?}: {seen:?}");
            assert!(seen.status < PATIENCE, "{mood:?} {drives:?}: {seen:?}");
            assert!(!seen.alarms.contains("DATA_LOST"), "{mood:?} {drives:?}: {seen:?}");
            assert!(!seen.alarms.contains("POOL_STOPPED"), "{mood:?} {drives:?}: {seen:?}");
            for drive in drives {
                let name = format!("d{drive} has not answered for");
                assert!(seen.silent.contains(&name), "{mood:?} {drives:?}: {seen:?}");
            }
            rig.is_as_before();
        }
    }
}

#[test]
fn idle_pool_finds_out_that_a_drive_is_gone() {
    for mood in [Mood::Silent, Mood::Refusing] {
        let rig = rig();
        rig.be(&[2], mood);
        rig.wait("drive 2 is out", |rig| rig.states()[2] == MemberState::Faulted);
    }
}

#[test]
fn pool_whose_drives_are_silent_ends() {
    let rig = rig();
    rig.be(&ALL, Mood::Silent);
    rig.clock.sleep(PATIENCE / 2);
    let Rig { drives, pool, clock } = rig;
    let began = clock.now();
    let error = Arc::into_inner(pool).unwrap().close().unwrap_err();
    assert!(clock.now() - began < 5 * PATIENCE, "{error}");
    drives.iter().for_each(|drive| drive.be(Mood::Prompt));
    let devices: Vec<Arc<dyn Device>> =
        drives.iter().map(|drive| Arc::new(drive.clone()) as Arc<dyn Device>).collect();
    let pool = rig::open(&devices, &SHAPE);
    assert!(pool.status().members.iter().all(|member| member.state == MemberState::Online));
}

#[test]
fn returned_drive_that_missed_writes_is_not_suspect() {
    for mood in [Mood::Silent, Mood::Refusing] {
        let drives: Vec<Moody> =
            (0..SHAPE.drives).map(|n| Moody::new(&format!("d{n}"), SHAPE.drive_bytes)).collect();
        let devices: Vec<Arc<dyn Device>> =
            drives.iter().map(|drive| Arc::new(drive.clone()) as Arc<dyn Device>).collect();
        let create = CreateOptions { log_bytes: 1 << 20, ..rig::create_options(&SHAPE) };
        Pool::create(&devices, &[], &create).unwrap();
        let options = OpenOptions { patience: PATIENCE / 4, ..rig::open_options(&SHAPE) };
        let pool = Pool::open(&devices, options).unwrap();
        pool.create_volume("v", BLOCKS * BLOCK as u64, RAW).unwrap();
        let mut port = Port::open(&*pool.volume("v").unwrap(), 1).unwrap();
        for block in 0..BLOCKS {
            port.write(Lba(block), content(block), None).unwrap();
            if block == BLOCKS / 2 {
                pool.drain().unwrap();
                pool.checkpoint().unwrap(); // a segment is open, and has rows on the drive
                drives[3].be(mood);
            }
        }
        pool.drain().unwrap();
        drives[3].lose(); // what it was asked meanwhile
        let index = DriveIndex(3);
        pool.rejoin(index, &pool.device_of(index).unwrap()).unwrap();
        for block in 0..BLOCKS {
            let read = port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
            assert!(read[..] == content(block)[..], "{block}");
        }
        while pool.step().unwrap() {}
        let status = pool.status();
        let codes: Vec<_> = status.alarms.iter().map(|alarm| alarm.code).collect();
        assert!(codes.is_empty(), "{mood:?}: {status:#?}");
        assert!(status.members.iter().all(|one| one.state == MemberState::Online));
        pool.check().unwrap();
    }
}
