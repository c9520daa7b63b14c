//! Whether an origin is the one that the cache on a flash device was made for.
//!
//! The superblock has the identity of the origin, and checksums of 64 blocks that are sampled over it. The pair
//! is refused when the identity is another, or when a sampled block has changed. Sampled are the blocks
//! in which file systems, partition tables and arrays keep their first and last words, and one of each of 60
//! equal parts.
//!
//! Called when a cache is opened, detached or accepted, by every writer of the origin before it writes, and by `clean`.
//!
//! Invariants
//! 1. An *armed* sample matches durable content of the origin. Before the origin is written at a sampled block, the
//!    sample is disarmed, and that durably. So a crash leaves no armed sample that is wrong.
//! 2. A sample is armed only with content read while nobody wrote its block, and only after a flush that
//!    followed. A read sample is recorded as a fill is: a write that begins meanwhile cancels it.
//! 3. `armed` has every sample that the medium may call armed.
//! 4. A block that the origin may read as anything, for it was discarded or a write failed, is not
//!    armed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::checksum::crc32c;
use esker_base::units::to_u64;
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::{Device, DeviceError, Identity, Op, Port};

use crate::CacheError;
use crate::omf::{BLOCK, BLOCK_SIZE, MAX_IDENTITY, MAX_SAMPLES, Origin, Sample, Superblock};
use crate::pairing::Pairing;
use crate::store::Store;

/// Blocks of an origin that are sampled regardless of the seed: boot sector, file systems, volumes and arrays; a copy
/// of the partition table at 4 KiB; btrfs. The last one, for backups of partition tables, comes beside them.
const FIXED: [u64; 3] = [0, 1, 16];
/// Parts of the origin of which one block each is sampled.
const PARTS: u64 = 60;
/// Commands in flight while samples are read.
const DEPTH: usize = 16;

const _: () = assert!(MAX_IDENTITY == esker_device::identity::MAX_IDENTITY);

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
pub(crate) fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}

fn bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

pub(crate) fn has(bits: u64, n: usize) -> bool {
    bits >> n & 1 == 1
}

/// Reads those of the samples that `which` names; their numbers and checksums, none of one that cannot be read.
pub(crate) fn read(
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
pub(crate) fn look(origin: &dyn Device, store: &Store, armed: u64) -> Result<Pairing, CacheError> {
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
        known: made_for(known),
        found: origin.identity(),
        compared,
        differing,
        unread,
        dirty_blocks: store.dirty.into(),
        clean_blocks: store.named.saturating_sub(store.dirty).into(),
    })
}

/// The identity of the origin that a cache was made for, if it is known.
pub(crate) fn made_for(known: &Origin) -> Option<Identity> {
    known.identity.parse().ok().and_then(Identity::found)
}

/// Looks up the facts about the right origin that the superblock lacks, and returns the completed ones. None when the
/// superblock has them all. Nobody may use the origin meanwhile.
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
        // The sampled content has to be there after a crash, too.
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

/// Checks that `origin` is the one of an open store, and completes the facts about it in the superblock. Returns a
/// warning for the user, if there is one.
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

/// The samples of an open cache, for writers of the origin.
pub(crate) struct Watch {
    /// The sampled blocks, in their order.
    pub(crate) blocks: Box<[u64]>,
    pub(crate) armed: AtomicU64,
    pub(crate) untold: AtomicU64,
    /// Armed samples whose blocks were written while the flash device could not be told.
    pub(crate) missed: AtomicU64,
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
    pub(crate) fn among(&self, blocks: &Range<u64>) -> u64 {
        let before = |end: u64| bits(self.blocks.partition_point(|block| *block < end));
        before(blocks.end) & !before(blocks.start.min(blocks.end))
    }

    /// The samples that are neither armed nor untold.
    pub(crate) fn unarmed(&self) -> u64 {
        let [armed, untold] = [&self.armed, &self.untold].map(|bits| bits.load(Ordering::Acquire));
        bits(self.blocks.len()) & !armed & !untold
    }

    /// The origin may hold anything at these bytes.
    pub(crate) fn distrust(&self, bytes: &Range<u64>) {
        self.untold.fetch_or(self.among(&blocks_of(bytes)), Ordering::AcqRel);
    }

    /// Adds the samples that another watch distrusts.
    pub(crate) fn go_on_from(&self, other: &Watch) {
        self.untold.fetch_or(other.untold.load(Ordering::Acquire), Ordering::AcqRel);
    }

    /// The cache has let go of the origin: no sample counts.
    pub(crate) fn end(&self) {
        self.armed.store(0, Ordering::Release);
        self.untold.store(u64::MAX, Ordering::Release);
    }

    /// The armed samples that the medium has missed, for its next superblock.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Acquire)
    }

    /// The medium does not call these samples armed any more.
    pub(crate) fn disarm(&self, samples: u64) {
        self.armed.fetch_and(!samples, Ordering::AcqRel);
        self.missed.fetch_and(!samples, Ordering::AcqRel);
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
