//! The end of a cache in which a thread has panicked: nothing goes on then.
//!
//! Invariants
//! 1. A cache that has stopped takes no new command, writes no metadata but in [`Cache::close`](crate::Cache), and
//!    says why. Commands that wait for another one end.
//! 2. It is as after a crash: the flash device has what was flushed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use esker_base::{Lba, thread};
use esker_device::{Cause, DeviceError, OpKind};

use super::Shared;
use crate::CacheError;

/// Whether the cache has stopped.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<OnceLock<Stopped>>);

struct Stopped {
    why: String,
    /// Whether the panic left the state in memory whole: it came from a device, while nothing was being changed.
    is_whole: bool,
}

impl Shared {
    /// Nothing goes on from now on.
    pub(crate) fn stop_for(&self, why: String, is_whole: bool) {
        let _ = self.stop.0.set(Stopped { why, is_whole }); // the first reason counts
    }

    /// Fails if the cache has stopped.
    #[inline]
    pub(crate) fn check_running(&self) -> Result<(), CacheError> {
        match self.stop.0.get() {
            None => Ok(()),
            Some(Stopped { why, .. }) => {
                let device = self.flash.name().to_owned();
                Err(CacheError::Stopped { device, why: why.clone() })
            }
        }
    }

    /// Whether names may still be written: nothing has stopped in the middle of a change.
    pub(crate) fn is_whole(&self) -> bool {
        self.stop.0.get().is_none_or(|stopped| stopped.is_whole)
    }

    /// The same as the error of a queue pair.
    pub(crate) fn stopped_queue(&self) -> DeviceError {
        let why = match self.check_running() {
            Err(error) => error.to_string(),
            Ok(()) => "a thread has panicked".to_owned(),
        };
        DeviceError::new(&self.name, OpKind::Open, Lba(0), 0, Cause::Gone(why))
    }

    /// Does work of the cache's own. A panic in it stops the cache.
    pub(crate) fn guard<T>(
        &self,
        work: impl FnOnce() -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        self.check_running()?;
        self.caught(false, work)
    }

    /// Has a device do commands, while nothing is being changed and no lock but the cleaner's and the gate is held.
    /// A panic of the device stops the cache, and is an error.
    pub(crate) fn guard_device<T>(
        &self,
        work: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, CacheError> {
        self.caught(true, || Ok(work()?))
    }

    fn caught<T>(
        &self,
        is_whole: bool,
        work: impl FnOnce() -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let why = format!("its own work has panicked: {}", thread::said(&*panic));
            self.stop_for(why.clone(), is_whole);
            let device = self.flash.name().to_owned();
            Err(self.check_running().err().unwrap_or(CacheError::Stopped { device, why }))
        })
    }
}
