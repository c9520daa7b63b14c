//! The arguments of benches: a directory, and figures.

use std::path::PathBuf;

/// The `n`th argument; cargo's own arguments do not count.
fn text(n: usize) -> Option<String> {
    std::env::args().filter(|text| text != "--bench").nth(n)
}

/// Where the KVDB goes. Without one it names the missing argument.
pub(crate) fn directory() -> Option<PathBuf> {
    let given = text(1);
    if given.is_none() {
        println!("give a directory; see the top of the file");
    }
    given.map(PathBuf::from)
}

/// The `n`th argument, a number.
pub(crate) fn argument(n: usize, otherwise: u64) -> u64 {
    text(n).map_or(otherwise, |text| text.parse().expect("a number"))
}
