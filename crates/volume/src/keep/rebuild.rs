//! Rebuilds chunks, one by one, on other drives: a lost one is computed from the others, one on a drive that is being
//! emptied is copied. The segment's list of chunks changes with the next checkpoint. Where no other drive has a free slot,
//! or too much is lost, the segment's content is moved instead.
//!
//! Invariants
//! 1. Nothing unverified is written: units that are read are compared with their chunk's seal, and blocks of a computed
//!    unit with the segment's summaries.
//! 2. What is written lies in slots that no checkpoint names, and the slot that a chunk leaves is not used again before a
//!    checkpoint does not name it.
//! 3. A rebuild that is broken off has changed nothing.
//!
//! Several segments are rebuilt at a time. Each reads a stride of its chunks, computes it, and reads the next stride while
//! the computed one is written.

use esker_base::AlignedBuf;
use esker_base::checksum::crc32c;
use esker_base::units::{to_u64, to_usize};

use crate::drive::{Io, Read, Transfers, Write};
use crate::engine::{Job, Keeper, Shared, Target, add};
use crate::keep::degraded::{Absent, most_degraded};
use crate::keep::reclaim::ensure_space;
use crate::keep::{checkpoint, clean, output, verify};
use crate::omf::envelope::fragment_crc;
use crate::omf::leaf::BUNDLE_BLOCKS;
use crate::omf::root::SegmentRow;
use crate::omf::seal::Seal;
use crate::omf::summary::{Item, ItemKind};
use crate::parity;
use crate::space::Class;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, PoolUuid, SegmentId};

/// Bytes read of a chunk at a time when nobody else uses the drives.
const STRIDE: usize = 1 << 20;
/// Chunks that are read at a time then, of several segments: they lie on different drives, which keeps all of them busy.
const CHUNKS: usize = 96;
/// The same while volumes are used: their commands wait behind little, and a rebuild beside them still ends soon.
const SMALL_STRIDE: usize = 256 << 10;
const FEW_JOBS: usize = 2;
/// Chunks rebuilt before a checkpoint.
const CHUNKS_PER_CHECKPOINT: u64 = 64;

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
        false => ((CHUNKS / usize::from(shared.fleet.layout.shape.width)).clamp(2, 16), STRIDE),
    };
    close_cut(shared, keeper, io)?;
    break_off_stale(shared, keeper);
    let absent = Absent::to_repair(shared);
    let (mut chosen, mut is_moved) = (Vec::new(), None);
    while keeper.rebuild.jobs.len() + chosen.len() < jobs {
        let next = most_degraded(shared, keeper, &absent, &chosen);
        let Some((id, lacks_parities)) = next else { break };
        if lacks_parities || keeper.rebuild.unfit.contains(&id) {
            is_moved = Some(id);
            break;
        }
        chosen.push(id);
    }
    for (id, way) in chosen.iter().zip(plan(shared, io, &absent, &chosen)) {
        match way {
            Way::Whole => {}
            Way::Chunks(job) => keeper.rebuild.jobs.push(job),
            Way::Move => keeper.rebuild.unfit.push(*id),
        }
    }
    // Jobs go on first: they may need the slots that they have.
    if keeper.rebuild.jobs.is_empty()
        && let Some(id) = is_moved
    {
        keeper.rebuild.unfit.retain(|unfit| *unfit != id);
        move_away(shared, keeper, io, id)?;
        keeper.rebuild.unpublished = 0;
        return Ok(true);
    }
    if keeper.rebuild.jobs.is_empty() && !chosen.is_empty() {
        return Ok(true); // the next step sees what became of them
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
        checkpoint::run(shared, keeper, io, &checkpoint::Options::default())?;
        return Ok(true);
    }
    if rebuild.jobs.is_empty() {
        return Ok(false);
    }
    let count = jobs.min(rebuild.jobs.len());
    advance(shared, keeper, io, count, stride)?;
    Ok(true)
}

/// Moves what lives in a segment elsewhere, or reports that it cannot.
fn move_away(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    id: SegmentId,
) -> Result<(), VolumeError> {
    ensure_space(shared, keeper, io)?;
    let live = shared.core.lock().space.get(id).map_or(0, |segment| segment.row.live_bytes);
    clean::move_out(shared, keeper, io, id)?;
    add(&shared.counts.rebuilt, live);
    // Leaves and nodes move with the next checkpoint, and slots become free with it.
    checkpoint::run(shared, keeper, io, &checkpoint::Options::default())
}

