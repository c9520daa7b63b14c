//! Whether an origin belongs to the cache on a flash device, and making it so.

use std::sync::Arc;

use esker_device::Device;

use super::{Cache, check_sizes};
use crate::CacheError;
use crate::medium::Medium;
use crate::omf::Origin;
use crate::origin::{learn, look};
use crate::pairing::{Dirty, Pairing};
use crate::store::{self, Store};

impl Cache {
    /// An origin beside the facts that the cache on `flash` keeps about it. Nothing is written.
    ///
    /// # Errors
    /// As [`Cache::open`], but for [`CacheError::WrongOrigin`].
    pub fn pairing(origin: &dyn Device, flash: &Arc<dyn Device>) -> Result<Pairing, CacheError> {
        let mut medium = Medium::open(flash)?;
        let (superblock, _) = store::read_superblock(&mut medium)?;
        check_sizes(&superblock, origin, &**flash)?;
        let armed = superblock.origin.armed;
        let store = Store::open(medium, superblock)?;
        look(origin, &store, armed)
    }

    /// Makes `origin` the one of the cache on `flash`, whatever it was before. No clean block counts any more;
    /// dirty ones are kept and will be written to it, or are lost. The origin is not written.
    ///
    /// # Errors
    /// As [`Cache::pairing`]. The pair is as it was then; or there is no cache any more, if its blocks were to
    /// be dropped.
    pub fn accept(
        origin: &dyn Device,
        flash: &Arc<dyn Device>,
        dirty: Dirty,
    ) -> Result<(), CacheError> {
        let mut medium = Medium::open(flash)?;
        let (mut superblock, _) = store::read_superblock(&mut medium)?;
        check_sizes(&superblock, origin, &**flash)?;
        if dirty == Dirty::Drop {
            superblock.id = superblock.id.wrapping_add(1);
        }
        superblock.origin = Origin::default();
        if let Some(known) = learn(origin, &superblock)? {
            superblock.origin = known;
        }
        superblock.generation += 1;
        superblock.clean_epoch += 1;
        match dirty {
            Dirty::Keep => Ok(store::write_superblock(&mut medium, &superblock)?),
            Dirty::Drop => store::format(&mut medium, &superblock),
        }
    }
}
