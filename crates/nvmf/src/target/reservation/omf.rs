//! The file of reservations, byte by byte (`docs/format/reservations.md`).
//!
//! | offset | size | content |
//! | --- | --- | --- |
//! | 0 | 8 | magic `ESKRRESV` |
//! | 8 | 4 | version, 2 |
//! | 12 | 4 | how many devices |
//! | 16 | 8 | bytes after the header |
//! | 24 | 4 | zero |
//! | 28 | 4 | CRC-32C of the header before this field, and of all that follows the header |
//!
//! Then for each device, in the order of NQN and owner:
//!
//! | size | content |
//! | --- | --- |
//! | 2 + n | NQN of the subsystem, after its length |
//! | 1 | owner: 0 a number, 1 a device |
//! | 4 or 16 | the number of a namespace, or the UUID of a device |
//! | 4 | generation |
//! | 1 | type of the reservation, 0 without one |
//! | 16 | host identifier of its holder, zero without one |
//! | 4 | how many registrants |
//! | 24 each | host identifier (16), key (8) |
//!
//! Then how many numbers have had several devices without an identity (4), and for each of them the NQN after its
//! length (2 + n), the number (4), and how many devices had it before the latest one (8).
//!
//! Version 1 has no byte for the owner, which is a number, and ends with the last namespace.

use std::collections::BTreeMap;

use esker_base::checksum::{crc32c, crc32c_append};
use esker_base::codec::{Decoder, Encoder, Truncated};
use thiserror::Error;

use super::HostId;

const MAGIC: &[u8; 8] = b"ESKRRESV";
const VERSION: u32 = 2;
const HEADER_SIZE: usize = 32;
const REGISTRANT_SIZE: usize = 24;
const _: () = assert!(REGISTRANT_SIZE == size_of::<HostId>() + size_of::<u64>());

/// Whose reservations are in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Of the device that is served under this number first: version 1 knew no devices.
    Number(u32),
    /// Of the device with this UUID.
    Device([u8; 16]),
}

/// NQN of the subsystem, and the owner in it.
pub(crate) type Key = (String, Owner);

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileContent {
    pub(crate) records: BTreeMap<Key, Record>,
    /// How many devices without an identity had a number before its latest one, by NQN and number.
    pub(crate) devices_before: BTreeMap<(String, u32), u64>,
}

