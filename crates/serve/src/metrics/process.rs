//! This process: its version and its use of the machine.

use super::families::seconds;
use super::{Collector, Families};
use crate::process;

/// The collector.
pub(super) struct Process {
    pub(super) commit: &'static str,
}

impl Collector for Process {
    fn collect(&self, families: &mut Families) {
        let about =
            ("esker_build_info", "Always 1; the labels say what runs", ["version", "commit"]);
        let labels = [env!("CARGO_PKG_VERSION"), self.commit].map(str::to_owned);
        families.gauges(about, [(labels, 1u64)]);
        if let Some(ns) = process::cpu_ns() {
            let help = "CPU time of the process, user and system";
            families.counter("process_cpu_seconds_total", help, seconds(ns));
        }
        if let Some(bytes) = process::rss_bytes() {
            families.gauge("process_resident_memory_bytes", "Resident memory", bytes);
        }
    }
}
