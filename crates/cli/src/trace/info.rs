//! `esker trace info`: the figures of a trace.

use esker_base::units::{counted, human_bytes};
use esker_trace::{BLOCK_BYTES, Stats, StatsBuilder, Trace};
use serde_json::json;

use super::input::{memory, open, remark, sample_of, sampled, title};
use crate::args::{SampleArg, TraceInput};
use crate::failure::Result;
use crate::figures::{align, grouped};
use crate::output;

pub(super) fn show(
    input: &TraceInput,
    sample: &SampleArg,
    with_reuse: bool,
    as_json: bool,
) -> Result {
    let (mut trace, sample) = (open(input)?, sample_of(sample, 1));
    let mut builder = StatsBuilder::new(with_reuse);
    if let Some(sample) = sample {
        builder = builder.sampled(sample);
    }
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let more = trace.next_batch(&mut batch)?;
        builder.reserve(&batch, memory())?;
        batch.iter().for_each(|request| builder.add(request));
        if !more {
            break;
        }
    }
    remark(&trace);
    let stats = builder.finish();
    if as_json {
        let value = json!({
            "trace": title(input),
            "trace_format": trace.format().name(),
            "device_names": trace.devices(),
            "sample": sample.map(|sample| sample.rate()),
            "footprint_bytes": stats.footprint_bytes(),
            "stats": stats,
        });
        return output::document("esker-trace-info/1", value);
    }
    let title = format!("{}{}", title(input), sampled(sample));
    output::print(&text(&title, &trace, &stats))
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", 100.0 * part as f64 / whole as f64)
}

fn text(title: &str, trace: &Trace, stats: &Stats) -> String {
    let requests = stats.data_requests();
    let mean = |bytes: u64, count: u64| match bytes.checked_div(count) {
        Some(mean) => human_bytes(mean),
        None => "-".to_owned(),
    };
    let duration_s = stats.duration_ns as f64 / 1e9;
    let per_second = if duration_s > 0.0 { requests as f64 / duration_s } else { 0.0 };
    let mut text = format!("{title}: {}\n\n", trace.format());
    let mut rows =
        vec![["", "requests", "share", "bytes", "mean size"].map(str::to_owned).to_vec()];
    for (name, count) in [
        ("reads", stats.reads),
        ("writes", stats.writes),
        ("discards", stats.discards),
        ("flushes", stats.flushes),
    ] {
        let share = if name == "reads" || name == "writes" {
            percent(count.requests, requests)
        } else {
            String::new()
        };
        rows.push(vec![
            name.to_owned(),
            grouped(count.requests),
            share,
            human_bytes(count.bytes),
            mean(count.bytes, count.requests),
        ]);
    }
    rows.push(vec![
        "reads and writes".to_owned(),
        grouped(requests),
        String::new(),
        human_bytes(stats.data_bytes()),
        mean(stats.data_bytes(), requests),
    ]);
    text.push_str(&align(&rows, 1));
    let devices = match trace.devices() {
        names if names.len() > 4 => format!("{} ({}, ...)", names.len(), names[..3].join(", ")),
        names => format!("{} ({})", names.len(), names.join(", ")),
    };
    let references = stats.references;
    let mut pairs = vec![
        ("devices", devices),
        ("duration", format!("{duration_s:.1} s, {per_second:.0} requests a second")),
        ("sequential", percent(stats.sequential_requests, requests)),
        (
            "4 KiB references",
            format!(
                "{}, {} of them read",
                grouped(references),
                percent(stats.read_references, references)
            ),
        ),
        (
            "different blocks",
            format!(
                "{}, {} of them written",
                grouped(stats.unique_blocks),
                percent(stats.written_blocks, stats.unique_blocks)
            ),
        ),
        ("footprint", human_bytes(stats.footprint_bytes())),
    ];
    if stats.back_in_time > 0 {
        pairs.push(("out of order", counted(stats.back_in_time, "request")));
    }
    let rows: Vec<Vec<String>> =
        pairs.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    text.push('\n');
    text.push_str(&align(&rows, 2));
    text.push_str("\nhottest blocks\n");
    let rows: Vec<Vec<String>> = stats
        .hot_sets
        .iter()
        .map(|set| {
            vec![
                format!("{} % of references", set.percent),
                grouped(set.blocks),
                "blocks".to_owned(),
                percent(set.blocks, stats.unique_blocks),
                human_bytes(set.blocks * BLOCK_BYTES),
            ]
        })
        .collect();
    text.push_str(&align(&rows, 1));
    if !stats.reuse.is_empty() {
        text.push_str(&reuse(stats));
    }
    text
}

/// The histogram of reuse distances.
fn reuse(stats: &Stats) -> String {
    const BAR: u64 = 40;
    let most = stats.reuse.iter().map(|bucket| bucket.references).max().unwrap_or(1).max(1);
    let mut rows =
        vec![["reuse distance below", "references", "share", ""].map(str::to_owned).to_vec()];
    for bucket in &stats.reuse {
        let bar = (bucket.references * BAR).div_ceil(most);
        rows.push(vec![
            human_bytes(bucket.below_blocks.saturating_mul(BLOCK_BYTES)),
            grouped(bucket.references),
            percent(bucket.references, stats.references),
            "#".repeat(esker_base::units::to_usize(bar)),
        ]);
    }
    rows.push(vec![
        "never before".to_owned(),
        grouped(stats.first_references),
        percent(stats.first_references, stats.references),
        String::new(),
    ]);
    // The bars stand to the left of a column of their own.
    let bars: Vec<String> = rows.iter_mut().map(|row| row.pop().unwrap_or_default()).collect();
    let table = align(&rows, 1);
    let lines = table.lines().zip(&bars).map(|(line, bar)| {
        let line = format!("{line}  {bar}");
        format!("{}\n", line.trim_end())
    });
    format!("\n{}", lines.collect::<String>())
}
