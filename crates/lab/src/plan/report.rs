//! The report of a plan, as text and JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use esker_report::Unit;
use serde::{Deserialize, Serialize};

pub use super::judge::{Best, DriveJudged, Judged};

use super::drives;
use super::judge::{self, best, judge, months, years};
use super::measured::ClockKind;
use super::resolve::Plan;
use super::schedule::Outcome;
use crate::text::span;

/// The name of the form of the JSON.
const FORMAT: &str = "esker-plan/2";

/// The columns of the table of cases.
pub(super) const COLUMNS: [&str; 14] = [
    "alternative",
    "per second",
    "MB/s",
    "99 %",
    "99.9 %",
    "above drives",
    "in drives",
    "in all",
    "life",
    "of a day",
    "full in",
    "DRAM",
    "cost a year",
    "a drive-year",
];
/// Those of the table of layers.
pub(super) const LAYERS: [&str; 4] =
    ["alternative: device", "written", "passed on", "amplification"];
/// Those of the table of drives.
pub(super) const DRIVES: [&str; 5] = [
    "alternative: drive",
    "for each byte of the user",
    "amplification inside",
    "life",
    "cost a year",
];

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// The form of this report.
    pub format: String,
    /// The plan's title.
    pub title: String,
    /// The findings, in a few sentences.
    pub finding: String,
    /// Which case is best by each criterion that tells them apart.
    pub best: Vec<Best>,
    /// All cases, in the order of the file.
    pub cases: Vec<Judged>,
    /// The load in words.
    pub load: String,
    /// Assumptions behind all figures.
    pub assumptions: Vec<(String, String)>,
    /// Remarks on the runs.
    pub remarks: Vec<String>,
    /// How many results were kept of earlier runs, and how many runs were made.
    pub kept: usize,
    /// See `kept`.
    pub made: usize,
    /// The currency of prices.
    pub currency: String,
    /// Where it was run.
    pub environment: BTreeMap<String, String>,
    /// How.
    pub command: String,
}

impl PlanReport {
    pub(super) fn new(plan: &Plan, outcome: Outcome) -> PlanReport {
        let Outcome { measured, kept, made, mut remarks } = outcome;
        let cases: Vec<Judged> = plan
            .cases
            .iter()
            .zip(measured)
            .map(|(case, measured)| judge(plan, case, measured))
            .collect();
        remarks.extend(remarks_of(&cases));
        let best = best(&cases, &plan.currency);
        PlanReport {
            format: FORMAT.to_owned(),
            title: plan.title.clone(),
            finding: finding(plan, &best, &cases),
            best,
            load: plan.load.clone(),
            assumptions: assumptions(plan, &cases),
            cases,
            remarks,
            kept,
            made,
            currency: plan.currency.clone(),
            environment: BTreeMap::new(),
            command: String::new(),
        }
    }

