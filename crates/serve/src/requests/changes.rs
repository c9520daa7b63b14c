//! Changes that were made, by their ids, with their first answers.
//!
//! Invariants
//! 1. A key that is repeated with the same request gives the first answer, as long as the change is kept; with
//!    another request it is refused.
//! 2. The last `KEPT` changes are kept, each for `KEPT_SECS`, in memory. After a crash of the server a repeated
//!    request is made again, and names, sizes and generations make it one.
//! 3. A refused change has changed nothing and is not kept.

use std::collections::VecDeque;

use esker_base::{ErrorKind, clock};
use parking_lot::Mutex;
use serde_json::Value;

use crate::error::{Result, ServeError};

/// How many changes are kept.
pub(crate) const KEPT: usize = 1024;
/// For how many seconds: a day.
pub(crate) const KEPT_SECS: u64 = 86_400;
/// Ids that the server gives begin so.
const OWN: &str = "op-";

/// A change that was made, and what else is kept of it.
pub(crate) struct Made<T> {
    pub(crate) id: String,
    /// Method and path.
    pub(crate) request: String,
    body: Value,
    pub(crate) began: u64,
    /// The first answer.
    pub(crate) answer: Value,
    pub(crate) more: T,
}

/// The changes that a process has made.
pub(crate) struct Changes<T>(Mutex<State<T>>);

struct State<T> {
    next: u64,
    list: VecDeque<Made<T>>,
}

impl<T> Default for Changes<T> {
    fn default() -> Changes<T> {
        Changes(Mutex::new(State { next: 0, list: VecDeque::new() }))
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    clock::unix_time().as_secs()
}

impl<T> Changes<T> {
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

    /// A change was made: its answer with its id, which is the key where there is one. `life` tells ids of this process
    /// from those of others.
    pub(crate) fn enter(
        &self,
        life: u64,
        key: Option<&str>,
        (request, body): (String, Value),
        mut answer: Value,
        more: impl FnOnce(u64) -> T,
    ) -> Value {
        let mut state = self.0.lock();
        state.forget();
        state.next += 1;
        let id = key.map_or_else(|| format!("{OWN}{life}-{}", state.next), str::to_owned);
        answer["operation"] = Value::String(id.clone());
        let began = now();
        let (kept, more) = (answer.clone(), more(began));
        state.list.push_back(Made { id, request, body, began, answer: kept, more });
        answer
    }

    /// Looks at each that is kept, the newest last.
    pub(crate) fn each(&self, look: impl FnMut(&mut Made<T>)) {
        let mut state = self.0.lock();
        state.forget();
        state.list.iter_mut().for_each(look);
    }
}

impl<T> State<T> {
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
