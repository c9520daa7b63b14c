//! A flash device that held another cache before: whatever is left of that one, and whatever crashes
//! while it is replaced, no block of it is served or written back as one of the new cache.

use crate::rig;
use std::sync::Arc;

use crate::oracle::{Act, Oracle, op, random};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_cache::{Cache, CacheError, CreateOptions, Mode};
use esker_device::{Device, MemoryDevice, Port};
use esker_sim::{CrashRecorder, Effect, FaultDevice, FaultPlan, Image, Plan, Target};

const FLASH: u64 = rig::FLASH + rig::SPARE;

/// A cache of another size than others, with runs of so many blocks: that tells it from others.
fn options(rng: &mut Rng, run_blocks: u64) -> CreateOptions {
    let mode = rig::MODES[usize::try_from(rng.below(3)).unwrap()];
    CreateOptions {
        flash_bytes: Some(rig::FLASH + rng.below(5) * (rig::SPARE / 4)),
        set_bytes: (8 + 8 * rng.below(2)) * 4096,
        run_bytes: run_blocks * 4096,
        overwrite: true,
        ..rig::create_options(mode)
    }
}

fn device(name: &str, bytes: u64, lba_size: u32) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, bytes, lba_size))
}

/// A cache and its expected content.
struct Life {
    cache: Cache,
    oracle: Oracle,
    lba_size: u32,
    version: u64,
}

impl Life {
    fn new(origin: &Arc<dyn Device>, flash: &Arc<dyn Device>, version: u64) -> Life {
        let lba_size = origin.geometry().lba_size;
        let oracle = Oracle::new(rig::ORIGIN / u64::from(lba_size), lba_size as usize);
        Life { cache: rig::open(origin, flash), oracle, lba_size, version }
    }

    /// Takes a random step of any user. `None` says that it was not a command.
    fn step(&mut self, rng: &mut Rng) -> Option<Act> {
        self.version += 1;
        match rng.below(16) {
            0 => drop(self.cache.step(true).unwrap()),
            1 => self.cache.clean_all().unwrap(),
            2 => self.cache.close().unwrap(),
            3 => {
                // Not every cache can have any size.
                let _ = self.cache.resize(rig::FLASH + rng.below(5) * (rig::SPARE / 4));
            }
            _ => {
                let (size, per_block) = (self.lba_size, u64::from(4096 / self.lba_size));
                let lbas = rig::ORIGIN / u64::from(size);
                let act = random(rng, lbas, per_block, self.version);
                let mut port = Port::open(&self.cache, 4).unwrap();
                let buf = port.run(op(&act, size as usize)).unwrap();
                self.oracle.done(&act);
                if let Act::Read { lba, .. } = act {
                    self.oracle.check(lba, &buf.unwrap(), &"no crash");
                }
                return Some(act);
            }
        }
        None
    }
}

/// Checks a cache that a crash has left, and its origin after all is written back.
fn check(
    mut oracle: Oracle,
    origin: &Arc<dyn Device>,
    flash: &Arc<dyn Device>,
    about: &dyn std::fmt::Display,
) {
    oracle.crash();
    let cache = Cache::open(origin.clone(), flash.clone(), rig::open_options())
        .unwrap_or_else(|error| panic!("{error}: {about}"));
    oracle.check_all(&mut Port::open(&cache, 4).unwrap(), about);
    cache.detach().unwrap_or_else(|error| panic!("{error}: {about}"));
    oracle.check_all(&mut Port::open(&**origin, 4).unwrap(), about);
}

