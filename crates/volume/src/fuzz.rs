//! Fuzz targets: any bytes in place of a structure on a pool's drives. Each says whether they were accepted. Run by
//! `fuzz/`, and on their corpora by the test below.
//!
//! 1. No bytes make a target panic.
//! 2. Accepted bytes are encoded to bytes that decode to the same.
//! 3. Length and checksum of the envelope are made to fit, and its address is the one that it states.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use crate::fragment::Unpacker;
use crate::omf::FormatError;
use crate::omf::envelope::{self, Address, Kind, Opened};
use crate::omf::frame::{self, Frame, Record};
use crate::omf::label::Label;
use crate::omf::leaf;
use crate::omf::mark::Mark;
use crate::omf::root::Root;
use crate::omf::seal::Seal;
use crate::omf::summary;
use crate::types::BLOCK_SIZE;
use crate::types::id::{DriveIndex, Generation, LineageId, SegmentId, SlotIndex};

/// A label, in the copy that it states.
pub fn volume_label(data: &[u8]) -> bool {
    sound(Kind::Label, data, |bytes, at| {
        let copy = u8::try_from(at.address.0).unwrap_or_default();
        let label = Label::decode(bytes, copy)?;
        assert_eq!(Label::decode(&label.encode(copy), copy).as_ref(), Ok(&label));
        Ok(())
    })
}

/// A checkpoint.
pub fn volume_root(data: &[u8]) -> bool {
    sound(Kind::Root, data, |bytes, at| {
        let (pool, Address(area, _, number)) = (at.pool, at.address);
        let area = u8::try_from(area).unwrap_or_default();
        let root = Root::decode(bytes, pool, area, number)?;
        let again = Root::decode(&root.encode(pool, area), pool, area, number);
        assert_eq!(again.as_ref(), Ok(&root));
        Ok(())
    })
}

/// A frame of the write buffer.
pub fn volume_frame(data: &[u8]) -> bool {
    let _ = (frame::peek(data), frame::length_of(data));
    sound(Kind::Frame, data, |bytes, at| {
        let (pool, Address(offset, epoch, number)) = (at.pool, at.address);
        let frame = frame::decode(bytes, pool, offset, epoch)?;
        let peeked = frame::peek(bytes).map(|(offset, epoch, frame)| (offset, epoch, frame.0));
        assert_eq!(peeked, Some((offset, epoch, number)));
        assert!(frame.head.first_in_flight() <= frame.head.number);
        let records: Vec<Record<&[u8]>> = frame.records.iter().map(borrowed).collect();
        // One of earlier software was shorter, and what follows its records is not kept.
        let mut encoded = vec![0xee; frame.length + frame::FRAME_OVERHEAD];
        frame::encode_into(pool, &frame.head, &records, &mut encoded);
        let Frame { head, records, .. } = frame::decode(&encoded, pool, offset, epoch)?;
        assert!(head == frame.head && records == frame.records);
        Ok(())
    })
}

fn borrowed(record: &Record<Vec<u8>>) -> Record<&[u8]> {
    match record {
        Record::Write { lineage, block, data } => {
            Record::Write { lineage: *lineage, block: *block, data }
        }
        Record::Zero { lineage, block, blocks, at_once } => {
            Record::Zero { lineage: *lineage, block: *block, blocks: *blocks, at_once: *at_once }
        }
        Record::Change(change) => Record::Change(change.clone()),
    }
}

/// A leaf of the map.
pub fn volume_leaf(data: &[u8]) -> bool {
    sound(Kind::Leaf, data, |bytes, at| {
        let (pool, Address(lineage, index, generation)) = (at.pool, at.address);
        let (lineage, generation) = (LineageId(lineage), Generation(generation));
        let page = leaf::decode(bytes, pool, lineage, index, generation)?;
        let encoded =
            leaf::encode(pool, lineage, index, generation, &page.versions, &page.replaced);
        assert_eq!(leaf::decode(&encoded, pool, lineage, index, generation).as_ref(), Ok(&page));
        Ok(())
    })
}

/// A node of the map.
pub fn volume_node(data: &[u8]) -> bool {
    sound(Kind::Node, data, |bytes, at| {
        let (pool, Address(lineage, index, generation)) = (at.pool, at.address);
        let (lineage, generation) = (LineageId(lineage), Generation(generation));
        let leaves = leaf::decode_node(bytes, pool, lineage, index, generation)?;
        let encoded = leaf::encode_node(pool, lineage, index, generation, &leaves);
        let again = leaf::decode_node(&encoded, pool, lineage, index, generation);
        assert_eq!(again.as_ref(), Ok(&leaves));
        Ok(())
    })
}

