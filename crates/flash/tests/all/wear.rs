//! Wear levelling with the defaults of every profile: its cost, and how far units differ.
//!
//! Drives are scaled down to the least capacity that keeps their number of reclaim units. The table:
//! `cargo test --release -p esker-flash --test all wear:: -- --ignored --nocapture`

use esker_base::Rng;
use esker_flash::ftl::{
    Array, Ftl, FtlOptions, LogicalPage, MediaPage, PageCounts, UnitId, Writer,
};
use esker_flash::{Parameters, Profile};

/// Pages that the host writes, after the drive was filled once in order.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// So many thousandths of the pages take all writes.
    Hot(u32),
    /// Every page alike.
    Uniform,
    /// In order, over and over.
    Sequential,
    /// Page of rank `i`, scattered over the drive, in proportion to `1 / i^0.99`.
    Zipf,
    /// Every handle has an equal part of the pages, and writes at half the rate of the one before;
    /// within its part, a twentieth of the pages takes all writes.
    Handles,
}

/// Counts the work of levelling.
#[derive(Default)]
struct Tally {
    unit_pages: u32,
    levelling: Option<UnitId>,
    moves: u64,
    moved: u64,
    turns: u64,
}

impl Array for Tally {
    fn open(&mut self, unit: UnitId, writer: Writer) {
        if matches!(writer, Writer::Levelling | Writer::LevellingOf(_)) {
            self.levelling = Some(unit);
            self.moves += 1;
        }
    }

    fn program(&mut self, _: MediaPage, _: LogicalPage) {}

    fn copy(&mut self, _: MediaPage, to: MediaPage, _: LogicalPage) {
        self.moved += u64::from(self.levelling == Some(UnitId(to.0 / self.unit_pages)));
    }

    fn close(&mut self, unit: UnitId) {
        if self.levelling == Some(unit) {
            self.levelling = None;
        }
    }

    fn turn(&mut self, _: u16, _: u16) {
        self.turns += 1;
    }

    fn erase(&mut self, _: UnitId) {}
}

struct Measured {
    moves: u64,
    moved: f64,
    turns: u64,
    unwritten: f64,
    waf: f64,
    mean: f64,
    least: u32,
    most: u32,
}

/// The drive of a profile, as small as it can be.
fn smallest(profile: &Profile) -> Parameters {
    let whole = profile.ssd().unwrap();
    let units = (whole.capacity / whole.unit_size + 1) * 2 * u64::from(whole.program_size);
    whole.scaled(units).unwrap()
}

fn ranks(pages: u32) -> (Vec<f64>, Vec<u32>) {
    let mut sum = 0.0;
    let upto: Vec<f64> = (1..=pages)
        .map(|rank| {
            sum += f64::from(rank).powf(-0.99);
            sum
        })
        .collect();
    let mut order: Vec<u32> = (0..pages).collect();
    let mut rng = Rng::new(9);
    for index in (1..order.len()).rev() {
        order.swap(index, usize::try_from(rng.below(index as u64 + 1)).unwrap());
    }
    (upto, order)
}

