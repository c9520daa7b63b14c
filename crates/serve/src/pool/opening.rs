//! Devices that a change opens before its turn: one that is slow, or never answers, holds up no other change.
//!
//! Invariant: a specification is opened for one request at a time. Another request for it waits until the first has
//! ended, and then finds what that one has done.

use std::sync::Arc;
use std::time::Duration;

use esker_base::ErrorKind;
use esker_device::Device;
use esker_stack::Spec;
use parking_lot::{Condvar, Mutex};

use crate::error::{Result, ServeError};

/// The longest wait for a request that opens the same device.
const PATIENCE: Duration = Duration::from_secs(60);

/// Specifications that requests are opening.
#[derive(Default)]
pub(crate) struct Openings {
    busy: Mutex<Vec<Spec>>,
    freed: Condvar,
}

/// A specification that is one request's, until this is dropped.
pub(crate) struct Turn {
    of: Arc<Openings>,
    spec: Spec,
}

/// A device with its specification, unless the pool knows it by that already; or the reason why it cannot be had.
pub(super) type Found = Result<(Arc<dyn Device>, Option<Spec>)>;

/// A device that was opened for a change.
pub(crate) struct Opened {
    device: Option<Found>,
    _turn: Turn,
}

impl Openings {
    /// Waits until no other request opens this specification.
    pub(super) fn take(self: &Arc<Openings>, spec: &Spec) -> Result<Turn> {
        let spec = spec.for_reopening()?;
        let mut busy = self.busy.lock();
        let waits = |busy: &mut Vec<Spec>| busy.contains(&spec);
        if self.freed.wait_while_for(&mut busy, waits, PATIENCE).timed_out() {
            let why = format!("{spec}: another request is opening it; ask again when it has ended");
            return Err(ServeError::new(ErrorKind::Retry, why));
        }
        busy.push(spec.clone());
        drop(busy);
        Ok(Turn { of: self.clone(), spec })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of.busy.lock().retain(|one| *one != self.spec);
        self.of.freed.notify_all();
    }
}

impl Opened {
    /// The device, or its lack.
    pub(super) fn new(turn: Turn, device: Found) -> Opened {
        Opened { device: Some(device), _turn: turn }
    }

    /// No device was needed when the request came.
    pub(super) fn not_needed(turn: Turn) -> Opened {
        Opened { device: None, _turn: turn }
    }

    /// The device.
    pub(super) fn take(&mut self) -> Found {
        self.device.take().unwrap_or_else(|| {
            let why = "the drive has changed while the request waited; ask again";
            Err(ServeError::new(ErrorKind::Retry, why))
        })
    }
}
