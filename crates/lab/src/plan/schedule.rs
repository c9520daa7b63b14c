//! All runs of a plan: those that are kept are not made again, those in virtual time are made on all processors, and
//! those on a clock that moves by itself one after the other.
//!
//! Invariants
//! 1. Outcomes are in the order of the cases, and are the same as with one thread.
//! 2. Runs that are under way together take no more memory than there is.
//! 3. After the first error no further run is begun; earlier measurements are kept.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};

use esker_base::units::human_bytes;
use esker_base::{Clock, thread};

use super::inputs::Inputs;
use super::keep::{self, Found, Kept, Shelf};
use super::measured::MeasuredCase;
use super::resolve::Plan;
use super::run as runs;
use super::surroundings::Surroundings;
use crate::LabError;
use crate::steps::Progress;

/// Bytes of a load that are modelled in a second of one processor, about, where no run that is kept tells better.
const BYTES_PER_S: f64 = 150e6;

/// The most bytes that a run may move.
const MOST_WORK: u64 = 8 << 40;

/// A run of a plan.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Listed {
    /// The case.
    pub name: String,
    /// The key of its result.
    pub key: String,
    /// Whether the result is kept.
    pub is_kept: bool,
    /// Whether its time is virtual.
    pub is_virtual: bool,
    /// How long it takes, or took, in seconds of one processor: an estimate.
    pub takes_s: f64,
    /// The memory that it takes at most, in bytes.
    pub memory_bytes: u64,
}

/// The runs of a plan before they are made.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Expected {
    /// All cases.
    pub runs: Vec<Listed>,
    /// How long those take that are not kept, in seconds: an estimate.
    pub takes_s: f64,
    /// Results that are not used, and why.
    pub remarks: Vec<String>,
}

/// The outcome of all runs.
pub(super) struct Outcome {
    /// Of each case.
    pub(super) measured: Vec<MeasuredCase>,
    /// How many runs were kept, and how many were made.
    pub(super) kept: usize,
    pub(super) made: usize,
    pub(super) remarks: Vec<String>,
}

/// The runs of a plan, each once, with their kept results.
struct Books<'p> {
    /// The key of each case.
    keys: Vec<String>,
    /// The inputs of each key, and the first case that has it.
    inputs: BTreeMap<String, (&'p Inputs, &'p str)>,
    results: BTreeMap<String, Kept>,
    remarks: Vec<String>,
}

impl<'p> Books<'p> {
    fn open(
        plan: &'p Plan,
        shelf: &mut dyn Shelf,
        surroundings: &Surroundings<'_>,
    ) -> Result<Books<'p>, LabError> {
        let mut books = Books {
            keys: Vec::new(),
            inputs: BTreeMap::new(),
            results: BTreeMap::new(),
            remarks: Vec::new(),
        };
        for case in &plan.cases {
            let needs = case.inputs.memory_bytes();
            if needs > surroundings.memory_bytes {
                return Err(LabError::Invalid(format!(
                    "{}: the run may take {} of memory, and there are {}: raise scale, or make drives smaller",
                    case.name,
                    human_bytes(needs),
                    human_bytes(surroundings.memory_bytes)
                )));
            }
            let work = case.inputs.work_bytes();
            if work > MOST_WORK {
                return Err(LabError::Invalid(format!(
                    "{}: the run moves {}, and more than {} take days: raise scale, or measure fewer bytes",
                    case.name,
                    human_bytes(work),
                    human_bytes(MOST_WORK)
                )));
            }
            let key = keep::key(&case.inputs, surroundings.version);
            books.keys.push(key.clone());
            if books.inputs.contains_key(&key) {
                continue;
            }
            books.inputs.insert(key.clone(), (&case.inputs, &case.name));
            match keep::find(shelf, &key)? {
                Found::Kept(kept) => {
                    books.results.insert(key, *kept);
                }
                Found::Bad(why) => books.remarks.push(why),
                Found::Nothing => {}
            }
        }
        Ok(books)
    }

    /// Seconds for each byte of work, as far as runs that are kept tell.
    #[allow(clippy::cast_precision_loss)] // an estimate
    fn pace(&self, is_virtual: bool) -> Option<f64> {
        let known = self.results.iter().filter_map(|(key, kept)| {
            let (inputs, _) = self.inputs.get(key)?;
            (inputs.is_virtual() == is_virtual).then(|| (kept.took_s, inputs.work_bytes() as f64))
        });
        let (seconds, bytes) = known.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (bytes > 0.0).then(|| seconds / bytes)
    }

    #[allow(clippy::cast_precision_loss)] // an estimate
    fn takes_s(&self, key: &str, inputs: &Inputs) -> f64 {
        if let Some(kept) = self.results.get(key) {
            return kept.took_s;
        }
        let slower = match &inputs.load {
            super::inputs::Load::Engine(engine) => f64::from(engine.dilation.unwrap_or(1)) / 4.0,
            _ => 1.0,
        };
        let pace = self.pace(inputs.is_virtual());
        inputs.work_bytes() as f64 * pace.unwrap_or(slower.max(1.0) / BYTES_PER_S)
    }
}

