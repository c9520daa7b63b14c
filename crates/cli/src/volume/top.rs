//! `esker volume top`: requests to volumes, an interval at a time.

use std::time::Duration;

use esker_serve::pool::answer::{StageView, StatsList, StatsView};
use serde_json::{Value, json};

use crate::args::Where;
use crate::failure::{Failure, Result};
use crate::output;
use crate::pool::link::Link;
use crate::pool::{FORMAT, show};
use crate::signals::StopSignals;

/// Back to the upper left corner, and clear the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows one interval, or goes on until it is interrupted.
pub(super) fn run(pool: &str, once: bool, interval: Duration, at: &Where) -> Result {
    let mut signals = StopSignals::catch()?;
    let link = Link::open(pool, at)?;
    let watched = watch(&link, pool, once, interval, at.json, &mut signals);
    link.close(watched)
}

fn watch(
    link: &Link,
    pool: &str,
    once: bool,
    interval: Duration,
    json: bool,
    signals: &mut StopSignals,
) -> Result {
    let mut earlier = figures(link)?;
    loop {
        if signals.wait(interval) {
            return Ok(());
        }
        let now = figures(link)?;
        let seconds = now.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9;
        let volumes: Vec<StatsView> = now.volumes.iter().map(|one| since(one, &earlier)).collect();
        if json {
            let list = json!({ "format": FORMAT, "seconds": seconds, "volumes": volumes });
            output::print(&format!(
                "{}\n",
                if once { format!("{list:#}") } else { list.to_string() }
            ))?;
        } else {
            let clear = if once { "" } else { CLEAR };
            output::print(&format!("{clear}{}", show::rates(pool, seconds, &volumes)))?;
        }
        if once {
            return Ok(());
        }
        earlier = now;
    }
}

fn figures(link: &Link) -> Result<StatsList> {
    let answer: Value = link.get("/v1/stats")?;
    serde_json::from_value(answer)
        .map_err(|error| Failure::usage(format!("the answer is no figures: {error}")))
}

/// Statistics of a volume since an earlier moment.
fn since(now: &StatsView, earlier: &StatsList) -> StatsView {
    let Some(then) = earlier.volumes.iter().find(|one| one.volume == now.volume) else {
        return now.clone();
    };
    let stages = now.stages.iter().zip(&then.stages).map(|(now, then)| {
        let latency = now.latency.since(&then.latency);
        StageView { stage: now.stage.clone(), latency }
    });
    StatsView {
        volume: now.volume.clone(),
        reads: now.reads.saturating_sub(then.reads),
        read_bytes: now.read_bytes.saturating_sub(then.read_bytes),
        writes: now.writes.saturating_sub(then.writes),
        written_bytes: now.written_bytes.saturating_sub(then.written_bytes),
        discards: now.discards.saturating_sub(then.discards),
        errors: now.errors.saturating_sub(then.errors),
        read_latency: now.read_latency.since(&then.read_latency),
        write_latency: now.write_latency.since(&then.write_latency),
        stages: stages.collect(),
    }
}
