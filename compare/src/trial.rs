//! Measurements. One engine in one round is a [`Trial`]; all of them with the plan they follow
//! and the machine they ran on are a [`Comparison`], which is also the form of the JSON file.

use std::collections::BTreeMap;

use esker_bench::{RunResult, Workload};
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Setting};

/// The version of the JSON form.
pub(crate) const FORMAT: &str = "esker-compare/1";

/// Parameters that all trials share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) records: u64,
    pub(crate) value_bytes: u32,
    pub(crate) setting: Setting,
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) warm_up_seconds: f64,
    pub(crate) operations: Option<u64>,
    pub(crate) load_seconds: f64,
    pub(crate) settle_seconds: f64,
    pub(crate) seed: u64,
}

impl Plan {
    /// The plan without parameters that decide nothing: where there is a limit, the machine's
    /// memory.
    pub(crate) fn decisive(&self) -> Plan {
        let mut plan = self.clone();
        if plan.setting.limit_bytes.is_some() {
            plan.setting.machine_bytes = 0;
        }
        plan
    }
}

/// All that was measured, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) format: String,
    pub(crate) commands: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) plan: Plan,
    pub(crate) trials: Vec<Trial>,
}

/// One engine in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) engine: Engine,
    pub(crate) round: u32,
    /// How the engine was opened; empty when it was not.
    pub(crate) description: String,
    /// The load, then the workloads.
    pub(crate) phases: Vec<Phase>,
    pub(crate) settling: Option<Settling>,
    /// The most that the process and its page cache took together, in bytes; of a limited run.
    pub(crate) group_peak_bytes: Option<u64>,
    /// Why the trial ended before its end.
    pub(crate) failure: Option<String>,
}

impl Trial {
    pub(crate) fn new(engine: Engine, round: u32) -> Trial {
        Trial {
            engine,
            round,
            description: String::new(),
            phases: Vec::new(),
            settling: None,
            group_peak_bytes: None,
            failure: None,
        }
    }

    pub(crate) fn phase(&self, workload: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.run.workload.name == workload)
    }

    /// Whether it failed otherwise than by giving up its load, after which it settles and ends.
    pub(crate) fn is_broken(&self) -> bool {
        let gave_up = self.phase("load").is_some_and(|load| load.run.interrupted);
        self.failure.is_some() && !(gave_up && self.settling.is_some())
    }

    /// Takes in an event from the process of this trial.
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Opened { description } => self.description = description,
            Event::Phase(phase) => self.phases.push(*phase),
            Event::Settled(settling) => self.settling = Some(settling),
            Event::Failed { why } => self.failure = Some(why),
            Event::Ended => {}
        }
    }
}

/// The load or a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phase {
    /// Measurements; of the series the first and the last point.
    pub(crate) run: RunResult,
    /// The most memory resident during the phase, in bytes; mapped files included.
    pub(crate) peak_rss_bytes: Option<u64>,
}

impl Phase {
    /// How much a counter grew from the end of the warm-up to the end of the sync.
    pub(crate) fn increase(&self, name: &str) -> Option<f64> {
        self.run.series.iter().find(|series| series.name == name)?.increase()
    }

    /// A figure at the end.
    pub(crate) fn last(&self, name: &str) -> Option<f64> {
        let series = self.run.series.iter().find(|series| series.name == name)?;
        series.points.last().map(|point| point.value)
    }
}

/// The time after the load in which maintenance comes to rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settling {
    pub(crate) seconds: f64,
    /// Whether it came to rest within the time it had.
    pub(crate) at_rest: bool,
    pub(crate) cpu_ns: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Bytes that the database took on its device afterwards.
    pub(crate) disk_bytes: u64,
}

/// Job of the process of a trial, on standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) engine: Engine,
    pub(crate) round: u32,
    pub(crate) plan: Plan,
    pub(crate) workloads: Vec<Workload>,
    /// The empty directory for the database.
    pub(crate) dir: std::path::PathBuf,
    /// The file to write its number to, to join a memory cgroup.
    pub(crate) group: Option<std::path::PathBuf>,
    /// The tracepoints that count as a sync.
    pub(crate) tracepoints: Vec<u64>,
}

