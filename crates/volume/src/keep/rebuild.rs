//! Rebuilds chunks, one by one, on other drives: a lost one is computed from the others, one on a drive that is being
//! emptied is copied. The segment's list of chunks changes with the next checkpoint.
//!
//! Invariants
//! 1. Nothing unverified is written: units that are read are compared with their chunk's seal, and blocks of a computed
//!    unit with the segment's summaries.
//! 2. What is written lies in slots that no checkpoint names, and the slot that a chunk leaves is not used again before a
//!    checkpoint does not name it.
//! 3. A rebuild that is broken off has changed nothing.

use esker_base::AlignedBuf;
use esker_base::checksum::crc32c;
use esker_base::units::{to_u64, to_usize};

use crate::drive::{Io, Read, Write};
use crate::engine::{Job, Keeper, Shared, Target, add};
use crate::keep::repair::{Absent, most_degraded, move_away};
use crate::keep::{checkpoint, clean, output, verify};
use crate::omf::envelope::fragment_crc;
use crate::omf::leaf::BUNDLE_BLOCKS;
use crate::omf::root::SegmentRow;
use crate::omf::seal::Seal;
use crate::omf::summary::{Item, ItemKind};
use crate::parity;
use crate::space::Class;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, SegmentId};

/// Bytes read of a chunk at a time when nobody else uses the drives.
const STRIDE: usize = 1 << 20;
/// Segments rebuilt at a time then: their chunks lie on different drives, which keeps all of them busy.
const JOBS: usize = 8;
/// The same while volumes are used: their commands wait behind little, and a rebuild beside them still ends soon.
const SMALL_STRIDE: usize = 256 << 10;
const FEW_JOBS: usize = 2;
/// Chunks rebuilt before a checkpoint.
const CHUNKS_PER_CHECKPOINT: u64 = 32;

/// How a segment is repaired.
enum Way {
    /// Nothing is wrong with it.
    Whole,
    Chunks(Job),
    Move,
}

/// Rebuilds a part of what is most degraded; false when there is nothing.
pub(crate) fn step(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    let (jobs, stride) = match shared.load.is_busy(&shared.options.clock) {
        true => (FEW_JOBS, SMALL_STRIDE),
        false => (JOBS, STRIDE),
    };
    close_cut(shared, keeper, io)?;
    break_off_stale(shared, keeper);
    let absent = Absent::now(shared);
    while keeper.rebuild.jobs.len() < jobs {
        let Some((id, lacks_parities)) = most_degraded(shared, keeper, &absent) else { break };
        let is_unfit = lacks_parities || keeper.rebuild.unfit.contains(&id);
        let way = if is_unfit { Way::Move } else { plan(shared, io, &absent, id) };
        match way {
            Way::Whole => {}
            Way::Chunks(job) => keeper.rebuild.jobs.push(job),
            Way::Move if !keeper.rebuild.jobs.is_empty() => break,
            Way::Move => {
                keeper.rebuild.unfit.retain(|unfit| *unfit != id);
                move_away(shared, keeper, io, id)?;
                keeper.rebuild.unpublished = 0;
                return Ok(true);
            }
        }
    }
    let rebuild = &mut keeper.rebuild;
    if rebuild.jobs.is_empty() {
        rebuild.began = None;
    } else if rebuild.began.is_none() {
        (rebuild.began, rebuild.bytes) = (Some(shared.options.clock.now()), 0);
    }
    let is_over = rebuild.jobs.is_empty() && rebuild.unpublished > 0;
    if is_over || rebuild.unpublished >= CHUNKS_PER_CHECKPOINT {
        rebuild.unpublished = 0;
        checkpoint::run(shared, keeper, io, &checkpoint::Want::default())?;
        return Ok(true);
    }
    if rebuild.jobs.is_empty() {
        return Ok(false);
    }
    let count = jobs.min(rebuild.jobs.len());
    advance(shared, keeper, io, count, stride)?;
    Ok(true)
}

