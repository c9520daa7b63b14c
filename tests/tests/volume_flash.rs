//! Pooled volumes over modelled drives: bytes written to flash for each byte that a user writes, with the engine as the
//! user and a network between.
//!
//! `cargo test --release -p esker-tests --test volume_flash -- --ignored --nocapture`

use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, Rng};
use esker_device::fdp::Isolation;
use esker_device::{Device, DeviceError, DeviceStats, Geometry, MemoryDevice, QueuePair};
use esker_flash::drive::Configuration;
use esker_flash::{Pace, Parameters, Profile, Ssd};
use esker_kv::{Kvdb, KvsOptions, Location, Options};
use esker_nvmf::target::{
    Access, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_nvmf::{Initiator, InitiatorConfig};
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeOptions};

const NQN: &str = "nqn.2026-01.io.esker:tank:db";
const RECORDS: u64 = 20_000;
const DRIVE_BYTES: u64 = 18 << 20;
const UNIT_BYTES: u64 = 512 << 10;

/// A drive with eight placement handles and some 14 % of spare flash.
fn drive(name: &str) -> (Ssd, Arc<dyn Device>) {
    let base = Profile::find("micron-7450").unwrap().ssd().cloned().unwrap();
    let units = u32::try_from(DRIVE_BYTES * 1145 / 1000 / UNIT_BYTES).unwrap();
    let parameters = Parameters {
        capacity: DRIVE_BYTES,
        lba_size: 4096,
        page_size: 4096,
        nand_page_size: 4096,
        program_size: 4096,
        unit_size: UNIT_BYTES,
        // As the handles take one unit each, and cleaning two more.
        units: units + 8 + 2,
        configurations: vec![Configuration { groups: 1, handles: vec![Isolation::Initially; 8] }],
        wear_spread: None,
        ..base
    };
    let ssd = Ssd::new(name, &parameters, Pace::untimed()).unwrap();
    ssd.enable_placement(Some(0)).unwrap();
    let handles: Vec<u16> = (0..8).collect();
    let id = ssd.create_namespace(DRIVE_BYTES, Some(&handles)).unwrap();
    let namespace = Arc::new(ssd.namespace(id).unwrap());
    (ssd, namespace)
}

/// A volume that keeps its placement handles to itself.
struct Plain(Arc<dyn Device>);

impl Device for Plain {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn geometry(&self) -> Geometry {
        Geometry { placement_handles: 0, ..self.0.geometry() }
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.0.queue_pair(depth)
    }
    fn discards_zero(&self) -> bool {
        self.0.discards_zero()
    }
    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

/// Bytes written to flash, by the pool to its drives, and by the engine to its volume, while records are overwritten.
struct Written {
    flash: u64,
    pool: u64,
    engine: u64,
}

#[allow(clippy::cast_precision_loss)]
impl Written {
    fn factor(&self) -> f64 {
        self.flash as f64 / self.engine as f64
    }

    fn print(&self, name: &str) {
        let pool = self.pool as f64 / self.engine as f64;
        let drives = self.flash as f64 / self.pool as f64;
        println!(
            "{name}: {:.3} = {pool:.3} of the pool × {drives:.3} of the drives",
            self.factor()
        );
    }
}

/// The engine on a volume over NVMe/TCP, over four drives one of which may be lost; random overwrites.
fn run(has_handles: bool) -> Written {
    let (ssds, drives): (Vec<Ssd>, Vec<Arc<dyn Device>>) =
        (0..4).map(|n| drive(&format!("ssd{n}"))).unzip();
    let create = CreateOptions {
        name: "tank".to_owned(),
        chunk_bytes: UNIT_BYTES / 4,
        unit_bytes: 4 << 10,
        log_bytes: 256 << 10,
        root_bytes: Some(256 << 10),
        seed: Some(1),
        ..CreateOptions::default()
    };
    // The write buffer is elsewhere, so that the drives are written by destaging, cleaning and checkpoints alone.
    let buffer = |n| MemoryDevice::new(&format!("buffer{n}"), 8 << 20, 4096);
    let buffers = (0..2).map(|n| Arc::new(buffer(n)) as Arc<dyn Device>);
    let buffers: Vec<_> = buffers.collect();
    Pool::create(&drives, &buffers, &create).unwrap();
    let members = [drives.clone(), buffers].concat();
    let open = OpenOptions { maintenance: Maintenance::Thread, ..OpenOptions::default() };
    let pool = Pool::open(&members, open).unwrap();
    let raw = VolumeOptions { compression: false, ..VolumeOptions::default() };
    pool.create_volume("db", 34 << 20, raw).unwrap();
    let volume = pool.volume("db").unwrap();
    let device = if has_handles { volume } else { Arc::new(Plain(volume)) as Arc<dyn Device> };
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.access = Access::Any;
    subsystem.namespaces.push(NamespaceConfig { nsid: 1, device, uuid: None });
    let mut config = TargetConfig::default();
    config.portals.push(PortalConfig::new("127.0.0.1:0".parse().unwrap()));
    config.subsystems.push(subsystem);
    let target = Target::start(&config).unwrap();
    let reach = InitiatorConfig {
        timeout: Duration::from_secs(60),
        ..InitiatorConfig::new(target.addresses(), NQN, 1).unwrap()
    };
    let remote = Arc::new(Initiator::open(reach).unwrap());
    assert_eq!(remote.geometry().placement_handles, if has_handles { 4 } else { 0 });
    let manifest = Arc::new(MemoryDevice::new("manifest", 16 << 20, 4096));
    let location = Location::devices(manifest, remote.clone());
    let options = Options::default().with(|set| {
        set.memory_bytes = 16 << 20;
        set.maintenance = esker_kv::Maintenance::Manual;
        set.clock = Clock::virtual_time();
    });
    let db = Kvdb::builder(location).options(options).create().unwrap();
    let kvs = db.create_kvs("a", KvsOptions::default()).unwrap();
    let mut rng = Rng::new(1);
    let mut put = |key: u64| {
        let mut value = [0; 1000];
        rng.fill(&mut value);
        kvs.put(key.to_be_bytes(), value).unwrap();
        if key.is_multiple_of(8) {
            while db.step().unwrap() {}
        }
    };
    (0..RECORDS).for_each(&mut put);
    let mut keys = Rng::new(2);
    // Four fifths of the writes go to a fifth of the records.
    let mut overwrite = |count: u64| {
        for _ in 0..count {
            let hot = keys.chance(4, 5);
            put(if hot { keys.below(RECORDS / 5) } else { keys.below(RECORDS) });
        }
    };
    let now = || Written {
        flash: ssds.iter().map(|ssd| ssd.report().media_written_bytes()).sum(),
        pool: drives.iter().map(|drive| drive.stats().written_bytes).sum(),
        engine: remote.stats().written_bytes,
    };
    overwrite(RECORDS / 2);
    let before = now();
    overwrite(RECORDS);
    let after = now();
    pool.check().unwrap();
    drop(db);
    Written {
        flash: after.flash - before.flash,
        pool: after.pool - before.pool,
        engine: after.engine - before.engine,
    }
}

#[test]
#[ignore = "a minute; prints figures"]
fn placement_handles_of_a_volume_save_writes_to_flash() {
    let (without, with) = (run(false), run(true));
    without.print("without handles");
    with.print("with handles");
    assert!(with.factor() < without.factor());
}
