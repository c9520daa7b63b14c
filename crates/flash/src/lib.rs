//! An exact SSD in software.
//!
//! | module | contents |
//! | --- | --- |
//! | [`ssd`] | [`Ssd`]: a drive; [`Namespace`]: a part of it, as a device |
//! | [`drive`] | the parts of the drive: layer, data, time, image |
//! | [`disk`] | a disk beside it: seek, rotation, transfer, queue |
//! | [`emulate`] | stored content behind a model of time, as a device |
//! | [`ftl`] | the flash translation layer: page map, reclaim units, cleaning, wear |
//! | [`profile`] | drives one can name, with sources and assumptions |
//! | [`theory`] | write amplification in closed form, to judge the layer by |
//! | [`timing`] | when things finish: firmware, buffer, link, channels, dies |

pub mod disk;
pub mod drive;
pub mod emulate;
pub mod error;
pub mod ftl;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod profile;
pub mod ssd;
pub mod theory;
pub mod timing;

pub use drive::Parameters;
pub use emulate::Pace;
pub use error::FlashError;
pub use profile::Profile;
pub use ssd::{Namespace, Ssd};
