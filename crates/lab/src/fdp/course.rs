//! The course of a run, and when it is over.
//!
//! The unit of time is the *drive write*: as many bytes written by the host as it can address. Data
//! of the slowest store stays for the longest, so a *span* is as many drive writes as that one
//! needs to write its namespace once, and at least two. A run is steady when it has lasted for
//! three spans, and for eight drive writes, and its factor over the last span differs from that
//! over the span before by less than half a percent. Its figure is that of both spans together.

use serde::{Deserialize, Serialize};

use super::sink::Written;
use crate::LabError;

/// By how much two spans of a steady run differ at most.
const TOLERANCE: f64 = 0.005;
/// Spans after which a run that is not steady ends, and says so.
const MOST_SPANS: f64 = 8.0;
/// Spans that a run lasts at least.
const LEAST_SPANS: f64 = 3.0;
/// A drive's count of the host's writes is off by this part of them at most: metadata may count, too.
const STRAY_SHARE: u128 = 20;
/// And by so many bytes: a log may count in billions of bytes, and lag behind.
const STRAY_BYTES: u128 = 2_000_000_000;
/// Points of a run's course per drive write.
const POINTS: u32 = 8;

/// A run's write amplification over an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Drive writes at its end.
    pub drive_writes: f64,
    /// The factor since the point before.
    pub write_amplification: f64,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The write amplification factor over the last two spans.
    pub write_amplification: f64,
    /// Whether those two agree.
    pub is_steady: bool,
    /// Drive writes per span.
    pub span: f64,
    /// Drive writes in all.
    pub drive_writes: f64,
    /// Bytes that the host wrote in all, and those that were written to the media.
    pub host_bytes: u64,
    /// See above.
    pub media_bytes: u64,
    /// The course of it.
    pub points: Vec<Point>,
}

/// Bytes written over time.
pub(crate) struct Course {
    capacity: u64,
    span: f64,
    /// Spans are as long as so many points.
    span_points: usize,
    least_points: usize,
    most_points: usize,
    begin: Written,
    /// At the end of each point, since the beginning.
    totals: Vec<Written>,
}

