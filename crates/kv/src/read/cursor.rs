//! Cursors: ordered walks over a consistent snapshot of a KVS, both ways.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use esker_base::units::to_usize;

use crate::engine::readers::{OpenReader, ReaderKind};
use crate::engine::shared::Engine;
use crate::omf::page::Stored;
use crate::read::passage::{Passage, PassageOf};
use crate::sync::atomic::Ordering;
use crate::tree::item::Item;
use crate::tree::kvset::cursor::KvsetCursor;
use crate::tree::source::{AnySource, LeavesSource, MemtableSource, Merge, ReplayedSource, Source};
use crate::tree::view::{Tree, View};
use crate::types::error::{KvError, Result};
use crate::types::ids::{KvsId, LeafId, Seqno};
use crate::types::key_bounds::KeyBounds;
use crate::types::limits::VALUE_MAX;
use crate::values::ahead::{ReadAhead, Way};
use crate::values::block::{ValueBlock, Values, Wanted};
use crate::values::budget::Counted;
use crate::values::cache::record::RecordKey;

/// A walk over one KVS as it was when the cursor was made; a value that expires later is still there.
///
/// A cursor stands between two keys. [`Cursor::next`] steps over the key behind that point and
/// returns it, [`Cursor::prev`] the key before it; after `next`, `prev` returns the same key. It walks
/// over all keys, [a range](Cursor::range) or [a prefix](Cursor::prefix), with values or
/// [without](Cursor::keys_only). It lends its buffers: no row costs an allocation, which [`Iter`](crate::Iter) has two of.
///
/// While it lives, a cursor keeps the data that it may read from being freed, in DRAM and on the media. When the
/// KVDB is closed it answers `Closed`.
pub struct Cursor {
    engine: Arc<Engine>,
    kvs: KvsId,
    seqno: Seqno,
    /// Its time stands still.
    now_ms: u64,
    /// How many of the merged sources no other reader has.
    own: usize,
    merge: Merge<AnySource>,
    tree: Option<Arc<Tree>>,
    /// The leaf of whose blocks the walk has come to one at least.
    leaf_met: Option<LeafId>,
    /// Only keys within.
    bounds: Arc<KeyBounds>,
    keys_only: bool,
    /// How many rows a walk is expected to take; 0 when nobody has said.
    expected: usize,
    ahead: ReadAhead,
    /// The bytes that it takes itself, of `rows`, and of key pages that are had ahead of need.
    held: Counted,
    /// Where `rows` begin.
    gap: Gap,
    /// Which way `rows` go on from there.
    forward: bool,
    rows: Rows,
    /// Rows taken since the last seek or turn.
    taken: usize,
    /// Whether the merge is on the key behind the last of `rows`, or nowhere when there is none.
    placed: bool,
    /// An error leaves the cursor nowhere; it is repeated until the next seek.
    failed: Option<KvError>,
    counted: OpenReader,
}

/// A point between two keys.
enum Gap {
    Start,
    End,
    Before(Vec<u8>),
    After(Vec<u8>),
}

/// Keys and values that the walk comes to next, and how many of them it has come to.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    next: usize,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Those that hold values of the rows, each once: a row of its own share in one would cost two
    /// atomic additions.
    blocks: Vec<Arc<ValueBlock>>,
    /// Bytes of values on media that belong to the rows.
    stored_bytes: usize,
}

struct Row {
    key: Range<usize>,
    /// Where in the values it is, once it was read.
    value: Range<usize>,
    /// Where the value is, unless it came with the key: which of the blocks, and where there.
    stored: Option<(usize, Stored)>,
}

/// The most rows that are read at a time, and the most bytes of their values, but for one row: less where cursors are
/// many.
const ROWS_MAX: usize = 128;
const ROWS_BYTES: u64 = 256 << 10;
/// Bytes are counted in multiples of this: few reads change the sum, which is everybody's.
const COUNTED: u64 = 256;
/// Bytes of keys to make room for at first, for each row.
const KEY_BYTES: usize = 32;

impl Rows {
    /// Empties it, with room for `count` rows, and for no more than some of `most` bytes.
    fn start(&mut self, count: usize, most: usize) {
        self.clear();
        for bytes in [&mut self.keys, &mut self.values] {
            if bytes.capacity() > 2 * most {
                *bytes = Vec::new();
            }
        }
        self.rows.reserve(count);
        self.keys.reserve(count * KEY_BYTES);
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.next = 0;
        self.keys.clear();
        self.values.clear();
        self.blocks.clear();
        self.stored_bytes = 0;
    }

    fn bytes(&self) -> usize {
        self.values.len() + self.stored_bytes
    }

