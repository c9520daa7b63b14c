//! Offline verification: reads everything that the manifest names, and writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::units::round_up;
use serde::Serialize;

use crate::ahead::ReadAhead;
use crate::cache::RecordCache;
use crate::compression::Unpacker;
use crate::error::{KvError, Result};
use crate::kvset::Kvset;
use crate::manifest::{Manifest, State};
use crate::memtable::Memtable;
use crate::omf::frame::{HEADER_SIZE, record_size};
use crate::omf::page::Entry;
use crate::options::Options;
use crate::page_cache::PageCache;
use crate::recover::{self, Devices, Opened};
use crate::value::{ValueBlock, Values, Wanted};

/// What a check has read, and what it found wrong.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// KVSs.
    pub kvss: u64,
    /// Kvsets, all of whose keys were read.
    pub kvsets: u64,
    /// Their entries.
    pub entries: u64,
    /// Values that were read and verified.
    pub values: u64,
    /// Bytes of those values' records.
    pub value_bytes: u64,
    /// Log records that are not in kvsets yet.
    pub log_records: u64,
    /// One line for each damage. Empty: the KVDB is sound.
    pub findings: Vec<String>,
}

/// Checks the KVDB on `devices`; `None` when there is none.
pub(crate) fn check(devices: &Devices) -> Result<Option<CheckReport>> {
    let Some(state) = Manifest::read(&devices.manifest)? else {
        return Ok(None);
    };
    let options = Options::default();
    let classes = devices.classes(&options);
    recover::check_classes(&state, &classes)?;
    let mut report = CheckReport { kvss: state.kvss.len() as u64, ..CheckReport::default() };
    // No page stays in DRAM: what is checked is what the media hold.
    let pages = Arc::new(PageCache::new(0));
    match recover::open_structures(&state, &classes, &pages) {
        Ok(opened) => report.check_structures(&state, &opened),
        Err(error) => report.findings.push(error.to_string()),
    }
    Ok(Some(report))
}

impl CheckReport {
    fn check_structures(&mut self, state: &State, opened: &Opened) {
        for kvset in opened.trees.iter().flat_map(|tree| tree.kvsets()) {
            if let Err(error) = self.check_kvset(kvset) {
                self.findings.push(error.to_string());
            }
        }
        for block in opened.blocks.values().filter(|block| block.bytes > 0) {
            if let Err(error) = check_frames(block) {
                self.findings.push(error.to_string());
            }
        }
        let table = Memtable::new(1 << 20);
        match recover::replay(state, &opened.blocks, &table, u64::MAX) {
            Ok(last) => self.log_records = last - state.ingested,
            Err(error) => self.findings.push(error.to_string()),
        }
    }

    /// Every key ascends and is in the filter, every value is there and is the key's own, and the
    /// block table counts right.
    fn check_kvset(&mut self, kvset: &Kvset) -> Result<()> {
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let mut wrong = None;
        // Values of a kvset that aged lie in key order; nothing is cached.
        let values = Values { cache: RecordCache::new(0), unpacker: Unpacker::default() };
        let mut ahead = ReadAhead::default();
        let kvs = kvset.edit.kvs;
        self.entries += kvset.check(|key, entry| {
            let Entry::Stored(stored) = entry else {
                return Ok(());
            };
            let block = kvset.block(&stored);
            let size = record_size(key.len(), stored.value_size as usize) as u64;
            *live.entry(block.id).or_default() += size;
            let one = Wanted { index: 0, block, key, stored };
            match ahead.read(&values, kvs, vec![one], true, |_, _| ()) {
                Ok(()) => {
                    self.values += 1;
                    self.value_bytes += size;
                }
                // One damaged value must not hide the next one.
                Err(error) => self.findings.push(error.to_string()),
            }
            Ok(())
        })?;
        self.kvsets += 1;
        for (block, counted) in &kvset.blocks {
            let found = live.get(&block.id).copied().unwrap_or(0);
            if found != *counted {
                wrong = Some((block, *counted, found));
            }
        }
        match wrong {
            Some((block, counted, found)) => {
                let detail = format!("{counted} live bytes in the block table, {found} found");
                Err(block.media().corrupt("kvset", block.extent().lba, detail))
            }
            None => Ok(()),
        }
    }
}

/// Every frame of a value block is there and whole.
fn check_frames(block: &ValueBlock) -> Result<(), KvError> {
    let (mut offset, mut bytes) = (0, 0);
    while bytes < block.bytes {
        let Some((header, payload)) = recover::read_frame(block, offset)? else {
            let (lba, ..) = block.allocation.span(offset, 1);
            let detail = format!("a frame is missing at offset {offset} of block {}", block.id);
            return Err(block.media().corrupt("value block", lba, detail));
        };
        bytes += u64::from(header.payload_size);
        let size = HEADER_SIZE as u64 + payload.len() as u64;
        offset = round_up(offset + size, block.media().lba_size.into());
    }
    Ok(())
}
