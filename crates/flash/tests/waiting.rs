//! Cost of waiting for an emulated drive. (The only test of its process: it counts the processor time of all threads.)

#[path = "common/readers.rs"]
mod readers;
#[path = "common/timed.rs"]
mod timed;

use std::time::Duration;

use esker_flash::emulate::Pace;

const SPAN: Duration = Duration::from_secs(2);

/// One read in flight in each of 32 threads, on a drive that is twelve times slower than its model. The threads sleep,
/// one of them for all. How late they are woken depends on the machine's other load, and is printed. The figures of an
/// idle machine are less than half of these bounds: see `cargo bench -p esker-flash --bench real_time`.
#[test]
fn threads_that_wait_for_a_slow_drive_sleep() {
    let readers::Seen { record, waits, cpu } = readers::run(&Pace::dilated(12), 32, SPAN);
    let count = u64::try_from(record.len()).unwrap();
    let model_ns = readers::median(record.iter().map(|one| one.finished.0 - one.started.0));
    let seen_ns = readers::median(record.iter().map(|one| one.handed_out.0 - one.started.0));
    println!("{count} reads, {cpu:?}, p50 {seen_ns} ns, by the model {model_ns}; {waits:?}");

    assert!(record.iter().all(|one| one.handed_out >= one.finished), "never early");
    assert!(count > 5_000, "{count} reads: the drive was not kept busy");
    // A thread is woken for a command of its own, or to lead; the leader for a moment at which one
    // may finish.
    assert!(waits.served <= count && waits.promoted <= count / 4, "{waits:?} for {count} reads");
    assert!(waits.moments <= count * 3 / 2, "{waits:?} for {count} reads");
    let cpu_us = u64::try_from(cpu.as_micros()).unwrap() / count;
    assert!(cpu_us <= 50, "{cpu_us} us of processor time to wait for a read");
}
