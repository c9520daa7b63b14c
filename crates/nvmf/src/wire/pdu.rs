//! Protocol data units: the messages in the TCP stream (TCP Transport 1.1, 3.6).
//!
//! A PDU is a common header of 8 bytes, a header of its type, a header digest if negotiated,
//! padding up to PDO, data, and a data digest if negotiated.
//!
//! | offset | size | common header |
//! | --- | --- | --- |
//! | 0 | 1 | PDU type |
//! | 1 | 1 | flags |
//! | 2 | 1 | HLEN: bytes of both headers |
//! | 3 | 1 | PDO: where data begins, 0 without data |
//! | 4 | 4 | PLEN: bytes of the whole PDU, digests included |

use super::structure;

/// Bytes of a digest.
pub const DIGEST_SIZE: usize = 4;

/// The PDU types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PduType {
    /// Initialize Connection Request.
    IcReq = 0x00,
    /// Initialize Connection Response.
    IcResp = 0x01,
    /// Host to controller: the connection is to be terminated.
    H2cTermReq = 0x02,
    /// Controller to host: the connection is to be terminated.
    C2hTermReq = 0x03,
    /// Command capsule.
    CapsuleCmd = 0x04,
    /// Response capsule.
    CapsuleResp = 0x05,
    /// Data from the host.
    H2cData = 0x06,
    /// Data from the controller.
    C2hData = 0x07,
    /// Ready to Transfer: the controller asks for data.
    R2t = 0x09,
}

impl PduType {
    /// The type with this number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<PduType> {
        Some(match number {
            0x00 => PduType::IcReq,
            0x01 => PduType::IcResp,
            0x02 => PduType::H2cTermReq,
            0x03 => PduType::C2hTermReq,
            0x04 => PduType::CapsuleCmd,
            0x05 => PduType::CapsuleResp,
            0x06 => PduType::H2cData,
            0x07 => PduType::C2hData,
            0x09 => PduType::R2t,
            _ => return None,
        })
    }

    /// HLEN of PDUs of this type.
    #[must_use]
    pub fn header_size(self) -> usize {
        match self {
            PduType::IcReq | PduType::IcResp => 128,
            PduType::CapsuleCmd => 72,
            _ => 24,
        }
    }
}

/// Flag: the header is followed by a digest.
pub const HDGSTF: u8 = 0x01;
/// Flag: the data is followed by a digest.
pub const DDGSTF: u8 = 0x02;
/// Flag of data PDUs: the last one of the transfer.
pub const LAST_PDU: u8 = 0x04;
/// Flag of C2HData: the command succeeded, no response capsule follows.
pub const SUCCESS: u8 = 0x08;

/// DGST of ICReq and ICResp: header digests.
pub const HEADER_DIGEST: u8 = 0x01;
/// DGST of ICReq and ICResp: data digests.
pub const DATA_DIGEST: u8 = 0x02;

structure! {
    /// The common header of all PDUs (3.6.1).
    CommonHeader [8] {
        /// PDU type.
        0 kind: u8,
        /// Flags.
        1 flags: u8,
        /// Bytes of the header.
        2 hlen: u8,
        /// Offset of the data; 0 without data.
        3 pdo: u8,
        /// Bytes of the PDU.
        4 plen: u32,
    }
}

structure! {
    /// Initialize Connection Request, after the common header (3.6.2.2).
    IcReq [120] {
        /// PDU format version: 0.
        0 pfv: u16,
        /// Alignment of data sent to the host, in dwords, 0's based.
        2 hpda: u8,
        /// Digests the host asks for.
        3 dgst: u8,
        /// R2Ts outstanding for one command, 0's based.
        4 maxr2t: u32,
    }
}

structure! {
    /// Initialize Connection Response, after the common header (3.6.2.3).
    IcResp [120] {
        /// PDU format version: 0.
        0 pfv: u16,
        /// Alignment of data sent to the controller, in dwords, 0's based.
        2 cpda: u8,
        /// Digests in use from now on.
        3 dgst: u8,
        /// The most bytes of data in one H2CData PDU.
        4 maxh2cdata: u32,
    }
}

structure! {
    /// H2CTermReq and C2HTermReq, after the common header (3.6.2.4, 3.6.2.5). Up to 128 bytes of
    /// the PDU that was wrong follow.
    TermReq [16] {
        /// Fatal error status: see [`FatalStatus`].
        0 fes: u16,
        /// Fatal error information: the offset of the wrong field.
        2 fei: u32,
    }
}

structure! {
    /// H2CData, C2HData and R2T, after the common header (3.6.2.8 to 3.6.2.10).
    Transfer [16] {
        /// Command identifier of the command it belongs to.
        0 cccid: u16,
        /// Transfer tag, chosen by the controller; reserved in C2HData.
        2 ttag: u16,
        /// Offset from the start of the command's data.
        4 offset: u32,
        /// Bytes of data.
        8 length: u32,
    }
}

/// Why a connection is terminated (FES, 3.6.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FatalStatus {
    /// A header field is wrong; FEI says which.
    InvalidHeaderField = 0x01,
    /// A PDU came that is not expected now.
    Sequence = 0x02,
    /// The header digest does not match.
    HeaderDigest = 0x03,
    /// Data outside the command's or R2T's range.
    OutOfRange = 0x04,
    /// More data than the limit announced (sent by controllers), or more R2Ts (by hosts).
    LimitExceeded = 0x05,
    /// A parameter that is not supported; FEI says which.
    UnsupportedParameter = 0x06,
}
