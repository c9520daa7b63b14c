//! One configuration of the experiment: a drive, its content before, and its writers.
//!
//! Everything that a write amplification factor depends on is a field here, and is printed with it.

use esker_base::units::to_u64;
use serde::{Deserialize, Serialize};

use super::circular::Circular;
use super::keys::{KeyLaw, Keys};
use super::sink::{Drive, DriveModel};
use super::store::{Store, StoreOptions};
use super::turns::{Order, Turns};
use super::writer::{Writer, Writers};
use crate::LabError;

/// Content of the drive before the stores began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitialState {
    /// Nothing: it was never written, or all of it was trimmed.
    Fresh,
    /// Something everywhere, which nobody trims: each namespace was written once from its first
    /// page to its last.
    Mapped,
}

/// Kind of the stores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StoreKind {
    /// Writers that overwrite their namespace from its first block to its last.
    Circular,
    /// Stores with records, as in [`super::store`].
    Records {
        /// The share of its namespace that the records of a store take.
        fill: f64,
        /// Bytes per record.
        record_bytes: u64,
        /// Which records are updated.
        keys: KeyLaw,
        /// A block is defragmented when less than this share of it is alive.
        threshold: f64,
    },
}

/// One store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreRate {
    /// Bytes per block.
    pub block_bytes: u64,
    /// Bytes its clients write, in any unit that all stores share.
    pub rate: f64,
}

/// A drive and its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The drive.
    pub drive: DriveModel,
    /// Reclaim unit handles for each namespace; none is a drive without data placement.
    pub handles_each: u16,
    /// Content of the drive before.
    pub initial: InitialState,
    /// Kind of the stores.
    pub kind: StoreKind,
    /// The stores, each with an equal part of the drive.
    pub stores: Vec<StoreRate>,
    /// In which order they write.
    pub order: Order,
    /// Seed for the choice of keys and of the next writer.
    pub seed: u64,
}

impl Configuration {
    /// Namespaces of the drive: one for each store.
    ///
    /// # Errors
    /// There are more stores than a drive can have namespaces.
    pub(super) fn namespaces(&self) -> Result<u16, LabError> {
        u16::try_from(self.stores.len())
            .map_err(|_| LabError::Invalid("so many stores have no drive".into()))
    }

    /// Drive writes in which the slowest store writes as much as its namespace holds.
    #[must_use]
    pub fn period(&self) -> f64 {
        let total: f64 = self.stores.iter().map(|store| store.rate).sum();
        let slowest = self.stores.iter().map(|store| store.rate).fold(f64::INFINITY, f64::min);
        #[allow(clippy::cast_precision_loss)] // a handful of stores
        let stores = self.stores.len().max(1) as f64;
        total / (slowest * stores)
    }

    /// Memory that the stores' tables of records take, on a drive of this size, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let StoreKind::Records { record_bytes, .. } = self.kind else { return 0 };
        let bytes = self.drive.bytes / to_u64(self.stores.len().max(1));
        let table = |store: &StoreRate| {
            // A number for each slot of a block and for each record, of which there are as many at most.
            let slots = store.block_bytes / record_bytes.max(1);
            let blocks = bytes / store.block_bytes.max(1);
            let numbers = slots.max(1).next_power_of_two() + slots;
            blocks.saturating_mul(numbers).saturating_mul(4)
        };
        self.stores.iter().map(table).fold(0, u64::saturating_add)
    }

    /// The stores, for namespaces of a drive.
    ///
    /// # Errors
    /// When sizes do not fit each other.
    pub fn writers(&self, drive: &mut dyn Drive) -> Result<Writers, LabError> {
        if self.stores.is_empty() {
            return Err(LabError::Invalid("an experiment needs a store that writes".into()));
        }
        let mut writers = Vec::new();
        for (index, store) in self.stores.iter().enumerate() {
            let seed = self.seed.wrapping_add(to_u64(index));
            writers.push(self.writer(store, drive.namespace(index).bytes(), seed)?);
        }
        #[allow(clippy::cast_precision_loss)] // a block's size
        let weights = self.stores.iter().map(|store| store.rate / store.block_bytes as f64);
        // Apart from the seeds of the stores.
        let turns = Turns::new(weights.collect(), self.order, !self.seed);
        Ok(Writers::new(writers, turns))
    }

    fn writer(
        &self,
        store: &StoreRate,
        bytes: u64,
        seed: u64,
    ) -> Result<Box<dyn Writer>, LabError> {
        let block_bytes = store.block_bytes;
        if block_bytes == 0 || block_bytes > bytes || store.rate <= 0.0 {
            return Err(LabError::Invalid(format!(
                "a store with blocks of {block_bytes} bytes and a rate of {} cannot write to {bytes} bytes",
                store.rate
            )));
        }
        match self.kind {
            StoreKind::Circular => Ok(Box::new(Circular::new(block_bytes))),
            StoreKind::Records { fill, record_bytes, keys, threshold } => {
                #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
                #[allow(clippy::cast_sign_loss)]
                // a share of a count; the store checks it
                let records = (fill * bytes as f64 / record_bytes as f64) as u32;
                let options = StoreOptions { bytes, block_bytes, record_bytes, records, threshold };
                Ok(Box::new(Store::new(options, Keys::new(keys, records), seed)?))
            }
        }
    }
}
