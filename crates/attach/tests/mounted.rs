//! An attached device, through the kernel. Skipped, aloud, where this machine or user cannot mount.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_attach::{AttachError, Attachment, Options, State, find};
use esker_base::{Clock, Lba, LbaCount};
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, Op, QueuePair,
};
use esker_sim::{Fate, HookDevice};

const SIZE: u64 = 64 << 20;

/// Attaches memory at a temporary directory, or says why not.
fn attach(
    lba_size: u32,
    options: &Options,
) -> Option<(tempfile::TempDir, Arc<MemoryDevice>, Attachment)> {
    let device = Arc::new(MemoryDevice::new("memory", SIZE, lba_size));
    let (dir, attachment) = attach_device(device.clone(), options)?;
    Some((dir, device, attachment))
}

/// Attaches a device at a temporary directory, or says why not.
fn attach_device(
    device: Arc<dyn Device>,
    options: &Options,
) -> Option<(tempfile::TempDir, Attachment)> {
    let dir = tempfile::tempdir().unwrap();
    match Attachment::start(device, dir.path(), options) {
        Ok(attachment) => Some((dir, attachment)),
        Err(AttachError::Unsupported { path, why }) => {
            eprintln!("SKIPPED: {}: {why}", path.display());
            None
        }
        Err(error @ AttachError::Os { .. })
            if ["must be allowed", "do it as root"]
                .iter()
                .any(|why| error.to_string().contains(why)) =>
        {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn file_writes_are_on_the_device_and_detaching_leaves_nothing() {
    let Some((dir, device, mut attachment)) = attach(4096, &Options::default()) else { return };
    let file = open(attachment.file());
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    let found = find(dir.path()).unwrap();
    assert_eq!((found.server(), found.state()), (Some(std::process::id()), State::Served));
    assert_eq!(Some(found.connection), attachment.connection());

    let data: Vec<u8> = (0..3_000_000u32).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect();
    file.write_all_at(&data, 12_345).unwrap();
    file.sync_all().unwrap();
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 12_345).unwrap();
    assert!(back == data);
    assert!(device.stats().flushes >= 1 && device.stats().written_bytes >= 3_000_000);

    // Beyond the end there is nothing, and no room.
    assert_eq!(file.read_at(&mut back, SIZE - 100).unwrap(), 100);
    let error = file.write_at(b"x", SIZE).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(file.set_len(5).is_err());

    // While it is open it stays; then it goes.
    let busy = attachment.stop().unwrap_err();
    assert!(matches!(busy, AttachError::Busy { .. }), "{busy}");
    assert!(attachment.is_running());
    drop(file);
    attachment.stop().unwrap();
    assert!(find(dir.path()).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn many_threads_at_once_read_what_each_has_written() {
    let Some((_dir, _, attachment)) = attach(4096, &Options::default()) else { return };
    let path = attachment.file().to_owned();
    std::thread::scope(|scope| {
        for number in 0..8u64 {
            let path = &path;
            scope.spawn(move || {
                let file = open(path);
                let byte = u8::try_from(number + 1).unwrap();
                // Parts of LBAs, side by side with those of the other threads.
                for round in 0..200u64 {
                    let offset = (round * 8 + number) * 1000;
                    file.write_all_at(&[byte; 1000], offset).unwrap();
                }
                let mut back = [0; 1000];
                for round in 0..200u64 {
                    file.read_exact_at(&mut back, (round * 8 + number) * 1000).unwrap();
                    assert!(back.iter().all(|&has| has == byte));
                }
            });
        }
    });
}

#[test]
fn a_read_only_file_refuses_to_be_opened_for_writing() {
    let options = Options { read_only: true, ..Options::default() };
    let Some((_dir, _, attachment)) = attach(512, &options) else { return };
    assert!(OpenOptions::new().write(true).open(attachment.file()).is_err());
    let mut head = [1; 10];
    File::open(attachment.file()).unwrap().read_exact_at(&mut head, 3).unwrap();
    assert_eq!(head, [0; 10]);
}

#[test]
fn a_loop_device_comes_and_goes_with_it() {
    let options = Options { loop_device: true, ..Options::default() };
    let Some((dir, device, mut attachment)) = attach(4096, &options) else { return };
    let path = attachment.loop_path().unwrap().to_owned();
    assert_eq!(find(dir.path()).unwrap().loops, std::slice::from_ref(&path));
    let block = open(&path);
    block.write_all_at(&[9; 8192], 4096).unwrap();
    block.sync_all().unwrap();
    assert!(device.stats().writes > 0);
    let mut back = [0; 8192];
    open(attachment.file()).read_exact_at(&mut back, 4096).unwrap();
    assert_eq!(back, [9; 8192]);
    drop(block);
    attachment.stop().unwrap();
    assert!(find(dir.path()).is_err());
    let backing = format!("/sys/block/{}/loop/backing_file", path.file_name().unwrap().display());
    assert!(std::fs::read_to_string(backing).is_err());
}

/// How long the kernel thinks that a wake may take, in microseconds.
fn wake_us() -> i32 {
    let mut told = [0; 4];
    File::open("/dev/cpu_dma_latency").unwrap().read_exact(&mut told).unwrap();
    i32::from_ne_bytes(told)
}

#[test]
fn processors_are_kept_awake_for_the_span_after_quick_requests_and_not_before_or_beyond() {
    let spin = Duration::from_secs(100);
    let options = Options { keep_awake: true, spin, ..Options::default() };
    let Some((_dir, _, mut attachment)) = attach(4096, &options) else { return };
    let before = wake_us();
    let file = open(attachment.file());
    // It begins anew whenever the thread was kept from running.
    let is_told = (0..100_000).any(|_| {
        file.write_all_at(b"x", 3).unwrap();
        wake_us() == 0
    });
    assert!(is_told);
    drop(file);
    attachment.stop().unwrap();
    assert_eq!(wake_us(), before);
}

#[test]
fn a_mount_point_has_to_be_a_directory_that_is_free() {
    let Some((dir, _, _attachment)) = attach(4096, &Options::default()) else { return };
    let again = Arc::new(MemoryDevice::new("again", SIZE, 4096));
    let error = Attachment::start(again.clone(), dir.path(), &Options::default()).err().unwrap();
    assert!(error.to_string().contains("a device is attached here"), "{error}");
    let error = Attachment::start(again, Path::new("/nowhere"), &Options::default()).err().unwrap();
    assert!(error.to_string().contains("name a directory that exists"), "{error}");
}

/// Attaches a device, and has one of its threads panic. The file stays open.
fn attach_and_panic() -> Option<(tempfile::TempDir, Attachment, File)> {
    let memory = Arc::new(MemoryDevice::new("memory", SIZE, 4096));
    let device = HookDevice::new(memory).on_command(|op| {
        let is_bad = matches!(op, Op::Write { lba: Lba(1), .. });
        assert!(!is_bad, "as the test wants it");
        Fate::Pass
    });
    let (dir, attachment) = attach_device(Arc::new(device), &Options::default())?;
    let file = open(attachment.file());
    file.write_all_at(b"x", 3).unwrap();
    file.write_all_at(&[1; 4096], 4096).unwrap_err();
    wait_for_end(&attachment);
    Some((dir, attachment, file))
}

fn wait_for_end(attachment: &Attachment) {
    let clock = Clock::real();
    let deadline = clock.now() + Duration::from_secs(60);
    while attachment.is_running() {
        assert!(clock.now() < deadline, "it still runs");
        clock.sleep(Duration::from_millis(1));
    }
}

#[test]
fn when_a_thread_has_panicked_nothing_stays_mounted_though_the_file_is_open() {
    for stops in [true, false] {
        let Some((dir, mut attachment, file)) = attach_and_panic() else { return };
        if stops {
            let _ = attachment.stop();
        }
        drop(attachment);
        let left = find(dir.path());
        if let Ok(left) = &left {
            left.clear().unwrap();
        }
        assert!(left.is_err(), "{left:?}, stopped: {stops}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        drop(file);
    }
}

#[test]
fn a_thread_that_panicked_is_an_error_of_stop_and_of_one_stop_alone() {
    let Some((_dir, mut attachment, _file)) = attach_and_panic() else { return };
    let error = attachment.stop().unwrap_err();
    assert!(matches!(error, AttachError::Panicked { .. }), "{error}");
    assert!(error.to_string().contains("as the test wants it"), "{error}");
    attachment.stop().unwrap();
}

fn run(program: &str, arguments: &[&str]) -> bool {
    std::process::Command::new(program).args(arguments).status().is_ok_and(|code| code.success())
}

#[test]
fn mount_under_one_that_others_took_away_stays_mounted() {
    for stops in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        if !run("mount", &["-t", "tmpfs", "none", path]) {
            return eprintln!("SKIPPED: this user cannot mount");
        }
        std::fs::write(dir.path().join("below"), b"").unwrap();
        let device = Arc::new(MemoryDevice::new("memory", SIZE, 4096));
        let mut attachment = match Attachment::start(device, dir.path(), &Options::default()) {
            Ok(attachment) => attachment,
            Err(error) => {
                run("umount", &[path]);
                return eprintln!("SKIPPED: {error}");
            }
        };
        assert!(run("umount", &[path]));
        wait_for_end(&attachment);
        if stops {
            attachment.stop().unwrap();
        }
        drop(attachment);
        let is_there = dir.path().join("below").exists();
        run("umount", &[path]);
        assert!(is_there, "stopped: {stops}");
    }
}

#[test]
fn aborted_connection_ends_server_and_is_cleared_away_under_an_open_file() {
    let Some((dir, _, mut attachment)) = attach(4096, &Options::default()) else { return };
    let file = open(attachment.file());
    let found = find(dir.path()).unwrap();
    found.abort().unwrap();
    wait_for_end(&attachment);
    assert!(file.write_at(b"x", 3).is_err());
    found.clear().unwrap();
    assert!(!found.is_mounted() && find(dir.path()).is_err());
    attachment.stop().unwrap();
}

/// Memory that ends nothing while it is silent, and counts how often it is looked at.
struct Silent {
    memory: MemoryDevice,
    state: Arc<(AtomicBool, AtomicU64)>,
}

impl Device for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let below = self.memory.queue_pair(depth)?;
        Ok(Box::new(SilentQueue { below, state: self.state.clone(), held: VecDeque::new() }))
    }

    fn stats(&self) -> DeviceStats {
        self.memory.stats()
    }
}

struct SilentQueue {
    below: Box<dyn QueuePair>,
    state: Arc<(AtomicBool, AtomicU64)>,
    held: VecDeque<Command>,
}

impl QueuePair for SilentQueue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let count = commands.len();
        self.held.append(commands);
        Ok(count)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.state.1.fetch_add(1, Ordering::SeqCst);
        if !self.state.0.load(Ordering::SeqCst) {
            self.below.submit(&mut self.held)?;
        }
        self.below.poll(done)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        if self.state.0.load(Ordering::SeqCst) {
            Clock::real().sleep(timeout.unwrap_or(Duration::from_millis(100)));
        }
        self.poll(done)
    }

    fn in_flight(&self) -> usize {
        self.held.len() + self.below.in_flight()
    }
}

