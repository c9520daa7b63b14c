//! The pager on a real machine, beside other ways to hold more data than memory: the plan, and its results. Real time,
//! so other figures on every machine.
//!
//! A [`WayBench`] of the caller's runs one way at a time, in a process of its own. All ways run in turn, in the other
//! direction in each second round, and medians are compared.
//!
//! Invariants
//! 1. A way or a query that cannot be run here is in [`Installed::skipped`], with the reason.
//! 2. A ratio compares medians of as many runs, made in turn.

use esker_base::units::human_bytes;
use esker_report::Verdict;
use serde::{Deserialize, Serialize};

use crate::steps::Steps;
use crate::study::Follow;
use crate::{LabError, Spread};

/// How many times the memory the data is.
pub const DATA_TO_MEMORY: u64 = 4;
/// The least data of which a quarter is a budget.
const LEAST_DATA: u64 = 32 << 20;
/// The fewest runs that have a median worth its name.
const LEAST_ROUNDS: u32 = 3;

/// Options of the study.
#[derive(Clone, Debug)]
pub struct InstalledOptions {
    /// Bytes of the table.
    pub data_bytes: u64,
    /// Lookups of each run.
    pub lookups: u64,
    /// Runs of each way.
    pub rounds: u32,
    /// The seed of all random choices.
    pub seed: u64,
}

impl InstalledOptions {
    /// The budget of every way.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.data_bytes / DATA_TO_MEMORY
    }

    /// Whether they make a study.
    ///
    /// # Errors
    /// `Invalid` for an option that makes no sense; the message names its bound.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        if self.data_bytes < LEAST_DATA {
            return refuse(format!("a real table has at least {}", human_bytes(LEAST_DATA)));
        }
        if self.rounds < LEAST_ROUNDS {
            return refuse(format!("medians need at least {LEAST_ROUNDS} rounds"));
        }
        if self.lookups < 100 {
            return refuse("time at least 100 lookups".to_owned());
        }
        Ok(())
    }
}

/// A way to hold a table that is larger than memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Reads of the file without any cache.
    Plain,
    /// An arena whose faults are served by the thread that faults.
    Signal,
    /// An arena whose faults are served by its thread, as those of unchanged programs.
    Handler,
    /// A mapped file with `MADV_RANDOM`.
    MmapRandom,
    /// A mapped file with `MADV_SEQUENTIAL`.
    MmapSequential,
    /// Anonymous memory and a swap file, one page at a time.
    Swap0,
    /// Anonymous memory and a swap file, clusters of eight pages.
    Swap3,
    /// The library umap on the file.
    Umap,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 8] = [
        Way::Plain,
        Way::Signal,
        Way::Handler,
        Way::MmapRandom,
        Way::MmapSequential,
        Way::Swap0,
        Way::Swap3,
        Way::Umap,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain reads",
            Way::Signal => "pager, signal",
            Way::Handler => "pager, handler",
            Way::MmapRandom => "mmap, MADV_RANDOM",
            Way::MmapSequential => "mmap, MADV_SEQUENTIAL",
            Way::Swap0 => "swap, page-cluster 0",
            Way::Swap3 => "swap, page-cluster 3",
            Way::Umap => "umap",
        }
    }

    /// Returns a description of the way.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Way::Plain => {
                "reads without a cache, one of 4 KiB for a lookup, eight of 256 KiB at a time for a scan"
            }
            Way::Signal => "an arena on the file; the thread that faults serves itself",
            Way::Handler => {
                "an arena on the file; its thread serves faults, as for unchanged programs"
            }
            Way::MmapRandom => "the file mapped, MADV_RANDOM; lookups only",
            Way::MmapSequential => "the file mapped, MADV_SEQUENTIAL; scans only",
            Way::Swap0 => "anonymous memory, a swap file, vm.page-cluster=0",
            Way::Swap3 => "anonymous memory, a swap file, vm.page-cluster=3",
            Way::Umap => "the library umap, pages of 4 KiB, the file opened with O_DIRECT",
        }
    }

    /// Whether lookups are run.
    #[must_use]
    pub fn has_lookups(self) -> bool {
        self != Way::MmapSequential
    }

    /// Whether scans are run.
    #[must_use]
    pub fn has_scans(self) -> bool {
        self != Way::MmapRandom
    }
}

/// Figures of one run of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Lookups a second.
    pub lookups_per_s: Option<f64>,
    /// A scan, in MiB a second.
    pub scan_mib_per_s: Option<f64>,
    /// The most memory that the run was charged for, in MiB, if it ran in a cgroup.
    pub peak_mib: Option<f64>,
}

/// A query of DuckDB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
    /// Its answer.
    pub answer: String,
}

/// Result of a try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Trial<T> {
    /// It ran.
    Ran(T),
    /// It cannot be run here; the text says why, and names the remedy.
    Skipped(String),
}

/// Runs things on this machine.
pub trait WayBench {
    /// Runs a way once.
    ///
    /// # Errors
    /// A wrong answer, or a run that ended early.
    fn way(&mut self, way: Way) -> Result<Trial<Sample>, LabError>;

