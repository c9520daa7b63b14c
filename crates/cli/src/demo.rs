//! `esker demo`: a database of its own, the load and workloads A to F, their costs, and the
//! bytes of the load beside the figures published for HSE.

use std::fmt::Write as _;
use std::time::Duration;

use esker_base::Clock;
use esker_base::units::{counted, human_bytes, to_nanos, to_u64};
use esker_bench::{Dataset, Report, RunOptions, Runner, ValueFormat, Workload};
use esker_kv::{MediaClass, Policy, Stats};
use esker_lab::store::KvStore;
use esker_report::{Precondition, Verdict};
use esker_serve::metrics::of_kvdb;
use serde_json::{Value, json};

use crate::args::{DemoArgs, engine_options};
use crate::failure::Result;
use crate::figures;
use crate::host;
use crate::measure::{self, Shown};
use crate::media::Devices;
use crate::metrics;
use crate::output::Outputs;
use crate::place::{self, Place};
use crate::traffic::{HSE_ALL, HSE_CAPACITY, Traffic};

/// Of the bytes of a load, one in so many may still be young where its bytes are judged.
const YOUNG_SHARE: u64 = 10;
/// HSE's load had records of this size; so has this one.
const VALUE_BYTES: u32 = 1_000;

/// Runs the demonstration.
pub(crate) fn run(args: &DemoArgs) -> Result {
    let outputs = Outputs::prepare(args.json.as_ref(), Some(&args.report))?;
    let place = Place::new(args.db.as_ref(), &args.media);
    let dataset = Dataset {
        records: args.records,
        values: ValueFormat::one(VALUE_BYTES),
        ..Dataset::default()
    };
    let engine = engine_options(args.memory, None, None);
    let (db, devices) = place.create(engine, measure::bytes(&dataset))?;
    host::note_long(args.seconds, "a load");
    place::warn_of_remarks(&db);
    let remarks = devices.remarks(&db);
    let kvs = db.create_kvs(measure::KVS, Policy::default())?;
    let store = KvStore { db, kvs, process: host::samples };
    let exporter = metrics::if_asked(args.telling.metrics, || of_kvdb(&store.db, devices.stack()))?;
    let threads = args.threads.unwrap_or_else(host::cores);
    host::note_threads(threads);
    outputs.say(&introduction(args, &place, &devices, threads))?;

    let mut report = measure::report("Esker: load and workloads A to F", dataset, &store, &remarks);
    measure::name_devices(&mut report, &devices);
    let options = RunOptions {
        threads,
        time_limit: Some(args.seconds),
        interval: measure::interval(args.seconds),
        ..RunOptions::default()
    };
    let clock = Clock::real();
    let shown = Shown::start(args.live.live, &report)?;
    let mut runner = Runner::new(&store, clock.clone(), dataset)?;
    let before = store.db.stats();
    let loaded = measure::run(&mut runner, &Workload::load(), &options, &shown)?;
    report.runs.push(loaded);
    let settled = measure::settle(&store, &clock, &shown)?;
    let load = Traffic::between(&before, &store.db.stats());
    let is_whole = !shown.is_interrupted();
    for workload in Workload::core() {
        if shown.is_interrupted() {
            break;
        }
        let run = measure::run(&mut runner, &workload, &options, &shown)?;
        report.runs.push(run);
    }
    shown.clear();

    let stats = store.db.stats();
    let conclusion = Conclusion { load, settled, stats, is_whole };
    outputs.say(&format!(
        "{}{}\n{}\n{}{}\n",
        figures::runs_table(&report.runs),
        figures::remarks(&report.runs),
        conclusion.bytes(),
        conclusion.memory(&devices),
        devices.conclusion()
    ))?;
    conclusion.enter(&mut report);
    measure::note_memory(&mut report, &conclusion.stats, &devices);
    measure::note_interruption(&mut report, &shown, 1 + Workload::core().len());
    let mut json = conclusion.json(&report)?;
    json["devices"] = devices.json();
    json["verdicts"] = json!(conclusion.verdicts());
    let mut page = report.page();
    page.verdicts = conclusion.verdicts();
    outputs.finish(&json, &page.html())?;
    let interrupted = shown.end(|| page.html());
    drop(exporter);
    store.db.close()?;
    interrupted
}

