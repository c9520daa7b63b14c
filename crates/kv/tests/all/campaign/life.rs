//! The lives of a KVDB: it is opened on devices that record their commands and may fail, used,
//! and closed or crashed; every life begins with the remains of the one before.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use esker_base::{Clock, ErrorKind, Rng};
use esker_device::Device;
use esker_kv::{KvError, Kvdb, Options, Policy};
use esker_sim::{
    CrashRecorder, Effect, Fault, FaultDevice, FaultPlan, Image, Plan, Repeat, Target,
};

use crate::campaign::hook::Hook;
use crate::campaign::tally::Tally;
use crate::campaign::world::{Legacy, Sizes, World, read_all};
use crate::common::oracle::Oracle;
use crate::common::shaped::ShapedDevice;
use crate::common::{small_tuning, test_options, tiny_tuning, with_what_is_left};

/// The order in which devices are attached to a recorder.
const MANIFEST: usize = 0;
const CAPACITY: usize = 1;
const STAGING: usize = 2;

/// Settings that the lives of one case have in common.
struct Shape {
    options: Options,
    sizes: Sizes,
    with_staging: bool,
    /// How many operations a life has.
    operations: Range<u64>,
    look: Look,
}

/// Which crash images of a life are looked at.
#[derive(Clone)]
enum Look {
    /// So many, about, anywhere.
    At(u64),
    /// All of the plan.
    All(Plan),
}

/// State that a life leaves behind.
struct Remains {
    devices: Devices,
    /// Whether there is a KVDB at all.
    created: bool,
    kvss: Vec<(u32, String)>,
}

/// State after an operation of a life: the least that a crash must leave, and the most that it may.
struct Entry {
    created: bool,
    kvss: Vec<(u32, String)>,
    least: usize,
    most: usize,
}

impl Shape {
    /// A few hundred operations go through every kind of maintenance.
    fn tiny(with_staging: bool, operations: u64, look: Look) -> Shape {
        Shape {
            options: test_options(tiny_tuning()),
            sizes: Sizes { keys: 120, value_max: 1400 },
            with_staging,
            operations: operations..operations + 1,
            look,
        }
    }

    fn choose(rng: &mut Rng) -> Shape {
        let pick =
            |rng: &mut Rng, of: &[u64]| of[usize::try_from(rng.below(of.len() as u64)).unwrap()];
        let is_tiny = rng.chance(3, 4);
        let options =
            test_options(if is_tiny { tiny_tuning() } else { small_tuning() }).with(|set| {
                // Too little for a record cache, or enough.
                set.memory_bytes = pick(rng, &[4 << 20, 40 << 20]);
                set.durability.ms = pick(rng, &[0, 20, 100, 100]);
                set.durability.bytes = pick(rng, &[2 << 10, 64 << 10, 64 << 10]);
                set.transaction_ms = pick(rng, &[300, 300_000]);
                set.clock = Clock::virtual_time();
            });
        let (keys, value_max) = if is_tiny { (120, 1400) } else { (600, 6000) };
        Shape {
            options,
            sizes: Sizes { keys, value_max },
            with_staging: rng.chance(2, 3),
            operations: 0..pick(rng, &[60, 200, 400]),
            look: Look::At(12),
        }
    }

    /// Blank devices. Some take little in one command; now and then there is little space.
    fn devices(&self, rng: &mut Rng) -> Devices {
        let lba_size = if rng.chance(1, 4) { 4096 } else { 512 };
        let largest = if rng.chance(1, 4) { 4096 } else { 1 << 20 };
        let (capacity, staging) =
            if rng.chance(1, 5) { (640 << 10, 320 << 10) } else { (8 << 20, 4 << 20) };
        devices_of(self, lba_size, largest, (capacity, staging))
    }
}

/// Blank devices: with an LBA size, the largest transfer, and the sizes of capacity and staging.
fn devices_of(shape: &Shape, lba_size: u32, largest: u32, sizes: (u64, u64)) -> Devices {
    let device = |name: &str, bytes: u64| -> Arc<dyn Device> {
        ShapedDevice::new(name, bytes, lba_size, |geometry| geometry.max_transfer_size = largest)
    };
    Devices {
        manifest: device("the-manifest", 1 << 20),
        capacity: device("the-capacity", sizes.0),
        staging: shape.with_staging.then(|| device("the-staging", sizes.1)),
    }
}

