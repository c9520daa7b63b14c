//! Work that is not done yet: reads under way, marks, requests of programs; and the answer to a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::{AlignedBuf, Nanos};

use crate::protocol::{ANSWER_WORDS, Request};
use crate::trap::{Call, Traps};
use crate::types::Page;
use crate::unserved::{ProgramId, Unserved};

/// Names a space.
pub(crate) type SpaceId = u32;

/// Heat that a fault adds to a space's.
pub(super) const HEAT: u64 = 64;
/// Most reads for faults under way; each has a buffer of a page.
pub(super) const SINGLE: usize = 64;

/// Result of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The page is there; the thread goes on.
    Done,
    /// The thread is woken when the page has come.
    Coming,
    /// There is no frame, or the process is forking: the owner tries again.
    Later,
}

/// A read under way: pages in a row from slots in a row.
pub(super) struct Read {
    pub(super) space: SpaceId,
    pub(super) page: Page,
    pub(super) count: usize,
    pub(super) slot: u32,
    /// A thread waits for this page.
    pub(super) wanted: Option<Page>,
    /// It wants to write.
    pub(super) write: bool,
    /// This page is to become a mark that stands for so many pages read ahead.
    pub(super) mark: Option<(Page, usize)>,
    pub(super) aim: Aim,
    pub(super) since: Nanos,
}

/// Purpose of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// A fault.
    Fault,
    /// A stream that goes on.
    Stream,
    /// A page that a walk passes, perhaps often.
    Node,
    /// A page that a walk leads to.
    Leaf,
}

impl Read {
    /// Whether it is a read of one page for a fault.
    pub(super) fn is_for(&self, space: SpaceId, page: Page) -> bool {
        self.space == space && self.page == page && self.aim == Aim::Fault
    }

    /// Whether a thread waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }
}

/// A run of pages that a stream will want, once there is room for them.
pub(super) struct Deferred {
    pub(super) space: SpaceId,
    pub(super) page: Page,
    pub(super) count: usize,
    /// As of [`Read`].
    pub(super) mark: Option<(Page, usize)>,
}

/// The content of a page that was read ahead and not mapped, so that a fault shows that its stream goes on.
pub(super) struct Mark {
    pub(super) space: SpaceId,
    pub(super) page: Page,
    pub(super) slot: u32,
    pub(super) buf: AlignedBuf,
    /// Pages that were read ahead with it.
    pub(super) count: usize,
}

/// A request that is not answered yet.
pub(super) struct Pending {
    pub(super) space: SpaceId,
    pub(super) doorbell: Page,
    /// The answer, when there is one.
    pub(super) answer: Option<Box<[u64; ANSWER_WORDS]>>,
    pub(super) request: Request,
}

/// Calls that are held.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) traps: Option<Arc<Traps>>,
    /// Where programs go that have not introduced themselves.
    pub(super) unserved: Option<Unserved>,
    /// Threads of programs that are there.
    pub(super) injecting: BTreeSet<u32>,
    /// Programs that have been there and are served, and those that cannot be.
    pub(super) injected: BTreeSet<ProgramId>,
    pub(super) failed: BTreeSet<ProgramId>,
    pub(super) held: Vec<Held>,
    /// Whose threads are, as far as they have been seen.
    pub(super) threads: BTreeMap<u32, SpaceId>,
}

/// A call that is not answered yet.
pub(super) struct Held {
    pub(super) call: Call,
    /// The space whose helper makes it.
    pub(super) ordered: Option<SpaceId>,
    /// Of memory that it moves, the parts that are not paged: where they begin, and their bytes.
    pub(super) unpaged: Vec<(usize, usize)>,
    /// It has waited.
    pub(super) has_waited: bool,
    /// The program that its thread runs, if that was looked for.
    pub(super) runs: Option<ProgramId>,
}

impl Held {
    pub(super) fn new(call: Call) -> Held {
        Held { call, ordered: None, unpaged: Vec::new(), has_waited: false, runs: None }
    }
}

impl Calls {
    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Forgets the threads of a space.
    pub(super) fn forget(&mut self, id: SpaceId) {
        self.threads.retain(|_, space| *space != id);
    }
}