    /// As JSON, indented.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a JSON form")
    }

    /// The meaning of the cases' clocks for their times.
    pub(super) fn clock_notes(&self) -> Vec<String> {
        let of =
            |kind: fn(&ClockKind) -> bool| self.cases.iter().any(|one| kind(&one.measured.clock));
        let mut notes = Vec::new();
        if of(|one| *one == ClockKind::Virtual) {
            notes.push("times are virtual: the same on every machine".to_owned());
        }
        if of(|one| *one == ClockKind::InTurn) {
            notes.push(
                "in parentheses: the engine, a cache or a pool did its background work in turn with requests. Bytes, \
                 life and DRAM are right; rates are lower bounds, and are not compared. For the engine, \
                 time = \"dilated\" gives rates and tails"
                    .to_owned(),
            );
        }
        for one in &self.cases {
            if let Some(why) = &one.measured.unsteady {
                notes.push(format!("{}: not steady, and not ranked: {why}", one.name));
            }
            if let ClockKind::Dilated(factor) = one.measured.clock {
                let decider = one.measured.decider.map_or("nothing", |it| it.name());
                let busy = one.measured.processors.map_or_else(
                    || "unknown".to_owned(),
                    |share| format!("{:.0} %", share * 100.0),
                );
                let apart = match one.measured.is_timed() {
                    true => "",
                    false => ": its times are not compared; raise dilation",
                };
                notes.push(format!(
                    "{}: times of a clock {factor} times slower than real time; {decider} decided, processors were \
                     busy for {busy}{apart}",
                    one.name
                ));
            }
        }
        notes
    }

    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        self.cases.iter().map(|one| self.row(one)).collect()
    }

    fn row(&self, one: &Judged) -> Vec<String> {
        let Judged { measured, .. } = one;
        let tail = measured.tail();
        let flag = |text: String| if measured.is_timed() { text } else { format!("({text})") };
        let latency = |of: Option<f64>| of.map_or_else(none, |us| flag(span(us)));
        let steady = |text: String| match measured.is_steady() || text == none() {
            true => text,
            false => format!("({text})"),
        };
        vec![
            one.name.clone(),
            flag(format!("{:.0}", measured.ops_per_s)),
            flag(format!("{:.1}", measured.bytes_per_s / 1e6)),
            latency(tail.map(|tail| tail.p99_us)),
            latency(tail.map(|tail| tail.p999_us)),
            factor(measured.software_amplification()),
            steady(factor(measured.drive_amplification())),
            steady(factor(measured.write_amplification())),
            steady(one.life_years.map_or_else(none, years)),
            one.busy_share.map_or_else(none, |share| flag(format!("{:.1} %", share * 100.0))),
            one.full_in_months.map_or_else(none, months),
            if one.dram_bytes > 0.0 { Unit::Bytes.show(one.dram_bytes) } else { none() },
            steady(self.money(one.cost_per_year)),
            steady(self.money(one.cost_per_drive_year)),
        ]
    }

    fn money(&self, of: Option<f64>) -> String {
        of.map_or_else(none, |value| format!("{}{value:.2}", self.currency))
    }

    pub(super) fn layer_rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for one in &self.cases {
            if one.measured.engine_written_bytes() > 0 {
                let to = one.measured.engine_written_bytes();
                #[allow(clippy::cast_precision_loss)] // bytes for people
                rows.push(layer(
                    format!("{}: engine", one.name),
                    one.measured.user_written_bytes as f64,
                    to as f64,
                ));
            }
            for (name, used) in one.devices.iter().zip(&one.measured.devices) {
                #[allow(clippy::cast_precision_loss)] // bytes for people
                rows.push(layer(
                    format!("{}: {name}", one.name),
                    used.written_bytes as f64,
                    used.passed_bytes as f64,
                ));
            }
        }
        rows
    }

    pub(super) fn drive_rows(&self) -> Vec<Vec<String>> {
        let each = self.cases.iter().flat_map(|one| {
            one.drives.iter().map(move |drive| {
                vec![
                    format!("{}: {}", one.name, drive.name),
                    factor(drive.per_user_byte),
                    factor(drive.write_amplification),
                    drive.life_years.map_or_else(none, years),
                    self.money(drive.cost_per_year),
                ]
            })
        });
        each.collect()
    }

    /// The clock of each case, in words.
    pub(super) fn clocks(&self) -> Vec<String> {
        self.cases.iter().map(|one| judge::clock(&one.measured)).collect()
    }
}

fn layer(name: String, written: f64, passed: f64) -> Vec<String> {
    let ratio = (written > 0.0).then(|| passed / written);
    vec![name, Unit::Bytes.show(written), Unit::Bytes.show(passed), factor(ratio)]
}

fn none() -> String {
    "-".to_owned()
}

fn factor(of: Option<f64>) -> String {
    of.map_or_else(none, |value| format!("{value:.2}"))
}

/// The findings, in a few sentences, of which the first one says what to take.
fn finding(plan: &Plan, best: &[Best], cases: &[Judged]) -> String {
    match advice(plan, cases) {
        Some(advice) => format!("{advice} {}", findings(best, cases)),
        None => findings(best, cases),
    }
}

/// The case to take: of those that hold the data, keep up and are steady the cheapest, or else the one that lives the
/// longest, or is the fastest.
fn advice(plan: &Plan, cases: &[Judged]) -> Option<String> {
    let does = |one: &&Judged| {
        let fits = one.full_in_months != Some(0.0);
        let keeps_up = one.busy_share.is_none_or(|share| share <= 1.0);
        fits && keeps_up && one.measured.is_steady()
    };
    let fit: Vec<&Judged> = cases.iter().filter(does).collect();
    if fit.is_empty() {
        let needs =
            "hold the data, keep up with the load, and be in a steady state when it was measured";
        return Some(format!("Take none of these: no alternative is known to {needs}."));
    }
    let least = |figure: &dyn Fn(&Judged) -> Option<f64>| {
        let known = fit.iter().map(|one| Some((*one, figure(one)?)));
        let known: Option<Vec<(&Judged, f64)>> = known.collect();
        let (first, rest) = known.as_ref()?.split_first()?;
        let least = rest.iter().fold(first, |least, one| if one.1 < least.1 { one } else { least });
        let is_told_apart = known.iter().flatten().any(|one| one.1 > least.1 * 1.01);
        (is_told_apart || fit.len() == 1).then_some(*least)
    };
    let money = |value: f64| format!("{}{value:.2} a year", plan.currency);
    let (case, why) = if let Some((one, cost)) = least(&|one| one.cost_per_year) {
        (one, format!("it costs the least, {}", money(cost)))
    } else if let Some((one, _)) = least(&|one| one.life_years.map(|years| -years)) {
        (one, format!("its drives live the longest, {}", one.life_years.map_or_else(none, years)))
    } else if let Some((one, _)) =
        least(&|one| one.measured.is_timed().then_some(-one.measured.ops_per_s))
    {
        (one, format!("it is the fastest, {}", Unit::Rate.show(one.measured.ops_per_s)))
    } else {
        return None;
    };
    let of = match cases.len() - fit.len() {
        0 => String::new(),
        1 => format!(", of the {} that do the job (one does not)", fit.len()),
        left => format!(", of the {} that do the job ({left} do not)", fit.len()),
    };
    Some(format!("Take “{}”, because {why}{of}.", case.name))
}

