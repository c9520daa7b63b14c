//! A stripe is a device like its drives: the contract, the layout, the failures with a drive.

use std::sync::Arc;

use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::{Device, MemoryDevice, Op, Port, Stripe, conformance};
use esker_sim::{CrashRecorder, Effect, FaultDevice, FaultPlan, Plan, Target};

const LBA: usize = 512;

fn memory(number: usize, bytes: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(&format!("m{number}"), bytes, 512))
}

fn memories(count: usize) -> Vec<Arc<dyn Device>> {
    (0..count).map(|number| memory(number, 1 << 20)).collect()
}

/// LBA `n` is filled with `n` and `first`.
fn counted(first: u64, lbas: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(lbas * LBA);
    for (lba, bytes) in (first..).zip(buf.chunks_mut(LBA)) {
        bytes.fill(u8::try_from(lba % 251 + 1).unwrap());
    }
    buf
}

fn first_bytes(device: &dyn Device, lba: u64, lbas: usize) -> Vec<u8> {
    let buf = AlignedBuf::zeroed(lbas * LBA);
    let buf = Port::open(device, 1).unwrap().read(Lba(lba), buf).unwrap();
    buf.chunks(LBA).map(|bytes| bytes[0]).collect()
}

#[test]
fn stripe_conforms_with_any_number_of_drives_at_any_depth() {
    for (drives, chunk, depth) in [(1, 512, 1), (2, 512, 4), (3, 2048, 32), (5, 65536, 7)] {
        let below = memories(drives).into_iter().enumerate().map(|(number, drive)| {
            let plan = FaultPlan::new();
            let count = 1 + u32::try_from(number).unwrap();
            plan.from_then_on(Target::Any, 0, Effect::DelayPolls { count });
            Arc::new(FaultDevice::new(drive, &plan)) as Arc<dyn Device>
        });
        let stripe = Stripe::new("s", below.collect(), chunk).unwrap();
        conformance::check(&stripe, depth, 800, 7);
    }
}

#[test]
fn chunks_lie_on_the_drives_in_turn() {
    let drives = memories(3);
    let stripe = Stripe::new("s", drives.clone(), 1024).unwrap();
    let mut port = Port::open(&stripe, 4).unwrap();
    port.write(Lba(1), counted(1, 13), None).unwrap();
    // Two LBAs a chunk: drive 0 has 0 1 6 7 12 13, drive 1 has 2 3 8 9, drive 2 has 4 5 10 11.
    assert_eq!(first_bytes(&*drives[0], 0, 7), [0, 2, 7, 8, 13, 14, 0]);
    assert_eq!(first_bytes(&*drives[1], 0, 5), [3, 4, 9, 10, 0]);
    assert_eq!(first_bytes(&*drives[2], 0, 5), [5, 6, 11, 12, 0]);
    assert_eq!(
        first_bytes(&stripe, 0, 14),
        (0..14).map(|n| if n == 0 { 0 } else { n + 1 }).collect::<Vec<u8>>()
    );
    let stats = stripe.stats();
    assert_eq!((stats.writes, stats.written_bytes), (1, 13 * 512));
    assert!(stats.below.iter().all(|drive| drive.writes == 1), "one command for each drive");
    port.run(Op::WriteZeroes { lba: Lba(3), count: LbaCount(6) }).unwrap();
    assert_eq!(first_bytes(&stripe, 0, 12), [0, 2, 3, 0, 0, 0, 0, 0, 0, 10, 11, 12]);
}

#[test]
fn flush_makes_writes_durable_on_every_drive() {
    let recorder = CrashRecorder::new();
    let drives = memories(2).into_iter().map(|drive| recorder.attach(drive) as Arc<dyn Device>);
    let stripe = Stripe::new("s", drives.collect(), 512).unwrap();
    assert!(stripe.geometry().volatile_write_cache);
    let mut port = Port::open(&stripe, 4).unwrap();
    port.write(Lba(0), counted(0, 4), None).unwrap();
    port.flush().unwrap();
    recorder.mark(1);
    port.write(Lba(4), counted(4, 4), None).unwrap();
    let mut durable = 0;
    for image in recorder.history().images(&Plan::default()) {
        let drives = (0..2).map(|index| image.device(index)).collect();
        let stripe = Stripe::new("s", drives, 512).unwrap();
        if !image.marks().is_empty() {
            assert_eq!(first_bytes(&stripe, 0, 4), [1, 2, 3, 4], "{image}");
            durable += 1;
        }
    }
    assert!(durable > 0);
}

#[test]
fn failed_drive_fails_the_commands_that_touch_it() {
    let plan = FaultPlan::new();
    let mut drives = memories(2);
    drives[1] = Arc::new(FaultDevice::new(drives[1].clone(), &plan));
    let stripe = Stripe::new("s", drives, 512).unwrap();
    plan.unreadable(Lba(3));
    let mut port = Port::open(&stripe, 4).unwrap();
    assert!(port.read(Lba(6), AlignedBuf::zeroed(LBA)).is_ok(), "drive 0");
    let error = port.read(Lba(4), AlignedBuf::zeroed(6 * LBA)).unwrap_err();
    assert_eq!((error.device(), error.kind()), ("m1", ErrorKind::Io), "{error}");
    assert!(port.read(Lba(4), AlignedBuf::zeroed(3 * LBA)).is_ok());
    assert_eq!(stripe.stats().errors, 1);
}

#[test]
fn stripe_has_the_size_of_its_smallest_drive() {
    let stripe = Stripe::new("s", vec![memory(0, 10_240), memory(1, 7_680)], 2048).unwrap();
    assert_eq!(stripe.geometry().capacity, LbaCount(2 * 3 * 4), "three whole chunks each");
    let last = Op::Discard { lba: Lba(23), count: LbaCount(1) };
    assert!(Port::open(&stripe, 1).unwrap().run(last).is_ok());
}

#[test]
fn stripe_that_cannot_be_is_refused() {
    #[track_caller]
    fn refused(drives: Vec<Arc<dyn Device>>, chunk: u64, words: &str) {
        let error = Stripe::new("s", drives, chunk).err().expect("a refusal");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(words), "{error}");
    }
    refused(Vec::new(), 512, "1 to 256 drives");
    refused(memories(2), 0, "a multiple of 512 bytes");
    refused(memories(2), 1000, "a multiple of 512 bytes");
    refused(vec![memory(0, 1 << 20), memory(1, 1024)], 4096, "m1 of 1024 bytes has no room");
    let other: Arc<dyn Device> = Arc::new(MemoryDevice::new("other", 1 << 20, 4096));
    refused(vec![memory(0, 1 << 20), other], 4096, "other has 4096");
    let stripe = Stripe::new("s", memories(2), 512).unwrap();
    assert!(stripe.queue_pair(0).is_err());
}
