//! The entries of a memtable in order: a skip list (Pugh, "Skip Lists: A Probabilistic Alternative to
//! Balanced Trees", CACM 1990) that is only added to. One thread adds, any number read meanwhile and take no
//! lock.
//!
//! A node is a line of eight words of 64 bits, as large as a cache line, or two of them:
//!
//! | word | meaning |
//! | --- | --- |
//! | 0, 1 | the first 16 bytes of its key, zeroes behind shorter ones: most comparisons end here |
//! | 2 | seqno |
//! | 3 | KVS, size of its key, kind |
//! | 4 | where its bytes are: the chunk, and where in that |
//! | 5 | block of its record in the log |
//! | 6 | offset of that, bytes behind the key |
//! | 7 | links to the next nodes at heights 0 and 1 |
//! | 8 to 15 | those at heights 2 to 17 |
//!
//! Lines and bytes are in chunks that nobody ever moves, and that are freed together. A link is the number of
//! a node's first line; no node has number 0, which is the end. Of each four nodes at a height one is also at
//! the next.
//!
//! Invariants
//! 1. Words are written before a link leads to their node, and only links change then.
//! 2. At each height, nodes ascend by KVS and key, newest first.
//! 3. Only the holder of `tail` writes.
//!
//! Its atomics are no choices of the scheduler in tests that have one: they would be nearly all of them.

use std::cmp::Ordering as Order;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use esker_base::units::{to_u64, to_usize};
use esker_base::{AppendBuf, Rng, Slab};

use crate::sync::Mutex;
use crate::types::expiry::Expiry;
use crate::types::ids::{BlockId, KvsId, RecordAddress, Seqno};
use crate::types::key::head;

/// Words of a line.
const LINE: usize = 8;
const SEQNO: usize = 2;
const KVS: usize = 3;
const BYTES: usize = 4;
const BLOCK: usize = 5;
const OFFSET: usize = 6;
const LINKS: usize = 7;
/// Links of a node of one line, and of one of two: no node is higher.
const LOW: usize = 2;
const HEIGHT: usize = LOW + 2 * LINE;
/// The number that is no node's: the end, and the place before the first one.
const NONE: u32 = 0;
/// Chunks of lines are no smaller and no larger, in bytes.
const LINES_LEAST: usize = 1 << 10;
const LINES_MOST: usize = 64 << 10;

/// Kind of a node: the change that was written for the key.
const DELETE: u64 = 0;
const PUT: u64 = 1;
/// A put with its expiry behind the value.
const EXPIRING: u64 = 2;
/// The bytes of an expiry.
const EXPIRY_SIZE: usize = 8;

/// A place in the order: ascending by KVS and key, newest version first.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    pub(super) kvs: KvsId,
    pub(super) key: &'a [u8],
    pub(super) seqno: Seqno,
}

impl Position<'_> {
    /// Part of a position that decides most comparisons: the KVS, and the first bytes of the key.
    fn begin(&self) -> (KvsId, u64, u64) {
        let (first, second) = self.key.split_at(self.key.len().min(8));
        (self.kvs, head(first), head(second))
    }
}

/// A part of a word.
fn field(word: u64, shift: u32, bits: u32) -> u64 {
    word >> shift & (u64::MAX >> (64 - bits))
}

fn half(word: u64, shift: u32) -> u32 {
    u32::try_from(field(word, shift, 32)).expect("32 bits")
}

/// Things that never move, each made when it is needed: in tables of which each has twice as many as the one
/// before.
struct Chunks<T> {
    tables: [OnceLock<Box<[OnceLock<T>]>>; 24],
}

/// The first table has so many.
const FIRST: usize = 16;

impl<T> Chunks<T> {
    fn new() -> Chunks<T> {
        Chunks { tables: [const { OnceLock::new() }; 24] }
    }

    fn place(n: usize) -> (usize, usize) {
        let table = ((n + FIRST) / FIRST).ilog2();
        (to_usize(table.into()), n + FIRST - (FIRST << table))
    }

    fn get(&self, n: usize) -> &T {
        let (table, at) = Self::place(n);
        let chunk = self.tables[table].get().and_then(|table| table[at].get());
        chunk.expect("made before anything leads to it")
    }

