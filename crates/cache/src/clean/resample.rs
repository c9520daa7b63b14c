//! Arms the samples of the origin again that were written ([`crate::origin`]).

use std::sync::atomic::Ordering;

use esker_base::Nanos;

use super::Cleaner;
use crate::CacheError;
use crate::omf::Sample;
use crate::origin::{has, read};
use crate::shared::Shared;

/// How long samples that were written stay unarmed, at least, while the cache is in use, in seconds.
const REST_S: u64 = 60;

impl Cleaner {
    /// Arms the samples that were written, if the last time is long enough ago.
    pub(crate) fn resample_seldom(&mut self, shared: &Shared) -> Result<(), CacheError> {
        let now = shared.options.clock.now();
        let is_due = |last: Nanos| now.since(last).as_secs() >= REST_S;
        match self.resampled.is_none_or(is_due) {
            true => self.resample(shared),
            false => Ok(()),
        }
    }

    /// Arms the samples that were written, but for those that are being written now.
    pub(crate) fn resample(&mut self, shared: &Shared) -> Result<(), CacheError> {
        self.resampled = Some(shared.options.clock.now());
        let watch = &shared.watch;
        if watch.unarmed() == 0 || shared.is_lost() {
            return Ok(());
        }
        // Nobody writes back, discards or zeroes; and a write cancels a sample begun here.
        let _gate = shared.gate.lock();
        let begun = |n: &usize| {
            let block = watch.blocks[*n];
            // A set that was never used has no writer of its blocks.
            !shared.is_in_range(block)
                && shared
                    .set_if_read(shared.mapping.set_of(block))
                    .is_some_and(|mut set| set.begin_fill(block))
        };
        let unarmed = watch.unarmed();
        let begun = (0..watch.blocks.len()).filter(|n| has(unarmed, *n)).filter(begun);
        let begun: u64 = begun.map(|n| 1 << n).sum();
        if begun == 0 {
            return Ok(());
        }
        let samples: Vec<Sample> =
            watch.blocks.iter().map(|&block| Sample { block, crc: 0 }).collect();
        let lba_size = shared.origin_geometry.lba_size;
        let found = read(&mut self.origin, lba_size, &samples, begun)
            .and_then(|found| shared.flush_origin().map(|()| found));
        let mut store = shared.store.lock();
        let is_good = found.is_ok() && !store.is_broken() && !shared.is_lost();
        let mut new = Vec::new();
        for n in (0..samples.len()).filter(|n| has(begun, *n)) {
            let block = watch.blocks[n];
            let set = shared.set_if_read(shared.mapping.set_of(block));
            let mut set = set.expect("a set that was read stays");
            let is_cancelled = set.end_fill(block);
            let crc = found.iter().flatten().find(|(it, _)| *it == n);
            if let Some((_, Some(crc))) = crc
                && is_good
                && !is_cancelled
            {
                // While the set is held: a write that begins from here on disarms it first.
                watch.armed.fetch_or(1 << n, Ordering::AcqRel);
                new.push((n, *crc));
            }
        }
        found?;
        if new.is_empty() {
            return Ok(());
        }
        let untold = watch.untold.load(Ordering::Acquire);
        store.update(|superblock| {
            let origin = &mut superblock.origin;
            for (n, crc) in new {
                origin.samples[n].crc = crc;
                origin.armed |= 1 << n;
            }
            origin.untold = untold & !origin.armed;
        })
    }
}
