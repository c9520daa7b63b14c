//! A part of an emulation as a device.

use std::sync::Arc;

use esker_device::{
    Completion, Counters, Device, DeviceError, DeviceStats, Geometry, Identity, QueuePair,
};

use super::Model;
use super::emulation::{Emulation, Ended};
use super::queue::Queue;

/// A device on an emulation: all of its model, or a part such as a namespace.
pub struct Emulated<M: Model> {
    emulation: Arc<Emulation<M>>,
    namespace: Arc<Namespace<M::Part>>,
}

/// One device on an emulation.
pub(super) struct Namespace<P> {
    pub(super) name: String,
    pub(super) geometry: Geometry,
    pub(super) part: P,
    counters: Counters,
}

impl<M: Model + 'static> Emulated<M> {
    /// The device called `name` with this geometry on `part` of the emulation's model.
    #[must_use]
    pub fn new(
        emulation: Arc<Emulation<M>>,
        name: &str,
        geometry: Geometry,
        part: M::Part,
    ) -> Emulated<M> {
        let (name, counters) = (name.to_owned(), Counters::default());
        Emulated { emulation, namespace: Arc::new(Namespace { name, geometry, part, counters }) }
    }

    /// The emulation it stands on.
    #[must_use]
    pub fn emulation(&self) -> &Arc<Emulation<M>> {
        &self.emulation
    }

    /// The part of the model it is.
    #[must_use]
    pub fn part(&self) -> &M::Part {
        &self.namespace.part
    }
}

impl<M: Model + 'static> Device for Emulated<M> {
    fn name(&self) -> &str {
        &self.namespace.name
    }

    fn geometry(&self) -> Geometry {
        self.namespace.geometry
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(&self.namespace.name, depth)?;
        Ok(Box::new(Queue::new(self.emulation.clone(), self.namespace.clone(), depth)))
    }

    fn identity(&self) -> Option<Identity> {
        self.emulation.with(|model| model.identity(&self.namespace.part))
    }

    fn stats(&self) -> DeviceStats {
        let Namespace { name, part, counters, .. } = &*self.namespace;
        let mut stats = counters.snapshot(name);
        self.emulation.with(|model| model.account(part, &mut stats));
        stats
    }

    fn remarks(&self) -> Vec<String> {
        self.emulation.with(|model| model.remarks())
    }
}

impl<P> Namespace<P> {
    /// Counts a command that ended, and makes its completion.
    pub(super) fn complete(&self, Ended { tag, op, result, .. }: Ended) -> Completion {
        self.counters.count(&op, &self.geometry, &result);
        Completion { tag, result, buf: op.into_buf() }
    }
}
