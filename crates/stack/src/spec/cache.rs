//! Caches: a flash device in front of an origin.

use std::time::Duration;

use esker_base::policy::Kind;
use esker_cache::{Admission, CreateOptions, Division, Mode, OpenOptions};

use super::Spec;
use super::syntax::{
    Key, Keys, Parts, duration, name_of, number, one_of, show_duration, show_size, size,
};

const DIVISIONS: [(&str, Division); 3] =
    [("hashed", Division::Hashed), ("linear", Division::Linear), ("single", Division::Single)];
const EXAMPLE: &str = "cache:(disk.img)?flash=(flash.img)&mode=wb";

/// A cache: see [`Cache`](esker_cache::Cache). Size, sets, runs and their mapping are those of the
/// cache that is there; they count when there is none yet, and one is made.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSpec {
    /// The slow, large device.
    pub origin: Spec,
    /// The fast device: flash.
    pub flash: Spec,
    /// Where writes go; as it was, or write-through, where nothing is said.
    pub mode: Option<Mode>,
    /// Which block goes when room is needed; by the adaptive policy where nothing is said.
    pub policy: Option<Kind>,
    /// Bytes of the flash device that are used; all where nothing is said.
    pub size: Option<u64>,
    /// Bytes of a set; 16 MiB where nothing is said.
    pub sets: Option<u64>,
    /// Bytes of a run, neighbours that stay in one set; 256 KiB where nothing is said.
    pub run: Option<u64>,
    /// How runs go to sets; by a hash where nothing is said.
    pub map: Option<Division>,
    /// The length of streams that bypass the cache; 1 MiB where nothing is said.
    pub bypass: Option<u64>,
    /// How far is read ahead of a stream, at most; not at all where nothing is said.
    pub read_ahead: Option<u64>,
    /// Which missed blocks are let in; see [`Admission`].
    pub admit: Option<Admission>,
    /// The share of a set that may be dirty, in percent; 90 where nothing is said.
    pub dirty: Option<u32>,
    /// How long a block may be dirty beside use, zero for any time; 30 s where nothing is said.
    pub dirty_age: Option<Duration>,
    /// How long a cached block may have no name beside use, zero for any time; 10 s where nothing is said.
    pub name_age: Option<Duration>,
    /// How many times its size may be written to the cache in a day, in thousandths.
    pub daily_writes_permille: Option<u32>,
}

impl CacheSpec {
    const KEYS: [Key; 14] = [
        ("flash", "(SPEC)"),
        ("mode", "wb|wt|wa"),
        ("policy", "NAME"),
        ("size", "SIZE"),
        ("sets", "SIZE"),
        ("run", "SIZE"),
        ("map", "hashed|linear|single"),
        ("bypass", "SIZE or off"),
        ("read-ahead", "SIZE or off"),
        ("admit", "all|again|auto"),
        ("dirty", "PERCENT"),
        ("dirty-age", "DURATION or off"),
        ("name-age", "DURATION or off"),
        ("daily-writes", "TIMES, such as 0.5"),
    ];

    pub(super) fn of(parts: &Parts) -> Result<CacheSpec, String> {
        let mut keys = Keys::of("cache:", parts, &CacheSpec::KEYS)?;
        let origin = parts.spec(EXAMPLE)?.clone();
        let flash = keys.spec("flash")?;
        let flash = flash.ok_or_else(|| format!("the flash device is missing; write {EXAMPLE}"))?;
        Ok(CacheSpec {
            origin,
            flash,
            mode: keys.take("mode", str::parse)?,
            policy: keys.take("policy", str::parse)?,
            size: keys.take("size", size)?,
            sets: keys.take("sets", size)?,
            run: keys.take("run", size)?,
            map: keys.take("map", one_of(&DIVISIONS))?,
            bypass: keys.take("bypass", size_or_off)?,
            read_ahead: keys.take("read-ahead", size_or_off)?,
            admit: keys.take("admit", one_of(&Admission::NAMES))?,
            dirty: keys.take("dirty", number(1, 100))?,
            dirty_age: keys.take("dirty-age", duration_or_off)?,
            name_age: keys.take("name-age", duration_or_off)?,
            daily_writes_permille: keys.take("daily-writes", permille)?,
        })
    }

