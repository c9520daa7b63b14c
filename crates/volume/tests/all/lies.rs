//! Drives that lie about flushes, and a crash: what was acknowledged is there, as long as no more of them lie than there
//! are parities, and those that lied are named.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rig::{self, Act, Oracle, SMALL, Shape};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::{Device, Op, Port};
use esker_sim::{CrashRecorder, Fate, HookDevice, Image, ImageDevice, Plan};
use esker_volume::{MemberState, Pool, VolumeOptions};

const DOUBLE: Shape = Shape { drives: 6, parity: 2, lba_size: 512, ..SMALL };

/// A device on which, while it lies, a flush does nothing and nothing is forced to the medium.
fn liar(inner: Arc<dyn Device>, lies: Arc<AtomicBool>) -> Arc<dyn Device> {
    Arc::new(HookDevice::new(inner).on_command(move |op| match op {
        Op::Flush if lies.load(Ordering::Relaxed) => Fate::Done,
        Op::Write { fua, .. } => {
            *fua &= !lies.load(Ordering::Relaxed);
            Fate::Pass
        }
        _ => Fate::Pass,
    }))
}

fn settle(pool: &Pool) -> Result<(), String> {
    for _ in 0..1000 {
        if !pool.step().map_err(|error| error.to_string())? {
            return Ok(());
        }
    }
    Err(format!("maintenance does not end: {:#?}", pool.status()))
}

/// The drives for which there is evidence that they lied.
fn named(pool: &Pool) -> BTreeSet<usize> {
    let status = pool.status();
    let members = status.members.iter().enumerate();
    let suspects = members
        .filter(|(_, member)| member.state != MemberState::Online || member.checksum_errors > 0);
    let mut named: BTreeSet<usize> = suspects.map(|(drive, _)| drive).collect();
    named.extend((0..status.members.len()).filter(|drive| {
        pool.remarks().iter().any(|remark| remark.contains(&format!("drive {drive} ")))
    }));
    named
}

/// Opens an image, and checks that nothing is lost and that only liars are named, and all that did harm.
fn check(
    image: &Image,
    shape: &Shape,
    liars: &[usize],
    allowed: &[&Oracle],
) -> Result<usize, String> {
    let devices: Vec<Arc<dyn Device>> = (0..shape.drives).map(|n| image.device(n)).collect();
    let pool = match Pool::open(&devices, rig::open_options(shape)) {
        Ok(pool) => pool,
        Err(error) => {
            let error = error.to_string();
            if !liars.iter().any(|liar| error.contains(&format!("missing: drive {liar} "))) {
                return Err(error);
            }
            Pool::open(&devices, rig::degraded(shape)).map_err(|error| error.to_string())?
        }
    };
    let held = allowed.iter().any(|oracle| rig::compare_all(&pool, oracle).is_ok());
    if !held {
        return Err(rig::compare_all(&pool, allowed[0]).unwrap_err());
    }
    settle(&pool)?;
    let suspects = named(&pool);
    if let Some(innocent) = suspects.iter().find(|drive| !liars.contains(drive)) {
        return Err(format!("drive {innocent} is named, and {liars:?} lied: {:?}", pool.remarks()));
    }
    pool.scrub();
    settle(&pool)?;
    if named(&pool) != suspects {
        return Err(format!("a scrub found more than {suspects:?}"));
    }
    pool.check()?;
    Ok(suspects.len())
}

