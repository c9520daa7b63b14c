//! State that the queue pairs of a remote namespace share, and the threads that keep its paths.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use esker_base::process::Owner;
use esker_base::sync::{Condvar, Mutex};
use esker_base::{Clock, LbaCount};
use esker_device::{Counters, DeviceError, Geometry};

use super::config::InitiatorConfig;
use super::health::Pauses;
use super::link::Link;
use super::path::{Facts, Identity, Path};
use super::unflushed::{ControllerId, Unflushed};
use crate::error::NvmfError;
use crate::wire::identify::{
    DLFEAT_MASK, DLFEAT_ZEROES, IdentifyNamespace, ONCS_DSM, ONCS_WRITE_ZEROES,
};
use crate::wire::log::AnaState;
use crate::wire::status::Status;

/// How often a path that works is looked at.
const TEND: Duration = Duration::from_millis(100);

/// An I/O queue that is connected.
pub(crate) struct Active {
    pub(crate) link: Link,
    /// Index of its path.
    pub(crate) path: usize,
    pub(crate) qid: u16,
    pub(crate) generation: u64,
}

impl Active {
    /// Whose queue it is.
    pub(crate) fn controller(&self) -> ControllerId {
        ControllerId { path: self.path, generation: self.generation }
    }
}

/// State that the queue pairs share.
pub(crate) struct Multipath {
    /// The process that connected it; its forked children may not use it.
    pub(crate) owner: Owner,
    pub(crate) config: InitiatorConfig,
    pub(crate) clock: Clock,
    pub(crate) name: String,
    pub(crate) paths: Vec<Path>,
    pauses: Pauses,
    /// Writes that completed and are not flushed, if a target may forget them.
    pub(crate) unflushed: Option<Mutex<Unflushed>>,
    /// Whether some of it is lost.
    pub(crate) has_lost: AtomicBool,
    pub(crate) counters: Counters,
    /// Geometry of the namespace, but for its `capacity` and `handles`.
    geometry: Geometry,
    capacity: AtomicU64,
    handles: AtomicU16,
    identity: Identity,
    /// The same for whoever uses the device.
    pub(crate) device_identity: Option<esker_device::Identity>,
    pub(crate) has_discard: bool,
    pub(crate) has_write_zeroes: bool,
    /// Whether Write Zeroes deallocates. Dataset Management is advice that a controller need not
    /// take: LBAs that have to read as zeroes are zeroed, and deallocated by the way.
    pub(crate) discards_zero: bool,
    is_closed: Mutex<bool>,
    closing: Condvar,
    /// The queue for commands that are not part of the data path.
    pub(crate) management: Mutex<Option<Active>>,
    pub(crate) is_stopping: AtomicBool,
}

impl Multipath {
    /// Refuses a forked child of the process that connected.
    pub(crate) fn check_owner(&self) -> Result<(), DeviceError> {
        if self.owner.is_here() { Ok(()) } else { Err(DeviceError::forked(&self.name)) }
    }

