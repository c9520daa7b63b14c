//! A writer that overwrites its namespace from the first block to the last, over and over. It
//! stands for fio's sequential write job, and is the simplest model of a store with a log.

use super::sink::Sink;
use super::writer::Writer;
use crate::LabError;

/// A circular writer.
pub struct Circular {
    block_bytes: u64,
    next: u64,
}

impl Circular {
    /// A writer of blocks of this size, which begins with the first one.
    #[must_use]
    pub fn new(block_bytes: u64) -> Circular {
        Circular { block_bytes, next: 0 }
    }
}

impl Writer for Circular {
    fn turn(&mut self, sink: &mut dyn Sink) -> Result<u64, LabError> {
        sink.write(self.next * self.block_bytes, self.block_bytes, 0)?;
        self.next = (self.next + 1) % (sink.bytes() / self.block_bytes);
        Ok(self.block_bytes)
    }
}
