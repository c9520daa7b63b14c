//! The meaning of a run's figures for the real devices: life, cost, room; and the best case by each criterion.

use serde::{Deserialize, Serialize};

use super::inputs::Load;
use super::measured::{ClockKind, MeasuredCase};
use super::resolve::{Case, Plan};
use crate::device_load::Timing;

/// Days of a year, and months.
const DAYS: f64 = 365.25;
const MONTHS: f64 = 12.0;
const SECONDS_PER_DAY: f64 = 86_400.0;
/// Figures that differ by less are as good as each other.
const AS_GOOD: f64 = 0.01;

/// A drive of a case, as the real one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveJudged {
    /// Its name in the file.
    pub name: String,
    /// Bytes that it was written for each byte that the user wrote.
    pub per_user_byte: Option<f64>,
    /// Bytes to its media for each byte that it was written.
    pub write_amplification: Option<f64>,
    /// How long its rated erasures last, in years; none where nothing is known of writes or of wear.
    pub life_years: Option<f64>,
    /// Its cost in a year, where a price is known.
    pub cost_per_year: Option<f64>,
}

/// A case, as the real devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The case.
    pub name: String,
    /// The alternative.
    pub alternative: String,
    /// Parameters of the sweep, and their values.
    pub point: Vec<(String, String)>,
    /// Its figures, of the scaled-down devices.
    pub measured: MeasuredCase,
    /// Its drives.
    pub drives: Vec<DriveJudged>,
    /// The names of its devices, each one before those it is made of.
    pub devices: Vec<String>,
    /// The shortest life of its drives that wear, in years.
    pub life_years: Option<f64>,
    /// DRAM of the real host, in bytes.
    pub dram_bytes: f64,
    /// Bytes that the real devices can take of data.
    pub room_bytes: f64,
    /// The share of its time that the real load takes; above 1 the alternative is not known to keep up.
    pub busy_share: Option<f64>,
    /// Months until they are full; 0 where they do not even hold today's data.
    pub full_in_months: Option<f64>,
    /// The cost of all drives, and of the DRAM, in a year.
    pub cost_per_year: Option<f64>,
    /// The cost of a drive in a year, in the mean.
    pub cost_per_drive_year: Option<f64>,
}

/// How good a case is by one criterion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The criterion.
    pub criterion: String,
    /// The cases that are best, which differ by less than a hundredth.
    pub names: Vec<String>,
    /// The figure of the first of them, in words.
    pub figure: String,
    /// The figure of the worst case, in words.
    pub worst: String,
}

/// Judges a case.
#[allow(clippy::cast_precision_loss)] // sizes of real devices
pub(super) fn judge(plan: &Plan, case: &Case, measured: MeasuredCase) -> Judged {
    let growth = &plan.growth;
    let per_day = times_a_day(plan, case, &measured);
    let user = measured.user_written_bytes as f64;
    let mut drives = Vec::new();
    for (facts, used) in case.drives.iter().zip(measured.drives()) {
        let media_per_day = per_day.map(|times| used.passed_bytes as f64 * times);
        let life_years = facts.media_bytes.zip(media_per_day).and_then(|(media, daily)| {
            let years = f64::from(facts.rated_erasures) * media / (daily * DAYS);
            (daily > 0.0).then_some(years)
        });
        let kept = life_years.unwrap_or(f64::INFINITY).min(growth.replace_after_years);
        drives.push(DriveJudged {
            name: facts.name.clone(),
            per_user_byte: (user > 0.0).then(|| used.written_bytes as f64 / user),
            write_amplification: used.amplification(),
            life_years,
            cost_per_year: facts.price.map(|price| price / kept),
        });
    }
    let dram_bytes = measured.dram_bytes() as f64 * plan.scale;
    let room_bytes =
        measured.usable_bytes as f64 * plan.scale / measured.space_amplification.max(1.0);
    let all: Option<f64> = drives.iter().map(|one| one.cost_per_year).sum();
    let dram = plan
        .dram_per_gib
        .map_or(0.0, |price| price * dram_bytes / f64::from(1 << 30) / growth.replace_after_years);
    Judged {
        name: case.name.clone(),
        alternative: case.alternative.clone(),
        point: case.point.clone(),
        life_years: drives.iter().filter_map(|one| one.life_years).reduce(f64::min),
        dram_bytes,
        room_bytes,
        busy_share: busy_share(plan, case, &measured),
        full_in_months: growth.data_bytes.and_then(|data| match growth.data_per_month {
            _ if data > room_bytes => Some(0.0),
            Some(monthly) => Some((room_bytes - data) / monthly),
            None => None,
        }),
        cost_per_year: all.map(|drives| drives + dram),
        cost_per_drive_year: all.map(|all| all / drives.len().max(1) as f64),
        drives,
        devices: case.names.clone(),
        measured,
    }
}

/// How many times a day the measured load comes: as often as growth says, or as a trace was recorded.
#[allow(clippy::cast_precision_loss)] // a ratio of byte counts
fn times_a_day(plan: &Plan, case: &Case, measured: &MeasuredCase) -> Option<f64> {
    let written = measured.user_written_bytes as f64;
    match (plan.growth.written_per_day, measured_s(case)) {
        (Some(daily), _) if written > 0.0 => Some(daily / written),
        (_, Some(seconds)) => Some(SECONDS_PER_DAY / seconds),
        _ => None,
    }
}

