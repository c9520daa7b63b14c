//! Configurations that the experiment runs, and the published figures about each.

use std::ops::Range;

use esker_base::units::to_u64;
use esker_device::fdp::Isolation;
use esker_flash::ftl::{Cleaning, CleaningPace, Frontier};

use super::configuration::{Configuration, InitialState, StoreKind, StoreRate};
use super::keys::KeyLaw;
use super::options::FdpOptions;
use super::own::{BLOCKS, KIB, OwnStores, WIDE_BLOCKS, by_block};
use super::report::Published;
use super::sink::DriveModel;
use super::turns::Order;
use super::worth::Search;

/// Reclaim units of a drive under circular writers.
const CIRCULAR_UNITS: u32 = 1024;
/// Reclaim units of a drive under stores with records.
const STORE_UNITS: u32 = 640;
/// Records of a table that fills a 1.92 TB drive a little more than half.
pub(super) const TABLE_RECORDS: u64 = 800_000_000;

/// The smallest drive whose factor is comparable with published figures, in bytes.
const COMPARED_BYTES: u64 = 8 << 30;

const AEROSPIKE: &str = "Micron, March 2024: four Aerospike instances on a 7450 PRO 7.68 TB";
const FIO: &str = "Micron, July 2023: four sequential fio writers on a 7450 PRO 7.68 TB";
/// Source named beside a figure that Micron expects of placement, but has not measured.
const EXPECTED: &str = "Micron, March 2024: expected with data placement, not measured";

/// One run to be made.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) configuration: Configuration,
    pub(super) published: Option<Published>,
}

/// Runs that belong together.
pub(super) struct Chapter {
    pub(super) name: &'static str,
    pub(super) notes: Vec<&'static str>,
    pub(super) runs: Vec<Planned>,
    /// Runs of which the mean is compared with a published figure.
    pub(super) mean: Option<(Range<usize>, Published)>,
}

impl Chapter {
    fn new(name: &'static str, notes: &[&'static str]) -> Chapter {
        Chapter { name, notes: notes.to_vec(), runs: Vec::new(), mean: None }
    }

    /// Leaves out the published figures, and says why.
    fn compare_nothing(&mut self) {
        self.notes.push(
            "On a drive below 8 GiB these factors are not those of a larger one, and stand beside no published \
             figure: blocks do not shrink with the drive and outgrow its reclaim units.",
        );
        self.runs.iter_mut().for_each(|run| run.published = None);
        self.mean = None;
    }

    fn push(&mut self, name: impl Into<String>, of: Configuration, published: Option<Published>) {
        self.runs.push(Planned { name: name.into(), configuration: of, published });
    }
}

fn published(figure: f64, source: &str) -> Option<Published> {
    Some(Published { figure, source: source.to_owned() })
}

/// All chapters of an experiment.
pub(super) fn chapters(options: &FdpOptions) -> Vec<Chapter> {
    if let Some(own) = &options.own {
        return vec![own_stores(options, own)];
    }
    let mut chapters = vec![
        circular(options),
        stores(options, InitialState::Fresh),
        stores(options, InitialState::Mapped),
        zipfian(options, KeyLaw::Zipfian { table_records: Some(TABLE_RECORDS) }),
    ];
    if options.full {
        chapters.push(zipfian(options, KeyLaw::Zipfian { table_records: None }));
        chapters.push(spare(options));
        chapters.push(fills(options));
        chapters.push(zipfian_fills(options));
    }
    if options.drive_bytes < COMPARED_BYTES {
        chapters.iter_mut().for_each(Chapter::compare_nothing);
    }
    chapters
}

/// The same rate for all.
pub(super) fn equal(blocks: [u64; 4]) -> Vec<StoreRate> {
    blocks.map(|block_bytes| StoreRate { block_bytes, rate: 1.0 }).to_vec()
}

/// Circular writers: a drive a quarter as large suffices, and is mapped in small pages.
pub(super) fn circular_base(options: &FdpOptions) -> Configuration {
    Configuration {
        drive: DriveModel {
            bytes: options.drive_bytes / 4,
            page_bytes: 4096,
            units: CIRCULAR_UNITS,
            over_provisioning: options.over_provisioning,
            cleaning: Cleaning::Greedy,
            frontier: Frontier::Separate,
            pace: CleaningPace::WhenNeeded,
            isolation: Isolation::Initially,
        },
        handles_each: 0,
        initial: InitialState::Mapped,
        kind: StoreKind::Circular,
        stores: by_block(BLOCKS),
        order: Order::Independent,
        seed: options.seed,
    }
}

