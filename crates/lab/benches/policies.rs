//! The replacement policies on traces: misses, the share of the gap between LRU and the optimum that each
//! closes, how far the default is from the best of the others, and how fast traces are replayed.
//!
//! `cargo bench -p esker-lab --bench policies -- FOLDER [NAME]`
//!
//! Every file of the folder that is a trace is taken, or those whose name begins so (the
//! files of a trace by processor, `NAME.blktrace.0` and so on, are one), at caches of 5, 10, 20 and 40 % of what it
//! touches, as one set and in sets of 16 MiB. A case counts where the optimum is more than one in a hundred below LRU.

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

/// What the default is compared with.
const OTHERS: [Kind; 7] =
    [Kind::Lru, Kind::TwoQ, Kind::Arc, Kind::Lirs, Kind::S3Fifo, Kind::Sieve, Kind::WTinyLfu];
/// What is shown as well: LRU with insertion at this percentile.
const MID_POINT: u8 = 75;
const PERCENTS: [u64; 4] = [5, 10, 20, 40];

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).filter(|one| one != "--bench");
    let Some(folder) = arguments.next() else {
        println!("SKIPPED: cargo bench -p esker-lab --bench policies -- FOLDER-OF-TRACES [NAME]");
        return Ok(());
    };
    let begin = arguments.next().unwrap_or_default();
    let traces = traces_of(Path::new(&folder))?.into_iter();
    let mut sums = [Sum::default(), Sum::default()];
    for (name, files) in traces.filter(|(name, _)| name.starts_with(&begin)) {
        let trace = load(&files)?;
        println!("\n{name}: {} references, {} blocks", trace.references().len(), trace.footprint());
        for (sets, sum) in ["one set", "sets of 16 MiB"].into_iter().zip(&mut sums) {
            misses(&trace, sets, sum)?;
        }
        speed(&trace)?;
    }
    for (sets, sum) in ["one set", "sets of 16 MiB"].into_iter().zip(&sums) {
        println!("\n{sets}, {} cases: share of the gap from LRU to the optimum closed", sum.cases);
        for (kind, closed) in &sum.closed {
            println!("  {kind:<12} {:6.1} %", 100.0 * closed / f64::from(sum.cases));
        }
        println!("  best of all  {:6.1} %", 100.0 * sum.best / f64::from(sum.cases));
        println!("  the default is at most {:.4} above the best of the others", sum.regret);
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

/// What all cases of one geometry add up to.
#[derive(Default)]
struct Sum {
    cases: u32,
    closed: BTreeMap<String, f64>,
    best: f64,
    regret: f64,
}

fn config(kind: Kind, slots: u64, sets: &str) -> Config {
    let mut config = Config::new(kind, slots);
    if sets == "one set" {
        config.geometry = Geometry { set_slots: u32::MAX, ..config.geometry };
    }
    config
}

fn misses(trace: &Trace, sets: &str, sum: &mut Sum) -> Result<(), Failure> {
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
        if lru - optimum < 0.01 {
            continue;
        }
        sum.cases += 1;
        sum.best += (lru - best) / (lru - optimum);
        for (kind, ratio) in kinds.iter().zip(&ratios).take(kinds.len() - 1) {
            *sum.closed.entry(kind.to_string()).or_default() += (lru - ratio) / (lru - optimum);
        }
    }
    Ok(())
}

/// Millions of references a second on one core, the best of three.
fn speed(trace: &Trace) -> Result<(), Failure> {
    let slots = (trace.footprint() / 10).max(1);
    for sets in ["one set", "sets of 16 MiB"] {
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
