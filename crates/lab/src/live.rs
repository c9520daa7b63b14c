//! The subjects of live pages: runs that go on, as a page at each moment.
//!
//! | module | content |
//! | --- | --- |
//! | `runs` | [`Runs`]: the workloads of a benchmark, with the charts of their report |
//! | `course` | [`LoadCourse`]: requests and bytes of a device |
//! | `taken` | [`Taken`]: the steps of an experiment, as they are taken |

mod course;
mod runs;
mod taken;

pub use course::LoadCourse;
pub use runs::Runs;
pub use taken::Taken;
