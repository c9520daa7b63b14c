//! Whole KVDBs with structures that were changed and whose checksums were made to fit: images that a bug of ours,
//! or somebody else, could have written. Opening, checking, reading and working on them may fail or give other
//! data; it never panics, and takes no memory that no bytes stand behind.
//!
//! `ESKER_SOAK=600 cargo test --release -p esker-kv --lib mended -- --nocapture` goes on for 600 s.

use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Rng};
use esker_device::{Device, MemoryDevice, Port};

use super::*;
use crate::api::kvdb::Kvdb;
use crate::fuzz::{mend_class, mend_frame, mend_manifest, mend_meta, mend_page};
use crate::recover::devices::Devices;
use crate::types::error::Result;
use crate::types::options::{Maintenance, Options, Tuning};

const LBA: usize = LBA_SIZE;
const SIZES: [(&str, usize); 3] =
    [("manifest", 32 << 10), ("capacity", 256 << 10), ("staging", 192 << 10)];

fn options() -> Options {
    let tuning = Tuning {
        memtable_bytes: 10 << 10,
        block_bytes: 16 << 10,
        frame_bytes: 2 << 10,
        key_extent_bytes: 8 << 10,
        allocation_bytes: 4 << 10,
        root_kvsets: 2,
        spill_bytes: 20 << 10,
        compact_kvsets: 3,
        leaf_key_bytes: 14 << 10,
        gather_bytes: 32 << 10,
        workers: 1,
    };
    let (clock, maintenance) = (Clock::virtual_time(), Maintenance::Manual);
    let memory_bytes = 8 << 20;
    Options { memory_bytes, maintenance, clock, tuning: Some(tuning), ..Options::default() }
}

type Media = [Vec<u8>; 3];

fn devices(media: &Media) -> Devices {
    let mut all = SIZES.iter().zip(media).map(|((name, _), bytes)| {
        let device = Arc::new(MemoryDevice::new(name, bytes.len() as u64, 512));
        let mut port = Port::open(&*device, 1).unwrap();
        for (lba, content) in (0..).zip(bytes.chunks(LBA)) {
            if content.iter().any(|byte| *byte != 0) {
                port.write(Lba(lba), AlignedBuf::padded(content, LBA), None).unwrap();
            }
        }
        device as Arc<dyn Device>
    });
    let mut next = || all.next().unwrap();
    Devices { manifest: next(), capacity: next(), staging: Some(next()) }
}

fn content(device: &Arc<dyn Device>) -> Vec<u8> {
    let mut port = Port::open(&**device, 1).unwrap();
    let lbas = (0..device.geometry().capacity.0).map(Lba);
    lbas.flat_map(|lba| port.read(lba, AlignedBuf::zeroed(LBA)).unwrap().to_vec()).collect()
}

/// A KVDB with every structure there is.
fn build() -> Media {
    let devices = devices(&SIZES.map(|(_, size)| vec![0; size]));
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvss = ["a", "b"].map(|name| db.create_kvs(name, Policy::default()).unwrap());
    let mut rng = Rng::new(7);
    for round in 0..5 {
        for _ in 0..70 {
            let n = rng.below(50);
            let key = format!("{n:03}{}", "-".repeat(if n.is_multiple_of(2) { 240 } else { 3 }));
            let mut value = vec![0; to_usize(rng.below(300))];
            rng.fill(&mut value);
            let kvs = &kvss[to_usize(n % 2)];
            if rng.chance(1, 8) {
                kvs.delete(key.as_bytes()).unwrap();
            } else {
                kvs.put(key.as_bytes(), &value).unwrap();
            }
        }
        if round < 4 {
            db.ingest().unwrap();
            db.settle().unwrap();
        }
    }
    db.sync().unwrap();
    [&devices.manifest, &devices.capacity, devices.staging.as_ref().unwrap()].map(content)
}

/// A structure on a medium, and the function that makes its checksums fit.
struct Found {
    device: usize,
    at: usize,
    size: usize,
    mend: fn(&mut [u8]),
}

/// All structures on the media.
fn structures(media: &Media) -> Vec<Found> {
    let mut found = Vec::new();
    for (device, bytes) in media.iter().enumerate() {
        for at in (0..bytes.len()).step_by(LBA) {
            let here = &bytes[at..];
            let size_at = |field: usize| to_usize(u64::from(u32_of(here, field)));
            let crc = || crc32c(&here[4..PAGE_SIZE]);
            let (size, mend): (usize, fn(&mut [u8])) = match here {
                _ if here.starts_with(b"ESKMEDIA") => (40, mend_class),
                _ if here.starts_with(b"ESKFRAME") => (64 + size_at(48), mend_frame),
                _ if here.starts_with(b"ESKMANIF") => (64 + size_at(12), mend_manifest),
                _ if here.starts_with(b"ESKKVSET") => {
                    let expiries = if here[10] == 1 { 24 } else { 0 };
                    (48 + size_at(28) + size_at(32) + size_at(40) + expiries, mend_meta)
                }
                _ if here.len() >= PAGE_SIZE && u32_of(here, 0) == crc() => (PAGE_SIZE, mend_page),
                _ => continue,
            };
            if size <= here.len() && here[..16].iter().any(|byte| *byte != 0) {
                found.push(Found { device, at, size, mend });
            }
        }
    }
    found
}

