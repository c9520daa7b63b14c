//! A route: its description, and how it runs.
//!
//! Invariants
//! 1. A request that is refused has changed nothing.
//! 2. Changes are made one at a time. A device is opened before the turn of its change, and all that the change needs
//!    is looked at again then.

use std::cell::RefCell;
use std::collections::BTreeMap;

use esker_base::ErrorKind;
use parking_lot::Mutex;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answer::{RouteView, WouldView};
use super::body::Request;
use crate::error::{Result, ServeError};

/// A server with a table of routes.
pub(crate) trait Serves: Send + Sync + Sized + 'static {
    /// When nothing of a change is left to do.
    type Goal: 'static;
    /// A device that was opened for a change.
    type Opened: 'static;

    /// All requests.
    fn routes() -> &'static [Route<Self>];

    /// Held while something is changed.
    fn changing(&self) -> &Mutex<()>;

    /// The first answer to a change with this key, if there was one.
    fn first(&self, key: &str, request: &str, body: &Value) -> Result<Option<Value>>;

    /// A change is about to be made.
    fn begins(&self) {}

    /// A change was made: its answer with its id.
    fn made(
        &self,
        route: &Route<Self>,
        key: Option<&str>,
        entered: (String, Value),
        answer: Value,
        goal: Self::Goal,
    ) -> Result<Value>;

    /// Runs a request; `body` is null where there is none. With a key, a repeated change is made once.
    fn run_request(
        &self,
        method: &str,
        url: &str,
        key: Option<&str>,
        body: Value,
    ) -> Result<Value> {
        let (route, call) = found(Self::routes(), method, url, key.is_some())?;
        if route.request.is_none() {
            return match (route.run)(self, &call, body)? {
                Ran::Answer(answer) | Ran::Did(answer, _) => Ok(answer),
            };
        }
        let request = format!("{method} {url}");
        let first = || key.map_or(Ok(None), |key| self.first(key, &request, &body));
        if let Some(open) = &route.open {
            if let Some(answer) = first()? {
                return Ok(answer);
            }
            *call.opened.borrow_mut() = Some(open(self, &call, &body)?);
        }
        let _one_at_a_time = self.changing().lock();
        if let Some(answer) = first()? {
            return Ok(answer);
        }
        self.begins();
        match (route.run)(self, &call, body.clone())? {
            Ran::Answer(answer) => Ok(answer),
            Ran::Did(answer, goal) => self.made(route, key, (request, body), answer, goal),
        }
    }
}

/// The outcome of a change.
pub(crate) enum Outcome<T, G> {
    /// It was a rehearsal.
    Would(String),
    /// It was made, and is at its end when the goal is reached.
    Did(T, G),
}

/// A request as a route sees it.
pub(crate) struct Call<'a, S: Serves> {
    /// The text at each name of the path.
    pub(crate) names: Vec<String>,
    pub(crate) queries: BTreeMap<&'a str, &'a str>,
    /// The client has said which operation it is, so it may be a repetition.
    pub(crate) has_key: bool,
    /// The device that was opened for it.
    pub(crate) opened: RefCell<Option<S::Opened>>,
}

impl<S: Serves> Call<'_, S> {
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.names[index]
    }
}

pub(crate) enum Ran<G> {
    Answer(Value),
    Did(Value, G),
}

