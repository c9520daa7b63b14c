//! Whether the write amplification of a run's flash drives still changes.
//!
//! A warm-up goes on in *parts*, each as long as the flash drives have bytes. Two parts are a *span*. A run is steady
//! when no drive's factor over the last span differs from that over the span before by more than [`TOLERANCE`].

use crate::LabError;
use crate::plan::measured::DeviceUse;

/// By how much two spans of a steady run differ at most.
const TOLERANCE: f64 = 0.02;
/// The same for a warm-up whose length the plan says, which is compared with the measured part.
const TOLERANCE_OF_PLAN: f64 = 0.05;
/// Parts of a warm-up, at least and at most.
const LEAST_PARTS: usize = 6;
const MOST_PARTS: usize = 32;
/// Parts of two spans.
const COMPARED: usize = 4;
/// Times that a trace has to write a drive, for a factor that is more than its beginning.
const LEAST_WRITES: f64 = 2.0;

/// The end of a warm-up.
pub(super) struct Warm {
    /// The traffic when the last two spans began: from here on bytes are counted.
    pub(super) since: Vec<DeviceUse>,
    /// Why the drives are not steady.
    pub(super) unsteady: Option<String>,
}

/// Runs parts until the drives are steady, or there were many.
///
/// # Errors
/// Those of a part.
pub(super) fn until_steady(
    uses: impl Fn() -> Vec<DeviceUse>,
    mut part: impl FnMut(usize) -> Result<(), LabError>,
) -> Result<Warm, LabError> {
    let mut moments = vec![uses()];
    loop {
        part(moments.len())?;
        moments.push(uses());
        let parts = moments.len() - 1;
        if parts < LEAST_PARTS {
            continue;
        }
        let [begin, middle, end] = [COMPARED, COMPARED / 2, 0].map(|back| &moments[parts - back]);
        let change = farthest(&factors(begin, middle), &factors(middle, end));
        let unsteady = change.filter(|change| change.share() > TOLERANCE);
        if unsteady.is_none() || parts == MOST_PARTS {
            let why = |change: Change| {
                format!("after {parts} drive writes the write amplification still {change}")
            };
            return Ok(Warm { since: begin.clone(), unsteady: unsteady.map(why) });
        }
    }
}

/// Why a run with a warm-up of the plan's own length is not steady: `before` is the end of the warm-up.
pub(super) fn of_plan(
    before: (&[DeviceUse], &[DeviceUse]),
    measured: (&[DeviceUse], &[DeviceUse]),
) -> Option<String> {
    let (before, measured) = (factors(before.0, before.1), factors(measured.0, measured.1));
    let change = farthest(&before, &measured)?;
    let is_unsteady = change.share() > TOLERANCE_OF_PLAN;
    is_unsteady.then(|| {
        format!("the write amplification still {change}: warm up for longer, or leave warm_up out")
    })
}

/// Why the factor of a trace is that of its beginning; `drives` are the bytes of each flash drive and those written.
pub(super) fn of_trace(drives: impl Iterator<Item = (u64, u64)>) -> Option<String> {
    let least = drives.filter_map(times).reduce(f64::min)?;
    (least < LEAST_WRITES).then(|| {
        format!(
            "the load writes a drive {least:.2} times: its write amplification is that of a beginning; take more \
             requests, or a smaller capacity"
        )
    })
}

/// Why the factor of the engine's drives is that of their first filling; bytes of each drive, and those written in all.
pub(super) fn of_engine(drives: impl Iterator<Item = (u64, u64)>) -> Option<String> {
    let least = drives.filter_map(times).reduce(f64::min)?;
    (least < 1.0).then(|| {
        format!(
            "a drive was written {least:.2} times in all, so it had nothing to clean: take more operations, or a \
             smaller capacity"
        )
    })
}

/// How many times a drive was written; none where it was not.
#[allow(clippy::cast_precision_loss)] // a ratio of byte counts
fn times((bytes, written): (u64, u64)) -> Option<f64> {
    (written > 0).then(|| written as f64 / bytes.max(1) as f64)
}

