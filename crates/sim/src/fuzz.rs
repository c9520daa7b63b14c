//! Replay of fuzz targets on any compiler: each file of their corpora, and mutations of it.
//!
//! A crate with decoders has a module `fuzz` of functions that take any bytes, decode them, check what has to hold of
//! the result, and say whether the bytes were accepted. `fuzz/` at the root gives the functions to libFuzzer; a unit test
//! of the crate hands them to [`replay`] as [`Target`]s.
//!
//! 1. Each seed is a file of `fuzz/corpus/TARGET`, and its target accepts it. `ESKER_RENEW_CORPUS=1` writes the seeds,
//!    and beside each a part of it.
//! 2. Other files there are inputs that found something, or odd ones; they may be refused.
//! 3. No input takes more memory than [`Target::memory`] and [`MEMORY_PER_BYTE`] for each of its bytes, at any time. This
//!    is measured where the test's program has [`Watched`] as its allocator.
//! 4. Mutations follow from `ESKER_SEED` (0 if unset). `ESKER_SOAK=60` goes on for 60 s for each target.

mod memory;
mod mutate;

use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_base::{Clock, Rng, files};

pub use memory::Watched;

/// Bytes that a target may have allocated at a time for each byte of its input.
pub const MEMORY_PER_BYTE: usize = 64;
/// Mutations of each file of a corpus.
const MUTATIONS: u64 = 1000;
/// Bytes of mutated inputs after which no more of a file are made: a target takes a fraction of a second.
const MUTATED_BYTES: usize = 1 << 20;

/// A function that takes any bytes.
pub struct Target {
    /// The name of its corpus and of its program in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Whether the bytes are accepted. Panics if something does not hold that has to.
    pub run: fn(&[u8]) -> bool,
    /// Bytes that it may have allocated at a time, whatever the size of its input.
    pub memory: usize,
    /// Inputs that are accepted, each with the name of its file.
    pub seeds: Vec<(&'static str, Vec<u8>)>,
}

impl Target {
    /// A target that needs hardly any memory.
    #[must_use]
    pub fn new(
        name: &'static str,
        run: fn(&[u8]) -> bool,
        seeds: Vec<(&'static str, Vec<u8>)>,
    ) -> Target {
        Target { name, run, memory: 256 << 10, seeds }
    }

    /// A target whose inputs are text.
    #[must_use]
    pub fn of_texts(
        name: &'static str,
        run: fn(&[u8]) -> bool,
        seeds: &[(&'static str, &str)],
    ) -> Target {
        let seeds = seeds.iter().map(|(name, text)| (*name, text.as_bytes().to_vec()));
        Target::new(name, run, seeds.collect())
    }

    /// The same target with another allowance of memory.
    #[must_use]
    pub fn memory(self, memory: usize) -> Target {
        Target { memory, ..self }
    }
}

/// Runs targets on the files of their corpora and on mutations of them.
///
/// # Panics
/// If a target panics, refuses a seed or takes too much memory, or if a seed is not in its corpus.
pub fn replay(targets: &[Target]) {
    let (seed, soak) = (number("ESKER_SEED"), Duration::from_secs(number("ESKER_SOAK")));
    for target in targets {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{}: no corpus", target.name);
        for (file, bytes) in &corpus {
            let is_accepted = run(target, file, bytes);
            let is_seed = target.seeds.iter().any(|(name, _)| name == file);
            assert!(is_accepted || !is_seed, "{}: {file} is refused", target.name);
        }
        let (clock, mut round) = (Clock::real(), 0);
        let begin = clock.now();
        while round == 0 || clock.now().since(begin) < soak {
            mutations(target, &corpus, seed + round);
            round += 1;
        }
    }
}

/// Runs a target on mutations of the files of its corpus.
fn mutations(target: &Target, corpus: &[(String, Vec<u8>)], seed: u64) {
    let mut rng = Rng::new(seed);
    for (file, bytes) in corpus {
        let mut mutated = 0;
        for n in 0..MUTATIONS {
            let mutant = mutate::mutant(&mut rng, bytes, corpus);
            mutated += mutant.len();
            if mutated > MUTATED_BYTES {
                break;
            }
            run(target, &format!("mutation {n} of {file} by ESKER_SEED={seed}"), &mutant);
        }
    }
}

/// Runs a target on one input.
fn run(target: &Target, input: &str, bytes: &[u8]) -> bool {
    let (result, most) =
        memory::most_during(|| catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))));
    let found = || format!("{}: {input}: {}", target.name, shown(bytes));
    let is_accepted = result.unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<String>().cloned();
        let why = why.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        match why {
            Some(why) => panic!("{}: {why}", found()),
            None => resume_unwind(panic),
        }
    });
    let allowed = target.memory + MEMORY_PER_BYTE * bytes.len();
    assert!(most <= allowed, "{most} bytes of memory, {allowed} allowed: {}", found());
    is_accepted
}

/// The bytes as one line that `printf` takes.
fn shown(bytes: &[u8]) -> String {
    let mut line = format!("{} bytes: ", bytes.len());
    for byte in bytes.iter().take(4096) {
        write!(line, "\\x{byte:02x}").expect("a string takes all");
    }
    line
}

/// The files of a target's corpus in order, after writing the seeds there if the environment asks for it.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folder = root.join(target.name);
    if number("ESKER_RENEW_CORPUS") == 1 {
        files::create_dir_all(&folder).expect("a folder that can be made");
        for (name, bytes) in &target.seeds {
            let cut = format!("{name}-cut");
            for (name, bytes) in [(*name, &bytes[..]), (&cut, &bytes[..2 * bytes.len() / 3])] {
                files::write(&folder.join(name), bytes).expect("a file that can be written");
            }
        }
    }
    for (name, bytes) in &target.seeds {
        let path = folder.join(name);
        assert!(
            fs::read(&path).is_ok_and(|found| found == *bytes),
            "{}: not the seed of this name; ESKER_RENEW_CORPUS=1 writes it",
            path.display()
        );
    }
    let entries = fs::read_dir(&folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read(path).expect("a file"))).collect()
}

/// The number in a variable of the environment, or zero.
fn number(variable: &str) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