/// Lists the runs of a plan.
pub(super) fn list(
    plan: &Plan,
    shelf: &mut dyn Shelf,
    surroundings: &Surroundings<'_>,
) -> Result<Expected, LabError> {
    let books = Books::open(plan, shelf, surroundings)?;
    let mut runs = Vec::new();
    let (mut virtual_s, mut other_s) = (0.0, 0.0);
    let mut seen: Vec<&str> = Vec::new();
    for (case, key) in plan.cases.iter().zip(&books.keys) {
        let takes_s = books.takes_s(key, &case.inputs);
        let is_kept = books.results.contains_key(key);
        let is_virtual = case.inputs.is_virtual();
        if !is_kept && !seen.contains(&key.as_str()) {
            *(if is_virtual { &mut virtual_s } else { &mut other_s }) += takes_s;
        }
        seen.push(key);
        runs.push(Listed {
            name: case.name.clone(),
            key: key.clone(),
            is_kept,
            is_virtual,
            takes_s,
            memory_bytes: case.inputs.memory_bytes(),
        });
    }
    #[allow(clippy::cast_precision_loss)] // a few threads
    let takes_s = virtual_s / surroundings.threads.max(1) as f64 + other_s;
    Ok(Expected { runs, takes_s, remarks: books.remarks })
}

/// A message of a thread.
enum Message {
    Phase(String, String),
    Done(String, Box<Result<Kept, LabError>>),
}

/// A run that is to be made: its key, its inputs, and its name for people.
type Left<'p> = (&'p str, &'p Inputs, &'p str);

/// Takes in the messages of runs, and keeps their results.
struct Desk<'a> {
    shelf: &'a mut dyn Shelf,
    version: &'a str,
    follow: &'a mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    inputs: BTreeMap<&'a str, &'a Inputs>,
    count: usize,
    results: BTreeMap<String, Kept>,
    failure: Option<LabError>,
}

impl Desk<'_> {
    /// Whether runs go on.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Phase(name, what) => {
                let (done, count) = (self.results.len(), self.count);
                let text = format!("{name}: {what}");
                if (self.follow)(&Progress { run: &text, done, count, share: None }).is_break() {
                    self.fail(LabError::Interrupted);
                }
            }
            Message::Done(key, result) => match result.and_then(|kept| self.keep(&key, kept)) {
                Ok(kept) => {
                    self.results.insert(key, kept);
                }
                Err(error) => self.fail(error),
            },
        }
        self.failure.is_none()
    }

    fn keep(&mut self, key: &str, kept: Kept) -> Result<Kept, LabError> {
        let inputs = self.inputs[key];
        keep::keep(self.shelf, key, self.version, inputs, &kept)?;
        Ok(kept)
    }

    /// The first failure is the cause; later ones were only told to end.
    fn fail(&mut self, error: LabError) {
        if self.failure.is_none() {
            self.failure = Some(error);
        }
    }
}

