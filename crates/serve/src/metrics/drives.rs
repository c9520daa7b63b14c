//! Modelled drives: bytes written by the host and to the media, and how much of their life is used.

use std::sync::Arc;

use esker_flash::ssd::Report;
use esker_stack::Stack;

use super::{Collector, Families};

/// The collector: the modelled drives of a stack.
pub(crate) struct Drives(pub(crate) Arc<Stack>);

impl Collector for Drives {
    fn collect(&self, families: &mut Families) {
        let drives = self.0.drives();
        let reports: Vec<(String, Report)> =
            drives.iter().map(|drive| (drive.name().to_owned(), drive.report())).collect();
        drop(drives);
        for (name, report) in &reports {
            written(families, name, report);
            units(families, name, report);
        }
    }
}

fn written(families: &mut Families, drive: &str, report: &Report) {
    let one = || [drive.to_owned()];
    let about =
        ("esker_drive_host_written_bytes_total", "Bytes that hosts wrote to the drive", ["drive"]);
    families.counters(about, [(one(), report.host_written_bytes)]);
    let page = u64::from(report.parameters.page_size);
    let causes = [("host", report.pages.host), ("cleaning", report.pages.copied)];
    let causes = causes.map(|(cause, pages)| ([drive.to_owned(), cause.to_owned()], pages * page));
    let help = "Bytes written to the media, by cause";
    families.counters(("esker_drive_media_written_bytes_total", help, ["drive", "cause"]), causes);
    let about = ("esker_drive_trimmed_bytes_total", "Bytes of pages that hosts trimmed", ["drive"]);
    families.counters(about, [(one(), report.pages.trimmed * page)]);
    let help = "Media bytes for each byte of hosts, of the drive's whole life";
    let about = ("esker_drive_write_amplification_ratio", help, ["drive"]);
    families.gauges(about, [(one(), report.write_amplification())]);
    let help = "The mean share of the rated erasures that is used up";
    let about = ("esker_drive_life_used_ratio", help, ["drive"]);
    families.gauges(about, [(one(), report.used_percent() / 100.0)]);
}

fn units(families: &mut Families, drive: &str, report: &Report) {
    let one = || [drive.to_owned()];
    let erasures = report.wear.iter().map(|(count, units)| u64::from(*count) * u64::from(*units));
    let about = ("esker_drive_erasures_total", "Erasures of reclaim units", ["drive"]);
    families.counters(about, [(one(), erasures.sum::<u64>())]);
    let most = report.wear.last().map_or(0, |(count, _)| *count);
    let help = "Erasures of the reclaim unit that was erased most often";
    families.gauges(("esker_drive_unit_erasures_highest", help, ["drive"]), [(one(), most)]);
    let open: u32 = report.writers.iter().map(|(_, units)| units.open).sum();
    let closed: u32 = report.writers.iter().map(|(_, units)| units.closed).sum();
    let states = [("free", report.free_units), ("open", open), ("closed", closed)];
    let states = states.map(|(state, units)| ([drive.to_owned(), state.to_owned()], units));
    families.gauges(("esker_drive_units", "Reclaim units, by state", ["drive", "state"]), states);
}
