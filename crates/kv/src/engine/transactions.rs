//! The transactions that are open, and the history in which they find conflicts. `api/transaction.rs` has the calls.
//!
//! Invariants
//! 1. A record newer than the beginning of an open transaction is in a memtable of the view or of the history. A
//!    transaction begins, and a memtable leaves the view, under one lock.
//! 2. A transaction that is not among the open ones has no view any more: it can neither read nor commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use esker_base::Nanos;

use crate::engine::counters::Counter;
use crate::omf::frame::Record;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{ArcSwapOption, Mutex};
use crate::tree::memtable::Memtable;
use crate::tree::view::View;
use crate::types::ids::Seqno;
use crate::types::options::Options;

/// The history may grow to this part of the memory budget; then the oldest transactions end.
pub(crate) const HISTORY_PART: u64 = 8;

/// View of a transaction, until it has ended.
#[derive(Default)]
pub(crate) struct Sight {
    view: ArcSwapOption<View>,
    /// It was ended because the history was full.
    crowded_out: AtomicBool,
}

impl Sight {
    fn of(view: Arc<View>) -> Arc<Sight> {
        Arc::new(Sight {
            view: ArcSwapOption::new(Some(view)),
            crowded_out: AtomicBool::new(false),
        })
    }

    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.view.load_full()
    }

    /// Whether it ended because the history was full, not because its time was over.
    pub(crate) fn was_crowded_out(&self) -> bool {
        self.crowded_out.load(Ordering::Acquire)
    }

    fn end(&self, crowded_out: bool) {
        self.crowded_out.store(crowded_out, Ordering::Release);
        self.view.store(None);
    }
}

/// The transactions of a KVDB that are open.
#[derive(Default)]
pub(crate) struct Transactions {
    state: Mutex<TransactionsState>,
    history_bytes: AtomicU64,
    pub(crate) committed: Counter,
    pub(crate) conflicts: Counter,
    /// Those that were open for too long.
    pub(crate) expired: Counter,
}

#[derive(Default)]
pub(crate) struct TransactionsState {
    last_id: u64,
    /// By id, so in the order of their beginning.
    open: BTreeMap<u64, Open>,
    /// Oldest first.
    history: Vec<Arc<Memtable>>,
}

pub(crate) struct Open {
    seqno: Seqno,
    began: Nanos,
    sight: Arc<Sight>,
}

impl Transactions {
    pub(crate) fn history_bytes(&self) -> u64 {
        self.history_bytes.load(Ordering::Relaxed)
    }

    /// How many have begun and not yet ended, and when the oldest did.
    pub(crate) fn open(&self) -> (usize, Option<Nanos>) {
        let open = &self.state.lock().open;
        (open.len(), open.first_key_value().map(|(_, open)| open.began))
    }

    /// Keeps a memtable that `publish` takes out of the view, as long as a transaction may need it.
    pub(crate) fn ingested(
        &self,
        table: &Arc<Memtable>,
        options: &Options,
        publish: impl FnOnce(),
    ) {
        let mut state = self.state.lock();
        publish();
        state.history.push(table.clone());
        self.end_late_of(&mut state, options);
        self.trim(&mut state);
        while self.history_bytes() > options.memory_bytes / HISTORY_PART {
            let oldest = state.open.pop_first();
            let Some((_, open)) = oldest else { break };
            open.sight.end(true);
            self.expired.add(1);
            self.trim(&mut state);
        }
    }

    /// Ends transactions that have been open for too long.
    pub(crate) fn end_late(&self, options: &Options) {
        self.end_late_of(&mut self.state.lock(), options);
    }

    fn end_late_of(&self, state: &mut TransactionsState, options: &Options) {
        let limit = Duration::from_millis(options.transaction_ms);
        let now = options.clock.now();
        let before = state.open.len();
        while let Some(entry) = state.open.first_entry()
            && now.since(entry.get().began) > limit
        {
            entry.remove().sight.end(false);
            self.expired.add(1);
        }
        if state.open.len() < before {
            self.trim(state);
        }
    }

    /// Forgets the memtables that no open transaction needs.
    fn trim(&self, state: &mut TransactionsState) {
        // Seqnos of beginnings ascend with the ids.
        let oldest = state.open.first_key_value().map_or(Seqno::MAX, |(_, open)| open.seqno);
        state.history.retain(|table| table.last_seqno() > oldest);
        let bytes = state.history.iter().map(|table| table.bytes()).sum();
        self.history_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Begins one, which sees the content of `snapshot`. Returns its id, the seqno of its beginning and its sight.
    pub(crate) fn begin(
        &self,
        options: &Options,
        snapshot: impl FnOnce() -> (Arc<View>, Seqno),
    ) -> (u64, Seqno, Arc<Sight>) {
        let mut state = self.state.lock();
        self.end_late_of(&mut state, options);
        let (view, seqno) = snapshot();
        let sight = Sight::of(view);
        state.last_id += 1;
        let id = state.last_id;
        let began = options.clock.now();
        state.open.insert(id, Open { seqno, began, sight: sight.clone() });
        (id, seqno, sight)
    }

    pub(crate) fn end(&self, id: u64) {
        let mut state = self.state.lock();
        if state.open.remove(&id).is_some() {
            self.trim(&mut state);
        }
    }

    /// The first of `changes` to a key, or to keys of a prefix or range, of which one was changed after `seqno`.
    /// The caller is the writer.
    pub(crate) fn conflict<'k>(
        &self,
        view: &View,
        seqno: Seqno,
        mut changes: impl Iterator<Item = Record<'k>>,
    ) -> Option<Record<'k>> {
        let state = self.state.lock();
        let tables: Vec<&Arc<Memtable>> = view
            .memtables()
            .chain(&state.history)
            .filter(|table| table.last_seqno() > seqno)
            .collect();
        changes.find(|record| {
            let (kvs, span) = (record.kvs, record.span());
            tables.iter().any(|table| match &span {
                Some(span) => table.changed_within(kvs, span.as_span(), seqno),
                None => table.changed(kvs, record.key, seqno),
            })
        })
    }
}
