//! The log as far as it can be found: frames, in the order of their seqnos.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_base::units::to_usize;

use super::salvage::Salvage;
use super::scan::{PIECE, read_parts};
use crate::log::kept::LeftFrames;
use crate::omf::Malformed;
use crate::omf::frame::{
    Change, FrameHeader, FrameKind, HEADER_SIZE, Record, StoredRecord, record_size,
};
use crate::types::error::Result;
use crate::types::expiry::Expiry;
use crate::types::ids::{BlockId, Ids, Seqno};
use crate::values::block::ValueBlock;
use crate::values::compression::Unpacker;

/// Frames of the log that were found.
#[derive(Default)]
pub(super) struct LogFrames(pub(super) Vec<(Arc<ValueBlock>, FrameHeader)>);

/// Looks for frames of `block` in each of its LBAs, and tells `failed` of each read error.
fn frames_of(
    block: &ValueBlock,
    mut each: impl FnMut(FrameHeader),
    mut failed: impl FnMut(String),
) {
    let lba_size = to_usize(block.media().lba_size.into());
    let end = block.allocation.bytes();
    for offset in (0..end).step_by(to_usize(PIECE)) {
        let (lba, ..) = block.allocation.span(offset, 1);
        let piece = read_parts(block.media(), lba, PIECE.min(end - offset), &mut failed);
        for (lba, at) in piece.chunks(lba_size).zip((offset..).step_by(lba_size)) {
            if let Ok(header) = FrameHeader::decode(lba)
                && (header.block, header.offset) == (block.id, at)
            {
                each(header);
            }
        }
    }
}

/// The records of a frame as they lie on the medium. Bytes that cannot be read are zeroes, which are no records:
/// the search for the frame has reported them.
pub(super) fn payload(block: &ValueBlock, header: &FrameHeader) -> Vec<u8> {
    let (lba, ..) = block.allocation.span(header.offset, 1);
    let size = HEADER_SIZE as u64 + u64::from(header.payload_size);
    let frame = read_parts(block.media(), lba, size, |_| ());
    frame[HEADER_SIZE..to_usize(size)].to_vec()
}

/// A record that a frame holds.
pub(super) struct Framed<'a> {
    /// As it was put: not compressed.
    pub(super) record: Record<'a>,
    /// Its seqno; 0 in an aged frame.
    pub(super) seqno: Seqno,
    /// Where it begins, in bytes from the beginning of its block.
    pub(super) offset: u64,
    /// As the record before it says; an aged frame does not say.
    pub(super) expiry: Expiry,
    /// The bytes of its value on the medium.
    pub(super) stored_size: usize,
}

/// Hands out the records of a frame, as far as they are whole. Returns the fault of the others.
pub(super) fn records(
    block: &ValueBlock,
    header: &FrameHeader,
    payload: &[u8],
    mut each: impl FnMut(&Framed<'_>) -> Result<()>,
) -> Result<Option<String>> {
    let (unpacker, mut value) = (Unpacker::default(), Vec::new());
    let (mut at, mut expiry) = (0, Expiry::NEVER);
    for number in 0..header.records {
        match record(header.kind, &payload[at..], &unpacker, &mut value) {
            Ok((Record { change: Change::Expire(stated), .. }, size)) => {
                expiry = stated;
                at += size;
            }
            Ok((record, size)) => {
                let seqno = match header.kind {
                    FrameKind::Log => header.first_seqno.plus(number),
                    FrameKind::Aged => Seqno::ZERO,
                };
                let offset = header.offset + (HEADER_SIZE + at) as u64;
                let stored_size = size - record_size(record.key.len(), 0);
                each(&Framed { record, seqno, offset, expiry, stored_size })?;
                expiry = Expiry::NEVER;
                at += size;
            }
            Err(bad) => {
                let (lba, ..) = block.allocation.span(header.offset, 1);
                let left = header.records - number;
                let detail = format!("{}; {left} of {} records are lost", bad.0, header.records);
                return Ok(Some(block.media().corrupt("frame", lba, detail).to_string()));
            }
        }
    }
    Ok(None)
}

/// The record at the start of `bytes`, and how many of them it has. `value` is room for one that is
/// compressed.
fn record<'a>(
    kind: FrameKind,
    bytes: &'a [u8],
    unpacker: &Unpacker,
    value: &'a mut Vec<u8>,
) -> std::result::Result<(Record<'a>, usize), Malformed> {
    match kind {
        FrameKind::Log => Record::decode(bytes).map(|record| (record, record.size())),
        FrameKind::Aged => {
            let StoredRecord { kvs, key, value: packed } = StoredRecord::decode(bytes)?;
            unpacker.unpack(packed, value)?;
            let size = record_size(key.len(), packed.bytes.len());
            Ok((Record { kvs, key, change: Change::Put(value) }, size))
        }
    }
}

