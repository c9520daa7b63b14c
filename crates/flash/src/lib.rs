//! An exact SSD in software.
//!
//! | module | what |
//! | --- | --- |
//! | [`emulate`] | stored content behind a model of time, as a device |
//! | [`ftl`] | the flash translation layer: page map, reclaim units, cleaning, wear |
//! | [`theory`] | write amplification in closed form, to judge the layer by |
//! | [`timing`] | when things finish: firmware, buffer, link, channels, dies |

pub mod emulate;
pub mod error;
pub mod ftl;
pub mod theory;
pub mod timing;

pub use error::FlashError;
