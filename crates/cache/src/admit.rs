//! Admission: sequential streams bypass the cache, blocks that are read once may stay outside, and
//! writes to the flash device keep to a budget.
//!
//! | module | contents |
//! | --- | --- |
//! | `door` | whether a block that was missed is let in |
//! | `history` | which blocks were missed lately |
//!
//! Called by queue pairs and the simulator; streams are a queue pair's own, so that nothing is
//! shared per command.

mod door;
mod history;

pub(crate) use door::Door;

use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::policy::Access;
use esker_base::sync::Mutex;
use esker_base::{Clock, Nanos};

use crate::omf::BLOCK;

/// Streams of reads that are followed at a time, and as many of writes.
const FOLLOWED: usize = 32;

/// The streams of one queue pair.
pub(crate) struct Streams {
    /// The length from which on a stream bypasses the cache, in bytes; zero for never.
    bypass: u64,
    /// The most that is read ahead of a stream, in bytes.
    ahead: u64,
    /// Of reads and of writes, where each stream goes on, how long it is, when it was last seen.
    streams: [Vec<(u64, u64, u64)>; 2],
    turn: u64,
}

/// Treatment that a command's stream asks for: bypass or read-ahead.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Whether it is so long that the command bypasses the cache.
    pub(crate) bypasses: bool,
    /// So many blocks behind the command are worth reading with it: as much as the stream is long.
    pub(crate) ahead_blocks: u64,
}

impl Streams {
    pub(crate) fn new(bypass: u64, ahead: u64) -> Streams {
        Streams { bypass, ahead, streams: [Vec::new(), Vec::new()], turn: 0 }
    }

    /// The next command: it goes on with a stream, or begins one.
    #[inline]
    pub(crate) fn follow(&mut self, access: Access, offset: u64, size: u64) -> Flow {
        if self.bypass == 0 && self.ahead == 0 {
            return Flow::default();
        }
        let (length, goes_on) = self.join(access, offset, size);
        let left = if self.bypass == 0 { u64::MAX } else { self.bypass.saturating_sub(length) };
        let ahead =
            if goes_on && access == Access::Read { length.min(self.ahead).min(left) } else { 0 };
        let bypasses = self.bypass > 0 && length > self.bypass;
        Flow { bypasses, ahead_blocks: ahead / BLOCK }
    }

    /// How long the stream is with this command, and whether it was there before.
    fn join(&mut self, access: Access, offset: u64, size: u64) -> (u64, bool) {
        self.turn += 1;
        let turn = self.turn;
        let streams = &mut self.streams[usize::from(access == Access::Write)];
        let found = streams.iter_mut().find(|(next, _, _)| *next == offset);
        if let Some((next, length, seen)) = found {
            *next = offset + size;
            *length += size;
            *seen = turn;
            return (*length, true);
        }
        let stream = (offset + size, size, turn);
        if streams.len() < FOLLOWED {
            streams.push(stream);
        } else if let Some(oldest) = streams.iter_mut().min_by_key(|(_, _, seen)| *seen) {
            *oldest = stream;
        }
        (size, false)
    }
}

/// A budget of bytes per time.
pub(crate) struct Budget {
    clock: Clock,
    /// Bytes in a second; none without a limit.
    bytes_per_second: Option<f64>,
    /// Bytes that may be spent at once.
    burst: f64,
    opened: Nanos,
    spent: AtomicU64,
    /// Bytes spent and bytes left when the budget was last settled, and the time of that.
    state: Mutex<(u64, f64, Nanos)>,
}

/// Bytes spent between two looks at the clock.
const LOOK: u64 = 256 << 10;

#[allow(clippy::cast_precision_loss)] // bytes and times, to a few digits
impl Budget {
    pub(crate) fn new(clock: &Clock, writes_per_day: Option<f64>, capacity: u64) -> Budget {
        let now = clock.now();
        let bytes_per_second = writes_per_day.map(|times| times * capacity as f64 / 86_400.0);
        // An hour's worth may be spent at once, or a hundredth of the device: bursts are normal.
        let burst = bytes_per_second.map_or(0.0, |bytes| bytes * 3_600.0);
        Budget {
            clock: clock.clone(),
            bytes_per_second,
            burst,
            opened: now,
            spent: AtomicU64::new(0),
            state: Mutex::new((0, burst, now)),
        }
    }

    /// The same for another capacity, continuing from the bytes left and spent there.
    pub(crate) fn go_on_from(self, before: &Budget) -> Budget {
        let (seen, left, then) = *before.state.lock();
        Budget {
            opened: before.opened,
            spent: AtomicU64::new(before.spent.load(Ordering::Relaxed)),
            state: Mutex::new((seen, left.min(self.burst), then)),
            ..self
        }
    }

    /// Spends; whether there is any left, if it was looked at.
    pub(crate) fn spend(&self, bytes: u64) -> Option<bool> {
        let rate = self.bytes_per_second?;
        let spent = self.spent.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut state = self.state.lock();
        let (seen, left, then) = *state;
        if spent.saturating_sub(seen) < LOOK.min(1 + spent / 8) && left > 0.0 {
            return None;
        }
        let now = self.clock.now();
        let earned = rate * (now - then).as_secs_f64();
        let left = (left + earned).min(self.burst) - spent.saturating_sub(seen) as f64;
        *state = (spent, left, now);
        Some(left > 0.0)
    }

    /// Whether there is any left now.
    pub(crate) fn has_left(&self) -> bool {
        self.spend(0).unwrap_or(true)
    }

    /// Bytes that may be written in a day, if there is a limit.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, below 2^63
    pub(crate) fn bytes_per_day(&self) -> Option<u64> {
        self.bytes_per_second.map(|bytes| (bytes * 86_400.0) as u64)
    }

    /// Time since the cache was opened, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        (self.clock.now() - self.opened).as_secs_f64()
    }
}
