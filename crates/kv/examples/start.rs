//! Opens a KVDB, or makes it, and counts how often that was done.
//!
//! `cargo run -p esker-kv --example start`, twice.

use esker_kv::{KvError, Kvdb, Policy};

fn main() -> Result<(), KvError> {
    let dir = std::env::args().nth(1).unwrap_or("/tmp/esker-start".into());
    let db = Kvdb::builder(dir).open_or_create()?;
    let counts = db.kvs_or_create("counts", Policy::default())?;
    let runs =
        counts.get("runs")?.map_or(0, |text| String::from_utf8_lossy(&text).parse().unwrap_or(0));
    counts.put("runs", (runs + 1).to_string())?;
    println!("run {}", runs + 1);
    db.close()
}