    /// Connects the paths; one of them is enough.
    pub(crate) fn connect(config: InitiatorConfig) -> Result<Multipath, NvmfError> {
        let clock = Clock::real();
        let name = config.url();
        let paths: Vec<Path> = config.portals.iter().map(|&peer| Path::new(peer)).collect();
        let pauses = Pauses::new(&config);
        let (mut facts, mut failed): (Option<Facts>, Option<NvmfError>) = (None, None);
        for path in &paths {
            match path.connect(&config, &clock, facts.as_ref().map(Facts::identity)) {
                Ok(found) => {
                    facts.get_or_insert(found);
                }
                Err(error) => {
                    path.health.failed(clock.now(), &pauses, &error);
                    failed = Some(error);
                }
            }
        }
        let Some(facts) = facts else {
            return Err(failed.expect("at least one portal"));
        };
        let geometry =
            geometry(&facts).map_err(|what| NvmfError::Unusable { peer: paths[0].peer, what })?;
        let unflushed = geometry.volatile_write_cache.then(|| {
            let Geometry { lba_size, max_transfer_size, .. } = geometry;
            Mutex::new(Unflushed::new(lba_size, max_transfer_size, config.replay))
        });
        Ok(Multipath {
            owner: Owner::here(),
            unflushed,
            has_lost: AtomicBool::new(false),
            clock,
            name,
            paths,
            pauses,
            counters: Counters::default(),
            geometry,
            capacity: AtomicU64::new(geometry.capacity.0),
            handles: AtomicU16::new(0),
            identity: facts.identity(),
            device_identity: facts.device_identity(),
            has_discard: facts.controller.oncs & ONCS_DSM != 0,
            has_write_zeroes: facts.controller.oncs & ONCS_WRITE_ZEROES != 0,
            discards_zero: facts.controller.oncs & ONCS_WRITE_ZEROES != 0
                && facts.namespace.dlfeat & DLFEAT_MASK == DLFEAT_ZEROES,
            is_closed: Mutex::new(false),
            closing: Condvar::new(),
            management: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            config,
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry {
            capacity: LbaCount(self.capacity.load(Ordering::Relaxed)),
            placement_handles: self.handles.load(Ordering::Relaxed),
            ..self.geometry
        }
    }

    /// Sets how many placement ids there are, which is known after the paths are.
    pub(crate) fn set_handles(&self, handles: u16) {
        self.handles.store(handles, Ordering::Relaxed);
    }

    /// The paths that can be used now, the best first: optimized before not, then those that have not
    /// failed since they worked, then in the order of the configuration. Those that have failed lately rest.
    pub(crate) fn usable_paths(&self) -> impl Iterator<Item = usize> {
        let now = self.clock.now();
        let ranks = [AnaState::Optimized, AnaState::NonOptimized]
            .into_iter()
            .flat_map(|state| [(state, false), (state, true)]);
        ranks.flat_map(move |(state, has_failed)| {
            let is_it = move |path: &Path| {
                path.is_up()
                    && path.ana() == state
                    && !path.health.rests(now)
                    && path.health.has_failed() == has_failed
            };
            (0..).zip(&self.paths).filter(move |(_, path)| is_it(path)).map(|(index, _)| index)
        })
    }

    /// Whether another path has become better than that of a queue.
    pub(crate) fn has_better(&self, active: &Active) -> bool {
        let is_optimized = |index: usize| self.paths[index].ana() == AnaState::Optimized;
        !is_optimized(active.path) && self.usable_paths().next().is_some_and(is_optimized)
    }

    /// The controller of a path, of this generation, has failed: it is given up, and the path rests.
    pub(crate) fn give_up(&self, index: usize, generation: u64, why: &NvmfError) {
        let path = &self.paths[index];
        if path.lose(generation) {
            path.health.failed(self.clock.now(), &self.pauses, why);
        }
    }

    /// A path refuses commands, though its controller answers: it rests. If it refuses for its
    /// access, that is taken as said until its log page says otherwise.
    pub(crate) fn refused(&self, index: usize, status: Status) {
        let path = &self.paths[index];
        match Status(status.code()) {
            Status::ANA_LOST => path.set_ana(AnaState::PersistentLoss),
            Status::ANA_INACCESSIBLE => path.set_ana(AnaState::Inaccessible),
            Status::ANA_TRANSITION => path.set_ana(AnaState::Change),
            _ => {}
        }
        path.health.failed(self.clock.now(), &self.pauses, &status);
    }

    /// A number that changes when any controller is lost or found.
    pub(crate) fn generations(&self) -> u64 {
        self.paths.iter().map(Path::generation).sum()
    }

    /// Whether completed writes of a path may be forgotten, though the caller was told otherwise.
    pub(crate) fn must_be_durable(&self, index: usize) -> bool {
        self.unflushed.is_none() && self.paths[index].has_cache()
    }

    /// Gives a queue's number back.
    pub(crate) fn release(&self, active: &Active) {
        self.paths[active.path].close_queue(active.qid, active.generation);
    }

    /// Whether the controller of a queue is still there.
    pub(crate) fn is_current(&self, active: &Active) -> bool {
        self.paths[active.path].generation() == active.generation
    }

    /// Keeps one path until the namespace is closed: alive while it works, tried again when not.
    fn keep(&self, index: usize) {
        let path = &self.paths[index];
        loop {
            let generation = path.generation();
            if path.is_up() {
                match path.tend(&self.config, &self.clock, self.identity) {
                    Ok(news) if news.namespace_changed => {
                        // The new size was asked along the way.
                        let size = path.with(|admin| Ok(admin.facts.namespace.nsze));
                        if let Ok(size) = size {
                            self.capacity.store(size, Ordering::Relaxed);
                        }
                    }
                    Ok(_) => {}
                    Err(_) if path.generation() == generation => {}
                    // The thread that gave it up before has noted that it failed.
                    Err(error) => path.health.failed(self.clock.now(), &self.pauses, &error),
                }
            } else if !path.health.rests(self.clock.now()) {
                match path.connect(&self.config, &self.clock, Some(self.identity)) {
                    Ok(facts) => self.capacity.store(facts.namespace.nsze, Ordering::Relaxed),
                    Err(error) => path.health.failed(self.clock.now(), &self.pauses, &error),
                }
            }
            let pause = if path.is_up() { TEND } else { TEND.min(self.config.retry) };
            let mut is_closed = self.is_closed.lock();
            if !*is_closed {
                self.closing.wait_for(&mut is_closed, pause);
            }
            if *is_closed {
                drop(is_closed);
                return path.shut_down(&self.clock);
            }
        }
    }
}

fn geometry(facts: &Facts) -> Result<Geometry, String> {
    let Facts { controller, namespace, .. } = facts;
    let IdentifyNamespace { lbaf0_ms, lbaf0_lbads, nsze, .. } = namespace;
    if *lbaf0_ms != 0 || !(9..=12).contains(lbaf0_lbads) {
        return Err(format!(
            "LBAs of 512 to 4,096 bytes without metadata are needed; \
             it has 2^{lbaf0_lbads} bytes and {lbaf0_ms} of metadata"
        ));
    }
    let lba_size = 1u32 << lbaf0_lbads;
    let max_transfer_size = match controller.mdts {
        0 => 1 << 20,
        shift => 4096u32.checked_shl(shift.into()).unwrap_or(1 << 20).clamp(4096, 1 << 20),
    };
    let lbas = |zero_based: u16| (u32::from(zero_based) + 1).saturating_mul(lba_size);
    let has_sizes = namespace.nsfeat & 0x10 != 0;
    let discards = controller.oncs & ONCS_DSM != 0;
    Ok(Geometry {
        lba_size,
        capacity: LbaCount(*nsze),
        preferred_write_size: if has_sizes { lbas(namespace.npwg) } else { lba_size },
        max_transfer_size,
        discard_granularity: match (discards, has_sizes) {
            (false, _) => 0,
            (true, true) => lbas(namespace.npdg),
            (true, false) => lba_size,
        },
        placement_handles: 0,
        volatile_write_cache: controller.vwc & 1 != 0,
    })
}

/// Keeps the paths while a device or a queue pair of it is there.
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Multipath>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(shared: Multipath) -> Result<Keeper, NvmfError> {
        let shared = Arc::new(shared);
        let mut keeper = Keeper { shared: shared.clone(), threads: Vec::new() };
        for index in 0..shared.paths.len() {
            let shared = shared.clone();
            let name = format!("nvmf-path-{index}");
            let thread = esker_base::thread::spawn(&name, move || shared.keep(index))
                .map_err(|error| NvmfError::os("starting a thread", &error))?;
            keeper.threads.push(thread);
        }
        Ok(keeper)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.shared.owner.is_here() {
            // The threads are the parent's, and so are the locks that they hold.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        *self.shared.management.lock() = None;
        *self.shared.is_closed.lock() = true;
        self.shared.closing.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // one that panicked has said so
        }
    }
}