fn u32_of(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Everything that a KVDB is asked, of which anything may fail.
fn use_it(media: &Media) -> Result<()> {
    let _ = Kvdb::check_on(&devices(media));
    let db = Kvdb::open_on(devices(media), options())?;
    for name in db.kvs_names() {
        let kvs = db.kvs(&name)?;
        for n in 0..50 {
            let _ = kvs.get(format!("{n:03}---").as_bytes());
        }
        let mut cursor = kvs.cursor()?;
        let mut count = 0;
        while let Ok(Some(_)) = cursor.next() {
            count += 1;
            assert!(count < 100_000, "a cursor that never ends");
        }
        kvs.put(b"new", [1; 500])?;
        kvs.delete(b"000---")?;
    }
    db.ingest()?;
    db.settle()?;
    db.close()
}

/// Some bytes of a structure, changed so that decoders get far.
fn mutate(structure: &mut [u8], rng: &mut Rng) {
    let rich = 1 + structure.iter().rposition(|&byte| byte != 0).unwrap();
    for _ in 0..=rng.below(3) {
        let at = to_usize(rng.below(rich as u64));
        let byte = u8::try_from(rng.below(256)).unwrap();
        match rng.below(5) {
            0 => structure[at] = byte,
            1 => structure[at] = structure[at].wrapping_add(1),
            2 => structure[at] ^= 1 << (byte % 8),
            3 => structure[at] = [0, 1, 0x7f, 0x80, 0xff][usize::from(byte) % 5],
            _ => {
                let end = (at + usize::from(byte % 9)).min(rich);
                structure[at..end].fill([0, 0x80, 0xff][usize::from(byte) % 3]);
            }
        }
    }
}

/// The most memory this process ever had, in bytes; 0 where nobody says.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[test]
fn kvdbs_with_mended_mutations_open_or_say_why_not() {
    let sound = build();
    use_it(&sound).unwrap();
    let all = structures(&sound);
    let soak = std::env::var("ESKER_SOAK").map_or(0, |seconds| seconds.parse().unwrap());
    let (clock, span) = (Clock::real(), Duration::from_secs(soak));
    let began = clock.now();
    let before = peak_bytes();
    let (mut worked, mut refused) = (0, 0);
    for case in 0.. {
        if case >= 1500 && clock.now().since(began) >= span {
            break;
        }
        let mut rng = Rng::new(case);
        let Found { device, at, size, mend } = all[to_usize(rng.below(all.len() as u64))];
        let mut media = sound.clone();
        let structure = &mut media[device][at..at + size];
        mutate(structure, &mut rng);
        mend(structure);
        let _case = Case(case);
        match use_it(&media) {
            Ok(()) => worked += 1,
            Err(_) => refused += 1,
        }
    }
    println!(
        "{} structures; {worked} KVDBs worked all the same, {refused} said why not",
        all.len()
    );
    assert!(worked > 100 && refused > 100, "{worked}, {refused}");
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes were taken for media of half a MiB");
}

/// Says which case it was when one fails.
struct Case(u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("case {}", self.0);
        }
    }
}

#[test]
fn a_reference_beyond_its_block_is_damage() {
    let media = build();
    let mut changed_ones = 0;
    for Found { device, at, mend, .. } in structures(&media) {
        let raw = &media[device][at..][..PAGE_SIZE.min(media[device].len() - at)];
        let Some((kvset, index)) = Page::address(raw) else { continue };
        let page = Page::verify(raw, kvset, index).unwrap();
        for slot in 0..page.count() {
            let tail = page.suffix_at(slot).end;
            if raw[tail] != 1 {
                continue; // no record in a block, or one that expires
            }
            let mut changed = media.clone();
            let bytes = &mut changed[device][at..][..PAGE_SIZE];
            // Behind the tag and the number of the block: as far as as many bytes can say.
            let mut offset = tail + 2;
            while bytes[offset] & 0x80 != 0 {
                bytes[offset] = 0xff;
                offset += 1;
            }
            bytes[offset] = 0x7f;
            mend(bytes);
            let report = Kvdb::check_on(&devices(&changed)).unwrap();
            assert!(!report.findings.is_empty(), "page {index} of kvset {kvset}, slot {slot}");
            let _ = use_it(&changed);
            changed_ones += 1;
        }
    }
    assert!(changed_ones > 20, "{changed_ones}");
}
