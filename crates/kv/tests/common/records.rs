//! Records that are numbered: whatever is read can be told right from wrong by its key.

use std::ops::Range;
use std::sync::Arc;

use super::Devices;
use esker_base::Rng;
use esker_base::units::to_usize;
use esker_device::MemoryDevice;
use esker_kv::{KvError, Kvs};

/// Devices in memory.
pub(crate) fn devices(capacity_bytes: u64, staging_bytes: Option<u64>) -> Devices {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    Devices {
        manifest: device("manifest", 2 << 20),
        capacity: device("capacity", capacity_bytes),
        staging: staging_bytes.map(|bytes| device("staging", bytes) as _),
    }
}

/// The value of record `n`.
pub(crate) fn value(n: u64) -> Vec<u8> {
    let mut bytes = vec![0; 900];
    Rng::new(n).fill(&mut bytes);
    bytes
}

pub(crate) fn put(kvs: &Kvs, range: Range<u64>) {
    range.for_each(|n| kvs.put(n.to_be_bytes(), value(n)).unwrap());
}

pub(crate) fn check(kvs: &Kvs, range: Range<u64>) {
    range.for_each(|n| assert_eq!(kvs.get(n.to_be_bytes()).unwrap(), Some(value(n).into()), "{n}"));
}

/// A read to a buffer of `room` bytes writes as much of the value as that takes, and nothing else.
pub(crate) fn check_buffer(
    expected: Option<&[u8]>,
    room: u64,
    read: impl FnOnce(&mut [u8]) -> Result<Option<usize>, KvError>,
) {
    let mut buffer = vec![0xEE; to_usize(room)];
    assert_eq!(read(&mut buffer).unwrap(), expected.map(<[u8]>::len));
    let value = expected.unwrap_or_default();
    let (copied, rest) = buffer.split_at(value.len().min(buffer.len()));
    assert!(value.starts_with(copied) && rest.iter().all(|&byte| byte == 0xEE));
}
