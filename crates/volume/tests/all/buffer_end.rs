//! The end of the write buffer is lost on all of its copies: what a mark or a label says was durable is missed, and the pool is
//! not opened without it unless that was said.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{self, Act, Oracle, SMALL, Shape};
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, Rng};
use esker_device::{Device, Port};
use esker_sim::{CrashRecorder, Plan};
use esker_volume::{CreateOptions, OpenOptions, Pool, VolumeError};

/// Kinds of structures, as an envelope has them.
const FRAME: u16 = 5;
const MARK: u16 = 8;

/// Structures of a kind on a device, of the newest ring that is there: where, and the number that their envelope has.
fn structures(device: &dyn Device, kind: u16) -> Vec<(u64, u64)> {
    let mut port = Port::open(device, 1).unwrap();
    let geometry = device.geometry();
    let lbas = 4096 / u64::from(geometry.lba_size);
    let mut found = Vec::new();
    for lba in (0..geometry.capacity.0).step_by(to_usize(lbas)) {
        let buf = port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap();
        if buf[..4] == *b"EKVP" && buf[6..8] == kind.to_le_bytes() {
            let number = |at: usize| u64::from_le_bytes(buf[at..at + 8].try_into().unwrap());
            found.push((lba, number(40), number(48)));
        }
    }
    let newest = found.iter().map(|(_, epoch, _)| *epoch).max();
    found.retain(|(_, epoch, _)| Some(*epoch) == newest);
    found.into_iter().map(|(lba, _, number)| (lba, number)).collect()
}

