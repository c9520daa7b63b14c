//! Where a process tells its metrics.

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
