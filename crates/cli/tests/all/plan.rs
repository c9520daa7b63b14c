//! `esker lab plan` as a user types it.

use crate::common::{Scratch, run, text};

const PLAN: &str = r#"
title = "One or two"
[drive.fast]
profile = "optane-p4800x"
capacity = "64MiB"
price = 100
[stripe.two]
drives = ["fast", "fast"]
[mix]
reads = 100
depth = 64
bytes = "8MiB"
[[alternative]]
name = "one"
device = "fast"
[[alternative]]
name = "two"
device = "two"
"#;

#[test]
fn a_plan_is_listed_run_and_kept() {
    let scratch = Scratch::new();
    let (plan, html) = (scratch.path("plan.toml"), text(&scratch.path("plan.html")));
    std::fs::write(&plan, PLAN).unwrap();
    let plan = text(&plan);
    run(["lab", "plan", &plan, "--dry-run", "--json", "-"]).succeeds();
    let listed = run(["lab", "plan", &plan, "--dry-run"]).succeeds().out();
    assert!(listed.contains("2 to run") && listed.contains("to run  virtual time"), "{listed}");
    let results = scratch.path("plan.toml.results");
    assert!(!results.exists(), "a list makes nothing");
    let out = run(["lab", "plan", &plan, "--report", &html]).succeeds().out();
    assert!(
        out.contains("Runs made: 2; kept of earlier ones: 0") && out.contains("“two” is best"),
        "{out}"
    );
    assert!(std::fs::read_to_string(&html).unwrap().contains("One or two"));
    // A price changes no run; a drive changes its own, and those of devices built of it.
    std::fs::write(&plan, PLAN.replace("price = 100", "price = 120")).unwrap();
    let out = run(["lab", "plan", &plan]).succeeds().out();
    assert!(out.contains("Runs made: 0; kept of earlier ones: 2"), "{out}");
    let listed = run(["lab", "plan", &plan, "--dry-run"]).succeeds().out();
    assert!(listed.contains("0 to run"), "{listed}");
    let file = std::fs::read_dir(&results).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, [0xff, 0x00]).unwrap();
    let out = run(["lab", "plan", &plan]).succeeds().out();
    assert!(
        out.contains("Runs made: 1; kept of earlier ones: 1") && out.contains("computed again"),
        "{out}"
    );
    let elsewhere = text(&scratch.path("elsewhere"));
    let json = run(["lab", "plan", &plan, "--results", &elsewhere, "--json", "-"]).succeeds().out();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["format"], "esker-plan/2");
    assert_eq!(json["cases"][1]["drives"].as_array().unwrap().len(), 2);
}

#[test]
fn mistakes_in_a_plan_are_said_with_file_and_line() {
    let scratch = Scratch::new();
    let plan = scratch.path("plan.toml");
    std::fs::write(&plan, PLAN.replace("depth = 64", "depht = 64")).unwrap();
    let plan = text(&plan);
    run(["lab", "plan", &plan]).fails(64, &["plan.toml:11: unknown field `depht`"]);
    run(["lab", "plan", "/nowhere/plan.toml"]).fails(66, &["/nowhere/plan.toml", "docs/plan.md"]);
    std::fs::write(&plan, PLAN).unwrap();
    run(["lab", "plan", &plan, "--results", &format!("{plan}/results")]).fails(66, &["--results"]);
}
