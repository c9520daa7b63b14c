//! The figures of the study, and their tables.

use esker_base::units::human_bytes;
use esker_report::Table;
use serde::{Deserialize, Serialize};

use super::bench::{DriveBytes, LoadedBytes, Survival};
use super::calibrate::{BUSY, DilationTry, PROCESSORS};
use super::deployment::Deployment;
use super::figures::LoadResult;
use super::options::{OwnDrives, PooledOptions};

/// The bytes of a row.
const ROW_BYTES: u64 = 1000;

/// An arm's databases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    /// The arm.
    pub arm: Deployment,
    /// Its name.
    pub name: String,
    /// Its deployment.
    pub description: String,
    /// After the load.
    pub loaded: LoadedBytes,
    /// After the last run.
    pub at_end: Option<DriveBytes>,
}

impl ArmResult {
    pub(super) fn new(arm: Deployment, loaded: LoadedBytes) -> ArmResult {
        let (name, description) = (arm.name().to_owned(), arm.description().to_owned());
        ArmResult { arm, name, description, loaded, at_end: None }
    }
}

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PooledFigures {
    /// Whether it was a short run.
    pub quick: bool,
    /// How many times slower than real the drives were.
    pub dilation: u32,
    /// The tries by which that was found.
    pub tries: Vec<DilationTry>,
    /// Databases of the arms.
    pub arms: Vec<ArmResult>,
    /// Arms under loads.
    pub loads: Vec<LoadResult>,
    /// Losing a node and a drive.
    pub survival: Option<Survival>,
    /// Inputs and assumptions: names and values.
    pub assumptions: Vec<(String, String)>,
    /// Parts that were left out, and why.
    pub skipped: Vec<String>,
}

impl PooledFigures {
    pub(super) fn new(options: &PooledOptions) -> PooledFigures {
        let mut skipped = Vec::new();
        if !options.compare {
            skipped.push("the comparison: run it without --only-survive".to_owned());
        }
        if options.compare && !options.controls {
            skipped
                .push("controls beside A/A: run it without --no-controls and --quick".to_owned());
        }
        if !options.survive {
            skipped.push("a node killed and a drive failed: run it with --survive".to_owned());
        }
        PooledFigures {
            quick: options.quick,
            dilation: 0,
            tries: Vec::new(),
            arms: Vec::new(),
            loads: Vec::new(),
            survival: None,
            assumptions: assumptions(options),
            skipped,
        }
    }

    /// Notes that nothing can be run, and why.
    pub(super) fn skip_all(&mut self, missing: &[String]) {
        self.skipped = missing.iter().map(|one| format!("SKIPPED, ALL OF IT: {one}")).collect();
    }

    /// Adds how fast the drives were, which is known at the end.
    pub(super) fn assume_drives(&mut self, options: &PooledOptions) {
        let (nodes, dilation) = (options.nodes, self.dilation);
        if dilation > 0 && options.own.is_none() {
            let text = format!(
                "{dilation} times slower than real; {nodes} nodes share the machine with clients and storage"
            );
            self.assumptions.push(("drives".to_owned(), text));
        }
    }

    /// All tables, with their titles; those without rows are left out.
    pub(super) fn tables(&self) -> Vec<(&'static str, Table)> {
        let tables = [
            (LATENCIES, Table::of(LATENCY_COLUMNS, self.latency_rows()).words([0, 1])),
            (COSTS, Table::of(COST_COLUMNS, self.cost_rows()).words([0, 1])),
            ("Space", Table::of(SPACE_COLUMNS, self.space_rows())),
            ("Calibration", Table::of(TRY_COLUMNS, self.try_rows()).words([0, 1])),
            ("A node killed, a drive failed", Table::of(["", ""], self.survival_rows())),
        ];
        tables.into_iter().filter(|(_, table)| !table.rows.is_empty()).collect()
    }