    fn set(&self, n: usize, chunk: T) {
        let (table, at) = Self::place(n);
        let table = self.tables[table]
            .get_or_init(|| (0..FIRST << table).map(|_| OnceLock::new()).collect());
        assert!(table[at].set(chunk).is_ok(), "each is set once");
    }
}

/// Where chunks of bytes come from.
#[derive(Clone)]
pub(super) enum ChunkSource {
    /// Mappings, or the allocator: chunks of so many bytes.
    System(usize),
    /// Chunks that lists before this one have given back.
    Slab(Slab),
}

impl ChunkSource {
    pub(super) fn slab(&self) -> Option<&Slab> {
        match self {
            ChunkSource::System(_) => None,
            ChunkSource::Slab(slab) => Some(slab),
        }
    }

    /// A chunk with room for `size` bytes.
    fn chunk(&self, size: usize) -> AppendBuf {
        match self {
            ChunkSource::Slab(slab) if size <= slab.piece() => AppendBuf::over(slab.take()),
            ChunkSource::Slab(_) => AppendBuf::new(size),
            ChunkSource::System(usual) => AppendBuf::new(size.max(*usual)),
        }
    }
}

/// Entries in order.
pub(super) struct List {
    lines: Chunks<Box<[AtomicU64]>>,
    bytes: Chunks<AppendBuf>,
    /// Lines of a chunk: two to the power of this.
    line_bits: u32,
    source: ChunkSource,
    /// Links to the first node at each height.
    first: [AtomicU32; HEIGHT],
    /// No node has more links.
    height: AtomicUsize,
    /// DRAM of the chunks, in bytes.
    memory: AtomicU64,
    tail: Mutex<Tail>,
}

/// Where the next entry goes.
struct Tail {
    /// The next line.
    line: usize,
    /// Chunks of bytes; the last one is appended to.
    chunks: usize,
    rng: Rng,
}

/// An entry of a list.
#[derive(Clone, Copy)]
pub(super) struct ListEntry<'a> {
    list: &'a List,
    node: u32,
    words: &'a [AtomicU64],
}

impl<'a> ListEntry<'a> {
    fn word(&self, n: usize) -> u64 {
        self.words[n].load(Ordering::Relaxed)
    }

    pub(super) fn kvs(&self) -> KvsId {
        KvsId(half(self.word(KVS), 0))
    }

    pub(super) fn seqno(&self) -> Seqno {
        Seqno(self.word(SEQNO))
    }

    fn key_size(&self) -> usize {
        to_usize(field(self.word(KVS), 32, 16))
    }

    /// Its bytes from one position on, up to another.
    fn bytes(&self, from: usize, to: usize) -> &'a [u8] {
        let at = self.word(BYTES);
        let (chunk, start) = (to_usize(field(at, 0, 32)), to_usize(field(at, 32, 32)));
        self.list.bytes.get(chunk).bytes(start + from..start + to)
    }

    pub(super) fn key(&self) -> &'a [u8] {
        self.bytes(0, self.key_size())
    }

    /// The change that was written.
    pub(super) fn written(&self) -> Written<'a> {
        let offset = self.word(OFFSET);
        let rest = || {
            let key_size = self.key_size();
            self.bytes(key_size, key_size + to_usize(field(offset, 32, 32)))
        };
        let (value, expiry) = match field(self.word(KVS), 48, 16) {
            DELETE => (None, Expiry::NEVER),
            PUT => (Some(rest()), Expiry::NEVER),
            _ => {
                let (value, expiry) = rest().split_at(rest().len() - EXPIRY_SIZE);
                let expiry = u64::from_le_bytes(expiry.try_into().expect("8 bytes"));
                (Some(value), Expiry(expiry))
            }
        };
        let address = RecordAddress { block: BlockId(self.word(BLOCK)), offset: half(offset, 0) };
        Written { value, expiry, address }
    }

    /// Whether it is of this key.
    pub(super) fn is_of(&self, kvs: KvsId, key: &[u8]) -> bool {
        self.kvs() == kvs && self.key() == key
    }

    /// Its number, by which the list finds it again.
    pub(super) fn node(&self) -> u32 {
        self.node
    }

    /// The one behind it.
    pub(super) fn next(&self) -> Option<ListEntry<'a>> {
        self.list.entry(link(self.words, 0))
    }

    /// Whether it is before a position that begins so.
    fn is_before(&self, begin: (KvsId, u64, u64), position: &Position<'_>) -> bool {
        let order = (self.kvs(), self.word(0), self.word(1)).cmp(&begin);
        let order = order.then_with(|| self.key().cmp(position.key));
        order.then_with(|| position.seqno.cmp(&self.seqno())) == Order::Less
    }
}

