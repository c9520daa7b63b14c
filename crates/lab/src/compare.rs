//! Two runs of the same experiment beside each other: every figure that both have, the largest change first.
//!
//! Any report of the laboratory, of `esker bench` or of `esker demo` in JSON can be compared. A figure is a number
//! with the way that leads to it: names of fields, and of list entries the fields that name them.

use std::collections::BTreeMap;

use esker_report::{Cell, Page, Section, Table};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::LabError;

/// Fields that name an entry of a list, in the order in which they are put together.
const NAMES: [&str; 14] = [
    "name",
    "workload",
    "arm",
    "round",
    "version",
    "percent",
    "percentile",
    "class",
    "stream",
    "operation",
    "cause",
    "way",
    "depth",
    "threads",
];
/// Longer lists of entries without names are courses over time: no figures.
const LIST_MOST: usize = 16;
/// Longer lists of entries with names are histograms.
const NAMED_MOST: usize = 32;
/// Fields that say where and how, and are no figures.
const NOT_FIGURES: [&str; 5] = ["environment", "command", "format", "series", "course"];
/// A figure of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The way that leads to it, parts joined by ` / `.
    pub figure: String,
    /// Value in the first run.
    pub before: f64,
    /// Value in the second run.
    pub after: f64,
}

impl Change {
    /// After over before; none where it was 0.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.before != 0.0).then(|| self.after / self.before)
    }

    /// How far apart they are, whichever is larger: 0 is alike, 1 is twice as much or half, without bound where one is 0.
    #[must_use]
    pub fn distance(&self) -> f64 {
        let (before, after) = (self.before.abs(), self.after.abs());
        match (self.before == self.after, before.min(after)) {
            (true, _) => 0.0,
            (false, _) if self.before.signum() != self.after.signum() => f64::INFINITY,
            (false, least) => before.max(after) / least - 1.0,
        }
    }
}

/// Two runs beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The title of the later run.
    pub title: String,
    /// The commands, the earlier one first.
    pub commands: [String; 2],
    /// Differences between the machines and builds: name, before, after.
    pub environment: Vec<(String, String, String)>,
    /// Figures that both have and that differ by as much as asked for, farthest first; those that were 0, or are, last.
    pub changes: Vec<Change>,
    /// Figures that both have and that differ by less.
    pub alike: usize,
    /// Figures that only the earlier or only the later one has.
    pub only: [Vec<String>; 2],
    /// By how much a figure has to differ to be listed: 0.05 is 5 %.
    pub least: f64,
}

impl Comparison {
    /// Compares two reports in JSON. `least` is the difference from which on a figure is listed: 0.05 is 5 %.
    ///
    /// # Errors
    /// When one is no JSON object, they are of different forms, or `least` is below 0.
    pub fn of(before: &str, after: &str, least: f64) -> Result<Comparison, LabError> {
        if !(least.is_finite() && least >= 0.0) {
            return Err(LabError::Invalid(format!("a difference of {least}: 0.05 is 5 %")));
        }
        let (before, after) = (report(before, "the first")?, report(after, "the second")?);
        let form =
            |of: &Map<String, Value>| of.get("format").and_then(Value::as_str).map(str::to_owned);
        if form(&before) != form(&after) {
            let shown = |of| form(of).unwrap_or_else(|| "no format".to_owned());
            return Err(LabError::Invalid(format!(
                "the reports are of different forms, {} and {}: compare two of the same experiment and version",
                shown(&before),
                shown(&after)
            )));
        }
        let (old, new) = (figures(&before), figures(&after));
        if !old.keys().any(|name| new.contains_key(name)) {
            let why = "the reports have no figure in common: compare two of the same experiment";
            return Err(LabError::Invalid(why.to_owned()));
        }
        let mut changes = Vec::new();
        let mut alike = 0;
        for (figure, &before) in &old {
            let Some(&after) = new.get(figure) else { continue };
            let change = Change { figure: figure.clone(), before, after };
            match change.distance() {
                distance if distance > 0.0 && distance >= least => changes.push(change),
                _ => alike += 1,
            }
        }
        // A figure that was 0 or is 0 now says little of how far: it comes last.
        let order =
            |change: &Change| Some(change.distance()).filter(|one| one.is_finite()).unwrap_or(-1.0);
        changes.sort_by(|a, b| order(b).total_cmp(&order(a)));
        let without = |of: &BTreeMap<String, f64>, other: &BTreeMap<String, f64>| {
            of.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
        };
        let text = |of: &Map<String, Value>, field: &str| {
            of.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Ok(Comparison {
            title: text(&after, "title"),
            commands: [text(&before, "command"), text(&after, "command")],
            environment: environments(&before, &after),
            changes,
            alike,
            only: [without(&old, &new), without(&new, &old)],
            least,
        })
    }

    fn headline(&self) -> String {
        let (changed, all) = (self.changes.len(), self.changes.len() + self.alike);
        let least = self.least * 100.0;
        match self.changes.first() {
            None => format!("None of {all} figures differs by {least} % or more."),
            Some(first) => format!(
                "{changed} of {all} figures differ by {least} % or more, most of all {}: {} then {}.",
                first.figure,
                number(first.before),
                number(first.after)
            ),
        }
    }

    /// As JSON.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::to_value(self).expect("every field has a JSON form")
    }

