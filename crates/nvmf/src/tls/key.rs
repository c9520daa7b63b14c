//! Keys in the form `NVMeTLSkey-1:hh:base64:`, and the PSKs derived from them (TP 8018).
//!
//! ```text
//! configured PSK --(hh: 01 SHA-256, 02 SHA-384, 00 none; host NQN)--> retained PSK
//! retained PSK --(hash; identity, or digest)--> PSK of TLS
//! ```
//!
//! Both steps are HKDF-Extract without salt, and HKDF-Expand-Label of TLS 1.3 (RFC 8446, 7.1). The
//! identity names the version of this, the hash, both NQNs and, in version 1, a digest of the retained
//! PSK. `libnvme` before 1.16 made the label's structure wrong ([`Derivation::Old`]).

use std::fmt;
use std::path::Path;

use data_encoding::BASE64;

use super::Peer;
use crate::auth::Hash;
use crate::auth::secret::{crc32, read_private};
use crate::error::NvmfError;

/// How the structure under HKDF-Expand-Label is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Derivation {
    /// As RFC 8446 says.
    #[default]
    Standard,
    /// As `libnvme` before 1.16 did: the length little-endian, label and context without theirs.
    Old,
}

/// A key that a host and a subsystem share.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsKey {
    configured: Vec<u8>,
    /// The hash that derives the retained PSK; without it, the retained PSK is the configured one.
    transform: Option<Hash>,
    /// The derivation that an identity means if it does not tell which.
    derivation: Derivation,
}

/// A PSK of TLS.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Psk {
    pub(crate) identity: String,
    pub(crate) key: Vec<u8>,
    /// SHA-256 or SHA-384, which go with the cipher suites.
    pub(crate) hash: Hash,
}

impl TlsKey {
    /// A key of 32 bytes, for SHA-256, or 48, for SHA-384; `is_retained` if hosts use it as it is.
    ///
    /// # Errors
    /// When it has another size.
    pub fn new(configured: &[u8], is_retained: bool) -> Result<TlsKey, NvmfError> {
        let hash = match configured.len() {
            32 => Hash::Sha256,
            48 => Hash::Sha384,
            other => {
                let why = format!("a TLS key has 32 or 48 bytes, not {other}");
                return Err(NvmfError::Config(why));
            }
        };
        let transform = (!is_retained).then_some(hash);
        Ok(TlsKey { configured: configured.to_vec(), transform, derivation: Derivation::Standard })
    }

    /// Returns the same key, with the derivation that an identity means if it does not tell which:
    /// those of version 0, and those of keys with 00.
    #[must_use]
    pub fn with_derivation(self, derivation: Derivation) -> TlsKey {
        TlsKey { derivation, ..self }
    }

    /// Reads a key as `nvme gen-tls-key` writes it.
    ///
    /// # Errors
    /// A sentence that names the fault in the text, without showing it.
    pub fn parse(text: &str) -> Result<TlsKey, NvmfError> {
        let wrong = |why: &str| {
            Err(NvmfError::Config(format!(
                "a TLS key looks like NVMeTLSkey-1:01:base64: but {why}"
            )))
        };
        let Some(rest) = text.trim().strip_prefix("NVMeTLSkey-1:") else {
            return wrong("this one does not begin with NVMeTLSkey-1:");
        };
        let Some((kind, rest)) = rest.split_once(':') else { return wrong("a colon is missing") };
        let transform = match kind {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            _ => return wrong("its hash is none of 00, 01 and 02"),
        };
        let Ok(bytes) = BASE64.decode(rest.trim_end_matches(':').as_bytes()) else {
            return wrong("its base64 is damaged");
        };
        let Some((configured, crc)) = bytes.split_last_chunk::<4>() else {
            return wrong("it is short");
        };
        if crc32(configured).to_le_bytes() != *crc {
            return wrong("its CRC-32 does not match: it was copied wrong");
        }
        let key = TlsKey::new(configured, transform.is_none())?;
        if transform.is_some() && key.transform != transform {
            return wrong("01 takes a key of 32 bytes, and 02 one of 48");
        }
        Ok(key)
    }

    /// Reads a key from a file that nobody but its owner can read.
    ///
    /// # Errors
    /// When the file cannot be read, others can read it too, or it holds something else.
    pub fn load(path: &Path) -> Result<TlsKey, NvmfError> {
        TlsKey::parse(&read_private(path)?)
    }

