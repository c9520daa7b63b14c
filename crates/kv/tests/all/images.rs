//! Whatever a build has written, every later build reads: KVDBs that versions of the format left, in
//! `testdata/images/`. Each is opened, checked, compared with the text beside it, worked on,
//! and repaired.
//!
//! An image is never written anew. When a version of the format is finished,
//! `cargo test -p esker-kv --test all images:: -- --ignored` adds those of it that are missing.

mod build;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::remains;
use crate::common::{Devices, OnDevices};
use build::{Content, LATER_MS, METADATA, SHAPES, SIZES, kvss, options};
use esker_base::checksum::crc32c;
use esker_base::{AlignedBuf, ErrorKind, Lba};
use esker_device::{Device, MemoryDevice, Port};
use esker_kv::{KvError, Kvdb};

/// The version of the format that this build adds images of.
const NEWEST: &str = "2";

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata", "images"].iter().collect()
}

/// The size of an LBA, and of each device the LBAs that are not zeroes.
struct Media {
    lba_size: u32,
    lbas: BTreeMap<(u32, u32), Vec<u8>>,
}

impl Media {
    fn of(devices: &Devices) -> Media {
        let lba_size = devices.capacity.geometry().lba_size;
        let all = [&devices.manifest, &devices.capacity].into_iter().chain(&devices.staging);
        let mut lbas = BTreeMap::new();
        for (number, device) in (0..).zip(all) {
            let mut port = Port::open(&**device, 1).unwrap();
            for lba in 0..u32::try_from(device.geometry().capacity.0).unwrap() {
                let buf = AlignedBuf::zeroed(lba_size as usize);
                let bytes = port.read(Lba(lba.into()), buf).unwrap();
                if bytes.iter().any(|byte| *byte != 0) {
                    lbas.insert((number, lba), bytes.to_vec());
                }
            }
        }
        Media { lba_size, lbas }
    }

    /// As a file: compressed, the size of an LBA, then for each its device, its number and its content.
    fn pack(&self) -> Vec<u8> {
        let mut bytes = self.lba_size.to_le_bytes().to_vec();
        for ((device, lba), content) in &self.lbas {
            bytes.extend_from_slice(&device.to_le_bytes());
            bytes.extend_from_slice(&lba.to_le_bytes());
            bytes.extend_from_slice(content);
        }
        zstd::bulk::compress(&bytes, 19).unwrap()
    }

    fn unpack(packed: &[u8]) -> Media {
        let bytes = zstd::bulk::decompress(packed, 16 << 20).unwrap();
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let lba_size = word(&bytes);
        let pieces = bytes[4..].chunks_exact(8 + lba_size as usize);
        let lbas = pieces.map(|it| ((word(it), word(&it[4..])), it[8..].to_vec())).collect();
        Media { lba_size, lbas }
    }

    /// Fresh devices that hold it, without a staging class if it has nothing on one.
    fn devices(&self) -> Devices {
        let mut devices = (0..).zip(SIZES).map(|(number, size)| {
            let device = MemoryDevice::new(&format!("device {number}"), size, self.lba_size);
            let mut port = Port::open(&device, 1).unwrap();
            let own = self.lbas.range((number, 0)..(number + 1, 0));
            for ((_, lba), content) in own {
                let buf = AlignedBuf::padded(content, self.lba_size as usize);
                port.write(Lba((*lba).into()), buf, None).unwrap();
            }
            Arc::new(device) as Arc<dyn Device>
        });
        let mut next = || devices.next().unwrap();
        let (manifest, capacity) = (next(), next());
        let has_staging = self.lbas.is_empty() || self.lbas.range((2, 0)..).next().is_some();
        Devices { manifest, capacity, staging: has_staging.then(next) }
    }
}

/// The images there are, in order.
fn images() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|kind| kind == "image")).collect();
    images.sort();
    assert!(images.len() >= SHAPES.len(), "{images:?}");
    images
}

/// Content of a KVDB, as text: a line for each key, with a hash of its value.
fn listing(content: &Content) -> String {
    let mut text = String::new();
    for ((kvs, key), value) in content {
        let hash = xxhash_rust::xxh3::xxh3_64(value);
        writeln!(text, "{kvs} '{}' {} {hash:016x}", key.escape_ascii(), value.len()).unwrap();
    }
    text
}

/// Text that is kept beside an image: its content when it is opened, and later.
fn expectation(now: &Content, later: &Content) -> String {
    let mut text = String::new();
    for (name, options) in kvss() {
        let ttl = options.ttl_ms.map_or_else(|| "none".into(), |ms| ms.to_string());
        writeln!(text, "kvs {name} {} {} {ttl}", options.policy, options.compression).unwrap();
    }
    let (now, later) = (listing(now), listing(later));
    text + &format!("\nat 0 ms\n{now}\nat {LATER_MS} ms\n{later}")
}

