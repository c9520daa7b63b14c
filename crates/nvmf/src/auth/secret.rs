//! Secrets in the form `DHHC-1:hh:base64:` (Base 2.1, 8.3.5.8): the base64 is of the key and its
//! CRC-32, little-endian; `hh` names the hash that binds the key to its owner's NQN, 00 is none.

use std::fmt;
use std::path::Path;

use data_encoding::BASE64;
use esker_base::files;

use super::Hash;
use crate::error::NvmfError;

/// A secret of one end.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key: Vec<u8>,
    transform: Option<Hash>,
}

impl Secret {
    /// A secret from its key and the hash that binds it to its owner.
    #[must_use]
    pub fn new(key: &[u8], transform: Option<Hash>) -> Secret {
        Secret { key: key.to_vec(), transform }
    }

    /// Reads a secret as `nvme gen-dhchap-key` writes it.
    ///
    /// # Errors
    /// A sentence that names the fault in the text, without showing it.
    pub fn parse(text: &str) -> Result<Secret, NvmfError> {
        let wrong = |why: &str| {
            Err(NvmfError::Config(format!("a secret looks like DHHC-1:00:base64: but {why}")))
        };
        let Some(rest) = text.trim().strip_prefix("DHHC-1:") else {
            return wrong("this one does not begin with DHHC-1:");
        };
        let Some((kind, rest)) = rest.split_once(':') else { return wrong("a colon is missing") };
        let transform = match kind {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return wrong("its hash is none of 00, 01, 02 and 03"),
        };
        let Ok(bytes) = BASE64.decode(rest.trim_end_matches(':').as_bytes()) else {
            return wrong("its base64 is damaged");
        };
        let Some((key, crc)) = bytes.split_last_chunk::<4>() else { return wrong("it is short") };
        if ![32, 48, 64].contains(&key.len()) {
            return wrong("its key has not 32, 48 or 64 bytes");
        }
        if crc32(key).to_le_bytes() != *crc {
            return wrong("its CRC-32 does not match: it was copied wrong");
        }
        Ok(Secret { key: key.to_vec(), transform })
    }

    /// Reads a secret from a file that nobody but its owner can read.
    ///
    /// # Errors
    /// When the file cannot be read, others can read it too, or it holds something else.
    pub fn load(path: &Path) -> Result<Secret, NvmfError> {
        Secret::parse(&read_private(path)?)
    }

    /// The secret as text, which [`Secret::parse`] reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        let kind = self.transform.map_or(0, |hash| hash as u8);
        let bytes = [&self.key[..], &crc32(&self.key).to_le_bytes()].concat();
        format!("DHHC-1:{kind:02}:{}:", BASE64.encode(&bytes))
    }

    /// The key, bound to the NQN of its owner if it is to be (8.3.5.5.6).
    pub(super) fn transformed(&self, owner: &str) -> Vec<u8> {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[owner.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

/// The most bytes of a file with a key.
const FILE_MAX: u64 = 4096;

/// Reads a file that nobody but its owner can read.
pub(crate) fn read_private(path: &Path) -> Result<String, NvmfError> {
    let failed = |error| NvmfError::os(format!("reading the key {}", path.display()), &error);
    files::read_private(path, FILE_MAX).map_err(failed)
}

/// Never shows the key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.key.len())
    }
}

/// CRC-32 (IEEE 802.3, reflected), bit by bit: keys are short.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_knows_its_vector() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_secret_is_read_as_it_was_written_and_damage_is_seen() {
        for transform in [None, Some(Hash::Sha256), Some(Hash::Sha384)] {
            let secret = Secret::new(&[7; 48], transform);
            let text = secret.to_text();
            assert_eq!(Secret::parse(&text).unwrap(), secret);
            let damaged = text.replacen("BwcH", "BwcI", 1);
            assert!(Secret::parse(&damaged).unwrap_err().to_string().contains("copied wrong"));
        }
        assert!(Secret::parse("DHHC-1:00:AAAA:").is_err());
        assert!(!format!("{:?}", Secret::new(&[7; 32], None)).contains('7'));
    }
}