fn circular(options: &FdpOptions) -> Chapter {
    let mut chapter = Chapter::new(
        "Circular writers",
        &[
            "Four writers at equal rates cost nothing: what costs is that a reclaim unit mixes \
             data that live for different times, and that follows from the rates.",
            "The published 1.84 is of four Aerospike instances, which are more than circular \
             writers; the next chapter has them.",
            "Whole units are cleaned when they are needed, as closed forms and most models have it. \
             At a steady pace, as Esker's drives clean, a unit loses more pages before they are \
             copied: that costs less, most of all at 1:4:16:64.",
        ],
    );
    let base = circular_base(options);
    let wide = Configuration { stores: by_block(WIDE_BLOCKS), ..base.clone() };
    let control = Configuration { stores: equal(BLOCKS), ..base.clone() };
    let shared = |of: &Configuration| {
        let drive = DriveModel { frontier: Frontier::Shared, ..of.drive };
        Configuration { drive, ..of.clone() }
    };
    let steady = |of: &Configuration| {
        let drive = DriveModel { pace: CleaningPace::Steady, ..of.drive };
        Configuration { drive, ..of.clone() }
    };
    let placed = |of: &Configuration| Configuration { handles_each: 1, ..of.clone() };
    let in_step = |of: &Configuration| Configuration { order: Order::InStep, ..of.clone() };
    chapter.push("equal rates, no placement (control)", control.clone(), None);
    chapter.push("equal rates, a handle each", placed(&control), None);
    chapter.push("1:2:4:8, no placement", base.clone(), published(1.84, AEROSPIKE));
    chapter.push("1:2:4:8, a handle each", placed(&base), None);
    chapter.push("1:4:16:64, no placement", wide.clone(), published(1.6, FIO));
    chapter.push("1:4:16:64, a handle each", placed(&wide), published(1.02, FIO));
    chapter.push("1:2:4:8 in step, no placement", in_step(&base), None);
    chapter.push("1:4:16:64 in step, no placement", in_step(&wide), None);
    chapter.push("1:2:4:8, steady cleaning", steady(&base), None);
    chapter.push("1:4:16:64, steady cleaning", steady(&wide), None);
    chapter.push("1:2:4:8, copies with host writes", shared(&base), None);
    chapter.push("1:4:16:64, copies with host writes", shared(&wide), None);
    chapter
}

/// Four stores with records.
pub(super) fn stores_base(options: &FdpOptions) -> Configuration {
    Configuration {
        drive: DriveModel {
            bytes: options.drive_bytes,
            // No store writes less.
            page_bytes: 32 << 10,
            units: STORE_UNITS,
            over_provisioning: options.over_provisioning,
            cleaning: Cleaning::Greedy,
            frontier: Frontier::Separate,
            pace: CleaningPace::WhenNeeded,
            isolation: Isolation::Initially,
        },
        handles_each: 0,
        initial: InitialState::Fresh,
        kind: StoreKind::Records {
            fill: options.fill,
            record_bytes: options.record_bytes,
            keys: KeyLaw::Uniform,
            threshold: 0.5,
        },
        stores: by_block(BLOCKS),
        order: Order::Independent,
        seed: options.seed,
    }
}

/// Each store of a configuration alone on a drive of its own, which has the store's share of bytes.
pub(super) fn alone(of: &Configuration) -> impl Iterator<Item = (String, Configuration)> + '_ {
    let share = of.drive.bytes / to_u64(of.stores.len().max(1));
    of.stores.iter().map(move |store| {
        let drive = DriveModel { bytes: share, ..of.drive };
        let stores = vec![StoreRate { rate: 1.0, ..*store }];
        let name = format!("alone, {} KiB blocks", store.block_bytes / KIB);
        (name, Configuration { drive, stores, ..of.clone() })
    })
}

pub(super) fn with_handles(of: &Configuration, handles_each: u16) -> Configuration {
    Configuration { handles_each, ..of.clone() }
}

