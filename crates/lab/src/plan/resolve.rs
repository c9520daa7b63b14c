//! From a file to runs: every alternative, at every point of the sweep, with everything that it depends on.

mod devices;
mod loads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::Value;

use super::drive::Facts;
use super::file::{self, Alternative, File, Growth, Read, Refusal, Wrong};
use super::inputs::{Inputs, Load};
use super::surroundings::Surroundings;
use crate::LabError;

/// The most runs of a plan.
const MOST_RUNS: usize = 10_000;
/// Years after which a drive is replaced, where nothing is said.
const REPLACE_AFTER_YEARS: f64 = 5.0;

/// A plan, ready to be run.
pub(super) struct Plan {
    pub(super) title: String,
    pub(super) scale: f64,
    pub(super) cases: Vec<Case>,
    pub(super) growth: GrowthFacts,
    pub(super) currency: String,
    pub(super) dram_per_gib: Option<f64>,
    /// The load in words.
    pub(super) load: String,
}

/// The years to come, as far as the file says. Sizes are real ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GrowthFacts {
    pub(super) data_bytes: Option<f64>,
    pub(super) data_per_month: Option<f64>,
    pub(super) written_per_day: Option<f64>,
    pub(super) replace_after_years: f64,
}

/// An alternative at a point of the sweep.
pub(super) struct Case {
    /// The name of the alternative, with its point of the sweep.
    pub(super) name: String,
    /// The alternative alone.
    pub(super) alternative: String,
    /// Where it stands in the sweep: parameters and values.
    pub(super) point: Vec<(String, String)>,
    pub(super) inputs: Inputs,
    /// Its drives, in the order of the inputs, from the left.
    pub(super) drives: Vec<Facts>,
    /// The names of all of its devices in the order of the inputs: each one before those it is made of.
    pub(super) names: Vec<String>,
    /// Seconds that a trace was recorded over.
    pub(super) recorded_s: Option<f64>,
}

/// A point of a sweep: the parameters and the values that it sets.
type Point<'v> = Vec<(&'v str, &'v Value)>;

/// Resolves a plan that was read.
///
/// # Errors
/// The line of the settings that do not go together, and the remedy.
pub(super) fn resolve(
    read: &Read,
    folder: &Path,
    surroundings: &Surroundings<'_>,
) -> Result<Plan, LabError> {
    let Read { file, table, lines } = read;
    let wrong = |one: Wrong| lines.wrong(&one);
    let scale = scale(file).map_err(wrong)?;
    if file.alternative.is_empty() {
        let why = "there is nothing to compare: add [[alternative]] with a name and its devices";
        return Err(wrong(Wrong::at(["title"], why)));
    }
    let points = points(&file.sweep).map_err(wrong)?;
    let count = points.len().saturating_mul(file.alternative.len());
    if count > MOST_RUNS {
        let why =
            format!("the sweep makes {count} runs, more than {MOST_RUNS}: sweep less at once");
        return Err(wrong(Wrong::at(["sweep"], why)));
    }
    let mut traces = loads::Traces::new(folder, surroundings);
    let mut cases: Vec<Case> = Vec::new();
    let mut load = String::new();
    for (index, alternative) in file.alternative.iter().enumerate() {
        let at = ["alternative".to_owned(), index.to_string()];
        check_name(file, index, alternative).map_err(wrong)?;
        let mut seen = BTreeSet::new();
        for point in &points {
            let own = alternative.set.iter().map(|(key, value)| (key.as_str(), value));
            let values = point.iter().copied().chain(own);
            let changed = file::changed(table, values).map_err(|(key, why)| {
                let is_swept = file.sweep.contains_key(&key);
                let place = match is_swept {
                    true => vec!["sweep".to_owned(), key.clone()],
                    false => [&at[..], &["set".to_owned(), key.clone()]].concat(),
                };
                wrong(Wrong { at: place, why: format!("{key}: {why}") })
            })?;
            let resolved = case(&changed, index, scale, &mut traces);
            let mut case = resolved.map_err(|refusal| refused(refusal, lines, point))?;
            // A parameter that changes nothing here makes no further case.
            if !seen.insert(format!("{} {:?}", case.inputs.canonical(), case.drives)) {
                continue;
            }
            case.point =
                point.iter().map(|(key, value)| ((*key).to_owned(), show(value))).collect();
            if load.is_empty() {
                load = loads::in_words(&case.inputs.load);
            }
            cases.push(case);
        }
        name_cases(&mut cases, &alternative.name);
    }
    Ok(Plan {
        title: file.title.clone().unwrap_or_else(|| "A plan".to_owned()),
        scale,
        cases,
        growth: growth(file.growth.unwrap_or_default()).map_err(wrong)?,
        currency: file
            .prices
            .as_ref()
            .and_then(|prices| prices.currency.clone())
            .unwrap_or_else(|| "$".to_owned()),
        dram_per_gib: file
            .prices
            .as_ref()
            .and_then(|prices| prices.dram_per_gib)
            .map(|price| price.0),
        load,
    })
}

/// The refusal of a case, with its point in the sweep.
fn refused(refusal: Refusal, lines: &file::Lines, point: &Point<'_>) -> LabError {
    let values: Vec<String> =
        point.iter().map(|(key, value)| format!("{key} = {}", show(value))).collect();
    match refusal {
        Refusal::Missing(wrong) => lines.missing(&wrong),
        Refusal::Wrong(wrong) if values.is_empty() => lines.wrong(&wrong),
        Refusal::Wrong(wrong) => {
            let why = format!("{} (with {})", wrong.why, values.join(", "));
            lines.wrong(&Wrong { why, ..wrong })
        }
    }
}

