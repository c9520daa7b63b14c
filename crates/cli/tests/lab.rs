//! `esker lab` as a user types it.

mod common;

use common::{Scratch, run, text};

#[test]
fn caches_are_compared_on_a_load_and_on_traces() {
    let scratch = Scratch::new();
    let (html, trace) = (text(&scratch.path("cache.html")), text(&scratch.path("t.csv")));
    let small = ["--data", "256MiB", "--transactions", "1000", "--sizes", "10,20"];
    let study = ["lab", "flash-cache", "--html", &html, "--json", "-"];
    let out = run(study.iter().chain(&small)).succeeds().out();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let versions = json["workloads"][0]["sizes"][1]["versions"].as_array().unwrap();
    assert_eq!(versions.last().unwrap()["name"], "optimum");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("insertion percentile") && page.contains("A cache of"));
    // A folder may hold what is no trace; what is named has to be one.
    std::fs::write(&trace, "no trace at all\n").unwrap();
    let folder = text(&scratch.path(""));
    let out = run(["lab", "flash-cache", "--traces", &folder].iter().chain(&small));
    assert!(out.succeeds().out().contains("t was left out"));
    run(["lab", "flash-cache", "--no-load", "--traces", &trace]).fails(65, &["t.csv"]);
    run(["lab", "flash-cache", "--sizes", "0"]).fails(64, &["1 to 100 percent"]);
}

#[test]
fn a_host_managed_drive_is_compared_with_a_conventional_one() {
    let scratch = Scratch::new();
    let html = text(&scratch.path("host-ssd.html"));
    let small = ["--drive", "1GiB", "--depths", "1,32", "--threads", "1", "--reads", "2k"];
    let study =
        ["lab", "host-ssd", "--lookups", "2k", "--data", "32MiB", "--html", &html, "--json", "-"];
    let out = run(study.iter().chain(&small)).succeeds().out();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["format"], "esker-host-ssd/1");
    assert_eq!(json["depths"][1]["depth"], 32);
    assert_eq!(json["account"][5]["name"], "Esker");
    assert!(json["command"].as_str().unwrap().contains("lab host-ssd"));
    assert!(std::fs::read_to_string(&html).unwrap().contains("from issue"));
    run(["lab", "host-ssd", "--depths", "0"]).fails(64, &["depths", "1 to 1024"]);
    run(["lab", "host-ssd", "--data", "16GiB"]).fails(64, &["the table"]);
}
