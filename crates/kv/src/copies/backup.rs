//! Backups: a KVDB's content of one moment, on other devices, while the KVDB goes on.
//!
//! A backup copies immutable data: kvsets, value blocks, and the frames of the log that are durable. It holds them,
//! so that maintenance lets go of them and frees nothing, reads and verifies them, and writes their bytes as they
//! are. Only their place differs, and only the manifest says that.
//!
//! Invariants
//! 1. The copy holds every record that was visible when the backup began, and of each batch all or
//!    nothing; of later writes it may hold the first few.
//! 2. Everything is durable before the class headers are written, and they before the manifest: a copy
//!    that was not finished is no KVDB, and one that opens is whole.
//! 3. The copy has a uuid of its own: devices of copy and original cannot be mixed up.
//! 4. Nothing is written to the devices of the original, but for the log flush at the beginning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use esker_base::AlignedBuf;
use esker_base::progress::{Meter, Unit};
use esker_base::units::{round_up, to_usize};
use serde::Serialize;

use crate::api::kvdb::Kvdb;
use crate::api::location::{Location, Made};
use crate::engine::shared::Engine;
use crate::log::frame::read_frame;
use crate::manifest::state::State;
use crate::media::class::Allocation;
use crate::media::classes::Classes;
use crate::media::space::Purpose;
use crate::omf::frame::{FrameKind, HEADER_SIZE};
use crate::recover::open;
use crate::tree::kvset::Kvset;
use crate::tree::view::View;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result, go_on};
use crate::types::extent::Extent;
use crate::types::ids::{BlockId, Ids, KvsetId, LeafId, Seqno};
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;

/// Amounts that a backup has copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BackupReport {
    /// KVSs.
    pub kvss: u64,
    /// Kvsets.
    pub kvsets: u64,
    /// Value blocks and log segments.
    pub blocks: u64,
    /// Bytes written to the classes of the copy.
    pub copied_bytes: u64,
}

