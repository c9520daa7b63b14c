//! Whether an origin belongs to the cache on a flash device, and making it so.

use std::sync::Arc;

use esker_device::Device;

use super::{Cache, check_sizes};
use crate::CacheError;
use crate::copies;
use crate::medium::Medium;
use crate::omf::{DETACHED, Origin};
use crate::origin::{learn, look, made_for};
use crate::pairing::{Dirty, Pairing};
use crate::store::{self, Store};

impl Cache {
    /// An origin beside the facts that the cache on `flash` keeps about it. Nothing is written.
    ///
    /// # Errors
    /// As [`Cache::open`], but for [`CacheError::WrongOrigin`].
    pub fn pairing(origin: &dyn Device, flash: &Arc<dyn Device>) -> Result<Pairing, CacheError> {
        let mut medium = Medium::open(flash)?;
        let superblock = copies::find(&mut medium)?.superblock;
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
        let mut superblock = copies::find(&mut medium)?.superblock;
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
            Dirty::Keep => copies::write(&mut medium, &superblock),
            Dirty::Drop => store::format(&mut medium, &superblock),
        }
    }

    /// Lets go of the origin without writing anything back: dirty blocks are lost, and the origin stays as it is.
    /// The journal may be damaged. Returns how many blocks were dirty, none when the journal does not tell.
    ///
    /// # Errors
    /// `NotFound` when there is no cache, `Closed` when it was detached, `Corrupt` when no superblock is whole,
    /// `Conflict` when it is another origin's cache; a device's. The cache is still attached then, or a failed
    /// write has detached it all the same.
    pub fn abandon(
        origin: &dyn Device,
        flash: &Arc<dyn Device>,
    ) -> Result<Option<u64>, CacheError> {
        let mut medium = Medium::open(flash)?;
        let mut superblock = copies::find(&mut medium)?.superblock;
        let dirty_blocks = match Cache::pairing(origin, flash) {
            Ok(pair) if pair.is_other() => {
                return Err(CacheError::WrongOrigin { pair: Box::new(pair) });
            }
            Ok(pair) => Some(pair.dirty_blocks),
            Err(CacheError::Corrupt { .. }) => {
                match (made_for(&superblock.origin), origin.identity()) {
                    (Some(known), Some(found)) if !known.is_same(&found) => {
                        return Err(CacheError::Invalid(format!(
                            "{}: it is not the origin of the cache on {}, which was made for {known}; name that one",
                            origin.name(),
                            flash.name()
                        )));
                    }
                    _ => None,
                }
            }
            Err(error) => return Err(error),
        };
        superblock.state = DETACHED;
        superblock.generation += 1;
        copies::write(&mut medium, &superblock)?;
        Ok(dirty_blocks)
    }
}