fn stores(options: &FdpOptions, initial: InitialState) -> Chapter {
    let is_fresh = initial == InitialState::Fresh;
    let mut chapter = if is_fresh {
        Chapter::new(
            "Aerospike-like stores, uniform keys, fresh drive",
            &[
                "The fill was chosen by a sweep, so that a store alone comes near the published \
                 1.08; it is the one parameter that was. Rates in proportion to blocks are an \
                 assumption: neither rates nor fill were published.",
                "At equal rates the stores cost no more together than alone, and placement gains \
                 nothing.",
            ],
        )
    } else {
        Chapter::new(
            "Aerospike-like stores, uniform keys, drive written once and not trimmed",
            &[
                "What nobody trims stays valid, so that the space that stores leave alone is no spare \
               space. Trimming the drive first is part of the published experiment.",
            ],
        )
    };
    let base = Configuration { initial, ..stores_base(options) };
    for (name, configuration) in alone(&base) {
        chapter.push(name, configuration, None);
    }
    if is_fresh {
        let figure = Published { figure: 1.08, source: AEROSPIKE.to_owned() };
        chapter.mean = Some((0..4, figure));
    }
    let of_fresh = |figure, source| if is_fresh { published(figure, source) } else { None };
    chapter.push("1:2:4:8, no placement", base.clone(), of_fresh(1.84, AEROSPIKE));
    chapter.push("1:2:4:8, a handle each", with_handles(&base, 1), of_fresh(1.08, EXPECTED));
    chapter.push("1:2:4:8, two handles each", with_handles(&base, 2), None);
    let control = Configuration { stores: equal(BLOCKS), ..base };
    chapter.push("equal rates, no placement (control)", control.clone(), None);
    chapter.push("equal rates, a handle each", with_handles(&control, 1), None);
    chapter
}

/// Stores of one's own: each alone, and together with each number of handles.
fn own_stores(options: &FdpOptions, own: &OwnStores) -> Chapter {
    let mut chapter = Chapter::new(
        "Stores as asked for",
        &[
            "No figure was published of these: each store alone, on its share of the drive, is what to compare with.",
        ],
    );
    let base = own.configuration(options);
    if own.stores.len() > 1 {
        for (name, configuration) in alone(&base) {
            chapter.push(name, configuration, None);
        }
    }
    for &handles in &own.handles {
        chapter.push(together(handles), with_handles(&base, handles), None);
    }
    chapter
}

/// The name of a run of all stores.
fn together(handles: u16) -> String {
    match handles {
        0 => "together, no placement".to_owned(),
        1 => "together, a handle each".to_owned(),
        count => format!("together, {count} handles each"),
    }
}

/// Stores on a device: together, with each number of handles.
pub(super) fn on_device(options: &FdpOptions, own: &OwnStores) -> Chapter {
    let are_published = own.are_published(options);
    let mut chapter = Chapter::new(
        if are_published {
            "The published stores, on a device"
        } else {
            "Stores as asked for, on a device"
        },
        &[
            "The drive's own log says what it wrote. Its over-provisioning and its cleaning are its own, and its \
             figures those of the whole drive.",
            "Left out: the stores alone, which need drives of other sizes; Esker's engine; and what placement is \
             worth, which is derived for the drive of the published experiment.",
        ],
    );
    let base = own.configuration(options);
    for &handles in &own.handles {
        let figure = match handles {
            0 => published(1.84, AEROSPIKE),
            1 => published(1.08, EXPECTED),
            _ => None,
        };
        let figure = figure.filter(|_| are_published);
        chapter.push(together(handles), with_handles(&base, handles), figure);
    }
    if are_published && options.drive_bytes < COMPARED_BYTES {
        chapter.compare_nothing();
    }
    chapter
}

/// Handles for each store.
const HANDLES: [(u16, &str); 3] =
    [(0, "no placement"), (1, "a handle each"), (2, "two handles each")];

pub(super) fn zipfian_base(options: &FdpOptions, keys: KeyLaw) -> Configuration {
    let mut base = stores_base(options);
    base.kind = StoreKind::Records {
        fill: options.zipfian_fill,
        record_bytes: options.record_bytes,
        keys,
        threshold: 0.5,
    };
    base
}

fn zipfian(options: &FdpOptions, keys: KeyLaw) -> Chapter {
    let mut chapter = Chapter::new(
        match keys {
            KeyLaw::Zipfian { table_records: None } => {
                "Aerospike-like stores, zipfian keys over the scaled table, fresh drive"
            }
            _ => "Aerospike-like stores, zipfian keys of the whole table, fresh drive",
        },
        &["Hot records make blocks die young, and what defragmentation moves is cold: one handle \
             for both is no longer enough, and two are. The fill is lower than with uniform keys; \
             it is one of three (25, 32 and 38 %) at which two handles each were found to suffice; \
             a sweep over these is part of the full experiment."],
    );
    let base = zipfian_base(options, keys);
    for (name, configuration) in alone(&base) {
        chapter.push(name, configuration, None);
    }
    for (handles, name) in HANDLES {
        chapter.push(format!("1:2:4:8, {name}"), with_handles(&base, handles), None);
    }
    chapter
}

