//! One client thread: draw an operation, prepare its key and value, time the call, record it.
//!
//! Invariants
//! 1. Only the call of the store lies between the two readings of the clock. (A verified scan
//!    checks its records inside the visitor, so inside the call.)
//! 2. Every reserved record number is completed, also when its insert failed or panicked.
//! 3. Under a fixed rate an operation belongs to the moment it was meant to start; operations that
//!    the warm-up could not start are not made up for while measuring.
//! 4. A panic in one client stops all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::available_parallelism;
use std::time::Duration;

use esker_base::units::{to_nanos, to_u64, to_usize};
use esker_base::{Clock, Nanos, Rng};
use parking_lot::{Mutex, MutexGuard};

use crate::counter::InsertCounter;
use crate::distribution::KeyChooser;
use crate::error::{BenchError, printable};
use crate::measure::{IntervalTally, Tally, record};
use crate::operation::OperationKind;
use crate::options::{OnError, RunOptions};
use crate::pace::{Pace, wait_until};
use crate::store::{BoxError, Session, Store};
use crate::value::{Mismatch, ValueSource, mix};
use crate::workload::{Dataset, Mix, Workload};

/// The state that all threads of a run share.
pub(crate) struct Plan<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: &'a Clock,
    pub(crate) workload: &'a Workload,
    pub(crate) dataset: &'a Dataset,
    pub(crate) values: &'a ValueSource,
    pub(crate) counter: &'a InsertCounter,
    pub(crate) options: &'a RunOptions,
    pub(crate) seed: u64,
    pub(crate) stop: AtomicBool,
    pub(crate) slots: Vec<Slot>,
}

/// The figures of the threads that share it, on cache lines of their own.
#[repr(align(128))]
pub(crate) struct Slot(pub(crate) Mutex<Measured>);

/// Figures that threads measure.
pub(crate) struct Measured {
    /// By the kind of operation.
    pub(crate) tallies: [Tally; 5],
    pub(crate) interval: IntervalTally,
}

impl Slot {
    /// Slots for so many threads: two for each processor at most, so that threads which run at the same time seldom
    /// meet, and many threads take no more memory than a few.
    pub(crate) fn all(threads: usize) -> Vec<Slot> {
        let most = available_parallelism().map_or(2, |processors| 2 * processors.get());
        let measured = || Measured {
            tallies: std::array::from_fn(|_| Tally::new()),
            interval: IntervalTally::new(),
        };
        (0..threads.min(most)).map(|_| Slot(Mutex::new(measured()))).collect()
    }
}

/// When a run takes place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) begin: Nanos,
    pub(crate) measure_from: Nanos,
    pub(crate) deadline: Option<Nanos>,
}

/// The work of one thread.
pub(crate) struct Outcome {
    pub(crate) user_bytes_written: u64,
    pub(crate) user_bytes_read: u64,
    pub(crate) unstarted: u64,
    pub(crate) finished: Nanos,
    pub(crate) failure: Option<BenchError>,
}

/// The result of a call, as far as it matters here.
struct Effect {
    found: bool,
    rows: u64,
    bytes: u64,
}

/// A finding of verification.
enum Wrong {
    Value(Vec<u8>, Mismatch),
    Order(Vec<u8>),
}

/// Sends all clients home when the one that holds it panics.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// A record number under insertion; completed when dropped.
struct Reserved<'a>(&'a InsertCounter, u64);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.0.complete(self.1);
    }
}

struct Client<'a> {
    plan: &'a Plan<'a>,
    worker: usize,
    session: Box<dyn Session + 'a>,
    rng: Rng,
    mix: Mix,
    chooser: KeyChooser,
    sequence: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    out: Vec<u8>,
    outcome: Outcome,
}

/// The life of a thread: open a session, say so, wait for the schedule, work.
pub(crate) fn work(
    plan: &Plan<'_>,
    worker: usize,
    ready: Sender<()>,
    go: &Receiver<Schedule>,
) -> Outcome {
    let mut outcome = Outcome {
        user_bytes_written: 0,
        user_bytes_read: 0,
        unstarted: 0,
        finished: Nanos(0),
        failure: None,
    };
    let session = match plan.store.session() {
        Ok(session) => session,
        Err(cause) => {
            outcome.failure = Some(BenchError::Session { worker, cause });
            return outcome;
        }
    };
    let records = plan.counter.acknowledged();
    let operations = plan.options.operations.unwrap_or(0) as f64;
    // Twice the expected inserts, as YCSB: the run may insert more than its proportion.
    let inserts = crate::zipf::floor(operations * plan.workload.insert * 2.0);
    let client = Client {
        plan,
        worker,
        session,
        rng: Rng::new(mix(plan.seed, to_u64(worker))),
        mix: Mix::new(plan.workload),
        chooser: KeyChooser::new(plan.workload.request, records, inserts),
        sequence: 0,
        key: Vec::new(),
        value: Vec::new(),
        out: Vec::new(),
        outcome,
    };
    // The driver is gone when another thread could not start; then there is nothing to do.
    let started = ready.send(()).ok().and_then(|()| go.recv().ok());
    drop(ready);
    match started {
        Some(schedule) => client.run(schedule),
        None => client.outcome,
    }
}

