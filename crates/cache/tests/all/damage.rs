//! A flash device that was damaged in places: everything that was flushed is there, or the cache says what is lost.

use std::sync::Arc;

use crate::rig::{self, bytes_of, put};
use esker_base::{AlignedBuf, ErrorKind, Lba, Rng};
use esker_cache::omf::{RecordHeader, RecordKind, Superblock};
use esker_cache::{Cache, CacheError, CreateOptions, Layout, Mode};
use esker_device::{Device, MemoryDevice, Op, Port};
use esker_sim::{CrashRecorder, Plan, refusing};

/// Bytes of a flash device that a cache uses as a whole.
const WHOLE: u64 = rig::FLASH;
const BLOCK: usize = 4096;

/// Where the copies of the superblock are.
const COPIES: [u64; 3] = [0, 4096, rig::LAST];

/// A cache with dirty blocks, and the version of each block; the journal needs both areas.
struct Used {
    origin: Arc<dyn Device>,
    flash: Arc<dyn Device>,
    versions: Vec<u64>,
    /// The flash device at an earlier time.
    earlier: Vec<u8>,
}

fn whole(lba_size: u32) -> (Arc<dyn Device>, Arc<dyn Device>) {
    let origin = MemoryDevice::new("origin", rig::ORIGIN, lba_size).identified(rig::identity());
    let origin: Arc<dyn Device> = Arc::new(origin);
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", WHOLE, lba_size));
    let options = CreateOptions { flash_bytes: None, ..rig::create_options(Mode::WriteBack) };
    Cache::create(&*origin, &flash, &options).unwrap();
    (origin, flash)
}

fn write(port: &mut Port, lba_size: u32, block: u64, version: u64) {
    let lba = Lba(block * 4096 / u64::from(lba_size));
    let buf = rig::content(block, version);
    port.run(Op::Write { lba, buf, placement: None, fua: false }).unwrap();
}

impl Used {
    fn new(lba_size: u32, is_closed: bool) -> Used {
        let (origin, flash) = whole(lba_size);
        let cache = rig::open(&origin, &flash);
        let mut port = Port::open(&cache, 4).unwrap();
        let (mut versions, mut earlier) = (vec![0; 64], Vec::new());
        let mut rng = Rng::new(3);
        for version in 1..1_000 {
            cache.clean_all().unwrap(); // or blocks are rewritten in place, and names stay
            for _ in 0..=rng.below(3) {
                let block = rng.below(12);
                write(&mut port, lba_size, block, version);
                versions[usize::try_from(block).unwrap()] = version;
            }
            port.flush().unwrap();
            // The journal has gone round, and is in the middle of an area that needs the other one.
            let starts = starts(&flash);
            if starts.iter().max() == Some(&3) && earlier.is_empty() {
                earlier = bytes_of(&flash);
            }
            if starts.iter().max() == Some(&5) {
                break;
            }
        }
        for version in 10_000..10_004 {
            write(&mut port, lba_size, version % 5, version);
            versions[usize::try_from(version % 5).unwrap()] = version;
            port.flush().unwrap();
        }
        if is_closed {
            cache.close().unwrap();
            drop((port, cache));
        } else {
            // A process that is killed closes nothing: the content as it is now.
            let now = bytes_of(&flash);
            drop((port, cache));
            put(&flash, 0, &now);
        }
        Used { origin, flash, versions, earlier }
    }

    /// Copies of both devices.
    fn again(&self) -> Used {
        let copy = |device: &Arc<dyn Device>, name: &str| -> Arc<dyn Device> {
            let all = bytes_of(device);
            let lba_size = device.geometry().lba_size;
            let new = MemoryDevice::new(name, all.len() as u64, lba_size);
            let new: Arc<dyn Device> = Arc::new(match device.identity() {
                Some(identity) => new.identified(identity),
                None => new,
            });
            put(&new, 0, &all);
            new
        };
        Used {
            origin: copy(&self.origin, "origin"),
            flash: copy(&self.flash, "flash"),
            versions: self.versions.clone(),
            earlier: self.earlier.clone(),
        }
    }

