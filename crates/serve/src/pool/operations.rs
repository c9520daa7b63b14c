//! Changes that were made, by their ids: how far they are, and the first answer.
//!
//! Invariants
//! 1. A key that is repeated with the same request gives the first answer, as long as the operation is kept; with
//!    another request it is refused.
//! 2. The last [`KEPT`] operations are kept, each for [`KEPT_SECS`], in memory. After a crash of the server a repeated
//!    request is made again, and names, sizes and generations make it one.
//! 3. A refused change has changed nothing and is not kept.

use std::collections::VecDeque;

use esker_base::{ErrorKind, clock};
use esker_volume::{DriveIndex, MemberState, Status};
use parking_lot::Mutex;
use serde_json::Value;

use super::answer::{OperationState, OperationView, ProgressView};
use crate::error::{Result, ServeError};

/// How many operations are kept.
pub(crate) const KEPT: usize = 1024;
/// For how many seconds: a day.
pub(crate) const KEPT_SECS: u64 = 86_400;
/// Ids that the server gives begin so.
const OWN: &str = "op-";

/// When nothing is left to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// At once.
    Reached,
    /// A drive has nothing any more, and no segment lacks a chunk that can be rebuilt.
    Emptied {
        /// Which.
        drive: DriveIndex,
        /// Chunks that were to be moved at first.
        chunks: u64,
    },
    /// All that a drive has was verified, and no segment lacks a chunk that can be rebuilt.
    Verified {
        /// Which.
        drive: DriveIndex,
        /// Chunks that were to be rebuilt at first.
        chunks: u64,
    },
    /// The scrub has read everything.
    Scrubbed,
    /// Deleted volumes and snapshots are swept.
    Swept,
}

/// Chunks that are still to be moved from a drive, or to be rebuilt.
pub(crate) fn chunks_to_move(status: &Status, drive: DriveIndex) -> u64 {
    let [_, one, two, more] = status.segments;
    let lost = (one + two + more).saturating_sub(status.beyond_repair);
    let member = status.members.iter().find(|member| member.index == drive);
    let used = member.filter(|member| member.state == MemberState::Draining);
    lost + used.map_or(0, |member| member.slots.1.saturating_sub(member.slots.0))
}

/// Bytes in segments, which a scrub reads.
fn written_bytes(status: &Status) -> u64 {
    let space = &status.space;
    space.live + space.garbage + space.parity
}

impl Goal {
    fn is_reached(self, status: &Status) -> bool {
        match self {
            Goal::Reached => true,
            Goal::Emptied { drive, .. } => {
                let is_it = |one: &esker_volume::MemberStatus| {
                    one.index == drive && one.state == MemberState::Retired
                };
                chunks_to_move(status, drive) == 0 && status.members.iter().any(is_it)
            }
            Goal::Verified { drive, .. } => {
                let is_left = |one: &esker_volume::MemberStatus| {
                    one.index == drive && one.state == MemberState::Rejoining
                };
                chunks_to_move(status, drive) == 0 && !status.members.iter().any(is_left)
            }
            Goal::Scrubbed => status.scrub.as_ref().is_none_or(|scrub| !scrub.is_running),
            Goal::Swept => status.sweeping == 0,
        }
    }

    /// Whether somebody has called it off.
    fn is_cancelled(self, status: &Status) -> bool {
        let Goal::Emptied { drive, .. } = self else { return false };
        let stays = |state| matches!(state, MemberState::Online | MemberState::Rejoining);
        status.members.iter().any(|one| one.index == drive && stays(one.state))
    }

    fn progress(self, status: &Status) -> Option<ProgressView> {
        let view = |done, total, unit: &str| Some(ProgressView { done, total, unit: unit.into() });
        match self {
            Goal::Reached => None,
            Goal::Emptied { drive, chunks } | Goal::Verified { drive, chunks } => {
                let left = chunks_to_move(status, drive);
                view(chunks.saturating_sub(left), Some(chunks.max(left)), "chunks")
            }
            Goal::Scrubbed => {
                let done = status.scrub.as_ref().map_or(0, |it| it.bytes);
                // Users write meanwhile.
                view(done, Some(written_bytes(status).max(done)), "bytes")
            }
            Goal::Swept => view(0, Some(status.sweeping), "lineages"),
        }
    }
}

