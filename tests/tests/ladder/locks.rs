//! The order of the engine's locks, as ARCHITECTURE.md states it, against the code.
//!
//! Read as text: a lock is held from `let guard = ….name.lock();` to the end of the block, or to `drop(guard)`, and
//! where a function is handed a guard of the log, all through it. Meanwhile locks may be taken that come later in the
//! order, here or in functions that are called by a name of their own.

use std::collections::{BTreeMap, BTreeSet};

/// The locks in the table under a heading of a document, in order.
pub(crate) fn stated(document: &str, heading: &str) -> Vec<String> {
    let section = document.split(heading).nth(1).unwrap_or_default();
    let rows = section.lines().skip_while(|line| !line.starts_with("| --- ")).skip(1);
    let cells = rows.map_while(|row| row.strip_prefix("| ")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned));
    names.collect()
}

/// The fields of a struct that are mutexes.
pub(crate) fn mutexes<'c>(code: &'c str, of: &str) -> Vec<&'c str> {
    let body = code.split(&format!("struct {of} {{")).nth(1).unwrap_or_default();
    let fields = body.split("\n}").next().unwrap_or_default().lines();
    let mutexes = fields.filter_map(|field| field.trim().split_once(": Mutex<"));
    mutexes.map(|(name, _)| name.rsplit(' ').next().unwrap_or(name)).collect()
}

/// Calls that return the guard of a lock which they do not name.
const GUARDS: [(&str, &str); 10] = [
    (".first_lane()", "compacting"),
    (".helper_lane()", "helping"),
    (".both_lanes()", "compacting"),
    (".both_lanes()", "helping"),
    (".ingest_lane()", "ingesting"),
    (".choosing()", "claims"),
    (".tail()", "writer"),
    (".tail_in_turn()", "writer"),
    ("lock_writer(engine)", "writer"),
    (".lead()", "flushing"),
];

/// Calls that take a lock and let go of it.
const TAKE: [(&str, &str); 5] = [
    ("transactions.begin(", "transactions"),
    ("transactions.end(", "transactions"),
    ("transactions.end_late(", "transactions"),
    ("transactions.ingested(", "transactions"),
    ("transactions.conflict(", "transactions"),
];

/// Returns the locks taken against the order in these sources, which have no comments, literals and tests.
pub(crate) fn findings(sources: &[(String, String)], order: &[String]) -> Vec<String> {
    let functions: Vec<(&str, &str, String)> = sources
        .iter()
        .flat_map(|(file, code)| functions(code).into_iter().map(move |(n, b)| (&file[..], n, b)))
        .collect();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    functions.iter().for_each(|(_, name, _)| *known.entry(name).or_default() += 1);
    let bodies = functions.iter().filter(|(_, name, _)| known[name] == 1);
    let bodies: BTreeMap<&str, &str> = bodies.map(|(_, name, body)| (*name, &body[..])).collect();
    let mut findings = Vec::new();
    for (file, name, body) in &functions {
        for (lock, region) in held(body, order) {
            let own = order.iter().position(|known| *known == lock).expect("one of the order");
            for (other, through) in taken(&region, order, &bodies, &mut BTreeSet::new()) {
                if order.iter().position(|known| *known == other).is_none_or(|at| at <= own) {
                    findings
                        .push(format!("{file}: {name} holds {lock} and takes {other}{through}"));
                }
            }
        }
    }
    findings
}

/// The functions of a file: names, and signatures with bodies.
fn functions(code: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let rest = &code[at + 3..];
        let size = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(0);
        let (open, end) = (rest.find(" {\n"), rest.find(";\n"));
        let Some(open) = open.filter(|open| size > 0 && end.is_none_or(|end| *open < end)) else {
            continue;
        };
        found.push((&rest[..size], rest[..open + 2 + block(&rest[open + 2..])].to_owned()));
    }
    found
}