    fn layout(&self) -> Layout {
        let all = bytes_of(&self.flash);
        Layout::of(&Superblock::decode(&all[..BLOCK], 0).unwrap())
    }

    fn check(&self, cache: &Cache, about: &dyn std::fmt::Display) {
        let mut port = Port::open(cache, 4).unwrap();
        for (block, version) in (0..).zip(&self.versions) {
            let lba = Lba(block * 4096 / u64::from(cache.geometry().lba_size));
            let found = port.read(lba, AlignedBuf::zeroed(BLOCK)).unwrap();
            let expected = match version {
                0 => AlignedBuf::zeroed(BLOCK),
                version => rig::content(block, *version),
            };
            assert!(found[..] == expected[..], "block {block}: {about}");
        }
    }

    /// Opens it, checks it, uses it, and opens it once more. Returns the remarks of the first time.
    fn is_whole(&mut self, about: &dyn std::fmt::Display) -> Vec<String> {
        let cache = Cache::open(self.origin.clone(), self.flash.clone(), rig::open_options())
            .unwrap_or_else(|error| panic!("{about}: {error}"));
        let remarks = cache.remarks();
        self.check(&cache, about);
        let lba_size = self.origin.geometry().lba_size;
        let mut port = Port::open(&cache, 4).unwrap();
        for block in 3..6 {
            write(&mut port, lba_size, block, 20_000);
            self.versions[usize::try_from(block).unwrap()] = 20_000;
        }
        port.flush().unwrap();
        let now = bytes_of(&self.flash);
        drop((port, cache));
        put(&self.flash, 0, &now);
        let cache = rig::open(&self.origin, &self.flash);
        assert_eq!(cache.remarks(), [""; 0], "once is enough: {about}");
        self.check(&cache, &format!("{about}, opened again"));
        remarks
    }

    /// It is refused, and nothing is written to it.
    fn is_refused(&self, about: &dyn std::fmt::Display) -> CacheError {
        let before = bytes_of(&self.flash);
        let opened = Cache::open(self.origin.clone(), self.flash.clone(), rig::open_options());
        let error = opened.map(drop).expect_err(&about.to_string());
        assert!(before == bytes_of(&self.flash), "{about}: it was written");
        error
    }
}

/// The sequences of the areas that there are, from their first records in the first copy.
fn starts(flash: &Arc<dyn Device>) -> Vec<u64> {
    let all = bytes_of(flash);
    let layout = Layout::of(&Superblock::decode(&all[..BLOCK], 0).unwrap());
    let start = |index: u64| {
        let (start, _, _) =
            RecordHeader::decode(&all[usize::try_from(layout.area(index)).unwrap()..]).ok()?;
        (start.kind == RecordKind::Start).then_some(start.sequence)
    };
    (0..2).filter_map(start).collect()
}

/// Content that damage leaves in a place.
fn garbage(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..BLOCK / 8).flat_map(|_| rng.u64().to_le_bytes()).collect()
}

#[test]
fn any_copy_of_the_superblock_stands_for_all() {
    for lba_size in [512, 4096] {
        let used = Used::new(lba_size, false);
        for destroyed in 1..8 {
            for (kind, content) in [("zeroes", vec![0; BLOCK]), ("garbage", garbage(7))] {
                let about = format!("{kind} over copies {destroyed:#b}, LBAs of {lba_size}");
                let mut used = used.again();
                let gone = (0..3).filter(|copy| destroyed >> copy & 1 == 1);
                gone.clone().for_each(|copy| put(&used.flash, COPIES[copy], &content));
                if destroyed == 7 {
                    let error = used.is_refused(&about);
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{about}: {error}");
                    continue;
                }
                // Looking repairs nothing.
                let before = bytes_of(&used.flash);
                assert!(Cache::inspect(&used.flash).unwrap().dirty_blocks > 3);
                assert!(before == bytes_of(&used.flash), "{about}: it was written");
                let remarks = used.is_whole(&about);
                assert!(remarks.len() == 1 && remarks[0].contains("superblock"), "{remarks:?}");
                let all = bytes_of(&used.flash);
                let copies = (0..).zip(COPIES).map(|(copy, at)| {
                    let at = usize::try_from(at).unwrap();
                    Superblock::decode(&all[at..at + BLOCK], copy).unwrap()
                });
                let copies: Vec<_> = copies.collect();
                assert!(copies[0] == copies[1] && copies[1] == copies[2], "{about}");
            }
        }
    }
}

