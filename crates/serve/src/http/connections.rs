//! The connections of a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// A moment in the order in which connections were made, and began to wait.
pub(super) type Turn = u64;

/// The connections that are open.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// One was closed.
    closed: Notify,
}

#[derive(Default)]
struct State {
    /// By the turn in which they were made.
    open: BTreeMap<Turn, Connection>,
    last: Turn,
}

struct Connection {
    /// None until its task is known.
    task: Option<AbortHandle>,
    /// Since when it waits for its client; none while a request of it is answered.
    waiting: Option<Turn>,
}

impl State {
    fn turn(&mut self) -> Turn {
        self.last += 1;
        self.last
    }
}

impl Connections {
    /// Waits until fewer than `most` are open. Closes the one that has waited longest for its client.
    pub(super) async fn make_room(&self, most: usize) {
        loop {
            {
                let state = self.0.state.lock();
                if state.open.len() < most {
                    return;
                }
                let waiting = state.open.values().filter(|one| one.waiting.is_some());
                let longest = waiting.min_by_key(|one| one.waiting);
                longest.and_then(|one| one.task.as_ref()).inspect(|task| task.abort());
            }
            self.0.closed.notified().await;
        }
    }

    /// Takes a connection in; `run` starts the task that has it.
    pub(super) fn open(&self, run: impl FnOnce(Open) -> AbortHandle) {
        let mut state = self.0.state.lock();
        let id = state.turn();
        state.open.insert(id, Connection { task: None, waiting: Some(id) });
        drop(state);
        let task = run(Open { all: self.clone(), id });
        if let Some(one) = self.0.state.lock().open.get_mut(&id) {
            one.task = Some(task);
        }
    }
}

/// A connection, until it is dropped.
pub(super) struct Open {
    all: Connections,
    id: Turn,
}

impl Open {
    /// Since when it waits for its client.
    pub(super) fn waiting(&self) -> Option<Turn> {
        self.all.0.state.lock().open.get(&self.id)?.waiting
    }

    /// A request is answered from now on, until that is dropped.
    pub(super) fn answer(&self) -> Answering<'_> {
        self.set(|_| None);
        Answering(self)
    }

    fn set(&self, waiting: impl FnOnce(&mut State) -> Option<Turn>) {
        let mut state = self.all.0.state.lock();
        let waiting = waiting(&mut state);
        if let Some(one) = state.open.get_mut(&self.id) {
            one.waiting = waiting;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.0.state.lock().open.remove(&self.id);
        self.all.0.closed.notify_one();
    }
}

/// A request that is answered.
pub(super) struct Answering<'a>(&'a Open);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.set(|state| Some(state.turn()));
    }
}
