//! The ids of connections, of their commands, of queue pairs, and of the commands of devices. A place that is
//! free is used again; an id is not, so one that is kept too long finds nothing.

use std::fmt;
use std::marker::PhantomData;

use esker_base::units::to_usize;
use esker_device::Tag;

use crate::conn::Slot;

/// A connection: its worker, its place there, and which of those that have ever had the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) worker: usize,
    pub(crate) connection: usize,
    pub(crate) visitor: Visitor,
}

/// Which connection, among all that there ever were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Visitor(pub(super) u64);

/// An Abort command, among all that a controller has had: its slot may be another command's when the answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AbortId(pub(crate) u64);

/// Whose a command of a device is, in its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the connection.
    pub(crate) connection: usize,
    pub(crate) slot: Slot,
    /// Which of several pieces, where that matters.
    pub(crate) piece: u8,
}

impl Place {
    pub(crate) fn tag(self) -> Tag {
        let connection = u64::try_from(self.connection).expect("64 bits");
        Tag(u64::from(self.piece) << 56 | connection << 16 | u64::from(self.slot.0))
    }

    pub(crate) fn of(tag: Tag) -> Place {
        let [a, b, .., piece] = tag.0.to_le_bytes();
        let connection = to_usize(tag.0 << 8 >> 24);
        Place { connection, slot: Slot(u16::from_le_bytes([a, b])), piece }
    }
}

/// The id of a thing in [`Slots`], which no other thing ever has.
pub(crate) struct Id<T> {
    index: usize,
    generation: u64,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Id<T> {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Id<T>) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Things under ids.
pub(crate) struct Slots<T> {
    places: Vec<Option<(u64, T)>>,
    generation: u64,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { places: Vec::new(), generation: 0 }
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, thing: T) -> Id<T> {
        self.generation += 1;
        let index = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[index] = Some((self.generation, thing));
        Id { index, generation: self.generation, of: PhantomData }
    }

    pub(crate) fn get(&self, id: Id<T>) -> Option<&T> {
        let (generation, thing) = self.places.get(id.index)?.as_ref()?;
        (*generation == id.generation).then_some(thing)
    }

    pub(crate) fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        let (generation, thing) = self.places.get_mut(id.index)?.as_mut()?;
        (*generation == id.generation).then_some(thing)
    }

    /// The first id behind another one: a way through all of them that leaves them free to change.
    pub(crate) fn after(&self, last: Option<Id<T>>) -> Option<Id<T>> {
        let begin = last.map_or(0, |id| id.index + 1);
        let mut places = self.places.iter().enumerate().skip(begin);
        places.find_map(|(index, place)| {
            let (generation, _) = place.as_ref()?;
            Some(Id { index, generation: *generation, of: PhantomData })
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let (generation, thing) = place.as_ref()?;
            Some((Id { index, generation: *generation, of: PhantomData }, thing))
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Id<T>, &mut T)> {
        self.places.iter_mut().enumerate().filter_map(|(index, place)| {
            let (generation, thing) = place.as_mut()?;
            Some((Id { index, generation: *generation, of: PhantomData }, thing))
        })
    }

    /// Takes the things out that `is_it` says yes to.
    pub(crate) fn take(&mut self, is_it: impl Fn(&T) -> bool) -> Vec<(Id<T>, T)> {
        let its: Vec<Id<T>> =
            self.iter().filter(|(_, thing)| is_it(thing)).map(|(id, _)| id).collect();
        let out = |id: Id<T>| Some((id, self.places[id.index].take()?.1));
        its.into_iter().filter_map(out).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_outlives_its_thing_and_finds_no_other_in_its_place() {
        let mut slots = Slots::default();
        let [a, b] = ["a", "b"].map(|name| slots.insert(name));
        assert_eq!(slots.take(|one| *one == "a"), [(a, "a")]);
        let c = slots.insert("c");
        assert!(slots.get(a).is_none() && slots.get_mut(a).is_none());
        assert_eq!((slots.get(b), slots.get(c)), (Some(&"b"), Some(&"c")));
        assert_eq!(slots.iter().count(), 2, "the place is used again");
        assert_eq!(slots.places.len(), 2);
    }
}