fn introduction(args: &DemoArgs, place: &Place, devices: &Devices, threads: usize) -> String {
    format!(
        "Esker demo: {} of {}, {}, {} of memory, {} s a workload\n{}\n{}\n",
        counted(args.records, "record"),
        counted(VALUE_BYTES.into(), "byte"),
        counted(to_u64(threads), "thread"),
        human_bytes(args.memory),
        args.seconds.as_secs_f64(),
        place.describe(),
        devices.introduction()
    )
}

/// The figures that are shown after the table.
struct Conclusion {
    load: Traffic,
    /// How long maintenance went on after the load.
    settled: Duration,
    /// At the end.
    stats: Stats,
    /// The load was not interrupted.
    is_whole: bool,
}

impl Conclusion {
    fn ratios(&self) -> (f64, f64) {
        let load = &self.load;
        let capacity = load.class_bytes(MediaClass::Capacity);
        let all = load.all_bytes();
        (load.per_user_byte(all), load.per_user_byte(capacity))
    }

    fn bytes(&self) -> String {
        let (all, capacity) = self.ratios();
        let mut text = format!(
            "Device writes of the load ({} by the user), after {:.1} s more of maintenance:\n\n{}\n",
            human_bytes(self.load.user_bytes),
            self.settled.as_secs_f64(),
            self.load.table()
        );
        let _ = write!(
            text,
            "device bytes per user byte   this load   HSE, published*\n  \
             in all                     {all:>9.2}   {HSE_ALL:>15.2}\n  \
             to capacity                {capacity:>9.2}   {HSE_CAPACITY:>15.2}\n\
             * Micron's figures for a load of 2 billion records of 1,000 bytes: another size, \
             another machine.\n"
        );
        for verdict in self.verdicts() {
            text.push('\n');
            text.push_str(&verdict.text());
        }
        text
    }

    fn memory(&self, devices: &Devices) -> String {
        let stalls = &self.stats.stalls;
        format!(
            "{}writers: longest stall {:.1} ms, {:.1} ms in all; slowed down for {:.1} ms in all\n",
            measure::memory(&self.stats, devices),
            stalls.longest_ns as f64 / 1e6,
            stalls.total_ns as f64 / 1e6,
            stalls.paced_ns() as f64 / 1e6,
        )
    }

    /// Puts the main figures where the HTML report shows them.
    fn enter(&self, report: &mut Report) {
        let (all, capacity) = self.ratios();
        report.environment.insert(
            "load, device bytes per user byte".to_owned(),
            format!(
                "{all:.2} in all, {capacity:.2} to capacity \
                 (HSE, published: {HSE_ALL} and {HSE_CAPACITY})"
            ),
        );
    }

    /// Bytes of the load beside those that were published for HSE.
    fn verdicts(&self) -> Vec<Verdict> {
        let (all, capacity) = self.ratios();
        let pairs = [("in all", all, HSE_ALL), ("to capacity", capacity, HSE_CAPACITY)];
        let Traffic { user_bytes, young_bytes, .. } = self.load;
        // Data that is young at the end will be written once more.
        let has_aged = young_bytes <= user_bytes / YOUNG_SHARE;
        let found = format!("{} are young", human_bytes(young_bytes));
        let needs = format!(
            "{} of the load to have aged to capacity",
            human_bytes(user_bytes - user_bytes / YOUNG_SHARE)
        );
        let verdict = |(what, ours, published): (&str, f64, f64)| {
            let name = format!("load: device bytes written for each byte of the user, {what}");
            Verdict::new(name, format!("{ours:.2}"))
                .published(format!(
                    "{published} (Micron, for HSE: 2 billion records of 1,000 bytes)"
                ))
                .wanted(format!("at most {published}"), ours <= published)
                .requires(Precondition::new("the whole load", "it was interrupted", self.is_whole))
                .requires(Precondition::new(needs.clone(), found.clone(), has_aged))
        };
        pairs.map(verdict).to_vec()
    }

    fn json(&self, report: &Report) -> Result<Value> {
        measure::json_of(
            report,
            &self.stats,
            json!({
                "load_traffic": self.load.json(),
                "load_young_bytes": self.load.young_bytes,
                "load_settle_ns": to_nanos(self.settled),
                "peak_rss_bytes": host::peak_rss_bytes(),
            }),
        )
    }
}
