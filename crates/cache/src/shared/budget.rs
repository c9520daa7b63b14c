//! The budget of writes, as commands of an open cache meet it ([`crate::admit`]).

use std::sync::atomic::Ordering;

use super::Shared;

impl Shared {
    /// Whether a block that is not cached yet may be, as far as the budget goes.
    pub(crate) fn admits(&self) -> bool {
        if !self.is_over_budget.load(Ordering::Relaxed) {
            return true;
        }
        let has_left = self.budget.has_left();
        if has_left {
            self.is_over_budget.store(false, Ordering::Relaxed);
        }
        has_left
    }

    /// Bytes are written to the flash device.
    pub(crate) fn spend(&self, bytes: u64) {
        if let Some(has_left) = self.budget.spend(bytes)
            && !has_left
        {
            Shared::raise(&self.is_over_budget);
        }
    }
}
