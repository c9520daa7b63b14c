//! The file device on real file systems: conformance, growth, holes, locks, limits and errors.

mod common;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Mount, TempDir, is_root, skipped};
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::{
    Command, Create, Device, FileDevice, FileOptions, MemoryDevice, Op, Port, PortPool, Preference,
    Tag, conformance,
};

const MIB: u64 = 1 << 20;

fn options() -> FileOptions {
    FileOptions { capacity_bytes: Some(64 * MIB), ..FileOptions::default() }
}

fn synchronous() -> FileOptions {
    FileOptions { io_uring: Preference::Never, ..options() }
}

fn open(path: &Path, options: &FileOptions) -> FileDevice {
    FileDevice::open(path, options).unwrap()
}

fn refusal(path: &Path, options: &FileOptions) -> (ErrorKind, String) {
    let error = FileDevice::open(path, options).map(drop).unwrap_err();
    let text = error.to_string();
    let start = format!("{}: open failed: ", path.display());
    assert!(text.starts_with(&start), "{text}");
    (error.kind(), text)
}

#[test]
fn memory_conforms() {
    conformance::check(&MemoryDevice::new("memory", MIB, 512), 8, 3000, 1);
    conformance::check(&MemoryDevice::new("memory", MIB / 2, 4096), 1, 1000, 2);
}

#[test]
fn files_conform_direct_buffered_and_without_io_uring() {
    let dir = TempDir::new();
    let buffered = FileOptions { direct: Preference::Never, ..options() };
    let small_lbas = FileOptions { lba_size: Some(512), ..options() };
    let asleep = FileOptions { spin: Duration::ZERO, ..options() };
    let kinds = [options(), synchronous(), buffered, small_lbas, asleep];
    for (n, options) in (0u64..).zip(kinds) {
        let path = dir.path().join(format!("{n}"));
        assert!(open(&path, &options).discards_zero());
        conformance::check(&open(&path, &options), 16, 1200, n);
        // The same LBAs again, now of a file that has content.
        let device = open(&path, &options);
        let mut port = Port::open(&device, 1).unwrap();
        let count = LbaCount(192);
        port.run(Op::WriteZeroes { lba: Lba(0), count }).unwrap();
        conformance::check(&device, 1, 100, n + 100);
    }
}

#[test]
fn a_wait_ends_when_a_read_does_whether_it_looks_or_sleeps() {
    let dir = TempDir::new();
    let spins = [Duration::ZERO, Duration::from_micros(1), Duration::from_secs(1)];
    for (n, spin) in (0u64..).zip(spins) {
        let device = open(&dir.path().join(format!("{n}")), &FileOptions { spin, ..options() });
        let content = AlignedBuf::zeroed(64 * 4096);
        Port::open(&device, 1).unwrap().write(Lba(0), content, None).unwrap();
        let mut queue = device.queue_pair(8).unwrap();
        for _ in 0..50 {
            let read = |n| Command {
                tag: Tag(n),
                op: Op::Read { lba: Lba(n), buf: AlignedBuf::zeroed(4096) },
            };
            let mut commands: VecDeque<Command> = (0..8).map(read).collect();
            assert_eq!(queue.submit(&mut commands).unwrap(), 8);
            let mut done = Vec::new();
            while queue.in_flight() > 0 {
                let before = done.len();
                assert!(queue.wait(&mut done, None).unwrap() > 0);
                assert!(done.len() > before);
            }
            assert_eq!(done.len(), 8);
            assert_eq!(queue.wait(&mut done, None).unwrap(), 0, "nothing is in flight");
        }
    }
}

#[test]
fn files_in_memory_conform_and_say_that_direct_io_is_refused() {
    let dir = TempDir::on(Path::new("/dev/shm"));
    for (n, options) in (0u64..).zip([options(), synchronous()]) {
        let path = dir.path().join(format!("{n}"));
        let device = open(&path, &options);
        conformance::check(&device, 16, 1200, n);
        let remarks = device.remarks();
        let start = format!("{}: direct I/O is refused (tmpfs", path.display());
        assert!(remarks[0].starts_with(&start), "{remarks:?}");
        assert!(remarks[0].contains("nothing in it outlives a restart"), "{remarks:?}");
        assert!(!device.is_direct());
    }
    let required = FileOptions { direct: Preference::Require, ..options() };
    let path = dir.path().join("required");
    let (kind, why) = refusal(&path, &required);
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(why.contains("direct I/O is required, but refused"), "{why}");
    assert!(!path.exists(), "a file that was not opened is not left behind");
}

