//! The way to a pool: it is opened in this process, or another process serves it at a socket.

use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use esker_cache::Cache;
use esker_serve::caches;
use esker_serve::pool::Served;
use esker_serve::pool::answer::{OperationState, OperationView, ProgressView};
use esker_stack::{CacheSpec, Closings, Spec, Stack, Time, VolumeSpec};
use serde_json::Value;

use super::{show, socket};
use crate::args::{Change, Where};
use crate::failure::{Failure, Result};
use crate::progress::{Bar, Watch};
use crate::stderr::tell;

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
    stack.serving_caches(serve)
}

/// Answers for a cache that was opened, while the result is kept; where that is not possible, it says so.
fn serve(cache: &Arc<Cache>, spec: &CacheSpec) -> Option<Box<dyn Any + Send + Sync>> {
    match caches::serve(&socket::directory(), cache, &spec.flash) {
        Ok(server) => Some(Box::new(server?)),
        Err(error) => {
            tell!("esker: note: {error}");
            None
        }
    }
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
            if let Some(id) = answer["operation"].as_str().filter(|_| wait) {
                self.wait(id)?;
            }
            Ok(answer)
        });
        self.close(answer)
    }

    /// Waits until an operation is done, and draws how far it is.
    fn wait(&self, id: &str) -> Result {
        let watch = Watch::start()?;
        loop {
            let operation = self.operation(id)?;
            match operation.state {
                OperationState::Running => {}
                OperationState::Done => return Ok(()),
                OperationState::Cancelled => {
                    let why = format!("operation {id} was called off");
                    return Err(Failure::new(ErrorKind::Conflict, why));
                }
            }
            if let Some(progress) = &operation.progress {
                draw(&watch.bar, progress);
            }
            if watch.interrupt.has_come() {
                return watch.outcome(&match self {
                    Link::Socket { pool, .. } => format!(
                        "the pool goes on; esker pool operations {pool} --id {id} shows how far it is"
                    ),
                    Link::Own(_) => "what is done is kept; ask again for the rest".to_owned(),
                });
            }
            Clock::real().sleep(STEP);
        }
    }

    fn operation(&self, id: &str) -> Result<OperationView> {
        serde_json::from_value(self.get(&format!("/v1/operations/{id}"))?)
            .map_err(|error| Failure::usage(format!("the answer is no operation: {error}")))
    }

    /// Lets go of the pool.
    pub(crate) fn close<T>(self, answer: Result<T>) -> Result<T> {
        let closed = match self {
            Link::Socket { .. } => Ok(()),
            Link::Own(served) => served.close().map_err(Failure::from),
        };
        Failure::of_both(answer, closed)
    }

    fn send(&self, method: &str, path: &str, key: Option<&str>, body: Value) -> Result<Value> {
        match self {
            Link::Socket { pool, path: socket } => {
                socket::ask(pool, socket, method, path, key, &body)
            }
            Link::Own(served) => Ok(served.run(method, path, key, body)?),
        }
    }
}

/// Draws how far an operation is; of one that has done nothing yet no end is foretold.
fn draw(bar: &Bar, progress: &ProgressView) {
    let text = || show::progress(progress);
    match progress.total.filter(|_| progress.done > 0) {
        Some(total) => bar.share("", progress.done as f64 / total.max(1) as f64, text),
        None => bar.say("", text),
    }
}

/// The time in which a device lives that `stack` has opened.
pub(crate) fn clock(stack: &Stack, spec: &Spec) -> Clock {
    match spec.time() {
        Some(Time::Virtual) => stack.clock().clone(),
        Some(Time::Dilated(factor)) => Clock::dilated(factor),
        _ => Clock::real(),
    }
}
