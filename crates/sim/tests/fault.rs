//! Faults strike where the plan says, and nowhere else.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, LbaCount, Rng};
use esker_device::{Cause, Command, Device, MemoryDevice, Op, Port, QueuePair, Tag};
use esker_sim::{CrashRecorder, Effect, FaultDevice, FaultPlan, ImageDevice, Target};

fn device(plan: &FaultPlan) -> (Arc<MemoryDevice>, FaultDevice) {
    let memory = Arc::new(MemoryDevice::new("m", 1 << 20, 512));
    (memory.clone(), FaultDevice::new(memory, plan))
}

fn bytes(device: &dyn Device, lba: u64, size: usize) -> Vec<u8> {
    let mut port = Port::open(device, 1).unwrap();
    port.read(Lba(lba), AlignedBuf::zeroed(size)).unwrap().to_vec()
}

fn write(lba: u64, byte: u8, size: usize) -> Op {
    Op::Write {
        lba: Lba(lba),
        buf: AlignedBuf::padded(&vec![byte; size], 512),
        placement: None,
        fua: false,
    }
}

#[test]
fn a_fault_strikes_the_nth_command_of_its_kind_only() {
    // The oracle: the position of the nth command of the kind in the list.
    let kinds = [0, 1, 2, 3, 4, 1, 1, 0, 2, 4, 3, 0, 1, 2];
    let op = |kind| match kind {
        0 => Op::Read { lba: Lba(3), buf: AlignedBuf::zeroed(1024) },
        1 => write(5, 9, 1024),
        2 => Op::Flush,
        3 => Op::Discard { lba: Lba(8), count: LbaCount(4) },
        _ => Op::WriteZeroes { lba: Lba(8), count: LbaCount(4) },
    };
    let targets: [(Target, &[i32]); 5] = [
        (Target::Any, &[0, 1, 2, 3, 4]),
        (Target::Read, &[0]),
        (Target::Write, &[1]),
        (Target::Flush, &[2]),
        (Target::Discard, &[3, 4]),
    ];
    for (target, counted) in targets {
        for forever in [false, true] {
            for nth in 0..16 {
                let plan = FaultPlan::new();
                if forever {
                    plan.from_then_on(target, nth, Effect::Fail);
                } else {
                    plan.once(target, nth, Effect::Fail);
                }
                let (_, device) = device(&plan);
                let mut port = Port::open(&device, 1).unwrap();
                let failed: Vec<bool> = kinds.map(|kind| port.run(op(kind)).is_err()).to_vec();
                let mut seen = 0;
                let expected: Vec<bool> = kinds
                    .map(|kind| {
                        let counts = counted.contains(&kind);
                        seen += u64::from(counts);
                        counts && (seen - 1 == nth || forever && seen > nth)
                    })
                    .to_vec();
                assert_eq!(failed, expected, "{target:?} {nth} {forever}");
                assert_eq!(plan.seen(target), seen);
                let fired = expected.iter().filter(|&&hit| hit).count();
                assert_eq!(plan.fired(), fired as u64);
            }
        }
    }
}

#[test]
fn a_plan_counts_over_all_its_devices() {
    let plan = FaultPlan::new();
    plan.once(Target::Write, 2, Effect::Fail);
    let ((_, a), (_, b)) = (device(&plan), device(&plan));
    let (mut a, mut b) = (Port::open(&a, 1).unwrap(), Port::open(&b, 1).unwrap());
    assert!(a.run(write(0, 1, 512)).is_ok());
    assert!(b.run(write(0, 1, 512)).is_ok());
    let error = b.run(write(0, 1, 512)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "m: write of 512 bytes at LBA 0 failed: a fault plan failed this write"
    );
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(a.run(write(0, 1, 512)).is_ok());
}

#[test]
fn a_short_write_leaves_half_and_gives_the_whole_buffer_back() {
    let plan = FaultPlan::new();
    plan.once(Target::Write, 0, Effect::Short);
    let (memory, device) = device(&plan);
    let mut queue = device.queue_pair(1).unwrap();
    let op = write(2, 7, 5 * 512);
    let mut done = Vec::new();
    queue.submit(&mut VecDeque::from([Command { tag: Tag(9), op }])).unwrap();
    queue.wait(&mut done, None).unwrap();
    let completion = done.pop().unwrap();
    let error = completion.result.unwrap_err();
    assert_eq!((error.cause(), error.bytes()), (&Cause::Short { got: 1024 }, 2560));
    assert_eq!(completion.tag, Tag(9));
    assert_eq!(*completion.buf.unwrap(), [7; 2560]);
    assert_eq!(bytes(&*memory, 2, 2560), [[7; 1024].as_slice(), &[0; 1536]].concat());
}

