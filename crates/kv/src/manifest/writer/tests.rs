use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::omf::manifest::KvsetEdit;
use crate::types::extent::Extent;
use crate::types::format::FormatVersion;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, Seqno};
use crate::types::policy::KvsOptions;
use esker_base::AlignedBuf;
use esker_base::Rng;
use esker_base::units::to_usize;
use esker_device::{MemoryDevice, Port};
use esker_sim::{Fate, HookDevice};

fn device() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new("manifest", 64 << 10, 512))
}

fn kvs(id: u32) -> Edit {
    Edit::Kvs { id: KvsId(id), name: format!("kvs{id}"), options: KvsOptions::default() }
}

#[test]
fn committed_edits_are_read_back_across_many_regions() {
    let device = device();
    let manifest =
        Manifest::create(device.clone(), (FormatVersion::V1, [7; 16]), vec![kvs(1)]).unwrap();
    for id in 2..600u32 {
        manifest.commit(vec![kvs(id), Edit::KvsDropped { id: KvsId(id - 1) }]).unwrap();
    }
    let state = Manifest::read(&device).unwrap().unwrap();
    assert_eq!(state.kvss.keys().copied().collect::<Vec<_>>(), [KvsId(599)]);
    assert_eq!(state.uuid, [7; 16]);
    let again = Manifest::find(device.clone()).unwrap().unwrap().begin(|| Ok(())).unwrap();
    again.commit(vec![kvs(700)]).unwrap();
    assert_eq!(Manifest::read(&device).unwrap().unwrap().kvss.len(), 2);
}

/// The LBAs of a manifest that were ever written.
fn touched(device: &Arc<dyn Device>) -> u64 {
    let geometry = device.geometry();
    let mut port = Port::open(&**device, 1).unwrap();
    let is_written = |lba: &u64| {
        let lba_bytes = AlignedBuf::zeroed(to_usize(geometry.lba_size.into()));
        port.read(Lba(*lba), lba_bytes).unwrap().iter().any(|&byte| byte != 0)
    };
    (0..geometry.capacity.0).filter(is_written).count() as u64
}

/// Discards must not wait until a large region is full.
#[test]
fn records_are_overwritten_long_before_a_large_region_is_full() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("manifest", 16 << 20, 4096));
    let manifest =
        Manifest::create(device.clone(), (FormatVersion::V1, [7; 16]), vec![kvs(1)]).unwrap();
    let mut all = Vec::new();
    for (few, many) in [(1, 2), (2, 20_000)] {
        // The state is large from the second time on, and then so are the records that follow its snapshots.
        manifest.commit((few..many).map(kvs).collect()).unwrap();
        let before = manifest.written_bytes();
        for id in 30_000..31_000 {
            manifest.commit(vec![kvs(id), Edit::KvsDropped { id: KvsId(id) }]).unwrap();
        }
        let state = Manifest::read(&device).unwrap().unwrap();
        assert_eq!(state.kvss.len(), to_usize(u64::from(many) - 1));
        all.push((touched(&device) * 4096, manifest.written_bytes() - before));
    }
    let (touched, written) = all[0];
    assert!(touched <= 2 * (TRAIL_LEAST + (8 << 10)), "{touched}");
    assert!(written <= 1000 * 4096 * 9 / 8, "{written}");
    // Snapshots of a large state are few.
    let (_, written) = all[1];
    assert!(written <= 1000 * 4096 * 5 / 4 + (1 << 20), "{written}");
}

