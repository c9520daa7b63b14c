//! The engine without a kernel: against a plain vector, on devices that complete in any order or
//! fail, and with any bytes for requests.

use std::collections::BTreeMap;
use std::time::Duration;

use esker_base::{Lba, Rng};
use esker_device::{Cause, Device, DeviceStats, MemoryDevice};
use esker_sim::{Fate, HookDevice};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::wire::requests::{allocate, request, transfer};

/// Replies by the names of their requests.
#[derive(Default)]
struct Inbox(BTreeMap<u64, (Result<(), Errno>, Vec<u8>)>);

impl Replies for Inbox {
    fn reply(&mut self, unique: u64, outcome: Result<(), Errno>, body: &[&[u8]]) {
        let before = self.0.insert(unique, (outcome, body.concat()));
        assert!(before.is_none(), "request {unique} got two replies");
    }
}

const MAX_WRITE: u32 = 128 << 10;

fn message(opcode: u32, unique: u64, node: u64, body: &[u8], data: &[u8]) -> Message {
    let mut bytes = request(opcode, unique, node, body);
    bytes.extend_from_slice(data);
    let len = u32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    raw(&bytes)
}

fn raw(bytes: &[u8]) -> Message {
    let mut message = Message::new(MAX_WRITE);
    let inline = bytes.len().min(HEAD_SIZE);
    message.head[..inline].copy_from_slice(&bytes[..inline]);
    message.data[..bytes.len() - inline].copy_from_slice(&bytes[inline..]);
    message.size = bytes.len();
    message
}

fn write(unique: u64, offset: u64, data: &[u8]) -> Message {
    message(16, unique, FILE, &transfer(offset, data.len(), 0), data)
}

fn read(unique: u64, offset: u64, size: usize) -> Message {
    message(15, unique, FILE, &transfer(offset, size, 0), &[])
}

/// A device that completes commands in any order, whose commands may fail, and that takes little
/// in one command.
struct Shuffled(Arc<Inner>);

struct Inner {
    memory: MemoryDevice,
    max_transfer: u32,
    rng: Mutex<Rng>,
    /// Commands until one fails.
    fails_in: Mutex<Option<u32>>,
}

impl Shuffled {
    fn new(bytes: u64, lba_size: u32, max_transfer: u32, seed: u64) -> Shuffled {
        let memory = MemoryDevice::new("m", bytes, lba_size);
        let rng = Mutex::new(Rng::new(seed));
        Shuffled(Arc::new(Inner { memory, max_transfer, rng, fails_in: Mutex::new(None) }))
    }
}

impl Device for Shuffled {
    fn name(&self) -> &str {
        "shuffled"
    }

    fn geometry(&self) -> Geometry {
        Geometry { max_transfer_size: self.0.max_transfer, ..self.0.memory.geometry() }
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let below = self.0.memory.queue_pair(depth)?;
        Ok(Box::new(ShuffledQueue { inner: self.0.clone(), below, held: Vec::new() }))
    }

    fn stats(&self) -> DeviceStats {
        self.0.memory.stats()
    }
}

struct ShuffledQueue {
    inner: Arc<Inner>,
    below: Box<dyn QueuePair>,
    held: Vec<Command>,
}

impl QueuePair for ShuffledQueue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let count = commands.len();
        for command in commands.drain(..) {
            let (_, bytes) = command.op.range(self.inner.memory.geometry().lba_size);
            let is_transfer = matches!(command.op, Op::Read { .. } | Op::Write { .. });
            assert!(!is_transfer || bytes <= u64::from(self.inner.max_transfer));
            self.held.push(command);
        }
        Ok(count)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        if self.held.is_empty() {
            return Ok(0);
        }
        let count = to_u64(self.held.len());
        let index = to_usize(self.inner.rng.lock().below(count));
        let command = self.held.swap_remove(index);
        let mut fails_in = self.inner.fails_in.lock();
        match &mut *fails_in {
            Some(0) => {
                let why = Cause::Media("broken".into());
                let error = DeviceError::new("shuffled", command.op.kind(), Lba(0), 0, why);
                *fails_in = None;
                let tag = command.tag;
                done.push(Completion { tag, result: Err(error), buf: command.op.into_buf() });
                return Ok(1);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.below.submit(&mut VecDeque::from([command]))?;
        self.below.poll(done)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        _timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.poll(done)
    }

    fn in_flight(&self) -> usize {
        self.held.len() + self.below.in_flight()
    }
}