#[test]
fn a_file_grows_by_writes_and_reads_as_zeroes_beyond_its_end() {
    let dir = TempDir::new();
    for (name, options) in [("uring", options()), ("synchronous", synchronous())] {
        let path = dir.path().join(name);
        let device = open(&path, &options);
        assert!(device.is_new());
        assert_eq!(device.len_bytes(), Ok(0));
        assert_eq!(device.geometry().capacity, LbaCount(16384));
        let mut port = Port::open(&device, 4).unwrap();
        let mut buf = AlignedBuf::zeroed(8192);
        buf.fill(7);
        let mut buf = port.write(Lba(1000), buf, None).unwrap();
        assert_eq!(device.len_bytes(), Ok(1002 * 4096));
        buf.fill(1);
        let buf = port.read(Lba(1001), buf).unwrap();
        assert!(buf[..4096].iter().all(|&b| b == 7) && buf[4096..].iter().all(|&b| b == 0));
        let buf = port.read(Lba(16382), buf).unwrap();
        assert!(buf.iter().all(|&b| b == 0));
        drop((port, device));
        assert!(fs::metadata(&path).unwrap().blocks() * 512 < 100 << 10, "sparse");
        assert!(!open(&path, &options).is_new());
    }
}

#[test]
fn a_file_that_ends_within_an_lba_reads_to_its_last_byte() {
    let dir = TempDir::new();
    let path = dir.path().join("odd");
    for options in [options(), synchronous()] {
        fs::write(&path, vec![9; 10_000]).unwrap();
        let device = open(&path, &options);
        let mut port = Port::open(&device, 1).unwrap();
        let mut buf = AlignedBuf::zeroed(32768);
        buf.fill(1);
        let buf = port.read(Lba(0), buf).unwrap();
        assert!(buf[..10_000].iter().all(|&b| b == 9));
        assert!(buf[10_000..].iter().all(|&b| b == 0));
        assert_eq!(device.len_bytes(), Ok(10_000));
    }
}

#[test]
fn a_discard_frees_the_blocks_of_a_file() {
    let dir = TempDir::new();
    for (name, options) in [("uring", options()), ("synchronous", synchronous())] {
        let path = dir.path().join(name);
        let device = open(&path, &options);
        assert!(device.geometry().discard_granularity > 0);
        let blocks = || fs::metadata(&path).unwrap().blocks() * 512;
        let mut port = Port::open(&device, 1).unwrap();
        let mut buf = AlignedBuf::zeroed(4 << 20);
        buf.fill(1);
        let buf = port.write(Lba(0), buf, None).unwrap();
        port.flush().unwrap();
        assert!(blocks() >= 4 * MIB);
        port.discard(Lba(256), LbaCount(512)).unwrap();
        assert!(blocks() < 2 * MIB + MIB / 2, "{}", blocks());
        let buf = port.read(Lba(0), buf).unwrap();
        assert!(buf[..1 << 20].iter().all(|&b| b == 1));
        assert!(buf[1 << 20..3 << 20].iter().all(|&b| b == 0));
        assert!(buf[3 << 20..].iter().all(|&b| b == 1));
        // All of it, to the very end of the file's capacity.
        port.discard(Lba(0), device.geometry().capacity).unwrap();
        assert!(blocks() < MIB / 2, "{}", blocks());
    }
}

#[test]
fn the_default_capacity_can_be_discarded_to_its_end() {
    let dir = TempDir::new();
    let device = open(&dir.path().join("large"), &FileOptions::default());
    let capacity = device.geometry().capacity;
    assert!(capacity.bytes(4096) > 1 << 40, "{capacity}");
    let mut port = Port::open(&device, 1).unwrap();
    port.discard(Lba(0), capacity).unwrap();
    let last = Lba(capacity.0 - 1);
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(3);
    port.write(last, buf, None).unwrap();
    let buf = port.read(last, AlignedBuf::zeroed(4096)).unwrap();
    assert!(buf.iter().all(|&b| b == 3));
}

#[test]
fn a_file_is_open_once() {
    let dir = TempDir::new();
    let path = dir.path().join("locked");
    let device = open(&path, &options());
    let (kind, why) = refusal(&path, &options());
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(why.contains("open elsewhere"), "{why}");
    assert!(why.contains(&format!("this process ({})", std::process::id())), "{why}");
    // A queue pair holds the lock as well.
    let queue = device.queue_pair(4).unwrap();
    drop(device);
    assert_eq!(refusal(&path, &options()).0, ErrorKind::Conflict);
    drop(queue);
    open(&path, &options());
}