#[test]
fn a_failed_write_never_reaches_the_device() {
    let plan = FaultPlan::new();
    plan.once(Target::Write, 0, Effect::Fail);
    let (memory, device) = device(&plan);
    let mut port = Port::open(&device, 1).unwrap();
    assert!(port.run(write(0, 7, 512)).is_err());
    assert_eq!(memory.stats().writes, 0);
}

#[test]
fn an_unreadable_lba_fails_every_read_that_touches_it_and_no_other() {
    let plan = FaultPlan::new();
    let (_, device) = device(&plan);
    plan.unreadable(Lba(7));
    let mut port = Port::open(&device, 1).unwrap();
    let mut read = |lba, lbas: usize| port.read(Lba(lba), AlignedBuf::zeroed(lbas * 512)).is_ok();
    let fine = [read(6, 1), read(8, 1), read(3, 4), read(8, 4)];
    assert_eq!(fine, [true; 4]);
    let lost = [read(7, 1), read(7, 1), read(6, 2), read(7, 2), read(0, 64)];
    assert_eq!(lost, [false; 5]);
    assert_eq!(plan.fired(), 5);
    plan.heal();
    assert!(read(7, 1));
    plan.unreadable(Lba(7));
    assert!(port.run(write(7, 7, 512)).is_ok(), "it can be written all the same");
}

#[test]
fn corruption_is_silent_and_hits_the_named_bits_only() {
    let mut rng = Rng::new(5);
    for case in 0..200 {
        let plan = FaultPlan::new();
        let mask = 1 << rng.below(8);
        let offset = usize::try_from(rng.below(4000)).unwrap();
        let reads = case % 2 == 0;
        let target = if reads { Target::Read } else { Target::Write };
        plan.once(target, 0, Effect::Corrupt { offset, mask });
        let (memory, device) = device(&plan);
        let mut port = Port::open(&device, 1).unwrap();
        let buf = AlignedBuf::padded(&[0x5a; 1024], 512);
        let buf = port.write(Lba(4), buf, None).unwrap();
        assert_eq!(*buf, [0x5a; 1024], "the writer's buffer is his own");
        let mut wrong = [0x5a; 1024];
        wrong[offset % 1024] ^= mask;
        let medium = if reads { [0x5a; 1024] } else { wrong };
        assert_eq!(bytes(&*memory, 4, 1024), medium);
        assert_eq!(*port.read(Lba(4), buf).unwrap(), wrong);
        assert_eq!(plan.fired(), 1);
        assert_eq!(bytes(&device, 4, 1024), medium, "once");
    }
}

fn submit(queue: &mut dyn QueuePair, op: Op) {
    let mut commands = VecDeque::from([Command { tag: Tag(1), op }]);
    assert_eq!(queue.submit(&mut commands).unwrap(), 1);
}

#[test]
fn a_delayed_command_has_run_but_completes_when_its_time_has_come() {
    let clock = Clock::virtual_time();
    let plan = FaultPlan::new();
    let span = Duration::from_millis(5);
    let delay = Effect::DelaySpan { clock: clock.clone(), span };
    plan.from_then_on(Target::Write, 0, delay);
    let (memory, device) = device(&plan);
    let mut queue = device.queue_pair(1).unwrap();
    let mut done = Vec::new();

    submit(&mut *queue, write(0, 3, 512));
    assert_eq!(queue.poll(&mut done).unwrap(), 0);
    assert_eq!(bytes(&*memory, 0, 512), [3; 512]);
    let mut more = VecDeque::from([Command { tag: Tag(2), op: Op::Flush }]);
    assert_eq!(queue.submit(&mut more).unwrap(), 0, "a held command takes a place");
    clock.advance(span - Duration::from_nanos(1));
    assert_eq!((queue.poll(&mut done).unwrap(), queue.in_flight()), (0, 1));
    clock.advance(Duration::from_nanos(1));
    assert_eq!((queue.poll(&mut done).unwrap(), queue.in_flight()), (1, 0));

    submit(&mut *queue, write(0, 4, 512));
    let before = clock.now();
    let timeout = Some(Duration::from_millis(2));
    assert_eq!(queue.wait(&mut done, timeout).unwrap(), 0);
    assert_eq!(clock.now() - before, Duration::from_millis(2));
    assert_eq!(queue.wait(&mut done, None).unwrap(), 1);
    assert_eq!(clock.now() - before, span);
}

#[test]
fn a_delay_on_the_real_clock_takes_as_long_as_it_says() {
    let clock = Clock::real();
    let plan = FaultPlan::new();
    let span = Duration::from_millis(20);
    plan.once(Target::Flush, 0, Effect::DelaySpan { clock: clock.clone(), span });
    let (_, device) = device(&plan);
    let mut port = Port::open(&device, 1).unwrap();
    let before = clock.now();
    port.flush().unwrap();
    assert!(clock.now() - before >= span);
}

