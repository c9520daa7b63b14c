//! One run of one way to hold a table, in a process of its own: `esker lab host-ssd-side`, which
//! `esker lab host-ssd --real` starts. It prints its result as JSON.
//!
//! All ways do the same: they look up records through an index in memory, check each of them, and sum up the whole
//! table twice. The index comes before the process enters the memory cgroup; the table comes after it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, Rng};
use esker_device::{Command, Create, Device, FileDevice, FileOptions, Op, QueuePair, Tag};
use esker_lab::host_ssd::installed::{Sample, Trial, Way};
use esker_pager::bytes::{Bytes, Order, lock};
use esker_pager::{Arena, Mode, Options, PAGE, PagerError};

use crate::args::HostSsdSideArgs;
use crate::failure::{Failure, Result};

/// Words of eight bytes in a page.
const WORDS: usize = PAGE / 8;
/// A scan by plain reads: bytes of a read, and how many are under way.
const READ: usize = 256 << 10;
const READS: usize = 8;

/// The table's content: word `at` of a page. No page is like another one, or zero.
pub(super) fn word(page: usize, at: usize) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
    let mut x = to_u64(page * WORDS + at).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Fills a page.
pub(super) fn fill(page: usize, bytes: &mut [u8]) {
    for (at, to) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *to = word(page, at).to_ne_bytes();
    }
}

fn word_of(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The sum of all words of a run of pages.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    words.fold(0, u64::wrapping_add)
}

/// Runs it.
pub(crate) fn run(args: &HostSsdSideArgs) -> Result {
    let parent = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(parent)).map_err(io::Error::from)?;
    let way: Way = serde_json::from_value(args.way.clone().into())
        .map_err(|error| Failure::usage(format!("--way: {error}")))?;
    let trial = match measure(way, args) {
        Err(Stop::Skip(why)) => Trial::Skipped(why),
        Err(Stop::Fail(failure)) => return Err(failure),
        Ok(sample) => Trial::Ran(sample),
    };
    let text = serde_json::to_string(&trial).expect("every field has a JSON form");
    crate::output::print(&format!("{text}\n"))
}

/// Why there is no figure.
enum Stop {
    Skip(String),
    Fail(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Fail(failure)
    }
}

fn system(what: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(ErrorKind::Io, format!("{what}: {error}"))
}

fn measure(way: Way, args: &HostSsdSideArgs) -> Result<Sample, Stop> {
    let pages = to_usize(args.data / to_u64(PAGE));
    let index = Index::new(pages, args.seed)?;
    if let Some(cgroup) = &args.cgroup {
        let procs = cgroup.join("cgroup.procs");
        esker_base::files::write(&procs, std::process::id().to_string())
            .map_err(|error| Failure::file(&procs, &error, "run it as root"))?;
    }
    let mut table = Table::open(way, args, pages)?;
    let mut rng = Rng::new(args.seed);
    let clock = Clock::real();
    let mut sample = Sample::default();
    if way.has_lookups() {
        // Memory is full before it is timed.
        let first = to_usize(args.memory) / PAGE;
        for _ in 0..first {
            table.check(&index, &mut rng)?;
        }
        let began = clock.now();
        for _ in 0..args.lookups {
            table.check(&index, &mut rng)?;
        }
        sample.lookups_per_s = Some(rate(args.lookups, clock.now().since(began)));
    }
    if way.has_scans() {
        let all = (0..pages).flat_map(|page| (0..WORDS).map(move |at| word(page, at)));
        let expected = all.fold(0, u64::wrapping_add);
        for _ in 0..2 {
            let began = clock.now();
            if table.scan(pages)? != expected {
                return Err(wrong("the table's sum").into());
            }
            sample.scan_mib_per_s = Some(rate(args.data >> 20, clock.now().since(began)));
        }
    }
    Ok(sample)
}

#[allow(clippy::cast_precision_loss)] // a rate for people
fn rate(count: u64, span: std::time::Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}

