//! The rig that the pool's tests share: pools so small that everything happens soon, and an oracle.

#![allow(dead_code)] // each test file uses a part

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng};
use esker_device::{Device, DeviceError, MemoryDevice, Op, Port};
use esker_sim::CrashRecorder;
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeError, VolumeOptions};

pub(crate) const BLOCK: usize = 4096;

/// A pool's shape, for tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) drives: usize,
    pub(crate) buffers: usize,
    pub(crate) parity: u8,
    pub(crate) width: Option<u16>,
    pub(crate) drive_bytes: u64,
    pub(crate) map_bytes: usize,
    pub(crate) lba_size: u32,
    pub(crate) chunk_bytes: u64,
    pub(crate) unit_bytes: u32,
    /// The name of devices, before their number.
    pub(crate) name: &'static str,
}

/// Four drives, one parity, the log on two of the drives.
pub(crate) const SMALL: Shape = Shape {
    drives: 4,
    buffers: 0,
    parity: 1,
    width: None,
    drive_bytes: 2560 << 10,
    map_bytes: 64 << 10,
    lba_size: 4096,
    chunk_bytes: 64 << 10,
    unit_bytes: 8 << 10,
    name: "d",
};

pub(crate) fn create_options(shape: &Shape) -> CreateOptions {
    CreateOptions {
        name: "tank".to_owned(),
        parity: shape.parity,
        width: shape.width,
        chunk_bytes: shape.chunk_bytes,
        unit_bytes: shape.unit_bytes,
        log_bytes: 256 << 10,
        root_bytes: Some(32 << 10),
        spare_percent: 15,
        overwrite: false,
        seed: Some(7),
    }
}

pub(crate) fn open_options(shape: &Shape) -> OpenOptions {
    OpenOptions {
        maintenance: Maintenance::Manual,
        map_bytes: shape.map_bytes,
        clock: Clock::virtual_time(),
        ..OpenOptions::default()
    }
}

/// The same, although drives are missing.
pub(crate) fn degraded(shape: &Shape) -> OpenOptions {
    OpenOptions { degraded: true, ..open_options(shape) }
}

pub(crate) type Devices = Vec<Arc<dyn Device>>;

/// Bare devices for a pool: drives, then buffer devices.
pub(crate) fn devices(shape: &Shape) -> (Devices, Devices) {
    let memory = |name: &str, count: usize, bytes: u64| -> Devices {
        let device = |n| MemoryDevice::new(&format!("{name}{n}"), bytes, shape.lba_size);
        (0..count).map(|n| Arc::new(device(n)) as Arc<dyn Device>).collect()
    };
    (memory(shape.name, shape.drives, shape.drive_bytes), memory("b", shape.buffers, 384 << 10))
}

/// A new pool: all of its devices.
pub(crate) fn create(shape: &Shape) -> Vec<Arc<dyn Device>> {
    let (drives, buffers) = devices(shape);
    Pool::create(&drives, &buffers, &create_options(shape)).unwrap();
    [drives, buffers].concat()
}

pub(crate) fn open(devices: &[Arc<dyn Device>], shape: &Shape) -> Pool {
    Pool::open(devices, open_options(shape)).unwrap()
}

/// The same on devices that a recorder sees.
pub(crate) fn create_recorded(shape: &Shape, recorder: &CrashRecorder) -> Vec<Arc<dyn Device>> {
    let attach = |devices: Devices| -> Devices {
        devices.into_iter().map(|device| recorder.attach(device) as Arc<dyn Device>).collect()
    };
    let (drives, buffers) = devices(shape);
    let (drives, buffers) = (attach(drives), attach(buffers));
    Pool::create(&drives, &buffers, &create_options(shape)).unwrap();
    [drives, buffers].concat()
}

/// The pool after an act that closes or abandons it; other acts leave it as it is.
pub(crate) fn reopened(pool: Pool, devices: &[Arc<dyn Device>], shape: &Shape, act: &Act) -> Pool {
    match act {
        Act::Reopen => pool.close().unwrap(),
        Act::Abandon => drop(pool),
        _ => return pool,
    }
    open(devices, shape)
}

/// The content of a version of a block: every third is random, the others compress. Version 0 is zeroes.
pub(crate) fn fill(buf: &mut [u8], version: u64) {
    buf.fill(0);
    if version == 0 {
        return;
    }
    let random = if version.is_multiple_of(3) { BLOCK } else { 700 };
    Rng::new(version).fill(&mut buf[..random]);
}