/// Content that an open KVDB shows now, as text.
fn shown(db: &Kvdb) -> String {
    let mut found = Content::new();
    for name in db.kvs_names() {
        let mut cursor = db.kvs(&name).unwrap().cursor().unwrap();
        while let Some((key, value)) = cursor.next().unwrap() {
            found.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    listing(&found)
}

/// Compares all that `devices` show with the expected content.
fn compare(what: &str, devices: &Devices, expected: &str) {
    let options = options();
    let clock = options.clock.clone();
    let db = Kvdb::open_on(devices.clone(), options).unwrap();
    let mut text = String::new();
    for name in db.kvs_names() {
        let options = db.kvs(&name).unwrap().options().unwrap();
        let ttl = options.ttl_ms.map_or_else(|| "none".into(), |ms| ms.to_string());
        writeln!(text, "kvs {name} {} {} {ttl}", options.policy, options.compression).unwrap();
    }
    let now = shown(&db);
    clock.advance(Duration::from_millis(LATER_MS));
    let later = shown(&db);
    let text = text + &format!("\nat 0 ms\n{now}\nat {LATER_MS} ms\n{later}");
    assert!(text == expected, "{what}: expected\n{expected}\nfound\n{text}");
}

fn check(path: &Path) {
    let name = path.display().to_string();
    let media = Media::unpack(&std::fs::read(path).unwrap());
    let expected = std::fs::read_to_string(path.with_extension("txt")).unwrap();
    let devices = media.devices();
    let report = Kvdb::check_on(&devices).unwrap();
    assert_eq!(report.findings, Vec::<String>::new(), "{name}");
    assert!(report.kvsets > 6 && report.values > 50, "{name}: {report:?}");
    compare(&name, &devices, &expected);

    if !name.rsplit('/').next().unwrap().starts_with("1-") {
        let db = Kvdb::open_on(media.devices(), options()).unwrap();
        assert_eq!(db.kvs(METADATA.0).unwrap().metadata().unwrap(), METADATA.1, "{name}");
    }

    // Old data is rewritten by maintenance, and still the same.
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    for kvs in db.kvs_names() {
        let kvs = db.kvs(&kvs).unwrap();
        for n in 0..200u32 {
            kvs.put(b"new", n.to_le_bytes().repeat(60)).unwrap();
        }
        kvs.delete(b"new").unwrap();
        db.ingest().unwrap();
        db.settle().unwrap();
    }
    assert!(db.stats().maintenance.spills > 0, "{name}");
    db.close().unwrap();
    compare(&name, &devices, &expected);
    assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new(), "{name}");

    // It is upgraded, and still the same; and at its first record that needs it.
    let devices = media.devices();
    let version = |db: &Kvdb| db.format_version();
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    let had = name.rsplit('/').next().unwrap()[..1].parse::<u16>().unwrap();
    assert_eq!(version(&db), had, "{name}");
    assert_eq!((db.upgrade().unwrap(), version(&db)), (had, 2), "{name}");
    drop(db);
    compare(&format!("{name}, upgraded"), &devices, &expected);
    let devices = media.devices();
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    db.kvs("plain").unwrap().clear().unwrap();
    drop(db);
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    assert_eq!(version(&db), 2, "{name}");
    assert!(db.kvs("plain").unwrap().cursor().unwrap().next().unwrap().is_none(), "{name}");
    drop(db);
    assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new(), "{name}");

    // A repair understands it as well.
    let devices = media.devices();
    let remains = remains(&devices);
    let blank = Media { lba_size: media.lba_size, lbas: BTreeMap::new() }.devices();
    let report = Kvdb::repair_on(&remains, &blank, options()).unwrap();
    assert!(report.is_sound(), "{name}: {report:#?}");
    compare(&format!("{name}, repaired"), &blank, &expected);
}

#[test]
fn images_of_earlier_versions_are_read() {
    let images = images();
    images.iter().for_each(|image| check(image));
    let bytes: u64 = images.iter().map(|image| image.metadata().unwrap().len()).sum();
    println!("{} images, {bytes} bytes", images.len());
}

/// One test for each kind of structure that states a version.
#[test]
fn images_of_a_later_version_are_refused_by_its_number() {
    for image in images() {
        let media = Media::unpack(&std::fs::read(&image).unwrap());
        let mut refused = Vec::new();
        for (magic, size) in [(b"ESKMANIF", 64), (b"ESKMEDIA", 40), (b"ESKFRAME", 64)] {
            let mut later = Media { lba_size: media.lba_size, lbas: media.lbas.clone() };
            let headers = later.lbas.values_mut().filter(|bytes| bytes.starts_with(magic));
            for header in headers {
                header[8] = 3;
                let crc = crc32c(&header[..size - 4]);
                header[size - 4..size].copy_from_slice(&crc.to_le_bytes());
            }
            match Kvdb::open_on(later.devices(), options()) {
                Err(error @ KvError::Version { found: 3, .. }) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    let text = error.to_string();
                    assert!(
                        text.contains("format version 3; this build reads versions 1 to 2"),
                        "{text}"
                    );
                    refused.push(magic);
                }
                Err(error) => panic!("{}: {error}", magic.escape_ascii()),
                // Of a closed KVDB no frame is read before someone asks for a value.
                Ok(_) => assert_eq!(magic, b"ESKFRAME", "{}", image.display()),
            }
        }
        assert!(refused.len() >= 2, "{}", image.display());
    }
}

#[test]
#[ignore = "adds images of this version: see the top of the file"]
fn images_of_this_version_are_added() {
    for shape in &SHAPES {
        let path = folder().join(format!("{NEWEST}-{}.image", shape.name));
        if path.exists() {
            println!(
                "{} is there; for a new version of the format count NEWEST up",
                path.display()
            );
            continue;
        }
        let (devices, now, later) = build::build(shape);
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(&path, Media::of(&devices).pack()).unwrap();
        std::fs::write(path.with_extension("txt"), expectation(&now, &later)).unwrap();
        check(&path);
    }
}
