//! The checkpoint: all of the pool's state but for the leaves and nodes of the map, which it points to.
//!
//! Envelope: address = area, 0; generation = number of the checkpoint. Body, each list behind its count of 4 bytes:
//!
//! | size | field |
//! | --- | --- |
//! | 8 × 4 | last seqno in the map, in the catalogue; next generation; next id |
//! | 8, 8, 4 | scrub: when it began and when one ended last, in seconds since 1970; the segment that is next |
//! | 8, 8, 4 | the first frame to replay: number, offset in the ring, CRC of the frame before it |
//! | n | lineages, volumes, snapshots: rows as in the write buffer's records |
//! | n | segments: see [`SegmentRow`] |
//! | n × 32 | nodes of the map: lineage 8, index 8, extent 16 |

use esker_base::codec::{Decoder, Encoder};

use crate::omf::envelope::{self, Address, FormatError, Kind, count_of, name_of};
use crate::types::id::{
    DriveIndex, FrameSeq, Generation, LineageId, PoolUuid, SegmentId, Seqno, SlotIndex, SnapshotId,
    VolumeId,
};
use crate::types::options::VolumeOptions;
use crate::types::{VOLUME_BLOCKS_MAX, u32_of};

/// Bytes in a segment: where, how many, and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) segment: SegmentId,
    pub(crate) sector: u32,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

impl Extent {
    pub(crate) fn encode(&self, e: &mut Encoder) {
        e.u32(self.segment.0).u32(self.sector).u32(self.bytes).u32(self.crc);
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Extent, FormatError> {
        Ok(Extent {
            segment: SegmentId(d.u32("segment")?),
            sector: d.u32("sector")?,
            bytes: d.u32("bytes")?,
            crc: d.u32("crc")?,
        })
    }
}

/// A line of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineageRow {
    pub(crate) id: LineageId,
    /// Its parent: another lineage, as it was at a seqno.
    pub(crate) parent: Option<(LineageId, Seqno)>,
    /// The volume that writes to it.
    pub(crate) head: Option<VolumeId>,
    /// The next leaf to be looked at by the sweep that removes what nobody can see.
    pub(crate) sweep: Option<u64>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeRow {
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) lineage: LineageId,
    pub(crate) blocks: u64,
    pub(crate) options: VolumeOptions,
    /// When it was made, in seconds since 1970.
    pub(crate) made: u64,
    /// In the trash: until when, in seconds since 1970.
    pub(crate) trashed: Option<u64>,
    /// Names of hosts that may attach it; `*` for any.
    pub(crate) hosts: Vec<String>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotRow {
    pub(crate) id: SnapshotId,
    pub(crate) name: String,
    pub(crate) volume: VolumeId,
    pub(crate) lineage: LineageId,
    /// It sees what was written up to here.
    pub(crate) at: Seqno,
    pub(crate) blocks: u64,
    pub(crate) made: u64,
}

/// A segment: what it is, where its chunks are, and its summaries.
///
/// 4 id, 8 generation, 1 class, 1 parities, 1 state (0 open, 1 closed), 1 seal copy, 4 rows, 8 live bytes, 8 sum of
/// births, lists of chunks (2 drive, 4 slot) and of summaries (4 sector, 4 bytes, 4 CRC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentRow {
    pub(crate) id: SegmentId,
    pub(crate) generation: Generation,
    pub(crate) class: u8,
    pub(crate) parity: u8,
    pub(crate) seal_copy: u8,
    pub(crate) rows: u32,
    pub(crate) live_bytes: u64,
    pub(crate) born: Seqno,
    pub(crate) chunks: Vec<(DriveIndex, SlotIndex)>,
    pub(crate) summaries: Vec<(u32, u32, u32)>,
}

/// A node of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) lineage: LineageId,
    pub(crate) index: u64,
    pub(crate) extent: Extent,
}

/// Where the write buffer's replay begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogTail {
    pub(crate) frame: FrameSeq,
    pub(crate) offset: u64,
    /// The checksum of the frame before it.
    pub(crate) previous_crc: u32,
}

/// How far the scrub was: see the keeper's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScrubRow {
    pub(crate) began: u64,
    pub(crate) finished: u64,
    pub(crate) next: SegmentId,
}

