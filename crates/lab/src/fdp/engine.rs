//! Esker's engine in the experiment: four KVDBs with values of different sizes and at different
//! rates, each in a namespace of its own of one modelled drive.
//!
//! The drive is a device that stores data and counts, so that this is the engine as it is, its
//! streams and its discards included. It runs one step at a time on a virtual clock: the same seed
//! gives the same writes.

use std::sync::Arc;

use esker_base::units::{human_bytes, round_down, to_usize};
use esker_base::{Clock, Rng};
use esker_device::Device;
use esker_flash::Parameters;
use esker_flash::ftl::{Cleaning, CleaningPace, Frontier};
use esker_kv::{Kvdb, Kvs, Location, Maintenance, Options, Policy, Tuning};

use super::course::{Course, Measured};
use super::emulated::{self, EmulatedDrive, units_in_use};
use super::measure::OnShare;
use super::options::FdpOptions;
use super::report::{Chapter, Run, assumption, handles, pace, percent};
use super::sink::{DeviceDrive, Drive as _};
use super::turns::{Order, Turns};
use crate::LabError;
use esker_report::Assumption;

/// The chapter of the report.
pub(super) const CHAPTER: &str = "Esker's engine: four KVDBs";

/// Bytes for the manifest of each KVDB, which has a namespace of its own.
const MANIFEST_BYTES: u64 = 8 << 20;
/// Bytes that the clients of a KVDB write in a turn.
const TURN_BYTES: u64 = 16 << 10;
/// The DRAM of each KVDB, in bytes.
const MEMORY_BYTES: u64 = 16 << 20;
/// Bytes of a key: its number in decimal.
const KEY_BYTES: u64 = 12;

/// The devices of a KVDB.
pub(super) struct StoreDevices {
    pub(super) manifest: Arc<dyn Device>,
    pub(super) capacity: Arc<dyn Device>,
}

/// Four KVDBs on a drive.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineRun {
    /// The size of the drive.
    pub drive_bytes: u64,
    /// Reclaim units that hold as much as the host can address.
    pub units: u32,
    /// Media in use beyond that, as a share.
    pub over_provisioning: f64,
    /// Reclaim unit handles for each KVDB; none is a drive without data placement.
    pub handles_each: u16,
    /// The size of the values of each KVDB, in bytes.
    pub value_bytes: [u64; 4],
    /// Bytes its clients write, in any unit that all share.
    pub rates: [f64; 4],
    /// The share of its namespace that its keys and values take.
    pub fill: f64,
    /// Seed for the choice of keys and of the next writer.
    pub seed: u64,
}

/// Spans that a run lasts at least: an engine ages more slowly than stores of records do.
const LEAST_SPANS: f64 = 5.0;

/// A KVDB and its load.
struct Store {
    db: Kvdb,
    kvs: Kvs,
    keys: u64,
    loaded: u64,
    value: Vec<u8>,
    rng: Rng,
}

impl EngineRun {
    /// The runs of the experiment: by how many handles each KVDB has.
    pub(super) fn all(options: &FdpOptions) -> Vec<EngineRun> {
        let drive_bytes = round_down((options.drive_bytes / 64).max(256 << 20), 64 << 20);
        let run = |handles_each| EngineRun {
            drive_bytes,
            units: 256,
            over_provisioning: options.over_provisioning,
            handles_each,
            value_bytes: [512, 1024, 2048, 4096],
            rates: [1.0, 2.0, 4.0, 8.0],
            fill: 0.5,
            seed: options.seed,
        };
        [0, 1, 2, 5].map(run).to_vec()
    }

    /// Returns the name of the run: its rates and its handles.
    #[must_use]
    pub fn name(&self) -> String {
        match self.handles_each {
            0 => "KVDBs at 1:2:4:8, no placement".to_owned(),
            1 => "KVDBs at 1:2:4:8, a handle each".to_owned(),
            count => format!("KVDBs at 1:2:4:8, {count} handles each"),
        }
    }

