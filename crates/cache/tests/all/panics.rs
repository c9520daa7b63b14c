//! Threads that panic: a device below the cache does so in the cache's own thread, in a caller's work, or in a queue
//! pair. The cache stops with an error, nobody waits for ever, and what was acknowledged is there when it is opened
//! again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::rig::{self, content, read, write};
use esker_base::thread::{spawn, spawn_scoped};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount};
use esker_cache::{Background, Cache, Mode, OpenOptions};
use esker_device::{Device, Op, Port};
use esker_sim::refusing;

/// Blocks that the tests write: fewer than there are slots.
const BLOCKS: u64 = 8;
/// Long enough for anything that is not for ever.
const LONG: Duration = Duration::from_secs(60);

/// `device`, which panics at operations that `panics` selects, in threads of this name, once it is armed.
fn panicking(
    device: &Arc<dyn Device>,
    thread: &'static str,
    armed: &Arc<AtomicBool>,
    panics: impl Fn(&Op) -> bool + Send + Sync + 'static,
) -> Arc<dyn Device> {
    let armed = armed.clone();
    refusing(device, move |op| {
        let is_here = std::thread::current().name() == Some(thread);
        assert!(!(is_here && armed.load(Ordering::SeqCst) && panics(op)), "as the test wants it");
        false
    })
}

fn with_thread() -> OpenOptions {
    OpenOptions { background: Background::Thread, dirty_percent: 1, ..rig::open_options() }
}

/// Runs something that must end.
fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (say, said) = channel();
    let thread = spawn("in-time", move || say.send(run()).unwrap()).unwrap();
    let done = said.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what} does not end"));
    thread.join().unwrap();
    done
}

/// Writes until the cache says that it has stopped, and returns how many versions were acknowledged.
fn write_until_stopped(port: &mut Port) -> u64 {
    let clock = Clock::real();
    let end = clock.now() + LONG;
    let mut version = 1;
    while clock.now() < end {
        for block in 0..BLOCKS {
            let (lba, buf) = (Lba(block), content(block, version));
            if let Err(error) = port.run(Op::Write { lba, buf, placement: None, fua: false }) {
                let said = error.to_string();
                assert!(
                    said.contains("has stopped") && said.contains("as the test wants it"),
                    "{said}"
                );
                return version;
            }
        }
        version += 1;
        clock.sleep(Duration::from_millis(1));
    }
    panic!("the cache goes on without its thread");
}

/// Each block has the last acknowledged version, or the one that was being written.
fn check_reopened(origin: &Arc<dyn Device>, flash: &Arc<dyn Device>, version: u64) {
    let cache = rig::open(origin, flash);
    let mut port = Port::open(&cache, 1).unwrap();
    for block in 0..BLOCKS {
        let has = read(&mut port, block);
        let is_there = [version - 1, version].iter().any(|it| has[..] == content(block, *it)[..]);
        assert!(is_there, "block {block} is not of version {version} or the one before");
    }
    drop(port);
    cache.detach().unwrap();
}

#[test]
fn thread_that_panics_at_origin_stops_cache_and_loses_nothing_acknowledged() {
    let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
    let armed = Arc::new(AtomicBool::new(false));
    let bad = panicking(&origin, "esker-cache", &armed, |op| matches!(op, Op::Write { .. }));
    let cache = Arc::new(Cache::open(bad, flash.clone(), with_thread()).unwrap());
    let mut port = Port::open(&*cache, 4).unwrap();
    (0..BLOCKS).for_each(|block| write(&mut port, block, 0));
    armed.store(true, Ordering::SeqCst);
    let mut other = Port::open(&*cache, 4).unwrap();
    let version = in_time("a write", move || write_until_stopped(&mut port));
    assert!(version > 0);
    for error in [
        other.flush().unwrap_err().to_string(),
        other.read(Lba(0), AlignedBuf::zeroed(4096)).unwrap_err().to_string(),
        cache.clean_all().unwrap_err().to_string(),
        cache.set_mode(Mode::WriteThrough).unwrap_err().to_string(),
        cache.remarks().concat(),
    ] {
        assert!(error.contains("has stopped"), "{error}");
    }
    let closed = cache.clone();
    let error = in_time("closing", move || closed.close()).unwrap_err().to_string();
    assert!(
        error.contains("was not closed") && error.contains("KiB were not written back"),
        "{error}"
    );
    in_time("the end", move || drop((other, cache)));
    check_reopened(&origin, &flash, version);
}