fn run(options: FtlOptions, load: Load, fills: u32) -> Measured {
    let pages = options.logical_pages;
    let handles = u32::try_from(options.handles.len()).unwrap();
    let units = options.units;
    let mut tally = Tally { unit_pages: options.unit_pages, ..Tally::default() };
    let unit_pages = options.unit_pages;
    let mut ftl = Ftl::new(options).unwrap();
    let part = pages / handles;
    let handle_of = |page: u32| u16::try_from((page / part).min(handles - 1)).unwrap();
    for page in 0..pages {
        ftl.write(LogicalPage(page), 1, handle_of(page), &mut tally);
    }
    let mut rng = Rng::new(3);
    let mut below = |bound: u32| u32::try_from(rng.below(u64::from(bound))).unwrap();
    let (upto, order) = if matches!(load, Load::Zipf) { ranks(pages) } else { Default::default() };
    for count in 0..u64::from(pages) * u64::from(fills) {
        let page = match load {
            Load::Hot(thousandths) => {
                below(u32::try_from(u64::from(pages) * u64::from(thousandths) / 1000).unwrap())
            }
            Load::Uniform => below(pages),
            Load::Sequential => u32::try_from(count % u64::from(pages)).unwrap(),
            Load::Zipf => {
                let at = f64::from(below(u32::MAX)) / f64::from(u32::MAX) * upto[upto.len() - 1];
                order[upto.partition_point(|&sum| sum < at).min(order.len() - 1)]
            }
            Load::Handles => {
                let handle = below(1 << handles).leading_zeros() - (32 - handles);
                handle.min(handles - 1) * part + below(part / 20)
            }
        };
        ftl.write(LogicalPage(page), 1, handle_of(page), &mut tally);
    }
    ftl.check().unwrap();
    let wear = || UnitId::all(0..units).map(|unit| ftl.unit(unit).erasures());
    let sum: u64 = wear().map(u64::from).sum();
    let counts: PageCounts = ftl.counts();
    #[allow(clippy::cast_precision_loss)]
    Measured {
        moves: tally.moves,
        moved: tally.moved as f64 / tally.moves as f64 / f64::from(unit_pages),
        turns: tally.turns,
        unwritten: (counts.erased as f64 - counts.media() as f64) / f64::from(unit_pages),
        waf: counts.write_amplification(),
        mean: sum as f64 / f64::from(units),
        least: wear().min().unwrap(),
        most: wear().max().unwrap(),
    }
}

fn profiles() -> Vec<Profile> {
    let is_flash = |profile: &Profile| profile.ssd().is_some_and(|ssd| ssd.units > 0);
    Profile::all().into_iter().filter(is_flash).collect()
}

/// Moving the share `c` of the units that rest once in `bound / c` erasures costs `c / bound` of all
/// writes to the media: 1 % for the bound of 100 that the profiles have.
#[test]
fn defaults_of_every_profile_hold_their_bound_and_cost_little() {
    for profile in profiles() {
        let drive = smallest(&profile);
        let bound = drive.wear_spread.expect("profiles level wear");
        let options = |spread| {
            let drive = Parameters { wear_spread: spread, ..drive.clone() };
            drive.ftl_options(None).unwrap()
        };
        let chance = run(options(None), Load::Hot(50), 120);
        let levelled = run(options(Some(bound)), Load::Hot(50), 120);
        let name = profile.name;
        let spread = levelled.most - levelled.least;
        assert!(spread <= bound, "{name}: units differ by {spread} erasures, not {bound} at most");
        assert!(levelled.most * 3 < chance.most, "{name}: {} and {}", levelled.most, chance.most);
        assert!(levelled.waf < chance.waf + 0.05, "{name}: {} and {}", levelled.waf, chance.waf);
    }
}

#[test]
#[ignore = "minutes in release mode: the command is at the head of this file"]
fn table() {
    let loads = [
        Load::Hot(10),
        Load::Hot(50),
        Load::Hot(200),
        Load::Hot(500),
        Load::Uniform,
        Load::Sequential,
        Load::Zipf,
        Load::Handles,
    ];
    let fills: u32 = std::env::var("FILLS").map_or(120, |text| text.parse().unwrap());
    let only = std::env::var("ONLY").unwrap_or_default();
    for profile in profiles().into_iter().filter(|one| one.name.contains(&only)) {
        let drive = smallest(&profile);
        println!("{}: {} units", profile.name, drive.units);
        for load in loads {
            let configurations = match load {
                Load::Handles if drive.configurations.is_empty() => continue,
                Load::Handles => vec![Some(0), Some(1)],
                _ => vec![None],
            };
            for configuration in configurations {
                for spread in [drive.wear_spread, None] {
                    let drive = Parameters { wear_spread: spread, ..drive.clone() };
                    let m = run(drive.ftl_options(configuration).unwrap(), load, fills);
                    println!(
                        "  {:24} {:9} WAF {:.3}  mean {:6.1}  {:4} to {:4}  moves {} of {:.3} turns {} erased unwritten {:.1}",
                        format!("{load:?} {configuration:?}"),
                        format!("{spread:?}"),
                        m.waf,
                        m.mean,
                        m.least,
                        m.most,
                        m.moves,
                        m.moved,
                        m.turns,
                        m.unwritten
                    );
                }
            }
        }
    }
}
