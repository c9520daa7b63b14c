//! Whether an origin is the one that the cache on a flash device was made for.
//!
//! The superblock has the identity of the origin, and checksums of 64 blocks that are sampled over it. The pair
//! is refused when the identity is another, or when a sampled block is not what it was. Sampled are the blocks
//! in which file systems, partition tables and arrays keep their first and last words, and one of each of 60
//! equal parts.
//!
//! Called when a cache is opened, detached or accepted, by whoever is about to write the origin, and by `clean`.
//!
//! Invariants
//! 1. An *armed* sample is what the origin holds durably. Before the origin is written at a sampled block, the
//!    sample is disarmed, and that durably. So a crash leaves no armed sample that is wrong.
//! 2. A sample is armed only with what was read while nobody wrote its block, and only after a flush that
//!    followed. What was read is recorded as what is filled in is: a write that begins meanwhile cancels it.
//! 3. `armed` has every sample that the medium may call armed.
//! 4. What the origin may read as anything, for it was discarded or a write failed, is not armed.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::checksum::crc32c;
use esker_base::units::{human_bytes, to_u64};
use esker_base::{AlignedBuf, Lba, Nanos, Rng};
use esker_device::{Device, DeviceError, Identity, Op, Port};

use crate::CacheError;
use crate::cache::{Cache, check_sizes};
use crate::clean::Cleaner;
use crate::omf::{BLOCK, BLOCK_SIZE, MAX_IDENTITY, MAX_SAMPLES, Origin, Sample, Superblock};
use crate::shared::Shared;
use crate::store::{self, Medium, Store};

/// Blocks of an origin that are sampled whatever the seed: boot sector, file systems, volumes and arrays; a copy
/// of the partition table at 4 KiB; btrfs. The last one, for backups of partition tables, comes beside them.
const FIXED: [u64; 3] = [0, 1, 16];
/// Parts of the origin of which one block each is sampled.
const PARTS: u64 = 60;
/// How long samples that were written stay unarmed, at least, while the cache is in use, in seconds.
const REST_S: u64 = 60;
/// Commands in flight while samples are read.
const DEPTH: usize = 16;

const _: () = assert!(MAX_IDENTITY == esker_device::identity::MAX_IDENTITY);

/// What becomes of the dirty blocks of a cache whose origin is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// They stay, and go to the origin when they are written back.
    Keep,
    /// They are lost; the cache is empty, and the origin as it is.
    Drop,
}

/// An origin beside what the flash device knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairing {
    /// Name of the origin.
    pub origin: String,
    /// Name of the flash device.
    pub flash: String,
    /// The identity for which the cache was made, if it is known.
    pub known: Option<Identity>,
    /// The identity that the origin has, if anything tells.
    pub found: Option<Identity>,
    /// How many samples were compared.
    pub compared: usize,
    /// Those of the sampled blocks that differ.
    pub differing: Vec<u64>,
    /// How many samples could not be read.
    pub unread: usize,
    /// Blocks that are on the flash device only.
    pub dirty_blocks: u64,
    /// Blocks that the flash device has as the origin had them.
    pub clean_blocks: u64,
}

impl Pairing {
    /// Whether the origin is another device than the one the cache was made for.
    #[must_use]
    pub fn is_other(&self) -> bool {
        matches!((&self.known, &self.found), (Some(known), Some(found)) if !known.is_same(found))
    }

    /// Whether they belong together, as far as can be told.
    #[must_use]
    pub fn is_right(&self) -> bool {
        !self.is_other() && self.differing.is_empty()
    }
}

impl fmt::Display for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pairing { origin, flash, compared, differing, .. } = self;
        if let (true, Some(known), Some(found)) = (self.is_other(), &self.known, &self.found) {
            write!(
                f,
                "{origin}: it is not the origin of the cache on {flash}, which was made for "
            )?;
            write!(f, "{known}; this one is {found}; ")?;
        } else if !differing.is_empty() {
            write!(
                f,
                "{origin}: it was written without its cache on {flash}, or is another device; "
            )?;
        } else {
            write!(f, "{origin}: it is the origin of the cache on {flash}; ")?;
        }
        match (differing.first(), compared) {
            (None, 0) => f.write_str("no sampled block could be compared"),
            (None, _) => write!(f, "all {compared} sampled blocks are the same"),
            (Some(first), _) => write!(
                f,
                "{} of {compared} sampled blocks differ, the first one at byte {}",
                differing.len(),
                first * BLOCK
            ),
        }
    }
}

/// What whoever meets a wrong pair can do.
pub(crate) fn advice(pair: &Pairing) -> String {
    let Pairing { origin, flash, dirty_blocks, .. } = pair;
    let dirty = match dirty_blocks {
        0 => "every block of the cache is on its origin".to_owned(),
        _ => format!("{} are on the flash device only", human_bytes(dirty_blocks * BLOCK)),
    };
    format!(
        "nothing was changed; {dirty}. Name the right origin; or let `esker cache accept '{origin}' \
         '{flash}'` say what becomes of them with this one"
    )
}

