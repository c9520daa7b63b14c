//! The replacement policies on traces: misses, the share of the gap between LRU and the optimum that each
//! closes, how far the default is from the best of the others, and how fast traces are replayed.
//!
//! `cargo bench -p esker-lab --bench policies -- FOLDER... [NAME]`
//!
//! Every trace of the folders is taken, or those whose name begins so. The files of a trace by processor
//! (`NAME.blktrace.0` and so on) are one. Each runs at caches of 5, 10, 20 and 40 % of its footprint, as one set and in
//! sets of 16 MiB. A case counts for the means where the optimum is more than one in a hundred below LRU. Every case
//! counts for how far the default falls behind LRU, and behind the best.
//!
//! Traces that played a part in the choice of the default's rules and constants are added up together, those that were
//! left out of it by folder.

#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // figures for people

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker_base::Clock;
use esker_base::policy::{Access, Kind};
use esker_cache::Geometry;
use esker_cache::replay::{Config, Trace, TraceBuilder, run, run_all};
use esker_lab::flash_cache::traces_of;
use esker_trace::{Op, Options};

type Failure = Box<dyn std::error::Error>;

/// Policies that the default is compared with.
const OTHERS: [Kind; 7] =
    [Kind::Lru, Kind::TwoQ, Kind::Arc, Kind::Lirs, Kind::S3Fifo, Kind::Sieve, Kind::WTinyLfu];
/// Percentile of insertion of an LRU that is shown as well.
const MID_POINT: u8 = 75;
const PERCENTS: [u64; 4] = [5, 10, 20, 40];
/// The default's rules and constants were chosen on these.
const CHOSEN_ON: [&str; 7] = [
    "arc-OLTP",
    "arc-P6",
    "cloudphysics-w",
    "cloudphysics-w106",
    "mixed-xfs",
    "msps-dtrs",
    "pgbench-ext4",
];
/// A share of the gap that is no difference.
const NEAR: f64 = 0.03;
const GEOMETRIES: [&str; 2] = ["one set", "sets of 16 MiB"];

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).filter(|one| one != "--bench");
    let Some(first) = arguments.next() else {
        println!(
            "SKIPPED: cargo bench -p esker-lab --bench policies -- FOLDER-OF-TRACES... [NAME]"
        );
        return Ok(());
    };
    let (others, names): (Vec<String>, Vec<String>) =
        arguments.partition(|one| Path::new(one).is_dir());
    let begin = names.first().map_or("", String::as_str);
    let mut sums: BTreeMap<String, [Sum; GEOMETRIES.len()]> = BTreeMap::new();
    for folder in std::iter::once(&first).chain(&others) {
        let left_out = format!("left out, {folder}");
        let traces = traces_of(Path::new(folder))?.into_iter();
        for (name, files) in traces.filter(|(name, _)| name.starts_with(begin)) {
            let trace = load(&files)?;
            let (references, blocks) = (trace.references().len(), trace.footprint());
            println!("\n{name}: {references} references, {blocks} blocks");
            let group =
                if CHOSEN_ON.contains(&name.as_str()) { "chosen on" } else { left_out.as_str() };
            let sums = sums.entry(group.into()).or_default();
            for (sets, sum) in GEOMETRIES.into_iter().zip(sums) {
                misses(&name, &trace, sets, sum)?;
            }
            speed(&trace)?;
        }
    }
    for (group, sums) in &sums {
        for (sets, sum) in GEOMETRIES.into_iter().zip(sums) {
            sum.print(&format!("{sets}, {group}"));
        }
    }
    Ok(())
}

fn load(files: &[PathBuf]) -> Result<Trace, Failure> {
    // The pages of this trace are no sectors, which it does not say.
    let is_oltp = files[0].to_string_lossy().contains("arc-OLTP");
    let options = Options { unit_bytes: is_oltp.then_some(4096), ..Options::default() };
    let mut builder = TraceBuilder::new();
    for request in esker_trace::Trace::open(files, &options)? {
        let request = request?;
        let access = match request.op {
            Op::Read => Access::Read,
            Op::Write => Access::Write,
            Op::Discard | Op::Flush => continue,
        };
        let blocks = request.blocks();
        let count = u32::try_from(blocks.end - blocks.start)?;
        builder.push_to(request.device, blocks.start, count, access);
    }
    Ok(builder.finish()?)
}

/// The sums of all cases of one geometry and group.
#[derive(Default)]
struct Sum {
    /// Of these the optimum is more than one in a hundred below LRU.
    cases: u32,
    all: u32,
    closed: BTreeMap<String, f64>,
    best: f64,
    regret: f64,
    /// Cases in which the default misses more often than LRU: the share of the gap that it closes, and the case.
    behind: Vec<(f64, String)>,
    /// Cases that count for the means and in which the default closes less than the better of LRU and S3-FIFO, by
    /// more than [`NEAR`]: how much less, and the case.
    below: Vec<(f64, String)>,
}

