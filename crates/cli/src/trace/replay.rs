//! `esker trace replay`: simulates caches of other sizes, policies and geometries on a trace.

use esker_base::ErrorKind;
use esker_base::policy::{Access, Kind};
use esker_base::units::human_bytes;
use esker_cache::Geometry;
use esker_cache::replay::{Config, Outcome, Split, Trace, TraceBuilder, Traffic, run_all};
use esker_trace::memory::Short;
use esker_trace::request::device_and_block;
use esker_trace::{BLOCK_BYTES, Op, Sample};
use serde_json::{Value, json};

use super::input::{memory, open, remark, sample_of, sampled, title};
use crate::args::{CacheSize, PolicyArg, ReplayArgs, SetSize, TraceInput};
use crate::failure::{Failure, Result};
use crate::figures::{align, grouped};
use crate::{host, output};

/// Reads the whole trace, or a sample of it. Devices follow each other in one address space.
pub(super) fn load(input: &TraceInput, sample: Option<Sample>) -> Result<Trace> {
    let mut trace = open(input)?;
    let (mut batch, mut builder, mut enough) = (Vec::new(), TraceBuilder::new(), 64 << 20);
    let all = Sample::new(1.0, u64::MAX);
    loop {
        batch.clear();
        let more = trace.next_batch(&mut batch)?;
        for request in batch.iter().filter(|request| request.op.is_data()) {
            let access = if request.op == Op::Write { Access::Write } else { Access::Read };
            builder.at(request.time_ns);
            for part in sample.unwrap_or(all).parts(request.block_keys()) {
                let (device, block) = device_and_block(part.start);
                let count = u32::try_from(part.end - part.start).unwrap_or(u32::MAX);
                builder.reserve(1)?;
                builder.push_to(device, block, count, access);
            }
        }
        let bytes = builder.bytes_to_finish();
        if bytes >= enough {
            memory().check(bytes).map_err(|Short(bytes)| {
                let need = human_bytes(bytes);
                let why = "and less is left: take a sample of it (--sample), or a part";
                Failure::new(ErrorKind::NoSpace, format!("the trace takes {need} of memory, {why}"))
            })?;
            enough = bytes.saturating_mul(2);
        }
        if !more {
            break;
        }
    }
    remark(&trace);
    Ok(builder.finish()?)
}

/// A size in blocks of the sample at this rate.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a positive share of a count
fn slots(size: CacheSize, trace: &Trace, rate: f64) -> u64 {
    let slots = match size {
        CacheSize::Bytes(bytes) => ((bytes / BLOCK_BYTES) as f64 * rate) as u64,
        CacheSize::Percent(percent) => (trace.footprint() as f64 * percent / 100.0) as u64,
    };
    slots.max(1)
}

pub(super) fn show(args: &ReplayArgs) -> Result {
    let in_blocks = |bytes: u64, what: &str| match u32::try_from(bytes / BLOCK_BYTES) {
        Ok(blocks) if blocks > 0 => Ok(blocks),
        _ => Err(Failure::usage(format!("{what} has from 4KiB to 16TiB"))),
    };
    let set_slots = match args.sets {
        SetSize::One => u32::MAX,
        SetSize::Bytes(bytes) => in_blocks(bytes, "a set")?,
    };
    let run_blocks = in_blocks(args.run, "a run")?;
    let mut policies = Vec::new();
    for policy in &args.policy {
        match policy {
            PolicyArg::All => policies.extend(Kind::ALL),
            PolicyArg::One(kind) => policies.push(*kind),
        }
    }
    let sample = sample_of(&args.sample, u64::from(run_blocks));
    let whole = |count: u64| sample.map_or(count, |sample| sample.whole(count));
    let rate = sample.map_or(1.0, |sample| sample.rate());
    let trace = load(&args.input, sample)?;
    let mut configs = Vec::new();
    for &size in &args.size {
        for &policy in &policies {
            let mut config = Config::new(policy, slots(size, &trace, rate));
            let geometry = Geometry { set_slots, run_blocks, ..config.geometry };
            config.geometry = Geometry { placement: args.mapping, ..geometry };
            config.mode = args.mode.into();
            config.admission = args.admit;
            config.sequential_bytes = args.bypass.unwrap_or(0);
            config.read_ahead_bytes = args.read_ahead.unwrap_or(0);
            configs.push(config);
        }
    }
    let outcomes = run_all(&trace, &configs, host::cores())?;
    if args.json {
        let caches = configs.iter().zip(&outcomes);
        let caches: Vec<Value> = caches.map(|(config, outcome)| of(config, outcome)).collect();
        let value = json!({
            "trace": title(&args.input),
            "sample": sample.map(|sample| sample.rate()),
            "references": trace.references().len(),
            "footprint_blocks": trace.footprint(),
            "block_bytes": BLOCK_BYTES,
            "mode": Mode(args),
            "caches": caches,
        });
        return output::document("esker-trace-replay/1", value);
    }
    let footprint = human_bytes(whole(trace.footprint()) * BLOCK_BYTES);
    let references = grouped(whole(esker_base::units::to_u64(trace.references().len())));
    let mut text =
        format!("{}: {references} blocks referenced, {footprint} different", title(&args.input));
    text.push_str(&sampled(sample));
    text.push('\n');
    let per_size = policies.len().max(1);
    for (index, &size) in args.size.iter().enumerate() {
        let blocks = slots(size, &trace, rate);
        let name = human_bytes(whole(blocks) * BLOCK_BYTES);
        text.push_str(&format!("\n{name} ({size})\n"));
        let from = index * per_size;
        let end = from + per_size;
        text.push_str(&table(&configs[from..end], &outcomes[from..end], sample));
    }
    text.push_str(
        "\nhits: of blocks, of requests whole; saved: of the disk's read and write operations\n\
         (negative: more than without a cache); busier half: the disk operations that half of the \
         sets cause\n",
    );
    output::print(&text)
}

