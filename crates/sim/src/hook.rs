//! A device whose calls a test sees, changes, answers, refuses or holds back.
//!
//! | a device that | is made of |
//! | --- | --- |
//! | records, counts or changes commands; stops or panics at one | [`HookDevice::on_command`], [`Fate::Pass`] |
//! | refuses commands of the test's choice | [`refusing`], [`Fate::Fail`] |
//! | answers commands itself | [`Fate::Done`] |
//! | is silent until the test says so | [`Fate::Hold`] |
//! | gives no queue pair | [`HookDevice::on_open`] |
//! | is resized, or has placement handles | [`HookDevice::with_geometry`] |
//!
//! For faults at the Nth command, or that the device itself gets wrong, see [`FaultDevice`](crate::FaultDevice).
//!
//! ```
//! # use std::sync::Arc;
//! # use std::sync::atomic::{AtomicU64, Ordering};
//! # use esker_device::{MemoryDevice, Port};
//! use esker_sim::{Fate, HookDevice};
//!
//! let flushes = Arc::new(AtomicU64::new(0));
//! let seen = flushes.clone();
//! let memory = Arc::new(MemoryDevice::new("m", 1 << 20, 512));
//! let device = HookDevice::new(memory).on_command(move |op| {
//!     seen.fetch_add(u64::from(matches!(op, esker_device::Op::Flush)), Ordering::Relaxed);
//!     Fate::Pass
//! });
//! Port::open(&device, 1)?.flush()?;
//! assert_eq!(flushes.load(Ordering::Relaxed), 1);
//! # Ok::<(), esker_device::DeviceError>(())
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esker_base::{Clock, Lba};
use esker_device::{
    Cause, Command, Completion, Device, DeviceError, Geometry, Op, OpKind, QueuePair, forward,
};

/// What becomes of a command.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It goes to the wrapped device, as the hook has left it.
    Pass,
    /// It never reaches the wrapped device, and succeeds. The hook fills the buffer of a read.
    Done,
    /// It never reaches the wrapped device, and fails.
    Fail(Cause),
    /// It waits. The hook is asked again at every poll, for the newest command first: those in flight have no order.
    Hold,
}

type OnCommand = Arc<dyn Fn(&mut Op) -> Fate + Send + Sync>;
type OnOpen = Box<dyn Fn() -> Result<(), Cause> + Send + Sync>;
type Shape = Box<dyn Fn(&mut Geometry) + Send + Sync>;
type Usable = Box<dyn Fn(Option<u64>) -> Option<u64> + Send + Sync>;

/// A device with hooks of a test. Everything that has no hook is as the wrapped device has it, but for two promises that a
/// hook may break: discards leave no zeroes, and it is not prompt.
pub struct HookDevice {
    device: Arc<dyn Device>,
    command: Option<OnCommand>,
    open: Option<OnOpen>,
    shape: Option<Shape>,
    usable: Option<Usable>,
    is_prompt: bool,
    /// Commands that wait in all queue pairs.
    held: Arc<AtomicUsize>,
}

impl HookDevice {
    /// Wraps `device`, without a hook.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> HookDevice {
        let (command, open, shape, usable) = (None, None, None, None);
        HookDevice { device, command, open, shape, usable, is_prompt: false, held: Arc::default() }
    }

    /// Calls `hook` for every command that is submitted through any queue pair, before the wrapped device sees it.
    #[must_use]
    pub fn on_command(self, hook: impl Fn(&mut Op) -> Fate + Send + Sync + 'static) -> HookDevice {
        HookDevice { command: Some(Arc::new(hook)), ..self }
    }

    /// Calls `hook` whenever a queue pair is asked for. There is none if it returns an error.
    #[must_use]
    pub fn on_open(
        self,
        hook: impl Fn() -> Result<(), Cause> + Send + Sync + 'static,
    ) -> HookDevice {
        HookDevice { open: Some(Box::new(hook)), ..self }
    }

    /// Has `shape` change the geometry that the wrapped device shows, whenever somebody asks for it.
    #[must_use]
    pub fn with_geometry(
        self,
        shape: impl Fn(&mut Geometry) + Send + Sync + 'static,
    ) -> HookDevice {
        HookDevice { shape: Some(Box::new(shape)), ..self }
    }

    /// Has `usable` change the usable bytes of the wrapped device, whenever somebody asks for them.
    #[must_use]
    pub fn with_usable_bytes(
        self,
        usable: impl Fn(Option<u64>) -> Option<u64> + Send + Sync + 'static,
    ) -> HookDevice {
        HookDevice { usable: Some(Box::new(usable)), ..self }
    }

    /// Has its users drive it themselves: see [`Device::is_prompt`]. Its hooks never block.
    #[must_use]
    pub fn prompt(self) -> HookDevice {
        HookDevice { is_prompt: true, ..self }
    }

    /// How many commands wait: see [`Fate::Hold`].
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

