//! `esker target`: devices served over NVMe/TCP, and what they have carried.

mod config;
mod metrics;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use esker_nvmf::Target;

use crate::args::{ServeArgs, TargetCommand};
use crate::failure::{Failure, Result};
use crate::output;

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
    let plan = config::plan(args)?;
    for remark in &plan.remarks {
        eprintln!("esker: note: {remark}");
    }
    let target = Arc::new(Target::start(&plan.target)?);
    // Kept until the end: it answers while it lives.
    let metrics = metrics::Server::start(args.metrics, target.clone())?;
    let mut text = String::new();
    for address in target.addresses() {
        text.push_str(&format!("listening on {address}\n"));
    }
    text.push_str(&format!("metrics at http://{}/metrics\n", metrics.address()));
    for (nqn, nsid, device) in &plan.served {
        text.push_str(&format!("serving {nqn} namespace {nsid}: {device}\n"));
    }
    output::print(&text)?;
    let clock = Clock::real();
    match args.time {
        Some(time) => clock.sleep(time),
        None => loop {
            clock.sleep(Duration::from_secs(3600));
        },
    }
    drop(metrics);
    Ok(())
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
