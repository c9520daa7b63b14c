//! A KVDB on devices of the caller's: here memory, and files that are given a wrapper which counts commands.
//!
//! `cargo run -p esker-kv --example devices`

use std::sync::Arc;

use esker_device::{Create, Device, FileDevice, FileOptions, MemoryDevice};
use esker_kv::{Kvdb, Location, Medium, Policy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Nothing of this one is left when the process ends.
    let memory = |name, bytes| Arc::new(MemoryDevice::new(name, bytes, 4096));
    let location = Location::devices(memory("manifest", 8 << 20), memory("capacity", 256 << 20));
    let db = Kvdb::builder(location).memory(32 << 20).create()?;
    let kvs = db.create_kvs("in-memory", Policy::default())?;
    kvs.put("key", "value")?;
    println!("{:?}", kvs.get("key")?);
    db.close()?;

    // In a directory, with a staging class on a device that has a name: whoever opens the KVDB brings it again.
    let dir = std::env::args().nth(1).unwrap_or("/tmp/esker-devices".into());
    let fast = format!("{dir}.fast");
    let options = FileOptions { create: Create::IfMissing, ..FileOptions::default() };
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(&fast, &options)?);
    let staging = Medium::Device { name: "fast drive".into(), device: device.clone() };
    let location = Location::dir(&dir).staging(staging);
    let db = Kvdb::builder(&location).memory(32 << 20).open_or_create()?;
    let kvs = db.kvs_or_create("kvs", Policy::default())?;
    for n in 0..1000u32 {
        kvs.put(n.to_be_bytes(), [0; 100])?;
    }
    db.close()?;
    println!("{} bytes written to the fast drive", device.stats().written_bytes);
    println!("the next one to open it brings {:?}", location.device_names()?);
    Ok(())
}
