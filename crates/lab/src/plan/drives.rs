//! Assumptions about the drives of a plan: what all drives of a model have in common once, and then what each of them
//! is, in each case in which it is another one.

use esker_report::Unit;

use super::drive::Facts;
use super::resolve::Case;

/// A drive, and the cases in which it is so.
struct DriveVariant<'a> {
    facts: &'a Facts,
    cases: Vec<&'a str>,
}

/// The rows: a name and a value.
pub(super) fn assumptions(cases: &[Case], currency: &str) -> Vec<(String, String)> {
    let all = variants(cases);
    let mut rows: Vec<(String, String)> = Vec::new();
    for one in &all {
        let of_model: Vec<&DriveVariant<'_>> =
            all.iter().filter(|other| other.facts.title == one.facts.title).collect();
        let common = common(&of_model);
        let is_only = of_model.len() == 1;
        if !is_only && !rows.iter().any(|(name, _)| *name == one.facts.title) {
            rows.push((one.facts.title.clone(), format!("assumed: {}", common.join("; "))));
        }
        let is_own = |assumed: &&str| is_only || !common.contains(assumed);
        let own: Vec<&str> =
            one.facts.assumptions.iter().map(String::as_str).filter(is_own).collect();
        let is_same = all.iter().filter(|other| other.facts.name == one.facts.name).count() == 1;
        let name = match is_same {
            true => format!("drive {}", one.facts.name),
            false => format!("drive {}: {}", one.facts.name, one.cases.join("; ")),
        };
        rows.push((name, value(one.facts, &own, currency)));
    }
    rows
}

/// Every drive as it is in some case, in the order of the file.
fn variants(cases: &[Case]) -> Vec<DriveVariant<'_>> {
    let mut all: Vec<DriveVariant<'_>> = Vec::new();
    for case in cases {
        for facts in &case.drives {
            match all.iter_mut().find(|one| one.facts == facts) {
                Some(one) if one.cases.contains(&case.name.as_str()) => {}
                Some(one) => one.cases.push(&case.name),
                None => all.push(DriveVariant { facts, cases: vec![&case.name] }),
            }
        }
    }
    all
}

/// The assumptions that all of some drives share.
fn common<'a>(of: &[&DriveVariant<'a>]) -> Vec<&'a str> {
    let first = of.first().map_or(&[][..], |one| &one.facts.assumptions[..]);
    let is_shared =
        |assumed: &&String| of.iter().all(|one| one.facts.assumptions.contains(assumed));
    first.iter().filter(is_shared).map(String::as_str).collect()
}

fn value(facts: &Facts, own: &[&str], currency: &str) -> String {
    let price =
        facts.price.map_or_else(|| "price not said".to_owned(), |it| format!("{currency}{it:.2}"));
    let media = facts.media_bytes.map(|bytes| format!(" on {} of media", Unit::Bytes.show(bytes)));
    let assumed = if own.is_empty() { "" } else { "; assumed: " };
    format!(
        "{}: {} of it{}, {} erasures rated, {price}{assumed}{}",
        facts.title,
        Unit::Bytes.show(facts.capacity_bytes),
        media.unwrap_or_default(),
        facts.rated_erasures,
        own.join("; ")
    )
}
