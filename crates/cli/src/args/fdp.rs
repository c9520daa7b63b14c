//! The arguments of `esker lab fdp`.

use clap::{Args, ValueEnum};
use esker_device::fdp::Isolation;
use esker_flash::ftl::{Cleaning, CleaningPace, Frontier};
use esker_lab::fdp::FdpOptions;
use esker_lab::fdp::configuration::{InitialState, StoreRate};
use esker_lab::fdp::keys::KeyLaw;
use esker_lab::fdp::own::OwnStores;
use esker_stack::Spec;

use super::experiment::ExperimentArgs;
use super::parse;
use crate::failure::{Failure, Result};
use crate::host;

/// `esker lab fdp`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab fdp\n  \
        esker lab fdp --full --report fdp.html --json fdp.json\n  \
        esker lab fdp --over-network\n  \
        esker lab fdp --over-provisioning 0.07 --fill 0.7 --handles 0,1,2\n  \
        esker lab fdp --blocks 64KiB,1MiB --rates 1,10 --keys zipfian --isolation persistent\n  \
        esker lab fdp --erase --device /dev/nvme1n1\n  \
        esker lab fdp --erase --device 'nvme-tcp://10.0.0.1/nqn.2026-01.io.esker:fdp' --handles 0,1")]
pub(crate) struct FdpArgs {
    /// Sweep over over-provisioning and fill, too
    #[arg(long)]
    pub(crate) full: bool,
    /// Run some workloads in process and over NVMe/TCP, and require that drives write the same.
    /// The drive has a 64th of the size
    #[arg(long, conflicts_with = "full")]
    pub(crate) over_network: bool,
    /// The size of the modelled drive
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = parse::bytes)]
    pub(crate) drive: u64,
    /// Leave out the runs of the engine
    #[arg(long)]
    pub(crate) no_engine: bool,
    /// Leave out the search for the spare space that placement replaces
    #[arg(long)]
    pub(crate) no_worth: bool,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// Run the stores on this device, in place of models: its own log says what it writes to its media
    #[arg(long, value_name = "DEVICE", value_parser = parse::spec, conflicts_with_all = OF_MODELS)]
    pub(crate) device: Option<Spec>,
    /// Agree that what is on the device is lost
    #[arg(long, requires = "device")]
    pub(crate) erase: bool,
    #[command(flatten)]
    pub(crate) own: OwnStoresArgs,
    #[command(flatten)]
    pub(crate) every: ExperimentArgs,
}

/// Flags about modelled drives, and runs of them.
const OF_MODELS: [&str; 10] = [
    "full",
    "over_network",
    "drive",
    "threads",
    "isolation",
    "over_provisioning",
    "unit",
    "cleaning",
    "copies",
    "steady",
];

/// Stores of one's own. With any of these they run in place of the published ones.
#[derive(Args, Default, PartialEq)]
#[command(next_help_heading = "Stores of your own, in place of the published ones")]
pub(crate) struct OwnStoresArgs {
    /// Bytes of a block of each store, which says how many stores there are [default: 32KiB,64KiB,128KiB,256KiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse::bytes, conflicts_with_all = OTHERS)]
    blocks: Vec<u64>,
    /// Bytes that each store writes, in proportion [default: as its blocks]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = parse::times, conflicts_with_all = OTHERS)]
    rates: Vec<f64>,
    /// Handles for each store, a run for each number; 0 is no placement [default: 0,1,2; of a device, as far as it has
    /// them]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', conflicts_with_all = OTHERS)]
    #[arg(value_parser = parse::number(0, u16::MAX))]
    handles: Vec<u16>,
    /// Whether cleaning keeps apart what handles wrote [default: initial]
    #[arg(long, value_name = "KIND", conflicts_with_all = OTHERS)]
    isolation: Option<IsolationArg>,
    /// Media beyond the drive's size, as a share of it [default: 0.145]
    #[arg(long, value_name = "SHARE", value_parser = parse::number(0.0, 10.0), conflicts_with_all = OTHERS)]
    over_provisioning: Option<f64>,
    /// The share of its part of the drive that a store's records take [default: 0.58, with zipfian keys 0.32]
    #[arg(long, value_name = "SHARE", value_parser = parse::number(0.0, 1.0), conflicts_with_all = OTHERS)]
    fill: Option<f64>,
    /// Bytes of a record [default: 1280]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, conflicts_with_all = OTHERS)]
    record: Option<u64>,
    /// Which records are updated, or circular writers without records [default: uniform]
    #[arg(long, value_name = "LAW", conflicts_with_all = OTHERS)]
    keys: Option<KeysArg>,
    /// Bytes of a reclaim unit [default: a 640th of the drive]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, conflicts_with_all = OTHERS)]
    unit: Option<u64>,
    /// Which unit is cleaned: greedy, fifo, choices:COUNT or cost-benefit [default: greedy]
    #[arg(long, value_name = "POLICY", conflicts_with_all = OTHERS)]
    cleaning: Option<Cleaning>,
    /// Where cleaning copies to [default: separate]
    #[arg(long, value_name = "UNITS", conflicts_with_all = OTHERS)]
    copies: Option<CopiesArg>,
    /// Clean a share after each write, instead of a whole unit when there is none left
    #[arg(long, conflicts_with_all = OTHERS)]
    steady: bool,
    /// The drive was written once before, and not trimmed
    #[arg(long, conflicts_with_all = OTHERS)]
    written_before: bool,
}