/// Damages the structures of a kind that have these numbers, on all devices. Returns how many numbers there were.
fn damage(devices: &[Arc<dyn Device>], kind: u16, is_hit: impl Fn(u64) -> bool) -> usize {
    let mut numbers = Vec::new();
    for device in devices {
        let mut port = Port::open(&**device, 1).unwrap();
        for (lba, number) in structures(&**device, kind) {
            if is_hit(number) {
                let mut buf = port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap();
                buf[60] ^= 0x55;
                port.write(Lba(lba), buf, None).unwrap();
                numbers.push(number);
            }
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len()
}

fn last_frame(devices: &[Arc<dyn Device>]) -> u64 {
    let all = devices.iter().flat_map(|device| structures(&**device, FRAME));
    all.map(|(_, number)| number).max().unwrap()
}

struct Written {
    devices: Vec<Arc<dyn Device>>,
    oracle: Oracle,
    /// How the content was before the last writes.
    before: Oracle,
}

/// A pool with a write buffer of which these tests fill less than a half: no checkpoint comes between.
fn create(shape: &Shape) -> Vec<Arc<dyn Device>> {
    let (drives, buffers) = rig::devices(shape);
    let options = CreateOptions { log_bytes: 768 << 10, ..rig::create_options(shape) };
    Pool::create(&drives, &buffers, &options).unwrap();
    [drives, buffers].concat()
}

fn open(devices: &[Arc<dyn Device>], shape: &Shape) -> (Pool, Clock) {
    let clock = Clock::virtual_time();
    let options = OpenOptions { clock: clock.clone(), ..rig::open_options(shape) };
    (Pool::open(devices, options).unwrap(), clock)
}

fn act(pool: &Pool, oracle: &mut Oracle, act: &Act) {
    rig::run(pool, act).unwrap();
    oracle.apply(act);
}

/// A pool into which `early` blocks were written, then `late` ones, each in a frame; the time passed between them and after
/// them; then it crashed.
fn crashed(shape: &Shape, (early, late): (u64, u64), wait: (u64, u64)) -> Written {
    let devices = create(shape);
    let (pool, clock) = open(&devices, shape);
    let mut oracle = Oracle::default();
    act(&pool, &mut oracle, &Act::Create(1, 64));
    let pass = |secs| {
        for _ in 0..secs {
            clock.advance(Duration::from_secs(1));
            pool.step().unwrap();
        }
    };
    let write = |oracle: &mut Oracle, range: std::ops::Range<u64>| {
        for n in range {
            let (block, version) = (n % 60, 1 + 16 * n);
            act(&pool, oracle, &Act::Write { volume: 1, block, count: 1, version });
        }
    };
    write(&mut oracle, 0..early);
    pass(wait.0);
    let before = oracle.clone();
    write(&mut oracle, early..early + late);
    pass(wait.1);
    drop(pool);
    Written { devices, oracle, before }
}

fn refusal(written: &Written, shape: &Shape) -> String {
    let error = Pool::open(&written.devices, rig::open_options(shape)).err().unwrap();
    assert!(matches!(error, VolumeError::BufferDamaged { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    error.to_string()
}

/// Opens a pool whose end was lost, as it was told to, and goes on with it over another crash.
fn go_on(written: &Written, shape: &Shape, left: &Oracle) {
    let options = OpenOptions { lose_buffer: true, ..rig::open_options(shape) };
    let pool = Pool::open(&written.devices, options).unwrap();
    assert!(pool.remarks().iter().any(|one| one.contains("are lost")), "{:?}", pool.remarks());
    rig::compare_all(&pool, left).unwrap();
    pool.check().unwrap();
    let mut oracle = left.clone();
    rig::write_somewhere(&pool, &mut oracle, 40_000);
    drop(pool);
    let pool = rig::open(&written.devices, shape);
    assert_eq!(pool.remarks(), &[] as &[String]);
    rig::compare_all(&pool, &oracle).unwrap();
    // It is marked anew, below what had been lost.
    rig::write_somewhere(&pool, &mut oracle, 40_016);
    pool.step().unwrap();
    drop(pool);
    let last = last_frame(&written.devices);
    assert_eq!(damage(&written.devices, FRAME, |number| number == last), 1);
    refusal(written, shape);
}

const SHAPES: [Shape; 3] = [
    SMALL,
    Shape { drives: 1, parity: 0, drive_bytes: 7 << 20, ..SMALL },
    Shape { drives: 6, buffers: 2, parity: 2, lba_size: 512, ..SMALL },
];

#[test]
fn loss_of_the_last_frames_on_all_copies_is_refused() {
    for shape in &SHAPES {
        // Buffer devices are small here.
        let lost = if shape.buffers > 0 { 10 } else { 20 };
        let written = crashed(shape, (5, lost), (10, 10));
        let last = last_frame(&written.devices);
        assert_eq!(damage(&written.devices, FRAME, |number| number + lost > last) as u64, lost);
        let error = refusal(&written, shape);
        assert!(error.contains("--lose-buffer"), "{error}");
        assert!(error.contains(&format!("frame {} to frame {last}", last + 1 - lost)), "{error}");
        // It changes nothing to ask again.
        assert_eq!(refusal(&written, shape), error);
        go_on(&written, shape, &written.before);
    }
}

#[test]
fn loss_of_all_frames_on_all_copies_is_refused() {
    for shape in &SHAPES {
        let written = crashed(shape, (5, 10), (10, 10));
        assert!(damage(&written.devices, FRAME, |_| true) >= 16);
        assert!(refusal(&written, shape).contains("--lose-buffer"));
        go_on(&written, shape, &Oracle::default());
    }
}

/// A checkpoint's label says as much as a mark.
#[test]
fn loss_of_frames_before_a_checkpoint_that_needs_them_is_refused() {
    let devices = rig::create(&SMALL);
    let (pool, _) = open(&devices, &SMALL);
    let mut oracle = Oracle::default();
    act(&pool, &mut oracle, &Act::Create(1, 64));
    act(&pool, &mut oracle, &Act::Write { volume: 1, block: 0, count: 8, version: 16 });
    pool.checkpoint().unwrap(); // nothing left the write buffer
    drop(pool);
    assert!(damage(&devices, MARK, |_| true) <= 1);
    assert!(damage(&devices, FRAME, |_| true) >= 2);
    let written = Written { devices, before: oracle.clone(), oracle };
    refusal(&written, &SMALL);
}

/// Frames that are younger than the mark cannot be told from those that a crash tore.
#[test]
fn loss_behind_the_mark_is_the_end() {
    let written = crashed(&SMALL, (10, 5), (10, 0));
    let last = last_frame(&written.devices);
    assert_eq!(damage(&written.devices, FRAME, |number| number + 5 > last), 5);
    let pool = rig::open(&written.devices, &SMALL);
    rig::compare_all(&pool, &written.before).unwrap();
    drop(pool);
    // And one more is missed.
    let written = crashed(&SMALL, (10, 5), (10, 0));
    let last = last_frame(&written.devices);
    damage(&written.devices, FRAME, |number| number + 6 > last);
    let error = refusal(&written, &SMALL);
    assert!(error.contains(&format!("frame {} to frame {}", last - 5, last - 5)), "{error}");
}

#[test]
fn mark_that_is_damaged_or_missing_refuses_nothing() {
    let written = crashed(&SMALL, (10, 20), (10, 10));
    assert_eq!(damage(&written.devices, MARK, |_| true), 2, "two copies in turn");
    let pool = rig::open(&written.devices, &SMALL);
    rig::compare_all(&pool, &written.oracle).unwrap();
    assert_eq!(pool.remarks(), &[] as &[String]);
    // The next one counts on: a stale copy that was left is not taken for it.
    pool.step().unwrap();
    drop(pool);
    let last = last_frame(&written.devices);
    damage(&written.devices, FRAME, |number| number == last);
    refusal(&written, &SMALL);
}

/// The last mark is damaged everywhere: the one before it counts, which is older.
#[test]
fn mark_before_the_last_one_counts_where_that_is_damaged() {
    let written = crashed(&SMALL, (10, 5), (10, 10));
    let newest = written.devices.iter().flat_map(|device| structures(&**device, MARK));
    let newest = newest.map(|(_, number)| number).max().unwrap();
    damage(&written.devices, MARK, |number| number == newest);
    let last = last_frame(&written.devices);
    damage(&written.devices, FRAME, |number| number + 6 > last);
    let error = refusal(&written, &SMALL);
    assert!(error.contains(&format!("frame {} to frame {}", last - 5, last - 5)), "{error}");
}

/// A pool of earlier software: its ring has no mark behind it, and its labels do not say what is durable. It is opened, and
/// marked from then on.
#[test]
fn pool_of_earlier_software_is_marked_from_its_next_open_on() {
    let devices = create(&SMALL);
    let is_label = |buf: &AlignedBuf| buf[..4] == *b"EKVP" && buf[6..8] == 1_u16.to_le_bytes();
    let ring = (760_u64 << 10).to_le_bytes();
    for device in &devices {
        let mut port = Port::open(&**device, 1).unwrap();
        for lba in 0..device.geometry().capacity.0 {
            let mut buf = port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap();
            if !is_label(&buf) {
                continue;
            }
            let length = u32::from_le_bytes(buf[8..12].try_into().unwrap()) - 16;
            let end = to_usize(length.into());
            let at = buf.windows(8).position(|eight| eight == ring).unwrap();
            buf[at..at + 8].copy_from_slice(&(768_u64 << 10).to_le_bytes());
            buf[8..12].copy_from_slice(&length.to_le_bytes());
            buf[end..end + 16].fill(0);
            let crc = esker_base::checksum::crc32c(&buf[16..end]);
            buf[12..16].copy_from_slice(&crc.to_le_bytes());
            port.write(Lba(lba), buf, None).unwrap();
        }
    }
    let (pool, clock) = open(&devices, &SMALL);
    assert_eq!(pool.status().log.bytes, 760 << 10);
    let mut oracle = Oracle::default();
    act(&pool, &mut oracle, &Act::Create(1, 64));
    act(&pool, &mut oracle, &Act::Write { volume: 1, block: 0, count: 8, version: 16 });
    clock.advance(Duration::from_secs(10));
    pool.step().unwrap();
    drop(pool);
    let last = last_frame(&devices);
    assert_eq!(damage(&devices, FRAME, |number| number == last), 1);
    refusal(&Written { devices, before: oracle.clone(), oracle }, &SMALL);
}

/// Under load a mark is written each few seconds, and none while nothing is written.
#[test]
fn marks_cost_next_to_nothing() {
    let devices = rig::create(&SMALL);
    let (pool, clock) = open(&devices, &SMALL);
    let mut oracle = Oracle::default();
    act(&pool, &mut oracle, &Act::Create(1, 64));
    let writes = || devices.iter().map(|device| device.stats().writes).sum::<u64>();
    let mut marks = 0;
    for n in 0..400 {
        act(&pool, &mut oracle, &Act::Write { volume: 1, block: 0, count: 1, version: n * 16 + 1 });
        let before = (writes(), pool.status().written);
        pool.step().unwrap();
        let after = (writes(), pool.status().written);
        if before.1.checkpoints == after.1.checkpoints && before.1.destaged == after.1.destaged {
            marks += after.0 - before.0;
        }
        clock.advance(Duration::from_millis(100));
    }
    // Each to two copies, over 40 seconds, in some of which a checkpoint's label says it.
    assert!((2..=18).contains(&marks), "{marks}");
    for _ in 0..60 {
        clock.advance(Duration::from_secs(1));
        pool.step().unwrap();
    }
    let before = writes();
    for _ in 0..600 {
        clock.advance(Duration::from_secs(1));
        pool.step().unwrap();
    }
    assert_eq!(writes(), before, "it is idle, and writes");
}

/// Whatever a crash leaves of the write of a mark, and of the frames beside it, no pool is refused that lost nothing.
#[test]
fn crash_beside_the_write_of_a_mark_refuses_nothing() {
    for (shape, seed) in SHAPES.iter().zip(0..) {
        let recorder = CrashRecorder::new();
        let devices = rig::create_recorded(shape, &recorder);
        let (mut pool, mut clock) = open(&devices, shape);
        let mut oracle = Oracle::default();
        act(&pool, &mut oracle, &Act::Create(1, 64));
        let mut oracles = vec![oracle.clone()];
        recorder.mark(0);
        let mut rng = Rng::new(seed);
        for n in 0..24 {
            let (block, count) = (rng.below(56), 1 + rng.below(8));
            let write = Act::Write { volume: 1, block, count, version: 1 + n * 16 };
            act(&pool, &mut oracle, &write);
            oracles.push(oracle.clone());
            recorder.mark(n + 1);
            clock.advance(Duration::from_secs(5));
            pool.step().unwrap();
            if n % 9 == 8 {
                drop(pool);
                (pool, clock) = open(&devices, shape);
            }
        }
        drop(pool);
        let plan = Plan { all_subsets: 4, singles: 4, random_subsets: 2, tears: 2, seed };
        let history = recorder.history();
        let mut checked = 0;
        let stride = history.images(&plan).count().div_ceil(500).max(1);
        for image in history.images(&plan).step_by(stride) {
            let Some(acked) = image.marks().iter().max().map(|mark| to_usize(*mark)) else {
                continue;
            };
            let devices: Vec<_> =
                (0..shape.drives + shape.buffers).map(|n| image.device(n)).collect();
            let pool = Pool::open(&devices, rig::open_options(shape))
                .unwrap_or_else(|error| panic!("{error}\n{image}"));
            let allowed = &oracles[acked..oracles.len().min(acked + 2)];
            assert!(allowed.iter().any(|one| rig::compare_all(&pool, one).is_ok()), "{image}");
            checked += 1;
        }
        assert!(checked > 300, "{checked}");
    }
}