fn engine_of(device: Arc<dyn Device>, read_only: bool) -> Engine {
    Engine::new(Arc::new(Volume::new(device, "disk", read_only, MAX_WRITE))).unwrap()
}

fn run_out(engines: &mut [Engine], inbox: &mut Inbox) {
    for _ in 0..100_000 {
        if engines.iter().all(|engine| engine.under_way() == 0) {
            return;
        }
        for engine in &mut *engines {
            engine.turn(inbox);
        }
    }
    panic!("requests do not end");
}

#[derive(Clone, Debug)]
enum Action {
    Read { offset: u64, size: usize },
    Write { offset: u64, size: usize, byte: u8 },
    Zero { offset: u64, size: u64, mode: u32 },
    Sync,
}

const SIZE: u64 = 200 << 10;

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let offset = prop_oneof![0..SIZE + 9000, (0..60u64).prop_map(|block| block * 4096)];
    let size = prop_oneof![1..20_000usize, Just(4096), Just(512), Just(60 << 10)];
    let place = (offset, size);
    let one = prop_oneof![
        place.clone().prop_map(|(offset, size)| Action::Read { offset, size }),
        (place.clone(), 1..255u8).prop_map(|((offset, size), byte)| Action::Write {
            offset,
            size,
            byte
        }),
        (place, prop_oneof![Just(3u32), Just(16), Just(17)]).prop_map(|((offset, size), mode)| {
            Action::Zero { offset, size: to_u64(size), mode }
        }),
        Just(Action::Sync),
    ];
    prop::collection::vec(one, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_file_of_any_requests_is_as_a_vector_of_bytes(
        actions in actions(),
        lba_size in prop_oneof![Just(512u32), Just(4096)],
        blocks in 1u32..9,
        seed in any::<u64>(),
    ) {
        let device = Shuffled::new(SIZE, lba_size, lba_size * blocks, seed);
        let mut engines = [engine_of(Arc::new(device), false)];
        let mut oracle = vec![0u8; to_usize(SIZE)];
        for (unique, action) in (1u64..).zip(actions) {
            let mut inbox = Inbox::default();
            let fit = |offset: u64, size: usize| {
                let begin = to_usize(offset.min(SIZE));
                begin..(begin + size).min(oracle.len())
            };
            match action {
                Action::Read { offset, size } => {
                    let range = fit(offset, size);
                    engines[0].accept(&mut read(unique, offset, size), &mut inbox);
                    run_out(&mut engines, &mut inbox);
                    let (outcome, body) = &inbox.0[&unique];
                    prop_assert_eq!(outcome, &Ok(()));
                    prop_assert!(body[..] == oracle[range], "{action:?}");
                }
                Action::Write { offset, size, byte } => {
                    let range = fit(offset, size);
                    let data = vec![byte; size];
                    engines[0].accept(&mut write(unique, offset, &data), &mut inbox);
                    run_out(&mut engines, &mut inbox);
                    let (outcome, body) = &inbox.0[&unique];
                    if range.is_empty() {
                        prop_assert_eq!(outcome, &Err(Errno::NOSPC));
                        continue;
                    }
                    prop_assert_eq!(outcome, &Ok(()));
                    let written = u32::try_from(range.len()).unwrap();
                    prop_assert_eq!(&body[..4], &written.to_le_bytes());
                    oracle[range].fill(byte);
                }
                Action::Zero { offset, size, mode } => {
                    let range = fit(offset, to_usize(size));
                    let body = allocate(offset, size, mode);
                    let mut asked = message(43, unique, FILE, &body, &[]);
                    engines[0].accept(&mut asked, &mut inbox);
                    run_out(&mut engines, &mut inbox);
                    if offset + size > SIZE && mode != 3 {
                        prop_assert_eq!(inbox.0[&unique].0, Err(Errno::NOSPC));
                        continue;
                    }
                    prop_assert_eq!(inbox.0[&unique].0, Ok(()));
                    oracle[range].fill(0);
                }
                Action::Sync => {
                    engines[0].accept(&mut message(20, unique, FILE, &[0; 16], &[]), &mut inbox);
                    run_out(&mut engines, &mut inbox);
                    prop_assert_eq!(inbox.0[&unique].0, Ok(()));
                }
            }
        }
    }

    /// Writes of bytes that lie side by side in the same LBAs, all at once, by two threads.
    #[test]
    fn neighbours_in_an_lba_do_not_undo_each_other(
        cuts in prop::collection::btree_set(1..40_000usize, 1..30),
        order in any::<u64>(),
    ) {
        let device: Arc<dyn Device> = Arc::new(Shuffled::new(48 << 10, 4096, 8192, order));
        let volume = Arc::new(Volume::new(device, "disk", false, MAX_WRITE));
        let mut engines =
            [Engine::new(volume.clone()).unwrap(), Engine::new(volume.clone()).unwrap()];
        let mut inbox = Inbox::default();
        let mut rng = Rng::new(order);
        let cuts: Vec<usize> = [vec![0], cuts.into_iter().collect()].concat();
        let mut pieces: Vec<(usize, usize)> = cuts.windows(2).map(|cut| (cut[0], cut[1])).collect();
        for index in (1..pieces.len()).rev() {
            pieces.swap(index, to_usize(rng.below(to_u64(index) + 1)));
        }
        for (unique, &(from, to)) in (1u64..).zip(&pieces) {
            let data = vec![u8::try_from(from % 251 + 1).unwrap(); to - from];
            let engine = to_usize(rng.below(2));
            engines[engine].accept(&mut write(unique, to_u64(from), &data), &mut inbox);
            for _ in 0..rng.below(3) {
                engines[to_usize(rng.below(2))].turn(&mut inbox);
            }
        }
        run_out(&mut engines, &mut inbox);
        prop_assert_eq!(inbox.0.len(), pieces.len());
        let end = *cuts.last().unwrap();
        engines[0].accept(&mut read(1 << 40, 0, end), &mut inbox);
        run_out(&mut engines, &mut inbox);
        let (outcome, found) = &inbox.0[&(1 << 40)];
        prop_assert_eq!(outcome, &Ok(()));
        for (from, to) in pieces {
            let byte = u8::try_from(from % 251 + 1).unwrap();
            prop_assert!(found[from..to].iter().all(|&has| has == byte), "{from}..{to}");
        }
    }

    #[test]
    fn any_bytes_get_at_most_one_reply_and_those_that_are_requests_exactly_one(
        opcode in 0u32..60, node in 0u64..4, body in prop::collection::vec(any::<u8>(), 0..200),
        honest in any::<bool>(),
    ) {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("m", SIZE, 4096));
        let mut engines = [engine_of(memory, false)];
        let mut inbox = Inbox::default();
        let mut bytes = request(opcode, 3, node, &body);
        if !honest {
            bytes[..4].copy_from_slice(&body.first_chunk().copied().unwrap_or([9; 4]));
        }
        engines[0].accept(&mut raw(&bytes), &mut inbox);
        run_out(&mut engines, &mut inbox);
        let is_silent = [2, 36, 42].contains(&opcode);
        prop_assert_eq!(inbox.0.len(), usize::from(!(honest && is_silent)));
        for cut in 0..bytes.len().min(60) {
            engines[0].accept(&mut raw(&bytes[..cut]), &mut Inbox::default());
        }
    }
}

