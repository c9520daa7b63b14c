//! The mark of the write buffer: up to where frames were durable on all of its copies. It lies right behind the ring, in two
//! copies that are written in turn.
//!
//! Envelope: address = copy, epoch of the ring; generation = number of the mark. Body: 8 number of the next frame, 8 seqno of
//! its first record.

use esker_base::codec::{Decoder, Encoder};

use crate::omf::envelope::{self, Address, FormatError, Kind};
use crate::types::id::{FrameSeq, PoolUuid, Seqno};

/// Bytes of a copy.
pub(crate) const MARK_BYTES: u64 = 4096;
/// Copies of the mark.
pub(crate) const COPIES: u8 = 2;

/// The end of what is durable in the write buffer: the next frame, and the seqno of its first record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogEnd {
    pub(crate) frame: FrameSeq,
    pub(crate) seqno: Seqno,
}

impl LogEnd {
    pub(crate) fn encode(&self, e: &mut Encoder) {
        e.u64(self.frame.0).u64(self.seqno.0);
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<LogEnd, FormatError> {
        let frame = FrameSeq(d.u64("next frame")?);
        Ok(LogEnd { frame, seqno: Seqno(d.u64("next seqno")?) })
    }
}

/// A mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    pub(crate) end: LogEnd,
}

impl Mark {
    /// The copy that it is written to.
    pub(crate) fn copy(&self) -> u8 {
        u8::from(self.number % 2 == 1)
    }

    pub(crate) fn encode(&self, pool: PoolUuid, epoch: u64) -> Vec<u8> {
        let address = Address(self.copy().into(), epoch, self.number);
        let mut e = envelope::begin(Kind::Mark, pool, address);
        self.end.encode(&mut e);
        envelope::finish(e)
    }

    /// The mark of the ring of this epoch in the bytes of copy `copy`.
    pub(crate) fn decode(
        bytes: &[u8],
        pool: PoolUuid,
        epoch: u64,
        copy: u8,
    ) -> Result<Mark, FormatError> {
        let opened = envelope::open(Kind::Mark, bytes)?;
        envelope::expect("the pool", opened.pool.0, pool.0)?;
        envelope::expect("the copy", opened.address.0.into(), copy.into())?;
        envelope::expect("the epoch", opened.address.1.into(), epoch.into())?;
        let mut d = opened.body;
        Ok(Mark { number: opened.address.2, end: LogEnd::decode(&mut d)? })
    }
}
