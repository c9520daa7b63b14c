//! Fuzz targets: any text in place of a plan, or of the figures of another program. Each says whether it was accepted. Run
//! by `fuzz/`, and on their corpora by the test below.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use std::path::Path;

use crate::plan::{Plan, Surroundings};
use crate::pooled::ycsb::YcsbFigures;

/// A plan. One with a trace is not read: its file would be.
pub fn lab_plan(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let surroundings = Surroundings {
        version: "fuzz",
        threads: 1,
        memory_bytes: 4 << 30,
        variable: &|_| None,
        processors: || None,
    };
    let has_trace = text.contains("trace") || text.contains('\\');
    !has_trace && Plan::read("plan.toml", text, Path::new("/nowhere"), &surroundings).is_ok()
}

/// The figures that YCSB prints.
pub fn lab_ycsb(data: &[u8]) -> bool {
    let Ok(figures) = YcsbFigures::parse(&String::from_utf8_lossy(data)) else { return false };
    let _ = (figures.seconds(), figures.intended("READ"));
    true
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    const PLAN: &str = r#"title = "One drive or two"

[drive.mine]
profile = "micron-7450"
capacity = "1GiB"
price = 100

[stripe.both]
drives = ["mine", "mine"]

[mix]
reads = 70
bytes = "2GiB"

[[alternative]]
name = "one drive"
device = "mine"

[[alternative]]
name = "two drives"
device = "both"
"#;
    const FIGURES: &str = "[OVERALL], RunTime(ms), 10021\n\
        [READ], Operations, 4711\n\
        [Intended-READ], AverageLatency(us), 120.5\n\
        [Intended-READ], 99.9thPercentileLatency(us), 900\n";

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        replay(&[
            Target::of_texts("lab_plan", lab_plan, &[("mix", PLAN)]).memory(1 << 20),
            Target::of_texts("lab_ycsb", lab_ycsb, &[("run", FIGURES)]),
        ]);
    }
}