/// The findings on each criterion.
fn findings(best: &[Best], cases: &[Judged]) -> String {
    if cases.len() < 2 {
        return "There is one case, and nothing to compare it with.".to_owned();
    }
    if best.is_empty() {
        return "No criterion tells the alternatives apart.".to_owned();
    }
    let sentences = best.iter().map(|one| {
        let names = match &one.names[..] {
            [first] => format!("“{first}” is best"),
            [first, rest @ ..] => format!("“{first}” and {} more are best", rest.len()),
            [] => String::new(),
        };
        format!("By {} {names}: {}, where the worst has {}.", one.criterion, one.figure, one.worst)
    });
    let mut text = sentences.collect::<Vec<String>>().join(" ");
    let small: Vec<&str> = cases
        .iter()
        .filter(|one| one.full_in_months == Some(0.0))
        .map(|one| one.name.as_str())
        .collect();
    if !small.is_empty() {
        let _ = write!(text, " The data does not fit: {}.", small.join("; "));
    }
    let slow = cases
        .iter()
        .filter(|one| one.measured.is_timed() && one.busy_share.is_some_and(|share| share > 1.0));
    let slow: Vec<&str> = slow.map(|one| one.name.as_str()).collect();
    if !slow.is_empty() {
        let _ = write!(text, " Cannot keep up with the load: {}.", slow.join("; "));
    }
    text
}

/// The remarks on the runs, each once with all cases that have it.
fn remarks_of(cases: &[Judged]) -> Vec<String> {
    let mut of: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in cases {
        for remark in &one.measured.remarks {
            match of.iter_mut().find(|(known, _)| known == remark) {
                Some((_, names)) if names.contains(&one.name.as_str()) => {}
                Some((_, names)) => names.push(&one.name),
                None => of.push((remark, vec![&one.name])),
            }
        }
    }
    of.into_iter().map(|(remark, names)| format!("{}: {remark}", names.join("; "))).collect()
}

fn assumptions(plan: &Plan, cases: &[Judged]) -> Vec<(String, String)> {
    let mut all = vec![("load".to_owned(), plan.load.clone())];
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    if plan.scale > 1.0 {
        add(
            "scale",
            format!(
                "data, memory, drives and caches are 1/{} of what the file says; rates and latencies of drives are \
                 whole. Life, room, DRAM and cost are of the real ones",
                plan.scale
            ),
        );
    }
    let growth = &plan.growth;
    match (growth.written_per_day, plan.cases.iter().any(|one| one.recorded_s.is_some())) {
        (Some(bytes), _) => add("written in a day", Unit::Bytes.show(bytes)),
        (None, true) => add("written in a day", "as in the trace, all day".to_owned()),
        (None, false) => {
            add(
                "written in a day",
                "not said: add [growth] written_per_day for the life of drives".to_owned(),
            );
        }
    }
    if let Some(data) = growth.data_bytes {
        let monthly = growth.data_per_month.map_or_else(
            || "no more later".to_owned(),
            |bytes| format!("{} more each month", Unit::Bytes.show(bytes)),
        );
        add("data", format!("{}, {monthly}", Unit::Bytes.show(data)));
    }
    add(
        "a drive is replaced",
        format!("when it is worn, or after {} years", growth.replace_after_years),
    );
    add(
        "life",
        "rated erasures of all media, worn evenly by the bytes that were measured".to_owned(),
    );
    if cases.iter().any(|one| one.measured.clock != ClockKind::Virtual) {
        add("the engine's manifest", "in memory; its bytes are not in the table".to_owned());
    }
    all.extend(drives::assumptions(&plan.cases, &plan.currency));
    all
}
