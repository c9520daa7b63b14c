//! Each size, span, count and share on the command line refuses nonsense, and has a range. They are found by the types
//! of their parsers, so that a new one cannot be forgotten.

use std::any::TypeId;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};
use esker_base::files;

use super::replay::{CacheSize, SetSize};

/// The ranges as they are, which `ESKER_UPDATE_GOLDEN=1` writes anew. The program of tests reads them, too.
const RANGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ranges.txt");

/// No number of anything.
const NO_NUMBERS: [&str; 8] =
    ["soon", "-1", "-5GiB", "1 week", "99999999999999999999999", "1e999", "NaN", "inf"];

/// Values in ascending order. Those of one kind that a parser takes are its range.
const SIZES: [&str; 9] = ["0", "1", "4KiB", "1MiB", "1GiB", "16TiB", "1024PiB", "15.9EiB", "16EiB"];
const COUNTS: [&str; 12] =
    ["0", "1", "2", "90", "100", "1024", "32768", "60k", "1M", "1G", "1000G", "10000000G"];
const SPANS: [&str; 10] =
    ["0s", "1us", "10ms", "1s", "1min", "1d", "365d", "3650d", "36500d", "36501d"];
const NUMBERS: [&str; 14] = [
    "0",
    "0.000001",
    "0.5",
    "1",
    "2",
    "80",
    "100",
    "1024",
    "4096",
    "65535",
    "1000000",
    "4294967294",
    "4294967295",
    "18446744073709551615",
];

/// A message has one of these words before the cure, and a range one of those.
const CURES: [&str; 4] = ["give ", "write ", "say ", "use "];
const BOUNDS: [&str; 7] =
    [" shows", " between ", " to ", " or more", " at most ", " less than ", " more than "];

/// The values with which the range of an argument is found; `None` for one that is no number.
fn probes(parser: &ValueParser, name: &str) -> Option<&'static [&'static str]> {
    let kind = parser.type_id();
    let is_one_of = |kinds: &[TypeId]| kinds.iter().any(|one| kind == *one);
    let counted = [TypeId::of::<u64>(), TypeId::of::<u32>(), TypeId::of::<usize>()];
    if is_one_of(&[TypeId::of::<Duration>()]) || name == "TIME" {
        Some(&SPANS)
    } else if is_one_of(&[
        TypeId::of::<(u64, u32)>(),
        TypeId::of::<CacheSize>(),
        TypeId::of::<SetSize>(),
    ]) || ((name.starts_with("SIZE") || name == "LIST")
        && is_one_of(&[TypeId::of::<u64>()]))
    {
        Some(&SIZES)
    } else if is_one_of(&counted) && name.starts_with("COUNT") {
        Some(&COUNTS)
    } else if is_one_of(&counted)
        || is_one_of(&[TypeId::of::<u8>(), TypeId::of::<u16>(), TypeId::of::<f64>()])
        || is_one_of(&[TypeId::of::<i32>(), TypeId::of::<i64>(), TypeId::of::<f32>()])
    {
        Some(&NUMBERS)
    } else {
        None
    }
}

/// A parser's words on a value: none if it takes it.
fn said(parser: &ValueParser, value: &str) -> Option<String> {
    let arg = Arg::new("it").long("it").value_parser(parser.clone()).allow_hyphen_values(true);
    let refused = Command::new("it").arg(arg).try_get_matches_from(["it", "--it", value]).err()?;
    assert_eq!(refused.kind(), ErrorKind::ValueValidation, "{value}");
    Some(refused.render().to_string())
}

/// All commands below one, with their words.
fn commands(command: &Command, words: &str, all: &mut Vec<(String, Command)>) {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        let words = format!("{words} {}", inner.get_name());
        commands(inner, &words, all);
        all.push((words.trim().to_owned(), inner.clone()));
    }
}

#[test]
fn every_number_refuses_nonsense_and_has_a_range() {
    let mut all = Vec::new();
    let top = super::command();
    commands(&top, "", &mut all);
    all.push((String::new(), top));
    let (mut ranges, mut wrong) = (Vec::new(), Vec::new());
    for (words, command) in &all {
        for arg in command
            .get_arguments()
            .filter(|arg| arg.get_action().takes_values() && !arg.is_hide_set())
        {
            let parser = arg.get_value_parser();
            let name = arg.get_value_names().map_or("", |names| names[0].as_str());
            let Some(probes) = probes(parser, name) else { continue };
            let at = match arg.get_long() {
                Some(long) => format!("{words} --{long}"),
                None => format!("{words} {name}"),
            };
            for nonsense in NO_NUMBERS.iter().chain([&""]) {
                match said(parser, nonsense) {
                    None => wrong.push(format!("{at} takes '{nonsense}'")),
                    Some(why) if !CURES.iter().any(|word| why.contains(word)) => {
                        wrong.push(format!("{at}: {why}"))
                    }
                    Some(_) => {}
                }
            }
            let taken: Vec<&str> =
                probes.iter().copied().filter(|probe| said(parser, probe).is_none()).collect();
            let (Some(first), Some(last)) = (taken.first(), taken.last()) else {
                panic!("{at} takes nothing");
            };
            for probe in probes.iter().filter(|probe| !taken.contains(probe)) {
                let why = said(parser, probe).unwrap_or_default();
                if !BOUNDS.iter().any(|word| why.contains(word)) {
                    wrong.push(format!("{at} says no range: {why}"));
                }
            }
            ranges.push(format!("{}: {first} to {last}", at.trim()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    ranges.sort();
    let text = ranges.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{line}");
        text
    });
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        files::write(Path::new(RANGES), &text).unwrap();
    }
    let known = fs::read_to_string(Path::new(RANGES)).unwrap_or_default();
    assert_eq!(text, known, "ESKER_UPDATE_GOLDEN=1 writes the ranges anew");
}
