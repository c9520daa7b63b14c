//! From inputs to open devices.
//!
//! Invariants
//! 1. All drives of a run have one clock.
//! 2. In virtual time no device has a thread: the background work of a cache or a pool is done in turn with
//!    commands ([`stepped`](super::stepped)).

use std::sync::Arc;

use esker_base::{Clock, LbaCount};
use esker_cache::{Background, Cache, CreateOptions, OpenOptions};
use esker_device::{Device, DeviceStats, NullDevice, Stripe};
use esker_flash::disk::Disk;
use esker_flash::drive::Media;
use esker_flash::{Pace, Ssd};
use esker_volume::{CreateOptions as PoolOptions, Maintenance, OpenOptions as PoolOpenOptions};
use esker_volume::{Pool, VolumeError, VolumeOptions};

use super::inputs::{CacheNode, Node, PoolNode, SsdNode};
use super::measured::DeviceUse;
use super::stepped::Stepped;
use crate::LabError;

/// Bytes of the host's map of a drive that it manages, for each page.
const MAP_ENTRY: u64 = 4;
/// Steps at once: one of a cache writes a batch back, those of a pool are small.
const CACHE_STEPS: usize = 1;
const POOL_STEPS: usize = 16;
/// The only volume of a pool.
const VOLUME: &str = "all";

/// A device that is open, with those that it is made of.
pub(super) struct Built {
    pub(super) device: Arc<dyn Device>,
    pub(super) parts: Vec<Built>,
    kind: Kind,
}

enum Kind {
    Ssd(Ssd),
    Disk,
    Stripe,
    Cache(Arc<Cache>),
    Pool(Arc<Pool>),
}

/// How devices are made.
pub(super) struct Maker {
    pub(super) pace: Pace,
    pub(super) clock: Clock,
    /// How many drives there are so far.
    count: u32,
}

impl Maker {
    /// A maker with a clock of its own: virtual, or so many times slower than real time.
    pub(super) fn new(dilation: Option<u32>) -> Maker {
        let pace = match dilation {
            None => Pace::virtual_time(Clock::virtual_time()),
            Some(factor) => Pace::dilated(factor),
        };
        let clock = pace.clock().cloned().unwrap_or_else(Clock::virtual_time);
        Maker { pace, clock, count: 0 }
    }

