//! Volumes of a pool: one that this process opens, or one that another process serves.

use std::path::PathBuf;
use std::time::Duration;

use super::syntax::{Key, Keys, Parts, duration, one_of, show_duration, show_size, size};
use super::{Spec, bytes_of, path_of};

const EXAMPLE: &str = "volume:POOL/NAME, or volume:POOL/NAME?drives=(/dev/nvme0n1)(/dev/nvme1n1)";

/// A volume of a pool, or a snapshot of one, which is read-only: see [`Pool`](esker_volume::Pool).
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeSpec {
    /// The pool's name.
    pub pool: String,
    /// The volume's name.
    pub name: String,
    /// The name of a snapshot of it.
    pub snapshot: Option<String>,
    /// The pool's drives, in any order; none where another specification has opened the pool, or a process serves it.
    pub drives: Vec<Spec>,
    /// The pool's buffer devices, in any order.
    pub buffers: Vec<Spec>,
    /// Bytes of memory for the map; 256 MiB where nothing is said.
    pub map: Option<u64>,
    /// Open although drives are missing.
    pub degraded: bool,
    /// Open although the write buffer is lost.
    pub lose_buffer: bool,
    /// Open with exactly half of the drives.
    pub accept_half: bool,
    /// How long missing drives are waited for; ten minutes where nothing is said.
    pub grace: Option<Duration>,
    /// How long a drive may be silent before it is taken out; ten seconds where nothing is said.
    pub patience: Option<Duration>,
    /// Percent of maintenance's time that repair and sweeps get at least; 20 where nothing is said.
    pub repair_share: Option<u8>,
    /// In how much time everything is scrubbed in the background; not at all where nothing is said.
    pub scrub: Option<Duration>,
    /// Where the process listens that serves the pool.
    pub socket: Option<PathBuf>,
}

const YES: &[(&str, bool)] = &[("yes", true), ("no", false)];

impl VolumeSpec {
    const KEYS: [Key; 11] = [
        ("drives", "(SPEC)(SPEC)…"),
        ("buffer", "(SPEC)…"),
        ("map", "SIZE"),
        ("degraded", "yes|no"),
        ("lose-buffer", "yes|no"),
        ("accept-half", "yes|no"),
        ("grace", "TIME"),
        ("patience", "TIME"),
        ("repair-share", "PERCENT"),
        ("scrub", "TIME"),
        ("socket", "PATH"),
    ];

    /// A pool as a whole, opened on its drives.
    #[must_use]
    pub fn of_pool(pool: &str, drives: &[Spec], buffers: &[Spec]) -> VolumeSpec {
        VolumeSpec {
            pool: pool.to_owned(),
            name: "*".to_owned(),
            snapshot: None,
            drives: drives.to_vec(),
            buffers: buffers.to_vec(),
            map: None,
            degraded: false,
            lose_buffer: false,
            accept_half: false,
            grace: None,
            patience: None,
            repair_share: None,
            scrub: None,
            socket: None,
        }
    }

    pub(super) fn of(parts: &Parts) -> Result<VolumeSpec, String> {
        let mut keys = Keys::of("volume:", parts, &VolumeSpec::KEYS)?;
        let body = parts.text()?;
        let (name, snapshot) = match body.split_once('@') {
            Some((name, snapshot)) => (name, Some(snapshot)),
            None => (body, None),
        };
        let is_plain = |part: &str| !part.is_empty() && !part.contains(['/', '@']);
        let found = name.split_once('/').filter(|(pool, name)| is_plain(pool) && is_plain(name));
        let Some((pool, name)) = found.filter(|_| snapshot.is_none_or(is_plain)) else {
            return Err(format!("'{body}' is no POOL/NAME or POOL/NAME@SNAPSHOT; write {EXAMPLE}"));
        };
        Ok(VolumeSpec {
            pool: pool.to_owned(),
            name: name.to_owned(),
            snapshot: snapshot.map(str::to_owned),
            drives: keys.specs("drives")?.unwrap_or_default(),
            buffers: keys.specs("buffer")?.unwrap_or_default(),
            map: keys.take("map", size)?,
            degraded: keys.take("degraded", one_of(YES))?.unwrap_or_default(),
            lose_buffer: keys.take("lose-buffer", one_of(YES))?.unwrap_or_default(),
            accept_half: keys.take("accept-half", one_of(YES))?.unwrap_or_default(),
            grace: keys.take("grace", duration)?,
            patience: keys.take("patience", duration)?,
            repair_share: keys.take("repair-share", percent)?,
            scrub: keys.take("scrub", duration)?,
            socket: keys.bytes("socket")?.map(path_of).transpose()?,
        })
    }

    pub(super) fn parts(&self) -> Parts {
        let some = |specs: &Vec<Spec>| (!specs.is_empty()).then(|| specs.clone());
        let snapshot = self.snapshot.iter().map(|name| format!("@{name}")).collect::<String>();
        let mut parts = Parts::new(format!("{}/{}{snapshot}", self.pool, self.name));
        parts.push("drives", some(&self.drives));
        parts.push("buffer", some(&self.buffers));
        parts.push("map", self.map.map(show_size));
        parts.push("degraded", self.degraded.then_some("yes"));
        parts.push("lose-buffer", self.lose_buffer.then_some("yes"));
        parts.push("accept-half", self.accept_half.then_some("yes"));
        parts.push("grace", self.grace.map(show_duration));
        parts.push("patience", self.patience.map(show_duration));
        parts.push("repair-share", self.repair_share.map(|percent| percent.to_string()));
        parts.push("scrub", self.scrub.map(show_duration));
        parts.push("socket", self.socket.as_deref().map(bytes_of));
        parts
    }

    /// The pool's devices, drives first.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Spec> {
        self.drives.iter().chain(&self.buffers)
    }

    pub(crate) fn devices_mut(&mut self) -> impl Iterator<Item = &mut Spec> {
        self.drives.iter_mut().chain(&mut self.buffers)
    }
}

fn percent(text: &str) -> Result<u8, String> {
    let found = text.parse().ok().filter(|percent| (1..=90).contains(percent));
    found.ok_or_else(|| format!("'{text}' is no share in percent; give one from 1 to 90"))
}
