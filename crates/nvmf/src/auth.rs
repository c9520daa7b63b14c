//! DH-HMAC-CHAP (Base 2.1, 8.3.5): each end proves that it knows a secret, without telling it.
//!
//! The messages are in `wire::auth`; [`Verifier`] is the controller's side of the exchange and
//! [`Prover`] the host's, both without a connection: messages in, messages out.
//!
//! With a Diffie-Hellman group an eavesdropper cannot even try secrets at home. The secrets themselves
//! have the form in which nvme-cli and the kernel take them, `DHHC-1:hh:base64:`.

mod group;
pub(crate) mod secret;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};

pub use group::Group;
use group::KeyPair;
pub use secret::Secret;

use crate::error::NvmfError;
use crate::socket::random;
use crate::wire::auth::{Message, reason};

/// A hash function, by its id in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 0x01,
    /// SHA-384.
    Sha384 = 0x02,
    /// SHA-512.
    Sha512 = 0x03,
}

impl Hash {
    /// Every hash function, the strongest first.
    pub const ALL: [Hash; 3] = [Hash::Sha512, Hash::Sha384, Hash::Sha256];

    /// The hash function with this id.
    #[must_use]
    pub fn from_u8(id: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| *hash as u8 == id)
    }

    /// Bytes of a digest.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Hash::Sha256 => Sha256::digest(bytes).to_vec(),
            Hash::Sha384 => Sha384::digest(bytes).to_vec(),
            Hash::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        fn run<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
            let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key of any size");
            parts.iter().for_each(|part| mac.update(part));
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Hash::Sha256 => run::<Hmac<Sha256>>(key, parts),
            Hash::Sha384 => run::<Hmac<Sha384>>(key, parts),
            Hash::Sha512 => run::<Hmac<Sha512>>(key, parts),
        }
    }
}

/// Whose response it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Host,
    Controller,
}

/// Terms that both ends agreed on.
#[derive(Clone, Copy)]
struct Terms {
    hash: Hash,
    transaction: u16,
    sequence: u32,
}

/// The names of both ends.
#[derive(Clone, Debug)]
pub struct Names {
    /// The host's NQN.
    pub host: String,
    /// The subsystem's NQN.
    pub subsystem: String,
}

/// The response to a challenge (8.3.5.5.4 and 5).
fn response(
    terms: Terms,
    role: Role,
    names: &Names,
    secret: &Secret,
    challenge: &[u8],
    shared: Option<&[u8]>,
) -> Vec<u8> {
    let Terms { hash, transaction, sequence } = terms;
    let (own, title, other): (&str, &[u8], &str) = match role {
        Role::Host => (&names.host, b"HostHost", &names.subsystem),
        Role::Controller => (&names.subsystem, b"Controller", &names.host),
    };
    let augmented;
    let challenge = match shared {
        Some(shared) => {
            augmented = hash.hmac(&hash.digest(shared), &[challenge]);
            &augmented
        }
        None => challenge,
    };
    let parts: [&[u8]; 8] = [
        challenge,
        &sequence.to_le_bytes(),
        &transaction.to_le_bytes(),
        &[0], // no secure channel
        title,
        own.as_bytes(),
        &[0],
        other.as_bytes(),
    ];
    hash.hmac(&secret.transformed(own), &parts)
}

/// Compares without telling by the time it takes where the difference is.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

fn challenge(hash: Hash) -> Result<Vec<u8>, NvmfError> {
    let mut bytes = vec![0; hash.size()];
    random(&mut bytes).map_err(|error| NvmfError::os("random numbers", &error))?;
    Ok(bytes)
}

fn key_pair(group: Group) -> Result<Option<KeyPair>, NvmfError> {
    let mut bytes = [0; 64];
    random(&mut bytes).map_err(|error| NvmfError::os("random numbers", &error))?;
    Ok(KeyPair::new(group, &bytes))
}

/// A sequence number that is not zero, which stands for no challenge.
fn sequence() -> Result<u32, NvmfError> {
    let mut bytes = [0; 4];
    random(&mut bytes).map_err(|error| NvmfError::os("random numbers", &error))?;
    Ok(u32::from_le_bytes(bytes).max(1))
}

enum Stage {
    Negotiate,
    Reply { terms: Terms, challenge: Vec<u8>, keys: Option<KeyPair> },
    Success2,
    Done,
    Failed,
}