    /// Opens a device. `keeps` is whether the data written to its drives has to be read again.
    pub(super) fn build(&mut self, node: &Node, keeps: bool) -> Result<Built, LabError> {
        match node {
            Node::Ssd(ssd) => self.ssd(ssd, keeps),
            Node::Disk(parameters) => {
                let name = self.name("disk");
                // Nothing that is compared depends on its content, and a disk is large.
                let content = (!keeps).then(|| {
                    let lbas = LbaCount(1 << 40);
                    Arc::new(NullDevice::new(lbas, parameters.lba_size)) as Arc<dyn Device>
                });
                let disk = Disk::new(parameters, content)?;
                let device = Arc::new(disk.emulate(&name, self.pace.clone()));
                Ok(Built { device, parts: Vec::new(), kind: Kind::Disk })
            }
            Node::Stripe { drives, chunk_bytes } => {
                let parts = self.all(drives, keeps)?;
                let devices = parts.iter().map(|one| one.device.clone()).collect();
                let stripe = Stripe::new("stripe", devices, *chunk_bytes)?.timed_by(&self.clock);
                Ok(Built { device: Arc::new(stripe), parts, kind: Kind::Stripe })
            }
            Node::Cache(cache) => self.cache(cache, keeps),
            Node::Pool(pool) => self.pool(pool),
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("{kind}-{}", self.count)
    }

    fn all(&mut self, nodes: &[Node], keeps: bool) -> Result<Vec<Built>, LabError> {
        nodes.iter().map(|node| self.build(node, keeps)).collect()
    }

    fn ssd(&mut self, node: &SsdNode, keeps: bool) -> Result<Built, LabError> {
        let name = self.name("drive");
        let SsdNode { parameters, placement } = node;
        let ssd = match keeps {
            true => Ssd::new(&name, parameters, self.pace.clone())?,
            false => Ssd::without_data(&name, parameters, self.pace.clone())?,
        };
        let handles = placement.then(|| {
            let count = parameters.configurations.first().map_or(0, |one| one.handles.len());
            (0..u16::try_from(count).unwrap_or(u16::MAX)).collect::<Vec<u16>>()
        });
        if *placement {
            ssd.enable_placement(Some(0))?;
        }
        let id = ssd.create_namespace(parameters.capacity, handles.as_deref())?;
        let device = Arc::new(ssd.namespace(id)?);
        Ok(Built { device, parts: Vec::new(), kind: Kind::Ssd(ssd) })
    }

    fn cache(&mut self, node: &CacheNode, keeps: bool) -> Result<Built, LabError> {
        let origin = self.build(&node.origin, keeps)?;
        let flash = self.build(&node.flash, true)?;
        let create = CreateOptions {
            mode: node.mode,
            flash_bytes: node.size,
            set_bytes: node.set_bytes,
            // Sets are dealt out by it: every run alike.
            id: 1,
            ..CreateOptions::default()
        };
        Cache::create(&*origin.device, &flash.device, &create)?;
        let is_virtual = self.clock.is_virtual();
        let open = OpenOptions {
            policy: node.policy,
            sequential_bytes: node.bypass_bytes,
            read_ahead_bytes: node.read_ahead_bytes,
            admission: node.admission,
            background: if is_virtual { Background::Manual } else { Background::Thread },
            clock: self.clock.clone(),
            ..OpenOptions::default()
        };
        let cache = Arc::new(Cache::open(origin.device.clone(), flash.device.clone(), open)?);
        let stepping = cache.clone();
        let device: Arc<dyn Device> = match is_virtual {
            false => cache.clone(),
            true => Stepped::over(cache.clone(), CACHE_STEPS, move || {
                stepping.step(false).map_err(|error| error.to_string())
            }),
        };
        Ok(Built { device, parts: vec![origin, flash], kind: Kind::Cache(cache) })
    }

    fn pool(&mut self, node: &PoolNode) -> Result<Built, LabError> {
        let refused = |error: VolumeError| LabError::Invalid(format!("the pool: {error}"));
        let parts = self.all(&node.drives, true)?;
        let devices: Vec<Arc<dyn Device>> = parts.iter().map(|one| one.device.clone()).collect();
        let create = PoolOptions {
            parity: node.parity,
            chunk_bytes: node.chunk_bytes,
            log_bytes: node.log_bytes,
            spare_percent: node.spare_percent,
            seed: Some(1),
            ..PoolOptions::default()
        };
        Pool::create(&devices, &[], &create).map_err(refused)?;
        let is_virtual = self.clock.is_virtual();
        let open = PoolOpenOptions {
            maintenance: if is_virtual { Maintenance::Manual } else { Maintenance::Thread },
            map_bytes: usize::try_from(node.map_bytes).unwrap_or(usize::MAX),
            clock: self.clock.clone(),
            ..PoolOpenOptions::default()
        };
        let pool = Arc::new(Pool::open(&devices, open).map_err(refused)?);
        let room = pool.status().space.usable / (1 << 20) * (1 << 20);
        let options = VolumeOptions { compression: false, ..VolumeOptions::default() };
        pool.create_volume(VOLUME, room, options).map_err(refused)?;
        let volume = pool.volume(VOLUME).map_err(refused)?;
        let stepping = pool.clone();
        let device = match is_virtual {
            false => volume,
            true => Stepped::over(volume, POOL_STEPS, move || {
                stepping.step().map_err(|error| error.to_string())
            }),
        };
        Ok(Built { device, parts, kind: Kind::Pool(pool) })
    }
}

impl Built {
    /// The traffic of the device and of all its parts so far: each one before its parts.
    pub(super) fn uses(&self) -> Vec<DeviceUse> {
        let mut uses = Vec::new();
        self.note(&mut uses);
        uses
    }

