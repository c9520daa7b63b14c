//! The figures of a demonstration make sense. `.ci/run` runs the demonstration and then this:
//!
//! ```text
//! esker demo --records 100k --for 1s --memory 64MiB --json demo.json
//! ESKER_DEMO_JSON=$PWD/demo.json cargo test -p esker-tests --test demo -- --ignored
//! ```

use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
#[ignore = "needs the JSON of a demonstration; see the head of this file"]
fn the_figures_of_a_demonstration_make_sense() {
    let path = std::env::var("ESKER_DEMO_JSON").expect("ESKER_DEMO_JSON names the file");
    let text = std::fs::read_to_string(path).expect("a file that is there");
    let all: Value = serde_json::from_str(&text).expect("JSON");

    let runs = all["runs"].as_array().expect("a list of runs");
    let names: Vec<&str> = runs.iter().filter_map(|run| run["workload"]["name"].as_str()).collect();
    assert_eq!(names, ["load", "A", "B", "C", "D", "E", "F"]);
    for run in runs {
        let name = &run["workload"]["name"];
        assert_eq!(run["errors"], 0, "{name}");
        assert_eq!(run["interrupted"], false, "{name}");
        assert!(number(&run["operations"]) > 0.0, "{name}");
        let per_s = number(&run["operations"]) / (number(&run["elapsed_ns"]) / 1e9);
        let stated = number(&run["ops_per_s"]);
        assert!((stated / per_s - 1.0).abs() < 0.01, "{name}: {stated}, not {per_s}");
    }
    assert_eq!(runs[0]["operations"], all["dataset"]["records"]);

    let load = &all["load_traffic"];
    let records = number(&all["dataset"]["records"]);
    // 1,000 bytes of value and a key of `user` and up to 19 digits.
    let per_record = number(&load["user_bytes"]) / records;
    assert!((1005.0..=1023.0).contains(&per_record), "{per_record} bytes a record");
    let ratio = |name: &str| number(&load[name]);
    let (in_all, to_capacity) =
        (ratio("device_bytes_per_user_byte"), ratio("capacity_bytes_per_user_byte"));
    assert!((1.0..=2.3).contains(&in_all), "{in_all} in all");
    assert!(to_capacity <= 1.15 && to_capacity < in_all, "{to_capacity} to capacity");

    let kvdb = &all["kvdb"];
    assert_eq!(kvdb["stopped"], Value::Null);
    let budget = number(&kvdb["dram"]["budget_bytes"]);
    // The engine's budget, and the laboratory's record of each run beside it.
    let peak = number(&all["peak_rss_bytes"]);
    assert!(peak <= budget * 1.15 + 16e6, "{peak} bytes resident, budget {budget}");
}
