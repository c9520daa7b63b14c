//! Support that the cache's tests share: small caches, with sets and journal areas so small that everything happens
//! soon.

#![allow(dead_code)] // each test file uses a part

use std::sync::Arc;

use esker_base::{AlignedBuf, Clock, Lba};
use esker_cache::omf::{Origin, SINGLE, Superblock};
use esker_cache::{Background, Cache, CreateOptions, Division, Layout, Mode, OpenOptions};
use esker_device::{Device, Fact, Identity, MemoryDevice, Op, Port};

/// Bytes of the origin.
pub(crate) const ORIGIN: u64 = 64 * 4096;
/// Bytes of the flash device: room for some twenty slots.
pub(crate) const FLASH: u64 = 512 << 10;
/// Where the journal ends and the table begins, the slots begin, and the last copy of the superblock begins.
pub(crate) const TABLE: u64 = 280 << 10;
pub(crate) const DATA: u64 = 320 << 10;
pub(crate) const LAST: u64 = FLASH - (64 << 10);
/// Bytes of the flash device behind the part that the cache uses at first.
pub(crate) const SPARE: u64 = 128 << 10;

pub(crate) const MODES: [Mode; 3] = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];

/// Options for a cache of two sets of eight slots.
pub(crate) fn create_options(mode: Mode) -> CreateOptions {
    CreateOptions {
        mode,
        set_bytes: 8 * 4096,
        run_bytes: 2 * 4096,
        division: Division::Hashed,
        flash_bytes: Some(FLASH),
        area_bytes: Some(64 << 10),
        id: 77,
        ..CreateOptions::default()
    }
}

/// Options for a cache of all of the flash device, in sets of a mebibyte.
pub(crate) fn large_options(mode: Mode) -> CreateOptions {
    CreateOptions {
        flash_bytes: None,
        set_bytes: 1 << 20,
        run_bytes: 64 << 10,
        ..create_options(mode)
    }
}

/// A cache that does nothing on its own.
pub(crate) fn open_options() -> OpenOptions {
    OpenOptions {
        background: Background::Manual,
        sequential_bytes: 0,
        clock: Clock::virtual_time(),
        ..OpenOptions::default()
    }
}

/// The identity that tells the origin of [`devices`] from others.
pub(crate) fn identity() -> Identity {
    Identity::default().with(Fact::Wwid, "naa.5000")
}

/// A pair of devices with a cache on the second.
pub(crate) fn devices(
    mode: Mode,
    origin_lba: u32,
    flash_lba: u32,
) -> (Arc<dyn Device>, Arc<dyn Device>) {
    let origin = MemoryDevice::new("origin", ORIGIN, origin_lba).identified(identity());
    let origin: Arc<dyn Device> = Arc::new(origin);
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", FLASH + SPARE, flash_lba));
    Cache::create(&*origin, &flash, &create_options(mode)).unwrap();
    (origin, flash)
}

/// A pair of devices of so many bytes, in LBAs of 4096, with nothing on them.
pub(crate) fn bare_devices(
    origin_bytes: u64,
    flash_bytes: u64,
) -> (Arc<dyn Device>, Arc<dyn Device>) {
    let origin: Arc<dyn Device> = Arc::new(MemoryDevice::new("origin", origin_bytes, 4096));
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", flash_bytes, 4096));
    (origin, flash)
}

/// The same with a cache on the second.
pub(crate) fn large_devices(
    origin_bytes: u64,
    flash_bytes: u64,
    options: &CreateOptions,
) -> (Arc<dyn Device>, Arc<dyn Device>) {
    let (origin, flash) = bare_devices(origin_bytes, flash_bytes);
    Cache::create(&*origin, &flash, options).unwrap();
    (origin, flash)
}

/// Opens it.
pub(crate) fn open(origin: &Arc<dyn Device>, flash: &Arc<dyn Device>) -> Cache {
    Cache::open(origin.clone(), flash.clone(), open_options()).unwrap()
}

/// A block that says its number and version.
pub(crate) fn content(block: u64, version: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(4096);
    buf.chunks_mut(8).for_each(|part| part.copy_from_slice(&(block << 32 | version).to_le_bytes()));
    buf
}

pub(crate) fn write(port: &mut Port, block: u64, version: u64) {
    let (lba, buf) = (Lba(block), content(block, version));
    port.run(Op::Write { lba, buf, placement: None, fua: false }).unwrap();
}

pub(crate) fn read(port: &mut Port, block: u64) -> AlignedBuf {
    port.read(Lba(block), AlignedBuf::zeroed(4096)).unwrap()
}

/// The content of a device.
pub(crate) fn bytes_of(device: &Arc<dyn Device>) -> Vec<u8> {
    let geometry = device.geometry();
    let size = usize::try_from(geometry.capacity.bytes(geometry.lba_size)).unwrap();
    let mut port = Port::open(&**device, 1).unwrap();
    port.read(Lba(0), AlignedBuf::zeroed(size)).unwrap().to_vec()
}

/// Writes bytes to a device, whole LBAs.
pub(crate) fn put(device: &Arc<dyn Device>, at: u64, bytes: &[u8]) {
    let lba_size = device.geometry().lba_size;
    assert!(at.is_multiple_of(lba_size.into()) && bytes.len().is_multiple_of(lba_size as usize));
    let buf = AlignedBuf::padded(bytes, lba_size as usize);
    Port::open(&**device, 1).unwrap().write(Lba(at / u64::from(lba_size)), buf, None).unwrap();
}

/// A copy of a cache on another flash device, in the layout of version 3, as version `version` of up to 3.
pub(crate) fn former(flash: &Arc<dyn Device>, version: u32) -> Arc<dyn Device> {
    let (all, geometry) = (bytes_of(flash), flash.geometry());
    let superblock = Superblock::decode(&all[..4096], 0).unwrap();
    let mut old = Superblock { version: SINGLE, ..superblock.clone() };
    if version < 3 {
        old.origin = Origin::default();
    }
    let (from, to) = (Layout::of(&superblock), Layout::of(&old));
    let bytes = geometry.capacity.bytes(geometry.lba_size);
    let new: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", bytes, geometry.lba_size));
    let copy = |from: u64, to: u64, size: u64| {
        let from = usize::try_from(from).unwrap();
        put(&new, to, &all[from..from + usize::try_from(size).unwrap()]);
    };
    (0..2).for_each(|area| copy(from.area(area), to.area(area), from.area_bytes));
    (0..from.pages()).for_each(|page| copy(from.page(page), to.page(page), 2 * 4096));
    (0..from.sets * from.set_slots).for_each(|slot| copy(from.slot(slot), to.slot(slot), 4096));
    for number in [0, 1] {
        let mut bytes = old.encode(number);
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        put(&new, u64::from(number) * 4096, &bytes);
    }
    new
}

/// A device with the content of a dump.
pub(crate) fn dumped(device: MemoryDevice, dump: &str) -> Arc<dyn Device> {
    let size = device.geometry().capacity.bytes(device.geometry().lba_size);
    let mut all = vec![0; usize::try_from(size).unwrap()];
    for line in dump.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = usize::from_str_radix(words[0], 16).unwrap();
        for n in 0..words[1].parse::<usize>().unwrap() * 32 {
            let digits = n % 32 * 2;
            all[at + n] = u8::from_str_radix(&words[2][digits..digits + 2], 16).unwrap();
        }
    }
    let device: Arc<dyn Device> = Arc::new(device);
    put(&device, 0, &all);
    device
}