/// Every crash of a life on a flash device that held another cache, which goes on until the new one
/// is made.
fn replaced(seed: u64, images: &mut [usize; 3]) {
    let mut rng = Rng::new(seed);
    let sizes = [(512, 512), (4096, 4096), (512, 4096), (4096, 512)];
    let (outer, inner) = sizes[usize::try_from(rng.below(4)).unwrap()];
    let flash = device("flash", FLASH, inner);
    let mut former_oracle = None;
    let mut former_origin = None;
    for _ in 0..=rng.below(2) {
        let origin = device("former", rig::ORIGIN, outer);
        Cache::create(&*origin, &flash, &options(&mut rng, 2)).unwrap();
        let mut life = Life::new(&origin, &flash, 1_000);
        for _ in 0..80 {
            life.step(&mut rng);
        }
        (former_oracle, former_origin) = (Some(life.oracle), Some(origin));
    }
    let (former_oracle, former_origin) = (former_oracle.unwrap(), former_origin.unwrap());

    let recorder = CrashRecorder::new();
    let new: Arc<dyn Device> = recorder.attach_zeroing(device("new", rig::ORIGIN, outer));
    let extent = flash.geometry().capacity;
    let flash: Arc<dyn Device> = recorder.attach_holding(flash, extent).unwrap();
    let extent = former_origin.geometry().capacity;
    let _: Arc<dyn Device> = recorder.attach_holding(former_origin, extent).unwrap();
    Cache::create(&*new, &flash, &options(&mut rng, 4)).unwrap();
    recorder.mark(0);
    let mut life = Life::new(&new, &flash, 0);
    // The expected content after each step, and the act that the next one may have done.
    let mut lives = vec![(life.oracle.clone(), None)];
    for n in 1..40 {
        let act = life.step(&mut rng);
        lives.last_mut().unwrap().1 = act;
        lives.push((life.oracle.clone(), None));
        recorder.mark(n);
    }
    let plan = Plan { all_subsets: 3, singles: 4, random_subsets: 2, tears: 1, seed };
    for image in recorder.history().images(&plan) {
        let about = format!("seed {seed}, {image}");
        let [new, flash, former] = [0, 1, 2].map(|index| image.device(index));
        let found = Cache::inspect(&flash);
        let done = image.marks().len();
        match found {
            Ok(info) if info.run_bytes == 2 * 4096 => {
                assert_eq!(done, 0, "the former cache is back: {about}");
                check(former_oracle.clone(), &former, &flash, &about);
                images[0] += 1;
            }
            Ok(_) => {
                let (mut oracle, next) = lives[done.saturating_sub(1)].clone();
                next.iter().for_each(|act| oracle.maybe(act));
                check(oracle, &new, &flash, &about);
                images[2] += 1;
            }
            Err(CacheError::NoCache { .. }) if done == 0 => {
                // It is made once more. Of a superblock that was torn while it was zeroed something is left.
                let options = options(&mut rng, 4);
                let careful = CreateOptions { overwrite: false, ..options };
                match Cache::create(&*new, &flash, &careful) {
                    Err(CacheError::Occupied { found, .. }) if found.offset < 4096 => {
                        Cache::create(&*new, &flash, &options).unwrap();
                    }
                    made => made.unwrap_or_else(|error| panic!("{error}: {about}")),
                }
                check(lives[0].0.clone(), &new, &flash, &about);
                images[1] += 1;
            }
            Err(error) => panic!("{error}: {about}"),
        }
    }
}

#[test]
fn a_cache_in_the_place_of_another_has_nothing_of_it() {
    let mut images = [0; 3];
    for seed in 0..8 {
        replaced(seed, &mut images);
    }
    println!("{images:?}");
    assert!(images[0] > 20 && images[1] > 20 && images[2] > 1_000, "{images:?}");
}

/// Options for a cache that the crash tests know.
fn anew() -> CreateOptions {
    CreateOptions { id: 78, ..rig::create_options(Mode::WriteBack) }
}

/// Images of the writes of `run` to a flash device.
fn images_of(flash: &Arc<dyn Device>, run: impl FnOnce(&Arc<dyn Device>)) -> Vec<Image> {
    let recorder = CrashRecorder::new();
    let extent = flash.geometry().capacity;
    let flash: Arc<dyn Device> = recorder.attach_holding(flash.clone(), extent).unwrap();
    run(&flash);
    recorder.history().images(&Plan { all_subsets: 3, ..Plan::default() }).collect()
}

#[test]
fn a_cache_that_was_let_go_of_does_not_come_back_while_a_new_one_is_made() {
    let (origin, flash) = rig::devices(Mode::WriteThrough, 4096, 4096);
    let cache = rig::open(&origin, &flash);
    rig::write(&mut Port::open(&cache, 4).unwrap(), 7, 1);
    cache.close().unwrap();
    drop(cache);
    let (mut detached, mut attached) = (0, 0);
    for first in images_of(&flash, |flash| rig::open(&origin, flash).detach().unwrap()) {
        let flash = first.device(0);
        if !Cache::inspect(&flash).unwrap().is_detached {
            attached += 1;
            continue;
        }
        detached += 1;
        // The origin is used without it now.
        let images = images_of(&flash, |flash| Cache::create(&*origin, flash, &anew()).unwrap());
        for second in images {
            match Cache::inspect(&second.device(0)) {
                Ok(info) => {
                    let is_new = info.named_blocks == 0;
                    assert!(info.is_detached || is_new, "it is back: {first}, then {second}");
                }
                Err(error) => assert!(matches!(error, CacheError::NoCache { .. }), "{error}"),
            }
        }
    }
    assert!(detached > 1 && attached > 1, "{detached} and {attached}");
}