/// Runs the case of this seed.
pub(crate) fn run(seed: u64, mut tally: Tally) -> Tally {
    let mut rng = Rng::new(seed);
    let shape = Shape::choose(&mut rng);
    let devices = shape.devices(&mut rng);
    tally.cases += 1;
    let lives = 2 + rng.below(5);
    let (mut remains, mut legacy) = birth(devices, rng, tally);
    for _ in 0..lives {
        let fault = legacy.rng.chance(1, 3).then(|| any_fault(&mut legacy.rng));
        (remains, legacy, _) = live(&shape, remains, legacy, fault);
    }
    legacy.tally
}

/// Two lives, of which the first is struck by `fault`. Whether it came to that.
pub(crate) fn strike(seed: u64, fault: Fault, mut tally: Tally) -> (bool, Tally) {
    let rng = Rng::new(seed);
    let shape = Shape::tiny(true, 120, Look::At(4));
    tally.cases += 1;
    let (remains, legacy) = birth(devices_of(&shape, 512, 1 << 20, (8 << 20, 4 << 20)), rng, tally);
    let (remains, legacy, fired) = live(&shape, remains, legacy, Some(fault));
    let shape = Shape { operations: 20..21, ..shape };
    let (_, legacy, _) = live(&shape, remains, legacy, None);
    (fired > 0, legacy.tally)
}

/// Two lives, and all the images of `plan` that a crash could have left: of the first, and of the second,
/// which begins with recovery.
pub(crate) fn enumerate(
    seed: u64,
    operations: u64,
    with_staging: bool,
    plan: Plan,
    mut tally: Tally,
) -> Tally {
    let shape = Shape::tiny(with_staging, operations, Look::All(plan));
    tally.cases += 1;
    let devices = devices_of(&shape, 512, 1 << 20, (8 << 20, 4 << 20));
    let (remains, legacy) = birth(devices, Rng::new(seed), tally);
    let (remains, legacy, _) = live(&shape, remains, legacy, None);
    let shape = Shape { operations: 10..11, ..shape };
    let (_, legacy, _) = live(&shape, remains, legacy, None);
    legacy.tally
}

/// Whether any image tells that the flushes of a device are left out.
pub(crate) fn broken_flushes_show(seed: u64, device: usize, plan: Plan) -> bool {
    let shape = Shape::tiny(true, 200, Look::All(plan));
    let devices = devices_of(&shape, 512, 1 << 20, (8 << 20, 4 << 20));
    let (remains, mut legacy) = birth(devices, Rng::new(seed), Tally::default());
    let (mut life, devices) = Life::begin(&shape, &remains, &legacy);
    let (db, kvss) = life.open(&devices, &remains, &mut legacy).unwrap();
    let world = life.world(db, legacy, &kvss);
    let (mut legacy, _) = life.spend(world);
    let flushes = life.recorder.history().flushes(device);
    assert!(flushes > 3, "device {device} is flushed");
    (0..flushes).for_each(|n| life.recorder.skip_flush(device, n));
    catch_unwind(AssertUnwindSafe(|| drop(life.look_at_images(&mut legacy)))).is_err()
}

fn birth(devices: Devices, rng: Rng, tally: Tally) -> (Remains, Legacy) {
    let remains = Remains { devices, created: false, kvss: Vec::new() };
    (remains, Legacy { rng, oracle: Oracle::default(), next_number: 0, tally })
}

/// Lives one life of a KVDB that holds the last moment of the oracle. Returns its remains, and how many commands
/// failed.
fn live(
    shape: &Shape,
    remains: Remains,
    mut legacy: Legacy,
    fault: Option<Fault>,
) -> (Remains, Legacy, u64) {
    legacy.tally.lives += 1;
    let (mut life, devices) = Life::begin(shape, &remains, &legacy);
    if let Some(mut fault) = fault {
        fault.nth += life.plan.seen(fault.target);
        life.plan.add(fault);
    }
    let opened = life.open(&devices, &remains, &mut legacy);
    let (mut legacy, closed) = match opened {
        Ok((db, kvss)) => {
            let world = life.world(db, legacy, &kvss);
            life.spend(world)
        }
        Err(error) => {
            life.check_explained(&error);
            legacy.tally.fault_ends += 1;
            (legacy, false)
        }
    };
    let fired = life.plan.fired();
    legacy.tally.faults += fired;
    if !closed {
        let (remains, legacy) = life.crash(legacy);
        return (remains, legacy, fired);
    }
    life.look_at_images(&mut legacy);
    legacy.tally.closes += 1;
    let last = life.ledger.pop().expect("the state at the close");
    (Remains { devices: remains.devices, created: true, kvss: last.kvss }, legacy, fired)
}

