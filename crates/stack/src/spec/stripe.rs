//! Stripes: several devices as one.

use super::Spec;
use super::syntax::{Key, Keys, Parts, show_size, size};

/// Bytes of a chunk where nothing is said.
const CHUNK: u64 = 128 << 10;
const EXAMPLE: &str = "stripe:(/dev/nvme0n1)(/dev/nvme1n1)";

/// Several devices as one, chunk by chunk in turn: see [`Stripe`](esker_device::Stripe).
#[derive(Clone, Debug, PartialEq)]
pub struct StripeSpec {
    /// The drives, in the order in which the stripe was first written.
    pub drives: Vec<Spec>,
    /// Bytes of a chunk; 128 KiB where nothing is said.
    pub chunk: Option<u64>,
}

impl StripeSpec {
    const KEYS: [Key; 1] = [("chunk", "SIZE")];

    pub(super) fn of(parts: &Parts) -> Result<StripeSpec, String> {
        let mut keys = Keys::of("stripe:", parts, &StripeSpec::KEYS)?;
        Ok(StripeSpec { drives: parts.specs(EXAMPLE)?.to_vec(), chunk: keys.take("chunk", size)? })
    }

    pub(super) fn parts(&self) -> Parts {
        let mut parts = Parts::new(self.drives.clone());
        parts.push("chunk", self.chunk.map(show_size));
        parts
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk.unwrap_or(CHUNK)
    }
}
