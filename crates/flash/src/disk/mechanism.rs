//! Where the head is, and when sectors pass under it.

use super::layout::{Layout, Sector};
use super::{DiskParameters, SeekCurve};
use crate::FlashError;

pub(super) struct Mechanism {
    layout: Layout,
    rotation_ns: u64,
    switch_ns: u64,
    read_seek: SeekCurve,
    write_seek: SeekCurve,
    /// The track under the head, while nothing is read ahead.
    track: u64,
    ahead: Option<ReadAhead>,
}

/// Reading on after a read.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    /// The first LBA in the buffer.
    start: u64,
    /// From `from`, whose first sector passes at `from_ns`, to `limit` the disk reads track by
    /// track; LBAs before it were read.
    from: u64,
    from_ns: u64,
    limit: u64,
}

/// How a command will be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Its data was read ahead.
    Buffered,
    /// It is being read ahead, and read at this time.
    Ahead(u64),
    /// The head goes there, and is done at this time.
    Moved(u64),
}

impl Mechanism {
    pub(super) fn new(parameters: &DiskParameters) -> Result<Mechanism, FlashError> {
        parameters.check()?;
        Ok(Mechanism {
            layout: Layout::new(parameters),
            rotation_ns: parameters.rotation_ns(),
            switch_ns: parameters.switch_ns,
            read_seek: SeekCurve::fit(&parameters.read_seek, parameters.cylinders)?,
            write_seek: SeekCurve::fit(&parameters.write_seek, parameters.cylinders)?,
            track: 0,
            ahead: None,
        })
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How a read of `count` LBAs, or a write, would be done from now on.
    pub(super) fn way(&self, now_ns: u64, lba: u64, count: u64, is_read: bool) -> Way {
        let moved = || Way::Moved(self.pass(self.reach(now_ns, lba, is_read), lba, count));
        match &self.ahead {
            Some(ahead) if is_read && (ahead.start..=ahead.limit).contains(&lba) => {
                let end = lba + count;
                match self.read_ns(ahead, end) {
                    Some(at_ns) if at_ns <= now_ns => Way::Buffered,
                    Some(at_ns) => match moved() {
                        Way::Moved(earlier_ns) if earlier_ns < at_ns => Way::Moved(earlier_ns),
                        _ => Way::Ahead(at_ns),
                    },
                    None => moved(),
                }
            }
            _ => moved(),
        }
    }

    /// The head leaves for a command: the content that was read ahead is lost.
    pub(super) fn leave(&mut self, now_ns: u64) {
        self.track = self.track_at(now_ns);
        self.ahead = None;
    }

    /// The head is where a command has ended; after a read it goes on up to `ahead` LBAs.
    pub(super) fn stay(&mut self, now_ns: u64, lba: u64, count: u64, ahead: Option<u64>) {
        let end = lba + count;
        self.track = self.layout.sector(end - 1).track;
        self.ahead = ahead.map(|ahead| ReadAhead {
            start: lba,
            from: end,
            from_ns: self.reach_from(now_ns, self.track, end, true),
            limit: (end + ahead).min(self.layout.capacity().0),
        });
    }

    /// LBAs read ahead were asked for: there is room to read on, up to `more` LBAs after them.
    pub(super) fn consume(&mut self, now_ns: u64, lba: u64, count: u64, more: u64) {
        let Some(mut ahead) = self.ahead else { return };
        let limit = (lba + count + more).min(self.layout.capacity().0);
        ahead.start = lba;
        if limit > ahead.limit {
            if self.read_ns(&ahead, ahead.limit).is_none_or(|at_ns| at_ns <= now_ns) {
                // It had stopped, and waits for the sector to come round again.
                let track = self.layout.sector(ahead.limit.saturating_sub(1)).track;
                ahead.from_ns = self.reach_from(now_ns, track, ahead.limit, true);
                ahead.from = ahead.limit;
            }
            ahead.limit = limit;
        }
        self.ahead = Some(ahead);
    }

    /// When everything before `end` is read ahead; `None` when it is beyond the limit.
    fn read_ns(&self, ahead: &ReadAhead, end: u64) -> Option<u64> {
        if end > ahead.limit {
            None
        } else if end <= ahead.from {
            Some(0)
        } else {
            Some(self.pass(ahead.from_ns, ahead.from, end - ahead.from))
        }
    }

    /// The track under the head.
    fn track_at(&self, now_ns: u64) -> u64 {
        let Some(ahead) = &self.ahead else { return self.track };
        let (mut lba, mut at_ns) = (ahead.from, ahead.from_ns);
        let mut track = self.layout.sector(lba.saturating_sub(1)).track;
        while lba < ahead.limit && at_ns <= now_ns {
            let Sector { track: next, index, of } = self.layout.sector(lba);
            track = next;
            let count = u64::from(of - index).min(ahead.limit - lba);
            at_ns = self.pass(at_ns, lba, count) + self.switch_ns;
            lba += count;
        }
        track
    }

    /// When the head is at the start of an LBA.
    fn reach(&self, now_ns: u64, lba: u64, is_read: bool) -> u64 {
        self.reach_from(now_ns, self.track_at(now_ns), lba, is_read)
    }

    fn reach_from(&self, now_ns: u64, track: u64, lba: u64, is_read: bool) -> u64 {
        let to = self.layout.sector(lba);
        let distance = self.layout.cylinder(track).abs_diff(self.layout.cylinder(to.track));
        let curve = if is_read { &self.read_seek } else { &self.write_seek };
        let mut seek_ns = curve.seek_ns(distance);
        if !self.layout.is_same_head(track, to.track) {
            seek_ns = seek_ns.max(self.switch_ns);
        }
        let arrival_ns = now_ns + seek_ns;
        let angle_ns = to.track * self.switch_ns + self.angle_ns(to.index, to.of);
        let rotation_ns = self.rotation_ns;
        let wait_ns =
            (angle_ns % rotation_ns + rotation_ns - arrival_ns % rotation_ns) % rotation_ns;
        arrival_ns + wait_ns
    }

    /// When `count` LBAs have passed, the first of which begins now.
    fn pass(&self, now_ns: u64, mut lba: u64, mut count: u64) -> u64 {
        let mut at_ns = now_ns;
        while count > 0 {
            let Sector { index, of, .. } = self.layout.sector(lba);
            let here = u64::from(of - index).min(count);
            let end = index + u32::try_from(here).expect("no more than the track has");
            at_ns += self.angle_ns(end, of) - self.angle_ns(index, of);
            lba += here;
            count -= here;
            if count > 0 {
                at_ns += self.switch_ns;
            }
        }
        at_ns
    }

    /// Where a sector begins, from the start of its track, as the time the platter takes.
    fn angle_ns(&self, index: u32, of: u32) -> u64 {
        self.rotation_ns * u64::from(index) / u64::from(of)
    }
}
