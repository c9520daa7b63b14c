//! What can be asked of an open pool: one table of routes, for the socket and for a pool that this process opens, and
//! for the description of both (`openapi`).
//!
//! | module | what |
//! | --- | --- |
//! | `look` | what is asked, and changes nothing |
//! | `volumes`, `drives` | what is changed |
//!
//! Invariants
//! 1. A request that is refused has changed nothing.
//! 2. A request that is repeated gives the same answer: names are what tells volumes and snapshots apart. What is to
//!    be deleted and is not there any more is an answer to a request that has a key, and a refusal to others.
//! 3. Changes are made one at a time.

mod drives;
mod look;
mod volumes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use esker_base::ErrorKind;
use esker_stack::{OpenPool, Stack, StackError};
use esker_volume::{Status, VolumeError};
use parking_lot::Mutex;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answer::WouldView;
use super::export::Exports;
use super::operations::{Goal, Operations};
use super::request::Request;
use super::view::PoolView;
use crate::failure::Failure;

/// Why a request was refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(ErrorKind::Invalid, message)
    }
}

impl From<VolumeError> for Refusal {
    fn from(error: VolumeError) -> Refusal {
        Refusal::new(error.kind(), error.to_string())
    }
}

impl From<StackError> for Refusal {
    fn from(error: StackError) -> Refusal {
        Refusal::new(error.kind(), error.to_string())
    }
}

/// The answer to a request.
pub(crate) type Answer = Result<Value, Refusal>;

/// What came of a change.
pub(crate) enum Outcome<T> {
    /// It was a rehearsal.
    Would(String),
    /// It was made, and is at its end when the goal is reached.
    Did(T, Goal),
}

/// A request as a route sees it.
pub(crate) struct Call<'a> {
    /// What stands for the names in the path.
    names: Vec<String>,
    queries: BTreeMap<&'a str, &'a str>,
    /// The client has said which operation it is, so it may be a repetition.
    has_key: bool,
}

impl Call<'_> {
    fn name(&self, index: usize) -> &str {
        &self.names[index]
    }
}

enum Ran {
    Answer(Value),
    Did(Value, Goal),
}

type Run = Box<dyn Fn(&Served, &Call<'_>, Value) -> Result<Ran, Refusal> + Send + Sync>;
/// Tells the form of a body.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A request that is known.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// With names in braces.
    pub(crate) path: &'static str,
    /// The name of the operation.
    pub(crate) id: &'static str,
    pub(crate) about: &'static str,
    /// Of a change.
    pub(crate) request: Option<Describe>,
    pub(crate) answer: Describe,
    /// Names and meanings of what may stand behind a question mark.
    pub(crate) queries: &'static [(&'static str, &'static str)],
    run: Run,
}

fn as_json(view: &impl Serialize) -> Answer {
    serde_json::to_value(view).map_err(|error| Refusal::invalid(error.to_string()))
}

impl Route {
    /// A question.
    fn look<T: Serialize + JsonSchema + 'static>(
        path: &'static str,
        id: &'static str,
        about: &'static str,
        run: fn(&Served, &Call<'_>) -> Result<T, Refusal>,
    ) -> Route {
        let run: Run =
            Box::new(move |served, call, _| as_json(&run(served, call)?).map(Ran::Answer));
        let answer: Describe = |generator| generator.subschema_for::<T>();
        Route { method: "GET", path, id, about, request: None, answer, queries: &[], run }
    }

    /// A change.
    fn change<B, T>(
        (method, path): (&'static str, &'static str),
        id: &'static str,
        about: &'static str,
        run: fn(&Served, &Call<'_>, B) -> Result<Outcome<T>, Refusal>,
    ) -> Route
    where
        B: Request + DeserializeOwned + JsonSchema + 'static,
        T: Serialize + JsonSchema + 'static,
    {
        let run: Run = Box::new(move |served, call, body| {
            let body = if body.is_null() { json!({}) } else { body };
            let body: B = serde_json::from_value(body)
                .map_err(|error| Refusal::invalid(format!("the request's body: {error}")))?;
            let is_rehearsal = body.is_dry_run();
            match run(served, call, body)? {
                Outcome::Would(would) => {
                    debug_assert!(is_rehearsal);
                    as_json(&WouldView { dry_run: true, would }).map(Ran::Answer)
                }
                Outcome::Did(view, goal) => Ok(Ran::Did(as_json(&view)?, goal)),
            }
        });
        let request: Option<Describe> = Some(|generator| generator.subschema_for::<B>());
        let answer: Describe = |generator| generator.subschema_for::<T>();
        Route { method, path, id, about, request, answer, queries: &[], run }
    }

    fn with(self, queries: &'static [(&'static str, &'static str)]) -> Route {
        Route { queries, ..self }
    }
}

/// All requests.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut routes = look::routes();
    routes.extend(drives::routes());
    routes.extend(volumes::routes());
    routes
});

/// A pool that answers requests.
pub(crate) struct Served {
    pool: Arc<OpenPool>,
    /// Opens devices that are added.
    stack: Stack,
    exports: Option<Exports>,
    operations: Operations,
    /// Held while something is changed.
    changing: Mutex<()>,
}

impl Served {
    /// A pool that is open in this process and exports nothing.
    pub(crate) fn new(stack: Stack, pool: Arc<OpenPool>) -> Served {
        let (operations, changing) = (Operations::default(), Mutex::default());
        Served { pool, stack, exports: None, operations, changing }
    }

