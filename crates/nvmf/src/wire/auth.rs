//! The messages of DH-HMAC-CHAP (Base 2.1, 8.3.5.5).
//!
//! Every message begins with a type, an id, two reserved bytes, and a transaction id.

use esker_base::codec::{Decoder, Encoder, Truncated};

/// AUTH_TYPE: common messages.
const COMMON: u8 = 0x00;
/// AUTH_TYPE: messages of DH-HMAC-CHAP.
const DHCHAP: u8 = 0x01;
/// Authentication protocol id of DH-HMAC-CHAP.
const PROTOCOL: u8 = 0x01;
/// SECP of Authentication Send and Receive.
pub const SECURITY_PROTOCOL: u8 = 0xe9;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The host offers hashes and groups.
    Negotiate {
        /// Transaction.
        transaction: u16,
        /// Secure channel concatenation; 0 is none.
        secure_channel: u8,
        /// Hash ids, the host's preference first.
        hashes: Vec<u8>,
        /// Group ids, likewise.
        groups: Vec<u8>,
    },
    /// The controller chooses and challenges.
    Challenge {
        /// Transaction.
        transaction: u16,
        /// Hash id.
        hash: u8,
        /// Group id; 0 is none.
        group: u8,
        /// Sequence number.
        sequence: u32,
        /// The challenge, as long as the hash.
        challenge: Vec<u8>,
        /// The controller's public value; empty without a group.
        public: Vec<u8>,
    },
    /// The host answers, and challenges in turn if `challenge` is not `None`.
    Reply {
        /// Transaction.
        transaction: u16,
        /// Sequence number of the host's challenge.
        sequence: u32,
        /// The response.
        response: Vec<u8>,
        /// The host's challenge.
        challenge: Option<Vec<u8>>,
        /// The host's public value; empty without a group.
        public: Vec<u8>,
    },
    /// The controller accepts, and answers the host's challenge if there was one.
    Success1 {
        /// Transaction.
        transaction: u16,
        /// The response, or how long it would be.
        response: Result<Vec<u8>, u8>,
    },
    /// The host accepts the controller's response.
    Success2 {
        /// Transaction.
        transaction: u16,
    },
    /// One side gives up.
    Failure {
        /// Transaction.
        transaction: u16,
        /// Whether the host says so (AUTH_Failure2).
        is_host: bool,
        /// Why: see [`reason`].
        explanation: u8,
    },
}

/// Explanations of a failure (Figure 751); the reason code is always 1.
pub mod reason {
    /// Authentication failed.
    pub const FAILED: u8 = 0x01;
    /// The protocol is not usable.
    pub const PROTOCOL: u8 = 0x02;
    /// Secure channel concatenation does not match.
    pub const CONCATENATION: u8 = 0x03;
    /// No hash in common.
    pub const HASH: u8 = 0x04;
    /// No group in common.
    pub const GROUP: u8 = 0x05;
    /// The payload is wrong.
    pub const PAYLOAD: u8 = 0x06;
    /// The message is not expected.
    pub const MESSAGE: u8 = 0x07;
}