/// Where a node has its link at a height: the word, and the first bit.
fn place_of_link(height: usize) -> (usize, u32) {
    (LINKS + height / 2, if height.is_multiple_of(2) { 0 } else { 32 })
}

/// The link of a node at a height that it has.
fn link(words: &[AtomicU64], height: usize) -> u32 {
    let (word, shift) = place_of_link(height);
    half(words[word].load(Ordering::Acquire), shift)
}

impl List {
    /// An empty list whose entries are to take about `size` bytes.
    pub(super) fn new(size: usize, source: ChunkSource) -> List {
        let lines = (size / 16).clamp(LINES_LEAST, LINES_MOST) / (LINE * size_of::<u64>());
        List {
            lines: Chunks::new(),
            bytes: Chunks::new(),
            line_bits: lines.ilog2(),
            source,
            first: [const { AtomicU32::new(NONE) }; HEIGHT],
            height: AtomicUsize::new(1),
            memory: AtomicU64::new(0),
            tail: Mutex::new(Tail { line: 1, chunks: 0, rng: Rng::new(1) }),
        }
    }

    pub(super) fn source(&self) -> &ChunkSource {
        &self.source
    }

    /// DRAM in use, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    pub(super) fn first(&self) -> Option<ListEntry<'_>> {
        self.entry(self.link(NONE, 0))
    }

    pub(super) fn last(&self) -> Option<ListEntry<'_>> {
        self.entry(self.search(|_| true, |_, _| ()).0)
    }

    /// The first one that is not before a position.
    pub(super) fn first_from(&self, position: &Position<'_>) -> Option<ListEntry<'_>> {
        let begin = position.begin();
        self.entry(self.search(|entry| entry.is_before(begin, position), |_, _| ()).1)
    }

    /// The last one before a position.
    pub(super) fn last_before(&self, position: &Position<'_>) -> Option<ListEntry<'_>> {
        let begin = position.begin();
        self.entry(self.search(|entry| entry.is_before(begin, position), |_, _| ()).0)
    }

    /// All, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = ListEntry<'_>> {
        std::iter::successors(self.first(), ListEntry::next)
    }

    fn words(&self, node: u32) -> &[AtomicU64] {
        let node = to_usize(node.into());
        let chunk = self.lines.get(node >> self.line_bits);
        &chunk[(node & ((1 << self.line_bits) - 1)) * LINE..]
    }

    /// The entry of a number.
    pub(super) fn entry(&self, node: u32) -> Option<ListEntry<'_>> {
        (node != NONE).then(|| ListEntry { list: self, node, words: self.words(node) })
    }

    /// The node behind this one at a height that it has; the first one behind none.
    fn link(&self, node: u32, height: usize) -> u32 {
        match node {
            NONE => self.first[height].load(Ordering::Acquire),
            node => link(self.words(node), height),
        }
    }

    fn set_link(&self, node: u32, height: usize, next: u32) {
        if node == NONE {
            self.first[height].store(next, Ordering::Release);
            return;
        }
        let (word, shift) = place_of_link(height);
        let word = &self.words(node)[word];
        let others = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(others | u64::from(next) << shift, Ordering::Release);
    }

    /// The last node that is before the target, and the one behind it. `pass` is told the last one at
    /// each height.
    fn search(
        &self,
        is_before: impl Fn(&ListEntry<'_>) -> bool,
        mut pass: impl FnMut(usize, u32),
    ) -> (u32, u32) {
        let (mut node, mut behind) = (NONE, NONE);
        for height in (0..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                let next = self.link(node, height);
                // A node that is not before it at one height need not be compared again at the next.
                if next == behind || !self.entry(next).is_some_and(|next| is_before(&next)) {
                    behind = next;
                    break;
                }
                node = next;
            }
            pass(height, node);
        }
        (node, behind)
    }

    /// Adds an entry.
    pub(super) fn insert(&self, position: &Position<'_>, written: Written<'_>) {
        let mut tail = self.tail.lock();
        let expiry = written.expiry.0.to_le_bytes();
        let (kind, expiry) = match written.value {
            None => (DELETE, &[][..]),
            Some(_) if written.expiry.is_never() => (PUT, &[][..]),
            Some(_) => (EXPIRING, &expiry[..]),
        };
        let value = written.value.unwrap_or_default();
        let (chunk, start) = self.append(&mut tail, &[position.key, value, expiry]);
        let mut height = 1;
        while height < HEIGHT && tail.rng.u64().is_multiple_of(4) {
            height += 1;
        }
        let begin = position.begin();
        let mut before = [NONE; HEIGHT];
        self.search(|entry| entry.is_before(begin, position), |at, node| before[at] = node);

        let node = self.take_lines(&mut tail, if height > LOW { 2 } else { 1 });
        let words = self.words(node);
        let (key_size, rest) = (to_u64(position.key.len()), to_u64(value.len() + expiry.len()));
        let fields = [
            begin.1,
            begin.2,
            position.seqno.0,
            u64::from(position.kvs.0) | key_size << 32 | kind << 48,
            to_u64(chunk) | to_u64(start) << 32,
            written.address.block.0,
            u64::from(written.address.offset) | rest << 32,
        ];
        for (word, field) in words.iter().zip(fields) {
            word.store(field, Ordering::Relaxed);
        }
        for (at, &before) in before[..height].iter().enumerate() {
            self.set_link(node, at, self.link(before, at));
        }
        for (at, &before) in before[..height].iter().enumerate() {
            self.set_link(before, at, node);
        }
        self.height.fetch_max(height, Ordering::Relaxed);
    }

    /// Appends parts of an entry to the last chunk, or to a new one. Returns the chunk and where they begin.
    fn append(&self, tail: &mut Tail, parts: &[&[u8]]) -> (usize, usize) {
        if let Some(last) = tail.chunks.checked_sub(1)
            && let Some(start) = self.bytes.get(last).append(parts)
        {
            return (last, start);
        }
        let chunk = self.source.chunk(parts.iter().map(|part| part.len()).sum());
        let start = chunk.append(parts).expect("a new chunk has room");
        self.memory.fetch_add(to_u64(chunk.capacity()), Ordering::Relaxed);
        self.bytes.set(tail.chunks, chunk);
        tail.chunks += 1;
        (tail.chunks - 1, start)
    }

    /// Takes lines that are next to each other, of one chunk; returns the number of the first.
    fn take_lines(&self, tail: &mut Tail, lines: usize) -> u32 {
        let of_chunk = 1 << self.line_bits;
        if tail.line % of_chunk + lines > of_chunk {
            tail.line = tail.line.next_multiple_of(of_chunk);
        }
        if tail.line == 1 || tail.line.is_multiple_of(of_chunk) {
            let chunk: Box<[_]> = (0..of_chunk * LINE).map(|_| AtomicU64::new(0)).collect();
            self.memory.fetch_add(to_u64(size_of_val(&*chunk)), Ordering::Relaxed);
            self.lines.set(tail.line >> self.line_bits, chunk);
        }
        let first = u32::try_from(tail.line).expect("fewer than 2^32 lines, of 256 GiB");
        tail.line += lines;
        first
    }
}

