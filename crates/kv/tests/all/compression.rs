//! Compressed values: smaller on the media, the same to whoever reads them, whatever the setting was
//! when they were written.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::checksum::crc32c;
use esker_base::{AlignedBuf, ErrorKind, Lba, Rng};
use esker_device::{Device, MemoryDevice, Port};
use esker_kv::{Compression, Kvdb, Kvs, KvsOptions, KvsStats, Policy, Tuning};

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

fn devices() -> Devices {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    Devices {
        manifest: device("manifest", 1 << 20),
        capacity: device("capacity", 32 << 20),
        staging: Some(device("staging", 16 << 20)),
    }
}

fn options(compression: Compression) -> KvsOptions {
    KvsOptions::default().compression(compression)
}

fn create(devices: &Devices, compression: Compression) -> (Kvdb, Kvs) {
    // A few deletes are to age as well.
    let tuning = Tuning { spill_bytes: 12 << 10, ..small_tuning() };
    let db = Kvdb::create_on(devices.clone(), test_options(tuning)).unwrap();
    let kvs = db.create_kvs("k", options(compression)).unwrap();
    (db, kvs)
}

/// A value of a few hundred bytes, `noise` percent of which do not compress.
fn value(rng: &mut Rng, noise: u64) -> Vec<u8> {
    let size = 300 + rng.below(300);
    let mut value = vec![0; usize::try_from(size * noise / 100).unwrap()];
    rng.fill(&mut value);
    value.resize(usize::try_from(size).unwrap(), b'.');
    value
}

/// Writes keys from `from` to `to`, and lets them age.
fn write(
    db: &Kvdb,
    kvs: &Kvs,
    oracle: &mut Oracle,
    (from, to): (u64, u64),
    mut value: impl FnMut() -> Vec<u8>,
) {
    for n in from..to {
        let (key, value) = (format!("{n:05}").into_bytes(), value());
        kvs.put(&key, &value).unwrap();
        oracle.insert(key, value);
    }
    db.ingest().unwrap();
    db.settle().unwrap();
}

