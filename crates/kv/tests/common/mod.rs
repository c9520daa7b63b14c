//! Helpers that the engine's tests share.
#![allow(dead_code)] // each test binary uses its part

pub(crate) mod groups;
pub(crate) mod oracle;
pub(crate) mod records;
pub(crate) mod sample;
pub(crate) mod script;
pub(crate) mod shaped;
pub(crate) mod sparse;

use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Device, MemoryDevice, Port};
use esker_kv::{
    BackupReport, CheckReport, KvError, Kvdb, Location, Maintenance, Medium, Options, Remains,
    RepairReport, Tuning,
};
use esker_sim::{FaultDevice, FaultPlan};

/// The devices of a KVDB without a directory.
#[derive(Clone)]
pub(crate) struct Devices {
    pub(crate) manifest: Arc<dyn Device>,
    pub(crate) capacity: Arc<dyn Device>,
    pub(crate) staging: Option<Arc<dyn Device>>,
}

impl Devices {
    pub(crate) fn location(&self) -> Location {
        let location = Location::devices(self.manifest.clone(), self.capacity.clone());
        match &self.staging {
            Some(staging) => location.staging(Medium::device(staging.clone())),
            None => location,
        }
    }
}

/// The entrances for such devices.
pub(crate) trait OnDevices: Sized {
    fn create_on(devices: Devices, options: Options) -> Result<Self, KvError>;
    fn open_on(devices: Devices, options: Options) -> Result<Self, KvError>;
    fn check_on(devices: &Devices) -> Result<CheckReport, KvError>;
    fn repair_on(
        remains: &Remains,
        devices: &Devices,
        options: Options,
    ) -> Result<RepairReport, KvError>;
    fn backup_on(&self, devices: &Devices) -> Result<BackupReport, KvError>;
    fn add_staging_device(&self, device: Arc<dyn Device>) -> Result<(), KvError>;
}

impl OnDevices for Kvdb {
    fn create_on(devices: Devices, options: Options) -> Result<Kvdb, KvError> {
        Kvdb::builder(devices.location()).options(options).create()
    }

    fn open_on(devices: Devices, options: Options) -> Result<Kvdb, KvError> {
        Kvdb::builder(devices.location()).options(options).open()
    }

    fn check_on(devices: &Devices) -> Result<CheckReport, KvError> {
        Kvdb::builder(devices.location()).check()
    }

    fn repair_on(
        remains: &Remains,
        devices: &Devices,
        options: Options,
    ) -> Result<RepairReport, KvError> {
        Kvdb::builder(devices.location()).options(options).repair(remains)
    }

    fn backup_on(&self, devices: &Devices) -> Result<BackupReport, KvError> {
        self.backup(&devices.location())
    }

    fn add_staging_device(&self, device: Arc<dyn Device>) -> Result<(), KvError> {
        self.add_staging(&Medium::device(device))
    }
}

/// All that is left of a KVDB on these devices: everything.
pub(crate) fn remains(devices: &Devices) -> Remains {
    devices.location().remains().unwrap()
}

/// The same without the manifest.
pub(crate) fn without_manifest(devices: &Devices) -> Remains {
    let mut remains = remains(devices);
    remains.manifest = None;
    remains
}

/// Does it with these devices, or without the one for staging when that class has been taken away.
pub(crate) fn with_what_is_left<T>(
    devices: &Devices,
    run: impl Fn(&Devices) -> Result<T, KvError>,
) -> Result<T, KvError> {
    match run(devices) {
        Err(KvError::Options(_)) if devices.staging.is_some() => {
            run(&Devices { staging: None, ..devices.clone() })
        }
        result => result,
    }
}

/// Devices in memory, whose names begin like that: manifest, capacity and staging of so many bytes.
pub(crate) fn in_memory(prefix: &str, bytes: [u64; 3]) -> Devices {
    let [manifest, capacity, staging] = bytes;
    let device = |name: &str, bytes: u64| -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new(&format!("{prefix}{name}"), bytes, 512))
    };
    Devices {
        manifest: device("manifest", manifest),
        capacity: device("capacity", capacity),
        staging: Some(device("staging", staging)),
    }
}

