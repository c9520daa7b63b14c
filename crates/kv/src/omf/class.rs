//! The class header, in the first LBA of each class device: which KVDB it belongs to.
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 8 | magic | `ESKMEDIA` |
//! | 8 | 2 | version | 1 |
//! | 10 | 1 | class | 0 staging, 1 capacity |
//! | 11 | 1 | | 0 |
//! | 12 | 4 | lba_size | bytes per LBA when it was written |
//! | 16 | 16 | uuid | of the KVDB |
//! | 32 | 4 | | 0 |
//! | 36 | 4 | crc | CRC-32C of bytes 0 to 35 |

use esker_base::checksum::crc32c;
use esker_base::codec::{Decoder, Encoder};

use super::{Malformed, expect, expect_crc, expect_magic, other_version};
use crate::types::class::MediaClass;
use crate::types::format::FormatVersion;

const MAGIC: &[u8; 8] = b"ESKMEDIA";
pub(crate) const SIZE: usize = 40;

/// The class header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassHeader {
    pub(crate) class: MediaClass,
    pub(crate) lba_size: u32,
    pub(crate) uuid: [u8; 16],
}

pub(crate) fn class_code(class: MediaClass) -> u8 {
    match class {
        MediaClass::Staging => 0,
        MediaClass::Capacity => 1,
    }
}

pub(crate) fn class_of(code: u8) -> Result<MediaClass, Malformed> {
    match code {
        0 => Ok(MediaClass::Staging),
        1 => Ok(MediaClass::Capacity),
        other => Err(Malformed(format!("media class 0 or 1 expected, {other} found"))),
    }
}

impl ClassHeader {
    /// The version of an intact header of another release.
    pub(crate) fn other_version(bytes: &[u8]) -> Option<u16> {
        other_version(bytes, MAGIC, SIZE, FormatVersion::V1)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        e.bytes(MAGIC)
            .u16(FormatVersion::V1.number())
            .u8(class_code(self.class))
            .u8(0)
            .u32(self.lba_size);
        e.bytes(&self.uuid).u32(0);
        let crc = crc32c(&e.0);
        e.u32(crc);
        assert_eq!(e.0.len(), SIZE);
        e.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<ClassHeader, Malformed> {
        let mut d = Decoder::new(bytes);
        let (magic, version) = (d.bytes(8, "magic")?, d.u16("version")?);
        expect_magic(magic, MAGIC, version, FormatVersion::V1)?;
        let class = d.u8("class")?;
        d.u8("reserved")?;
        let lba_size = d.u32("lba_size")?;
        let uuid = d.bytes(16, "uuid")?.try_into().expect("16 bytes");
        d.u32("reserved")?;
        expect_crc("class header", d.u32("crc")?, crc32c(&bytes[..SIZE - 4]))?;
        expect(lba_size.is_power_of_two(), || format!("LBA size {lba_size}"))?;
        Ok(ClassHeader { class: class_of(class)?, lba_size, uuid })
    }
}
