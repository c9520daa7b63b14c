//! Replay: the log's records that are in no kvset yet, frame by frame, in the order of their seqnos.
//!
//! Invariants
//! 1. Replay hands out a prefix of the records written: it ends at the first gap.
//! 2. A gap that only damage explains is an error, and no end.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_base::progress::Meter;

use crate::log::frame::LogFrame;
use crate::log::segment::SegmentReader;
use crate::manifest::state::State;
use crate::types::error::{Result, go_on};
use crate::types::ids::{BlockId, Seqno};
use crate::values::block::ValueBlock;

/// The log, as far as the manifest lets replay look.
#[derive(Clone)]
pub(crate) struct FoundLog {
    /// The segments, in the order of the log.
    pub(crate) segments: Vec<Arc<ValueBlock>>,
    /// The last seqno that is in a kvset.
    ingested: Seqno,
}

impl FoundLog {
    pub(crate) fn of(state: &State, blocks: &BTreeMap<BlockId, Arc<ValueBlock>>) -> FoundLog {
        let blocks = blocks.range(state.log_first..).map(|(_, block)| block);
        let segments = blocks.filter(|block| block.is_log()).cloned().collect();
        FoundLog { segments, ingested: state.ingested }
    }

    /// Bytes of its segments; a segment that is not full has fewer in frames.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.allocation.bytes()).sum()
    }

    /// Hands the frames whose records are in no kvset yet to `take`, one after the other, until that has
    /// enough. Returns the last seqno.
    ///
    /// Replay passes over frames that a crash has torn: they were not durable. A durable record that cannot be read
    /// is damage: a frame behind the gap says so, because each states how far the log was durable when
    /// it was written; or because it holds the next records.
    pub(crate) fn replay(
        &self,
        mut take: impl FnMut(LogFrame) -> Result<ControlFlow<()>>,
    ) -> Result<Seqno> {
        let mut last = self.ingested;
        let mut ends = Vec::new();
        let mut readers = self.segments.iter().map(SegmentReader::new);
        let mut next = readers.next().transpose()?;
        while let Some(mut reader) = next {
            // It begins to read meanwhile.
            next = readers.next().transpose()?;
            let segment = reader.segment();
            while let Some((header, payload)) = reader.next_frame()? {
                if header.first_seqno > last.next() {
                    break;
                }
                if header.first_seqno == last.next() {
                    last = header.last_seqno();
                    let frame = LogFrame { segment: segment.clone(), header, payload };
                    if take(frame)?.is_break() {
                        return Ok(last);
                    }
                }
            }
            ends.push((segment, reader.offset(), reader.held_behind(last)?));
        }
        for (segment, offset, held) in ends {
            if held > last {
                let (lba, ..) = segment.allocation.span(offset, 1);
                let detail = format!("it held record {held}, and ends at {last}");
                return Err(segment.media().corrupt("log", lba, detail));
            }
        }
        Ok(last)
    }
}

/// Reads the log's records that are in no kvset yet, and that is all; counts their bytes. Returns the last seqno.
pub(crate) fn verify_log(
    state: &State,
    blocks: &BTreeMap<BlockId, Arc<ValueBlock>>,
    meter: &mut Meter<'_>,
) -> Result<Seqno> {
    FoundLog::of(state, blocks).replay(|frame| {
        go_on(meter.add(frame.size()))?;
        frame.each_record(|_, _, _| ())?;
        Ok(CONTINUE)
    })
}

pub(crate) const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());

pub(crate) const BREAK: ControlFlow<()> = ControlFlow::Break(());