#[test]
fn thread_that_panics_at_flash_stops_cache_and_loses_nothing_flushed() {
    for at_flush in [false, true] {
        let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
        let armed = Arc::new(AtomicBool::new(false));
        let bad = panicking(&flash, "esker-cache", &armed, move |op| match op {
            Op::Flush => at_flush,
            Op::Read { .. } => false,
            _ => !at_flush,
        });
        let cache = Cache::open(origin.clone(), bad, with_thread()).unwrap();
        let mut port = Port::open(&cache, 4).unwrap();
        (0..BLOCKS).for_each(|block| write(&mut port, block, 7));
        port.flush().unwrap();
        armed.store(true, Ordering::SeqCst);
        let version = in_time("a write", move || {
            let mut port = port;
            write_until_stopped(&mut port)
        });
        let closed = in_time("the end", move || {
            let closed = cache.close();
            drop(cache);
            closed
        });
        let error = closed.unwrap_err().to_string();
        assert!(error.contains("was not closed"), "{error}");
        // Of what was not flushed each block may have any version.
        let cache = rig::open(&origin, &flash);
        let mut port = Port::open(&cache, 1).unwrap();
        for block in 0..BLOCKS {
            let has = read(&mut port, block);
            let is_there = (0..=version.max(7)).any(|it| has[..] == content(block, it)[..]);
            assert!(is_there, "block {block}");
        }
    }
}

#[test]
fn command_that_waits_for_work_that_panics_ends() {
    let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
    let (begin, begun) = channel();
    let (go, gone) = channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let bad = refusing(&origin, move |op| {
        if std::thread::current().name() == Some("cleaner") && matches!(op, Op::Write { .. }) {
            begin.send(()).unwrap();
            gone.lock().unwrap().recv().unwrap();
            panic!("as the test wants it");
        }
        false
    });
    let cache = Arc::new(Cache::open(bad, flash.clone(), rig::open_options()).unwrap());
    let mut port = Port::open(&*cache, 4).unwrap();
    (0..BLOCKS).for_each(|block| write(&mut port, block, 1));
    let cleaning = cache.clone();
    let cleaner = spawn("cleaner", move || cleaning.clean_all()).unwrap();
    begun.recv_timeout(LONG).unwrap();
    let host = cache.clone();
    let zeroes = spawn("host", move || {
        let mut port = Port::open(&*host, 4).unwrap();
        port.run(Op::WriteZeroes { lba: Lba(0), count: LbaCount(2) }).map(drop)
    });
    go.send(()).unwrap();
    let error = in_time("cleaning", move || cleaner.join().unwrap()).unwrap_err().to_string();
    assert!(error.contains("as the test wants it"), "{error}");
    // It was either refused or done before.
    let _ = in_time("zeroing", move || zeroes.unwrap().join().unwrap());
    assert!(port.flush().unwrap_err().to_string().contains("has stopped"));
}

#[test]
fn queue_pair_in_which_a_thread_panics_stops_cache_for_others() {
    for at_origin in [false, true] {
        let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
        let armed = Arc::new(AtomicBool::new(false));
        let (mut one, mut other) = (origin.clone(), flash.clone());
        let bad = if at_origin { &mut one } else { &mut other };
        *bad = panicking(bad, "host", &armed, |_| true);
        let cache = Arc::new(Cache::open(one, other, with_thread()).unwrap());
        let mut port = Port::open(&*cache, 4).unwrap();
        (0..BLOCKS).for_each(|block| write(&mut port, block, 3));
        port.flush().unwrap();
        armed.store(true, Ordering::SeqCst);
        let host = cache.clone();
        // Misses go to the origin; writes to the flash device.
        let panicked = in_time("a panic", move || {
            std::thread::scope(|scope| {
                let run = || {
                    let mut port = Port::open(&*host, 4).unwrap();
                    let _ = catch_unwind(AssertUnwindSafe(|| match at_origin {
                        true => port.read(Lba(40), AlignedBuf::zeroed(4096)).map(drop),
                        false => port.write(Lba(0), content(0, 3), None).map(drop),
                    }))
                    .unwrap_err();
                    port.flush().unwrap_err().to_string()
                };
                spawn_scoped(scope, "host", run).unwrap().join().unwrap()
            })
        });
        assert!(panicked.contains("has stopped"), "{panicked}");
        // The same block: the other queue pair may not wait for it.
        let said = in_time("a write", move || {
            port.write(Lba(0), content(0, 4), None).unwrap_err().to_string()
        });
        assert!(said.contains("has stopped"), "{said}");
        let error = in_time("closing", move || cache.close()).unwrap_err().to_string();
        assert!(error.contains("was not closed"), "{error}");
        check_reopened(&origin, &flash, 4);
    }
}
