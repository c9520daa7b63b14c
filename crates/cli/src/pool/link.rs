//! The way to a pool: it is opened in this process, or another process serves it at a socket.

use std::path::PathBuf;
use std::time::Duration;

use esker_base::Clock;
use esker_stack::{Stack, VolumeSpec};
use serde_json::Value;

use super::routes::{Refusal, Served};
use super::socket;
use super::view::PoolView;
use crate::args::Where;
use crate::failure::{Failure, Result};

/// How often the pool is asked whether it is done.
const STEP: Duration = Duration::from_millis(100);

/// A pool that can be asked.
pub(crate) enum Link {
    /// It is open here, and closed at the end.
    Own(Box<Served>),
    /// A process serves it.
    Socket {
        /// The pool's name.
        pool: String,
        /// Where it listens.
        path: PathBuf,
    },
}

impl Link {
    /// Opens the pool, or finds the process that serves it.
    pub(crate) fn open(pool: &str, at: &Where) -> Result<Link> {
        if at.drives.is_empty() {
            let path = at.socket.clone().unwrap_or_else(|| socket::default_path(pool));
            return Ok(Link::Socket { pool: pool.to_owned(), path });
        }
        let spec = at.opening.of(VolumeSpec::of_pool(pool, &at.drives, &at.buffers));
        let stack = Stack::new();
        let pool = stack.pool(&spec)?;
        Ok(Link::Own(Box::new(Served::new(stack, pool))))
    }

    /// Asks once, and lets go of the pool.
    pub(crate) fn ask(self, method: &str, path: &str, body: Value) -> Result<Value> {
        self.ask_and_wait(method, path, body, None::<fn(&PoolView) -> bool>)
    }

    /// Asks, waits until the pool is as it is to be, if that is said, and lets go of it.
    pub(crate) fn ask_and_wait(
        self,
        method: &str,
        path: &str,
        body: Value,
        is_done: Option<impl Fn(&PoolView) -> bool>,
    ) -> Result<Value> {
        let answer = self.send(method, path, body).and_then(|answer| {
            if let Some(is_done) = is_done {
                while !is_done(&self.status()?) {
                    Clock::real().sleep(STEP);
                }
            }
            Ok(answer)
        });
        let closed = match self {
            Link::Socket { .. } => Ok(()),
            Link::Own(served) => served.close(),
        };
        answer.and_then(|answer| closed.map(|()| answer))
    }

    fn send(&self, method: &str, path: &str, body: Value) -> Result<Value> {
        match self {
            Link::Socket { pool, path: socket } => socket::ask(pool, socket, method, path, &body),
            Link::Own(served) => served.run(method, path, body).map_err(refused),
        }
    }

    fn status(&self) -> Result<PoolView> {
        let answer = self.send("GET", "/v1/pool", Value::Null)?;
        serde_json::from_value(answer)
            .map_err(|error| Failure::usage(format!("the answer is no status of a pool: {error}")))
    }
}

/// A refusal as the end of a command.
pub(crate) fn refused(refusal: Refusal) -> Failure {
    Failure::new(refusal.kind, refusal.message)
}
