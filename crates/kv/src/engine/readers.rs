//! The cursors and snapshots that are open. Transactions count themselves (`engine/transactions.rs`); `tree/current.rs`
//! knows what all of them keep from being freed.

use std::collections::BTreeMap;

use esker_base::units::{human_bytes, to_usize};
use esker_base::{Clock, Nanos};
use serde::Serialize;

use crate::engine::life::Life;
use crate::engine::transactions::Transactions;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Readers that begin and end at the same time do not wait for each other, mostly.
const SHARDS: usize = 16;

/// The readers of a KVDB.
pub(crate) struct Readers {
    clock: Clock,
    cursors: OpenReaders,
    snapshots: OpenReaders,
}

/// Readers of a kind that are open.
#[derive(Default)]
struct OpenReaders {
    next: AtomicU64,
    /// When each began, by number.
    shards: [Mutex<BTreeMap<u64, Nanos>>; SHARDS],
}

/// The kinds of reader that are counted here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReaderKind {
    Cursor,
    Snapshot,
}

/// A reader that was counted; none in a forked child, where a thread that is not there may hold a lock.
pub(crate) type OpenReader = Option<(ReaderKind, u64)>;

impl OpenReaders {
    /// Counts one that begins.
    fn begins(&self, now: Nanos) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(number).lock().insert(number, now);
        number
    }

    fn ended(&self, number: u64) {
        self.shard(number).lock().remove(&number);
    }

    /// How many there are, and when the oldest began.
    fn open(&self) -> (usize, Option<Nanos>) {
        let shards = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (shard.len(), shard.first_key_value().map(|(_, began)| *began))
        });
        shards.fold((0, None), |(open, oldest), (more, began)| {
            (open + more, oldest.into_iter().chain(began).min())
        })
    }

    fn shard(&self, number: u64) -> &Mutex<BTreeMap<u64, Nanos>> {
        &self.shards[to_usize(number % SHARDS as u64)]
    }
}

impl Readers {
    pub(crate) fn new(clock: Clock) -> Readers {
        Readers { clock, cursors: OpenReaders::default(), snapshots: OpenReaders::default() }
    }

    fn of(&self, kind: ReaderKind) -> &OpenReaders {
        match kind {
            ReaderKind::Cursor => &self.cursors,
            ReaderKind::Snapshot => &self.snapshots,
        }
    }

    /// Counts a reader that begins.
    pub(crate) fn begin(&self, life: &Life, kind: ReaderKind) -> OpenReader {
        life.is_here().then(|| (kind, self.of(kind).begins(self.clock.now())))
    }

    /// Counts it no more.
    pub(crate) fn end(&self, life: &Life, reader: OpenReader) {
        if let Some((kind, number)) = reader.filter(|_| life.is_here()) {
            self.of(kind).ended(number);
        }
    }

    /// The readers that are open, with what they keep on all classes and in DRAM.
    pub(crate) fn stats(
        &self,
        transactions: &Transactions,
        (pinned_bytes, pinned_memtable_bytes): (u64, u64),
    ) -> ReaderStats {
        let now = self.clock.now();
        let of = |(open, oldest): (usize, Option<Nanos>)| OpenStats {
            open,
            oldest_ns: oldest.map_or(0, |began| now.0.saturating_sub(began.0)),
        };
        ReaderStats {
            cursors: of(self.cursors.open()),
            snapshots: of(self.snapshots.open()),
            transactions: of(transactions.open()),
            pinned_bytes,
            pinned_memtable_bytes,
        }
    }
}

/// Readers that are open.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ReaderStats {
    /// Cursors, those of snapshots and transactions included.
    pub cursors: OpenStats,
    /// Snapshots; clones of one are one.
    pub snapshots: OpenStats,
    /// Transactions.
    pub transactions: OpenStats,
    /// Bytes on all media that nothing but these readers keeps: the sum over the classes.
    pub pinned_bytes: u64,
    /// DRAM of memtables that nothing but readers keeps, in bytes.
    pub pinned_memtable_bytes: u64,
}

/// Readers that keep less than this, or not for so long, are not worth a word.
const PINNED_BYTES: u64 = 16 << 20;
const PINNED_NS: u64 = 10_000_000_000;

impl ReaderStats {
    fn kinds(&self) -> [(&'static str, OpenStats); 3] {
        [("cursor", self.cursors), ("snapshot", self.snapshots), ("transaction", self.transactions)]
    }

    /// The sentence that says what keeps much space for long.
    pub(crate) fn remark(&self) -> Option<String> {
        let oldest_ns = self.kinds().iter().map(|(_, of)| of.oldest_ns).max()?;
        let pinned = self.pinned_bytes + self.pinned_memtable_bytes;
        let is_much = pinned >= PINNED_BYTES && oldest_ns >= PINNED_NS;
        is_much.then(|| format!("{}. End them to free that", self.in_words()))
    }

    /// How much is kept, and for which readers.
    pub(crate) fn in_words(&self) -> String {
        let open = self.kinds().into_iter().filter(|(_, of)| of.open > 0).map(|(kind, of)| {
            let plural = if of.open == 1 { "" } else { "s" };
            format!("{} {kind}{plural}, the oldest for {} s", of.open, of.oldest_ns / 1_000_000_000)
        });
        format!(
            "{} on the media and {} of memtables are kept for nothing but open readers: {}",
            human_bytes(self.pinned_bytes),
            human_bytes(self.pinned_memtable_bytes),
            open.collect::<Vec<_>>().join("; "),
        )
    }
}

/// Readers of a kind that are open.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct OpenStats {
    /// How many.
    pub open: usize,
    /// How long the oldest has been open, in nanoseconds; 0 when there is none.
    pub oldest_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_counted_while_they_are_open_and_the_oldest_is_known() {
        let open = OpenReaders::default();
        assert_eq!(open.open(), (0, None));
        let mut numbers: Vec<u64> = (1..=50).map(|at| open.begins(Nanos(at))).collect();
        assert_eq!(open.open(), (50, Some(Nanos(1))));
        open.ended(numbers.remove(0));
        assert_eq!(open.open(), (49, Some(Nanos(2))));
        numbers.into_iter().for_each(|number| open.ended(number));
        assert_eq!(open.open(), (0, None));
    }
}
