//! Results of the experiment: every factor with everything it depends on, and beside it the published figure.

use esker_base::units::human_bytes;
use esker_device::fdp::Isolation;
use esker_flash::ftl::{Cleaning, CleaningPace, Frontier};
use esker_report::Assumption;
use serde::{Deserialize, Serialize};

use super::configuration::{Configuration, InitialState, StoreKind, StoreRate};
use super::course::Measured;
use super::turns::Order;
use super::worth::Worth;

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FdpFigures {
    /// How many stores share the drive.
    pub stores: usize,
    /// The device on which the stores ran; none for the modelled drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Runs that belong together.
    pub chapters: Vec<Chapter>,
    /// Worth of a lower factor.
    pub worth: Option<Worth>,
}

/// Runs that belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chapter {
    /// The subject of the runs.
    pub name: String,
    /// Notes that a reader must not miss.
    pub notes: Vec<String>,
    /// The runs.
    pub runs: Vec<Run>,
    /// Figures that follow from several runs.
    pub derived: Vec<Derived>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the run: its particulars.
    pub name: String,
    /// Everything its factor depends on.
    pub assumptions: Vec<Assumption>,
    /// The result of the run.
    pub measured: Measured,
    /// The published figure, if there is one.
    pub published: Option<Published>,
}

/// A figure that follows from several runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// How it follows.
    pub name: String,
    /// The factor.
    pub write_amplification: f64,
    /// The published figure, if there is one.
    pub published: Option<Published>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// A write amplification factor.
    pub figure: f64,
    /// The publisher, and the subject of the figure.
    pub source: String,
}

impl Chapter {
    /// Returns each assumption with the value that most runs share.
    #[must_use]
    pub fn usual(&self) -> Vec<&Assumption> {
        let mut usual: Vec<(&Assumption, usize)> = Vec::new();
        for one in self.runs.iter().flat_map(|run| &run.assumptions) {
            let count = self.runs.iter().filter(|run| run.assumptions.contains(one)).count();
            match usual.iter_mut().find(|(known, _)| known.name == one.name) {
                Some(known) if count > known.1 => *known = (one, count),
                Some(_) => {}
                None => usual.push((one, count)),
            }
        }
        usual.into_iter().map(|(one, _)| one).collect()
    }

    /// The assumptions of a run that are not the usual ones.
    #[must_use]
    pub fn unlike<'a>(&'a self, run: &'a Run) -> Vec<&'a Assumption> {
        let usual = self.usual();
        run.assumptions.iter().filter(|one| !usual.contains(one)).collect()
    }
}

pub(super) fn assumption(name: &str, value: impl Into<String>) -> Assumption {
    Assumption::new(name, value)
}

/// A share as a percentage, with no more digits than it has.
pub(super) fn percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The assumptions that a configuration is.
pub(super) fn assumptions(of: &Configuration) -> Vec<Assumption> {
    let mut list = stores_assumptions(of);
    list.extend(drive_assumptions(of));
    list
}

/// Those about its stores.
pub(super) fn stores_assumptions(of: &Configuration) -> Vec<Assumption> {
    let mut list = vec![
        assumption("stores", stores(&of.stores)),
        assumption("handles", handles(of.handles_each, of.stores.len())),
        assumption("rates", rates(&of.stores)),
        assumption(
            "order of writes",
            match of.order {
                Order::Independent => "independent: whose block is next is random",
                Order::InStep => "in step: always the store that lies behind the most",
            },
        ),
    ];
    match of.kind {
        StoreKind::Circular => list.push(assumption(
            "writes",
            "each overwrites its namespace from the first block to the last",
        )),
        StoreKind::Records { fill, record_bytes, keys, threshold } => {
            let (blocks, freed) = ("free blocks first come first served", "freed ones untrimmed");
            list.push(assumption("fill", percent(fill)));
            list.push(assumption("records", format!("{record_bytes} bytes")));
            list.push(assumption("updated keys", keys.to_string()));
            list.push(assumption("defragmentation", format!("below {} alive", percent(threshold))));
            list.push(assumption("writes", format!("whole blocks, {blocks}, {freed}")));
        }
    }
    list
}