#[test]
fn a_superblock_that_cannot_be_read_has_other_copies() {
    let used = Used::new(4096, false);
    for destroyed in 1..8 {
        let bad = refusing(&used.flash, move |op| {
            let is_bad = |lba: u64| {
                (0..3).any(|copy| destroyed >> copy & 1 == 1 && COPIES[copy] / 4096 == lba)
            };
            matches!(op, Op::Read { lba, buf } if {
                let count = buf.len() as u64 / 4096;
                (lba.0..lba.0 + count).any(is_bad)
            })
        });
        let found = Cache::inspect(&bad);
        assert_eq!(found.is_ok(), destroyed != 7, "{destroyed:#b}: {found:?}");
    }
}

/// An MBR with a partition that begins at this LBA.
fn mbr(start: u32) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 12].copy_from_slice(&start.to_le_bytes());
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

/// The bytes of a GPT with such a partition, as a tool writes them at the beginning and at the end.
fn gpt(start: u64) -> (Vec<u8>, Vec<u8>) {
    let mut header = vec![0; 512];
    header[..8].copy_from_slice(b"EFI PART");
    header[72..80].copy_from_slice(&2u64.to_le_bytes());
    header[80..84].copy_from_slice(&128u32.to_le_bytes());
    header[84..88].copy_from_slice(&128u32.to_le_bytes());
    let mut entries = vec![0; 128 * 128];
    if start > 0 {
        entries[..16].fill(0xab);
        entries[32..40].copy_from_slice(&start.to_le_bytes());
    }
    let mut protective = mbr(1);
    protective[446 + 4] = 0xee;
    let first = [&protective[..], &header, &entries].concat();
    (first, [entries, header].concat())
}

#[test]
fn a_partition_table_over_the_beginning_is_repaired() {
    for start in [0, 2048 / 8] {
        let mut used = Used::new(512, true);
        put(&used.flash, 0, &mbr(u32::try_from(start).unwrap()));
        // Of the superblock only the first LBA is gone.
        assert_eq!(used.is_whole(&"an MBR").len(), 1);
        put(&used.flash, 0, &[mbr(1), vec![0; 8192 - 512]].concat());
        let remarks = used.is_whole(&"an MBR, and zeroes");
        assert!(remarks[0].contains("a partition table"), "{remarks:?}");
        let (first, last) = gpt(start);
        put(&used.flash, 0, &first);
        put(&used.flash, WHOLE - last.len() as u64, &last);
        let remarks = used.is_whole(&"a GPT");
        assert!(remarks[0].contains("a partition table"), "{remarks:?}");
        assert!(remarks[1].contains("of the journal"), "{remarks:?}");
    }
}

