//! A limit of operations and bytes a second, as volumes and namespaces have one.

use clap::Args;
use serde_json::{Value, json};

use super::parse;

/// The limit that is to be changed; the other stays as it is.
#[derive(Args)]
pub(crate) struct RateArgs {
    /// The most operations a second; 0 for no limit
    #[arg(long, value_name = "COUNT", required_unless_present = "bandwidth")]
    #[arg(value_parser = parse::within(parse::count_or_zero, "0", "1G"))]
    iops: Option<u64>,
    /// The most bytes a second; 0 for no limit
    #[arg(long, value_name = "SIZE", value_parser = parse::bandwidth)]
    bandwidth: Option<u64>,
}

impl RateArgs {
    /// The body of a request for it.
    pub(crate) fn body(&self) -> Value {
        json!({ "iops_limit": self.iops, "bytes_limit": self.bandwidth })
    }
}
