//! `esker trace advise`: which cache a trace asks for, and why.

use esker_base::policy::Kind;
use esker_base::units::human_bytes;
use esker_cache::replay::Config;
use esker_cache::replay::Outcome;
use esker_cache::replay::advise::{Advice, advise};
use esker_trace::BLOCK_BYTES;
use serde_json::{Value, json};

use super::input::title;
use super::replay::{load, of, percent, table};
use crate::args::AdviseArgs;
use crate::failure::Result;
use crate::figures::align;
use crate::{host, output};

pub(super) fn show(args: &AdviseArgs) -> Result {
    let trace = load(&args.input)?;
    let advice = advise(&trace, args.mode.into(), host::cores())?;
    if args.json {
        return output::print(&format!("{:#}\n", as_json(&title(&args.input), &advice)));
    }
    output::print(&text(&title(&args.input), trace.footprint(), &advice))
}

fn of_policy(advice: &Advice, policy: Kind) -> Option<&Outcome> {
    let found = advice.policies.iter().find(|(config, _)| config.policy == policy);
    found.map(|(_, outcome)| outcome)
}

#[allow(clippy::cast_precision_loss)] // shares
fn text(title: &str, footprint: u64, advice: &Advice) -> String {
    let size = human_bytes(advice.slots * BLOCK_BYTES);
    let share = percent(advice.slots as f64 / footprint as f64);
    let mut rows = vec![["cache", "of the footprint", "misses", ""].map(str::to_owned).to_vec()];
    for point in &advice.curve {
        let here = if point.slots == advice.slots { "<- the knee" } else { "" };
        rows.push(vec![
            human_bytes(point.slots * BLOCK_BYTES),
            percent(point.slots as f64 / footprint as f64),
            percent(point.miss_ratio),
            here.to_owned(),
        ]);
    }
    let mut text = format!("{title}: a cache of {size}, policy {}\n\n", advice.policy);
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
    text.push_str(&table(&configs, &outcomes));
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
            human_bytes(outcome.flash_blocks_written * BLOCK_BYTES)
        ));
    }
    text
}

fn as_json(title: &str, advice: &Advice) -> Value {
    let curve = advice.curve.iter();
    let curve: Vec<Value> = curve
        .map(|point| json!({ "cache_blocks": point.slots, "miss_ratio": point.miss_ratio }))
        .collect();
    let all = |these: &[(Config, Outcome)]| -> Vec<Value> {
        these.iter().map(|(config, outcome)| of(config, outcome)).collect()
    };
    json!({
        "trace": title,
        "cache_blocks": advice.slots,
        "cache_bytes": advice.slots * BLOCK_BYTES,
        "policy": advice.policy.to_string(),
        "insertion_percent": advice.insertion_percent,
        "curve": curve,
        "policies": all(&advice.policies),
        "geometries": all(&advice.geometries),
    })
}
