//! A crash after every write, with any subset of the unflushed writes. In every mode no flushed block is lost, none is
//! stale or torn, and content that was read once stays.

use crate::rig;
use std::sync::Arc;

use crate::oracle::{Act, Oracle, op, random};
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, LbaCount, Rng};
use esker_cache::omf::Superblock;
use esker_cache::{Cache, Mode};
use esker_device::{Device, Port};
use esker_sim::{CrashRecorder, Image, Plan};

/// Steps of a script: commands and others.
#[derive(Clone, Debug)]
enum Step {
    Act(Act),
    /// Writes that a flush overtakes: all are under way at once.
    Overtaken(Vec<Act>),
    Mode(Mode),
    /// A step in the background; idle or not.
    Background(bool),
    CleanAll,
    Close,
    /// Another size of the cache, in bytes.
    Resize(u64),
}

struct Script {
    mode: Mode,
    lba_sizes: (u32, u32),
    steps: Vec<Step>,
    /// Whether the cache is one of version 3.
    is_former: bool,
}

impl Script {
    fn random(seed: u64, mode: Mode, count: usize) -> Script {
        let mut rng = Rng::new(seed);
        let sizes = [(512, 512), (4096, 4096), (512, 4096), (4096, 512)];
        let lba_sizes = sizes[usize::try_from(rng.below(4)).unwrap()];
        let per_block = u64::from(4096 / lba_sizes.0);
        let lbas = rig::ORIGIN / u64::from(lba_sizes.0);
        let steps = (0..count).map(|n| match rng.below(24) {
            0 => Step::Background(false),
            1 | 2 => Step::Background(true),
            3 => Step::CleanAll,
            4 => Step::Close,
            6 if count < 100 => Step::Resize(rig::FLASH + rng.below(5) * (rig::SPARE / 4)),
            5 => Step::Mode(rig::MODES[usize::try_from(rng.below(3)).unwrap()]),
            _ => Step::Act(random(&mut rng, lbas, per_block, n as u64 + 1)),
        });
        Script { mode, lba_sizes, steps: steps.collect(), is_former: false }
    }

    fn lbas(&self) -> u64 {
        rig::ORIGIN / u64::from(self.lba_sizes.0)
    }

    /// Runs it on recorded devices; mark n says that step n is done.
    fn record(&self) -> CrashRecorder {
        let (origin, mut flash) = rig::devices(self.mode, self.lba_sizes.0, self.lba_sizes.1);
        if self.is_former {
            flash = rig::former(&flash, 3);
        }
        let recorder = CrashRecorder::new();
        let origin: Arc<dyn Device> = recorder.attach_zeroing(origin);
        let extent = flash.geometry().capacity;
        let flash: Arc<dyn Device> = recorder.attach_holding(flash, extent).unwrap();
        let cache = rig::open(&origin, &flash);
        let mut port = Port::open(&cache, 4).unwrap();
        let mut live = Oracle::new(self.lbas(), self.lba_sizes.0 as usize);
        for (n, step) in self.steps.iter().enumerate() {
            match step {
                Step::Act(act) => {
                    let buf = port.run(op(act, self.lba_sizes.0 as usize)).unwrap();
                    live.done(act);
                    if let Act::Read { lba, .. } = act {
                        live.check(*lba, &buf.unwrap(), &format!("step {n}, no crash"));
                    }
                }
                Step::Overtaken(acts) => {
                    let ops = acts.iter().chain([&Act::Flush]);
                    let ops = ops.map(|act| op(act, self.lba_sizes.0 as usize));
                    port.run_all(ops, |_, result| drop(result.unwrap())).unwrap();
                    live.done(&Act::Flush);
                    acts.iter().for_each(|act| live.done(act));
                }
                Step::Mode(mode) => cache.set_mode(*mode).unwrap(),
                Step::Background(is_idle) => drop(cache.step(*is_idle).unwrap()),
                Step::CleanAll => cache.clean_all().unwrap(),
                Step::Close => cache.close().unwrap(),
                Step::Resize(bytes) => cache.resize(*bytes).unwrap(),
            }
            recorder.mark(n as u64);
        }
        recorder
    }

