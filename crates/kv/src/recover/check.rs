//! Offline verification: reads everything that the manifest names, and writes nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_base::progress::{Meter, Unit};
use esker_base::units::round_up;
use serde::Serialize;

use crate::log::frame::read_frame;
use crate::log::replay::{FoundLog, verify_log};
use crate::manifest::state::State;
use crate::manifest::writer::Manifest;
use crate::omf::frame::{HEADER_SIZE, record_size};
use crate::omf::page::Entry;
use crate::recover::devices::Devices;
use crate::recover::structures::{Opened, check_classes, open_structures};
use crate::tree::kvset::Kvset;
use crate::tree::page_cache::PageCache;
use crate::types::error::{KvError, Result, go_on};
use crate::types::ids::{BlockId, Seqno};
use crate::types::options::Options;
use crate::values::ahead::{ReadAhead, Way};
use crate::values::block::{ValueBlock, Values, Wanted};
use crate::values::cache::record::RecordKey;

/// Amounts that a check has read, and the faults that it found.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// KVSs.
    pub kvss: u64,
    /// Kvsets, all of whose keys were read.
    pub kvsets: u64,
    /// Entries that were read, of those and of others.
    pub entries: u64,
    /// Values that were read and verified.
    pub values: u64,
    /// Bytes of those values' records.
    pub value_bytes: u64,
    /// Log records that are not in kvsets yet.
    pub log_records: u64,
    /// The observer has called the check off: what the figures above leave out is unchecked.
    pub interrupted: bool,
    /// One line for each damage. Empty: the KVDB is sound, as far as it was checked.
    pub findings: Vec<String>,
}

/// Checks the KVDB on `devices`, and counts bytes in `meter`; `None` when there is none.
pub(crate) fn check(devices: &Devices, meter: &mut Meter<'_>) -> Result<Option<CheckReport>> {
    let Some(state) = Manifest::read(&devices.manifest)? else {
        return Ok(None);
    };
    let options = Options::default();
    let classes = devices.classes(&options);
    let mut report = CheckReport { kvss: state.kvss.len() as u64, ..CheckReport::default() };
    // No page stays in DRAM: the check is of the media's content.
    let pages = Arc::new(PageCache::new(0));
    let mut damaged = Vec::new();
    let mut note = |error: KvError| match error {
        // Another release is no damage.
        KvError::Version { .. } => Err(error),
        error => {
            damaged.push(error.to_string());
            Ok(())
        }
    };
    check_classes(&state, &classes, &mut note)?;
    match open_structures(&state, &classes, &pages, note) {
        Ok(opened) => report.check_structures(&state, &opened, meter),
        Err(error) => report.findings.push(error.to_string()),
    }
    report.findings.splice(0..0, damaged);
    Ok(Some(report))
}

/// How many bytes a check reads: keys and values, then all blocks, then the log.
fn bytes_to_check(state: &State, opened: &Opened) -> u64 {
    let kvsets = opened.trees.iter().flat_map(|tree| tree.kvsets()).map(|kvset| bytes_of(kvset));
    let blocks = opened.blocks.values().map(|block| block.allocation.bytes());
    kvsets.chain(blocks).sum::<u64>() + FoundLog::of(state, &opened.blocks).bytes()
}

/// Bytes of a kvset's keys, and of the values that it refers to.
fn bytes_of(kvset: &Kvset) -> u64 {
    kvset.export_size() + kvset.blocks.iter().map(|(_, live)| live).sum::<u64>()
}

impl CheckReport {
    fn check_structures(&mut self, state: &State, opened: &Opened, meter: &mut Meter<'_>) {
        meter.begin("checking", Some(bytes_to_check(state, opened)), Unit::Bytes);
        self.check_all(state, opened, meter);
        self.interrupted = meter.is_cancelled();
    }