    fn latency_rows(&self) -> Vec<Vec<String>> {
        let row = |one: &LoadResult| {
            let ms = 1e-3;
            vec![
                one.arm.name().to_owned(),
                rate(one.rate),
                one.ops_per_s.scaled(1.0).cell(0),
                one.read_mean_us.scaled(ms).cell(1),
                one.read_p999_us.scaled(ms).cell(0),
                one.update_mean_us.scaled(ms).cell(1),
                one.update_p999_us.scaled(ms).cell(0),
                one.failed.to_string(),
            ]
        };
        self.loads.iter().map(row).collect()
    }

    fn cost_rows(&self) -> Vec<Vec<String>> {
        let row = |one: &LoadResult| {
            vec![
                one.arm.name().to_owned(),
                rate(one.rate),
                one.device_reads.scaled(1.0).cell(2),
                one.device_written.scaled(1.0).cell(0),
                one.busy.scaled(100.0).cell(0),
                one.queue.scaled(1.0).cell(1),
                one.node_cpu_us.scaled(1.0).cell(0),
                one.client_cpu_us.scaled(1.0).cell(0),
                one.storage_cpu_us.scaled(1.0).cell(0),
                one.machine.scaled(100.0).cell(0),
            ]
        };
        self.loads.iter().map(row).collect()
    }

    fn space_rows(&self) -> Vec<Vec<String>> {
        type Of = fn(&DriveBytes) -> u64;
        let shown = |bytes: Option<&DriveBytes>, of: Of| {
            bytes.map_or("unknown".to_owned(), |bytes| human_bytes(of(bytes)))
        };
        let row = |one: &ArmResult| {
            let (loaded, at_end) = (one.loaded.drives.as_ref(), one.at_end.as_ref());
            vec![
                one.name.clone(),
                human_bytes(one.loaded.files),
                shown(loaded, |drives| drives.taken),
                shown(loaded, |drives| drives.host_written),
                shown(at_end, |end| end.taken),
                shown(at_end, |end| end.host_written),
                shown(at_end, |end| end.media_written),
                one.loaded.seconds.map_or("kept".to_owned(), |seconds| format!("{seconds:.0}")),
            ]
        };
        self.arms.iter().map(row).collect()
    }

    fn try_rows(&self) -> Vec<Vec<String>> {
        let percent = |share: f64| format!("{:.0}", share * 100.0);
        let row = |one: &DilationTry| {
            let ops = format!("{:.0}", one.ops_per_s);
            let (dilation, arm) = (format!("{} times", one.dilation), one.arm.name().to_owned());
            vec![dilation, arm, percent(one.busy), percent(one.machine), ops]
        };
        self.tries.iter().map(row).collect()
    }

    fn survival_rows(&self) -> Vec<Vec<String>> {
        let Some(one) = &self.survival else { return Vec::new() };
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        vec![
            row("acknowledged writes", one.acknowledged.to_string()),
            row("of these before the node was killed", one.at_kill.to_string()),
            row("of these before the drive failed", one.at_drive.to_string()),
            row("refused writes", one.refused.to_string()),
            row("missing", one.missing.to_string()),
            row("wrong", one.wrong.to_string()),
            row("pool after the drive failed", one.state_after_drive.clone()),
            row("pool at the end", one.state_at_end.clone()),
            row("seconds of load", format!("{:.0}", one.seconds)),
        ]
    }
}

/// Titles of tables that a page has charts beside.
pub(super) const LATENCIES: &str = "Latency from the intended start, in ms";
pub(super) const COSTS: &str = "For each operation";

const TRY_COLUMNS: [&str; 5] =
    ["drives slower", "arm", "devices busy, %", "processors, %", "operations/s"];
const LATENCY_COLUMNS: [&str; 8] = [
    "arm",
    "asked, operations/s",
    "reached",
    "reads, mean",
    "reads, 99.9 %",
    "updates, mean",
    "updates, 99.9 %",
    "failed",
];
const COST_COLUMNS: [&str; 10] = [
    "arm",
    "asked, operations/s",
    "device reads",
    "device bytes written",
    "devices busy, %",
    "queue",
    "CPU of Cassandra, µs",
    "CPU of clients, µs",
    "CPU of storage, µs",
    "processors, %",
];
const SPACE_COLUMNS: [&str; 8] = [
    "databases",
    "files",
    "on drives",
    "written by the load",
    "on drives at the end",
    "written at the end",
    "media written",
    "load, s",
];