type Run<S> =
    Box<dyn Fn(&S, &Call<'_, S>, Value) -> Result<Ran<<S as Serves>::Goal>> + Send + Sync>;

/// Makes a change.
type Change<S, B, T> = fn(&S, &Call<'_, S>, B) -> Result<Outcome<T, <S as Serves>::Goal>>;

/// Opens the device of a change, before its turn.
type Open<S> = Box<dyn Fn(&S, &Call<'_, S>, &Value) -> Result<<S as Serves>::Opened> + Send + Sync>;

/// Tells the form of a body.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A request that is known.
pub(crate) struct Route<S: Serves> {
    pub(crate) method: &'static str,
    /// With names in braces.
    pub(crate) path: &'static str,
    /// The name of the operation.
    pub(crate) id: &'static str,
    pub(crate) about: &'static str,
    /// Of a change.
    pub(crate) request: Option<Describe>,
    pub(crate) answer: Describe,
    /// Names and meanings of queries behind a question mark.
    pub(crate) queries: &'static [(&'static str, &'static str)],
    /// Whether hosts may find something else after it.
    pub(crate) exports: bool,
    /// Of a change with a device.
    open: Option<Open<S>>,
    run: Run<S>,
}

fn parsed<B: DeserializeOwned>(body: Value) -> Result<B> {
    let body = if body.is_null() { json!({}) } else { body };
    serde_json::from_value(body)
        .map_err(|error| ServeError::invalid(format!("the request's body: {error}")))
}

fn as_json(view: &impl Serialize) -> Result<Value> {
    serde_json::to_value(view).map_err(|error| ServeError::invalid(error.to_string()))
}

impl<S: Serves> Route<S> {
    /// A question.
    pub(crate) fn look<T: Serialize + JsonSchema + 'static>(
        path: &'static str,
        id: &'static str,
        about: &'static str,
        run: fn(&S, &Call<'_, S>) -> Result<T>,
    ) -> Route<S> {
        let run: Run<S> =
            Box::new(move |served, call, _| as_json(&run(served, call)?).map(Ran::Answer));
        let answer: Describe = |generator| generator.subschema_for::<T>();
        Route {
            method: "GET",
            path,
            id,
            about,
            request: None,
            answer,
            queries: &[],
            exports: false,
            open: None,
            run,
        }
    }

    /// A change.
    pub(crate) fn change<B, T>(
        (method, path): (&'static str, &'static str),
        id: &'static str,
        about: &'static str,
        run: Change<S, B, T>,
    ) -> Route<S>
    where
        B: Request + DeserializeOwned + JsonSchema + 'static,
        T: Serialize + JsonSchema + 'static,
    {
        let run: Run<S> = Box::new(move |served, call, body| {
            let body: B = parsed(body)?;
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
        let (queries, exports, open): (&[_], _, _) = (&[], true, None);
        Route { method, path, id, about, request, answer, queries, exports, open, run }
    }

    /// The same change, for which a device is opened before its turn.
    pub(crate) fn opening<B: DeserializeOwned + 'static>(
        self,
        open: fn(&S, &Call<'_, S>, &B) -> Result<S::Opened>,
    ) -> Route<S> {
        let open: Open<S> =
            Box::new(move |served, call, body| open(served, call, &parsed(body.clone())?));
        Route { open: Some(open), ..self }
    }

    /// The same change, which no host sees: with many volumes, looking through what is exported takes longer.
    pub(crate) fn unseen(self) -> Route<S> {
        Route { exports: false, ..self }
    }

    pub(crate) fn with(self, queries: &'static [(&'static str, &'static str)]) -> Route<S> {
        Route { queries, ..self }
    }
}

/// All requests of a server.
pub(crate) fn known<S: Serves>(_: &S, _: &Call<'_, S>) -> Result<Vec<RouteView>> {
    let view = |route: &Route<S>| RouteView {
        method: route.method.to_owned(),
        path: route.path.to_owned(),
        about: route.about.to_owned(),
    };
    Ok(S::routes().iter().map(view).collect())
}

/// The route of a request, and the request as the route sees it.
fn found<'r, 'u, S: Serves>(
    routes: &'r [Route<S>],
    method: &str,
    url: &'u str,
    has_key: bool,
) -> Result<(&'r Route<S>, Call<'u, S>)> {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let named = routes.iter().filter_map(|route| Some((route, matched(route.path, path)?)));
    let mut named: Vec<_> = named.collect();
    if named.is_empty() {
        let why = format!("there is no {path}; GET /v1 tells what there is");
        return Err(ServeError::new(ErrorKind::NotFound, why));
    }
    let Some(index) = named.iter().position(|(route, _)| route.method == method) else {
        let known: Vec<_> = named.iter().map(|(route, _)| route.method).collect();
        let why = format!("{path} takes {}, not {method}", known.join(", "));
        return Err(ServeError::new(ErrorKind::Unsupported, why));
    };
    let (route, names) = named.swap_remove(index);
    let queries = queries(route, query)?;
    Ok((route, Call { names, queries, has_key, opened: None.into() }))
}

/// Returns the text at each name of a template, if a path fits it.
pub(crate) fn matched(template: &str, path: &str) -> Option<Vec<String>> {
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

fn queries<'a, S: Serves>(route: &Route<S>, query: &'a str) -> Result<BTreeMap<&'a str, &'a str>> {
    let mut found = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !route.queries.iter().any(|(known, _)| *known == name) {
            let known: Vec<&str> = route.queries.iter().map(|(known, _)| *known).collect();
            let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
            let why = format!("{} takes {known} behind '?', not '{name}'", route.path);
            return Err(ServeError::invalid(why));
        }
        found.insert(name, value);
    }
    Ok(found)
}

/// Whether each request has its own path and name.
#[cfg(test)]
pub(crate) fn check_names<S: Serves>(routes: &[Route<S>]) {
    let mut names: Vec<&str> = routes.iter().map(|route| route.id).collect();
    let mut paths: Vec<_> = routes.iter().map(|route| (route.method, route.path)).collect();
    let count = routes.len();
    names.sort_unstable();
    names.dedup();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!((names.len(), paths.len()), (count, count));
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
}
