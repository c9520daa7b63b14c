//! A run: the windows that a walk has of one allocation, through which it goes in order. The further it goes, the
//! more is read at a time; from some way on, the next reads are under way before they are needed.

use std::collections::VecDeque;

use esker_base::AlignedBuf;
use esker_base::buf::ALIGNMENT;
use esker_base::units::{round_down, round_up, to_usize};
use esker_device::Tag;

use crate::media::class::Allocation;
use crate::media::in_flight::InFlight;
use crate::types::error::Result;

/// The largest window, and the distance at which a read still counts as following another one.
pub(crate) const WINDOW_MAX: u64 = 128 << 10;

/// Bytes of an allocation in DRAM, or on the way there.
struct RunWindow {
    start: u64,
    end: u64,
    /// Where `start` is in the bytes.
    skip: usize,
    state: WindowState,
}

enum WindowState {
    Wanted,
    UnderWay(Tag),
    Here(AlignedBuf),
}

/// Windows that a walk has of one allocation.
#[derive(Default)]
pub(crate) struct Run {
    /// In the order of the walk.
    windows: VecDeque<RunWindow>,
    /// Bytes of the window that was read last because it was needed.
    size: u64,
    /// From where on the walk has gone through in a row.
    origin: Option<u64>,
}

impl Run {
    /// Whether it has these bytes, or they are on the way.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let (start, end) = self.missing((start, end), true);
        start == end
    }

    /// The rest of the bytes from `start` to `end` behind those that it has, or that are on the way.
    pub(crate) fn missing(&self, (start, end): (u64, u64), forward: bool) -> (u64, u64) {
        let (mut from, mut to) = (start, end);
        while from < to {
            let at = if forward { from } else { to - 1 };
            match self.windows.iter().find(|window| window.start <= at && at < window.end) {
                Some(window) if forward => from = window.end.min(to),
                Some(window) => to = window.start.max(from),
                None => break,
            }
        }
        (from, to)
    }

    /// Whether something is on the way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.windows.iter().any(|window| matches!(window.state, WindowState::UnderWay(_)))
    }

    /// DRAM of all windows, in bytes: a buffer is larger than the size asked for.
    pub(crate) fn bytes(&self) -> u64 {
        self.windows.iter().map(RunWindow::bytes).sum()
    }

    /// The range to read for the bytes from `start` to `end`, which it does not have: twice as much each time that
    /// goes on where it ends, `first` bytes otherwise, and at most `most`.
    pub(crate) fn widen(
        &mut self,
        (start, end): (u64, u64),
        forward: bool,
        (first, most): (u64, u64),
        allocation: &Allocation,
    ) -> (u64, u64) {
        let size = end - start;
        let most = most.min(allocation.media.transfer.largest() as u64 / 2).max(size);
        let gap = self.windows.back().and_then(|last| {
            if forward { start.checked_sub(last.end) } else { last.start.checked_sub(end) }
        });
        // Windows that are adjacent serve a record that begins in one and ends in the next.
        let overlaps = self.windows.back().is_some_and(|last| last.start < end && start < last.end);
        let follows = overlaps || gap.is_some_and(|gap| gap < WINDOW_MAX);
        let wanted = if follows { 2 * self.size } else { first };
        let wanted = wanted.clamp(size, most);
        if !follows {
            self.origin = Some(if forward { start } else { end });
        }
        if forward {
            (start, (start + wanted).min(allocation.bytes()))
        } else {
            (end.saturating_sub(wanted), end)
        }
    }

    /// A window that is to be [filled](Run::fill).
    pub(crate) fn want(&mut self, start: u64, end: u64) {
        self.size = end - start;
        self.windows.push_back(RunWindow { start, end, skip: 0, state: WindowState::Wanted });
    }

    /// Fills the first window that is wanted; its bytes begin at `skip` of the buffer.
    pub(crate) fn fill(&mut self, buf: AlignedBuf, skip: usize) {
        let mut wanted = self.windows.iter_mut();
        let window = wanted.find(|window| matches!(window.state, WindowState::Wanted));
        let window = window.expect("a window is wanted");
        (window.state, window.skip) = (WindowState::Here(buf), skip);
    }

    /// How much is to be had of the bytes behind `at`, where the walk is: half of those that it has come through,
    /// up to `most` bytes. 0 when that is there, or not worth it yet.
    pub(crate) fn ahead(
        &mut self,
        allocation: &Allocation,
        (at, forward): (u64, bool),
        most: u64,
    ) -> u64 {
        let walked = self.origin.get_or_insert(at).abs_diff(at);
        let target = (walked / 2).min(most);
        let worth_it = target >= WINDOW_MAX / 2;
        if worth_it && self.next(allocation, (at, forward), target).is_some() { target } else { 0 }
    }

    /// The window to be read next, so that `target` bytes behind `at` are had.
    fn next(
        &self,
        allocation: &Allocation,
        (at, forward): (u64, bool),
        target: u64,
    ) -> Option<(u64, u64)> {
        let lba_size = u64::from(allocation.media.lba_size);
        let largest = allocation.media.transfer.largest() as u64 / 2;
        let step = round_down(WINDOW_MAX.min(largest), lba_size).max(lba_size);
        let last = self.windows.back()?;
        let (start, end) = if forward {
            (last.end, round_down(last.end + step, lba_size).min(allocation.bytes()))
        } else {
            (round_up(last.start.saturating_sub(step), lba_size), last.start)
        };
        let ahead = if forward { start.saturating_sub(at) } else { at.saturating_sub(end) };
        (start < end && ahead < target).then_some((start, end))
    }

    /// Begins to read windows until `target` bytes behind `at` are had.
    ///
    /// # Errors
    /// When the queue pair of `reads` is broken.
    pub(crate) fn go_ahead(
        &mut self,
        allocation: &Allocation,
        reads: &mut InFlight,
        at: (u64, bool),
        target: u64,
    ) -> Result<()> {
        while let Some((start, end)) = self.next(allocation, at, target) {
            let (lba, skip, bytes) = allocation.span(start, to_usize(end - start));
            let tag = reads.start(lba, bytes)?;
            allocation.media.count_read(allocation.stream, 1, bytes);
            self.windows.push_back(RunWindow {
                start,
                end,
                skip,
                state: WindowState::UnderWay(tag),
            });
        }
        Ok(())
    }

    /// The bytes from `start` to `end`, which it covers; in `joined` if they lie in several windows. Waits
    /// for those that are on the way.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn get<'a>(
        &'a mut self,
        (start, end): (u64, u64),
        reads: Option<&mut InFlight>,
        joined: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let touched = |window: &&mut RunWindow| window.start < end && start < window.end;
        let mut reads = reads;
        for window in self.windows.iter_mut().filter(touched) {
            if let WindowState::UnderWay(tag) = window.state {
                let reads = reads.as_mut().expect("what is under way has them");
                window.state = WindowState::Here(reads.wait_for(tag)?);
            }
        }
        let one = self.windows.iter().find(|window| window.start <= start && end <= window.end);
        if let Some(window) = one {
            return Ok(window.slice(start, end));
        }
        joined.clear();
        while start + (joined.len() as u64) < end {
            let at = start + joined.len() as u64;
            let next = self.windows.iter().find(|window| window.start <= at && at < window.end);
            let next = next.expect("it covers the bytes");
            joined.extend_from_slice(next.slice(at, end.min(next.end)));
        }
        Ok(joined)
    }

    /// Lets go of windows that a walk at `at` has left behind.
    pub(crate) fn leave(&mut self, at: u64, forward: bool, mut reads: Option<&mut InFlight>) {
        let is_behind =
            |window: &RunWindow| if forward { window.end <= at } else { window.start >= at };
        while self.windows.len() > 1
            && let Some(window) = self.windows.pop_front_if(|window| is_behind(window))
        {
            window.end(reads.as_deref_mut());
        }
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self, mut reads: Option<&mut InFlight>) {
        self.windows.drain(..).for_each(|window| window.end(reads.as_deref_mut()));
    }
}

impl RunWindow {
    /// DRAM that it takes, in bytes.
    fn bytes(&self) -> u64 {
        match &self.state {
            WindowState::Here(buf) => buf.capacity() as u64,
            _ => round_up(self.end - self.start, ALIGNMENT as u64),
        }
    }

    fn slice(&self, start: u64, end: u64) -> &[u8] {
        let WindowState::Here(bytes) = &self.state else { unreachable!("it has read") };
        let from = self.skip + to_usize(start - self.start);
        &bytes[from..from + to_usize(end - start)]
    }

    fn end(self, reads: Option<&mut InFlight>) {
        match (self.state, reads) {
            (WindowState::UnderWay(tag), Some(reads)) => reads.forget(tag),
            (WindowState::Here(buf), Some(reads)) => reads.give_back(buf),
            _ => {}
        }
    }
}
