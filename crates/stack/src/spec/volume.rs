//! Volumes of a pool that this process opens.

use super::Spec;
use crate::syntax::{Key, Keys, Parts, show_size, size};

const EXAMPLE: &str = "volume:POOL/NAME?drives=(/dev/nvme0n1)(/dev/nvme1n1)";

/// A volume of a pool, or a snapshot of one, which is read-only: see [`Pool`](esker_volume::Pool).
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeSpec {
    /// The pool's name.
    pub pool: String,
    /// The volume's name.
    pub name: String,
    /// The name of a snapshot of it.
    pub snapshot: Option<String>,
    /// The pool's drives, in any order; none where another specification has opened the pool.
    pub drives: Vec<Spec>,
    /// The pool's buffer devices, in any order.
    pub buffers: Vec<Spec>,
    /// Bytes of memory for the map; 256 MiB where nothing is said.
    pub map: Option<u64>,
}

impl VolumeSpec {
    const KEYS: [Key; 3] = [("drives", "(SPEC)(SPEC)…"), ("buffer", "(SPEC)…"), ("map", "SIZE")];

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
        })
    }

    pub(super) fn parts(&self) -> Parts {
        let some = |specs: &Vec<Spec>| (!specs.is_empty()).then(|| specs.clone());
        let snapshot = self.snapshot.iter().map(|name| format!("@{name}")).collect::<String>();
        let mut parts = Parts::new(format!("{}/{}{snapshot}", self.pool, self.name));
        parts.push("drives", some(&self.drives));
        parts.push("buffer", some(&self.buffers));
        parts.push("map", self.map.map(show_size));
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
