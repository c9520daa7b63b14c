//! Every byte of NVMe over TCP, as plain structures. Nothing is laid out anywhere else.
//!
//! | module | content | specification |
//! | --- | --- | --- |
//! | [`pdu`] | the PDUs between TCP and the capsules | NVM Express TCP Transport 1.1, 3.6 |
//! | [`capsule`] | submission and completion queue entries, SGL descriptors | Base 2.1, 3.3 and 4.3 |
//! | [`nqn`] | names of hosts and subsystems | Base 2.1, 4.7 |
//! | [`fabrics`] | Connect, properties | Base 2.1, 6 and 3.1.4 |
//! | [`auth`] | the messages of DH-HMAC-CHAP | Base 2.1, 8.3.5.5 |
//! | [`identify`] | Identify data structures | Base 2.1, 5.1.13; NVM Command Set 1.1, 4.1.5 |
//! | [`log`] | log pages, and the values of asynchronous events | Base 2.1, 5.1.12 and 5.1.2 |
//! | [`feature`] | feature identifiers | Base 2.1, 5.1.25 |
//! | [`command`] | the arguments of I/O commands, reservations | NVM Command Set 1.1, 3.3; Base 2.1, 7 |
//! | [`status`] | status codes | Base 2.1, 4.2.3 |
//!
//! The log pages of data placement are in `esker_device::fdp::wire`.
//!
//! Invariants
//! 1. Integers are little-endian; reserved fields are written as zero.
//! 2. A structure is a table of offsets and fields, made by one macro: fields cannot overlap or
//!    leave the structure, which is checked when the crate is compiled.
//! 3. Decoders take any bytes at all and never panic.

pub mod auth;
pub mod capsule;
pub mod command;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod nqn;
pub mod pdu;
pub mod status;

/// A value at a fixed place of a structure.
pub trait Field: Sized {
    /// Reads it from exactly its size.
    fn get(bytes: &[u8]) -> Self;
    /// Writes it to exactly its size.
    fn put(&self, bytes: &mut [u8]);
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn get(bytes: &[u8]) -> $type {
                <$type>::from_le_bytes(bytes.try_into().expect("a field has its size"))
            }
            fn put(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128);

impl<const N: usize> Field for [u8; N] {
    fn get(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("a field has its size")
    }
    fn put(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self);
    }
}

/// Declares a structure from its table: `offset name: type`, each with its meaning.
macro_rules! structure {
    (
        $(#[$meta:meta])*
        $name:ident [$size:literal] {
            $($(#[$about:meta])* $offset:literal $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl $name {
            /// Its size in bytes.
            pub const SIZE: usize = $size;

            /// Offset, size and name of every field.
            pub const FIELDS: &[(usize, usize, &str)] =
                &[$(($offset, size_of::<$type>(), stringify!($field)),)*];

            /// The bytes of the structure.
            #[must_use]
            pub fn encode(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $($crate::wire::Field::put(
                    &self.$field,
                    &mut bytes[$offset..$offset + size_of::<$type>()],
                );)*
                bytes
            }

            /// The structure at the start of `bytes`.
            ///
            /// # Errors
            /// When there are fewer bytes than its size.
            pub fn decode(bytes: &[u8]) -> Result<$name, esker_base::codec::Truncated> {
                let bytes = esker_base::codec::Decoder::new(bytes).bytes($size, stringify!($name))?;
                Ok($name {
                    $($field: $crate::wire::Field::get(
                        &bytes[$offset..$offset + size_of::<$type>()],
                    ),)*
                })
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::decode(&[0; $size]).expect("as many bytes as its size")
            }
        }

        const _: () = {
            let mut end = 0;
            $(
                assert!($offset >= end, "fields overlap");
                end = $offset + size_of::<$type>();
            )*
            assert!(end <= $size, "a field leaves the structure");
        };
    };
}
pub(crate) use structure;

/// `text` padded with `pad` to `N` bytes; bytes that do not fit are cut off.
#[must_use]
pub fn padded<const N: usize>(text: &str, pad: u8) -> [u8; N] {
    let mut bytes = [pad; N];
    let size = text.len().min(N);
    bytes[..size].copy_from_slice(&text.as_bytes()[..size]);
    bytes
}

/// The text before the first zero byte, without trailing spaces; bytes that are not UTF-8 show as
/// replacement characters.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
}

/// `value` as 16 bits; the largest such number when it does not fit.
pub(crate) fn saturate16(value: u64) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}