/// The controller's side.
pub struct Verifier {
    names: Names,
    secret: Secret,
    controller_secret: Option<Secret>,
    stage: Stage,
    is_proved: bool,
    /// The message that the host has to fetch next.
    outgoing: Option<Message>,
    transaction: u16,
}

impl Verifier {
    /// Asks for proof of `secret`, and can prove `controller_secret`.
    #[must_use]
    pub fn new(names: Names, secret: Secret, controller_secret: Option<Secret>) -> Verifier {
        let (stage, outgoing) = (Stage::Negotiate, None);
        let (is_proved, transaction) = (false, 0);
        Verifier { names, secret, controller_secret, stage, is_proved, outgoing, transaction }
    }

    /// Whether the host has proved its identity. While it proves it again it still has, until that
    /// fails.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_proved && !self.has_failed()
    }

    /// Whether it has failed to: the connection is to be closed once the host was told.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Failed)
    }

    /// Takes a message of the host.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), NvmfError> {
        let message = match Message::decode(bytes) {
            Ok(Some(message)) => message,
            Ok(None) => return self.fail(reason::MESSAGE),
            Err(_) => return self.fail(reason::PAYLOAD),
        };
        match (std::mem::replace(&mut self.stage, Stage::Failed), message) {
            // A queue that is authenticated may be authenticated again.
            (
                Stage::Negotiate | Stage::Done,
                Message::Negotiate { transaction, secure_channel, hashes, groups },
            ) => {
                self.transaction = transaction;
                self.negotiate(secure_channel, &hashes, &groups)?;
            }
            (
                Stage::Reply { terms, challenge, keys },
                Message::Reply {
                    transaction,
                    sequence,
                    response: given,
                    challenge: theirs,
                    public,
                },
            ) if transaction == self.transaction => {
                let shared = match &keys {
                    None if public.is_empty() => None,
                    None => return self.fail(reason::PAYLOAD),
                    Some(keys) => match keys.shared(&public) {
                        Some(shared) => Some(shared),
                        None => return self.fail(reason::PAYLOAD),
                    },
                };
                let shared = shared.as_deref();
                let (names, secret) = (&self.names, &self.secret);
                let right = response(terms, Role::Host, names, secret, &challenge, shared);
                if !is_same(&right, &given) {
                    return self.fail(reason::FAILED);
                }
                let answer = match (theirs, &self.controller_secret) {
                    (None, _) => Err(u8::try_from(terms.hash.size()).expect("at most 64")),
                    (Some(_), None) => return self.fail(reason::FAILED),
                    (Some(theirs), Some(secret)) => {
                        let terms = Terms { sequence, ..terms };
                        Ok(response(terms, Role::Controller, names, secret, &theirs, shared))
                    }
                };
                self.stage = if answer.is_ok() { Stage::Success2 } else { Stage::Done };
                self.is_proved = true;
                self.outgoing = Some(Message::Success1 { transaction, response: answer });
            }
            (Stage::Success2, Message::Success2 { .. }) => self.stage = Stage::Done,
            (_, Message::Failure { .. }) => {}
            _ => return self.fail(reason::MESSAGE),
        }
        Ok(())
    }

    /// Gives up; the host is told why.
    fn fail(&mut self, explanation: u8) -> Result<(), NvmfError> {
        self.stage = Stage::Failed;
        let transaction = self.transaction;
        self.outgoing = Some(Message::Failure { transaction, is_host: false, explanation });
        Ok(())
    }

    fn negotiate(&mut self, channel: u8, hashes: &[u8], groups: &[u8]) -> Result<(), NvmfError> {
        if channel != 0 {
            return self.fail(reason::CONCATENATION);
        }
        let Some(hash) = hashes.iter().find_map(|&id| Hash::from_u8(id)) else {
            return self.fail(reason::HASH);
        };
        // The host's first choice costs it and us the least; null only if nothing else is offered.
        let known = || groups.iter().filter_map(|&id| Group::from_u8(id));
        let Some(group) = known().find(|&group| group != Group::Null).or_else(|| known().next())
        else {
            return self.fail(reason::GROUP);
        };
        let (challenge, keys, sequence) = (challenge(hash)?, key_pair(group)?, sequence()?);
        self.outgoing = Some(Message::Challenge {
            transaction: self.transaction,
            hash: hash as u8,
            group: group as u8,
            sequence,
            challenge: challenge.clone(),
            public: keys.as_ref().map_or_else(Vec::new, |keys| keys.public.clone()),
        });
        let terms = Terms { hash, transaction: self.transaction, sequence };
        self.stage = Stage::Reply { terms, challenge, keys };
        Ok(())
    }

    /// The message that the host has to fetch; without one, the host asked out of turn.
    #[must_use]
    pub fn outgoing(&self) -> Option<Vec<u8>> {
        self.outgoing.as_ref().map(Message::encode)
    }

    /// The host has fetched the message.
    pub fn sent(&mut self) {
        self.outgoing = None;
    }
}

