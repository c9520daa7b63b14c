//! The interface of a store under test: [`Store`], and a [`Session`] for each thread.

use serde::{Deserialize, Serialize};

/// The error of a store, whatever it is; it comes back in [`crate::BenchError`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A store of keys and values in key order.
pub trait Store: Sync {
    /// Opens a session; each thread of a run calls this once, on itself.
    ///
    /// # Errors
    /// The store's own; the run then does not start.
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError>;

    /// Makes everything written so far durable. Called once after each run, timed apart from it.
    ///
    /// # Errors
    /// The store's own; the run then fails.
    fn sync(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Returns the store's own figures, asked for at the start of a run, at every interval and at
    /// the end. The names become the legends of the report's charts.
    fn sample(&self) -> Vec<Sample> {
        Vec::new()
    }
}

/// One thread's use of a store.
pub trait Session {
    /// Replaces the content of `value` by the value of `key`; false when there is none.
    ///
    /// # Errors
    /// The store's own.
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BoxError>;

    /// Adds a record.
    ///
    /// # Errors
    /// The store's own.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError>;

    /// Replaces the value of a record.
    ///
    /// # Errors
    /// The store's own.
    fn update(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError> {
        self.insert(key, value)
    }

    /// Visits up to `count` records in key order from the first key not below `start`, and returns
    /// how many it visited.
    ///
    /// # Errors
    /// The store's own.
    fn scan(
        &mut self,
        start: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError>;

    /// Reads a record into `old`, then replaces its value; false when there was none to read.
    ///
    /// # Errors
    /// The store's own.
    fn read_modify_write(
        &mut self,
        key: &[u8],
        old: &mut Vec<u8>,
        value: &[u8],
    ) -> Result<bool, BoxError> {
        let found = self.read(key, old)?;
        self.update(key, value)?;
        Ok(found)
    }
}

/// The unit of a sampled series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// How many of something.
    Count,
    /// A span of time in nanoseconds, CPU time say.
    Nanoseconds,
    /// A number without a unit.
    Ratio,
}

/// One figure of a store at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The series it belongs to: `capacity written`, say.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Whether it only grows (bytes written), so that its increase during a run means something;
    /// otherwise it is a level (bytes of memory in use).
    pub counter: bool,
    /// The figure. One that is not finite is left out.
    pub value: f64,
}

impl Sample {
    /// A figure that only grows.
    #[must_use]
    pub fn counter(name: impl Into<String>, unit: Unit, value: f64) -> Sample {
        Sample { name: name.into(), unit, counter: true, value }
    }

    /// A level.
    #[must_use]
    pub fn level(name: impl Into<String>, unit: Unit, value: f64) -> Sample {
        Sample { counter: false, ..Sample::counter(name, unit, value) }
    }
}
