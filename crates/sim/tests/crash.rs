//! Crash images are the states that the contract of a device allows, all of them and nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, LbaCount, Rng};
use esker_device::{Command, Device, MemoryDevice, Op, Port, QueuePair, Tag, conformance};
use esker_sim::{CrashRecorder, Effect, FaultDevice, FaultPlan, Image, ImageId, Plan, Target};

const LBA: usize = 512;
/// LBAs of the test devices.
const LBAS: u64 = 8;

fn memory(name: &str) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(name, LBAS * to_u64(LBA), 512))
}

fn write(lba: u64, versions: &[u8], fua: bool) -> Op {
    let content: Vec<u8> = versions.iter().flat_map(|&v| [v; LBA]).collect();
    Op::Write { lba: Lba(lba), buf: AlignedBuf::padded(&content, LBA), placement: None, fua }
}

/// The first byte of every LBA, after checking that the rest of the LBA agrees.
fn state(device: &dyn Device) -> Vec<u8> {
    let mut port = Port::open(device, 1).unwrap();
    let size = to_usize(LBAS) * LBA;
    let bytes = port.read(Lba(0), AlignedBuf::zeroed(size)).unwrap();
    let lbas = bytes.chunks(LBA);
    lbas.inspect(|lba| assert!(lba.iter().all(|&b| b == lba[0]))).map(|lba| lba[0]).collect()
}

/// The oracle: for every LBA of every device its operations, in the order of completion. Each has
/// the moments of its submission and completion, and when it became durable.
#[derive(Default)]
struct Oracle {
    /// Moves with every submission and completion.
    now: usize,
    touches: BTreeMap<(usize, u64), Vec<Touch>>,
    /// The moment of every event of the history.
    events: Vec<usize>,
    /// For every event, how many flushes and writes with FUA there were up to it.
    epochs: Vec<usize>,
}

#[derive(Clone)]
struct Touch {
    /// The content, or a discard.
    version: Option<u8>,
    submitted: usize,
    completed: usize,
    durable: usize,
}

const NEVER: usize = usize::MAX;

impl Oracle {
    fn event(&mut self, changes_durable: bool) {
        self.events.push(self.now);
        let epoch = self.epochs.last().copied().unwrap_or(0);
        self.epochs.push(epoch + usize::from(changes_durable));
    }

    fn epoch(&self, point: usize) -> usize {
        point.checked_sub(1).map_or(0, |event| self.epochs[event])
    }

    /// Returns the bytes that a crash between event `point` and the next may leave of an LBA.
    fn allowed(&self, at: (usize, u64), point: usize) -> BTreeSet<u8> {
        let start = point.checked_sub(1).map_or(0, |event| self.events[event]);
        let end = self.events.get(point).copied().unwrap_or(NEVER);
        let mut allowed = BTreeSet::from([0]);
        let mut touches = self.touches.get(&at).cloned().unwrap_or_default();
        touches.retain(|t| t.submitted < end);
        touches.sort_by_key(|t| (t.completed, t.submitted));
        for touch in touches {
            match touch.version {
                None => {
                    allowed.insert(0);
                }
                Some(version) => {
                    if touch.durable <= start {
                        allowed.clear();
                    }
                    allowed.insert(version);
                }
            }
        }
        allowed
    }
}

/// Drives queue pairs of two devices with random commands, several in flight, completing out of
/// order, some failing, and tells the oracle.
struct Program {
    rng: Rng,
    recorder: CrashRecorder,
    queues: Vec<Box<dyn QueuePair>>,
    oracle: Oracle,
    flying: BTreeMap<u64, Flying>,
    next: u64,
}

enum Flying {
    Flush { device: usize, submitted: usize },
    Touch { places: Vec<((usize, u64), usize)>, fua: bool },
}