#[test]
fn a_file_can_be_opened_at_once_after_its_last_command() {
    // The kernel lets go of a ring in its own time; the lock must not wait for it.
    let dir = TempDir::new();
    let path = dir.path().join("again");
    for _ in 0..200 {
        let device = open(&path, &options());
        let mut port = Port::open(&device, 4).unwrap();
        let zeroes = |lba| Op::WriteZeroes { lba, count: LbaCount(1) };
        port.run_all([zeroes(Lba(0)), Op::Flush, zeroes(Lba(9))], |_, result| {
            result.unwrap();
        })
        .unwrap();
        drop((port, device));
        // Not opened, which would wait a while for the lock.
        let file = File::open(&path).unwrap();
        file.try_lock().unwrap();
        file.unlock().unwrap();
    }
}

#[test]
fn files_that_cannot_be_opened_are_refused_with_advice() {
    let dir = TempDir::new();
    let missing = dir.path().join("no/such/file");
    let (kind, why) = refusal(&missing, &options());
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(why.contains("directory it is created in must exist"), "{why}");

    let (kind, why) = refusal(dir.path(), &options());
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(why.contains("it is a directory"), "{why}");

    let (kind, _) = refusal(Path::new("/dev/null"), &options());
    assert_eq!(kind, ErrorKind::Invalid);

    let path = dir.path().join("file");
    let create = |create| FileOptions { create, ..options() };
    let (kind, why) = refusal(&path, &create(Create::Never));
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(why.contains("there must be such a file"), "{why}");
    assert!(open(&path, &create(Create::New)).is_new());
    assert_eq!(refusal(&path, &create(Create::New)).0, ErrorKind::Exists);
    assert!(!open(&path, &create(Create::Never)).is_new());

    for (lba_size, capacity_bytes) in [(100, MIB), (8192, MIB), (4096, 4095), (4096, u64::MAX)] {
        let wrong = FileOptions {
            lba_size: Some(lba_size),
            capacity_bytes: Some(capacity_bytes),
            ..options()
        };
        let (kind, why) = refusal(&path, &wrong);
        assert_eq!(kind, ErrorKind::Invalid, "{why}");
    }
    File::options().write(true).open(&path).unwrap().set_len(65 * MIB).unwrap();
    let (kind, why) = refusal(&path, &options());
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(why.contains("raise it"), "{why}");
}

#[test]
fn fixed_file_has_one_size_and_new_one_is_hole() {
    let dir = TempDir::new();
    let path = dir.path().join("fixed");
    let fixed = |capacity_bytes| FileOptions { capacity_bytes, fixed: true, ..options() };
    let (kind, why) = refusal(&path, &fixed(None));
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(why.contains("it has no size"), "{why}");
    assert!(!path.exists(), "a file that was not opened is not left behind");
    let blocks = || fs::metadata(&path).unwrap().blocks();
    for capacity in [Some(4 * MIB), None, Some(8 * MIB), None] {
        let device = open(&path, &fixed(capacity));
        let geometry = device.geometry();
        let bytes = geometry.capacity.bytes(geometry.lba_size);
        assert_eq!((bytes, device.len_bytes()), (fs::metadata(&path).unwrap().len(), Ok(bytes)));
        assert!(capacity.is_none_or(|capacity| capacity == bytes));
        assert_eq!(blocks(), 0, "a hole takes no room");
        assert!(device.discards_zero());
    }
    for (length, capacity, part) in [
        (0, None, "`truncate -s 8589934592 '"),
        (100, None, "less than an LBA of 4096; lengthen it with `truncate -s 4096 '"),
        (512, None, "less than an LBA of 4096; lengthen it with `truncate -s 4096 '"),
        (4096 + 100, None, "no multiple of an LBA of 4096; lengthen it with `truncate -s 8192 '"),
        (4096 + 512, None, "or say an LBA of 512 bytes"),
        (8192, Some(4096), "say no capacity, or at least 8192"),
        (8192, Some(8192 + 100), "is no multiple of an LBA of 4096; say 12288"),
    ] {
        File::create(&path).unwrap().set_len(length).unwrap();
        let (kind, why) = refusal(&path, &fixed(capacity));
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(why.contains(part), "no '{part}' in: {why}");
        assert_eq!(fs::metadata(&path).unwrap().len(), length, "it is left as it was");
    }
    // Read-only devices change nothing.
    File::create(&path).unwrap().set_len(4096).unwrap();
    let reader = open(&path, &FileOptions { read_only: true, ..fixed(Some(8192)) });
    assert_eq!(reader.geometry().capacity, LbaCount(2));
    assert_eq!(reader.len_bytes(), Ok(4096));
}