/// Something done to a pool. Volumes and snapshots are numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Create(u8, u64),
    Write {
        volume: u8,
        block: u64,
        count: u64,
        version: u64,
    },
    Zero {
        volume: u8,
        block: u64,
        count: u64,
        discard: bool,
    },
    Resize(u8, u64),
    Snapshot(u8, u8),
    DeleteSnapshot(u8, u8),
    Clone(u8, u8, u8),
    Rollback(u8, u8),
    Trash(u8),
    Restore(u8),
    Delete(u8),
    Step,
    Drain,
    Checkpoint,
    /// Close and open again.
    Reopen,
    /// Open again without closing.
    Abandon,
}

/// The content of a volume: the version of each block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) blocks: Vec<u64>,
    pub(crate) snapshots: BTreeMap<u8, Vec<u64>>,
    pub(crate) is_trashed: bool,
}

/// The content that a pool should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Oracle(pub(crate) BTreeMap<u8, Content>);

impl Oracle {
    /// Whether the act is possible, and what it changes then.
    pub(crate) fn apply(&mut self, act: &Act) -> bool {
        let volumes = &mut self.0;
        match act {
            Act::Create(volume, blocks) => {
                if volumes.contains_key(volume) {
                    return false;
                }
                let blocks = vec![0; usize::try_from(*blocks).unwrap()];
                volumes.insert(*volume, Content { blocks, ..Content::default() });
            }
            Act::Write { volume, block, count, version } => {
                let Some(content) = live(volumes, *volume) else { return false };
                let Some(range) = range(content, *block, *count) else { return false };
                for (version, old) in (*version..).zip(&mut content.blocks[range]) {
                    *old = version;
                }
            }
            Act::Zero { volume, block, count, .. } => {
                let Some(content) = live(volumes, *volume) else { return false };
                let Some(range) = range(content, *block, *count) else { return false };
                content.blocks[range].fill(0);
            }
            Act::Resize(volume, blocks) => {
                let Some(content) = live(volumes, *volume) else { return false };
                content.blocks.resize(usize::try_from(*blocks).unwrap(), 0);
            }
            Act::Snapshot(volume, snapshot) => {
                let Some(content) = live(volumes, *volume) else { return false };
                if content.snapshots.contains_key(snapshot) {
                    return false;
                }
                content.snapshots.insert(*snapshot, content.blocks.clone());
            }
            Act::DeleteSnapshot(volume, snapshot) => {
                let Some(content) = live(volumes, *volume) else { return false };
                return content.snapshots.remove(snapshot).is_some();
            }
            Act::Clone(volume, snapshot, name) => {
                let Some(content) = live(volumes, *volume) else { return false };
                let Some(blocks) = content.snapshots.get(snapshot).cloned() else { return false };
                if volumes.contains_key(name) {
                    return false;
                }
                volumes.insert(*name, Content { blocks, ..Content::default() });
            }
            Act::Rollback(volume, snapshot) => {
                let Some(content) = live(volumes, *volume) else { return false };
                let Some(blocks) = content.snapshots.get(snapshot).cloned() else { return false };
                content.blocks = blocks;
            }
            Act::Trash(volume) => {
                let Some(content) = live(volumes, *volume) else { return false };
                content.is_trashed = true;
            }
            Act::Restore(volume) => match volumes.get_mut(volume) {
                Some(content) if content.is_trashed => content.is_trashed = false,
                _ => return false,
            },
            Act::Delete(volume) => {
                if live(volumes, *volume).is_none() {
                    return false;
                }
                volumes.remove(volume);
            }
            Act::Step | Act::Drain | Act::Checkpoint | Act::Reopen | Act::Abandon => {}
        }
        true
    }

