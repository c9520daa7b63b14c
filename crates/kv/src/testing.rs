//! Helpers that the engine's unit tests share.

use std::sync::Arc;

use esker_base::Clock;
use esker_device::{Device, MemoryDevice};

use crate::api::kvdb::Kvdb;
use crate::api::kvs::Kvs;
use crate::api::location::{Location, Medium};
use crate::recover::devices::Devices;
use crate::types::options::{Maintenance, Options, Tuning};
use crate::types::policy::Policy;

/// A KVDB in memory with a KVS and small blocks, on which nothing happens by itself, and its clock.
pub(crate) fn kvdb() -> (Kvdb, Kvs, Clock) {
    kvdb_with(|device| device)
}

/// The same, on devices that are wrapped.
pub(crate) fn kvdb_with(wrap: impl Fn(Arc<dyn Device>) -> Arc<dyn Device>) -> (Kvdb, Kvs, Clock) {
    let device = |name| wrap(device(name));
    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    kvdb_on(devices, small_blocks())
}

/// Small blocks, and other sizes that suit a budget of 16 MiB.
pub(crate) fn small_blocks() -> Tuning {
    Tuning { block_bytes: 64 << 10, ..Tuning::for_budget(16 << 20) }
}

/// Memory of 16 MiB.
pub(crate) fn device(name: &str) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, 16 << 20, 512))
}

/// The same, on these devices.
pub(crate) fn kvdb_on(devices: Devices, tuning: Tuning) -> (Kvdb, Kvs, Clock) {
    let clock = Clock::virtual_time();
    let options = Options {
        maintenance: Maintenance::Manual,
        clock: clock.clone(),
        memory_bytes: 16 << 20,
        tuning: Some(tuning),
        ..Options::default()
    };
    let db = Kvdb::create_on(devices, options).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    (db, kvs, clock)
}

impl Devices {
    /// The location that they are.
    pub(crate) fn location(&self) -> Location {
        let location = Location::devices(self.manifest.clone(), self.capacity.clone());
        match &self.staging {
            Some(staging) => location.staging(Medium::device(staging.clone())),
            None => location,
        }
    }
}