#[test]
fn a_command_held_for_polls_lets_others_pass() {
    let plan = FaultPlan::new();
    plan.once(Target::Write, 0, Effect::DelayPolls { count: 2 });
    let (_, device) = device(&plan);
    let mut queue = device.queue_pair(4).unwrap();
    let op = |tag| Command { tag: Tag(tag), op: write(tag, 1, 512) };
    queue.submit(&mut VecDeque::from([op(0), op(1)])).unwrap();
    let mut done = Vec::new();
    let polled: Vec<usize> = (0..3).map(|_| queue.poll(&mut done).unwrap()).collect();
    assert_eq!(polled, [1, 0, 1]);
    assert_eq!((done[0].tag, done[1].tag), (Tag(1), Tag(0)));

    plan.heal();
    plan.from_then_on(Target::Any, 0, Effect::DelayPolls { count: 7 });
    queue.submit(&mut VecDeque::from([op(5)])).unwrap();
    assert_eq!(queue.wait(&mut done, None).unwrap(), 1, "a wait polls as often as it takes");
}

#[test]
fn lost_write_and_lying_flush_succeed_and_never_reach_the_device() {
    let plan = FaultPlan::new();
    let recorder = CrashRecorder::new();
    let memory = Arc::new(MemoryDevice::new("m", 1 << 20, 512));
    let device = FaultDevice::new(recorder.attach(memory.clone()), &plan);
    let mut port = Port::open(&device, 1).unwrap();
    port.run(write(0, 1, 512)).unwrap();
    plan.once(Target::Write, 1, Effect::Lose);
    let buf = port.run(write(0, 2, 512)).unwrap();
    assert_eq!(&buf.unwrap()[..], [2; 512], "the buffer comes back");
    assert_eq!(bytes(&*memory, 0, 512), [1; 512]);
    plan.once(Target::Flush, 0, Effect::Lose);
    port.flush().unwrap();
    assert_eq!(recorder.history().flushes(0), 0);
    port.flush().unwrap();
    assert_eq!((recorder.history().flushes(0), plan.fired()), (1, 2));
    plan.from_then_on(Target::Read, 0, Effect::Lose);
    assert_eq!(&port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap()[..], [1; 512]);
}

#[test]
fn misdirected_commands_succeed_elsewhere() {
    let plan = FaultPlan::new();
    let (memory, device) = device(&plan);
    let mut port = Port::open(&device, 1).unwrap();
    let last = device.geometry().capacity.0 - 1;
    let elsewhere = |distance| Effect::Misdirect { distance: LbaCount(distance) };
    plan.once(Target::Write, 0, elsewhere(7));
    port.run(write(3, 5, 1024)).unwrap();
    assert_eq!((bytes(&*memory, 3, 512), bytes(&*memory, 10, 1024)), (vec![0; 512], vec![5; 1024]));
    plan.once(Target::Read, 0, elsewhere(8));
    assert_eq!(&port.read(Lba(2), AlignedBuf::zeroed(512)).unwrap()[..], [5; 512]);
    plan.once(Target::Write, 1, elsewhere(1));
    port.run(write(last, 6, 512)).unwrap();
    assert_eq!(bytes(&*memory, 0, 512), [6; 512], "round the end");
    plan.once(Target::Flush, 0, elsewhere(1));
    port.flush().unwrap();
    assert_eq!(plan.fired(), 3);
}

#[test]
fn hanging_command_completes_when_the_plan_is_healed() {
    let plan = FaultPlan::new();
    plan.once(Target::Read, 0, Effect::Hang);
    let (_, device) = device(&plan);
    let mut queue = device.queue_pair(2).unwrap();
    submit(&mut *queue, Op::Read { lba: Lba(0), buf: AlignedBuf::zeroed(512) });
    let mut done = Vec::new();
    let brief = Some(Duration::from_millis(3));
    assert_eq!((queue.poll(&mut done).unwrap(), queue.wait(&mut done, brief).unwrap()), (0, 0));
    submit(&mut *queue, Op::Flush);
    assert_eq!(queue.wait(&mut done, None).unwrap(), 1, "others pass");
    assert_eq!(queue.in_flight(), 1);
    plan.heal();
    assert_eq!(queue.wait(&mut done, None).unwrap(), 1);
}

#[test]
fn forked_device_keeps_the_content_of_its_moment() {
    let device = ImageDevice::new("m", 1 << 20, 512);
    Port::open(&device, 1).unwrap().run(write(0, 1, 512)).unwrap();
    let stale = device.fork();
    Port::open(&device, 1).unwrap().run(write(0, 2, 512)).unwrap();
    assert_eq!((bytes(&stale, 0, 512), bytes(&device, 0, 512)), (vec![1; 512], vec![2; 512]));
    Port::open(&stale, 1).unwrap().run(write(0, 3, 512)).unwrap();
    assert_eq!(bytes(&device, 0, 512), [2; 512]);
}
