//! Frames of the log on their way back: one read from its medium and verified, and its records one by one.
//!
//! Replay, checks and backups read them; `tail.rs` writes them.

use std::sync::Arc;

use esker_base::units::to_usize;

use crate::omf::Malformed;
use crate::omf::frame::{FrameHeader, FrameKind, HEADER_SIZE, Record};
use crate::types::error::{KvError, Result};
use crate::types::ids::Seqno;
use crate::values::block::ValueBlock;

/// A frame of the log whose checksum holds.
pub(crate) struct LogFrame {
    pub(crate) segment: Arc<ValueBlock>,
    pub(crate) header: FrameHeader,
    /// Its records.
    pub(crate) payload: Vec<u8>,
}

impl LogFrame {
    /// How many bytes it has on its medium, but for padding.
    pub(crate) fn size(&self) -> u64 {
        (HEADER_SIZE + self.payload.len()) as u64
    }

    /// Hands each record to `each`, with its seqno and where it begins in the segment.
    pub(crate) fn each_record(&self, mut each: impl FnMut(&Record<'_>, Seqno, u32)) -> Result<()> {
        let LogFrame { segment, header, payload } = self;
        let records_at = header.offset + HEADER_SIZE as u64;
        let mut at = 0;
        for number in 0..header.records {
            let seqno = header.first_seqno.plus(number);
            let record = match header.kind {
                FrameKind::Log => Record::decode(&payload[at..]),
                FrameKind::Aged => Err(Malformed("an aged frame in the log".into())),
            };
            // The frame's checksum holds, so a bad record was written by a bug: say so, do not skip it.
            let record = record.map_err(|bad| {
                let (lba, ..) = segment.allocation.span(header.offset, 1);
                segment.media().corrupt("log record", lba, bad.0)
            })?;
            let offset = u32::try_from(records_at + at as u64);
            each(&record, seqno, offset.expect("segments are below 4 GiB"));
            at += record.size();
        }
        Ok(())
    }
}

/// The frame at `offset` of a block, if there is a valid one. An invalid frame is read twice: it may have been
/// damaged on its way.
pub(crate) fn read_frame(
    block: &ValueBlock,
    offset: u64,
) -> Result<Option<(FrameHeader, Vec<u8>)>> {
    Ok(match read_frame_once(block, offset)? {
        None => read_frame_once(block, offset)?,
        valid => valid,
    })
}

pub(crate) fn read_frame_once(
    block: &ValueBlock,
    offset: u64,
) -> Result<Option<(FrameHeader, Vec<u8>)>> {
    let allocation = &block.allocation;
    if offset + HEADER_SIZE as u64 > allocation.bytes() {
        return Ok(None);
    }
    let (buf, skip) = allocation.read_at(offset, HEADER_SIZE)?;
    let Ok(header) = FrameHeader::decode(&buf[skip..]) else {
        let Some(found) = FrameHeader::other_version(&buf[skip..]) else { return Ok(None) };
        let (lba, ..) = allocation.span(offset, 1);
        let device = block.media().device().name().to_owned();
        return Err(KvError::Version { what: "log", device, lba, found });
    };
    if !is_at(&header, block, offset) {
        return Ok(None);
    }
    let size = HEADER_SIZE + to_usize(header.payload_size.into());
    let (buf, skip) = allocation.read_at(offset, size)?;
    let payload = &buf[skip + HEADER_SIZE..skip + size];
    Ok(header.check_payload(payload).is_ok().then(|| (header, payload.to_vec())))
}

/// Whether a frame says that it is at `offset` of a block, which has room for it.
pub(crate) fn is_at(header: &FrameHeader, block: &ValueBlock, offset: u64) -> bool {
    let end = offset + HEADER_SIZE as u64 + u64::from(header.payload_size);
    (header.block, header.offset) == (block.id, offset) && end <= block.allocation.bytes()
}
