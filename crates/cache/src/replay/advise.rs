//! Which size, policy, insertion point and geometry a trace asks for, and why.
//!
//! Called by `esker trace advise`. The size is the knee of the miss-ratio curve: where it is
//! farthest below the straight line between its ends (Satopaa and others, 2011, "kneedle").
//! Policies and geometries are compared at that size.

use esker_base::policy::Kind;

use super::{Config, Mode, Outcome, Trace, run_all};
use crate::{CacheError, Geometry, Placement};

/// The sizes of the curve, in thousandths of the footprint.
const SIZES: [u64; 12] = [10, 20, 35, 50, 75, 100, 150, 200, 300, 400, 600, 1_000];
/// The insertion points that are tried, in percent.
const POINTS: [u8; 6] = [25, 50, 65, 75, 85, 95];
/// A fixed policy has to miss less than the default by so much to be proposed.
const WORTH: f64 = 0.01;

/// A point of the miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The cache's size in blocks.
    pub slots: u64,
    /// The share of referenced blocks that it misses, under the default policy.
    pub miss_ratio: f64,
}

/// Advice for a trace.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The default policy at many sizes.
    pub curve: Vec<Point>,
    /// The size to choose, in blocks: the curve's knee.
    pub slots: u64,
    /// The policy to choose.
    pub policy: Kind,
    /// The best insertion point, in percent, for LRU with one.
    pub insertion_percent: u8,
    /// Every policy at that size in the usual geometry, and the insertion points.
    pub policies: Vec<(Config, Outcome)>,
    /// The policy at that size in other geometries: one set, and linear sets of 2 MiB.
    pub geometries: Vec<(Config, Outcome)>,
}

/// The point of the curve that is farthest below the line between its ends.
fn knee(curve: &[Point]) -> u64 {
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return 1 };
    #[allow(clippy::cast_precision_loss)] // a share
    let below = |point: &Point| {
        let run = (point.slots - first.slots) as f64 / (last.slots - first.slots).max(1) as f64;
        first.miss_ratio + (last.miss_ratio - first.miss_ratio) * run - point.miss_ratio
    };
    let best = curve.iter().max_by(|a, b| below(a).total_cmp(&below(b)));
    best.map_or(1, |point| point.slots)
}

/// Runs the simulations that advice needs, with `threads` threads.
///
/// # Errors
/// When a thread could not be started.
pub fn advise(trace: &Trace, mode: Mode, threads: usize) -> Result<Advice, CacheError> {
    let config = |policy, slots| Config { mode, ..Config::new(policy, slots) };
    let sizes = SIZES.map(|permille| (trace.footprint() * permille / 1_000).max(1));
    let configs = sizes.map(|slots| config(Kind::default(), slots));
    let outcomes = run_all(trace, &configs, threads)?;
    let points = sizes.iter().zip(&outcomes);
    let curve: Vec<Point> =
        points.map(|(&slots, outcome)| Point { slots, miss_ratio: outcome.miss_ratio() }).collect();
    let slots = knee(&curve);

    let kinds = Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::MidPoint(_)));
    let kinds = kinds.chain(POINTS.map(Kind::MidPoint));
    let configs: Vec<Config> = kinds.map(|kind| config(kind, slots)).collect();
    let policies: Vec<(Config, Outcome)> =
        configs.iter().copied().zip(run_all(trace, &configs, threads)?).collect();
    let missed = |(_, outcome): &&(Config, Outcome)| outcome.miss_ratio();
    let least = |allowed: fn(Kind) -> bool| {
        let these = policies.iter().filter(|(config, _)| allowed(config.policy));
        these.min_by(|a, b| missed(a).total_cmp(&missed(b)))
    };
    let default = least(|kind| kind == Kind::default());
    let best = least(|kind| kind != Kind::Belady);
    let policy = match (default, best) {
        (Some(default), Some(best)) if missed(&best) < missed(&default) - WORTH => best.0.policy,
        _ => Kind::default(),
    };
    let point = least(|kind| matches!(kind, Kind::MidPoint(_)));
    let insertion_percent = match point.map(|(config, _)| config.policy) {
        Some(Kind::MidPoint(percent)) => percent,
        _ => esker_base::policy::MID_POINT,
    };

    let usual = config(policy, slots);
    let one = Geometry { set_slots: u32::MAX, ..usual.geometry };
    let small = Geometry { set_slots: 512, run_blocks: 512, ..usual.geometry };
    let small = Geometry { placement: Placement::Linear, ..small };
    let configs = [usual.geometry, one, small].map(|geometry| Config { geometry, ..usual });
    let geometries = configs.into_iter().zip(run_all(trace, &configs, threads)?).collect();
    Ok(Advice { curve, slots, policy, insertion_percent, policies, geometries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::TraceBuilder;
    use esker_base::Rng;
    use esker_base::policy::Access;

    #[test]
    fn the_knee_is_where_more_cache_stops_paying() {
        let curve = [(10, 0.9), (20, 0.5), (30, 0.2), (60, 0.15), (100, 0.1)];
        let curve = curve.map(|(slots, miss_ratio)| Point { slots, miss_ratio });
        assert_eq!(knee(&curve), 30);
        assert_eq!(knee(&curve[..1]), 10);
        assert_eq!(knee(&[]), 1);
    }

    #[test]
    fn a_hot_part_is_found_and_a_scan_is_not_paid_for() {
        let mut rng = Rng::new(1);
        let mut builder = TraceBuilder::new();
        for round in 0..300 {
            (0..200).for_each(|_| builder.push(rng.below(1_000), 1, Access::Read));
            builder.push(10_000 + round * 30, 30, Access::Read);
        }
        let trace = builder.finish().unwrap();
        let advice = advise(&trace, Mode::WriteBack, 2).unwrap();
        assert!((700..=2_500).contains(&advice.slots), "{advice:?}");
        assert_eq!(advice.policies.len(), Kind::ALL.len() - 1 + POINTS.len());
        assert_eq!(advice.geometries.len(), 3);
        assert!(
            advice.curve.windows(2).all(|pair| pair[1].miss_ratio <= pair[0].miss_ratio + 0.02)
        );
    }
}
