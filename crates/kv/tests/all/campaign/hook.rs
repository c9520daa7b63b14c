//! A device that stops at a command of one's choice until somebody has done something, perhaps with it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use esker_base::sync::Mutex;
use esker_device::Device;
use esker_sim::{Fate, HookDevice};

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
        let hook = self.clone();
        Arc::new(HookDevice::new(inner).on_command(move |_| {
            hook.pass();
            Fate::Pass
        }))
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
