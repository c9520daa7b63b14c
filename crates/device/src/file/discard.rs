//! `BLKDISCARD` (`linux/fs.h`): tells a block device that a range is no longer needed. `fallocate`
//! reaches only devices that can free blocks *and* promise zeroes; a TRIM promises nothing.

#![allow(unsafe_code)]

use std::fs::File;

use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Opcode, Setter};

/// `_IO(0x12, 119)`.
const BLKDISCARD: Opcode = ioctl::opcode::none(0x12, 119);

/// Discards `size` bytes from `offset` on. A device that cannot do it counts as having done it: a
/// discard promises nothing (contract, 4).
pub(super) fn discard(block_device: &File, offset: u64, size: u64) -> Result<()> {
    // SAFETY: BLKDISCARD reads a pointer to two 64-bit numbers, the offset and the size in bytes,
    // as this setter passes them; it writes nothing to memory.
    let result = unsafe {
        let request = Setter::<BLKDISCARD, [u64; 2]>::new([offset, size]);
        ioctl::ioctl(block_device, request)
    };
    match result {
        Err(Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}