/// The mode as it is written on the command line.
struct Mode<'a>(&'a ReplayArgs);

impl serde::Serialize for Mode<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        use clap::ValueEnum as _;
        let value = self.0.mode.to_possible_value();
        to.serialize_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The share that `ratio` gives of `whole`; a dash where there is nothing to have a share of.
fn percent_of(ratio: f64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { percent(ratio) }
}

pub(super) fn table(configs: &[Config], outcomes: &[Outcome], sample: Option<Sample>) -> String {
    let whole = |count: u64| sample.map_or(count, |sample| sample.whole(count));
    let saved = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), percent);
    let head = [
        "policy",
        "hits",
        "requests",
        "reads saved",
        "writes saved",
        "flash written",
        "in full",
        "busier half",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (config, outcome) in configs.iter().zip(outcomes) {
        let (reads, writes) = outcome.operations_saved();
        rows.push(vec![
            config.policy.to_string(),
            percent_of(outcome.hit_ratio_by_block(), outcome.references.total()),
            percent_of(outcome.hit_ratio_by_request(), outcome.requests.total()),
            saved(reads),
            saved(writes),
            human_bytes(whole(outcome.flash_blocks_written) * BLOCK_BYTES),
            format!("{:.1} x", outcome.drive_writes(config.geometry.slots)),
            percent_of(outcome.busier_half_of_operations, outcome.disk.operations.total()),
        ]);
    }
    align(&rows, 1)
}

fn split(split: Split) -> Value {
    json!({ "reads": split.reads, "writes": split.writes })
}

fn traffic(traffic: &Traffic) -> Value {
    json!({ "operations": split(traffic.operations), "blocks": split(traffic.blocks) })
}

/// One cache as JSON.
pub(super) fn of(config: &Config, outcome: &Outcome) -> Value {
    let geometry = &config.geometry;
    json!({
        "policy": config.policy.to_string(),
        "cache_blocks": geometry.slots,
        "sets": geometry.sets().unwrap_or(1),
        "run_blocks": geometry.run_blocks,
        "mapping": geometry.placement.to_string(),
        "references": split(outcome.references),
        "hits": split(outcome.hits),
        "requests": split(outcome.requests),
        "request_hits": split(outcome.request_hits),
        "miss_ratio": outcome.miss_ratio(),
        "disk": traffic(&outcome.disk),
        "admission": config.admission.to_string(),
        "bypass_bytes": config.sequential_bytes,
        "bypassed": outcome.bypassed,
        "read_ahead_bytes": config.read_ahead_bytes,
        "read_ahead": outcome.read_ahead,
        "flash_blocks_written": outcome.flash_blocks_written,
        "drive_writes": outcome.drive_writes(geometry.slots),
        "evictions": outcome.evictions,
        "busier_half_of_references": outcome.busier_half_of_references,
        "busier_half_of_operations": outcome.busier_half_of_operations,
    })
}
