//! A drive that the host manages, beside a conventional one of the same NAND: times of 4 KiB reads, and the worth of
//! both to a program. The program has four times as much data as memory. All times are virtual; if a machine is given
//! to measure on, the pager runs on its drives, too.
//!
//! | module | content |
//! | --- | --- |
//! | `options` | [`HostSsdOptions`] |
//! | `drive` | the drives, filled and at rest |
//! | `latency` | distributions of read latency by depth |
//! | `paging` | a program that is paged: threads, faults, reading ahead |
//! | `account` | the steps from one drive and its paging to the other |
//! | [`devices`] | devices that the user names, read beside the models in their own time |
//! | [`installed`] | the pager on a machine's drives, in real time |
//! | [`report`] | [`HostSsdFigures`], and the rows of its tables |
//! | `html` | the same as a document |
//!
//! The source is Fujitsu's article on a software-controlled SSD, which names its drive's rates, a figure for the
//! conventional drive, and two factors. Everything else is a published figure about other parts, or an assumption;
//! none was chosen by its result.

mod account;
pub mod devices;
mod drive;
mod html;
pub mod installed;
mod latency;
mod options;
mod paging;
pub mod report;
#[cfg(test)]
mod tests;

use esker_report::{Page, Verdict};

use crate::LabError;
use crate::steps::Steps;
use crate::study::{About, Follow, Study};
use installed::InstalledOptions;
pub use options::HostSsdOptions;
pub use paging::{Costs, Outcome};
pub use report::HostSsdFigures;

/// The devices and the programs of this machine that are measured beside the models.
#[derive(Default)]
pub struct HostMachine<'a> {
    /// Devices that are read.
    pub devices: Vec<devices::ReadDevice>,
    /// The pager on a drive of this machine.
    pub installed: Option<(InstalledOptions, &'a mut (dyn installed::WayBench + 'a))>,
}

/// The study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSsd;

impl Study for HostSsd {
    const ABOUT: About = About {
        name: "host-ssd",
        format: "esker-host-ssd/3",
        system: "Fujitsu's software-controlled SSD",
        purpose: "The host knows which chips of a drive are busy, and reads from the others: latency is short and \
                  even enough to hold memory that no longer fits into DRAM.",
        minutes: (3, 8),
        programs: &[],
        needs_root: false,
    };

    type Options = HostSsdOptions;
    type Machine<'a> = HostMachine<'a>;
    type Figures = HostSsdFigures;

    fn check(options: &HostSsdOptions) -> Result<(), LabError> {
        options.check()
    }

    fn run(
        options: &HostSsdOptions,
        machine: &mut HostMachine<'_>,
        follow: &mut Follow<'_>,
    ) -> Result<HostSsdFigures, LabError> {
        // First: a device that fails is said before models run for long.
        let devices = devices::measure(options, &machine.devices, follow)?;
        let count = latency::runs(options) + account::runs(options);
        let mut steps = Steps::new(follow, count);
        let depths = latency::measure(options, &mut steps)?;
        let within = latency::depth_within(options, &mut steps)?;
        let account = account::measure(options, &mut steps)?;
        let sensitivity = account::sensitivity(options, &mut steps)?;
        if depths.is_empty() && devices.is_empty() {
            return Err(LabError::Interrupted);
        }
        let is_interrupted = steps.is_interrupted();
        let mut figures = HostSsdFigures::new(options, depths, within, account, sensitivity)?;
        figures.add_devices(options, devices);
        if let Some((options, bench)) = machine.installed.as_mut().filter(|_| !is_interrupted) {
            match installed::run(options, &mut **bench, follow) {
                Err(LabError::Interrupted) => {}
                found => figures.add_installed(found?),
            }
        }
        Ok(figures)
    }

    fn verdicts(figures: &HostSsdFigures) -> Vec<Verdict> {
        let installed = figures.installed.iter().flat_map(installed::verdicts);
        report::verdicts(figures).into_iter().chain(installed).collect()
    }

    fn document(figures: &HostSsdFigures) -> Page {
        figures.document()
    }
}
