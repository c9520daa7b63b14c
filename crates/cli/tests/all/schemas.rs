//! Each JSON document that the command prints has a form with a schema in `docs/api`. The outputs of all tests are held
//! against these; here are documents that no other test prints.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Scratch, run, schema, text};
use crate::mistakes::commands;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn recorded_figures_of_experiments_keep_their_schemas() {
    let folder = Path::new(ROOT).join("crates/lab/testdata/goldens");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let recorded: Vec<Value> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .map(|path| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
        .collect();
    assert!(recorded.len() >= 5, "{}", recorded.len());
    recorded.iter().for_each(schema::check);
}

#[test]
fn figures_of_traces_drives_and_copies_keep_their_schemas() {
    let scratch = Scratch::new();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/testdata/sample.msr.csv");
    let at = |name: &str| text(&scratch.path(name));
    for words in [
        "info",
        "replay",
        "advise",
        "mrc --json -",
        "info --sample 50%",
        "mrc --sampled 1k --json -",
    ] {
        let json = if words.contains("--json") { "" } else { " --json" };
        run(format!("trace {words} {trace}{json}").split(' ')).succeeds();
    }
    run(["ssd", "create", "micron-7450", &at("image"), "--capacity", "1GiB"]).succeeds();
    run(["ssd", "info", &at("image"), "--json"]).succeeds();
    run(["ssd", "profiles", "--json"]).succeeds();
    let db = scratch.database();
    run(["kv", "put", &db, "default", "k", "v"]).succeeds();
    run(["kv", "info", &db, "--json"]).succeeds();
    run(["kv", "check", &db, "--json"]).succeeds();
    run(["kv", "backup", &db, &at("copy"), "--json"]).succeeds();
    run(["kv", "repair", &db, &at("whole"), "--json"]).succeeds();
    for device in ["mem:1MiB", "ssd:micron-7450?capacity=256MiB"] {
        run(["bench", "device", device, "--for", "20ms", "--json", "-"]).succeeds();
    }
}

/// The page lists all schemas, and each command with a JSON form.
#[test]
fn every_json_form_is_on_the_page_of_the_interfaces() {
    let folder = Path::new(ROOT).join("docs/api");
    let page = fs::read_to_string(folder.join("README.md")).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let name = text(Path::new(&entry.unwrap().file_name()));
        assert!(name == "README.md" || page.contains(&format!("({name})")), "{name}");
    }
    let mut count = 0;
    for command in commands() {
        let help = run(command.split(' ').chain(["--help"])).succeeds().out();
        let group = command.split(' ').next().unwrap();
        if help.contains(" --json") {
            count += 1;
            let is_there = [command.as_str(), &format!("{group} …")]
                .iter()
                .any(|words| page.contains(&format!("`{words}`")));
            assert!(is_there, "{command}");
        }
    }
    assert!(count > 50, "{count}");
}
