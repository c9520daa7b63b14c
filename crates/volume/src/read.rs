//! Reads: every block is looked up, read, verified against the map's checksum, and computed from parities where it is
//! wrong. Sees `engine` and what is below.

use std::sync::atomic::Ordering;

use crate::drive::Io;
use crate::engine::{Found, Shared, add};
use crate::fragment;
use crate::omf::envelope::fragment_crc;
use crate::omf::leaf::Fragment;
use crate::omf::root::SegmentRow;
use crate::segment::{Broken, Want, read_many};
use crate::stats::Stage;
use crate::types::error::VolumeError;
use crate::types::id::{Block, LineageId, SegmentId, Seqno};
use crate::types::{BLOCK_SIZE, sectors};
use std::collections::BTreeMap;

/// Blocks from `block` on into `buf`, as they were at `at`.
pub(crate) struct ReadBlocks<'a> {
    pub(crate) lineage: LineageId,
    pub(crate) at: Seqno,
    pub(crate) block: Block,
    pub(crate) buf: &'a mut [u8],
}

/// A block that a segment has.
struct Stored {
    request: usize,
    within: usize,
    owner: LineageId,
    block: Block,
    fragment: Fragment,
}

/// Reads blocks; an answer for each request.
pub(crate) fn run(
    shared: &Shared,
    io: &mut Io,
    requests: &mut [ReadBlocks<'_>],
) -> Vec<Result<(), VolumeError>> {
    let mut answers: Vec<Result<(), VolumeError>> = vec![Ok(()); requests.len()];
    let mut stored = Vec::new();
    let mut rows: BTreeMap<SegmentId, SegmentRow> = BTreeMap::new();
    let clock = &shared.options.clock;
    let start = clock.now();
    let reader = {
        let mut core = shared.core.lock();
        for (number, request) in requests.iter_mut().enumerate() {
            let ReadBlocks { lineage, at, block, buf } = request;
            for (within, part) in buf.chunks_mut(BLOCK_SIZE).enumerate() {
                let block = Block(block.0 + within as u64);
                match core.find(io, *lineage, block, *at) {
                    Ok(Found::Zero) => part.fill(0),
                    Ok(Found::Data(data)) => part.copy_from_slice(&data),
                    Ok(Found::Fragment(owner, fragment)) => {
                        if let Some(segment) = core.space.get(fragment.segment) {
                            rows.entry(fragment.segment).or_insert_with(|| segment.row.clone());
                        }
                        stored.push(Stored { request: number, within, owner, block, fragment });
                    }
                    Err(broken) => answers[number] = Err(shared.damaged(&broken)),
                }
            }
        }
        core.begin_read(rows.values().map(|row| row.generation).collect())
    };
    let found = clock.now();
    io.spent.add(Stage::Map, found.since(start));
    let read = read_stored(io, &rows, &stored);
    if !stored.is_empty() {
        io.spent.add(Stage::Drive, clock.now().since(found));
    }
    let mut damaged = Vec::new();
    for (one, answer) in stored.iter().zip(read) {
        let request = &mut requests[one.request];
        let start = one.within * BLOCK_SIZE;
        let part = &mut request.buf[start..start + BLOCK_SIZE];
        let decoded = answer.and_then(|(bytes, bad)| {
            let why = || Broken { why: "it cannot be decompressed".to_owned() };
            fragment::decode(&bytes, part).ok_or_else(why).map(|()| bad)
        });
        match decoded {
            Ok(bad) if bad.is_empty() => {}
            Ok(bad) => {
                shared.counts.reconstructed.fetch_add(1, Ordering::Relaxed);
                for drive in bad.iter().filter_map(|drive| shared.fleet.get(*drive)) {
                    drive.blame();
                    damaged.push(one.fragment.segment);
                }
            }
            Err(broken) => {
                part.fill(0); // never what is wrong
                let volume = shared.core.lock().catalog.owner_of(one.owner);
                let lost = VolumeError::Lost { volume, block: one.block, why: broken.why };
                answers[one.request] = Err(lost);
            }
        }
    }
    let mut core = shared.core.lock();
    core.end_read(reader);
    let has_damage = !damaged.is_empty();
    for segment in damaged {
        if let Some(segment) = core.space.get_mut(segment) {
            segment.is_damaged = true;
        }
    }
    drop(core);
    if has_damage {
        shared.ring();
        add(&shared.counts.rebuilt, 0);
    }
    answers
}

fn read_stored(
    io: &mut Io,
    rows: &BTreeMap<SegmentId, SegmentRow>,
    stored: &[Stored],
) -> Vec<crate::segment::reader::Answer> {
    let checks: Vec<_> = stored
        .iter()
        .map(|one| {
            let generation = rows.get(&one.fragment.segment).map(|row| row.generation);
            move |bytes: &[u8]| {
                generation.is_some_and(|generation| {
                    fragment_crc(one.owner, one.block.0, generation, bytes) == one.fragment.crc
                })
            }
        })
        .collect();
    let mut wants = Vec::with_capacity(stored.len());
    let mut has_row = Vec::with_capacity(stored.len());
    for (one, is_good) in stored.iter().zip(&checks) {
        let row = rows.get(&one.fragment.segment);
        has_row.push(row.is_some());
        let Some(row) = row else { continue };
        let size = sectors(one.fragment.sectors.into());
        wants.push(Want { row, sector: one.fragment.sector, size, is_good });
    }
    let mut read = read_many(io, &wants).into_iter();
    let unknown = || Broken { why: "its segment is not in the table".to_owned() };
    let answers = has_row.into_iter().map(|has_row| match has_row {
        true => read.next().unwrap_or_else(|| Err(unknown())),
        false => Err(unknown()),
    });
    answers.collect()
}
