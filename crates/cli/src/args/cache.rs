//! The arguments of `esker cache`.

use std::time::Duration;

use clap::{Args, Subcommand};

/// `esker cache`
#[derive(Subcommand)]
pub(crate) enum CacheCommand {
    /// Make a cache on a flash device, for an origin that stays as it is
    #[command(after_help = "Examples:\n  \
            esker cache create /dev/sdb /dev/nvme0n1 --mode wb\n  \
            esker cache create 'file:disk.img?capacity=64GiB' 'file:flash.img?capacity=4GiB'\n\n\
            Used as a device: 'cache:(/dev/sdb)?flash=(/dev/nvme0n1)'.")]
    Create {
        #[command(flatten)]
        devices: CacheDevices,
        /// Where writes go: wb (back), wt (through) or wa (around)
        #[arg(long, default_value = "wt")]
        mode: String,
        /// How much of the flash device is used [default: all]
        #[arg(long, value_name = "SIZE")]
        size: Option<String>,
        /// The size of a set [default: 16MiB]
        #[arg(long, value_name = "SIZE")]
        sets: Option<String>,
        /// The size of a run, neighbours that stay in one set [default: 256KiB]
        #[arg(long, value_name = "SIZE")]
        run: Option<String>,
        /// How runs go to sets: hashed, linear or single [default: hashed]
        #[arg(long = "mapping", alias = "map", value_name = "NAME")]
        map: Option<String>,
        /// Give up what is on the flash device: a cache with what it has not written back, or anything else
        #[arg(long)]
        overwrite: bool,
    },
    /// Show a cache: what its flash device says, or the process that has it open
    #[command(after_help = "Example:\n  esker cache info flash.img --json")]
    Info {
        /// The flash device
        #[arg(value_name = "FLASH")]
        flash: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Change where writes go, also of a cache in use
    #[command(after_help = "Example:\n  esker cache mode flash.img wt\n\n\
            What is dirty when a cache in use no longer writes back goes to the origin soon, whatever its age.")]
    Mode {
        /// The flash device
        #[arg(value_name = "FLASH")]
        flash: String,
        /// wb (back), wt (through) or wa (around)
        #[arg(value_name = "MODE")]
        mode: String,
    },
    /// Change the bounds of a cache in use, for as long as it is open
    #[command(after_help = "Example:\n  esker cache set flash.img --dirty 50 --dirty-age 5s")]
    Set {
        /// The flash device
        #[arg(value_name = "FLASH")]
        flash: String,
        /// The share of a set that may be dirty, in percent
        #[arg(long, value_name = "PERCENT", value_parser = super::parse::number(1u8, 100))]
        dirty: Option<u8>,
        /// How long a block may be dirty; 0 for as long as the cache is in use
        #[arg(long, value_name = "TIME")]
        #[arg(value_parser = super::parse::within(super::parse::time_or_zero, "0s", "365d"))]
        dirty_age: Option<Duration>,
        /// After how long a cached block survives a crash; 0 for none while the cache is in use
        #[arg(long, value_name = "TIME")]
        #[arg(value_parser = super::parse::within(super::parse::time_or_zero, "0s", "365d"))]
        name_age: Option<Duration>,
    },
    /// Write back what is dirty now in a cache in use
    #[command(after_help = "Example:\n  esker cache flush flash.img")]
    Flush {
        /// The flash device
        #[arg(value_name = "FLASH")]
        flash: String,
    },
    /// Give a cache another size and keep what is in it
    #[command(after_help = "Examples:\n  esker cache resize disk.img flash.img --size 2GiB\n  \
            esker cache resize disk.img flash.img --size 100MiB --anew\n\n\
            It grows by any size, and shrinks by eighths of what it was made with.")]
    Resize {
        #[command(flatten)]
        devices: CacheDevices,
        /// How much of the flash device is used [default: all]
        #[arg(long, value_name = "SIZE", value_parser = super::parse::bytes)]
        size: Option<u64>,
        /// Write everything back and start empty: any size is possible then
        #[arg(long)]
        anew: bool,
    },
    /// Make a device the origin of a cache that was made for another one, or whose origin was changed
    #[command(after_help = "Examples:\n  esker cache accept disk.img flash.img\n  \
            esker cache accept disk.img flash.img --dirty keep\n\n\
            It says what is going to become of every block, and then does that. What was cached clean is\n\
            read from the device anew. While there are blocks that only the flash device has, --dirty has\n\
            to say what becomes of them; without it nothing is changed.")]
    Accept {
        #[command(flatten)]
        devices: CacheDevices,
        /// Blocks that are not on the origin yet: keep (written over what this device holds) or drop
        #[arg(long, value_name = "keep|drop")]
        dirty: Option<String>,
    },
    /// Write everything back, so that the origin can be used without the cache
    #[command(after_help = "Examples:\n  esker cache detach disk.img flash.img\n  \
            esker cache detach disk.img flash.img --dirty drop\n\n\
            With --dirty drop nothing is written back: writes that only the flash device has are lost.\n\
            For a flash device that was wiped or damaged, or that is gone.")]
    Detach {
        #[command(flatten)]
        devices: CacheDevices,
        /// Lose the blocks that are not on the origin: drop; the flash device may be wiped, damaged or gone
        #[arg(long, value_name = "drop", value_parser = ["drop"])]
        dirty: Option<String>,
    },
}

/// The devices of a cache.
#[derive(Args)]
pub(crate) struct CacheDevices {
    /// The slow device: a path or a device specification
    #[arg(value_name = "ORIGIN")]
    pub(crate) origin: String,
    /// The flash device: a path or a device specification
    #[arg(value_name = "FLASH")]
    pub(crate) flash: String,
}
