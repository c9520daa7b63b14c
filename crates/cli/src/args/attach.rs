//! `esker attach` and `esker detach`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// The device to attach, and where.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    esker attach disk.img /mnt/disk                       /mnt/disk/disk is the device\n  \
    esker attach --loop 'ssd:micron-7450?capacity=8GiB' /mnt/disk   and so is a /dev/loopN\n  \
    mkfs.ext4 /dev/loop0 && mount /dev/loop0 /mnt/files\n  \
    truncate -s 8G new.img && esker attach new.img /mnt/disk   a new file, of which nothing is written yet\n\n\
    The device must be there, and nothing is made: see truncate(1), `esker ssd create`, `esker cache create`.\n\
    It serves the device until it is interrupted (SIGINT, SIGTERM) or `esker detach` is run; while\n\
    somebody uses the device it goes on serving, unless it is told a second time.")]
pub(crate) struct AttachArgs {
    /// A device specification
    #[arg(value_name = "SPEC")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) to: AttachTo,
}

/// Where a device is attached, and how.
#[derive(Args)]
pub(crate) struct AttachTo {
    /// A directory, in which the file `disk` will be the device
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mount_point: PathBuf,
    /// Make a loop device over the file, for file systems (needs root)
    #[arg(long = "loop")]
    pub(crate) loop_device: bool,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Threads that serve it, each with a queue pair of the device
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = super::parse::threads)]
    pub(crate) threads: usize,
    /// How long to look for the next request before sleeping; only while that pays off
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = super::parse::microseconds)]
    pub(crate) spin: Duration,
    /// Attach at a directory that is not empty: what it has is hidden meanwhile
    #[arg(long)]
    pub(crate) nonempty: bool,
    /// While requests come faster than that, keep idle processors from halting (needs root)
    #[arg(long)]
    pub(crate) keep_awake: bool,
    #[command(flatten)]
    pub(crate) telling: super::MetricsArgs,
}

/// The device to detach.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    esker detach /mnt/disk\n  \
    esker detach /mnt/disk --wait 60                      others have a minute to close it\n  \
    esker detach /mnt/disk --force                        others get errors\n  \
    esker detach /mnt/disk --force                        whoever uses it gets errors\n  \
    findmnt -t fuse.esker                                 what is attached")]
pub(crate) struct DetachArgs {
    /// Where a device is attached, or was when its process crashed
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mount_point: PathBuf,
    /// How long to wait while somebody uses the device, who is named
    #[arg(long, value_name = "TIME", default_value = "10s")]
    #[arg(value_parser = super::parse::within(super::parse::time_or_zero, "0s", "1d"))]
    pub(crate) wait: Duration,
    /// Detach it while somebody uses it: they get errors, and what was not flushed is as after a crash
    #[arg(long)]
    pub(crate) force: bool,
}
