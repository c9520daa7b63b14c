//! Cells of the report's tables.

use super::report::{Chapter, Published, Run, percent};
use super::worth::Spare;

/// A factor, with a question mark where it is not steady.
pub(super) fn factor(run: &Run) -> String {
    let mark = if run.measured.is_steady { ' ' } else { '?' };
    format!("{:.3}{mark}", run.measured.write_amplification)
}

pub(super) fn figure(published: Option<&Published>) -> String {
    published.map_or(String::new(), |published| format!("{}", published.figure))
}

/// Returns the sources of the published figures.
pub(super) fn sources(chapter: &Chapter) -> Vec<String> {
    let of_runs = chapter.runs.iter().filter_map(|run| run.published.as_ref());
    let derived = chapter.derived.iter().filter_map(|derived| derived.published.as_ref());
    let mut sources: Vec<String> = of_runs
        .chain(derived)
        .map(|published| format!("{}: {}", published.figure, published.source))
        .collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// Returns two cells: the spare space that a search found, and the capacity that this gives back.
pub(super) fn spare_cells(spare: &Spare) -> (String, String) {
    let given = percent(spare.over_provisioning);
    let needed = match spare.needed {
        None => format!("{given} -> more than 300 %"),
        Some(needed) if needed < 0.021 => format!("{given} -> 2 % or less"),
        Some(needed) => format!("{given} -> {:.0} %", needed * 100.0),
    };
    let regained = spare.regained.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    (needed, regained)
}