impl Program {
    fn new(seed: u64, faulty: bool) -> Program {
        let recorder = CrashRecorder::new();
        let mut rng = Rng::new(seed);
        let queues = (0..2).map(|index| {
            let plan = FaultPlan::new();
            for nth in 0..200 {
                match rng.below(20) {
                    0 if faulty => plan.once(Target::Any, nth, Effect::Fail),
                    1 if faulty => plan.once(Target::Any, nth, Effect::Short),
                    2..10 => {
                        let count = 1 + u32::try_from(rng.below(3)).unwrap();
                        plan.once(Target::Any, nth, Effect::DelayPolls { count });
                    }
                    _ => {}
                }
            }
            let device = FaultDevice::new(memory(&format!("d{index}")), &plan);
            recorder.attach(Arc::new(device)).queue_pair(3).unwrap()
        });
        Program {
            queues: queues.collect(),
            recorder: recorder.clone(),
            rng,
            oracle: Oracle::default(),
            flying: BTreeMap::new(),
            next: 0,
        }
    }

    fn run(mut self, steps: usize) -> (CrashRecorder, Oracle) {
        for _ in 0..steps {
            let device = to_usize(self.rng.below(2));
            if self.rng.chance(1, 2) {
                self.submit(device);
            } else {
                self.poll(device);
            }
        }
        (self.recorder, self.oracle)
    }

    fn submit(&mut self, device: usize) {
        let tag = self.next;
        self.next += 1;
        self.oracle.now += 1;
        let submitted = self.oracle.now;
        let lba = self.rng.below(LBAS);
        let count = 1 + self.rng.below((LBAS - lba).min(3));
        // Commands in flight on one LBA have no order: a program that is in its senses waits.
        let busy = |flying: &Flying| match flying {
            Flying::Touch { places, .. } => {
                places.iter().any(|((d, l), _)| *d == device && (lba..lba + count).contains(l))
            }
            Flying::Flush { .. } => false,
        };
        if self.flying.values().any(busy) {
            return;
        }
        // Versions of one LBA differ: 1 to 255, enough for a run.
        let versions: Vec<Option<u8>> = (lba..lba + count)
            .map(|l| self.oracle.touches.get(&(device, l)).map_or(0, Vec::len) + 1)
            .map(|version| Some(u8::try_from(version).unwrap()))
            .collect();
        let content: Vec<u8> = versions.iter().flatten().copied().collect();
        let (lba_, count_) = (Lba(lba), LbaCount(count));
        let (op, versions, fua) = match self.rng.below(12) {
            0..3 => (Op::Flush, None, false),
            3 => {
                let op = Op::Discard { lba: lba_, count: count_ };
                (op, Some(vec![None; to_usize(count)]), false)
            }
            4 => {
                let op = Op::WriteZeroes { lba: lba_, count: count_ };
                (op, Some(vec![Some(0); to_usize(count)]), false)
            }
            5 | 6 => (write(lba, &content, true), Some(versions), true),
            _ => (write(lba, &content, false), Some(versions), false),
        };
        let mut commands = VecDeque::from([Command { tag: Tag(tag), op }]);
        if self.queues[device].submit(&mut commands).unwrap() == 0 {
            return;
        }
        let Some(versions) = versions else {
            self.flying.insert(tag, Flying::Flush { device, submitted });
            return;
        };
        let places = (lba..).zip(versions).map(|(l, version)| {
            let touches = self.oracle.touches.entry((device, l)).or_default();
            touches.push(Touch { version, submitted, completed: NEVER, durable: NEVER });
            ((device, l), touches.len() - 1)
        });
        let places = places.collect();
        self.flying.insert(tag, Flying::Touch { places, fua });
    }