    /// Runs DuckDB's queries once, with paged memory or on swap.
    ///
    /// # Errors
    /// As [`WayBench::way`].
    fn queries(&mut self, is_paged: bool) -> Result<Trial<Vec<Query>>, LabError>;
}

/// Results of a way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WayResult {
    /// Which.
    pub way: Way,
    /// Its name.
    pub name: String,
    /// Its description.
    pub what: String,
    /// Lookups a second.
    pub lookups_per_s: Option<Spread>,
    /// A scan, in MiB a second.
    pub scan_mib_per_s: Option<Spread>,
    /// The most memory that a run was charged for, in MiB.
    pub peak_mib: Option<Spread>,
}

/// Times of a query of DuckDB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryResult {
    /// Its name.
    pub name: String,
    /// Seconds with paged memory.
    pub paged_s: Spread,
    /// Seconds on swap.
    pub swap_s: Spread,
}

/// Results of the study on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Installed {
    /// Bytes of the table, and of the memory for it.
    pub data_bytes: u64,
    /// See `data_bytes`.
    pub memory_bytes: u64,
    /// Lookups of each run.
    pub lookups: u64,
    /// Runs of each way.
    pub rounds: u32,
    /// Results of each way.
    pub ways: Vec<WayResult>,
    /// Times of DuckDB's queries.
    pub queries: Vec<QueryResult>,
    /// Runs that were left out, and why.
    pub skipped: Vec<String>,
}