    /// A pool whose volumes are exported.
    pub(crate) fn exporting(stack: Stack, pool: Arc<OpenPool>, exports: Exports) -> Served {
        Served { exports: Some(exports), ..Served::new(stack, pool) }
    }

    /// Where hosts reach its volumes.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.exports.as_ref().map(|exports| exports.target().addresses()).unwrap_or_default()
    }

    /// Whether hosts are served, if they are to be.
    pub(crate) fn is_running(&self) -> bool {
        self.exports.as_ref().is_none_or(|exports| exports.target().is_running())
    }

    fn status(&self) -> Status {
        self.pool.status()
    }

    /// How the pool is, what hosts lack included.
    pub(crate) fn view(&self) -> PoolView {
        let mut view = PoolView::new(&self.status(), self.pool.remarks());
        view.alarms.extend(self.exports.iter().flat_map(Exports::alarms));
        view
    }

    /// Runs a request; `body` is null where there is none. With a key, a repeated change is made once.
    pub(crate) fn run(&self, method: &str, url: &str, key: Option<&str>, body: Value) -> Answer {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let named = ROUTES.iter().filter_map(|route| Some((route, matched(route.path, path)?)));
        let mut named: Vec<_> = named.collect();
        if named.is_empty() {
            let why = format!("there is no {path}; GET /v1 tells what there is");
            return Err(Refusal::new(ErrorKind::NotFound, why));
        }
        let Some(index) = named.iter().position(|(route, _)| route.method == method) else {
            let known: Vec<_> = named.iter().map(|(route, _)| route.method).collect();
            let why = format!("{path} takes {}, not {method}", known.join(", "));
            return Err(Refusal::new(ErrorKind::Unsupported, why));
        };
        let (route, names) = named.swap_remove(index);
        let queries = queries(route, query)?;
        let call = Call { names, queries, has_key: key.is_some() };
        if route.request.is_none() {
            return match (route.run)(self, &call, body)? {
                Ran::Answer(answer) | Ran::Did(answer, _) => Ok(answer),
            };
        }
        let _one_at_a_time = self.changing.lock();
        let request = format!("{method} {url}");
        if let Some(key) = key
            && let Some(answer) = self.operations.first(key, &request, &body)?
        {
            return Ok(answer);
        }
        self.operations.settle(&self.status());
        match (route.run)(self, &call, body.clone())? {
            Ran::Answer(answer) => Ok(answer),
            Ran::Did(answer, goal) => {
                let entered = (request, body);
                let answer = self.operations.enter(&self.status(), key, entered, answer, goal);
                if let Some(exports) = &self.exports {
                    exports.refresh().map_err(|refusal| Refusal {
                        message: format!("it was done, and is not exported: {}", refusal.message),
                        ..refusal
                    })?;
                }
                Ok(answer)
            }
        }
    }

    /// Asks once, and closes the pool.
    pub(crate) fn ask(self, path: &str) -> Result<Value, Failure> {
        let answer = self.run("GET", path, None, Value::Null);
        let closed = self.close();
        let answer = answer.map_err(|refusal| Failure::new(refusal.kind, refusal.message))?;
        closed.map(|()| answer)
    }

    /// Ends exports in order, then closes the pool if nobody else has it.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Served { pool, exports, .. } = self;
        let ended = exports.map_or(Ok(()), Exports::close);
        let closed = pool.close();
        ended?;
        closed.map_err(|error| Failure::new(error.kind(), error))
    }
}

/// What stands for the names in a template, if a path fits it.
fn matched(template: &str, path: &str) -> Option<Vec<String>> {
    let (parts, found): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    let mut names = Vec::new();
    for (part, found) in parts.iter().zip(&found) {
        match part.starts_with('{') {
            true if !found.is_empty() => names.push(decoded(found)?),
            false if part == found => {}
            _ => return None,
        }
    }
    (parts.len() == found.len()).then_some(names)
}

/// A part of a path without `%` and two hexadecimal digits for a byte.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

fn queries<'a>(route: &Route, query: &'a str) -> Result<BTreeMap<&'a str, &'a str>, Refusal> {
    let mut found = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !route.queries.iter().any(|(known, _)| *known == name) {
            let known: Vec<&str> = route.queries.iter().map(|(known, _)| *known).collect();
            let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
            let why = format!("{} takes {known} behind '?', not '{name}'", route.path);
            return Err(Refusal::invalid(why));
        }
        found.insert(name, value);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_path_are_decoded() {
        let found = matched("/v1/volumes/{volume}/hosts/{host}", "/v1/volumes/db/hosts/nqn.a%2fb");
        assert_eq!(found, Some(vec!["db".to_owned(), "nqn.a/b".to_owned()]));
        assert_eq!(matched("/v1/volumes/{volume}", "/v1/volumes/"), None);
        assert_eq!(matched("/v1/volumes/{volume}", "/v1/volumes/%f"), None);
        assert_eq!(matched("/v1/volumes/{volume}", "/v1/volumes/%ff"), None);
    }

    #[test]
    fn each_request_has_its_own_path_and_name() {
        let mut names: Vec<&str> = ROUTES.iter().map(|route| route.id).collect();
        let mut paths: Vec<_> = ROUTES.iter().map(|route| (route.method, route.path)).collect();
        let count = ROUTES.len();
        names.sort_unstable();
        names.dedup();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!((names.len(), paths.len()), (count, count));
    }
}
