//! An observer: the figures of a KVDB for a thread that does not own it, such as one that answers for its metrics.

use std::fmt;
use std::sync::{Arc, Weak};

use esker_device::{Device, DeviceStats};

use crate::api::kvdb::Kvdb;
use crate::api::stats::Stats;
use crate::engine::shared::Engine;

/// Reads the figures of a KVDB while it is open. It keeps neither the KVDB nor its devices open.
pub struct Observer {
    engine: Weak<Engine>,
    manifest: Option<Weak<dyn Device>>,
}

impl Kvdb {
    /// An observer of this KVDB.
    #[must_use]
    pub fn observer(&self) -> Observer {
        let manifest = self.manifest().map(|device| Arc::downgrade(&device));
        Observer { engine: Arc::downgrade(&self.engine), manifest }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Observer {
    /// The figures of the KVDB now, as [`Kvdb::stats`]; none after it was closed.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        Some(Stats::of(&*self.open()?))
    }

    /// Statistics of the devices of its classes, and of the manifest's; none after it was closed.
    #[must_use]
    pub fn devices(&self) -> Option<Vec<DeviceStats>> {
        let engine = self.open()?;
        let classes = engine.classes.all();
        let mut all: Vec<DeviceStats> =
            classes.iter().map(|media| media.device().stats()).collect();
        let manifest = self.manifest.as_ref().and_then(Weak::upgrade);
        all.extend(manifest.map(|device| device.stats()));
        Some(all)
    }

    fn open(&self) -> Option<Arc<Engine>> {
        let is_open =
            |engine: &Arc<Engine>| !engine.life.is_closing() && engine.life.check_owner().is_ok();
        self.engine.upgrade().filter(is_open)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::kvdb;

    #[test]
    fn observer_sees_open_kvdb_and_nothing_after_close() {
        let (db, kvs, _) = kvdb();
        let observer = db.observer();
        kvs.put(b"k", b"v").unwrap();
        assert_eq!(observer.stats().unwrap().operations.puts, 1);
        db.sync().unwrap();
        let devices = observer.devices().unwrap();
        assert_eq!(devices.len(), db.stats().classes.len() + 1);
        assert!(devices.iter().any(|device| device.written_bytes > 0), "{devices:?}");
        db.close().unwrap();
        assert!(observer.stats().is_none() && observer.devices().is_none());
    }
}
