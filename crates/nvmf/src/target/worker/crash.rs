//! The end of a worker that panics.
//!
//! Its connections are closed, so that their hosts connect again, and another worker takes its place: with its
//! listeners and its mailbox, where messages for connections that are gone find nobody. The old thread stays until
//! the devices have ended the commands that it gave them. Until then these are late ones: they fence their LBAs, and
//! their buffers and their namespaces stay.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::{Nanos, thread};
use esker_device::Completion;

use super::{TICK, Worker};
use crate::target::connection::Connection;
use crate::target::connection::core::DeviceQueue;
use crate::target::ids::{Id, Place};
use crate::target::subsystem::late::LateCommand;

/// How often the devices are looked at, which nobody waits for but late commands.
const PAUSE: Duration = Duration::from_millis(1);

/// A command of a connection that was closed, which a device still has.
struct Orphan {
    queue: Id<DeviceQueue>,
    pieces: u32,
    _late: LateCommand,
}

/// By connection and slot.
type Orphans = BTreeMap<(usize, u16), Orphan>;

impl Worker {
    /// Closes the connections, has another worker started, and waits for the devices.
    pub(super) fn crashed(mut self, message: &str, began: Nanos) {
        let (shared, index) = (self.core.shared.clone(), self.core.index);
        shared.panicked(format!("worker {index} has panicked: {message}"));
        let _ = catch_unwind(AssertUnwindSafe(|| self.take_back_all()));
        let mut orphans = Orphans::new();
        for place in 0..self.connections.len() {
            let Some(mut connection) = self.connections[place].take() else { continue };
            // State that the panic left behind may cause another panic: the connection is closed all the same.
            let closed = catch_unwind(AssertUnwindSafe(|| self.orphan(&mut connection)));
            orphans.extend(closed.into_iter().flatten());
            shared.admission.leave(connection.visitor);
            shared.mailboxes[index].load.fetch_sub(1, Ordering::Relaxed);
        }
        let listeners = std::mem::take(&mut self.listeners).into_open();
        if !shared.is_stopped.load(Ordering::Acquire) {
            // A cause that is still there does not get a processor to itself.
            shared.clock.sleep((began + TICK).since(shared.clock.now()));
            if Worker::start(&shared, index, listeners).is_err() {
                shared.stop(); // hosts would wait for it
            }
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.wait_for_devices(&mut orphans))) {
            let _ = catch_unwind(AssertUnwindSafe(|| self.core.devices.take(|_| true).clear()));
            let message = thread::said(&*panic);
            shared.panicked(format!("a device of worker {index} has panicked: {message}"));
        }
    }

    /// Takes back the commands that no device has: they do not happen.
    fn take_back_all(&mut self) {
        let mut last = None;
        while let Some(id) = self.core.devices.after(last) {
            last = Some(id);
            for (place, _) in self.core.take_back(id, |_| true, 0) {
                let connection = self.connections.get_mut(place.connection);
                if let Some(connection) = connection.and_then(Option::as_deref_mut) {
                    let job = connection.job(place.slot);
                    job.pieces = job.pieces.saturating_sub(1);
                }
            }
        }
    }

    /// Ends a connection, and returns its commands that devices have.
    fn orphan(&mut self, connection: &mut Connection) -> Orphans {
        connection.end(&mut self.core);
        let mut orphans = Orphans::new();
        for (index, slot) in (0..connection.jobs.len()).zip(0..) {
            let job = &mut connection.jobs[index];
            let (pieces, used) = (job.pieces, job.used);
            if let Some(late) = job.late.take()
                && let Some(used) = used.and_then(|id| connection.uses.get(id))
            {
                let orphan = Orphan { queue: used.queue, pieces, _late: late };
                orphans.insert((connection.index, slot), orphan);
            }
        }
        connection.retire(&mut self.core);
        orphans
    }

    fn wait_for_devices(&mut self, orphans: &mut Orphans) {
        let shared = self.core.shared.clone();
        let mut end = None;
        loop {
            for (id, device) in self.core.devices.iter_mut() {
                let mut done = Vec::new();
                // One that is broken has ended its commands, or is waited for until the target is closed.
                let _ = device.queue.poll(&mut done, None);
                done.iter().for_each(|one| ended(orphans, one));
                if device.queue.in_flight() == 0 {
                    orphans.retain(|_, one| one.queue != id);
                }
            }
            self.core.devices.take(|one| one.queue.in_flight() == 0).clear();
            if self.core.devices.iter().next().is_none() {
                return;
            }
            let now = shared.clock.now();
            if shared.is_stopped.load(Ordering::Acquire)
                && now >= *end.get_or_insert(now + shared.limits.closing)
            {
                return self.abandon_devices();
            }
            shared.clock.sleep(PAUSE);
        }
    }
}

/// A device has ended a piece of a command.
fn ended(orphans: &mut Orphans, completion: &Completion) {
    let Place { connection, slot, .. } = Place::of(completion.tag);
    let Some(orphan) = orphans.get_mut(&(connection, slot.0)) else { return };
    orphan.pieces = orphan.pieces.saturating_sub(1);
    if orphan.pieces == 0 {
        orphans.remove(&(connection, slot.0));
    }
}
