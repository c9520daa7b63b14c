//! `esker run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

/// The program to run, with how much memory, and where its pages go.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    truncate -s 16G /data/swap.img\n  \
    esker run --memory 1GiB --swap /data/swap.img -- redis-server --port 6379\n  \
    esker run --memory 256MiB --swap temp:4GiB -- python3 job.py   a file that is gone at the end\n  \
    esker run --check redis-server                                 what works here\n\n\
    The program's large anonymous mappings are paged to the device; it needs no change. Programs that bring no\n\
    allocator get one that takes its memory so. What does not work: setuid programs, and those built with\n\
    a sanitizer. Memory that is not paged is told at the end. See docs/memory.md.\n\
    The exit code is the program's.")]
pub(crate) struct RunArgs {
    /// The memory for paged data: resident pages, copies on their way out, buffers
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = super::parse::at_least(super::parse::memory, "4MiB"),
        required = false,
        required_unless_present = "check",
        default_value_if("check", "true", "64MiB")
    )]
    pub(crate) memory: u64,
    /// A device specification, which must be there; or `temp:SIZE`, a file in /var/tmp without a name
    #[arg(
        long,
        value_name = "SPEC",
        required = false,
        required_unless_present = "check",
        default_value_if("check", "true", "temp:64MiB")
    )]
    pub(crate) swap: String,
    /// The most memory that the program can reserve; by default what the device holds
    #[arg(long, value_name = "SIZE")]
    #[arg(value_parser = super::parse::within(super::parse::bytes, "1MiB", "16TiB"))]
    pub(crate) reserve: Option<u64>,
    /// Which allocator: `auto` brings one if the program has none of its own
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    pub(crate) allocator: AllocatorArg,
    /// Read no page before it is needed
    #[arg(long)]
    pub(crate) no_read_ahead: bool,
    /// Keep no compressed copies of pages in memory
    #[arg(long)]
    pub(crate) no_compression: bool,
    /// Keep the machine's processors from sleeping while faults come often: faster, and takes power
    #[arg(long)]
    pub(crate) keep_awake: bool,
    /// End a program of whose memory more than --memory is not paged
    #[arg(long)]
    pub(crate) strict: bool,
    /// Show figures this often, on standard error; on a terminal they are shown anyway
    #[arg(long, value_name = "TIME")]
    #[arg(value_parser = super::parse::within(super::parse::time, "10ms", "1d"))]
    pub(crate) every: Option<Duration>,
    #[command(flatten)]
    pub(crate) telling: super::MetricsArgs,
    /// Run nothing: say what works on this machine, for this user and the program
    #[arg(long)]
    pub(crate) check: bool,
    /// The program and its arguments
    #[arg(required_unless_present = "check", trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// Which allocator a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AllocatorArg {
    /// Esker's, if the program has none of its own
    Auto,
    /// Esker's
    Bundled,
    /// The program's
    Own,
}