/// The host's side.
pub struct Prover {
    names: Names,
    secret: Secret,
    controller_secret: Option<Secret>,
    transaction: u16,
    expected: Option<Vec<u8>>,
}

impl Prover {
    /// Proves `secret`, and asks for proof of `controller_secret` if there is one.
    #[must_use]
    pub fn new(names: Names, secret: Secret, controller_secret: Option<Secret>) -> Prover {
        Prover { names, secret, controller_secret, transaction: 1, expected: None }
    }

    /// The message to begin with.
    #[must_use]
    pub fn negotiate(&self) -> Vec<u8> {
        let message = Message::Negotiate {
            transaction: self.transaction,
            secure_channel: 0,
            hashes: Hash::ALL.iter().rev().map(|hash| *hash as u8).collect(),
            groups: Group::ALL.iter().rev().map(|group| *group as u8).collect(),
        };
        message.encode()
    }

    /// The reply to the controller's challenge.
    ///
    /// # Errors
    /// When it is no challenge, or one that cannot be answered.
    pub fn reply(&mut self, bytes: &[u8]) -> Result<Vec<u8>, NvmfError> {
        let refused = |what: &str| Err(NvmfError::Authentication(what.to_owned()));
        let (hash, group, terms_sequence, theirs, public) = match Message::decode(bytes) {
            Ok(Some(Message::Challenge { hash, group, sequence, challenge, public, .. })) => {
                (hash, group, sequence, challenge, public)
            }
            Ok(Some(Message::Failure { explanation, .. })) => return Err(given_up(explanation)),
            _ => return refused("the controller sent no challenge"),
        };
        let (Some(hash), Some(group)) = (Hash::from_u8(hash), Group::from_u8(group)) else {
            return refused("the controller chose a hash or group that was not offered");
        };
        let keys = key_pair(group)?;
        let shared = match &keys {
            Some(keys) => match keys.shared(&public) {
                Some(shared) => Some(shared),
                None => return refused("the controller's public value is not usable"),
            },
            None => None,
        };
        let shared = shared.as_deref();
        let mut terms = Terms { hash, transaction: self.transaction, sequence: terms_sequence };
        let own = response(terms, Role::Host, &self.names, &self.secret, &theirs, shared);
        let mut challenge_back = None;
        terms.sequence = 0;
        if let Some(secret) = &self.controller_secret {
            let mine = challenge(hash)?;
            terms.sequence = sequence()?;
            let right = response(terms, Role::Controller, &self.names, secret, &mine, shared);
            self.expected = Some(right);
            challenge_back = Some(mine);
        }
        let message = Message::Reply {
            transaction: self.transaction,
            sequence: terms.sequence,
            response: own,
            challenge: challenge_back,
            public: keys.map_or_else(Vec::new, |keys| keys.public),
        };
        Ok(message.encode())
    }

