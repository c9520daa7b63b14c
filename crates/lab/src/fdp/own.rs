//! Stores of one's own: anything that a factor depends on, in place of the published values.

use esker_base::units::human_bytes;
use esker_device::fdp::Isolation;
use esker_flash::ftl::{Cleaning, CleaningPace, Frontier};

use super::configuration::{InitialState, StoreRate};
use super::keys::KeyLaw;
use crate::LabError;

/// Bytes per KiB.
pub(super) const KIB: u64 = 1 << 10;
/// The blocks of the published experiment with Aerospike.
pub(super) const BLOCKS: [u64; 4] = [32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB];
/// The blocks of the published experiment with fio.
pub(super) const WIDE_BLOCKS: [u64; 4] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB];
/// The most stores: a drive has 128 handles.
const STORES_MOST: usize = 64;
/// The most handles of a drive, those of all stores together.
const HANDLES_MOST: usize = 128;

/// Stores that share a drive, and the drive.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnStores {
    /// The stores, 1 to 64; each has an equal part of the drive.
    pub stores: Vec<StoreRate>,
    /// Handles for each store: a run for each number; 0 is a drive without data placement. On a device that is named,
    /// none are all of 0, 1 and 2 for which it has enough.
    pub handles: Vec<u16>,
    /// Whether cleaning keeps the data of different handles apart.
    pub isolation: Isolation,
    /// Which unit is cleaned.
    pub cleaning: Cleaning,
    /// Where cleaning copies to.
    pub frontier: Frontier,
    /// When it does.
    pub pace: CleaningPace,
    /// Bytes of a reclaim unit; none is a share of the drive, as in the published runs.
    pub unit_bytes: Option<u64>,
    /// Content of the drive before.
    pub initial: InitialState,
    /// Which records are updated; none for circular writers, which have no records.
    pub keys: Option<KeyLaw>,
}

impl Default for OwnStores {
    /// The four stores of the published experiment: without placement, with a handle each, and with two.
    fn default() -> OwnStores {
        OwnStores {
            stores: by_block(BLOCKS),
            handles: vec![0, 1, 2],
            isolation: Isolation::Initially,
            cleaning: Cleaning::Greedy,
            frontier: Frontier::Separate,
            pace: CleaningPace::WhenNeeded,
            unit_bytes: None,
            initial: InitialState::Fresh,
            keys: Some(KeyLaw::Uniform),
        }
    }
}

impl OwnStores {
    /// The four stores, with as many handles as a device has.
    pub(super) fn without_handles() -> OwnStores {
        OwnStores { handles: Vec::new(), ..OwnStores::default() }
    }

    pub(super) fn check(&self, drive_bytes: u64) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        let stores = self.stores.len();
        if stores == 0 || stores > STORES_MOST {
            return refuse(format!("{stores} stores: name the blocks of 1 to {STORES_MOST}"));
        }
        for store in &self.stores {
            if !store.block_bytes.is_power_of_two()
                || !(4096..=64 << 20).contains(&store.block_bytes)
            {
                return refuse(format!(
                    "a block of {} bytes: blocks are powers of two from 4 KiB to 64 MiB",
                    store.block_bytes
                ));
            }
            if !(store.rate.is_finite() && store.rate > 0.0) {
                return refuse(format!("a rate of {}: rates are above 0", store.rate));
            }
        }
        if self.handles.is_empty() {
            return refuse("no number of handles: name some, such as 0,1".to_owned());
        }
        if let Some(each) =
            self.handles.iter().find(|each| usize::from(**each) * stores > HANDLES_MOST)
        {
            return refuse(format!(
                "{each} handles each are {} in all: a drive has {HANDLES_MOST} at most",
                usize::from(*each) * stores
            ));
        }
        if let Some(unit) = self.unit_bytes
            && (unit < u64::from(self.page_bytes()) || unit > drive_bytes / 16)
        {
            return refuse(format!(
                "a reclaim unit of {}: it has at least a page, {}, and at most a sixteenth of the drive, {}",
                human_bytes(unit),
                human_bytes(self.page_bytes().into()),
                human_bytes(drive_bytes / 16)
            ));
        }
        Ok(())
    }

    /// Nothing writes less: the smallest block, up to 32 KiB.
    pub(super) fn page_bytes(&self) -> u32 {
        let least = self.stores.iter().map(|store| store.block_bytes).min().unwrap_or(4096);
        u32::try_from(least.min(32 << 10)).unwrap_or(32 << 10)
    }
}

/// Rates in proportion to blocks: all stores write equally many.
pub(super) fn by_block(blocks: [u64; 4]) -> Vec<StoreRate> {
    #[allow(clippy::cast_precision_loss)] // a block's size
    let store = |block_bytes| StoreRate { block_bytes, rate: block_bytes as f64 };
    blocks.map(store).to_vec()
}
