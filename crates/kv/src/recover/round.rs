//! A round of replay: as many of the log's records as fit the memory for them, read by one thread and sorted by
//! another.

use std::io;
use std::panic::resume_unwind;

use esker_base::progress::{OnProgress, Unit};

use crate::log::frame::LogFrame;
use crate::log::replay::{BREAK, CONTINUE, FoundLog};
use crate::sync::{JoinHandle, mpsc, thread};
use crate::tree::replayed::Replayed;
use crate::types::error::{KvError, Result, go_on};
use crate::types::ids::Seqno;

/// Waits for a thread, and returns its result or resumes its panic.
pub(crate) fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

pub(crate) fn no_thread(error: io::Error) -> KvError {
    KvError::Options(format!("a thread to replay the log could not be started: {error}"))
}

/// Frames that were read and not taken yet.
pub(crate) const FRAMES: usize = 4;

/// Records that are ingested at a time when a KVDB is opened.
pub(crate) struct Round {
    pub(crate) needs_values: bool,
    /// The records, the oldest first, in parts of about a quarter of its limit, of which kvsets are made.
    pub(crate) parts: Vec<Replayed>,
    /// Bytes that it may be: at least its DRAM, and at least its part of the log.
    pub(crate) limit: u64,
    /// Whether it has all that is left of the log.
    pub(crate) is_last: bool,
}

impl Round {
    pub(crate) fn new(limit: u64, needs_values: bool) -> Round {
        Round { needs_values, parts: Vec::new(), limit, is_last: true }
    }

    /// Takes frames of a log as long as there is room, and goes on `to_the_end` to verify the others, or not.
    /// Returns the last seqno. A thread reads the frames that this one takes, and tells `observer` how far it is.
    pub(crate) fn read(
        &mut self,
        log: &FoundLog,
        to_the_end: bool,
        observer: &OnProgress,
    ) -> Result<Seqno> {
        let (frames, come) = mpsc::sync_channel(FRAMES);
        let phase = if to_the_end { "reading the log" } else { "replaying the log" };
        let mut meter = observer.meter(phase, Some(log.bytes()), Unit::Bytes);
        let (log, limit) = (log.clone(), self.limit);
        // It decides where the round ends, so that its reads do not depend on how fast this one is.
        let reader = move || {
            let (mut bytes, mut is_last) = (0, true);
            let read = log.replay(|frame| {
                go_on(meter.add(frame.size()))?;
                if is_last && bytes < limit {
                    bytes += Replayed::bytes_of(&frame.header);
                    // Whoever takes none any more has an error to tell.
                    return Ok(frames.send(frame).map_or(BREAK, |()| CONTINUE));
                }
                is_last = false;
                frame.each_record(|_, _, _| ())?;
                Ok(if to_the_end { CONTINUE } else { BREAK })
            });
            read.map(|last| (last, is_last))
        };
        let reader = thread::spawn("esker-replay", reader).map_err(no_thread)?;
        let taken = come.iter().try_for_each(|frame| self.take(&frame));
        drop(come);
        let read = join(reader);
        taken?;
        let last;
        (last, self.is_last) = read?;
        self.parts.last_mut().into_iter().for_each(Replayed::sort);
        Ok(last)
    }

    /// Adds a frame. A part that is full is sorted while others are read.
    fn take(&mut self, frame: &LogFrame) -> Result<()> {
        let last = self.parts.last_mut();
        let full = last.filter(|part| part.bytes() >= self.limit / 4);
        if full.map(Replayed::sort).is_some() || self.parts.is_empty() {
            self.parts.push(Replayed::new(self.needs_values));
        }
        self.parts.last_mut().expect("pushed above").take(frame)
    }
}
