//! The parts of a command: where it goes on its drive, and what is kept to give it again.

use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{Op, OpKind, PlacementId};

/// The rest of a command beside its buffer, with which it can be given again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) offset: u64,
    count: LbaCount,
    placement: Option<PlacementId>,
    fua: bool,
}

impl Rest {
    pub(crate) fn of(offset: u64, op: &Op) -> Rest {
        let (count, placement, fua) = match op {
            Op::Write { placement, fua, .. } => (LbaCount(0), *placement, *fua),
            Op::Discard { count, .. } => (*count, None, false),
            _ => (LbaCount(0), None, false),
        };
        Rest { offset, count, placement, fua }
    }

    /// The command once more, if its buffer is there that it needs; else the buffer.
    pub(crate) fn again(
        &self,
        op: OpKind,
        buf: Option<AlignedBuf>,
    ) -> Result<Op, Option<AlignedBuf>> {
        let Rest { count, placement, fua, .. } = *self;
        match (op, buf) {
            (OpKind::Read, Some(buf)) => Ok(Op::Read { lba: Lba(0), buf }),
            (OpKind::Write, Some(buf)) => Ok(Op::Write { lba: Lba(0), buf, placement, fua }),
            (OpKind::Flush, None) => Ok(Op::Flush),
            (OpKind::Discard, None) => Ok(Op::Discard { lba: Lba(0), count }),
            (_, buf) => Err(buf),
        }
    }
}

/// The command at this byte of a device with such LBAs.
pub(crate) fn place(op: Op, offset: u64, lba_size: u32) -> Op {
    let lba = Lba(offset / u64::from(lba_size));
    match op {
        Op::Read { buf, .. } => Op::Read { lba, buf },
        Op::Write { buf, placement, fua, .. } => Op::Write { lba, buf, placement, fua },
        Op::Discard { count, .. } => {
            Op::Discard { lba, count: LbaCount(count.0 / u64::from(lba_size)) }
        }
        other => other,
    }
}
