//! A device on which chosen commands fail, come up short, are delayed, lost, misdirected or carry wrong bits.
//!
//! | a device that | is made of |
//! | --- | --- |
//! | fails | [`Effect::Fail`] |
//! | loses a write that it acknowledged; lies about a flush | [`Effect::Lose`] |
//! | writes or reads another place | [`Effect::Misdirect`] |
//! | flips bits | [`Effect::Corrupt`] |
//! | is slow | [`Effect::DelaySpan`], from a command on |
//! | is stuck | [`Effect::Hang`] |
//! | returns with an earlier content | [`ImageDevice::fork`](crate::ImageDevice::fork), put back later |
//!
//! A [`FaultPlan`] counts commands over all devices it is shared with, in the order in which they
//! are submitted, so a test can break command 0, 1, 2… of a program until none is left:
//!
//! ```
//! # use std::sync::Arc;
//! # use esker_base::{AlignedBuf, Lba};
//! # use esker_device::{MemoryDevice, Port};
//! use esker_sim::{Effect, FaultDevice, FaultPlan, Target};
//!
//! for n in 0.. {
//!     let plan = FaultPlan::new();
//!     plan.once(Target::Any, n, Effect::Fail);
//!     let device = FaultDevice::new(Arc::new(MemoryDevice::new("m", 1 << 20, 512)), &plan);
//!     let mut port = Port::open(&device, 1)?;
//!     let result = port.write(Lba(0), AlignedBuf::zeroed(512), None).and_then(|_| port.flush());
//!     assert_eq!(result.is_err(), plan.fired() > 0);
//!     if plan.fired() == 0 {
//!         break;
//!     }
//! }
//! # Ok::<(), esker_device::DeviceError>(())
//! ```

mod queue;

use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, Lba, LbaCount};
use esker_device::{Device, DeviceError, Op, OpKind, QueuePair, forward};
use parking_lot::Mutex;

/// Which commands a fault counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All of them.
    Any,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards and write-zeroes commands.
    Discard,
}

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// At one command.
    Once,
    /// At this command and at every later one.
    FromThenOn,
}

/// Effect of a fault on a command.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It never reaches the device, and completes with
    /// [`Cause::Media`](esker_device::Cause::Media).
    Fail,
    /// It never reaches the device, and completes as if the medium behind the device were full: a file
    /// on a full file system.
    NoSpace,
    /// Half of its LBAs, rounded down, reach the device, and it completes with
    /// [`Cause::Short`](esker_device::Cause::Short). A flush never reaches the device.
    Short,
    /// It runs, and completes only when `span` has passed on `clock`. Waiting moves a virtual
    /// clock.
    DelaySpan {
        /// The clock that counts.
        clock: Clock,
        /// How long.
        span: Duration,
    },
    /// It runs, and is held back from the first `count` polls that could have handed it out.
    DelayPolls {
        /// How many polls; a wait polls until something completes.
        count: u32,
    },
    /// It never reaches the device, and completes as if it had: a lost write, a flush that made nothing
    /// durable. Nothing happens to a read.
    Lose,
    /// A read or a write goes to the LBA `distance` further on, round the end of the device, and
    /// succeeds. Nothing happens to other commands.
    Misdirect {
        /// How many LBAs.
        distance: LbaCount,
    },
    /// It runs, and does not complete until [`FaultPlan::heal`].
    Hang,
    /// The bits of `mask` are flipped in the byte at `offset` modulo the size of a read or a
    /// write; it succeeds. Nothing happens to other commands.
    Corrupt {
        /// The offset of the byte in the command's data.
        offset: usize,
        /// The bits.
        mask: u8,
    },
}

/// A fault: its effect on command number `nth` (from 0) of `target`.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which commands count.
    pub target: Target,
    /// How many of them pass before.
    pub nth: u64,
    /// Whether later ones are hit too.
    pub repeat: Repeat,
    /// The effect on the command.
    pub effect: Effect,
}

/// The faults of one or several devices. Clones are the same plan.
#[derive(Clone, Default)]
pub struct FaultPlan(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    unreadable: Vec<Lba>,
    /// Commands seen: reads, writes, flushes, discards.
    seen: [u64; 4],
    fired: u64,
    /// The last command that was hit.
    struck: Option<(OpKind, Lba, LbaCount)>,
    /// How often the plan was healed.
    healed: u64,
}