/// Messages of the process of a trial, one line of JSON each, on standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    Opened {
        description: String,
    },
    Phase(Box<Phase>),
    Settled(Settling),
    Failed {
        why: String,
    },
    /// The last one of a process that came to its end by itself.
    Ended,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::engine::PeersLog;
    use crate::series;
    use esker_bench::result::{Latency, OperationResult, Point, Series, Settings};
    use esker_bench::{OperationKind, Unit};

    /// Workload A of engines with these rates by round, and with round figures otherwise.
    pub(crate) fn comparison(rates: &[(Engine, &[f64])]) -> Comparison {
        let plan = Plan {
            records: 1_000,
            value_bytes: 1_000,
            setting: Setting {
                limit_bytes: Some(1 << 30),
                machine_bytes: 8 << 30,
                data_bytes: 1_023_000,
                peers_log: PeersLog::Kernel,
            },
            threads: 2,
            seconds: 1.0,
            warm_up_seconds: 0.0,
            operations: None,
            load_seconds: 1.0,
            settle_seconds: 1.0,
            seed: 1,
        };
        let mut trials = Vec::new();
        for (engine, rates) in rates {
            for (round, rate) in (1..).zip(*rates) {
                let mut trial = Trial::new(*engine, round);
                trial.apply(Event::Opened { description: "1.0: <default>".to_owned() });
                trial.apply(Event::Phase(Box::new(phase(*rate))));
                trials.push(trial);
            }
        }
        Comparison {
            format: FORMAT.to_owned(),
            commands: vec!["compare/run".to_owned()],
            environment: BTreeMap::new(),
            plan,
            trials,
        }
    }

    /// 100 updates, 5 µs of CPU time and two bytes on the device for each of the user's.
    fn phase(ops_per_s: f64) -> Phase {
        let counter = |name: &str, unit, end: f64| Series {
            name: name.to_owned(),
            unit,
            counter: true,
            points: vec![Point { at_ns: 0, value: 7.0 }, Point { at_ns: 1, value: 7.0 + end }],
        };
        let latency = Latency {
            count: 100,
            mean_ns: 1e3,
            min_ns: 1,
            p50_ns: 1_000,
            p95_ns: 5_000,
            p99_ns: 9_000,
            p999_ns: 9_900,
            max_ns: 9_999,
            by_percentile: Vec::new(),
        };
        let run = RunResult {
            workload: Workload::a(),
            settings: Settings {
                threads: 2,
                operations: None,
                time_limit_ns: None,
                target_ops_per_s: None,
                warm_up_ns: 0,
                verify: true,
                seed: 1,
            },
            started_unix_ms: 0,
            elapsed_ns: 1,
            operations: 100,
            ops_per_s,
            errors: 0,
            not_found: 0,
            wrong_values: 0,
            unstarted_operations: 0,
            interrupted: false,
            user_bytes_written: 102_300,
            user_bytes_read: 0,
            sync_ns: 0,
            records_before: 1_000,
            records_after: 1_000,
            by_operation: vec![OperationResult {
                operation: OperationKind::Update,
                operations: 100,
                errors: 0,
                not_found: 0,
                wrong_values: 0,
                rows: 0,
                latency: Some(latency),
                intended_latency: None,
            }],
            intervals: Vec::new(),
            series: vec![
                counter(series::CPU, Unit::Nanoseconds, 500_000.0),
                counter(series::WRITTEN, Unit::Bytes, 204_600.0),
            ],
        };
        Phase { run, peak_rss_bytes: Some(1 << 20) }
    }

    #[test]
    fn a_load_that_was_given_up_breaks_no_trial() {
        let mut trial = Trial::new(Engine::Lmdb, 1);
        assert!(!trial.is_broken());
        trial.apply(Event::Failed { why: "killed".to_owned() });
        assert!(trial.is_broken());
        let mut load = phase(1.0);
        load.run.workload = Workload::load();
        load.run.interrupted = true;
        trial.apply(Event::Phase(Box::new(load)));
        assert!(trial.is_broken(), "it was killed before it was at rest");
        let settling = Settling {
            seconds: 1.0,
            at_rest: true,
            cpu_ns: 0,
            read_bytes: 0,
            written_bytes: 0,
            disk_bytes: 0,
        };
        trial.apply(Event::Settled(settling));
        assert!(!trial.is_broken(), "it came to its end");
    }

    #[test]
    fn a_comparison_reads_back_from_json() {
        let written = comparison(&[(Engine::Esker, &[1.0]), (Engine::Blobdb, &[2.0, 3.0])]);
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), written);
        assert!(text.contains(r#""engine":"blobdb""#));
    }
}
