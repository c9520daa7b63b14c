//! Metrics of this process for Prometheus: one exporter, and a collector for each kind of thing that runs.
//!
//! | module | what |
//! | --- | --- |
//! | `exporter` | [`Exporter`]: the server of `/metrics` |
//! | `families` | [`Families`]: names, labels and values, and how they become text |
//! | `process` | this process |
//! | `devices`, `drives` | devices by name, and modelled drives |
//! | `engine`, `cache`, `pager` | a KVDB, the caches of a stack, a pager |
//!
//! The collectors of a target and of a pool lie in their rooms. Names follow the conventions of Prometheus: base units
//! (`_bytes`, `_seconds`, `_ratio`), counters end in `_total`. `docs/metrics.md` lists all of them, and
//! `tests/metrics/run` compares that list with what processes say.
//!
//! Nothing is counted for Prometheus: a collector reads the figures that libraries keep anyway, when it is asked.

use std::sync::Arc;

use esker_device::Device;
use esker_kv::Kvdb;
use esker_stack::Stack;

mod cache;
mod devices;
mod drives;
mod engine;
mod exporter;
mod families;
mod pager;
mod process;

pub(crate) use cache::Caches;
pub(crate) use devices::{Devices, Roots};
pub(crate) use drives::Drives;
use engine::Engine;
pub(crate) use exporter::{Exporter, Page};
pub(crate) use families::{Buckets, Families};
pub(crate) use pager::Paging;

/// The collectors of a process that uses one device.
pub(crate) fn of_device(device: Arc<dyn Device>, stack: &Arc<Stack>) -> Vec<Box<dyn Collector>> {
    let mut collectors = of_stack(stack);
    collectors.push(Devices::of(vec![device]));
    collectors
}

/// The collectors of a process that has a KVDB open, on devices of a stack where they are no paths.
pub(crate) fn of_kvdb(db: &Kvdb, stack: &Arc<Stack>) -> Vec<Box<dyn Collector>> {
    let (figures, devices) = (db.observer(), db.observer());
    let mut collectors = of_stack(stack);
    collectors.push(Box::new(Engine(figures)));
    collectors.push(Devices::told(move || devices.devices().unwrap_or_default()));
    collectors
}

fn of_stack(stack: &Arc<Stack>) -> Vec<Box<dyn Collector>> {
    vec![Box::new(Drives(stack.clone())), Box::new(Caches(stack.clone()))]
}

/// Reads figures of one kind when it is asked.
pub(crate) trait Collector: Send {
    /// Adds what it has to the others' families.
    fn collect(&self, families: &mut Families);
}