fn spare(options: &FdpOptions) -> Chapter {
    let mut chapter = Chapter::new(
        "Circular writers by over-provisioning, no placement",
        &["How much spare space a drive has is not published; this is what it decides."],
    );
    for percent in [7.0, 10.0, 12.0, 13.0, 14.5, 16.0, 18.0, 28.0] {
        for (name, blocks) in [("1:2:4:8", BLOCKS), ("1:4:16:64", WIDE_BLOCKS)] {
            let mut of = Configuration { stores: by_block(blocks), ..circular_base(options) };
            of.drive.over_provisioning = percent / 100.0;
            chapter.push(format!("{name}, {percent} %"), of, None);
        }
    }
    chapter
}

fn fills(options: &FdpOptions) -> Chapter {
    let mut chapter = Chapter::new(
        "Aerospike-like stores by fill, uniform keys, fresh drive",
        &["The sweep by which the fill of the chapter above was chosen."],
    );
    for percent in [45u32, 50, 55, 58, 60] {
        let mut of = stores_base(options);
        if let StoreKind::Records { fill, .. } = &mut of.kind {
            *fill = f64::from(percent) / 100.0;
        }
        chapter.push(format!("{percent} %, 1:2:4:8, no placement"), of.clone(), None);
        chapter.push(format!("{percent} %, 1:2:4:8, a handle each"), with_handles(&of, 1), None);
    }
    chapter
}

fn zipfian_fills(options: &FdpOptions) -> Chapter {
    let mut chapter = Chapter::new(
        "Aerospike-like stores by fill, zipfian keys of the whole table, fresh drive",
        &["The sweep by which the fill of the chapter above was chosen."],
    );
    for percent in [25u32, 32, 38, 45] {
        let fill = f64::from(percent) / 100.0;
        let options = FdpOptions { zipfian_fill: fill, ..options.clone() };
        let of = zipfian_base(&options, KeyLaw::Zipfian { table_records: Some(TABLE_RECORDS) });
        for (handles, name) in HANDLES {
            chapter.push(format!("{percent} %, 1:2:4:8, {name}"), with_handles(&of, handles), None);
        }
    }
    chapter
}

/// Searches for spare space, on a smaller drive: each takes many runs.
pub(super) fn searches(options: &FdpOptions) -> Vec<Search> {
    let small = FdpOptions { drive_bytes: options.drive_bytes / 8, ..options.clone() };
    let mut searches = Vec::new();
    for initial in [InitialState::Fresh, InitialState::Mapped] {
        let mixed = Configuration { initial, ..stores_base(&small) };
        let placed = with_handles(&mixed, 1);
        let state = match initial {
            InitialState::Fresh => "fresh drive",
            InitialState::Mapped => "drive written once",
        };
        searches.push(Search {
            name: format!("{state}: without placement, for the factor with a handle each"),
            given: placed.clone(),
            searched: mixed.clone(),
        });
        searches.push(Search {
            name: format!("{state}: with a handle each, for the factor without placement"),
            given: mixed,
            searched: placed,
        });
    }
    searches
}

impl OwnStores {
    /// Whether these are the stores of the published experiment, whatever their handles.
    pub(super) fn are_published(&self, options: &FdpOptions) -> bool {
        let published = OwnStores { handles: self.handles.clone(), ..OwnStores::default() };
        let usual = FdpOptions::default();
        #[allow(clippy::float_cmp)] // a default, or given
        let has_its_records =
            options.fill == usual.fill && options.record_bytes == usual.record_bytes;
        *self == published && has_its_records
    }

    /// All of them on one drive, without placement.
    pub(super) fn configuration(&self, options: &FdpOptions) -> Configuration {
        let base = match self.keys {
            Some(KeyLaw::Uniform) => stores_base(options),
            Some(keys) => zipfian_base(options, keys),
            None => Configuration { kind: StoreKind::Circular, ..stores_base(options) },
        };
        let units = self.unit_bytes.map(|unit| options.drive_bytes.div_ceil(unit));
        let drive = DriveModel {
            page_bytes: self.page_bytes(),
            units: units.map_or(base.drive.units, |units| u32::try_from(units).unwrap_or(u32::MAX)),
            cleaning: self.cleaning,
            frontier: self.frontier,
            pace: self.pace,
            isolation: self.isolation,
            ..base.drive
        };
        Configuration { drive, initial: self.initial, stores: self.stores.clone(), ..base }
    }
}
