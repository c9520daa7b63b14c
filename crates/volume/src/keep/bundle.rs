//! How what was moved is stored anew: cold neighbours are compressed together, harder than what is written, where the
//! volume wants to be compressed and it saves sectors; the others stay as they are.

use crate::engine::Shared;
use crate::fragment::{self, Bundler, Unpacker};
use crate::omf::leaf::{BUNDLE_BLOCKS, BUNDLE_SECTORS_MAX, Fragment};
use crate::omf::summary::Item;
use crate::space::Class;
use crate::types::{BLOCK_SIZE, sectors_of};

/// Blocks that are stored together, nearly always one.
pub(crate) struct Parcel {
    pub(crate) members: Vec<(Item, Fragment)>,
    pub(crate) bytes: Vec<u8>,
}

/// A block on its way: what it is, where the map has it, and its bytes as they are stored.
pub(crate) type Moved = (Item, Fragment, Vec<u8>);

/// The parcels in which these blocks are to be stored.
pub(crate) fn parcels(shared: &Shared, class: Class, mut moved: Vec<Moved>) -> Vec<Parcel> {
    let has_bundles = moved.iter().any(|(_, from, _)| from.blocks > 1);
    if class != Class::Cold && !has_bundles {
        let one = |(item, from, bytes)| Parcel { members: vec![(item, from)], bytes };
        return moved.into_iter().map(one).collect();
    }
    moved.sort_by_key(|(item, ..)| (item.lineage, item.index, item.birth));
    let mut workshop = Workshop::default();
    let mut parcels = Vec::with_capacity(moved.len());
    let mut left = &moved[..];
    while let Some((first, ..)) = left.first() {
        let bundle = |item: &Item| (item.lineage, item.index / BUNDLE_BLOCKS);
        let neighbours = left.windows(2).take_while(|pair| {
            let (before, next) = (&pair[0].0, &pair[1].0);
            bundle(next) == bundle(first) && before.index != next.index
        });
        let group = &left[..=neighbours.count()];
        let is_wanted =
            class == Class::Cold && shared.core.lock().catalog.is_compressed(first.lineage);
        workshop.store(group, is_wanted, &mut parcels);
        left = &left[group.len()..];
    }
    parcels
}

/// Tools to store blocks anew.
#[derive(Default)]
struct Workshop {
    bundler: Bundler,
    unpacker: Unpacker,
    scratch: Vec<u8>,
}

impl Workshop {
    /// Stores neighbours of one bundle.
    fn store(&mut self, group: &[Moved], is_wanted: bool, parcels: &mut Vec<Parcel>) {
        let members = || group.iter().map(|(item, from, _)| (*item, *from)).collect();
        let (_, from, bytes) = &group[0];
        let is_whole = usize::from(from.blocks) == group.len()
            && group.iter().all(|(_, other, _)| other.sector == from.sector);
        // A bundle of which all is alive, or a block that is compressed hard already, stays as it is.
        if is_whole && (from.blocks > 1 || fragment::is_hard(from.sectors, bytes)) {
            return parcels.push(Parcel { members: members(), bytes: bytes.clone() });
        }
        let blocks: Vec<Option<Vec<u8>>> = group.iter().map(|moved| self.plain(moved)).collect();
        let singles: Vec<Vec<u8>> =
            group.iter().zip(&blocks).map(|(moved, block)| self.single(moved, block)).collect();
        if is_wanted {
            let places = group.iter().zip(&blocks).filter_map(|((item, ..), block)| {
                let place = u8::try_from(item.index % BUNDLE_BLOCKS).expect("below four");
                Some((place, &block.as_ref()?[..]))
            });
            let places: Vec<(u8, &[u8])> = places.collect();
            let before: usize = singles.iter().map(Vec::len).sum();
            let packed = self.bundler.pack(&places).filter(|packed| {
                places.len() == group.len()
                    && packed.len() < before
                    && sectors_of(packed.len()) <= BUNDLE_SECTORS_MAX.into()
            });
            if let Some(packed) = packed {
                return parcels.push(Parcel { members: members(), bytes: packed.to_vec() });
            }
        }
        // A bundle that verifies and cannot be decompressed stays where it is, and is reported when it is read.
        let can_move = |((_, from, _), _): &(&Moved, Vec<u8>)| {
            from.blocks == 1 || blocks.iter().all(Option::is_some)
        };
        let alone = group.iter().zip(singles).filter(can_move);
        parcels.extend(
            alone.map(|((item, from, _), bytes)| Parcel { members: vec![(*item, *from)], bytes }),
        );
    }

    /// The content of a block; `None` if it cannot be decompressed, and stays as it is.
    fn plain(&mut self, (item, from, bytes): &Moved) -> Option<Vec<u8>> {
        if from.blocks == 1 && bytes.len() == BLOCK_SIZE {
            return Some(bytes.clone());
        }
        let mut block = vec![0; BLOCK_SIZE];
        let place = u8::try_from(item.index % BUNDLE_BLOCKS).expect("below four");
        self.unpacker.unpack(bytes, place, &mut block)?;
        Some(block)
    }

    /// A block as it is stored alone.
    fn single(&mut self, (_, from, bytes): &Moved, block: &Option<Vec<u8>>) -> Vec<u8> {
        match block {
            Some(block) if from.blocks > 1 => {
                fragment::encode(block, true, &mut self.scratch).to_vec()
            }
            _ => bytes.clone(),
        }
    }
}