    /// As a page: all that changed, the farthest first.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(format!("Two runs compared: {}", self.title), self.headline());
        page.command = self.commands.join("\nthen\n");
        let mut section = Section::new("Figures that changed");
        let mut table = Table::new(["figure", "first", "second", "second over first"]);
        for change in &self.changes {
            table.row([
                Cell::from(change.figure.clone()),
                Cell::figure(number(change.before), change.before),
                Cell::figure(number(change.after), change.after),
                Cell::from(ratio(change)),
            ]);
        }
        if !table.rows.is_empty() {
            section.add(table);
            page.sections.push(section);
        }
        let mut others = Section::new("What differs beside figures");
        others.list(
            self.environment
                .iter()
                .map(|(name, before, after)| format!("{name}: {before}, then {after}")),
        );
        for (which, only) in ["first", "second"].iter().zip(&self.only) {
            if !only.is_empty() {
                others.heading(format!("Only in the {which} run: {} figures", only.len()));
                others.list(only.iter().cloned());
            }
        }
        if !others.blocks.is_empty() {
            page.sections.push(others);
        }
        page
    }
}

fn report(text: &str, which: &str) -> Result<Map<String, Value>, LabError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => {
            Err(LabError::Invalid(format!("{which} is no report: write one with --json FILE")))
        }
        Err(error) => Err(LabError::Invalid(format!(
            "{which} is no JSON, {error}: name what --json FILE has written"
        ))),
    }
}

/// All figures of a report, by the way that leads to each.
fn figures(report: &Map<String, Value>) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    of_fields(report, "", &mut found);
    found
}

fn of_fields(fields: &Map<String, Value>, way: &str, found: &mut BTreeMap<String, f64>) {
    for (name, value) in fields.iter().filter(|(name, _)| !NOT_FIGURES.contains(&name.as_str())) {
        of_value(value, &joined(way, name), found);
    }
}

