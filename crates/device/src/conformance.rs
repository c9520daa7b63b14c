//! Checks that the tests of every device run against it: random commands, many in flight, against
//! an oracle that knows the values each LBA may read as (see the contract at the crate's head).
//!
//! Every LBA written gets content made from its address and a version number, so the oracle holds
//! one number per LBA, and a discarded LBA may read as zeroes or as any of its older versions.

use std::collections::{BTreeMap, VecDeque};

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount, Rng};

use crate::{Command, Completion, Device, Op, Port, QueuePair, Tag};

/// LBAs that the random commands go to.
const WINDOW: u64 = 192;
/// Number of reads that look for poison, and the byte that is poison.
const POISONED: u32 = 16;
const POISON: u8 = 0xa5;
/// The most LBAs in one command.
const LARGEST: u64 = 24;

/// Runs `commands` random commands with up to `depth` in flight on the first LBAs of `device`,
/// then commands that are wrong, and checks everything that comes back. The device's content there
/// must be zero, and is lost.
///
/// # Panics
/// When the device breaks the contract; the message says how, and names the seed.
pub fn check(device: &dyn Device, depth: usize, commands: u64, seed: u64) {
    let mut run = Run::new(device, depth, seed);
    while run.next_tag < commands {
        run.submit_some(commands);
        run.reap();
    }
    run.drain();
    run.read_all();
    run.zero_all();
    wrong_commands_fail_alone(device);
    reads_fill_their_buffers(device, seed);
}

/// Reads LBAs of the whole device into buffers that hold poison, and checks that none is left: with
/// another poison the same read gives the same bytes. Nothing is written; nobody else may write
/// meanwhile. For devices that store nothing, too.
///
/// # Panics
/// When a read leaves bytes of its buffer as they were; the message says which.
pub fn reads_fill_their_buffers(device: &dyn Device, seed: u64) {
    let geometry = device.geometry();
    let mut port = Port::open(device, 2).expect("a port");
    let mut rng = Rng::new(seed);
    let most = u64::from(geometry.max_transfer_size / geometry.lba_size).min(256);
    for round in 0..POISONED {
        // The ends, where short reads are, and places between them.
        let count = (1 + rng.below(most)).min(geometry.capacity.0);
        let last = geometry.capacity.0 - count;
        let lba = Lba(match round {
            0 => 0,
            1 => last,
            _ => rng.below(last + 1),
        });
        let size = to_usize(LbaCount(count).bytes(geometry.lba_size));
        let mut read = |poison| {
            let mut buf = AlignedBuf::zeroed(size);
            buf.fill(poison);
            port.read(lba, buf).expect("a read within the device")
        };
        let (first, second) = (read(POISON), read(!POISON));
        let left = first.iter().zip(&second[..]).position(|(first, second)| first != second);
        assert_eq!(
            left,
            None,
            "{} (seed {seed}): the first byte that a read of {size} bytes at {lba} left as it was",
            device.name()
        );
    }
}

/// Contents that an LBA may read as.
#[derive(Clone, Copy, Default)]
struct Expected {
    /// The last version written; version 0 is zeroes.
    version: u64,
    /// Whether it was discarded since: any older version and zeroes will do.
    is_discarded: bool,
    /// Whether a command in flight covers it. Such commands have no order among themselves, so
    /// there is only one at a time.
    is_busy: bool,
}

struct Run<'a> {
    device: &'a dyn Device,
    queue: Box<dyn QueuePair>,
    depth: usize,
    seed: u64,
    rng: Rng,
    lbas: Vec<Expected>,
    next_tag: u64,
    next_version: u64,
    batch: VecDeque<Command>,
    pending: BTreeMap<Tag, (Lba, LbaCount, bool)>,
    done: Vec<Completion>,
}

