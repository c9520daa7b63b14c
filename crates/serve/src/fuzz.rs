//! Fuzz targets: any bytes in place of a configuration, or of a request to a pool. Each says whether they were accepted.
//! Run by `fuzz/`, and on their corpora by the test below. Heads of requests over HTTP are decoded by `hyper`.
//!
//! 1. No bytes make a target panic.
//! 2. Accepted bytes are written as bytes that mean the same.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::pool::answer::ConfigView;
use crate::pool::{request, routes};
use crate::requests::body::Nothing;
use crate::requests::route::matched;
use crate::socket;
use crate::target::is_configuration;

/// The configuration of a target, or of a pool.
pub fn serve_config(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let pool = toml::from_str::<ConfigView>(text);
    if let Ok(pool) = &pool {
        let written = toml::to_string(pool).expect("what was read can be written");
        let again: ConfigView = toml::from_str(&written).expect("what was written can be read");
        assert_eq!(toml::to_string(&again).ok(), Some(written));
    }
    is_configuration(text) | pool.is_ok()
}

/// A request to a pool: the form of its body by the first byte, then the path as far as a newline, then the body.
pub fn serve_request(data: &[u8]) -> bool {
    let Some((&form, rest)) = data.split_first() else { return false };
    let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    let (path, body) = (String::from_utf8_lossy(&rest[..end]), rest.get(end + 1..));
    let is_known = routes::ROUTES.iter().any(|route| matched(route.path, &path).is_some());
    let body = body.unwrap_or_default();
    is_known
        & match form {
            0 => is_body::<request::AddDrive>(body),
            1 => is_body::<request::ReplaceDrive>(body),
            2 => is_body::<request::RejoinDrive>(body),
            3 => is_body::<request::ChangeSettings>(body),
            4 => is_body::<request::CreateVolume>(body),
            5 => is_body::<request::ChangeVolume>(body),
            6 => is_body::<request::DeleteVolume>(body),
            7 => is_body::<request::CreateSnapshot>(body),
            8 => is_body::<request::CloneSnapshot>(body),
            9 => is_body::<request::Rollback>(body),
            10 => is_body::<request::AddHost>(body),
            11 => is_body::<request::RemoveHost>(body),
            _ => is_body::<Nothing>(body),
        }
}

fn is_body<B: DeserializeOwned + Serialize>(body: &[u8]) -> bool {
    let Ok(value) = socket::parsed(body) else { return false };
    let Ok(request) = serde_json::from_value::<B>(value) else { return false };
    let written = serde_json::to_value(&request).expect("what was read can be written");
    let again: B = serde_json::from_value(written.clone()).expect("what was written can be read");
    assert_eq!(serde_json::to_value(&again).ok(), Some(written));
    true
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        replay(&[
            Target::of_texts("serve_config", serve_config, &[("target", TARGET), ("pool", POOL)])
                .memory(1 << 20),
            Target::of_texts(
                "serve_request",
                serve_request,
                &[
                    ("add-drive", "\0/v1/drives\n{\"device\": \"mem:1GiB\", \"buffer\": true}"),
                    ("create-volume", "\x04/v1/volumes\n{\"name\": \"db\", \"bytes\": 1048576}"),
                    ("delete", "\x06/v1/volumes/d%62\n{}"),
                ],
            )
            .memory(4 << 20),
        ]);
    }

    const TARGET: &str = r#"listen = ["127.0.0.1:4420"]
patience = 10
controller_ids = [1, 1000]

[[subsystem]]
nqn = "nqn.2026-01.io.example:a"
allow_any = true
write_cache = "off"

[[subsystem.namespace]]
nsid = 1
device = "mem:64MiB"
uuid = "0b0a0908-0706-4504-8302-010012345678"
"#;

    const POOL: &str = r#"pool = "tank"
parity = 1
chunk_bytes = 16777216
log_bytes = 268435456
spare_percent = 15
drives = ["mem:1GiB", "mem:1GiB", "mem:1GiB"]

[[volumes]]
name = "db"
bytes = 1048576
compression = true
iops_limit = 0
bytes_limit = 0
hosts = [{ nqn = "nqn.2026-01.io.example:host" }]
"#;
}
