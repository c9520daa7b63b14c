//! Every profile, scaled down, against the figures that were published about the drive.

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng, thread};
use esker_device::{Command, Device, Op, QueuePair, Tag};
use esker_flash::profile::{Figure, Kind, Profile, Published};
use esker_flash::{Namespace, Pace, Ssd};

/// Largest deviation of a model from published figures.
const TOLERANCE: f64 = 0.05;

/// Time in which a drive at rest empties its buffer.
const DRAINED: Duration = Duration::from_secs(2);

/// A drive in virtual time.
struct Bed {
    clock: Clock,
    namespace: Namespace,
    lbas: u64,
    /// Pages of the mapping.
    pages: u64,
    rng: Rng,
}

/// The commands of a measurement: of `lbas` LBAs, with so many in flight.
#[derive(Clone, Copy)]
struct Load {
    is_write: bool,
    lbas: u64,
    depth: usize,
    is_random: bool,
}

const SEQUENTIAL: Load = Load { is_write: false, lbas: 32, depth: 64, is_random: false };
const RANDOM: Load = Load { is_write: false, lbas: 1, depth: 512, is_random: true };

impl Bed {
    fn new(profile: &Profile, capacity: u64) -> Bed {
        let clock = Clock::virtual_time();
        let parameters = profile.ssd().unwrap().scaled(capacity).unwrap();
        let ssd = Ssd::new(profile.name, &parameters, Pace::virtual_time(clock.clone())).unwrap();
        let id = ssd.create_namespace(parameters.capacity, None).unwrap();
        let namespace = ssd.namespace(id).unwrap();
        let lbas = namespace.geometry().capacity.0;
        let pages = parameters.capacity / u64::from(parameters.page_size);
        Bed { clock, namespace, lbas, pages, rng: Rng::new(1) }
    }

    /// Runs so many commands; how long one takes, in nanoseconds, all in flight counted.
    fn run(&mut self, load: Load, commands: u64) -> f64 {
        let mut queue = self.namespace.queue_pair(load.depth).unwrap();
        let size = 4096 * usize::try_from(load.lbas).unwrap();
        let mut free: Vec<AlignedBuf> = (0..load.depth).map(|_| AlignedBuf::zeroed(size)).collect();
        let (mut batch, mut done) = (VecDeque::new(), Vec::new());
        let slots = self.lbas / load.lbas;
        let start = self.clock.now();
        let mut next = 0;
        while next < commands || queue.in_flight() > 0 {
            while next < commands
                && let Some(buf) = free.pop()
            {
                let slot = if load.is_random { self.rng.below(slots) } else { next % slots };
                let lba = Lba(slot * load.lbas);
                let op = match load.is_write {
                    false => Op::Read { lba, buf },
                    true => Op::Write { lba, buf, placement: None, fua: false },
                };
                batch.push_back(Command { tag: Tag(next), op });
                next += 1;
            }
            queue.submit(&mut batch).unwrap();
            QueuePair::wait(&mut *queue, &mut done, None).unwrap();
            for completion in done.drain(..) {
                completion.result.unwrap();
                free.extend(completion.buf);
            }
        }
        (self.clock.now() - start).as_nanos() as f64 / commands as f64
    }

    fn measure(&mut self, figure: Figure) -> f64 {
        let per_second = |ns: f64| 1e9 / ns;
        match figure {
            Figure::SequentialRead => per_second(self.run(SEQUENTIAL, 8_000)) * 131_072.0,
            Figure::SequentialWrite => {
                let load = Load { is_write: true, ..SEQUENTIAL };
                self.run(load, self.lbas / 32);
                per_second(self.run(load, self.lbas / 32)) * 131_072.0
            }
            Figure::RandomReads => per_second(self.run(RANDOM, 40_000)),
            Figure::RandomWrites => {
                let load = Load { is_write: true, ..RANDOM };
                self.run(load, 2 * self.pages);
                per_second(self.run(load, self.pages / 2))
            }
            Figure::ReadLatency => {
                // Earlier writes may still be in the buffer.
                self.clock.sleep(DRAINED);
                self.run(Load { depth: 1, ..RANDOM }, 1000)
            }
            Figure::WriteLatency => self.run(Load { depth: 1, is_write: true, ..RANDOM }, 1000),
        }
    }
}

/// The figures of a profile that are not what was published.
fn deviations(profile: &Profile) -> Vec<(&'static str, Figure, f64)> {
    let Kind::Ssd(parameters) = &profile.kind else { return Vec::new() };
    let capacity = if parameters.page_size > 4096 { 1 << 30 } else { 256 << 20 };
    let mut bed = Bed::new(profile, capacity);
    let filling = Load { is_write: true, ..SEQUENTIAL };
    bed.run(filling, bed.lbas / 32);
    let ratio = |published: &Published| {
        let got = bed.measure(published.figure);
        let ratio = got / published.value;
        println!(
            "{:18} {:30} {:>12} published {:>12} ratio {ratio:.3}",
            profile.name,
            published.figure.name(),
            published.figure.show(got),
            published.figure.show(published.value)
        );
        (profile.name, published.figure, ratio)
    };
    let ratios = profile.published.iter().map(ratio);
    ratios.filter(|(.., ratio)| (ratio - 1.0).abs() > TOLERANCE).collect()
}

#[test]
fn profiles_reproduce_what_was_published() {
    let twins = Profile::all().into_iter().filter_map(|profile| profile.in_drive.map(|twin| *twin));
    let profiles: Vec<Profile> = Profile::all().into_iter().chain(twins).collect();
    let wrong: Vec<_> = std::thread::scope(|scope| {
        let measure =
            |profile| thread::spawn_scoped(scope, "profile", move || deviations(profile)).unwrap();
        let measured: Vec<_> = profiles.iter().map(measure).collect();
        measured.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_scaled_drive_behaves_like_the_whole_one() {
    for profile in Profile::all() {
        let Some(full) = profile.ssd() else { continue };
        let small = full.scaled(8 << 30).unwrap();
        small.check().unwrap();
        full.check().unwrap();
        let spare = (small.over_provisioning() - full.over_provisioning()).abs();
        assert!(spare < 0.005, "{}: {spare}", profile.name);
        let units = f64::from(small.units) / f64::from(full.units.max(1));
        assert!(full.units == 0 || (units - 1.0).abs() < 0.05, "{}: {units}", profile.name);
        assert!(full.scaled(full.capacity + 65_536).is_err());
        let too_small = full.scaled(1 << 20);
        assert!(full.units == 0 || too_small.unwrap_err().to_string().contains("at least"));
    }
    assert!(Profile::find("micron").unwrap_err().to_string().contains("micron-5210"));
}