/// `device`, but for commands that `refuses` selects: these never reach it, and fail with [`Cause::Media`].
pub fn refusing(
    device: &Arc<dyn Device>,
    refuses: impl Fn(&Op) -> bool + Send + Sync + 'static,
) -> Arc<dyn Device> {
    Arc::new(HookDevice::new(device.clone()).on_command(move |op| match refuses(op) {
        true => Fate::Fail(Cause::Media("refused".to_owned())),
        false => Fate::Pass,
    }))
}

impl Device for HookDevice {
    fn geometry(&self) -> Geometry {
        let mut geometry = self.device.geometry();
        if let Some(shape) = &self.shape {
            shape(&mut geometry);
        }
        geometry
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        if let Some(open) = &self.open {
            open()
                .map_err(|cause| DeviceError::new(self.name(), OpKind::Open, Lba(0), 0, cause))?;
        }
        let inner = self.device.queue_pair(depth)?;
        let Some(hook) = self.command.clone() else { return Ok(inner) };
        let (name, lba_size) = (self.name().to_owned(), self.geometry().lba_size);
        let (passed, done) = (VecDeque::new(), Vec::new());
        let (held, all_held) = (VecDeque::new(), self.held.clone());
        Ok(Box::new(Queue { inner, hook, name, lba_size, depth, passed, held, all_held, done }))
    }

    fn usable_bytes(&self) -> Option<u64> {
        let usable = self.device.usable_bytes();
        self.usable.as_ref().map_or(usable, |change| change(usable))
    }

    fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    forward!(device: name, left_bytes, allocate, identity, stats, remarks, data_placement);
}

struct Queue {
    inner: Box<dyn QueuePair>,
    hook: OnCommand,
    name: String,
    lba_size: u32,
    depth: usize,
    /// Not yet taken by the wrapped device.
    passed: VecDeque<Command>,
    held: VecDeque<Command>,
    /// Those of all queue pairs.
    all_held: Arc<AtomicUsize>,
    done: Vec<Completion>,
}

impl Queue {
    fn ask(&mut self, mut command: Command) {
        let result = match (self.hook)(&mut command.op) {
            Fate::Pass => return self.passed.push_back(command),
            Fate::Hold => return self.held.push_back(command),
            Fate::Done => Ok(()),
            Fate::Fail(cause) => {
                let (kind, (lba, bytes)) = (command.op.kind(), command.op.range(self.lba_size));
                Err(DeviceError::new(&self.name, kind, lba, bytes, cause))
            }
        };
        self.done.push(Completion { tag: command.tag, result, buf: command.op.into_buf() });
    }