    /// Runs it on the drive that it describes.
    ///
    /// # Errors
    /// The drive's or the engine's, or when the watcher ends it.
    pub fn measure(&self, watch: OnShare<'_>) -> Result<Measured, LabError> {
        self.measure_on(self.devices()?, watch)
    }

    /// Runs it on other devices, one group for each KVDB, all on one drive.
    ///
    /// # Errors
    /// A device's or the engine's, or when the watcher ends it.
    pub(super) fn measure_on(
        &self,
        devices: Vec<StoreDevices>,
        watch: OnShare<'_>,
    ) -> Result<Measured, LabError> {
        let all =
            devices.iter().flat_map(|one| [&one.manifest, &one.capacity].into_iter().cloned());
        let drive = DeviceDrive::new(all.collect())?;
        let total: f64 = self.rates.iter().sum();
        let slowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let mut course = Course::new(drive.written()?, self.drive_bytes, total / (4.0 * slowest))
            .with_least_spans(LEAST_SPANS);
        let mut stores = Vec::new();
        let seeds = (0..).map(|number| self.seed.wrapping_add(number));
        for ((devices, seed), value_bytes) in devices.into_iter().zip(seeds).zip(self.value_bytes) {
            stores.push(self.store(devices, value_bytes, seed)?);
        }
        while stores.iter().any(|store| store.loaded < store.keys) {
            for store in stores.iter_mut().filter(|store| store.loaded < store.keys) {
                store.turn()?;
            }
            course.look(drive.written()?);
        }
        let mut turns = Turns::new(self.rates.to_vec(), Order::Independent, !self.seed);
        while !course.is_over() {
            if !watch(course.share()) {
                return Err(LabError::Interrupted);
            }
            // Once at least: the drive's count may lag behind the writes that it was given.
            stores[turns.next_index()].turn()?;
            while !course.is_due(drive.host_bytes()) {
                stores[turns.next_index()].turn()?;
            }
            course.look(drive.written()?);
        }
        Ok(course.measured())
    }

    fn store(&self, devices: StoreDevices, value_bytes: u64, seed: u64) -> Result<Store, LabError> {
        let geometry = devices.capacity.geometry();
        let bytes = geometry.capacity.bytes(geometry.lba_size);
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        #[allow(clippy::cast_sign_loss)] // a share of a size
        let filled = (bytes as f64 * self.fill) as u64;
        let options = Options::default().with(|set| {
            set.memory_bytes = MEMORY_BYTES;
            set.durability.bytes = 1 << 20;
            set.maintenance = Maintenance::Manual;
            set.clock = Clock::virtual_time();
            set.tuning = Some(tuning());
        });
        let location = Location::devices(devices.manifest, devices.capacity);
        let db = Kvdb::builder(location).options(options).create()?;
        let kvs = db.create_kvs("records", Policy::CAPACITY_ONLY)?;
        let keys = (filled / (KEY_BYTES + value_bytes)).max(1);
        let (value, rng) = (vec![0; to_usize(value_bytes)], Rng::new(seed));
        Ok(Store { db, kvs, keys, loaded: 0, value, rng })
    }

    /// A drive with a namespace for each KVDB and one for its manifest.
    pub(super) fn devices(&self) -> Result<Vec<StoreDevices>, LabError> {
        let count = u16::try_from(self.rates.len()).unwrap_or(u16::MAX);
        let drive = EmulatedDrive::new(self.parameters()?, count, self.handles_each)?;
        let each = round_down(self.drive_bytes / u64::from(count), 1 << 20);
        let devices = |index| {
            let manifest = drive.namespace(index, MANIFEST_BYTES)?;
            let capacity = drive.namespace(index, each - MANIFEST_BYTES)?;
            Ok(StoreDevices { manifest, capacity })
        };
        (0..count).map(devices).collect()
    }

    fn parameters(&self) -> Result<Parameters, LabError> {
        let unit_size = round_down(self.drive_bytes / u64::from(self.units), PROGRAM_BYTES.into());
        let unit_size = unit_size.max(PROGRAM_BYTES.into());
        Ok(Parameters {
            capacity: self.drive_bytes,
            page_size: 4096,
            nand_page_size: 4096,
            program_size: PROGRAM_BYTES,
            unit_size,
            units: units_in_use(self.drive_bytes, self.over_provisioning, unit_size),
            cleaning: Cleaning::Greedy,
            frontier: Frontier::Separate,
            ..emulated::base()?
        })
    }

