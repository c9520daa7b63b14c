//! The plan, on a bench that gives the figures it is told.

use std::ops::ControlFlow;

use esker_report::Outcome;

use super::*;
use crate::steps::Progress;

const OPTIONS: InstalledOptions =
    InstalledOptions { data_bytes: 64 << 20, lookups: 1000, rounds: 3, seed: 1 };

#[derive(Default)]
struct Told {
    order: Vec<Way>,
    without: Vec<Way>,
    has_duckdb: bool,
    /// The run of DuckDB that answers something else.
    wrong: Option<usize>,
    queries: usize,
}

impl WayBench for Told {
    fn way(&mut self, way: Way) -> Result<Trial<Sample>, LabError> {
        self.order.push(way);
        if self.without.contains(&way) {
            return Ok(Trial::Skipped("it is not installed".to_owned()));
        }
        #[allow(clippy::cast_precision_loss)] // a few rounds
        let round = (self.order.iter().filter(|&&other| other == way).count()) as f64;
        let rate = if way == Way::Signal { 200.0 } else { 100.0 };
        Ok(Trial::Ran(Sample {
            lookups_per_s: way.has_lookups().then_some(rate + 10.0 * round),
            scan_mib_per_s: way.has_scans().then_some(rate),
            peak_mib: Some(16.0 + round),
        }))
    }

    fn queries(&mut self, is_paged: bool) -> Result<Trial<Vec<Query>>, LabError> {
        if !self.has_duckdb {
            return Ok(Trial::Skipped("install it".to_owned()));
        }
        self.queries += 1;
        let answer = if self.wrong == Some(self.queries) { "8" } else { "7" };
        let seconds = if is_paged { 1.0 } else { 3.0 };
        Ok(Trial::Ran(vec![Query { name: "scan".to_owned(), seconds, answer: answer.to_owned() }]))
    }
}

fn follow(_: &Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn ways_run_in_turn_and_medians_are_compared() {
    let mut told = Told { without: vec![Way::Umap], has_duckdb: true, ..Told::default() };
    let installed = run(&OPTIONS, &mut told, &mut follow).unwrap();
    // A missing way is asked for once; the second round goes the other way.
    let second: Vec<Way> = told.order[8..15].to_vec();
    let expected: Vec<Way> = Way::ALL[..7].iter().rev().copied().collect();
    assert_eq!(second, expected);
    assert_eq!(told.order.len(), 8 + 7 + 7);
    let signal = installed.ways.iter().find(|one| one.way == Way::Signal).unwrap();
    assert_eq!(signal.lookups_per_s, Some(Spread { median: 220.0, least: 210.0, most: 230.0 }));
    let sequential = installed.ways.iter().find(|one| one.way == Way::MmapSequential).unwrap();
    assert_eq!(sequential.lookups_per_s, None);
    assert_eq!(installed.skipped, ["umap: it is not installed"]);
    // Five goals beside other ways, without umap's, and one of DuckDB.
    let verdicts = verdicts(&installed);
    assert_eq!(verdicts.len(), 6);
    assert!(verdicts.iter().all(|one| one.outcome == Outcome::Reached), "{verdicts:?}");
    assert_eq!(verdicts[5].measured, "3.00 times");
    let (ways, queries) = (installed.way_rows().1, installed.query_rows().1);
    assert!(ways.iter().any(|row| row[0] == "pager, signal" && row[1] == "220 (210 to 230)"));
    assert_eq!(queries[0][3], "3.00");
}

#[test]
fn a_machine_that_has_nothing_is_told_so() {
    let mut told = Told { without: Way::ALL.to_vec(), ..Told::default() };
    let installed = run(&OPTIONS, &mut told, &mut follow).unwrap();
    assert_eq!(installed.skipped.len(), Way::ALL.len() + 1);
    assert!(installed.ways.is_empty() && installed.queries.is_empty());
    assert!(verdicts(&installed).is_empty());
}

#[test]
fn other_answers_are_an_error() {
    let mut told = Told { has_duckdb: true, wrong: Some(4), ..Told::default() };
    let why = run(&OPTIONS, &mut told, &mut follow).unwrap_err().to_string();
    assert!(why.contains("DuckDB") && why.contains("another answer"), "{why}");
}

#[test]
fn options_without_sense_are_refused() {
    for (options, part) in [
        (InstalledOptions { rounds: 2, ..OPTIONS }, "rounds"),
        (InstalledOptions { data_bytes: 1 << 20, ..OPTIONS }, "at least"),
        (InstalledOptions { lookups: 1, ..OPTIONS }, "lookups"),
    ] {
        let why = run(&options, &mut Told::default(), &mut follow).unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
    }
    let ended = run(&OPTIONS, &mut Told::default(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(ended, Err(LabError::Interrupted)));
}

#[test]
fn ended_study_has_the_ways_that_ran() {
    let ends_after = |steps: usize, told: &mut Told| {
        run(&OPTIONS, told, &mut |progress: &Progress<'_>| match progress.done < steps {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    };
    let part = ends_after(3, &mut Told::default()).unwrap();
    assert_eq!((part.ways.len(), part.queries.len()), (3, 0));
    let mut told = Told { has_duckdb: true, ..Told::default() };
    // One side of the queries alone is no comparison.
    let queries = Way::ALL.len() * OPTIONS.rounds as usize;
    let part = ends_after(queries + 1, &mut told).unwrap();
    assert_eq!((part.ways.len(), part.queries.len()), (Way::ALL.len(), 0));
}