/// A fault at some command to come.
fn any_fault(rng: &mut Rng) -> Fault {
    let (target, within) = match rng.below(8) {
        0..3 => (Target::Read, 400),
        3..6 => (Target::Write, 300),
        6 => (Target::Flush, 80),
        _ => (Target::Discard, 20),
    };
    let effect = match rng.below(6) {
        0 => Effect::Short,
        1 => Effect::DelayPolls { count: 3 },
        2..4 if target == Target::Read => {
            let offset = usize::try_from(rng.below(5000)).unwrap();
            Effect::Corrupt { offset, mask: 1 << rng.below(8) }
        }
        2..4 if target == Target::Write => Effect::NoSpace,
        _ => Effect::Fail,
    };
    let repeat = if rng.chance(1, 3) { Repeat::FromThenOn } else { Repeat::Once };
    // Data that is read damaged again and again cannot be told from data that a crash has torn.
    let repeat = if matches!(effect, Effect::Corrupt { .. }) { Repeat::Once } else { repeat };
    Fault { target, nth: rng.below(within), repeat, effect }
}

/// A life under way.
struct Life<'s> {
    shape: &'s Shape,
    recorder: CrashRecorder,
    plan: FaultPlan,
    hook: Hook,
    staging: Option<Arc<dyn Device>>,
    /// One entry for each mark of the recorder.
    ledger: Vec<Entry>,
}

