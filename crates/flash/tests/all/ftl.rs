//! The translation layer against an array that checks the operations on it.

use esker_base::Rng;
use esker_device::fdp::Isolation;
use esker_flash::ftl::{
    Array, Cleaning, CleaningPace, Counting, Frontier, Ftl, FtlOptions, LogicalPage, MediaPage,
    PageCounts, Phase, UnitId, UnitRecord, UnitState, Writer,
};

/// An array that holds a version number per page, and refuses operations that NAND would refuse.
struct Nand {
    unit_pages: u32,
    pages: Vec<Option<(LogicalPage, u64)>>,
    next: Vec<u32>,
    erasures: Vec<u32>,
    programmed: u64,
    copied: u64,
    /// The versions of the host's writes, by logical page.
    version: Vec<u64>,
    /// Which writer's data a unit may hold: handles seen in it.
    clock: u64,
}

impl Nand {
    fn new(options: &FtlOptions) -> Nand {
        Nand {
            unit_pages: options.unit_pages,
            pages: vec![None; (options.units * options.unit_pages) as usize],
            next: vec![0; options.units as usize],
            erasures: vec![0; options.units as usize],
            programmed: 0,
            copied: 0,
            version: vec![0; options.logical_pages as usize],
            clock: 0,
        }
    }

    fn put(&mut self, at: MediaPage, page: LogicalPage, version: u64) {
        let (unit, within) = (at.0 / self.unit_pages, at.0 % self.unit_pages);
        assert_eq!(self.next[unit as usize], within, "unit {unit} is programmed out of order");
        self.next[unit as usize] += 1;
        self.pages[at.index()] = Some((page, version));
    }
}

impl Array for Nand {
    fn program(&mut self, at: MediaPage, page: LogicalPage) {
        self.clock += 1;
        self.version[page.index()] = self.clock;
        self.programmed += 1;
        self.put(at, page, self.clock);
    }

    fn copy(&mut self, from: MediaPage, to: MediaPage, page: LogicalPage) {
        let (holds, version) = self.pages[from.index()].expect("copied from an erased page");
        assert_eq!(holds, page, "media page {from} holds another page");
        assert_eq!(version, self.version[page.index()], "a superseded version is copied");
        self.copied += 1;
        self.put(to, page, version);
    }

    fn erase(&mut self, unit: UnitId) {
        let start = unit.first_page(self.unit_pages).index();
        self.pages[start..start + self.unit_pages as usize].fill(None);
        self.next[unit.index()] = 0;
        self.erasures[unit.index()] += 1;
    }
}

fn options(cleaning: Cleaning, frontier: Frontier, handles: Vec<Isolation>) -> FtlOptions {
    let options = FtlOptions {
        logical_pages: 2000,
        unit_pages: 24,
        units: 0,
        groups: 1,
        handles,
        cleaning,
        frontier,
        pace: CleaningPace::Steady,
        wear_spread: Some(4),
        seed: 5,
    };
    options.with_over_provisioning(0.2)
}

/// Everything random at once; every invariant checked over and over.
fn run(options: FtlOptions, seed: u64, steps: u32) {
    let mut nand = Nand::new(&options);
    let mut ftl = Ftl::new(options.clone()).unwrap();
    let mut rng = Rng::new(seed);
    let mut written = vec![0u64; options.logical_pages as usize];
    let mut below = |bound: u64| u32::try_from(rng.below(bound)).unwrap();
    let handles = options.handles.len() as u64;
    for step in 0..steps {
        let first = below(u64::from(options.logical_pages));
        let most = u64::from((options.logical_pages - first).min(60));
        let count = 1 + below(most);
        let handle = u16::try_from(below(handles)).unwrap();
        match below(20) {
            0 => {
                ftl.trim(LogicalPage(first), count);
                written[first as usize..(first + count) as usize].fill(0);
            }
            1 => {
                ftl.update(0, handle, &mut nand);
            }
            _ => {
                let group = u16::try_from(below(u64::from(options.groups))).unwrap();
                ftl.write_to(
                    group,
                    handle,
                    count as usize,
                    |index| LogicalPage(first + index),
                    &mut nand,
                );
                for page in first..first + count {
                    written[page as usize] = nand.version[page as usize];
                }
            }
        }
        if step % 64 == 0 || step + 1 == steps {
            ftl.check().unwrap();
            for (page, &version) in (0..).map(LogicalPage).zip(&written) {
                let found = ftl.locate(page).map(|at| nand.pages[at.index()]);
                let expected = (version > 0).then_some(Some((page, version)));
                assert_eq!(found, expected, "seed {seed}, step {step}, page {page}");
            }
        }
    }
    let counts = ftl.counts();
    assert_eq!((counts.host, counts.copied), (nand.programmed, nand.copied));
    let erased: u32 = nand.erasures.iter().sum();
    assert_eq!(counts.erased, u64::from(erased * options.unit_pages));
    for unit in UnitId::all(0..options.units) {
        assert_eq!(ftl.unit(unit).erasures(), nand.erasures[unit.index()]);
    }
}

