//! `esker pool serve`: the process that owns a pool, answers requests about it, and exports its volumes.
//!
//! Order at the end: no more requests, no more hosts, then the pool is closed. A process that is killed leaves the
//! pool as after a crash: acknowledged writes are there, and the next one has the same exports.

use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use esker_serve::events::{Event, Waiting};
use esker_serve::http;
use esker_serve::metrics::{Caches, Collector, Devices, Drives, Exporter};
use esker_serve::target::metrics;
use esker_serve::token::Token;
use esker_stack::{OpenPool, Stack, VolumeSpec};

use super::export::Exports;
use super::link::{refused, stack};
use super::metrics::Metrics;
use super::served::Served;
use super::socket::{Server, default_path};
use crate::args::{Cpus, PoolServeArgs};
use crate::failure::{Failure, Result};
use crate::host;
use crate::output;
use crate::stderr::tell;

/// The longest wait for drives and devices that a process which has ended lets go of in a moment.
const LETTING_GO: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

/// Serves a pool until it is ended.
pub(crate) fn serve(args: &PoolServeArgs) -> Result {
    // Before any thread is started: threads begin where the one is that starts them.
    if let Some(cpus) = &args.cpus {
        pin(cpus)?;
    }
    // Before anything is open: a signal that comes early ends it in order, too.
    let mut signals = Waiting::new(args.time)?;
    host::allow_descriptors();
    let token = args.api_token.as_deref().filter(|_| args.api.is_some());
    let token = token.map(Token::load).transpose()?;
    let spec = VolumeSpec {
        map: args.map,
        grace: args.grace,
        patience: args.patience,
        repair_share: args.repair_share,
        scrub: args.scrub_within,
        ..args.opening.of(VolumeSpec::of_pool(&args.pool, &args.drives, &args.buffers))
    };
    let stack = Arc::new(stack());
    let pool = open(&stack, &spec)?;
    for remark in pool.remarks() {
        tell!("esker: note: {remark}");
    }
    let exports = Exports::start(&pool, &args.listen, &args.listen_tls, args.workers);
    let exports = exports.map_err(refused)?;
    let members = pool.clone();
    let collectors: Vec<Box<dyn Collector>> = vec![
        Box::new(Metrics(pool.clone())),
        Box::new(metrics::TargetMetrics(exports.target().clone())),
        Devices::told(move || members.device_stats()),
        Box::new(Drives(stack.clone())),
        Box::new(Caches(stack.clone())),
    ];
    let page = metrics::page(exports.target().clone());
    let metrics = Exporter::start(args.metrics, host::COMMIT, collectors, vec![page])?;
    let path = args.socket.clone().unwrap_or_else(|| default_path(&args.pool));
    let served = Arc::new(Served::exporting(stack, pool.clone(), exports));
    let server = Server::start(&path, &served)?;
    let mut text = format!("pool {} is served at {}\n", args.pool, path.display());
    let tcp = match (args.api, token) {
        (Some(address), Some(token)) => {
            let (server, address) = Server::start_tcp(address, token, &served)?;
            text.push_str(&format!("requests at http://{address}/v1\n"));
            Some(server)
        }
        _ => None,
    };
    for address in served.addresses() {
        text.push_str(&format!("listening on {address}\n"));
    }
    text.push_str(&format!("{}\n", metrics.place()));
    output::print(&text)?;
    loop {
        match signals.next(served.target(), &output::tell) {
            Event::Reload => {}
            Event::End(why) => {
                let _ = output::print(&format!("ending: {why}\n")); // nobody may read it
                break;
            }
        }
    }
    drop((server, tcp));
    drop(metrics);
    let Some(served) = http::unshared(served) else {
        let why = "a request has not ended: the pool was left open, as after a crash; nothing acknowledged is lost";
        return Err(Failure::new(ErrorKind::Retry, why));
    };
    let ended = served.close();
    // The target's threads let go of their devices after it has ended, unless a device hangs.
    let clock = Clock::real();
    let end = clock.now() + LETTING_GO;
    while Arc::strong_count(&pool) > 1 && clock.now() < end {
        clock.sleep(STEP);
    }
    let closed = pool.close().map_err(|error| Failure::new(error.kind(), error));
    ended.and(closed)
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
fn pin(cpus: &Cpus) -> Result {
    let mut set = rustix::thread::CpuSet::new();
    cpus.0.iter().for_each(|cpu| set.set(*cpu));
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
        let why =
            format!("--cpus {cpus}: {error}; name processors that this machine has and allows");
        Failure::new(ErrorKind::Invalid, why)
    })
}
