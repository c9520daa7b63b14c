//! Iterators over the keys and values of a KVS.

use std::iter::FusedIterator;

use crate::api::item::{Key, Value};
use crate::read::cursor::Cursor;
use crate::types::error::Result;
use crate::types::key_bounds::KeyBounds;

/// Keys and values of a KVS in the order of their keys, from either end, as they were when it was made.
///
/// It yields an error once and ends then. Going on at the other end costs a search, so a walk that takes turns between
/// the ends is slow. While it lives, it keeps the data that it may read from being freed, as a [`Cursor`] does.
#[derive(Debug)]
pub struct Iter {
    cursor: Cursor,
    /// The end from which it goes on, once it has begun.
    forward: Option<bool>,
    has_ended: bool,
}

impl Iter {
    pub(crate) fn new(mut cursor: Cursor, bounds: KeyBounds) -> Iter {
        cursor.stay_within(bounds);
        Iter { cursor, forward: None, has_ended: false }
    }

    /// The keys alone: values are not read.
    #[must_use]
    pub fn keys(mut self) -> Keys {
        self.cursor.leave_values();
        Keys(self)
    }

    /// The same iterator for a walk of about `rows` rows: their values are read at once, where a walk of unknown length
    /// reads ahead with care.
    #[must_use]
    pub fn expecting(mut self, rows: usize) -> Iter {
        self.cursor = self.cursor.expecting(rows);
        self
    }

    fn step<T>(&mut self, forward: bool, row: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        if self.has_ended {
            return None;
        }
        let step = self.go(forward, row).transpose();
        self.has_ended = !matches!(step, Some(Ok(_)));
        step
    }

    fn go<T>(&mut self, forward: bool, row: impl FnOnce(&[u8], &[u8]) -> T) -> Result<Option<T>> {
        match self.forward.replace(forward) {
            Some(before) if before == forward => {}
            Some(_) => self.cursor.turn()?,
            None if forward => self.cursor.seek_to_first()?,
            None => self.cursor.seek_to_last()?,
        }
        let found = if forward { self.cursor.next() } else { self.cursor.prev() };
        Ok(found?.map(|(key, value)| row(key, value)))
    }
}

fn owned(key: &[u8], value: &[u8]) -> (Key, Value) {
    (key.into(), value.into())
}

impl Iterator for Iter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true, owned)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false, owned)
    }
}

impl FusedIterator for Iter {}

/// The keys of an [`Iter`].
#[derive(Debug)]
pub struct Keys(Iter);

impl Iterator for Keys {
    type Item = Result<Key>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.step(true, |key, _| key.into())
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.step(false, |key, _| key.into())
    }
}

impl FusedIterator for Keys {}
