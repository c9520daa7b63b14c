//! The arguments of `esker kv`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use esker_kv::{Compression, Policy};

use super::parse::{self, Medium, Staging};

/// How a database is opened.
#[derive(Args)]
pub(crate) struct Opening {
    /// The directory of the database
    pub(crate) dir: PathBuf,
    /// The memory budget of the engine
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = parse::memory)]
    pub(crate) memory: u64,
    /// A write is durable this long after its acknowledgement; 0: before it [default: 100ms]
    #[arg(long = "durability", alias = "durability-ms", value_name = "TIME")]
    #[arg(value_parser = parse::within(parse::milliseconds, "0s", "1d"))]
    pub(crate) durability_ms: Option<u64>,
}

/// On which media a copy of a database is to stand.
#[derive(Args)]
pub(crate) struct CopyArgs {
    /// Where its staging class goes, as for create [default: a file in its directory if the original
    /// has one; a repaired database has none]
    #[arg(long, value_name = "DEVICE", num_args = 0..=1)]
    #[arg(default_missing_value = "", value_parser = Staging::parse)]
    pub(crate) staging: Option<Staging>,
    /// Where its capacity class goes, as for create
    #[arg(long, value_name = "DEVICE", value_parser = Medium::parse)]
    pub(crate) capacity: Option<Medium>,
}

/// Treatment of damage.
#[derive(Args)]
pub(crate) struct DamageArgs {
    /// Leave out what is damaged, name it, and end with exit code 65, instead of ending there
    #[arg(long)]
    pub(crate) skip_corrupted: bool,
}

/// How keys are written on the command line.
#[derive(Args)]
pub(crate) struct Escaped {
    /// Keys and values on the command line are written with the escapes \t \n \r \\ and \xNN
    #[arg(long, short)]
    pub(crate) escaped: bool,
}

