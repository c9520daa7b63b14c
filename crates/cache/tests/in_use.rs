//! What has to end, and to be right, although others go on to use the cache.

#[path = "support/refusing.rs"]
mod refusing;
#[path = "support/rig.rs"]
mod rig;

use std::sync::{Arc, Mutex};

use esker_base::ErrorKind;
use esker_cache::{Cache, Mode};
use esker_device::{Device, Op, Port};
use refusing::refusing;

use rig::{read, write};

/// Somebody who uses the cache whenever a device below it is asked for something.
#[derive(Clone, Default)]
struct User(Arc<Mutex<Option<(Port, u64)>>>);

impl User {
    /// `device`, whose operations that are `when` have the user do `what`, `times` times at most; how
    /// often that was is told.
    fn of(
        &self,
        device: &Arc<dyn Device>,
        when: impl Fn(&Op) -> bool + Send + Sync + 'static,
        times: u64,
        what: impl Fn(&mut Port, u64) + Send + Sync + 'static,
    ) -> Arc<dyn Device> {
        let user = self.0.clone();
        refusing(device, move |op| {
            // Not while it does so.
            if when(op)
                && let Ok(mut user) = user.try_lock()
                && let Some((port, count)) = user.as_mut()
                && *count < times
            {
                what(port, *count);
                *count += 1;
            }
            false
        })
    }

    fn begin(&self, cache: &Cache) {
        *self.0.lock().unwrap() = Some((Port::open(cache, 4).unwrap(), 0));
    }

    fn end(&self) -> u64 {
        self.0.lock().unwrap().take().unwrap().1
    }
}

/// A cache of some 3,500 slots.
fn devices() -> (Arc<dyn Device>, Arc<dyn Device>) {
    rig::large_devices(32 << 20, 16 << 20, &rig::large_options(Mode::WriteBack))
}

/// Whether `op` writes to the journal of such a cache.
fn is_record(op: &Op) -> bool {
    matches!(op, Op::Write { lba, .. } if (2..44).contains(&lba.0))
}

#[test]
fn closing_names_what_is_there_and_not_what_comes_meanwhile() {
    let (origin, flash) = devices();
    let user = User::default();
    let busy = user.of(&flash, is_record, 400, |port, count| drop(read(port, 2_000 + count)));
    let cache = rig::open(&origin, &busy);
    let mut port = Port::open(&cache, 4).unwrap();
    (0..1_500).for_each(|block| drop(read(&mut port, block)));
    user.begin(&cache);
    cache.close().unwrap();
    let (records, sets) = (user.end(), u64::from(cache.figures().sets));
    assert!(records > 1 && records < 2 * sets, "{records} records for {sets} sets");
    assert!(Cache::inspect(&flash).unwrap().named_blocks >= 1_500);
}

#[test]
fn writing_everything_back_ends_when_others_go_on_to_write() {
    let (origin, flash) = devices();
    let user = User::default();
    let is_write = |op: &Op| matches!(op, Op::Write { .. });
    let busy = user.of(&origin, is_write, 2_000, |port, count| write(port, count % 2, count));
    let cache = rig::open(&busy, &flash);
    let mut port = Port::open(&cache, 4).unwrap();
    (0..20).for_each(|block| write(&mut port, block, 1));
    port.flush().unwrap();
    user.begin(&cache);
    let error = cache.clean_all().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    let error = cache.detach().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    let written = user.end();
    assert!(written < 1_000, "{written}");
    cache.clean_all().unwrap();
    cache.detach().unwrap();
}