struct Operation {
    id: String,
    request: String,
    body: Value,
    goal: Goal,
    began: u64,
    ended: Option<u64>,
    is_cancelled: bool,
    answer: Value,
}

/// The operations of a process that has a pool open.
#[derive(Default)]
pub(crate) struct Operations(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    list: VecDeque<Operation>,
}

fn now() -> u64 {
    clock::unix_time().as_secs()
}

impl Operations {
    /// The first answer to a request with this key, if there was one.
    pub(crate) fn first(&self, key: &str, request: &str, body: &Value) -> Result<Option<Value>> {
        check_key(key)?;
        let mut state = self.0.lock();
        state.forget();
        let Some(found) = state.list.iter().find(|one| one.id == key) else { return Ok(None) };
        if found.request == request && found.body == *body {
            return Ok(Some(found.answer.clone()));
        }
        let why = format!("the key '{key}' was used for another request; give each its own");
        Err(ServeError::new(ErrorKind::Conflict, why))
    }

    /// A change was made: its answer with the id of the operation, which is the key where there is one.
    pub(crate) fn enter(
        &self,
        status: &Status,
        key: Option<&str>,
        (request, body): (String, Value),
        mut answer: Value,
        goal: Goal,
    ) -> Value {
        let mut state = self.0.lock();
        state.forget();
        state.next += 1;
        let own = || format!("{OWN}{}-{}", status.incarnation.0, state.next);
        let id = key.map_or_else(own, str::to_owned);
        answer["operation"] = Value::String(id.clone());
        let began = now();
        let ended = goal.is_reached(status).then_some(began);
        let kept = answer.clone();
        let is_cancelled = false;
        let operation =
            Operation { id, request, body, goal, began, ended, is_cancelled, answer: kept };
        state.list.push_back(operation);
        answer
    }

    /// Notes changes that have come to their end.
    pub(crate) fn settle(&self, status: &Status) {
        for one in self.0.lock().list.iter_mut().filter(|one| one.ended.is_none()) {
            one.is_cancelled = one.goal.is_cancelled(status);
            if one.is_cancelled || one.goal.is_reached(status) {
                one.ended = Some(now());
            }
        }
    }

    /// All that are kept, the newest last.
    pub(crate) fn list(&self, status: &Status) -> Vec<OperationView> {
        self.settle(status);
        let mut state = self.0.lock();
        state.forget();
        state.list.iter().map(|one| one.view(status)).collect()
    }
}

impl Operation {
    fn view(&self, status: &Status) -> OperationView {
        let is_done = self.ended.is_some();
        OperationView {
            id: self.id.clone(),
            request: self.request.clone(),
            state: match (is_done, self.is_cancelled) {
                (false, _) => OperationState::Running,
                (true, false) => OperationState::Done,
                (true, true) => OperationState::Cancelled,
            },
            began: self.began,
            ended: self.ended,
            progress: if is_done { None } else { self.goal.progress(status) },
            answer: self.answer.clone(),
        }
    }
}

impl State {
    fn forget(&mut self) {
        let old = now().saturating_sub(KEPT_SECS);
        while self.list.len() >= KEPT || self.list.front().is_some_and(|one| one.began < old) {
            self.list.pop_front();
        }
    }
}

/// Whether ids may have it.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.:".contains(c)
}

/// The longest id of an operation.
const ID_MAX: usize = 128;

/// Reads the id of an operation.
///
/// # Errors
/// A sentence that says the right form.
pub fn operation_id(text: &str) -> Result<String, String> {
    match (1..=ID_MAX).contains(&text.len()) && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "'{text}' is no key of an operation: 1 to {ID_MAX} ASCII letters, digits and - _ . : are"
        )),
    }
}

fn check_key(key: &str) -> Result {
    operation_id(key).map_err(ServeError::invalid)?;
    if key.starts_with(OWN) {
        let why = format!(
            "'{key}' is no key of an operation: ids that begin with '{OWN}' are the server's own"
        );
        return Err(ServeError::invalid(why));
    }
    Ok(())
}
