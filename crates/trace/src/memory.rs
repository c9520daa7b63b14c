//! Memory for state that grows with a trace. It is asked for before it is used, so that its end is an error.

use std::hash::BuildHasher;

use esker_base::units::to_u64;
use hashbrown::HashMap;

/// Memory that may be taken: as long as the process may have it, and the machine has it.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    available: fn() -> Option<u64>,
}

/// There is less memory than this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short(pub u64);

impl Memory {
    /// Memory as `available` tells it, in bytes; `None` where that is not known. It is asked when a table grows, which is
    /// seldom.
    #[must_use]
    pub fn new(available: fn() -> Option<u64>) -> Memory {
        Memory { available }
    }

    /// Whether so many bytes are there.
    ///
    /// # Errors
    /// When they are not.
    pub fn check(&self, bytes: u64) -> Result<(), Short> {
        match (self.available)() {
            Some(available) if available < bytes => Err(Short(bytes)),
            _ => Ok(()),
        }
    }

    /// Makes room for `more` elements.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn reserve<T>(&self, list: &mut Vec<T>, more: usize) -> Result<(), Short> {
        if list.capacity() - list.len() >= more {
            return Ok(());
        }
        let after = list.len().saturating_add(more).max(list.capacity().saturating_mul(2));
        let bytes = to_u64(after).saturating_mul(to_u64(size_of::<T>()));
        self.check(bytes)?;
        list.try_reserve(more).map_err(|_| Short(bytes))
    }

    /// Makes room for `more` keys.
    pub(crate) fn reserve_keys<V, S: BuildHasher>(
        &self,
        map: &mut HashMap<u64, V, S>,
        more: usize,
    ) -> Result<(), Short> {
        if map.capacity() - map.len() >= more {
            return Ok(());
        }
        // Buckets are a power of two, of which seven eighths are used; each has a byte of its own.
        let keys = to_u64(map.len()).saturating_add(to_u64(more));
        let buckets = (keys.saturating_mul(8) / 7 + 1).checked_next_power_of_two();
        let bytes = buckets.unwrap_or(u64::MAX).saturating_mul(to_u64(size_of::<(u64, V)>()) + 1);
        self.check(bytes)?;
        map.try_reserve(more).map_err(|_| Short(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, DefaultHasher};

    use super::*;

    #[test]
    fn a_table_that_does_not_fit_is_an_error() {
        let (enough, little) = (Memory::new(|| Some(1 << 20)), Memory::new(|| Some(100)));
        let mut list = vec![1u64; 8];
        assert_eq!(enough.reserve(&mut list, 5), Ok(()));
        assert!(list.capacity() >= 13);
        assert_eq!(little.reserve(&mut list, 5), Ok(()), "there is room already");
        list.resize(list.capacity(), 0);
        assert!(little.reserve(&mut list, 1).unwrap_err().0 > 100);
        assert!(Memory::new(|| None).reserve(&mut list, usize::MAX / 16).is_err());
        let mut map: HashMap<u64, u32, BuildHasherDefault<DefaultHasher>> = HashMap::default();
        assert!(little.reserve_keys(&mut map, 100).is_err());
        assert_eq!(enough.reserve_keys(&mut map, 100), Ok(()));
        assert_eq!(little.reserve_keys(&mut map, 100), Ok(()));
    }
}
