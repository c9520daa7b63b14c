//! `esker target`: devices served over NVMe/TCP, and their traffic.

mod config;
pub(crate) mod metrics;
pub(crate) mod signals;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use esker_base::ErrorKind;
use esker_nvmf::{NvmfError, Target};
use esker_serve::http;
use esker_serve::metrics::{Caches, Collector, Devices, Drives, Exporter};

pub(crate) use config::WriteCache;
#[cfg(any(test, fuzzing))]
pub(crate) use config::is_configuration;

use crate::args::{ServeArgs, TargetCommand};
use crate::failure::{Failure, Result};
use crate::host;
use crate::output;
use crate::stderr::{complain, tell};

/// How long a status may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs a command.
pub(crate) fn run(command: &TargetCommand) -> Result {
    match command {
        TargetCommand::Serve(args) => serve(args),
        TargetCommand::Status { metrics } => status(*metrics),
    }
}

fn serve(args: &ServeArgs) -> Result {
    // Before anything is open: a signal that comes early ends it in order, too.
    let mut signals = signals::Waiting::new(args.time)?;
    host::allow_descriptors();
    let mut planner = config::Planner::new(args);
    let plan = planner.plan()?;
    planner.keep(&plan);
    for remark in &plan.remarks {
        tell!("esker: note: {remark}");
    }
    let target = Arc::new(Target::start(&plan.target)?);
    // Kept until the end: it answers while it lives.
    let collectors: Vec<Box<dyn Collector>> = vec![
        Box::new(metrics::Metrics(target.clone())),
        Devices::changing(planner.roots()),
        Box::new(Drives(planner.stack())),
        Box::new(Caches(planner.stack())),
    ];
    let page = metrics::page(target.clone());
    let metrics = Exporter::start(args.metrics, host::COMMIT, collectors, vec![page])?;
    let mut text = String::new();
    for address in target.addresses() {
        text.push_str(&format!("listening on {address}\n"));
    }
    text.push_str(&format!("{}\n", metrics.place()));
    text.push_str(&plan.served());
    output::print(&text)?;
    // The planner has the devices: one that is not served any more is closed.
    drop(plan);
    loop {
        match signals.next(Some(&target)) {
            signals::Event::Reload => reload(&mut planner, &target),
            signals::Event::End(why) => {
                say(&format!("ending: {why}\n"));
                break;
            }
        }
    }
    drop(metrics);
    match http::unshared(target) {
        Some(target) => {
            let closed = target.close();
            if matches!(closed, Err(NvmfError::Hung { .. })) {
                // A device that hangs would be waited for when it is dropped. The process ends it.
                std::mem::forget(planner);
            }
            Ok(closed?)
        }
        None => {
            std::mem::forget(planner);
            let why =
                "a request for metrics has not ended: devices were left open, as after a crash";
            Err(Failure::new(ErrorKind::Retry, why))
        }
    }
}

/// Reads the configuration again. One that is wrong is told of, and changes nothing.
fn reload(planner: &mut config::Planner<'_>, target: &Target) {
    let done = planner.plan().and_then(|plan| Ok((target.reconfigure(&plan.target)?, plan)));
    match done {
        Ok((stays, plan)) => {
            for remark in stays.iter().chain(&plan.remarks) {
                tell!("esker: note: {remark}");
            }
            planner.keep(&plan);
            say(&format!("configuration read again\n{}", plan.served()));
        }
        Err(failure) => {
            let stays = "the configuration was not read again, the one before stays in force";
            complain!("esker: {stays}: {}", failure.message());
        }
    }
}

/// Prints text for a reader of the output; the lack of a reader ends nothing.
fn say(text: &str) {
    let _ = output::print(text);
}

/// Asks a running target for its status.
fn status(address: SocketAddr) -> Result {
    let advice = "is a target running, and are its metrics at this address (--metrics)?";
    let refused = |error: std::io::Error| {
        Failure::new(ErrorKind::NotFound, format!("{address}: {error}; {advice}"))
    };
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(refused)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
    write!(stream, "GET /status HTTP/1.0\r\n\r\n").map_err(refused)?;
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer).map_err(refused)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split_whitespace().nth(1) == Some("200") => output::print(body),
        _ => {
            let why = format!("{address}: this is no target of Esker; {advice}");
            Err(Failure::new(ErrorKind::NotFound, why))
        }
    }
}