fn of_value(value: &Value, way: &str, found: &mut BTreeMap<String, f64>) {
    match value {
        Value::Number(number) => {
            found.extend(number.as_f64().map(|figure| (way.to_owned(), figure)));
        }
        Value::Object(fields) => of_fields(fields, way, found),
        Value::Array(entries) => {
            let names: Vec<Option<String>> = entries.iter().map(name_of).collect();
            let most = if names.iter().any(Option::is_none) { LIST_MOST } else { NAMED_MOST };
            if entries.len() > most {
                return;
            }
            for (index, (entry, name)) in entries.iter().zip(&names).enumerate() {
                let is_alone =
                    |name: &String| names.iter().flatten().filter(|one| *one == name).count() == 1;
                let name = match name {
                    Some(name) if is_alone(name) => name.clone(),
                    Some(name) => format!("{name} #{}", index + 1),
                    None => format!("#{}", index + 1),
                };
                let value = pair(entry).map_or(entry, |(_, value)| value);
                of_value(value, &joined(way, &name), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn joined(way: &str, name: &str) -> String {
    if way.is_empty() { name.to_owned() } else { format!("{way} / {name}") }
}

/// The name and the value of a list entry that is a pair of these.
fn pair(entry: &Value) -> Option<(&str, &Value)> {
    match &entry.as_array()?[..] {
        [Value::String(name), value] => Some((name, value)),
        _ => None,
    }
}

/// The name of a list entry.
fn name_of(entry: &Value) -> Option<String> {
    if let Some((name, _)) = pair(entry) {
        return Some(name.to_owned());
    }
    let fields = entry.as_object()?;
    let part = |name: &&str| match fields.get(*name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(format!("{name} {number}")),
        Value::Object(of) => of.get("name")?.as_str().map(str::to_owned),
        _ => None,
    };
    let parts: Vec<String> = NAMES.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Where the surroundings of two runs differ.
fn environments(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Vec<(String, String, String)> {
    let of = |report: &Map<String, Value>| {
        let fields =
            report.get("environment").and_then(Value::as_object).cloned().unwrap_or_default();
        let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        fields.into_iter().map(|(name, value)| (name, text(value))).collect::<BTreeMap<_, _>>()
    };
    let (before, after) = (of(before), of(after));
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let shown = |of: &BTreeMap<String, String>, name: &String| {
        of.get(name).cloned().unwrap_or_else(|| "not said".to_owned())
    };
    names
        .into_iter()
        .map(|name| (name.clone(), shown(&before, name), shown(&after, name)))
        .filter(|(_, before, after)| before != after)
        .collect()
}

fn ratio(change: &Change) -> String {
    change.ratio().map_or_else(|| "from 0".to_owned(), |ratio| format!("{ratio:.3}"))
}

/// Four digits, or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 && value.abs() < 1e15 => format!("{value:.0}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"{"format": "esker-x/1", "title": "X", "command": "esker x",
        "environment": {"machine": "a", "cores": "2"},
        "runs": [{"name": "load", "rate": 100.0, "errors": 0, "series": [1, 2]},
                 {"name": "A", "rate": 50.0, "gone": 1}],
        "course": [1, 2, 3], "many": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}"#;

    fn after(rate: &str, errors: &str) -> String {
        BEFORE
            .replace("50.0", rate)
            .replace("\"errors\": 0", errors)
            .replace("\"gone\": 1", "\"new\": 1")
    }

    #[test]
    fn figures_are_found_by_the_names_of_their_entries_and_the_farthest_come_first() {
        let other = after("25.0", "\"errors\": 3").replace("\"a\"", "\"b\"");
        let found = Comparison::of(BEFORE, &other, 0.05).unwrap();
        let names: Vec<&str> = found.changes.iter().map(|change| &*change.figure).collect();
        assert_eq!(names, ["runs / A / rate", "runs / load / errors"]);
        assert_eq!(found.changes[0].ratio(), Some(0.5));
        assert_eq!(found.changes[1].ratio(), None);
        assert_eq!((found.alike, found.only[0].len(), found.only[1].len()), (1, 1, 1));
        assert_eq!(found.environment, [("machine".into(), "a".into(), "b".into())]);
        for text in [found.page().text(), found.page().html()] {
            assert!(text.contains("runs / A / rate") && text.contains("0.500"), "{text}");
        }
    }

    #[test]
    fn little_changes_are_counted_and_equal_runs_have_none() {
        let found = Comparison::of(BEFORE, &after("51.0", "\"errors\": 0"), 0.05).unwrap();
        assert_eq!((found.changes.len(), found.alike), (0, 3));
        let found = Comparison::of(BEFORE, BEFORE, 0.0).unwrap();
        assert_eq!((found.changes.len(), found.alike), (0, 4));
        assert!(found.page().headline.starts_with("None of 4 figures"), "{found:?}");
    }

    #[test]
    fn reports_that_cannot_be_compared_are_refused_with_what_can() {
        let cases = [
            ("nothing", "no JSON"),
            ("[1]", "no report"),
            (r#"{"format": "esker-y/1"}"#, "different forms"),
            (r#"{"format": "esker-x/1", "z": 1}"#, "no figure in common"),
        ];
        for (other, part) in cases {
            let error = Comparison::of(BEFORE, other, 0.05).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(Comparison::of(BEFORE, BEFORE, f64::NAN).is_err());
    }

    #[test]
    fn pairs_and_nested_names_are_names_and_histograms_are_no_figures() {
        let points: Vec<String> =
            (0..40).map(|n| format!(r#"{{"percentile": {n}, "ns": 1}}"#)).collect();
        let text = format!(
            r#"{{"runs": [{{"workload": {{"name": "load", "read": 0.5}}, "held": [["paced", 2.0]]}}], "by": [{}]}}"#,
            points.join(",")
        );
        let Value::Object(fields) = serde_json::from_str(&text).unwrap() else { panic!() };
        let names: Vec<String> = figures(&fields).into_keys().collect();
        assert_eq!(names, ["runs / load / held / paced", "runs / load / workload / read"]);
    }

    #[test]
    fn two_entries_of_one_name_are_told_apart_by_their_place() {
        let text = r#"{"runs": [{"name": "a", "x": 1}, {"name": "a", "x": 2}]}"#;
        let Value::Object(fields) = serde_json::from_str(text).unwrap() else { panic!() };
        let names: Vec<String> = figures(&fields).into_keys().collect();
        assert_eq!(names, ["runs / a #1 / x", "runs / a #2 / x"]);
    }
}