#[test]
fn a_cache_that_could_not_be_detached_is_still_there_when_it_is_opened_again() {
    let mut failed = 0;
    for (nth, is_for_good) in (0..).flat_map(|nth| [(nth, false), (nth, true)]) {
        let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
        let plan = FaultPlan::new();
        let bad: Arc<dyn Device> = Arc::new(FaultDevice::new(flash.clone(), &plan));
        let cache = rig::open(&origin, &bad);
        let mut oracle = Oracle::new(rig::ORIGIN / 4096, 4096);
        let mut port = Port::open(&cache, 4).unwrap();
        let mut act = |act: Act| match port.run(op(&act, 4096)) {
            Ok(_) => oracle.done(&act),
            Err(_) => oracle.maybe(&act),
        };
        act(Act::Write { lba: 7, count: 1, version: 1, fua: true });
        let nth_from_now = plan.seen(Target::Any) + nth;
        match is_for_good {
            true => plan.from_then_on(Target::Any, nth_from_now, Effect::Fail),
            false => plan.once(Target::Any, nth_from_now, Effect::Fail),
        }
        let detached = cache.detach();
        if plan.fired() == 0 {
            break;
        }
        // It is used on, with the blocks that it still has.
        act(Act::Write { lba: 7, count: 1, version: 2, fua: true });
        plan.heal();
        act(Act::Flush);
        drop((port, cache));
        let about = format!("command {nth}, for good {is_for_good}");
        match detached {
            Ok(()) => oracle.check_all(&mut Port::open(&*origin, 4).unwrap(), &about),
            Err(_) => {
                failed += 1;
                check(oracle, &origin, &flash, &about);
            }
        }
    }
    assert!(failed > 3, "{failed}");
}

/// Every LBA of a flash device with LBAs of 512 bytes.
fn content(flash: &Arc<dyn Device>) -> Vec<AlignedBuf> {
    let mut port = Port::open(&**flash, 1).unwrap();
    (0..FLASH / 512).map(|lba| port.read(Lba(lba), AlignedBuf::zeroed(512)).unwrap()).collect()
}

#[test]
fn a_detached_cache_passes_on_and_leaves_the_flash_device_to_others() {
    for is_read in [false, true] {
        let (origin, flash) = rig::devices(Mode::WriteBack, 512, 512);
        let cache = rig::open(&origin, &flash);
        let mut oracle = Oracle::new(rig::ORIGIN / 512, 512);
        let mut port = Port::open(&cache, 4).unwrap();
        let mut act = |port: &mut Port, act: Act| {
            port.run(op(&act, 512)).unwrap();
            oracle.done(&act);
        };
        for block in 0..12 {
            let write = Act::Write { lba: 8 * block, count: 8, version: block + 1, fua: false };
            act(&mut port, write);
        }
        drop(port);
        cache.clean_all().unwrap();
        cache.close().unwrap();
        let cache = if is_read { cache } else { rig::open(&origin, &flash) };
        cache.detach().unwrap();

        // Others make a cache there, and use it.
        let other = device("other", rig::ORIGIN, 512);
        Cache::create(&*other, &flash, &anew()).unwrap();
        let mut others = Life::new(&other, &flash, 1_000);
        let mut rng = Rng::new(4);
        for _ in 0..400 {
            others.step(&mut rng);
        }
        others.cache.close().unwrap();
        let before = content(&flash);

        let mut port = Port::open(&cache, 4).unwrap();
        for block in 4..16 {
            let write = Act::Write { lba: 8 * block, count: 8, version: block + 50, fua: false };
            act(&mut port, write);
        }
        act(&mut port, Act::Zero { lba: 3, count: 40 });
        act(&mut port, Act::Discard { lba: 90, count: 9 });
        act(&mut port, Act::Flush);
        oracle.check_all(&mut port, &"passed on");
        assert!(matches!(cache.set_mode(Mode::WriteAround), Err(CacheError::Detached { .. })));
        assert!(cache.resize(FLASH).is_err());
        assert!(matches!(cache.detach(), Err(CacheError::Detached { .. })));
        let _ = cache.step(true);
        let _ = cache.close();
        drop((port, cache));
        oracle.check_all(&mut Port::open(&*origin, 4).unwrap(), &"the origin");
        let lba =
            content(&flash).iter().zip(&before).position(|(now, before)| now[..] != before[..]);
        assert_eq!(lba, None, "it was written");
        drop(others.cache);
        check(others.oracle, &other, &flash, &"the other cache");
    }
}

#[test]
fn foreign_content_of_a_flash_device_is_overwritten_only_on_request() {
    // A file system of 4 KiB blocks, and a btrfs.
    for (offset, mark) in [(1080, &[0x53, 0xef][..]), (0x1_0040, b"_BHRfS_M")] {
        let (origin, flash) = (device("origin", rig::ORIGIN, 512), device("flash", FLASH, 512));
        let mut port = Port::open(&*flash, 1).unwrap();
        let lba = Lba(offset / 512);
        let mut content = AlignedBuf::zeroed(512);
        content[usize::try_from(offset % 512).unwrap()..][..mark.len()].copy_from_slice(mark);
        port.write(lba, content.clone(), None).unwrap();
        let options = rig::create_options(Mode::WriteBack);
        let error = Cache::create(&*origin, &flash, &options).unwrap_err();
        assert!(matches!(error, CacheError::Occupied { .. }), "{error}");
        assert!(error.to_string().contains("--overwrite"), "{error}");
        assert_eq!(port.read(lba, AlignedBuf::zeroed(512)).unwrap()[..], content[..]);
        Cache::create(&*origin, &flash, &CreateOptions { overwrite: true, ..options }).unwrap();
        Cache::create(&*origin, &flash, &options).unwrap_err();
    }
}