impl Message {
    /// The bytes of the message.
    ///
    /// # Panics
    /// If a response has more than 255 bytes, a public value more than 65,535, or more than 30
    /// ids are offered: no hash or group makes it so.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let size8 = |bytes: &[u8]| u8::try_from(bytes.len()).expect("at most 255 bytes");
        let size16 = |bytes: &[u8]| u16::try_from(bytes.len()).expect("at most 65,535 bytes");
        let mut e = Encoder::default();
        let mut head = |kind: u8, id: u8, transaction: u16| {
            e.u8(kind).u8(id).u16(0).u16(transaction);
        };
        match self {
            Message::Negotiate { transaction, secure_channel, hashes, groups } => {
                head(COMMON, 0x00, *transaction);
                e.u8(*secure_channel).u8(1);
                e.u8(PROTOCOL).u8(0).u8(size8(hashes)).u8(size8(groups));
                for ids in [hashes, groups] {
                    let mut list = [0; 30];
                    list[..ids.len()].copy_from_slice(ids);
                    e.bytes(&list);
                }
            }
            Message::Challenge { transaction, hash, group, sequence, challenge, public } => {
                head(DHCHAP, 0x01, *transaction);
                e.u8(size8(challenge)).u8(0).u8(*hash).u8(*group).u16(size16(public));
                e.u32(*sequence).bytes(challenge).bytes(public);
            }
            Message::Reply { transaction, sequence, response, challenge, public } => {
                head(DHCHAP, 0x02, *transaction);
                e.u8(size8(response)).u8(0).u8(u8::from(challenge.is_some())).u8(0);
                e.u16(size16(public)).u32(*sequence).bytes(response);
                match challenge {
                    Some(challenge) => e.bytes(challenge),
                    None => e.bytes(&vec![0; response.len()]),
                };
                e.bytes(public);
            }
            Message::Success1 { transaction, response } => {
                head(DHCHAP, 0x03, *transaction);
                let size = response.as_ref().map_or_else(|&size| size, |bytes| size8(bytes));
                e.u8(size).u8(0).u8(u8::from(response.is_ok())).bytes(&[0; 7]);
                if let Ok(response) = response {
                    e.bytes(response);
                }
            }
            Message::Success2 { transaction } => {
                head(DHCHAP, 0x04, *transaction);
                e.bytes(&[0; 10]);
            }
            Message::Failure { transaction, is_host, explanation } => {
                head(COMMON, if *is_host { 0xf0 } else { 0xf1 }, *transaction);
                e.u8(1).u8(*explanation);
            }
        }
        e.0
    }

    /// The message in `bytes`; `None` when it is of a type that is not known.
    ///
    /// # Errors
    /// When the bytes end first.
    pub fn decode(bytes: &[u8]) -> Result<Option<Message>, Truncated> {
        let mut d = Decoder::new(bytes);
        let (kind, id) = (d.u8("auth_type")?, d.u8("auth_id")?);
        d.u16("reserved")?;
        let transaction = d.u16("t_id")?;
        Ok(match (kind, id) {
            (COMMON, 0x00) => Some(negotiate(&mut d, transaction)?),
            (DHCHAP, 0x01) => Some(challenge(&mut d, transaction)?),
            (DHCHAP, 0x02) => Some(reply(&mut d, transaction)?),
            (DHCHAP, 0x03) => {
                let size = d.u8("hl")?;
                d.u8("reserved")?;
                let is_valid = d.u8("rvalid")? & 1 == 1;
                d.bytes(7, "reserved")?;
                let response = match is_valid {
                    true => Ok(d.bytes(usize::from(size), "response")?.to_vec()),
                    false => Err(size),
                };
                Some(Message::Success1 { transaction, response })
            }
            (DHCHAP, 0x04) => Some(Message::Success2 { transaction }),
            (COMMON, 0xf0 | 0xf1) => {
                d.u8("reason")?;
                let explanation = d.u8("explanation")?;
                Some(Message::Failure { transaction, is_host: id == 0xf0, explanation })
            }
            _ => None,
        })
    }
}

fn negotiate(d: &mut Decoder<'_>, transaction: u16) -> Result<Message, Truncated> {
    let secure_channel = d.u8("sc_c")?;
    let protocols = d.u8("napd")?;
    let (mut hashes, mut groups) = (Vec::new(), Vec::new());
    for _ in 0..protocols {
        let protocol = d.u8("authid")?;
        d.u8("reserved")?;
        let (halen, dhlen) = (d.u8("halen")?, d.u8("dhlen")?);
        let lists = (d.bytes(30, "hash ids")?, d.bytes(30, "group ids")?);
        if protocol == PROTOCOL {
            hashes = lists.0[..usize::from(halen.min(30))].to_vec();
            groups = lists.1[..usize::from(dhlen.min(30))].to_vec();
        }
    }
    Ok(Message::Negotiate { transaction, secure_channel, hashes, groups })
}

fn challenge(d: &mut Decoder<'_>, transaction: u16) -> Result<Message, Truncated> {
    let size = d.u8("hl")?;
    d.u8("reserved")?;
    let (hash, group, public_size) = (d.u8("hashid")?, d.u8("dhgid")?, d.u16("dhvlen")?);
    let sequence = d.u32("seqnum")?;
    let challenge = d.bytes(usize::from(size), "challenge")?.to_vec();
    let public = d.bytes(usize::from(public_size), "dhv")?.to_vec();
    Ok(Message::Challenge { transaction, hash, group, sequence, challenge, public })
}

fn reply(d: &mut Decoder<'_>, transaction: u16) -> Result<Message, Truncated> {
    let size = usize::from(d.u8("hl")?);
    d.u8("reserved")?;
    let is_mutual = d.u8("cvalid")? & 1 == 1;
    d.u8("reserved")?;
    let public_size = d.u16("dhvlen")?;
    let sequence = d.u32("seqnum")?;
    let response = d.bytes(size, "response")?.to_vec();
    let challenge = d.bytes(size, "challenge")?.to_vec();
    let public = d.bytes(usize::from(public_size), "dhv")?.to_vec();
    let challenge = is_mutual.then_some(challenge);
    Ok(Message::Reply { transaction, sequence, response, challenge, public })
}
