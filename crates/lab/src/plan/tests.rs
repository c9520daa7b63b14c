//! Plans: their files, their figures, and the results that are kept.

mod files;
mod models;
mod results;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use super::{Plan, PlanReport, Shelf, Surroundings};
use crate::LabError;

/// Results in memory.
#[derive(Default)]
struct Memory(BTreeMap<String, String>);

impl Shelf for Memory {
    fn get(&mut self, key: &str) -> Result<Option<String>, LabError> {
        Ok(self.0.get(key).cloned())
    }

    fn put(&mut self, key: &str, document: &str) -> Result<(), LabError> {
        self.0.insert(key.to_owned(), document.to_owned());
        Ok(())
    }

    fn place(&self, key: &str) -> String {
        format!("result {}", &key[..8])
    }
}

fn surroundings(threads: usize) -> Surroundings<'static> {
    Surroundings {
        version: "test",
        threads,
        memory_bytes: 4 << 30,
        variable: &|name| (name == "ESKER_TEST_FOLDER").then(|| "/nowhere".to_owned()),
        processors: || None,
    }
}

fn read(text: &str) -> Result<Plan, LabError> {
    Plan::read("plan.toml", text, Path::new("."), &surroundings(1))
}

fn run_on(text: &str, shelf: &mut Memory, threads: usize) -> PlanReport {
    let surroundings = surroundings(threads);
    let plan = Plan::read("plan.toml", text, Path::new("."), &surroundings).unwrap();
    plan.run(shelf, &surroundings, |_| ControlFlow::Continue(())).unwrap()
}

fn run(text: &str) -> PlanReport {
    run_on(text, &mut Memory::default(), 2)
}

/// Reads of a small drive.
const READS: &str = r#"
[drive.fast]
profile = "optane-p4800x"
capacity = "64MiB"
price = 100

[mix]
reads = 100
bytes = "8MiB"

[[alternative]]
name = "one"
device = "fast"
"#;
