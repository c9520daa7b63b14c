//! The workload laboratory: the workloads of YCSB, a driver that runs them against anything with
//! keys and values, and reports. It knows no store, prints nothing and reads no clock but the one
//! it is given.
//!
//! | module | content |
//! | --- | --- |
//! | [`workload`] | [`Workload`]: the mixes A to F of YCSB; [`Dataset`]: the form of the records |
//! | [`operation`] | [`OperationKind`]: read, update, insert, scan, read-modify-write |
//! | [`distribution`], [`zipf`] | which record a request asks for |
//! | [`counter`] | numbers of inserted records |
//! | [`key`], [`value`] | keys as YCSB writes them; values that can be verified |
//! | [`store`] | [`Store`] and [`Session`]: the interface of a store under test |
//! | [`driver`] | [`Runner`]: loads and runs, one workload after another |
//! | [`watch`] | [`Progress`]: a run's state, for callers to show |
//! | [`result`] | [`RunResult`], [`Report`]: measurements, to and from JSON |
//! | [`table`], [`html`] | a report as plain text and as one HTML file |
//!
//! # A sequence of workloads
//!
//! ```
//! # use std::ops::ControlFlow;
//! # use esker_bench::store::{BoxError, Session, Store};
//! # use esker_bench::{Dataset, Report, RunOptions, Runner, Workload};
//! # struct Nothing;
//! # impl Store for Nothing {
//! #     fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> { Ok(Box::new(Nothing)) }
//! # }
//! # impl Session for Nothing {
//! #     fn read(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<bool, BoxError> { Ok(true) }
//! #     fn insert(&mut self, _: &[u8], _: &[u8]) -> Result<(), BoxError> { Ok(()) }
//! #     fn scan(&mut self, _: &[u8], _: usize, _: &mut dyn FnMut(&[u8], &[u8]))
//! #         -> Result<usize, BoxError> { Ok(0) }
//! # }
//! # let store = Nothing;
//! let dataset = Dataset { records: 1_000, ..Dataset::default() };
//! let mut runner = Runner::new(&store, esker_base::Clock::real(), dataset)?;
//! let options = RunOptions { operations: Some(1_000), ..RunOptions::default() };
//! let mut report = Report::new("Workloads A to F", dataset);
//! report.environment.insert("device".to_owned(), "a store that forgets".to_owned());
//!
//! let mut progress = |_: &esker_bench::Progress<'_>| ControlFlow::Continue(());
//! report.runs.push(runner.load(&options, &mut progress)?);
//! for workload in Workload::core() {
//!     report.runs.push(runner.run(&workload, &options, &mut progress)?);
//! }
//! let (text, json, page) = (report.table(), report.json(), report.html());
//! # assert!(text.contains("load") && json.contains("ops_per_s") && page.contains("</html>"));
//! # Ok::<(), esker_bench::BenchError>(())
//! ```

#![allow(clippy::cast_precision_loss)] // counts and nanoseconds become figures for people

pub mod counter;
pub mod distribution;
pub mod driver;
pub mod error;
pub mod html;
pub mod key;
mod measure;
pub mod operation;
pub mod options;
mod pace;
pub mod result;
pub mod store;
pub mod table;
pub mod value;
pub mod watch;
mod worker;
pub mod workload;
pub mod zipf;

pub use distribution::Distribution;
pub use driver::Runner;
pub use error::BenchError;
pub use key::{KeyFormat, KeyOrder};
pub use measure::Latencies;
pub use operation::OperationKind;
pub use options::{OnError, RunOptions};
pub use result::{Report, RunResult};
pub use store::{BoxError, Sample, Session, Store, Unit};
pub use value::ValueFormat;
pub use watch::{OnProgress, Phase, Progress};
pub use workload::{Dataset, Workload};
