//! How a cache is made, and how it is run.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use esker_base::Clock;
use esker_base::policy::Kind;

/// Where a write goes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// To the flash device; to the origin later.
    WriteBack,
    /// To the origin, then to the flash device.
    #[default]
    WriteThrough,
    /// To the origin; the flash device forgets the block.
    WriteAround,
}

impl Mode {
    const NAMES: [(&str, &str, Mode); 3] = [
        ("wb", "write-back", Mode::WriteBack),
        ("wt", "write-through", Mode::WriteThrough),
        ("wa", "write-around", Mode::WriteAround),
    ];

    pub(crate) fn number(self) -> u8 {
        match self {
            Mode::WriteBack => 0,
            Mode::WriteThrough => 1,
            Mode::WriteAround => 2,
        }
    }

    pub(crate) fn of_number(number: u8) -> Mode {
        match number {
            0 => Mode::WriteBack,
            1 => Mode::WriteThrough,
            _ => Mode::WriteAround,
        }
    }

    /// Two letters: `wb`, `wt`, `wa`.
    #[must_use]
    pub fn short(self) -> &'static str {
        Mode::NAMES.iter().find(|(_, _, mode)| *mode == self).map_or("", |(short, _, _)| short)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Mode::NAMES.iter().find(|(_, _, mode)| mode == self);
        f.write_str(found.map_or("", |(_, long, _)| long))
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let found = Mode::NAMES.iter().find(|(short, long, _)| text == *short || text == *long);
        found.map(|(_, _, mode)| *mode).ok_or_else(|| {
            format!("'{text}' is no mode: write wb (write-back), wt (write-through) or wa")
        })
    }
}

/// How blocks of the origin are dealt out to sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Division {
    /// Runs go to sets by a hash of their number.
    #[default]
    Hashed,
    /// Runs go to sets in turn.
    Linear,
    /// There is one set; of at most 65,535 slots.
    Single,
}

impl Division {
    pub(crate) fn number(self) -> u8 {
        match self {
            Division::Hashed => 0,
            Division::Linear => 1,
            Division::Single => 2,
        }
    }
}

/// Parameters that are chosen when a cache is made.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Where writes go; it can be changed later.
    pub mode: Mode,
    /// How many bytes of the flash device are used; all of it if none.
    pub flash_bytes: Option<u64>,
    /// Bytes of a set: 16 MiB unless told otherwise.
    pub set_bytes: u64,
    /// Bytes of a run, neighbours that stay in one set: 256 KiB unless told otherwise.
    pub run_bytes: u64,
    /// How runs are dealt out to sets.
    pub division: Division,
    /// Bytes of each of the two journal areas; chosen by the size of the flash device if none.
    pub area_bytes: Option<u64>,
    /// Identifies the cache, and seeds its mapping.
    pub id: u64,
    /// Whether the content of the flash device may be lost: a cache, dirty blocks and all, or anything else.
    pub overwrite: bool,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        let now = esker_base::clock::unix_time();
        CreateOptions {
            mode: Mode::default(),
            flash_bytes: None,
            set_bytes: 16 << 20,
            run_bytes: 256 << 10,
            division: Division::default(),
            area_bytes: None,
            id: u64::try_from(now.as_nanos() & u128::from(u64::MAX)).unwrap_or(1),
            overwrite: false,
        }
    }
}

/// Which blocks are let in when they are missed and would take the place of others. In a
/// write-back cache written blocks are let in always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Admission {
    /// All of them.
    #[default]
    All,
    /// Those that were missed before, lately: far fewer writes to the flash, and none for blocks that are read once;
    /// but every block misses once more.
    Again,
    /// As [`Admission::Again`] while that misses no more than [`Admission::All`], which is found
    /// out on a sample of the blocks.
    Auto,
}

impl Admission {
    /// All of them, with their names.
    pub const NAMES: [(&str, Admission); 3] =
        [("all", Admission::All), ("again", Admission::Again), ("auto", Admission::Auto)];
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Admission::NAMES.iter().find(|(_, rule)| rule == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

impl FromStr for Admission {
    type Err = String;

    fn from_str(text: &str) -> Result<Admission, String> {
        let found = Admission::NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, rule)| *rule)
            .ok_or_else(|| format!("'{text}' is no rule of admission: write all, again or auto"))
    }
}

/// The thread that does work which is not urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// A thread of the cache.
    #[default]
    Thread,
    /// The caller of [`Cache::step`](crate::Cache::step): for tests, which want every run alike.
    Manual,
}

/// Bounds of an open cache that may be changed while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// See [`OpenOptions::dirty_percent`].
    pub dirty_percent: u8,
    /// See [`OpenOptions::dirty_age`].
    pub dirty_age: Option<Duration>,
    /// See [`OpenOptions::name_age`].
    pub name_age: Option<Duration>,
}

/// How an open cache is run. Nothing of it is kept on a medium.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The mode from now on; the one on the medium if none.
    pub mode: Option<Mode>,
    /// Which block goes when room is needed.
    pub policy: Kind,
    /// Streams of sequential reads or writes bypass the cache once they are this long, in bytes;
    /// zero for never.
    pub sequential_bytes: u64,
    /// A read that goes on where another one ended, and misses, reads on: as much as the stream
    /// is long, at most so many bytes, not beyond where it bypasses the cache; zero for never.
    pub read_ahead_bytes: u64,
    /// Which missed blocks are let in.
    pub admission: Admission,
    /// The share of a set's slots that may be dirty, in percent.
    pub dirty_percent: u8,
    /// How long a block may be dirty, counted from when it became so, before it is written back also beside use; none
    /// for as long as the cache is in use. An origin that is too slow for that takes longer.
    pub dirty_age: Option<Duration>,
    /// How long a block may be cached before it has a name on the flash device, which survives a crash; none for as
    /// long as the cache is in use.
    pub name_age: Option<Duration>,
    /// How many times its capacity may be written to the flash device in a day; none for no limit.
    pub writes_per_day: Option<f64>,
    /// The thread that writes dirty blocks back, and makes clean blocks survive a restart.
    pub background: Background,
    /// The clock for rates.
    pub clock: Clock,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            mode: None,
            policy: Kind::default(),
            sequential_bytes: 1 << 20,
            read_ahead_bytes: 0,
            admission: Admission::default(),
            dirty_percent: 90,
            dirty_age: Some(Duration::from_secs(30)),
            name_age: Some(Duration::from_secs(10)),
            writes_per_day: None,
            background: Background::default(),
            clock: Clock::real(),
        }
    }
}
