//! The arguments that all experiments of `esker lab` have.

use std::path::PathBuf;

use clap::Args;

use super::metrics::LiveArgs;

/// The arguments of every experiment.
#[derive(Args)]
pub(crate) struct ExperimentArgs {
    /// The seed of all random choices
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = super::parse::seed)]
    pub(crate) seed: u64,
    /// Write the report, one HTML file, here
    #[arg(long, alias = "html", value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write all figures as JSON to this file, or to standard output where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Write the page in the form that `esker lab all` binds, here
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) page: Option<PathBuf>,
    /// End with the process of this number, which `esker lab all` is
    #[arg(long, value_name = "PROCESS", hide = true)]
    pub(crate) bound_to: Option<u32>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}
