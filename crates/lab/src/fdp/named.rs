//! A device that the caller names, for stores in place of the drive that counts: what it needs, and a run on it. The
//! device's own log says what it wrote to its media.

use std::sync::Arc;

use esker_base::units::{human_bytes, to_u64};
use esker_device::{Device, Geometry, PlacementId};

use super::configuration::{Configuration, InitialState};
use super::course::Measured;
use super::measure::{OnShare, measure_on};
use super::own::OwnStores;
use super::report::{assumption, stores_assumptions};
use super::sink::{DeviceDrive, MediaCount, PART_ALIGNMENT, enough_handles};
use crate::LabError;
use crate::erase::erase;
use esker_report::Assumption;

/// Blocks that each store has room for, at least.
const LEAST_BLOCKS: u64 = 64;
/// Bytes of a device whose endurance log is fine enough. It counts in billions of bytes: half a percent of two drive
/// writes, the shortest span.
const LEAST_ENDURANCE_BYTES: u64 = 100_000_000_000;

/// A device for the stores. All of it is erased before each run.
pub struct NamedDevice {
    /// Its name in reports and errors: a specification.
    pub name: String,
    /// The device.
    pub device: Arc<dyn Device>,
    /// Remarks for readers of the report: the assumptions of a model, say.
    pub remarks: Vec<String>,
    /// Bytes of memory that the stores' tables of records may take.
    pub memory_bytes: u64,
}

impl NamedDevice {
    pub(super) fn bytes(&self) -> u64 {
        let geometry = self.device.geometry();
        geometry.capacity.bytes(geometry.lba_size)
    }

    fn refuse<T>(&self, why: impl std::fmt::Display) -> Result<T, LabError> {
        Err(LabError::Invalid(format!("{}: {why}", self.name)))
    }

    /// Makes sure that the device tells what it writes to its media, and can be erased.
    pub(super) fn check_device(&self) -> Result<(), LabError> {
        match MediaCount::of(&*self.device) {
            MediaCount::Devices => {
                return self.refuse(
                    "it does not tell what it writes to its media, so that no write amplification can be measured; \
                     name a drive with data placement, or a model of one, as docs/stack.md has them",
                );
            }
            MediaCount::Endurance if self.bytes() < LEAST_ENDURANCE_BYTES => {
                return self.refuse(format!(
                    "data placement is disabled on it, and its endurance log, in billions of bytes, is too coarse for \
                     its {}; enable placement (fdp=on of a model), or name a drive of 100 GB and more",
                    human_bytes(self.bytes())
                ));
            }
            MediaCount::Endurance | MediaCount::Statistics => {}
        }
        if self.device.geometry().discard_granularity == 0 {
            return self.refuse("it cannot be discarded, and each run begins on an empty drive");
        }
        Ok(())
    }

    /// Makes sure of enough handles. Where none are named, takes those that the device has, and says which it has not.
    pub(super) fn choose_handles(&self, own: &mut OwnStores) -> Result<Option<String>, LabError> {
        let has = self.device.geometry().placement_handles;
        let stores = own.stores.len();
        let are_enough = |each: u16| enough_handles(&self.name, has, stores, each);
        if !own.handles.is_empty() {
            own.handles.iter().try_for_each(|&each| are_enough(each))?;
            return Ok(None);
        }
        let all = OwnStores::default().handles;
        let (taken, left): (Vec<u16>, Vec<u16>) =
            all.into_iter().partition(|&each| are_enough(each).is_ok());
        own.handles = taken;
        let Some(least) = left.first() else { return Ok(None) };
        Ok(Some(format!(
            "Runs with {least} handles and more for each store are left out: the device has {has} placement handles."
        )))
    }

    /// Makes sure that the stores fit the device, and their tables the memory.
    pub(super) fn check_stores(&self, of: &Configuration) -> Result<(), LabError> {
        let stores = to_u64(of.stores.len());
        let block_bytes = of.stores.iter().map(|store| store.block_bytes).max().unwrap_or(0);
        let each = (LEAST_BLOCKS * block_bytes).next_multiple_of(PART_ALIGNMENT);
        if self.bytes() < stores * each {
            return self.refuse(format!(
                "it has {}, and {stores} stores with blocks of up to {} need {} at least",
                human_bytes(self.bytes()),
                human_bytes(block_bytes),
                human_bytes(stores * each)
            ));
        }
        let needed = of.memory_bytes();
        if needed > self.memory_bytes {
            return self.refuse(format!(
                "the stores' tables of records take {} of memory, and {} may be taken; name larger records, by {} times",
                human_bytes(needed),
                human_bytes(self.memory_bytes),
                needed.div_ceil(self.memory_bytes.max(1)).next_power_of_two()
            ));
        }
        // Whatever else is wrong with them is found by making them.
        of.writers(&mut self.drive(of)?).map(drop)
    }

    fn drive(&self, of: &Configuration) -> Result<DeviceDrive, LabError> {
        DeviceDrive::divided(self.device.clone(), of.namespaces()?, of.handles_each)
    }

    /// Erases the device, and runs the stores on it.
    pub(super) fn measure(
        &self,
        of: &Configuration,
        watch: OnShare<'_>,
    ) -> Result<Measured, LabError> {
        erase(&self.name, &*self.device)?;
        if let Some(placement) = self.device.data_placement() {
            let handles = self.device.geometry().placement_handles;
            let all: Vec<PlacementId> = (0..handles).map(PlacementId).collect();
            // Half-full units of the run before would stay with their handles. A drive that does not let go of them
            // begins with a little less spare space.
            let _ = placement.update(&all);
        }
        measure_on(&mut self.drive(of)?, of, watch)
    }

    pub(super) fn assumptions(&self, of: &Configuration) -> Vec<Assumption> {
        let Geometry { placement_handles, .. } = self.device.geometry();
        let log = match MediaCount::of(&*self.device) {
            MediaCount::Statistics => "as the drive's log of placement (22h) counts, in bytes",
            MediaCount::Endurance | MediaCount::Devices => {
                "as the drive's endurance log (09h) counts, in billions of bytes"
            }
        };
        let unit = self.device.data_placement().and_then(|placement| {
            let configurations = placement.configurations();
            configurations.get(placement.enabled()?).map(|one| one.reclaim_unit_bytes)
        });
        let unit = unit.map(human_bytes);
        let mut list = stores_assumptions(of);
        list.extend([
            assumption(
                "drive",
                format!(
                    "{}, {}, {placement_handles} placement handles",
                    self.name,
                    human_bytes(self.bytes())
                ),
            ),
            assumption(
                "reclaim units",
                unit.map_or("the drive's".to_owned(), |unit| unit + " each"),
            ),
            assumption("over-provisioning", "the drive's"),
            assumption("cleaning", "the drive's"),
            assumption("bytes to the media", log),
            assumption("commands", "one after the other, of random data"),
            assumption(
                "drive held before",
                match of.initial {
                    InitialState::Fresh => "nothing: all of it was discarded before each run",
                    InitialState::Mapped => {
                        "data everywhere: it was discarded, written once in order, and not trimmed"
                    }
                },
            ),
            assumption("seed", of.seed.to_string()),
        ]);
        list
    }
}
