//! Pages and units by number.

use std::fmt;
use std::ops::{Add, AddAssign, Range, Sub};

/// A number of its own kind, of 32 bits.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as the index of an array.
            #[inline]
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// All from the first number of a range to its end, exclusive.
            pub fn all(numbers: Range<u32>) -> impl DoubleEndedIterator<Item = $name> + Clone {
                numbers.map($name)
            }
        }

        impl Add<u32> for $name {
            type Output = $name;

            #[inline]
            fn add(self, count: u32) -> $name {
                $name(self.0 + count)
            }
        }

        impl AddAssign<u32> for $name {
            #[inline]
            fn add_assign(&mut self, count: u32) {
                self.0 += count;
            }
        }

        impl Sub for $name {
            type Output = u32;

            /// How many lie between.
            #[inline]
            fn sub(self, before: $name) -> u32 {
                self.0 - before.0
            }
        }

        impl From<$name> for u64 {
            #[inline]
            fn from(number: $name) -> u64 {
                number.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A logical page: an address of the host in units of the mapping.
    LogicalPage
}
number! {
    /// A page of the media: `unit × unit_pages + page`.
    MediaPage
}
number! {
    /// A reclaim unit.
    UnitId
}

/// Where a logical page lies that was never written, or trimmed.
pub(super) const NOWHERE: MediaPage = MediaPage(u32::MAX);

impl UnitId {
    /// The first media page of the unit.
    #[inline]
    #[must_use]
    pub fn first_page(self, unit_pages: u32) -> MediaPage {
        MediaPage(self.0 * unit_pages)
    }
}
