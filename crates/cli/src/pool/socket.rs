//! Where processes that serve pools listen, and how long they are waited for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use esker_stack::served::{self, NoAnswer, Patience};
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::stderr::tell;

/// The directory of the sockets where nothing else is said.
pub(crate) fn directory() -> PathBuf {
    let run = match rustix::process::geteuid().is_root() {
        true => None,
        false => std::env::var_os("XDG_RUNTIME_DIR"),
    };
    run.map_or_else(served::socket_dir, |run| PathBuf::from(run).join("esker"))
}

/// Where a pool is served unless something else is said.
pub(crate) fn default_path(pool: &str) -> PathBuf {
    directory().join(format!("{pool}.sock"))
}

/// How long this process waits for those that serve pools, if it was said.
static TIMEOUT: OnceLock<Duration> = OnceLock::new();

/// Says how long this process waits for those that serve pools.
pub(crate) fn wait_for(timeout: Duration) {
    let _ = TIMEOUT.set(timeout); // it is said once
}

/// How this process waits for those that serve pools.
pub(crate) fn patience() -> Patience {
    let usual = Patience { tell: |what| tell!("esker: {what}"), ..Patience::default() };
    TIMEOUT.get().map_or(usual, |limit| Patience { limit: *limit, ..usual })
}

/// Asks the process that serves a pool at a socket.
pub(crate) fn ask(
    pool: &str,
    path: &Path,
    method: &str,
    url: &str,
    key: Option<&str>,
    body: &Value,
) -> Result<Value> {
    asked(path, method, url, key, body, |error| {
        format!(
            "pool '{pool}' is not served at {}: {error}; start `esker pool serve {pool} --drives …`, say --socket, or \
             name its devices with --drives",
            path.display()
        )
    })
}

/// Asks the process at a socket; `absent` is the message where there is none.
pub(crate) fn asked(
    path: &Path,
    method: &str,
    url: &str,
    key: Option<&str>,
    body: &Value,
    absent: impl FnOnce(&io::Error) -> String,
) -> Result<Value> {
    served::ask(path, method, url, key, body, patience()).map_err(|error| {
        let kind = error.kind();
        match error {
            NoAnswer::Absent(error) => Failure::new(kind, absent(&error)),
            error => Failure::new(kind, error),
        }
    })
}
