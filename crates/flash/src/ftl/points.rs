//! Write points: where the next page goes, for each handle and for cleaning.

use esker_device::fdp::Isolation;

use super::ids::UnitId;
use super::options::{Frontier, FtlOptions};

/// A unit being filled, and its next page; no unit before the first write and after the last page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point {
    pub(super) unit: Option<UnitId>,
    pub(super) next: u32,
}

/// Filler of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writer {
    /// The host, with this handle.
    Host(u16),
    /// Cleaning, for handles that are isolated initially.
    #[default]
    Cleaning,
    /// Cleaning, for this handle alone, which is isolated persistently.
    CleaningOf(u16),
    /// Wear levelling, with pages that cleaning had written for several handles.
    Levelling,
    /// Wear levelling, with pages of this handle alone.
    LevellingOf(u16),
}

impl Writer {
    /// The handle whose pages alone it writes.
    pub(crate) fn handle(self) -> Option<u16> {
        match self {
            Writer::Host(handle) | Writer::CleaningOf(handle) | Writer::LevellingOf(handle) => {
                Some(handle)
            }
            Writer::Cleaning | Writer::Levelling => None,
        }
    }
}

/// The write points of all groups.
pub(super) struct Points {
    /// For each group: the host's by handle, then cleaning's common one, then cleaning's by handle,
    /// then levelling's, which moves one unit at a time.
    points: Vec<Point>,
    handles: usize,
    is_persistent: Vec<bool>,
    frontier: Frontier,
}

impl Points {
    pub(super) fn new(options: &FtlOptions) -> Points {
        let handles = options.handles.len();
        Points {
            points: vec![Point::default(); usize::from(options.groups) * (2 * handles + 2)],
            handles,
            is_persistent: options.handles.iter().map(|&h| h == Isolation::Persistently).collect(),
            frontier: options.frontier,
        }
    }

    fn index(&self, group: u16, writer: Writer) -> usize {
        let within = match writer {
            Writer::Host(handle) => {
                assert!(usize::from(handle) < self.handles, "there is no handle {handle}");
                usize::from(handle)
            }
            Writer::Cleaning => self.handles,
            Writer::CleaningOf(handle) => self.handles + 1 + usize::from(handle),
            Writer::Levelling | Writer::LevellingOf(_) => 2 * self.handles + 1,
        };
        usize::from(group) * (2 * self.handles + 2) + within
    }

    pub(super) fn of(&self, group: u16, writer: Writer) -> &Point {
        &self.points[self.index(group, writer)]
    }

    pub(super) fn of_mut(&mut self, group: u16, writer: Writer) -> &mut Point {
        let index = self.index(group, writer);
        &mut self.points[index]
    }

    /// Whose points those of a group are: the host's and cleaning's.
    pub(super) fn writers(&self) -> impl Iterator<Item = Writer> + use<> {
        let handles = u16::try_from(self.handles).expect("at most 128");
        let of_handles = (0..handles).flat_map(|one| [Writer::Host(one), Writer::CleaningOf(one)]);
        of_handles.chain([Writer::Cleaning])
    }

    /// The point that is filling a unit.
    pub(super) fn of_unit(&self, unit: UnitId) -> Option<&Point> {
        self.points.iter().find(|point| point.unit == Some(unit))
    }

    /// The writer that moves a unit of `writer` for the sake of wear.
    pub(super) fn levelled(&self, writer: Writer) -> Writer {
        writer.handle().map_or(Writer::Levelling, Writer::LevellingOf)
    }

    /// The writer that copies the valid pages of a unit that `writer` has filled.
    pub(super) fn successor(&self, writer: Writer) -> Writer {
        match (self.frontier, writer.handle()) {
            (Frontier::Shared, Some(handle)) => Writer::Host(handle),
            (Frontier::Separate, Some(handle)) if self.is_persistent[usize::from(handle)] => {
                Writer::CleaningOf(handle)
            }
            (_, _) => Writer::Cleaning,
        }
    }
}