/// Closes open segments that are damaged, or that have a chunk on a drive that is out: nothing is appended to them any more,
/// and what is wrong with them can be rebuilt.
fn close_cut(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<(), VolumeError> {
    for class in Class::ALL {
        let Some(row) = keeper.writers.get(&class).map(|writer| &writer.row) else { continue };
        let is_cut = row.chunks.iter().any(|(drive, _)| shared.fleet.get(*drive).is_none());
        let is_damaged =
            || shared.core.lock().space.get(row.id).is_some_and(|segment| segment.is_damaged);
        if is_cut || is_damaged() {
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

/// Breaks off all that is being rebuilt: a drive that returned has some of it, and what was written to it may be lost.
pub(crate) fn start_over(shared: &Shared, keeper: &mut Keeper) {
    keeper.rebuild.jobs.drain(..).for_each(|job| job.break_off(shared));
    keeper.rebuild.unfit.clear();
}

/// How to repair each of these segments; the slots of a job are allocated then. All that is to be known of them is read
/// at once.
fn plan(shared: &Shared, io: &mut Io, absent: &Absent, ids: &[SegmentId]) -> Vec<Way> {
    let rows: Vec<Option<(SegmentRow, bool)>> = {
        let core = shared.core.lock();
        let row = |id: &SegmentId| core.space.get(*id).map(|s| (s.row.clone(), s.is_damaged));
        ids.iter().map(row).collect()
    };
    let there: Vec<&SegmentRow> = rows.iter().flatten().map(|(row, _)| row).collect();
    let mut seals = verify::read_seals(io, &there).into_iter();
    let mut blocks = blocks_of(shared, io, &there).into_iter();
    let plans = rows.iter().map(|row| {
        let Some((row, is_damaged)) = row else { return Way::Whole };
        let seals = seals.next().expect("the seals of each");
        let blocks = blocks.next().expect("the blocks of each");
        plan_one(shared, io, absent, row, *is_damaged, seals, blocks)
    });
    plans.collect()
}

fn plan_one(
    shared: &Shared,
    io: &mut Io,
    absent: &Absent,
    row: &SegmentRow,
    is_damaged: bool,
    read: Vec<Option<Seal>>,
    blocks: Option<Vec<Item>>,
) -> Way {
    let mut seals = Vec::with_capacity(row.chunks.len());
    let mut wanted = Vec::new();
    for ((chunk, (drive, _)), seal) in row.chunks.iter().enumerate().zip(read) {
        let serving = shared.fleet.get(*drive);
        let is_bad = serving.is_some() && is_damaged && !verify::check_chunk(io, row, chunk).1;
        let seal = seal.filter(|_| serving.is_some() && !is_bad);
        let is_away = serving.is_none() && absent.missing.contains(drive);
        if !is_away && (seal.is_none() || absent.draining.contains(drive)) {
            wanted.push(chunk);
        }
        seals.push(seal.map(|seal| seal.unit_crcs));
    }
    if wanted.is_empty() {
        if let Some(segment) = shared.core.lock().space.get_mut(row.id) {
            segment.is_damaged = false;
        }
        return Way::Whole;
    }
    let readable = seals.iter().flatten().count();
    if readable < row.chunks.len() - usize::from(row.parity) {
        return Way::Move;
    }
    let Some(blocks) = blocks else { return Way::Move };
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
    Way::Chunks(Job { row: row.clone(), seals, targets, next_row: 0 })
}

/// All blocks that were packed into each of these segments, by their place; none where a summary is lost.
fn blocks_of(shared: &Shared, io: &mut Io, rows: &[&SegmentRow]) -> Vec<Option<Vec<Item>>> {
    let wanted = rows.iter().flat_map(|row| row.summaries.iter().map(|summary| (*row, *summary)));
    let mut summaries = clean::read_summaries(shared, io, &wanted.collect::<Vec<_>>()).into_iter();
    let blocks = rows.iter().map(|row| {
        let own: Vec<Option<Vec<Item>>> = summaries.by_ref().take(row.summaries.len()).collect();
        let all = own.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten();
        Some(all.filter(|item| item.kind == ItemKind::Block).collect())
    });
    blocks.collect()
}

/// The outcome of a stride of a job.
enum Part {
    /// These bytes are to be written to each of its targets.
    Computed(Vec<Vec<u8>>),
    /// Something that was read is wrong, and is read from other chunks the next time.
    Again,
    /// It cannot be rebuilt from what can be read.
    Unfit,
}

/// A command of a rebuild: of which job, and whether it reads an input or writes a target.
enum Tag {
    Read(usize, usize),
    Write(usize, DriveIndex),
}

/// How far a job is in one step.
#[derive(Default)]
struct Course {
    /// The stride that is being read: its inputs, as far as they are there, and how many are not.
    read: Vec<(usize, Option<AlignedBuf>)>,
    reading: usize,
    writing: usize,
    /// Strides that it may still read in this step.
    strides: usize,
    /// A target failed.
    is_cut: bool,
    is_unfit: bool,
}

/// A step of jobs: each goes through its strides by itself.
struct Step<'a> {
    shared: &'a Shared,
    transfers: Transfers<'a, Tag>,
    courses: Vec<Course>,
    stride: usize,
    failed: Vec<DriveIndex>,
    /// Bytes written.
    bytes: u64,
}

impl Step<'_> {
    fn rows_of(&self, job: &Job) -> usize {
        let rows_at_once = (self.stride / self.shared.fleet.layout.unit_size()).max(1);
        to_usize((job.row.rows - job.next_row).into()).min(rows_at_once)
    }

    /// Reads the next stride of a job, if it has one and may.
    fn read_on(&mut self, number: usize, job: &Job) {
        let course = &mut self.courses[number];
        let may = course.strides > 0 && !course.is_cut && !course.is_unfit;
        if !may || job.next_row >= job.row.rows {
            return;
        }
        course.strides -= 1;
        let inputs = job.inputs();
        course.reading = inputs.len();
        course.read = inputs.iter().map(|chunk| (*chunk, None)).collect();
        let layout = &self.shared.fleet.layout;
        let size = self.rows_of(job) * layout.unit_size();
        for (input, chunk) in inputs.into_iter().enumerate() {
            let (drive, slot) = job.row.chunks[chunk];
            let offset = layout.unit_offset(slot, job.next_row);
            self.transfers.read(Tag::Read(number, input), Read { drive, offset, size });
        }
    }

    /// All inputs of a stride are there: it is computed and written, and the next one is read meanwhile.
    fn compute(&mut self, number: usize, job: &mut Job) {
        let read = std::mem::take(&mut self.courses[number].read);
        let part = job.compute(self.shared, &read);
        read.into_iter().filter_map(|(_, buf)| buf).for_each(|buf| self.transfers.keep(buf));
        match part {
            Part::Computed(units) => {
                let layout = &self.shared.fleet.layout;
                let first_row = job.next_row;
                job.next_row += crate::types::u32_of(self.rows_of(job));
                self.read_on(number, job);
                for (target, bytes) in job.targets.iter_mut().zip(&units) {
                    target.unit_crcs.extend(bytes.chunks(layout.unit_size()).map(crc32c));
                    let offset = layout.unit_offset(target.to.1, first_row);
                    let (drive, class) = (target.to.0, Some(job.row.class));
                    let write = Write { drive, offset, bytes, class, fua: false };
                    self.transfers.write(Tag::Write(number, drive), &write);
                    self.courses[number].writing += 1;
                    self.bytes += to_u64(bytes.len());
                }
            }
            Part::Again => {
                self.courses[number].strides += 1;
                self.read_on(number, job);
            }
            Part::Unfit => self.courses[number].is_unfit = true,
        }
    }

    /// Runs the jobs until each has read the strides that it may.
    fn run(&mut self, jobs: &mut [Job], is_wanted: impl Fn() -> bool) {
        for (number, job) in jobs.iter().enumerate() {
            self.read_on(number, job);
        }
        while let Some((tag, result)) = self.transfers.next() {
            match tag {
                Tag::Read(number, input) => {
                    let course = &mut self.courses[number];
                    course.read[input].1 = result.ok();
                    course.reading -= 1;
                    if course.reading == 0 {
                        if !is_wanted() {
                            self.courses.iter_mut().for_each(|course| course.strides = 0);
                        }
                        self.compute(number, &mut jobs[number]);
                    }
                }
                Tag::Write(number, drive) => {
                    let course = &mut self.courses[number];
                    course.writing -= 1;
                    match result {
                        Ok(buf) => self.transfers.keep(buf),
                        Err(_) => {
                            course.is_cut = true;
                            self.failed.push(drive);
                        }
                    }
                }
            }
        }
        debug_assert!(self.courses.iter().all(|course| course.reading + course.writing == 0));
    }
}

/// Moves the first jobs on: by a stride of so many bytes of each chunk while volumes are used, else to their end.
fn advance(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    count: usize,
    stride: usize,
) -> Result<(), VolumeError> {
    let clock = &shared.options.clock;
    let was_busy = shared.load.is_busy(clock);
    let strides = if was_busy { 1 } else { usize::MAX / 2 };
    let courses = (0..count).map(|_| Course { strides, ..Course::default() }).collect();
    let transfers = Transfers::new(io);
    let mut step = Step { shared, transfers, courses, stride, failed: Vec::new(), bytes: 0 };
    // Those who come meanwhile do not wait for more than what was begun.
    step.run(&mut keeper.rebuild.jobs[..count], || was_busy || !shared.load.is_busy(clock));
    let Step { courses, failed, bytes, .. } = step;
    keeper.rebuild.bytes += bytes;
    let mut done = Vec::new();
    for (number, course) in courses.into_iter().enumerate().rev() {
        let job = &keeper.rebuild.jobs[number];
        let is_cut = course.is_cut || job.targets.iter().any(|to| failed.contains(&to.to.0));
        if is_cut || course.is_unfit {
            let job = keeper.rebuild.jobs.remove(number);
            if course.is_unfit {
                keeper.rebuild.unfit.push(job.row.id);
            }
            job.break_off(shared);
        } else if job.next_row >= job.row.rows {
            done.push(keeper.rebuild.jobs.remove(number));
        }
    }
    shared.take_out(io, &failed)?;
    finish(shared, keeper, io, done)
}

/// All units of these jobs are written: their seals, and the segments have their chunks there.
fn finish(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    jobs: Vec<Job>,
) -> Result<(), VolumeError> {
    let failed = seal(io, &jobs).err().unwrap_or_default();
    for job in jobs {
        let row = &job.row;
        let moves: Vec<_> = job.targets.iter().map(|target| (target.chunk, target.to)).collect();
        let is_cut = job.targets.iter().any(|target| failed.contains(&target.to.0));
        let bytes = u64::from(row.rows) * u64::from(shared.fleet.layout.shape.unit_bytes);
        let mut core = shared.core.lock();
        let stamp = core.stamp;
        // It may have been cleaned meanwhile.
        if is_cut || !core.space.move_chunks(row, &moves, stamp) {
            drop(core);
            job.break_off(shared);
            continue;
        }
        drop(core);
        keeper.rebuild.unpublished += to_u64(moves.len());
        add(&shared.counts.rebuilt, bytes * to_u64(moves.len()));
    }
    shared.take_out(io, &failed)
}

/// Writes the seals of the new chunks of these jobs; says which drives failed.
fn seal(io: &mut Io, jobs: &[Job]) -> Result<(), Vec<DriveIndex>> {
    let layout = io.fleet().layout;
    let pool = io.fleet().pool;
    let seals: Vec<Vec<Vec<u8>>> = jobs.iter().map(|job| job.seals_of_targets(io, pool)).collect();
    let writes = jobs.iter().zip(&seals).flat_map(|(job, seals)| {
        job.targets.iter().zip(seals).map(|(target, bytes)| Write {
            drive: target.to.0,
            offset: layout.seal_offset(target.to.1, job.row.seal_copy),
            bytes,
            class: Some(job.row.class),
            fua: false,
        })
    });
    crate::segment::writer::failures(io, &writes.collect::<Vec<_>>())
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
    fn compute(&mut self, shared: &Shared, read: &[(usize, Option<AlignedBuf>)]) -> Part {
        let unit = shared.fleet.layout.unit_size();
        let first = to_usize(self.next_row.into());
        let mut is_good = true;
        for (chunk, bytes) in read {
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

    /// The seals of the new chunks.
    fn seals_of_targets(&self, io: &Io, pool: PoolUuid) -> Vec<Vec<u8>> {
        let layout = io.fleet().layout;
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
        seals.collect()
    }

    /// Its slots are free again.
    fn break_off(self, shared: &Shared) {
        let mut core = shared.core.lock();
        for target in &self.targets {
            core.space.give_back(target.to.0, target.to.1);
        }
    }
}
