//! Emulated devices: content that is stored for real, behind a model of when commands finish.
//!
//! A [`Model`] executes a command on its content when it is submitted and says later, in terms of
//! its own events, when the command is finished. An [`Emulation`] holds the model, gives it the
//! time and hands finished commands to the queue pairs they came from. Several devices may stand
//! on one emulation: the namespaces of a drive ([`Emulated`], told apart by [`Model::Part`]).
//!
//! | module | contents |
//! | --- | --- |
//! | `pace` | [`Pace`]: untimed, real, dilated or virtual |
//! | `emulation` | [`Emulation`]: the model, and the commands in flight |
//! | `device` | [`Emulated`]: a part of it as a device |
//! | `queue` | its queue pairs |
//! | `wait` | how their threads wait on a clock that moves by itself |
//! | `waiters` | [`Waits`]: the leader and the followers |
//! | `lateness` | how late sleeps end, and how much of a wait is spun therefore |
//! | `content` | [`Content`]: the data of a model, on any device |
//!
//! Invariants
//! 1. A command is handed out at or after the model's time of its end, never before.
//! 2. The model sees a time that never goes back, and every event up to a command's start has run
//!    before it starts.
//! 3. Commands that are wrong in themselves, or fail when they start, take no time.
//! 4. One of the threads that wait is awake for the model's next moment; a thread is woken when a
//!    command of its own has finished, or to take that one's place.
//! 5. No memory is allocated per command in steady state.

mod content;
mod device;
mod emulation;
mod lateness;
mod pace;
mod queue;
mod wait;
mod waiters;

use esker_base::Nanos;
use esker_device::{DeviceError, DeviceStats, Identity, Op};

pub use content::Content;
pub use device::Emulated;
pub use emulation::{Emulation, Handout};
pub use pace::Pace;
pub use waiters::Waits;

/// The name of a command in flight. Small: a ticket is given again once its command is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// The list of finished commands of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListId(u32);

/// When a command starts, and the name by which the model says that it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The moment. All events up to it have run.
    pub now: Nanos,
    /// The command's name until it is finished.
    pub ticket: Ticket,
}

/// Content of a device, and the times at which its commands finish.
pub trait Model: Send {
    /// Identity of one device on the model: a namespace's place on the drive, say.
    type Part: Send + Sync;

    /// Executes `op`, which fits the device's geometry, on the content at once. With a start, also
    /// schedules its end, which [`Model::advance`] tells; without one, time is not modelled and
    /// returning finishes it.
    ///
    /// # Errors
    /// The command fails, and its ticket is free again.
    fn start(
        &mut self,
        part: &Self::Part,
        op: &mut Op,
        start: Option<Start>,
    ) -> Result<(), DeviceError>;

    /// The time of the next event. There is one for as long as a command is unfinished.
    fn next_event(&self) -> Option<Nanos>;

    /// A moment before which no command finishes unless more start. Whoever waits sleeps until then,
    /// and the events up to it run together. There is one for as long as a command is unfinished.
    fn next_finish(&self) -> Option<Nanos> {
        self.next_event()
    }

    /// Runs all events up to and including `to`, in their order, and appends the commands that
    /// finished, with the exact time.
    fn advance(&mut self, to: Nanos, finished: &mut Vec<(Ticket, Nanos)>);

    /// When a command that has just finished went to the media, if the model holds commands back.
    fn issued(&self, ticket: Ticket) -> Option<Nanos> {
        let _ = ticket;
        None
    }

    /// Adds figures to a device's statistics that only the model knows: bytes written to the media, the devices that
    /// store the content.
    fn account(&self, part: &Self::Part, stats: &mut DeviceStats) {
        let _ = (part, stats);
    }

    /// Identity that tells a device on the model from others, if the device that stores it says so.
    fn identity(&self, part: &Self::Part) -> Option<Identity> {
        let _ = part;
        None
    }

    /// Remarks on the model for the user: the figures in it that are assumptions, say.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}