#[test]
fn nothing_is_created_under_dev() {
    for create in [Create::IfMissing, Create::New, Create::Never] {
        for path in ["/dev/esker-none", "/dev/esker-none/file"] {
            let (kind, why) = refusal(Path::new(path), &FileOptions { create, ..options() });
            assert_eq!(kind, ErrorKind::NotFound);
            assert!(why.contains("there is no such device"), "{why}");
            assert!(!Path::new("/dev/esker-none").exists());
        }
    }
}

#[test]
fn a_link_to_what_does_not_exist_is_refused() {
    let dir = TempDir::new();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let (answer, answered) = std::sync::mpsc::channel();
    let ask = {
        let link = link.clone();
        move || answer.send(refusal(&link, &options())).unwrap()
    };
    esker_base::thread::spawn("link", ask).unwrap();
    let (kind, why) = answered.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(why.contains("links to what does not exist"), "{why}");
    fs::write(&target, b"").unwrap();
    assert!(!open(&link, &options()).is_new());
}

#[test]
fn opener_that_cannot_use_a_new_file_removes_it_from_under_nobody() {
    let dir = TempDir::new();
    let path = dir.path().join("contended");
    let unusable = FileOptions { lba_size: Some(100), ..options() };
    for round in 0..100 {
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let refused = || {
                start.wait();
                FileDevice::open(&path, &unusable).map(drop).unwrap_err();
            };
            let refused = esker_base::thread::spawn_scoped(scope, "refused", refused).unwrap();
            start.wait();
            // Sooner or later: before it is locked, meanwhile, or when it is gone again.
            esker_base::Clock::real().sleep(Duration::from_micros(round % 20 * 50));
            let device = open(&path, &options());
            let content = AlignedBuf::padded(b"content", 4096);
            Port::open(&device, 1).unwrap().write(Lba(0), content, None).unwrap();
            drop(device);
            refused.join().unwrap();
        });
        assert!(fs::read(&path).unwrap().starts_with(b"content"));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let dir = TempDir::new();
    let path = dir.path().join("file");
    fs::write(&path, b"").unwrap();
    let _mount = if is_root() {
        // Permissions do not stop root; a file system mounted read-only does.
        let Some(mount) = Mount::tmpfs(dir.path(), "size=1m") else {
            return skipped("a read-only file system cannot be mounted here");
        };
        fs::write(&path, b"").unwrap();
        mount.remount("ro");
        Some(mount)
    } else {
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        None
    };
    let (_, why) = refusal(&path, &options());
    assert!(why.contains("must be readable and writable"), "{why}");
}

