//! The samples of the origin, as commands and checks of an open cache need them ([`crate::origin`]).

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Shared;
use crate::CacheError;
use crate::omf::BLOCK;
use crate::origin::{blocks_of, look};

impl Shared {
    /// Disarms the samples among these bytes of the origin, which are about to be written, or discarded. The
    /// caller has begun to write the blocks, or to change the range, before.
    ///
    /// # Errors
    /// When the flash device cannot be told, and has something that the origin has not.
    pub(crate) fn release_samples(
        &self,
        bytes: Range<u64>,
        is_discard: bool,
    ) -> Result<(), CacheError> {
        let watch = &self.watch;
        let samples = watch.among(&blocks_of(&bytes));
        if samples == 0 {
            return Ok(());
        }
        let armed = watch.armed.load(Ordering::Acquire) & samples;
        let untold = watch.untold.load(Ordering::Acquire);
        let newly_untold = match is_discard && !self.origin.discards_zero() {
            true => samples & !untold,
            false => 0,
        };
        if newly_untold == 0 {
            let whole = bytes.start.div_ceil(BLOCK)..bytes.end / BLOCK;
            watch.untold.fetch_and(!watch.among(&whole), Ordering::AcqRel);
        }
        watch.untold.fetch_or(newly_untold, Ordering::AcqRel);
        if armed | newly_untold == 0 {
            return Ok(());
        }
        let mut store = self.store.lock();
        let updated = store.update(|superblock| {
            superblock.origin.armed &= !samples;
            superblock.origin.untold |= newly_untold;
        });
        drop(store);
        match updated {
            Ok(()) => watch.disarm(samples),
            Err(error) => {
                watch.missed.fetch_or(samples, Ordering::AcqRel);
                if !self.may_miss_writes() {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns an error when the origin has changed: another one, or written without the cache.
    pub(crate) fn check_origin(&self) -> Result<(), CacheError> {
        // A writer of a sampled block needs the store to disarm it first.
        let store = self.store.lock();
        let armed = self.watch.armed.load(Ordering::Acquire);
        let pairing = look(&*self.origin, &store, armed)?;
        match pairing.is_right() {
            true => Ok(()),
            false => Err(CacheError::WrongOrigin { pair: Box::new(pairing) }),
        }
    }
}
