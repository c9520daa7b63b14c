//! The durability log: frames of records, gathered in DRAM and written to segments.
//!
//! A segment is a value block. When a memtable becomes kvsets, those refer to the values where the
//! log put them, so a value is written once on the log's medium. (`maintain/ingest.rs` has the exceptions.)
//!
//! Invariants
//! 1. Records get consecutive seqnos in the order in which they are appended; a frame holds
//!    consecutive seqnos, a segment consecutive frames. Replay stops at the first gap.
//! 2. All records of a batch are in one frame.
//! 3. A segment is in the manifest before a frame is written to it.
//! 4. Segments are used in the order of their ids.
//! 5. Frames are never overwritten: the remains of a torn frame are padding for ever.

use std::sync::Arc;

use esker_base::units::{round_up, to_usize};
use esker_base::{AlignedBuf, Nanos};

use crate::log::kept::{KeptFrames, PieceId};
use crate::media::classes::Classes;
use crate::media::in_flight::InFlight;
use crate::media::space::Purpose;
use crate::omf::frame::{FrameKind, HEADER_SIZE, Record};
use crate::omf::manifest::Edit;
use crate::types::class::MediaClass;
use crate::types::error::Result;
use crate::types::ids::{Ids, Seqno};
use crate::types::options::Tuning;
use crate::types::policy::Place;
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;
use crate::values::frame::FrameBuilder;

/// The part of the log that appending changes; guarded by the writer's lock.
pub(crate) struct LogTail {
    tuning: Tuning,
    frame: FrameBuilder,
    /// Where frames are built, if the kernel keeps them when the process is killed; and the piece that the frame is in.
    kept: Option<KeptFrames>,
    piece: Option<PieceId>,
    /// The last record that is in no piece, while there are some.
    unkept: Seqno,
    /// The seqno of the frame's first record.
    frame_seqno: Seqno,
    last_seqno: Seqno,
    segment: Arc<ValueBlock>,
    /// Where the frame goes in the segment, in bytes.
    position: u64,
    spare: Option<Arc<ValueBlock>>,
    /// Someone is opening a spare without holding the lock.
    opening: bool,
    sealed: Vec<SealedFrame>,
    buffers: Vec<AlignedBuf>,
    /// Bytes appended and not yet durable.
    unflushed_bytes: u64,
    /// When the oldest record that no flush has taken yet was appended.
    pending_since: Option<Nanos>,
}

/// The largest frame of a batch, in bytes, of a KVDB with a small budget and of one with a large one.
const BATCH_FRAME: (u64, u64) = (8 << 20, 64 << 20);
/// Where blocks are smaller, for tests, so are batches, in bytes.
const LARGE_BLOCK: u64 = (1 << 20) - 4096;

/// A frame that gets no more records.
struct SealedFrame {
    frame: FrameBuilder,
    segment: Arc<ValueBlock>,
    offset: u64,
    first_seqno: Seqno,
}

/// Frames that one flush makes durable.
pub(crate) struct LogFlush {
    frames: Vec<SealedFrame>,
    /// The last seqno in it.
    pub(crate) through: Seqno,
    /// The last seqno that was durable before.
    durable: Seqno,
    bytes: u64,
}

/// Takes space for a segment that holds at least a frame of `size` bytes of records. The edit that names it is to be committed before it is used.
pub(crate) fn new_segment(
    classes: &Classes,
    ids: &Ids,
    tuning: &Tuning,
    purpose: Purpose,
    size: usize,
) -> Result<(Arc<ValueBlock>, Edit)> {
    let least = (size + HEADER_SIZE) as u64;
    let bytes = tuning.block_bytes;
    let (place, stream) = (Place::prefer(MediaClass::Staging), Stream::Log);
    let allocation = classes.allocate_about(place, stream, bytes, least, purpose)?;
    // Records in the log are visible: there is nobody to refuse a frame to.
    allocation.hold()?;
    let id = ids.next();
    let edit = Edit::Block { id, extent: allocation.extent, log: true, bytes: 0, plain_bytes: 0 };
    Ok((Arc::new(ValueBlock { id, allocation, bytes: 0, plain_bytes: 0 }), edit))
}

impl LogTail {
    /// A log that continues after `last_seqno` in a fresh segment.
    pub(crate) fn new(tuning: Tuning, segment: Arc<ValueBlock>, last_seqno: Seqno) -> LogTail {
        LogTail {
            tuning,
            frame: FrameBuilder::new(to_usize(tuning.frame_bytes)),
            kept: None,
            piece: None,
            unkept: Seqno::ZERO,
            frame_seqno: last_seqno.next(),
            last_seqno,
            segment,
            position: 0,
            spare: None,
            opening: false,
            sealed: Vec::new(),
            buffers: Vec::new(),
            unflushed_bytes: 0,
            pending_since: None,
        }
    }

