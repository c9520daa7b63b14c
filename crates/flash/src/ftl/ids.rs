//! Pages and units by number.

/// A logical page: an address of the host in units of the mapping.
pub type LogicalPage = u32;
/// A page of the media: `unit × unit_pages + page`.
pub type MediaPage = u32;
/// A reclaim unit.
pub type UnitId = u32;
/// Where a logical page lies that was never written, or trimmed.
pub(super) const NOWHERE: u32 = u32::MAX;
