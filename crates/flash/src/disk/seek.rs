//! How long the arm takes: it accelerates over half a short distance, which takes the root of the
//! distance, and over a long one it moves at its full speed, which takes the distance itself
//! (Ruemmler and Wilkes, An Introduction to Disk Drive Modeling, 1994).

use super::SeekFigures;
use crate::FlashError;

/// Seek time over distance: `a + b √d` up to `k` cylinders, linear from there on, with one slope
/// where they meet.
///
/// A disk that was cut down to few cylinders keeps its seek times: a share of its stroke takes as
/// long as the same share of a whole disk's, and the next track stays the next track.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeekCurve {
    track_ns: u64,
    /// Cylinders of the curve for each of the disk.
    stretch: f64,
    a_ns: f64,
    b_ns: f64,
    k: f64,
}

/// Fewer cylinders have no smooth curve.
const SMOOTH: u32 = 10_000;

impl SeekCurve {
    /// The curve with these figures on a disk of so many cylinders. The average is over all pairs
    /// of cylinders.
    ///
    /// # Errors
    /// When there is no such curve. The average less the track-to-track time must lie between 1/3
    /// and 8/15 of the full stroke less the track-to-track time: a line has the one, a root the
    /// other.
    pub fn fit(figures: &SeekFigures, cylinders: u32) -> Result<SeekCurve, FlashError> {
        let SeekFigures { track_ns, average_ns, full_ns } = *figures;
        let refuse = || {
            let why = format!(
                "no seek curve takes {track_ns} ns to the next track, {average_ns} ns on average \
                 and {full_ns} ns over {cylinders} cylinders: the average is too near one of them"
            );
            Err(FlashError::Invalid(why))
        };
        if cylinders < 2 || track_ns >= average_ns || average_ns >= full_ns {
            return refuse();
        }
        let average = float(average_ns);
        let stretch = f64::from(cylinders.max(SMOOTH) - 1) / f64::from(cylinders - 1);
        let cylinders = cylinders.max(SMOOTH);
        let curve =
            |k| SeekCurve { stretch, ..SeekCurve::through(track_ns, full_ns, cylinders, k) };
        let (mut low, mut high) = (1.0, f64::from(cylinders - 1));
        if curve(low).mean(cylinders) > average || curve(high).mean(cylinders) < average {
            return refuse();
        }
        // The mean grows with k; 60 halvings are exact to the last bit.
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if curve(middle).mean(cylinders) < average { low = middle } else { high = middle }
        }
        Ok(curve(low))
    }

    /// The curve through both ends that becomes linear at `k`.
    fn through(track_ns: u64, full_ns: u64, cylinders: u32, k: f64) -> SeekCurve {
        let (first, last) = (float(track_ns), float(full_ns));
        let longest = f64::from(cylinders - 1);
        let root = k.sqrt();
        let b_ns = (last - first) / (root - 1.0 + (longest - k) / (2.0 * root));
        SeekCurve { track_ns, stretch: 1.0, a_ns: first - b_ns, b_ns, k }
    }

    /// The mean over all pairs of cylinders: distance `d` has the weight `2 (1 - d / n) / n`.
    fn mean(&self, cylinders: u32) -> f64 {
        let SeekCurve { a_ns, b_ns, k, .. } = *self;
        let n = f64::from(cylinders - 1);
        let root = k.sqrt();
        let (value, slope) = (a_ns + b_ns * root, b_ns / (2.0 * root));
        let long = n - k;
        let short_part = a_ns * (k - k * k / (2.0 * n))
            + b_ns * (2.0 / 3.0 * k * root - 2.0 / 5.0 * k * k * root / n);
        let long_part = (value * long * long / 2.0 + slope * long * long * long / 6.0) / n;
        2.0 / n * (short_part + long_part)
    }

    /// How long a seek over `distance` cylinders takes, in nanoseconds; none takes no time. (Square
    /// roots, sums and products of floats are the same on every machine.)
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, below an hour
    pub fn seek_ns(&self, distance: u32) -> u64 {
        let SeekCurve { a_ns, b_ns, k, .. } = *self;
        if distance < 2 {
            return u64::from(distance) * self.track_ns;
        }
        let distance = f64::from(distance) * self.stretch;
        if distance <= k {
            (a_ns + b_ns * distance.sqrt()).round() as u64
        } else {
            let root = k.sqrt();
            (a_ns + b_ns * root + b_ns / (2.0 * root) * (distance - k)).round() as u64
        }
    }
}

#[allow(clippy::cast_precision_loss)] // nanoseconds of a seek
fn float(ns: u64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_the_figures_it_was_made_from() {
        for (track_ns, average_ns, full_ns, cylinders) in [
            (200_000, 4_000_000, 8_100_000, 51_052),
            (600_000, 4_400_000, 8_600_000, 51_052),
            (230_000, 8_200_000, 16_400_000, 320_800),
        ] {
            let figures = SeekFigures { track_ns, average_ns, full_ns };
            let curve = SeekCurve::fit(&figures, cylinders).unwrap();
            assert_eq!(curve.seek_ns(0), 0);
            assert!(curve.seek_ns(1).abs_diff(track_ns) <= 1);
            assert!(curve.seek_ns(cylinders - 1).abs_diff(full_ns) <= 1);
            let (mut sum, mut weights, mut last) = (0.0, 0.0, 0);
            for distance in 1..cylinders {
                let weight = f64::from(cylinders - distance);
                let seek_ns = curve.seek_ns(distance);
                assert!(seek_ns >= last, "longer seeks take longer");
                last = seek_ns;
                sum += weight * float(seek_ns);
                weights += weight;
            }
            let mean_ns = sum / weights;
            assert!((mean_ns / float(average_ns) - 1.0).abs() < 1e-3, "{mean_ns}");
        }
    }

    #[test]
    fn a_disk_cut_down_keeps_its_seek_times() {
        let figures = SeekFigures { track_ns: 200_000, average_ns: 4_000_000, full_ns: 8_100_000 };
        let whole = SeekCurve::fit(&figures, 51_052).unwrap();
        for cylinders in [2, 32, 1000] {
            let cut = SeekCurve::fit(&figures, cylinders).unwrap();
            assert_eq!(cut.seek_ns(1), 200_000);
            if cylinders > 2 {
                assert!(cut.seek_ns(cylinders - 1).abs_diff(8_100_000) <= 1);
                let (half, of) = (cut.seek_ns(cylinders / 2), whole.seek_ns(51_052 / 2));
                assert!(half.abs_diff(of) < of / 20, "{half} {of}");
            }
        }
    }

    #[test]
    fn figures_that_no_curve_has_are_refused() {
        let fit = |track_ns, average_ns, full_ns| {
            SeekCurve::fit(&SeekFigures { track_ns, average_ns, full_ns }, 1000)
        };
        assert!(fit(1, 3_000, 10_000).is_err(), "faster than a line");
        assert!(fit(1, 6_000, 10_000).is_err(), "slower than a root");
        assert!(fit(5_000, 4_000, 10_000).is_err());
        assert!(fit(1, 4_500, 10_000).is_ok());
    }
}
