//! SIGINT and SIGTERM end a run in order. The process of the trial under way is killed, and the run's database and
//! cgroup are removed as at its end.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_base::thread;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result};

/// Whether one has come.
pub(crate) struct Stop(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    asked: bool,
    /// The process to kill: by a descriptor, for its number may be another's when it has ended.
    running: Option<OwnedFd>,
}

impl State {
    fn kill(&self) {
        if let Some(process) = &self.running {
            // It may have ended by itself.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

impl Stop {
    /// Catches them from now on.
    pub(crate) fn catch() -> Result<Stop> {
        let refused = |cause: io::Error| Failure::new(format!("cannot wait for signals: {cause}"));
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(refused)?;
        let state = Arc::new(Mutex::new(State::default()));
        let seen = Arc::clone(&state);
        thread::spawn("signals", move || {
            for _ in &mut signals {
                let mut state = locked(&seen);
                state.asked = true;
                state.kill();
            }
        })
        .map_err(refused)?;
        Ok(Stop(state))
    }

    /// Has `child` killed when one comes, or has come.
    pub(crate) fn ends(&self, child: &Child) -> io::Result<()> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let mut state = locked(&self.0);
        state.running = Some(process);
        if state.asked {
            state.kill();
        }
        Ok(())
    }

    pub(crate) fn asked(&self) -> bool {
        locked(&self.0).asked
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
