//! Reads bytes of a segment and verifies them; where they are wrong or cannot be read, computes them from the other
//! chunks, verified in the same way before anyone sees them.

use esker_base::units::{round_down, round_up, to_u64, to_usize};

use crate::drive::layout::Piece;
use crate::drive::{Io, Read};
use crate::omf::root::SegmentRow;
use crate::parity;
use crate::types::id::DriveIndex;

/// Bytes that could not be read, or were wrong, with as many chunks left out as there are parities.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) why: String,
}

/// The aligned part of a unit that has a piece.
fn around(piece: &Piece) -> (usize, usize) {
    let start = to_usize(round_down(to_u64(piece.within), 4096));
    let end = to_usize(round_up(to_u64(piece.within + piece.size), 4096));
    (start, end - start)
}

/// `size` bytes from `sector` on for which `is_good` holds, and the drives that had them wrong or not at all.
pub(crate) fn read_verified(
    io: &mut Io,
    row: &SegmentRow,
    sector: u32,
    size: usize,
    is_good: &dyn Fn(&[u8]) -> bool,
) -> Result<(Vec<u8>, Vec<DriveIndex>), Broken> {
    let layout = io.fleet().layout;
    let parities = usize::from(row.parity);
    let k = row.chunks.len() - parities;
    let pieces: Vec<Piece> = layout.pieces(k, sector, size).collect();
    let place = |chunk: usize, piece: &Piece| {
        let (start, size) = around(piece);
        let (drive, slot) = row.chunks[chunk];
        Read { drive, offset: layout.unit_offset(slot, piece.row) + to_u64(start), size }
    };
    let reads: Vec<Read> = pieces.iter().map(|piece| place(piece.chunk, piece)).collect();
    let answers = io.read(&reads);
    if answers.iter().all(Result::is_ok) {
        let mut bytes = Vec::with_capacity(size);
        for (piece, answer) in pieces.iter().zip(&answers) {
            let start = piece.within - around(piece).0;
            let answer = answer.as_ref().expect("all are");
            bytes.extend_from_slice(&answer[start..start + piece.size]);
        }
        if is_good(&bytes) {
            return Ok((bytes, Vec::new()));
        }
    }
    // All chunks of the rows, and which of them cannot be read.
    let mut stripes: Vec<Vec<Vec<u8>>> = Vec::with_capacity(pieces.len());
    let mut unread = Vec::new();
    for piece in &pieces {
        let reads: Vec<Read> = (0..row.chunks.len()).map(|chunk| place(chunk, piece)).collect();
        let mut stripe = Vec::with_capacity(reads.len());
        for (chunk, answer) in io.read(&reads).into_iter().enumerate() {
            if answer.is_err() && !unread.contains(&chunk) {
                unread.push(chunk);
            }
            stripe.push(answer.map_or_else(|_| vec![0; around(piece).1], |buf| buf.to_vec()));
        }
        stripes.push(stripe);
    }
    for lost in suspicions(&unread, row.chunks.len(), parities) {
        let mut bytes = Vec::with_capacity(size);
        for (piece, stripe) in pieces.iter().zip(&stripes) {
            let mut stripe = stripe.clone();
            if !parity::reconstruct(&mut stripe, parities, &lost) {
                break;
            }
            let start = piece.within - around(piece).0;
            bytes.extend_from_slice(&stripe[piece.chunk][start..start + piece.size]);
        }
        if bytes.len() == size && is_good(&bytes) {
            let bad = lost.iter().map(|&chunk| row.chunks[chunk].0);
            return Ok((bytes, bad.collect()));
        }
    }
    let (unread, chunks) = (unread.len(), row.chunks.len());
    let why = format!(
        "{} of {}: {unread} of its {chunks} chunks cannot be read, and no {parities} of them can be left out so that the \
         checksum is right",
        row.id, row.generation
    );
    Err(Broken { why })
}

/// Bytes of a segment that are wanted.
pub(crate) struct Want<'a> {
    pub(crate) row: &'a SegmentRow,
    pub(crate) sector: u32,
    pub(crate) size: usize,
    pub(crate) is_good: &'a dyn Fn(&[u8]) -> bool,
}

/// What was read, and the drives that had it wrong.
pub(crate) type Answer = Result<(Vec<u8>, Vec<DriveIndex>), Broken>;

/// Reads many fragments, each within one unit, with all commands in flight at once. Those that are wrong or cannot be
/// read are computed one after the other.
pub(crate) fn read_many(io: &mut Io, wants: &[Want<'_>]) -> Vec<Answer> {
    let layout = io.fleet().layout;
    // Neighbours on a drive are read by one command.
    let mut reads: Vec<Read> = Vec::with_capacity(wants.len());
    let mut places = Vec::with_capacity(wants.len());
    for want in wants {
        let k = want.row.chunks.len() - usize::from(want.row.parity);
        let piece = layout.pieces(k, want.sector, want.size).next().expect("a size above zero");
        let (drive, slot) = want.row.chunks[piece.chunk];
        let (start, size) = around(&piece);
        let offset = layout.unit_offset(slot, piece.row) + to_u64(start);
        match reads.last_mut() {
            Some(last)
                if last.drive == drive
                    && last.offset <= offset
                    && offset <= last.offset + to_u64(last.size)
                    && to_usize(offset - last.offset) + size <= 256 << 10 =>
            {
                last.size = last.size.max(to_usize(offset - last.offset) + size);
            }
            _ => reads.push(Read { drive, offset, size }),
        }
        let last = reads.len() - 1;
        places.push((last, to_usize(offset - reads[last].offset) + piece.within - start));
    }
    let answers = io.read(&reads);
    let answer = |(want, (read, start)): (&Want<'_>, &(usize, usize))| {
        let bytes = answers[*read].as_ref().ok()?.get(*start..start + want.size)?;
        (want.is_good)(bytes).then(|| bytes.to_vec())
    };
    let read: Vec<Option<Vec<u8>>> = wants.iter().zip(&places).map(answer).collect();
    let finish = |(want, bytes): (&Want<'_>, Option<Vec<u8>>)| match bytes {
        Some(bytes) => Ok((bytes, Vec::new())),
        None => read_verified(io, want.row, want.sector, want.size, want.is_good),
    };
    wants.iter().zip(read).map(finish).collect()
}

/// Which chunks may be the wrong ones: those that cannot be read, with none, one or two others, as far as there are
/// parities.
fn suspicions(unread: &[usize], chunks: usize, parities: usize) -> Vec<Vec<usize>> {
    let mut sets = Vec::new();
    if unread.len() > parities {
        return sets;
    }
    sets.push(unread.to_vec());
    for x in (0..chunks).filter(|x| unread.len() < parities && !unread.contains(x)) {
        sets.push([unread, &[x]].concat());
    }
    for x in (0..chunks).filter(|_| unread.is_empty() && parities >= 2) {
        sets.extend((0..x).map(|y| vec![y, x]));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicions_grow_to_the_number_of_parities() {
        assert_eq!(suspicions(&[], 3, 0), [vec![]]);
        assert_eq!(suspicions(&[], 3, 1), [vec![], vec![0], vec![1], vec![2]]);
        assert_eq!(suspicions(&[1], 3, 1), [[1]]);
        assert_eq!(suspicions(&[1], 3, 2), [vec![1], vec![1, 0], vec![1, 2]]);
        assert_eq!(suspicions(&[], 3, 2).len(), 1 + 3 + 3);
        assert!(suspicions(&[0, 1], 3, 1).is_empty());
    }
}