/// Those about its drive.
fn drive_assumptions(of: &Configuration) -> [Assumption; 9] {
    let drive = &of.drive;
    [
        assumption(
            "drive",
            format!(
                "{}, reclaim units of {} (1/{} of it)",
                human_bytes(drive.bytes),
                human_bytes(drive.unit_bytes()),
                drive.units,
            ),
        ),
        assumption("mapped in", format!("pages of {}", human_bytes(drive.page_bytes.into()))),
        assumption("over-provisioning", percent(drive.over_provisioning)),
        assumption("media", media(of)),
        assumption("cleaning", cleaning(drive.cleaning)),
        assumption("pace of cleaning", pace(drive.pace)),
        assumption("copies go", copies(drive.frontier, drive.isolation)),
        assumption(
            "drive held before",
            match of.initial {
                InitialState::Fresh => "nothing",
                InitialState::Mapped => "data everywhere, written once in order, never trimmed",
            },
        ),
        assumption("seed", of.seed.to_string()),
    ]
}

fn stores(stores: &[StoreRate]) -> String {
    let sizes: Vec<String> =
        stores.iter().map(|store| format!("{}", store.block_bytes >> 10)).collect();
    match sizes.len() {
        1 => format!("one with blocks of {} KiB", sizes[0]),
        count => format!("{count} with blocks of {} KiB", sizes.join(", ")),
    }
}

pub(super) fn handles(each: u16, stores: usize) -> String {
    match each {
        0 => "no placement".to_owned(),
        _ => format!("{each} each, {} in all", usize::from(each) * stores),
    }
}

fn rates(stores: &[StoreRate]) -> String {
    let least = stores.iter().map(|store| store.rate).fold(f64::INFINITY, f64::min);
    let ratios: Vec<String> =
        stores.iter().map(|store| format!("{}", rounded(store.rate / least))).collect();
    let blocks_per_rate =
        |store: &StoreRate| f64::from(u32::try_from(store.block_bytes).unwrap_or(0)) / store.rate;
    let first = stores.first().map_or(0.0, blocks_per_rate);
    let are_in_proportion = stores.iter().all(|store| blocks_per_rate(store) == first);
    match (stores.len(), are_in_proportion) {
        (1, _) => "one store".to_owned(),
        (_, true) => format!("{} in bytes, equally many blocks", ratios.join(":")),
        (_, false) => format!("{} in bytes", ratios.join(":")),
    }
}

/// At most two decimals.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn cleaning(policy: Cleaning) -> String {
    match policy {
        Cleaning::Greedy => "greedy: the unit with the fewest valid pages".to_owned(),
        Cleaning::Fifo => "the unit that was full first".to_owned(),
        Cleaning::Choices(count) => format!("the emptiest of {count} units chosen at random"),
        Cleaning::CostBenefit => "cost-benefit".to_owned(),
    }
}

pub(super) fn pace(pace: CleaningPace) -> &'static str {
    match pace {
        CleaningPace::Steady => "steady: copies of a unit are spread over what it gives the host",
        CleaningPace::WhenNeeded => "a whole unit when there is none left to write to",
    }
}

/// Returns the drive's physical media, and how much of it lies idle for cleaning.
fn media(of: &Configuration) -> String {
    let namespaces = u16::try_from(of.stores.len()).unwrap_or(u16::MAX);
    let Ok(translation) = of.drive.translation(namespaces, of.handles_each) else {
        return "more than can be counted".to_owned();
    };
    let unit_bytes = of.drive.unit_bytes();
    let bytes = |units: u32| human_bytes(u64::from(units) * unit_bytes);
    let (units, reserve) = (translation.units, translation.reserve_units());
    format!(
        "{} in {units} units, {} of it ({reserve} units) in reserve",
        bytes(units),
        bytes(reserve)
    )
}

fn copies(frontier: Frontier, isolation: Isolation) -> &'static str {
    match (frontier, isolation) {
        (Frontier::Separate, Isolation::Initially) => "to units of their own, one for all stores",
        (Frontier::Separate, Isolation::Persistently) => {
            "to units of their own, one for each handle: persistently isolated"
        }
        (Frontier::Shared, _) => "to the units that the host is filling",
    }
}
