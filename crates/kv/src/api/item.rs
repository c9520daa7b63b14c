//! Keys and values that reads return.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

macro_rules! bytes {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Vec<u8>);

        impl Deref for $name {
            type Target = [u8];
            fn deref(&self) -> &[u8] {
                &self.0
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "b\"{}\"", self.0.escape_ascii())
            }
        }

        impl From<Vec<u8>> for $name {
            fn from(bytes: Vec<u8>) -> $name {
                $name(bytes)
            }
        }

        impl From<&[u8]> for $name {
            fn from(bytes: &[u8]) -> $name {
                $name(bytes.to_vec())
            }
        }

        impl From<$name> for Vec<u8> {
            fn from(bytes: $name) -> Vec<u8> {
                bytes.0
            }
        }

        impl<B: AsRef<[u8]> + ?Sized> PartialEq<&B> for $name {
            fn eq(&self, other: &&B) -> bool {
                self.0 == other.as_ref()
            }
        }

        impl PartialEq<[u8]> for $name {
            fn eq(&self, other: &[u8]) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<Vec<u8>> for $name {
            fn eq(&self, other: &Vec<u8>) -> bool {
                self.0 == *other
            }
        }

        impl<const N: usize> PartialEq<[u8; N]> for $name {
            fn eq(&self, other: &[u8; N]) -> bool {
                self.0 == other
            }
        }
    };
}

bytes! {
    /// A key that was read: bytes, compared as such.
    Key
}

bytes! {
    /// A value that was read: bytes.
    Value
}
