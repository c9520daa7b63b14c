//! The next request of a thread, and when it is due.

use std::time::Duration;

use esker_base::Rng;
use esker_base::units::to_u64;
use esker_bench::zipf::Zipfian;
use esker_device::PlacementId;
use esker_trace::{Op, Request};

use super::job::{Job, Pattern, Timing};

/// A request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) placement: Option<PlacementId>,
    /// When it is due, since the begin; at once where nothing is said.
    pub(super) due: Option<Duration>,
}

/// Where a thread's requests come from.
pub(super) enum Requests {
    Generated(Box<Generated>),
    Replayed(Box<Replayed>),
}

impl Requests {
    /// The next one; none at the end of a trace.
    pub(super) fn next(&mut self) -> Option<Next> {
        match self {
            Requests::Generated(generated) => Some(generated.next()),
            Requests::Replayed(replayed) => replayed.next(),
        }
    }
}

/// Requests by a mix.
pub(super) struct Generated {
    job: Job,
    rng: Rng,
    zipfian: Option<Zipfian>,
    weights: u64,
    /// Where a sequential thread's part begins and ends, and where it is.
    part: std::ops::Range<u64>,
    at: u64,
    /// Between two requests of this thread, in nanoseconds.
    apart_ns: Option<f64>,
    sent: u64,
    writes: u64,
}

impl Generated {
    pub(super) fn new(job: &Job, thread: u64) -> Generated {
        let threads = to_u64(job.threads);
        let unit = job.largest();
        let units = job.span() / unit;
        let zipfian = match job.pattern {
            Pattern::Zipfian(theta) => Some(Zipfian::new(units, theta)),
            _ => None,
        };
        let part = units * thread / threads * unit..units * (thread + 1) / threads * unit;
        #[allow(clippy::cast_precision_loss)] // a span between requests
        let apart_ns = job.rate.map(|rate| 1e9 * threads as f64 / rate);
        Generated {
            job: job.clone(),
            rng: Rng::new(job.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ thread),
            zipfian,
            weights: job.sizes.iter().map(|one| u64::from(one.weight)).sum(),
            at: part.start,
            part,
            apart_ns,
            sent: 0,
            writes: 0,
        }
    }

    /// The next write of a job that fills: without a rate, a mix or flushes.
    pub(super) fn fill_next(&mut self) -> Next {
        let bytes = self.job.largest();
        let offset = self.sequential(bytes);
        let placement = placement(&self.job, offset);
        Next { op: Op::Write, offset, bytes, placement, due: None }
    }

    fn next(&mut self) -> Next {
        let due = self.apart_ns.map(|apart| {
            #[allow(clippy::cast_precision_loss)] // a moment
            Duration::from_secs_f64(self.sent as f64 * apart / 1e9)
        });
        self.sent += 1;
        if self.job.flush_every.is_some_and(|every| self.writes >= every) {
            self.writes = 0;
            return Next { op: Op::Flush, offset: 0, bytes: 0, placement: None, due };
        }
        let bytes = self.size();
        let offset = self.offset(bytes);
        let (reads, discards) =
            (u64::from(self.job.read_percent), u64::from(self.job.discard_percent));
        let op = match self.rng.below(100) {
            kind if kind < reads => Op::Read,
            kind if kind < reads + discards => Op::Discard,
            _ => Op::Write,
        };
        let is_write = op == Op::Write;
        self.writes += u64::from(is_write);
        let placement = placement(&self.job, offset).filter(|_| is_write);
        Next { op, offset, bytes, placement, due }
    }

    fn size(&mut self) -> u64 {
        let mut at = self.rng.below(self.weights);
        for one in &self.job.sizes {
            match at.checked_sub(u64::from(one.weight)) {
                Some(rest) => at = rest,
                None => return one.bytes,
            }
        }
        self.job.largest()
    }

    /// Where a request of so many bytes begins: aligned to its own size, so that requests of one size overlap whole
    /// or not at all.
    fn offset(&mut self, bytes: u64) -> u64 {
        let largest = self.job.largest();
        let units = self.job.span() / largest;
        let unit = match (&self.zipfian, self.job.pattern) {
            (Some(zipfian), _) => scattered(zipfian.sample(&mut self.rng), units),
            (None, Pattern::Sequential) => return self.sequential(bytes),
            (None, _) => self.rng.below(units),
        };
        unit * largest + self.rng.below((largest / bytes).max(1)) * bytes
    }

    fn sequential(&mut self, bytes: u64) -> u64 {
        if self.at + bytes > self.part.end {
            self.at = self.part.start;
        }
        let offset = self.at;
        self.at += bytes;
        offset
    }
}

/// A place for a rank: every rank another one, neighbours far apart.
fn scattered(rank: u64, units: u64) -> u64 {
    // Multiplying by a number without a common factor is a permutation.
    let mut step = (units / 2 + units / 8) | 1;
    while common_factor(step, units) != 1 {
        step += 2;
    }
    let place = u128::from(rank) * u128::from(step) % u128::from(units);
    u64::try_from(place).expect("below the number of units")
}

