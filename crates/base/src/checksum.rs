//! CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): the checksum of every structure that
//! Esker writes to a medium, and the data digest of NVMe/TCP.

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use crc_fast::Digest;

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    low_half(crc_fast::checksum(Crc32Iscsi, bytes))
}

/// The CRC-32C of the bytes whose CRC is `crc` followed by `bytes`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // The register between two pieces is the CRC without its final inversion.
    let mut digest = Digest::new_with_init_state(Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    low_half(digest.finalize())
}

/// The library has one type for checksums of 16 to 64 bits.
#[expect(clippy::cast_possible_truncation, reason = "a CRC of 32 bits has no others")]
fn low_half(crc: u64) -> u32 {
    crc as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors_of_rfc_3720_appendix_b4() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_crc_goes_on_where_it_ended() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1000).collect();
        for at in 0..bytes.len() {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(crc32c_append(crc32c(head), tail), crc32c(&bytes), "cut at {at}");
        }
    }
}