    fn dram_bytes(&self) -> usize {
        self.values.capacity() + self.keys.capacity() + size_of::<Row>() * self.rows.capacity()
    }

    fn push(&mut self, key: &[u8], item: Item<'_>, keys_only: bool) {
        let (key_start, value_start) = (self.keys.len(), self.values.len());
        self.keys.extend_from_slice(key);
        let mut stored = None;
        match item {
            Item::Value(value, _) if !keys_only => self.values.extend_from_slice(value),
            Item::Stored(block, place) if !keys_only => {
                let plain = block.plain_part(place.value_size.into()).min(VALUE_MAX as u64);
                self.stored_bytes += to_usize(plain);
                stored = Some((self.number_of(block), place));
            }
            _ => {}
        }
        let value = value_start..self.values.len();
        self.rows.push(Row { key: key_start..self.keys.len(), value, stored });
    }

    /// Which of the blocks this is; it becomes one of them.
    fn number_of(&mut self, block: &Arc<ValueBlock>) -> usize {
        let known = self.blocks.iter().rposition(|known| Arc::ptr_eq(known, block));
        known.unwrap_or_else(|| {
            self.blocks.push(block.clone());
            self.blocks.len() - 1
        })
    }

    /// Takes the next row.
    fn take(&mut self) -> Option<(&[u8], &[u8])> {
        let row = self.rows.get(self.next)?;
        self.next += 1;
        Some((&self.keys[row.key.clone()], &self.values[row.value.clone()]))
    }

    /// The key of the row that was taken last.
    fn last_taken(&self) -> Option<&[u8]> {
        self.next.checked_sub(1).map(|at| &self.keys[self.rows[at].key.clone()])
    }

    /// Reads the values that are on media.
    fn read(
        &mut self,
        ahead: &mut ReadAhead,
        values: &Values,
        (kvs, age): (KvsId, Seqno),
        way: Way,
    ) -> Result<()> {
        let Rows { rows, keys, values: read, blocks, stored_bytes, .. } = self;
        if blocks.is_empty() {
            return Ok(());
        }
        read.reserve(*stored_bytes);
        let mut wanted = Vec::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate() {
            if let Some((block, stored)) = row.stored {
                let key = RecordKey::new(kvs, &keys[row.key.clone()]);
                wanted.push(Wanted { index, block: &blocks[block], key, stored, age });
            }
        }
        ahead.read(values, wanted, way, |index, value| {
            let start = read.len();
            read.extend_from_slice(value);
            rows[index].value = start..read.len();
        })
    }
}

