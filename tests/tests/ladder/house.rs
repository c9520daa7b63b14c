//! The rooms of each crate, and the rules that the upper floor still breaks.

use super::circles;

/// The rooms of a crate, from the ground up. A crate without rooms is one file.
pub(crate) const ROOMS: [(&str, &str); 21] = [
    (
        "attach",
        "error wire mount_table sys loop_device mount engine server holders attachment detach",
    ),
    (
        "base",
        "clock checksum sync process buf append codec error files memory pool prefetch progress rng silence thread units policy",
    ),
    (
        "bench",
        "counter key operation options store value error zipf distribution pace workload result \
         measure table html worker watch driver",
    ),
    (
        "c",
        "error border bytes list options kvs iter batch snapshot transaction kvdb maintenance arena measure",
    ),
    (
        "cache",
        "options omf pairing error mapping sets admit layout medium owner copies journal store origin stats state \
         counts shared commit writeback clean queue cache replay resize",
    ),
    (
        "cli",
        "stderr failure figures host metrics output signals progress live traffic args docs unmade run \
         ssd trace pool attach cache device media measure place demo kv ycsb target lab volume",
    ),
    (
        "device",
        "geometry identity op_kind error command fdp stats device blocking conformance forward \
         immediate file memory null occupant stripe write_through",
    ),
    ("flash", "emulate error disk timing ftl drive profile ssd theory"),
    (
        "kv",
        "sync types omf media values manifest log tree compaction engine maintain write read recover \
         api copies",
    ),
    (
        "lab",
        "error erase steps text spread outcome store compare device_load fdp flash_cache host_ssd \
         hse memory pooled plan",
    ),
    ("nvmf", "wire socket conn error auth tls stream target initiator"),
    (
        "pager",
        "raw types heap filter pages predict protocol ranges areas compressed slots staging trap unserved uffd order client link \
         space walk engine shared chase forks inject greet server probe launch signal arena bytes",
    ),
    ("preload", "connect mapping"),
    ("preload-malloc", ""),
    (
        "python",
        "callers remarks error bytes work opened options range rows kvs batch snapshot transaction kvdb copies measure",
    ),
    ("report", "escape table unit chart block verdict figures svg markup page live"),
    ("serve", "error process http token metrics events socket requests target caches pool"),
    ("sim", "fuzz contents flight fault lba_set history image enumerate record"),
    ("stack", "error time spec drive missing closings pool served traced stack"),
    (
        "trace",
        "format error input memory keys sample request load names decode omf read capture compact recorder \
         reuse mrc stats",
    ),
    (
        "volume",
        "parity types fragment omf drive buffer catalog config pace space segment map stats engine \
         commit keep admission append read queue recover pool",
    ),
];

/// The rooms of `name`.
pub(crate) fn rooms(name: &str) -> Option<Vec<&'static str>> {
    let (_, order) = ROOMS.iter().find(|(known, _)| *known == name)?;
    Some(order.split_whitespace().collect())
}

/// A rule that a program checks in each crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Imports run downward.
    Upward,
    /// Two files at most import each other; counted are the files of larger circles.
    Circles,
    /// A public name of a type is defined once.
    Names,
    /// Methods of one type call each other over two files of a room at most; counted are the files of larger circles.
    Methods,
    /// A public function of an inner crate has a caller.
    Uncalled,
}

impl Rule {
    /// How often findings break it.
    fn count(self, findings: &[String]) -> usize {
        match self {
            Rule::Circles | Rule::Methods => circles::count(findings),
            Rule::Upward | Rule::Names | Rule::Uncalled => findings.len(),
        }
    }
}

/// How often crates break a rule. A count may only fall.
const KNOWN: [(Rule, &str, usize); 3] =
    [(Rule::Names, "cli", 1), (Rule::Names, "lab", 8), (Rule::Circles, "lab", 25)];

/// Returns the findings about a crate, unless they are as many as are known.
pub(crate) fn beyond_known(rule: Rule, name: &str, findings: &[String]) -> Vec<String> {
    let known = KNOWN.iter().find(|(of, in_crate, _)| *of == rule && *in_crate == name);
    judge(known.map_or(0, |(_, _, known)| *known), rule, name, findings)
}

/// As [`beyond_known`], where `known` is the count that is known.
pub(crate) fn judge(known: usize, rule: Rule, name: &str, findings: &[String]) -> Vec<String> {
    let count = rule.count(findings);
    if count == known {
        return Vec::new();
    }
    if count < known {
        return vec![format!("{name}: {rule:?} fell to {count}: write it down in ladder/house.rs")];
    }
    let mut all: Vec<String> = findings.iter().map(|line| format!("{name}: {line}")).collect();
    if known > 0 {
        all.push(format!("{name}: {rule:?} is {count}, {known} are known"));
    }
    all
}