    fn poll(&mut self, device: usize) {
        let mut done = Vec::new();
        self.queues[device].poll(&mut done).unwrap();
        for completion in done {
            self.oracle.now += 1;
            let now = self.oracle.now;
            let ok = completion.result.is_ok();
            match self.flying.remove(&completion.tag.0).unwrap() {
                Flying::Flush { device, submitted } if ok => {
                    self.oracle.event(true);
                    let all = self.oracle.touches.iter_mut();
                    for (_, touches) in all.filter(|((d, _), _)| *d == device) {
                        for touch in touches {
                            // A failed one never becomes durable: durable 0 marks it below.
                            if touch.completed < submitted && touch.durable == NEVER - 1 {
                                touch.durable = now;
                            }
                        }
                    }
                }
                Flying::Flush { .. } => {}
                Flying::Touch { places, fua } => {
                    self.oracle.event(fua);
                    for (place, index) in places {
                        let touch = &mut self.oracle.touches.get_mut(&place).unwrap()[index];
                        touch.completed = now;
                        // NEVER - 1: not durable yet, but a flush can change that.
                        touch.durable = match (ok, fua) {
                            (true, true) => now,
                            (true, false) => NEVER - 1,
                            (false, _) => NEVER,
                        };
                    }
                }
            }
        }
    }
}

#[test]
fn every_lba_of_every_image_holds_what_the_contract_allows() {
    let mut images = 0;
    for seed in 0..150 {
        let (recorder, oracle) = Program::new(seed, seed % 2 == 1).run(120);
        let history = recorder.history();
        assert_eq!(history.len(), oracle.events.len());
        for image in history.images(&Plan { seed, ..Plan::default() }) {
            images += 1;
            for device in 0..2 {
                for (lba, version) in (0..).zip(state(&*image.device(device))) {
                    let allowed = oracle.allowed((device, lba), image.id().point);
                    assert!(
                        allowed.contains(&version),
                        "seed {seed}: LBA {lba} of device {device} holds {version}, \
                         not one of {allowed:?}\n{image}"
                    );
                }
            }
        }
    }
    assert!(images > 100_000, "{images}");
}

#[test]
fn every_allowed_version_of_every_lba_is_in_some_image() {
    for seed in 0..60 {
        let (recorder, oracle) = Program::new(seed, seed % 2 == 1).run(60);
        let history = recorder.history();
        let mut reached: BTreeSet<(usize, (usize, u64), u8)> = BTreeSet::new();
        let mut allowed = BTreeSet::new();
        for image in history.images(&Plan::default()) {
            for device in 0..2 {
                for (lba, version) in (0..).zip(state(&*image.device(device))) {
                    reached.insert((image.id().point, (device, lba), version));
                }
            }
        }
        for point in 0..=history.len() {
            for at in (0..2).flat_map(|d| (0..LBAS).map(move |l| (d, l))) {
                let touches = oracle.touches.get(&at);
                // A durable discard takes one of its two outcomes, by a fixed rule.
                if touches.is_some_and(|all| all.iter().any(|t| t.version.is_none())) {
                    continue;
                }
                for version in oracle.allowed(at, point) {
                    allowed.insert((point, at, version));
                }
            }
        }
        // An image that an earlier point could leave just as well is not made again, as long as
        // nothing has become durable since.
        for (point, at, version) in allowed {
            let mut since = (0..=point).filter(|&p| oracle.epoch(p) == oracle.epoch(point));
            let earlier = since.any(|p| reached.contains(&(p, at, version)));
            assert!(earlier, "seed {seed}: point {point}, {at:?}, version {version}");
        }
    }
}

#[test]
fn small_histories_yield_exactly_the_subsets_of_their_unflushed_writes() {
    let mut rng = Rng::new(21);
    for _ in 0..300 {
        let recorder = CrashRecorder::new();
        let device = recorder.attach(memory("d"));
        let mut port = Port::open(&*device, 1).unwrap();
        // The oracle: states after each whole subset of the unflushed writes, by brute force.
        let mut durable = vec![0u8; to_usize(LBAS)];
        let mut unflushed: Vec<(u64, u8)> = Vec::new();
        let mut expected = BTreeSet::from([durable.clone()]);
        for version in 1..10 {
            if rng.chance(1, 4) || unflushed.len() == 5 {
                port.flush().unwrap();
                for (lba, version) in unflushed.drain(..) {
                    durable[to_usize(lba)] = version;
                }
            } else {
                let lba = rng.below(4);
                port.run(write(lba, &[version], false)).unwrap();
                unflushed.push((lba, version));
            }
            for subset in 0..1u32 << unflushed.len() {
                let mut state = durable.clone();
                for (index, (lba, version)) in unflushed.iter().enumerate() {
                    if subset >> index & 1 == 1 {
                        state[to_usize(*lba)] = *version;
                    }
                }
                expected.insert(state);
            }
        }
        let images = recorder.history().images(&Plan::default());
        let states: BTreeSet<Vec<u8>> = images.map(|image| state(&*image.device(0))).collect();
        assert_eq!(states, expected);
    }
}

