//! Snapshots: all KVSs as they were at one moment.

use std::fmt;
use std::sync::Arc;

use crate::api::item::Value;
use crate::api::kvs::{Kvs, values};
use crate::api::readable::{Readable, Sealed};
use crate::engine::readers::{OpenReader, ReaderKind};
use crate::engine::shared::Engine;
use crate::read::cursor::Cursor;
use crate::read::get;
use crate::tree::view::View;
use crate::types::error::Result;
use crate::types::expiry::{Moment, Time};
use crate::types::ids::Seqno;

/// All KVSs of a KVDB as they were when it was made, whatever was written since. Cheap to make and to
/// clone, used from any thread; [`Readable`] has its reads. Its time stands still, too: a value that had not expired when it was made is there
/// as long as it lives.
///
/// While it lives it keeps the data that it may read, memtables included, from being freed.
#[derive(Clone)]
pub struct Snapshot(Arc<Inner>);

struct Inner {
    engine: Arc<Engine>,
    view: Arc<View>,
    seqno: Seqno,
    now_ms: u64,
    counted: OpenReader,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.readers.end(&self.engine.life, self.counted);
    }
}

impl Snapshot {
    pub(crate) fn new(engine: &Arc<Engine>) -> Snapshot {
        let (view, seqno) = engine.view.snapshot(&engine.log);
        let now_ms = engine.wall_clock.now_ms();
        let counted = engine.readers.begin(&engine.life, ReaderKind::Snapshot);
        Snapshot(Arc::new(Inner { engine: engine.clone(), view, seqno, now_ms, counted }))
    }

    fn moment(&self) -> Moment<'_> {
        Moment { seqno: self.0.seqno, time: Time::At(self.0.now_ms) }
    }

    fn check(&self, kvs: &Kvs) -> Result<()> {
        kvs.check_of(&self.0.engine)?;
        kvs.check_present(self.0.view.tree(kvs.id).is_some())
    }
}

impl Sealed for Snapshot {}

impl Readable for Snapshot {
    fn get_into(&self, kvs: &Kvs, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.check(kvs)?;
        self.0.engine.counters.gets.add(1);
        get::find(&self.0.engine, &self.0.view, kvs.id, key.as_ref(), self.moment(), value)
    }

    fn get_to_buffer(
        &self,
        kvs: &Kvs,
        key: impl AsRef<[u8]>,
        buffer: &mut [u8],
    ) -> Result<Option<usize>> {
        self.check(kvs)?;
        self.0.engine.counters.gets.add(1);
        let (view, key) = (&self.0.view, key.as_ref());
        get::find_to_buffer(&self.0.engine, view, kvs.id, key, self.moment(), buffer)
    }

    fn get_many<K: AsRef<[u8]>>(&self, kvs: &Kvs, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.check(kvs)?;
        self.0.engine.counters.gets.add(keys.len() as u64);
        let found = get::find_many(&self.0.engine, &self.0.view, kvs.id, keys, self.moment())?;
        Ok(values(found))
    }

    fn contains_key(&self, kvs: &Kvs, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check(kvs)?;
        self.0.engine.counters.gets.add(1);
        get::contains(&self.0.engine, &self.0.view, kvs.id, key.as_ref(), self.moment())
    }

    fn cursor(&self, kvs: &Kvs) -> Result<Cursor> {
        self.check(kvs)?;
        Ok(Cursor::new(&self.0.engine, &self.0.view, (self.0.seqno, self.0.now_ms), kvs.id, None))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seqno", &self.0.seqno.0).finish_non_exhaustive()
    }
}
