//! The KVDBs that images are made of: small, and with everything a KVDB can have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use esker_base::{Clock, Rng};
use esker_device::{Device, MemoryDevice};
use esker_kv::{Batch, Compression, Kvdb, KvsOptions, Options, Policy, WriteOptions};

use crate::common::{test_options, tiny_tuning};

/// Content that a KVDB shows at one moment, by KVS and key.
pub(crate) type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// A KVS and the metadata that it has, from version 2 on.
pub(crate) const METADATA: (&str, &[u8]) = ("own", b"metadata of an image");

/// How long values live in the KVS that has a time to live.
const TTL_MS: u64 = 5_000;
/// A write takes this long on the clock.
const WRITE_MS: u64 = 10;
/// When a part of them is gone, while the others are still there.
pub(crate) const LATER_MS: u64 = 9_000;

/// Content and layout that an image is to show.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Bytes per LBA of all devices.
    pub(crate) lba_size: u32,
    pub(crate) staging: Staging,
    /// Whether the KVDB was closed; else its process was killed with a log that is in no kvset.
    pub(crate) closed: bool,
}

/// When there is a staging class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staging {
    Always,
    Added,
    Removed,
}

pub(crate) const SHAPES: [Shape; 4] = [
    Shape { name: "killed", lba_size: 512, staging: Staging::Always, closed: false },
    Shape { name: "closed", lba_size: 4096, staging: Staging::Always, closed: true },
    Shape { name: "staging-added", lba_size: 512, staging: Staging::Added, closed: false },
    Shape { name: "staging-removed", lba_size: 512, staging: Staging::Removed, closed: false },
];

/// Manifest, capacity, staging: their sizes in bytes.
pub(crate) const SIZES: [u64; 3] = [512 << 10, 2 << 20, 2 << 20];

pub(crate) fn options() -> Options {
    test_options(tiny_tuning())
}

/// The options of each KVS: every compression, every template, a policy of the user's, a time to live.
pub(crate) fn kvss() -> Vec<(&'static str, KvsOptions)> {
    let compressed =
        |compression, policy: Policy| KvsOptions::from(policy).compression(compression);
    let own: Policy = "young=staging/none,old-keys=staging,old-values=capacity".parse().unwrap();
    vec![
        ("plain", KvsOptions::default()),
        ("lz4", compressed(Compression::Lz4, Policy::STAGING_MIN_CAPACITY)),
        ("zstd", compressed(Compression::Zstd, Policy::CAPACITY_ONLY)),
        ("auto", compressed(Compression::Auto, Policy::STAGING_ONLY)),
        ("own", own.into()),
        ("living", KvsOptions::from(Policy::STAGING_MIN_CAPACITY).ttl_ms(TTL_MS)),
    ]
}

/// The KVDB under construction, and the content that it is to show.
struct Building {
    db: Kvdb,
    clock: Clock,
    rng: Rng,
    content: Content,
    /// When the expiring values were put, in milliseconds.
    put_ms: BTreeMap<Vec<u8>, u64>,
}

/// Builds it. Returns its devices, its content when it is opened, and its content at [`LATER_MS`].
pub(crate) fn build(shape: &Shape) -> (Devices, Content, Content) {
    let device = |name: &str, bytes: u64| -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new(name, bytes, shape.lba_size))
    };
    let [manifest, capacity, staging] = SIZES;
    let staging = device("staging", staging);
    let mut devices = Devices {
        manifest: device("manifest", manifest),
        capacity: device("capacity", capacity),
        staging: (shape.staging != Staging::Added).then(|| staging.clone()),
    };
    let options = options();
    let clock = options.clock.clone();
    let db = Kvdb::create_on(devices.clone(), options).unwrap();
    for (name, options) in kvss() {
        db.create_kvs(name, options).unwrap();
    }
    db.create_kvs("dropped", Policy::default()).unwrap().put(b"gone", [1; 300]).unwrap();
    let (rng, content, put_ms) = (Rng::new(7), Content::new(), BTreeMap::new());
    let mut building = Building { db, clock, rng, content, put_ms };
    for round in 0..4 {
        building.writes(110);
        building.db.settle().unwrap();
        match round {
            0 => building.db.drop_kvs("dropped").unwrap(),
            1 if shape.staging == Staging::Added => {
                building.db.add_staging_device(staging.clone()).unwrap();
                devices.staging = Some(staging.clone());
            }
            2 => {
                building.db.close().unwrap();
                let options = self::options().with(|set| set.clock = building.clock.clone());
                building.db = Kvdb::open_on(devices.clone(), options).unwrap();
            }
            _ => {}
        }
    }
    building.db.ingest().unwrap();
    building.writes(25);
    if shape.staging == Staging::Removed {
        building.db.remove_staging().unwrap();
        devices.staging = None;
    }
    building.tail();
    let Building { db, content, put_ms, .. } = building;
    let done = db.stats().maintenance;
    assert!(done.spills > 3 && done.compactions > 0, "{done:?}");
    if shape.closed {
        db.close().unwrap();
    } else {
        std::mem::forget(db);
    }
    let mut later = content.clone();
    later.retain(|(kvs, key), _| kvs != "living" || put_ms[key] + TTL_MS > LATER_MS);
    assert!(later.len() + 5 < content.len() && later.keys().any(|(kvs, _)| kvs == "living"));
    (devices, content, later)
}