/// Reads everything in every way there is.
fn check(kvs: &Kvs, oracle: &Oracle) {
    let keys: Vec<&Vec<u8>> = oracle.keys().collect();
    let many = kvs.get_many(&keys).unwrap();
    for ((key, value), found) in oracle.iter().zip(many) {
        assert_eq!(found.as_deref(), Some(&value[..]));
        assert_eq!(kvs.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    let (mut cursor, mut back) = (kvs.cursor().unwrap(), Oracle::new());
    while let Some((key, value)) = cursor.next().unwrap() {
        back.insert(key.to_vec(), value.to_vec());
    }
    assert_eq!(back, *oracle);
}

fn stats(db: &Kvdb) -> KvsStats {
    db.stats().kvss.remove(0)
}

fn reopen(db: Kvdb, devices: &Devices) -> (Kvdb, Kvs) {
    db.close().unwrap();
    assert_eq!(Kvdb::check_on(devices).unwrap().findings, Vec::<String>::new());
    let db = Kvdb::open_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.kvs("k").unwrap();
    (db, kvs)
}

#[test]
fn values_take_less_room_and_are_read_as_they_were() {
    let mut old_values = BTreeMap::new();
    for setting in Compression::ALL {
        let (devices, mut oracle, mut rng) = (devices(), Oracle::new(), Rng::new(1));
        let (db, kvs) = create(&devices, setting);
        write(&db, &kvs, &mut oracle, (0, 2000), || value(&mut rng, 20));
        check(&kvs, &oracle);
        let (db, kvs) = reopen(db, &devices);
        check(&kvs, &oracle);
        let found = stats(&db);
        assert_eq!(found.compression, setting);
        let plain: usize = oracle.iter().map(|(key, value)| 16 + key.len() + value.len()).sum();
        assert_eq!(found.plain_value_bytes, plain as u64, "{setting}");
        let kept = if setting == Compression::None { 100 } else { 40 };
        assert!(found.value_bytes <= plain as u64 * kept / 100, "{setting}: {found:?}");
        old_values.insert(setting.to_string(), found.value_bytes);
    }
    assert_eq!(old_values["none"], stats_of_plain(), "{old_values:?}");
}

/// Bytes that the records of the test above take uncompressed.
fn stats_of_plain() -> u64 {
    let mut rng = Rng::new(1);
    (0..2000).map(|_| 16 + 5 + value(&mut rng, 20).len() as u64).sum()
}

#[test]
fn values_that_do_not_compress_stay_as_they_are() {
    for setting in Compression::ALL {
        let (devices, mut oracle, mut rng) = (devices(), Oracle::new(), Rng::new(2));
        let (db, kvs) = create(&devices, setting);
        write(&db, &kvs, &mut oracle, (0, 1000), || value(&mut rng, 100));
        let found = stats(&db);
        assert_eq!(found.value_bytes, found.plain_value_bytes);
        check(&kvs, &oracle);
    }
}

#[test]
fn a_changed_setting_concerns_what_ages_from_then_on_and_lasts() {
    let (devices, mut oracle, mut rng) = (devices(), Oracle::new(), Rng::new(3));
    let (mut db, mut kvs) = create(&devices, Compression::None);
    let mut sizes = Vec::new();
    let settings = [Compression::None, Compression::Lz4, Compression::None, Compression::Zstd];
    for (n, setting) in (0..).zip(settings) {
        kvs.set_compression(setting).unwrap();
        (db, kvs) = reopen(db, &devices);
        assert_eq!(kvs.options().unwrap().compression, setting);
        let before = stats(&db).value_bytes;
        write(&db, &kvs, &mut oracle, (n * 600, (n + 1) * 600), || value(&mut rng, 10));
        sizes.push(stats(&db).value_bytes - before);
        check(&kvs, &oracle);
    }
    assert!(sizes[1] < sizes[0] / 2 && sizes[3] < sizes[0] / 2, "{sizes:?}");
    assert!(sizes[2] > sizes[0] * 9 / 10, "{sizes:?}");
}

/// Deletes some keys, and writes until the blocks that held their values have been collected.
fn thin_out(db: &Kvdb, kvs: &Kvs, oracle: &mut Oracle, gone: impl Fn(u64) -> bool) {
    for n in (0..1500).filter(|n| gone(*n)) {
        let key = format!("{n:05}").into_bytes();
        kvs.delete(&key).unwrap();
        oracle.remove(&key);
    }
    let before = db.stats().maintenance.collections;
    let mut rounds = 9000..9100;
    while db.stats().maintenance.collections == before {
        let round = rounds.next().expect("a collection");
        write(db, kvs, oracle, (round, round + 1), || vec![1; 20]);
    }
}

#[test]
fn collection_compresses_what_was_not_and_leaves_what_was() {
    let (devices, mut oracle, mut rng) = (devices(), Oracle::new(), Rng::new(4));
    let (db, kvs) = create(&devices, Compression::None);
    write(&db, &kvs, &mut oracle, (0, 1500), || value(&mut rng, 10));
    let plain = stats(&db).value_bytes;
    kvs.set_compression(Compression::Lz4).unwrap();
    thin_out(&db, &kvs, &mut oracle, |n| n % 3 > 0);
    let packed = stats(&db).value_bytes;
    assert!(packed < plain / 6, "{packed} of {plain}");
    kvs.set_compression(Compression::None).unwrap();
    thin_out(&db, &kvs, &mut oracle, |n| n % 9 > 0);
    let found = stats(&db);
    assert!(found.value_bytes < packed && found.compression_ratio() > 2.0, "{found:?}");
    check(&kvs, &oracle);
    let (_db, kvs) = reopen(db, &devices);
    check(&kvs, &oracle);
}

/// A bug or a hostile medium, with checksums that hold: an error, and no memory beyond a value's.
#[test]
fn an_encoding_that_is_none_is_reported_as_damage() {
    for (setting, codec) in [(Compression::Lz4, 1), (Compression::Zstd, 2)] {
        for wrong in 0..4 {
            let (devices, mut oracle, mut rng) = (devices(), Oracle::new(), Rng::new(5));
            let (db, kvs) = create(&devices, setting);
            write(&db, &kvs, &mut oracle, (0, 300), || value(&mut rng, 10));
            db.close().unwrap();
            damage(&*devices.capacity, b"00100", codec, |value| match wrong {
                0 => value[0] ^= 1,                                       // another size
                1 => value[..5].copy_from_slice(b"\xff\xff\xff\xff\x0f"), // 4 GiB
                2 => value[2..10].fill(0xff),                             // no encoding
                _ => value.fill(0),
            });
            let db = Kvdb::open_on(devices.clone(), test_options(small_tuning())).unwrap();
            let error = db.kvs("k").unwrap().get(b"00100").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains("record at LBA"), "{error}");
            assert_eq!(
                db.kvs("k").unwrap().get(b"00101").unwrap(),
                oracle.remove(&b"00101"[..]).map(Into::into)
            );
            db.close().unwrap();
            let findings = Kvdb::check_on(&devices).unwrap().findings;
            assert!(!findings.is_empty(), "{setting} {wrong}");
        }
    }
}

/// Changes the stored value of a key's record on a device, and mends the record's checksum.
fn damage(device: &dyn Device, key: &[u8], codec: u8, change: impl Fn(&mut [u8])) {
    let bytes = usize::try_from(device.geometry().capacity.0 * 512).unwrap();
    let mut port = Port::open(device, 1).unwrap();
    let mut content = port.read(Lba(0), AlignedBuf::zeroed(bytes)).unwrap();
    let mut changed = 0;
    for at in 16..content.len() - key.len() {
        let header = at - 16;
        let is_record = content[header + 14] == 1 && content[header + 15] == codec;
        if !is_record || !content[at..].starts_with(key) {
            continue;
        }
        let size: [u8; 4] = content[header + 4..header + 8].try_into().unwrap();
        let end = at + key.len() + usize::try_from(u32::from_le_bytes(size)).unwrap();
        change(&mut content[at + key.len()..end]);
        let crc = crc32c(&content[header + 4..end]).to_le_bytes();
        content[header..header + 4].copy_from_slice(&crc);
        changed += 1;
    }
    assert!(changed > 0, "no compressed record of the key");
    port.write(Lba(0), content, None).unwrap();
}

#[test]
fn policies_alone_mean_no_compression() {
    let options: KvsOptions = Policy::default().into();
    assert_eq!(options.compression, Compression::None);
}
