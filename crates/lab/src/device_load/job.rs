//! Parameters of a load.

use std::time::Duration;

use esker_base::units::{human_bytes, to_u64};
use esker_device::{Device, MAX_DEPTH};

use crate::LabError;

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Each thread one after the other, in a part of its own, again from its begin at its end.
    Sequential,
    /// All alike.
    Uniform,
    /// A few much more than the others, with this skew between 0 and 1; they lie anywhere.
    Zipfian(f64),
}

/// How large requests are: bytes, and how often beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes of a request, a multiple of the device's LBA.
    pub bytes: u64,
    /// Its weight.
    pub weight: u32,
}

/// When requests of a trace are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// As soon as there is room for them, in their order.
    Order,
    /// When they were recorded, so many times faster.
    Recorded(f64),
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Of 100 requests, how many read.
    pub read_percent: u32,
    /// Of 100 requests, how many discard; all others write.
    pub discard_percent: u32,
    /// Sizes of requests.
    pub sizes: Vec<Size>,
    /// Addresses.
    pub pattern: Pattern,
    /// Requests that each thread keeps in flight.
    pub depth: usize,
    /// Threads, each with a queue pair of its own.
    pub threads: usize,
    /// Bytes from the device's begin that are used; all of them where nothing is said.
    pub span_bytes: Option<u64>,
    /// Parts of these bytes whose writes carry a placement identifier each, from 0 on; none where 0.
    pub streams: u16,
    /// A flush after so many writes of a thread.
    pub flush_every: Option<u64>,
    /// Requests a second of all threads together; as many as possible where nothing is said.
    pub rate: Option<f64>,
    /// Ends it after this time of the device.
    pub time_limit: Option<Duration>,
    /// Ends it after so many bytes were written and read.
    pub bytes_limit: Option<u64>,
    /// Writes all of the span once before anything is measured.
    pub fill: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for Job {
    /// Uniform reads of 4 KiB, 32 in flight, for ten seconds.
    fn default() -> Job {
        Job {
            read_percent: 100,
            discard_percent: 0,
            sizes: vec![Size { bytes: 4096, weight: 1 }],
            pattern: Pattern::Uniform,
            depth: 32,
            threads: 1,
            span_bytes: None,
            streams: 0,
            flush_every: None,
            rate: None,
            time_limit: Some(Duration::from_secs(10)),
            bytes_limit: None,
            fill: false,
            seed: 1,
        }
    }
}

impl Job {
    /// The largest request.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.sizes.iter().map(|one| one.bytes).max().unwrap_or(0)
    }

    /// The job on a device: its span is said.
    ///
    /// # Errors
    /// `Invalid` for a parameter that makes no sense; the message says how to correct it.
    pub fn on(&self, device: &dyn Device) -> Result<Job, LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        let geometry = device.geometry();
        let lba = u64::from(geometry.lba_size);
        let capacity = geometry.capacity.bytes(geometry.lba_size);
        if self.read_percent + self.discard_percent > 100 {
            return refuse("reads and discards together are at most 100 %".to_owned());
        }
        if self.sizes.is_empty() || self.sizes.iter().any(|one| one.weight == 0) {
            return refuse("give one or more sizes, each with a weight of 1 and more".to_owned());
        }
        if let Some(wrong) =
            self.sizes.iter().find(|one| one.bytes == 0 || !one.bytes.is_multiple_of(lba))
        {
            return refuse(format!(
                "requests of {} bytes: give a multiple of the device's LBA, {lba} bytes",
                wrong.bytes
            ));
        }
        if !(1..=MAX_DEPTH).contains(&self.depth) || self.threads == 0 {
            return refuse(format!("give a depth of 1 to {MAX_DEPTH}, and a thread or more"));
        }
        if let Pattern::Zipfian(theta) = self.pattern
            && !(theta > 0.0 && theta < 1.0)
        {
            return refuse(format!("a skew of {theta}: give one between 0 and 1"));
        }
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return refuse("a rate is above 0".to_owned());
        }
        let span = self.span_bytes.unwrap_or(capacity) / lba * lba;
        if span > capacity {
            return refuse(format!("the device has {}: use at most that", human_bytes(capacity)));
        }
        let least = self.largest() * to_u64(self.threads) * u64::from(self.streams.max(1));
        if span < least {
            return refuse(format!(
                "the load needs {} at least, for its largest request in each part: the device or --span has {}",
                human_bytes(least),
                human_bytes(span)
            ));
        }
        Ok(Job { span_bytes: Some(span), ..self.clone() })
    }

    /// The bytes that are used, of a job [on](Job::on) a device.
    pub(super) fn span(&self) -> u64 {
        self.span_bytes.unwrap_or(0)
    }
}