/// How many images were looked at, and how many liars were named in them.
fn sweep(shape: &Shape, seed: u64, budget: usize) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let recorder = CrashRecorder::new();
    let lies = Arc::new(AtomicBool::new(false));
    let mut liars = Vec::new();
    while liars.len() < usize::from(shape.parity) {
        let drive = usize::try_from(rng.below(shape.drives as u64)).unwrap();
        if !liars.contains(&drive) {
            liars.push(drive);
        }
    }
    let (drives, _) = rig::devices(shape);
    let wrap = |(number, device): (usize, Arc<dyn Device>)| -> Arc<dyn Device> {
        let inner: Arc<dyn Device> = recorder.attach(device);
        let honest = Arc::new(AtomicBool::new(false));
        let lies = if liars.contains(&number) { lies.clone() } else { honest };
        liar(inner, lies)
    };
    let devices: Vec<Arc<dyn Device>> = drives.into_iter().enumerate().map(wrap).collect();
    Pool::create(&devices, &[], &rig::create_options(shape)).unwrap();
    let pool = rig::open(&devices, shape);
    let mut oracle = Oracle::default();
    let mut oracles = Vec::new();
    for n in 0..50 {
        let act = match n {
            // A checkpoint before the lies, and one among them.
            34 | 44 => Act::Drain,
            35 | 45 => Act::Checkpoint,
            _ => oracle.random(&mut rng, 1 + n * 16, 64),
        };
        if n == 36 {
            oracles.push(oracle.clone());
            recorder.mark(0);
            lies.store(true, Ordering::Relaxed);
        }
        if !matches!(act, Act::Reopen | Act::Abandon) {
            rig::run(&pool, &act).unwrap();
            oracle.apply(&act);
        }
        if n >= 36 {
            oracles.push(oracle.clone());
            recorder.mark(n - 35);
        }
    }
    drop(pool);
    let plan = Plan { all_subsets: 2, singles: 2, random_subsets: 3, tears: 1, seed };
    let history = recorder.history();
    let lying = || history.images(&plan).filter(|image| !image.marks().is_empty());
    let stride = lying().count().div_ceil(budget).max(1);
    let (mut images, mut found) = (0, 0);
    for image in lying().step_by(stride) {
        let acked = usize::try_from(*image.marks().last().unwrap()).unwrap();
        let allowed: Vec<&Oracle> = oracles[acked..].iter().take(2).collect();
        match check(&image, shape, &liars, &allowed) {
            Ok(count) => (images, found) = (images + 1, found + count),
            Err(why) => {
                panic!("seed {seed}, liars {liars:?}, acknowledged {acked}: {why}\n{image}")
            }
        }
    }
    (images, found)
}

#[test]
fn lies_about_flushes_lose_nothing_and_liars_are_named() {
    let (mut images, mut found) = (0, 0);
    for (shape, seed) in [(SMALL, 1), (SMALL, 2), (SMALL, 3), (DOUBLE, 4), (DOUBLE, 5)] {
        let (more, named) = sweep(&shape, seed, 150);
        (images, found) = (images + more, found + named);
    }
    assert!(images > 500 && found > images / 4, "{images} images, {found} liars named");
}

/// The blocks of a device.
fn blocks(device: &ImageDevice) -> Vec<AlignedBuf> {
    let mut port = Port::open(device, 1).unwrap();
    let count = device.geometry().capacity.0;
    (0..count).map(|lba| port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap()).collect()
}

#[test]
fn lost_blocks_are_taken_from_the_write_buffer() {
    let shape = Shape { drives: 1, parity: 0, drive_bytes: 7 << 20, ..SMALL };
    let device = Arc::new(ImageDevice::new("d0", shape.drive_bytes, 4096));
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    Pool::create(&devices, &[], &rig::create_options(&shape)).unwrap();
    let pool = rig::open(&devices, &shape);
    pool.create_volume("v1", 64 * 4096, VolumeOptions::default()).unwrap();
    let mut content = vec![0; 64];
    for n in 0..12 {
        let (block, version) = (n * 3, 100 + n);
        rig::write(&pool, 1, block, 2, version).unwrap();
        content[usize::try_from(block).unwrap()] = version;
        content[usize::try_from(block).unwrap() + 1] = version + 1;
    }
    // The drive loses writes to segments, and keeps those to the checkpoint.
    let before = blocks(&device);
    pool.drain().unwrap();
    let after = blocks(&device);
    pool.checkpoint().unwrap();
    drop(pool);
    let mut port = Port::open(&*device, 1).unwrap();
    let mut lost = 0;
    for (lba, (old, new)) in (0..).zip(before.iter().zip(&after)) {
        if old[..] != new[..] {
            port.write(Lba(lba), AlignedBuf::padded(old, 4096), None).unwrap();
            lost += 1;
        }
    }
    assert!(lost > 4, "{lost} blocks were lost");
    let pool = rig::open(&devices, &shape);
    settle(&pool).unwrap();
    assert_eq!(pool.status().written.salvaged, 24);
    assert!(pool.status().alarms.iter().any(|alarm| alarm.code == "DRIVE_SUSPECT"));
    rig::compare(&*pool.volume("v1").unwrap(), &content).unwrap();
    pool.check().unwrap();
}