impl Kvdb {
    /// Copies the KVDB to another place, as [`Builder::create`](crate::Builder::create) would make one there, while reads
    /// and writes go on.
    ///
    /// The copy is a KVDB of its own. It holds all data that was visible when the call began, and a
    /// batch or a transaction that was committed meanwhile either whole or not at all. It takes about
    /// the space that live data take. To restore it, open it, or copy it to other devices in turn:
    /// open it with [`Options::read_only`](crate::types::options::Options::read_only) and call this.
    ///
    /// Nothing is there to be opened until all of it is durable: after a failure or a crash, the place holds
    /// no KVDB, and the call may be repeated; after a failure the files that it made are gone. In files the
    /// copy leaves the room that new data would leave, for the KVDB itself may be on the same file system.
    /// The original's media keep the data of the copy as long as the call runs, as a snapshot would.
    ///
    /// ```
    /// # use esker_kv::{Batch, Kvdb, KvError, Location, Policy, Readable, WriteOptions};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// # let users = db.create_kvs("users", Policy::default())?;
    /// users.put("42", "Ada")?;
    /// let copy = scratch.path().join("copy");
    /// db.backup(&Location::dir(&copy))?;
    /// let copy = Kvdb::builder(copy).open_read_only()?;
    /// assert_eq!(copy.kvs("users")?.get("42")?.unwrap(), "Ada");
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Exists` when there is a KVDB or data already, `NoSpace` when the copy does not fit, `Corrupt`
    /// when something of this KVDB is damaged, `Invalid` when a device of the copy has other LBAs than
    /// the class that is to go there, or a device's error. `Closed` when the KVDB is closed, also meanwhile. The KVDB itself goes on.
    pub fn backup(&self, to: &Location) -> Result<BackupReport> {
        self.engine.life.check_open()?;
        let made = to.make()?;
        let report = back_up(&self.engine, &made)?;
        made.keep();
        Ok(report)
    }
}

/// The structure of one moment, and the holds that keep it on the media.
struct Captured {
    state: State,
    seqno: Seqno,
    kvsets: Vec<Arc<Kvset>>,
    blocks: BTreeMap<BlockId, Arc<ValueBlock>>,
}

fn back_up(engine: &Engine, to: &Made) -> Result<BackupReport> {
    copy(engine, pin(engine)?, to)
}

fn copy(engine: &Engine, pinned: Captured, to: &Made) -> Result<BackupReport> {
    let Made { devices, classes: paths, .. } = to;
    let Captured { mut state, seqno, kvsets, blocks } = pinned;
    engine.flush_through(seqno)?;
    let kvset_bytes = kvsets.iter().map(|kvset| kvset.export_size());
    let block_bytes = blocks.values().map(|block| block.allocation.bytes());
    let total = kvset_bytes.chain(block_bytes).sum();
    let meter = engine.options.observer.meter("copying", Some(total), Unit::Bytes);
    let mut copy = Copy::new(devices.classes(&engine.options), meter);
    for kvset in &kvsets {
        let extents = copy.kvset(kvset)?;
        state.kvsets.get_mut(&kvset.edit.id).expect("of this moment").extents = extents;
    }
    let last = copy.blocks(&mut state, &blocks, seqno)?;
    if last < seqno {
        let writer = engine.log.tail();
        let segment = writer.segment();
        let detail = format!("it was durable up to record {seqno}, and ends at {last}");
        return Err(segment.media().corrupt("log", segment.extent().lba, detail));
    }
    copy.classes.flush()?;
    state.uuid = to.uuid();
    state.last_id = Ids::begin_copy(state.uuid, state.last_id);
    state.classes = paths.iter().cloned().collect();
    copy.report.kvss = state.kvss.len() as u64;
    open::found(&copy.classes, &devices.manifest, (state.version, state.uuid), state.edits())?;
    Ok(copy.report)
}

/// Captures the state that is visible now. A change of the structure is in the manifest first and in the view a
/// moment later: that moment is waited out.
fn pin(engine: &Engine) -> Result<Captured> {
    loop {
        // Closing frees the view, which then says nothing any more.
        engine.life.check_open()?;
        // Frames are copied whole: one ends here, because later records may be of a KVS
        // that the copy does not know.
        let (view, seqno) = {
            let mut log = engine.log.tail_in_turn();
            log.seal();
            engine.view.snapshot(&engine.log)
        };
        let state = engine.manifest.state();
        if describes(&state, &view) {
            return Ok(Captured::new(state, &view, seqno));
        }
        engine.options.clock.sleep(Duration::from_millis(1));
    }
}

/// Whether the manifest names the KVSs, leaves and kvsets that the view has, and no others. Kvsets are
/// never named again, so then it is as far in all that was ingested, too.
fn describes(state: &State, view: &View) -> bool {
    let trees = || view.trees.values();
    let leaves = trees().flat_map(|tree| tree.leaves.iter().map(|leaf| leaf.id));
    let kvsets = trees().flat_map(|tree| tree.kvsets().map(|kvset| kvset.edit.id));
    let mut leaves: Vec<LeafId> = leaves.collect();
    let mut kvsets: Vec<KvsetId> = kvsets.collect();
    leaves.sort_unstable();
    kvsets.sort_unstable();
    state.kvss.keys().eq(view.trees.keys())
        && state.leaves.keys().eq(&leaves)
        && state.kvsets.keys().eq(&kvsets)
}

impl Captured {
    /// Keeps kvsets and blocks, and not the view, because that keeps memtables in DRAM.
    fn new(state: State, view: &View, seqno: Seqno) -> Captured {
        let kvsets: Vec<Arc<Kvset>> =
            view.trees.values().flat_map(|tree| tree.kvsets()).cloned().collect();
        let aged = kvsets.iter().flat_map(|kvset| kvset.blocks.iter().map(|(block, _)| block));
        let blocks =
            aged.cloned().chain(view.log_blocks()).map(|block| (block.id, block)).collect();
        Captured { state, seqno, kvsets, blocks }
    }
}

/// A copy under construction.
struct Copy {
    classes: Classes,
    /// Space in use: nothing is given out twice while it is held.
    held: Vec<Allocation>,
    /// How far each block is referred to, in bytes.
    ends: BTreeMap<BlockId, u64>,
    report: BackupReport,
    /// Bytes of the original that were read.
    meter: Meter<'static>,
}

impl Copy {
    fn new(classes: Classes, meter: Meter<'static>) -> Copy {
        let (held, ends) = (Vec::new(), BTreeMap::new());
        Copy { classes, held, ends, report: BackupReport::default(), meter }
    }

    /// Space for at least `least` bytes and about `bytes`, where a source with LBAs of `lba_size` bytes
    /// can be read: frames begin at LBAs. Keys fit any.
    fn allocate(
        &self,
        preferred: MediaClass,
        stream: Stream,
        (least, bytes): (u64, u64),
        lba_size: Option<u32>,
    ) -> Result<Allocation> {
        let mut refused = None;
        for class in [preferred, preferred.other()] {
            let Some(media) = self.classes.get(class) else { continue };
            if let Some(wanted) = lba_size
                && wanted != media.lba_size
            {
                let (name, got) = (media.device().name(), media.lba_size);
                refused.get_or_insert(KvError::Options(format!(
                    "{name}: LBAs of {got} bytes; values that lie in LBAs of {wanted} bytes cannot \
                     be copied there as they are: give a device with such LBAs, or dump and load"
                )));
                continue;
            }
            // A device is the copy's alone, to the last LBA; where a file is, there may be the original's.
            let is_shared = media.device().usable_bytes().is_some();
            let purpose = if is_shared { Purpose::User } else { Purpose::Maintenance };
            let mut size = bytes;
            loop {
                match media.allocate(stream, size.max(least), purpose) {
                    Err(KvError::NoSpace { .. }) if size > least => size /= 2,
                    Err(full @ KvError::NoSpace { .. }) => break refused = Some(full),
                    result => return result,
                }
            }
        }
        Err(refused.expect("a copy has a capacity class"))
    }

    /// Copies a kvset; returns where it lies.
    fn kvset(&mut self, kvset: &Kvset) -> Result<Vec<Extent>> {
        let first = &kvset.key_extents()[0];
        let mut left = kvset.export_size();
        let mut extents = Vec::new();
        while left > 0 {
            let size = (left.min(PIECE as u64), left);
            let extent = self.allocate(first.media.class, first.stream, size, None)?;
            left = left.saturating_sub(extent.bytes());
            extents.push(extent);
        }
        let mut out = Extents { extents: &extents, used: 0, buf: Vec::with_capacity(PIECE) };
        let (ends, meter) = (&mut self.ends, &mut self.meter);
        kvset.export(
            |bytes| {
                go_on(meter.add(bytes.len() as u64))?;
                out.append(bytes)
            },
            |block, end| {
                let known = ends.entry(block).or_default();
                *known = end.max(*known);
            },
        )?;
        out.flush()?;
        self.report.kvsets += 1;
        self.report.copied_bytes += kvset.export_size();
        let places = extents.iter().map(|allocation| allocation.extent).collect();
        self.held.extend(extents);
        Ok(places)
    }

    /// Copies the blocks that kvsets refer to, and the log up to `seqno`; forgets all others. Returns the
    /// seqno up to which the copy has all records.
    fn blocks(
        &mut self,
        state: &mut State,
        blocks: &BTreeMap<BlockId, Arc<ValueBlock>>,
        seqno: Seqno,
    ) -> Result<Seqno> {
        state.blocks.retain(|id, _| blocks.contains_key(id));
        let mut last = state.ingested;
        // In the order of the log.
        for (id, known) in &mut state.blocks {
            let after = self.meter.done() + blocks[id].allocation.bytes();
            known.extent = self.block(&blocks[id], known.log.then_some(seqno), &mut last)?;
            go_on(self.meter.reach(after))?;
        }
        Ok(last)
    }

    /// Copies the frames of a block; of a log segment those that begin at or before `through`. Returns
    /// where they lie, and has `last` go on to where they are the log without a gap.
    fn block(
        &mut self,
        block: &ValueBlock,
        through: Option<Seqno>,
        last: &mut Seqno,
    ) -> Result<Extent> {
        let source = &block.allocation;
        let (class, stream, lba_size) =
            (block.media().class, source.stream, block.media().lba_size);
        let size = source.bytes();
        let mut copy = self.allocate(class, stream, (size, size), Some(lba_size))?;
        let (mut offset, mut bytes) = (0, 0);
        while through.is_some() || bytes < block.bytes {
            let Some((header, payload)) = read_frame(block, offset)? else { break };
            let is_of_log =
                |through| header.kind == FrameKind::Log && header.first_seqno <= through;
            if through.is_some_and(|through| !is_of_log(through)) {
                break;
            }
            let mut frame = Vec::with_capacity(HEADER_SIZE + payload.len());
            frame.extend_from_slice(&header.encode());
            frame.extend_from_slice(&payload);
            let frame = AlignedBuf::padded(&frame, to_usize(lba_size.into()));
            bytes += u64::from(header.payload_size);
            if through.is_some() && header.first_seqno <= last.next() {
                *last = header.last_seqno().max(*last);
            }
            let at = offset;
            offset += frame.len() as u64;
            go_on(self.meter.add(frame.len() as u64))?;
            copy.write_at(at, frame)?;
        }
        let wanted = self.ends.get(&block.id).copied().unwrap_or(0);
        if bytes < block.bytes || offset < wanted {
            let (lba, ..) = source.span(offset, 1);
            let detail = format!("a frame is missing at offset {offset} of block {}", block.id);
            return Err(block.media().corrupt("value block", lba, detail));
        }
        copy.truncate(offset.max(1));
        if through.is_some() {
            blank(&copy, offset)?;
        }
        self.report.blocks += 1;
        self.report.copied_bytes += offset;
        let extent = copy.extent;
        self.held.push(copy);
        Ok(extent)
    }
}

/// Zeroes an extent from `from` on: the device's earlier content must not look like the log.
fn blank(extent: &Allocation, mut from: u64) -> Result<()> {
    while from < extent.bytes() {
        let size = to_usize(extent.bytes() - from).min(PIECE);
        extent.write_at(from, AlignedBuf::zeroed(size))?;
        from += size as u64;
    }
    Ok(())
}

/// Bytes gathered before they are written.
const PIECE: usize = 256 << 10;

/// Writes bytes through extents, one after the other.
struct Extents<'a> {
    extents: &'a [Allocation],
    /// Bytes written to the first of them.
    used: u64,
    buf: Vec<u8>,
}

impl Extents<'_> {
    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            // A piece does not straddle two extents.
            let room = to_usize(self.extents[0].bytes() - self.used).min(PIECE) - self.buf.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buf.extend_from_slice(now);
            if now.len() == room {
                self.flush()?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.buf.is_empty() {
            return Ok(());
        }
        let extent = &self.extents[0];
        let lba_size = extent.media.lba_size;
        extent.write_at(self.used, AlignedBuf::padded(&self.buf, to_usize(lba_size.into())))?;
        self.used += round_up(self.buf.len() as u64, lba_size.into());
        self.buf.clear();
        if self.used == extent.bytes() {
            (self.extents, self.used) = (&self.extents[1..], 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::batch::Batch;
    use crate::testing::kvdb;
    use crate::types::options::{Maintenance, Options};
    use crate::types::policy::Policy;
    use esker_device::{Device, MemoryDevice};

    #[test]
    fn a_batch_of_a_kvs_that_is_newer_than_the_copy_is_not_in_it_by_half() {
        let (db, old, _) = kvdb();
        old.put(b"before", b"v").unwrap();
        let pinned = pin(&db.engine).unwrap();
        let new = db.create_kvs("new", Policy::default()).unwrap();
        let mut batch = Batch::new();
        batch.put(&old, b"half", b"v");
        batch.put(&new, b"half", b"v");
        db.write(&batch).unwrap();
        let device = |name| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, 16 << 20, 512)) };
        let made = Location::devices(device("m"), device("c")).make().unwrap();
        copy(&db.engine, pinned, &made).unwrap();
        let options = Options { maintenance: Maintenance::Manual, ..Options::default() };
        let copy = Kvdb::open_on(made.keep(), options).unwrap();
        let kvs = copy.kvs("a").unwrap();
        assert_eq!(kvs.get(b"before").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(kvs.get(b"half").unwrap(), None);
        assert!(copy.kvs("new").is_err());
    }
}
