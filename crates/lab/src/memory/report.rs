//! The figures of the study, and their tables.

use esker_report::Table;
use serde::{Deserialize, Serialize};

use super::bench::Ended;
use super::figures::{PartResult, ProgramResult, SideResult, part_name, seconds};
use super::options::MemoryOptions;
use super::program::Side;
use crate::Spread;

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// Whether it was a short run.
    pub quick: bool,
    /// The median time of a read of 4 KiB from the drive, in microseconds.
    pub read_us: f64,
    /// The sides, in order.
    pub sides: Vec<Side>,
    /// Repetitions.
    pub rounds: u32,
    /// The programs that were run.
    pub programs: Vec<ProgramResult>,
    /// Programs that were left out, and why.
    pub skipped: Vec<String>,
    /// How it was measured: names and values.
    pub assumptions: Vec<(String, String)>,
}

impl MemoryFigures {
    pub(super) fn new(options: &MemoryOptions, read_us: f64) -> MemoryFigures {
        MemoryFigures {
            quick: options.quick,
            read_us,
            sides: options.sides.clone(),
            rounds: options.rounds,
            programs: Vec::new(),
            skipped: Vec::new(),
            assumptions: assumptions(options, read_us),
        }
    }

    /// The words of programs that failed, once for each side.
    pub(super) fn failures(&self) -> Vec<String> {
        let sides =
            self.programs.iter().flat_map(|one| one.sides.iter().map(move |side| (one, side)));
        let failed = sides.filter_map(|(one, side)| match side.bad_end()? {
            Ended::Failed(why) => Some(format!("{}, {}: {why}", one.program, side.side)),
            _ => None,
        });
        failed.collect()
    }

    /// All tables, with their titles; those without rows are left out.
    pub(super) fn tables(&self) -> Vec<(&'static str, Table)> {
        let of_sides = |first: &[&str], last: &[&str], rows: Vec<Vec<String>>| {
            let names = self.sides.iter().map(|side| side.name());
            let all = first.iter().copied().chain(names).chain(last.iter().copied());
            Table::of(all, rows)
        };
        let tables = [
            (SECONDS, of_sides(&["program", "plain"], &["times swap's speed"], self.second_rows())),
            ("Operations a second", of_sides(&["program", "plain"], &[], self.rate_rows())),
            (
                "Read back, MiB",
                of_sides(
                    &["program"],
                    &["Esker, of the faster swap"],
                    self.cost_rows(|_| None, |side| side.read_mib),
                ),
            ),
            (
                "Processor time, s",
                of_sides(
                    &["program", "plain"],
                    &["Esker, of the faster swap"],
                    self.cost_rows(|one| Some(one.plain.cpu_s), |side| side.cpu_s),
                ),
            ),
            (
                "Memory at most, MiB",
                of_sides(&["program", "plain", "budget", "limit of swap"], &[], self.memory_rows()),
            ),
        ];
        tables.into_iter().filter(|(_, table)| !table.rows.is_empty()).collect()
    }

    fn cells(&self, one: &ProgramResult, cell: impl Fn(&SideResult) -> String) -> Vec<String> {
        self.sides.iter().map(|&side| one.side(side).map_or(String::new(), &cell)).collect()
    }

