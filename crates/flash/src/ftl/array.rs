//! Operations of a translation layer on the media.

use super::ids::{LogicalPage, MediaPage, UnitId};
use super::points::Writer;

/// The media under a translation layer. Called in the order in which things happen.
pub trait Array {
    /// `writer` begins to fill an erased unit.
    #[inline]
    fn open(&mut self, _unit: UnitId, _writer: Writer) {}

    /// Page `at` is programmed with the host's content of `page`.
    fn program(&mut self, at: MediaPage, page: LogicalPage);

    /// Page `to` is programmed with the content of `from`, which is logical page `page`.
    fn copy(&mut self, from: MediaPage, to: MediaPage, page: LogicalPage);

    /// Nothing more is programmed into a unit, which is full or given up.
    #[inline]
    fn close(&mut self, _unit: UnitId) {}

    /// The layer has closed the unit of a handle of a group before it was full, unasked: the next
    /// write with that handle goes to another one.
    #[inline]
    fn turn(&mut self, _group: u16, _handle: u16) {}

    /// So many pages of a unit that `writer` had filled were copied elsewhere: all that were valid. It is erased next.
    #[inline]
    fn moved(&mut self, _group: u16, _writer: Writer, _pages: u32) {}

    /// The unit is erased.
    fn erase(&mut self, unit: UnitId);
}

/// Media that keeps nothing: the translation layer's counters are all one wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

impl Array for Counting {
    #[inline]
    fn program(&mut self, _: MediaPage, _: LogicalPage) {}

    #[inline]
    fn copy(&mut self, _: MediaPage, _: MediaPage, _: LogicalPage) {}

    #[inline]
    fn erase(&mut self, _: UnitId) {}
}
