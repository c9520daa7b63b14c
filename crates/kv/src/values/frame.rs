//! Frames under construction: records one after the other in DRAM, with room for the header in front.

use esker_base::AlignedBuf;
use esker_base::checksum::crc32c;
use esker_base::units::to_usize;

use crate::omf::frame::{FrameHeader, FrameKind, HEADER_SIZE, Record, StoredRecord};
use crate::types::format::FormatVersion;
use crate::types::ids::Seqno;
use crate::values::block::ValueBlock;

/// Frames under construction: records one after the other, room for the header in front.
pub(crate) struct FrameBuilder {
    buf: AlignedBuf,
    used: usize,
    records: u32,
    /// As one of the records needs it.
    version: FormatVersion,
}

impl FrameBuilder {
    /// A frame with room for `payload` bytes of records.
    pub(crate) fn new(payload: usize) -> FrameBuilder {
        FrameBuilder::reuse(AlignedBuf::zeroed(HEADER_SIZE + payload))
    }

    /// A frame in a buffer that served another one.
    pub(crate) fn reuse(mut buf: AlignedBuf) -> FrameBuilder {
        buf.set_len(buf.capacity());
        FrameBuilder { buf, used: HEADER_SIZE, records: 0, version: FormatVersion::V1 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Bytes used, the header included.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(crate) fn has_room(&self, size: usize) -> bool {
        self.used + size <= self.buf.len()
    }

    /// Appends a record and returns its offset in the frame. There is room for it.
    pub(crate) fn push(&mut self, record: &Record<'_>) -> usize {
        let at = self.used;
        self.used += record.size();
        record.encode_to(&mut self.buf[at..]);
        self.version = self.version.max(record.version());
        self.records += 1;
        at
    }

    /// Appends a record that is encoded and verified already.
    pub(crate) fn push_encoded(&mut self, record: &[u8]) -> usize {
        let at = self.used;
        self.used += record.len();
        self.buf[at..self.used].copy_from_slice(record);
        self.version = self.version.max(StoredRecord::version_of(record));
        self.records += 1;
        at
    }

    /// Overwrites the room for further records, which holds those of an earlier frame.
    pub(crate) fn erase_unused(&mut self) {
        self.buf[self.used..].fill(0);
    }

    /// Fills in the header and the padding of the frame that is to be written at `offset` of the block.
    pub(crate) fn seal(
        mut self,
        kind: FrameKind,
        block: &ValueBlock,
        offset: u64,
        first_seqno: Seqno,
        durable_seqno: Seqno,
    ) -> AlignedBuf {
        let payload = &self.buf[HEADER_SIZE..self.used];
        let header = FrameHeader {
            version: self.version,
            kind,
            records: self.records,
            block: block.id,
            offset,
            durable_seqno,
            first_seqno,
            payload_size: u32::try_from(payload.len()).expect("frames are below 4 GiB"),
            payload_crc: crc32c(payload),
        };
        self.buf[..HEADER_SIZE].copy_from_slice(&header.encode());
        let padded = self.used.next_multiple_of(to_usize(block.media().lba_size.into()));
        self.buf[self.used..padded].fill(0);
        self.buf.set_len(padded);
        self.buf
    }
}
