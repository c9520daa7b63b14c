//! A pool that its volumes share: it is open as long as one of them is, and closed by the last one.
//!
//! It knows the specifications of its devices, by the names of the devices.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use esker_base::sync::Mutex;
use esker_device::{Device, DeviceError, QueuePair, forward};
use esker_volume::{Pool, VolumeError};

use crate::closings::Closings;
use crate::{Spec, StackError};

/// An open pool, which is closed when it is dropped. A pool that cannot be closed is left as after a crash: nothing
/// that was acknowledged is lost.
pub struct OpenPool {
    pool: Option<Pool>,
    specs: Mutex<BTreeMap<String, Spec>>,
    closings: Closings,
}

impl OpenPool {
    /// An open pool whose volumes share it.
    pub(crate) fn new(
        pool: Pool,
        specs: BTreeMap<String, Spec>,
        closings: Closings,
    ) -> Arc<OpenPool> {
        Arc::new(OpenPool { pool: Some(pool), specs: Mutex::new(specs), closings })
    }

    /// A device of this name was added, and this is its specification.
    pub fn learn(&self, device: &str, spec: &Spec) {
        self.specs.lock().insert(device.to_owned(), spec.clone());
    }

    /// The specifications of its devices, by their names.
    #[must_use]
    pub fn specs(&self) -> BTreeMap<String, Spec> {
        self.specs.lock().clone()
    }

    /// A volume, or a snapshot of one, as a device that keeps the pool open.
    ///
    /// # Errors
    /// There is no such volume or snapshot.
    pub fn device(
        self: &Arc<OpenPool>,
        name: &str,
        snapshot: Option<&str>,
    ) -> Result<Arc<dyn Device>, VolumeError> {
        let volume = match snapshot {
            Some(snapshot) => self.volume_at(name, snapshot)?,
            None => self.volume(name)?,
        };
        Ok(Held::over(volume, self.clone(), self.remarks().to_vec()))
    }

    /// Closes the pool, unless volumes keep it open.
    ///
    /// # Errors
    /// The pool's; it is as after a crash then.
    pub fn close(self: Arc<OpenPool>) -> Result<(), VolumeError> {
        match Arc::into_inner(self).and_then(|mut pool| pool.pool.take()) {
            Some(pool) => pool.close(),
            None => Ok(()),
        }
    }
}

impl Deref for OpenPool {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        self.pool.as_ref().expect("a pool is taken out only when nobody has it any more")
    }
}

impl Drop for OpenPool {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            // The next open replays the write buffer.
            let name = pool.name().to_owned();
            if let Err(error) = pool.close() {
                self.closings.note(StackError::volume(format!("pool {name}"), &error));
            }
        }
    }
}

/// A device that keeps something as long as it, or a queue pair of it, is there: its pool open, or its server told.
pub(crate) struct Held {
    volume: Arc<dyn Device>,
    /// Dropped after the device.
    kept: Arc<dyn Send + Sync>,
    remarks: Vec<String>,
}

impl Held {
    pub(crate) fn over(
        volume: Arc<dyn Device>,
        kept: Arc<dyn Send + Sync>,
        remarks: Vec<String>,
    ) -> Arc<dyn Device> {
        Arc::new(Held { volume, kept, remarks })
    }
}

impl Device for Held {
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let inner = self.volume.queue_pair(depth)?;
        Ok(Box::new(Queue { inner, _volume: self.volume.clone(), _kept: self.kept.clone() }))
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = self.volume.remarks();
        remarks.extend_from_slice(&self.remarks);
        remarks
    }

    forward!(volume: name, geometry, discards_zero, usable_bytes, identity, is_prompt, stats, data_placement);
}

/// A queue pair that keeps the same.
struct Queue {
    inner: Box<dyn QueuePair>,
    _volume: Arc<dyn Device>,
    _kept: Arc<dyn Send + Sync>,
}

impl QueuePair for Queue {
    forward!(inner: submit, poll, wait, in_flight);
}