/// The blocks to be sampled of an origin of `blocks` blocks, in their order.
fn places(seed: u64, blocks: u64) -> BTreeSet<u64> {
    if blocks <= to_u64(MAX_SAMPLES) {
        return (0..blocks).collect();
    }
    let mut rng = Rng::new(seed);
    let begin = |part: u64| {
        let at = u128::from(blocks) * u128::from(part) / u128::from(PARTS);
        u64::try_from(at).unwrap_or(blocks)
    };
    let parts = (0..PARTS).map(|part| begin(part) + rng.below(begin(part + 1) - begin(part)));
    let fixed = FIXED.into_iter().chain([blocks - 1]);
    parts.chain(fixed).collect()
}

/// The samples of a cache whose origin is not known yet, none of them armed.
pub(crate) fn unknown(id: u64, origin_bytes: u64) -> Origin {
    let places = places(id, origin_bytes / BLOCK).into_iter();
    let samples = places.map(|block| Sample { block, crc: 0 }).collect();
    Origin { samples, ..Origin::default() }
}

/// The blocks that these bytes touch.
fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}

fn bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

fn has(bits: u64, n: usize) -> bool {
    bits >> n & 1 == 1
}

/// Reads those of the samples that `which` names; their numbers and checksums, none of one that cannot be read.
fn read(
    port: &mut Port,
    lba_size: u32,
    samples: &[Sample],
    which: u64,
) -> Result<Vec<(usize, Option<u32>)>, DeviceError> {
    let wanted: Vec<usize> = (0..samples.len()).filter(|n| has(which, *n)).collect();
    let reads = wanted.iter().map(|n| Op::Read {
        lba: Lba(samples[*n].block * BLOCK / u64::from(lba_size)),
        buf: AlignedBuf::zeroed(BLOCK_SIZE),
    });
    let mut found = Vec::with_capacity(wanted.len());
    port.run_all(reads.collect::<Vec<_>>(), |n, result| {
        found.push((wanted[n], result.ok().flatten().map(|buf| crc32c(&buf))));
    })?;
    Ok(found)
}

/// Looks at an origin: its identity, and the samples that `armed` names.
fn look(origin: &dyn Device, store: &Store, armed: u64) -> Result<Pairing, CacheError> {
    let known = &store.superblock.origin;
    let mut port = Port::open(origin, DEPTH)?;
    let (mut compared, mut unread, mut differing) = (0, 0, Vec::new());
    for (n, crc) in read(&mut port, origin.geometry().lba_size, &known.samples, armed)? {
        match crc {
            Some(crc) => {
                compared += 1;
                let Sample { block, crc: expected } = known.samples[n];
                differing.extend((crc != expected).then_some(block));
            }
            None => unread += 1,
        }
    }
    differing.sort_unstable();
    Ok(Pairing {
        origin: origin.name().to_owned(),
        flash: store.medium.name().to_owned(),
        known: known.identity.parse().ok().and_then(Identity::found),
        found: origin.identity(),
        compared,
        differing,
        unread,
        dirty_blocks: store.dirty.into(),
        clean_blocks: store.named.saturating_sub(store.dirty).into(),
    })
}

/// What the superblock is to say of an origin that is the right one: what it has not said yet is looked up.
/// None when it says everything. Nobody may use the origin meanwhile.
pub(crate) fn learn(
    origin: &dyn Device,
    superblock: &Superblock,
) -> Result<Option<Origin>, CacheError> {
    let mut known = match superblock.origin.samples.is_empty() {
        true => unknown(superblock.id, superblock.origin_bytes),
        false => superblock.origin.clone(),
    };
    if let Some(found) = origin.identity() {
        let old: Identity = known.identity.parse().unwrap_or_default();
        known.identity = old.joined(&found).to_string();
    }
    let wanted = bits(known.samples.len()) & !known.armed & !known.untold;
    if wanted != 0 {
        let mut port = Port::open(origin, DEPTH)?;
        // What is read has to be there after a crash, too.
        port.flush()?;
        for (n, crc) in read(&mut port, origin.geometry().lba_size, &known.samples, wanted)? {
            if let Some(crc) = crc {
                known.samples[n].crc = crc;
                known.armed |= 1 << n;
            }
        }
    }
    Ok((known != superblock.origin).then_some(known))
}

/// Checks that `origin` is the one of an open store, and completes what the superblock says of it. What the user
/// should know.
pub(crate) fn meet(origin: &dyn Device, store: &mut Store) -> Result<Option<String>, CacheError> {
    let is_known = !store.superblock.origin.samples.is_empty();
    let pairing = look(origin, store, store.superblock.origin.armed)?;
    if !pairing.is_right() {
        return Err(CacheError::WrongOrigin { pair: Box::new(pairing) });
    }
    if let Some(known) = learn(origin, &store.superblock)?
        && store.update(|superblock| superblock.origin = known.clone()).is_err()
    {
        // It may be on the medium all the same. The next superblock says it.
        store.superblock.origin = known;
    }
    let Pairing { origin, flash, found, unread, .. } = pairing;
    let found = found.map_or_else(|| "nothing but its content".to_owned(), |it| it.to_string());
    Ok(match (is_known, unread) {
        (false, _) => Some(format!(
            "{flash}: its cache was made by an older version, and did not know its origin; from now on that \
             is {origin} ({found})"
        )),
        (true, 0) => None,
        (true, unread) => Some(format!(
            "{origin}: {unread} sampled blocks could not be read, and were not compared"
        )),
    })
}

