//! Text, page and JSON of the experiments whose figures can be read again, from recorded ones: `testdata/goldens/NAME.json`
//! gives `NAME.txt` and `NAME.html`, without the scripts and styles that all pages share. `ESKER_UPDATE_GOLDEN=1` writes both
//! anew, and the figures as they are written today.
//!
//! A new study begins with the output of `esker lab NAME --json testdata/goldens/NAME.json`. Its lists are cut short by hand, and
//! its machine becomes the made-up one of the others. Then a test below names it, and the variable writes the rest.

use std::fs;
use std::path::PathBuf;

use esker_lab::flash_cache::FlashCache;
use esker_lab::host_ssd::HostSsd;
use esker_lab::memory::Memory;
use esker_lab::plan::PlanReport;
use esker_lab::pooled::Pooled;
use esker_lab::{Report, Study};
use esker_report::Page;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata/goldens", file].iter().collect()
}

fn golden(file: &str, text: &str) {
    let path = path(file);
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    let different = text.lines().zip(expected.lines()).find(|(now, before)| now != before);
    assert!(
        text == expected,
        "{file} has changed, first here: {different:?}; look at all of it, and set ESKER_UPDATE_GOLDEN=1"
    );
}

/// A page without styles, and with no scripts but those that carry figures.
fn content(page: &Page) -> String {
    let html = page.html();
    let mut rest = html.as_str();
    let mut kept = String::new();
    while let Some(at) = [rest.find("<script>"), rest.find("<style>")].into_iter().flatten().min() {
        let end = if rest[at..].starts_with("<style>") { "</style>" } else { "</script>" };
        kept.push_str(&rest[..at]);
        rest = &rest[at + rest[at..].find(end).unwrap() + end.len()..];
    }
    kept.push_str(rest);
    kept
}

fn recorded(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path(&format!("{name}.json"))).unwrap()).unwrap()
}

fn outputs(name: &str, page: &Page, figures: &Value) {
    golden(&format!("{name}.txt"), &page.text());
    golden(&format!("{name}.html"), &content(page));
    golden(&format!("{name}.json"), &(serde_json::to_string_pretty(figures).unwrap() + "\n"));
}

/// Of a study whose figures can be read again.
fn of_study<S: Study<Figures: DeserializeOwned>>() {
    let name = S::ABOUT.name;
    let recorded = recorded(name);
    let mut report = Report::<S>::of(serde_json::from_value(recorded.clone()).unwrap());
    report.environment = serde_json::from_value(recorded["environment"].clone()).unwrap();
    report.command = recorded["command"].as_str().unwrap().to_owned();
    outputs(name, &report.page(), &report.json());
}

#[test]
fn flash_cache_has_its_outputs() {
    of_study::<FlashCache>();
}

#[test]
fn host_ssd_has_its_outputs() {
    of_study::<HostSsd>();
}

#[test]
fn memory_has_its_outputs() {
    of_study::<Memory>();
}

#[test]
fn plan_has_its_outputs() {
    let report: PlanReport = serde_json::from_value(recorded("plan")).unwrap();
    outputs("plan", &report.page(), &serde_json::to_value(&report).unwrap());
}

#[test]
fn pooled_has_its_outputs() {
    of_study::<Pooled>();
}