/// Change that was written for a key, and where its record is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written<'a> {
    /// `None` is a delete.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) expiry: Expiry,
    pub(crate) address: RecordAddress,
}

impl Written<'_> {
    /// A delete without a record.
    pub(crate) const NOWHERE: Written<'static> =
        Written { value: None, expiry: Expiry::NEVER, address: RecordAddress::NOWHERE };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ADDRESS: RecordAddress = RecordAddress { block: BlockId(7 << 40), offset: u32::MAX - 1 };

    fn written(value: Option<&[u8]>, expiry: Expiry) -> Written<'_> {
        Written { value, expiry, address: ADDRESS }
    }

    #[test]
    fn it_is_an_ordered_map_whatever_is_added() {
        // Keys of few bytes that are often the same, prefixes of each other, and equal in their first 16.
        for (seed, size) in [(1, 0), (2, 1 << 14), (3, 1 << 24)] {
            let list = List::new(size, ChunkSource::System((size / 4).min(256 << 10)));
            let mut rng = Rng::new(seed);
            let key = |rng: &mut Rng| {
                let mut key = vec![0; to_usize(rng.below(3) * 8)];
                key.extend((0..1 + rng.below(9)).map(|_| u8::try_from(rng.below(3)).unwrap()));
                (KvsId(u32::try_from(rng.below(3)).unwrap()), key)
            };
            let mut model = BTreeMap::new();
            assert!(list.is_empty() && list.first().is_none() && list.last().is_none());
            for seqno in 1..6000 {
                let (kvs, key) = key(&mut rng);
                let value = rng.chance(9, 10).then(|| vec![7; to_usize(rng.below(40))]);
                let stated = rng.chance(1, 3) && value.is_some();
                let expiry = if stated { Expiry(seqno) } else { Expiry::NEVER };
                let position = Position { kvs, key: &key, seqno: Seqno(seqno) };
                list.insert(&position, written(value.as_deref(), expiry));
                model.insert((kvs, key, u64::MAX - seqno), (value, expiry));
            }
            let show = |entry: ListEntry<'_>| {
                let of = (entry.kvs(), entry.key().to_vec(), u64::MAX - entry.seqno().0);
                let written = entry.written();
                assert_eq!(written.address, ADDRESS);
                assert!(entry.is_of(of.0, &of.1) && !entry.is_of(KvsId(of.0.0 + 1), &of.1));
                (of, (written.value.map(<[u8]>::to_vec), written.expiry))
            };
            let copy = |(of, is): (&(KvsId, Vec<u8>, u64), &_)| (of.clone(), Clone::clone(is));
            assert!(list.iter().map(show).eq(model.iter().map(copy)));
            assert_eq!(list.last().map(show), model.iter().next_back().map(copy));
            for _ in 0..6000 {
                let (kvs, key) = key(&mut rng);
                let seqno = [0, rng.below(6000), u64::MAX][to_usize(rng.below(3))];
                let position = Position { kvs, key: &key, seqno: Seqno(seqno) };
                let of = (kvs, key.clone(), u64::MAX - seqno);
                let from = model.range(of.clone()..).next().map(copy);
                assert_eq!(list.first_from(&position).map(show), from);
                let before = model.range(..of).next_back().map(copy);
                assert_eq!(list.last_before(&position).map(show), before);
            }
        }
    }

    #[test]
    fn readers_see_whole_entries_while_others_are_added() {
        const ENTRIES: u64 = 200_000;
        let list = List::new(1 << 20, ChunkSource::System(64 << 10));
        let added = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let add = || {
                for n in 1..=ENTRIES {
                    let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                    let position = Position { kvs: KvsId(1), key: &key, seqno: Seqno(n) };
                    list.insert(&position, written(Some(&key), Expiry::NEVER));
                    added.store(n, Ordering::Release);
                }
            };
            esker_base::thread::spawn_scoped(scope, "adds", add).unwrap();
            let mut rng = Rng::new(1);
            loop {
                let seen = added.load(Ordering::Acquire);
                for _ in 0..100.min(seen) {
                    let n = 1 + rng.below(seen);
                    let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                    let position = Position { kvs: KvsId(1), key: &key, seqno: Seqno(n) };
                    let entry = list.first_from(&position).expect("it was added");
                    assert_eq!((entry.seqno(), entry.written().value), (Seqno(n), Some(&key[..])));
                    let next = entry.next();
                    assert!(next.is_none_or(|next| next.key() > entry.key()));
                    assert!(next.is_none_or(|next| next.written().value == Some(next.key())));
                }
                if seen == ENTRIES {
                    break;
                }
            }
        });
        assert_eq!(list.iter().count() as u64, ENTRIES);
        // A line and a part of one for each, and its bytes.
        assert!((ENTRIES * (64 + 16)..ENTRIES * (64 + 16 + 10)).contains(&list.memory()));
    }

    #[test]
    fn each_of_many_chunks_has_a_place_of_its_own() {
        let chunks = Chunks::new();
        (0..1000).for_each(|n| chunks.set(n, n));
        assert!((0..1000).all(|n| *chunks.get(n) == n));
        assert_eq!((Chunks::<()>::place(15), Chunks::<()>::place(16)), ((0, 15), (1, 0)));
        assert_eq!((Chunks::<()>::place(47), Chunks::<()>::place(48)), ((1, 31), (2, 0)));
    }
}
