//! Where a process tells its metrics, and shows a run that goes on.

use std::net::SocketAddr;

use clap::Args;

/// `--metrics`, where it is off unless it is asked for.
#[derive(Args)]
pub(crate) struct MetricsArgs {
    /// Tell metrics over HTTP while it runs: `/metrics` for Prometheus. A port alone is one of 127.0.0.1; 0 is any
    /// that is free
    #[arg(long, value_name = "ADDRESS|PORT", value_parser = super::parse::listen)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// `--live`
#[derive(Args)]
pub(crate) struct LiveArgs {
    /// Serve the report while it grows, at a port of 127.0.0.1 [default: any that is free]; the URL is printed, and
    /// only who has it can see the page
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = super::parse::number(0, u16::MAX))]
    pub(crate) live: Option<u16>,
}