/// A checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) number: u64,
    /// Every record up to this one is in the map.
    pub(crate) applied: Seqno,
    /// Every change up to this one is in the catalogue.
    pub(crate) catalogued: Seqno,
    pub(crate) next_generation: Generation,
    pub(crate) next_id: u64,
    pub(crate) scrub: ScrubRow,
    pub(crate) tail: LogTail,
    pub(crate) lineages: Vec<LineageRow>,
    pub(crate) volumes: Vec<VolumeRow>,
    pub(crate) snapshots: Vec<SnapshotRow>,
    pub(crate) segments: Vec<SegmentRow>,
    pub(crate) nodes: Vec<NodeRow>,
}

impl Root {
    pub(crate) fn encode(&self, pool: PoolUuid, area: u8) -> Vec<u8> {
        let address = Address(area.into(), 0, self.number);
        let mut e = envelope::begin(Kind::Root, pool, address);
        e.u64(self.applied.0).u64(self.catalogued.0).u64(self.next_generation.0).u64(self.next_id);
        e.u64(self.scrub.began).u64(self.scrub.finished).u32(self.scrub.next.0);
        e.u64(self.tail.frame.0).u64(self.tail.offset).u32(self.tail.previous_crc);
        e.u32(u32_of(self.lineages.len()));
        self.lineages.iter().for_each(|row| row.encode(&mut e));
        e.u32(u32_of(self.volumes.len()));
        self.volumes.iter().for_each(|row| row.encode(&mut e));
        e.u32(u32_of(self.snapshots.len()));
        self.snapshots.iter().for_each(|row| row.encode(&mut e));
        e.u32(u32_of(self.segments.len()));
        self.segments.iter().for_each(|row| row.encode(&mut e));
        e.u32(u32_of(self.nodes.len()));
        for NodeRow { lineage, index, extent } in &self.nodes {
            e.u64(lineage.0).u64(*index);
            extent.encode(&mut e);
        }
        envelope::finish(e)
    }

    pub(crate) fn decode(
        bytes: &[u8],
        pool: PoolUuid,
        area: u8,
        number: u64,
    ) -> Result<Root, FormatError> {
        let address = Address(area.into(), 0, number);
        let mut d = envelope::open_at(Kind::Root, pool, address, bytes)?;
        let mut root = Root {
            number,
            applied: Seqno(d.u64("applied")?),
            catalogued: Seqno(d.u64("catalogued")?),
            next_generation: Generation(d.u64("next generation")?),
            next_id: d.u64("next id")?,
            ..Root::default()
        };
        root.scrub = ScrubRow {
            began: d.u64("scrub began")?,
            finished: d.u64("scrub finished")?,
            next: SegmentId(d.u32("scrub next")?),
        };
        root.tail = LogTail {
            frame: FrameSeq(d.u64("tail")?),
            offset: d.u64("tail offset")?,
            previous_crc: d.u32("tail crc")?,
        };
        for _ in 0..count_of(&mut d, "lineages", 10)? {
            root.lineages.push(LineageRow::decode(&mut d)?);
        }
        for _ in 0..count_of(&mut d, "volumes", 40)? {
            root.volumes.push(VolumeRow::decode(&mut d)?);
        }
        for _ in 0..count_of(&mut d, "snapshots", 50)? {
            root.snapshots.push(SnapshotRow::decode(&mut d)?);
        }
        for _ in 0..count_of(&mut d, "segments", 40)? {
            root.segments.push(SegmentRow::decode(&mut d)?);
        }
        for _ in 0..count_of(&mut d, "nodes", 32)? {
            root.nodes.push(NodeRow {
                lineage: LineageId(d.u64("lineage")?),
                index: d.u64("index")?,
                extent: Extent::decode(&mut d)?,
            });
        }
        Ok(root)
    }
}

/// A value that may be missing: a byte says whether it is there.
fn option(d: &mut Decoder<'_>, what: &'static str) -> Result<Option<u64>, FormatError> {
    Ok(match d.u8(what)? {
        0 => None,
        _ => Some(d.u64(what)?),
    })
}

fn put_option(e: &mut Encoder, value: Option<u64>) {
    match value {
        None => drop(e.u8(0)),
        Some(value) => drop(e.u8(1).u64(value)),
    }
}

/// The size of a volume, in blocks.
fn blocks(d: &mut Decoder<'_>) -> Result<u64, FormatError> {
    match d.u64("blocks")? {
        found if found <= VOLUME_BLOCKS_MAX => Ok(found),
        found => Err(FormatError::Value { what: "blocks of a volume", found }),
    }
}

