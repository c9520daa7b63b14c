//! Key pages against a sorted `Vec` of keys and entries.

use std::collections::BTreeMap;

use esker_base::Rng;

use super::super::page::INLINE_MAX;
use super::*;
use crate::types::limits::{KEY_MAX, VALUE_MAX};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Tombstone,
    Inline(Vec<u8>, Expiry),
    Stored(Stored),
}

type KeyAndEntry = (Vec<u8>, Owned);

impl Owned {
    fn random(rng: &mut Rng) -> Owned {
        let expiry = match rng.below(4) {
            0 => Expiry(rng.below(u64::MAX) >> rng.below(64)),
            _ => Expiry::NEVER,
        };
        match rng.below(3) {
            0 => Owned::Tombstone,
            1 => Owned::Inline(random_bytes(rng, INLINE_MAX as u64), expiry),
            _ => {
                let mut narrow = |most: u64| u32::try_from(rng.below(most)).unwrap();
                Owned::Stored(Stored {
                    block: narrow(300),
                    offset: narrow(1 << 32),
                    value_size: narrow(VALUE_MAX as u64 + 1),
                    expiry,
                })
            }
        }
    }

    fn entry(&self) -> Entry<'_> {
        match self {
            Owned::Tombstone => Entry::Tombstone,
            Owned::Inline(value, expiry) => Entry::Inline(value, *expiry),
            Owned::Stored(stored) => Entry::Stored(*stored),
        }
    }

    /// Bytes behind the suffix, by the table of the format.
    fn size(&self) -> usize {
        let expiry = match self.entry().expiry() {
            Expiry::NEVER => 0,
            Expiry(ms) => 1 + varint_size(ms),
        };
        1 + expiry
            + match self {
                Owned::Tombstone => 0,
                Owned::Inline(value, _) => value.len(),
                Owned::Stored(Stored { block, offset, value_size, .. }) => {
                    [block, offset, value_size].map(|&n| varint_size(n.into())).iter().sum()
                }
            }
    }
}

fn varint_size(value: u64) -> usize {
    to_usize(u64::from(64 - (value | 1).leading_zeros()).div_ceil(7))
}

fn random_bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; to_usize(rng.below(most + 1))];
    rng.fill(&mut bytes);
    bytes
}

/// Keys of one kind: their shared prefix, their length, their letters.
struct Keys {
    prefix: Vec<u8>,
    longest: u64,
    letters: u64,
}

impl Keys {
    fn random(rng: &mut Rng) -> Keys {
        let most = [0, 10, 200, 1300][to_usize(rng.below(4))];
        let prefix = random_bytes(rng, most);
        let left = (KEY_MAX - prefix.len()) as u64;
        Keys {
            prefix,
            longest: [4, 12, 150, left][to_usize(rng.below(4))].min(left),
            letters: [2, 26, 256][to_usize(rng.below(3))],
        }
    }

    fn next(&self, rng: &mut Rng) -> Vec<u8> {
        let mut key = self.prefix.clone();
        for _ in 0..1 + rng.below(self.longest) {
            key.push(u8::try_from(rng.below(self.letters)).unwrap());
        }
        key
    }
}

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The size of a page with these entries by the table of the format; and the bytes that a builder
/// may hold back, because it counts two for each suffix's size as soon as one needs two.
fn page_size(entries: &[KeyAndEntry]) -> (usize, usize) {
    let prefix = shared(&entries[0].0, &entries[entries.len() - 1].0);
    let suffixes = entries.iter().map(|(key, _)| key.len() - prefix);
    let sizes = entries
        .iter()
        .zip(suffixes.clone())
        .map(|((_, entry), suffix)| 2 + varint_size(suffix as u64) + suffix + entry.size());
    let short = suffixes.clone().filter(|&suffix| suffix < 128).count();
    let held_back = if short == entries.len() { 0 } else { short };
    (20 + prefix + sizes.sum::<usize>(), held_back)
}

/// Builds pages of all entries; each page with the entries it was given.
fn build(entries: &[KeyAndEntry]) -> Vec<(Vec<u8>, &[KeyAndEntry])> {
    let mut pages = Vec::new();
    let mut builder = PageBuilder::default();
    let mut start = 0;
    let mut finish = |builder: &mut PageBuilder, from: usize, to: usize| {
        let bytes = builder.finish(KVSET, PAGE_INDEX).raw().to_vec();
        pages.push((bytes, &entries[from..to]));
    };
    for (n, (key, entry)) in entries.iter().enumerate() {
        if builder.add(key, entry.entry()) {
            continue;
        }
        let (size, held_back) = page_size(&entries[start..=n]);
        assert!(size + held_back > PAGE_SIZE, "refused, though a page would have {size} bytes");
        assert_eq!(builder.first_key(), &entries[start].0[..]);
        finish(&mut builder, start, n);
        assert!(builder.is_empty());
        assert!(builder.add(key, entry.entry()), "an empty page takes any entry");
        start = n;
    }
    if !builder.is_empty() {
        finish(&mut builder, start, entries.len());
    }
    pages
}