    fn check_all(&mut self, state: &State, opened: &Opened, meter: &mut Meter<'_>) {
        let mut ends = BTreeMap::new();
        for tree in &opened.trees {
            let root = tree.root.iter().map(|kvset| (kvset, &[][..], None));
            let uppers = tree.leaves.iter().skip(1).map(|leaf| Some(&*leaf.lower)).chain([None]);
            let leaves = tree.leaves.iter().zip(uppers).flat_map(|(leaf, upper)| {
                leaf.kvsets.iter().map(move |kvset| (kvset, &*leaf.lower, upper))
            });
            for (kvset, lower, upper) in root.chain(leaves) {
                let after = meter.done() + bytes_of(kvset);
                self.check_kvset(kvset, (lower, upper), &mut ends, meter);
                if meter.reach(after).is_break() {
                    return;
                }
            }
        }
        for block in opened.blocks.values() {
            let after = meter.done() + block.allocation.bytes();
            let end = ends.get(&block.id).copied().unwrap_or(0);
            match check_frames(block, end, meter) {
                Err(KvError::Cancelled) => return,
                Err(error) => self.findings.push(error.to_string()),
                Ok(()) => {}
            }
            if meter.reach(after).is_break() {
                return;
            }
        }
        match verify_log(state, &opened.blocks, meter) {
            Ok(last) => self.log_records = last.0 - state.ingested.0,
            Err(KvError::Cancelled) => {}
            Err(error) => self.findings.push(error.to_string()),
        }
    }

    /// Every key ascends, is in the filter and within the node's bounds, every value is there and is the
    /// key's own, and the manifest's counts are right. `ends` is told how far each block is referred to.
    fn check_kvset(
        &mut self,
        kvset: &Kvset,
        (lower, upper): (&[u8], Option<&[u8]>),
        ends: &mut BTreeMap<BlockId, u64>,
        meter: &mut Meter<'_>,
    ) {
        let mut live: BTreeMap<BlockId, u64> = BTreeMap::new();
        // Values of a kvset that aged lie in key order; nothing is cached.
        let values = Values::new(0);
        let mut ahead = ReadAhead::default();
        let kvs = kvset.edit.kvs;
        let (mut tombstones, mut beyond) = (0, 0);
        let (entries, wrong) = kvset.check(|key, entry| {
            tombstones += u64::from(matches!(entry, Entry::Tombstone));
            beyond += u64::from(key < lower || upper.is_some_and(|upper| key >= upper));
            let Entry::Stored(stored) = entry else { return ControlFlow::Continue(()) };
            let block = kvset.block(&stored);
            let size = record_size(key.len(), stored.value_size as usize) as u64;
            *live.entry(block.id).or_default() += size;
            let end = ends.entry(block.id).or_default();
            *end = (*end).max(u64::from(stored.offset) + size);
            let key = RecordKey::new(kvs, key);
            let one = Wanted { index: 0, block, key, stored, age: Seqno::ZERO };
            match ahead.read(&values, vec![one], Way::FORWARD, |_, _| ()) {
                Ok(()) => {
                    self.values += 1;
                    self.value_bytes += size;
                }
                // One damaged value must not hide the next one.
                Err(error) => self.findings.push(error.to_string()),
            }
            meter.add(size)
        });
        self.entries += entries;
        let is_whole = wrong.is_empty();
        self.findings.extend(wrong.iter().map(KvError::to_string));
        if meter.is_cancelled() {
            return;
        }
        let first = &kvset.key_extents()[0];
        let mut find = |detail: String| {
            let error = first.media.corrupt("kvset", first.extent.lba, detail);
            self.findings.push(error.to_string());
        };
        if beyond > 0 {
            find(format!("{beyond} keys are beyond the bounds of leaf {}", kvset.edit.leaf));
        }
        // With a page, all that it counts for is lost.
        if !is_whole {
            return;
        }
        self.kvsets += 1;
        let counted = kvset.edit.tombstones;
        if tombstones != counted {
            find(format!("{counted} deletes counted, {tombstones} found"));
        }
        for (block, counted) in &kvset.blocks {
            let found = live.get(&block.id).copied().unwrap_or(0);
            if found != *counted {
                let detail = format!("{counted} live bytes in the block table, {found} found");
                let error = block.media().corrupt("kvset", block.extent().lba, detail);
                self.findings.push(error.to_string());
            }
        }
    }
}