    pub(super) fn parts(&self) -> Parts {
        let mut parts = Parts::new(self.origin.clone());
        parts.push("flash", Some(self.flash.clone()));
        parts.push("mode", self.mode.map(|mode| mode.short().to_owned()));
        parts.push("policy", self.policy.map(|policy| policy.to_string()));
        parts.push("size", self.size.map(show_size));
        parts.push("sets", self.sets.map(show_size));
        parts.push("run", self.run.map(show_size));
        parts.push("map", self.map.map(|map| name_of(&DIVISIONS, &map).to_owned()));
        parts.push("bypass", self.bypass.map(show_size_or_off));
        parts.push("read-ahead", self.read_ahead.map(show_size_or_off));
        parts.push("admit", self.admit.map(|rule| rule.to_string()));
        parts.push("dirty", self.dirty.map(|percent| percent.to_string()));
        parts.push("dirty-age", self.dirty_age.map(show_duration_or_off));
        parts.push("name-age", self.name_age.map(show_duration_or_off));
        parts.push("daily-writes", self.daily_writes_permille.map(show_permille));
        parts
    }

    /// Returns the options with which a new cache is made.
    #[must_use]
    pub fn create_options(&self) -> CreateOptions {
        let usual = CreateOptions::default();
        CreateOptions {
            mode: self.mode.unwrap_or(usual.mode),
            flash_bytes: self.size,
            set_bytes: self.sets.unwrap_or(usual.set_bytes),
            run_bytes: self.run.unwrap_or(usual.run_bytes),
            division: self.map.unwrap_or(usual.division),
            ..usual
        }
    }

    /// How the cache is run.
    #[must_use]
    pub fn open_options(&self) -> OpenOptions {
        let usual = OpenOptions::default();
        let dirty = self.dirty.and_then(|percent| u8::try_from(percent).ok());
        OpenOptions {
            mode: self.mode,
            policy: self.policy.unwrap_or(usual.policy),
            sequential_bytes: self.bypass.unwrap_or(usual.sequential_bytes),
            read_ahead_bytes: self.read_ahead.unwrap_or(usual.read_ahead_bytes),
            admission: self.admit.unwrap_or(usual.admission),
            dirty_percent: dirty.unwrap_or(usual.dirty_percent),
            dirty_age: within(self.dirty_age, usual.dirty_age),
            name_age: within(self.name_age, usual.name_age),
            writes_per_day: self.daily_writes_permille.map(|permille| f64::from(permille) / 1e3),
            ..usual
        }
    }
}

/// The age that was said, or the usual one.
fn within(said: Option<Duration>, usual: Option<Duration>) -> Option<Duration> {
    said.map_or(usual, |age| (!age.is_zero()).then_some(age))
}

fn duration_or_off(text: &str) -> Result<Duration, String> {
    if text == "off" { Ok(Duration::ZERO) } else { duration(text) }
}

fn show_duration_or_off(age: Duration) -> String {
    if age.is_zero() { "off".to_owned() } else { show_duration(age) }
}

fn size_or_off(text: &str) -> Result<u64, String> {
    if text == "off" { Ok(0) } else { size(text) }
}

fn show_size_or_off(bytes: u64) -> String {
    if bytes == 0 { "off".to_owned() } else { show_size(bytes) }
}

/// A number with up to three digits after its point, in thousandths.
fn permille(text: &str) -> Result<u32, String> {
    let wrong = || format!("'{text}' is no number of times; write for example 0.5 or 3");
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if rest.len() > 3 || !is_digits(rest) || !is_digits(whole) || whole.len() > 4 {
        return Err(wrong());
    }
    let value: u32 = format!("{whole}{rest:0<3}").parse().map_err(|_| wrong())?;
    if value == 0 { Err(wrong()) } else { Ok(value) }
}

fn show_permille(value: u32) -> String {
    let text = format!("{}.{:03}", value / 1000, value % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
