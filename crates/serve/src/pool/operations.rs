//! Changes that were made, by their ids: how far they are, and the first answer.

use esker_volume::{DriveIndex, MemberState, Status};
use serde_json::Value;

use super::answer::{OperationState, OperationView, ProgressView};
use crate::error::Result;
use crate::requests::changes::{Changes, Made, now};

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

/// The part of an operation that its id and answer do not tell.
struct Course {
    goal: Goal,
    ended: Option<u64>,
    is_cancelled: bool,
}

/// The operations of a process that has a pool open.
#[derive(Default)]
pub(crate) struct Operations(Changes<Course>);

impl Operations {
    /// The first answer to a request with this key, if there was one.
    pub(crate) fn first(&self, key: &str, request: &str, body: &Value) -> Result<Option<Value>> {
        self.0.first(key, request, body)
    }

    /// A change was made: its answer with the id of the operation, which is the key where there is one.
    pub(crate) fn enter(
        &self,
        status: &Status,
        key: Option<&str>,
        entered: (String, Value),
        answer: Value,
        goal: Goal,
    ) -> Value {
        self.0.enter(status.incarnation.0, key, entered, answer, |began| Course {
            goal,
            ended: goal.is_reached(status).then_some(began),
            is_cancelled: false,
        })
    }

    /// Notes changes that have come to their end.
    pub(crate) fn settle(&self, status: &Status) {
        self.0.each(|one| one.more.settle(status));
    }

    /// All that are kept, the newest last.
    pub(crate) fn list(&self, status: &Status) -> Vec<OperationView> {
        let mut all = Vec::new();
        self.0.each(|one| {
            one.more.settle(status);
            all.push(view(one, status));
        });
        all
    }
}

impl Course {
    fn settle(&mut self, status: &Status) {
        if self.ended.is_some() {
            return;
        }
        self.is_cancelled = self.goal.is_cancelled(status);
        if self.is_cancelled || self.goal.is_reached(status) {
            self.ended = Some(now());
        }
    }
}

fn view(made: &Made<Course>, status: &Status) -> OperationView {
    let Course { goal, ended, is_cancelled } = made.more;
    OperationView {
        id: made.id.clone(),
        request: made.request.clone(),
        state: match (ended.is_some(), is_cancelled) {
            (false, _) => OperationState::Running,
            (true, false) => OperationState::Done,
            (true, true) => OperationState::Cancelled,
        },
        began: made.began,
        ended,
        progress: if ended.is_some() { None } else { goal.progress(status) },
        answer: made.answer.clone(),
    }
}