    fn second_rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for one in &self.programs {
            for part in one.parts() {
                let plain = match part {
                    None => one.plain.wall_s,
                    Some(name) => {
                        let found = one.plain.phases.iter().find(|phase| phase.name == name);
                        found.map_or(0.0, |phase| phase.seconds)
                    }
                };
                let mut row = vec![part_name(one.program, part), format!("{plain:.1}")];
                row.extend(self.cells(one, |side| side.cell(seconds(side, part), 1)));
                row.push(one.speed(part).map_or(String::new(), |ratio| format!("{ratio:.2}")));
                rows.push(row);
            }
        }
        rows
    }

    #[allow(clippy::cast_precision_loss)] // counts, far below 2^53
    fn rate_rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for one in &self.programs {
            for phase in &one.plain.phases {
                let Some(count) = phase.operations else { continue };
                let plain = format!("{:.0}", count as f64 / phase.seconds.max(1e-9));
                let mut row = vec![part_name(one.program, Some(&phase.name)), plain];
                let of = |side: &SideResult, of: &dyn Fn(&PartResult) -> Option<Spread>| {
                    side.phases.iter().find(|found| found.name == phase.name).and_then(of)
                };
                row.extend(self.cells(one, |side| side.cell(of(side, &|found| found.per_s), 0)));
                rows.push(row);
                if let Some(us) = phase.p999_us {
                    let name = format!("{}, 99.9 %, µs", part_name(one.program, Some(&phase.name)));
                    let mut row = vec![name, format!("{us:.0}")];
                    row.extend(
                        self.cells(one, |side| side.cell(of(side, &|found| found.p999_us), 0)),
                    );
                    rows.push(row);
                }
            }
        }
        rows
    }

    fn cost_rows(
        &self,
        plain: impl Fn(&ProgramResult) -> Option<f64>,
        of: fn(&SideResult) -> Option<Spread>,
    ) -> Vec<Vec<String>> {
        let row = |one: &ProgramResult| {
            let mut row = vec![one.program.name().to_owned()];
            row.extend(plain(one).map(|plain| format!("{plain:.1}")));
            row.extend(self.cells(one, |side| side.cell(of(side), 1)));
            let median = |side| Some(of(one.side(side)?)?.median);
            let ratio =
                one.better(|side| side.wall_s.map(|spread| spread.median)).and_then(|(swap, _)| {
                    Some(median(Side::Esker)? / median(swap)?.max(f64::MIN_POSITIVE))
                });
            row.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
            row
        };
        self.programs.iter().map(row).collect()
    }

    fn memory_rows(&self) -> Vec<Vec<String>> {
        let row = |one: &ProgramResult| {
            let mut row = vec![
                one.program.name().to_owned(),
                format!("{:.0}", one.plain.peak_mib),
                one.budget_mib.to_string(),
                one.limit_mib.to_string(),
            ];
            row.extend(self.cells(one, |side| side.cell(side.peak_mib, 0)));
            row
        };
        self.programs.iter().map(row).collect()
    }
}

/// The table that a page has a chart beside.
pub(super) const SECONDS: &str = "Seconds";

fn assumptions(options: &MemoryOptions, read_us: f64) -> Vec<(String, String)> {
    let row = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let rounds = options.rounds;
    let mut rows = vec![
        row(
            "drive",
            &format!("a single read of 4 KiB at random takes {read_us:.0} µs, the median"),
        ),
        row(
            "rounds",
            &format!("{rounds}, sides in turn, the other way round in each second one; medians"),
        ),
        row(
            "budget",
            "three tenths of the plain run's memory, at least 32 MiB; for MariaDB half of its buffer pool",
        ),
        row(
            "esker",
            "esker run --memory BUDGET, its device a file on the drive; code, stacks and the pager's own memory lie \
             outside of the budget",
        ),
        row(
            "limit of swap",
            "all memory of Esker's first run at its peak (programs, pager, kernel) and the plain run's mapped files",
        ),
        row(
            "swap-0, swap-3",
            "a memory cgroup with the limit; a swap file on the same drive; vm.page-cluster 0 and 3",
        ),
        row(
            "zram",
            "the same on compressed memory; its pool counts: the cgroup's limit is lowered by mm_stat's mem_used as it grows",
        ),
        row(
            "memory at most",
            "anonymous, shared and kernel memory of the cgroup, and zram's pool, sampled every 10 ms",
        ),
        row(
            "read back",
            "Esker: faults that read, and read-ahead, from its summary; others: pswpin of /proc/vmstat",
        ),
        row(
            "processor time",
            "of all processes of the run, pager included (cpuacct); kernel threads are in no column",
        ),
        row(
            "killed, hung",
            "a run that the kernel killed, or that took 10 times the plain one and 2 min (at most 10 min)",
        ),
    ];
    rows.extend(options.programs.iter().map(|one| row(one.name(), one.what())));
    rows
}
