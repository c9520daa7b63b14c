//! Fuzz targets: any bytes in place of what a drive says about its data placement, or of a device's identity. Each says
//! whether they were accepted. Run by `fuzz/`, and on their corpora by the test below.
//!
//! 1. No bytes make a target panic.
//! 2. Accepted bytes are encoded to bytes that decode to the same, as far as there is an encoder.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use crate::fdp::wire;
use crate::fdp::wire::command;
use crate::identity::Identity;

/// A log page or another structure of data placement, which the first byte chooses.
pub fn device_placement(data: &[u8]) -> bool {
    let Some((&kind, bytes)) = data.split_first() else { return false };
    match kind {
        0 => wire::decode_endurance(bytes).is_ok(),
        1 => wire::decode_configurations(bytes).is_ok_and(|found| {
            let _ = wire::configurations_size(bytes);
            let encoded = wire::encode_configurations(&found);
            // Of one that names no placement ids, or more handles than a descriptor's size can say, others are written.
            let again = wire::decode_configurations(&encoded);
            assert!(again.is_ok_and(|again| again.len() == found.len()));
            true
        }),
        2 => wire::decode_usage(bytes).is_ok_and(|found| {
            let encoded = wire::encode_usage(&found);
            assert_eq!(wire::usage_size(&encoded), Ok(encoded.len()));
            assert_eq!(wire::decode_usage(&encoded), Ok(found));
            true
        }),
        3 => wire::decode_statistics(bytes).is_ok_and(|found| {
            assert_eq!(wire::decode_statistics(&wire::encode_statistics(&found)), Ok(found));
            true
        }),
        4 => wire::decode_events(bytes).is_ok_and(|mut found| {
            found.drain(..found.len().saturating_sub(wire::EVENTS_MAX));
            let encoded = wire::encode_events(&found);
            assert_eq!(wire::events_size(&encoded), Ok(encoded.len()));
            assert_eq!(wire::decode_events(&encoded), Ok(found));
            true
        }),
        5 => wire::decode_handles(bytes).is_ok_and(|found| {
            let encoded = wire::encode_handles(&found);
            assert_eq!(wire::handles_size(&encoded), Ok(encoded.len()));
            assert_eq!(wire::decode_handles(&encoded), Ok(found));
            true
        }),
        6 => {
            let found = wire::decode_reported(bytes, 255);
            assert_eq!(wire::decode_reported(&wire::encode_reported(&found), 255), found);
            !found.is_empty()
        }
        7 => command::decode_controller(bytes).is_ok(),
        8 => command::decode_group(bytes).is_ok(),
        9 => bytes.first_chunk().is_some_and(|word| {
            let enabled = wire::decode_enabled(u32::from_le_bytes(*word));
            assert_eq!(wire::decode_enabled(wire::encode_enabled(enabled)), enabled);
            enabled.is_some()
        }),
        _ => false,
    }
}

/// An identity, as media keep it.
pub fn device_identity(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let identity = text.parse::<Identity>();
    if let Ok(identity) = &identity {
        assert_eq!(identity.to_string().parse::<Identity>().as_ref(), Ok(identity));
        let _ = (identity.is_same(identity), identity.is_beside(identity));
    }
    identity.is_ok()
}

#[cfg(test)]
mod tests;
