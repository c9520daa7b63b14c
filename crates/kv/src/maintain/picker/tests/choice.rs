//! The choice of the next step by facts that are made up: kvsets on a device in memory, and no KVDB.

use std::sync::Arc;

use esker_base::Clock;

use crate::engine::job::Job;
use crate::maintain::picker::Picker;
use crate::maintain::picker::room::{ClassRoom, Room};
use crate::media::class::Media;
use crate::media::classes::Classes;
use crate::media::writes::Writes;
use crate::testing::device;
use crate::tree::kvset::Kvset;
use crate::tree::kvset::builder::{BuilderContext, KvsetBuilder, NewEntry};
use crate::tree::memtable::Memtable;
use crate::tree::page_cache::PageCache;
use crate::tree::view::{Tree, View};
use crate::types::class::MediaClass;
use crate::types::expiry::Expiry;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, Seqno};
use crate::types::options::Tuning;
use crate::types::policy::{KvsOptions, Place};

const KVS: KvsId = KvsId(1);
const LEAF: LeafId = LeafId(2);

/// Makes kvsets.
struct Bench {
    tuning: Tuning,
    classes: Classes,
    pages: Arc<PageCache>,
    last_id: u64,
}

impl Bench {
    fn new() -> Bench {
        let tuning = Tuning { spill_bytes: 1 << 20, ..Tuning::for_budget(16 << 20) };
        let capacity =
            Media::new(MediaClass::Capacity, device("c"), &tuning, &Clock::virtual_time());
        let classes = Classes::new(Arc::new(capacity), None);
        Bench { tuning, classes, pages: Arc::new(PageCache::new(1 << 20)), last_id: 10 }
    }

    /// A kvset of `node` with so many entries of about 100 bytes, whose keys begin with `first`.
    fn kvset(&mut self, node: LeafId, first: u8, entries: u64) -> Arc<Kvset> {
        self.last_id += 1;
        let (id, writes) = (self.last_id, Writes::new(false));
        let context = BuilderContext {
            classes: &self.classes,
            cache: &self.pages,
            tuning: &self.tuning,
            writes: &writes,
        };
        let place = Place::prefer(MediaClass::Capacity);
        let mut kvset = KvsetBuilder::new(context, KvsetId(id), KVS, node, Seqno(id), place);
        for n in 0..entries {
            let key = [&[first; 1][..], &n.to_be_bytes().repeat(10)].concat();
            kvset.add(&key, NewEntry::Inline(&[7; 16], Expiry::NEVER)).unwrap();
        }
        kvset.finish(|id| panic!("block {id} was not named")).unwrap()
    }
}

/// A view of one tree with these kvsets.
fn view(kvsets: Vec<Arc<Kvset>>) -> View {
    let mut tree = Tree::new(KVS, "a", KvsOptions::default(), LEAF);
    kvsets.into_iter().for_each(|kvset| tree.add(kvset));
    View::new(Arc::new(Memtable::new(1 << 20)), vec![tree])
}

/// A picker on one medium of 64 MiB, of which so many percent are used.
fn picker_on<'v>(bench: &'v Bench, view: &'v View, used_percent: u64) -> Picker<'v> {
    let capacity_bytes = 64 << 20;
    let used_bytes = (capacity_bytes * used_percent).div_ceil(100);
    let capacity = ClassRoom {
        class: MediaClass::Capacity,
        capacity_bytes,
        used_bytes,
        free_bytes: capacity_bytes - used_bytes,
        reserve_bytes: 1 << 20,
        has_room: true,
    };
    let room = Room {
        capacity,
        staging: None,
        log_class: MediaClass::Capacity,
        log_capacity_bytes: capacity_bytes,
        largest_lba: 512,
    };
    Picker {
        view,
        tuning: &bench.tuning,
        room,
        replay_from: BlockId(0),
        now_ms: 0,
        // Nothing is to be saved.
        space_percent: 10_000,
        is_quiet: false,
        spill_most: None,
        emptying: None,
    }
}

#[test]
fn full_roots_make_a_spill_due_and_quiet_writers_a_quarter_of_them() {
    let mut bench = Bench::new();
    let small = view(vec![bench.kvset(LeafId::ROOT, b'a', 4000)]);
    let picker = picker_on(&bench, &small, 10);
    assert!(
        small.root_bytes() > picker.spill_bytes() / 4 && small.root_bytes() < picker.spill_bytes()
    );
    assert_eq!(picker.pick(), []);
    assert_eq!(Picker { is_quiet: true, ..picker }.pick(), [Job::Spill { kvs: KVS }]);
    let large = view(vec![bench.kvset(LeafId::ROOT, b'a', 20_000)]);
    assert_eq!(picker_on(&bench, &large, 10).pick(), [Job::Spill { kvs: KVS }]);
}

#[test]
fn kvsets_of_a_root_are_merged_unless_it_is_being_emptied() {
    let mut bench = Bench::new();
    let four = view((b'a'..=b'd').map(|first| bench.kvset(LeafId::ROOT, first, 500)).collect());
    let picker = picker_on(&bench, &four, 10);
    assert_eq!(picker.pick(), [Job::Merge { kvs: KVS, newest: 4 }]);
    assert_eq!(Picker { emptying: Some(KVS), ..picker }.pick(), []);
}

#[test]
fn kvsets_of_a_leaf_are_merged_the_sooner_the_fuller_its_medium_is() {
    let mut bench = Bench::new();
    let most = bench.tuning.compact_kvsets;
    let mut kvsets: Vec<Arc<Kvset>> = Vec::new();
    let due = |bench: &Bench, kvsets: &[Arc<Kvset>], used| {
        let view = view(kvsets.to_vec());
        let due = picker_on(bench, &view, used).pick();
        due.iter().any(|job| matches!(job, Job::Compact { leaf: LEAF, .. }))
    };
    // They hold the same keys: newer values hide older ones.
    for _ in 0..most - 1 {
        kvsets.push(bench.kvset(LEAF, b'a', 500));
        assert!(!due(&bench, &kvsets, 69), "{} kvsets", kvsets.len());
        assert_eq!(due(&bench, &kvsets, 70), kvsets.len() > 1, "{} kvsets", kvsets.len());
    }
    kvsets.push(bench.kvset(LEAF, b'a', 500));
    assert!(due(&bench, &kvsets, 69));
}

#[test]
fn a_spill_that_leaves_no_room_comes_after_all_other_steps() {
    let mut bench = Bench::new();
    let mut kvsets = vec![bench.kvset(LeafId::ROOT, b'a', 20_000)];
    kvsets.extend((0..bench.tuning.compact_kvsets).map(|_| bench.kvset(LEAF, b'a', 500)));
    let view = view(kvsets);
    let mut picker = picker_on(&bench, &view, 10);
    assert!(
        matches!(picker.pick()[..], [Job::Spill { .. }, Job::Compact { .. }]),
        "{:?}",
        picker.pick()
    );
    picker.room.capacity.free_bytes = 1 << 20;
    assert!(
        matches!(picker.pick()[..], [Job::Compact { .. }, Job::Spill { .. }]),
        "{:?}",
        picker.pick()
    );
}