impl LineageRow {
    pub(crate) fn encode(&self, e: &mut Encoder) {
        e.u64(self.id.0);
        put_option(e, self.parent.map(|(lineage, _)| lineage.0));
        if let Some((_, at)) = self.parent {
            e.u64(at.0);
        }
        put_option(e, self.head.map(|volume| volume.0));
        put_option(e, self.sweep);
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<LineageRow, FormatError> {
        let id = LineageId(d.u64("lineage")?);
        let parent = match option(d, "parent")? {
            None => None,
            Some(lineage) => Some((LineageId(lineage), Seqno(d.u64("parent seqno")?))),
        };
        let head = option(d, "head")?.map(VolumeId);
        Ok(LineageRow { id, parent, head, sweep: option(d, "sweep")? })
    }
}

impl VolumeRow {
    pub(crate) fn encode(&self, e: &mut Encoder) {
        let VolumeOptions { compression, iops_limit, bytes_limit } = self.options;
        e.u64(self.id.0).bytes16(self.name.as_bytes()).u64(self.lineage.0).u64(self.blocks);
        e.u8(u8::from(compression)).u64(iops_limit).u64(bytes_limit).u64(self.made);
        put_option(e, self.trashed);
        e.u32(u32_of(self.hosts.len()));
        self.hosts.iter().for_each(|host| {
            e.bytes16(host.as_bytes());
        });
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<VolumeRow, FormatError> {
        let id = VolumeId(d.u64("volume")?);
        let name = name_of(d, "volume name")?;
        let (lineage, blocks) = (LineageId(d.u64("lineage")?), blocks(d)?);
        let options = VolumeOptions {
            compression: d.u8("compression")? != 0,
            iops_limit: d.u64("iops limit")?,
            bytes_limit: d.u64("bytes limit")?,
        };
        let (made, trashed) = (d.u64("made")?, option(d, "trashed")?);
        let count = count_of(d, "hosts", 2)?;
        let hosts = (0..count).map(|_| {
            let text = std::str::from_utf8(d.bytes16("host")?);
            text.map(str::to_owned).map_err(|_| FormatError::Value { what: "a host", found: 0 })
        });
        let hosts = hosts.collect::<Result<_, FormatError>>()?;
        Ok(VolumeRow { id, name, lineage, blocks, options, made, trashed, hosts })
    }
}

impl SnapshotRow {
    pub(crate) fn encode(&self, e: &mut Encoder) {
        e.u64(self.id.0).bytes16(self.name.as_bytes()).u64(self.volume.0).u64(self.lineage.0);
        e.u64(self.at.0).u64(self.blocks).u64(self.made);
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<SnapshotRow, FormatError> {
        Ok(SnapshotRow {
            id: SnapshotId(d.u64("snapshot")?),
            name: name_of(d, "snapshot name")?,
            volume: VolumeId(d.u64("volume")?),
            lineage: LineageId(d.u64("lineage")?),
            at: Seqno(d.u64("at")?),
            blocks: blocks(d)?,
            made: d.u64("made")?,
        })
    }
}

impl SegmentRow {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.id.0).u64(self.generation.0).u8(self.class).u8(self.parity).u8(self.seal_copy);
        e.u32(self.rows).u64(self.live_bytes).u64(self.born.0);
        e.u32(u32_of(self.chunks.len()));
        self.chunks.iter().for_each(|(drive, slot)| {
            e.u16(drive.0).u32(slot.0);
        });
        e.u32(u32_of(self.summaries.len()));
        for (sector, bytes, crc) in &self.summaries {
            e.u32(*sector).u32(*bytes).u32(*crc);
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Result<SegmentRow, FormatError> {
        let (id, generation) = (SegmentId(d.u32("segment")?), Generation(d.u64("generation")?));
        let (class, parity, seal_copy) = (d.u8("class")?, d.u8("parity")?, d.u8("seal copy")?);
        let (rows, live_bytes, born) = (d.u32("rows")?, d.u64("live")?, Seqno(d.u64("born")?));
        let count = count_of(d, "chunks", 6)?;
        let chunks =
            (0..count).map(|_| Ok((DriveIndex(d.u16("drive")?), SlotIndex(d.u32("slot")?))));
        let chunks: Vec<_> = chunks.collect::<Result<_, FormatError>>()?;
        if chunks.len() <= usize::from(parity) {
            return Err(FormatError::Value { what: "chunks", found: chunks.len() as u64 });
        }
        let count = count_of(d, "summaries", 12)?;
        let summaries =
            (0..count).map(|_| Ok((d.u32("sector")?, d.u32("bytes")?, d.u32("summary crc")?)));
        let summaries = summaries.collect::<Result<_, FormatError>>()?;
        Ok(SegmentRow {
            id,
            generation,
            class,
            parity,
            seal_copy,
            rows,
            live_bytes,
            born,
            chunks,
            summaries,
        })
    }
}
