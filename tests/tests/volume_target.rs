//! The rates of one core of a target with a volume: reads and writes at depth 128 over NVMe/TCP, beside a bare device in memory on
//! the same target.
//!
//! `cargo test --release -p esker-tests --test volume_target -- --ignored --nocapture`

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Device, MemoryDevice, Op, Tag};
use esker_nvmf::target::{
    Access, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_nvmf::{Initiator, InitiatorConfig};
use esker_volume::{CreateOptions, OpenOptions, Pool, VolumeOptions};

const NQN: &str = "nqn.2026-01.io.esker:tank";
const BYTES: u64 = 256 << 20;
const DEPTH: usize = 128;

/// Commands a second of so many bytes, in order or at random.
#[allow(clippy::cast_precision_loss)]
fn rate(device: &dyn Device, is_write: bool, bytes: usize, is_random: bool) -> f64 {
    let mut queue = device.queue_pair(DEPTH).unwrap();
    let lba_size = device.geometry().lba_size;
    let places = BYTES / bytes as u64;
    let each = bytes as u64 / u64::from(lba_size);
    let mut content = vec![0; bytes];
    Rng::new(1).fill(&mut content);
    let mut bufs: Vec<AlignedBuf> =
        (0..DEPTH).map(|_| AlignedBuf::padded(&content, 4096)).collect();
    let (clock, mut rng, mut done) = (Clock::real(), Rng::new(2), Vec::new());
    let (mut batch, mut count, mut next) = (VecDeque::new(), 0_u64, 0);
    let began = clock.now();
    while clock.now().since(began) < Duration::from_secs(3) {
        while let Some(buf) = bufs.pop() {
            next = if is_random { rng.below(places) } else { (next + 1) % places };
            let lba = Lba(next * each);
            let op = match is_write {
                true => Op::Write { lba, buf, placement: None, fua: false },
                false => Op::Read { lba, buf },
            };
            batch.push_back(Command { tag: Tag(0), op });
        }
        queue.submit(&mut batch).unwrap();
        queue.wait(&mut done, Some(Duration::from_millis(10))).unwrap();
        for completion in done.drain(..) {
            completion.result.unwrap();
            bufs.extend(completion.buf);
            count += 1;
        }
    }
    count as f64 / clock.now().since(began).as_secs_f64()
}

#[test]
#[ignore = "prints figures"]
#[allow(clippy::cast_precision_loss)]
fn a_core_of_a_target_serves_so_many_commands() {
    let drives = (0..8).map(|n| MemoryDevice::new(&format!("d{n}"), 160 << 20, 4096));
    let drives: Vec<Arc<dyn Device>> = drives.map(|d| Arc::new(d) as Arc<dyn Device>).collect();
    let create = CreateOptions {
        name: "tank".to_owned(),
        parity: 2,
        width: Some(8),
        chunk_bytes: 1 << 20,
        log_bytes: 32 << 20,
        root_bytes: Some(1 << 20),
        ..CreateOptions::default()
    };
    Pool::create(&drives, &[], &create).unwrap();
    let pool = Pool::open(&drives, OpenOptions::default()).unwrap();
    let raw = VolumeOptions { compression: false, ..VolumeOptions::default() };
    pool.create_volume("a", BYTES, raw).unwrap();
    let bare: Arc<dyn Device> = Arc::new(MemoryDevice::new("bare", BYTES, 4096));
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.access = Access::Any;
    for (nsid, device) in [(1, bare), (2, pool.volume("a").unwrap())] {
        subsystem.namespaces.push(NamespaceConfig { nsid, device, uuid: None });
    }
    let mut config = TargetConfig::default();
    config.limits.workers = 1;
    config.portals.push(PortalConfig::new("127.0.0.1:0".parse().unwrap()));
    config.subsystems.push(subsystem);
    let target = Target::start(&config).unwrap();
    let rates = |nsid| {
        let reach = InitiatorConfig::new(target.addresses(), NQN, nsid).unwrap();
        let device = Initiator::open(reach).unwrap();
        rate(&device, true, 128 << 10, false); // so that everything is written
        let writes = rate(&device, true, 4096, true);
        let reads = rate(&device, false, 4096, true);
        let in_order = rate(&device, true, 128 << 10, false) * 128.0 / 1e6 * 1.024;
        [reads, writes, in_order]
    };
    let (bare, volume) = (rates(1), rates(2));
    for (name, (bare, volume)) in ["reads a second", "writes a second", "GB/s written in order"]
        .iter()
        .zip(bare.iter().zip(&volume))
    {
        println!(
            "{name}: {volume:.2} of a volume, {bare:.2} of a bare device: {:.2}",
            volume / bare
        );
    }
    pool.check().unwrap();
}
