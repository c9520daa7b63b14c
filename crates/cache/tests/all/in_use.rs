//! Operations that have to end, and to be right, although others go on to use the cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use esker_base::thread::spawn_scoped;
use esker_base::{ErrorKind, Lba, LbaCount};
use esker_cache::{Cache, CreateOptions, Mode};
use esker_device::{Device, Op, Port};
use esker_sim::refusing;

use crate::rig::{self, content, read, write};

/// A user of the cache that acts whenever a device below it is asked for something.
#[derive(Clone, Default)]
struct User(Arc<Mutex<Option<(Port, u64)>>>);

impl User {
    /// `device`, whose operations that are `when` have the user do `what`, `times` times at most; `what` gets the
    /// number of times before.
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

/// Whether `op` writes a record to the journal of such a cache: the first copy of it.
fn is_record(op: &Op) -> bool {
    matches!(op, Op::Write { lba, .. } if matches!(lba.0, 2..23 | 44..65))
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

#[test]
fn a_cache_that_is_written_while_it_is_detached_stays_attached() {
    let (origin, flash) = devices();
    let user = User::default();
    let busy = user.of(&flash, is_record, 1, |port, _| write(port, 7, 2));
    let cache = rig::open(&origin, &busy);
    let mut port = Port::open(&cache, 4).unwrap();
    write(&mut port, 1, 1);
    port.flush().unwrap();
    user.begin(&cache);
    let detached = cache.detach();
    assert_eq!(user.end(), 1);
    assert_eq!(detached.map_err(|error| error.kind()), Err(ErrorKind::Retry));
    assert!(read(&mut port, 7)[..] == content(7, 2)[..]);
    cache.detach().unwrap();
    let mut port = Port::open(&*origin, 1).unwrap();
    assert!(read(&mut port, 1)[..] == content(1, 1)[..]);
    assert!(read(&mut port, 7)[..] == content(7, 2)[..]);
}

#[test]
fn a_mode_that_is_set_while_the_size_changes_is_the_mode() {
    // Of sets that have two rows.
    let options = CreateOptions {
        flash_bytes: Some(24 << 20),
        set_bytes: 1008 * 4096,
        ..rig::large_options(Mode::WriteBack)
    };
    let (origin, flash) = rig::large_devices(32 << 20, 64 << 20, &options);
    let cache = rig::open(&origin, &flash);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (cache, stop) = (&cache, &stop);
        let changer = spawn_scoped(scope, "changer", move || {
            let mut port = Port::open(cache, 4).unwrap();
            for n in 0..150 {
                // Names to be given before the size is changed.
                let count = LbaCount(1_000);
                port.run(Op::Discard { lba: Lba(0), count }).unwrap();
                (0..1_000).for_each(|block| drop(read(&mut port, block)));
                cache.resize((48 - n % 2 * 24) << 20).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let (mut wrong, mut n) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            let mode = rig::MODES[n % 3];
            cache.set_mode(mode).unwrap();
            wrong += u64::from(cache.mode() != mode);
        }
        changer.unwrap().join().unwrap();
        assert_eq!(wrong, 0, "of {n} modes that were set");
    });
    assert_eq!(Cache::inspect(&flash).unwrap().mode, cache.mode());
}