    /// Something random that is possible.
    pub(crate) fn random(&self, rng: &mut Rng, version: u64, blocks: u64) -> Act {
        loop {
            let volume = u8::try_from(rng.below(4)).unwrap();
            let other = u8::try_from(rng.below(4)).unwrap();
            let snapshot = u8::try_from(rng.below(3)).unwrap();
            let block = rng.below(blocks);
            let count = 1 + rng.below(8);
            let act = match rng.below(60) {
                0 | 1 => Act::Create(volume, blocks / 2 + rng.below(blocks / 2)),
                2 => Act::Resize(volume, 1 + rng.below(blocks)),
                3..6 => Act::Snapshot(volume, snapshot),
                6 | 7 => Act::DeleteSnapshot(volume, snapshot),
                8 | 9 => Act::Clone(volume, snapshot, other),
                10 => Act::Rollback(volume, snapshot),
                11 => Act::Trash(volume),
                12 => Act::Restore(volume),
                13 if rng.chance(1, 3) => Act::Delete(volume),
                14..18 => Act::Zero { volume, block, count, discard: rng.chance(1, 2) },
                18 => Act::Zero { volume, block: 0, count: blocks, discard: true },
                19..25 => Act::Step,
                25 => Act::Drain,
                26 | 27 => Act::Checkpoint,
                28 => Act::Reopen,
                29 => Act::Abandon,
                _ => Act::Write { volume, block, count, version },
            };
            if self.clone().apply(&act) {
                return act;
            }
        }
    }

    /// Something random, mostly what makes chains of clones of 64 blocks and takes their origins away.
    pub(crate) fn random_chain(&self, rng: &mut Rng, version: u64) -> Act {
        let pick = |rng: &mut Rng| u8::try_from(rng.below(5)).unwrap();
        loop {
            let (volume, other) = (pick(rng), pick(rng));
            let snapshot = u8::try_from(rng.below(2)).unwrap();
            let (block, count) = (rng.below(56), 1 + rng.below(8));
            let act = match rng.below(40) {
                _ if self.0.is_empty() => Act::Create(0, 64),
                0..3 => Act::Snapshot(volume, snapshot),
                3..5 => Act::DeleteSnapshot(volume, snapshot),
                5..9 => Act::Clone(volume, snapshot, other),
                9..11 if self.0.len() > 1 => Act::Delete(volume),
                11 => Act::Rollback(volume, snapshot),
                12 | 13 => Act::Zero { volume, block, count, discard: true },
                14 => Act::Zero { volume, block: 0, count: 64, discard: true },
                15..20 => Act::Step,
                20..22 => Act::Drain,
                22 => Act::Checkpoint,
                23 => Act::Reopen,
                24 => Act::Abandon,
                25 => Act::Write { volume, block: 0, count: 15, version },
                _ => Act::Write { volume, block, count, version },
            };
            if self.clone().apply(&act) {
                return act;
            }
        }
    }
}

fn live(volumes: &mut BTreeMap<u8, Content>, volume: u8) -> Option<&mut Content> {
    volumes.get_mut(&volume).filter(|content| !content.is_trashed)
}

fn range(content: &Content, block: u64, count: u64) -> Option<std::ops::Range<usize>> {
    let (start, end) = (usize::try_from(block).unwrap(), usize::try_from(block + count).unwrap());
    (end <= content.blocks.len()).then_some(start..end)
}

pub(crate) fn volume_name(volume: u8) -> String {
    format!("v{volume}")
}

pub(crate) fn snapshot_name(snapshot: u8) -> String {
    format!("s{snapshot}")
}

/// Does an act; opening again is the caller's.
pub(crate) fn run(pool: &Pool, act: &Act) -> Result<(), VolumeError> {
    let name = |volume: &u8| volume_name(*volume);
    match act {
        Act::Create(volume, blocks) => {
            pool.create_volume(&name(volume), blocks * BLOCK as u64, VolumeOptions::default())?;
        }
        Act::Write { volume, block, count, version } => {
            write(pool, *volume, *block, *count, *version)?;
        }
        Act::Zero { volume, block, count, discard } => {
            let (lba, count) = (Lba(*block), LbaCount(*count));
            let op = match discard {
                true => Op::Discard { lba, count },
                false => Op::WriteZeroes { lba, count },
            };
            Port::open(&*pool.volume(&name(volume))?, 1)?.run(op)?;
        }
        Act::Resize(volume, blocks) => drop(pool.resize(&name(volume), blocks * BLOCK as u64)?),
        Act::Snapshot(volume, snapshot) => {
            pool.snapshot(&name(volume), &snapshot_name(*snapshot))?;
        }
        Act::DeleteSnapshot(volume, snapshot) => {
            pool.delete_snapshot(&name(volume), &snapshot_name(*snapshot))?;
        }
        Act::Clone(volume, snapshot, clone) => {
            pool.clone_volume(&name(volume), &snapshot_name(*snapshot), &name(clone))?;
        }
        Act::Rollback(volume, snapshot) => {
            pool.rollback(&name(volume), &snapshot_name(*snapshot))?;
        }
        Act::Trash(volume) => pool.delete_volume(&name(volume), 1000)?,
        Act::Restore(volume) => drop(pool.restore(&name(volume))?),
        Act::Delete(volume) => pool.delete_volume(&name(volume), 0)?,
        Act::Step => drop(pool.step()?),
        Act::Drain => pool.drain()?,
        Act::Checkpoint => pool.checkpoint()?,
        Act::Reopen | Act::Abandon => {}
    }
    Ok(())
}