impl Client<'_> {
    fn run(mut self, schedule: Schedule) -> Outcome {
        let plan = self.plan;
        let _stop_on_panic = StopOnPanic(&plan.stop);
        let threads = plan.options.threads;
        let mut pace = plan
            .options
            .target_ops_per_s
            .map(|rate| Pace::new(schedule.begin, rate, self.worker, threads));
        let mut left = plan.options.operations.map(|operations| {
            let (share, rest) = (operations / to_u64(threads), operations % to_u64(threads));
            share + u64::from(to_u64(self.worker) < rest)
        });
        let stopped = || plan.stop.load(Ordering::Relaxed);
        let end = schedule.deadline.unwrap_or(Nanos(u64::MAX));
        let mut now = plan.clock.now();
        while left != Some(0) && !stopped() {
            let mut intended = None;
            if let Some(pace) = &mut pace {
                if now >= schedule.measure_from {
                    pace.skip_to(schedule.measure_from);
                }
                let start = pace.next_start();
                now = wait_until(plan.clock, start.min(end), stopped);
                if now >= end {
                    self.outcome.unstarted = pace.unstarted(end).min(left.unwrap_or(u64::MAX));
                    break;
                }
                if stopped() {
                    break;
                }
                intended = Some(start);
                pace.advance();
            }
            if now >= end {
                break;
            }
            let (measured, ended) = self.operation(intended, schedule.measure_from);
            now = ended;
            if self.outcome.failure.is_some() {
                plan.stop.store(true, Ordering::Relaxed);
                break;
            }
            if measured {
                left = left.map(|left| left - 1);
            }
        }
        self.outcome.finished = now;
        self.outcome
    }

    /// One operation; returns whether it was measured, and when it ended.
    fn operation(&mut self, intended: Option<Nanos>, measure_from: Nanos) -> (bool, Nanos) {
        let plan = self.plan;
        let kind = self.mix.choose(&mut self.rng);
        let number = match kind {
            OperationKind::Insert => plan.counter.reserve(),
            _ => {
                let records = plan.counter.acknowledged();
                self.chooser.choose(records, &mut self.rng)
            }
        };
        let reserved = (kind == OperationKind::Insert).then(|| Reserved(plan.counter, number));
        plan.dataset.keys.write(number, &mut self.key);
        let writes = !matches!(kind, OperationKind::Read | OperationKind::Scan);
        if writes {
            self.sequence += 1;
            let version = mix(plan.seed, (to_u64(self.worker) << 48) | self.sequence);
            plan.values.write(number, version, &mut self.value);
        }
        let mut wrong = None;
        let shortest = plan.workload.min_scan_length;
        let lengths = plan.workload.max_scan_length - shortest + 1;
        let length = match kind {
            OperationKind::Scan => to_usize(shortest + self.rng.below(lengths)),
            _ => 1,
        };
        let start = plan.clock.now();
        let result = match kind {
            OperationKind::Scan => self.scan(length, &mut wrong),
            _ => self.point(kind),
        };
        let end = plan.clock.now();
        drop(reserved);
        let measured = intended.unwrap_or(start) >= measure_from;
        match result {
            Ok(effect) => {
                let reads = matches!(kind, OperationKind::Read | OperationKind::ReadModifyWrite);
                if reads && effect.found && plan.options.verify {
                    let check = plan.values.check(number, &self.out);
                    wrong = check.err().map(|m| Wrong::Value(self.key.clone(), m));
                }
                if measured {
                    let intended = intended.map(|at| end - at);
                    self.count(kind, &effect, writes, (end - start, intended));
                }
                if let Some(wrong) = wrong {
                    self.wrong_value(kind, wrong, measured);
                }
            }
            Err(cause) => self.failed(kind, cause, measured),
        }
        (measured, end)
    }

    fn point(&mut self, kind: OperationKind) -> Result<Effect, BoxError> {
        let (key, value) = (&self.key[..], &self.value[..]);
        let found = match kind {
            OperationKind::Insert => self.session.insert(key, value).map(|()| true),
            OperationKind::Update => self.session.update(key, value).map(|()| true),
            OperationKind::ReadModifyWrite => {
                self.session.read_modify_write(key, &mut self.out, value)
            }
            OperationKind::Read | OperationKind::Scan => self.session.read(key, &mut self.out),
        }?;
        let reads = matches!(kind, OperationKind::Read | OperationKind::ReadModifyWrite);
        Ok(Effect {
            found,
            rows: 0,
            bytes: if reads && found { to_u64(key.len() + self.out.len()) } else { 0 },
        })
    }

    fn scan(&mut self, length: usize, wrong: &mut Option<Wrong>) -> Result<Effect, BoxError> {
        let plan = self.plan;
        let mut bytes = 0;
        let mut previous = Vec::new();
        let start = &self.key[..];
        let mut visit = |key: &[u8], value: &[u8]| {
            bytes += to_u64(key.len() + value.len());
            if !plan.options.verify || wrong.is_some() {
                return;
            }
            let ascends = *key > *previous && *key >= *start;
            if !ascends {
                *wrong = Some(Wrong::Order(key.to_vec()));
                return;
            }
            previous.clear();
            previous.extend_from_slice(key);
            if let Err(mismatch) = check_record(plan, key, value) {
                *wrong = Some(Wrong::Value(key.to_vec(), mismatch));
            }
        };
        let rows = self.session.scan(start, length, &mut visit)?;
        Ok(Effect { found: rows > 0, rows: to_u64(rows), bytes })
    }

    fn count(
        &mut self,
        kind: OperationKind,
        effect: &Effect,
        writes: bool,
        (service, intended): (Duration, Option<Duration>),
    ) {
        self.outcome.user_bytes_read += effect.bytes;
        if writes {
            self.outcome.user_bytes_written += to_u64(self.key.len() + self.value.len());
        }
        let Measured { tallies, interval } = &mut *self.measured();
        let tally = &mut tallies[kind.index()];
        record(&mut tally.latency_ns, to_nanos(service));
        if let Some(intended) = intended {
            record(&mut tally.intended_latency_ns, to_nanos(intended));
        }
        tally.not_found += u64::from(!effect.found);
        tally.rows += effect.rows;
        record(&mut interval.latency_ns, to_nanos(intended.unwrap_or(service)));
    }

    /// The figures that this thread shares with a few others.
    fn measured(&self) -> MutexGuard<'_, Measured> {
        let slots = &self.plan.slots;
        slots[self.worker % slots.len()].0.lock()
    }

    fn failed(&mut self, operation: OperationKind, cause: BoxError, measured: bool) {
        if self.plan.options.on_error == OnError::Stop {
            self.outcome.failure = Some(BenchError::Operation {
                operation,
                key: printable(&self.key),
                worker: self.worker,
                cause,
            });
        } else if measured {
            let mut measured = self.measured();
            measured.tallies[operation.index()].errors += 1;
            measured.interval.errors += 1;
        }
    }

    fn wrong_value(&mut self, operation: OperationKind, wrong: Wrong, measured: bool) {
        if self.plan.options.on_error == OnError::Stop {
            let worker = self.worker;
            self.outcome.failure = Some(match wrong {
                Wrong::Value(key, cause) => {
                    BenchError::WrongValue { operation, key: printable(&key), worker, cause }
                }
                Wrong::Order(key) => BenchError::ScanOrder {
                    start: printable(&self.key),
                    key: printable(&key),
                    worker,
                },
            });
        } else if measured {
            self.measured().tallies[operation.index()].wrong_values += 1;
        }
    }
}

/// Checks a record that a scan returned: the stamp says which record it is, and so which key it
/// must have. Values too short for a stamp are not checked.
fn check_record(plan: &Plan<'_>, key: &[u8], value: &[u8]) -> Result<(), Mismatch> {
    let expected = plan.values.bytes();
    let Some(number) = plan.values.record_of(value).filter(|_| expected >= 8) else {
        return if value.len() == expected {
            Ok(())
        } else {
            let got = value.len();
            Err(Mismatch::Size { expected, got })
        };
    };
    let mut own = Vec::with_capacity(key.len());
    plan.dataset.keys.write(number, &mut own);
    if own != key {
        return Err(Mismatch::Key { got: number });
    }
    plan.values.check(number, value)
}
