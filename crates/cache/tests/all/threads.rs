//! Many threads on one cache, while it is cleaned and its mode changes: each sees its own writes, and
//! no one waits for someone else to poll.

use crate::rig;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_base::thread::spawn_scoped;
use esker_base::{AlignedBuf, Lba, LbaCount, Rng};
use esker_cache::{Background, Cache, CreateOptions, Mode, OpenOptions};
use esker_device::{Command, Device, MemoryDevice, Op, Port, Tag};

const BLOCKS: u64 = 512;

fn cache() -> (Arc<dyn Device>, Arc<Cache>) {
    let origin: Arc<dyn Device> = Arc::new(MemoryDevice::new("origin", BLOCKS * 4096, 4096));
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", 1 << 20, 4096));
    let options = CreateOptions {
        set_bytes: 64 << 10,
        run_bytes: 8192,
        ..rig::create_options(Mode::WriteBack)
    };
    Cache::create(&*origin, &flash, &options).unwrap();
    let options = OpenOptions {
        background: Background::Thread,
        dirty_percent: 10,
        sequential_bytes: 0,
        ..OpenOptions::default()
    };
    let cache = Arc::new(Cache::open(origin.clone(), flash, options).unwrap());
    (origin, cache)
}

#[test]
fn threads_see_what_they_wrote_whatever_else_goes_on() {
    let (origin, cache) = cache();
    let stop = AtomicBool::new(false);
    let content = |lba: u64, round: u64| {
        let mut buf = AlignedBuf::zeroed(4096);
        Rng::new(lba << 32 | round).fill(&mut buf);
        buf
    };
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for thread in 0..3 {
            let cache = &cache;
            let run = move || {
                let mut port = Port::open(&**cache, 8).unwrap();
                let mut rng = Rng::new(thread);
                let mut rounds = vec![0; usize::try_from(BLOCKS).unwrap()];
                for round in 1..4_000 {
                    // Blocks are dealt out, so that neighbours in a run belong to different threads.
                    let lba = rng.below(BLOCKS / 3) * 3 + thread;
                    let at = usize::try_from(lba).unwrap();
                    match rng.below(8) {
                        0..4 => {
                            port.write(Lba(lba), content(lba, round), None).unwrap();
                            rounds[at] = round;
                        }
                        4 if round % 16 == 0 => {
                            port.run(Op::WriteZeroes { lba: Lba(lba), count: LbaCount(1) })
                                .unwrap();
                            rounds[at] = 0;
                        }
                        5 if round % 8 == 0 => port.flush().unwrap(),
                        _ => {
                            let buf = port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap();
                            let expected = match rounds[at] {
                                0 => AlignedBuf::zeroed(4096),
                                round => content(lba, round),
                            };
                            assert!(buf[..] == expected[..], "thread {thread} LBA {lba}");
                        }
                    }
                }
                rounds
            };
            writers.push(spawn_scoped(scope, "writer", run).unwrap());
        }
        let (cache_ref, stop_ref) = (&cache, &stop);
        let changer = spawn_scoped(scope, "changer", move || {
            let mut n = 0;
            while !stop_ref.load(Ordering::Relaxed) {
                cache_ref.set_mode(rig::MODES[n % 3]).unwrap();
                cache_ref.step(n % 4 == 0).unwrap();
                n += 1;
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed); // also when a writer has failed
        let rounds: Vec<Vec<u64>> = ended.into_iter().map(Result::unwrap).collect();
        changer.unwrap().join().unwrap();
        cache.detach().unwrap();
        let mut port = Port::open(&*origin, 1).unwrap();
        for lba in 0..BLOCKS {
            let owner = usize::try_from(lba % 3).unwrap();
            let round = rounds[owner][usize::try_from(lba).unwrap()];
            let expected = if round == 0 { AlignedBuf::zeroed(4096) } else { content(lba, round) };
            let buf = port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap();
            assert!(buf[..] == expected[..], "LBA {lba} of the origin");
        }
    });
}

#[test]
fn a_command_does_not_wait_for_someone_to_poll_another_queue_pair() {
    let (_, cache) = cache();
    let mut first = cache.queue_pair(4).unwrap();
    let mut second = cache.queue_pair(4).unwrap();
    let write = |tag| {
        let op =
            Op::Write { lba: Lba(7), buf: AlignedBuf::zeroed(4096), placement: None, fua: false };
        Command { tag: Tag(tag), op }
    };
    for round in 0..50 {
        first.submit(&mut VecDeque::from([write(round)])).unwrap();
        second.submit(&mut VecDeque::from([write(round)])).unwrap();
        let mut done = Vec::new();
        assert_eq!(second.wait(&mut done, None).unwrap(), 1); // nobody polls the first
        assert_eq!(first.wait(&mut done, None).unwrap(), 1);
    }
}
