//! Forecasts against what then happens: deleting frees as much as was said, a drive that fails leaves what was said.

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Lba, LbaCount, Rng};
use esker_device::Port;
use esker_volume::{CreateOptions, DriveIndex, Pool, Stage, VolumeOptions};

fn pool() -> Pool {
    let shape = Shape { drive_bytes: 12 << 20, map_bytes: 256 << 10, ..SMALL };
    let (drives, buffers) = rig::devices(&shape);
    let options = CreateOptions {
        log_bytes: 1 << 20,
        root_bytes: Some(128 << 10),
        ..rig::create_options(&shape)
    };
    Pool::create(&drives, &buffers, &options).unwrap();
    rig::open(&drives, &shape)
}

fn write(pool: &Pool, volume: &str, rng: &mut Rng) {
    let mut port = Port::open(&*pool.volume(volume).unwrap(), 1).unwrap();
    let first = rng.below(200);
    for block in first..first + rng.below(40) {
        let mut buf = AlignedBuf::zeroed(BLOCK);
        if rng.chance(4, 5) {
            rng.fill(&mut buf);
        }
        port.write(Lba(block), buf, None).unwrap();
    }
    if rng.chance(1, 3) {
        port.discard(Lba(rng.below(200)), LbaCount(1 + rng.below(20))).unwrap();
    }
}

fn live(pool: &Pool) -> u64 {
    pool.drain().unwrap();
    while pool.status().sweeping > 0 {
        pool.step().unwrap();
    }
    pool.status().space.live
}

#[test]
fn deleting_frees_what_was_said() {
    let mut freed_something = 0;
    for seed in 0..200 {
        let pool = pool();
        let mut rng = Rng::new(seed);
        pool.create_volume("v0", 1 << 20, VolumeOptions::default()).unwrap();
        for n in 1..24_u64 {
            let names: Vec<String> = pool.volumes().into_iter().map(|one| one.name).collect();
            let volume = names[usize::try_from(rng.below(names.len() as u64)).unwrap()].clone();
            let snapshots = pool.show(&volume).unwrap().snapshots;
            let pick = |rng: &mut Rng| {
                let count = snapshots.len() as u64;
                let index = if count == 0 { 0 } else { rng.below(count) };
                snapshots.get(usize::try_from(index).unwrap()).map(|one| one.name.clone())
            };
            match rng.below(12) {
                0..5 => write(&pool, &volume, &mut rng),
                5..8 => drop(pool.snapshot(&volume, &format!("s{n}")).unwrap()),
                8 => {
                    if let Some(snapshot) = pick(&mut rng) {
                        pool.clone_volume(&volume, &snapshot, &format!("v{n}")).unwrap();
                    }
                }
                9 => {
                    if let Some(snapshot) = pick(&mut rng) {
                        pool.rollback(&volume, &snapshot).unwrap();
                    }
                }
                10 => {
                    if let Some(snapshot) = pick(&mut rng) {
                        let before = live(&pool);
                        let said = pool.if_deleted(&volume, Some(&snapshot)).unwrap();
                        pool.delete_snapshot(&volume, &snapshot).unwrap();
                        assert_eq!(before - live(&pool), said, "seed {seed}: {volume}@{snapshot}");
                        freed_something += u64::from(said > 0);
                    }
                }
                _ if names.len() > 1 => {
                    let before = live(&pool);
                    let said = pool.if_deleted(&volume, None).unwrap();
                    pool.delete_volume(&volume, 0).unwrap();
                    assert_eq!(before - live(&pool), said, "seed {seed}: {volume}");
                    freed_something += u64::from(said > 0);
                }
                _ => {}
            }
        }
        pool.check().unwrap();
    }
    assert!(freed_something > 40, "{freed_something}");
}

#[test]
fn failed_drive_leaves_what_was_said() {
    let pool = pool();
    pool.create_volume("v", 1 << 20, VolumeOptions::default()).unwrap();
    let mut rng = Rng::new(1);
    (0..20).for_each(|_| write(&pool, "v", &mut rng));
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    let said = pool.if_failed(DriveIndex(1)).unwrap();
    let status = pool.status();
    assert_eq!(said.segments.iter().sum::<u64>(), status.segments.iter().sum::<u64>());
    assert!(said.segments[1] > 0 && said.to_move > 0, "{said:?}");
    assert!(said.usable < status.space.usable && said.live == status.space.live, "{said:?}");
    assert_eq!((said.beyond_repair, said.opens), (0, true));
    assert!(pool.if_failed(DriveIndex(99)).is_err());
}

#[test]
fn commands_are_counted_by_volume_and_by_stage() {
    let pool = pool();
    let options = VolumeOptions { iops_limit: 1_000_000, ..VolumeOptions::default() };
    let id = pool.create_volume("v", 1 << 20, options).unwrap().id;
    let other = pool.create_volume("other", 1 << 20, options).unwrap().id;
    let mut port = Port::open(&*pool.volume("v").unwrap(), 1).unwrap();
    let mut buf = AlignedBuf::zeroed(BLOCK);
    Rng::new(1).fill(&mut buf);
    port.write(Lba(0), buf, None).unwrap();
    pool.drain().unwrap();
    port.read(Lba(0), AlignedBuf::zeroed(BLOCK)).unwrap();
    let stats = pool.stats();
    let of = |id| &stats.iter().find(|(found, _)| *found == id).unwrap().1;
    let v = of(id);
    assert_eq!((v.reads, v.writes, v.errors), (1, 1, 0));
    assert_eq!((v.read_bytes, v.written_bytes), (BLOCK as u64, BLOCK as u64));
    assert_eq!((v.read_latency.count(), v.write_latency.count()), (1, 1));
    let count = |stage| v.stages.iter().find(|(found, _)| *found == stage).unwrap().1.count();
    assert_eq!((count(Stage::Log), count(Stage::Map), count(Stage::Drive)), (1, 0, 1));
    assert_eq!((of(other).reads, of(other).writes), (0, 0));
}
