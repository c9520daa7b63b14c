//! Slots of a set in each row of the layout.

use esker_base::codec::Decoder;

use super::{FormatError, MAX_ROWS};

/// How many slots of a set are in each row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub(super) count: u32,
    /// Zero beyond `count`.
    pub(super) slots: [u32; MAX_ROWS],
}

impl Rows {
    /// One row of all slots of a set.
    #[must_use]
    pub fn one(slots: u32) -> Rows {
        Rows::of(&[slots])
    }

    /// Rows of so many slots of a set each.
    ///
    /// # Panics
    /// If there are more than [`MAX_ROWS`].
    #[must_use]
    pub fn of(rows: &[u32]) -> Rows {
        let mut slots = [0; MAX_ROWS];
        slots[..rows.len()].copy_from_slice(rows);
        Rows { count: u32::try_from(rows.len()).unwrap_or(0), slots }
    }

    /// Slots of a set in each of them.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.slots[..usize::try_from(self.count).unwrap_or(0).min(MAX_ROWS)]
    }

    pub(super) fn total(&self) -> u64 {
        self.as_slice().iter().map(|&slots| u64::from(slots)).sum()
    }

    pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Rows, FormatError> {
        let count = d.u32("rows")?;
        d.u32("reserved")?;
        let mut slots = [0; MAX_ROWS];
        for slot in &mut slots {
            *slot = d.u32("slots in a row")?;
        }
        let rows = Rows { count, slots };
        let used = usize::try_from(count).unwrap_or(usize::MAX);
        let is_good = (1..=MAX_ROWS).contains(&used)
            && slots.iter().enumerate().all(|(at, slots)| (*slots > 0) == (at < used));
        match is_good {
            true => Ok(rows),
            false => Err(FormatError::Value { what: "the rows", found: count.into() }),
        }
    }
}
