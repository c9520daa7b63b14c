//! The engine as a store of the laboratory.

use std::borrow::Cow;

use esker_bench::{BoxError, Sample, Session, Store, Unit};
use esker_kv::{Kvdb, Kvs, Stats};

/// One KVS of an open database.
pub struct KvStore {
    /// The database.
    pub db: Kvdb,
    /// The KVS that holds the records.
    pub kvs: Kvs,
    /// The process's own figures at each interval, beside the engine's.
    pub process: fn() -> Vec<Sample>,
}

impl Store for KvStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        Ok(Box::new(KvSession(&self.kvs)))
    }

    fn sync(&self) -> Result<(), BoxError> {
        Ok(self.db.sync()?)
    }

    fn sample(&self) -> Vec<Sample> {
        let mut samples = traffic(&self.db.stats());
        samples.extend((self.process)());
        samples
    }
}

/// Bytes by class and stream, and the figures that explain a dent in the throughput.
fn traffic(stats: &Stats) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut counter = |name: Cow<'static, str>, unit, value: u64| {
        samples.push(Sample::counter(name, unit, value as f64));
    };
    for class in &stats.classes {
        counter(Cow::Owned(format!("{}, busy", class.class)), Unit::Nanoseconds, class.busy_ns);
        for stream in &class.streams {
            let name = |verb| Cow::Owned(format!("{} {}, {verb}", class.class, stream.stream));
            counter(name("written"), Unit::Bytes, stream.written_bytes);
            counter(name("read"), Unit::Bytes, stream.read_bytes);
        }
    }
    counter("manifest, written".into(), Unit::Bytes, stats.manifest_written_bytes);
    counter("writers stalled".into(), Unit::Nanoseconds, stats.stalls.total_ns);
    let stalls = &stats.stalls;
    counter("writers paced by spills".into(), Unit::Nanoseconds, stalls.paced_by_spills_ns);
    counter("writers paced by ingest".into(), Unit::Nanoseconds, stalls.paced_by_ingest_ns);
    counter("writers paced by the log".into(), Unit::Nanoseconds, stalls.paced_by_log_ns);
    counter("record cache hits".into(), Unit::Count, stats.cache.record_hits);
    counter("record cache misses".into(), Unit::Count, stats.cache.record_misses);
    counter("key pages missed".into(), Unit::Count, stats.cache.key_page_misses);
    let dram = stats.dram.total_bytes() as f64;
    samples.push(Sample::level("engine memory", Unit::Bytes, dram));
    let root = stats.kvss.iter().map(|kvs| kvs.root_kvsets).max().unwrap_or(0);
    let leaves: usize = stats.kvss.iter().map(|kvs| kvs.leaves).sum();
    let in_leaves: usize = stats.kvss.iter().map(|kvs| kvs.leaf_kvsets).sum();
    for (name, count) in
        [("kvsets in the root", root), ("leaves", leaves), ("kvsets in the leaves", in_leaves)]
    {
        samples.push(Sample::level(name, Unit::Count, count as f64));
    }
    samples
}

struct KvSession<'a>(&'a Kvs);

impl Session for KvSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BoxError> {
        Ok(self.0.get_into(key, value)?)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError> {
        Ok(self.0.put(key, value)?)
    }

    fn scan(
        &mut self,
        start: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError> {
        let mut cursor = self.0.cursor()?.expecting(count);
        cursor.seek(start)?;
        for visited in 0..count {
            let Some((key, value)) = cursor.next()? else {
                return Ok(visited);
            };
            visit(key, value);
        }
        Ok(count)
    }
}
