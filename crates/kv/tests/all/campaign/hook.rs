//! A device that stops at a command of one's choice until somebody has done something, perhaps with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use esker_base::sync::Mutex;
use esker_device::{Command, Completion, Device, DeviceError, DeviceStats, Geometry, QueuePair};

/// Stops at a command, once it is [armed](Hook::during).
#[derive(Clone, Default)]
pub(crate) struct Hook(Arc<Mutex<Option<Armed>>>);

struct Armed {
    /// Commands to come before the one at which it stops.
    left: u64,
    reached: SyncSender<()>,
    done: Receiver<()>,
}

impl Hook {
    /// The same device, which stops where the hook says.
    pub(crate) fn on(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Hooked { inner, hook: self.clone() })
    }

    /// Runs `work`, and `meanwhile` while the device stands still at the `nth` command of it. Whether it
    /// came to that.
    pub(crate) fn during<T>(
        &self,
        nth: u64,
        meanwhile: impl FnOnce() + Send,
        work: impl FnOnce() -> T,
    ) -> (T, bool) {
        let (reached, is_reached) = sync_channel(0);
        let (is_done, done) = sync_channel(0);
        *self.0.lock() = Some(Armed { left: nth, reached, done });
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let comes = is_reached.recv().is_ok();
                if comes {
                    meanwhile();
                    is_done.send(()).expect("the device waits");
                }
                comes
            });
            let result = work();
            *self.0.lock() = None;
            (result, other.join().expect("a thread that calls"))
        })
    }

    fn pass(&self) {
        let mut armed = self.0.lock();
        if let Some(at) = armed.as_mut().filter(|at| at.left > 0) {
            at.left -= 1;
            return;
        }
        let at = armed.take();
        // Others may come here meanwhile.
        drop(armed);
        if let Some(at) = at {
            at.reached.send(()).expect("somebody waits for it");
            at.done.recv().expect("and says when it is done");
        }
    }
}

struct Hooked {
    inner: Arc<dyn Device>,
    hook: Hook,
}

impl Device for Hooked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue { inner: self.inner.queue_pair(depth)?, hook: self.hook.clone() }))
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

struct Queue {
    inner: Box<dyn QueuePair>,
    hook: Hook,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        commands.iter().for_each(|_| self.hook.pass());
        self.inner.submit(commands)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.inner.poll(done)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.inner.wait(done, timeout)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