/// How far a block goes in which `code` is.
fn block(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' | '(' => depth += 1,
            '}' | ')' if depth == 0 => return at,
            '}' | ')' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The locks that a function holds, each with the code that runs meanwhile.
fn held(function: &str, order: &[String]) -> Vec<(String, String)> {
    let mut held = Vec::new();
    let (signature, body) = function.split_once('{').unwrap_or((function, ""));
    let parameters = signature.split("->").next().unwrap_or_default();
    if parameters.contains("MutexGuard<") && parameters.contains("LogTail>") {
        held.push(("writer".into(), released(body)));
    }
    for (at, _) in body.match_indices("let ") {
        let end = body[at..].find(";\n").map_or(body.len(), |end| at + end);
        let statement = &body[at..end];
        let Some((guard, value)) = statement["let ".len()..].split_once(" = ") else { continue };
        let guard = guard.trim_start_matches("mut ");
        let mut locks: Vec<&str> = order
            .iter()
            .filter(|lock| value.contains(&format!(".{lock}.lock()")))
            .map(|l| &l[..])
            .collect();
        let guards = GUARDS.iter().filter(|(call, _)| value.ends_with(call));
        locks.extend(guards.map(|(_, lock)| lock));
        let is_guard = value.ends_with(".lock()")
            || value.ends_with(".lock())")
            || GUARDS.iter().any(|(call, _)| value.ends_with(call));
        if !is_guard || value.contains('{') || value.contains("drop(") {
            continue;
        }
        let rest = &body[end..];
        let mut region = &rest[..block(rest)];
        for gone in [format!("drop({guard})"), format!("unlock_writer({guard})")] {
            region = region.split(&gone).next().unwrap_or(region);
        }
        held.extend(locks.into_iter().map(|lock| {
            let region = if lock == "writer" { released(region) } else { region.to_owned() };
            (lock.to_owned(), region)
        }));
    }
    held
}

/// The code without the parts that run while the log's lock is given up, and without closures that are handed there by
/// name.
fn released(code: &str) -> String {
    let mut kept = String::new();
    let mut names = Vec::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("unlocked(") {
        kept.push_str(before);
        let size = block(after);
        names.extend(after[..size].split(|c: char| !(c.is_alphanumeric() || c == '_')));
        rest = &after[size..];
    }
    kept.push_str(rest);
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let closure = format!("let {name} = ||");
        if let Some((before, after)) = kept.split_once(&closure) {
            let mut depth = 0;
            let end = after.find(|c: char| {
                depth += i32::from(c == '{' || c == '(') - i32::from(c == '}' || c == ')');
                c == ';' && depth == 0
            });
            kept = format!("{before}{}", &after[end.unwrap_or(after.len())..]);
        }
    }
    kept
}

/// The locks that code takes, itself or in a function that it calls, and that one's name.
fn taken<'c>(
    code: &str,
    order: &[String],
    bodies: &BTreeMap<&'c str, &'c str>,
    seen: &mut BTreeSet<&'c str>,
) -> Vec<(String, String)> {
    let code = released(code);
    let mut found = Vec::new();
    for lock in order {
        if [".lock()", ".try_lock"].iter().any(|call| code.contains(&format!(".{lock}{call}"))) {
            found.push((lock.clone(), String::new()));
        }
    }
    let implied = GUARDS.iter().chain(&TAKE).filter(|(call, _)| code.contains(call));
    found.extend(implied.map(|(_, lock)| ((*lock).to_owned(), String::new())));
    for (name, body) in bodies {
        if calls(&code, name) && seen.insert(name) {
            let deeper = taken(body, order, bodies, seen);
            found.extend(deeper.into_iter().map(|(lock, _)| (lock, format!(" in {name}"))));
        }
    }
    found
}

/// Whether code calls a function of this name.
fn calls(code: &str, name: &str) -> bool {
    let call = format!("{name}(");
    code.match_indices(&call).any(|(at, _)| {
        let before = &code[..at];
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !before.ends_with("fn ")
    })
}