    /// The key as text, which [`TlsKey::parse`] reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        let kind = self.transform.map_or(0, |hash| hash as u8);
        let bytes = [&self.configured[..], &crc32(&self.configured).to_le_bytes()].concat();
        format!("NVMeTLSkey-1:{kind:02}:{}:", BASE64.encode(&bytes))
    }

    fn hash(&self) -> Hash {
        if self.configured.len() == Hash::Sha256.size() { Hash::Sha256 } else { Hash::Sha384 }
    }

    fn retained(&self, host: &str, derivation: Derivation) -> Vec<u8> {
        match self.transform {
            None => self.configured.clone(),
            Some(hash) => expand(hash, &self.configured, "HostNQN", host, derivation),
        }
    }

    /// The PSK of a version (0 or 1) for a host and a subsystem.
    fn psk(&self, version: u8, names: &Peer, derivation: Derivation) -> Psk {
        let (hash, Peer { host, subsystem }) = (self.hash(), names);
        let retained = self.retained(host, derivation);
        let kind = hash as u8;
        let mut identity = format!("NVMe{version}R{kind:02} {host} {subsystem}");
        let context = if version == 0 {
            identity.clone()
        } else {
            let said = [host.as_bytes(), b" ", subsystem.as_bytes(), b" NVMe-over-Fabrics"];
            let digest = BASE64.encode(&hash.hmac(&retained, &said));
            identity = format!("{identity} {digest}");
            format!("{kind:02} {digest}")
        };
        let key = expand(hash, &retained, "nvme-tls-psk", &context, derivation);
        Psk { identity, key, hash }
    }

    /// The PSK that a host offers: of version 1.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    pub(crate) fn offered(&self, names: &Peer) -> Psk {
        self.psk(1, names, self.derivation)
    }

    /// The PSK with this identity, if it is one of this key for these names.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    pub(crate) fn find(&self, identity: &str, names: &Peer) -> Option<Psk> {
        let other = match self.derivation {
            Derivation::Standard => Derivation::Old,
            Derivation::Old => Derivation::Standard,
        };
        let ways = [self.derivation, other].into_iter().flat_map(|one| [(1, one), (0, one)]);
        let mut psks = ways.map(|(version, derivation)| self.psk(version, names, derivation));
        psks.find(|psk| psk.identity == identity)
    }
}

/// The names in the identity of a PSK.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(crate) fn names_of(identity: &str) -> Option<Peer> {
    let mut words = identity.split(' ');
    let kind = words.next()?;
    if !(kind.starts_with("NVMe0R") || kind.starts_with("NVMe1R")) {
        return None; // generated PSKs, of version 0 or 1, are none of these
    }
    let (host, subsystem) = (words.next()?.to_owned(), words.next()?.to_owned());
    Some(Peer { host, subsystem })
}

/// HKDF-Extract without salt, and HKDF-Expand-Label to as many bytes as the hash has.
fn expand(
    hash: Hash,
    secret: &[u8],
    label: &str,
    context: &str,
    derivation: Derivation,
) -> Vec<u8> {
    let extracted = hash.hmac(&vec![0; hash.size()], &[secret]);
    let size = u16::try_from(hash.size()).expect("at most 64 bytes");
    let label = format!("tls13 {label}");
    // One byte each for the lengths: an identity of more than 255 bytes has its length cut, as both
    // ends do.
    let cut = |text: &str| [text.len().to_le_bytes()[0]];
    let (label_size, context_size) = (cut(&label), cut(context));
    let mut info: Vec<&[u8]> = Vec::new();
    let (big, little) = (size.to_be_bytes(), size.to_le_bytes());
    match derivation {
        Derivation::Standard => {
            info.extend([&big[..], &label_size, label.as_bytes(), &context_size]);
        }
        Derivation::Old => info.extend([&little[..], label.as_bytes()]),
    }
    info.extend([context.as_bytes(), &[1]]);
    hash.hmac(&extracted, &info)
}

/// Never shows the key.
impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsKey({} bytes)", self.configured.len())
    }
}

/// Never shows the key.
impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psk({})", self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Peer {
        let (host, subsystem) = ("nqn.2026-01.io.esker:host", "nqn.2026-01.io.esker:vol1");
        Peer { host: host.to_owned(), subsystem: subsystem.to_owned() }
    }

    #[test]
    fn a_key_is_read_as_it_was_written_and_damage_is_seen() {
        for (size, is_retained) in [(32, false), (48, false), (32, true), (48, true)] {
            let key = TlsKey::new(&vec![7; size], is_retained).unwrap();
            let text = key.to_text();
            assert_eq!(TlsKey::parse(&text).unwrap(), key);
            let damaged = text.replacen("BwcH", "BwcI", 1);
            assert!(TlsKey::parse(&damaged).unwrap_err().to_string().contains("copied wrong"));
            assert!(!format!("{key:?}").contains("BwcH"));
        }
        assert!(TlsKey::new(&[1; 33], false).is_err());
        let short = TlsKey::new(&[7; 32], false).unwrap().to_text().replacen(":01:", ":02:", 1);
        assert!(TlsKey::parse(&short).unwrap_err().to_string().contains("48"));
        assert!(TlsKey::parse("DHHC-1:00:AAAA:").is_err());
    }

    #[test]
    fn identities_tell_version_hash_and_names() {
        for (size, start) in [(32, "NVMe1R01 "), (48, "NVMe1R02 ")] {
            let key = TlsKey::new(&vec![1; size], false).unwrap();
            let psk = key.offered(&names());
            assert!(psk.identity.starts_with(start), "{}", psk.identity);
            assert_eq!((psk.key.len(), names_of(&psk.identity)), (size, Some(names())));
            assert_eq!(key.find(&psk.identity, &names()), Some(psk));
        }
        let key = TlsKey::new(&[1; 32], false).unwrap();
        let zero = format!("NVMe0R01 {} {}", names().host, names().subsystem);
        let standard = key.find(&zero, &names()).unwrap();
        let old = key.clone().with_derivation(Derivation::Old).find(&zero, &names()).unwrap();
        assert_ne!(standard.key, old.key);
        // The digest tells which of the derivations it is.
        let before = key.clone().with_derivation(Derivation::Old).offered(&names());
        assert_eq!(key.find(&before.identity, &names()), Some(before));
        let other = TlsKey::new(&[2; 32], false).unwrap();
        assert_eq!(other.find(&key.offered(&names()).identity, &names()), None);
        assert_eq!(names_of("NVMe0G01 a b"), None);
        assert_eq!(names_of("NVMe0R01 a"), None);
    }
}