/// Every frame of a value block is there and whole; of a segment of the log, which does not know how many it
/// has, every one up to `end`.
fn check_frames(block: &ValueBlock, end: u64, meter: &mut Meter<'_>) -> Result<()> {
    let (mut offset, mut bytes) = (0, 0);
    while bytes < block.bytes || offset < end {
        let Some((header, payload)) = read_frame(block, offset)? else {
            let (lba, ..) = block.allocation.span(offset, 1);
            let detail = format!("a frame is missing at offset {offset} of block {}", block.id);
            return Err(block.media().corrupt("value block", lba, detail));
        };
        bytes += u64::from(header.payload_size);
        let size = HEADER_SIZE as u64 + payload.len() as u64;
        go_on(meter.add(size))?;
        offset = round_up(offset + size, block.media().lba_size.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kvdb::Kvdb;
    use crate::api::kvs::Kvs;
    use crate::manifest::state::BlockState;
    use crate::omf::page::PAGE_SIZE;
    use crate::types::options::{Maintenance, Tuning};
    use crate::types::policy::Policy;
    use esker_base::units::to_usize;
    use esker_base::{AlignedBuf, Clock, Lba, Progress};
    use esker_device::{Device, MemoryDevice, Port};

    fn checked(devices: &Devices) -> Result<Option<CheckReport>> {
        check(devices, &mut Meter::new(|_| ControlFlow::Continue(()), "", None, Unit::Bytes))
    }

    fn memory(name: &str) -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new(name, 4 << 20, 512))
    }

    /// A new KVDB with a KVS.
    fn create(compact_kvsets: usize) -> (Devices, Kvdb, Kvs) {
        let tuning = Tuning {
            memtable_bytes: 16 << 10,
            block_bytes: 32 << 10,
            frame_bytes: 4 << 10,
            key_extent_bytes: 8 << 10,
            allocation_bytes: 4 << 10,
            root_kvsets: 2,
            spill_bytes: 24 << 10,
            compact_kvsets,
            leaf_key_bytes: 8 << 10,
            gather_bytes: 64 << 10,
            workers: 1,
        };
        let maintenance = Maintenance::Manual;
        let clock = Clock::virtual_time();
        let options = Options { maintenance, clock, tuning: Some(tuning), ..Options::default() };
        let devices =
            Devices { manifest: memory("m"), capacity: memory("c"), staging: Some(memory("s")) };
        let db = Kvdb::create_on(devices.clone(), options).unwrap();
        let kvs = db.create_kvs("a", Policy::default()).unwrap();
        (devices, db, kvs)
    }

    /// A KVDB with several leaves, kvsets and deletes, closed.
    fn devices(compact_kvsets: usize) -> Devices {
        let (devices, db, kvs) = create(compact_kvsets);
        for n in 0..3000u32 {
            kvs.put(n.wrapping_mul(0x9e37_79b1).to_be_bytes(), [3; 60]).unwrap();
            if n % 8 == 0 {
                kvs.delete((n / 2).wrapping_mul(0x9e37_79b1).to_be_bytes()).unwrap();
            }
            if n % 200 == 199 {
                db.settle().unwrap();
            }
        }
        db.close().unwrap();
        devices
    }

    /// Returns the findings of a check when the manifest says this.
    fn findings(devices: &Devices, state: &State) -> Vec<String> {
        let manifest = memory("other");
        Manifest::create(manifest.clone(), (state.version, state.uuid), state.edits()).unwrap();
        checked(&Devices { manifest, ..devices.clone() }).unwrap().unwrap().findings
    }

    /// A statement of the manifest that the media do not bear out is found, although every checksum holds.
    #[test]
    fn each_false_statement_of_the_manifest_is_found() {
        let devices = devices(8);
        let sound = Manifest::read(&devices.manifest).unwrap().unwrap();
        assert_eq!(findings(&devices, &sound), Vec::<String>::new());
        assert!(sound.leaves.len() > 1 && sound.kvsets.len() > 2, "{sound:?}");
        let old = *sound.kvsets.iter().find(|(_, k)| k.pages > 0 && k.tombstones > 0).unwrap().0;
        let valued =
            *sound.kvsets.iter().find(|(id, k)| **id != old && !k.blocks.is_empty()).unwrap().0;
        let bounded = *sound.leaves.iter().find(|(_, (_, lower))| !lower.is_empty()).unwrap().0;
        let said = |change: &dyn Fn(&mut State), what: &str| {
            let mut state = sound.clone();
            change(&mut state);
            let findings = findings(&devices, &state);
            assert!(findings.iter().any(|finding| finding.contains(what)), "{what}: {findings:?}");
        };
        said(&|s| s.kvsets.get_mut(&old).unwrap().entries += 1, "entries expected");
        said(&|s| s.kvsets.get_mut(&old).unwrap().tombstones -= 1, "deletes");
        said(&|s| s.kvsets.get_mut(&old).unwrap().pages += 1, "kvset");
        said(&|s| s.kvsets.get_mut(&valued).unwrap().blocks[0].1 -= 1, "live bytes");
        said(&|s| s.leaves.get_mut(&bounded).unwrap().1[0] ^= 0x40, "beyond the bounds");
        let twice = sound.kvsets[&valued].extents[0];
        said(&|s| s.kvsets.get_mut(&old).unwrap().extents[0] = twice, "claimed twice");
    }

    /// No value that is in use is in it; but a backup would miss it.
    #[test]
    fn a_damaged_frame_of_the_log_is_found_once_it_was_ingested() {
        let (devices, db, kvs) = create(8);
        for n in 0..3 {
            kvs.put(b"key", [n; 100]).unwrap();
            db.sync().unwrap();
        }
        db.close().unwrap();
        let state = Manifest::read(&devices.manifest).unwrap().unwrap();
        assert_eq!(findings(&devices, &state), Vec::<String>::new());
        let referred = state.kvsets.values().next().unwrap().blocks[0].0;
        let frame = state.blocks[&referred].extent.lba;
        let staging = devices.staging.clone().unwrap();
        let mut port = Port::open(&*staging, 1).unwrap();
        let mut buf = port.read(frame, AlignedBuf::zeroed(512)).unwrap();
        buf[HEADER_SIZE + 50] ^= 1;
        port.write(frame, buf, None).unwrap();
        let findings = findings(&devices, &state);
        assert!(findings.len() == 1 && findings[0].contains("frame"), "{findings:?}");
    }

    #[test]
    fn a_block_without_all_of_its_frames_is_found() {
        let devices = devices(2);
        let mut state = Manifest::read(&devices.manifest).unwrap().unwrap();
        assert_eq!(findings(&devices, &state), Vec::<String>::new());
        let room = |block: &BlockState| block.extent.count.bytes(512) - block.bytes;
        let blocks = state.blocks.values_mut().filter(|block| !block.log);
        let block = blocks.max_by_key(|block| room(block)).unwrap();
        block.bytes += 100;
        let findings = findings(&devices, &state);
        assert!(findings.iter().any(|it| it.contains("a frame is missing")), "{findings:?}");
    }

    #[test]
    fn one_damaged_kvset_does_not_hide_another() {
        let devices = devices(8);
        let mut state = Manifest::read(&devices.manifest).unwrap().unwrap();
        let count = state.kvsets.len();
        for kvset in state.kvsets.values_mut() {
            kvset.meta_size -= 1;
        }
        let findings = findings(&devices, &state);
        assert_eq!(findings.len(), count, "{findings:?}");
    }

    #[test]
    fn a_block_in_the_place_of_another_hides_nothing_that_does_not_need_it() {
        let devices = devices(8);
        let mut state = Manifest::read(&devices.manifest).unwrap().unwrap();
        let (&first, taken) = state.blocks.iter().next().unwrap();
        let (taken, other) = (taken.extent, *state.blocks.keys().next_back().unwrap());
        assert_ne!(first, other);
        state.blocks.get_mut(&other).unwrap().extent = taken;
        let mut count = 0;
        for kvset in state.kvsets.values_mut() {
            if kvset.blocks.iter().all(|(id, _)| *id != other) {
                kvset.meta_size -= 1;
                count += 1;
            }
        }
        assert!((1..state.kvsets.len()).contains(&count), "{state:?}");
        let findings = findings(&devices, &state);
        assert_eq!(findings.len(), 1 + count, "{findings:?}");
        assert!(findings[0].contains("claimed twice"), "{findings:?}");
    }

    fn flip(device: &Arc<dyn Device>, lba: Lba) {
        let mut port = Port::open(&**device, 1).unwrap();
        let mut buf = port.read(lba, AlignedBuf::zeroed(512)).unwrap();
        buf[33] ^= 1;
        port.write(lba, buf, None).unwrap();
    }

    #[test]
    fn damaged_class_headers_are_findings_and_hide_nothing() {
        let devices = devices(8);
        let sound = checked(&devices).unwrap().unwrap();
        let classes = [devices.capacity.clone(), devices.staging.clone().unwrap()];
        classes.iter().for_each(|device| flip(device, Lba(0)));
        let report = checked(&devices).unwrap().unwrap();
        assert_eq!(report.findings.len(), 2, "{report:?}");
        assert!(report.findings.iter().all(|it| it.contains("class header")), "{report:?}");
        let read = |it: &CheckReport| (it.kvsets, it.entries, it.values);
        assert_eq!(read(&report), read(&sound));
    }

    #[test]
    fn damaged_pages_of_a_kvset_hide_neither_each_other_nor_what_others_refer_to() {
        let (devices, db, kvs) = create(8);
        for n in 0..120u8 {
            kvs.put([n; 250], [n; 60]).unwrap();
        }
        db.close().unwrap();
        let sound = checked(&devices).unwrap().unwrap();
        assert_eq!((sound.entries, sound.values), (120, 120), "{sound:?}");
        let state = Manifest::read(&devices.manifest).unwrap().unwrap();
        let kvset = state.kvsets.values().max_by_key(|kvset| kvset.pages).unwrap();
        assert!(kvset.pages > 2, "{kvset:?}");
        let staging = devices.staging.clone().unwrap();
        let lbas = kvset.extents.iter().flat_map(|it| (it.lba.0..).take(to_usize(it.count.0)));
        let pages = lbas.step_by(PAGE_SIZE / 512).take(to_usize(kvset.pages.into()));
        // Every other one.
        pages.step_by(2).for_each(|lba| flip(&staging, Lba(lba)));
        let report = checked(&devices).unwrap().unwrap();
        let damaged = kvset.pages.div_ceil(2);
        assert_eq!(report.findings.len(), to_usize(damaged.into()), "{report:?}");
        assert!(report.findings.iter().all(|it| it.contains("key page")), "{report:?}");
        assert!(report.entries < 120 && report.entries > 120 - kvset.entries, "{report:?}");
        assert_eq!((report.values, report.kvsets), (report.entries, sound.kvsets - 1));
    }

    /// A check that is called off says what it has read, and no damage that is not there.
    #[test]
    fn cancelled_check_reports_its_part() {
        let devices = devices(8);
        let whole = checked(&devices).unwrap().unwrap();
        assert!(!whole.interrupted, "{whole:?}");
        let mut told = Vec::new();
        Kvdb::check_observed(&devices, |progress| {
            told.push(*progress);
            ControlFlow::Continue(())
        })
        .unwrap();
        let (last, total) = (told.last().unwrap(), told[1].total.unwrap());
        assert!(told.is_sorted_by_key(|progress| progress.done), "{told:?}");
        // All but the part of the log that is in kvsets, which nobody reads again.
        assert!(last.done > total * 8 / 10 && last.done <= total, "{last:?}");
        let mut entries = Vec::new();
        for share in [0, 10, 50, 80] {
            let stop = |progress: &Progress| match progress.done >= total * share / 100 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let part = Kvdb::check_observed(&devices, stop).unwrap();
            assert!(part.interrupted && part.findings.is_empty(), "{part:?}");
            entries.push(part.entries);
        }
        assert!(entries.is_sorted() && entries[0] < whole.entries / 4, "{entries:?} {whole:?}");
    }
}
