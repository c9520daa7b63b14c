//! Iterators: each call reads some rows on the thread pool.

use std::sync::{Arc, Mutex};

use esker_kv::{Cursor, KvError};
use napi::Env;
use napi::Result as JsResult;

use crate::js::{Made, Packer};
use crate::opened::lock;
use crate::range::Range;

/// How rows are given out.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) keys: bool,
    pub(crate) values: bool,
    pub(crate) text_keys: bool,
    pub(crate) text_values: bool,
}

/// A walk over a range.
pub(crate) struct Walk {
    pub(crate) form: Form,
    range: Range,
    reverse: bool,
    bytes_max: usize,
    state: Mutex<State>,
}

/// The cursor, before it is within the range and from then on; none after the end of the iterator.
enum State {
    Begun(Cursor),
    Within(Cursor),
    Closed,
}

/// Rows that were read: the ends of their keys and values.
#[derive(Default)]
pub(crate) struct Rows {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
    has_ended: bool,
}

impl Walk {
    pub(crate) fn new(
        cursor: Cursor,
        range: Range,
        (reverse, bytes_max, form): (bool, usize, Form),
    ) -> Arc<Walk> {
        let cursor = if form.values { cursor } else { cursor.keys_only() };
        let state = Mutex::new(State::Begun(cursor));
        Arc::new(Walk { form, range, reverse, bytes_max, state })
    }

    /// Lets go of the data that it may read.
    pub(crate) fn close(&self) {
        *lock(&self.state) = State::Closed;
    }

    /// Goes to `target`, if there is one, and reads up to `most` rows, or as many as make the most bytes.
    pub(crate) fn read(&self, most: usize, target: Option<&[u8]>) -> Result<Rows, KvError> {
        let mut rows = Rows::default();
        let mut state = lock(&self.state);
        if self.range.is_empty() || target.is_some_and(|target| !self.range.contains(target)) {
            rows.has_ended = true;
            return Ok(rows);
        }
        if let State::Begun(_) = *state {
            let State::Begun(cursor) = std::mem::replace(&mut *state, State::Closed) else {
                return Err(KvError::Closed);
            };
            let cursor = if most < 1000 { cursor.expecting(most) } else { cursor };
            let mut cursor = cursor.range(self.range.bounds())?;
            if self.reverse && target.is_none() {
                cursor.seek_to_last()?;
            }
            *state = State::Within(cursor);
        }
        let State::Within(cursor) = &mut *state else { return Err(KvError::Closed) };
        match target {
            // Behind the target is the first key that is greater.
            Some(target) if self.reverse => cursor.seek(&[target, &[0]].concat())?,
            Some(target) => cursor.seek(target)?,
            None => {}
        }
        while rows.ends.len() < most && rows.bytes.len() <= self.bytes_max {
            let row = if self.reverse { cursor.prev() } else { cursor.next() };
            match row {
                Ok(Some((key, value))) => {
                    if self.form.keys {
                        rows.bytes.extend_from_slice(key);
                    }
                    let key_end = rows.bytes.len();
                    rows.bytes.extend_from_slice(value);
                    rows.ends.push((key_end, rows.bytes.len()));
                }
                Ok(None) => {
                    rows.has_ended = true;
                    break;
                }
                // It comes again after the rows before it.
                Err(_) if !rows.ends.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(rows)
    }
}

impl Rows {
    /// The rows as an array of keys and values in turn, after whether the end was come to.
    pub(crate) fn packed(&self, env: &Env, form: Form) -> JsResult<Made> {
        let columns = usize::from(form.keys) + usize::from(form.values);
        let mut packer = Packer::new(env, 1 + columns * self.ends.len())?;
        packer.truth(self.has_ended)?;
        let mut start = 0;
        for &(key_end, end) in &self.ends {
            if form.keys {
                packer.bytes(&self.bytes[start..key_end], form.text_keys)?;
            }
            if form.values {
                packer.bytes(&self.bytes[key_end..end], form.text_values)?;
            }
            start = end;
        }
        packer.finish()
    }
}
