//! The finite-field Diffie-Hellman groups of RFC 7919, of which Base 2.1 (8.3.5.5.4) names five.
//!
//! The prime of the group with `b` bits is `2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1`: 64
//! ones, the first `b - 128` bits of Euler's number plus a small X, 64 ones. The generator is 2.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use data_encoding::HEXLOWER;

/// A group, by its id in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Group {
    /// No exchange: the challenge is answered as it is.
    Null = 0x00,
    /// 2,048 bits.
    Ffdhe2048 = 0x01,
    /// 3,072 bits.
    Ffdhe3072 = 0x02,
    /// 4,096 bits.
    Ffdhe4096 = 0x03,
    /// 6,144 bits.
    Ffdhe6144 = 0x04,
    /// 8,192 bits.
    Ffdhe8192 = 0x05,
}

/// Bytes of a private key: more than twice the strength of the strongest group (RFC 7919, 5.2).
const PRIVATE_SIZE: usize = 64;

/// The first 8,064 bits of Euler's number, from `10.` on.
const E: &str = "\
    adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef9\
    7d2fe363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3\
    b557135e7f57c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797a\
    bc0ab182b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb19\
    0b07a7c8ee0a6d709e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183\
    c3fe3b1b4c6fad733bb5fcbc2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdc\
    de355b3b6519035bbc34f4def99c023861b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91c\
    aefe130985139270b4130c93bc437944f4fd4452e2d74dd364f2e21e71f54bff5cae82ab9c9df69e\
    e86d2bc522363a0dabc521979b0deada1dbf9a42d5c4484e0abcd06bfa53ddef3c1b20ee3fd59d7c\
    25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6ac7d5f42d69f6d187763cf1d55034004\
    87f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c46dc778f971ad0038\
    092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a7f88a46b\
    4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a4e677d2c38532a3a23ba4442caf53ea6\
    3bb454329b7624c8917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e46041f\
    388147fb4cfdb477a52471f7a9a96910b855322edb6340d8a00ef092350511e30abec1fff9e3a26e\
    7fb29f8c183023c3587e38da0077d9b4763e4e4b94b2bbc194c6651e77caf992eeaac0232a281bf6\
    b3a739c1226116820ae8db5847a67cbef9c9091b462d538cd72b03746ae77f5e62292c311562a846\
    505dc82db854338ae49f5235c95b91178ccf2dd5cacef403ec9d1810c6272b045b3b71f9dc6b80d6\
    3fdd4a8e9adb1e6962a69526d43161c1a41d570d7938dad4a40e329ccff46aaa36ad004cf600c838\
    1e425a31d951ae64fdb23fcec9509d43687feb69edd1cc5e0b8cc3bdf64b10ef86b63142a3ab8829\
    555b2f747c932665cb2c0f1cc01bd70229388839d2af05e454504ac78b7582822846c0ba35c35f5c\
    59160cc046fd8251541fc68c9c86b022bb7099876a460e7451a8a93109703fee1c217e6c3826e52c\
    51aa691e0e423cfc99e9e31650c1217b624816cdad9a95f9d5b8019488d9c0a0a1fe3075a577e231\
    83f81d4a3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe58a30fafabe1c5d71a87e\
    2f741ef8c1fe86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88c\
    d68c8bb7c51eef6d";

impl Group {
    /// Every group, the strongest first.
    pub const ALL: [Group; 6] = [
        Group::Ffdhe8192,
        Group::Ffdhe6144,
        Group::Ffdhe4096,
        Group::Ffdhe3072,
        Group::Ffdhe2048,
        Group::Null,
    ];

    /// The group with this id.
    #[must_use]
    pub fn from_u8(id: u8) -> Option<Group> {
        Group::ALL.into_iter().find(|group| *group as u8 == id)
    }

    /// Bytes of the prime, and the small number in it.
    fn shape(self) -> (usize, u32) {
        match self {
            Group::Null => (0, 0),
            Group::Ffdhe2048 => (256, 560_316),
            Group::Ffdhe3072 => (384, 2_625_351),
            Group::Ffdhe4096 => (512, 5_736_041),
            Group::Ffdhe6144 => (768, 15_705_020),
            Group::Ffdhe8192 => (1024, 10_965_728),
        }
    }