/// Persistent state of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) generation: u32,
    /// The type, and the holder.
    pub(crate) reservation: Option<(u8, HostId)>,
    pub(crate) registrants: Vec<(HostId, u64)>,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Damage {
    #[error("it does not begin as one, but with {0:02x?}")]
    Magic(Vec<u8>),
    #[error("it is of version {0}, and this program knows version {VERSION}")]
    Version(u32),
    #[error("it has {got} bytes, and says that it has {expected}")]
    Length { expected: u64, got: u64 },
    #[error("its checksum is {expected:#010x}, and its content has {got:#010x}")]
    Checksum { expected: u32, got: u32 },
    #[error("its checksum is right, and its content cannot be: {0}")]
    Content(&'static str),
    #[error(transparent)]
    Truncated(#[from] Truncated),
}

pub(crate) fn encode(content: &FileContent) -> Vec<u8> {
    let FileContent { records, devices_before } = content;
    let count = |n: usize| u32::try_from(n).expect("below 4 thousand million");
    let mut body = Encoder::default();
    for ((nqn, owner), record) in records {
        let (kind, holder) = record.reservation.unwrap_or_default();
        body.bytes16(nqn.as_bytes());
        match owner {
            Owner::Number(nsid) => body.u8(0).u32(*nsid),
            Owner::Device(uuid) => body.u8(1).bytes(uuid),
        };
        body.u32(record.generation).u8(kind).bytes(&holder);
        body.u32(count(record.registrants.len()));
        for (host, key) in &record.registrants {
            body.bytes(host).u64(*key);
        }
    }
    body.u32(count(devices_before.len()));
    for ((nqn, nsid), before) in devices_before {
        body.bytes16(nqn.as_bytes()).u32(*nsid).u64(*before);
    }
    let length = u64::try_from(body.0.len()).expect("64 bits");
    let mut file = Encoder::default();
    file.bytes(MAGIC).u32(VERSION).u32(count(records.len())).u64(length).u32(0);
    let crc = crc32c_append(crc32c(&file.0), &body.0);
    file.u32(crc).bytes(&body.0);
    file.0
}

pub(crate) fn decode(bytes: &[u8]) -> Result<FileContent, Damage> {
    let mut header = Decoder::new(bytes);
    let magic = header.bytes(8, "magic")?;
    if magic != MAGIC {
        return Err(Damage::Magic(magic.to_vec()));
    }
    let version = header.u32("version")?;
    if !(1..=VERSION).contains(&version) {
        return Err(Damage::Version(version));
    }
    let (count, length) = (header.u32("namespaces")?, header.u64("length")?);
    header.u32("zero")?;
    let expected = header.u32("checksum")?;
    let body = &bytes[HEADER_SIZE..];
    let got = u64::try_from(body.len()).expect("64 bits");
    if got != length {
        return Err(Damage::Length { expected: length, got });
    }
    let got = crc32c_append(crc32c(&bytes[..HEADER_SIZE - 4]), body);
    if got != expected {
        return Err(Damage::Checksum { expected, got });
    }
    let mut body = Decoder::new(body);
    let mut records = BTreeMap::new();
    for _ in 0..count {
        let nqn = nqn(&mut body)?;
        let owner = match if version == 1 { 0 } else { body.u8("owner")? } {
            0 => Owner::Number(body.u32("nsid")?),
            1 => Owner::Device(host(&mut body)?),
            _ => return Err(Damage::Content("an owner that is neither a number nor a device")),
        };
        let generation = body.u32("generation")?;
        let (kind, holder) = (body.u8("type")?, host(&mut body)?);
        let mut registrants = Vec::new();
        for _ in 0..body.u32("registrants")? {
            registrants.push((host(&mut body)?, body.u64("key")?));
        }
        let reservation = (kind != 0).then_some((kind, holder));
        if kind > super::EXCLUSIVE_ACCESS_ALL {
            return Err(Damage::Content("a type of reservation that does not exist"));
        }
        let is_held = |(_, holder)| registrants.iter().any(|&(host, _)| host == holder);
        if kind != 0 && kind < super::WRITE_EXCLUSIVE_ALL && !reservation.is_some_and(is_held) {
            return Err(Damage::Content("a reservation whose holder is not registered"));
        }
        records.insert((nqn, owner), Record { generation, reservation, registrants });
    }
    let mut devices_before = BTreeMap::new();
    let numbers = if version == 1 { 0 } else { body.u32("numbers")? };
    for _ in 0..numbers {
        devices_before.insert((nqn(&mut body)?, body.u32("nsid")?), body.u64("devices")?);
    }
    Ok(FileContent { records, devices_before })
}

fn nqn(from: &mut Decoder<'_>) -> Result<String, Damage> {
    let text = std::str::from_utf8(from.bytes16("nqn")?);
    Ok(text.map_err(|_| Damage::Content("an NQN is no text"))?.to_owned())
}

fn host(from: &mut Decoder<'_>) -> Result<HostId, Truncated> {
    Ok(from.bytes(size_of::<HostId>(), "host identifier")?.try_into().expect("16 bytes"))
}

#[cfg(test)]
mod tests {
    use esker_base::Rng;

    use super::*;
    use crate::target::reservation::Store;

    fn sample() -> FileContent {
        let one = Record {
            generation: 5,
            reservation: Some((1, [0xaa; 16])),
            registrants: vec![([0xaa; 16], 0x1122_3344_5566_7788), ([0xbb; 16], 9)],
        };
        let name = |n: u32| format!("nqn.2026-01.io.example:disk{n}");
        let records = BTreeMap::from([
            ((name(1), Owner::Device([0xdd; 16])), one),
            ((name(2), Owner::Number(7)), Record::default()),
        ]);
        FileContent { records, devices_before: BTreeMap::from([((name(2), 3), 2)]) }
    }

    /// The bytes of a dump: hexadecimal digits after the offset, as far as two spaces.
    fn dumped(name: &str) -> Vec<u8> {
        let path = format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let hex = lines.flat_map(|line| line[6..].split("  ").next().unwrap().split(' '));
        hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    #[test]
    fn file_of_version_1_has_the_reservations_of_numbers() {
        let FileContent { records, devices_before } =
            decode(&dumped("reservations-1.txt")).unwrap();
        let name = |n: u32| format!("nqn.2026-01.io.example:disk{n}");
        let owners: Vec<_> = records.keys().cloned().collect();
        assert_eq!(owners, [(name(1), Owner::Number(1)), (name(2), Owner::Number(7))]);
        let first = &records[&owners[0]];
        assert_eq!((first.generation, first.reservation), (5, Some((1, [0xaa; 16]))));
        assert!(first.registrants.len() == 2 && devices_before.is_empty());
    }

    #[test]
    fn reservations_of_a_number_become_those_of_its_first_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reservations");
        std::fs::write(&path, dumped("reservations-1.txt")).unwrap();
        let nqn = "nqn.2026-01.io.example:disk1";
        for _ in 0..2 {
            let store = Store::open(&path).unwrap();
            let first = store.claim(nqn, 1, [1; 16]).unwrap().unwrap();
            assert_eq!(first.registrants.len(), 2);
            assert_eq!(store.claim(nqn, 1, [2; 16]), Ok(None), "another device, under its number");
        }
    }

    #[test]
    fn the_file_is_that_of_the_golden_dump() {
        let bytes = encode(&sample());
        let mut out = String::from(
            "# Two owners: a device with a holder and a registrant, a number without; a number with devices before\n",
        );
        for (number, line) in bytes.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let what = match number {
                0 => "  magic, version, devices",
                1 => "  length, zero, checksum",
                2 => "  NQN after its length, owner, generation, type, holder, registrants ...",
                _ => "",
            };
            out += format!("{:04x}  {:<47}{what}", number * 16, hex.join(" ")).trim_end();
            out += "\n";
        }
        let path = format!("{}/testdata/reservations.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &out).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap() == out, "{path} differs:\n{out}");
        assert_eq!(decode(&bytes), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let bytes = encode(&sample());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(decode(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(decode(&longer), Err(Damage::Length { .. })));
    }

    #[test]
    fn content_that_cannot_be_is_refused_with_a_right_checksum_too() {
        let mut rng = Rng::new(1);
        let mut refused = 0;
        for _ in 0..5000 {
            let mut bytes = encode(&sample());
            let at = HEADER_SIZE + usize::try_from(rng.below(100)).unwrap();
            bytes[at] = rng.u64().to_le_bytes()[0];
            let crc = crc32c_append(crc32c(&bytes[..28]), &bytes[32..]);
            bytes[28..32].copy_from_slice(&crc.to_le_bytes());
            if decode(&bytes).is_err() {
                refused += 1;
            }
        }
        assert!(refused > 500, "{refused}");
    }
}