#[test]
fn device_that_is_silent_is_looked_at_now_and_then() {
    let state = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
    let memory = MemoryDevice::new("memory", SIZE, 4096);
    let device = Arc::new(Silent { memory, state: state.clone() });
    let options = Options { threads: 2, ..Options::default() };
    let Some((_dir, attachment)) = attach_device(device, &options) else { return };
    let path = attachment.file();
    std::thread::scope(|scope| {
        open(path).write_all_at(b"x", 1).unwrap();
        state.0.store(true, Ordering::SeqCst);
        // Parts of one LBA: one waits for the device, the others for that one.
        for n in 0..8 {
            scope.spawn(move || open(path).write_all_at(b"y", 10 + n).unwrap());
        }
        let clock = Clock::real();
        clock.sleep(Duration::from_secs(1));
        let before = state.1.load(Ordering::SeqCst);
        clock.sleep(Duration::from_secs(2));
        let looks = state.1.load(Ordering::SeqCst) - before;
        state.0.store(false, Ordering::SeqCst);
        assert!(looks < 500, "{looks} in 2 s");
        assert!(looks > 0, "it is not looked at");
    });
    let mut back = [0; 10];
    open(path).read_exact_at(&mut back, 10).unwrap();
    assert_eq!(&back, b"yyyyyyyy\0\0");
}