#[test]
fn large_histories_have_prefixes_singles_subsets_and_tears() {
    let recorder = CrashRecorder::new();
    let device = recorder.attach(Arc::new(MemoryDevice::new("d", 1 << 20, 512)));
    let mut port = Port::open(&*device, 1).unwrap();
    for n in 0..20 {
        port.run(write(4 * n, &[1; 4], false)).unwrap();
    }
    let history = recorder.history();
    let images: Vec<ImageId> =
        history.images(&Plan::default()).map(|image| image.id().clone()).collect();
    let whole = |wanted: Vec<usize>| {
        images.iter().any(|id| {
            let kept: Vec<usize> = id.kept.iter().map(|k| k.operation).collect();
            kept == wanted && id.kept.iter().all(|k| k.lbas.is_none())
        })
    };
    for n in 0..20 {
        assert!(whole((0..n).collect()), "prefix {n}");
        assert!(whole(vec![n]), "only {n}");
        assert!(whole((0..20).filter(|&m| m != n).collect()), "all but {n}");
        let torn = |id: &ImageId| {
            let is_last = id.kept.last().is_some_and(|k| k.operation == n && k.lbas.is_some());
            is_last && id.kept.len() == n + 1
        };
        let tears = images.iter().filter(|id| torn(id));
        let tears: Vec<String> =
            tears.map(|id| id.kept[n].lbas.clone().unwrap().to_string()).collect();
        assert!(tears.iter().any(|lbas| lbas.starts_with('0')), "{tears:?}");
        assert!(tears.iter().any(|lbas| lbas.ends_with('3')), "{tears:?}");
    }
    let without = Plan { random_subsets: 0, ..Plan::default() };
    let without: BTreeSet<ImageId> = history.images(&without).map(|i| i.id().clone()).collect();
    for point in 7..20 {
        let random = images.iter().filter(|id| {
            id.point == point && id.kept.iter().all(|k| k.lbas.is_none()) && !without.contains(id)
        });
        // Eight, less those that are one of the above by chance.
        assert!((1..=8).contains(&random.count()), "point {point}");
    }
    let distinct: BTreeSet<&ImageId> = images.iter().collect();
    assert_eq!(distinct.len(), images.len());
}

#[test]
fn a_durable_discard_leaves_zeroes_or_what_was_there_before() {
    let recorder = CrashRecorder::new();
    let device = recorder.attach(memory("d"));
    let mut port = Port::open(&*device, 1).unwrap();
    let mut outcomes = BTreeSet::new();
    for _ in 0..12 {
        port.run(write(0, &[1; 8], false)).unwrap();
        port.discard(Lba(0), LbaCount(LBAS)).unwrap();
        port.flush().unwrap();
        let image = recorder.history().images(&Plan::default()).last().unwrap();
        assert!(image.id().kept.is_empty());
        outcomes.insert(state(&*image.device(0)));
    }
    assert!(outcomes.contains([0; 8].as_slice()) && outcomes.contains([1; 8].as_slice()));
    assert!(outcomes.len() > 2, "and some in part: {outcomes:?}");
}

