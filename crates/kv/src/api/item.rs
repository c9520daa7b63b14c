//! Keys and values that reads return.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// So many bytes take no allocation.
const SHORT: usize = 30;

/// ByteBuf, in place where they are few.
#[derive(Clone)]
enum ByteBuf {
    Short(u8, [u8; SHORT]),
    Long(Vec<u8>),
}

impl ByteBuf {
    fn as_slice(&self) -> &[u8] {
        match self {
            ByteBuf::Short(size, bytes) => &bytes[..usize::from(*size)],
            ByteBuf::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for ByteBuf {
    fn from(slice: &[u8]) -> ByteBuf {
        match u8::try_from(slice.len()) {
            Ok(size) if slice.len() <= SHORT => {
                let mut bytes = [0; SHORT];
                bytes[..slice.len()].copy_from_slice(slice);
                ByteBuf::Short(size, bytes)
            }
            _ => ByteBuf::Long(slice.to_vec()),
        }
    }
}

macro_rules! bytes {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(ByteBuf);

        impl Default for $name {
            fn default() -> $name {
                $name(ByteBuf::Long(Vec::new()))
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                **self == **other
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &$name) -> Ordering {
                (**self).cmp(&**other)
            }
        }

        // As a slice, because it can be borrowed as one.
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }

        impl Deref for $name {
            type Target = [u8];
            fn deref(&self) -> &[u8] {
                self.0.as_slice()
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                self
            }
        }

        impl Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                self
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "b\"{}\"", self.escape_ascii())
            }
        }

        impl From<Vec<u8>> for $name {
            fn from(bytes: Vec<u8>) -> $name {
                $name(ByteBuf::Long(bytes))
            }
        }

        impl From<&[u8]> for $name {
            fn from(bytes: &[u8]) -> $name {
                $name(bytes.into())
            }
        }

        impl From<$name> for Vec<u8> {
            fn from(bytes: $name) -> Vec<u8> {
                match bytes.0 {
                    ByteBuf::Long(bytes) => bytes,
                    short => short.as_slice().to_vec(),
                }
            }
        }

        impl<B: AsRef<[u8]> + ?Sized> PartialEq<&B> for $name {
            fn eq(&self, other: &&B) -> bool {
                **self == *other.as_ref()
            }
        }

        impl PartialEq<[u8]> for $name {
            fn eq(&self, other: &[u8]) -> bool {
                **self == *other
            }
        }

        impl PartialEq<Vec<u8>> for $name {
            fn eq(&self, other: &Vec<u8>) -> bool {
                **self == **other
            }
        }

        impl<const N: usize> PartialEq<[u8; N]> for $name {
            fn eq(&self, other: &[u8; N]) -> bool {
                **self == other[..]
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::hash::DefaultHasher;

    fn hash(of: &(impl Hash + ?Sized)) -> u64 {
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn bytes_of_any_length_compare_and_hash_as_slices() {
        let all: Vec<Vec<u8>> = (0..100).map(|size| vec![b'x'; size]).collect();
        let keys: Vec<Key> = all.iter().map(|bytes| Key::from(&bytes[..])).collect();
        assert!(keys.is_sorted());
        let ordered: BTreeMap<Key, usize> = keys.iter().cloned().zip(0..).collect();
        for (bytes, key) in all.iter().zip(&keys) {
            assert_eq!(key, bytes);
            assert_eq!(*key, Key::from(bytes.clone()));
            assert_eq!(hash(key), hash(&bytes[..]));
            assert_eq!(ordered[&bytes[..]], bytes.len());
            assert_eq!(&Vec::from(key.clone()), bytes);
        }
        assert_eq!(format!("{:?}", Value::from(&b"a\n"[..])), "b\"a\\n\"");
        assert_eq!(Value::default().len(), 0);
    }
}