/// The factor of each drive between two moments; none of one that was not written.
fn factors(then: &[DeviceUse], now: &[DeviceUse]) -> Vec<Option<f64>> {
    let used = DeviceUse::since(now.to_vec(), then);
    used.iter().filter(|one| one.is_flash).map(DeviceUse::amplification).collect()
}

/// The drive whose factor changes the most.
fn farthest(before: &[Option<f64>], now: &[Option<f64>]) -> Option<Change> {
    let pairs = before.iter().zip(now).filter_map(|(before, now)| Some((*before)?).zip(*now));
    let changes = pairs.map(|(before, now)| Change { before, now });
    changes.max_by(|one, other| one.share().total_cmp(&other.share()))
}

/// A factor over a span, and over the next one.
struct Change {
    before: f64,
    now: f64,
}

impl Change {
    fn share(&self) -> f64 {
        (self.now / self.before - 1.0).abs()
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "changes, from {:.2} to {:.2}", self.before, self.now)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn drive(written_bytes: u64, passed_bytes: u64) -> Vec<DeviceUse> {
        vec![DeviceUse {
            written_bytes,
            read_bytes: 0,
            passed_bytes,
            is_drive: true,
            is_flash: true,
        }]
    }

    /// Parts of 1,000 bytes, whose factor is a function of the part's number.
    fn course(factor: impl Fn(usize) -> f64) -> (usize, Warm) {
        let total = RefCell::new((0u64, 0u64));
        let parts = Cell::new(0);
        let warm = until_steady(
            || drive(total.borrow().0, total.borrow().1),
            |part| {
                parts.set(part);
                let mut total = total.borrow_mut();
                total.0 += 1_000;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let passed = (1_000.0 * factor(part)) as u64;
                total.1 += passed;
                Ok(())
            },
        );
        (parts.get(), warm.unwrap())
    }

    #[test]
    fn a_warm_up_goes_on_until_two_spans_agree() {
        let (parts, warm) = course(|_| 2.0);
        assert_eq!((parts, warm.unsteady), (LEAST_PARTS, None));
        assert_eq!(warm.since[0].written_bytes, 2_000, "the last two spans count");
        // Rising by 0.2 a part up to the twelfth.
        #[allow(clippy::cast_precision_loss)]
        let (parts, warm) = course(|part| 1.0 + 0.2 * part.min(12) as f64);
        assert!((13..=16).contains(&parts) && warm.unsteady.is_none(), "{parts}");
    }

    #[test]
    fn a_factor_that_rises_for_ever_is_said() {
        #[allow(clippy::cast_precision_loss)]
        let (parts, warm) = course(|part| 1.1f64.powi(i32::try_from(part).unwrap()));
        assert_eq!(parts, MOST_PARTS);
        let why = warm.unsteady.unwrap();
        assert!(why.contains("32 drive writes") && why.contains("changes, from"), "{why}");
    }

    #[test]
    fn a_warm_up_of_the_plans_length_is_compared_with_the_measured_part() {
        let [begin, warm, end] = [drive(0, 0), drive(1_000, 1_000), drive(2_000, 3_000)];
        let why = of_plan((&begin, &warm), (&warm, &end)).unwrap();
        assert!(why.contains("from 1.00 to 2.00"), "{why}");
        assert_eq!(of_plan((&begin, &warm), (&warm, &drive(2_000, 2_040))), None);
    }

    #[test]
    fn a_trace_has_to_write_each_drive_twice() {
        assert!(
            of_trace([(1_000, 1_999), (1_000, 9_000)].into_iter()).unwrap().contains("2.00 times")
        );
        assert_eq!(of_trace([(1_000, 2_000), (1_000, 0)].into_iter()), None);
        assert_eq!(of_trace(std::iter::empty()), None);
        assert!(of_engine([(1_000, 999)].into_iter()).unwrap().contains("nothing to clean"));
        assert_eq!(of_engine([(1_000, 1_000)].into_iter()), None);
    }
}
