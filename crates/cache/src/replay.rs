//! Replays block traces through the policies and the geometry of the cache.
//!
//! | module | contents |
//! | --- | --- |
//! | [`advise`] | which size, policy and geometry a trace asks for |
//! | [`trace`] | [`Trace`]: references to numbered blocks, built once and replayed many times |
//! | `engine` | one simulated cache |
//! | [`outcome`] | [`Outcome`]: its counts |
//!
//! Called by the command `esker trace`, by the study of caches and by tests. A simulated cache
//! uses the device's own policies, mapping, admission and rule of writing back. It differs in
//! having no time but that of the trace, by the second: due blocks are written back at that moment, and every command is finished before
//! the next one.

pub mod advise;
mod engine;
pub mod outcome;
pub mod trace;

use std::time::Duration;

use esker_base::policy::{Kind, Policy, Visitor};
use esker_base::sync::Mutex;

pub use outcome::{Outcome, Split, Traffic};
pub use trace::{Reference, Trace, TraceBuilder};

pub use crate::options::Mode;

use crate::{Admission, CacheError, Geometry, OpenOptions, WriteBack};

/// A cache to simulate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The policy.
    pub policy: Kind,
    /// How the cache is divided; the origin is as large as the trace says.
    pub geometry: Geometry,
    /// Where writes go.
    pub mode: Mode,
    /// Rule for writing back: which blocks, when, and with which neighbours.
    pub write_back: WriteBack,
    /// How long a block may be dirty, in the time of the trace; none for any time.
    pub dirty_age: Option<Duration>,
    /// Which missed blocks are let in.
    pub admission: Admission,
    /// Streams of sequential reads or writes bypass the cache once they are this long, in bytes;
    /// zero for never.
    pub sequential_bytes: u64,
    /// A read that goes on where another one ended, and misses, reads on, so many bytes at most;
    /// zero for never. Belady's optimum, which is one of fetching on demand, never does.
    pub read_ahead_bytes: u64,
}

impl Config {
    /// A write-back cache of `slots` slots in the usual geometry, without bypass of streams.
    #[must_use]
    pub fn new(policy: Kind, slots: u64) -> Config {
        Config {
            policy,
            geometry: Geometry::new(slots, 1),
            mode: Mode::WriteBack,
            write_back: WriteBack::default(),
            dirty_age: OpenOptions::default().dirty_age,
            admission: Admission::default(),
            sequential_bytes: 0,
            read_ahead_bytes: 0,
        }
    }
}

/// Simulates one cache.
///
/// # Errors
/// When the configuration's numbers do not go together.
pub fn run(trace: &Trace, config: &Config) -> Result<Outcome, CacheError> {
    run_from(trace, config, 0)
}

/// Simulates one cache, and counts from reference number `from` on, with which a request begins: those before it warm
/// the cache. Blocks that are dirty at the end count whenever they were written.
///
/// # Errors
/// When the configuration's numbers do not go together.
pub fn run_from(trace: &Trace, config: &Config, from: usize) -> Result<Outcome, CacheError> {
    let next = (config.policy == Kind::Belady).then(|| trace.next_uses());
    run_with(trace, config, from, next.as_deref())
}

fn run_with(
    trace: &Trace,
    config: &Config,
    from: usize,
    next: Option<&[u32]>,
) -> Result<Outcome, CacheError> {
    struct Run<'a> {
        trace: &'a Trace,
        config: &'a Config,
        from: usize,
        next: Option<&'a [u32]>,
    }
    impl Visitor for Run<'_> {
        type Output = Result<Outcome, CacheError>;
        fn visit<P: Policy + 'static>(
            self,
            build: impl Fn(u32) -> P + Send + Sync + 'static,
        ) -> Self::Output {
            Ok(engine::Engine::new(self.trace, self.config, build)?.run(self.from, self.next))
        }
    }
    let sets = config.geometry.sets()?;
    let largest = config.geometry.first_slot(1, sets);
    let largest = u32::try_from(largest).unwrap_or(u32::MAX);
    config.policy.visit(config.geometry.slots, largest, Run { trace, config, from, next })
}

/// Simulates many caches on one trace, with `threads` threads (at least one), and returns their
/// outcomes in the order of `configs`.
///
/// # Errors
/// When a configuration's numbers do not go together, or a thread could not be started.
pub fn run_all(
    trace: &Trace,
    configs: &[Config],
    threads: usize,
) -> Result<Vec<Outcome>, CacheError> {
    let belady = configs.iter().any(|config| config.policy == Kind::Belady);
    let next = belady.then(|| trace.next_uses());
    let turn = Mutex::new(0);
    let done: Vec<Mutex<Option<Result<Outcome, CacheError>>>> =
        configs.iter().map(|_| Mutex::new(None)).collect();
    let work = || loop {
        let at = {
            let mut turn = turn.lock();
            *turn += 1;
            *turn - 1
        };
        let Some(config) = configs.get(at) else { return };
        let next = next.as_deref().filter(|_| config.policy == Kind::Belady);
        *done[at].lock() = Some(run_with(trace, config, 0, next));
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(configs.len()) {
            esker_base::thread::spawn_scoped(scope, "replay", work)?;
        }
        work();
        Ok::<(), CacheError>(())
    })?;
    done.into_iter().filter_map(Mutex::into_inner).collect()
}

#[cfg(test)]
mod tests;
