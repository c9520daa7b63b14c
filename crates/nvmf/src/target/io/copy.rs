//! Copy: ranges of a namespace become one range of it, by reads and writes of the device.
//!
//! Invariants
//! 1. A connection runs one Copy at a time; others stand in line. So copies of one connection have
//!    as much memory as one may have, and at least one piece.
//! 2. A piece is read and then written from the same buffer; pieces are of different LBAs, of which
//!    none is both read and written by one Copy: overlaps are refused.
//! 3. After a piece has failed no other begins, and none of later ranges is written; the Copy ends
//!    when the last piece has.
//! 4. The worker's queue pair on the device of a Copy at work is open, since it has a piece. That of one
//!    that stands in line may have been closed with its namespace.
//! 5. A host that loses its reservation begins no Copy any more, and no piece of one at work.

use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_device::{Completion, Op};

use crate::conn::Slot;
use crate::target::connection::Connection;
use crate::target::connection::commands::status_of;
use crate::target::connection::copies::{
    Copy, CopyPiece, MOST_RANGES, PIECE_BYTES, PIECES, copy_lbas, range_lbas,
};
use crate::target::connection::core::Core;
use crate::target::ids::Place;
use crate::target::subsystem::Namespace;
use crate::wire::command::{CopyArguments, SourceRange, io, source_ranges};
use crate::wire::status::Status;

/// Runs Copy.
pub(crate) fn execute(
    connection: &mut Connection,
    core: &mut Core,
    slot: Slot,
    namespace: &Arc<Namespace>,
    data: Option<AlignedBuf>,
) {
    let arguments = CopyArguments::of(&connection.job(slot).sqe);
    let checked = check(namespace, &arguments, data.as_deref().unwrap_or(&[]));
    let sources = match checked {
        Ok(sources) => sources,
        Err(status) => return connection.refuse(core, slot, data, status),
    };
    connection.give_back(core, data);
    let geometry = namespace.geometry();
    let piece_bytes = PIECE_BYTES.min(geometry.max_transfer_size);
    let copy = Copy {
        slot,
        namespace: namespace.clone(),
        lba_size: geometry.lba_size,
        piece_lbas: u64::from(piece_bytes / geometry.lba_size).max(1),
        sources,
        source: 0,
        given: 0,
        to: arguments.sdlba,
        fua: arguments.fua,
        placement: arguments.placement,
        pieces: [CopyPiece::Free; PIECES],
        failed: None,
    };
    connection.copies.waiting.push_back(copy);
    advance(connection, core);
}

/// The source ranges, if all of it is within limits and the namespace.
fn check(
    namespace: &Namespace,
    arguments: &CopyArguments,
    data: &[u8],
) -> Result<Vec<SourceRange>, Status> {
    let lba_size = namespace.lba_size();
    if arguments.format != 0 {
        return Err(Status::INVALID_FIELD.final_());
    }
    let too_much = Status::SIZE_LIMIT.final_();
    if arguments.ranges > MOST_RANGES.into() {
        return Err(too_much);
    }
    let sources =
        source_ranges(arguments.ranges, data).map_err(|_| Status::DATA_LENGTH.final_())?;
    let lbas = |source: &SourceRange| u64::from(source.nlb) + 1;
    let total: u64 = sources.iter().map(lbas).sum();
    let is_long = |source: &SourceRange| lbas(source) > range_lbas(lba_size).into();
    if sources.iter().any(is_long) || total > copy_lbas(lba_size).into() {
        return Err(too_much);
    }
    namespace.check_range(arguments.sdlba, total)?;
    for source in &sources {
        namespace.check_range(source.slba, lbas(source))?;
    }
    let (from, to) = (arguments.sdlba, arguments.sdlba + total);
    if sources.iter().any(|source| source.slba < to && from < source.slba + lbas(source)) {
        return Err(Status::OVERLAP.final_());
    }
    Ok(sources)
}