#[test]
fn a_durable_discard_leaves_zeroes_where_that_is_promised() {
    let recorder = CrashRecorder::new();
    let device = recorder.attach_zeroing(memory("d"));
    assert!(device.discards_zero() && !recorder.attach(memory("other")).discards_zero());
    let mut port = Port::open(&*device, 1).unwrap();
    for _ in 0..6 {
        port.run(write(0, &[1; 8], true)).unwrap();
        port.discard(Lba(0), LbaCount(LBAS)).unwrap();
        let pending = recorder.history().images(&Plan::default());
        let states: BTreeSet<Vec<u8>> = pending.map(|image| state(&*image.device(0))).collect();
        assert!(states.contains([1; 8].as_slice()), "not flushed, it may be lost");
        port.flush().unwrap();
        let image = recorder.history().images(&Plan::default()).last().unwrap();
        assert!(image.device(0).discards_zero());
        assert_eq!(state(&*image.device(0)), [0; 8]);
    }
}

/// Writes versions 1, 2, … to two devices, flushes both, and marks the version.
fn versions(recorder: &CrashRecorder, count: u8) {
    let devices = [recorder.attach(memory("a")), recorder.attach(memory("b"))];
    let mut ports = devices.map(|device| Port::open(&*device, 1).unwrap());
    for version in 1..=count {
        for port in &mut ports {
            port.run(write(0, &[version; 2], false)).unwrap();
        }
        for port in &mut ports {
            port.flush().unwrap();
        }
        recorder.mark(u64::from(version));
    }
}

fn lost_marks(recorder: &CrashRecorder) -> Option<Image> {
    recorder.history().images(&Plan::default()).find(|image| {
        let marked = image.marks().last().copied().unwrap_or(0);
        (0..2).any(|device| {
            let state = state(&*image.device(device));
            u64::from(state[0].min(state[1])) < marked
        })
    })
}

#[test]
fn marks_after_a_flush_survive_until_any_flush_is_skipped() {
    let recorder = CrashRecorder::new();
    versions(&recorder, 4);
    assert!(lost_marks(&recorder).is_none());
    let history = recorder.history();
    assert_eq!((history.flushes(0), history.flushes(1)), (4, 4));
    assert_eq!(history.marks_before(history.len()), [1, 2, 3, 4]);
    assert!(history.marks_before(4).is_empty());
    assert_eq!(history.marks_before(5), [1]);
    for device in 0..2 {
        for n in 0..4 {
            let recorder = CrashRecorder::new();
            recorder.skip_flush(device, n);
            versions(&recorder, 4);
            let image = lost_marks(&recorder).expect("a skipped flush loses a mark");
            assert_eq!(image.marks().last(), Some(&(n + 1)), "{image}");
        }
    }
}

#[test]
fn devices_forget_independently() {
    let recorder = CrashRecorder::new();
    versions(&recorder, 1);
    let images = recorder.history().images(&Plan::default());
    let seen: BTreeSet<(u8, u8)> =
        images.map(|image| (state(&*image.device(0))[0], state(&*image.device(1))[0])).collect();
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 1), (1, 0), (1, 1)]));
}

#[test]
fn an_image_is_rebuilt_from_its_name_and_says_what_it_is() {
    let (recorder, _) = Program::new(4, true).run(80);
    let history = recorder.history();
    let plan = Plan { tears: 2, ..Plan::default() };
    for image in history.images(&plan).step_by(7) {
        let text = image.id().to_string();
        let again = history.image(&text.parse().unwrap()).unwrap();
        assert_eq!(again.to_string(), image.to_string());
        for device in 0..2 {
            assert_eq!(state(&*again.device(device)), state(&*image.device(device)));
        }
    }

    let recorder = CrashRecorder::new();
    let device = recorder.attach(memory("log"));
    let mut port = Port::open(&*device, 1).unwrap();
    port.run(write(1, &[1, 1, 1], false)).unwrap();
    port.run(write(6, &[2], false)).unwrap();
    port.discard(Lba(0), LbaCount(2)).unwrap();
    let id: ImageId = "point 2 keep 0[0,2] 1".parse().unwrap();
    assert_eq!(
        recorder.history().image(&id).unwrap().to_string(),
        "crash image 'point 2 keep 0[0,2] 1'\n  \
         event 2 of 3: operation 1, write of 1 LBAs at LBA 6 of 'log' completed\n  \
         operation 0, write of 3 LBAs at LBA 1 of 'log': torn, LBAs 0,2 kept\n  \
         operation 1, write of 1 LBAs at LBA 6 of 'log': kept\n  \
         operation 2, discard of 2 LBAs at LBA 0 of 'log': lost"
    );
}

