//! The way to a pool: it is opened in this process, or another process serves it at a socket.

use std::sync::Arc;

use esker_base::ErrorKind;
use esker_stack::{OpenPool, Stack, VolumeSpec};
use serde_json::Value;

use super::routes;
use crate::args::Where;
use crate::failure::{Failure, Result};

/// A pool that can be asked.
pub(crate) enum Link {
    /// It is open here, and closed at the end.
    Own(Arc<OpenPool>),
}

impl Link {
    /// Opens the pool, or finds the process that serves it.
    pub(crate) fn open(pool: &str, at: &Where) -> Result<Link> {
        if at.drives.is_empty() {
            let why = format!("name all devices of pool '{pool}' with --drives and --buffer");
            return Err(Failure::new(ErrorKind::NotFound, why));
        }
        let spec = VolumeSpec {
            pool: pool.to_owned(),
            name: "*".to_owned(),
            snapshot: None,
            drives: at.drives.clone(),
            buffers: at.buffers.clone(),
            map: None,
        };
        Ok(Link::Own(Stack::new().pool(&spec)?))
    }

    /// Asks once, and lets go of the pool.
    pub(crate) fn ask(self, method: &str, path: &str, body: Value) -> Result<Value> {
        let Link::Own(pool) = self;
        let answer = routes::run(&pool, method, path, body);
        let closed = pool.close();
        let answer = answer.map_err(|refusal| Failure::new(refusal.kind, refusal.message))?;
        closed.map_err(|error| Failure::new(error.kind(), error))?;
        Ok(answer)
    }
}
