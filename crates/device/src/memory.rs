//! A device in memory: sparse, volatile in the sense that it ends with the process, and without a
//! write cache. Every command completes within `submit`. Its memory is the data written, in
//! chunks of 64 KiB, whatever its capacity.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::sync::RwLock;
use esker_base::units::{to_u64, to_usize};
use esker_base::{Lba, LbaCount};

use crate::immediate::{Execute, Immediate};
use crate::{
    Command, Completion, Counters, Device, DeviceError, DeviceStats, Geometry, Identity, Op,
    QueuePair,
};

/// Bytes per chunk of sparse storage.
const CHUNK: u64 = 64 << 10;

/// A device in memory.
pub struct MemoryDevice(Arc<Shared>);

struct Shared {
    name: String,
    geometry: Geometry,
    identity: Option<Identity>,
    chunks: RwLock<BTreeMap<u64, Box<[u8]>>>,
    counters: Counters,
}

impl MemoryDevice {
    /// A device of `bytes` bytes in LBAs of `lba_size` bytes.
    ///
    /// # Panics
    /// If `lba_size` is not a power of two from 512 to 4,096.
    #[must_use]
    pub fn new(name: &str, bytes: u64, lba_size: u32) -> MemoryDevice {
        assert!(
            lba_size.is_power_of_two() && (512..=4096).contains(&lba_size),
            "an LBA has 512 to 4,096 bytes, a power of two"
        );
        let geometry = Geometry {
            lba_size,
            capacity: LbaCount(bytes / u64::from(lba_size)),
            preferred_write_size: 64 << 10,
            max_transfer_size: 1 << 30,
            discard_granularity: 64 << 10,
            placement_handles: 0,
            volatile_write_cache: false,
        };
        MemoryDevice(Arc::new(Shared {
            name: name.to_owned(),
            geometry,
            identity: None,
            chunks: RwLock::new(BTreeMap::new()),
            counters: Counters::default(),
        }))
    }

    /// The same device with an identity, as one that lasts has it.
    ///
    /// # Panics
    /// If it is in use.
    #[must_use]
    pub fn identified(mut self, identity: Identity) -> MemoryDevice {
        Arc::get_mut(&mut self.0).expect("a device that nobody uses yet").identity = Some(identity);
        self
    }

    /// Bytes of memory that hold content.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        to_u64(self.0.chunks.read().len()) * CHUNK
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(&self.0.name, depth)?;
        Ok(Box::new(Immediate::new(self.0.clone(), depth)))
    }

    fn discards_zero(&self) -> bool {
        true
    }

    fn identity(&self) -> Option<Identity> {
        self.0.identity.clone()
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn stats(&self) -> DeviceStats {
        self.0.counters.snapshot(&self.0.name)
    }
}

impl Execute for Shared {
    fn execute(&self, Command { tag, mut op }: Command) -> Completion {
        let result = op.check(&self.name, &self.geometry).map(|()| self.run(&mut op));
        self.counters.count(&op, &self.geometry, &result);
        Completion { tag, result, buf: op.into_buf() }
    }
}

impl Shared {
    fn run(&self, op: &mut Op) {
        match op {
            Op::Read { lba, buf } => self.read(*lba, buf),
            Op::Write { lba, buf, .. } => self.write(*lba, buf),
            Op::Flush => {}
            Op::Discard { lba, count } | Op::WriteZeroes { lba, count } => {
                self.zero(*lba, *count);
            }
        }
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) {
        let chunks = self.chunks.read();
        for (at, chunk, within) in pieces(lba.offset(self.geometry.lba_size), buf.len()) {
            let part = &mut buf[at..at + within.len()];
            match chunks.get(&chunk) {
                Some(bytes) => part.copy_from_slice(&bytes[within]),
                None => part.fill(0),
            }
        }
    }