impl<'s> Life<'s> {
    /// Attaches the remaining devices to a new recorder, under a plan without faults.
    fn begin(shape: &'s Shape, remains: &Remains, legacy: &Legacy) -> (Life<'s>, Devices) {
        let (recorder, plan, hook) = (CrashRecorder::new(), FaultPlan::new(), Hook::default());
        let attach = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
            let faulty = Arc::new(FaultDevice::new(device.clone(), &plan));
            hook.on(recorder.attach_holding(faulty, device.geometry().capacity).unwrap())
        };
        let devices = Devices {
            manifest: attach(&remains.devices.manifest),
            capacity: attach(&remains.devices.capacity),
            staging: remains.devices.staging.as_ref().map(attach),
        };
        let last = legacy.oracle.last();
        let (created, kvss) = (remains.created, remains.kvss.clone());
        let staging = devices.staging.clone();
        let mut life = Life { shape, recorder, plan, hook, staging, ledger: Vec::new() };
        life.note(Entry { created, kvss, least: last, most: last });
        (life, devices)
    }

    fn note(&mut self, entry: Entry) {
        self.ledger.push(entry);
        self.recorder.mark(self.ledger.len() as u64 - 1);
    }

    /// Notes the state after an operation. One that failed has no mark of its own: a crash from then on
    /// may leave the state before.
    fn note_end(&mut self, entry: Entry, happened: bool) {
        if happened {
            self.note(entry);
        } else {
            self.ledger.push(entry);
        }
    }

    /// Opens or creates the KVDB, and gives it a KVS if it has none.
    fn open(
        &mut self,
        devices: &Devices,
        remains: &Remains,
        legacy: &mut Legacy,
    ) -> Result<(Kvdb, Vec<(u32, String)>), KvError> {
        let options = self.shape.options.clone();
        let last = legacy.oracle.last();
        let entry = |kvss: &[(u32, String)]| Entry {
            created: true,
            kvss: kvss.to_vec(),
            least: last,
            most: last,
        };
        let mut kvss = remains.kvss.clone();
        let db = if remains.created {
            open(devices, &options)?
        } else {
            Kvdb::create_on(devices.clone(), options)?
        };
        let found = read_all(&db, &kvss)?;
        let numbers: Vec<u32> = kvss.iter().map(|(number, _)| *number).collect();
        let state = legacy.oracle.moment_of(&found, &numbers, last, last);
        state.unwrap_or_else(|wrong| panic!("what was there is not there again: {wrong}"));
        self.note(entry(&kvss));
        if kvss.is_empty() {
            kvss.push((legacy.next_number, "a".into()));
            legacy.next_number += 1;
            let created = db.create_kvs("a", Policy::default());
            self.note_end(entry(&kvss), created.is_ok());
            created?;
        }
        Ok((db, kvss))
    }

    fn world(&self, db: Kvdb, legacy: Legacy, kvss: &[(u32, String)]) -> World {
        let Shape { options, sizes, .. } = self.shape;
        World::new(db, legacy, kvss, (options, *sizes), (&self.hook, self.staging.clone())).unwrap()
    }

    /// An error has to come from a fault, and to say where.
    fn check_explained(&self, error: &KvError) {
        assert!(self.plan.fired() > 0, "without any fault: {error}");
        let text = error.to_string();
        // A class that is full is named as that.
        let places = ["the-manifest", "the-capacity", "the-staging", " class has no room"];
        let named = places.iter().any(|place| text.contains(place));
        assert!(named, "an error that does not say where: {text}");
    }

    /// Uses the KVDB until its time has come or something fails. Whether it was closed.
    fn spend(&mut self, mut world: World) -> (Legacy, bool) {
        let Range { start, end } = self.shape.operations;
        for _ in 0..start + world.rng.below(end - start) {
            let result = world.operate();
            // Nothing has happened, and with some space it goes on.
            let lacks_space = matches!(&result, Err(error)
                if error.kind() == ErrorKind::NoSpace && !world.is_stopped());
            if lacks_space {
                world.intended = None;
                world.tally.no_space += 1;
                self.check_readable(&world);
            }
            let kvss = world.intended.clone().unwrap_or_else(|| world.kvss());
            // Writes that a device did not do in time are not promised.
            let before = self.ledger.last().map_or(0, |entry| entry.least);
            let least = if result.is_ok() { world.promised() } else { before };
            let most = world.oracle.last();
            let goes_on = lacks_space || result.is_ok();
            self.note_end(Entry { created: true, kvss, least, most }, goes_on);
            if !goes_on && let Err(error) = result {
                self.check_explained(&error);
                self.check_readable(&world);
                world.tally.fault_ends += 1;
                return (self.forget(world), false);
            }
        }
        if world.rng.chance(2, 3) {
            return (self.forget(world), false);
        }
        let (kvss, last) = (world.kvss(), world.oracle.last());
        let (db, mut legacy) = world.end();
        match db.close() {
            Ok(()) => {
                self.note(Entry { created: true, kvss, least: last, most: last });
                (legacy, true)
            }
            Err(error) => {
                if error.kind() == ErrorKind::NoSpace {
                    legacy.tally.no_space += 1;
                } else {
                    self.check_explained(&error);
                }
                (legacy, false)
            }
        }
    }

    /// After a failure acknowledged writes can be read as soon as the devices can.
    fn check_readable(&self, world: &World) {
        self.plan.heal();
        let kvss = world.kvss();
        let found = read_all(&world.db, &kvss).unwrap_or_else(|error| {
            panic!("the devices work again, and reading does not: {error}");
        });
        let numbers: Vec<u32> = kvss.iter().map(|(number, _)| *number).collect();
        let last = world.oracle.last();
        let least = last - usize::from(world.attempted);
        let state = world.oracle.moment_of(&found, &numbers, least, last);
        state.unwrap_or_else(|wrong| panic!("acknowledged writes are not readable: {wrong}"));
    }

    /// Ends the process, and with it the state that only it knew. Commands of its end are written down, too.
    fn forget(&self, world: World) -> Legacy {
        self.plan.heal();
        let (db, legacy) = world.end();
        drop(db);
        legacy
    }

    // ---- crashes ---------------------------------------------------------------------------------

    /// Looks at images, and lives on from one of them.
    fn crash(&self, mut legacy: Legacy) -> (Remains, Legacy) {
        let (image, found) = self.look_at_images(&mut legacy).expect("there are images");
        legacy.tally.crashes += 1;
        legacy.tally.lost_writes += (legacy.oracle.last() - found.most) as u64;
        legacy.oracle.go_back(found.most);
        let devices = self.devices_of(&image);
        (Remains { devices, created: found.created, kvss: found.kvss }, legacy)
    }

    fn devices_of(&self, image: &Image) -> Devices {
        Devices {
            manifest: image.device(MANIFEST),
            capacity: image.device(CAPACITY),
            staging: self.shape.with_staging.then(|| image.device(STAGING)),
        }
    }

    /// Checks some of the images that a crash of this life may have left. Returns one, and its content.
    fn look_at_images(&self, legacy: &mut Legacy) -> Option<(Image, Entry)> {
        let history = self.recorder.history();
        let seed = legacy.rng.below(1 << 32);
        let few = Plan { all_subsets: 2, singles: 1, random_subsets: 1, tears: 1, seed };
        let (plan, wanted, of) = match &self.shape.look {
            Look::At(count) => (few, *count, history.len() as u64 * 2),
            Look::All(plan) => (plan.clone(), 1, 1),
        };
        let mut left = None;
        let mut last = None;
        for image in history.images(&plan) {
            if legacy.rng.chance(wanted, of) {
                let found = self.check(&image, legacy);
                // Later ones rather than earlier ones.
                if left.is_none() || legacy.rng.chance(1, 3) {
                    left = Some((image.clone(), found));
                }
            }
            last = Some(image);
        }
        let last = last?;
        if left.is_none() || legacy.rng.chance(1, 4) {
            let found = self.check(&last, legacy);
            left = Some((last, found));
        }
        left
    }

    /// Opens an image and finds its content among those it may hold.
    fn check(&self, image: &Image, legacy: &mut Legacy) -> Entry {
        legacy.tally.images += 1;
        let at = usize::try_from(*image.marks().last().unwrap_or(&0)).unwrap();
        let before = &self.ledger[at];
        let after = self.ledger.get(at + 1).unwrap_or(before);
        let devices = self.devices_of(image);
        if legacy.rng.chance(1, 6) {
            legacy.tally.checks += 1;
            match with_what_is_left(&devices, Kvdb::check_on) {
                Ok(report) => assert_eq!(report.findings, Vec::<String>::new(), "image: {image}"),
                Err(KvError::NotAKvdb { .. }) if !before.created => {}
                Err(error) => panic!("it cannot be checked: {error}\nimage: {image}"),
            }
        }
        let options = self.shape.options.clone();
        let db = match open(&devices, &options) {
            Ok(db) => db,
            Err(KvError::NotAKvdb { .. }) if !before.created => {
                return Entry { created: false, kvss: Vec::new(), least: 0, most: 0 };
            }
            Err(error) => panic!("it does not open: {error}\nimage: {image}"),
        };
        let mut names = db.kvs_names();
        names.sort();
        let is_it = |entry: &&Entry| {
            let mut known: Vec<&str> = entry.kvss.iter().map(|(_, name)| &name[..]).collect();
            known.sort_unstable();
            known == names
        };
        let Some(entry) = [before, after].into_iter().find(is_it) else {
            panic!("KVSs {names:?}, not {:?} or {:?}\nimage: {image}", before.kvss, after.kvss);
        };
        let kvss = entry.kvss.clone();
        let found = read_all(&db, &kvss)
            .unwrap_or_else(|error| panic!("it cannot be read: {error}\nimage: {image}"));
        let numbers: Vec<u32> = kvss.iter().map(|(number, _)| *number).collect();
        let state = legacy.oracle.moment_of(&found, &numbers, before.least, after.most);
        let moment = state.unwrap_or_else(|wrong| panic!("{wrong}\nimage: {image}"));
        if legacy.rng.chance(1, 4) {
            for ((number, key), value) in &found {
                let (_, name) = kvss.iter().find(|(known, _)| known == number).unwrap();
                let got = db.kvs(name).unwrap().get(key).unwrap();
                assert_eq!(got.as_deref(), Some(&value[..]), "image: {image}");
            }
        }
        Entry { created: true, kvss, least: moment, most: moment }
    }
}

/// Opens a KVDB whose staging class may have been taken away.
fn open(devices: &Devices, options: &Options) -> Result<Kvdb, KvError> {
    with_what_is_left(devices, |devices| Kvdb::open_on(devices.clone(), options.clone()))
}

/// How long a soak is to take, in seconds.
pub(crate) fn soak() -> Option<Duration> {
    let seconds = std::env::var("ESKER_SOAK").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("ESKER_SOAK is a number of seconds")))
}
