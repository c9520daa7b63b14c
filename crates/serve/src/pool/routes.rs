//! Requests to an open pool: one table of routes, for the socket and for a pool that this process opens, and
//! for the description of both (`openapi`).
//!
//! | module | content |
//! | --- | --- |
//! | `route` | a route |
//! | `look` | requests that change nothing |
//! | `volumes`, `drives` | changes |
//! | `users` | hosts that a change would disturb |
//!
//! Invariants
//! 1. A request that is refused has changed nothing.
//! 2. A request that is repeated gives the same answer: names tell volumes and snapshots apart. Deleting a
//!    volume that is not there any more succeeds for a request that has a key, and is refused to others.
//! 3. Changes are made one at a time. A device is opened before the turn of its change, and all that the change needs
//!    is looked at again then.

mod drives;
mod look;
pub(crate) mod route;
mod users;
mod volumes;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use esker_base::ErrorKind;
use serde_json::Value;

use super::served::Served;
use crate::error::{Result, ServeError};
use route::{Call, Ran, Route};

/// All requests.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut routes = look::routes();
    routes.extend(drives::routes());
    routes.extend(volumes::routes());
    routes
});

impl Served {
    /// Runs a request; `body` is null where there is none. With a key, a repeated change is made once.
    ///
    /// # Errors
    /// The request is refused, and has changed nothing.
    pub fn run(&self, method: &str, url: &str, key: Option<&str>, body: Value) -> Result<Value> {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let named = ROUTES.iter().filter_map(|route| Some((route, matched(route.path, path)?)));
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
        let call =
            Call { names, queries, has_key: key.is_some(), known: &ROUTES, opened: None.into() };
        if route.request.is_none() {
            return match (route.run)(self, &call, body)? {
                Ran::Answer(answer) | Ran::Did(answer, _) => Ok(answer),
            };
        }
        let request = format!("{method} {url}");
        let first = || match key {
            Some(key) => self.operations.first(key, &request, &body),
            None => Ok(None),
        };
        if let Some(open) = &route.open {
            if let Some(answer) = first()? {
                return Ok(answer);
            }
            *call.opened.borrow_mut() = Some(open(self, &call, &body)?);
        }
        let _one_at_a_time = self.changing.lock();
        if let Some(answer) = first()? {
            return Ok(answer);
        }
        self.operations.settle(&self.status());
        match (route.run)(self, &call, body.clone())? {
            Ran::Answer(answer) => Ok(answer),
            Ran::Did(answer, goal) => {
                let entered = (request, body);
                let answer = self.operations.enter(&self.status(), key, entered, answer, goal);
                if let Some(exports) = self.exports.as_ref().filter(|_| route.exports) {
                    exports.refresh().map_err(|error| {
                        let why = format!("it was done, and is not exported: {error}");
                        ServeError::new(error.kind(), why)
                    })?;
                }
                Ok(answer)
            }
        }
    }

    /// Asks once, and closes the pool.
    ///
    /// # Errors
    /// The request is refused, or the pool cannot be closed.
    pub fn ask(self, path: &str) -> Result<Value> {
        let answer = self.run("GET", path, None, Value::Null);
        let closed = self.close();
        let answer = answer?;
        closed.map(|()| answer)
    }
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

fn queries<'a>(route: &Route, query: &'a str) -> Result<BTreeMap<&'a str, &'a str>> {
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