#[test]
fn a_failed_command_fails_its_request_alone_and_gives_back_its_range() {
    for fails_in in 0..3 {
        let device = Shuffled::new(SIZE, 4096, 8192, 1);
        *device.0.fails_in.lock() = Some(fails_in);
        let mut engines = [engine_of(Arc::new(device), false)];
        let mut inbox = Inbox::default();
        // Two edges and the LBAs between them: two reads, then two writes.
        engines[0].accept(&mut write(1, 100, &[7; 12_000]), &mut inbox);
        run_out(&mut engines, &mut inbox);
        assert_eq!(inbox.0[&1].0, Err(Errno::IO), "{fails_in}");
        engines[0].accept(&mut write(2, 100, &[8; 12_000]), &mut inbox);
        run_out(&mut engines, &mut inbox);
        assert_eq!(inbox.0[&2].0, Ok(()));
        engines[0].accept(&mut read(3, 100, 12_000), &mut inbox);
        run_out(&mut engines, &mut inbox);
        assert!(inbox.0[&3].1.iter().all(|&byte| byte == 8));
    }
}

#[test]
fn nothing_is_changed_through_a_file_that_is_read_only() {
    let memory = Arc::new(MemoryDevice::new("m", SIZE, 4096));
    let mut engine = engine_of(memory.clone(), true);
    let mut inbox = Inbox::default();
    engine.accept(&mut write(1, 0, &[1; 4096]), &mut inbox);
    engine.accept(&mut message(43, 2, FILE, &allocate(0, 4096, 3), &[]), &mut inbox);
    engine.accept(&mut message(14, 3, FILE, &[1, 0, 0, 0, 0, 0, 0, 0], &[]), &mut inbox);
    for unique in 1..=3 {
        assert_eq!(inbox.0[&unique].0, Err(Errno::ROFS));
    }
    assert_eq!(memory.stats().writes + memory.stats().discards, 0);
}