/// Flags about the published stores.
const OTHERS: [&str; 2] = ["full", "over_network"];

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum IsolationArg {
    /// Cleaning moves data to one unit for all handles
    Initial,
    /// Cleaning moves data to a unit of its handle
    Persistent,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum CopiesArg {
    /// To units of their own
    Separate,
    /// To the units that the host is filling
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum KeysArg {
    /// All alike
    Uniform,
    /// YCSB's zipfian law, over these records
    Zipfian,
    /// No records: each store overwrites its part from the first block to the last
    Circular,
}

impl FdpArgs {
    /// The experiment that is asked for.
    pub(crate) fn options(&self) -> Result<FdpOptions> {
        let usual = FdpOptions::default();
        let own = &self.own;
        let mut stores = own.stores()?;
        if let Some(stores) = stores.as_mut().filter(|_| self.device.is_some()) {
            // None are those that the device has.
            stores.handles.clone_from(&own.handles);
        }
        Ok(FdpOptions {
            drive_bytes: self.drive,
            over_provisioning: own.over_provisioning.unwrap_or(usual.over_provisioning),
            fill: own.fill.unwrap_or(usual.fill),
            zipfian_fill: own.fill.unwrap_or(usual.zipfian_fill),
            record_bytes: own.record.unwrap_or(usual.record_bytes),
            full: self.full,
            engine: !self.no_engine,
            worth: !self.no_worth,
            threads: self.threads.unwrap_or_else(host::cores),
            seed: self.every.seed,
            own: stores,
        })
    }
}

impl OwnStoresArgs {
    /// The stores, if any flag asks for them.
    fn stores(&self) -> Result<Option<OwnStores>> {
        if *self == OwnStoresArgs::default() {
            return Ok(None);
        }
        let mut own = OwnStores::default();
        if !self.blocks.is_empty() {
            #[allow(clippy::cast_precision_loss)] // a block's size
            let store = |&block_bytes: &u64| StoreRate { block_bytes, rate: block_bytes as f64 };
            own.stores = self.blocks.iter().map(store).collect();
        }
        if !self.rates.is_empty() {
            if self.rates.len() != own.stores.len() {
                return Err(Failure::usage(format!(
                    "--rates names {} rates for {} stores; name one for each of --blocks",
                    self.rates.len(),
                    own.stores.len()
                )));
            }
            own.stores.iter_mut().zip(&self.rates).for_each(|(store, rate)| store.rate = *rate);
        }
        if !self.handles.is_empty() {
            own.handles.clone_from(&self.handles);
        }
        own.isolation = match self.isolation {
            Some(IsolationArg::Persistent) => Isolation::Persistently,
            _ => Isolation::Initially,
        };
        own.keys = match self.keys {
            Some(KeysArg::Circular) => None,
            Some(KeysArg::Zipfian) => Some(KeyLaw::Zipfian { table_records: None }),
            _ => Some(KeyLaw::Uniform),
        };
        if own.keys.is_none() && (self.fill.is_some() || self.record.is_some()) {
            let why = "circular writers have no records; leave out --fill and --record";
            return Err(Failure::usage(why));
        }
        own.unit_bytes = self.unit;
        own.cleaning = self.cleaning.unwrap_or(own.cleaning);
        if self.copies == Some(CopiesArg::Shared) {
            own.frontier = Frontier::Shared;
        }
        if self.steady {
            own.pace = CleaningPace::Steady;
        }
        if self.written_before {
            own.initial = InitialState::Mapped;
        }
        Ok(Some(own))
    }
}
