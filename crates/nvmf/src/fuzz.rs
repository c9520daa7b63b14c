//! Fuzz targets: any bytes in place of a stream, a structure of the wire, a file of reservations, or a text that a user
//! gives. Each says whether they were accepted. Run by `fuzz/`, and on their corpora by the test below.
//!
//! 1. No bytes make a target panic.
//! 2. Accepted bytes are encoded to bytes that decode to the same.

#![allow(unreachable_pub)] // public for `fuzz/` alone

mod stream;

use esker_base::checksum::{crc32c, crc32c_append};

use crate::InitiatorConfig;
use crate::auth::secret::Secret;
use crate::target::reservation::omf as reservations;
use crate::tls::key::TlsKey;
use crate::wire::auth::Message;
use crate::wire::capsule::{Cqe, Sqe};
use crate::wire::command::{CopyArguments, LbaRange, dsm_ranges, source_ranges};
use crate::wire::{command, fabrics, identify, log, nqn, pdu};

pub use stream::{nvmf_controller, nvmf_host};

/// A command with its data, and a completion.
pub fn nvmf_command(data: &[u8]) -> bool {
    let Ok(sqe) = Sqe::decode(data) else { return false };
    assert_eq!(Sqe::decode(&sqe.encode()).as_ref(), Ok(&sqe));
    let range = LbaRange::of(&sqe);
    assert_eq!(LbaRange::of(&range.put(Sqe::new(sqe.opcode, 1))), range);
    let copy = CopyArguments::of(&sqe);
    assert_eq!(CopyArguments::of(&copy.put(Sqe::new(sqe.opcode, 1))), copy);
    let payload = &data[64..];
    let ranges = dsm_ranges(&sqe, payload).map_or(0, |ranges| ranges.len());
    let sources = source_ranges(copy.ranges, payload).map_or(0, |ranges| ranges.len());
    assert!(16 * ranges <= payload.len() && 32 * sources <= payload.len());
    if let Ok(cqe) = Cqe::decode(payload) {
        assert_eq!(Cqe::decode(&cqe.encode()), Ok(cqe));
    }
    true
}

/// A structure of the wire, which the first byte chooses.
pub fn nvmf_structure(data: &[u8]) -> bool {
    let Some((&kind, bytes)) = data.split_first() else { return false };
    macro_rules! same {
        ($($number:literal $name:path,)*) => {
            match kind {
                $($number => <$name>::decode(bytes).is_ok_and(|found| {
                    assert_eq!(<$name>::decode(&found.encode()).as_ref(), Ok(&found));
                    true
                }),)*
                _ => false,
            }
        };
    }
    if let Some(page) = bytes.first_chunk::<{ identify::SIZE }>() {
        let _ = identify::format_in_use(page);
    }
    if let Some(field) = bytes.first_chunk::<{ nqn::FIELD_SIZE }>()
        && let Ok(name) = nqn::decode(field)
    {
        assert_eq!(nqn::check(&name), Ok(()));
    }
    let _ = (identify::uuid_of(bytes), crate::wire::text(bytes));
    assert!(4 * identify::namespaces_of(bytes).len() <= bytes.len());
    same! {
        0 pdu::CommonHeader,
        1 pdu::IcReq,
        2 pdu::IcResp,
        3 pdu::TermReq,
        4 pdu::Transfer,
        5 fabrics::Connect,
        6 fabrics::ConnectData,
        7 fabrics::Property,
        8 fabrics::AuthTransfer,
        9 command::ReservationKeys,
        10 command::ReservationStatus,
        11 command::Registrant,
        12 identify::IdentifyController,
        13 identify::IdentifyNamespace,
        14 identify::IndependentNamespace,
        15 identify::NvmController,
        16 log::SmartLog,
        17 log::ErrorEntry,
        18 log::AnaHeader,
        19 log::AnaGroup,
        20 log::DiscoveryHeader,
        21 log::DiscoveryEntry,
    }
}

/// A message of DH-HMAC-CHAP.
pub fn nvmf_auth(data: &[u8]) -> bool {
    let Ok(Some(message)) = Message::decode(data) else { return false };
    assert_eq!(Message::decode(&message.encode()), Ok(Some(message)));
    true
}

/// The file of reservations, with its length and its checksum as they are, and with fitting ones.
pub fn nvmf_reservations(data: &[u8]) -> bool {
    let mut mended = data.to_vec();
    if let Some((head, body)) = mended.split_at_mut_checked(32) {
        head[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
        let crc = crc32c_append(crc32c(&head[..28]), body);
        head[28..].copy_from_slice(&crc.to_le_bytes());
    }
    let sound = |bytes: &[u8]| {
        let content = reservations::decode(bytes);
        if let Ok(content) = &content {
            let again = reservations::decode(&reservations::encode(content));
            assert_eq!(again.as_ref(), Ok(content));
        }
        content.is_ok()
    };
    sound(data) | sound(&mended)
}

/// A name, a secret, a key of TLS, or the rest of a URL behind an address, as a user says them.
pub fn nvmf_text(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let secret = Secret::parse(text);
    if let Ok(secret) = &secret {
        let shown = secret.to_text();
        assert!(Secret::parse(&shown).is_ok_and(|again| again.to_text() == shown));
    }
    let key = TlsKey::parse(text);
    if let Ok(key) = &key {
        let shown = key.to_text();
        assert!(TlsKey::parse(&shown).is_ok_and(|again| again.to_text() == shown));
    }
    // Names of hosts are looked up, and files of keys are read: not here.
    let url = format!("nvme-tcp://127.0.0.1:4421,[::1]/{text}");
    let config = (!text.contains("-file")).then(|| InitiatorConfig::parse(&url));
    let config = config.and_then(Result::ok);
    if let Some(config) = &config {
        assert!((1..=0xffff_fffe).contains(&config.nsid), "a namespace that can be there");
        let again = InitiatorConfig::parse(&config.url()).expect("what is shown is read");
        let InitiatorConfig { portals, nqn, nsid, .. } = &again;
        assert!((portals, nqn, nsid) == (&config.portals, &config.nqn, &config.nsid));
    }
    secret.is_ok() | key.is_ok() | config.is_some() | nqn::check(text).is_ok()
}

#[cfg(test)]
mod tests;