impl Cursor {
    /// A cursor over the records of `view` up to a seqno that have not expired at a time in milliseconds, under
    /// those in `own`: the writes of a transaction.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        view: &View,
        (seqno, now_ms): (Seqno, u64),
        kvs: KvsId,
        own: Option<MemtableSource>,
    ) -> Cursor {
        let own_count = usize::from(own.is_some());
        let memtables =
            view.memtables().map(|table| MemtableSource::new(table.clone(), kvs, seqno));
        let memtables = own.into_iter().chain(memtables).map(AnySource::Memtable);
        let replayed = view.replayed().map(|table| ReplayedSource::new(table.clone(), kvs));
        let mut sources: Vec<AnySource> =
            memtables.chain(replayed.map(AnySource::Replayed)).collect();
        let tree = view.tree(kvs).cloned();
        if let Some(tree) = &tree {
            let root = tree.root.iter().cloned().map(KvsetCursor::new);
            sources.extend(root.map(AnySource::Kvset));
            sources.push(AnySource::Leaves(LeavesSource::new(tree.clone())));
        }
        let mut cursor = Cursor {
            engine: engine.clone(),
            kvs,
            seqno,
            now_ms,
            own: own_count,
            merge: Merge::new(sources),
            tree,
            leaf_met: None,
            bounds: Arc::new(KeyBounds::NONE),
            keys_only: false,
            expected: 0,
            ahead: ReadAhead::default(),
            held: Counted::in_sum(&engine.values.windows.rows),
            gap: Gap::Start,
            forward: true,
            rows: Rows::default(),
            taken: 0,
            placed: false,
            failed: None,
            counted: engine.readers.begin(&engine.life, ReaderKind::Cursor),
        };
        cursor.count_held(0);
        cursor
    }

    /// The same cursor over the keys of a range alone, before the first of them. It reads no value beyond them, and
    /// comes to its end where the keys beyond cannot be read. A range that ends before it begins has no keys.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn range<K: AsRef<[u8]>>(mut self, range: impl RangeBounds<K>) -> Result<Cursor> {
        self.stay_within(KeyBounds::of(&range));
        self.seek_to_first()?;
        Ok(self)
    }

    /// The same cursor over the keys that begin with `prefix` alone, as [`Cursor::range`].
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Result<Cursor> {
        self.stay_within(KeyBounds::of_prefix(prefix.as_ref()));
        self.seek_to_first()?;
        Ok(self)
    }

    /// Walks within these bounds after the next seek.
    pub(crate) fn stay_within(&mut self, bounds: KeyBounds) {
        self.bounds = Arc::new(bounds);
        self.merge.stay_within(&self.bounds);
    }

    /// Has the last key that it came to be a bound of the walk, which stands before that key or behind it now, and goes
    /// to the other end. Nothing where it came to none.
    pub(crate) fn turn(&mut self) -> Result<()> {
        let passed = match (self.rows.last_taken(), &self.gap) {
            (Some(key), _) => Some(key.to_vec()),
            (None, Gap::Before(key) | Gap::After(key)) => Some(key.clone()),
            (None, Gap::Start | Gap::End) => None,
        };
        let mut bounds = KeyBounds::clone(&self.bounds);
        let passed = passed.map(Bound::Excluded);
        let forward = self.forward;
        if let Some(passed) = passed {
            let side = if forward { &mut bounds.lower } else { &mut bounds.upper };
            *side = passed;
            self.stay_within(bounds);
        }
        if forward { self.seek_to_last() } else { self.seek_to_first() }
    }

    /// Whether values come without being read.
    pub(crate) fn leave_values(&mut self) {
        self.keys_only = true;
    }

    /// The same cursor without values: they come out empty, and are not read.
    #[must_use]
    pub fn keys_only(mut self) -> Cursor {
        self.keys_only = true;
        self
    }

    /// The same cursor for walks of about `rows` rows: their values are read at once, where a walk of
    /// unknown length reads ahead with care. It may end earlier and go on further.
    #[must_use]
    pub fn expecting(mut self, rows: usize) -> Cursor {
        self.expected = rows;
        self
    }

    /// Goes to the point just before `key`, whether it exists or not. It stays within its range or prefix: a key
    /// before or behind that stands for the first or the last point.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_before(key) {
            self.seek_to_first()
        } else if self.bounds.is_behind(key) {
            self.seek_to_last()
        } else {
            self.seek_gap(Gap::Before(key.to_vec()), true)
        }
    }

    /// Goes to the point before the first key.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.seek_gap(Gap::Start, true)
    }

    /// Goes to the point behind the last key.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.seek_gap(Gap::End, false)
    }

    /// Steps forward over the next key and returns it with its value; `None` at the end.
    ///
    /// # Errors
    /// When keys or the value cannot be read.
    #[allow(clippy::should_implement_trait)] // lends its buffers, which an Iterator cannot
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.go(true)
    }

    /// Steps backward over the previous key and returns it with its value; `None` at the start.
    ///
    /// # Errors
    /// When keys or the value cannot be read.
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.go(false)
    }

    /// Stands at `gap`, about to go on `forward` or not.
    fn seek_gap(&mut self, gap: Gap, forward: bool) -> Result<()> {
        self.count_steps();
        self.rows.clear();
        self.ahead.begin();
        self.leaf_met = None;
        (self.gap, self.forward, self.taken, self.placed) = (gap, forward, 0, false);
        let result = self.engine.life.check_open().and_then(|()| self.place());
        self.note(result)
    }

    /// Puts the merge on the key behind the gap.
    fn place(&mut self) -> Result<()> {
        match (&self.gap, self.forward) {
            (Gap::Start, true) => self.merge.seek(self.bounds.lower.as_ref().map(Vec::as_slice))?,
            (Gap::End, false) => {
                self.merge.seek_back(self.bounds.upper.as_ref().map(Vec::as_slice))?
            }
            // Nothing is there: the merge is not looked at.
            (Gap::Start, false) | (Gap::End, true) => {}
            (Gap::Before(key), true) => self.merge.seek(Bound::Included(key))?,
            (Gap::After(key), true) => self.merge.seek(Bound::Excluded(key))?,
            (Gap::Before(key), false) => self.merge.seek_back(Bound::Excluded(key))?,
            (Gap::After(key), false) => self.merge.seek_back(Bound::Included(key))?,
        }
        self.placed = true;
        Ok(())
    }

    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        let result = self.engine.life.if_open(result);
        self.failed = result.as_ref().err().cloned();
        result
    }

    fn go(&mut self, forward: bool) -> Result<Option<(&[u8], &[u8])>> {
        self.engine.life.check_open()?;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.forward != forward || self.rows.next == self.rows.rows.len() {
            let result = self.refill(forward);
            self.note(result)?;
        }
        let row = self.rows.take();
        self.taken += usize::from(row.is_some());
        Ok(row)
    }

    /// Counts the rows that were taken; called once, before they are let go of: the counter is everybody's.
    fn count_steps(&self) {
        self.engine.counters.cursor_steps.add(self.rows.next as u64);
    }

    /// Gets the rows that follow the point where the cursor stands.
    fn refill(&mut self, forward: bool) -> Result<()> {
        if let Some(key) = self.rows.last_taken() {
            let key = key.to_vec();
            self.gap = if self.forward { Gap::After(key) } else { Gap::Before(key) };
        }
        if self.forward != forward {
            (self.forward, self.taken, self.placed) = (forward, 0, false);
        }
        self.count_steps();
        let count = rows_ahead(self.taken, self.expected);
        match self.fill(count) {
            // Whichever row it was: those before it are good.
            Err(_) if count > 1 => {
                self.placed = false;
                self.fill(1)
            }
            result => result,
        }
    }

    /// Takes up to `count` rows from the merge, and reads their values.
    fn fill(&mut self, count: usize) -> Result<()> {
        let most = self.engine.values.windows.of_one(self.held.part()) / 4;
        let rows_most = to_usize(most.min(ROWS_BYTES));
        self.rows.start(count, rows_most);
        if !self.placed {
            self.place()?;
        }
        if matches!((&self.gap, self.forward), (Gap::Start, false) | (Gap::End, true)) {
            return Ok(());
        }
        self.placed = false;
        let mut stands = true;
        let mut passage = Passage::new(PassageOf {
            engine: &self.engine,
            tree: self.tree.as_ref(),
            kvs: self.kvs,
            seqno: self.seqno,
            now_ms: self.now_ms,
            forward: self.forward,
            own: self.own,
        });
        while self.rows.rows.len() < count && self.rows.bytes() < rows_most {
            // A key beyond the bounds is not stepped over.
            let within = |key: &&[u8]| !self.bounds.ends_at(key, self.forward);
            let Some(key) = self.merge.key().filter(within) else {
                break;
            };
            let item = self.merge.item();
            let has_expired = item.expiry().has_passed(self.now_ms);
            let step = if has_expired || matches!(item, Item::Tombstone) {
                passage.go_on(&mut self.merge, has_expired)
            } else {
                passage.end(&self.merge);
                self.rows.push(key, item, self.keys_only);
                if self.forward { self.merge.next() } else { self.merge.prev() }
            };
            if step.is_err() && !self.rows.rows.is_empty() {
                // These rows are good. A reader that goes on behind them meets the error again.
                stands = false;
                break;
            }
            step?;
        }
        if stands {
            passage.end(&self.merge);
        }
        drop(passage);
        let ends = self.taken < self.expected && self.taken + count >= self.expected;
        let way = Way { forward: self.forward, ends };
        let age = self.tree.as_ref().map_or(Seqno::ZERO, |tree| tree.age);
        self.rows.read(&mut self.ahead, &self.engine.values, (self.kvs, age), way)?;
        self.count_in_vain();
        self.placed = stands;
        self.count_held(2 * most);
        Ok(())
    }

    /// Counts the bytes that it has ahead of need, and keeps no more than so many bytes of key pages.
    fn count_held(&mut self, pages_most: u64) {
        let own = size_of::<Cursor>() as u64 + self.merge.dram_bytes();
        let bytes = own + self.rows.dram_bytes() as u64 + self.merge.keep_ahead(pages_most);
        self.held.set(bytes.next_multiple_of(COUNTED));
    }

    /// Counts the bytes read in vain because values of a leaf do not lie in key order: a walk would come
    /// to one block of it then, and here came to others, too.
    fn count_in_vain(&mut self) {
        let first_reads = self.ahead.take_first_reads();
        let (Some(tree), Some(row)) = (&self.tree, self.rows.rows.first()) else {
            return;
        };
        if first_reads.is_empty() {
            return;
        }
        let leaf = &tree.leaves[tree.leaf_of(&self.rows.keys[row.key.clone()])];
        for (_, bytes) in first_reads.into_iter().filter(|&(block, _)| leaf.refers_to(block)) {
            if self.leaf_met.replace(leaf.id) == Some(leaf.id) {
                leaf.in_vain.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.count_steps();
        self.engine.readers.end(&self.engine.life, self.counted);
    }
}

/// How many rows to get at a time for a walk that has come to `taken`: those that are expected, at once.
/// Where nothing is: one for a caller that wants one, then so many that a drive has something to do, then in
/// proportion, so that little is read in vain.
fn rows_ahead(taken: usize, expected: usize) -> usize {
    match taken {
        _ if taken < expected => (expected - taken).min(ROWS_MAX),
        0 => 1,
        1..9 => 8,
        _ => (taken / 4).clamp(16, ROWS_MAX),
    }
}
