//! Fuzz targets: any text in place of a device that a user names. Each says whether it was accepted. Run by `fuzz/`, and
//! on their corpora by the test below.
//!
//! 1. No text makes a target panic.
//! 2. An accepted text is shown as one that means the same.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use crate::spec::{parse_uuid, show_uuid};
use crate::{Spec, Time};

/// A specification of a device.
pub fn stack_spec(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(spec) = text.parse::<Spec>() else { return false };
    let shown = spec.to_string();
    match shown.parse::<Spec>() {
        Ok(again) => assert_eq!(again, spec, "{text} is shown as {shown}"),
        Err(error) => panic!("{text} is shown as {shown}: {error}"),
    }
    let _ = (spec.is_lasting(), spec.is_cache(), spec.time(), spec.paths().len());
    if let Ok(reopened) = spec.for_reopening() {
        let shown = reopened.to_string();
        assert_eq!(shown.parse::<Spec>().ok(), Some(reopened), "{shown}");
    }
    true
}

/// A time, or a UUID.
pub fn stack_text(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let (time, uuid) = (text.parse::<Time>(), parse_uuid(text));
    if let Ok(time) = time {
        assert_eq!(time.to_string().parse(), Ok(time));
    }
    if let Ok(uuid) = uuid {
        assert_eq!(parse_uuid(&show_uuid(&uuid)), Ok(uuid));
    }
    time.is_ok() | uuid.is_ok()
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
                "stack_spec",
                stack_spec,
                &[
                    ("path", "/dev/nvme0n1"),
                    ("file", "file:/data/a%20b?capacity=1GiB&lba=4096"),
                    ("memory", "mem:64MiB"),
                    ("null", "null:1TiB"),
                    ("ssd", "ssd:host-managed-256?capacity=8GiB&time=10x"),
                    ("image", "ssd:micron-7450?capacity=256MiB&image=/srv/drive&time=virtual"),
                    ("disk", "disk:sas-10k?capacity=1GiB"),
                    ("remote", "nvme-tcp://127.0.0.1:4421,[::1]/nqn.2026-01.io.example:a?nsid=7"),
                    ("traced", "traced:(mem:1MiB)?to=/srv/trace"),
                    ("cache", "cache:(disk:sas-10k?capacity=1GiB)?flash=(mem:64MiB)"),
                    ("stripe", "stripe:(mem:1MiB)(mem:1MiB)?chunk=64KiB"),
                    ("volume", "volume:tank/db?drives=(mem:1GiB)(mem:1GiB)"),
                ],
            )
            .memory(1 << 20),
            Target::of_texts(
                "stack_text",
                stack_text,
                &[("time", "10x"), ("uuid", "0b0a0908-0706-4504-8302-010012345678")],
            ),
        ]);
    }
}