impl Building {
    fn put(&mut self, kvs: &str, key: &[u8], value: Vec<u8>) {
        self.content.insert((kvs.to_owned(), key.to_vec()), value);
        if kvs == "living" {
            let now = self.clock.unix_time().as_millis();
            self.put_ms.insert(key.to_vec(), u64::try_from(now).unwrap());
        }
    }

    fn delete(&mut self, kvs: &str, prefix: &[u8]) {
        self.content.retain(|(name, key), _| name != kvs || !key.starts_with(prefix));
    }

    /// Text for the most part, so that it compresses; some short, some of random bytes.
    fn value(&mut self) -> Vec<u8> {
        let n = self.rng.below(1000);
        match n % 8 {
            0 => n.to_le_bytes()[..usize::try_from(n % 3).unwrap()].to_vec(),
            1 => {
                let mut random = vec![0; 60];
                self.rng.fill(&mut random);
                random
            }
            2 => format!("a value of several LBAs {n};").repeat(40).into_bytes(),
            _ => format!("value {n}, ").repeat(12).into_bytes(),
        }
    }

    fn writes(&mut self, count: usize) {
        let names: Vec<&str> = kvss().iter().map(|(name, _)| *name).collect();
        for _ in 0..count {
            self.clock.advance(Duration::from_millis(WRITE_MS));
            let name = names[usize::try_from(self.rng.below(names.len() as u64)).unwrap()];
            let kvs = self.db.kvs(name).unwrap();
            let n = self.rng.below(45);
            let key = format!("{n:03} {}", "-".repeat(usize::try_from(n % 3 * 60).unwrap()));
            match self.rng.below(30) {
                0..3 => {
                    kvs.delete(key.as_bytes()).unwrap();
                    self.content.remove(&(name.to_owned(), key.into_bytes()));
                }
                3 if n.is_multiple_of(2) => {
                    let upper = format!("{:03}", n + 3).into_bytes();
                    kvs.delete_range(key.as_bytes()..&upper[..]).unwrap();
                    let of_other = |name: &str, other: &[u8]| {
                        name != kvs.name() || !(key.as_bytes()..&upper[..]).contains(&other)
                    };
                    self.content.retain(|(name, key), _| of_other(name, key));
                }
                3 => {
                    kvs.delete_prefix(&key.as_bytes()[..2]).unwrap();
                    self.delete(name, &key.as_bytes()[..2]);
                }
                _ => {
                    let value = self.value();
                    kvs.put(key.as_bytes(), &value).unwrap();
                    self.put(name, key.as_bytes(), value);
                }
            }
        }
    }

    /// A batch, a transaction and a deleted prefix at the end of the log.
    fn tail(&mut self) {
        let kvss = ["plain", "living"].map(|name| self.db.kvs(name).unwrap());
        let mut batch = Batch::new();
        batch.delete_prefix(&kvss[0], b"00");
        batch.put(&kvss[0], b"", b"of the empty key");
        for kvs in &kvss {
            batch.put(kvs, b"000 of a batch", b"batch");
        }
        self.db.write(&batch).unwrap();
        self.delete("plain", b"00");
        let mut transaction = self.db.transaction();
        for kvs in &kvss {
            transaction.put(kvs, b"001 of a transaction", [b't'; 200]).unwrap();
        }
        transaction.delete_prefix(&kvss[1], b"04").unwrap();
        transaction.commit_with(&WriteOptions::durable()).unwrap();
        self.delete("living", b"04");
        for name in ["plain", "living"] {
            self.put(name, b"000 of a batch", b"batch".to_vec());
            self.put(name, b"001 of a transaction", vec![b't'; 200]);
        }
        self.put("plain", b"", b"of the empty key".to_vec());
        let kvs = self.db.kvs(METADATA.0).unwrap();
        kvs.set_metadata(METADATA.1).unwrap();
    }
}