#[test]
fn another_owner_of_the_flash_device_is_left_alone() {
    let marks: [(&str, usize, &[u8]); 11] = [
        ("ext4", 1080, &[0x53, 0xef]),
        ("XFS", 0, b"XFSB"),
        ("btrfs", 0x1_0040, b"_BHRfS_M"),
        ("NTFS", 3, b"NTFS    "),
        ("FAT", 82, b"FAT32   "),
        ("LUKS", 0, b"LUKS\xba\xbe"),
        ("LVM", 512, b"LABELONE"),
        ("swap", 4086, b"SWAPSPACE2"),
        ("md", 4096, &0xa92b_4efc_u32.to_le_bytes()),
        ("pool", 0, b"EKVP"),
        ("KVDB", 0, b"ESKMEDIA"),
    ];
    let used = Used::new(512, true);
    let content = |at: usize, mark: &[u8]| {
        let mut content = vec![0; (at + mark.len()).next_multiple_of(BLOCK).max(2 * BLOCK)];
        content[at..at + mark.len()].copy_from_slice(mark);
        content
    };
    for (what, at, mark) in marks {
        let used = used.again();
        put(&used.flash, 0, &content(at, mark));
        let error = used.is_refused(&what);
        assert!(matches!(error, CacheError::Overwritten { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        for words in [what, "Nothing was changed", "--overwrite"] {
            assert!(error.to_string().contains(words), "no '{words}' in: {error}");
        }
        // Nor is it written by anything else.
        let before = bytes_of(&used.flash);
        assert!(Cache::inspect(&used.flash).is_err());
        assert!(Cache::change_mode(&used.flash, Mode::WriteThrough).is_err());
        assert!(Cache::abandon(&*used.origin, &used.flash).is_err());
        let options = rig::create_options(Mode::WriteBack);
        assert!(Cache::create(&*used.origin, &used.flash, &options).is_err());
        assert!(before == bytes_of(&used.flash), "{what}: it was written");
        // A new cache there has nothing of the old one, not even when its own first copies are gone.
        let options = CreateOptions { overwrite: true, id: 78, ..options };
        Cache::create(&*used.origin, &used.flash, &options).unwrap();
        put(&used.flash, 0, &[0; 2 * BLOCK]);
        let found = Cache::inspect(&used.flash).unwrap();
        assert_eq!((found.dirty_blocks, found.named_blocks), (0, 0));
    }
    // Nor by a cache that is open.
    let open = used.again();
    let cache = rig::open(&open.origin, &open.flash);
    put(&open.flash, 0, &content(0, b"XFSB"));
    let before = bytes_of(&open.flash);
    assert!(cache.set_mode(Mode::WriteThrough).is_err());
    assert!(before == bytes_of(&open.flash), "it was written");
    drop(cache);
    // Swap space takes the first copy alone.
    let page = content(4086, b"SWAPSPACE2")[..BLOCK].to_vec();
    let swap = used.again();
    put(&swap.flash, 0, &page);
    assert!(matches!(swap.is_refused(&"swap"), CacheError::Overwritten { .. }));
    // A file system in a partition may have overwritten slots.
    for start in [64_u64, 700] {
        let inside = used.again();
        let mut super_block = vec![0; BLOCK];
        super_block[..4].copy_from_slice(b"XFSB");
        put(&inside.flash, start * 512, &super_block);
        put(&inside.flash, 0, &[mbr(u32::try_from(start).unwrap()), vec![0; 8192 - 512]].concat());
        let error = inside.is_refused(&"a file system in a partition");
        assert!(error.to_string().contains(&format!("byte {}", start * 512)), "{error}");
        put(&inside.flash, 0, &gpt(start).0);
        assert!(matches!(inside.is_refused(&"the same"), CacheError::Overwritten { .. }));
    }
}

#[test]
fn any_block_of_the_journal_may_be_damaged() {
    for (lba_size, is_closed) in [(512, false), (4096, true), (4096, false), (512, true)] {
        let used = Used::new(lba_size, is_closed);
        let all = bytes_of(&used.flash);
        let layout = used.layout();
        let block = |bytes: &[u8], at: u64| {
            let at = usize::try_from(at).unwrap();
            bytes[at..at + BLOCK].to_vec()
        };
        let (mut damaged, mut mended) = (0, 0);
        for at in (layout.area(0)..layout.journal_end()).step_by(BLOCK) {
            // The other copy of the same block, and others that are elsewhere.
            let size = layout.area_bytes;
            let index = (at - layout.area(0)) / size;
            let other = if index.is_multiple_of(2) { at + size } else { at - size };
            let wrapped = layout.area(0) + (at - layout.area(0) + 3 * 4096) % (4 * size);
            let across = layout.area(0) + (at - layout.area(0) + 2 * size) % (4 * size);
            let kinds = [
                ("zeroes", vec![0; BLOCK]),
                ("garbage", garbage(at)),
                ("earlier content", block(&used.earlier, at)),
                ("another block", block(&all, wrapped)),
                ("a block of the other area", block(&all, across)),
            ];
            for (kind, content) in kinds {
                if content == block(&all, at) {
                    continue;
                }
                let about = format!("{kind} at {at}, LBAs of {lba_size}, closed {is_closed}");
                let mut one = used.again();
                put(&one.flash, at, &content);
                damaged += 1;
                mended += one.is_whole(&about).len();
                // It was mended: the other copy may go now.
                put(&one.flash, other, &garbage(at));
                one.is_whole(&format!("{about}, then the other copy"));
            }
        }
        println!("{damaged} blocks damaged, {mended} remarks");
        assert!(damaged > 200 && mended > 20, "{damaged} {mended}");
    }
}

#[test]
fn a_block_of_the_journal_that_cannot_be_read_is_written_anew() {
    for lba_size in [512, 4096] {
        let used = Used::new(lba_size, false);
        let layout = used.layout();
        for at in (layout.area(0)..layout.journal_end()).step_by(BLOCK) {
            let mut one = used.again();
            // Until it is written as a whole, which is the drive's chance to replace it.
            let is_bad = std::sync::atomic::AtomicBool::new(true);
            let flash = one.flash.clone();
            one.flash = refusing(&flash, move |op| {
                let hits = |lba: u64, bytes: usize| {
                    let from = lba * u64::from(lba_size);
                    from < at + BLOCK as u64 && at < from + bytes as u64
                };
                match op {
                    Op::Write { lba, buf, .. } if hits(lba.0, buf.len()) => {
                        if buf.len() >= BLOCK {
                            is_bad.store(false, std::sync::atomic::Ordering::Relaxed);
                        }
                        is_bad.load(std::sync::atomic::Ordering::Relaxed)
                    }
                    Op::Read { lba, buf } => {
                        is_bad.load(std::sync::atomic::Ordering::Relaxed) && hits(lba.0, buf.len())
                    }
                    _ => false,
                }
            });
            let cache = Cache::open(one.origin.clone(), one.flash.clone(), rig::open_options());
            let cache = cache.unwrap_or_else(|error| panic!("{at}: {error}"));
            let remarks = cache.remarks();
            assert!(!remarks.iter().any(|it| it.contains("could not")), "{at}: {remarks:?}");
            one.check(&cache, &at);
        }
    }
}

#[test]
fn a_journal_whose_end_cannot_be_read_in_either_copy_is_refused() {
    let used = Used::new(4096, false);
    let layout = used.layout();
    let area = starts(&used.flash).into_iter().max().unwrap();
    let copies: Vec<u64> = layout.areas_of(area).collect();
    let mut refused = 0;
    for at in (0..layout.area_bytes).step_by(BLOCK) {
        let bad: Vec<u64> = copies.iter().map(|copy| (copy + at) / 4096).collect();
        let flash = refusing(&used.flash, move |op| {
            matches!(op, Op::Read { lba, buf } if {
                let lbas = lba.0..lba.0 + buf.len() as u64 / 4096;
                bad.iter().any(|bad| lbas.contains(bad))
            })
        });
        // Behind the record that may be there, or was, nothing is missed.
        refused += u64::from(Cache::inspect(&flash).is_err());
    }
    let all = bytes_of(&used.flash);
    let records = (0..layout.area_bytes).step_by(BLOCK).take_while(|at| {
        let at = usize::try_from(copies[0] + at).unwrap();
        RecordHeader::decode(&all[at..]).is_ok_and(|(header, _, _)| header.sequence == area)
    });
    let records = records.count() as u64;
    // Each record, and the place of the next one.
    assert!(refused == records + 1 && records > 3, "{refused} of {records}");
}

#[test]
fn a_record_without_a_sound_copy_is_named_with_what_hangs_on_it() {
    for lba_size in [512, 4096] {
        let used = Used::new(lba_size, true);
        let (layout, all) = (used.layout(), bytes_of(&used.flash));
        let start = starts(&used.flash).into_iter().max().unwrap();
        let areas: Vec<u64> = layout.areas_of(start).collect();
        let mut at = 0;
        let mut records = Vec::new();
        while let Ok((header, changes, _)) =
            RecordHeader::decode(&all[usize::try_from(areas[0] + at).unwrap()..])
        {
            if header.sequence != start {
                break;
            }
            let size = esker_cache::omf::record_size(changes.len());
            records.push((at, header.number));
            at += (size as u64).next_multiple_of(u64::from(lba_size));
        }
        assert!(records.len() > 5, "{records:?}");
        let last = records.last().unwrap().1;
        for (at, number) in &records {
            let one = used.again();
            let lba = vec![0x5a; lba_size as usize];
            areas.iter().for_each(|area| put(&one.flash, area + at, &lba));
            if *number == last {
                // It says nothing, and a crash may have torn it.
                one.check(&rig::open(&one.origin, &one.flash), &"the last one");
                continue;
            }
            let error = one.is_refused(&format!("record {number}"));
            assert!(matches!(error, CacheError::Corrupt { .. }), "{error}");
            let words = format!("1 of its records have no sound copy, and {} sound", last - number);
            assert!(error.to_string().contains(&words), "no '{words}' in: {error}");
            assert!(error.to_string().contains("--dirty drop"), "{error}");
        }
    }
}

#[test]
fn the_superblock_near_the_end_moves_with_the_size_whatever_crashes() {
    let (small, large) = (rig::FLASH, rig::FLASH + rig::SPARE);
    for (from, to) in [(small, large), (large, small), (small, small + 4096)] {
        let (origin, flash) = rig::devices(Mode::WriteBack, 512, 512);
        let cache = rig::open(&origin, &flash);
        cache.resize(from).unwrap();
        let mut port = Port::open(&cache, 4).unwrap();
        (0..9).for_each(|block| write(&mut port, 512, block, 5));
        port.flush().unwrap();
        cache.close().unwrap();
        drop((port, cache));
        let recorder = CrashRecorder::new();
        let origin = recorder.attach_zeroing(origin) as Arc<dyn Device>;
        let extent = flash.geometry().capacity;
        let recorded: Arc<dyn Device> = recorder.attach_holding(flash, extent).unwrap();
        let cache = rig::open(&origin, &recorded);
        cache.resize(to).unwrap();
        cache.close().unwrap();
        recorder.mark(0);
        drop(cache);
        let (mut found, mut images) = (0, 0);
        for image in recorder.history().images(&Plan { all_subsets: 4, ..Plan::default() }) {
            images += 1;
            for is_destroyed in [false, true] {
                let about = format!("{from} to {to}, destroyed {is_destroyed}: {image}");
                let (origin, flash) = (image.device(0), image.device(1));
                if is_destroyed {
                    put(&flash, 0, &[0; 2 * BLOCK]);
                }
                let cache = match Cache::open(origin.clone(), flash.clone(), rig::open_options()) {
                    Ok(cache) => cache,
                    // Two faults at once: a crash just when it was moved.
                    Err(CacheError::NoCache { .. }) if is_destroyed && image.marks().is_empty() => {
                        continue;
                    }
                    Err(error) => panic!("{error}: {about}"),
                };
                found += u64::from(is_destroyed);
                if !image.marks().is_empty() {
                    assert_eq!(cache.info().flash_bytes, to, "{about}");
                }
                let mut port = Port::open(&cache, 4).unwrap();
                for block in 0..9 {
                    let buf = AlignedBuf::zeroed(BLOCK);
                    let read = port.read(Lba(block * 8), buf).unwrap();
                    assert!(read[..] == rig::content(block, 5)[..], "{about}");
                }
                drop((port, cache));
                // Whatever it was left at: no older superblock comes back once it was changed.
                Cache::change_mode(&flash, Mode::WriteAround).unwrap();
                put(&flash, 0, &[0; 2 * BLOCK]);
                match Cache::inspect(&flash) {
                    Ok(info) => assert_eq!(info.mode, Mode::WriteAround, "{about}"),
                    Err(error) => assert!(matches!(error, CacheError::NoCache { .. }), "{error}"),
                }
            }
        }
        println!("{from} to {to}: {found} of {images} found by the last copy");
        assert!(found > 10, "{found} of {images}");
    }
}

#[test]
fn a_new_cache_leaves_no_superblock_of_the_old_one() {
    let used = Used::new(512, true);
    for flash_bytes in [rig::FLASH, rig::FLASH - (32 << 10)] {
        let used = used.again();
        let recorder = CrashRecorder::new();
        let extent = used.flash.geometry().capacity;
        let flash: Arc<dyn Device> = recorder.attach_holding(used.flash, extent).unwrap();
        let options = CreateOptions {
            flash_bytes: Some(flash_bytes),
            overwrite: true,
            id: 78,
            ..rig::create_options(Mode::WriteThrough)
        };
        Cache::create(&*used.origin, &flash, &options).unwrap();
        recorder.mark(0);
        let (mut old, mut none, mut new) = (0, 0, 0);
        for image in recorder.history().images(&Plan { all_subsets: 4, ..Plan::default() }) {
            let flash = image.device(0);
            let before = Cache::inspect(&flash);
            put(&flash, 0, &[0; 2 * BLOCK]);
            let after = Cache::inspect(&flash);
            // Once it was gone, or another, it does not come back.
            let is_old = before.as_ref().is_ok_and(|info| info.mode == Mode::WriteBack);
            match after {
                Ok(info) if info.mode == Mode::WriteBack => {
                    assert!(is_old, "{flash_bytes}: {image}");
                    old += 1;
                }
                Ok(_) => new += 1,
                Err(_) => none += 1,
            }
        }
        assert!(none > 10, "{old} old, {none} none, {new} new");
        assert!(old > 0 && new > 0, "{old} old, {none} none, {new} new");
    }
}

#[test]
fn a_cache_of_version_3_goes_on_in_its_layout() {
    let dump = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let flash = MemoryDevice::new("flash", (320 << 10) + rig::SPARE, 4096);
    let flash = rig::dumped(flash, &dump("cache-3.txt"));
    let origin = MemoryDevice::new("origin", rig::ORIGIN, 4096).identified(rig::identity());
    let origin = rig::dumped(origin, &dump("cache-3-origin.txt"));
    let info = Cache::inspect(&flash).unwrap();
    assert_eq!((info.dirty_blocks, info.named_blocks, info.flash_bytes), (3, 10, 320 << 10));
    let mut versions = vec![0; 64];
    let known = [15, 16, 17, 31, 19, 18, 19, 32, 0, 33];
    versions[..10].copy_from_slice(&known);
    let mut used = Used { origin, flash, versions, earlier: Vec::new() };
    assert_eq!(used.is_whole(&"as it was"), [""; 0]);
    let cache = rig::open(&used.origin, &used.flash);
    cache.resize((320 << 10) + rig::SPARE).unwrap();
    let mut port = Port::open(&cache, 4).unwrap();
    for version in 1..100 {
        write(&mut port, 4096, version % 30, version);
        used.versions[usize::try_from(version % 30).unwrap()] = version;
        port.flush().unwrap();
    }
    used.check(&cache, &"grown");
    cache.resize(320 << 10).unwrap();
    drop((port, cache));
    used.is_whole(&"shrunk");
    let all = bytes_of(&used.flash);
    assert_eq!(all[8..12], 3u32.to_le_bytes(), "it stays of its version");
    // One damaged record ends what can be read, as ever.
    let layout = used.layout();
    let start = starts(&used.flash).into_iter().max().unwrap();
    let area = layout.areas_of(start).collect::<Vec<_>>();
    assert_eq!(area.len(), 1);
    put(&used.flash, area[0] + 4096, &garbage(1));
    assert!(matches!(used.is_refused(&"damaged"), CacheError::Corrupt { .. }));
}
