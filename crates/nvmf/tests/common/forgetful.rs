//! A device with a volatile write cache, which it loses with its power.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_base::sync::Mutex;
use esker_base::{ErrorKind, LbaCount};
use esker_device::immediate::{Execute, Immediate};
use esker_device::{
    Cause, Command, Completion, Device, DeviceError, DeviceStats, Geometry, Op, QueuePair,
};

pub(crate) const LBA: usize = 512;

/// Content of the medium, which several devices may share.
pub(crate) type Medium = Arc<Mutex<Vec<u8>>>;

pub(crate) struct Forgetful(Arc<Shared>);

struct Shared {
    medium: Medium,
    state: Mutex<State>,
}

struct State {
    is_volatile: bool,
    is_off: bool,
    /// Content that reads return.
    cached: Vec<u8>,
    /// LBAs that the medium has otherwise.
    dirty: BTreeSet<usize>,
    flushes: u64,
    writes: u64,
}

impl Forgetful {
    pub(crate) fn new(mib: usize) -> Arc<Forgetful> {
        Forgetful::over(Arc::new(Mutex::new(vec![0; mib << 20])))
    }

    pub(crate) fn over(medium: Medium) -> Arc<Forgetful> {
        let cached = medium.lock().clone();
        let state = State {
            is_volatile: true,
            is_off: false,
            cached,
            dirty: BTreeSet::new(),
            flushes: 0,
            writes: 0,
        };
        Arc::new(Forgetful(Arc::new(Shared { medium, state: Mutex::new(state) })))
    }

    /// From now on nothing that is done has an effect.
    pub(crate) fn power_off(&self) {
        self.0.state.lock().is_off = true;
    }

    /// It is as the medium is.
    pub(crate) fn power_on(&self) {
        let mut state = self.0.state.lock();
        state.cached.clone_from(&self.0.medium.lock());
        state.dirty.clear();
        state.is_off = false;
    }

    pub(crate) fn set_volatile(&self, is_volatile: bool) {
        self.0.state.lock().is_volatile = is_volatile;
    }

    pub(crate) fn medium(&self) -> Vec<u8> {
        self.0.medium.lock().clone()
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.0.state.lock().flushes
    }

    pub(crate) fn writes(&self) -> u64 {
        self.0.state.lock().writes
    }

    /// Bytes that would be lost.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.0.state.lock().dirty.len() * LBA
    }
}

impl Device for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Immediate::new(self.0.clone(), depth)))
    }
    fn discards_zero(&self) -> bool {
        true
    }
    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

impl Shared {
    fn geometry(&self) -> Geometry {
        let state = self.state.lock();
        Geometry {
            lba_size: 512,
            capacity: LbaCount((state.cached.len() / LBA) as u64),
            preferred_write_size: 4096,
            max_transfer_size: 1 << 20,
            discard_granularity: 4096,
            placement_handles: 0,
            volatile_write_cache: state.is_volatile,
        }
    }
}

impl Execute for Shared {
    fn execute(&self, Command { tag, mut op }: Command) -> Completion {
        let mut result = op.check("forgetful", &self.geometry());
        if result.is_ok() {
            let (lba, bytes) = op.range(512);
            let start = usize::try_from(lba.0).unwrap() * LBA;
            let range = start..start + usize::try_from(bytes).unwrap();
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let is_write = !matches!(op, Op::Read { .. } | Op::Flush);
            let is_durable = matches!(op, Op::Flush | Op::Write { fua: true, .. });
            if state.is_off {
                if !is_write || is_durable {
                    let cause = Cause::Os { kind: ErrorKind::Io, message: "no power".to_owned() };
                    result = Err(DeviceError::new("forgetful", op.kind(), lba, bytes, cause));
                }
            } else {
                match &mut op {
                    Op::Read { buf, .. } => buf.copy_from_slice(&state.cached[range.clone()]),
                    Op::Write { buf, .. } => state.cached[range.clone()].copy_from_slice(buf),
                    Op::Discard { .. } | Op::WriteZeroes { .. } => {
                        state.cached[range.clone()].fill(0);
                    }
                    Op::Flush => {}
                }
                if is_write {
                    state.writes += 1;
                    state.dirty.extend(range.start / LBA..range.end / LBA);
                }
                if is_durable || !state.is_volatile {
                    state.flushes += u64::from(matches!(op, Op::Flush));
                    let mut medium = self.medium.lock();
                    for lba in std::mem::take(&mut state.dirty) {
                        let range = lba * LBA..(lba + 1) * LBA;
                        medium[range.clone()].copy_from_slice(&state.cached[range]);
                    }
                }
            }
        }
        Completion { tag, result, buf: op.into_buf() }
    }
}