fn common_factor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The stream of the part of the span in which an offset lies.
fn placement(job: &Job, offset: u64) -> Option<PlacementId> {
    let streams = u64::from(job.streams);
    let part = u128::from(offset) * u128::from(streams) / u128::from(job.span().max(1));
    (streams > 0).then(|| PlacementId(u16::try_from(part).unwrap_or(0)))
}

/// Requests of a trace.
pub(super) struct Replayed {
    job: Job,
    requests: std::vec::IntoIter<Request>,
    first_ns: u64,
    timing: Timing,
}

impl Replayed {
    pub(super) fn new(
        job: &Job,
        requests: Vec<Request>,
        first_ns: u64,
        timing: Timing,
    ) -> Replayed {
        Replayed { job: job.clone(), requests: requests.into_iter(), first_ns, timing }
    }

    fn next(&mut self) -> Option<Next> {
        let request = self.requests.next()?;
        let due = match self.timing {
            Timing::Order => None,
            Timing::Recorded(faster) => {
                let since = Duration::from_nanos(request.time_ns - self.first_ns);
                Some(since.div_f64(faster))
            }
        };
        let (span, largest) = (self.job.span(), self.job.largest());
        // The trace's device may be larger, and its requests may be of any size.
        let unit = self.job.sizes.iter().map(|one| one.bytes).min().unwrap_or(largest);
        let bytes = request.length.div_ceil(unit).max(1) * unit;
        let bytes = bytes.min(span / unit * unit);
        let room = (span - bytes) / unit + 1;
        let offset = request.offset / unit % room * unit;
        let is_write = request.op == Op::Write;
        let placement = placement(&self.job, offset).filter(|_| is_write);
        let bytes = if request.op == Op::Flush { 0 } else { bytes };
        Some(Next { op: request.op, offset, bytes, placement, due })
    }
}

/// A request in parts of `most` bytes at most, as a device takes them.
pub(crate) fn pieces(request: &Request, most: u64) -> impl Iterator<Item = Request> {
    let request = *request;
    let count = match request.op.is_data() {
        true => request.length.div_ceil(most).max(1),
        false => 1,
    };
    (0..count).map(move |index| {
        let begin = index * most;
        let length = match count {
            1 => request.length,
            _ => most.min(request.length - begin),
        };
        Request { offset: request.offset + begin, length, ..request }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_load::job::Size;

    #[test]
    fn a_zipfian_load_spreads_ranks_over_all_units() {
        for units in [1, 2, 3, 16, 1000, 4095, 4096] {
            let mut seen: Vec<u64> = (0..units).map(|rank| scattered(rank, units)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..units).collect::<Vec<_>>(), "{units}");
        }
    }

    #[test]
    fn requests_keep_to_the_mix_and_the_span() {
        let job = Job {
            read_percent: 50,
            discard_percent: 10,
            sizes: vec![Size { bytes: 4096, weight: 3 }, Size { bytes: 16384, weight: 1 }],
            span_bytes: Some(1 << 20),
            streams: 4,
            rate: Some(1000.0),
            threads: 2,
            ..Job::default()
        };
        for pattern in [Pattern::Sequential, Pattern::Uniform, Pattern::Zipfian(0.9)] {
            let mut generated = Generated::new(&Job { pattern, ..job.clone() }, 1);
            let all: Vec<Next> = (0..10_000).map(|_| generated.next()).collect();
            let count = |op| all.iter().filter(|one| one.op == op).count();
            assert!((4700..5300).contains(&count(Op::Read)), "{pattern:?}");
            assert!((800..1200).contains(&count(Op::Discard)), "{pattern:?}");
            assert!((7200..7800).contains(&all.iter().filter(|one| one.bytes == 4096).count()));
            assert!(all.iter().all(|one| one.offset + one.bytes <= 1 << 20));
            for one in all.iter().filter(|one| one.op == Op::Write) {
                let part = u16::try_from(one.offset / (256 << 10)).unwrap();
                assert_eq!(one.placement, Some(PlacementId(part)));
            }
            // Two threads at 1,000 a second: one every two milliseconds.
            assert_eq!(all[100].due, Some(Duration::from_millis(200)));
        }
    }

    #[test]
    fn a_trace_wraps_around_a_smaller_device() {
        let job = Job { span_bytes: Some(64 << 10), ..Job::default() };
        let request =
            |time_ns, offset, length, op| Request { time_ns, offset, length, device: 0, op };
        let requests = vec![
            request(1_000_000, 512, 512, Op::Read),
            request(3_000_000, 1 << 30, 8192, Op::Write),
            request(3_000_000, 0, 0, Op::Flush),
            request(4_000_000, 0, 1 << 20, Op::Discard),
        ];
        let mut replayed = Replayed::new(&job, requests, 1_000_000, Timing::Recorded(2.0));
        let all: Vec<Next> = std::iter::from_fn(|| replayed.next()).collect();
        assert_eq!((all[0].offset, all[0].bytes, all[0].due), (0, 4096, Some(Duration::ZERO)));
        assert_eq!((all[1].bytes, all[1].due), (8192, Some(Duration::from_millis(1))));
        assert!(all[1].offset + 8192 <= 64 << 10);
        assert_eq!((all[2].op, all[2].bytes), (Op::Flush, 0));
        assert_eq!((all[3].offset, all[3].bytes), (0, 64 << 10));
    }
}