/// Makes all runs that are not kept.
pub(super) fn run(
    plan: &Plan,
    shelf: &mut dyn Shelf,
    surroundings: &Surroundings<'_>,
    follow: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<Outcome, LabError> {
    let Books { keys, inputs, mut results, remarks } = Books::open(plan, shelf, surroundings)?;
    let kept = results.len();
    let left: Vec<Left<'_>> = inputs
        .iter()
        .filter(|(key, _)| !results.contains_key(*key))
        .map(|(key, (inputs, name))| (key.as_str(), *inputs, *name))
        .collect();
    let mut desk = Desk {
        shelf,
        version: surroundings.version,
        follow,
        inputs: left.iter().map(|(key, inputs, _)| (*key, *inputs)).collect(),
        count: left.len(),
        results: BTreeMap::new(),
        failure: None,
    };
    let (mut free, timed): (Vec<Left<'_>>, Vec<Left<'_>>) =
        left.into_iter().partition(|(_, inputs, _)| inputs.is_virtual());
    // The longest first, so that processors end together.
    free.sort_by_key(|(_, inputs, _)| std::cmp::Reverse(inputs.work_bytes()));
    together(&free, surroundings, &mut desk)?;
    for (key, inputs, name) in timed {
        if desk.failure.is_some() {
            break;
        }
        let tell = |what: &str, desk: &mut Desk<'_>| {
            desk.take(Message::Phase(name.to_owned(), what.to_owned()))
        };
        let result = make(name, inputs, surroundings, &mut |what| tell(what, &mut desk));
        desk.take(Message::Done(key.to_owned(), Box::new(result)));
    }
    if let Some(failure) = desk.failure {
        return Err(failure);
    }
    let mut made_now = desk.results;
    let made = made_now.len();
    results.append(&mut made_now);
    let measured = keys.iter().map(|key| match results.get(key) {
        Some(kept) => Ok(kept.measured.clone()),
        None => Err(LabError::Interrupted),
    });
    let measured = measured.collect::<Result<Vec<MeasuredCase>, LabError>>()?;
    Ok(Outcome { measured, kept, made, remarks })
}

/// Makes a run, and sees how long it takes.
fn make(
    name: &str,
    inputs: &Inputs,
    surroundings: &Surroundings<'_>,
    follow: &mut dyn FnMut(&str) -> bool,
) -> Result<Kept, LabError> {
    let clock = Clock::real();
    let began = clock.now();
    let measured = runs::run(inputs, surroundings, follow).map_err(|error| match error {
        LabError::Interrupted => error,
        error => {
            LabError::Line { kind: error.kind(), place: name.to_owned(), why: error.to_string() }
        }
    })?;
    Ok(Kept { measured, took_s: clock.now().since(began).as_secs_f64() })
}

/// The state that runs under way together share.
struct Shared {
    next: usize,
    /// Memory that none of them takes, in bytes.
    free_bytes: u64,
}

/// Makes runs on so many threads.
fn together(
    runs: &[Left<'_>],
    surroundings: &Surroundings<'_>,
    desk: &mut Desk<'_>,
) -> Result<(), LabError> {
    let shared = Mutex::new(Shared { next: 0, free_bytes: surroundings.memory_bytes });
    let (room, is_over) = (Condvar::new(), AtomicBool::new(false));
    let work = |tell: &Sender<Message>| {
        loop {
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((key, inputs, name)) = runs.get(state.next).copied() else { return };
            let needs = inputs.memory_bytes();
            if needs > state.free_bytes && !is_over.load(Ordering::Relaxed) {
                drop(room.wait(state));
                continue;
            }
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            state.next += 1;
            state.free_bytes -= needs;
            drop(state);
            let mut follow = |what: &str| {
                // Nobody listens any more only when it is over.
                let _ = tell.send(Message::Phase(name.to_owned(), what.to_owned()));
                !is_over.load(Ordering::Relaxed)
            };
            let result = make(name, inputs, surroundings, &mut follow);
            shared.lock().unwrap_or_else(PoisonError::into_inner).free_bytes += needs;
            room.notify_all();
            let _ = tell.send(Message::Done(key.to_owned(), Box::new(result)));
        }
    };
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        for number in 0..surroundings.threads.max(1).min(runs.len()) {
            let (tell, work) = (tell.clone(), &work);
            let name = format!("plan-{number}");
            if let Err(error) = thread::spawn_scoped(scope, &name, move || work(&tell)) {
                is_over.store(true, Ordering::Relaxed);
                room.notify_all();
                return Err(LabError::Thread(error));
            }
        }
        drop(tell);
        for message in told {
            if !desk.take(message) {
                is_over.store(true, Ordering::Relaxed);
                room.notify_all();
            }
        }
        Ok(())
    })
}