/// The seal of a chunk.
pub fn volume_seal(data: &[u8]) -> bool {
    sound(Kind::Seal, data, |bytes, at| {
        let Address(drive, slot, generation) = at.address;
        let drive = DriveIndex(u16::try_from(drive).unwrap_or_default());
        let slot = SlotIndex(u32::try_from(slot).unwrap_or_default());
        let generation = Generation(generation);
        let seal = Seal::decode(bytes, at.pool, drive, slot, generation)?;
        // It is encoded for the place that it says is its own.
        if seal.chunks.get(usize::from(seal.chunk)) == Some(&(drive, slot)) {
            let again = Seal::decode(&seal.encode(at.pool), at.pool, drive, slot, generation);
            assert_eq!(again.as_ref(), Ok(&seal));
        }
        Ok(())
    })
}

/// The summary of a part of a segment.
pub fn volume_summary(data: &[u8]) -> bool {
    sound(Kind::Summary, data, |bytes, at| {
        let Address(segment, sector, generation) = at.address;
        let segment = SegmentId(u32::try_from(segment).unwrap_or_default());
        let sector = u32::try_from(sector).unwrap_or_default();
        let generation = Generation(generation);
        let items = summary::decode(bytes, at.pool, segment, generation, sector)?;
        let encoded = summary::encode(at.pool, segment, generation, sector, &items);
        let again = summary::decode(&encoded, at.pool, segment, generation, sector);
        assert_eq!(again.as_ref(), Ok(&items));
        Ok(())
    })
}

/// The mark of the write buffer.
pub fn volume_mark(data: &[u8]) -> bool {
    sound(Kind::Mark, data, |bytes, at| {
        let Address(copy, epoch, _) = at.address;
        let copy = u8::try_from(copy).unwrap_or_default();
        let mark = Mark::decode(bytes, at.pool, epoch, copy)?;
        let again = Mark::decode(&mark.encode(at.pool, epoch), at.pool, epoch, mark.copy());
        assert_eq!(again.as_ref(), Ok(&mark));
        Ok(())
    })
}

/// A compressed block, or a bundle of them. The first byte is the place of the block in it.
pub fn volume_fragment(data: &[u8]) -> bool {
    let Some((place, stored)) = data.split_first() else { return false };
    let mut block = vec![0; BLOCK_SIZE];
    Unpacker::default().unpack(stored, place % 4, &mut block).is_some()
}

/// Whether a structure is accepted once its envelope fits.
fn sound(
    kind: Kind,
    data: &[u8],
    decode: impl Fn(&[u8], &Opened<'_>) -> Result<(), FormatError>,
) -> bool {
    let mut mended = data.to_vec();
    if mended.len() >= envelope::ENVELOPE {
        let end = frame::length_of(data).filter(|end| (16..=data.len()).contains(end));
        envelope::finish_in(&mut mended[..end.unwrap_or(data.len())]);
    }
    envelope::open(kind, &mended).is_ok_and(|opened| decode(&mended, &opened).is_ok())
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;
    use crate::fragment::{Bundler, encode};
    use crate::omf::tests::structures;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        let target = |name, run, structure| {
            let (_, bytes, _) = structures().into_iter().find(|(n, ..)| *n == structure).unwrap();
            Target::new(name, run, vec![("golden", bytes)])
        };
        let (mut scratch, mut bundler) = (Vec::new(), Bundler::default());
        let block: Vec<u8> = (0..BLOCK_SIZE).map(|n| (n / 200).to_le_bytes()[0]).collect();
        let placed = |place: u8, stored: &[u8]| [&[place][..], stored].concat();
        let alone = placed(0, encode(&block, true, &mut scratch));
        let bundle = placed(3, bundler.pack(&[(1, &block), (3, &block)]).unwrap());
        replay(&[
            target("volume_label", volume_label, "label"),
            target("volume_root", volume_root, "root"),
            target("volume_frame", volume_frame, "frame"),
            target("volume_leaf", volume_leaf, "leaf"),
            target("volume_node", volume_node, "node"),
            target("volume_seal", volume_seal, "seal"),
            target("volume_summary", volume_summary, "summary"),
            target("volume_mark", volume_mark, "mark"),
            Target::new(
                "volume_fragment",
                volume_fragment,
                vec![("alone", alone), ("bundle", bundle)],
            ),
        ]);
    }
}
