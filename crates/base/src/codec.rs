//! The little-endian encoder and decoder under every media and wire format.
//!
//! [`Encoder`] appends to a byte vector; [`Decoder`] walks a byte slice and answers
//! [`Truncated`] instead of panicking, so any bytes at all may be decoded.

use thiserror::Error;

/// The bytes ended before the structure did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{what}: {needed} bytes needed at offset {offset}, {left} left")]
pub struct Truncated {
    /// The field that was being read.
    pub what: &'static str,
    /// Its offset in the slice.
    pub offset: usize,
    /// Its size in bytes.
    pub needed: usize,
    /// How many bytes were left.
    pub left: usize,
}

/// Appends little-endian integers and bytes to a vector.
#[derive(Debug, Default)]
pub struct Encoder(pub Vec<u8>);

macro_rules! put {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Appends a `", stringify!($type), "`.")]
        #[inline]
        pub fn $name(&mut self, value: $type) -> &mut Encoder {
            self.0.extend_from_slice(&value.to_le_bytes());
            self
        }
    )*};
}

impl Encoder {
    put!(u8: u8, u16: u16, u32: u32, u64: u64);

    /// Appends `bytes` as they are.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends `bytes` after their length as a `u16`.
    ///
    /// # Panics
    /// If there are more than 65,535 bytes: callers check their limits first.
    #[inline]
    pub fn bytes16(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.u16(u16::try_from(bytes.len()).expect("at most 65,535 bytes")).bytes(bytes)
    }

    /// Appends `value` as an unsigned LEB128 number of 1 to 10 bytes.
    #[inline]
    pub fn varint(&mut self, mut value: u64) -> &mut Encoder {
        loop {
            let low = u8::try_from(value & 0x7f).expect("seven bits");
            value >>= 7;
            if value == 0 {
                return self.u8(low);
            }
            self.u8(low | 0x80);
        }
    }
}

/// Reads little-endian integers and bytes from a slice.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
}

macro_rules! take {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Reads a `", stringify!($type), "`; `what` names it in the error.")]
        ///
        /// # Errors
        /// [`Truncated`] when the slice ends first.
        #[inline]
        pub fn $name(&mut self, what: &'static str) -> Result<$type, Truncated> {
            const SIZE: usize = size_of::<$type>();
            let bytes = self.bytes(SIZE, what)?;
            Ok(<$type>::from_le_bytes(bytes.try_into().expect("exactly SIZE bytes")))
        }
    )*};
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `bytes`.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, offset: 0 }
    }

    take!(u8: u8, u16: u16, u32: u32, u64: u64);

    /// Reads `count` bytes.
    ///
    /// # Errors
    /// [`Truncated`] when the slice ends first.
    #[inline]
    pub fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Truncated> {
        let left = self.bytes.len() - self.offset;
        if count > left {
            return Err(Truncated { what, offset: self.offset, needed: count, left });
        }
        let taken = &self.bytes[self.offset..self.offset + count];
        self.offset += count;
        Ok(taken)
    }

    /// Reads bytes after their length as a `u16`.
    ///
    /// # Errors
    /// [`Truncated`] when the slice ends first.
    #[inline]
    pub fn bytes16(&mut self, what: &'static str) -> Result<&'a [u8], Truncated> {
        let count = self.u16(what)?;
        self.bytes(usize::from(count), what)
    }

    /// Reads an unsigned LEB128 number. More than 64 bits are read as [`Truncated`].
    ///
    /// # Errors
    /// [`Truncated`] when the slice ends first or the number does not end.
    #[inline]
    pub fn varint(&mut self, what: &'static str) -> Result<u64, Truncated> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Truncated { what, offset: self.offset, needed: 1, left: 0 })
    }

    /// How many bytes were read.
    #[inline]
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many bytes are left.
    #[inline]
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_values_are_decoded() {
        let mut e = Encoder::default();
        e.u8(1)
            .u16(0x0203)
            .u32(0x0405_0607)
            .u64(u64::MAX)
            .bytes16(b"key")
            .varint(300)
            .varint(u64::MAX);
        let mut d = Decoder::new(&e.0);
        assert_eq!(d.u8("a"), Ok(1));
        assert_eq!(d.u16("b"), Ok(0x0203));
        assert_eq!(d.u32("c"), Ok(0x0405_0607));
        assert_eq!(d.u64("d"), Ok(u64::MAX));
        assert_eq!(d.bytes16("e"), Ok(&b"key"[..]));
        assert_eq!(d.varint("f"), Ok(300));
        assert_eq!(d.varint("g"), Ok(u64::MAX));
        assert_eq!(d.left(), 0);
    }

    #[test]
    fn a_short_slice_says_which_field_is_missing() {
        let error = Decoder::new(&[1, 2, 3]).u32("crc").unwrap_err();
        assert_eq!(error.to_string(), "crc: 4 bytes needed at offset 0, 3 left");
        assert!(Decoder::new(&[0x80; 12]).varint("n").is_err());
        assert!(Decoder::new(&[9, 0, 1]).bytes16("key").is_err());
    }

    #[test]
    fn a_number_has_64_bits_at_most() {
        let ending = |last: u8| {
            let mut bytes = [0x80; 10];
            bytes[9] = last;
            Decoder::new(&bytes).varint("n").ok()
        };
        assert_eq!(ending(1), Some(1 << 63));
        assert_eq!([ending(2), ending(3), ending(0x7f), ending(0x81)], [None; 4]);
    }
}