impl<'a> Run<'a> {
    fn new(device: &'a dyn Device, depth: usize, seed: u64) -> Run<'a> {
        let window = device.geometry().capacity.0.min(WINDOW);
        let mut queue = device.queue_pair(depth).expect("a queue pair");
        let mut done = Vec::new();
        let idle = queue.poll(&mut done).unwrap() + queue.wait(&mut done, None).unwrap();
        assert_eq!(idle, 0, "{}: completions of no command", device.name());
        Run {
            device,
            queue,
            depth,
            seed,
            rng: Rng::new(seed),
            lbas: vec![Expected::default(); to_usize(window)],
            next_tag: 0,
            next_version: 1,
            batch: VecDeque::new(),
            pending: BTreeMap::new(),
            done,
        }
    }

    fn lba_size(&self) -> u32 {
        self.device.geometry().lba_size
    }

    /// Makes up commands on LBAs that no other covers, and submits them.
    fn submit_some(&mut self, commands: u64) {
        let tries = 1 + self.rng.below(to_u64(self.depth) * 2);
        for _ in 0..tries {
            let window = to_u64(self.lbas.len());
            let first = self.rng.below(window);
            let count = 1 + self.rng.below(LARGEST.min(window - first));
            let range = to_usize(first)..to_usize(first + count);
            if self.next_tag == commands || self.lbas[range].iter().any(|lba| lba.is_busy) {
                continue;
            }
            let op = self.random_op(Lba(first), LbaCount(count));
            self.push(op);
        }
        let (waiting, in_flight) = (self.batch.len(), self.queue.in_flight());
        let taken = self.queue.submit(&mut self.batch).expect("submit");
        let room = self.depth - in_flight;
        assert_eq!(taken, waiting.min(room), "{}: commands taken", self.about());
        assert_eq!(self.batch.len(), waiting - taken);
        assert_eq!(self.queue.in_flight(), in_flight + taken);
    }

    fn random_op(&mut self, lba: Lba, count: LbaCount) -> Op {
        let size = to_usize(count.bytes(self.lba_size()));
        match self.rng.below(20) {
            0..8 => {
                let mut buf = AlignedBuf::zeroed(size);
                buf.fill(POISON); // whatever is not read shows
                Op::Read { lba, buf }
            }
            8..16 => Op::Write {
                lba,
                buf: self.content(lba, count),
                placement: None,
                fua: self.rng.chance(1, 4),
            },
            16 => Op::Discard { lba, count },
            17..19 => Op::WriteZeroes { lba, count },
            _ => Op::Flush,
        }
    }

    /// New content for a range, a version of its own for each LBA.
    fn content(&mut self, lba: Lba, count: LbaCount) -> AlignedBuf {
        let lba_size = to_usize(u64::from(self.lba_size()));
        let mut buf = AlignedBuf::zeroed(to_usize(count.0) * lba_size);
        for (lba, block) in (lba.0..).zip(buf.chunks_mut(lba_size)) {
            fill(block, Lba(lba), self.next_version);
            self.lbas[to_usize(lba)].version = self.next_version;
            self.lbas[to_usize(lba)].is_discarded = false;
            self.next_version += 1;
        }
        buf
    }

    fn push(&mut self, op: Op) {
        let (lba, bytes) = op.range(self.lba_size());
        let count = LbaCount::holding(bytes, self.lba_size());
        for expected in &mut self.lbas[to_usize(lba.0)..to_usize(lba.0 + count.0)] {
            expected.is_busy = true;
            match op {
                Op::WriteZeroes { .. } => {
                    expected.version = 0;
                    expected.is_discarded = false;
                }
                Op::Discard { .. } if self.device.discards_zero() => {
                    expected.version = 0;
                    expected.is_discarded = false;
                }
                Op::Discard { .. } => expected.is_discarded = true,
                _ => {}
            }
        }
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        let is_read = matches!(op, Op::Read { .. });
        self.pending.insert(tag, (lba, count, is_read));
        self.batch.push_back(Command { tag, op });
    }

    /// Takes finished commands, sometimes waiting for them.
    fn reap(&mut self) {
        let before = self.queue.in_flight();
        let count = match self.rng.below(3) {
            0 => self.queue.poll(&mut self.done),
            1 => self.queue.wait(&mut self.done, Some(std::time::Duration::from_secs(60))),
            _ => self.queue.wait(&mut self.done, None),
        };
        let count = count.expect("poll or wait");
        assert_eq!(count, self.done.len(), "{}: completions", self.about());
        assert_eq!(self.queue.in_flight(), before - count);
        for completion in std::mem::take(&mut self.done) {
            self.verify(completion);
        }
    }

    fn drain(&mut self) {
        while !self.pending.is_empty() {
            self.queue.submit(&mut self.batch).expect("submit");
            self.reap();
        }
    }

    fn verify(&mut self, completion: Completion) {
        let Completion { tag, result, buf } = completion;
        let (lba, count, is_read) = self.pending.remove(&tag).expect("a tag in flight, once");
        if let Err(error) = result {
            panic!("{}: {error}", self.about());
        }
        let range = to_usize(lba.0)..to_usize(lba.0 + count.0);
        self.lbas[range].iter_mut().for_each(|lba| lba.is_busy = false);
        if !is_read {
            return;
        }
        let buf = buf.expect("a read gives its buffer back");
        let blocks = buf.chunks(to_usize(u64::from(self.lba_size())));
        assert_eq!(to_u64(blocks.len()), count.0);
        for (lba, block) in (lba.0..).zip(blocks) {
            self.verify_lba(Lba(lba), block);
        }
    }

    fn verify_lba(&self, lba: Lba, block: &[u8]) {
        let expected = self.lbas[to_usize(lba.0)];
        let mut content = vec![0; block.len()];
        let mut is = |version| {
            fill(&mut content, lba, version);
            content == block
        };
        let is_good =
            is(expected.version) || expected.is_discarded && (0..self.next_version).any(&mut is);
        assert!(
            is_good,
            "{}: {lba} is not version {}{}",
            self.about(),
            expected.version,
            if expected.is_discarded { " or older" } else { "" }
        );
    }

    fn read_all(&mut self) {
        let mut lba = 0;
        while lba < to_u64(self.lbas.len()) {
            let count = LARGEST.min(to_u64(self.lbas.len()) - lba);
            let mut buf = AlignedBuf::zeroed(to_usize(LbaCount(count).bytes(self.lba_size())));
            buf.fill(POISON);
            self.push(Op::Read { lba: Lba(lba), buf });
            lba += count;
        }
        self.drain();
    }

    fn zero_all(&mut self) {
        let count = LbaCount(to_u64(self.lbas.len()));
        self.push(Op::WriteZeroes { lba: Lba(0), count });
        self.drain();
        self.read_all();
    }

    fn about(&self) -> String {
        format!("{} (seed {})", self.device.name(), self.seed)
    }
}

/// The content of a version of an LBA.
fn fill(block: &mut [u8], lba: Lba, version: u64) {
    if version == 0 {
        return block.fill(0);
    }
    Rng::new(lba.0 << 32 ^ version).fill(block);
}

fn wrong_commands_fail_alone(device: &dyn Device) {
    let geometry = device.geometry();
    let (end, lba_size) = (Lba(geometry.capacity.0), geometry.lba_size);
    let size = to_usize(u64::from(lba_size));
    let read = |lba, size| Op::Read { lba, buf: AlignedBuf::zeroed(size) };
    let write =
        |lba, size| Op::Write { lba, buf: AlignedBuf::zeroed(size), placement: None, fua: false };
    let discard = |lba, count| Op::Discard { lba, count: LbaCount(count) };
    let wrong = [
        read(end, size),
        read(Lba(u64::MAX), size),
        read(Lba(0), size - 1),
        read(Lba(0), 0),
        write(Lba(end.0 - 1), 2 * size),
        write(Lba(0), size + 1),
        discard(Lba(0), end.0 + 1),
        discard(Lba(1), u64::MAX),
        discard(Lba(0), 0),
    ];
    let errors = device.stats().errors;
    let count = to_u64(wrong.len());
    let mut port = Port::open(device, 4).expect("a port");
    for op in wrong {
        let (kind, (lba, _)) = (op.kind(), op.range(lba_size));
        let error = port.run(op).expect_err("a wrong command");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!((error.op(), error.lba()), (kind, lba), "{error}");
    }
    assert_eq!(device.stats().errors, errors + count, "{}", device.name());
    for depth in [0, crate::MAX_DEPTH + 1] {
        let refused = device.queue_pair(depth).map(drop).expect_err("a bad depth");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    port.run(write(Lba(0), size)).expect("the port still works");
}
