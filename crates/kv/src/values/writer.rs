//! The writer of value blocks: encoded records, in key order, to frames of new blocks. Ingest, compaction and repair
//! write with it; its writes are durable after the next flush.

use std::sync::Arc;

use esker_base::units::{round_up, to_usize};

use crate::media::classes::Classes;
use crate::media::space::Purpose;
use crate::media::writes::Writes;
use crate::omf::frame::{FrameKind, HEADER_SIZE, StoredRecord};
use crate::types::error::Result;
use crate::types::ids::{Ids, RecordAddress, Seqno};
use crate::types::options::Tuning;
use crate::types::policy::Place;
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;
use crate::values::frame::FrameBuilder;

/// Writes records in key order into new blocks.
pub(crate) struct BlockWriter<'a> {
    classes: &'a Classes,
    place: Place,
    stream: Stream,
    purpose: Purpose,
    block_bytes: u64,
    writes: &'a Writes,
    frame: FrameBuilder,
    /// The block under construction and how many of its bytes are written.
    current: Option<(ValueBlock, u64)>,
    finished: Vec<Arc<ValueBlock>>,
}

impl<'a> BlockWriter<'a> {
    /// Blocks for about `bytes` bytes of records, data of `stream`: as large as `tuning` says, or smaller ones for
    /// fewer.
    pub(crate) fn new(
        classes: &'a Classes,
        (place, stream): (Place, Stream),
        purpose: Purpose,
        (tuning, bytes): (&Tuning, u64),
        writes: &'a Writes,
    ) -> BlockWriter<'a> {
        // No frame for no values.
        let frame_bytes = if bytes == 0 { 0 } else { tuning.frame_bytes };
        // Of two frames in a row, one is half full at least.
        let frames = if bytes < frame_bytes { 1 } else { 2 * (bytes / tuning.frame_bytes + 1) };
        let around = frames.saturating_mul(HEADER_SIZE as u64 + classes.largest_lba());
        let block_bytes = bytes.saturating_add(around).min(tuning.block_bytes);
        BlockWriter {
            classes,
            place,
            stream,
            purpose,
            block_bytes,
            writes,
            frame: FrameBuilder::new(to_usize(frame_bytes)),
            current: None,
            finished: Vec::new(),
        }
    }

    /// Appends an encoded record; returns its address.
    pub(crate) fn push(&mut self, record: &[u8], ids: &Ids) -> Result<RecordAddress> {
        if !self.frame.has_room(record.len()) {
            self.write_frame()?;
            if !self.frame.has_room(record.len()) {
                self.frame = FrameBuilder::new(record.len());
            }
        }
        let needed = (self.frame.used() + record.len()) as u64;
        let lba_size = |block: &ValueBlock| u64::from(block.media().lba_size);
        if let Some((block, end)) = &self.current
            && end + round_up(needed, lba_size(block)) > block.allocation.bytes()
        {
            self.finish_block()?;
        }
        if self.current.is_none() {
            // A full frame and a record on top of it fit any block.
            let least = (2 * self.frame.used().max(record.len()) + HEADER_SIZE) as u64 + 8192;
            let (place, bytes) = (self.place, self.block_bytes);
            let (stream, purpose) = (self.stream, self.purpose);
            let allocation = self.classes.allocate_about(place, stream, bytes, least, purpose)?;
            let block = ValueBlock { id: ids.next(), allocation, bytes: 0, plain_bytes: 0 };
            self.current = Some((block, 0));
        }
        let at = self.frame.push_encoded(record) as u64;
        let (block, end) = self.current.as_mut().expect("made above");
        block.bytes += record.len() as u64;
        let value = StoredRecord::value_of(record);
        block.plain_bytes += (record.len() - value.bytes.len() + value.plain_size()) as u64;
        let offset = u32::try_from(*end + at).expect("blocks are below 4 GiB");
        Ok(RecordAddress { block: block.id, offset })
    }

    fn write_frame(&mut self) -> Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let (block, end) = self.current.as_mut().expect("a frame with records has a block");
        let frame = std::mem::replace(&mut self.frame, FrameBuilder::new(0));
        let buf = frame.seal(FrameKind::Aged, block, *end, Seqno::ZERO, Seqno::ZERO);
        let bytes = buf.len() as u64;
        let buf = self.writes.add(&block.allocation, *end, buf)?;
        *end += bytes;
        self.frame = FrameBuilder::reuse(buf);
        Ok(())
    }

    fn finish_block(&mut self) -> Result<()> {
        self.write_frame()?;
        if let Some((mut block, end)) = self.current.take() {
            block.allocation.truncate(end);
            self.finished.push(Arc::new(block));
        }
        Ok(())
    }

    /// Ends the block under construction and returns all that were written, not yet flushed.
    pub(crate) fn finish(&mut self) -> Result<Vec<Arc<ValueBlock>>> {
        self.finish_block()?;
        Ok(std::mem::take(&mut self.finished))
    }
}
