//! Results of the study, as text and JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use esker_base::units::human_bytes;
use esker_report::Verdict;
use serde::{Deserialize, Serialize};

use super::disk::Times;
use super::real::RealReport;
use super::results::{COLUMNS, WorkloadResult};
use super::verdict;

/// Version of the JSON; it changes with the form.
const FORMAT: &str = "esker-flash-cache/4";

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlashCacheReport {
    /// The form of this report.
    pub format: String,
    /// The title.
    pub title: String,
    /// The versions that are compared: name and description.
    pub versions: Vec<(String, String)>,
    /// The source's figures beside the results.
    pub verdicts: Vec<Verdict>,
    /// Results of all versions with each workload.
    pub workloads: Vec<WorkloadResult>,
    /// How long the modelled disk takes.
    pub times: Times,
    /// The measurements on devices, if any were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<RealReport>,
    /// Notes for readers.
    pub notes: Vec<String>,
    /// Where it was run.
    pub environment: BTreeMap<String, String>,
    /// How.
    pub command: String,
}

impl FlashCacheReport {
    pub(crate) fn new(
        versions: Vec<(String, String)>,
        workloads: Vec<WorkloadResult>,
        times: Times,
        notes: Vec<String>,
    ) -> FlashCacheReport {
        let mut all = vec![
            "Flashcache in 2013 (\"Flashcache at Facebook: From 2010 to 2013 and beyond\", Domas \
             Mituzas, 2013) reports for its databases: half of the cache caused 80 % of the disk's \
             operations, then 50 %; about 40 % fewer disk reads; about 75 % fewer disk writes."
                .to_owned(),
            "What is counted here is a simulation of the cache's policies and sets, without \
             concurrency; what is dirty at the end is written back."
                .to_owned(),
            "The optimum is one of hits, and evicts without regard to what lies together: of the disk's \
             commands it may need more than others."
                .to_owned(),
            "Disk time is a sum: each command takes the mean time of a random one on the model, each \
             further block the time in which it passes under the head."
                .to_owned(),
        ];
        all.extend(notes);
        FlashCacheReport {
            format: FORMAT.to_owned(),
            title: "A flash cache, then and now".to_owned(),
            versions,
            verdicts: workloads.iter().flat_map(verdict::of_workload).collect(),
            workloads,
            times,
            real: None,
            notes: all,
            environment: BTreeMap::new(),
            command: String::new(),
        }
    }

    /// The report for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}\n\n", self.title);
        let width = self.versions.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, what) in &self.versions {
            let _ = writeln!(text, "  {name:<width$}  {what}");
        }
        let Times { disk, read_ns, write_ns, block_ns } = &self.times;
        let _ = writeln!(
            text,
            "\n{disk}: {:.2} ms a random read of 4 KiB, {:.2} ms a write, {:.1} µs a further block",
            read_ns / 1e6,
            write_ns / 1e6,
            block_ns / 1e3
        );
        for workload in &self.workloads {
            let _ = writeln!(text, "\n{}: {}\n", workload.name, workload.line());
            for one in verdict::of_workload(workload) {
                text.push_str(&one.text());
            }
            for size in &workload.sizes {
                let (bytes, percent) = (human_bytes(size.cache_bytes), size.percent);
                let _ = writeln!(text, "\n  a cache of {bytes} ({percent} %)");
                text.push_str(&aligned(&size.rows()));
                let points: Vec<String> = size
                    .by_percentile
                    .iter()
                    .map(|point| format!("{} {:.1}", point.percentile, point.hit_ratio * 100.0))
                    .collect();
                let _ =
                    writeln!(text, "  hits in % by insertion percentile: {}", points.join(", "));
            }
        }
        text.push_str(&self.real.as_ref().map(RealReport::table).unwrap_or_default());
        text.push('\n');
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// The report as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a JSON form")
    }
}

/// Columns as wide as their widest cell.
fn aligned(rows: &[[String; 11]]) -> String {
    let head = COLUMNS.map(str::to_owned);
    let all: Vec<&[String; 11]> = std::iter::once(&head).chain(rows).collect();
    let width =
        |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 11] = std::array::from_fn(width);
    let mut text = String::new();
    for row in all {
        let mut line = format!("  {:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