/// The same devices, of which each command is counted, and may fail.
pub(crate) fn faulty(devices: &Devices, plan: &FaultPlan) -> Devices {
    let wrap = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
        Arc::new(FaultDevice::new(device.clone(), plan))
    };
    Devices {
        manifest: wrap(&devices.manifest),
        capacity: wrap(&devices.capacity),
        staging: devices.staging.as_ref().map(wrap),
    }
}

/// All bytes of a device.
pub(crate) fn bytes_of(device: &dyn Device) -> AlignedBuf {
    let geometry = device.geometry();
    let room = AlignedBuf::zeroed(to_usize(geometry.capacity.bytes(geometry.lba_size)));
    Port::open(device, 1).unwrap().read(Lba(0), room).unwrap()
}

/// The LBAs of a device that hold something.
pub(crate) fn used(device: &dyn Device) -> Vec<u64> {
    let lba_size = device.geometry().lba_size as usize;
    let all = bytes_of(device);
    let lbas = all.chunks(lba_size).zip(0..);
    lbas.filter(|(bytes, _)| bytes.iter().any(|byte| *byte != 0)).map(|(_, lba)| lba).collect()
}

/// Where the records of a manifest's newest epoch begin, in their order.
pub(crate) fn newest_records(manifest: &dyn Device) -> Vec<u64> {
    let (bytes, lba_size) = (bytes_of(manifest), manifest.geometry().lba_size as usize);
    let records = bytes.chunks(lba_size).zip(0..).filter(|(lba, _)| lba.starts_with(b"ESKMANIF"));
    let epoch = |lba: &[u8]| u64::from_le_bytes(lba[16..24].try_into().unwrap());
    let records: Vec<(u64, u64)> = records.map(|(bytes, lba)| (epoch(bytes), lba)).collect();
    let newest = records.iter().map(|(epoch, _)| *epoch).max().unwrap();
    records.into_iter().filter(|(epoch, _)| *epoch == newest).map(|(_, lba)| lba).collect()
}

/// Changes an LBA on the medium.
pub(crate) fn edit(device: &dyn Device, lba: u64, change: impl FnOnce(&mut [u8])) {
    let mut port = Port::open(device, 1).unwrap();
    let room = AlignedBuf::zeroed(device.geometry().lba_size as usize);
    let mut buf = port.read(Lba(lba), room).unwrap();
    change(&mut buf);
    port.write(Lba(lba), buf, None).unwrap();
}

/// Parts so small that a few hundred writes go through every kind of maintenance.
pub(crate) fn small_tuning() -> Tuning {
    Tuning {
        memtable_bytes: 48 << 10,
        block_bytes: 64 << 10,
        frame_bytes: 8 << 10,
        key_extent_bytes: 16 << 10,
        allocation_bytes: 4 << 10,
        root_kvsets: 3,
        spill_bytes: 144 << 10,
        compact_kvsets: 4,
        leaf_key_bytes: 96 << 10,
        gather_bytes: 32 << 10,
        workers: 1,
    }
}

/// Parts of a few MiB: values of tens of MiB fill several.
pub(crate) fn medium_tuning() -> Tuning {
    Tuning {
        memtable_bytes: 1 << 20,
        spill_bytes: 4 << 20,
        leaf_key_bytes: 4 << 20,
        block_bytes: 4 << 20,
        key_extent_bytes: 256 << 10,
        gather_bytes: 1 << 20,
        ..small_tuning()
    }
}

/// One step at a time, on a clock that the test moves.
pub(crate) fn test_options(tuning: Tuning) -> Options {
    Options::default().with(|set| {
        set.memory_bytes = 4 << 20;
        set.durability.bytes = 64 << 10;
        set.maintenance = Maintenance::Manual;
        set.clock = Clock::virtual_time();
        set.tuning = Some(tuning);
    })
}

/// Parts so small that a few dozen do.
pub(crate) fn tiny_tuning() -> Tuning {
    Tuning {
        memtable_bytes: 10 << 10,
        block_bytes: 16 << 10,
        frame_bytes: 2 << 10,
        key_extent_bytes: 8 << 10,
        root_kvsets: 2,
        spill_bytes: 20 << 10,
        compact_kvsets: 3,
        leaf_key_bytes: 14 << 10,
        ..small_tuning()
    }
}
