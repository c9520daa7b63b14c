//! One request of a trace, and the 4 KiB blocks it refers to.
//!
//! Invariants
//! 1. `offset + length` is at most [`MAX_OFFSET`] and `device` is below [`MAX_DEVICES`] in every
//!    request that a reader yields, so that a device and one of its 4 KiB blocks fit one `u64`.

use std::fmt;

/// The size of the blocks that [`Request::blocks`] counts in, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// The end of the largest device: 64 PiB.
pub const MAX_OFFSET: u64 = 1 << 56;

/// How many devices one trace may have: the end of the last block of the last one fits a key, too.
pub const MAX_DEVICES: u32 = (1 << 20) - 1;

/// The bits of a block's number within its device.
const BLOCK_BITS: u32 = MAX_OFFSET.ilog2() - BLOCK_BYTES.ilog2();

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Reads a range.
    Read,
    /// Writes a range.
    Write,
    /// Gives a range up.
    Discard,
    /// Makes completed writes durable; has no range.
    Flush,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 4] = [Op::Read, Op::Write, Op::Discard, Op::Flush];

    /// Whether it moves data.
    #[must_use]
    pub fn is_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "discard",
            Op::Flush => "flush",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A request to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// When it was issued, in nanoseconds; only differences within a trace mean something.
    pub time_ns: u64,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; zero for a flush.
    pub length: u64,
    /// The device or volume: its number in the trace, counted from 0 as devices appear.
    pub device: u32,
    /// Its operation.
    pub op: Op,
}

impl Request {
    /// A request that keeps to the limits of this module.
    ///
    /// # Errors
    /// A sentence, when the range ends beyond [`MAX_OFFSET`] or there are too many devices.
    pub fn checked(
        time_ns: u64,
        op: Op,
        offset: u64,
        length: u64,
        device: u32,
    ) -> Result<Request, String> {
        let fits = offset.checked_add(length).is_some_and(|end| end <= MAX_OFFSET);
        if !fits {
            return Err(format!(
                "{length} bytes at offset {offset} end beyond {MAX_OFFSET} (64 PiB)"
            ));
        }
        if device >= MAX_DEVICES {
            return Err(format!("device {device}: a trace has at most {MAX_DEVICES} devices"));
        }
        Ok(Request { time_ns, offset, length, device, op })
    }

    /// The 4 KiB blocks that it refers to: `offset / 4096 ..= (offset + length - 1) / 4096`, none
    /// when the length is zero.
    #[must_use]
    pub fn blocks(&self) -> std::ops::Range<u64> {
        if self.length == 0 {
            return 0..0;
        }
        self.offset / BLOCK_BYTES..(self.offset + self.length - 1) / BLOCK_BYTES + 1
    }

    /// The same blocks as keys that are different for different devices ([`block_key`]).
    #[must_use]
    pub fn block_keys(&self) -> std::ops::Range<u64> {
        let blocks = self.blocks();
        let base = block_key(self.device, 0);
        base + blocks.start..base + blocks.end
    }
}

/// A 4 KiB block of a device as one number: the device above the block.
#[must_use]
pub fn block_key(device: u32, block: u64) -> u64 {
    u64::from(device) << BLOCK_BITS | block
}

/// The device and the block of a [`block_key`].
#[must_use]
pub fn device_and_block(key: u64) -> (u32, u64) {
    let device = u32::try_from(key >> BLOCK_BITS).expect("20 bits");
    (device, key & ((1 << BLOCK_BITS) - 1))
}

/// A reference to one 4 KiB block, as caches see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// The block, with its device ([`block_key`]).
    pub key: u64,
    /// Whether it is written, not read.
    pub write: bool,
}

/// The references that reads and writes make to 4 KiB blocks; discards and flushes make none.
pub fn block_refs(request: &Request) -> impl Iterator<Item = BlockRef> + use<> {
    let keys = if request.op.is_data() { request.block_keys() } else { 0..0 };
    let write = request.op == Op::Write;
    keys.map(move |key| BlockRef { key, write })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(offset: u64, length: u64) -> std::ops::Range<u64> {
        Request::checked(0, Op::Read, offset, length, 0).unwrap().blocks()
    }

    #[test]
    fn every_block_that_a_request_touches_counts_once() {
        assert_eq!(blocks(0, 4096), 0..1);
        assert_eq!(blocks(4095, 2), 0..2);
        assert_eq!(blocks(4096, 1), 1..2);
        assert_eq!(blocks(512, 4096), 0..2);
        assert!(blocks(8192, 0).is_empty());
        assert_eq!(blocks(MAX_OFFSET - 1, 1).end, MAX_OFFSET / BLOCK_BYTES);
    }

    #[test]
    fn devices_do_not_share_blocks() {
        let last = Request::checked(0, Op::Write, MAX_OFFSET - 4096, 4096, 6).unwrap();
        let first = Request::checked(0, Op::Write, 0, 4096, 7).unwrap();
        let keys: Vec<u64> = [last, first].iter().flat_map(block_refs).map(|r| r.key).collect();
        assert_eq!(keys[1] - keys[0], 1);
        assert_eq!(device_and_block(keys[0]), (6, MAX_OFFSET / BLOCK_BYTES - 1));
        assert_eq!(device_and_block(keys[1]), (7, 0));
        let top = Request::checked(0, Op::Read, 0, 1, MAX_DEVICES - 1).unwrap();
        assert_eq!(device_and_block(top.block_keys().start), (MAX_DEVICES - 1, 0));
        let last = Request::checked(0, Op::Read, MAX_OFFSET - 1, 1, MAX_DEVICES - 1).unwrap();
        assert_eq!(last.block_keys().count(), 1);
    }

    #[test]
    fn requests_beyond_the_limits_are_refused() {
        assert!(Request::checked(0, Op::Read, MAX_OFFSET, 1, 0).unwrap_err().contains("64 PiB"));
        assert!(Request::checked(0, Op::Read, u64::MAX, 1, 0).is_err());
        assert!(Request::checked(0, Op::Read, 0, 1, MAX_DEVICES).unwrap_err().contains("devices"));
    }

    #[test]
    fn discards_and_flushes_refer_to_no_block() {
        let discard = Request::checked(0, Op::Discard, 0, 1 << 20, 0).unwrap();
        let flush = Request::checked(0, Op::Flush, 0, 0, 0).unwrap();
        assert_eq!(block_refs(&discard).count() + block_refs(&flush).count(), 0);
        let write = Request { op: Op::Write, ..discard };
        assert!(block_refs(&write).all(|one| one.write));
        assert_eq!(block_refs(&write).count(), 256);
    }
}