    fn pass(&mut self) -> Result<(), DeviceError> {
        if !self.passed.is_empty() {
            self.inner.submit(&mut self.passed)?;
        }
        Ok(())
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let mut taken = 0;
        let before = self.held.len();
        while self.in_flight() < self.depth
            && let Some(command) = commands.pop_front()
        {
            self.ask(command);
            taken += 1;
        }
        self.all_held.fetch_add(self.held.len() - before, Ordering::SeqCst);
        self.pass()?;
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let held = std::mem::take(&mut self.held);
        let before = held.len();
        held.into_iter().rev().for_each(|command| self.ask(command));
        self.held.make_contiguous().reverse();
        self.all_held.fetch_sub(before - self.held.len(), Ordering::SeqCst);
        self.pass()?;
        self.inner.poll(&mut self.done)?;
        let count = self.done.len();
        done.append(&mut self.done);
        Ok(count)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let clock = Clock::real();
        let began = clock.now();
        loop {
            let count = self.poll(done)?;
            let left = timeout.map(|most| most.saturating_sub(clock.now().since(began)));
            if count > 0 || self.in_flight() == 0 || left == Some(Duration::ZERO) {
                return Ok(count);
            }
            if self.held.is_empty() && self.passed.is_empty() {
                self.inner.wait(&mut self.done, left)?;
            } else {
                let brief = Duration::from_micros(100); // until the hook is asked again
                clock.sleep(left.map_or(brief, |left| left.min(brief)));
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.passed.len() + self.held.len() + self.done.len() + self.inner.in_flight()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.all_held.fetch_sub(self.held.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;
    use esker_base::sync::Mutex;
    use esker_base::{AlignedBuf, ErrorKind, LbaCount};
    use esker_device::{MemoryDevice, Port, Tag, conformance};

    fn memory() -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new("m", 1 << 20, 512))
    }

    fn write(lba: u64) -> Op {
        Op::Write { lba: Lba(lba), buf: AlignedBuf::zeroed(512), placement: None, fua: false }
    }

    #[test]
    fn hooks_that_pass_and_hold_change_nothing_of_the_contract() {
        for depth in [1, 4, 32] {
            let asked = AtomicU64::new(0);
            let device = HookDevice::new(memory()).on_command(move |_| {
                match asked.fetch_add(1, Ordering::Relaxed) % 3 {
                    0 => Fate::Hold,
                    _ => Fate::Pass,
                }
            });
            conformance::check(&device, depth, 500, 1);
        }
        conformance::check(&HookDevice::new(memory()), 4, 500, 2);
    }

    #[test]
    fn hook_answers_changes_and_refuses_commands() {
        let below = memory();
        let device = HookDevice::new(below.clone()).on_command(|op| match op {
            Op::Read { lba: Lba(1), buf } => {
                buf.fill(7);
                Fate::Done
            }
            Op::Write { buf, .. } => {
                buf.fill(3);
                Fate::Pass
            }
            Op::Flush => Fate::Fail(Cause::Gone("no cable".to_owned())),
            _ => Fate::Pass,
        });
        let mut port = Port::open(&device, 1).unwrap();
        port.run(write(0)).unwrap();
        let read = |port: &mut Port, lba| port.read(Lba(lba), AlignedBuf::zeroed(512)).unwrap();
        assert!(read(&mut port, 1).iter().all(|byte| *byte == 7));
        let error = port.flush().unwrap_err();
        assert!(error.to_string().contains("no cable"), "{error}");
        assert!(read(&mut Port::open(&*below, 1).unwrap(), 0).iter().all(|byte| *byte == 3));
        let device = refusing(&below, |op| matches!(op, Op::Write { .. }));
        let mut port = Port::open(&*device, 1).unwrap();
        assert_eq!(port.run(write(0)).unwrap_err().kind(), ErrorKind::Io);
        port.flush().unwrap();
    }

    #[test]
    fn held_commands_wait_for_the_test_and_go_newest_first() {
        let (is_shut, seen) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
        let (shut, order) = (is_shut.clone(), seen.clone());
        let device = HookDevice::new(memory()).on_command(move |op| {
            if shut.load(Ordering::SeqCst) {
                return Fate::Hold;
            }
            order.lock().push(op.range(512).0.0);
            Fate::Pass
        });
        let mut queue = device.queue_pair(4).unwrap();
        let mut commands: VecDeque<_> =
            (0..6).map(|n| Command { tag: Tag(n), op: write(n) }).collect();
        let mut done = Vec::new();
        assert_eq!(queue.submit(&mut commands).unwrap(), 4, "the queue is full");
        for _ in 0..3 {
            assert_eq!(queue.wait(&mut done, Some(Duration::from_millis(1))).unwrap(), 0);
        }
        assert_eq!((queue.in_flight(), device.held(), device.stats().writes), (4, 4, 0));
        is_shut.store(false, Ordering::SeqCst);
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).unwrap();
        }
        assert_eq!((done.len(), &seen.lock()[..]), (4, &[3, 2, 1, 0][..]));
    }

    #[test]
    fn properties_and_queue_pairs_are_those_that_the_test_wants() {
        let capacity = Arc::new(AtomicU64::new(100));
        let seen = capacity.clone();
        let device = HookDevice::new(memory())
            .with_geometry(move |shown| shown.capacity = LbaCount(seen.load(Ordering::Relaxed)))
            .with_usable_bytes(|_| Some(5))
            .on_open(|| Err(Cause::Gone("no descriptors".to_owned())));
        assert_eq!((device.geometry().capacity, device.usable_bytes()), (LbaCount(100), Some(5)));
        capacity.store(7, Ordering::Relaxed);
        assert_eq!(device.geometry().capacity, LbaCount(7));
        assert!(!device.is_prompt() && HookDevice::new(memory()).prompt().is_prompt());
        let error = device.queue_pair(1).err().unwrap();
        assert!(error.to_string().contains("no descriptors"), "{error}");
    }
}
