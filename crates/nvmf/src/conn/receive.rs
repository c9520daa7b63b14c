//! The receiving half: cuts the stream of bytes into PDUs.
//!
//! Bytes go to a staging buffer, from which headers are read. Data of a PDU goes to a buffer that
//! the owner gives when it has seen the header: bytes that are staged already are copied, the rest is read
//! from the socket right into it.
//!
//! Invariants
//! 1. `start <= end <= staging.len()`; `staging[start..end]` is received and not yet used.
//! 2. While `payload` is there and not whole, nothing behind it is looked at.

use std::io::IoSliceMut;

use esker_base::AlignedBuf;
use esker_base::checksum::{crc32c, crc32c_append};

use super::Violation;
use crate::wire::pdu::{CommonHeader, DDGSTF, DIGEST_SIZE, FatalStatus, HDGSTF, PduType};

/// Data with a digest is received in pieces of this many bytes: bytes that the system has just copied are
/// read again for the digest, and is still in the processor's cache then.
const DIGEST_PIECE: usize = 32 << 10;

/// The header of a PDU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) kind: PduType,
    pub(crate) flags: u8,
    /// Bytes of data that follow.
    pub(crate) data: usize,
    /// The whole header, the common part included; `size` bytes of it are used.
    bytes: [u8; 128],
    size: usize,
}

impl Header {
    /// The header after the common part.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[8..self.size]
    }

    /// The whole header.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

struct Incoming {
    buf: AlignedBuf,
    at: usize,
    left: usize,
    crc: u32,
    has_digest: bool,
}

/// Receiver of one connection: the bytes received, and the PDU they belong to.
pub struct Receiver {
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    payload: Option<Incoming>,
    /// Headers so far.
    pdus: u64,
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
}

impl Receiver {
    /// A receiver that stages up to `staging_bytes` bytes, at least 4,096.
    #[must_use]
    pub fn new(staging_bytes: usize) -> Receiver {
        Receiver {
            staging: vec![0; staging_bytes.max(4096)].into(),
            start: 0,
            end: 0,
            payload: None,
            pdus: 0,
            header_digest: false,
            data_digest: false,
        }
    }

    /// Where the next bytes from the socket go: data that is expected first, then the staging
    /// buffer. One of them is never empty.
    pub fn spaces(&mut self) -> [IoSliceMut<'_>; 2] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.staging.len() - self.end < self.staging.len() / 2 {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let (mut direct, mut staging): (&mut [u8], _) = (&mut [], &mut self.staging[self.end..]);
        if let Some(payload) = &mut self.payload
            && self.start == self.end
        {
            direct = &mut payload.buf[payload.at..payload.at + payload.left];
            if payload.has_digest && direct.len() > DIGEST_PIECE {
                (direct, staging) = (&mut direct[..DIGEST_PIECE], &mut []);
            }
        }
        [IoSliceMut::new(direct), IoSliceMut::new(staging)]
    }

    /// Takes note that `count` bytes were received into the spaces.
    pub fn received(&mut self, count: usize) {
        let mut count = count;
        if let Some(payload) = &mut self.payload
            && self.start == self.end
        {
            let part = count.min(payload.left);
            payload.advance(part);
            count -= part;
        }
        self.end += count;
    }

    /// The first bytes that are staged, for a termination request.
    pub(crate) fn staged(&self) -> &[u8] {
        &self.staging[self.start..self.end.min(self.start + 128)]
    }

    /// Whether a PDU has begun that has not ended, and how many headers there were before.
    pub(crate) fn pdu_under_way(&self) -> (bool, u64) {
        (self.payload.is_some() || self.start < self.end, self.pdus)
    }

    /// Whether data is expected before the next header.
    pub(crate) fn expects_data(&self) -> bool {
        self.payload.is_some()
    }

    /// The next header, if it is there. Must not be called while data is expected.
    pub(crate) fn header(&mut self) -> Result<Option<Header>, Violation> {
        let staged = &self.staging[self.start..self.end];
        let Some(common) = staged.get(..CommonHeader::SIZE) else { return Ok(None) };
        let common = CommonHeader::decode(common)?;
        let kind = PduType::from_u8(common.kind)
            .ok_or(Violation::field(0, "a PDU of a type that does not exist"))?;
        let size = usize::from(common.hlen);
        if size != kind.header_size() {
            return Err(Violation::field(2, "a header length that is not the type's"));
        }
        let layout = Layout::of(kind, &common, self.header_digest, self.data_digest)?;
        let Some(header) = staged.get(..layout.data_start) else { return Ok(None) };
        if layout.header_digest {
            let stored = &header[size..size + DIGEST_SIZE];
            if crc32c(&header[..size]).to_le_bytes() != stored {
                return Err(Violation {
                    status: FatalStatus::HeaderDigest,
                    offset: 0,
                    what: "a header digest that does not match",
                });
            }
        }
        let mut bytes = [0; 128];
        bytes[..size].copy_from_slice(&header[..size]);
        self.start += layout.data_start;
        self.pdus += 1;
        Ok(Some(Header { kind, flags: common.flags, data: layout.data, bytes, size }))
    }

