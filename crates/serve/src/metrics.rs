//! Metrics of this process for Prometheus: one exporter, and a collector for each kind of thing that runs.
//!
//! | module | content |
//! | --- | --- |
//! | `exporter` | [`Exporter`]: the server of `/metrics` |
//! | `families` | [`Families`]: names, labels and values, and how they become text |
//! | `process` | this process |
//! | `devices`, `drives` | devices by name, and modelled drives |
//! | `engine`, `cache`, `pager` | a KVDB, the caches of a stack, a pager |
//!
//! The collectors of a target and of a pool lie in their rooms. Names follow the conventions of Prometheus: base units
//! (`_bytes`, `_seconds`, `_ratio`), counters end in `_total`. `docs/metrics.md` lists all of them, and
//! `tests/metrics/run` compares that list with the metrics of processes.
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
pub use exporter::{Exporter, Page};
pub use families::Families;
pub use pager::Paging;

/// The collectors of a process that uses one device.
#[must_use]
pub fn of_device(device: Arc<dyn Device>, stack: &Arc<Stack>) -> Vec<Box<dyn Collector>> {
    let mut collectors = of_stack(stack);
    collectors.push(Devices::of(vec![device]));
    collectors
}

/// The collectors of a process that has a KVDB open, on devices of a stack where they are no paths.
#[must_use]
pub fn of_kvdb(db: &Kvdb, stack: &Arc<Stack>) -> Vec<Box<dyn Collector>> {
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
pub trait Collector: Send + Sync {
    /// Adds its metrics to the others' families.
    fn collect(&self, families: &mut Families);
}

#[cfg(test)]
mod tests {
    use esker_device::Create;
    use esker_stack::Spec;

    use super::*;

    fn text(collectors: &[Box<dyn Collector>]) -> String {
        let mut families = Families::default();
        collectors.iter().for_each(|one| one.collect(&mut families));
        families.text().unwrap()
    }

    #[track_caller]
    fn assert_lines(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|one| one == *line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn kvdb_is_told_while_it_is_open() {
        let scratch = tempfile::tempdir().unwrap();
        let db = Kvdb::builder(scratch.path().join("db")).create().unwrap();
        let kvs = db.create_kvs("users", esker_kv::Policy::default()).unwrap();
        kvs.put(b"k", b"v").unwrap();
        let collectors = of_kvdb(&db, &Arc::new(Stack::new()));
        let told = text(&collectors);
        let lines = [
            "esker_kv_operations_total{operation=\"put\"} 1",
            "esker_kv_user_written_bytes_total 2",
            "esker_kv_kvs_leaves{kvs=\"users\"} 1",
            "esker_kv_stopped 0",
        ];
        assert_lines(&told, &lines);
        assert!(told.contains("esker_kv_written_bytes_total{class=\"capacity\",stream=\"log\"}"));
        assert!(told.contains("esker_device_written_bytes_total{device=\""), "{told}");
        db.close().unwrap();
        assert_eq!(text(&collectors), "");
    }

    #[test]
    fn devices_drives_and_caches_of_a_stack_are_told_by_name() {
        let stack = Arc::new(Stack::new());
        let spec = "cache:(mem:64MiB)?flash=(ssd:micron-7450?capacity=1GiB&time=none)&mode=wb";
        let opened = stack.open(&spec.parse::<Spec>().unwrap(), Create::Never).unwrap();
        let told = text(&of_device(opened.device.clone(), &stack));
        let cache = opened.device.name();
        let lines = [
            &*format!("esker_cache_hits_total{{cache=\"{cache}\",operation=\"read\"}} 0"),
            &*format!("esker_device_reads_total{{device=\"{cache}\",level=\"0\"}} 0"),
            "esker_drive_life_used_ratio{drive=\"micron-7450\"} 0",
        ];
        assert_lines(&told, &lines);
        assert!(
            told.contains("esker_device_written_bytes_total{device=\"micron-7450/1\",level=\"1\"}"),
            "{told}"
        );
        drop(opened);
    }
}