#[test]
fn names_that_name_no_image_are_refused() {
    for text in
        ["", "point", "point x keep 1", "point 1 keep 1[", "point 1 keep 1[]", "point 1 keep -"]
    {
        let error = text.parse::<ImageId>().unwrap_err();
        assert!(error.to_string().contains("expected"), "{error}");
    }
    let recorder = CrashRecorder::new();
    versions(&recorder, 1);
    let history = recorder.history();
    for text in ["point 99 keep nothing", "point 1 keep 7", "point 5 keep 0"] {
        let error = history.image(&text.parse().unwrap()).err().unwrap();
        assert!(error.to_string().contains("names no crash image"), "{error}");
    }
}

#[test]
fn devices_of_an_image_do_not_see_each_other() {
    let recorder = CrashRecorder::new();
    versions(&recorder, 2);
    let image = recorder.history().images(&Plan::default()).last().unwrap();
    let before = state(&*image.device(0));
    let one = image.device(0);
    Port::open(&*one, 1).unwrap().run(write(0, &[9; 8], false)).unwrap();
    assert_eq!(state(&*one), [9; 8]);
    assert_eq!(state(&*image.device(0)), before);
}

#[test]
fn a_recovery_can_crash_too() {
    let recorder = CrashRecorder::new();
    versions(&recorder, 3);
    let image = recorder.history().images(&Plan::default()).last().unwrap();
    let before = state(&*image.device(0));
    let again = CrashRecorder::new();
    let device = again.attach_holding(image.device(0), LbaCount(LBAS)).unwrap();
    assert!(device.geometry().volatile_write_cache);
    Port::open(&*device, 1).unwrap().run(write(1, &[9], false)).unwrap();
    let images = again.history().images(&Plan::default());
    let states: BTreeSet<Vec<u8>> = images.map(|image| state(&*image.device(0))).collect();
    let mut after = before.clone();
    after[1] = 9;
    assert_eq!(states, BTreeSet::from([before, after]));
}

#[test]
fn the_devices_of_this_crate_keep_the_contract() {
    let fresh = || Arc::new(MemoryDevice::new("m", 1 << 20, 512));
    let recorder = CrashRecorder::new();
    conformance::check(&*recorder.attach(fresh()), 8, 1500, 1);
    conformance::check(&*recorder.attach_zeroing(fresh()), 8, 1500, 5);
    conformance::check(&FaultDevice::new(fresh(), &FaultPlan::new()), 8, 1500, 2);
    let late = FaultPlan::new();
    late.from_then_on(Target::Any, 0, Effect::DelayPolls { count: 2 });
    conformance::check(&FaultDevice::new(fresh(), &late), 8, 1500, 3);
    let empty = CrashRecorder::new();
    drop(empty.attach(fresh()));
    let image = empty.history().images(&Plan::default()).next().unwrap();
    conformance::check(&*image.device(0), 8, 1500, 4);
}

#[test]
fn a_refused_command_leaves_no_trace() {
    let recorder = CrashRecorder::new();
    let device = recorder.attach(memory("d"));
    let mut port = Port::open(&*device, 1).unwrap();
    assert!(port.run(write(LBAS - 1, &[1; 2], false)).is_err());
    assert!(recorder.history().is_empty());
    assert_eq!(recorder.history().images(&Plan::default()).count(), 1);
}
