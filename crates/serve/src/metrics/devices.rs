//! Devices by name: the traffic of each, and those under it.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::{Device, DeviceStats};
use parking_lot::Mutex;

use super::{Collector, Families};

/// Reader of the traffic of devices; it returns none once they are closed.
type Read = Box<dyn Fn() -> Vec<DeviceStats> + Send + Sync>;

/// The collector: devices, and those they stand on.
pub(crate) struct Devices(Read);

/// Devices that are used now; they may change.
#[derive(Clone, Default)]
pub(crate) struct Roots(Arc<Mutex<Vec<Arc<dyn Device>>>>);

impl Roots {
    /// These are used from now on, and no others.
    pub(crate) fn set(&self, devices: Vec<Arc<dyn Device>>) {
        *self.0.lock() = devices;
    }
}

impl Devices {
    /// Devices whose statistics a function reads.
    pub(crate) fn told(
        read: impl Fn() -> Vec<DeviceStats> + Send + Sync + 'static,
    ) -> Box<dyn Collector> {
        Box::new(Devices(Box::new(read)))
    }

    /// Some devices, which the collector keeps open.
    pub(crate) fn of(devices: Vec<Arc<dyn Device>>) -> Box<dyn Collector> {
        Devices::told(move || devices.iter().map(|device| device.stats()).collect())
    }

    /// Devices that may change.
    pub(crate) fn changing(roots: Roots) -> Box<dyn Collector> {
        Devices::told(move || {
            let devices = roots.0.lock().clone();
            devices.iter().map(|device| device.stats()).collect()
        })
    }
}

/// A figure of a device.
type Figure = fn(&DeviceStats) -> u64;

const FIGURES: [(&str, &str, Figure); 9] = [
    ("esker_device_reads_total", "Completed reads", |one| one.reads),
    ("esker_device_writes_total", "Completed writes", |one| one.writes),
    ("esker_device_flushes_total", "Completed flushes", |one| one.flushes),
    ("esker_device_discards_total", "Completed discards and zeroes", |one| one.discards),
    ("esker_device_read_bytes_total", "Bytes read", |one| one.read_bytes),
    ("esker_device_written_bytes_total", "Bytes written", |one| one.written_bytes),
    ("esker_device_discarded_bytes_total", "Bytes discarded or zeroed", |one| one.discarded_bytes),
    (
        "esker_device_media_written_bytes_total",
        "Bytes written to the medium; those of the host where the device cannot tell",
        |one| one.media_written_bytes,
    ),
    ("esker_device_errors_total", "Commands that failed", |one| one.errors),
];

impl Collector for Devices {
    fn collect(&self, families: &mut Families) {
        let roots = (self.0)();
        let mut all = Vec::new();
        roots.iter().for_each(|root| flatten(root, 0, &mut all));
        let named = named(&all);
        for (name, help, figure) in FIGURES {
            let values = named.iter().map(|(labels, stats)| (labels.clone(), figure(stats)));
            families.counters((name, help, ["device", "level"]), values);
        }
    }
}

/// A device and those under it, each with its level: 0 is the one that the process uses.
fn flatten<'a>(one: &'a DeviceStats, level: u32, into: &mut Vec<(u32, &'a DeviceStats)>) {
    into.push((level, one));
    one.below.iter().for_each(|below| flatten(below, level + 1, into));
}

/// Devices with their labels. Several of one name, such as memory of one size, are told apart by a number.
fn named<'a>(all: &[(u32, &'a DeviceStats)]) -> Vec<([String; 2], &'a DeviceStats)> {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let label = |&(level, stats): &(u32, &'a DeviceStats)| {
        let count = seen.entry(&stats.name).or_default();
        *count += 1;
        let name = match *count {
            1 => stats.name.clone(),
            number => format!("{} ({number})", stats.name),
        };
        ([name, level.to_string()], stats)
    };
    all.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(name: &str, reads: u64, below: Vec<DeviceStats>) -> DeviceStats {
        DeviceStats { name: name.to_owned(), reads, below, ..DeviceStats::default() }
    }

    #[test]
    fn devices_below_have_levels_and_equal_names_numbers() {
        let tree =
            || vec![stats("stripe", 9, vec![stats("mem", 4, vec![]), stats("mem", 5, vec![])])];
        let mut families = Families::default();
        Devices::told(tree).collect(&mut families);
        let text = families.text().unwrap();
        for line in [
            "esker_device_reads_total{device=\"stripe\",level=\"0\"} 9",
            "esker_device_reads_total{device=\"mem\",level=\"1\"} 4",
            "esker_device_reads_total{device=\"mem (2)\",level=\"1\"} 5",
        ] {
            assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
        }
    }
}