/// Runs every way and DuckDB's queries, in turn.
///
/// # Errors
/// When the options make no sense, a run gives a wrong answer, or `follow` ends it.
pub fn run(
    options: &InstalledOptions,
    bench: &mut (dyn WayBench + '_),
    follow: &mut Follow<'_>,
) -> Result<Installed, LabError> {
    options.check()?;
    let rounds = options.rounds;
    let count = (Way::ALL.len() + 2) * rounds as usize;
    let mut steps = Steps::new(follow, count);
    let mut installed = Installed {
        data_bytes: options.data_bytes,
        memory_bytes: options.memory_bytes(),
        lookups: options.lookups,
        rounds,
        ..Installed::default()
    };
    installed.ways = ways(rounds, bench, &mut steps, &mut installed.skipped)?;
    let queries = queries(rounds, bench, &mut steps, &mut installed.skipped);
    installed.queries = steps.part(queries)?;
    if steps.is_interrupted() && installed.ways.is_empty() {
        return Err(LabError::Interrupted);
    }
    Ok(installed)
}

fn ways(
    rounds: u32,
    bench: &mut (dyn WayBench + '_),
    steps: &mut Steps<'_>,
    skipped: &mut Vec<String>,
) -> Result<Vec<WayResult>, LabError> {
    let mut samples: Vec<(Way, Vec<Sample>)> = Way::ALL.map(|way| (way, Vec::new())).into();
    'rounds: for round in 0..rounds {
        let mut without = Vec::new();
        let mut order: Vec<&mut (Way, Vec<Sample>)> = samples.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for (way, runs) in order {
            if steps.step(&format!("{}, round {}", way.name(), round + 1)).is_err() {
                break 'rounds;
            }
            match steps.ended(bench.way(*way)) {
                Err(LabError::Interrupted) => break 'rounds,
                Err(error) => return Err(error),
                Ok(Trial::Ran(sample)) => runs.push(sample),
                Ok(Trial::Skipped(why)) => {
                    skipped.push(format!("{}: {why}", way.name()));
                    without.push(*way);
                }
            }
        }
        samples.retain(|(way, _)| !without.contains(way));
    }
    // Those that an interruption has left out.
    samples.retain(|(_, runs)| !runs.is_empty());
    let result = |(way, runs): (Way, Vec<Sample>)| {
        let spread =
            |of: fn(&Sample) -> Option<f64>| Spread::of(runs.iter().filter_map(of).collect());
        WayResult {
            way,
            name: way.name().to_owned(),
            what: way.what().to_owned(),
            lookups_per_s: spread(|one| one.lookups_per_s),
            scan_mib_per_s: spread(|one| one.scan_mib_per_s),
            peak_mib: spread(|one| one.peak_mib),
        }
    };
    Ok(samples.into_iter().map(result).collect())
}

fn queries(
    rounds: u32,
    bench: &mut (dyn WayBench + '_),
    steps: &mut Steps<'_>,
    skipped: &mut Vec<String>,
) -> Result<Vec<QueryResult>, LabError> {
    let mut sides = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let order = if round % 2 == 0 { [true, false] } else { [false, true] };
        for is_paged in order {
            let side = if is_paged { "esker run" } else { "swap" };
            steps.step(&format!("DuckDB, {side}, round {}", round + 1))?;
            match steps.ended(bench.queries(is_paged))? {
                Trial::Ran(queries) => sides[usize::from(is_paged)].push(queries),
                Trial::Skipped(why) => {
                    skipped.push(format!("DuckDB, {side}: {why}"));
                    return Ok(Vec::new());
                }
            }
        }
    }
    let [swap, paged] = sides;
    let first = &paged[0];
    let wrong = |what: String| Err(LabError::Way { way: "DuckDB".to_owned(), why: what });
    for (side, runs) in [("esker run", &paged), ("swap", &swap)] {
        for (run, round) in runs.iter().zip(1..) {
            if run.len() != first.len() {
                let (got, wanted) = (run.len(), first.len());
                return wrong(format!("{side}, round {round}: {got} answers, and not {wanted}"));
            }
            let differs = |(a, b): &(&Query, &Query)| (&a.name, &a.answer) != (&b.name, &b.answer);
            if let Some((query, _)) = run.iter().zip(first).find(differs) {
                let what = &query.name;
                return wrong(format!("{side}, round {round}: another answer to '{what}'"));
            }
        }
    }
    let seconds =
        |side: &[Vec<Query>], n: usize| Spread::of(side.iter().map(|run| run[n].seconds).collect());
    let result = |(n, query): (usize, &Query)| {
        let (paged_s, swap_s) = (seconds(&paged, n)?, seconds(&swap, n)?);
        Some(QueryResult { name: query.name.clone(), paged_s, swap_s })
    };
    Ok(first.iter().enumerate().filter_map(result).collect())
}

/// Goals of the pager: how many times another way's rate.
const GOALS: [(&str, Measure, Way, f64); 6] = [
    ("lookups at random", Measure::Lookups, Way::MmapRandom, 1.0),
    ("lookups at random", Measure::Lookups, Way::Umap, 1.15),
    ("lookups at random", Measure::Lookups, Way::Swap0, 0.8),
    ("scan", Measure::Scan, Way::Plain, 0.75),
    ("scan", Measure::Scan, Way::MmapSequential, 1.0),
    ("scan", Measure::Scan, Way::Swap0, 1.0),
];

#[derive(Clone, Copy)]
enum Measure {
    Lookups,
    Scan,
}

/// The pager beside other ways.
pub(super) fn verdicts(installed: &Installed) -> Vec<Verdict> {
    let Installed { ways, queries, .. } = installed;
    let rate = |way: Way, measure: Measure| {
        let found = ways.iter().find(|one| one.way == way)?;
        let spread = match measure {
            Measure::Lookups => found.lookups_per_s,
            Measure::Scan => found.scan_mib_per_s,
        };
        spread.map(|spread| spread.median)
    };
    let of_ways = GOALS.iter().filter_map(|&(what, measure, other, goal)| {
        let ratio = rate(Way::Signal, measure)? / rate(other, measure)?;
        let name = format!("here: {what}, pager by signal and {}", other.name());
        let verdict = Verdict::new(name, format!("{ratio:.2} times"));
        Some(verdict.wanted(format!("at least {goal} times"), ratio >= goal))
    });
    let of_queries = queries.iter().map(|query| {
        let ratio = query.swap_s.median / query.paged_s.median;
        let name = format!("here: DuckDB, {}, esker run and swap", query.name);
        let verdict = Verdict::new(name, format!("{ratio:.2} times"));
        verdict.wanted("at least as fast", ratio >= 1.0)
    });
    of_ways.chain(of_queries).collect()
}

impl Installed {
    /// The head and the rows of the ways.
    pub(super) fn way_rows(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let head = ["way", "lookups/s", "scan, MiB/s", "memory at most, MiB"];
        let cell = |spread: &Option<Spread>| {
            spread.as_ref().map_or(String::new(), |spread| spread.cell(0))
        };
        let row = |one: &WayResult| {
            let (lookups, scan) = (cell(&one.lookups_per_s), cell(&one.scan_mib_per_s));
            let peak =
                one.peak_mib.as_ref().map_or(String::new(), |one| format!("{:.1}", one.most));
            vec![one.name.clone(), lookups, scan, peak]
        };
        (head.map(str::to_owned).to_vec(), self.ways.iter().map(row).collect())
    }

    /// The head and the rows of DuckDB's queries.
    pub(super) fn query_rows(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let head = ["DuckDB", "esker run, s", "swap, s", "times"];
        let row = |one: &QueryResult| {
            let ratio = one.swap_s.median / one.paged_s.median;
            vec![one.name.clone(), one.paged_s.cell(2), one.swap_s.cell(2), format!("{ratio:.2}")]
        };
        (head.map(str::to_owned).to_vec(), self.queries.iter().map(row).collect())
    }

    /// Returns the extent of the study, in a sentence.
    pub(super) fn subtitle(&self) -> String {
        format!(
            "Real time on this machine: a table of {}, memory of {}, {} lookups through an index in memory, then \
             two scans of which the second counts. Medians of {} runs in turn, and from which to which they were.",
            human_bytes(self.data_bytes),
            human_bytes(self.memory_bytes),
            self.lookups,
            self.rounds
        )
    }
}

#[cfg(test)]
mod tests;