    /// The possible content after a crash behind `done` steps.
    fn expected(&self, done: usize) -> Oracle {
        let mut oracle = Oracle::new(self.lbas(), self.lba_sizes.0 as usize);
        for (n, step) in self.steps.iter().enumerate().take(done + 1) {
            match step {
                Step::Act(act) if n < done => oracle.done(act),
                Step::Act(act) => oracle.maybe(act),
                Step::Overtaken(acts) if n < done => {
                    oracle.done(&Act::Flush);
                    acts.iter().for_each(|act| oracle.done(act));
                }
                Step::Overtaken(acts) => acts.iter().for_each(|act| oracle.maybe(act)),
                _ => {}
            }
        }
        oracle.crash();
        oracle
    }

    fn check(&self, image: &Image, seed: u64) {
        let about = format!("seed {seed}, {image}\n{:?}", self.steps.get(image.marks().len()));
        let oracle = self.expected(image.marks().len());
        check_samples(image, seed, &about);
        check_devices(oracle, &image.device(0), &image.device(1), &about);
    }
}

/// The remains of a crash belong together, until a sampled block is changed that the cache has not written.
fn check_samples(image: &Image, seed: u64, about: &dyn std::fmt::Display) {
    let (origin, flash) = (image.device(0), image.device(1));
    let pair = Cache::pairing(&*origin, &flash).unwrap_or_else(|error| panic!("{error}: {about}"));
    assert!(pair.is_right() && pair.found == Some(rig::identity()), "{pair}: {about}");
    let copies = Port::open(&*flash, 1).unwrap().read(Lba(0), AlignedBuf::zeroed(8192)).unwrap();
    let copies = (0..).zip(copies.chunks(4096)).map(|(copy, it)| Superblock::decode(it, copy));
    let newest = copies.flatten().max_by_key(|copy| copy.generation).unwrap();
    assert_eq!(pair.compared, newest.origin.armed.count_ones() as usize, "{about}");
    let armed = (0..64).filter(|n| newest.origin.armed >> n & 1 == 1);
    let armed: Vec<u64> = armed.map(|n: usize| newest.origin.samples[n].block).collect();
    if !armed.is_empty() {
        let block = armed[to_usize(seed) % armed.len()];
        let lba = Lba(block * (4096 / u64::from(origin.geometry().lba_size)));
        let mut port = Port::open(&*origin, 1).unwrap();
        port.write(lba, AlignedBuf::padded(&[0xa5; 4096], 4096), None).unwrap();
        let pair = Cache::pairing(&*origin, &flash).unwrap();
        assert_eq!(pair.differing, [block], "{about}");
    }
}

/// Opens the cache that a crash has left, and checks everything: through the cache, after all is
/// written back, and without the cache.
fn check_devices(
    mut oracle: Oracle,
    origin: &Arc<dyn Device>,
    flash: &Arc<dyn Device>,
    about: &dyn std::fmt::Display,
) {
    let cache = Cache::open(origin.clone(), flash.clone(), rig::open_options())
        .unwrap_or_else(|error| panic!("{error}: {about}"));
    // Blocks written before the crash are sampled anew.
    assert_eq!(Cache::inspect(flash).unwrap().armed_samples, 64, "{about}");
    let mut port = Port::open(&cache, 4).unwrap();
    oracle.check_all(&mut port, &format!("first, {about}"));
    oracle.check_all(&mut port, &format!("again, {about}"));
    cache.clean_all().unwrap_or_else(|error| panic!("{error}: {about}"));
    oracle.check_all(&mut port, &format!("cleaned, {about}"));
    cache.detach().unwrap();
    drop(port);
    drop(cache);
    let mut port = Port::open(&**origin, 4).unwrap();
    oracle.check_all(&mut port, &format!("origin, {about}"));
}

fn plan(seed: u64) -> Plan {
    Plan { all_subsets: 3, singles: 8, random_subsets: 3, tears: 1, seed }
}

fn run(seeds: std::ops::Range<u64>, steps: usize, plan: impl Fn(u64) -> Plan) -> usize {
    let mut images = 0;
    for seed in seeds {
        let mode = rig::MODES[usize::try_from(seed % 3).unwrap()];
        let script = Script::random(seed, mode, steps);
        for image in script.record().history().images(&plan(seed)) {
            script.check(&image, seed);
            images += 1;
        }
    }
    images
}

