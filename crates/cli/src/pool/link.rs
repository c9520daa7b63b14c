//! The way to a pool: it is opened in this process, or another process serves it at a socket.

use std::path::PathBuf;

use esker_stack::{Stack, VolumeSpec};
use serde_json::Value;

use super::routes::{Refusal, Served};
use super::socket;
use crate::args::Where;
use crate::failure::{Failure, Result};

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
        let spec = VolumeSpec {
            pool: pool.to_owned(),
            name: "*".to_owned(),
            snapshot: None,
            drives: at.drives.clone(),
            buffers: at.buffers.clone(),
            map: None,
        };
        Ok(Link::Own(Box::new(Served::new(Stack::new().pool(&spec)?))))
    }

    /// Asks once, and lets go of the pool.
    pub(crate) fn ask(self, method: &str, path: &str, body: Value) -> Result<Value> {
        match self {
            Link::Socket { pool, path: socket } => socket::ask(&pool, &socket, method, path, &body),
            Link::Own(served) => {
                let answer = served.run(method, path, body).map_err(refused);
                let closed = served.close();
                answer.and_then(|answer| closed.map(|()| answer))
            }
        }
    }
}

/// A refusal as the end of a command.
pub(crate) fn refused(refusal: Refusal) -> Failure {
    Failure::new(refusal.kind, refusal.message)
}
