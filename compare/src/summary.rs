//! Medians over rounds, and ratios between engines.

use esker_bench::OperationKind;

use crate::engine::Engine;
use crate::series;
use crate::trial::{Comparison, Phase, Trial};

/// A figure over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// None of no figures.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().filter(|x| x.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Spread { median, least, most })
    }
}

/// Figure of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Operations a second.
    Rate,
    /// CPU time of the process for each operation, in microseconds.
    CpuMicros,
    /// Bytes written to the device for each operation.
    Written,
    /// Bytes written to the device for each byte of keys and values written.
    WrittenPerUserByte,
    /// Bytes read from the device for each operation.
    Read,
    /// Syncs for each thousand operations.
    Syncs,
    /// The most memory resident, in bytes.
    Resident,
    /// The share of gets that Esker answered from DRAM.
    FromDram,
    /// Room of Esker's memtables and record cache, in bytes.
    RecordRoom,
    /// A latency of one kind of operation, in microseconds.
    Latency(OperationKind, Percentile),
}

/// Which latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Percentile {
    P50,
    P99,
    P999,
}

impl Metric {
    /// The figure of one phase; none where it was not measured or means nothing.
    pub(crate) fn of(self, phase: &Phase) -> Option<f64> {
        let run = &phase.run;
        let operations = run.operations.max(1) as f64;
        match self {
            Metric::Rate => Some(run.ops_per_s),
            Metric::CpuMicros => Some(phase.increase(series::CPU)? / 1e3 / operations),
            Metric::Written => Some(phase.increase(series::WRITTEN)? / operations),
            Metric::WrittenPerUserByte => {
                let user = run.user_bytes_written;
                (user > 0).then_some(phase.increase(series::WRITTEN)? / user as f64)
            }
            Metric::Read => Some(phase.increase(series::READ)? / operations),
            Metric::Syncs => Some(phase.increase(series::SYNCS)? * 1e3 / operations),
            Metric::Resident => phase.peak_rss_bytes.map(|bytes| bytes as f64),
            Metric::FromDram => {
                let gets = phase.increase(series::GETS)?;
                let read = phase.increase(series::VALUES_READ)?;
                (gets > 0.0).then_some(1.0 - read / gets)
            }
            Metric::RecordRoom => phase.last(series::RECORD_ROOM),
            Metric::Latency(kind, percentile) => {
                let found = run.by_operation.iter().find(|result| result.operation == kind)?;
                let latency = found.latency.as_ref()?;
                let ns = match percentile {
                    Percentile::P50 => latency.p50_ns,
                    Percentile::P99 => latency.p99_ns,
                    Percentile::P999 => latency.p999_ns,
                };
                Some(ns as f64 / 1e3)
            }
        }
    }
}

/// Esker's rate beside the best other engine's, in one workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) best: Engine,
    /// Over rounds, each within itself.
    pub(crate) of_rounds: Spread,
}

impl Comparison {
    /// The engines that were run, in the order of reports.
    pub(crate) fn engines(&self) -> Vec<Engine> {
        let ran = |engine: &Engine| self.trials.iter().any(|trial| trial.engine == *engine);
        Engine::ALL.into_iter().filter(ran).collect()
    }

    /// The workloads that were run, in the order they were.
    pub(crate) fn workloads(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for phase in self.trials.iter().flat_map(|trial| &trial.phases) {
            if !names.contains(&phase.run.workload.name) {
                names.push(phase.run.workload.name.clone());
            }
        }
        names
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.trials.iter().map(|trial| trial.round).max().unwrap_or(0)
    }

