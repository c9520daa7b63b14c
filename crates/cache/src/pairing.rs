//! Comparison of an origin with the flash device of a cache.

use std::fmt;

use esker_base::units::human_bytes;
use esker_device::Identity;

use crate::omf::BLOCK;

/// Fate of the dirty blocks of a cache whose origin is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// They stay, and go to the origin when they are written back.
    Keep,
    /// They are lost; the cache is empty, and the origin as it is.
    Drop,
}

/// An origin beside the facts that the flash device keeps about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairing {
    /// Name of the origin.
    pub origin: String,
    /// Name of the flash device.
    pub flash: String,
    /// The identity for which the cache was made, if it is known.
    pub known: Option<Identity>,
    /// The identity that the origin has, if anything tells.
    pub found: Option<Identity>,
    /// How many samples were compared.
    pub compared: usize,
    /// Those of the sampled blocks that differ.
    pub differing: Vec<u64>,
    /// How many samples could not be read.
    pub unread: usize,
    /// Blocks that are on the flash device only.
    pub dirty_blocks: u64,
    /// Blocks that the flash device has as the origin had them.
    pub clean_blocks: u64,
}

impl Pairing {
    /// Whether the origin is another device than the one the cache was made for.
    #[must_use]
    pub fn is_other(&self) -> bool {
        matches!((&self.known, &self.found), (Some(known), Some(found)) if !known.is_same(found))
    }

    /// Whether they belong together, as far as can be told.
    #[must_use]
    pub fn is_right(&self) -> bool {
        !self.is_other() && self.differing.is_empty()
    }
}

impl fmt::Display for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pairing { origin, flash, compared, differing, .. } = self;
        if let (true, Some(known), Some(found)) = (self.is_other(), &self.known, &self.found) {
            write!(
                f,
                "{origin}: it is not the origin of the cache on {flash}, which was made for "
            )?;
            write!(f, "{known}; this one is {found}; ")?;
        } else if !differing.is_empty() {
            write!(
                f,
                "{origin}: it was written without its cache on {flash}, or is another device; "
            )?;
        } else {
            write!(f, "{origin}: it is the origin of the cache on {flash}; ")?;
        }
        match (differing.first(), compared) {
            (None, 0) => f.write_str("no sampled block could be compared"),
            (None, _) => write!(f, "all {compared} sampled blocks are the same"),
            (Some(first), _) => write!(
                f,
                "{} of {compared} sampled blocks differ, the first one at byte {}",
                differing.len(),
                first * BLOCK
            ),
        }
    }
}

/// The remedies for a wrong pair.
pub(crate) fn advice(pair: &Pairing) -> String {
    let Pairing { origin, flash, dirty_blocks, .. } = pair;
    let dirty = match dirty_blocks {
        0 => "every block of the cache is on its origin".to_owned(),
        _ => format!("{} are on the flash device only", human_bytes(dirty_blocks * BLOCK)),
    };
    format!(
        "nothing was changed; {dirty}. Name the right origin; or let `esker cache accept '{origin}' \
         '{flash}'` say what becomes of them with this one"
    )
}