#[test]
fn file_and_block_device_follow_a_device_that_is_resized() {
    let memory = Arc::new(MemoryDevice::new("memory", SIZE, 4096));
    let size = Arc::new(AtomicU64::new(SIZE / 2));
    let shown = size.clone();
    let device = Arc::new(HookDevice::new(memory).with_geometry(move |geometry| {
        geometry.capacity = LbaCount(shown.load(Ordering::Relaxed) / 4096);
    }));
    let options = Options { loop_device: true, ..Options::default() };
    let Some((_dir, mut attachment)) = attach_device(device, &options) else { return };
    let block_device = attachment.loop_path().unwrap().to_owned();
    let seen = |attachment: &Attachment| {
        let of_block = File::open(&block_device).unwrap();
        let end = std::io::Seek::seek(&mut &of_block, std::io::SeekFrom::End(0)).unwrap();
        (std::fs::metadata(attachment.file()).unwrap().len(), end)
    };
    assert_eq!(seen(&attachment), (SIZE / 2, SIZE / 2));
    assert_eq!(attachment.follow_size().unwrap(), None);
    for wanted in [SIZE, SIZE / 4] {
        size.store(wanted, Ordering::Relaxed);
        assert_eq!(attachment.follow_size().unwrap(), Some(wanted));
        assert_eq!(seen(&attachment), (wanted, wanted));
    }
    assert_eq!(attachment.follow_size().unwrap(), None);
    attachment.stop().unwrap();
}
