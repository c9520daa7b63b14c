//! The seal of a chunk: which chunk of which segment it is, who has the others, and a checksum for each unit. Two
//! copies at the end of the chunk; the one that the checkpoint refers to is not overwritten.
//!
//! Envelope: address = drive, slot; generation = generation of the segment. Body: 4 segment, 1 copy, 1 parities,
//! 1 class, 2 chunk, then the chunks (2 drive, 4 slot) and the CRC-32C of each unit (4), each list behind its count of
//! 4 bytes.

use esker_base::units::round_up;

use crate::omf::envelope::{self, Address, ENVELOPE, FormatError, Kind, count_of};
use crate::types::id::{DriveIndex, Generation, PoolUuid, SegmentId, SlotIndex};
use crate::types::{WIDTH_MAX, u32_of};

/// The seal of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub(crate) segment: SegmentId,
    pub(crate) generation: Generation,
    pub(crate) copy: u8,
    pub(crate) parity: u8,
    pub(crate) class: u8,
    pub(crate) chunk: u16,
    pub(crate) chunks: Vec<(DriveIndex, SlotIndex)>,
    pub(crate) unit_crcs: Vec<u32>,
}

/// Bytes of a copy for so many units, a multiple of 4 KiB.
pub(crate) const fn seal_bytes(units: u64) -> u64 {
    round_up(ENVELOPE as u64 + 17 + 6 * WIDTH_MAX as u64 + 4 * units, 4096)
}

impl Seal {
    pub(crate) fn encode(&self, pool: PoolUuid) -> Vec<u8> {
        let (drive, slot) = self.chunks[usize::from(self.chunk)];
        let address = Address(drive.0.into(), slot.0.into(), self.generation.0);
        let mut e = envelope::begin(Kind::Seal, pool, address);
        e.u32(self.segment.0).u8(self.copy).u8(self.parity).u8(self.class).u16(self.chunk);
        e.u32(u32_of(self.chunks.len()));
        self.chunks.iter().for_each(|(drive, slot)| {
            e.u16(drive.0).u32(slot.0);
        });
        e.u32(u32_of(self.unit_crcs.len()));
        self.unit_crcs.iter().for_each(|crc| {
            e.u32(*crc);
        });
        envelope::finish(e)
    }

    /// The seal of the chunk of this generation in this slot.
    pub(crate) fn decode(
        bytes: &[u8],
        pool: PoolUuid,
        drive: DriveIndex,
        slot: SlotIndex,
        generation: Generation,
    ) -> Result<Seal, FormatError> {
        let address = Address(drive.0.into(), slot.0.into(), generation.0);
        let mut d = envelope::open_at(Kind::Seal, pool, address, bytes)?;
        let segment = SegmentId(d.u32("segment")?);
        let (copy, parity, class) = (d.u8("copy")?, d.u8("parity")?, d.u8("class")?);
        let chunk = d.u16("chunk")?;
        let count = count_of(&mut d, "chunks", 6)?;
        let chunks =
            (0..count).map(|_| Ok((DriveIndex(d.u16("drive")?), SlotIndex(d.u32("slot")?))));
        let chunks = chunks.collect::<Result<_, FormatError>>()?;
        let count = count_of(&mut d, "units", 4)?;
        let unit_crcs = (0..count).map(|_| Ok(d.u32("unit crc")?));
        let unit_crcs = unit_crcs.collect::<Result<_, FormatError>>()?;
        Ok(Seal { segment, generation, copy, parity, class, chunk, chunks, unit_crcs })
    }
}
