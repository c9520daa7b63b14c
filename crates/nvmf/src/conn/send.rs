//! The sending half: a queue of bytes for vectored writes.
//!
//! Small things (headers, capsules, digests) are copied one behind the other; data stays where it
//! is, in a buffer that the owner names by number and lends when the slices are made.
//!
//! Invariants
//! 1. `segments` in order are exactly the bytes still to be sent, less `sent` of the first.
//! 2. The bytes of small segments are `small[small_sent..]`, in order.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::wire::pdu::{CommonHeader, FatalStatus, HDGSTF, PduType, TermReq};
use esker_base::checksum::{crc32c, crc32c_append};
use esker_base::units::to_u64;

use super::Violation;

/// Small bytes that were sent are dropped from memory when they are this many.
const COMPACT: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
enum Segment {
    Small { len: usize },
    Data { buf: u16, at: usize, len: usize },
}

/// Bytes to be sent.
#[derive(Debug, Default)]
pub struct Sender {
    segments: VecDeque<Segment>,
    small: Vec<u8>,
    small_sent: usize,
    sent: usize,
    /// Bytes that were queued and sent since the beginning.
    totals: (u64, u64),
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
}

impl Sender {
    /// Whether nothing is to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes that were queued, and bytes of them that were sent, since the beginning.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.totals
    }

    /// Queues a PDU without data: `body` is the header after the common one.
    pub(crate) fn pdu(&mut self, kind: PduType, body: &[u8]) {
        self.header(kind, 0, body, 0, 0);
    }

    /// Queues a PDU with data that the owner lends as buffer `buf`, whose bytes from `at` on are
    /// `data`. `pdo` is where the data begins.
    pub(crate) fn pdu_with_data(
        &mut self,
        kind: PduType,
        flags: u8,
        body: &[u8],
        alignment: usize,
        (buf, at, data): (u16, usize, &[u8]),
    ) {
        self.header(kind, flags, body, data.len(), alignment);
        self.segments.push_back(Segment::Data { buf, at, len: data.len() });
        self.totals.0 += to_u64(data.len());
        if self.data_digest {
            self.push_small(&crc32c(data).to_le_bytes());
        }
    }

    /// Queues a termination request for `violation`.
    pub(crate) fn terminate(&mut self, kind: PduType, violation: &Violation, header: &[u8]) {
        let fei = match violation.status {
            FatalStatus::InvalidHeaderField | FatalStatus::UnsupportedParameter => violation.offset,
            _ => 0,
        };
        let body = TermReq { fes: violation.status as u16, fei }.encode();
        let header = &header[..header.len().min(128)];
        // A termination request has no digests (3.6.2.4).
        let plen = u32::try_from(24 + header.len()).expect("at most 152 bytes");
        let common = CommonHeader { kind: kind as u8, flags: 0, hlen: 24, pdo: 0, plen };
        self.push_small(&common.encode());
        self.push_small(&body);
        self.push_small(header);
    }

    fn header(&mut self, kind: PduType, flags: u8, body: &[u8], data: usize, alignment: usize) {
        let hlen = 8 + body.len();
        let is_initial = matches!(kind, PduType::IcReq | PduType::IcResp);
        let (header_digest, data_digest) =
            (self.header_digest && !is_initial, self.data_digest && data > 0);
        let header_end = hlen + if header_digest { 4 } else { 0 };
        let data_start = if data > 0 { header_end.next_multiple_of(alignment) } else { header_end };
        let plen = data_start + data + if data_digest { 4 } else { 0 };
        let byte = |value: usize| u8::try_from(value).expect("headers are small");
        let common = CommonHeader {
            kind: kind as u8,
            flags: flags
                | if header_digest { HDGSTF } else { 0 }
                | if data_digest { crate::wire::pdu::DDGSTF } else { 0 },
            hlen: byte(hlen),
            pdo: if data > 0 { byte(data_start) } else { 0 },
            plen: u32::try_from(plen).expect("transfers are below 4 GiB"),
        }
        .encode();
        self.push_small(&common);
        self.push_small(body);
        if header_digest {
            self.push_small(&crc32c_append(crc32c(&common), body).to_le_bytes());
        }
        const PADDING: [u8; 128] = [0; 128];
        self.push_small(&PADDING[..data_start - header_end]);
    }

    fn push_small(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.small.extend_from_slice(bytes);
        self.totals.0 += to_u64(bytes.len());
        match self.segments.back_mut() {
            Some(Segment::Small { len }) => *len += bytes.len(),
            _ => self.segments.push_back(Segment::Small { len: bytes.len() }),
        }
    }

    /// Fills `slices` with the output and returns how many there are; `lend` gives the
    /// buffers.
    pub(crate) fn slices<'a>(
        &'a self,
        slices: &mut [IoSlice<'a>],
        lend: impl Fn(u16) -> &'a [u8],
    ) -> usize {
        let (mut small, mut skip, mut count) = (self.small_sent, self.sent, 0);
        for (segment, slice) in self.segments.iter().zip(slices) {
            let bytes = match *segment {
                Segment::Small { len } => {
                    // The bytes sent of the first segment are counted in `small_sent` already.
                    let rest = len - skip;
                    small += rest;
                    &self.small[small - rest..small]
                }
                Segment::Data { buf, at, len } => &lend(buf)[at + skip..at + len],
            };
            *slice = IoSlice::new(bytes);
            count += 1;
            skip = 0;
        }
        count
    }

    /// Takes note that `count` bytes were sent; calls `done` for each buffer all of whose queued
    /// data is out.
    pub(crate) fn sent(&mut self, count: usize, mut done: impl FnMut(u16)) {
        self.totals.1 += to_u64(count);
        let mut count = count;
        while count > 0
            && let Some(&segment) = self.segments.front()
        {
            let (Segment::Small { len } | Segment::Data { len, .. }) = segment;
            let part = count.min(len - self.sent);
            count -= part;
            self.sent += part;
            if let Segment::Small { .. } = segment {
                self.small_sent += part;
            }
            if self.sent < len {
                break;
            }
            self.sent = 0;
            self.segments.pop_front();
            if let Segment::Data { buf, .. } = segment {
                done(buf);
            }
        }
        if self.segments.is_empty() {
            self.small.clear();
            self.small_sent = 0;
        } else if self.small_sent >= COMPACT {
            self.small.drain(..self.small_sent);
            self.small_sent = 0;
        }
    }
}
