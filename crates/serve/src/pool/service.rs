//! The process that owns a pool, answers requests about it, and exports its volumes.
//!
//! Order at the end: no more requests, no more hosts, then the pool is closed. A process that is killed leaves the
//! pool as after a crash: acknowledged writes are there, and the next one has the same exports.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use esker_stack::{OpenPool, Stack, VolumeSpec};

use super::export::Exports;
use super::metrics::PoolMetrics;
use super::served::Served;
use crate::error::{Result, ServeError};
use crate::events::{Event, Tell, Told, Waiting};
use crate::metrics::{Caches, Collector, Devices, Drives, Exporter};
use crate::requests::api;
use crate::socket::SocketServer;
use crate::target::metrics::{TargetMetrics, page};
use crate::token::Token;
use crate::{http, process};

/// The longest wait for drives and devices that a process which has ended lets go of in a moment.
const LETTING_GO: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

/// The pool to serve, and where.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The pool, its devices, and how it goes on.
    pub pool: VolumeSpec,
    /// The socket at which requests are answered.
    pub socket: PathBuf,
    /// A loopback address at which requests are answered, too, and the file with the token that they have.
    pub api: Option<(SocketAddr, PathBuf)>,
    /// Addresses at which hosts reach exported volumes.
    pub listen: Vec<SocketAddr>,
    /// Addresses at which hosts with a key for TLS reach them.
    pub listen_tls: Vec<SocketAddr>,
    /// How many event loops the target has, each a thread.
    pub workers: Option<usize>,
    /// Numbers of the processors that are used; all where there are none.
    pub cpus: Vec<usize>,
    /// Where metrics are told.
    pub metrics: SocketAddr,
    /// The commit that the program was built from.
    pub commit: &'static str,
}

/// A pool that is served. Its parts end in this order.
pub struct PoolService {
    /// They answer while they live.
    requests: (SocketServer, Option<http::Server>),
    served: Arc<Served>,
    exporter: Exporter,
    pool: Arc<OpenPool>,
    greeting: String,
}

impl PoolService {
    /// Opens a pool with a stack, and serves it.
    ///
    /// # Errors
    /// The pool cannot be opened, or an address, a socket or a file cannot be had.
    pub fn start(options: &PoolOptions, stack: Arc<Stack>, tell: Tell<'_>) -> Result<PoolService> {
        // Before any thread is started: threads begin where the one is that starts them.
        if !options.cpus.is_empty() {
            pin(&options.cpus)?;
        }
        process::allow_descriptors();
        let api = match &options.api {
            Some((address, token)) => Some((*address, Token::load(token)?)),
            None => None,
        };
        let pool = open(&stack, &options.pool)?;
        pool.remarks().iter().for_each(|remark| tell(Told::Note(remark)));
        let exports = Exports::start(&pool, &options.listen, &options.listen_tls, options.workers)?;
        let (target, members) = (exports.target().clone(), pool.clone());
        let collectors: Vec<Box<dyn Collector>> = vec![
            Box::new(PoolMetrics(pool.clone())),
            Box::new(TargetMetrics(target.clone())),
            Devices::told(move || members.device_stats()),
            Box::new(Drives(stack.clone())),
            Box::new(Caches(stack.clone())),
        ];
        let exporter =
            Exporter::start(options.metrics, options.commit, collectors, vec![page(target)])?;
        let served = Arc::new(Served::exporting(stack, pool.clone(), exports));
        let socket = api::at_socket(
            &options.socket,
            "pool-socket",
            &served,
            "choose another path with --socket",
        )?;
        let (name, path) = (&options.pool.pool, options.socket.display());
        let mut greeting = format!("pool {name} is served at {path}\n");
        let api = match api {
            Some((address, token)) => {
                let (server, address) = api::at_address(address, token, &served)?;
                greeting.push_str(&format!("requests at http://{address}/v1\n"));
                Some(server)
            }
            None => None,
        };
        for address in served.addresses() {
            greeting.push_str(&format!("listening on {address}\n"));
        }
        greeting.push_str(&format!("{}\n", exporter.place()));
        Ok(PoolService { requests: (socket, api), served, exporter, pool, greeting })
    }

    /// Returns where it answers and listens, a line each.
    #[must_use]
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// Serves until an event ends it.
    pub fn run(&self, events: &mut Waiting, tell: Tell<'_>) {
        loop {
            match events.next(self.served.target(), tell) {
                Event::Reload => {}
                Event::End(why) => return tell(Told::Output(&format!("ending: {why}\n"))),
            }
        }
    }

    /// Ends in order, and closes the pool.
    ///
    /// # Errors
    /// A request has not ended, or a device or the pool could not be closed: it is as after a crash then.
    pub fn close(self) -> Result {
        let PoolService { requests, served, exporter, pool, .. } = self;
        drop(requests);
        drop(exporter);
        let Some(served) = http::unshared(served) else {
            let why = "a request has not ended: the pool was left open, as after a crash; nothing acknowledged is lost";
            return Err(ServeError::new(ErrorKind::Retry, why));
        };
        let ended = served.close();
        // The target's threads let go of their devices after it has ended, unless a device hangs.
        let clock = Clock::real();
        let end = clock.now() + LETTING_GO;
        while Arc::strong_count(&pool) > 1 && clock.now() < end {
            clock.sleep(STEP);
        }
        let closed = pool.close();
        ended?;
        Ok(closed?)
    }
}

/// Opens the pool. The system lets go of the drives a moment after a process that had them was killed.
fn open(stack: &Stack, spec: &VolumeSpec) -> Result<Arc<OpenPool>> {
    let clock = Clock::real();
    let end = clock.now() + LETTING_GO;
    loop {
        match stack.pool(spec) {
            Err(error) if error.kind() == ErrorKind::Conflict && clock.now() < end => {
                clock.sleep(20 * STEP);
            }
            opened => return Ok(opened?),
        }
    }
}

/// Keeps this thread, and those that it starts, on these processors.
fn pin(cpus: &[usize]) -> Result {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
        let cpus = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let why =
            format!("--cpus {cpus}: {error}; name processors that this machine has and allows");
        ServeError::invalid(why)
    })
}
