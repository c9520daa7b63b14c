//! A pool that has nothing to do: its thread sleeps.

#[path = "support/rig.rs"]
mod rig;

use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::Port;
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeOptions};
use rig::{BLOCK, SMALL, Shape};

/// Processor time of the maintenance threads of this process, in ticks of 10 ms.
fn keeper_ticks() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of_task = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        (name.trim() == "pool-keeper").then_some(ticks)
    };
    tasks.filter_map(of_task).sum()
}

fn ticks_of(shape: &Shape, create: &CreateOptions) {
    let (drives, _) = rig::devices(shape);
    Pool::create(&drives, &[], create).unwrap();
    let clock = Clock::real();
    let options = OpenOptions {
        maintenance: Maintenance::Thread,
        clock: clock.clone(),
        ..rig::open_options(shape)
    };
    let pool = Pool::open(&drives, options).unwrap();
    pool.create_volume("a", 64 << 20, VolumeOptions::default()).unwrap();
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    for is_used in [false, true, false] {
        let before = keeper_ticks();
        for n in 0..100 {
            clock.sleep(Duration::from_millis(10));
            if is_used {
                port.write(Lba(n % 16), AlignedBuf::zeroed(BLOCK), None).unwrap();
                port.read(Lba(n % 16), AlignedBuf::zeroed(BLOCK)).unwrap();
            }
        }
        let took = keeper_ticks() - before;
        assert!(took <= 10, "{took} of 100 ticks, in use: {is_used}; {:#?}", pool.status());
    }
}

#[test]
fn maintenance_sleeps_when_there_is_nothing_to_do() {
    let large = CreateOptions { log_bytes: 4 << 20, ..rig::create_options(&SMALL) };
    let shape = Shape { drive_bytes: 8 << 20, ..SMALL };
    ticks_of(&shape, &large);
    let shape =
        Shape { drives: 8, parity: 2, drive_bytes: 160 << 20, map_bytes: 64 << 20, ..SMALL };
    let create = CreateOptions {
        width: Some(8),
        chunk_bytes: 1 << 20,
        unit_bytes: 64 << 10,
        log_bytes: 32 << 20,
        root_bytes: Some(1 << 20),
        ..rig::create_options(&shape)
    };
    ticks_of(&shape, &create);
}