fn scale(file: &File) -> Result<f64, Wrong> {
    let scale = file.scale.unwrap_or(1.0);
    match (1.0..=1e9).contains(&scale) {
        true => Ok(scale),
        false => Err(Wrong::at(["scale"], format!("{scale}: everything is divided by 1 to 1e9"))),
    }
}

#[allow(clippy::cast_precision_loss)] // sizes for years to come
fn growth(of: Growth) -> Result<GrowthFacts, Wrong> {
    let years = of.replace_after_years.unwrap_or(REPLACE_AFTER_YEARS);
    if !(years > 0.0 && years <= 100.0) {
        let why = format!("{years} years: a drive is kept for more than none, and at most for 100");
        return Err(Wrong::at(["growth", "replace_after_years"], why));
    }
    let bytes = |of: Option<file::Bytes>| of.map(|bytes| bytes.0 as f64);
    Ok(GrowthFacts {
        data_bytes: bytes(of.data),
        data_per_month: bytes(of.data_per_month),
        written_per_day: bytes(of.written_per_day),
        replace_after_years: years,
    })
}

fn check_name(file: &File, index: usize, alternative: &Alternative) -> Result<(), Wrong> {
    let at = ["alternative".to_owned(), index.to_string(), "name".to_owned()];
    if alternative.name.trim().is_empty() {
        return Err(Wrong::at(at, "a name is missing"));
    }
    let is_taken = file.alternative[..index].iter().any(|one| one.name == alternative.name);
    match is_taken {
        true => Err(Wrong::at(
            at,
            format!("'{}' is there twice: choose another name", alternative.name),
        )),
        false => Ok(()),
    }
}

/// All combinations of the values of a sweep; one without values where there is none.
fn points(sweep: &BTreeMap<String, Vec<Value>>) -> Result<Vec<Point<'_>>, Wrong> {
    let mut points: Vec<Point<'_>> = vec![Vec::new()];
    for (key, values) in sweep {
        if values.is_empty() {
            return Err(Wrong::at(["sweep", key], "the list is empty: write one value or more"));
        }
        if points.len().saturating_mul(values.len()) > MOST_RUNS {
            let why = format!("the sweep makes more than {MOST_RUNS} runs: sweep less at once");
            return Err(Wrong::at(["sweep", key], why));
        }
        points = points
            .iter()
            .flat_map(|point| {
                values.iter().map(move |value| {
                    let mut longer = point.clone();
                    longer.push((key.as_str(), value));
                    longer
                })
            })
            .collect();
    }
    Ok(points)
}

fn show(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Names the cases of an alternative by the parameters that tell them apart.
fn name_cases(cases: &mut [Case], alternative: &str) {
    let own: Vec<usize> =
        (0..cases.len()).filter(|index| cases[*index].alternative == alternative).collect();
    let differs = |key: &str, cases: &[Case]| {
        let value = |index: usize| {
            cases[index].point.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
        };
        own.iter().any(|index| value(*index) != value(own[0]))
    };
    for index in &own {
        let parts: Vec<String> = cases[*index]
            .point
            .iter()
            .filter(|(key, _)| differs(key, cases))
            .map(|(key, value)| {
                let short = key.rsplit('.').next().unwrap_or(key).replace('_', " ");
                format!("{short} {value}")
            })
            .collect();
        let name = match parts.is_empty() {
            true => alternative.to_owned(),
            false => format!("{alternative}, {}", parts.join(", ")),
        };
        cases[*index].name = name;
    }
}

/// An alternative of a file in which everything has its value.
fn case(
    file: &File,
    index: usize,
    scale: f64,
    traces: &mut loads::Traces<'_>,
) -> Result<Case, Refusal> {
    let alternative = &file.alternative[index];
    let mut named = devices::Named::of(file, scale)?;
    let at = |key: &str| vec!["alternative".to_owned(), index.to_string(), key.to_owned()];
    let is_engine = file.ycsb.is_some();
    let mut devices = Vec::new();
    match (is_engine, &alternative.device, &alternative.capacity) {
        (false, Some(device), None) if alternative.staging.is_none() => {
            devices.push(named.take(device, &at("device"))?);
        }
        (true, None, Some(capacity)) => {
            devices.push(named.take(capacity, &at("capacity"))?);
            if let Some(staging) = &alternative.staging {
                devices.push(named.take(staging, &at("staging"))?);
            }
        }
        (false, ..) => {
            let why = "a load on a device names it: device = \"NAME\", without classes";
            return Err(Wrong { at: at("name"), why: why.to_owned() }.into());
        }
        (true, ..) => {
            let why = "a load on the engine names its classes: capacity = \"NAME\", perhaps staging = \"NAME\"";
            return Err(Wrong { at: at("name"), why: why.to_owned() }.into());
        }
    }
    let seed = file.seed.unwrap_or(1);
    let (load, recorded_s) = loads::resolve(file, scale, seed, traces)?;
    if scale > 1.0 && matches!(load, Load::Trace(_)) {
        let why = "a trace is not scaled: leave it out, and give drives a capacity near what the trace touches";
        return Err(Wrong::at(["scale"], why).into());
    }
    Ok(Case {
        name: alternative.name.clone(),
        alternative: alternative.name.clone(),
        point: Vec::new(),
        inputs: Inputs { devices, load, filled: loads::filled(file)?, seed },
        drives: named.facts,
        names: named.names,
        recorded_s,
    })
}
