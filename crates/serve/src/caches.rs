//! The socket at which a process that has a cache open is asked about it, and told to change it.
//!
//! It is `cache/NAME.sock` in the directory of the sockets of pools; NAME tells the flash device from others, whatever
//! path leads to it. Requests are as those to a pool: HTTP, with JSON in the bodies. Only the owner may connect.
//!
//! | request | does |
//! | --- | --- |
//! | `GET /v1/cache` | the facts and figures |
//! | `PATCH /v1/cache` | changes `mode`, `dirty_percent`, `dirty_age_ms`, `name_age_ms`; an age of 0 is none |
//! | `POST /v1/cache/flush` | writes back what is dirty |

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker_base::ErrorKind;
use esker_base::checksum::crc32c;
use esker_cache::{Bounds, Cache, CacheError, Info, Mode};
use esker_stack::Spec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{Result, ServeError};
use crate::http::{Answer, Head, Service};
use crate::socket::{self, SocketServer};

/// A cache in use.
#[derive(Serialize, Deserialize)]
pub struct CacheView {
    /// Facts that its flash device has, too.
    #[serde(flatten)]
    pub info: Info,
    /// The others.
    pub in_use: InUse,
}

/// Facts that only the process knows which has it open.
#[derive(Serialize, Deserialize)]
pub struct InUse {
    /// The process.
    pub process: u32,
    /// The share of a set that may be dirty.
    pub dirty_percent: u8,
    /// In milliseconds; 0 for no bound.
    pub dirty_age_ms: u64,
    /// The same.
    pub name_age_ms: u64,
    /// Figures since it was opened.
    pub figures: Value,
}

/// A change of a cache in use; values that it does not say stay.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheChange {
    /// Where writes go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The share of a set that may be dirty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_percent: Option<u8>,
    /// In milliseconds; 0 for no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_age_ms: Option<u64>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_age_ms: Option<u64>,
}

/// The socket of the cache on this flash device; none for one that only this process can have. `directory` has the
/// sockets of pools.
#[must_use]
pub fn path(directory: &Path, flash: &Spec) -> Option<PathBuf> {
    if !flash.is_lasting() {
        return None;
    }
    let found = flash.paths().first().and_then(|path| std::fs::metadata(path).ok());
    let device = match found {
        Some(found) if found.file_type().is_block_device() => format!("device-{:x}", found.rdev()),
        Some(found) => format!("file-{:x}-{:x}", found.dev(), found.ino()),
        None => format!("other-{:08x}", crc32c(flash.to_string().as_bytes())),
    };
    let namespace = match flash {
        Spec::Ssd(ssd) => format!("-{}", ssd.nsid.unwrap_or(1)),
        _ => String::new(),
    };
    Some(directory.join("cache").join(format!("{device}{namespace}.sock")))
}

/// Answers for a cache that was opened, while the result is kept; `directory` has the sockets of pools.
///
/// # Errors
/// The socket cannot be had.
pub fn serve(directory: &Path, cache: &Arc<Cache>, flash: &Spec) -> Result<Option<SocketServer>> {
    let Some(path) = path(directory, flash) else { return Ok(None) };
    let advice = "`esker cache` cannot reach this process";
    SocketServer::start(&path, "cache-socket", Requests(Arc::downgrade(cache)), advice).map(Some)
}

/// Requests to a cache.
struct Requests(Weak<Cache>);

impl Service for Requests {
    const BODY_MAX: usize = 4 << 10;

    fn admit(&self, _: &Head) -> Result<(), Answer> {
        Ok(())
    }

    fn answer(&self, head: &Head, body: &[u8]) -> Answer {
        let answer = match self.0.upgrade() {
            None => Err(ServeError::new(ErrorKind::Closed, "the cache is being closed; ask again")),
            Some(cache) => socket::parsed(body)
                .and_then(|body| answer(&cache, head.method(), head.url(), body)),
        };
        socket::answered(answer)
    }

    fn error(&self, status: u16, why: &str) -> Answer {
        socket::unheard(status, why)
    }
}

fn answer(cache: &Cache, method: &str, url: &str, body: Value) -> Result<Value> {
    let failed = |error: CacheError| ServeError::new(error.kind(), error.to_string());
    match (method, url) {
        ("GET", "/v1/cache") => {}
        ("PATCH", "/v1/cache") => {
            let change: CacheChange = serde_json::from_value(body)
                .map_err(|error| ServeError::invalid(format!("the change: {error}")))?;
            let bounds = cache.bounds();
            let age = |said: Option<u64>, before: Option<Duration>| match said {
                None => before,
                Some(0) => None,
                Some(ms) => Some(Duration::from_millis(ms)),
            };
            let bounds = Bounds {
                dirty_percent: change.dirty_percent.unwrap_or(bounds.dirty_percent),
                dirty_age: age(change.dirty_age_ms, bounds.dirty_age),
                name_age: age(change.name_age_ms, bounds.name_age),
            };
            cache.set_bounds(bounds).map_err(failed)?;
            if let Some(mode) = change.mode {
                cache.set_mode(mode).map_err(failed)?;
            }
        }
        ("POST", "/v1/cache/flush") => {
            let before = cache.figures().cleaned;
            cache.write_back().map_err(failed)?;
            return Ok(json!({ "written_back_blocks": cache.figures().cleaned - before }));
        }
        _ => {
            let why = format!(
                "there is no {method} {url}; GET or PATCH /v1/cache, or POST /v1/cache/flush"
            );
            return Err(ServeError::new(ErrorKind::Unsupported, why));
        }
    }
    Ok(json!(seen(cache)))
}

fn seen(cache: &Cache) -> CacheView {
    let Bounds { dirty_percent, dirty_age, name_age } = cache.bounds();
    let ms = |age: Option<Duration>| {
        age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    };
    CacheView {
        info: cache.info(),
        in_use: InUse {
            process: std::process::id(),
            dirty_percent,
            dirty_age_ms: ms(dirty_age),
            name_age_ms: ms(name_age),
            figures: json!(cache.figures()),
        },
    }
}