    /// The run as part of a report.
    pub(super) fn report(&self, measured: Measured) -> Run {
        Run { name: self.name(), assumptions: self.assumptions(), measured, published: None }
    }

    pub(super) fn assumptions(&self) -> Vec<Assumption> {
        let list =
            |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<String>>().join(", ");
        let ratios: Vec<String> = self.rates.iter().map(f64::to_string).collect();
        let sizes = tuning();
        vec![
            assumption("handles", handles(self.handles_each, self.rates.len())),
            assumption("values", format!("of {} bytes", list(&self.value_bytes))),
            assumption("rates", format!("{} in bytes of the user", ratios.join(":"))),
            assumption("order of writes", "independent: whose turn is next is random"),
            assumption("updated keys", "uniform"),
            assumption("fill", percent(self.fill)),
            assumption("media", "one class, capacity; manifests in namespaces of their own"),
            assumption(
                "engine",
                format!(
                    "{} of memory, memtables of {}, log segments and value blocks of {}, key extents \
                     of {}; freed extents are discarded",
                    human_bytes(MEMORY_BYTES),
                    human_bytes(sizes.memtable_bytes),
                    human_bytes(sizes.block_bytes),
                    human_bytes(sizes.key_extent_bytes)
                ),
            ),
            assumption(
                "drive",
                format!(
                    "{}, reclaim units of 1/{} of it, mapped in pages of 4 KiB",
                    human_bytes(self.drive_bytes),
                    self.units
                ),
            ),
            assumption("over-provisioning", percent(self.over_provisioning)),
            assumption("cleaning", "greedy: the unit with the fewest valid pages"),
            assumption("pace of cleaning", pace(CleaningPace::Steady)),
            assumption("copies go", "to units of their own, one for all KVDBs"),
            assumption("drive held before", "nothing"),
            assumption("seed", self.seed.to_string()),
        ]
    }
}

/// Bytes that a die of the drive programs at once.
const PROGRAM_BYTES: u32 = 64 << 10;

/// The engine's parts, scaled down with the drive: blocks are small beside reclaim units.
fn tuning() -> Tuning {
    Tuning {
        memtable_bytes: 512 << 10,
        block_bytes: 128 << 10,
        frame_bytes: 64 << 10,
        key_extent_bytes: 64 << 10,
        leaf_key_bytes: 512 << 10,
        gather_bytes: 1 << 20,
        ..Tuning::for_budget(MEMORY_BYTES)
    }
}

impl Store {
    /// Loads or updates records, and does the maintenance that this makes due.
    fn turn(&mut self) -> Result<(), LabError> {
        let mut bytes = 0;
        while bytes < TURN_BYTES {
            let number = if self.loaded < self.keys {
                self.loaded += 1;
                self.loaded - 1
            } else {
                self.rng.below(self.keys)
            };
            // Values are all different, so that nothing could be kept once only.
            self.value[..8].copy_from_slice(&self.rng.u64().to_le_bytes());
            // In no order of the numbers, as keys of users are.
            let key =
                format!("{:012}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000_000_000);
            self.kvs.put(key.as_bytes(), &self.value)?;
            bytes += KEY_BYTES + self.value.len() as u64;
        }
        Ok(self.db.settle()?)
    }
}

/// The chapter of these runs.
pub(super) fn chapter(runs: Vec<Run>) -> Chapter {
    let notes = [
        "The engine discards what it has freed, so that its drive has the space of dead blocks to \
         spare; with two handles and more it keeps old values apart from what dies sooner (see the \
         engine's table of placement).",
        "Nothing was published about it.",
    ];
    Chapter {
        name: CHAPTER.to_owned(),
        notes: notes.map(str::to_owned).to_vec(),
        runs,
        derived: Vec::new(),
    }
}