impl Course {
    /// The course of a run on a drive of `capacity` bytes that has written `begin` so far, and whose
    /// slowest store writes its namespace once in `period` drive writes.
    pub(crate) fn new(begin: Written, capacity: u64, period: f64) -> Course {
        let points = |drive_writes: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some hundreds
            let points = (drive_writes * f64::from(POINTS)).ceil() as usize;
            points
        };
        let span = period.max(2.0);
        Course {
            capacity,
            span,
            span_points: points(span),
            least_points: points((LEAST_SPANS * span).max(8.0)),
            most_points: points((MOST_SPANS * span).max(16.0)),
            begin,
            totals: vec![Written::default()],
        }
    }

    /// The same course, with so many spans at least.
    pub(crate) fn with_least_spans(mut self, spans: f64) -> Course {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some hundreds
        let points = (spans * self.span * f64::from(POINTS)).ceil() as usize;
        self.least_points = self.least_points.max(points);
        self
    }

    /// Whether the host has written as much as the next point is for.
    pub(crate) fn is_due(&self, host_bytes: u128) -> bool {
        let step = u128::from(self.capacity / u64::from(POINTS)).max(1);
        host_bytes - self.begin.host_bytes >= step * self.totals.len() as u128
    }

    /// Makes sure that a drive's counts are of the run's writes, of which the host has made so many by now.
    ///
    /// # Errors
    /// When the drive counts other writes, or does not count these.
    pub(crate) fn check(&self, told: Written, given_bytes: u128) -> Result<(), LabError> {
        let last = self.totals.last().copied().unwrap_or_default();
        let since = |bytes: u128, begin: u128| bytes.saturating_sub(begin);
        let host = since(told.host_bytes, self.begin.host_bytes);
        let media = since(told.media_bytes, self.begin.media_bytes);
        let given = since(given_bytes, self.begin.host_bytes);
        let is_back = host < last.host_bytes || media < last.media_bytes;
        if !is_back && host.abs_diff(given) <= given / STRAY_SHARE + STRAY_BYTES {
            return Ok(());
        }
        Err(LabError::Invalid(format!(
            "the stores wrote {given} bytes, and the drive's log has {host} of the host and {media} to the media: let \
             nothing else write to the drive meanwhile, and name one that keeps this log"
        )))
    }

    /// Takes the points that are due.
    pub(crate) fn look(&mut self, written: Written) {
        while self.is_due(written.host_bytes) {
            self.totals.push(written.since(&self.begin));
        }
    }

    /// The factor from one point to another, both counted from the last one backwards.
    fn factor(&self, from: usize, to: usize) -> f64 {
        let last = self.totals.len() - 1;
        self.totals[last - to].since(&self.totals[last - from]).write_amplification()
    }

    fn is_steady(&self) -> bool {
        let span = self.span_points;
        let points = self.totals.len() - 1;
        points >= self.least_points
            && (self.factor(span, 0) / self.factor(2 * span, span) - 1.0).abs() < TOLERANCE
    }

    /// Whether the run is steady, or has lasted long enough.
    pub(crate) fn is_over(&self) -> bool {
        self.is_steady() || self.totals.len() > self.most_points
    }

    /// How far the run is, from 0 to 1 by the least it takes.
    #[allow(clippy::cast_precision_loss)] // hundreds of points
    pub(crate) fn share(&self) -> f64 {
        (self.totals.len() as f64 / self.least_points as f64).min(1.0)
    }

    /// The same while stores are loaded, before anything is looked at, when the host has written so much.
    #[allow(clippy::cast_precision_loss)] // a share
    pub(crate) fn share_at(&self, host_bytes: u128) -> f64 {
        let drive_writes = (host_bytes - self.begin.host_bytes) as f64 / self.capacity as f64;
        (drive_writes * f64::from(POINTS) / self.least_points as f64).min(1.0)
    }

    /// Returns the result of the run, once it is over.
    #[allow(clippy::cast_precision_loss)] // figures for people
    pub(crate) fn measured(&self) -> Measured {
        let drive_writes = |written: &Written| written.host_bytes as f64 / self.capacity as f64;
        let pairs = self.totals.windows(2).filter(|pair| pair[0].host_bytes < pair[1].host_bytes);
        let total = self.totals.last().copied().unwrap_or_default();
        let narrow = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        let points = pairs.map(|pair| Point {
            drive_writes: drive_writes(&pair[1]),
            write_amplification: pair[1].since(&pair[0]).write_amplification(),
        });
        Measured {
            write_amplification: self.factor(2 * self.span_points, 0),
            is_steady: self.is_steady(),
            span: self.span,
            drive_writes: drive_writes(&total),
            host_bytes: narrow(total.host_bytes),
            media_bytes: narrow(total.media_bytes),
            points: points.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs with the factor `factor(n)` over drive write `n`; returns its length and its result.
    fn run(period: f64, factor: impl Fn(u32) -> f64) -> Measured {
        const CAPACITY: u64 = 8_000;
        let mut written = Written { host_bytes: 77, media_bytes: 99 };
        let mut course = Course::new(written, CAPACITY, period);
        let mut steps = 0;
        while !course.is_over() {
            written.host_bytes += 100;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let media = (factor(steps / 80) * 100.0) as u128;
            written.media_bytes += media;
            steps += 1;
            course.look(written);
        }
        course.measured()
    }

    #[test]
    fn a_constant_run_is_steady_at_its_factor_after_three_spans() {
        let run = run(4.0, |_| 1.5);
        assert!(run.is_steady && (run.write_amplification - 1.5).abs() < 1e-9);
        assert!((12.0..12.2).contains(&run.drive_writes), "{}", run.drive_writes);
        assert!(run.points.iter().all(|point| (point.write_amplification - 1.5).abs() < 1e-9));
    }

    #[test]
    fn figure_leaves_out_writes_before_steady_state() {
        let run = run(2.0, |n| if n < 12 { 3.0 - 0.1 * f64::from(n) } else { 1.25 });
        assert!(run.is_steady && (run.write_amplification - 1.25).abs() < 0.01, "{run:?}");
        assert!(run.drive_writes > 15.0);
    }

    #[test]
    fn counts_that_are_not_of_the_run_are_refused() {
        const GB: u128 = 1_000_000_000;
        let begin = Written { host_bytes: 7 * GB, media_bytes: 9 * GB };
        let mut course = Course::new(begin, 100 << 30, 2.0);
        let at = |host: u128, media: u128| Written {
            host_bytes: begin.host_bytes + host,
            media_bytes: begin.media_bytes + media,
        };
        course.check(at(100 * GB, 120 * GB), at(106 * GB, 0).host_bytes).unwrap();
        course.check(at(100 * GB, 120 * GB), at(94 * GB, 0).host_bytes).unwrap();
        course.look(at(100 * GB, 120 * GB));
        for (told, given) in [
            (at(100 * GB, 120 * GB), 120 * GB), // a log that stands still
            (at(120 * GB, 140 * GB), 100 * GB), // another writer
            (at(100 * GB, 1), 100 * GB),        // back
            (Written::default(), 100 * GB),     // no answer
        ] {
            let error = course.check(told, begin.host_bytes + given).unwrap_err().to_string();
            assert!(error.contains("nothing else write"), "{error}");
        }
    }

    #[test]
    fn a_run_that_never_settles_ends_and_says_so() {
        let run = run(2.0, |n| 1.0 + 0.1 * f64::from(n));
        assert!(!run.is_steady && run.drive_writes < 30.0);
    }
}
