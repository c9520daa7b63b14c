//! Devices served over NVMe/TCP, and their traffic.
//!
//! | module | content |
//! | --- | --- |
//! | `options` | [`TargetOptions`] |
//! | [`mod@file`] | the configuration, from a file or from options |
//! | `config` | its devices and keys |
//! | [`view`] | answers to requests |
//! | `control`, `routes` | changes while it runs; requests |
//! | `metrics` | metrics for Prometheus; the state for people |

mod config;
mod control;
pub mod file;
pub(crate) mod metrics;
mod options;
mod routes;
pub mod view;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::ErrorKind;
use esker_nvmf::{NvmfError, Target};
use esker_stack::Stack;

use crate::error::{Result, ServeError};
use crate::events::{Event, Tell, Told, Waiting};
use crate::metrics::{Caches, Collector, Devices, Drives, Exporter};
use crate::requests::api;
use crate::socket::SocketServer;
use crate::token::Token;
use crate::{http, process};
use config::Planner;
#[cfg(any(test, fuzzing))]
pub(crate) use config::is_configuration;
use control::Control;
use metrics::TargetMetrics;
pub use options::TargetOptions;
pub use routes::description;

/// How long a status may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// A target that runs, with its devices and metrics. They end in this order.
pub struct TargetService {
    /// They answer while they live.
    requests: (Option<SocketServer>, Option<http::Server>),
    exporter: Exporter,
    control: Arc<Control>,
    greeting: String,
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
        let (address, commit, socket) = (options.metrics, options.commit, options.control.clone());
        let api = match &options.api {
            Some((address, token)) => Some((*address, Token::load(token)?)),
            None => None,
        };
        let mut planner = Planner::new(options, stack.clone());
        let mut plan = planner.plan()?;
        plan.remarks.iter().for_each(|remark| tell(Told::Note(remark)));
        let target = Arc::new(Target::start(&plan.target)?);
        let numbers: Vec<usize> = target.portals().iter().map(|one| one.portal).collect();
        plan.listens(&target, &numbers);
        planner.keep(plan, false);
        let collectors: Vec<Box<dyn Collector>> = vec![
            Box::new(TargetMetrics(target.clone())),
            Devices::changing(planner.roots()),
            Box::new(Drives(stack.clone())),
            Box::new(Caches(stack.clone())),
        ];
        let page = metrics::page(target.clone());
        let exporter = Exporter::start(address, commit, collectors, vec![page])?;
        let listening = |address| format!("listening on {address}\n");
        let mut greeting: String = target.addresses().into_iter().map(listening).collect();
        greeting.push_str(&format!("{}\n", exporter.place()));
        let control = Arc::new(Control::new(target, stack, planner));
        let advice = "choose another path with --control";
        let at = |path: PathBuf| -> Result<SocketServer> {
            let server = api::at_socket(&path, "target-socket", &control, advice)?;
            greeting.push_str(&format!("requests at {}\n", path.display()));
            Ok(server)
        };
        let socket = socket.map(at).transpose()?;
        let api = match api {
            Some((address, token)) => {
                let (server, address) = api::at_address(address, token, &control)?;
                greeting.push_str(&format!("requests at http://{address}/v1\n"));
                Some(server)
            }
            None => None,
        };
        let requests = (socket, api);
        Ok(TargetService { requests, exporter, control, greeting })
    }

    /// Returns where it listens and what it serves, a line each.
    #[must_use]
    pub fn greeting(&self) -> String {
        format!("{}{}", self.greeting, self.control.planner.read().served())
    }

    /// Serves until an event ends it. `SIGHUP` has it read its configuration again.
    pub fn run(&mut self, events: &mut Waiting, tell: Tell<'_>) {
        loop {
            match events.next(Some(&self.control.target), tell) {
                Event::Reload => self.reload(tell),
                Event::End(why) => return tell(Told::Output(&format!("ending: {why}\n"))),
            }
        }
    }

    /// Reads the configuration again. One that is wrong is told of, and changes nothing.
    fn reload(&self, tell: Tell<'_>) {
        match self.control.reload() {
            Ok(remarks) => {
                remarks.iter().for_each(|remark| tell(Told::Note(remark)));
                let served = self.control.planner.read().served();
                tell(Told::Output(&format!("configuration read again\n{served}")));
            }
            Err(error) => {
                let stays = "the configuration was not read again, the one before stays in force";
                tell(Told::Failure(&format!("{stays}: {error}")));
            }
        }
    }

    /// Ends in order: no more requests and metrics, then connections are closed, and the devices.
    ///
    /// # Errors
    /// A device hangs, or a request has not ended. Devices are left open then, as after a crash.
    pub fn close(self) -> Result {
        let TargetService { requests, exporter, control, .. } = self;
        control.is_ending.store(true, Ordering::Release);
        drop(requests);
        drop(exporter);
        let unended = || {
            let why = "a request has not ended: devices were left open, as after a crash";
            ServeError::new(ErrorKind::Retry, why)
        };
        // A request that goes on has the devices, too.
        let Control { target, planner, .. } = http::unshared(control).ok_or_else(unended)?;
        let Some(target) = http::unshared(target) else {
            std::mem::forget(planner);
            return Err(unended());
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