#[test]
fn a_crash_anywhere_loses_nothing_that_was_flushed() {
    let images = run(0..6, 40, plan);
    assert!(images > 500, "{images} images");
}

#[test]
fn a_crash_of_a_cache_of_version_3_loses_nothing() {
    let mut images = 0;
    for seed in 300..303 {
        let mode = rig::MODES[usize::try_from(seed % 3).unwrap()];
        let script = Script { is_former: true, ..Script::random(seed, mode, 40) };
        for image in script.record().history().images(&plan(seed)) {
            script.check(&image, seed);
            images += 1;
        }
    }
    assert!(images > 300, "{images} images");
}

#[test]
fn a_crash_while_areas_and_pages_change_loses_nothing() {
    // So many flushes that the journal goes round, few images each.
    let plan = |seed| Plan { all_subsets: 1, singles: 1, random_subsets: 1, tears: 1, seed };
    let images = run(100..103, 160, plan);
    assert!(images > 500, "{images} images");
}

#[test]
fn a_crash_during_recovery_loses_nothing() {
    for seed in 200..203 {
        let script = Script::random(seed, rig::MODES[usize::try_from(seed % 3).unwrap()], 30);
        let history = script.record().history();
        for (n, image) in history.images(&plan(seed)).enumerate().filter(|(n, _)| n % 97 == 5) {
            let about = format!("seed {seed} image {n}: {image}");
            let recorder = CrashRecorder::new();
            let attach = |index: usize| -> Arc<dyn Device> {
                let device = image.device(index);
                let extent: LbaCount = device.geometry().capacity;
                recorder.attach_holding(device, extent).unwrap()
            };
            let (origin, flash) = (attach(0), attach(1));
            let cache = Cache::open(origin, flash, rig::open_options()).unwrap();
            cache.clean_all().unwrap();
            cache.close().unwrap();
            drop(cache);
            for second in recorder.history().images(&plan(n as u64)).step_by(5) {
                let oracle = script.expected(image.marks().len());
                let about = format!("{about}, then {second}");
                check_devices(oracle, &second.device(0), &second.device(1), &about);
            }
        }
    }
}

#[test]
#[ignore = "long: for a release build"]
fn many_crashes() {
    let seconds = std::env::var("ESKER_SOAK").ok().and_then(|text| text.parse().ok());
    let clock = esker_base::Clock::real();
    let (start, mut images, mut seed) = (clock.now(), 0, 1_000);
    while (clock.now() - start).as_secs() < seconds.unwrap_or(60u64) {
        images += run(seed..seed + 1, 60, thorough);
        seed += 1;
    }
    println!("{images} images of {} scripts", seed - 1_000);
}

fn thorough(seed: u64) -> Plan {
    Plan { all_subsets: 4, singles: 24, random_subsets: 6, seed, ..Plan::default() }
}

/// The tests below check one rule each: break it in the code, and the test fails.
fn each_image(mode: Mode, steps: Vec<Step>) {
    let script = Script { mode, lba_sizes: (512, 512), steps, is_former: false };
    let mut images = 0;
    for image in script.record().history().images(&Plan::default()) {
        script.check(&image, 0);
        images += 1;
    }
    assert!(images > 3, "{images} images");
}

fn write(block: u64, version: u64) -> Step {
    Step::Act(Act::Write { lba: block * 8, count: 8, version, fua: false })
}

fn read(block: u64) -> Step {
    Step::Act(Act::Read { lba: block * 8, count: 8 })
}

#[test]
fn a_record_names_nothing_whose_data_is_not_durable() {
    each_image(Mode::WriteBack, vec![write(1, 1), Step::Act(Act::Flush), write(2, 2)]);
    let fua = Act::Write { lba: 8, count: 8, version: 1, fua: true };
    each_image(Mode::WriteBack, vec![Step::Act(fua.clone()), write(1, 2), Step::Act(Act::Flush)]);
    each_image(Mode::WriteThrough, vec![Step::Act(fua), write(1, 2), Step::Act(Act::Flush)]);
}

#[test]
fn a_dirty_block_is_named_before_its_flush_is_acknowledged() {
    let flush = || Step::Act(Act::Flush);
    each_image(Mode::WriteBack, vec![write(1, 1), flush(), write(1, 2), flush(), write(1, 3)]);
}