    fn note(&self, uses: &mut Vec<DeviceUse>) {
        let DeviceStats { written_bytes, read_bytes, .. } = self.device.stats();
        let passed_bytes = match &self.kind {
            Kind::Ssd(ssd) => ssd.report().media_written_bytes(),
            Kind::Disk => written_bytes,
            _ => self.parts.iter().map(|part| part.device.stats().written_bytes).sum(),
        };
        let is_drive = self.parts.is_empty();
        let is_flash = self.flash().is_some();
        uses.push(DeviceUse { written_bytes, read_bytes, passed_bytes, is_drive, is_flash });
        self.parts.iter().for_each(|part| part.note(uses));
    }

    /// Bytes of a drive of flash.
    fn flash(&self) -> Option<u64> {
        match &self.kind {
            Kind::Ssd(ssd) if ssd.parameters().media == Media::Flash => {
                Some(ssd.parameters().capacity)
            }
            _ => None,
        }
    }

    /// Bytes that the drives of flash offer, each in the order of [`uses`](Built::uses).
    pub(super) fn flash_bytes(&self) -> Vec<u64> {
        self.flash().into_iter().chain(self.parts.iter().flat_map(Built::flash_bytes)).collect()
    }

    /// Whether background work of a cache or a pool is done in turn with commands.
    pub(super) fn is_in_turn(&self) -> bool {
        let is_stepped = matches!(self.kind, Kind::Cache(_) | Kind::Pool(_));
        is_stepped || self.parts.iter().any(Built::is_in_turn)
    }

    /// Whether there is a cache, whose content depends on reads, too.
    pub(super) fn has_cache(&self) -> bool {
        matches!(self.kind, Kind::Cache(_)) || self.parts.iter().any(Built::has_cache)
    }

    /// Bytes of DRAM by purpose, of the host.
    pub(super) fn dram(&self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        match &self.kind {
            Kind::Ssd(ssd) => {
                let parameters = ssd.parameters();
                if parameters.timing.host_queues.is_some() {
                    let pages = parameters.capacity / u64::from(parameters.page_size);
                    all.push(("map of the drive".to_owned(), pages * MAP_ENTRY));
                }
            }
            Kind::Cache(cache) => all.push(("cache".to_owned(), cache.figures().memory_bytes)),
            Kind::Pool(pool) => all.push(("map of the pool".to_owned(), pool.status().map_bytes)),
            Kind::Disk | Kind::Stripe => {}
        }
        for part in &self.parts {
            all.extend(part.dram());
        }
        all
    }

    /// Blocks read, and those of them that were found, of the outermost cache.
    pub(super) fn hits(&self) -> Option<(u64, u64)> {
        match &self.kind {
            Kind::Cache(cache) => {
                let figures = cache.figures();
                // Misses include reads that bypassed it.
                Some((figures.read_hits + figures.read_misses, figures.read_hits))
            }
            _ => self.parts.iter().find_map(Built::hits),
        }
    }

    /// The device that is written once as a whole before a load on this one begins. Of a cache that is its origin; of a
    /// disk none, because its time does not depend on its content.
    pub(super) fn filled(&self) -> Option<&Built> {
        match &self.kind {
            Kind::Cache(_) => self.parts.first()?.filled(),
            Kind::Disk => None,
            Kind::Stripe if self.parts.iter().all(|one| one.filled().is_none()) => None,
            _ => Some(self),
        }
    }

    /// Bytes that it offers.
    pub(super) fn capacity_bytes(&self) -> u64 {
        let geometry = self.device.geometry();
        geometry.capacity.bytes(geometry.lba_size)
    }
}