/// Closes open segments that have a chunk on a drive that is out: nothing is appended to them any more.
fn close_cut(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<(), VolumeError> {
    for class in Class::ALL {
        let is_cut = keeper.writers.get(&class).is_some_and(|writer| {
            writer.row.chunks.iter().any(|(drive, _)| shared.fleet.get(*drive).is_none())
        });
        if is_cut {
            output::close(shared, keeper, io, class)?;
        }
    }
    Ok(())
}

/// Breaks off what is rebuilt of segments that were emptied meanwhile: their slots may be others' already.
fn break_off_stale(shared: &Shared, keeper: &mut Keeper) {
    let is_stale = |job: &mut Job| {
        let core = shared.core.lock();
        let segment = core.space.get(job.row.id);
        !segment.is_some_and(|s| s.row.generation == job.row.generation && s.row.live_bytes > 0)
    };
    let stale: Vec<Job> = keeper.rebuild.jobs.extract_if(.., is_stale).collect();
    stale.into_iter().for_each(|job| job.break_off(shared));
}

/// How to repair a segment; the slots of a job are allocated then.
fn plan(shared: &Shared, io: &mut Io, absent: &Absent, id: SegmentId) -> Way {
    let Some((row, is_damaged)) =
        shared.core.lock().space.get(id).map(|s| (s.row.clone(), s.is_damaged))
    else {
        return Way::Whole;
    };
    let mut seals = Vec::with_capacity(row.chunks.len());
    let mut wanted = Vec::new();
    for (chunk, (drive, _)) in row.chunks.iter().enumerate() {
        let serving = shared.fleet.get(*drive);
        let is_bad = serving.is_some() && is_damaged && !verify::check_chunk(io, &row, chunk).1;
        let seal = verify::read_seal(io, &row, chunk).filter(|_| serving.is_some() && !is_bad);
        let is_away = serving.is_none() && absent.missing.contains(drive);
        if !is_away && (seal.is_none() || absent.draining.contains(drive)) {
            wanted.push(chunk);
        }
        seals.push(seal.map(|seal| seal.unit_crcs));
    }
    if wanted.is_empty() {
        if let Some(segment) = shared.core.lock().space.get_mut(id) {
            segment.is_damaged = false;
        }
        return Way::Whole;
    }
    let readable = seals.iter().flatten().count();
    if readable < row.chunks.len() - usize::from(row.parity) {
        return Way::Move;
    }
    let Some(blocks) = blocks_of(shared, io, &row) else { return Way::Move };
    let layout = &shared.fleet.layout;
    let data_chunks = row.chunks.len() - usize::from(row.parity);
    let mut targets = Vec::with_capacity(wanted.len());
    let mut core = shared.core.lock();
    let (width, _) = shared.shape_now(&core.space);
    let is_tight = core.space.free_segments(width.into()) <= 2 + shared.page_segments(&core);
    for chunk in wanted {
        let taken: Vec<DriveIndex> = row.chunks.iter().map(|(drive, _)| *drive).collect();
        let taken = taken.iter().chain(targets.iter().map(|target: &Target| &target.to.0));
        let taken: Vec<DriveIndex> = taken.copied().collect();
        let Some(to) = core.space.allocate_chunk(&taken).filter(|_| !is_tight) else {
            targets.iter().for_each(|target| core.space.give_back(target.to.0, target.to.1));
            return Way::Move;
        };
        let places = blocks.iter().filter_map(|item| {
            let size = to_usize(item.bytes.into());
            let mut pieces = layout.pieces(data_chunks, item.sector, size);
            // A bundle may lie in two units: then it is not checked here.
            let piece = pieces.next().filter(|piece| piece.size == size)?;
            (piece.chunk == chunk).then_some((piece.row, piece.within, *item))
        });
        targets.push(Target { chunk, to, unit_crcs: Vec::new(), blocks: places.collect() });
    }
    Way::Chunks(Job { row, seals, targets, next_row: 0 })
}

/// All blocks that were packed into a segment, by their place.
fn blocks_of(shared: &Shared, io: &mut Io, row: &SegmentRow) -> Option<Vec<Item>> {
    let mut blocks = Vec::new();
    for (sector, bytes, crc) in &row.summaries {
        let items = clean::read_summary(shared, io, row, *sector, *bytes, *crc)?;
        blocks.extend(items.into_iter().filter(|item| item.kind == ItemKind::Block));
    }
    Some(blocks)
}

/// What became of a part of a job.
enum Part {
    /// These bytes are to be written to each of its targets.
    Computed(Vec<Vec<u8>>),
    /// Something that was read is wrong, and is read from other chunks the next time.
    Again,
    /// It cannot be rebuilt from what can be read.
    Unfit,
}

/// Moves the first jobs on by so many bytes of each chunk.
fn advance(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    count: usize,
    stride: usize,
) -> Result<(), VolumeError> {
    let layout = shared.fleet.layout;
    let rows_at_once = (stride / layout.unit_size()).max(1);
    let rows_of = |job: &Job| to_usize((job.row.rows - job.next_row).into()).min(rows_at_once);
    let jobs = &mut keeper.rebuild.jobs;
    let inputs: Vec<Vec<usize>> = jobs[..count].iter().map(Job::inputs).collect();
    let mut reads = Vec::new();
    for (job, inputs) in jobs.iter().zip(&inputs) {
        reads.extend(inputs.iter().map(|chunk| {
            let (drive, slot) = job.row.chunks[*chunk];
            let offset = layout.unit_offset(slot, job.next_row);
            Read { drive, offset, size: rows_of(job) * layout.unit_size() }
        }));
    }
    let mut answers = io.read(&reads).into_iter();
    let mut parts = Vec::with_capacity(count);
    for (job, inputs) in jobs.iter_mut().zip(&inputs) {
        let mut read = Vec::with_capacity(inputs.len());
        for chunk in inputs {
            let answer = answers.next().and_then(Result::ok);
            read.push((*chunk, answer));
        }
        parts.push(job.compute(shared, read));
    }
    let mut writes = Vec::new();
    for (job, part) in jobs.iter().zip(&parts) {
        let Part::Computed(units) = part else { continue };
        writes.extend(job.targets.iter().zip(units).map(|(target, bytes)| Write {
            drive: target.to.0,
            offset: layout.unit_offset(target.to.1, job.next_row),
            bytes,
            class: Some(job.row.class),
            fua: false,
        }));
    }
    let failed = crate::segment::writer::failures(io, &writes).err().unwrap_or_default();
    drop(writes);
    let mut over = Vec::new();
    for (number, (job, part)) in jobs.iter_mut().zip(&parts).enumerate() {
        let is_cut = job.targets.iter().any(|target| failed.contains(&target.to.0));
        match part {
            Part::Computed(units) if !is_cut => {
                for (target, bytes) in job.targets.iter_mut().zip(units) {
                    target.unit_crcs.extend(bytes.chunks(layout.unit_size()).map(crc32c));
                    keeper.rebuild.bytes += to_u64(bytes.len());
                }
                job.next_row += crate::types::u32_of(rows_of(job));
                if job.next_row >= job.row.rows {
                    over.push((number, true));
                }
            }
            Part::Again if !is_cut => {}
            Part::Computed(_) | Part::Again => over.push((number, false)),
            Part::Unfit => {
                keeper.rebuild.unfit.push(job.row.id);
                over.push((number, false));
            }
        }
    }
    shared.take_out(io, &failed)?;
    for (number, is_done) in over.into_iter().rev() {
        let job = keeper.rebuild.jobs.remove(number);
        match is_done {
            true => finish(shared, keeper, io, job)?,
            false => job.break_off(shared),
        }
    }
    Ok(())
}

/// All of a job's units are written: their seals, and the segment has its chunks there.
fn finish(shared: &Shared, keeper: &mut Keeper, io: &mut Io, job: Job) -> Result<(), VolumeError> {
    if let Err(failed) = job.seal(io) {
        job.break_off(shared);
        return shared.take_out(io, &failed);
    }
    let row = &job.row;
    let moves: Vec<_> = job.targets.iter().map(|target| (target.chunk, target.to)).collect();
    let bytes = u64::from(row.rows) * u64::from(shared.fleet.layout.shape.unit_bytes);
    let mut core = shared.core.lock();
    let stamp = core.stamp;
    if !core.space.move_chunks(row, &moves, stamp) {
        drop(core);
        job.break_off(shared); // it was cleaned meanwhile
        return Ok(());
    }
    drop(core);
    keeper.rebuild.unpublished += to_u64(moves.len());
    add(&shared.counts.rebuilt, bytes * to_u64(moves.len()));
    Ok(())
}

impl Job {
    fn data_chunks(&self) -> usize {
        self.row.chunks.len() - usize::from(self.row.parity)
    }

    /// The chunks to be read: those themselves that are wanted, or as many others as are needed, data first.
    fn inputs(&self) -> Vec<usize> {
        let wanted = self.targets.iter().map(|target| target.chunk);
        if wanted.clone().all(|chunk| self.seals[chunk].is_some()) {
            return wanted.collect();
        }
        let readable = (0..self.seals.len()).filter(|chunk| self.seals[*chunk].is_some());
        readable.take(self.data_chunks()).collect()
    }

    /// Verifies what was read, and computes what is wanted.
    fn compute(&mut self, shared: &Shared, read: Vec<(usize, Option<AlignedBuf>)>) -> Part {
        let unit = shared.fleet.layout.unit_size();
        let first = to_usize(self.next_row.into());
        let mut is_good = true;
        for (chunk, bytes) in &read {
            let crcs = self.seals[*chunk].as_ref().map_or(&[][..], |crcs| &crcs[first..]);
            let is_right = |bytes: &AlignedBuf| {
                bytes.chunks(unit).zip(crcs).all(|(unit, crc)| crc32c(unit) == *crc)
            };
            if bytes.as_ref().is_some_and(is_right) {
                continue;
            }
            is_good = false;
            self.seals[*chunk] = None;
            let drive = shared.fleet.get(self.row.chunks[*chunk].0);
            if let Some(drive) = drive.filter(|_| bytes.is_some()) {
                drive.blame();
            }
        }
        if !is_good {
            if let Some(segment) = shared.core.lock().space.get_mut(self.row.id) {
                segment.is_damaged = true; // what was found wrong is rebuilt, too
            }
            let readable = self.seals.iter().flatten().count();
            return if readable < self.data_chunks() { Part::Unfit } else { Part::Again };
        }
        let read: Vec<(usize, &[u8])> =
            read.iter().filter_map(|(chunk, bytes)| Some((*chunk, &bytes.as_ref()?[..]))).collect();
        let wanted: Vec<usize> = self.targets.iter().map(|target| target.chunk).collect();
        let Some(units) =
            parity::compute(&read, self.row.chunks.len(), self.row.parity.into(), &wanted)
        else {
            return Part::Unfit;
        };
        let are_right = self.targets.iter().zip(&units).all(|(target, bytes)| {
            let is_here =
                |row: u32| (first..first + bytes.len() / unit).contains(&to_usize(row.into()));
            target.blocks.iter().filter(|(row, ..)| is_here(*row)).all(|(row, within, item)| {
                let start = (to_usize((*row).into()) - first) * unit + within;
                let block = bytes.get(start..start + to_usize(item.bytes.into()));
                let crc =
                    |index, bytes| fragment_crc(item.lineage, index, self.row.generation, bytes);
                // That of a bundle is seeded with its first block.
                let first = item.index - item.index % BUNDLE_BLOCKS;
                block.is_some_and(|bytes| {
                    crc(item.index, bytes) == item.crc || crc(first, bytes) == item.crc
                })
            })
        });
        if are_right { Part::Computed(units) } else { Part::Unfit }
    }

    /// Writes the seals of the new chunks.
    fn seal(&self, io: &mut Io) -> Result<(), Vec<DriveIndex>> {
        let layout = io.fleet().layout;
        let pool = io.fleet().pool;
        let mut chunks = self.row.chunks.clone();
        self.targets.iter().for_each(|target| chunks[target.chunk] = target.to);
        let seals = self.targets.iter().map(|target| {
            let seal = Seal {
                segment: self.row.id,
                generation: self.row.generation,
                copy: self.row.seal_copy,
                parity: self.row.parity,
                class: self.row.class,
                chunk: u16::try_from(target.chunk).expect("a segment has few chunks"),
                chunks: chunks.clone(),
                unit_crcs: target.unit_crcs.clone(),
            };
            let mut bytes = seal.encode(pool);
            bytes.resize(layout.seal_size(), 0);
            bytes
        });
        let seals: Vec<Vec<u8>> = seals.collect();
        let writes = self.targets.iter().zip(&seals).map(|(target, bytes)| Write {
            drive: target.to.0,
            offset: layout.seal_offset(target.to.1, self.row.seal_copy),
            bytes,
            class: Some(self.row.class),
            fua: false,
        });
        crate::segment::writer::failures(io, &writes.collect::<Vec<_>>())
    }

    /// Its slots are free again.
    fn break_off(self, shared: &Shared) {
        let mut core = shared.core.lock();
        for target in &self.targets {
            core.space.give_back(target.to.0, target.to.1);
        }
    }
}