#[test]
fn blocks_are_there_as_long_as_something_needs_them() {
    let mut rng = Rng::new(7);
    let mut state = State::default();
    state.apply_all(vec![kvs(1), kvs(2)]).unwrap();
    let next = std::cell::Cell::new(10);
    let id = || next.replace(next.get() + 1);
    let extent = Extent { class: MediaClass::Capacity, lba: Lba(8), count: LbaCount(8) };
    let (mut gone, mut kvss) = (0, vec![1, 2]);
    for _ in 0..3000 {
        let mut edits = Vec::new();
        let mut there: Vec<BlockId> = state.blocks.keys().copied().collect();
        for _ in 0..rng.below(3) {
            let (id, log) = (BlockId(id()), rng.chance(1, 2));
            edits.push(Edit::Block { id, extent, log, bytes: 1, plain_bytes: 1 });
            there.push(id);
        }
        let owner = kvss[to_usize(rng.below(kvss.len() as u64))];
        for _ in 0..rng.below(3) {
            let id = KvsetId(id());
            let mut own = there.clone();
            own.retain(|_| rng.chance(1, 4));
            let blocks = own.into_iter().map(|id| (id, 1)).collect();
            let extents = vec![extent];
            let (entries, tombstones, pages, meta_size) = (1, 0, 1, 1);
            let (kvs, leaf, age) = (KvsId(owner), LeafId::ROOT, Seqno(1));
            edits.push(Edit::Kvset(KvsetEdit {
                id,
                kvs,
                leaf,
                age,
                entries,
                tombstones,
                pages,
                meta_size,
                extents,
                blocks,
            }));
        }
        let removed = state.kvsets.keys().copied().filter(|_| rng.chance(1, 6));
        edits.extend(removed.map(|id| Edit::KvsetRemoved { id }));
        if rng.chance(1, 5) {
            let first = state.log_first.max(BlockId(next.get() - rng.below(8)));
            edits.push(Edit::Ingested { seqno: Seqno(1), first });
        }
        if rng.chance(1, 100) {
            let fresh = u32::try_from(id()).unwrap();
            edits.push(kvs(fresh));
            edits.push(Edit::KvsDropped { id: KvsId(std::mem::replace(&mut kvss[0], fresh)) });
            kvss.swap(0, 1);
        }
        let before = state.blocks.len();
        state.apply_all(edits).unwrap();
        gone += usize::from(state.blocks.len() < before);
        let mut again = State::default();
        again.apply_all(state.edits()).unwrap();
        for state in [&state, &again] {
            let referred = |id: &BlockId| {
                let kvsets = state.kvsets.values();
                kvsets.filter(|kvset| kvset.blocks.iter().any(|(own, _)| own == id)).count() as u64
            };
            for (id, block) in &state.blocks {
                assert_eq!(block.references, referred(id));
                assert!(block.references > 0 || block.log && *id >= state.log_first, "{id}");
            }
            let named = state.kvsets.values().flat_map(|kvset| &kvset.blocks);
            named.for_each(|(id, _)| assert!(state.blocks.contains_key(id), "{id}"));
        }
        assert!(state.blocks.keys().eq(again.blocks.keys()));
    }
    assert!(gone > 100, "{gone}");
}

#[test]
fn commits_after_a_panic_are_refused_with_its_message() {
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = is_armed.clone();
    let panics = HookDevice::new(device()).on_command(move |_| {
        assert!(!armed.load(Ordering::Acquire), "a device that panics");
        Fate::Pass
    });
    let manifest =
        Manifest::create(Arc::new(panics), (FormatVersion::V1, [7; 16]), vec![kvs(1)]).unwrap();
    is_armed.store(true, Ordering::Release);
    let panic = catch_unwind(AssertUnwindSafe(|| manifest.commit(vec![kvs(2)]))).unwrap_err();
    assert_eq!(said(&*panic), "a device that panics");
    is_armed.store(false, Ordering::Release);
    let refused = manifest.commit(vec![kvs(2)]).unwrap_err();
    assert!(
        matches!(&refused, KvError::Panicked { message, .. } if message == "a device that panics"),
        "{refused}"
    );
}

#[test]
fn a_device_without_a_manifest_has_none() {
    assert!(Manifest::read(&device()).unwrap().is_none());
}

#[test]
fn two_unreadable_regions_are_damage_and_an_unfinished_first_one_is_none() {
    let device = device();
    let first =
        Manifest::create(device.clone(), (FormatVersion::V1, [1; 16]), vec![kvs(1)]).unwrap();
    let mut port = Port::open(&*device, 1).unwrap();
    let mut clean = port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap();
    let mut torn = clean.clone();
    torn[70..].fill(0);
    port.write(Lba(0), torn, None).unwrap();
    assert!(Manifest::read(&device).unwrap().is_none());
    clean = port.write(Lba(0), clean, None).unwrap();
    drop(first);
    // Opened once, and then both are overwritten.
    Manifest::find(device.clone()).unwrap().unwrap().begin(|| Ok(())).unwrap();
    for lba in [0, 64] {
        clean.fill(0xa5);
        clean = port.write(Lba(lba), clean, None).unwrap();
    }
    let error = Manifest::read(&device).unwrap_err();
    assert!(matches!(error, KvError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("`esker kv repair`"), "{error}");
}

#[test]
fn every_flipped_byte_yields_an_earlier_state_or_an_error_never_a_wrong_one() {
    let device = device();
    let manifest =
        Manifest::create(device.clone(), (FormatVersion::V1, [1; 16]), vec![kvs(1)]).unwrap();
    for id in 2..5 {
        manifest.commit(vec![kvs(id)]).unwrap();
    }
    let mut port = Port::open(&*device, 1).unwrap();
    let clean = port.read(Lba(0), AlignedBuf::zeroed(2048)).unwrap();
    for at in 0..clean.len() {
        let mut bytes = clean.clone();
        bytes[at] ^= 0x41;
        port.write(Lba(0), bytes, None).unwrap();
        if let Ok(Some(state)) = Manifest::read(&device) {
            let found: Vec<u32> = state.kvss.keys().map(|id| id.0).collect();
            assert_eq!(found, (1..).take(found.len()).collect::<Vec<u32>>());
        }
    }
}