impl Sum {
    fn print(&self, head: &str) {
        let cases = f64::from(self.cases.max(1));
        println!("\n{head}, {} cases: share of the gap from LRU to the optimum closed", self.cases);
        for (kind, closed) in &self.closed {
            println!("  {kind:<12} {:6.1} %", 100.0 * closed / cases);
        }
        println!("  best of all  {:6.1} %", 100.0 * self.best / cases);
        println!("  the default is at most {:.4} above the best of the others", self.regret);
        println!(
            "  the default misses more often than LRU in {} of {}",
            self.behind.len(),
            self.all
        );
        list(&self.behind);
        println!(
            "  the default closes over {:.0} % less than the better of LRU and S3-FIFO in {} of {}",
            100.0 * NEAR,
            self.below.len(),
            self.cases
        );
        list(&self.below);
    }
}

/// Shares of the gap and their cases, the least first.
fn list(cases: &[(f64, String)]) {
    let mut cases: Vec<_> = cases.iter().collect();
    cases.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (share, case) in cases {
        println!("    {:6.1} % of {case}", 100.0 * share);
    }
}

fn config(kind: Kind, slots: u64, sets: &str) -> Config {
    let mut config = Config::new(kind, slots);
    if sets == "one set" {
        config.geometry = Geometry { set_slots: u32::MAX, ..config.geometry };
    }
    config
}

fn misses(name: &str, trace: &Trace, sets: &str, sum: &mut Sum) -> Result<(), Failure> {
    let shown = [Kind::MidPoint(MID_POINT), Kind::Adaptive, Kind::Belady];
    let kinds: Vec<Kind> = OTHERS.into_iter().chain(shown).collect();
    for percent in PERCENTS {
        let slots = (trace.footprint() * percent / 100).max(1);
        let configs: Vec<Config> = kinds.iter().map(|&kind| config(kind, slots, sets)).collect();
        let outcomes = run_all(trace, &configs, 2)?;
        let ratios: Vec<f64> = outcomes.iter().map(|outcome| outcome.miss_ratio()).collect();
        let row: Vec<String> =
            kinds.iter().zip(&ratios).map(|(kind, ratio)| format!("{kind} {ratio:.4}")).collect();
        println!("  {sets}, {percent} %: {}", row.join("  "));
        let (lru, optimum) = (ratios[0], ratios[kinds.len() - 1]);
        let best = ratios[..OTHERS.len()].iter().copied().fold(f64::MAX, f64::min);
        let default = ratios[kinds.len() - 2];
        sum.regret = sum.regret.max(default - best);
        sum.all += 1;
        let gap = lru - optimum;
        let of = |kind: Kind| {
            let ratio = kinds.iter().position(|&one| one == kind).map_or(lru, |at| ratios[at]);
            if gap > 0.0 { (lru - ratio) / gap } else { 0.0 }
        };
        let [own, queues] = [Kind::Adaptive, Kind::S3Fifo].map(of);
        println!(
            "    of a gap of {gap:.4}, adaptive {:.1} %, s3-fifo {:.1} %",
            100.0 * own,
            100.0 * queues
        );
        let case = format!("a gap of {gap:.4}, {name} at {percent} %, {slots} slots");
        if default > lru {
            sum.behind.push((own, case.clone()));
        }
        if gap < 0.01 {
            continue;
        }
        let less = own - queues.max(0.0);
        if less < -NEAR {
            sum.below.push((less, case));
        }
        sum.cases += 1;
        sum.best += (lru - best) / gap;
        for (kind, ratio) in kinds.iter().zip(&ratios).take(kinds.len() - 1) {
            *sum.closed.entry(kind.to_string()).or_default() += (lru - ratio) / gap;
        }
    }
    Ok(())
}

/// Millions of references a second on one core, the best of three.
fn speed(trace: &Trace) -> Result<(), Failure> {
    let slots = (trace.footprint() / 10).max(1);
    for sets in GEOMETRIES {
        let mut row = Vec::new();
        for kind in [Kind::Lru, Kind::S3Fifo, Kind::Adaptive] {
            let mut best = 0.0f64;
            for _ in 0..3 {
                let clock = Clock::real();
                let start = clock.now();
                run(trace, &config(kind, slots, sets))?;
                let seconds = clock.now().since(start).as_secs_f64();
                best = best.max(trace.references().len() as f64 / seconds / 1e6);
            }
            row.push(format!("{kind} {best:.1} M/s"));
        }
        println!("  {sets}, 10 %: {}", row.join("  "));
    }
    Ok(())
}
