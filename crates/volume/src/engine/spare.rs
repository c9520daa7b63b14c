//! How many drives the pool can do without.

use crate::config::voters;
use crate::drive::Spare;
use crate::engine::Shared;
use crate::omf::label::Role;

impl Shared {
    /// Finds out which drives the fleet can spare. Nobody holds `core` or `config`.
    pub(crate) fn find_spare(&self) {
        let core = self.core.lock();
        let config = self.config.lock();
        let serving = self.fleet.serving(Role::Drive).len();
        let parity = usize::from(config.shape.parity);
        let before = self.fleet.spare.lock().clone();
        // Where all drives have served since, segments have got all of their parities.
        let is_whole = before.serving == serving && before.drives == parity;
        let left = core.space.segments().filter(|segment| segment.row.live_bytes > 0);
        let left = left.filter_map(|segment| {
            let chunks = segment.row.chunks.iter();
            let lost = chunks.filter(|(drive, _)| self.fleet.get(*drive).is_none()).count();
            usize::from(segment.row.parity).checked_sub(lost) // none: it is lost already
        });
        let drives = if is_whole { parity } else { left.min().unwrap_or(parity).min(parity) };
        let (voters, log) = (voters(&config).len(), config.log.members.clone());
        *self.fleet.spare.lock() = Spare { drives, serving, voters, log };
    }
}
