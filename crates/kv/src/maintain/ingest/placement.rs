//! The placement of young values: they stay in the log, or go to a block of their KVS or to one that
//! several KVSs share.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use crate::compaction::reader::GAP;
use crate::engine::shared::Engine;
use crate::media::classes::Classes;
use crate::media::space::Purpose;
use crate::media::writes::Writes;
use crate::omf::frame::{Change, Record, record_size};
use crate::omf::page::INLINE_MAX;
use crate::tree::view::Tree;
use crate::tree::young::{Newest, Young, YoungValue};
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::ids::{BlockId, KvsId, RecordAddress};
use crate::types::policy::{Place, Policy};
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;
use crate::values::writer::BlockWriter;

/// Placement of the values of a KVS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    Log,
    /// So many bytes go to blocks of their own.
    Own {
        class: MediaClass,
        stays: Option<MediaClass>,
        bytes: u64,
    },
    /// Few go to a block that other KVSs have a part of.
    Shared {
        class: MediaClass,
        stays: Option<MediaClass>,
        bytes: u64,
    },
}

impl Placement {
    /// Whether a value that the log has in `block` goes there: on the class that it `stays` on, if any, it is where
    /// it belongs.
    pub(crate) fn takes(self, block: &ValueBlock) -> bool {
        match self {
            Placement::Log => false,
            Placement::Own { stays, .. } | Placement::Shared { stays, .. } => {
                stays != Some(block.media().class)
            }
        }
    }
}

/// Whether a policy has young values leave the log for the class where they belong.
pub(crate) fn leave_log(policy: &Policy, classes: &Classes) -> bool {
    policy.young_values.class == MediaClass::Capacity && classes.staging().is_some()
}

/// A writer of about so many bytes of young values to a class.
pub(crate) fn writer<'a>(
    engine: &'a Engine,
    writes: &'a Writes,
    class: MediaClass,
    bytes: u64,
) -> BlockWriter<'a> {
    let (at, purpose) = ((Place::only(class), Stream::Log), Purpose::User);
    BlockWriter::new(&engine.classes, at, purpose, (&engine.tuning, bytes), writes)
}

/// How records of the log are divided among KVSs.
#[derive(Default)]
struct Shares {
    /// Of all KVSs, in bytes.
    bytes: u64,
    kvss: BTreeMap<KvsId, Share>,
}

/// The values of a KVS that are in the log alone.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    records: u64,
    bytes: u64,
}

/// Values get blocks of their own when a spill would read so many times their bytes besides them: it is
/// one more write of them, and no more reads than they have bytes.
const READ_IN_VAIN: u64 = 3;
/// Bytes that reading one record by itself reads besides the record.
const LONE_READ: u64 = 4096;

impl Shares {
    /// Those of `young`: of the newest version of each key.
    fn of(young: &impl Young) -> Shares {
        let mut shares = Shares::default();
        if !young.may_be_thin() {
            return shares;
        }
        let count = |kvs, key: &[u8], newest: Newest<'_>| {
            let value_size = newest.value.size();
            let size = record_size(key.len(), value_size) as u64;
            shares.bytes += size;
            if value_size > INLINE_MAX {
                let share = shares.kvss.entry(kvs).or_default();
                share.records += 1;
                share.bytes += size;
            }
            Ok::<(), Infallible>(())
        };
        let Ok(()) = young.each_newest(count);
        shares
    }

    /// Where the values of a KVS go, whose class is `class` and which are to `leave` the log or not, when space is
    /// taken in `unit`s of bytes.
    fn placement(&self, kvs: KvsId, class: MediaClass, leave: bool, unit: u64) -> Placement {
        let Some(&Share { records, bytes }) = self.kvss.get(&kvs) else {
            // Nobody has counted them, or there are none.
            let own = Placement::Own { class, stays: Some(class), bytes: u64::MAX };
            return if leave { own } else { Placement::Log };
        };
        let between = self.bytes - bytes;
        // A spill reads the bytes between two records that are near each other, and else each alone.
        let in_vain = if between / records > GAP { records * LONE_READ } else { between };
        let thin = in_vain >= READ_IN_VAIN * bytes;
        let stays = (!thin).then_some(class);
        match thin || leave {
            false => Placement::Log,
            true if bytes < unit => Placement::Shared { class, stays, bytes },
            true => Placement::Own { class, stays, bytes },
        }
    }
}

/// Placements of the KVSs whose values do not stay in the log.
#[derive(Default)]
pub(crate) struct Placements(BTreeMap<KvsId, Placement>);

impl Placements {
    pub(crate) fn find(
        engine: &Engine,
        young: &impl Young,
        trees: &BTreeMap<KvsId, Arc<Tree>>,
    ) -> Placements {
        let shares = Shares::of(young);
        let unit = engine.tuning.allocation_bytes;
        let placements = trees.values().map(|tree| {
            let policy = &tree.options.policy;
            let leave = leave_log(policy, &engine.classes);
            (tree.kvs, shares.placement(tree.kvs, policy.young_values.class, leave, unit))
        });
        Placements::worth_it(placements, unit)
    }

    /// Of these placements, those that are worth a block: few values are not, that could stay in the log.
    fn worth_it(placements: impl Iterator<Item = (KvsId, Placement)>, unit: u64) -> Placements {
        let mut placements =
            Placements(placements.filter(|(_, placement)| *placement != Placement::Log).collect());
        for of in MediaClass::ALL {
            if placements.shared_bytes(of) < unit / 4 {
                placements.0.retain(|_, placement| {
                    !matches!(placement, Placement::Shared { class, stays: None, .. } if *class == of)
                });
            }
        }
        placements
    }

    pub(crate) fn of(&self, kvs: KvsId) -> Placement {
        self.0.get(&kvs).copied().unwrap_or(Placement::Log)
    }

