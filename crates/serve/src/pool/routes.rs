//! Requests to an open pool: one table of routes, for the socket and for a pool that this process opens, and
//! for the description of both (`openapi`).
//!
//! | module | content |
//! | --- | --- |
//! | `route` | a route of a pool |
//! | `look` | requests that change nothing |
//! | `volumes`, `drives` | changes |
//! | `users` | hosts that a change would disturb |
//!
//! Invariant: a request that is repeated gives the same answer: names tell volumes and snapshots apart. Deleting a
//!    volume that is not there any more succeeds for a request that has a key, and is refused to others.

mod drives;
mod look;
mod route;
mod users;
mod volumes;

use std::sync::LazyLock;

use parking_lot::Mutex;
use serde_json::Value;

use super::opening::Opened;
use super::operations::Goal;
use super::served::Served;
use crate::error::{Result, ServeError};
use crate::requests::route::Serves;
pub use look::description;
use route::Route;

/// All requests.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut routes = look::routes();
    routes.extend(drives::routes());
    routes.extend(volumes::routes());
    routes
});

impl Serves for Served {
    type Goal = Goal;
    type Opened = Opened;

    fn routes() -> &'static [Route] {
        &ROUTES
    }

    fn changing(&self) -> &Mutex<()> {
        &self.changing
    }

    fn first(&self, key: &str, request: &str, body: &Value) -> Result<Option<Value>> {
        self.operations.first(key, request, body)
    }

    fn begins(&self) {
        self.operations.settle(&self.status());
    }

    fn made(
        &self,
        route: &Route,
        key: Option<&str>,
        entered: (String, Value),
        answer: Value,
        goal: Goal,
    ) -> Result<Value> {
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

impl Served {
    /// Runs a request; `body` is null where there is none. With a key, a repeated change is made once.
    ///
    /// # Errors
    /// The request is refused, and has changed nothing.
    pub fn run(&self, method: &str, url: &str, key: Option<&str>, body: Value) -> Result<Value> {
        self.run_request(method, url, key, body)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_path_and_name() {
        crate::requests::route::check_names(&ROUTES);
    }
}
