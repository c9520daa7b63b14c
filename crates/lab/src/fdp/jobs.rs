//! Runs, several at a time.
//!
//! Invariants
//! 1. Outcomes are in the order of the jobs, whichever thread did them, and are the same as
//!    with one thread.
//! 2. After the first error or the watcher's end no further job is begun, and those under way end
//!    soon; all threads have ended when [`run`] returns.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use esker_base::thread::spawn_scoped;

use super::configuration::Configuration;
use super::course::Measured;
use super::engine::EngineRun;
use super::measure::measure;
use super::named::NamedDevice;
use super::network::{Pair, Planned, Workload};
use super::worth::{Search, Spare};
use crate::LabError;
use crate::steps::Progress;
use crate::study::Follow;

/// Something to do.
pub(super) struct Job<'a> {
    pub(super) name: String,
    pub(super) work: Work<'a>,
}

/// Work of a job.
pub(super) enum Work<'a> {
    Measure(&'a Configuration),
    Engine(&'a EngineRun),
    Search(&'a Search),
    Network(&'a Planned),
    OnDevice(&'a NamedDevice, &'a Configuration),
}

/// Result of a job.
pub(super) enum Outcome {
    Measured(Measured),
    Spare(Spare),
    Pair(Box<Pair>),
}

impl Outcome {
    pub(super) fn measured(self) -> Measured {
        match self {
            Outcome::Measured(measured) => measured,
            Outcome::Spare(_) | Outcome::Pair(_) => unreachable!("planned otherwise"),
        }
    }

    pub(super) fn spare(self) -> Spare {
        match self {
            Outcome::Spare(spare) => spare,
            Outcome::Measured(_) | Outcome::Pair(_) => unreachable!("a search was planned here"),
        }
    }

    pub(super) fn pair(self) -> Pair {
        match self {
            Outcome::Pair(pair) => *pair,
            Outcome::Measured(_) | Outcome::Spare(_) => unreachable!("a pair was planned here"),
        }
    }
}

impl Job<'_> {
    fn run(&self, watch: &mut dyn FnMut(f64) -> bool) -> Result<Outcome, LabError> {
        match self.work {
            Work::Measure(of) => measure(of, watch).map(Outcome::Measured),
            Work::Engine(of) => of.measure(watch).map(Outcome::Measured),
            Work::Search(of) => of.run(watch).map(Outcome::Spare),
            Work::Network(of) => of.run(watch).map(|pair| Outcome::Pair(Box::new(pair))),
            Work::OnDevice(on, of) => on.measure(of, watch).map(Outcome::Measured),
        }
    }

    /// How much it is likely to take, so that the longest are begun first.
    fn size(&self) -> u64 {
        match self.work {
            Work::Measure(of) => of.drive.bytes / u64::from(of.drive.page_bytes),
            Work::Engine(_) | Work::Search(_) => u64::MAX,
            Work::Network(of) => match of.workload {
                Workload::Engine(_) => u64::MAX,
                Workload::Stores(_) => 0,
            },
            // One after the other, as they come.
            Work::OnDevice(..) => 0,
        }
    }
}

/// Messages of the threads to the caller.
enum Message {
    Share(usize, f64),
    Done(usize, Box<Result<Outcome, LabError>>),
}

/// Does all jobs on so many threads. When `follow` ends it, there are outcomes of the jobs that were through.
pub(super) fn run(
    jobs: &[Job<'_>],
    threads: usize,
    follow: &mut Follow<'_>,
) -> Result<Vec<Option<Outcome>>, LabError> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(jobs[index].size()));
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = |tell: &Sender<Message>| {
        while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut watch = |share| {
                // Nobody listens any more only when it is over.
                let _ = tell.send(Message::Share(index, share));
                !is_over.load(Ordering::Relaxed)
            };
            let outcome = if watch(0.0) { jobs[index].run(&mut watch) } else { return };
            let _ = tell.send(Message::Done(index, Box::new(outcome)));
        }
    };
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let mut failure = None;
        for number in 0..threads.min(jobs.len()) {
            let (tell, work) = (tell.clone(), &work);
            let started = spawn_scoped(scope, &format!("lab-{number}"), move || work(&tell));
            if let Err(error) = started {
                is_over.store(true, Ordering::Relaxed);
                failure = Some(LabError::Thread(error));
            }
        }
        drop(tell);
        let mut shares = vec![0.0; jobs.len()];
        let mut outcomes: Vec<Option<Outcome>> = jobs.iter().map(|_| None).collect();
        for message in told {
            let index = match message {
                Message::Share(index, share) => {
                    shares[index] = share;
                    index
                }
                Message::Done(index, outcome) => {
                    shares[index] = 1.0;
                    match *outcome {
                        Ok(outcome) => outcomes[index] = Some(outcome),
                        Err(error) => {
                            is_over.store(true, Ordering::Relaxed);
                            // Reports of others once it is over follow from that.
                            failure.get_or_insert(error);
                        }
                    }
                    index
                }
            };
            #[allow(clippy::cast_precision_loss)] // some tens of jobs
            let share = shares.iter().sum::<f64>() / jobs.len() as f64;
            let done = outcomes.iter().flatten().count();
            let share = Some(share);
            let now = Progress { run: &jobs[index].name, done, count: jobs.len(), share };
            if failure.is_none() && follow(&now).is_break() {
                is_over.store(true, Ordering::Relaxed);
                failure = Some(LabError::Interrupted);
            }
        }
        match failure {
            Some(LabError::Interrupted) if outcomes.iter().any(Option::is_some) => Ok(outcomes),
            Some(error) => Err(error),
            None => Ok(outcomes),
        }
    })
}
