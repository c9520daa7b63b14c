//! Devices served over NVMe/TCP, and their traffic.
//!
//! | module | content |
//! | --- | --- |
//! | `options` | [`TargetOptions`] |
//! | `config` | the configuration, from a file or from options, and its devices |
//! | `metrics` | metrics for Prometheus; the state for people |

mod config;
pub(crate) mod metrics;
mod options;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use esker_base::ErrorKind;
use esker_nvmf::{NvmfError, Target};
use esker_stack::Stack;

use crate::error::{Result, ServeError};
use crate::events::{Event, Tell, Told, Waiting};
use crate::metrics::{Caches, Collector, Devices, Drives, Exporter};
use crate::{http, process};
use config::Planner;
#[cfg(any(test, fuzzing))]
pub(crate) use config::is_configuration;
use metrics::TargetMetrics;
pub use options::TargetOptions;

/// How long a status may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// A target that runs, with its devices and metrics. They end in this order.
pub struct TargetService {
    /// It answers while it lives.
    exporter: Exporter,
    target: Arc<Target>,
    /// It has the devices: one that is not served any more is closed.
    planner: Planner,
}

impl TargetService {
    /// Opens the devices with a stack, and serves them.
    ///
    /// # Errors
    /// The configuration is wrong, or a device, an address or a key cannot be had.
    pub fn start(
        options: TargetOptions,
        stack: Arc<Stack>,
        tell: Tell<'_>,
    ) -> Result<TargetService> {
        process::allow_descriptors();
        let (address, commit) = (options.metrics, options.commit);
        let mut planner = Planner::new(options, stack.clone());
        let plan = planner.plan()?;
        planner.keep(&plan);
        plan.remarks.iter().for_each(|remark| tell(Told::Note(remark)));
        let target = Arc::new(Target::start(&plan.target)?);
        let collectors: Vec<Box<dyn Collector>> = vec![
            Box::new(TargetMetrics(target.clone())),
            Devices::changing(planner.roots()),
            Box::new(Drives(stack.clone())),
            Box::new(Caches(stack)),
        ];
        let page = metrics::page(target.clone());
        let exporter = Exporter::start(address, commit, collectors, vec![page])?;
        Ok(TargetService { exporter, target, planner })
    }

    /// Returns where it listens and what it serves, a line each.
    #[must_use]
    pub fn greeting(&self) -> String {
        let listening = |address| format!("listening on {address}\n");
        let mut text: String = self.target.addresses().into_iter().map(listening).collect();
        text.push_str(&format!("{}\n{}", self.exporter.place(), self.planner.served()));
        text
    }

    /// Serves until an event ends it. `SIGHUP` has it read its configuration again.
    pub fn run(&mut self, events: &mut Waiting, tell: Tell<'_>) {
        loop {
            match events.next(Some(&self.target), tell) {
                Event::Reload => self.reload(tell),
                Event::End(why) => return tell(Told::Output(&format!("ending: {why}\n"))),
            }
        }
    }

    /// Reads the configuration again. One that is wrong is told of, and changes nothing.
    fn reload(&mut self, tell: Tell<'_>) {
        let done = self.planner.plan();
        match done.and_then(|plan| Ok((self.target.reconfigure(&plan.target)?, plan))) {
            Ok((stays, plan)) => {
                stays.iter().chain(&plan.remarks).for_each(|remark| tell(Told::Note(remark)));
                self.planner.keep(&plan);
                let served = self.planner.served();
                tell(Told::Output(&format!("configuration read again\n{served}")));
            }
            Err(error) => {
                let stays = "the configuration was not read again, the one before stays in force";
                tell(Told::Failure(&format!("{stays}: {error}")));
            }
        }
    }

    /// Ends in order: no more metrics, then connections are closed, and the devices.
    ///
    /// # Errors
    /// A device hangs, or a request for metrics has not ended. Devices are left open then, as after a crash.
    pub fn close(self) -> Result {
        let TargetService { exporter, target, planner } = self;
        drop(exporter);
        let Some(target) = http::unshared(target) else {
            std::mem::forget(planner);
            let why =
                "a request for metrics has not ended: devices were left open, as after a crash";
            return Err(ServeError::new(ErrorKind::Retry, why));
        };
        let closed = target.close();
        if matches!(closed, Err(NvmfError::Hung { .. })) {
            // A device that hangs would be waited for when it is dropped. The process ends it.
            std::mem::forget(planner);
        }
        Ok(closed?)
    }
}

/// Asks a running target, by the address of its metrics, for its status as text.
///
/// # Errors
/// `NotFound` when no target answers there.
pub fn status(address: SocketAddr) -> Result<String> {
    let advice = "is a target running, and are its metrics at this address (--metrics)?";
    let refused = |error: io::Error| {
        ServeError::new(ErrorKind::NotFound, format!("{address}: {error}; {advice}"))
    };
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(refused)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
    write!(stream, "GET /status HTTP/1.0\r\n\r\n").map_err(refused)?;
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer).map_err(refused)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split_whitespace().nth(1) == Some("200") => Ok(body.to_owned()),
        _ => {
            let why = format!("{address}: this is no target of Esker; {advice}");
            Err(ServeError::new(ErrorKind::NotFound, why))
        }
    }
}
