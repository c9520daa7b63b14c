//! The copies of a connection: the one at work, its pieces, and those in line.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{Lba, LbaCount};
use esker_device::PlacementId;

use crate::conn::Slot;
use crate::target::ids::Place;
use crate::target::subsystem::Namespace;
use crate::wire::command::SourceRange;
use crate::wire::status::Status;

/// Source ranges of one Copy at most.
pub(crate) const MOST_RANGES: u8 = 128;
/// Bytes of one Copy at most.
const MOST_BYTES: u32 = 16 << 20;
/// Bytes of a piece.
pub(crate) const PIECE_BYTES: u32 = 128 << 10;
/// Pieces in progress at most.
pub(crate) const PIECES: usize = 8;

/// LBAs of one source range at most (MSSRL).
pub(crate) fn range_lbas(lba_size: u32) -> u16 {
    u16::try_from(copy_lbas(lba_size)).unwrap_or(u16::MAX)
}

/// LBAs of one Copy at most (MCL).
pub(crate) fn copy_lbas(lba_size: u32) -> u32 {
    MOST_BYTES / lba_size
}

/// The copies of a connection.
#[derive(Default)]
pub(crate) struct Copies {
    pub(crate) running: Option<Copy>,
    pub(crate) waiting: VecDeque<Copy>,
}

impl Copies {
    /// Whether the Copy at work is the command in a slot.
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.running.as_ref().is_some_and(|copy| copy.slot == slot)
    }

    /// Takes a Copy out that has not begun.
    pub(crate) fn cancel(&mut self, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        let at = self.waiting.iter().position(|copy| is_it(copy.slot))?;
        self.waiting.remove(at).map(|copy| copy.slot)
    }

    /// Lets the Copy at work begin no other piece; says whether it is the command in the slot.
    pub(crate) fn stop(&mut self, slot: Slot) -> bool {
        let Some(copy) = self.running.as_mut().filter(|copy| copy.slot == slot) else {
            return false;
        };
        copy.fail(copy.source, Status::ABORTED);
        true
    }

    /// Lets the Copy at work begin nothing more, of no range; says whether it is the command in the slot.
    pub(crate) fn halt(&mut self, slot: Slot) -> bool {
        let Some(copy) = self.running.as_mut().filter(|copy| copy.slot == slot) else {
            return false;
        };
        copy.fail(0, Status::ABORTED);
        true
    }

    /// A piece of the Copy at work was taken back before its device had it.
    pub(crate) fn took_back(&mut self, place: Place) {
        let Some(copy) = &mut self.running else { return };
        let piece = std::mem::replace(&mut copy.pieces[usize::from(place.piece)], CopyPiece::Free);
        if let CopyPiece::Reading { source, .. } | CopyPiece::Writing { source } = piece {
            copy.fail(source, Status::ABORTED);
        }
    }
}

/// A Copy, at work or in line.
pub(crate) struct Copy {
    pub(crate) slot: Slot,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) lba_size: u32,
    /// LBAs of a piece.
    pub(crate) piece_lbas: u64,
    pub(crate) sources: Vec<SourceRange>,
    /// The source range that the next piece is of, and how much of it is given out.
    pub(crate) source: usize,
    pub(crate) given: u64,
    /// Where the next piece goes.
    pub(crate) to: u64,
    pub(crate) fua: bool,
    pub(crate) placement: Option<PlacementId>,
    pub(crate) pieces: [CopyPiece; PIECES],
    /// The first source range that was not copied, and why.
    pub(crate) failed: Option<(usize, Status)>,
}

/// Progress of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPiece {
    Free,
    Reading { source: usize, to: Lba },
    Writing { source: usize },
}

impl Copy {
    pub(crate) fn fail(&mut self, source: usize, status: Status) {
        if self.failed.is_none_or(|(first, _)| source < first) {
            self.failed = Some((source, status));
        }
    }

    /// Whether pieces of a source range are still to be written: those of ranges before the one
    /// that failed are.
    pub(crate) fn wants(&self, source: usize) -> bool {
        self.failed.is_none_or(|(first, _)| source < first)
    }

    pub(crate) fn is_given_out(&self) -> bool {
        self.failed.is_some() || self.source == self.sources.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pieces.iter().all(|&piece| piece == CopyPiece::Free)
    }

    /// Bytes of the next piece.
    pub(crate) fn next_bytes(&self) -> usize {
        to_usize(LbaCount(self.next_lbas()).bytes(self.lba_size))
    }

    fn next_lbas(&self) -> u64 {
        (u64::from(self.sources[self.source].nlb) + 1 - self.given).min(self.piece_lbas)
    }

    /// Returns the next piece: the LBA it is read from, and its state.
    pub(crate) fn next(&mut self) -> (Lba, CopyPiece) {
        let (source, lbas) = (self.source, self.next_lbas());
        let range = &self.sources[source];
        let from = Lba(range.slba + self.given);
        let piece = CopyPiece::Reading { source, to: Lba(self.to) };
        self.to += lbas;
        self.given += lbas;
        if self.given == u64::from(range.nlb) + 1 {
            self.source += 1;
            self.given = 0;
        }
        (from, piece)
    }
}