    /// The prime, big-endian.
    fn prime(self) -> Vec<u8> {
        let (size, small) = self.shape();
        let digits = &E.as_bytes()[..2 * (size - 16)];
        let mut middle = HEXLOWER.decode(digits).expect("digits");
        let mut carry = small - 1; // the last 64 ones are one less than a multiple of 2^64
        for byte in middle.iter_mut().rev() {
            let [low, a, b, c] = (u32::from(*byte) + carry).to_le_bytes();
            *byte = low;
            carry = u32::from_le_bytes([a, b, c, 0]);
        }
        [vec![0xff; 8], middle, vec![0xff; 8]].concat()
    }
}

/// A private key with its public value.
pub(crate) struct KeyPair {
    params: BoxedMontyParams,
    size: usize,
    private: BoxedUint,
    pub(crate) public: Vec<u8>,
}

impl KeyPair {
    /// A key pair of a group from random bytes; `None` for the null group.
    pub(crate) fn new(group: Group, random: &[u8; PRIVATE_SIZE]) -> Option<KeyPair> {
        let (size, _) = group.shape();
        if size == 0 {
            return None;
        }
        let number = |bytes: &[u8], size: usize| {
            let bits = u32::try_from(size * 8).expect("at most 8,192 bits");
            BoxedUint::from_be_slice(bytes, bits).expect("as many bits as bytes")
        };
        let prime = Odd::new(number(&group.prime(), size)).expect("the primes are odd");
        let params = BoxedMontyParams::new(prime);
        let private = number(random, PRIVATE_SIZE);
        let mut two = vec![0; size];
        two[size - 1] = 2;
        let public = BoxedMontyForm::new(number(&two, size), &params).pow(&private).retrieve();
        let public = public.to_be_bytes().into_vec();
        Some(KeyPair { params, size, private, public })
    }

    /// The secret that both ends know, from the other's public value; `None` when that is no
    /// member of the group worth the name: below 2 or above p - 2.
    pub(crate) fn shared(&self, public: &[u8]) -> Option<Vec<u8>> {
        if public.len() != self.size {
            return None;
        }
        let bits = u32::try_from(self.size * 8).expect("at most 8,192 bits");
        let public = BoxedUint::from_be_slice(public, bits).ok()?;
        let one = BoxedUint::one_with_precision(bits);
        let last = self.params.modulus().as_ref().wrapping_sub(&one);
        if public <= one || public >= last {
            return None;
        }
        let shared = BoxedMontyForm::new(public, &self.params).pow(&self.private).retrieve();
        Some(shared.to_be_bytes().into_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primes_are_those_of_rfc_7919() {
        // The last bytes before the trailing ones, as printed in appendix A.
        let tails = [
            (Group::Ffdhe2048, [0x61, 0x28, 0x5c, 0x97]),
            (Group::Ffdhe3072, [0x66, 0xc6, 0x2e, 0x37]),
            (Group::Ffdhe4096, [0x5e, 0x65, 0x5f, 0x6a]),
            (Group::Ffdhe6144, [0xd0, 0xe4, 0x0e, 0x65]),
            (Group::Ffdhe8192, [0xc5, 0xc6, 0x42, 0x4c]),
        ];
        for (group, tail) in tails {
            let prime = group.prime();
            assert_eq!(prime.len(), group.shape().0);
            assert_eq!(prime[prime.len() - 12..prime.len() - 8], tail, "{group:?}");
            assert_eq!(prime[8..12], [0xad, 0xf8, 0x54, 0x58]);
        }
    }

    #[test]
    fn both_ends_come_to_the_same_secret_and_bad_values_are_refused() {
        for group in [Group::Ffdhe2048, Group::Ffdhe3072] {
            let a = KeyPair::new(group, &[0x5a; 64]).unwrap();
            let b = KeyPair::new(group, &[0xc3; 64]).unwrap();
            assert_eq!(a.shared(&b.public).unwrap(), b.shared(&a.public).unwrap());
            assert_eq!(a.public.len(), group.shape().0);
            let mut one = vec![0; a.public.len()];
            assert!(a.shared(&one).is_none());
            *one.last_mut().unwrap() = 1;
            assert!(a.shared(&one).is_none());
            assert!(a.shared(&group.prime()).is_none() && a.shared(&[2]).is_none());
        }
        assert!(KeyPair::new(Group::Null, &[1; 64]).is_none());
    }
}
