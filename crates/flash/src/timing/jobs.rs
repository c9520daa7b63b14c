//! Operations of dies. Each lies in one list at most: of the command it is a part of, or of the
//! die it waits for.

/// Where a list ends.
pub(super) const NONE: u32 = u32::MAX;

/// Operation of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Read a page for the command with this ticket.
    Read { ticket: u32 },
    /// Read a page that is copied with this group.
    CopyRead { group: u32 },
    /// Program the data that was transferred; that many bytes of the buffer are free then.
    Program { releases: u32 },
    /// Erase that many blocks.
    Erase { blocks: u32 },
}

/// An operation of a die.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) die: u32,
    /// Which program of the die it does, or reads the result of.
    pub(super) program: u32,
    pub(super) bytes: u32,
    /// The page of NAND that it reads, or [`NONE`], and the bytes of that.
    pub(super) page: u32,
    pub(super) page_bytes: u32,
    /// Conditions left before it may run.
    pub(super) gates: u32,
    /// Its place in line among those that may run.
    pub(super) stamp: u64,
    next: u32,
}

impl Job {
    pub(super) fn new(kind: Kind, die: u32, program: u32, bytes: u32) -> Job {
        let (page, page_bytes) = (NONE, 0);
        Job { kind, die, program, bytes, page, page_bytes, gates: 0, stamp: 0, next: NONE }
    }
}

/// All operations that are waiting or running.
#[derive(Default)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
    free: Vec<u32>,
}

impl Jobs {
    pub(super) fn insert(&mut self, job: Job) -> u32 {
        if let Some(id) = self.free.pop() {
            self.jobs[id as usize] = job;
            return id;
        }
        self.jobs.push(job);
        u32::try_from(self.jobs.len() - 1).expect("fewer operations than 2^32")
    }

    /// Forgets an operation, which lies in no list.
    pub(super) fn remove(&mut self, id: u32) -> Job {
        self.free.push(id);
        self.jobs[id as usize]
    }

    pub(super) fn get(&self, id: u32) -> &Job {
        &self.jobs[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Job {
        &mut self.jobs[id as usize]
    }
}

/// Operations in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> List {
        List { first: NONE, last: NONE }
    }
}

impl List {
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn push(&mut self, jobs: &mut Jobs, id: u32) {
        jobs.get_mut(id).next = NONE;
        if self.first == NONE {
            self.first = id;
        } else {
            jobs.get_mut(self.last).next = id;
        }
        self.last = id;
    }

    pub(super) fn pop(&mut self, jobs: &Jobs) -> Option<u32> {
        let id = self.first()?;
        self.first = jobs.get(id).next;
        Some(id)
    }

    /// Whether any operation in the list fulfils a condition.
    pub(super) fn any(&self, jobs: &Jobs, is: impl Fn(&Job) -> bool) -> bool {
        let mut id = self.first;
        while id != NONE {
            let job = jobs.get(id);
            if is(job) {
                return true;
            }
            id = job.next;
        }
        false
    }
}