#[test]
fn a_clean_block_that_is_written_goes_to_another_slot() {
    let flush = || Step::Act(Act::Flush);
    let steps = vec![write(1, 1), flush(), Step::CleanAll, flush(), Step::Close, write(1, 2)];
    each_image(Mode::WriteBack, steps.clone());
    let more = [steps, vec![flush(), Step::CleanAll, write(1, 3), flush()]].concat();
    each_image(Mode::WriteBack, more);
}

#[test]
fn a_block_rewritten_and_written_back_is_durable_before_it_is_named_clean() {
    let flush = || Step::Act(Act::Flush);
    each_image(
        Mode::WriteBack,
        vec![write(1, 1), flush(), write(1, 2), Step::CleanAll, flush(), write(2, 3), flush()],
    );
}

#[test]
fn zeroes_and_discards_never_uncover_what_was_there_before() {
    let flush = || Step::Act(Act::Flush);
    for last in [Act::Zero { lba: 8, count: 8 }, Act::Discard { lba: 8, count: 8 }] {
        let before = vec![write(1, 1), flush(), Step::CleanAll, flush(), write(1, 2), flush()];
        let steps = [before, vec![Step::Act(last.clone()), flush(), write(1, 3)]].concat();
        each_image(Mode::WriteBack, steps);
        let steps = vec![write(1, 1), flush(), read(1), Step::Close, Step::Act(last), flush()];
        each_image(Mode::WriteThrough, steps);
    }
}

#[test]
fn the_origin_is_not_written_under_a_name() {
    let flush = || Step::Act(Act::Flush);
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let steps = vec![
            write(1, 1),
            flush(),
            read(1),
            Step::Close,
            write(1, 2),
            flush(),
            read(1),
            Step::Close,
            write(1, 3),
        ];
        each_image(mode, steps);
    }
    // A clean name must not outlive writes that a crash takes from the origin.
    each_image(Mode::WriteThrough, vec![write(1, 1), Step::Close, write(1, 2), Step::Close]);
}

#[test]
fn a_slot_is_not_used_again_under_its_old_name() {
    let mut steps: Vec<Step> = (0..30).map(|n| write(n, n + 1)).collect();
    steps.push(Step::Act(Act::Flush));
    steps.extend((0..30).map(read));
    steps.push(Step::Close);
    steps.extend((30..60).map(read));
    let steps = steps
        .into_iter()
        .map(|step| match step {
            Step::Act(Act::Write { lba, version, .. }) => {
                Step::Act(Act::Write { lba: lba / 8, count: 1, version, fua: false })
            }
            Step::Act(Act::Read { lba, .. }) => Step::Act(Act::Read { lba: lba / 8, count: 1 }),
            other => other,
        })
        .collect();
    let script =
        Script { mode: Mode::WriteThrough, lba_sizes: (4096, 4096), steps, is_former: false };
    for image in script.record().history().images(&plan(9)) {
        script.check(&image, 9);
    }
}

#[test]
fn a_write_past_a_dirty_slot_is_durable_when_it_says_so() {
    // LBAs of the flash device that are smaller than the origin's, and no slot that is not dirty:
    // the origin is written instead.
    let write =
        |lba: u64, version: u64, fua: bool| Step::Act(Act::Write { lba, count: 1, version, fua });
    let mut steps: Vec<Step> = (0..64).map(|lba| write(lba, lba + 1, false)).collect();
    steps.push(Step::Act(Act::Flush));
    steps.extend((0..8).map(|lba| write(lba, 100 + lba, true)));
    let script = Script { mode: Mode::WriteBack, lba_sizes: (4096, 512), steps, is_former: false };
    let done = script.steps.len();
    let images = script.record().history().images(&plan(3));
    let late = images.filter(|image| image.marks().len() > done - 8);
    let count = late.map(|image| script.check(&image, 3)).count();
    assert!(count > 8, "{count} images");
}