/// `esker kv`
#[derive(Subcommand)]
pub(crate) enum KvCommand {
    /// Create a database
    #[command(after_help = "Examples:\n  \
            esker kv create /data/db\n  \
            esker kv create /data/db --staging /mnt/optane --capacity /dev/nvme1n1\n  \
            esker kv create /data/db --staging --kvs users --kvs logs:staging-min-capacity\n  \
            esker kv create /data/db --compression auto\n  \
            esker kv create /data/db --capacity 'ssd:micron-5210?capacity=8GiB&image=/data/qlc'\n\n\
            Policies say where keys and values go, young and old: staging-max-capacity (keys on\n\
            staging, old values on capacity; the default, also called auto), staging-min-capacity\n\
            (everything old on capacity), staging-only, capacity-only; `esker kv set-policy --help`\n\
            says how to make others.")]
    Create {
        #[command(flatten)]
        opening: Opening,
        /// Give it a staging class: a directory, a new file, a raw block device, a device
        /// specification, or nothing for a file in the database's directory [default: none]
        #[arg(long, default_value = "none", hide_default_value = true)]
        #[arg(value_name = "DEVICE", num_args = 0..=1, require_equals = true)]
        #[arg(default_missing_value = "", value_parser = Staging::parse)]
        staging: Staging,
        /// Where the capacity class goes: a directory, a new file, a raw block device, or a device
        /// specification [default: a file in the database's directory]
        #[arg(long, value_name = "DEVICE", value_parser = Medium::parse)]
        capacity: Option<Medium>,
        /// Create this KVS, with this policy; may be given several times
        #[arg(long, default_value = "default", value_name = "NAME[:POLICY]", value_parser = parse::kvs)]
        kvs: Vec<(String, Policy)>,
        /// How old values are compressed, in every KVS created: none, lz4, zstd or auto
        #[arg(long, default_value_t)]
        compression: Compression,
    },
    /// Show what a database holds and does
    Info {
        #[command(flatten)]
        opening: Opening,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Map a key to a value
    #[command(after_help = "Examples:\n  \
            esker kv put /data/db default hello world\n  \
            esker kv put /data/db default photo - < photo.jpg")]
    Put {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        /// The key: up to 1344 bytes
        key: OsString,
        /// The value: up to 1 MiB; - is standard input
        value: OsString,
        #[command(flatten)]
        escaped: Escaped,
    },
    /// Write the value of a key to standard output, as it is; exit code 1 when there is none
    #[command(after_help = "Example:\n  esker kv get /data/db default photo > photo.jpg")]
    Get {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        /// The key
        key: OsString,
        /// As hexadecimal digits, and a newline
        #[arg(long)]
        hex: bool,
        #[command(flatten)]
        escaped: Escaped,
    },
    /// Remove a key, whether it is there or not
    Delete {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        /// The key
        key: OsString,
        #[command(flatten)]
        escaped: Escaped,
    },
    /// Remove all keys that begin with a prefix, however many, with one record
    DeletePrefix {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        /// The prefix, of 1 byte at least
        prefix: OsString,
        #[command(flatten)]
        escaped: Escaped,
    },
    /// Remove all keys of a range, however many, with one record
    #[command(
        after_help = "It needs version 2 of the format, to which it upgrades the database by itself.\n\n\
            Examples:\n  \
            esker kv delete-range /data/db default --from 2024 --to 2025\n  \
            esker kv delete-range /data/db default --to 2025"
    )]
    #[command(group(ArgGroup::new("bounds").args(["from", "to"]).required(true).multiple(true)))]
    DeleteRange {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        /// Begin at this key, inclusive [default: the first one]
        #[arg(long, value_name = "KEY")]
        from: Option<OsString>,
        /// End at this key, exclusive [default: behind the last one]
        #[arg(long, value_name = "KEY")]
        to: Option<OsString>,
        #[command(flatten)]
        escaped: Escaped,
    },
    /// Print keys and values in key order, one pair a line: KEY<TAB>VALUE, escaped as by dump
    #[command(after_help = "Examples:\n  \
            esker kv scan /data/db default --prefix user: --limit 10\n  \
            esker kv scan /data/db default --from a --to n --reverse --keys")]
    Scan {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        #[command(flatten)]
        range: RangeArgs,
        #[command(flatten)]
        escaped: Escaped,
    },
    /// Put every record of a dump, or every line of a file: KEY<TAB>VALUE, escaped as by dump
    #[command(
        after_help = "Format: one record a line, key, a tab, value. In both, \\t is a tab, \\n a newline, \\r a\n\
            carriage return, \\\\ a backslash and \\xNN the byte NN (two hexadecimal digits); all\n\
            other bytes stand for themselves. A dump says which KVS its records belong to, and with\n\
            what policy; without a KVS, each goes to the one of its name, which is made if need be.\n\n\
            Examples:\n  \
            printf 'k1\\tv1\\nk2\\tv2\\n' | esker kv load /data/db default\n  \
            esker kv dump /data/db | esker kv load /data/other"
    )]
    Load {
        #[command(flatten)]
        opening: Opening,
        /// The KVS [default: those that the dump names]
        kvs: Option<String>,
        /// The file; - is standard input
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Write all records of a KVS, or of all of them, as text, so that load reads back the same bytes
    #[command(
        after_help = "Format: \\dump 1 and how many KVSs there are, then for each KVS a line \\kvs NAME\n\
            and its policy, compression, time to live and metadata, its\n\
            records, and a line \\end COUNT. One record a line, key, a tab, value. In both, \\t is\n\
            a tab, \\n a newline, \\r a carriage return, \\\\ a backslash and \\xNN the byte NN (two\n\
            hexadecimal digits); what is not printable ASCII is written as \\xNN.\n\n\
            Examples:\n  \
            esker kv dump /data/db default users.dump\n  \
            esker kv dump /data/db | gzip > db.gz"
    )]
    Dump {
        #[command(flatten)]
        opening: Opening,
        #[command(flatten)]
        damage: DamageArgs,
        /// The KVS [default: all]
        kvs: Option<String>,
        /// The file; - is standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Read and verify all of a database, changing nothing; exit code 65 when it is damaged
    Check {
        /// The directory of the database
        dir: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Copy a database that nobody writes to another directory or other devices; to restore a copy, copy
    /// it back, or open it where it is
    #[command(
        visible_alias = "restore",
        after_help = "The copy is a database of its own. An interrupted one is no database, and may be begun again.\n\n\
            Examples:\n  \
            esker kv backup /data/db /backup/db\n  \
            esker kv restore /backup/db /data/db --staging /mnt/optane --capacity /dev/nvme1n1"
    )]
    Backup {
        #[command(flatten)]
        opening: Opening,
        /// The directory of the copy
        to: PathBuf,
        #[command(flatten)]
        copy: CopyArgs,
        #[command(flatten)]
        damage: DamageArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write what is sound of a damaged database to a new one, and say what is not; exit code 65 when
    /// something is lost
    #[command(after_help = "The damaged database is not changed.\n\n\
            Examples:\n  \
            esker kv repair /data/db /data/repaired --staging\n  \
            esker kv repair /data/db /data/repaired --old-capacity /dev/nvme1n1\n  \
            esker kv repair /data/db /data/repaired --old-staging none")]
    Repair {
        #[command(flatten)]
        opening: Opening,
        /// The directory of the new database
        to: PathBuf,
        #[command(flatten)]
        copy: CopyArgs,
        /// Where the damaged database has its staging class, if its manifest does not tell: as for
        /// create, or none to do without what lies there
        #[arg(long, value_name = "DEVICE", value_parser = Staging::parse)]
        old_staging: Option<Staging>,
        /// Where it has its capacity class
        #[arg(long, value_name = "DEVICE", value_parser = Staging::parse)]
        old_capacity: Option<Staging>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Create a KVS
    CreateKvs {
        #[command(flatten)]
        opening: Opening,
        /// Its name: 1 to 255 letters, digits, -, _ or .
        name: String,
        /// Where its data goes: staging-max-capacity, staging-min-capacity, staging-only,
        /// capacity-only, or as in set-policy
        #[arg(long, default_value = "staging-max-capacity")]
        policy: Policy,
        /// How old values are compressed: none, lz4, zstd, or auto (what a sample of them says)
        #[arg(long, default_value_t)]
        compression: Compression,
        /// Records that are put into it are gone after this time, such as 90s or 7d [default: never]
        #[arg(long, value_name = "TIME", value_parser = parse::time_or_zero)]
        ttl: Option<Duration>,
    },
    /// Change the time to live of what is put into a KVS from now on
    SetTtl {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        /// Such as 90s or 7d; without it, what is put stays until it is deleted
        #[arg(value_parser = parse::time_or_zero)]
        ttl: Option<Duration>,
    },
    /// Change where the data of a KVS goes; what is there already moves when it is rewritten
    #[command(
        after_help = "A policy is the name of a template, changes to one, or both, separated by commas:\n\n  \
            staging-max-capacity   keys and young values on staging, old values on capacity; auto\n  \
            staging-min-capacity   young data on staging, everything old on capacity\n  \
            staging-only           everything on staging\n  \
            capacity-only          everything on capacity\n  \
            CELL=CLASS             prefer CLASS, and use the other one when it is full\n  \
            CELL=CLASS/none        refuse writes when CLASS is full\n\n\
            CELL is young-keys, young-values, old-keys or old-values, or several of them: young, old,\n\
            keys, values, all. CLASS is staging or capacity.\n\n\
            Examples:\n  \
            esker kv set-policy /data/db logs capacity-only\n  \
            esker kv set-policy /data/db users staging-only,old-values=staging/none"
    )]
    SetPolicy {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        /// The policy
        policy: Policy,
    },
    /// Change how the old values of a KVS are compressed; those that are already stay as they are
    #[command(after_help = "Compressions:\n  \
            none   values are stored as they are\n  \
            lz4    the fastest to read\n  \
            zstd   the smallest\n  \
            auto   what a sample of the values says: zstd where it saves an eighth more than lz4\n\n\
            None of them keeps a value compressed that it does not make an eighth smaller.\n\n\
            Example:\n  \
            esker kv set-compression /data/db users auto")]
    SetCompression {
        #[command(flatten)]
        opening: Opening,
        /// The KVS
        kvs: String,
        /// none, lz4, zstd or auto
        compression: Compression,
    },
    /// Drop a KVS with all it holds
    DropKvs {
        #[command(flatten)]
        opening: Opening,
        /// Its name
        name: String,
    },
    /// Merge and move data until nothing is left to save, or until a goal is reached; what is damaged stays as it
    /// is, and is named: exit code 65
    #[command(after_help = "Ctrl-C ends it; what was done until then stays.\n\n\
            Examples:\n  \
            esker kv compact /data/db\n  \
            esker kv compact /data/db --goal 1.1\n  \
            esker kv compact /data/db --scrub")]
    Compact {
        #[command(flatten)]
        opening: Opening,
        /// Then erase what was deleted or overwritten: nothing of it is left on the media. On a raw device all free
        /// space is overwritten, which takes as long as that takes
        #[arg(long, conflicts_with = "goal")]
        scrub: bool,
        /// Until the media hold this many bytes for each live byte: at least 1.02 [default: merge and
        /// age everything, and move it to where its policy wants it]
        #[arg(long, value_name = "RATIO", value_parser = parse::number(1.02, 100.0))]
        goal: Option<f64>,
    },
    /// Move everything off the staging class, and end it; refused when capacity lacks room
    RemoveStaging {
        #[command(flatten)]
        opening: Opening,
    },
    /// Upgrade a database to the newest version of the format on media; releases that do not know it refuse the
    /// database from then on
    #[command(
        after_help = "That happens by itself when something is written that needs it. There is no way back.\n\n\
            Example:\n  \
            esker kv upgrade /data/db"
    )]
    Upgrade {
        #[command(flatten)]
        opening: Opening,
    },
    /// Give a database without one a staging class
    AddStaging {
        #[command(flatten)]
        opening: Opening,
        /// A directory, a new file, a raw block device, or a device specification [default: a file
        /// in the database's directory]
        #[arg(value_parser = Medium::parse)]
        device: Option<Medium>,
    },
}

/// Which part of a KVS.
#[derive(Args)]
pub(crate) struct RangeArgs {
    /// Begin at this key, inclusive
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// End at this key, exclusive
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    /// Only keys that begin so
    #[arg(long, value_name = "KEY")]
    pub(crate) prefix: Option<OsString>,
    /// From the last key to the first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// At most this many
    #[arg(long, value_name = "COUNT", value_parser = parse::count)]
    pub(crate) limit: Option<u64>,
    /// Keys only
    #[arg(long)]
    pub(crate) keys: bool,
}