    /// Expects `len` bytes of data in `buf` from `at` on.
    pub(crate) fn expect_data(&mut self, buf: AlignedBuf, at: usize, len: usize) {
        let has_digest = self.data_digest;
        self.payload = Some(Incoming { buf, at, left: len, crc: 0, has_digest });
    }

    /// The data expected, if it is there, and whether its digest matches.
    pub(crate) fn data(&mut self) -> Option<(AlignedBuf, bool)> {
        let payload = self.payload.as_mut()?;
        let part = payload.left.min(self.end - self.start);
        if part > 0 {
            let staged = &self.staging[self.start..self.start + part];
            payload.buf[payload.at..payload.at + part].copy_from_slice(staged);
            payload.advance(part);
            self.start += part;
        }
        if payload.left > 0 {
            return None;
        }
        let mut is_good = true;
        if payload.has_digest {
            let staged = &self.staging[self.start..self.end];
            let stored = staged.get(..DIGEST_SIZE)?;
            is_good = payload.crc.to_le_bytes() == stored;
            self.start += DIGEST_SIZE;
        }
        self.payload.take().map(|payload| (payload.buf, is_good))
    }

    /// The buffer of data that has not come whole, when the connection ends.
    pub(crate) fn abandon(&mut self) -> Option<AlignedBuf> {
        self.payload.take().map(|payload| payload.buf)
    }
}

impl Incoming {
    fn advance(&mut self, count: usize) {
        if self.has_digest {
            self.crc = crc32c_append(self.crc, &self.buf[self.at..self.at + count]);
        }
        self.at += count;
        self.left -= count;
    }
}

/// Where the parts of a PDU are.
struct Layout {
    header_digest: bool,
    data_start: usize,
    data: usize,
}

impl Layout {
    fn of(
        kind: PduType,
        common: &CommonHeader,
        header_digest: bool,
        data_digest: bool,
    ) -> Result<Layout, Violation> {
        let plen = usize::try_from(common.plen).expect("32 bits");
        let size = usize::from(common.hlen);
        match kind {
            PduType::IcReq | PduType::IcResp => {
                return if plen == size {
                    Ok(Layout { header_digest: false, data_start: size, data: 0 })
                } else {
                    Err(Violation::field(4, "a PDU length that is not 128"))
                };
            }
            // The PDU that was wrong follows the header; it is passed over with it.
            PduType::H2cTermReq | PduType::C2hTermReq => {
                return if (size..=size + 128).contains(&plen) {
                    Ok(Layout { header_digest: false, data_start: plen, data: 0 })
                } else {
                    Err(Violation::field(4, "a termination request of a wrong length"))
                };
            }
            _ => {}
        }
        if header_digest != (common.flags & HDGSTF != 0) {
            return Err(Violation::field(1, "a header digest flag that was not negotiated"));
        }
        let header_end = size + if header_digest { DIGEST_SIZE } else { 0 };
        if plen == header_end {
            return Ok(Layout { header_digest, data_start: header_end, data: 0 });
        }
        let carries = matches!(kind, PduType::CapsuleCmd | PduType::H2cData | PduType::C2hData);
        let start = usize::from(common.pdo);
        if !carries || plen < header_end {
            return Err(Violation::field(4, "a PDU length that does not fit the header"));
        }
        if start < header_end || start > plen || !start.is_multiple_of(4) {
            return Err(Violation::field(3, "a data offset outside the PDU"));
        }
        if data_digest != (common.flags & DDGSTF != 0) {
            return Err(Violation::field(1, "a data digest flag that was not negotiated"));
        }
        let digest = if data_digest { DIGEST_SIZE } else { 0 };
        match (plen - start).checked_sub(digest) {
            Some(data) if data > 0 => Ok(Layout { header_digest, data_start: start, data }),
            _ => Err(Violation::field(4, "a PDU length without room for data")),
        }
    }
}