fn wrong(what: &str) -> Failure {
    Failure::new(ErrorKind::Corrupt, format!("{what} is not what was written"))
}

/// Where each record lies, in memory that is never paged.
struct Index(Vec<u32>);

impl Index {
    fn new(pages: usize, seed: u64) -> Result<Index> {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let count = u32::try_from(pages)
            .map_err(|_| Failure::usage(format!("--data: {pages} pages are too many")))?;
        let mut places: Vec<u32> = (0..count).collect();
        for n in (1..pages).rev() {
            places.swap(n, to_usize(rng.below(to_u64(n + 1))));
        }
        lock(&places).map_err(system("locking the index in memory"))?;
        Ok(Index(places))
    }
}

/// The table.
enum Table {
    /// In memory, paged by whatever there is.
    Memory(Bytes),
    /// Read from a file.
    Reads { queue: Box<dyn QueuePair>, device: FileDevice },
}

impl Table {
    fn open(way: Way, args: &HostSsdSideArgs, pages: usize) -> Result<Table, Stop> {
        let size = pages * PAGE;
        match way {
            Way::Plain => {
                let device = open_device(&args.table)?;
                let queue = device.queue_pair(READS).map_err(failed)?;
                Ok(Table::Reads { queue, device })
            }
            Way::Signal => in_arena(Mode::Signal, args, size),
            Way::Handler => in_arena(Mode::Handler, args, size),
            Way::MmapRandom => mapped(&args.table, size, Order::Random),
            Way::MmapSequential => mapped(&args.table, size, Order::Sequential),
            Way::Swap0 | Way::Swap3 => {
                let memory = Bytes::anonymous(size).map_err(system("memory for the table"))?;
                Ok(Table::Memory(filled(memory)?))
            }
            Way::Umap => with_umap(args, size),
        }
    }

    /// Looks a record up, and checks it.
    fn check(&mut self, index: &Index, rng: &mut Rng) -> Result {
        let pages = index.0.len();
        let page = index.0[to_usize(rng.below(to_u64(pages)))] as usize;
        let at = to_usize(rng.below(to_u64(WORDS)));
        let found = match self {
            Table::Memory(memory) => word_of(memory, page * PAGE + at * 8),
            Table::Reads { queue, device } => {
                let op = Op::Read { lba: lba(device, page), buf: AlignedBuf::zeroed(PAGE) };
                let buf = read(&mut **queue, op)?;
                word_of(&buf, at * 8)
            }
        };
        if found == word(page, at) { Ok(()) } else { Err(wrong("a record")) }
    }

    /// Sums up all words.
    fn scan(&mut self, pages: usize) -> Result<u64> {
        match self {
            Table::Memory(memory) => Ok(sum(memory)),
            Table::Reads { queue, device } => scan_by_reads(&mut **queue, device, pages),
        }
    }
}

fn failed(error: esker_device::DeviceError) -> Failure {
    Failure::new(error.kind(), error)
}

fn lba(device: &FileDevice, page: usize) -> Lba {
    Lba(to_u64(page * PAGE) / u64::from(device.geometry().lba_size))
}

fn read(queue: &mut dyn QueuePair, op: Op) -> Result<AlignedBuf> {
    let mut commands = VecDeque::from([Command { tag: Tag(0), op }]);
    let mut done = Vec::new();
    queue.submit(&mut commands).map_err(failed)?;
    while done.is_empty() {
        queue.wait(&mut done, None).map_err(failed)?;
    }
    let completion = done.remove(0);
    completion.result.map_err(failed)?;
    Ok(completion.buf.expect("a read carries a buffer"))
}

