//! Devices by name: drives, and the devices built of them.

use std::collections::BTreeMap;

use esker_base::policy::Kind;
use esker_cache::{CreateOptions, OpenOptions};
use esker_volume::CreateOptions as PoolOptions;

use crate::plan::drive::{self, Facts, scaled};
use crate::plan::file::{CacheOf, File, PoolOf, Refusal, StripeOf, Wrong};
use crate::plan::inputs::{CacheNode, Node, PoolNode};

/// Bytes that go to a drive of a stripe before the next one's turn comes.
const CHUNK: u64 = 128 << 10;
/// The least chunk of a pool, and memory for its map.
const LEAST_CHUNK: u64 = 1 << 20;
const LEAST_MAP: u64 = 1 << 20;
const MAP: u64 = 256 << 20;
/// How many devices may stand on one another.
const MOST_DEEP: usize = 16;

/// The devices of a file.
pub(super) struct Named<'f> {
    file: &'f File,
    scale: f64,
    /// The drives that were taken, in the order of the nodes.
    pub(super) facts: Vec<Facts>,
    /// The names of devices that were taken: each one before those it is made of.
    pub(super) names: Vec<String>,
    deep: usize,
}

impl<'f> Named<'f> {
    /// # Errors
    /// When two devices have one name.
    pub(super) fn of(file: &'f File, scale: f64) -> Result<Named<'f>, Wrong> {
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let drives = file.drive.keys().map(|name| ("drive", name));
        let stripes = file.stripe.keys().map(|name| ("stripe", name));
        let caches = file.cache.keys().map(|name| ("cache", name));
        let pools = file.pool.keys().map(|name| ("pool", name));
        for (kind, name) in drives.chain(stripes).chain(caches).chain(pools) {
            if let Some(other) = kinds.insert(name, kind) {
                let why = format!("a {other} is called '{name}', too: choose another name");
                return Err(Wrong::at([kind, name], why));
            }
        }
        Ok(Named { file, scale, facts: Vec::new(), names: Vec::new(), deep: 0 })
    }

    /// The device with a name, which stands at a key. A name that is used twice is two devices.
    pub(super) fn take(&mut self, name: &str, at: &[String]) -> Result<Node, Refusal> {
        self.deep += 1;
        if self.deep > MOST_DEEP {
            let why = format!(
                "'{name}' is a part of itself, or more than {MOST_DEEP} devices stand on one another"
            );
            return Err(Wrong { at: at.to_vec(), why }.into());
        }
        self.names.push(name.to_owned());
        let file = self.file;
        let node = if let Some(drive) = file.drive.get(name) {
            let (node, facts) = drive::resolve(name, drive, self.scale)
                .map_err(|(key, why)| Wrong::at(["drive", name, key], format!("{key}: {why}")))?;
            self.facts.push(facts);
            Ok(node)
        } else if let Some(stripe) = file.stripe.get(name) {
            self.stripe(name, stripe)
        } else if let Some(cache) = file.cache.get(name) {
            self.cache(name, cache)
        } else if let Some(pool) = file.pool.get(name) {
            self.pool(name, pool)
        } else {
            Err(self.unknown(name, at).into())
        };
        self.deep -= 1;
        node
    }

    fn unknown(&self, name: &str, at: &[String]) -> Wrong {
        let File { drive, stripe, cache, pool, .. } = self.file;
        let all: Vec<&str> = drive
            .keys()
            .chain(stripe.keys())
            .chain(cache.keys())
            .chain(pool.keys())
            .map(String::as_str)
            .collect();
        let there = match all.is_empty() {
            true => "the file has none".to_owned(),
            false => format!("there are {}", all.join(", ")),
        };
        let why =
            format!("there is no device '{name}': {there}; add [drive.{name}] with a profile");
        Wrong { at: at.to_vec(), why }
    }

    fn all(&mut self, kind: &str, name: &str, drives: &[String]) -> Result<Vec<Node>, Refusal> {
        let at =
            |index: usize| [kind, name, "drives", &index.to_string()].map(str::to_owned).to_vec();
        let each = drives.iter().enumerate();
        each.map(|(index, one)| self.take(one, &at(index))).collect()
    }

    fn stripe(&mut self, name: &str, stripe: &StripeOf) -> Result<Node, Refusal> {
        if stripe.drives.is_empty() {
            return Err(Wrong::at(["stripe", name, "drives"], "name one drive or more").into());
        }
        let drives = self.all("stripe", name, &stripe.drives)?;
        let chunk_bytes = stripe.chunk.map_or(CHUNK, |bytes| bytes.0);
        Ok(Node::Stripe { drives, chunk_bytes })
    }

    fn cache(&mut self, name: &str, cache: &CacheOf) -> Result<Node, Refusal> {
        let at = |key: &str| vec!["cache".to_owned(), name.to_owned(), key.to_owned()];
        let origin = self.take(&cache.origin, &at("origin"))?;
        let flash = self.take(&cache.flash, &at("flash"))?;
        let (made, opened) = (CreateOptions::default(), OpenOptions::default());
        let policy = match &cache.policy {
            None => opened.policy,
            Some(text) => text.parse::<Kind>().map_err(|why| Wrong { at: at("policy"), why })?,
        };
        let size = cache.size.map(|bytes| scaled(bytes.0, self.scale));
        if let Some(size) = size
            && let Node::Ssd(ssd) = &flash
            && size > ssd.parameters.capacity
        {
            let why = format!(
                "the cache is larger than its flash drive '{}': make it smaller, or the drive larger",
                cache.flash
            );
            return Err(Wrong { at: at("size"), why }.into());
        }
        Ok(Node::Cache(Box::new(CacheNode {
            origin,
            flash,
            size,
            mode: cache.mode.unwrap_or_default(),
            policy,
            admission: cache.admit.map_or(opened.admission, Into::into),
            bypass_bytes: cache.bypass.map_or(opened.sequential_bytes, |bytes| bytes.0),
            read_ahead_bytes: cache.read_ahead.map_or(0, |bytes| bytes.0),
            set_bytes: cache.set.map_or(made.set_bytes, |bytes| bytes.0),
        })))
    }

    fn pool(&mut self, name: &str, pool: &PoolOf) -> Result<Node, Refusal> {
        let parity = pool.parity.unwrap_or(1);
        if parity > 2 || pool.drives.len() < usize::from(parity) + 1 {
            let why = format!(
                "{} drive(s) with {parity} parities: a pool has 0 to 2 parities, and more drives than these",
                pool.drives.len()
            );
            return Err(Wrong::at(["pool", name, "drives"], why).into());
        }
        let drives = self.all("pool", name, &pool.drives)?;
        let mut smallest = u64::MAX;
        let mut unit = LEAST_CHUNK;
        for (drive, index) in drives.iter().zip(0..) {
            let Node::Ssd(ssd) = drive else {
                let at: [&str; 4] = ["pool", name, "drives", &format!("{index}")];
                return Err(Wrong::at(at, "a pool is of solid-state drives").into());
            };
            smallest = smallest.min(ssd.parameters.capacity);
            unit = unit.max((ssd.parameters.unit_size / 4).next_power_of_two());
        }
        let usual = PoolOptions::default();
        Ok(Node::Pool(Box::new(PoolNode {
            drives,
            parity,
            chunk_bytes: pool.chunk.map_or(unit.min(usual.chunk_bytes), |bytes| bytes.0),
            log_bytes: PoolOptions::log_bytes_for(smallest),
            spare_percent: pool.spare_percent.unwrap_or(usual.spare_percent),
            map_bytes: scaled(pool.map.map_or(MAP, |bytes| bytes.0), self.scale).max(LEAST_MAP),
        })))
    }
}
