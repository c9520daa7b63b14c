//! How long a cache of 50 million blocks takes to come back: all of them named, the journal as long
//! as it gets. Metadata are as the cache writes them, made with its own format; there is no data.
//!
//! `cargo bench -p esker-cache --bench restart`, with 2 GiB of memory to spare

#![allow(missing_docs)] // a program, not a library

use std::sync::Arc;

use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng};
use esker_cache::omf::{Change, Name, RecordHeader, RecordKind, Superblock, TablePage};
use esker_cache::{Background, Cache, CreateOptions, Layout, Mapping, OpenOptions, Placement};
use esker_device::{Device, MemoryDevice, NullDevice, Op, Port};

/// Blocks of the origin: 1 TiB, a power of two, so that every tag stands for a block.
const ORIGIN: u64 = 1 << 28;
const SLOTS: u64 = 50_000_000;
/// Changes in one journal record.
const CHANGES: usize = 40_000;

fn read(port: &mut Port, offset: u64, size: usize) -> Vec<u8> {
    port.read(Lba(offset / 4096), AlignedBuf::zeroed(size)).unwrap().to_vec()
}

fn write(port: &mut Port, offset: u64, bytes: &[u8]) {
    let buf = AlignedBuf::padded(bytes, 4096);
    let lba = Lba(offset / 4096);
    port.run(Op::Write { lba, buf, placement: None, fua: false }).unwrap();
}

/// Names every slot in the table, and a part of them once more in the journal.
fn fill(flash: &dyn Device) -> (Superblock, Mapping, u64) {
    let mut port = Port::open(flash, 4).unwrap();
    let superblock = Superblock::decode(&read(&mut port, 0, 4096), 0).unwrap();
    let layout = Layout::of(&superblock);
    let Superblock { id, sets, run_blocks, .. } = superblock;
    let mapping = Mapping::new(Placement::Hashed, ORIGIN, sets, run_blocks, id).unwrap();
    let name = |set: u32, index: u32| {
        let block = mapping.block_of(set, index);
        // One in ten is dirty.
        if index.is_multiple_of(10) { Name::Dirty(block) } else { Name::Clean(block) }
    };
    for page in 0..layout.pages() {
        let (set, slots) = layout.page_slots(page);
        let names = slots.map(|index| name(set, index)).collect();
        let content = TablePage { page, clean_epoch: 1, generation: 1, names };
        write(&mut port, layout.page(page) + 4096, &content.encode(id, 1));
    }
    let named = sets * layout.set_slots;
    let dirty = sets * layout.set_slots.div_ceil(10);
    let areas: Vec<u64> = layout.areas_of(2).collect();
    let (start, _, mut previous_crc) =
        RecordHeader::decode(&read(&mut port, areas[0], 4096)).unwrap();
    let (mut offset, mut number, mut rng) = (4096u64, start.number, Rng::new(1));
    let mut changed = 0;
    while offset + 12 * CHANGES as u64 + 8192 < layout.area_bytes * 3 / 4 {
        number += 1;
        let changes: Vec<Change> = (0..CHANGES)
            .map(|_| {
                let slot = u32::try_from(rng.below(named.into())).unwrap();
                let (set, index) = layout.place_of(slot);
                Change { slot, name: name(set, index) }
            })
            .collect();
        let header = RecordHeader {
            kind: RecordKind::Names,
            number,
            offset: u32::try_from(offset).unwrap(),
            previous_crc,
            dirty,
            named,
            ..start
        };
        let (bytes, crc) = header.encode(&changes);
        areas.iter().for_each(|area| write(&mut port, area + offset, &bytes));
        offset += bytes.len().next_multiple_of(4096) as u64;
        previous_crc = crc;
        changed += changes.len() as u64;
    }
    (superblock, mapping, changed)
}

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return; // run as a test: nothing to measure
    }
    let origin: Arc<dyn Device> = Arc::new(NullDevice::new(LbaCount(ORIGIN), 4096));
    let bytes = SLOTS * 4096 * 102 / 100;
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", bytes, 4096));
    Cache::create(&*origin, &flash, &CreateOptions { id: 7, ..CreateOptions::default() }).unwrap();
    let (superblock, mapping, changed) = fill(&*flash);
    let clock = Clock::real();
    for _ in 0..3 {
        let options = OpenOptions { background: Background::Manual, ..OpenOptions::default() };
        let begin = clock.now();
        let cache = Cache::open(origin.clone(), flash.clone(), options).unwrap();
        let opened = clock.now();
        let mut port = Port::open(&cache, 1).unwrap();
        let mut touch = |set: u32| {
            let lba = Lba(mapping.block_of(set, 1));
            port.run(Op::Read { lba, buf: AlignedBuf::zeroed(4096) }).unwrap();
        };
        touch(0);
        let first = clock.now();
        // A hundredth of the sets, to show the cost of the first touch of each.
        (1..superblock.sets).step_by(100).for_each(&mut touch);
        let touched = f64::from(superblock.sets.div_ceil(100) - 1);
        let each = (clock.now() - first).as_secs_f64() * 1e6 / touched;
        let stats = cache.figures();
        assert_eq!(stats.read_misses, 0, "everything is cached");
        println!(
            "{} blocks, {} of them dirty, {changed} changes in the journal: open after {:.2} s, the \
             first hit {:.2} ms later; the first hit in each further set {each:.0} µs",
            stats.slots,
            stats.dirty_blocks,
            (opened - begin).as_secs_f64(),
            (first - opened).as_secs_f64() * 1e3,
        );
    }
}
