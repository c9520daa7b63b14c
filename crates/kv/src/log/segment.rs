//! Reads a log segment from its beginning to its end: its frames, and behind them the proof that more was durable.
//!
//! A segment is read in large windows, each once. Several are in flight ahead of the one that is looked
//! at; those of a frame stay until it was taken, so that bytes that turn out to be none can be searched.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::{round_up, to_usize};
use esker_device::Tag;

use crate::log::frame::{is_at, read_frame_once};
use crate::media::in_flight::InFlight;
use crate::omf::frame::{FrameHeader, HEADER_SIZE};
use crate::types::error::Result;
use crate::types::ids::Seqno;
use crate::values::block::ValueBlock;

pub(crate) struct SegmentReader<'a> {
    segment: &'a Arc<ValueBlock>,
    reads: InFlight,
    window_bytes: u64,
    /// The number of the first window that is held; the others follow.
    first: u64,
    windows: VecDeque<SegmentWindow>,
    /// Where the frame begins that was read last, or is to be read next.
    offset: u64,
    /// Where it ends.
    end: u64,
}

enum SegmentWindow {
    UnderWay(Tag),
    Here(AlignedBuf),
}

/// Windows in flight.
const READS: u64 = 4;

impl<'a> SegmentReader<'a> {
    /// Begins to read a segment.
    pub(crate) fn new(segment: &'a Arc<ValueBlock>) -> Result<SegmentReader<'a>> {
        let media = segment.media();
        let window_bytes = media.transfer_size as u64;
        let mut reader = SegmentReader {
            segment,
            reads: InFlight::new(media, READS * window_bytes)?,
            window_bytes,
            first: 0,
            windows: VecDeque::new(),
            offset: 0,
            end: 0,
        };
        reader.ask_through(0)?;
        Ok(reader)
    }

    pub(crate) fn segment(&self) -> &'a Arc<ValueBlock> {
        self.segment
    }

    /// The next frame with its records, if there is a valid one. An invalid frame is read twice: it may have been
    /// damaged on its way.
    pub(crate) fn next_frame(&mut self) -> Result<Option<(FrameHeader, Vec<u8>)>> {
        self.offset = self.end;
        self.release(self.offset);
        let mut frame = self.frame()?;
        if frame.is_none() {
            frame = read_frame_once(self.segment, self.offset)?;
        }
        if let Some((_, payload)) = &frame {
            let end = self.offset + (HEADER_SIZE + payload.len()) as u64;
            self.end = round_up(end, self.segment.media().lba_size.into());
        }
        Ok(frame)
    }

    /// Where the frame begins that was read last; where the next one would, when there was none.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The frame at [`SegmentReader::offset`], with its records.
    fn frame(&mut self) -> Result<Option<(FrameHeader, Vec<u8>)>> {
        let offset = self.offset;
        if offset + HEADER_SIZE as u64 > self.segment.allocation.bytes() {
            return Ok(None);
        }
        let Ok(header) = FrameHeader::decode(self.bytes_at(offset)?) else { return Ok(None) };
        if !is_at(&header, self.segment, offset) {
            return Ok(None);
        }
        let size = to_usize(header.payload_size.into());
        let mut payload = Vec::with_capacity(size);
        while payload.len() < size {
            let bytes = self.bytes_at(offset + (HEADER_SIZE + payload.len()) as u64)?;
            payload.extend_from_slice(&bytes[..bytes.len().min(size - payload.len())]);
        }
        Ok(header.check_payload(&payload).is_ok().then_some((header, payload)))
    }

    /// The last record that was in the log for certain, as far as the headers say that lie at
    /// [`SegmentReader::offset`] and behind it; 0 without any. Replay has come to `last` there: a frame torn by a
    /// crash would have held the next one, so a frame that holds it lies behind damage.
    pub(crate) fn held_behind(mut self, last: Seqno) -> Result<Seqno> {
        let lba_size = to_usize(self.segment.media().lba_size.into());
        let (segment, stop) = (self.segment, self.offset);
        let (mut offset, mut held) = (stop, Seqno::ZERO);
        while offset < segment.allocation.bytes() {
            self.release(offset);
            let bytes = self.bytes_at(offset)?;
            for (lba, at) in bytes.chunks(lba_size).zip((offset..).step_by(lba_size)) {
                if FrameHeader::begins(lba)
                    && let Ok(header) = FrameHeader::decode(lba)
                    && header.block == segment.id
                {
                    // One that belongs elsewhere in the segment states how far the log was durable all the same. The
                    // torn frame itself may have kept its header.
                    held = held.max(header.durable_seqno);
                    let follows =
                        at > stop && header.offset == at && header.first_seqno <= last.next();
                    held = held.max(if follows { header.last_seqno() } else { Seqno::ZERO });
                }
            }
            offset += bytes.len() as u64;
        }
        Ok(held)
    }

    /// The bytes of the segment from `offset` to the end of its window. Nothing before the window that
    /// was released last may be asked for.
    fn bytes_at(&mut self, offset: u64) -> Result<&[u8]> {
        let number = offset / self.window_bytes;
        self.ask_through(number + READS - 1)?;
        let window = &mut self.windows[to_usize(number - self.first)];
        if let SegmentWindow::UnderWay(tag) = *window {
            *window = SegmentWindow::Here(self.reads.wait_for(tag)?);
        }
        let SegmentWindow::Here(buf) = window else { unreachable!("waited for above") };
        Ok(&buf[to_usize(offset - number * self.window_bytes)..])
    }

    /// Lets go of the windows that lie before `offset`.
    fn release(&mut self, offset: u64) {
        while (self.first + 1) * self.window_bytes <= offset {
            match self.windows.pop_front() {
                Some(SegmentWindow::UnderWay(tag)) => self.reads.forget(tag),
                Some(SegmentWindow::Here(buf)) => self.reads.give_back(buf),
                None => {}
            }
            self.first += 1;
        }
    }

    fn ask_through(&mut self, last: u64) -> Result<()> {
        let allocation = &self.segment.allocation;
        loop {
            let number = self.first + self.windows.len() as u64;
            let start = number * self.window_bytes;
            if number > last || start >= allocation.bytes() {
                return Ok(());
            }
            let size = to_usize(self.window_bytes.min(allocation.bytes() - start));
            let (lba, ..) = allocation.span(start, size);
            allocation.media.count_read(allocation.stream, 1, size);
            self.windows.push_back(SegmentWindow::UnderWay(self.reads.start(lba, size)?));
        }
    }
}
