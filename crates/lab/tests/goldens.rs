//! Text, page and JSON of the experiments whose figures can be read again, from recorded ones: `testdata/goldens/NAME.json`
//! gives `NAME.txt` and `NAME.html`, without the scripts and styles that all pages share. `ESKER_UPDATE_GOLDEN=1` writes both
//! anew, and the figures as they are written today.
//!
//! Lists of the figures are cut short, and the machine is a made-up one.

use std::fs;
use std::path::PathBuf;

use esker_lab::flash_cache::FlashCacheReport;
use esker_lab::host_ssd::HostSsdReport;
use esker_lab::memory::report::MemoryReport;
use esker_lab::plan::PlanReport;
use esker_lab::pooled::report::PooledReport;
use esker_report::Page;
use serde::Serialize;
use serde::de::DeserializeOwned;

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

fn outputs<R: Serialize + DeserializeOwned>(
    name: &str,
    text: impl Fn(&R) -> String,
    page: impl Fn(&R) -> Page,
) {
    let recorded = fs::read_to_string(path(&format!("{name}.json"))).unwrap();
    let report: R = serde_json::from_str(&recorded).unwrap();
    golden(&format!("{name}.txt"), &text(&report));
    golden(&format!("{name}.html"), &content(&page(&report)));
    golden(&format!("{name}.json"), &(serde_json::to_string_pretty(&report).unwrap() + "\n"));
}

#[test]
fn flash_cache_has_its_outputs() {
    outputs("flash-cache", FlashCacheReport::table, FlashCacheReport::page);
}

#[test]
fn host_ssd_has_its_outputs() {
    outputs("host-ssd", HostSsdReport::table, HostSsdReport::page);
}

#[test]
fn memory_has_its_outputs() {
    outputs("memory", MemoryReport::table, MemoryReport::page);
}

#[test]
fn plan_has_its_outputs() {
    outputs("plan", PlanReport::table, PlanReport::page);
}

#[test]
fn pooled_has_its_outputs() {
    outputs("pooled", PooledReport::table, PooledReport::page);
}