    /// How many bytes go to shared blocks of a class.
    fn shared_bytes(&self, of: MediaClass) -> u64 {
        let sizes = self.0.values().map(|placement| match *placement {
            Placement::Shared { class, bytes, .. } if class == of => bytes,
            _ => 0,
        });
        sizes.sum()
    }
}

/// Addresses of the values of a KVS, in the order of its keys; nothing for one that stays in the log.
pub(crate) type Addresses = std::vec::IntoIter<Option<RecordAddress>>;

/// Values of several KVSs, written to blocks that they share.
#[derive(Default)]
pub(crate) struct SharedValues {
    addresses: BTreeMap<KvsId, Vec<Option<RecordAddress>>>,
    pub(crate) blocks: Vec<Arc<ValueBlock>>,
}

impl SharedValues {
    /// Writes the values of `young` that go to shared blocks; `log` are its own.
    pub(crate) fn write(
        engine: &Engine,
        writes: &Writes,
        young: &impl Young,
        placements: &Placements,
        log: &BTreeMap<BlockId, Arc<ValueBlock>>,
    ) -> Result<SharedValues> {
        let mut shared = SharedValues::default();
        for class in MediaClass::ALL {
            let bytes = placements.shared_bytes(class);
            if bytes > 0 {
                let mut values = writer(engine, writes, class, bytes);
                shared.write_to(class, engine, young, placements, log, &mut values)?;
                shared.blocks.extend(values.finish()?);
            }
        }
        Ok(shared)
    }

    fn write_to(
        &mut self,
        of: MediaClass,
        engine: &Engine,
        young: &impl Young,
        placements: &Placements,
        log: &BTreeMap<BlockId, Arc<ValueBlock>>,
        values: &mut BlockWriter<'_>,
    ) -> Result<()> {
        let (mut bytes, mut is_full) = (Vec::new(), false);
        young.each_newest(|kvs, key, newest| {
            let YoungValue::Here(value) = newest.value else { return Ok(()) };
            let placement = placements.of(kvs);
            let is_shared = matches!(placement, Placement::Shared { class, .. } if class == of);
            if value.len() <= INLINE_MAX || !is_shared {
                return Ok(());
            }
            let mut address = None;
            if !is_full && placement.takes(&log[&newest.address.block]) {
                let record = Record { kvs, key, change: Change::Put(value) };
                bytes.resize(record.size(), 0);
                record.encode_to(&mut bytes);
                match values.push(&bytes, &engine.ids) {
                    // Nobody looks again.
                    Err(KvError::NoSpace { .. }) => is_full = true,
                    placed => address = Some(placed?),
                }
            }
            self.addresses.entry(kvs).or_default().push(address);
            Ok(())
        })
    }

    /// The addresses of a KVS's values; they can be taken once.
    pub(crate) fn addresses_of(&mut self, kvs: KvsId) -> Addresses {
        self.addresses.remove(&kvs).unwrap_or_default().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::memtable::Memtable;
    use crate::tree::memtable::list::Written;
    use crate::types::expiry::Expiry;
    use crate::types::ids::Seqno;

    /// A memtable in which each KVS has so many records with values of so many bytes, in turn.
    fn shares(kvss: &[(u64, usize)]) -> Shares {
        let table = Memtable::new(1 << 20);
        let mut seqno = Seqno::ZERO;
        for (kvs, &(records, size)) in (1..).map(KvsId).zip(kvss) {
            for n in 0..records {
                seqno = seqno.next();
                let value = vec![7; size];
                let address = RecordAddress { block: BlockId(1), offset: 0 };
                let written = Written { value: Some(&value), expiry: Expiry::NEVER, address };
                table.insert(kvs, &n.to_be_bytes(), seqno, written);
            }
        }
        Shares::of(&table)
    }

    fn placements(kvss: &[(u64, usize)]) -> Placements {
        let (shares, class) = (shares(kvss), MediaClass::Capacity);
        let placements = (1..)
            .map(KvsId)
            .zip(kvss)
            .map(|(kvs, _)| (kvs, shares.placement(kvs, class, false, 4096)));
        Placements::worth_it(placements, 4096)
    }

    fn thin(kvss: &[(u64, usize)]) -> Vec<bool> {
        let placements = placements(kvss);
        (1..).map(KvsId).zip(kvss).map(|(kvs, _)| placements.of(kvs) != Placement::Log).collect()
    }

    #[test]
    fn values_that_a_spill_reads_with_three_times_as_much_besides_are_thin() {
        assert_eq!(thin(&[(500, 100)]), [false]);
        assert_eq!(thin(&[(500, 100), (500, 100), (500, 100)]), [false; 3]);
        assert_eq!(thin(&[(500, 100); 5]), [true; 5]);
        assert_eq!(thin(&[(1900, 100), (100, 100)]), [false, true]);
        // Values in keys are never read from the log.
        assert_eq!(thin(&[(1900, 100), (100, 16)]), [false, false]);
    }

    #[test]
    fn large_values_far_from_each_other_are_read_alone_and_stay() {
        assert_eq!(thin(&[(30, 100_000), (10, 8_000)]), [false, false]);
        assert_eq!(thin(&[(30, 100_000), (10, 500)]), [false, true]);
    }

    #[test]
    fn few_values_are_not_worth_a_unit_of_space() {
        assert_eq!(thin(&[(20, 100), (1, 100)]), [false, false]);
        let shared =
            placements(&[(10_000, 100)].iter().chain(&[(5, 100); 9]).copied().collect::<Vec<_>>());
        let is_shared = |kvs| matches!(shared.of(kvs), Placement::Shared { .. });
        assert!(!is_shared(KvsId(1)) && (2..11).map(KvsId).all(is_shared));
    }
}