    pub(crate) fn trials_of(&self, engine: Engine) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.engine == engine)
    }

    /// A figure of one engine in one workload; none where no round has it. Of a load that was given
    /// up in some rounds, the others count.
    pub(crate) fn figure(&self, engine: Engine, workload: &str, metric: Metric) -> Option<Spread> {
        let all_given_up = self.is_given_up(engine, workload);
        let phases = self.trials_of(engine).filter_map(|trial| trial.phase(workload));
        let counted = phases.filter(|phase| all_given_up || !phase.run.interrupted);
        Spread::of(counted.filter_map(|phase| metric.of(phase)))
    }

    /// Whether no round of a workload that was run, the load, came to its end.
    pub(crate) fn is_given_up(&self, engine: Engine, workload: &str) -> bool {
        let mut phases =
            self.trials_of(engine).filter_map(|trial| trial.phase(workload)).peekable();
        phases.peek().is_some() && phases.all(|phase| phase.run.interrupted)
    }

    /// The trials of an engine that loaded all records; where none did, all.
    pub(crate) fn loaded(&self, engine: Engine) -> impl Iterator<Item = &Trial> {
        let all_given_up = self.is_given_up(engine, "load");
        let whole = |trial: &Trial| trial.phase("load").is_none_or(|load| !load.run.interrupted);
        self.trials_of(engine).filter(move |trial| all_given_up || whole(trial))
    }

    /// Esker beside the other engine with the highest median. A load that was given up does not
    /// count as one.
    pub(crate) fn ratio(&self, workload: &str) -> Option<Ratio> {
        let others = self.engines().into_iter().filter(|engine| *engine != Engine::Esker);
        let whole = others.filter(|engine| !self.is_given_up(*engine, workload));
        let rated = whole.filter_map(|engine| {
            Some((engine, self.figure(engine, workload, Metric::Rate)?.median))
        });
        let (best, _) = rated.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let rate = |engine: Engine, round: u32| {
            let trial = self.trials_of(engine).find(|trial| trial.round == round)?;
            let phase = trial.phase(workload).filter(|phase| !phase.run.interrupted)?;
            Metric::Rate.of(phase)
        };
        let each = (1..=self.rounds())
            .filter_map(|round| Some(rate(Engine::Esker, round)? / rate(best, round)?));
        Some(Ratio { best, of_rounds: Spread::of(each)? })
    }

    /// Bytes written by the load and by maintenance until it was at rest, for each byte of keys and
    /// values.
    pub(crate) fn load_written(&self, engine: Engine) -> Option<Spread> {
        Spread::of(self.loaded(engine).filter_map(|trial| {
            let load = trial.phase("load")?;
            let settling = trial.settling.as_ref()?;
            let written = load.increase(series::WRITTEN)? + settling.written_bytes as f64;
            Some(written / load.run.user_bytes_written.max(1) as f64)
        }))
    }

    /// Bytes that the database took when maintenance was at rest, for each byte of keys and values
    /// that had been loaded.
    pub(crate) fn size_after_load(&self, engine: Engine) -> Option<Spread> {
        Spread::of(self.loaded(engine).filter_map(|trial| {
            let loaded = trial.phase("load")?.run.user_bytes_written;
            Some(trial.settling.as_ref()?.disk_bytes as f64 / loaded.max(1) as f64)
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::trial::tests::comparison;

    #[test]
    fn a_median_lies_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 10.0]).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (3.0, 1.0, 10.0));
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn the_ratio_is_to_the_best_other_engine_within_each_round() {
        // Rates by round: Esker, fjall, LMDB. LMDB's median is the highest of the others.
        let comparison = comparison(&[
            (Engine::Esker, &[100.0, 220.0, 300.0]),
            (Engine::Fjall, &[10.0, 10.0, 1_000.0]),
            (Engine::Lmdb, &[50.0, 100.0, 100.0]),
        ]);
        let ratio = comparison.ratio("A").unwrap();
        assert_eq!(ratio.best, Engine::Lmdb);
        let of = ratio.of_rounds;
        assert_eq!((of.median, of.least, of.most), (2.2, 2.0, 3.0));
        assert_eq!(comparison.ratio("B"), None);
    }

    /// LMDB gave up the second of three loads, fjall all; records of 1,023 bytes.
    pub(crate) fn loads_given_up() -> Comparison {
        let mut figures = comparison(&[
            (Engine::Esker, &[100.0, 400.0, 300.0]),
            (Engine::Fjall, &[900.0, 900.0, 900.0]),
            (Engine::Lmdb, &[50.0, 10.0, 100.0]),
        ]);
        for trial in &mut figures.trials {
            let gave_up = match trial.engine {
                Engine::Fjall => true,
                Engine::Lmdb => trial.round == 2,
                _ => false,
            };
            let run = &mut trial.phases[0].run;
            run.workload = esker_bench::Workload::load();
            run.interrupted = gave_up;
            run.user_bytes_written = if gave_up { 10_230 } else { 102_300 };
            trial.settling = Some(crate::trial::Settling {
                seconds: if gave_up { 30.0 } else { 4.0 },
                at_rest: true,
                cpu_ns: 0,
                read_bytes: 0,
                written_bytes: 0,
                disk_bytes: 2 * run.user_bytes_written,
            });
        }
        figures
    }

    #[test]
    fn a_load_that_was_given_up_is_in_no_ratio_and_in_no_median_of_whole_ones() {
        let figures = loads_given_up();
        let ratio = figures.ratio("load").unwrap();
        assert_eq!(ratio.best, Engine::Lmdb, "fjall loaded nothing whole");
        let of = ratio.of_rounds;
        assert_eq!((of.median, of.least, of.most), (2.5, 2.0, 3.0));
        let rate = |engine| figures.figure(engine, "load", Metric::Rate).unwrap().median;
        assert_eq!((rate(Engine::Lmdb), rate(Engine::Fjall)), (75.0, 900.0));
        for engine in [Engine::Esker, Engine::Fjall, Engine::Lmdb] {
            let size = figures.size_after_load(engine).unwrap();
            assert_eq!((size.least, size.most), (2.0, 2.0), "{engine:?}");
        }
        assert!(!figures.is_given_up(Engine::Fjall, "A"), "it was not run");
    }

    #[test]
    fn costs_are_shared_out_among_operations_and_bytes() {
        let comparison = comparison(&[(Engine::Esker, &[100.0])]);
        let phase = comparison.trials[0].phase("A").unwrap();
        assert_eq!(Metric::CpuMicros.of(phase), Some(5.0));
        assert_eq!(Metric::Written.of(phase), Some(2_046.0));
        assert_eq!(Metric::WrittenPerUserByte.of(phase), Some(2.0));
        assert_eq!(Metric::Read.of(phase), None, "it was not measured");
        let p99 = Metric::Latency(OperationKind::Update, Percentile::P99);
        assert_eq!(p99.of(phase), Some(9.0));
        assert_eq!(Metric::Latency(OperationKind::Scan, Percentile::P50).of(phase), None);
    }
}