pub(crate) fn write(
    pool: &Pool,
    volume: u8,
    block: u64,
    count: u64,
    version: u64,
) -> Result<(), VolumeError> {
    let mut buf = AlignedBuf::zeroed(BLOCK * usize::try_from(count).unwrap());
    for (version, part) in (version..).zip(buf.chunks_mut(BLOCK)) {
        fill(part, version);
    }
    Port::open(&*pool.volume(&volume_name(volume))?, 1)?.write(Lba(block), buf, None)?;
    Ok(())
}

/// Whether a device holds these versions; what is wrong, if not.
pub(crate) fn compare(device: &dyn Device, blocks: &[u64]) -> Result<(), String> {
    let count = device.geometry().capacity.0;
    if count != blocks.len() as u64 {
        return Err(format!("{} has {count} blocks, not {}", device.name(), blocks.len()));
    }
    let mut port = Port::open(device, 8).map_err(|error| error.to_string())?;
    let mut expected = vec![0; BLOCK];
    for (block, part) in (0..).step_by(8).zip(blocks.chunks(8)) {
        let buf = AlignedBuf::zeroed(BLOCK * part.len());
        let read: Result<AlignedBuf, DeviceError> = port.read(Lba(block), buf);
        let read = read.map_err(|error| error.to_string())?;
        for (at, (version, bytes)) in (block..).zip(part.iter().zip(read.chunks(BLOCK))) {
            fill(&mut expected, *version);
            if expected != bytes {
                let is = (0..20_000_u64).find(|version| {
                    fill(&mut expected, *version);
                    expected == bytes
                });
                return Err(format!("{}: block {at} is {is:?}, not {version}", device.name()));
            }
        }
    }
    Ok(())
}

/// Whether a pool holds what the oracle does; what is wrong, if not.
pub(crate) fn compare_all(pool: &Pool, oracle: &Oracle) -> Result<(), String> {
    let expected: Vec<(String, bool)> = oracle
        .0
        .iter()
        .map(|(volume, content)| (volume_name(*volume), content.is_trashed))
        .collect();
    let mut found: Vec<(String, bool)> = pool
        .volumes()
        .iter()
        .map(|volume| (volume.name.clone(), volume.trashed_until.is_some()))
        .collect();
    found.sort();
    if found != expected {
        return Err(format!("the volumes are {found:?}, not {expected:?}"));
    }
    for (volume, content) in oracle.0.iter().filter(|(_, content)| !content.is_trashed) {
        let name = volume_name(*volume);
        let device = pool.volume(&name).map_err(|error| error.to_string())?;
        compare(&*device, &content.blocks)?;
        let info = pool.show(&name).map_err(|error| error.to_string())?;
        let mut names: Vec<String> = info.snapshots.into_iter().map(|s| s.name).collect();
        names.sort();
        let expected: Vec<String> = content.snapshots.keys().map(|s| snapshot_name(*s)).collect();
        if names != expected {
            return Err(format!("{name} has the snapshots {names:?}, not {expected:?}"));
        }
        for (snapshot, blocks) in &content.snapshots {
            let device = pool.volume_at(&name, &snapshot_name(*snapshot));
            compare(&*device.map_err(|error| error.to_string())?, blocks)?;
        }
    }
    Ok(())
}

/// Writes a block of the first volume, after making one where there is none.
pub(crate) fn write_somewhere(pool: &Pool, oracle: &mut Oracle, version: u64) {
    let volume =
        oracle.0.iter().find(|(_, content)| !content.is_trashed).map(|(volume, _)| *volume);
    let volume = volume.unwrap_or_else(|| {
        let act = Act::Create(9, 16);
        run(pool, &act).unwrap();
        oracle.apply(&act);
        9
    });
    let act = Act::Write { volume, block: 0, count: 1, version };
    run(pool, &act).unwrap();
    oracle.apply(&act);
}
