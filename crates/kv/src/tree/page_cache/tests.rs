use super::*;
use crate::omf::page::{Entry, PageBuilder};
use crate::types::ids::KvsetId;

#[test]
fn tags_find_what_a_search_finds() {
    let mut rng = esker_base::Rng::new(5);
    for size in 1..40 {
        // Pages of one key and of hundreds, with a prefix and without.
        let key = |n: u64| {
            let mut key = format!("{:03}", n % 1000).into_bytes();
            key.resize(3 + size, b'x');
            if size % 2 == 0 { [b"same", &key[..]].concat() } else { key }
        };
        let mut builder = PageBuilder::default();
        let keys = (0..1000).filter(|_| rng.chance(1, 2)).take(1 + 13 * size);
        let there: Vec<u64> =
            keys.take_while(|&n| builder.add(&key(n), Entry::Tombstone)).collect();
        let page = SharedPage::new(&builder.finish(KvsetId(1), 2));
        assert_eq!(page.count(), there.len());
        for n in 0..1000 {
            let found = page.find(&key(n), key_hash(&key(n)));
            assert_eq!(found, there.binary_search(&n).ok(), "{n} among {there:?}");
        }
        assert_eq!(page.find(b"", key_hash(b"")), None);
    }
}

fn page(kvset: u64, index: u32) -> SharedPage {
    let mut builder = PageBuilder::default();
    assert!(builder.add(b"key", Entry::Tombstone));
    SharedPage::new(&builder.finish(KvsetId(kvset), index))
}

#[test]
fn pages_beyond_the_limit_leave_and_used_ones_stay() {
    let page_bytes = page(1, 0).dram_bytes();
    let cache = Arc::new(PageCache::new(4 * page_bytes));
    let table = PageTable::new(&cache, 10, 10);
    for index in 0..4 {
        table.admit(index, &page(1, index), false);
    }
    assert!(table.get(1).is_some());
    table.admit(4, &page(1, 4), true);
    table.admit(5, &page(1, 5), true);
    assert_eq!(cache.resident_bytes(), 4 * page_bytes);
    let resident: Vec<u32> = (0..10).filter(|&i| table.get(i).is_some()).collect();
    assert_eq!(resident, [1, 3, 4, 5]);
    assert_eq!(cache.misses(), 2);
    drop(table);
    assert_eq!(cache.resident_bytes(), 0);
}
