//! `esker trace advise`: which cache a trace asks for, and why.

use esker_base::policy::Kind;
use esker_base::units::human_bytes;
use esker_cache::replay::Config;
use esker_cache::replay::Outcome;
use esker_cache::replay::advise::{Advice, advise};
use esker_trace::{BLOCK_BYTES, Sample};
use serde_json::{Value, json};

use super::input::{sample_of, sampled, title};
use super::replay::{load, of, percent, table};
use crate::args::AdviseArgs;
use crate::failure::Result;
use crate::figures::align;
use crate::{host, output};

pub(super) fn show(args: &AdviseArgs) -> Result {
    // The usual run is the extent: it stays together in a set.
    let run_blocks = Config::new(Kind::default(), 1).geometry.run_blocks;
    let sample = sample_of(&args.sample, u64::from(run_blocks));
    let trace = load(&args.input, sample)?;
    let advice = advise(&trace, args.mode.into(), host::cores())?;
    if args.json {
        let value = as_json(&title(&args.input), &advice, sample);
        return output::document("esker-trace-advise/1", value);
    }
    output::print(&text(&title(&args.input), trace.footprint(), &advice, sample))
}

/// A count of the trace, from one of the sample.
fn whole(sample: Option<Sample>, count: u64) -> u64 {
    sample.map_or(count, |sample| sample.whole(count))
}

fn of_policy(advice: &Advice, policy: Kind) -> Option<&Outcome> {
    let found = advice.policies.iter().find(|(config, _)| config.policy == policy);
    found.map(|(_, outcome)| outcome)
}

#[allow(clippy::cast_precision_loss)] // shares
fn text(title: &str, footprint: u64, advice: &Advice, sample: Option<Sample>) -> String {
    let bytes = |blocks: u64| human_bytes(whole(sample, blocks) * BLOCK_BYTES);
    let size = bytes(advice.slots);
    let share = percent(advice.slots as f64 / footprint as f64);
    let mut rows = vec![["cache", "of the footprint", "misses", ""].map(str::to_owned).to_vec()];
    for point in &advice.curve {
        let here = if point.slots == advice.slots { "<- the knee" } else { "" };
        rows.push(vec![
            bytes(point.slots),
            percent(point.slots as f64 / footprint as f64),
            percent(point.miss_ratio),
            here.to_owned(),
        ]);
    }
    let mut text =
        format!("{title}: a cache of {size}, policy {}{}\n\n", advice.policy, sampled(sample));
    text.push_str(&format!(
        "Size: {size}, {share} of the footprint. From there on more cache saves fewer misses for its \
         size.\n{}\n",
        align(&rows, 0)
    ));
    let missed = |kind| of_policy(advice, kind).map_or(1.0, Outcome::miss_ratio);
    let (lru, optimum) = (missed(Kind::Lru), missed(Kind::Belady));
    let chosen = missed(advice.policy);
    let why = if advice.policy == Kind::default() {
        "no fixed policy misses less by more than one point"
    } else {
        "it misses less than the default by more than one point here; another load may turn that"
    };
    text.push_str(&format!(
        "Policy: {}: {why}.\nIt misses {} of blocks, LRU {}, the optimum without bypass {}.\n",
        advice.policy,
        percent(chosen),
        percent(lru),
        percent(optimum)
    ));
    let (configs, outcomes): (Vec<Config>, Vec<Outcome>) = advice.policies.iter().cloned().unzip();
    text.push_str(&table(&configs, &outcomes, sample));
    let point = advice.insertion_percent;
    text.push_str(&format!(
        "\nInsertion point: {point} (for LRU with one): it misses {}.\n",
        percent(missed(Kind::MidPoint(point)))
    ));
    let of_geometry = |index: usize| {
        let (_, outcome) = &advice.geometries[index];
        (percent(outcome.miss_ratio()), percent(outcome.busier_half_of_operations))
    };
    let (usual, one, small) = (of_geometry(0), of_geometry(1), of_geometry(2));
    text.push_str(&format!(
        "Sets: of 16 MiB, hashed: they miss {}, one set {}, linear sets of 2 MiB {}.\n\
         The busier half of the sets causes {} of the disk operations; of the linear ones {}.\n",
        usual.0, one.0, small.0, usual.1, small.1
    ));
    if let Some(outcome) = of_policy(advice, advice.policy) {
        let times = outcome.drive_writes(advice.slots);
        let warning = if times > 20.0 {
            "\nThat is a lot: a larger cache turns over more slowly, and a write budget limits it."
        } else {
            ""
        };
        text.push_str(&format!(
            "Wear: the trace writes {} to the flash, {times:.1} times its size.{warning}\n",
            bytes(outcome.flash_blocks_written)
        ));
    }
    text
}

fn as_json(title: &str, advice: &Advice, sample: Option<Sample>) -> Value {
    let blocks = |blocks| whole(sample, blocks);
    let curve = advice.curve.iter();
    let curve: Vec<Value> = curve
        .map(|point| json!({ "cache_blocks": blocks(point.slots), "miss_ratio": point.miss_ratio }))
        .collect();
    let all = |these: &[(Config, Outcome)]| -> Vec<Value> {
        these.iter().map(|(config, outcome)| of(config, outcome)).collect()
    };
    json!({
        "trace": title,
        "sample": sample.map(|sample| sample.rate()),
        "cache_blocks": blocks(advice.slots),
        "cache_bytes": blocks(advice.slots) * BLOCK_BYTES,
        "policy": advice.policy.to_string(),
        "insertion_percent": advice.insertion_percent,
        "curve": curve,
        "policies": all(&advice.policies),
        "geometries": all(&advice.geometries),
    })
}
