//! A drive: a translation layer, the data it places, and the time that takes.
//!
//! | module | contents |
//! | --- | --- |
//! | `parameters` | [`Parameters`]: sizes, layout and timing of a drive |
//! | `layer` | the translation layer of flash, or none for media written in place |
//! | `places` | the die of each stripe, where the host chooses it |
//! | `store` | the data, by media page, on a device |
//! | `timeline` | the layer's work on the media, as operations of dies |
//! | `namespaces` | namespaces: the pages and the handles of each |
//! | `counts` | bytes and commands since the drive was made |
//! | `placement` | data placement: statistics and events |
//! | `model` | all of that together, made, opened and kept |
//! | `commands`, `stage` | commands of the host, and the media under the layer while one runs |
//! | `image` | the state that survives a power cut, for a drive on a device that keeps it |

mod commands;
mod counts;
mod image;
mod layer;
mod model;
mod namespaces;
pub(crate) mod omf;
mod parameters;
mod placement;
mod places;
mod stage;
mod store;
mod timeline;

pub(crate) use image::Image;
pub(crate) use layer::Layer;
pub(crate) use model::{Drive, NamespacePart};
pub(crate) use namespaces::{Extent, NamespaceRecord};
pub(crate) use parameters::group_bits;
pub use parameters::{Configuration, Media, Parameters};
pub(crate) use places::Places;
