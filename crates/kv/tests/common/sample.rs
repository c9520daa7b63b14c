//! A small KVDB with every structure there is: both classes, root and leaf kvsets of several pages, a
//! leaf that was split, values in the log and aged, tombstones, inline values, log records that are in
//! no kvset yet, a manifest of several epochs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Devices, OnDevices};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::{Device, MemoryDevice, Port};
use esker_kv::{KvError, Kvdb, Kvs, Options, Policy};

use super::{bytes_of, test_options, tiny_tuning};

pub(crate) const NAMES: [&str; 2] = ["first", "second"];
pub(crate) const LBA_SIZE: u32 = 512;
/// Manifest, capacity, staging: their names and sizes in bytes.
pub(crate) const MEDIA: [(&str, u64); 3] =
    [("the-manifest", 32 << 10), ("the-capacity", 384 << 10), ("the-staging", 256 << 10)];

pub(crate) type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

pub(crate) fn options() -> Options {
    test_options(tiny_tuning())
}

/// The bytes of all devices, in the order of [`MEDIA`].
#[derive(Clone)]
pub(crate) struct Media(pub(crate) Vec<Vec<u8>>);

impl Media {
    /// Devices that were never written.
    pub(crate) fn blank() -> Media {
        Media(MEDIA.iter().map(|(_, size)| vec![0; usize::try_from(*size).unwrap()]).collect())
    }

    /// Fresh devices that hold these bytes.
    pub(crate) fn devices(&self) -> Devices {
        let mut devices = MEDIA.iter().zip(&self.0).map(|((name, _), bytes)| {
            let device = Arc::new(MemoryDevice::new(name, bytes.len() as u64, LBA_SIZE));
            let mut port = Port::open(&*device, 1).unwrap();
            let size = LBA_SIZE as usize;
            for (lba, content) in bytes.chunks(size).enumerate() {
                if content.iter().any(|byte| *byte != 0) {
                    let buf = AlignedBuf::padded(content, size);
                    port.write(Lba(lba as u64), buf, None).unwrap();
                }
            }
            device as Arc<dyn Device>
        });
        let mut next = || devices.next().unwrap();
        Devices { manifest: next(), capacity: next(), staging: Some(next()) }
    }

    /// The content that devices hold now.
    pub(crate) fn of(devices: &Devices) -> Media {
        let all = [&devices.manifest, &devices.capacity, devices.staging.as_ref().unwrap()];
        Media(all.map(|device| bytes_of(&**device).to_vec()).to_vec())
    }
}

/// Builds it. Returns the media as they are when the process is gone, and the KVDB's content before its last flush
/// and after it: damage of the last flush's bytes looks torn.
pub(crate) fn build() -> (Media, Content, Content) {
    let devices = Media::blank().devices();
    let mut rng = Rng::new(1);
    let mut content = Content::new();
    let mut db = Kvdb::create_on(devices.clone(), options()).unwrap();
    db.create_kvs(NAMES[0], Policy::default()).unwrap();
    db.create_kvs(NAMES[1], Policy::STAGING_MIN_CAPACITY).unwrap();
    for round in 0..5 {
        for _ in 0..90 {
            write(&db, &mut rng, &mut content);
        }
        db.ingest().unwrap();
        if round < 4 {
            db.settle().unwrap();
        }
        if round == 2 {
            db.close().unwrap();
            db = Kvdb::open_on(devices.clone(), options()).unwrap();
        }
    }
    // Whatever the manifest's epoch began with, there are records behind that.
    for policy in [Policy::STAGING_ONLY, Policy::default(), Policy::STAGING_ONLY, Policy::default()]
    {
        db.kvs(NAMES[0]).unwrap().set_policy(policy).unwrap();
    }
    for _ in 0..12 {
        write(&db, &mut rng, &mut content);
    }
    db.sync().unwrap();
    let before = content.clone();
    write(&db, &mut rng, &mut content);
    db.sync().unwrap();
    let done = db.stats().maintenance;
    assert!(done.spills > 0, "{done:?}");
    let media = Media::of(&devices);
    drop(db);
    (media, before, content)
}

fn write(db: &Kvdb, rng: &mut Rng, content: &mut Content) {
    let name = NAMES[usize::try_from(rng.below(2)).unwrap()];
    let kvs = db.kvs(name).unwrap();
    let n = rng.below(60);
    let key =
        format!("{n:03}{}", "-".repeat(if n.is_multiple_of(2) { 240 } else { 3 })).into_bytes();
    if rng.chance(1, 8) {
        kvs.delete(&key).unwrap();
        content.remove(&(name.into(), key));
        return;
    }
    let size = if rng.chance(1, 6) { rng.below(17) } else { rng.below(400) };
    let mut value = vec![0; usize::try_from(size).unwrap()];
    rng.fill(&mut value);
    kvs.put(&key, &value).unwrap();
    content.insert((name.into(), key), value);
}

/// Everything, by cursor.
pub(crate) fn read_all(db: &Kvdb) -> Result<Content, KvError> {
    let mut found = Content::new();
    for name in db.kvs_names() {
        let kvs: Kvs = db.kvs(&name)?;
        let mut cursor = kvs.cursor()?;
        while let Some((key, value)) = cursor.next()? {
            found.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    Ok(found)
}