/// Lets the Copy at work go on, or the next one begin.
pub(crate) fn advance(connection: &mut Connection, core: &mut Core) {
    loop {
        if connection.copies.running.is_none() {
            let Some(next) = connection.copies.waiting.pop_front() else { return };
            if let Err(status) = may_go_on(connection, &next) {
                core.mark_dirty(connection);
                connection.finish(core, next.slot, status);
                continue;
            }
            connection.copies.running = Some(next);
        }
        stop_preempted(connection);
        let copies = &mut connection.copies;
        let copy = copies.running.as_mut().expect("one is at work");
        if copy.is_given_out() && copy.is_idle() {
            let (slot, failed) = (copy.slot, copy.failed);
            copies.running = None;
            // Dword 0 of a Copy that failed: the first range that was not copied.
            let first = failed.map_or(0, |(source, _)| u64::try_from(source).expect("64 bits"));
            let status = failed.map_or(Status::SUCCESS, |(_, status)| status);
            core.mark_dirty(connection);
            connection.finish_with(core, slot, first, status);
            continue;
        }
        let free = copy.pieces.iter().position(|&piece| piece == CopyPiece::Free);
        let (Some(index), false) = (free, copy.is_given_out()) else { return };
        let (slot, is_first, bytes) = (copy.slot, copy.is_idle(), copy.next_bytes());
        if !is_first && !connection.has_room(core, slot, bytes) {
            return;
        }
        let copy = connection.copies.running.as_mut().expect("one is at work");
        let (lba, piece) = copy.next();
        copy.pieces[index] = piece;
        let buf = connection.take_anyway(core, bytes);
        let number = u8::try_from(index).expect("few pieces");
        connection.submit_piece(core, slot, number, Op::Read { lba, buf });
    }
}

/// Whether a Copy that stands in line may begin: its namespace is there, and no reservation stops its host.
fn may_go_on(connection: &Connection, copy: &Copy) -> Result<(), Status> {
    if copy.namespace.is_removed() {
        return Err(Status::INVALID_NAMESPACE.final_());
    }
    let claimant = connection.role.controller().map(|one| one.claimant());
    claimant.map_or(Ok(()), |claimant| copy.namespace.reservations.check(claimant, io::COPY))
}

/// A Copy whose host has lost its reservation begins no other piece.
fn stop_preempted(connection: &mut Connection) {
    let claimant = connection.role.controller().map(|one| one.claimant());
    if let (Some(copy), Some(claimant)) = (connection.copies.running.as_mut(), claimant)
        && let Err(status) = copy.namespace.reservations.check(claimant, io::COPY)
        && !copy.is_given_out()
    {
        copy.fail(copy.source, status);
    }
}

/// A device has finished a read or a write of the Copy at work.
pub(crate) fn completed(
    connection: &mut Connection,
    core: &mut Core,
    place: Place,
    completion: Completion,
) {
    let Completion { result, buf, .. } = completion;
    if connection.is_ending {
        return connection.give_back(core, buf);
    }
    let copy = connection.copies.running.as_mut().expect("one is at work");
    let index = usize::from(place.piece);
    let piece = std::mem::replace(&mut copy.pieces[index], CopyPiece::Free);
    let (fua, placement) = (copy.fua, copy.placement);
    match (piece, result, buf) {
        (CopyPiece::Reading { source, to }, Ok(()), Some(buf)) if copy.wants(source) => {
            copy.pieces[index] = CopyPiece::Writing { source };
            let op = Op::Write { lba: to, buf, placement, fua };
            connection.submit_piece(core, place.slot, place.piece, op);
        }
        (piece, result, buf) => {
            let (CopyPiece::Reading { source, .. } | CopyPiece::Writing { source }) = piece else {
                unreachable!("a piece in progress is read or written")
            };
            if let Err(error) = &result {
                copy.fail(source, status_of(error));
            } else if let (CopyPiece::Reading { .. }, Some((_, status))) = (piece, copy.failed) {
                copy.fail(source, status); // it was read and is not written any more
            }
            connection.give_back(core, buf);
        }
    }
    advance(connection, core);
}
