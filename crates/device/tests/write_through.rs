//! Completed writes on a write-through device are there after every crash, without a flush.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::{
    Command, Device, DeviceError, Fact, Geometry, Identity, MemoryDevice, Op, Port, QueuePair, Tag,
    WriteThrough, conformance, forward,
};
use esker_sim::{CrashRecorder, Effect, FaultDevice, FaultPlan, Plan, Target};

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new("memory", 1 << 20, 512))
}

fn filled(byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(512);
    buf.fill(byte);
    buf
}

fn write(lba: u64, byte: u8) -> Op {
    Op::Write { lba: Lba(lba), buf: filled(byte), placement: None, fua: false }
}

#[test]
fn completed_changes_survive_every_crash_without_a_flush() {
    let recorder = CrashRecorder::new();
    let device = WriteThrough::over(recorder.attach_zeroing(memory()));
    assert!(!device.geometry().volatile_write_cache);
    let mut port = Port::open(&*device, 8).unwrap();
    for (mark, op) in [
        write(0, 1),
        write(1, 2),
        Op::WriteZeroes { lba: Lba(0), count: LbaCount(1) },
        write(0, 3),
        Op::WriteZeroes { lba: Lba(1), count: LbaCount(1) },
    ]
    .into_iter()
    .enumerate()
    {
        port.run(op).unwrap();
        recorder.mark(mark as u64);
    }
    // Contents of LBAs 0 and 1 after so many changes; one more may be there.
    let states = [[0, 0], [1, 0], [1, 2], [0, 2], [3, 2], [3, 0]];
    let mut images = 0;
    for image in recorder.history().images(&Plan::default()) {
        let done = image.marks().len();
        let mut port = Port::open(&*image.device(0), 1).unwrap();
        for lba in [0, 1] {
            let found = port.read(Lba(lba as u64), AlignedBuf::zeroed(512)).unwrap()[0];
            let next = states[(done + 1).min(5)][lba];
            assert!(found == states[done][lba] || found == next, "{image}: LBA {lba} has {found}");
        }
        images += 1;
    }
    assert!(images > 10);
}

#[test]
fn device_without_a_volatile_cache_is_used_as_it_is() {
    let device = memory();
    assert!(Arc::ptr_eq(&WriteThrough::over(device.clone()), &device));
}

/// A drive with a serial number and a volatile write cache.
struct Numbered(Arc<dyn Device>);

impl Device for Numbered {
    fn identity(&self) -> Option<Identity> {
        Identity::default().with(Fact::Serial, "12AB").found()
    }

    fn geometry(&self) -> Geometry {
        Geometry { volatile_write_cache: true, ..self.0.geometry() }
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.0.queue_pair(depth)
    }

    forward!(0: name, discards_zero, usable_bytes, left_bytes, allocate, is_prompt, stats, remarks, data_placement);
}

#[test]
fn device_with_a_volatile_cache_keeps_its_identity() {
    let device: Arc<dyn Device> = Arc::new(Numbered(memory()));
    let through = WriteThrough::over(device.clone());
    assert!(!through.geometry().volatile_write_cache);
    assert!(through.identity().is_some_and(|it| it.is_same(&device.identity().unwrap())));
}

#[test]
fn write_through_conforms_at_every_depth() {
    for (depth, seed) in [(1, 1), (4, 2), (32, 3)] {
        let plan = FaultPlan::new();
        let slow = Effect::DelayPolls { count: 2 };
        plan.from_then_on(Target::Flush, 0, slow);
        let volatile = CrashRecorder::new().attach_zeroing(memory());
        let device = WriteThrough::over(Arc::new(FaultDevice::new(volatile, &plan)));
        conformance::check(&*device, depth, 500, seed);
        assert!(plan.fired() > 0, "changes wait for flushes");
    }
}

#[test]
fn change_whose_flush_fails_is_reported_as_failed() {
    let plan = FaultPlan::new();
    plan.once(Target::Flush, 0, Effect::Fail);
    let volatile = CrashRecorder::new().attach_zeroing(memory());
    let device = WriteThrough::over(Arc::new(FaultDevice::new(volatile, &plan)));
    let mut queue: Box<dyn QueuePair> = device.queue_pair(4).unwrap();
    let zero = |tag| {
        let op = Op::WriteZeroes { lba: Lba(tag), count: LbaCount(1) };
        Command { tag: Tag(tag), op }
    };
    let mut commands: VecDeque<Command> = (0..4).map(zero).collect();
    assert_eq!(queue.submit(&mut commands).unwrap(), 4);
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(&mut done, None).unwrap();
    }
    let failed = done.iter().filter(|one| one.result.is_err()).count();
    assert!((1..=4).contains(&failed), "one flush serves several, and its failure is theirs");
    let errors = done.iter().filter_map(|one| one.result.as_ref().err());
    assert!(errors.map(DeviceError::kind).all(|kind| kind == ErrorKind::Io));
}