impl LogFrames {
    /// Adds the frames of a segment.
    pub(super) fn search(&mut self, segment: &Arc<ValueBlock>, salvage: &mut Salvage<'_>) {
        let each = |header: FrameHeader| {
            if header.kind == FrameKind::Log {
                self.0.push((segment.clone(), header));
            }
        };
        frames_of(segment, each, |error| salvage.finding(error));
    }

    /// Puts them in order, and leaves out records that a crash has undone: where a later segment begins at or
    /// before a record, that record was not durable, and its seqno was given out again.
    pub(super) fn settle(&mut self) {
        self.0.sort_by_key(|(segment, header)| (segment.id, header.first_seqno));
        let mut begins = Seqno::MAX;
        let mut segment = BlockId(0);
        let mut earliest = Seqno::MAX;
        let mut kept = Vec::with_capacity(self.0.len());
        for (block, header) in std::mem::take(&mut self.0).into_iter().rev() {
            if block.id != segment {
                (segment, begins) = (block.id, earliest);
            }
            earliest = earliest.min(header.first_seqno);
            if header.first_seqno < begins {
                kept.push((block, header));
            }
        }
        kept.reverse();
        self.0 = kept;
    }

    /// The same where several KVDBs may have logged, of which none undoes another one's work.
    pub(super) fn settle_each_origin(&mut self) {
        let mut origins: BTreeMap<u64, LogFrames> = BTreeMap::new();
        for frame in std::mem::take(&mut self.0) {
            origins.entry(Ids::origin_of(frame.0.id.0)).or_default().0.push(frame);
        }
        for mut one in origins.into_values() {
            one.settle();
            self.0.extend(one.0);
        }
    }

    /// Applies the puts and deletes of the records behind `ingested`, in the order of their seqnos, and
    /// names the records that are missing in between, if somebody knows where the log begins. If not, parts
    /// of it may be gone because they were ingested. The frames are settled.
    ///
    /// A frame that none proves to have been durable counts as [`recover`](crate::recover) counts it: whole and
    /// without a gap before it, or not at all. A frame that was durable is no gap, found or not. Where nobody knows
    /// which frames were ingested, nothing is a gap. Returns the last seqno.
    pub(super) fn replay(
        self,
        salvage: &mut Salvage<'_>,
        ingested: Seqno,
        knows_begin: bool,
    ) -> Result<Seqno> {
        let durable =
            self.0.iter().map(|(_, header)| header.durable_seqno).max().unwrap_or_default();
        let mut last = ingested;
        for (segment, header) in &self.0 {
            let end = header.last_seqno();
            if end <= ingested {
                continue;
            }
            let was_durable = header.first_seqno <= durable;
            let payload = payload(segment, header);
            let whole = header.check_payload(&payload).is_ok();
            let follows = header.first_seqno <= last.next();
            let is_sound =
                whole && (!knows_begin || header.first_seqno <= last.max(durable).next());
            if !(was_durable || is_sound) {
                if knows_begin {
                    break;
                }
                continue;
            }
            if !follows && knows_begin {
                salvage.finding(missing(segment, header, last));
            }
            let damage = records(segment, header, &payload, |one| {
                let is_new = one.seqno > ingested;
                if is_new { salvage.apply(&one.record, one.expiry) } else { Ok(()) }
            })?;
            damage.into_iter().for_each(|damage| salvage.finding(damage));
            last = last.max(end);
        }
        if last < durable && knows_begin {
            salvage.finding(format!("log records {} to {durable} are missing", last.next()));
        }
        Ok(last)
    }
}

/// Repeats the records behind `last` that a process which was killed has left in the directory `dir` of the KVDB `uuid`;
/// `newest` is the newest log segment that holds any.
pub(super) fn replay_left(
    salvage: &mut Salvage<'_>,
    dir: &Path,
    uuid: [u8; 16],
    (newest, last): (BlockId, Seqno),
) -> Result<()> {
    let Some(left) = LeftFrames::read(dir, uuid) else { return Ok(()) };
    if newest > left.segment {
        // Somebody has written to the log since.
        return Ok(());
    }
    left.all_behind(last, |missing, records| {
        if missing > 0 {
            salvage.finding(format!(
                "{missing} log records are missing before those that a killed process has left"
            ));
            salvage.lose_track();
        }
        let mut expiry = Expiry::NEVER;
        for record in records {
            match record.change {
                Change::Expire(stated) => expiry = stated,
                _ => salvage.apply(record, std::mem::replace(&mut expiry, Expiry::NEVER))?,
            }
        }
        Ok(())
    })
}

fn missing(segment: &ValueBlock, header: &FrameHeader, last: Seqno) -> String {
    let (lba, ..) = segment.allocation.span(header.offset, 1);
    let detail =
        format!("records {} to {} before it are missing", last.next(), header.first_seqno.0 - 1);
    segment.media().corrupt("log", lba, detail).to_string()
}