fn check(bytes: &[u8], entries: &[KeyAndEntry], absent: &[Vec<u8>]) {
    assert!(page_size(entries).0 <= PAGE_SIZE);
    let page = Page::verify(bytes, KVSET, PAGE_INDEX).unwrap();
    assert_eq!(page.count(), entries.len());
    let mut key = Vec::new();
    for (slot, (expected, owned)) in entries.iter().enumerate() {
        page.key_to(slot, &mut key);
        assert_eq!((&key, page.entry(slot).1), (expected, owned.entry()));
        assert_eq!(page.search(expected), (slot, true));
    }
    for key in absent {
        let expected = match entries.binary_search_by(|(known, _)| known.cmp(key)) {
            Ok(slot) => (slot, true),
            Err(slot) => (slot, false),
        };
        assert_eq!(page.search(key), expected, "{}", key.escape_ascii());
    }
}

#[test]
fn pages_of_random_entries_hold_and_find_what_a_sorted_vec_does() {
    let mut rng = Rng::new(4);
    let mut pages = 0;
    for _ in 0..300 {
        let keys = Keys::random(&mut rng);
        let mut map = BTreeMap::new();
        for _ in 0..1 + rng.below(600) {
            map.insert(keys.next(&mut rng), Owned::random(&mut rng));
        }
        let entries: Vec<_> = map.into_iter().collect();
        let mut asked: Vec<Vec<u8>> = (0..40).map(|_| keys.next(&mut rng)).collect();
        asked.extend((0..10).map(|_| random_bytes(&mut rng, 20)));
        for n in 0..10 {
            // Near misses: a key cut short, and a key with something behind.
            let (near, _) = &entries[n % entries.len()];
            asked.push(near[..to_usize(rng.below(near.len() as u64))].to_vec());
            asked.push([&near[..], &[0]].concat());
        }
        for (bytes, own) in build(&entries) {
            check(&bytes, own, &asked);
            pages += 1;
        }
    }
    assert!(pages > 3000, "only {pages} pages");
}

/// Keys that differ in their first bytes, so that nothing of them is shared, of every length.
#[test]
fn a_page_is_filled_to_the_last_byte_that_an_entry_leaves_whatever_its_size() {
    let mut rng = Rng::new(5);
    for key_size in 2..=KEY_MAX {
        let owned = Owned::random(&mut rng);
        let entries: Vec<_> = (0..2000u16)
            .map(|n| {
                let mut key = n.wrapping_mul(32).to_be_bytes().to_vec();
                key.resize(key_size, 7);
                (key, owned.clone())
            })
            .collect();
        let entries: Vec<_> = entries.into_iter().take(4096 / key_size + 3).collect();
        for (bytes, own) in build(&entries) {
            check(&bytes, own, &[]);
        }
    }
}

#[test]
fn two_of_the_longest_keys_share_a_page() {
    let largest = Owned::Stored(Stored {
        block: u32::MAX,
        offset: u32::MAX,
        value_size: u32::try_from(VALUE_MAX).unwrap(),
        expiry: Expiry(u64::MAX - 1),
    });
    let key = |first: u8| {
        let mut key = vec![0xff; KEY_MAX];
        key[0] = first;
        key
    };
    let entries = [(key(1), largest.clone()), (key(2), largest)];
    let pages = build(&entries);
    assert_eq!(pages.len(), 1);
    check(&pages[0].0, &entries, &[key(0), key(3), vec![1], vec![1, 0]]);
}

#[test]
fn a_suffix_size_in_more_bytes_than_it_needs_is_refused() {
    let mut builder = PageBuilder::default();
    assert!(builder.add(b"a", Entry::Tombstone));
    assert!(builder.add(b"b", Entry::Tombstone));
    let mut bytes = builder.finish(KVSET, PAGE_INDEX).raw().to_vec();
    // The second entry: its size of 1 in three bytes, its suffix, its tag.
    let at = usize::from(u16::from_le_bytes([bytes[22], bytes[23]]));
    bytes[at..at + 5].copy_from_slice(&[0x81, 0x80, 0, b'b', 0]);
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    let Malformed(why) = Page::verify(&bytes, KVSET, PAGE_INDEX).map(drop).unwrap_err();
    assert_eq!(why, "a suffix size of 3 bytes; searches read one or two");
}