#[test]
fn a_full_file_system_is_no_space_and_names_the_write() {
    let dir = TempDir::new();
    let Some(_mount) = Mount::tmpfs(dir.path(), "size=1m") else {
        return skipped("mounting a small file system needs root");
    };
    for (name, options) in [("uring", options()), ("synchronous", synchronous())] {
        let path = dir.path().join(name);
        let device = open(&path, &options);
        let mut port = Port::open(&device, 1).unwrap();
        let buf = AlignedBuf::zeroed(4 << 20);
        let error = port.write(Lba(2), buf, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let usable = || device.usable_bytes().unwrap();
        let all = usable();
        assert!((900 << 10..=1 << 20).contains(&all), "{all}");
        port.write(Lba(2), AlignedBuf::zeroed(512 << 10), None).unwrap();
        assert!(usable().abs_diff(all) < 16 << 10, "{all} and now {}", usable());
        let start = format!("{}: write of 4194304 bytes at LBA 2 failed", path.display());
        assert!(error.to_string().starts_with(&start), "{error}");
        assert_eq!(device.stats().errors, 1);
        drop((port, device));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn allocated_and_zeroed_ranges_have_room_on_a_full_file_system() {
    let dir = TempDir::new();
    let Some(_mount) = Mount::tmpfs(dir.path(), "size=1m") else {
        return skipped("mounting a small file system needs root");
    };
    for (name, options) in [("uring", options()), ("synchronous", synchronous())] {
        let (path, other) = (dir.path().join(name), dir.path().join("other"));
        let device = open(&path, &options);
        let mut port = Port::open(&device, 1).unwrap();
        let mut content = AlignedBuf::zeroed(4096);
        content.fill(7);
        port.write(Lba(20), content.clone(), None).unwrap();
        assert_eq!(device.len_bytes().unwrap(), 21 << 12);
        assert!(device.allocate(Lba(10), LbaCount(20)).unwrap());
        // Behind its end a discard would do nothing on ext4.
        assert_eq!(device.len_bytes().unwrap(), 30 << 12);
        assert_eq!(*port.read(Lba(20), AlignedBuf::zeroed(4096)).unwrap(), *content);
        port.run(Op::WriteZeroes { lba: Lba(40), count: LbaCount(20) }).unwrap();
        let left = device.left_bytes().unwrap();
        assert!(left < (1 << 20) - (39 << 12), "{left}");
        // Others take the rest.
        fs::write(&other, vec![1; 2 << 20]).unwrap_err();
        assert!(device.left_bytes().unwrap() < 4096, "{:?}", device.left_bytes());
        for lba in (10..30).chain(40..60) {
            port.write(Lba(lba), content.clone(), None).unwrap();
        }
        let full = device.allocate(Lba(70), LbaCount(20)).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
        port.discard(Lba(40), LbaCount(20)).unwrap();
        assert!(device.left_bytes().unwrap() > 19 << 12, "{:?}", device.left_bytes());
        drop((port, device));
        fs::remove_file(&path).unwrap();
        fs::remove_file(&other).unwrap();
    }
}

#[test]
fn threads_share_a_file_through_a_pool() {
    let dir = TempDir::new();
    let device = Arc::new(open(&dir.path().join("shared"), &options()));
    let pool = Arc::new(PortPool::new(device.clone(), 2));
    let threads: Vec<_> = (0..4u8)
        .map(|n| {
            let pool = pool.clone();
            let work = move || {
                for round in 0..50u64 {
                    let lba = Lba(u64::from(n) * 100 + round);
                    let mut buf = AlignedBuf::zeroed(4096);
                    buf.fill(n + 1);
                    pool.port().unwrap().write(lba, buf, None).unwrap();
                    let buf = AlignedBuf::zeroed(4096);
                    let buf = pool.port().unwrap().read(lba, buf).unwrap();
                    assert!(buf.iter().all(|&b| b == n + 1));
                }
            };
            esker_base::thread::spawn("pool", work).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((device.stats().writes, device.stats().reads), (200, 200));
}

#[test]
fn commands_outlive_the_thread_that_submitted_them() {
    let dir = TempDir::new();
    let device = open(&dir.path().join("moved"), &options());
    for round in 0..20u64 {
        let mut queue = device.queue_pair(16).unwrap();
        let submit = move || {
            let commands = (0..16u64).map(|n| esker_device::Command {
                tag: esker_device::Tag(n),
                op: if n % 5 == 4 {
                    Op::Flush
                } else {
                    Op::Write {
                        lba: Lba(round * 16 + n),
                        buf: AlignedBuf::padded(&[5; 4096], 4096),
                        placement: None,
                        fua: n % 3 == 0,
                    }
                },
            });
            let taken = queue.submit(&mut commands.collect()).unwrap();
            assert_eq!(taken, 16);
            queue
        };
        let mut queue = esker_base::thread::spawn("gone", submit).unwrap().join().unwrap();
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).unwrap();
        }
        assert_eq!(done.len(), 16);
        done.iter().for_each(|done| done.result.clone().unwrap());
    }
}

#[test]
fn reads_that_wait_for_the_page_cache_outlive_the_thread_that_submitted_them() {
    let dir = TempDir::new();
    let path = dir.path().join("evicted");
    let device = open(&path, &FileOptions { direct: Preference::Never, ..options() });
    let content = AlignedBuf::padded(&[8; 16 << 20], 4096);
    Port::open(&device, 1).unwrap().write(Lba(0), content, None).unwrap();
    let file = File::open(&path).unwrap();
    for _ in 0..20 {
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut queue = device.queue_pair(16).unwrap();
        let submit = move || {
            let read = |n| {
                let op = Op::Read { lba: Lba(n * 256), buf: AlignedBuf::zeroed(65536) };
                Command { tag: Tag(n), op }
            };
            assert_eq!(queue.submit(&mut (0..16).map(read).collect()).unwrap(), 16);
            queue
        };
        let mut queue = esker_base::thread::spawn("gone", submit).unwrap().join().unwrap();
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).unwrap();
        }
        for done in done {
            done.result.unwrap();
            assert!(done.buf.unwrap().iter().all(|&b| b == 8));
        }
    }
}

#[test]
fn a_queue_pair_dropped_with_commands_in_flight_waits_for_them() {
    let dir = TempDir::new();
    let device = open(&dir.path().join("dropped"), &options());
    let mut queue = device.queue_pair(32).unwrap();
    let commands = (0..32u64).map(|n| esker_device::Command {
        tag: esker_device::Tag(n),
        op: Op::Write {
            lba: Lba(n * 16),
            buf: AlignedBuf::padded(&[6; 65536], 4096),
            placement: None,
            fua: false,
        },
    });
    queue.submit(&mut commands.collect()).unwrap();
    drop(queue);
    assert_eq!(device.stats().writes, 32);
    let mut port = Port::open(&device, 1).unwrap();
    let buf = port.read(Lba(0), AlignedBuf::zeroed(2 << 20)).unwrap();
    assert!(buf.iter().all(|&b| b == 6));
}

#[test]
fn read_only_devices_share_the_file_and_cannot_write() {
    let dir = TempDir::new();
    let path = dir.path().join("file");
    let to_read = || FileOptions { read_only: true, ..options() };
    assert_eq!(refusal(&path, &to_read()).0, ErrorKind::NotFound);
    let writer = open(&path, &options());
    let content = AlignedBuf::padded(b"content", 4096);
    Port::open(&writer, 1).unwrap().write(Lba(0), content, None).unwrap();
    assert_eq!(refusal(&path, &to_read()).0, ErrorKind::Conflict);
    drop(writer);
    for io_uring in [Preference::Prefer, Preference::Never] {
        let to_read = || FileOptions { io_uring, ..to_read() };
        let (first, second) = (open(&path, &to_read()), open(&path, &to_read()));
        assert_eq!(refusal(&path, &options()).0, ErrorKind::Conflict);
        let mut port = Port::open(&first, 1).unwrap();
        assert!(port.write(Lba(0), AlignedBuf::zeroed(4096), None).is_err());
        assert!(port.discard(Lba(0), LbaCount(1)).is_err());
        let mut port = Port::open(&second, 1).unwrap();
        let back = port.read(Lba(0), AlignedBuf::zeroed(4096)).unwrap();
        assert!(back.starts_with(b"content"));
    }
    open(&path, &options());
}

#[test]
fn device_whose_size_nobody_said_becomes_larger_with_its_file() {
    let dir = TempDir::new();
    for io_uring in [Preference::Prefer, Preference::Never] {
        for (said, expected) in [(None, 16), (Some(8 * 4096), 8)] {
            let path = dir.path().join(format!("{io_uring:?}-{said:?}"));
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(8 * 4096).unwrap();
            let fixed = FileOptions { capacity_bytes: said, fixed: true, io_uring, ..options() };
            let device = open(&path, &fixed);
            assert_eq!(device.geometry().capacity.0, 8);
            let mut port = Port::open(&device, 1).unwrap();
            file.set_len(16 * 4096 + 512).unwrap();
            esker_base::Clock::real().sleep(std::time::Duration::from_millis(100));
            assert_eq!(device.geometry().capacity.0, expected, "{said:?}");
            let beyond = port.write(Lba(15), AlignedBuf::zeroed(4096), None);
            assert_eq!(beyond.is_ok(), expected == 16, "{beyond:?}");
            file.set_len(8 * 4096).unwrap();
            esker_base::Clock::real().sleep(std::time::Duration::from_millis(100));
            assert_eq!(device.geometry().capacity.0, expected, "it never becomes smaller");
        }
    }
}

#[test]
fn the_process_that_has_a_file_is_named() {
    let dir = TempDir::new();
    let path = dir.path().join("theirs");
    drop(open(&path, &options()));
    let held = format!("flock {} -c 'echo held; sleep 30'", path.display());
    let spawned = std::process::Command::new("sh")
        .args(["-c", &format!("exec {held}")])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut child = spawned.unwrap();
    let mut line = String::new();
    let read = BufRead::read_line(&mut BufReader::new(child.stdout.take().unwrap()), &mut line);
    if read.is_err() || line != "held\n" {
        let _ = child.wait();
        return skipped("there is no program `flock`");
    }
    let (kind, why) = refusal(&path, &options());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(why.contains(&format!("process {} (flock ", child.id())), "{why}");
}