#[test]
fn no_sequence_of_writes_trims_and_updates_loses_a_page() {
    use Cleaning::{Choices, CostBenefit, Fifo, Greedy};
    use Isolation::{Initially, Persistently};
    for (seed, cleaning) in (0..).zip([Greedy, Fifo, Choices(3), CostBenefit]) {
        for frontier in [Frontier::Separate, Frontier::Shared] {
            for handles in [
                vec![Initially],
                vec![Initially, Initially, Initially],
                vec![Persistently, Initially, Persistently],
            ] {
                run(options(cleaning, frontier, handles), seed, 4000);
            }
        }
    }
}

#[test]
fn reclaim_groups_share_the_logical_space() {
    for groups in [2, 3] {
        let mut options =
            options(Cleaning::Greedy, Frontier::Separate, vec![Isolation::Initially; 2]);
        options.groups = groups;
        let per_group = (options.units + options.reserve_units()).div_ceil(u32::from(groups));
        options.units = per_group * u32::from(groups);
        run(options, 9, 4000);
    }
}

/// Two handles write to their own half; one half is rewritten at random, the other in a circle.
fn mixed(isolation: Isolation) -> Ftl {
    let options = options(Cleaning::Greedy, Frontier::Separate, vec![isolation; 2]);
    let half = options.logical_pages / 2;
    let mut ftl = Ftl::new(options).unwrap();
    let mut rng = Rng::new(2);
    for round in 0..60 * half {
        let page = u32::try_from(rng.below(u64::from(half))).unwrap();
        ftl.write(LogicalPage(page), 1, 0, &mut Counting);
        ftl.write(LogicalPage(half + round % half), 1, 1, &mut Counting);
    }
    ftl.check().unwrap();
    ftl
}

/// Which halves the units filled by `writer` hold.
fn halves_in(ftl: &Ftl, is_wanted: impl Fn(Writer) -> bool) -> [u32; 2] {
    let mut halves = [0; 2];
    for page in 0..ftl.options().logical_pages {
        let at = ftl.locate(LogicalPage(page)).unwrap();
        let unit = UnitId(at.0 / ftl.options().unit_pages);
        let (UnitState::Open { writer, .. } | UnitState::Closed { writer, .. }) = ftl.unit(unit)
        else {
            panic!("page {page} lies in an erased unit")
        };
        if is_wanted(writer) {
            halves[(page >= ftl.options().logical_pages / 2) as usize] += 1;
        }
    }
    halves
}

#[test]
fn handles_never_share_a_unit_and_persistent_ones_not_even_after_cleaning() {
    for isolation in [Isolation::Initially, Isolation::Persistently] {
        let ftl = mixed(isolation);
        assert_eq!(halves_in(&ftl, |writer| writer == Writer::Host(0))[1], 0);
        assert_eq!(halves_in(&ftl, |writer| writer == Writer::Host(1))[0], 0);
        let common = halves_in(&ftl, |writer| writer == Writer::Cleaning);
        let own = halves_in(&ftl, |writer| writer == Writer::CleaningOf(0));
        match isolation {
            Isolation::Initially => assert!(common[0] > 0 && own == [0, 0], "{common:?} {own:?}"),
            Isolation::Persistently => assert!(own[0] > 0 && own[1] == 0 && common == [0, 0]),
        }
    }
}

#[test]
fn an_update_points_the_handle_to_an_empty_unit() {
    let mut ftl =
        Ftl::new(options(Cleaning::Greedy, Frontier::Separate, vec![Isolation::Initially]))
            .unwrap();
    assert_eq!(ftl.update(0, 0, &mut Counting), 0);
    ftl.write(LogicalPage(0), 10, 0, &mut Counting);
    assert_eq!(
        (ftl.writable(0, 0), ftl.update(0, 0, &mut Counting), ftl.writable(0, 0)),
        (14, 14, 24)
    );
    assert_eq!(ftl.update(0, 0, &mut Counting), 0);
    ftl.write(LogicalPage(10), 1, 0, &mut Counting);
    let unit = |page| ftl.locate(LogicalPage(page)).unwrap().0 / 24;
    assert_ne!(unit(9), unit(10));
    assert_eq!(ftl.counts().media(), 11);
}