fn scan_by_reads(queue: &mut dyn QueuePair, device: &FileDevice, pages: usize) -> Result<u64> {
    let each = READ / PAGE;
    let mut commands = VecDeque::new();
    let (mut next, mut total, mut done) = (0, 0u64, Vec::new());
    let mut buffers: Vec<AlignedBuf> = (0..READS).map(|_| AlignedBuf::zeroed(READ)).collect();
    loop {
        while next < pages
            && let Some(mut buf) = buffers.pop()
        {
            let count = each.min(pages - next);
            buf.set_len(count * PAGE);
            let op = Op::Read { lba: lba(device, next), buf };
            commands.push_back(Command { tag: Tag(0), op });
            next += count;
        }
        queue.submit(&mut commands).map_err(failed)?;
        if queue.in_flight() == 0 && commands.is_empty() {
            return Ok(total);
        }
        queue.wait(&mut done, None).map_err(failed)?;
        for completion in done.drain(..) {
            completion.result.map_err(failed)?;
            let mut buf = completion.buf.expect("a read carries a buffer");
            total = total.wrapping_add(sum(&buf));
            buf.set_len(READ);
            buffers.push(buf);
        }
    }
}

fn open_device(path: &Path) -> Result<FileDevice> {
    let options = FileOptions { create: Create::Never, fixed: true, ..FileOptions::default() };
    FileDevice::open(path, &options).map_err(failed)
}

fn in_arena(mode: Mode, args: &HostSsdSideArgs, size: usize) -> Result<Table, Stop> {
    let device = Arc::new(open_device(&args.pages)?);
    let budget_bytes = to_usize(args.memory);
    let options = Options { budget_bytes, slow_bytes: size, read_ahead: true, compress: false };
    let arena = match Arena::new(device, options, 0, mode) {
        Err(error @ PagerError::Refused(_)) => return Err(Stop::Skip(error.to_string())),
        other => other.map_err(Failure::from)?,
    };
    let memory = Bytes::in_arena(arena, size);
    let memory =
        memory.ok_or_else(|| Failure::new(ErrorKind::NoSpace, "the arena is too small"))?;
    Ok(Table::Memory(filled(memory)?))
}

fn filled(mut memory: Bytes) -> Result<Bytes> {
    let (pages, _) = memory.writable()?.as_chunks_mut::<PAGE>();
    pages.iter_mut().enumerate().for_each(|(page, bytes)| fill(page, bytes));
    Ok(memory)
}

fn mapped(path: &Path, size: usize, order: Order) -> Result<Table, Stop> {
    let file = File::open(path).map_err(|error| Failure::file(path, &error, "try again"))?;
    // Drop cached pages, so that this run's reads are charged to its cgroup.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let memory = Bytes::map_file(&file, size, order).map_err(system("mapping the table"))?;
    Ok(Table::Memory(memory))
}

fn with_umap(args: &HostSsdSideArgs, size: usize) -> Result<Table, Stop> {
    let library = args.umap.as_deref().unwrap_or(Path::new("libumap.so"));
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let file = rustix::fs::open(&args.table, flags, rustix::fs::Mode::empty());
    let file = file.map_err(|error| {
        Stop::Skip(format!("O_DIRECT is refused on {}: {error}", args.table.display()))
    })?;
    let memory = Bytes::in_umap(library, file.into(), size).map_err(system("umap"))?;
    let missing = || {
        let name = library.display();
        Stop::Skip(format!(
            "{name} cannot be loaded: build LLNL/umap and name its libumap.so with --umap"
        ))
    };
    Ok(Table::Memory(memory.ok_or_else(missing)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_differs_and_its_sum_is_that_of_its_words() {
        let mut bytes = vec![0; 2 * PAGE];
        let (first, second) = bytes.split_at_mut(PAGE);
        fill(0, first);
        fill(1, second);
        assert_ne!(first, second);
        let expected = (0..2)
            .flat_map(|page| (0..WORDS).map(move |at| word(page, at)))
            .fold(0, u64::wrapping_add);
        assert_eq!(sum(&bytes), expected);
        bytes[5000] ^= 1;
        assert_ne!(sum(&bytes), expected);
    }
}