/// The samples of an open cache, for whoever writes the origin.
pub(crate) struct Watch {
    /// The sampled blocks, in their order.
    blocks: Box<[u64]>,
    armed: AtomicU64,
    untold: AtomicU64,
    /// Armed samples whose blocks were written while the flash device could not be told.
    missed: AtomicU64,
}

impl Watch {
    pub(crate) fn new(origin: &Origin) -> Watch {
        Watch {
            blocks: origin.samples.iter().map(|sample| sample.block).collect(),
            armed: AtomicU64::new(origin.armed),
            untold: AtomicU64::new(origin.untold),
            missed: AtomicU64::new(0),
        }
    }

    /// The samples among these blocks.
    fn among(&self, blocks: &Range<u64>) -> u64 {
        let before = |end: u64| bits(self.blocks.partition_point(|block| *block < end));
        before(blocks.end) & !before(blocks.start.min(blocks.end))
    }

    /// The samples that are neither armed nor untold.
    fn unarmed(&self) -> u64 {
        let [armed, untold] = [&self.armed, &self.untold].map(|bits| bits.load(Ordering::Acquire));
        bits(self.blocks.len()) & !armed & !untold
    }

    /// The origin may hold anything at these bytes.
    pub(crate) fn distrust(&self, bytes: &Range<u64>) {
        self.untold.fetch_or(self.among(&blocks_of(bytes)), Ordering::AcqRel);
    }

    /// What another one distrusts.
    pub(crate) fn go_on_from(&self, other: &Watch) {
        self.untold.fetch_or(other.untold.load(Ordering::Acquire), Ordering::AcqRel);
    }

    /// The cache has let go of the origin: no sample counts.
    pub(crate) fn end(&self) {
        self.armed.store(0, Ordering::Release);
        self.untold.store(u64::MAX, Ordering::Release);
    }

    /// What the medium has missed, for its next superblock.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Acquire)
    }

    /// The medium does not call these samples armed any more.
    pub(crate) fn disarm(&self, samples: u64) {
        self.armed.fetch_and(!samples, Ordering::AcqRel);
        self.missed.fetch_and(!samples, Ordering::AcqRel);
    }
}

impl Shared {
    /// Disarms the samples among these bytes of the origin, which are about to be written, or discarded. Whoever
    /// does that has begun to write the blocks, or to change the range, before.
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

    /// An error when the origin is not what it was: another one, or written without the cache.
    pub(crate) fn check_origin(&self) -> Result<(), CacheError> {
        // Whoever is about to write a sampled block needs the store to disarm it.
        let store = self.store.lock();
        let armed = self.watch.armed.load(Ordering::Acquire);
        let pairing = look(&*self.origin, &store, armed)?;
        match pairing.is_right() {
            true => Ok(()),
            false => Err(CacheError::WrongOrigin { pair: Box::new(pairing) }),
        }
    }
}

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
        // Nobody writes back, discards or zeroes; and a write cancels what is begun here.
        let _gate = shared.gate.lock();
        let begun = |n: &usize| {
            let block = watch.blocks[*n];
            // A set that was never used has nobody who writes its blocks.
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

impl Cache {
    /// An origin beside what the cache on `flash` knows of it. Nothing is written.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lie_in_all_parts_and_where_file_systems_begin() {
        for blocks in [65, 100, 4096, 1 << 20, (1 << 52) - 3] {
            let places: Vec<u64> = places(7, blocks).into_iter().collect();
            assert!(places.len() <= MAX_SAMPLES && places.len() > 48, "{}", places.len());
            for block in [0, 1, 16, blocks - 1] {
                assert!(places.contains(&block), "{block} of {blocks}");
            }
            let gaps = places.windows(2).map(|two| two[1] - two[0]);
            assert!(gaps.max() <= Some(2 * blocks.div_ceil(PARTS)), "{places:?}");
        }
        assert!(places(7, 1 << 20) != places(8, 1 << 20), "they follow from the seed");
        assert_eq!(places(7, 3).into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn samples_of_a_range_are_found() {
        let origin = Origin {
            samples: [0, 5, 9].map(|block| Sample { block, crc: 0 }).to_vec(),
            ..Origin::default()
        };
        let watch = Watch::new(&origin);
        let cases = [(0..1, 0b001), (1..5, 0), (0..6, 0b011), (5..10, 0b110), (10..99, 0)];
        for (range, expected) in cases {
            assert_eq!(watch.among(&range), expected, "{range:?}");
        }
        assert_eq!(bits(64), u64::MAX);
    }
}