    fn write(&self, lba: Lba, buf: &[u8]) {
        let mut chunks = self.chunks.write();
        for (at, chunk, within) in pieces(lba.offset(self.geometry.lba_size), buf.len()) {
            let bytes =
                chunks.entry(chunk).or_insert_with(|| vec![0; to_usize(CHUNK)].into_boxed_slice());
            let part = &buf[at..at + within.len()];
            bytes[within].copy_from_slice(part);
        }
    }

    fn zero(&self, lba: Lba, count: LbaCount) {
        let lba_size = self.geometry.lba_size;
        let (start, end) = (lba.offset(lba_size), (lba + count).offset(lba_size));
        let mut chunks = self.chunks.write();
        // The content of the range, not its size, determines how long this takes.
        chunks
            .extract_if(start / CHUNK..end.div_ceil(CHUNK), |chunk, bytes| {
                let first = chunk * CHUNK;
                let (from, to) = (start.max(first) - first, end.min(first + CHUNK) - first);
                bytes[to_usize(from)..to_usize(to)].fill(0);
                to - from == CHUNK
            })
            .for_each(drop);
    }
}

/// Cuts `size` bytes from `offset` on into pieces within chunks: where the piece starts in the
/// caller's buffer, which chunk, and which bytes of it.
fn pieces(offset: u64, size: usize) -> impl Iterator<Item = (usize, u64, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == size {
            return None;
        }
        let position = offset + to_u64(at);
        let within = to_usize(position % CHUNK);
        let length = (to_usize(CHUNK) - within).min(size - at);
        let piece = (at, position / CHUNK, within..within + length);
        at += length;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Port;
    use esker_base::AlignedBuf;

    #[test]
    fn written_data_is_read_and_the_rest_is_zero() {
        let device = MemoryDevice::new("m", 1 << 20, 512);
        let mut port = Port::open(&device, 4).unwrap();
        let lba = Lba(127); // straddles the first chunk
        port.write(lba, AlignedBuf::padded(&[7; 1024], 512), None).unwrap();
        let back = port.read(Lba(126), AlignedBuf::zeroed(4 * 512)).unwrap();
        assert!(back[..512].iter().all(|&b| b == 0) && back[512..1536].iter().all(|&b| b == 7));
        port.discard(Lba(0), LbaCount(128)).unwrap();
        let back = port.read(lba, AlignedBuf::zeroed(1024)).unwrap();
        assert!(back[..512].iter().all(|&b| b == 0) && back[512..].iter().all(|&b| b == 7));
        assert_eq!(device.resident_bytes(), CHUNK);
        assert_eq!(device.stats().written_bytes, 1024);
    }

    #[test]
    fn a_tebibyte_costs_what_was_written() {
        let device = MemoryDevice::new("large", 1 << 40, 4096);
        let mut port = Port::open(&device, 1).unwrap();
        let end = device.geometry().capacity;
        for lba in [0, end.0 / 2, end.0 - 1] {
            port.write(Lba(lba), AlignedBuf::padded(&[7; 4096], 4096), None).unwrap();
        }
        assert_eq!(device.resident_bytes(), 3 * CHUNK);
        port.discard(Lba(1), LbaCount(end.0 - 1)).unwrap();
        assert_eq!(device.resident_bytes(), CHUNK);
        assert_eq!(port.read(Lba(0), AlignedBuf::zeroed(4096)).unwrap()[0], 7);
        assert_eq!(port.read(Lba(end.0 - 1), AlignedBuf::zeroed(4096)).unwrap()[0], 0);
    }

    #[test]
    fn a_command_beyond_the_end_names_device_operation_and_address() {
        let device = MemoryDevice::new("small", 4096, 512);
        let mut port = Port::open(&device, 1).unwrap();
        let error = port.read(Lba(7), AlignedBuf::zeroed(1024)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("small: read of 1024 bytes at LBA 7"), "{text}");
        let error = port.write(Lba(0), AlignedBuf::zeroed(100), None).unwrap_err();
        assert!(error.to_string().contains("multiple of 512"), "{error}");
        assert_eq!(device.stats().errors, 2);
    }
}