fn rate(rate: Option<u64>) -> String {
    rate.map_or("unlimited".to_owned(), |rate| rate.to_string())
}

fn assumptions(options: &PooledOptions) -> Vec<(String, String)> {
    let mut rows = vec![("source".to_owned(), SOURCE.to_owned())];
    if options.compare {
        rows.extend(of_comparison(options));
    }
    if options.survive {
        rows.push(("a node killed, a drive failed".to_owned(), SURVIVAL.to_owned()));
    }
    rows
}

fn of_comparison(options: &PooledOptions) -> Vec<(String, String)> {
    let PooledOptions { nodes, drives, records, seconds, warm_up_s, rounds, threads, .. } = options;
    let percent = options.compressible * 100.0;
    let row = |name: &str, value: String| (name.to_owned(), value);
    let (memory, heap) = (human_bytes(options.memory_bytes), human_bytes(options.heap_bytes));
    let fields = human_bytes(records * ROW_BYTES);
    let (busy, processors) = (BUSY * 100.0, PROCESSORS * 100.0);
    vec![
        row(
            "nodes",
            format!(
                "{nodes} independent nodes of Cassandra 5.0.4, each with a client of its own, on one machine"
            ),
        ),
        row(
            "drives",
            format!("{drives} in all, {} a node: {}", drives / nodes, of_drives(options)),
        ),
        row(
            "rows",
            format!(
                "{records} in all, {fields} of fields, {percent:.0} % of each field one byte repeated"
            ),
        ),
        row(
            "load",
            format!(
                "workload A of YCSB 0.17.0, zipfian, {threads} threads a node; {warm_up_s} s of warm-up, {seconds} s \
                 measured, rounds: {rounds}"
            ),
        ),
        row(
            "memory of a node",
            format!("{memory}, of which {heap} heap; a cgroup holds the page cache in it"),
        ),
        row(
            "comparable",
            format!(
                "at the unlimited rate local devices are busy {busy:.0} % of the time or more, and processors \
                 {processors:.0} % or less"
            ),
        ),
        row("busy", BUSY_MEANS.to_owned()),
        row("pool", format!("{POOL}; {}", of_buffer(options))),
        row("A/A spread", SPREAD.to_owned()),
        row("seed", format!("{}; YCSB draws its keys from a source of its own", options.seed)),
    ]
}

fn of_drives(options: &PooledOptions) -> String {
    match &options.own {
        None => "the model micron-9300, scaled down".to_owned(),
        Some(own) => own.drives.join(", "),
    }
}

fn of_buffer(options: &PooledOptions) -> String {
    match &options.own {
        None => BUFFER.to_owned(),
        Some(OwnDrives { buffer: Some(buffer), .. }) => format!("its write buffer is {buffer}"),
        Some(OwnDrives { buffer: None, .. }) => "its write buffer lies on the drives".to_owned(),
    }
}

const BUSY_MEANS: &str =
    "the share of the time in which a node's block device has requests under way, as iostat has it";
const POOL: &str = "no parity in the comparison, as in the source";
const BUFFER: &str = "chunks of 1 MiB; its write buffer is a model of an Optane P4800X of 32 MiB, as slow as the drives; the source has \
                      128 GB of memory modules that survive a power failure";
const SPREAD: &str = "the farthest run of local and local again from the mean of their medians";
const SURVIVAL: &str = "three nodes, three copies of each row, on three volumes of one pool with one parity, drives as \
                        fast as real; kill -9, then a drive that has a copy of the pool's log; read back at QUORUM";
const SOURCE: &str = "Micron, NVMe over TCP trial with Lightbits LightOS 1.2.3 and Cassandra 3.0.9, March 2020: four \
                      servers, 8 drives of 3.84 TB, 1.39 TB a database";
