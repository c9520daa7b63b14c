//! Esker: a staging and a capacity class, each a file in the database's directory.

use std::path::Path;

use esker_bench::{BoxError, Sample, Session, Store, Unit};
use esker_kv::{Kvdb, Location, Medium, Options, Policy};
use esker_lab::store::KvStore;

use super::{Opened, Setting, sized};
use crate::series;

/// The engine as the laboratory has it, with the figures that a comparison takes.
struct Esker(KvStore);

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
    let store = Esker(KvStore { db, kvs, process: Vec::new });
    Ok(Opened { store: Box::new(store), settle: None, description })
}

impl Store for Esker {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        self.0.session()
    }

    fn sync(&self) -> Result<(), BoxError> {
        self.0.sync()
    }

    fn sample(&self) -> Vec<Sample> {
        let stats = self.0.db.stats();
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