#[test]
fn wear_is_levelled_when_asked() {
    let spread_of = |wear_spread: Option<u32>| {
        let mut options = options(Cleaning::Greedy, Frontier::Separate, vec![Isolation::Initially]);
        options.wear_spread = wear_spread;
        let (pages, units) = (options.logical_pages, options.units);
        let mut ftl = Ftl::new(options).unwrap();
        ftl.write(LogicalPage(0), pages, 0, &mut Counting);
        // A tenth of the pages is written all the time, the rest never again.
        let mut rng = Rng::new(3);
        for _ in 0..400 * pages {
            let page = u32::try_from(rng.below(u64::from(pages / 10))).unwrap();
            ftl.write(LogicalPage(page), 1, 0, &mut Counting);
        }
        let wear = || UnitId::all(0..units).map(|unit| ftl.unit(unit).erasures());
        wear().max().unwrap() - wear().min().unwrap()
    };
    let (levelled, left_to_chance) = (spread_of(Some(10)), spread_of(None));
    assert!(levelled <= 30 && left_to_chance > 300, "{levelled} and {left_to_chance}");
}

#[test]
fn wrong_options_are_refused_with_what_is_right() {
    let right = options(Cleaning::Greedy, Frontier::Separate, vec![Isolation::Initially]);
    let refuse = |change: &dyn Fn(&mut FtlOptions), part: &str| {
        let mut wrong = right.clone();
        change(&mut wrong);
        let error = Ftl::new(wrong).err().expect("refused").to_string();
        assert!(error.contains(part), "{error}");
    };
    refuse(&|o| o.units = 84, "add over-provisioning");
    refuse(&|o| o.handles.clear(), "1 to 128 reclaim unit handles");
    refuse(&|o| o.groups = 0, "a reclaim group");
    refuse(&|o| o.groups = 2, "cannot be divided among 2");
    refuse(&|o| o.cleaning = Cleaning::Choices(0), "at least one choice");
    refuse(&|o| o.logical_pages = 0, "at least one page");
    refuse(&|o| (o.units, o.unit_pages) = (1 << 20, 1 << 20), "use larger pages");
}

/// Cleaning has a unit open for each persistent handle, with hardly anything in it, when one handle
/// writes the whole drive in order: nothing that it has filled can be cleaned.
#[test]
fn units_that_cleaning_has_open_leave_room_for_every_page() {
    for handles in [1u16, 2, 3, 8, 30] {
        let mut options = FtlOptions {
            logical_pages: 100 * 4,
            unit_pages: 4,
            ..options(
                Cleaning::Greedy,
                Frontier::Separate,
                vec![Isolation::Persistently; usize::from(handles)],
            )
        };
        options.units = 101 + options.reserve_units();
        let mut nand = Nand::new(&options);
        let mut ftl = Ftl::new(options).unwrap();
        let mut rng = Rng::new(u64::from(handles));
        for _ in 0..20 {
            for round in 0..4000 {
                let page = u32::try_from(rng.below(400)).unwrap();
                ftl.write(LogicalPage(page), 1, round % handles, &mut nand);
            }
            ftl.trim(LogicalPage(0), 400);
            for handle in 0..handles {
                ftl.write(LogicalPage(handle.into()), 1, handle, &mut nand);
            }
            ftl.write(LogicalPage(0), 400, 0, &mut nand);
            ftl.check().unwrap();
        }
    }
}

/// A power cut in the middle of cleaning a unit that wear had chosen, with the last erased unit open
/// for it: the policy's own choice would need another one.
#[test]
fn cleaning_that_was_interrupted_ends_whatever_the_policy_chooses() {
    use Cleaning::{Choices, CostBenefit, Fifo, Greedy};
    for cleaning in [Greedy, Fifo, Choices(1), CostBenefit] {
        let options = FtlOptions {
            logical_pages: 16,
            unit_pages: 4,
            units: 8,
            ..options(cleaning, Frontier::Separate, vec![Isolation::Initially])
        };
        // The oldest unit has three valid pages, the interrupted one a page left, and there is
        // room for two.
        let valid = [3u32, 1, 2, 2, 2, 2, 2, 2];
        let mut map = Vec::new();
        for (unit, &count) in (0u32..).zip(&valid) {
            map.extend((unit * 4..unit * 4 + count).map(MediaPage));
        }
        let mut records: Vec<UnitRecord> = (0..8)
            .map(|unit| UnitRecord {
                phase: Phase::Closed,
                writer: Writer::Host(0),
                erasures: 1,
                closed_at: if unit == 0 { 0 } else { 900 + unit },
                next: 0,
            })
            .collect();
        records[7] =
            UnitRecord { phase: Phase::Open, writer: Writer::Cleaning, next: 2, ..records[7] };
        for seed in 0..20 {
            let options = FtlOptions { seed, ..options.clone() };
            let counts = PageCounts { host: 1000, ..PageCounts::default() };
            let mut ftl = Ftl::restore(options, map.clone(), &records, counts).unwrap();
            let mut rng = Rng::new(seed);
            for _ in 0..200 {
                let page = u32::try_from(rng.below(16)).unwrap();
                ftl.write(LogicalPage(page), 1, 0, &mut Counting);
                ftl.check().unwrap();
            }
        }
    }
}
