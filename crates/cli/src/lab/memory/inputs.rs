//! Files that programs read: the same ones for the same seed.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use esker_base::{Rng, files};

/// A key's number is a multiple of this, modulo [`KEYS`], so that neighbours lie apart.
const STRIDE: u64 = 7919;
/// The keys of the table of texts: a prime.
const KEYS: u64 = 200_003;

/// Writes lines to a file.
fn write(
    path: &Path,
    count: u64,
    mut line: impl FnMut(u64, &mut String),
    (first, last): (&str, &str),
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, files::create(path)?);
    out.write_all(first.as_bytes())?;
    let mut text = String::new();
    for n in 0..count {
        text.clear();
        line(n, &mut text);
        out.write_all(text.as_bytes())?;
    }
    out.write_all(last.as_bytes())?;
    out.flush()
}

/// Lines nearly in order: a sort that merges them goes through memory in a few streams.
pub(super) fn lines(path: &Path, count: u64, seed: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let line = |n: u64, text: &mut String| {
        let (key, tail) = (n * 16 + rng.below(1 << 16), usize::try_from(n % 60).unwrap_or(0));
        let _ = writeln!(text, "{key:016x} {n} {}", "x".repeat(tail));
    };
    write(path, count, line, ("", ""))
}

/// Keys with long texts.
pub(super) fn keys(path: &Path, count: u64, seed: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let filler = "abcdefgh".repeat(60);
    let line = |n: u64, text: &mut String| {
        let (key, number) = (n * STRIDE % KEYS, rng.below(1000));
        let _ = writeln!(text, "key{key} {number} {filler}{n}");
    };
    write(path, count, line, ("", ""))
}

/// A document of JSON.
pub(super) fn records(path: &Path, count: u64, seed: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let line = |n: u64, text: &mut String| {
        let (comma, id, tag) = (if n > 0 { "," } else { "" }, rng.below(1 << 40), rng.below(99));
        let (a, b, c) = (n % 7, n % 11, n % 13);
        let _ = writeln!(text, r#"{comma}{{"id":{id},"tags":["t{tag}"],"v":[{a},{b},{c}]}}"#);
    };
    write(path, count, line, ("[", "]\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_for_the_same_seed_and_make_sense() {
        let folder = tempfile::tempdir().unwrap();
        let made = |seed: u64| {
            let paths = ["lines", "keys", "records"].map(|name| folder.path().join(name));
            lines(&paths[0], 500, seed).unwrap();
            keys(&paths[1], 500, seed).unwrap();
            records(&paths[2], 500, seed).unwrap();
            paths.map(|path| std::fs::read_to_string(path).unwrap())
        };
        let (one, other) = (made(1), made(2));
        assert_eq!(made(1), one);
        assert!(one.iter().zip(&other).all(|(a, b)| a != b));
        assert!(!one[0].lines().is_sorted() && one[0].lines().count() == 500);
        let document: serde_json::Value = serde_json::from_str(&one[2]).unwrap();
        assert_eq!(document.as_array().unwrap().len(), 500);
    }
}