    /// Checks the controller's answer to the reply. Returns the last message to send, if the
    /// controller waits for one.
    ///
    /// # Errors
    /// When the controller does not accept the host, or cannot prove its own identity.
    pub fn finish(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, NvmfError> {
        let given = match Message::decode(bytes) {
            Ok(Some(Message::Success1 { response, .. })) => response.ok(),
            Ok(Some(Message::Failure { explanation, .. })) => return Err(given_up(explanation)),
            _ => {
                let what = "the controller sent neither success nor failure".to_owned();
                return Err(NvmfError::Authentication(what));
            }
        };
        match (&self.expected, given) {
            (None, _) => Ok(None),
            (Some(right), Some(given)) if is_same(right, &given) => {
                Ok(Some(Message::Success2 { transaction: self.transaction }.encode()))
            }
            _ => Err(NvmfError::Authentication(format!(
                "{} does not know its secret: check the controller's key",
                self.names.subsystem
            ))),
        }
    }
}

fn given_up(explanation: u8) -> NvmfError {
    let why = match explanation {
        reason::FAILED => "the controller does not accept the secret",
        reason::HASH => "no hash function in common",
        reason::GROUP => "no Diffie-Hellman group in common",
        reason::CONCATENATION => "the controller wants a secure channel",
        _ => "the controller did not understand",
    };
    NvmfError::Authentication(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(verifier: &mut Verifier) -> Option<Vec<u8>> {
        let message = verifier.outgoing();
        verifier.sent();
        message
    }

    fn names() -> Names {
        Names {
            host: "nqn.2026-01.io.esker:host".into(),
            subsystem: "nqn.2026-01.io.esker:s".into(),
        }
    }

    fn secret(byte: u8) -> Secret {
        Secret::new(&[byte; 32], None)
    }

    /// Runs an exchange; the result is the host's view, and whether the controller is content.
    fn exchange(
        host: (Secret, Option<Secret>),
        controller: (Secret, Option<Secret>),
    ) -> (Result<(), NvmfError>, bool) {
        let mut prover = Prover::new(names(), host.0, host.1);
        let mut verifier = Verifier::new(names(), controller.0, controller.1);
        verifier.receive(&prover.negotiate()).unwrap();
        let reply = prover.reply(&fetched(&mut verifier).unwrap()).unwrap();
        verifier.receive(&reply).unwrap();
        let outcome = prover.finish(&fetched(&mut verifier).unwrap()).map(|last| {
            if let Some(last) = last {
                verifier.receive(&last).unwrap();
            }
        });
        (outcome, verifier.is_done())
    }

    #[test]
    fn the_right_secrets_convince_and_wrong_ones_do_not() {
        let (outcome, is_done) = exchange((secret(1), None), (secret(1), None));
        assert!(outcome.is_ok() && is_done);
        let both = (secret(1), Some(secret(2)));
        let (outcome, is_done) = exchange(both.clone(), both.clone());
        assert!(outcome.is_ok() && is_done);
        let (outcome, is_done) = exchange((secret(3), None), (secret(1), None));
        assert!(outcome.is_err() && !is_done);
        let (outcome, _) = exchange((secret(1), Some(secret(9))), both);
        assert!(outcome.unwrap_err().to_string().contains("controller's key"));
        let (outcome, is_done) = exchange((secret(1), Some(secret(2))), (secret(1), None));
        assert!(outcome.is_err() && !is_done);
    }

    #[test]
    fn reauthenticating_host_stays_proved_until_that_fails() {
        let mut prover = Prover::new(names(), secret(1), None);
        let mut verifier = Verifier::new(names(), secret(1), None);
        for _ in 0..2 {
            verifier.receive(&prover.negotiate()).unwrap();
            let reply = prover.reply(&fetched(&mut verifier).unwrap()).unwrap();
            verifier.receive(&reply).unwrap();
            prover.finish(&fetched(&mut verifier).unwrap()).unwrap();
            assert!(verifier.is_done());
            verifier.receive(&prover.negotiate()).unwrap();
            assert!(verifier.is_done(), "commands go on meanwhile");
            let reply = prover.reply(&fetched(&mut verifier).unwrap()).unwrap();
            verifier.receive(&reply).unwrap();
            fetched(&mut verifier).unwrap();
            assert!(verifier.is_done());
        }
        verifier.receive(&prover.negotiate()).unwrap();
        let mut stranger = Prover::new(names(), secret(2), None);
        let reply = stranger.reply(&fetched(&mut verifier).unwrap()).unwrap();
        verifier.receive(&reply).unwrap();
        assert!(verifier.has_failed() && !verifier.is_done());
    }

    #[test]
    fn messages_out_of_turn_fail_the_exchange() {
        let mut verifier = Verifier::new(names(), secret(1), None);
        let success = Message::Success2 { transaction: 0 }.encode();
        verifier.receive(&success).unwrap();
        assert!(verifier.has_failed() && !verifier.is_done());
        assert!(fetched(&mut verifier).is_some());
        let mut verifier = Verifier::new(names(), secret(1), None);
        verifier.receive(&[1, 2, 3]).unwrap();
        assert!(verifier.has_failed());
    }
}