/// The share of a day that its load takes: the writes that growth says, or a trace as it was recorded.
fn busy_share(plan: &Plan, case: &Case, measured: &MeasuredCase) -> Option<f64> {
    // One client in turn with the engine's maintenance says nothing of many at once.
    if measured.clock == ClockKind::InTurn && matches!(case.inputs.load, Load::Engine(_)) {
        return None;
    }
    match (plan.growth.written_per_day, measured_s(case), &case.inputs.load) {
        (Some(daily), ..) if measured.written_bytes_per_s > 0.0 => {
            Some(daily / SECONDS_PER_DAY / measured.written_bytes_per_s)
        }
        (None, Some(seconds), Load::Trace(of)) if of.timing == Timing::Order => {
            Some(measured.elapsed_s / seconds)
        }
        _ => None,
    }
}

/// Seconds over which the measured part of a trace was recorded.
fn measured_s(case: &Case) -> Option<f64> {
    let Load::Trace(of) = &case.inputs.load else { return None };
    case.recorded_s.map(|seconds| seconds * (1.0 - of.warm_up))
}

/// A criterion: its name, whether more is better, its figure, and how that is said.
struct Criterion {
    name: &'static str,
    is_more_better: bool,
    figure: fn(&Judged) -> Option<f64>,
    show: fn(f64, &str) -> String,
}

/// Which cases are best by each criterion that tells them apart.
pub(super) fn best(cases: &[Judged], currency: &str) -> Vec<Best> {
    criteria().iter().filter_map(|criterion| best_by(criterion, cases, currency)).collect()
}

fn criteria() -> [Criterion; 7] {
    [
        Criterion {
            name: "throughput",
            is_more_better: true,
            figure: |one| one.measured.is_timed().then_some(one.measured.ops_per_s),
            show: |value, _| esker_report::Unit::Rate.show(value),
        },
        Criterion {
            name: "tail latency (99.9 %)",
            is_more_better: false,
            figure: |one| {
                let tail = one.measured.tail()?;
                one.measured.is_timed().then_some(tail.p999_us)
            },
            show: |value, _| crate::text::span(value),
        },
        Criterion {
            name: "write amplification in all",
            is_more_better: false,
            figure: |one| one.measured.write_amplification().filter(|_| one.measured.is_steady()),
            show: |value, _| format!("{value:.2}"),
        },
        Criterion {
            name: "drive life",
            is_more_better: true,
            figure: |one| one.life_years.filter(|_| one.measured.is_steady()),
            show: |value, _| years(value),
        },
        Criterion {
            name: "DRAM",
            is_more_better: false,
            figure: |one| (one.dram_bytes > 0.0).then_some(one.dram_bytes),
            show: |value, _| esker_report::Unit::Bytes.show(value),
        },
        Criterion {
            name: "cost per year",
            is_more_better: false,
            figure: |one| one.cost_per_year.filter(|_| one.measured.is_steady()),
            show: |value, currency| format!("{currency}{value:.2}"),
        },
        Criterion {
            name: "cost per drive-year",
            is_more_better: false,
            figure: |one| one.cost_per_drive_year.filter(|_| one.measured.is_steady()),
            show: |value, currency| format!("{currency}{value:.2}"),
        },
    ]
}

fn best_by(criterion: &Criterion, cases: &[Judged], currency: &str) -> Option<Best> {
    let mut known: Vec<(&str, f64)> = cases
        .iter()
        .filter_map(|one| Some((one.name.as_str(), (criterion.figure)(one)?)))
        .collect();
    known.sort_by(|one, other| match criterion.is_more_better {
        true => other.1.total_cmp(&one.1),
        false => one.1.total_cmp(&other.1),
    });
    let (first, last) = (known.first()?.1, known.last()?.1);
    let is_as_good = |value: f64| (value - first).abs() <= AS_GOOD * first.abs();
    if known.len() < 2 || is_as_good(last) {
        return None;
    }
    let names = known.iter().filter(|(_, value)| is_as_good(*value));
    Some(Best {
        criterion: criterion.name.to_owned(),
        names: names.map(|(name, _)| (*name).to_owned()).collect(),
        figure: (criterion.show)(first, currency),
        worst: (criterion.show)(last, currency),
    })
}

/// Years in words.
pub(super) fn years(years: f64) -> String {
    match years {
        ..0.1 => format!("{:.1} days", years * DAYS),
        ..100.0 => format!("{years:.1} years"),
        _ => "over 100 years".to_owned(),
    }
}

/// Months in words.
pub(super) fn months(months: f64) -> String {
    match months {
        0.0 => "too small".to_owned(),
        ..24.0 => format!("{months:.0} months"),
        _ => years(months / MONTHS),
    }
}

/// The clock of a case, in a word or two.
pub(super) fn clock(measured: &MeasuredCase) -> String {
    match measured.clock {
        ClockKind::Virtual => "virtual".to_owned(),
        ClockKind::InTurn => "virtual, in turn".to_owned(),
        ClockKind::Dilated(factor) => {
            let decider = measured.decider.map_or("", |one| one.name());
            format!("{factor} x slower: {decider}")
        }
    }
}