#[test]
fn a_name_given_while_a_slot_is_rewritten_uncovers_no_torn_block() {
    let write = |lba: u64, version: u64| Act::Write { lba, count: 1, version, fua: false };
    for lba_sizes in [(4096, 512), (4096, 4096), (512, 512)] {
        let steps = vec![
            Step::Act(write(3, 1)),
            Step::Overtaken(vec![write(3, 2)]),
            Step::Act(write(8, 3)),
            Step::Act(write(9, 4)),
            Step::Overtaken(vec![write(8, 5), write(20, 6), write(9, 7)]),
        ];
        let script = Script { mode: Mode::WriteBack, lba_sizes, steps, is_former: false };
        let plan = Plan { tears: 8, ..plan(4) };
        let images = script.record().history().images(&plan);
        let count = images.map(|image| script.check(&image, 4)).count();
        assert!(count > 40, "{count} images");
    }
}

#[test]
fn a_crash_while_the_cache_grows_or_shrinks_loses_nothing() {
    for mode in rig::MODES {
        let resize = |quarters: u64| Step::Resize(rig::FLASH + quarters * (rig::SPARE / 4));
        let mut steps: Vec<Step> = (0..24).map(|n| write(n, n + 1)).collect();
        steps.extend([Step::Act(Act::Flush), resize(4), write(3, 50), read(30), read(31)]);
        steps.extend((24..40).map(|n| write(n, n + 1)));
        steps.extend([Step::Act(Act::Flush), read(3), write(4, 60), resize(0), write(5, 70)]);
        steps.extend([Step::Act(Act::Flush), resize(3), write(6, 80), Step::Close]);
        let script = Script { mode, lba_sizes: (512, 512), steps, is_former: false };
        let few = Plan { all_subsets: 1, singles: 2, random_subsets: 1, tears: 1, seed: 5 };
        let mut images = 0;
        for image in script.record().history().images(&few).step_by(3) {
            script.check(&image, 5);
            images += 1;
        }
        assert!(images > 50, "{images} images");
    }
}

#[test]
fn superblock_that_was_torn_before_survives_another_crash() {
    for torn in [0, 1] {
        // With LBAs of 512 bytes a copy of the superblock is eight of them.
        let (origin, flash) = rig::devices(Mode::WriteThrough, 512, 512);
        let mut port = Port::open(&*flash, 1).unwrap();
        port.write(Lba(torn * 8 + 3), AlignedBuf::padded(b"torn", 512), None).unwrap();
        let recorder = CrashRecorder::new();
        let extent = flash.geometry().capacity;
        let recorded: Arc<dyn Device> = recorder.attach_holding(flash, extent).unwrap();
        Cache::change_mode(&recorded, Mode::WriteBack).unwrap();
        let mut images = 0;
        for image in recorder.history().images(&Plan { tears: 8, ..thorough(7) }) {
            let opened = Cache::open(origin.clone(), image.device(0), rig::open_options());
            opened.unwrap_or_else(|error| panic!("{error}: {image}"));
            images += 1;
        }
        assert!(images > 8, "{images} images");
    }
}

#[test]
fn block_that_was_discarded_may_read_as_anything() {
    // An origin that promises nothing of discarded blocks, not even after a flush.
    let mut images = 0;
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mode = rig::MODES[to_usize(seed % 3)];
        let (origin, flash) = rig::devices(mode, 4096, 4096);
        let recorder = CrashRecorder::new();
        let origin: Arc<dyn Device> = recorder.attach(origin);
        let extent = flash.geometry().capacity;
        let flash: Arc<dyn Device> = recorder.attach_holding(flash, extent).unwrap();
        let cache = rig::open(&origin, &flash);
        let mut port = Port::open(&cache, 4).unwrap();
        for version in 1..30 {
            let (lba, count) = (rng.below(60), 1 + rng.below(4));
            let act = match rng.below(4) {
                0 => Act::Discard { lba, count },
                1 => Act::Flush,
                _ => Act::Write { lba, count, version, fua: false },
            };
            port.run(op(&act, 4096)).unwrap();
            if rng.chance(1, 6) {
                cache.clean_all().unwrap();
                cache.close().unwrap();
            }
        }
        for image in recorder.history().images(&plan(seed)) {
            let (origin, flash) = (image.device(0), image.device(1));
            let opened = Cache::open(origin, flash, rig::open_options());
            opened.unwrap_or_else(|error| panic!("{error}: {image}"));
            images += 1;
        }
    }
    assert!(images > 500, "{images} images");
}
