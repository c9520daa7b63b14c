//! Esker: a staging and a capacity class, each a file in the database's directory.

use std::path::Path;

use esker_bench::{BoxError, Sample, Session, Store, Unit};
use esker_kv::{Kvdb, Kvs, Location, Medium, Options, Policy};

use super::{Opened, Setting, sized};
use crate::series;

struct Esker {
    db: Kvdb,
    kvs: Kvs,
}

pub(super) fn create(dir: &Path, setting: &Setting) -> Result<Opened, BoxError> {
    let memory_bytes = setting.whole_budget_bytes();
    let options = Options::default().with(|set| set.memory_bytes = memory_bytes);
    let durability_ms = options.durability.ms;
    let db = Kvdb::builder(Location::dir(dir).staging(Medium::InDir)).options(options).create()?;
    let kvs = db.create_kvs("compare", Policy::default())?;
    let description = format!(
        "{} at commit {}: {}, durability_ms {durability_ms}, staging and capacity as files, \
         everything else by default",
        env!("CARGO_PKG_VERSION"),
        env!("ESKER_COMMIT"),
        sized("memory_bytes", memory_bytes),
    );
    Ok(Opened { store: Box::new(Esker { db, kvs }), settle: None, description })
}

impl Store for Esker {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        Ok(Box::new(EskerSession(&self.kvs)))
    }

    fn sync(&self) -> Result<(), BoxError> {
        Ok(self.db.sync()?)
    }

    fn sample(&self) -> Vec<Sample> {
        let stats = self.db.stats();
        let figure = |n: u64| n as f64;
        let counter = |name: &str, unit, n: u64| Sample::counter(name, unit, figure(n));
        let level = |name: &str, n: u64| Sample::level(name, Unit::Bytes, figure(n));
        vec![
            counter(series::GETS, Unit::Count, stats.operations.gets),
            counter(series::VALUES_READ, Unit::Count, stats.cache.record_misses),
            counter("key pages missed", Unit::Count, stats.cache.key_page_misses),
            counter("writers stalled", Unit::Nanoseconds, stats.stalls.total_ns),
            counter("writers paced", Unit::Nanoseconds, stats.stalls.paced_ns()),
            level("engine memory", stats.dram.total_bytes()),
            level(
                series::RECORD_ROOM,
                stats.dram.record_cache_capacity_bytes + stats.dram.memtable_bytes,
            ),
        ]
    }
}

struct EskerSession<'a>(&'a Kvs);

impl Session for EskerSession<'_> {
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
