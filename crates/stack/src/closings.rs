//! Failures of devices that are closed when their last user lets go of them: a drop has nobody to tell.

use std::any::Any;
use std::sync::Arc;

use esker_base::sync::Mutex;
use esker_cache::Cache;

use crate::{CacheSpec, Spec, StackError};

/// Failures to close devices, for all stacks that were given a clone of it.
#[derive(Clone, Default)]
pub struct Closings(Arc<Mutex<Vec<StackError>>>);

impl Closings {
    /// Returns the failures since the last call. A device is closed once its user, and every queue pair of it, is
    /// dropped.
    #[must_use]
    pub fn take(&self) -> Vec<StackError> {
        std::mem::take(&mut self.0.lock())
    }

    /// Keeps the failure of a device that could not be closed.
    pub(crate) fn note(&self, failure: StackError) {
        self.0.lock().push(failure);
    }
}

/// Is called with a cache that was opened. The result is kept while the cache is open, and dropped before it is closed.
pub type ServeCache = fn(&Arc<Cache>, &CacheSpec) -> Option<Box<dyn Any + Send + Sync>>;

/// A cache as a device of a stack, which is closed with its last user.
pub(crate) struct OpenCache {
    cache: Option<Arc<Cache>>,
    spec: Spec,
    served: Option<Box<dyn Any + Send + Sync>>,
    closings: Closings,
}

impl OpenCache {
    pub(crate) fn new(
        cache: Arc<Cache>,
        spec: Spec,
        served: Option<Box<dyn Any + Send + Sync>>,
        closings: Closings,
    ) -> OpenCache {
        OpenCache { cache: Some(cache), spec, served, closings }
    }
}

impl Drop for OpenCache {
    fn drop(&mut self) {
        let Some(cache) = self.cache.take() else { return };
        drop(self.served.take());
        // Somebody may look at its figures at this moment.
        let closed = match Arc::try_unwrap(cache) {
            Ok(cache) => cache.shut(),
            Err(shared) => shared.close(),
        };
        if let Err(error) = closed {
            self.closings.note(StackError::cache(&self.spec, &error));
        }
    }
}

#[cfg(test)]
mod tests {
    use esker_base::{AlignedBuf, Lba};
    use esker_cache::{CreateOptions, Mode, OpenOptions};
    use esker_device::{Device, MemoryDevice, Port};
    use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

    use super::*;
    use crate::Stack;
    use crate::pool::Held;

    fn memory(plan: &FaultPlan, bytes: u64) -> Arc<dyn Device> {
        Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("memory", bytes, 4096)), plan))
    }

    fn break_writes(plan: &FaultPlan) {
        plan.from_then_on(Target::Write, plan.seen(Target::Write), Effect::Fail);
        plan.from_then_on(Target::Flush, plan.seen(Target::Flush), Effect::Fail);
    }

    #[test]
    fn cache_that_cannot_be_closed_is_noted_with_its_dirty_bytes() {
        for breaks in [false, true] {
            let (plan, closings) = (FaultPlan::new(), Closings::default());
            let (origin, flash) = (memory(&FaultPlan::new(), 16 << 20), memory(&plan, 8 << 20));
            let options = CreateOptions { mode: Mode::WriteBack, ..CreateOptions::default() };
            Cache::create(&*origin, &flash, &options).unwrap();
            let options = OpenOptions { sequential_bytes: 0, ..OpenOptions::default() };
            let cache = Arc::new(Cache::open(origin, flash, options).unwrap());
            let open =
                OpenCache::new(cache.clone(), "mem:16MiB".parse().unwrap(), None, closings.clone());
            let device = Held::over(cache, Arc::new(open), Vec::new());
            let mut port = Port::open(&*device, 4).unwrap();
            for block in 0..16 {
                port.write(Lba(block), AlignedBuf::zeroed(4096), None).unwrap();
            }
            if breaks {
                break_writes(&plan);
            }
            drop(device);
            assert!(closings.take().is_empty(), "a queue pair keeps it open");
            drop(port);
            let failures = closings.take();
            assert_eq!(failures.len(), usize::from(breaks), "{failures:?}");
            for failure in failures {
                let said = failure.to_string();
                assert!(said.contains("64.00 KiB were not written back"), "{said}");
            }
        }
    }

    #[test]
    fn drive_and_trace_whose_files_are_full_are_noted() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("drive.img");
        let closings = Closings::default();
        let stack = Stack::new().noting(closings.clone());
        // /dev/full takes nothing.
        let trace = dir.path().join("trace");
        std::os::unix::fs::symlink("/dev/full", &trace).unwrap();
        let spec = format!("traced:(mem:1MiB)?to={}&if-exists=replace", trace.display());
        let traced = stack.open(&spec.parse().unwrap(), esker_device::Create::IfMissing);
        drop(traced.unwrap());
        let failures = closings.take();
        assert_eq!(failures.len(), 1, "{failures:?}");
        let names_once = |said: &str| said.matches(&trace.display().to_string()).count() == 1;
        assert!(names_once(&failures[0].to_string()), "{}", failures[0]);
        let made = stack.open(
            &format!("traced:(mem:1MiB)?to={}", trace.display()).parse().unwrap(),
            esker_device::Create::IfMissing,
        );
        let refused = made.err().unwrap().to_string();
        assert!(names_once(&refused) && refused.contains(": there is a file"), "{refused}");
        let spec = format!("ssd:micron-7450?capacity=256MiB&time=none&image={}", image.display());
        let drive = stack.open(&spec.parse().unwrap(), esker_device::Create::New).unwrap();
        drop(drive);
        assert!(closings.take().is_empty());
    }
}
