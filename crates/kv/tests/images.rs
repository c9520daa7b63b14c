//! Whatever a build has written, every later build reads: KVDBs that earlier versions of the format left,
//! in `testdata/images/`. Each is opened, read, checked, and worked on.
//!
//! An image is never written anew. When a version of the format is finished,
//! `cargo test -p esker-kv --test images -- --ignored` adds one of it; it refuses to replace one.

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use common::sample::{self, Content, LBA_SIZE, MEDIA, Media, options};
use esker_kv::Kvdb;

/// The image that this build adds, if it is not there yet: the release, and a number within it.
const NEWEST: &str = "0.1.0-1";

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata", "images"].iter().collect()
}

/// Media as bytes: of each LBA that is not zeroes, the index of its device, its number, and its content.
fn pack(media: &Media) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (device, content) in (0u32..).zip(&media.0) {
        for (lba, content) in (0u32..).zip(content.chunks(LBA_SIZE as usize)) {
            if content.iter().any(|byte| *byte != 0) {
                bytes.extend_from_slice(&device.to_le_bytes());
                bytes.extend_from_slice(&lba.to_le_bytes());
                bytes.extend_from_slice(content);
            }
        }
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Media {
    let size = LBA_SIZE as usize;
    let mut media =
        Media(MEDIA.iter().map(|(_, bytes)| vec![0; usize::try_from(*bytes).unwrap()]).collect());
    for piece in bytes.chunks_exact(8 + size) {
        let word = |at: usize| u32::from_le_bytes(piece[at..at + 4].try_into().unwrap()) as usize;
        let (device, start) = (word(0), word(4) * size);
        media.0[device][start..start + size].copy_from_slice(&piece[8..]);
    }
    media
}

/// What a KVDB holds, as text: a line for each key, with a hash of its value.
fn listing(content: &Content) -> String {
    let mut text = String::new();
    for ((kvs, key), value) in content {
        let hash = xxhash_rust::xxh3::xxh3_64(value);
        writeln!(text, "{kvs} {} {} {hash:016x}", key.escape_ascii(), value.len()).unwrap();
    }
    text
}

fn check(image: &Path) {
    let name = image.display();
    let media = unpack(&std::fs::read(image).unwrap());
    let expected = std::fs::read_to_string(image.with_extension("txt")).unwrap();
    let report = Kvdb::check_on(&media.devices()).unwrap();
    assert_eq!(report.findings, Vec::<String>::new(), "{name}");
    assert!(
        report.kvsets > 2 && report.values > 20 && report.log_records > 5,
        "{name}: {report:?}"
    );
    let devices = media.devices();
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    assert_eq!(listing(&sample::read_all(&db).unwrap()), expected, "{name}");
    // What is old is rewritten by maintenance, and still the same.
    for name in sample::NAMES {
        let kvs = db.kvs(name).unwrap();
        for n in 0..300u32 {
            kvs.put(b"new", &n.to_le_bytes().repeat(60)).unwrap();
        }
        kvs.delete(b"new").unwrap();
        db.ingest().unwrap();
        db.settle().unwrap();
    }
    assert!(db.stats().maintenance.spills > 0, "{name}");
    db.close().unwrap();
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    assert_eq!(listing(&sample::read_all(&db).unwrap()), expected, "{name}");
    drop(db);
    let report = Kvdb::check_on(&devices).unwrap();
    assert_eq!(report.findings, Vec::<String>::new(), "{name}");
}

#[test]
#[ignore = "the format of the first release does not stand yet: add its image, and remove this line"]
fn what_earlier_versions_wrote_is_read() {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|kind| kind == "image")).collect();
    images.sort();
    assert!(!images.is_empty(), "there is an image of every version");
    images.iter().for_each(|image| check(image));
    println!("{} images", images.len());
}

#[test]
#[ignore = "adds an image of this version: see the top of the file"]
fn an_image_of_this_version_is_added() {
    let path = folder().join(format!("{NEWEST}.image"));
    assert!(!path.exists(), "{} is there: count NEWEST up", path.display());
    let (media, _, content) = sample::build();
    std::fs::create_dir_all(folder()).unwrap();
    std::fs::write(&path, pack(&media)).unwrap();
    std::fs::write(path.with_extension("txt"), listing(&content)).unwrap();
    check(&path);
}
