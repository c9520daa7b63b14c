//! Numbered places for work under way: a number is used again once its place is empty.

use std::ops::{Index, IndexMut};

/// Numbered places.
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(value);
                place
            }
            None => {
                self.places.push(Some(value));
                self.places.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, place: usize) -> T {
        let value = self.places[place].take().expect("an occupied place");
        self.free.push(place);
        value
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;
    fn index(&self, place: usize) -> &T {
        self.places[place].as_ref().expect("an occupied place")
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        self.places[place].as_mut().expect("an occupied place")
    }
}
