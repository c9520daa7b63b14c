//! Fuzz targets: any bytes in place of a line of a dump, or an argument. Each says whether they were accepted. Run by
//! `fuzz/`, and on their corpora by the test below.
//!
//! 1. No bytes make a target panic.
//! 2. Accepted bytes are written as bytes that mean the same.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use crate::args::{CacheSize, Cpus, PolicyArg, SetSize, VolumeName, parse};
use crate::kv::lines;

/// A line of a dump.
pub fn cli_line(data: &[u8]) -> bool {
    let Ok(written) = lines::rewritten(data) else { return false };
    assert!(written.is_ascii() && !written.contains(&b'\n'));
    assert_eq!(lines::rewritten(&written).as_ref(), Ok(&written));
    true
}

/// An argument of any kind.
pub fn cli_argument(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    [
        parse::listen(text).is_ok(),
        parse::bytes(text).is_ok_and(|bytes| bytes > 0),
        parse::bytes_or_zero(text).is_ok(),
        parse::count(text).is_ok_and(|count| count > 0),
        parse::small_count(text).is_ok(),
        parse::weighted_size(text).is_ok(),
        parse::times(text).is_ok_and(|times| times > 0.0),
        parse::threads(text).is_ok(),
        parse::count_or_zero(text).is_ok(),
        parse::length(text).is_ok_and(|length| length > 0),
        parse::time(text).is_ok_and(|time| !time.is_zero()),
        parse::time_or_zero(text).is_ok(),
        parse::milliseconds(text).is_ok(),
        parse::whole_seconds(text).is_ok(),
        parse::some_seconds(text).is_ok_and(|seconds| seconds > 0),
        parse::controller_ids(text).is_ok(),
        parse::days(text).is_ok(),
        parse::span(text).is_ok(),
        parse::patience(text).is_ok(),
        parse::microseconds(text).is_ok(),
        parse::rate(text).is_ok(),
        parse::theta(text).is_ok(),
        parse::workload(text).is_ok(),
        parse::kvs(text).is_ok(),
        text.parse::<Cpus>().is_ok(),
        text.parse::<VolumeName>().is_ok(),
        text.parse::<PolicyArg>().is_ok(),
        text.parse::<CacheSize>().is_ok(),
        text.parse::<SetSize>().is_ok(),
    ]
    .contains(&true)
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        replay(&[
            Target::of_texts(
                "cli_line",
                cli_line,
                &[
                    ("record", "key\\x00\tvalue\\n"),
                    ("dump", "\\dump 1 2"),
                    ("kvs", "\\kvs users policy=auto compression=zstd"),
                    ("end", "\\end 17"),
                ],
            ),
            Target::of_texts(
                "cli_argument",
                cli_argument,
                &[
                    ("address", "[::1]:9421"),
                    ("size", "64KiB:3"),
                    ("count", "1,000k"),
                    ("seconds", "0.5s"),
                    ("span", "10min"),
                    ("ids", "1-1000"),
                    ("kvs", "users:capacity-only"),
                    ("processors", "0-3,8"),
                    ("volume", "tank/db@monday"),
                    ("share", "12.5%"),
                ],
            ),
        ]);
    }
}