#[test]
fn a_file_is_found_listed_and_has_the_size_of_its_device() {
    let mut engine = engine_of(Arc::new(MemoryDevice::new("m", SIZE, 4096)), false);
    let mut inbox = Inbox::default();
    engine.accept(&mut message(1, 1, 1, b"disk\0", &[]), &mut inbox);
    let size = &inbox.0[&1].1[48..56];
    assert_eq!(size, SIZE.to_le_bytes());
    engine.accept(&mut message(1, 2, 1, b"disc\0", &[]), &mut inbox);
    assert_eq!(inbox.0[&2].0, Err(Errno::NOENT));
    // A name that does not fit the head.
    let long = [vec![b'x'; 250], vec![0]].concat();
    engine.accept(&mut message(1, 3, 1, &long, &[]), &mut inbox);
    assert_eq!(inbox.0[&3].0, Err(Errno::NOENT));
    let mut set = [0; 88];
    set[0] = 1 << 3;
    engine.accept(&mut message(4, 4, FILE, &set, &[]), &mut inbox);
    assert_eq!(inbox.0[&4].0, Err(Errno::PERM));
}

#[test]
fn a_write_through_to_the_medium_says_so() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let memory = Arc::new(MemoryDevice::new("m", SIZE, 4096));
    let watched = HookDevice::new(memory).on_command(move |op| {
        if let Op::Write { fua, .. } = op {
            noted.lock().push(*fua);
        }
        Fate::Pass
    });
    let mut engines = [engine_of(Arc::new(watched), false)];
    let mut inbox = Inbox::default();
    for (unique, flags) in [(1, 0o10001), (2, 1)] {
        let body = transfer(0, 4096, flags);
        engines[0].accept(&mut message(16, unique, FILE, &body, &[1; 4096]), &mut inbox);
        run_out(&mut engines, &mut inbox);
    }
    assert_eq!(*seen.lock(), [true, false]);
}