    /// The largest batch that fits a frame, in bytes of records.
    pub(crate) fn batch_max(&self) -> usize {
        let block = self.tuning.block_bytes - u64::from(self.segment.media().lba_size);
        // A segment is as large as its first batch where that takes more than a block.
        // It is in DRAM twice: in the frame and in the memtable, which it fills at most.
        let most = self.tuning.memtable_bytes.clamp(BATCH_FRAME.0, BATCH_FRAME.1);
        let frame = if block >= LARGE_BLOCK { most } else { block.min(most) };
        to_usize(frame) - HEADER_SIZE
    }

    pub(crate) fn last_seqno(&self) -> Seqno {
        self.last_seqno
    }

    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes
    }

    pub(crate) fn pending_since(&self) -> Option<Nanos> {
        self.pending_since
    }

    /// The segment that the next record goes to, or an earlier one.
    pub(crate) fn segment(&self) -> &Arc<ValueBlock> {
        &self.segment
    }

    /// That segment, and the one that was opened ahead of need.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<ValueBlock>> {
        [&self.segment].into_iter().chain(&self.spare)
    }

    /// Both, with how many bytes of each are written or about to be.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&Arc<ValueBlock>, u64)> {
        self.segments().zip([self.position + self.frame_bytes(), 0])
    }

    /// Bytes that the frame under construction will take.
    fn frame_bytes(&self) -> u64 {
        let used = if self.frame.is_empty() { 0 } else { self.frame.used() as u64 };
        round_up(used, self.segment.media().lba_size.into())
    }

    /// Bytes of both.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segments().map(|segment| segment.allocation.bytes()).sum()
    }

    /// The edits that end both where their unwritten parts begin. Nothing may be written to them afterwards.
    pub(crate) fn cuts(&self) -> Vec<Edit> {
        let cuts = self.written().map(|(segment, written)| {
            let extent = segment.allocation.first(written);
            Edit::Block { id: segment.id, extent, log: true, bytes: 0, plain_bytes: 0 }
        });
        cuts.collect()
    }

    /// DRAM of the log's buffers, in bytes.
    pub(crate) fn dram_bytes(&self) -> u64 {
        let sealed = self.sealed.len() as u64 * self.tuning.frame_bytes;
        let free: usize = self.buffers.iter().map(AlignedBuf::capacity).sum();
        let own = self.tuning.frame_bytes + sealed + free as u64;
        self.kept.as_ref().map_or(own, |kept| kept.bytes())
    }

    /// Whether the caller is to open a segment ahead of need; it ends that by
    /// [`LogTail::opened`].
    pub(crate) fn begin_opening(&mut self) -> bool {
        let wanted = self.spare.is_none() && self.position > self.segment.allocation.bytes() / 8;
        let begins = wanted && !self.opening;
        self.opening |= begins;
        begins
    }

    /// Whether a segment is being opened ahead of need. A writer that needs one now must wait for it: ids ascend in
    /// the order in which segments are used.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening
    }

    /// The segment that was opened ahead of need, if there was room for one.
    pub(crate) fn opened(&mut self, segment: Option<Arc<ValueBlock>>) {
        self.opening = false;
        self.spare = segment;
    }

    /// The segment that is needed now.
    pub(crate) fn set_spare(&mut self, segment: Arc<ValueBlock>) {
        debug_assert!(!self.opening && segment.id > self.segment.id);
        self.spare = Some(segment);
    }

    /// Goes on in the spare segment, whatever room is left in this one. False: there is none.
    pub(crate) fn pass_over(&mut self) -> bool {
        self.seal();
        let Some(next) = self.spare.take() else {
            return false;
        };
        (self.segment, self.position) = (next, 0);
        self.kept.iter().for_each(|kept| kept.goes_on_in(self.segment.id));
        true
    }

    /// Makes room for `size` bytes of records in one frame. False: there is no spare segment, and
    /// one is needed; set one and call again.
    pub(crate) fn make_room(&mut self, size: usize) -> bool {
        loop {
            if !self.frame.has_room(size) {
                self.seal();
                if !self.frame.has_room(size) {
                    (self.frame, self.piece) = (FrameBuilder::new(size), None);
                }
            }
            let needed = (self.frame.used() + size) as u64;
            let padded = round_up(needed, self.segment.media().lba_size.into());
            if self.position + padded <= self.segment.allocation.bytes() {
                return true;
            }
            if !self.pass_over() {
                return false;
            }
        }
    }

    /// Appends a record, for which [`LogTail::make_room`] has made room. Returns its seqno and
    /// its offset in the segment.
    pub(crate) fn append(&mut self, record: &Record<'_>, now: Nanos) -> (Seqno, u32) {
        let at = self.position + self.frame.push(record) as u64;
        self.last_seqno = self.last_seqno.next();
        self.unflushed_bytes += record.size() as u64;
        self.pending_since.get_or_insert(now);
        (self.last_seqno, u32::try_from(at).expect("segments are below 4 GiB"))
    }

    /// Ends the current frame.
    pub(crate) fn seal(&mut self) {
        if self.frame.is_empty() {
            return;
        }
        let fresh = self.fresh_frame();
        let frame = std::mem::replace(&mut self.frame, fresh);
        let padded = round_up(frame.used() as u64, self.segment.media().lba_size.into());
        self.sealed.push(SealedFrame {
            frame,
            segment: self.segment.clone(),
            offset: self.position,
            first_seqno: self.frame_seqno,
        });
        self.position += padded;
        self.frame_seqno = self.last_seqno.next();
    }

    /// A frame for the next records.
    fn fresh_frame(&mut self) -> FrameBuilder {
        let piece = self.kept.as_ref().and_then(|kept| kept.take(self.last_seqno.next()));
        self.piece = piece.as_ref().map(|(id, _)| *id);
        match piece.map(|(_, buf)| buf).or_else(|| self.buffers.pop()) {
            Some(buf) => FrameBuilder::reuse(buf),
            None => FrameBuilder::new(to_usize(self.tuning.frame_bytes)),
        }
    }

    /// Builds frames in `kept` from now on. All that was appended is durable.
    pub(crate) fn keep_in(&mut self, kept: KeptFrames) {
        kept.goes_on_in(self.segment.id);
        self.seal();
        self.kept = Some(kept);
        self.frame = self.fresh_frame();
    }

    /// Ends a batch: the kernel has it, or the last record that it has not is returned, which is to be flushed before
    /// the batch is acknowledged.
    pub(crate) fn keep(&mut self) -> Seqno {
        match (&self.kept, self.piece) {
            (Some(kept), Some(piece)) => kept.fill(piece, self.frame.used(), self.frame.records()),
            (Some(_), None) => self.unkept = self.last_seqno,
            (None, _) => {}
        }
        self.unkept
    }

    /// Overwrites what earlier frames have left in the file that frames are kept in.
    pub(crate) fn erase_earlier(&mut self) {
        let Some(kept) = &self.kept else { return };
        kept.erase_free();
        self.frame.erase_unused();
        self.sealed.iter_mut().for_each(|sealed| sealed.frame.erase_unused());
    }

    /// The file that frames are kept in.
    pub(crate) fn kept(&self) -> Option<&KeptFrames> {
        self.kept.as_ref()
    }

    /// Everything appended so far, to be written and flushed. Records up to `durable` are durable.
    pub(crate) fn take_unflushed(&mut self, durable: Seqno) -> LogFlush {
        self.seal();
        self.pending_since = None;
        let frames = std::mem::take(&mut self.sealed);
        LogFlush { frames, through: self.last_seqno, durable, bytes: self.unflushed_bytes }
    }

    /// Notes that a flush has become durable, and takes its buffers back.
    pub(crate) fn note_flushed(&mut self, flush: &LogFlush, buffers: Vec<AlignedBuf>) {
        self.unflushed_bytes -= flush.bytes;
        let fitting = to_usize(self.tuning.frame_bytes) + HEADER_SIZE;
        let is_kept = |buf: &AlignedBuf| self.kept.as_ref().is_some_and(|kept| kept.has(buf));
        let fits =
            |buf: &AlignedBuf| buf.capacity() <= fitting.next_multiple_of(4096) && !is_kept(buf);
        self.buffers.extend(buffers.into_iter().filter(fits));
        self.buffers.truncate(4);
    }
}

impl LogFlush {
    /// How much it writes, in bytes of records.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the frames, several at a time, and flushes; returns their buffers. One is encoded while others are written.
    pub(crate) fn write_and_flush(&mut self) -> Result<Vec<AlignedBuf>> {
        let mut buffers = Vec::with_capacity(self.frames.len());
        let mut writes: Vec<InFlight> = Vec::new();
        for SealedFrame { frame, segment, offset, first_seqno } in self.frames.drain(..) {
            let buf = frame.seal(FrameKind::Log, &segment, offset, first_seqno, self.durable);
            let media = segment.media();
            let of_media = InFlight::of(&mut writes, media, 0)?;
            if buf.len() > media.transfer.largest() {
                buffers.push(segment.allocation.write_at(offset, buf)?);
                continue;
            }
            of_media.start_op(segment.allocation.write_op(offset, buf))?;
        }
        for mut of_media in writes {
            while let Some(done) = of_media.next_ended()? {
                done.result?;
                buffers.push(done.buf.expect("a write carries a buffer"));
            }
            of_media.media().ports.port()?.flush()?;
        }
        Ok(buffers)
    }
}
