//! Mapping from addresses to media: a translation layer, or nothing.

use crate::FlashError;
use crate::ftl::{Array, Ftl, LogicalPage, MediaPage, PageCounts};

use super::{Media, Parameters};

/// The translation of a drive.
pub(crate) enum Layer {
    /// Flash.
    Mapped(Box<Ftl>),
    /// Media written in place: page `l` lies at `l`.
    InPlace(PageCounts),
}

impl Layer {
    /// For a drive on which nothing is written.
    pub(crate) fn new(
        parameters: &Parameters,
        configuration: Option<usize>,
    ) -> Result<Layer, FlashError> {
        Ok(match parameters.media {
            Media::InPlace => Layer::InPlace(PageCounts::default()),
            Media::Flash => {
                Layer::Mapped(Box::new(Ftl::new(parameters.ftl_options(configuration)?)?))
            }
        })
    }

    pub(crate) fn counts(&self) -> PageCounts {
        match self {
            Layer::Mapped(ftl) => ftl.counts(),
            Layer::InPlace(counts) => *counts,
        }
    }

    pub(crate) fn ftl(&self) -> Option<&Ftl> {
        match self {
            Layer::Mapped(ftl) => Some(ftl),
            Layer::InPlace(_) => None,
        }
    }

    /// Where a page lies. On media written in place every page lies somewhere.
    pub(super) fn locate(&self, page: LogicalPage) -> Option<MediaPage> {
        match self {
            Layer::Mapped(ftl) => ftl.locate(page),
            Layer::InPlace(_) => Some(MediaPage(page.0)),
        }
    }

    pub(super) fn write(
        &mut self,
        group: u16,
        handle: u16,
        first: LogicalPage,
        count: u32,
        array: &mut impl Array,
    ) {
        match self {
            Layer::Mapped(ftl) => {
                ftl.write_to(group, handle, count as usize, |index| first + index, array);
            }
            Layer::InPlace(counts) => {
                for page in first.0..first.0 + count {
                    array.program(MediaPage(page), LogicalPage(page));
                }
                counts.host += u64::from(count);
            }
        }
    }
}
