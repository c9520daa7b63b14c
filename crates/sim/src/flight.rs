//! Commands on their way through a wrapper: each gets a tag of its own, because the submitter's
//! tags need not be unique, and remembers the wrapper's work when it comes back.

use std::collections::BTreeMap;

use esker_device::Tag;

/// The commands in flight of one queue pair, with a note of type `T` each.
pub(crate) struct InFlight<T> {
    next: u64,
    notes: BTreeMap<Tag, (Tag, T)>,
}

impl<T> InFlight<T> {
    pub(crate) fn new() -> InFlight<T> {
        InFlight { next: 0, notes: BTreeMap::new() }
    }

    /// Keeps `note` for the command with the submitter's `tag`; returns the tag to submit it with.
    pub(crate) fn start(&mut self, tag: Tag, note: T) -> Tag {
        let own = Tag(self.next);
        self.next += 1;
        self.notes.insert(own, (tag, note));
        own
    }

    /// The submitter's tag and the note of the command that completed with tag `own`.
    pub(crate) fn finish(&mut self, own: Tag) -> (Tag, T) {
        self.notes.remove(&own).expect("a device completes a command once, with its tag")
    }

    pub(crate) fn len(&self) -> usize {
        self.notes.len()
    }
}
