//! The NVMe commands for a command of the seam, piece by piece.

use esker_base::AlignedBuf;
use esker_base::units::to_usize;
use esker_device::OpKind;

use super::multipath::Multipath;
use super::pending::Pending;
use crate::conn::Payload;
use crate::wire::capsule::Sqe;
use crate::wire::command::{DEALLOCATE, DSM_DEALLOCATE, DsmRange, LbaRange, io};

/// LBAs of one Write Zeroes command.
const ZEROES_MAX: u64 = 65_536;

impl Multipath {
    /// How many of the LBAs that are left of a command are done by one command of NVMe; zero when
    /// nothing is to be done.
    pub(crate) fn next_piece(&self, one: &Pending) -> u64 {
        let rest = one.count - one.at;
        match one.kind {
            OpKind::Discard if self.discards_zero => rest.min(ZEROES_MAX),
            OpKind::Discard if !self.has_discard => 0,
            OpKind::Discard => rest.min(u32::MAX.into()),
            OpKind::WriteZeroes => rest.min(self.zeroes_at_once()),
            _ => rest,
        }
    }

    /// The command for the next piece, whose size is known; a write `is_durable` when completed.
    pub(crate) fn command(&self, one: &mut Pending, is_durable: bool) -> (Sqe, Payload) {
        let nsid = self.config.nsid;
        let (slba, count) = (one.lba.0 + one.at, one.piece);
        let lbas = u32::try_from(count).unwrap_or(u32::MAX);
        let ranged = |opcode, fua, placement| {
            LbaRange { slba, count: lbas, fua, placement }.put(Sqe::new(opcode, nsid))
        };
        match one.kind {
            OpKind::Read => {
                let buf = one.buf.take().expect("a read has a buffer");
                (ranged(io::READ, false, None), Payload::In(buf))
            }
            OpKind::Write => {
                let buf = one.buf.take().expect("a write has a buffer");
                (ranged(io::WRITE, is_durable, one.placement), Payload::Out(buf))
            }
            OpKind::Discard if self.discards_zero => {
                let (sqe, payload) = self.zeroes(slba, count, is_durable);
                let cdw12 = sqe.dword(12) | DEALLOCATE;
                (sqe.with_dword(12, cdw12), payload)
            }
            OpKind::Discard => {
                let range = DsmRange { attributes: 0, count: lbas, slba }.encode();
                let sqe = Sqe::new(io::DSM, nsid).with_dword(11, DSM_DEALLOCATE);
                (sqe, Payload::Out(AlignedBuf::padded(&range, 1)))
            }
            OpKind::WriteZeroes => self.zeroes(slba, count, is_durable),
            OpKind::Flush | OpKind::Open => (Sqe::new(io::FLUSH, nsid), Payload::None),
        }
    }

    /// How many LBAs one command makes read as zeroes.
    pub(crate) fn zeroes_at_once(&self) -> u64 {
        let geometry = self.geometry();
        match self.has_write_zeroes {
            true => ZEROES_MAX,
            false => u64::from(geometry.max_transfer_size / geometry.lba_size),
        }
    }

    /// The command that makes LBAs read as zeroes.
    pub(crate) fn zeroes(&self, slba: u64, count: u64, fua: bool) -> (Sqe, Payload) {
        let opcode = if self.has_write_zeroes { io::WRITE_ZEROES } else { io::WRITE };
        let lbas = u32::try_from(count).expect("at most 65,536 LBAs");
        let range = LbaRange { slba, count: lbas, fua, placement: None };
        let sqe = range.put(Sqe::new(opcode, self.config.nsid));
        match self.has_write_zeroes {
            true => (sqe, Payload::None),
            false => {
                let bytes = count * u64::from(self.geometry().lba_size);
                (sqe, Payload::Out(AlignedBuf::zeroed(to_usize(bytes))))
            }
        }
    }
}