impl FaultPlan {
    /// A plan without faults, which counts.
    #[must_use]
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// Adds a fault. When several match a command, the first one added strikes.
    pub fn add(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Adds a fault that strikes at one command.
    pub fn once(&self, target: Target, nth: u64, effect: Effect) {
        let repeat = Repeat::Once;
        self.add(Fault { target, nth, repeat, effect });
    }

    /// Adds a fault that strikes at every command from number `nth` on.
    pub fn from_then_on(&self, target: Target, nth: u64, effect: Effect) {
        let repeat = Repeat::FromThenOn;
        self.add(Fault { target, nth, repeat, effect });
    }

    /// Makes every read fail that touches this LBA of any of the devices: a sector that went bad.
    pub fn unreadable(&self, lba: Lba) {
        self.0.lock().unreadable.push(lba);
    }

    /// Removes all faults and lets go of commands that hang; the counts go on.
    pub fn heal(&self) {
        let mut state = self.0.lock();
        state.healed += 1;
        state.faults.clear();
        state.unreadable.clear();
    }

    /// How many commands of `target` were submitted so far.
    #[must_use]
    pub fn seen(&self, target: Target) -> u64 {
        self.0.lock().seen(target)
    }

    /// How many commands were hit so far.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.0.lock().fired
    }

    /// The last command that was hit: its kind, and the LBAs that it was meant for.
    #[must_use]
    pub fn struck(&self) -> Option<(OpKind, Lba, LbaCount)> {
        self.0.lock().struck
    }

    fn healed(&self) -> u64 {
        self.0.lock().healed
    }

    /// Counts a command of a device with such LBAs and returns the effect on it.
    fn next(&self, op: &Op, lba_size: u32) -> Option<Effect> {
        let mut state = self.0.lock();
        let strikes = |fault: &&Fault| {
            let hits = match fault.target {
                Target::Any => true,
                Target::Read => matches!(op, Op::Read { .. }),
                Target::Write => matches!(op, Op::Write { .. }),
                Target::Flush => matches!(op, Op::Flush),
                Target::Discard => matches!(op, Op::Discard { .. } | Op::WriteZeroes { .. }),
            };
            let seen = state.seen(fault.target);
            hits && match fault.repeat {
                Repeat::Once => seen == fault.nth,
                Repeat::FromThenOn => seen >= fault.nth,
            }
        };
        let (first, bytes) = op.range(lba_size);
        let count = LbaCount::holding(bytes, lba_size);
        let touches = |lba: &Lba| *lba >= first && *lba - first < count;
        let is_lost = op.kind() == OpKind::Read && state.unreadable.iter().any(touches);
        let effect = state.faults.iter().find(strikes).map(|f| f.effect.clone());
        let effect = effect.or(is_lost.then_some(Effect::Fail));
        state.seen[match op.kind() {
            OpKind::Read => 0,
            OpKind::Write => 1,
            OpKind::Flush => 2,
            _ => 3,
        }] += 1;
        let effect = effect.filter(|effect| match (effect, op.kind()) {
            (Effect::Corrupt { .. } | Effect::Misdirect { .. }, kind) => {
                matches!(kind, OpKind::Read | OpKind::Write)
            }
            (Effect::Lose, kind) => kind != OpKind::Read,
            _ => true,
        });
        if effect.is_some() {
            state.fired += 1;
            state.struck = Some((op.kind(), first, count));
        }
        effect
    }
}

impl State {
    fn seen(&self, target: Target) -> u64 {
        match target {
            Target::Any => self.seen.iter().sum(),
            Target::Read => self.seen[0],
            Target::Write => self.seen[1],
            Target::Flush => self.seen[2],
            Target::Discard => self.seen[3],
        }
    }
}

/// A device with the faults of a plan. Statistics and remarks are those of the wrapped device.
pub struct FaultDevice {
    device: Arc<dyn Device>,
    plan: FaultPlan,
}

impl FaultDevice {
    /// Wraps `device`.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, plan: &FaultPlan) -> FaultDevice {
        let plan = plan.clone();
        FaultDevice { device, plan }
    }
}

impl Device for FaultDevice {
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let inner = self.device.queue_pair(depth)?;
        Ok(Box::new(queue::Queue::new(&*self.device, inner, depth, self.plan.clone())))
    }

    forward!(device: name, geometry, discards_zero, usable_bytes, left_bytes, allocate, identity, stats, remarks);
}
