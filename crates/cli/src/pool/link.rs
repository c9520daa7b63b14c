//! The way to a pool: it is opened in this process, or another process serves it at a socket.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use esker_stack::{Closings, Stack, VolumeSpec};
use serde_json::Value;

use super::answer::{OperationState, OperationView};
use super::caches;
use super::refusal::Refusal;
use super::served::Served;
use super::socket;
use crate::args::{Change, Where};
use crate::failure::{Failure, Result};

/// How often an operation is asked whether it is done.
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

/// Failures to close devices of this process.
static CLOSINGS: LazyLock<Closings> = LazyLock::new(Closings::default);

/// Opens specifications, and finds pools that are served.
pub(crate) fn stack() -> Stack {
    let stack = Stack::new().sockets_in(socket::directory());
    let stack = stack.patient(socket::patience()).noting(CLOSINGS.clone());
    stack.serving_caches(caches::serve)
}

/// Whether the devices that were closed until now were closed well.
pub(crate) fn closed() -> Result {
    let failures = CLOSINGS.take();
    let Some(first) = failures.first() else { return Ok(()) };
    let all: Vec<String> = failures.iter().map(ToString::to_string).collect();
    Err(Failure::new(first.kind(), all.join("\nesker: ")))
}

impl Link {
    /// Opens the pool, or finds the process that serves it.
    pub(crate) fn open(pool: &str, at: &Where) -> Result<Link> {
        if at.drives.is_empty() {
            let path = at.socket.clone().unwrap_or_else(|| socket::default_path(pool));
            return Ok(Link::Socket { pool: pool.to_owned(), path });
        }
        let spec = at.opening.of(VolumeSpec::of_pool(pool, &at.drives, &at.buffers));
        let stack = Arc::new(stack());
        let pool = stack.pool(&spec)?;
        Ok(Link::Own(Box::new(Served::new(stack, pool))))
    }

    /// Asks once, and lets go of the pool.
    pub(crate) fn look(self, path: &str) -> Result<Value> {
        let answer = self.get(path);
        self.close(answer)
    }

    /// Asks, without letting go of the pool.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.send("GET", path, None, Value::Null)
    }

    /// Changes something, waits until the operation is done if that is wanted, and lets go of the pool.
    pub(crate) fn change(
        self,
        how: &Change,
        wait: bool,
        method: &str,
        path: &str,
        body: Value,
    ) -> Result<Value> {
        let key = how.operation.as_deref().filter(|_| !how.dry_run);
        let answer = self.send(method, path, key, body).and_then(|answer| {
            let operation = answer["operation"].as_str().filter(|_| wait);
            if let Some(id) = operation {
                loop {
                    match self.operation(id)?.state {
                        OperationState::Running => Clock::real().sleep(STEP),
                        OperationState::Done => break,
                        OperationState::Cancelled => {
                            let why = format!("operation {id} was called off");
                            return Err(Failure::new(ErrorKind::Conflict, why));
                        }
                    }
                }
            }
            Ok(answer)
        });
        self.close(answer)
    }

    fn operation(&self, id: &str) -> Result<OperationView> {
        serde_json::from_value(self.get(&format!("/v1/operations/{id}"))?)
            .map_err(|error| Failure::usage(format!("the answer is no operation: {error}")))
    }

    /// Lets go of the pool.
    pub(crate) fn close<T>(self, answer: Result<T>) -> Result<T> {
        let closed = match self {
            Link::Socket { .. } => Ok(()),
            Link::Own(served) => served.close(),
        };
        Failure::of_both(answer, closed)
    }

    fn send(&self, method: &str, path: &str, key: Option<&str>, body: Value) -> Result<Value> {
        match self {
            Link::Socket { pool, path: socket } => {
                socket::ask(pool, socket, method, path, key, &body)
            }
            Link::Own(served) => served.run(method, path, key, body).map_err(refused),
        }
    }
}

/// A refusal as the end of a command.
pub(crate) fn refused(refusal: Refusal) -> Failure {
    Failure::new(refusal.kind, refusal.message)
}
