//! A path: the controller that this host has through one address of the target.
//!
//! Invariants
//! 1. `generation` is odd while the controller can be used, and changes whenever it is lost or
//!    found. A queue of another generation is one of a controller that is gone.
//! 2. A queue number is given to one queue at a time.
//! 3. Losing the controller and opening a queue wait for no command: `grant` is held for moments
//!    only, and `admin`, which is held while the controller answers, is not asked for.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use esker_base::sync::Mutex;
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Clock, Nanos};
use esker_device::Fact;
use esker_device::fdp::controller::Transfer;

use super::config::InitiatorConfig;
use super::health::Health;
use super::link::{Link, QueueShape, fabrics};
use super::payload::{payload, received};
use crate::conn::Payload;
use crate::error::NvmfError;
use crate::wire::capsule::{NSID_ALL, Sqe};
use crate::wire::command::admin;
use crate::wire::fabrics::{
    CAP, CC, CC_ENABLE, CC_SHUTDOWN, CNTLID_ANY, CSTS, CSTS_CFS, CSTS_RDY, PROPERTY_GET,
    PROPERTY_SET, Property,
};
use crate::wire::identify::{
    IdentifyController, IdentifyNamespace, OAES_ANA, OAES_NAMESPACE, cns, format_in_use, uuid_of,
};
use crate::wire::log::{AnaGroup, AnaHeader, AnaState, event, lid};
use crate::wire::{feature, identify, log};

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// I/O queues that are asked for.
const QUEUES_WANTED: u16 = 128;
/// Entries of an I/O queue that are asked for.
const ENTRIES_WANTED: u16 = 1024;
/// How long a controller may take to shut down.
const FAREWELL: Duration = Duration::from_secs(1);

/// Identify data of the controller and the namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) controller: IdentifyController,
    pub(crate) namespace: IdentifyNamespace,
    pub(crate) uuid: Option<[u8; 16]>,
}

/// Properties of a namespace that must not change while it is in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Identity {
    uuid: Option<[u8; 16]>,
    lbads: u8,
    metadata_bytes: u16,
}

impl Facts {
    pub(crate) fn identity(&self) -> Identity {
        let IdentifyNamespace { lbaf0_lbads: lbads, lbaf0_ms: metadata_bytes, .. } = self.namespace;
        Identity { uuid: self.uuid, lbads, metadata_bytes }
    }

    /// The identifiers that tell the namespace from others, as `/sys` of Linux shows them.
    pub(crate) fn device_identity(&self) -> Option<esker_device::Identity> {
        let hex = |bytes: &[u8]| HEXLOWER.encode(bytes);
        let grouped = |id: [u8; 16]| {
            let parts = [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]];
            parts.map(hex).join("-")
        };
        esker_device::Identity::default()
            .with(Fact::Uuid, &self.uuid.map(grouped).unwrap_or_default())
            .with(Fact::Nguid, &grouped(self.namespace.nguid))
            .with(Fact::Eui64, &self.namespace.eui64.map(|byte| format!("{byte:02x}")).join(" "))
            .found()
    }
}

/// The controller of a path that is connected.
pub(crate) struct Admin {
    link: Link,
    generation: u64,
    grant: Grant,
    last_keep_alive: Nanos,
    pub(crate) facts: Facts,
}

/// The I/O queues that a controller grants.
#[derive(Clone, Debug)]
struct Grant {
    generation: u64,
    cntlid: u16,
    /// Entries of an I/O queue.
    entries: u16,
    /// How many there are, and those in use.
    queues: u16,
    used: BTreeSet<u16>,
    in_capsule_bytes: usize,
}

/// Events on a path, as the controller reports them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    pub(crate) namespace_changed: bool,
}

/// A path to the namespace.
pub(crate) struct Path {
    pub(crate) peer: SocketAddr,
    admin: Mutex<Option<Admin>>,
    grant: Mutex<Option<Grant>>,
    generation: AtomicU64,
    ana: AtomicU8,
    /// Whether it has a volatile write cache.
    has_cache: AtomicBool,
    /// Why the target takes no controller of this host, and said not to try again.
    refusal: Mutex<Option<NvmfError>>,
    pub(crate) health: Health,
}

impl Path {
    pub(crate) fn new(peer: SocketAddr) -> Path {
        Path {
            peer,
            admin: Mutex::new(None),
            grant: Mutex::new(None),
            generation: AtomicU64::new(0),
            ana: AtomicU8::new(AnaState::Optimized as u8),
            has_cache: AtomicBool::new(false),
            refusal: Mutex::new(None),
            health: Health::default(),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.generation() % 2 == 1
    }

    pub(crate) fn ana(&self) -> AnaState {
        AnaState::from_u8(self.ana.load(Ordering::Relaxed)).unwrap_or_default()
    }

    pub(crate) fn has_cache(&self) -> bool {
        self.has_cache.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ana(&self, state: AnaState) {
        self.ana.store(state as u8, Ordering::Relaxed);
    }

    /// Connects a controller, if its namespace is the one that is `known`. There is none before.
    pub(crate) fn connect(
        &self,
        config: &InitiatorConfig,
        clock: &Clock,
        known: Option<Identity>,
    ) -> Result<Facts, NvmfError> {
        let connected = Admin::connect(config, self.peer, clock);
        *self.refusal.lock() = connected.as_ref().err().filter(|error| is_final(error)).cloned();
        let mut admin = connected?;
        let facts = admin.facts.clone();
        if known.is_some_and(|known| known != facts.identity()) {
            let what = "it has another namespace under this number".to_owned();
            return Err(admin.unusable(what));
        }
        // Without ANA every path is as good as another.
        self.set_ana(admin.ana()?);
        admin.link.deadline = None;
        self.has_cache.store(facts.controller.vwc & 1 != 0, Ordering::Relaxed);
        let mut place = self.admin.lock();
        let generation = self.generation() + 1;
        (admin.generation, admin.grant.generation) = (generation, generation);
        *self.grant.lock() = Some(admin.grant.clone());
        *place = Some(admin);
        // From here on queue pairs use it.
        self.generation.store(generation, Ordering::Release);
        Ok(facts)
    }

    /// Why the target refuses this host, if it did so for good when it was asked last.
    pub(crate) fn refusal(&self) -> Option<NvmfError> {
        self.refusal.lock().clone()
    }

    /// Gives up the controller of this generation; says whether it was there still.
    pub(crate) fn lose(&self, generation: u64) -> bool {
        let (is, none) = (Ordering::AcqRel, Ordering::Relaxed);
        if generation.is_multiple_of(2)
            || self.generation.compare_exchange(generation, generation + 1, is, none).is_err()
        {
            return false;
        }
        self.grant.lock().take_if(|grant| grant.generation == generation);
        // The thread that waits for its answers puts it away afterwards.
        if let Some(mut place) = self.admin.try_lock() {
            place.take_if(|admin| admin.generation == generation);
        }
        true
    }

    /// Shuts the controller down in good order.
    pub(crate) fn shut_down(&self, clock: &Clock) {
        let mut place = self.admin.lock();
        if let Some(mut admin) = place.take()
            && admin.generation == self.generation()
        {
            // A target that does not answer forgets the controller by itself.
            admin.link.deadline = Some(clock.now() + FAREWELL);
            let _ = admin.set_property(CC, CC_SHUTDOWN.into());
            drop(place);
            self.lose(admin.generation);
        }
    }

    /// Does something with the controller. One that fails to answer is given up.
    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&mut Admin) -> Result<T, NvmfError>,
    ) -> Result<T, NvmfError> {
        let mut place = self.admin.lock();
        let Some(admin) = &mut *place else { return Err(self.not_connected()) };
        let generation = admin.generation;
        let done = match generation == self.generation() {
            true => act(admin),
            false => Err(self.not_connected()),
        };
        if matches!(done, Err(NvmfError::Lost { .. } | NvmfError::Protocol { .. })) {
            *place = None;
            drop(place);
            self.lose(generation);
        }
        done
    }

    fn not_connected(&self) -> NvmfError {
        let what = "not connected at the moment".to_owned();
        NvmfError::Lost { peer: self.peer, what }
    }

    /// Opens an I/O queue with room for `depth` commands if it can be, before `latest`, with its
    /// number and the generation it belongs to.
    pub(crate) fn open_queue(
        &self,
        config: &InitiatorConfig,
        clock: &Clock,
        depth: usize,
        latest: Nanos,
    ) -> Result<(Link, u16, u64), NvmfError> {
        let (shape, generation) = {
            let mut place = self.grant.lock();
            let grant = place.as_mut().ok_or_else(|| self.not_connected())?;
            let free = (1..=grant.queues).find(|qid| !grant.used.contains(qid));
            let qid = free.ok_or_else(|| NvmfError::Unusable {
                peer: self.peer,
                what: format!("its {} I/O queues are all in use", grant.queues),
            })?;
            grant.used.insert(qid);
            // One entry of a queue stays empty; and a flush of the initiator's own has room.
            let wanted = u16::try_from(depth + 2).unwrap_or(u16::MAX);
            let entries = wanted.clamp(2, grant.entries);
            let (cntlid, in_capsule_bytes) = (grant.cntlid, grant.in_capsule_bytes);
            (QueueShape { qid, cntlid, entries, in_capsule_bytes }, grant.generation)
        };
        let opened = Link::open(config, self.peer, shape, clock, latest);
        match opened {
            Ok((link, _)) if self.generation() == generation => Ok((link, shape.qid, generation)),
            other => {
                self.close_queue(shape.qid, generation);
                Err(other.err().unwrap_or_else(|| self.not_connected()))
            }
        }
    }

    /// A queue number is free again, if it belongs to the controller of today.
    pub(crate) fn close_queue(&self, qid: u16, generation: u64) {
        if let Some(grant) = &mut *self.grant.lock()
            && grant.generation == generation
        {
            grant.used.remove(&qid);
        }
    }

    /// Keeps the controller alive, and takes its events. A path whose namespace is another than the
    /// one that is `known` is given up.
    pub(crate) fn tend(
        &self,
        config: &InitiatorConfig,
        clock: &Clock,
        known: Identity,
    ) -> Result<News, NvmfError> {
        let mut news = News::default();
        let is_usable = matches!(self.ana(), AnaState::Optimized | AnaState::NonOptimized);
        let state = self.with(|admin| {
            let now = clock.now();
            if now.since(admin.last_keep_alive) >= config.keep_alive / 3 {
                admin.execute("Keep Alive", Sqe::new(admin::KEEP_ALIVE, 0))?;
                admin.last_keep_alive = now;
            }
            admin.link.listen()?;
            let mut ana = None;
            let events = std::mem::take(&mut admin.link.others);
            // First of all: handling these may fail, and the next ones are to be heard then too.
            events.iter().for_each(|_| admin.ask_for_events());
            admin.link.flush()?;
            for (_, cqe) in events {
                let [a, b, c, d, ..] = cqe.result.to_le_bytes();
                match u32::from_le_bytes([a, b, c, d]) {
                    event::NAMESPACE => {
                        admin.get_log(lid::CHANGED_NAMESPACES, 0, 4096)?;
                        admin.identify_namespace(config.nsid)?;
                        if admin.facts.identity() != known {
                            let what = "another namespace has taken the number".to_owned();
                            return Err(NvmfError::Lost { peer: self.peer, what });
                        }
                        news.namespace_changed = true;
                    }
                    event::ANA => {
                        ana = Some(admin.ana()?);
                        self.health.works(); // it may take commands now that it refused before
                    }
                    _ => {}
                }
            }
            // A queue may have been told something that was older than the log page.
            if ana.is_none() && !is_usable {
                ana = Some(admin.ana()?);
            }
            Ok(ana)
        })?;
        if let Some(state) = state {
            self.set_ana(state);
        }
        Ok(news)
    }
}

/// Whether an error is a refused Connect that the target said not to repeat: it does not serve the subsystem to this
/// host.
fn is_final(error: &NvmfError) -> bool {
    matches!(error, NvmfError::Refused { status, .. } if !status.may_retry())
}

impl Admin {
    fn connect(
        config: &InitiatorConfig,
        peer: SocketAddr,
        clock: &Clock,
    ) -> Result<Admin, NvmfError> {
        let shape = QueueShape {
            qid: 0,
            cntlid: CNTLID_ANY,
            entries: ADMIN_ENTRIES,
            in_capsule_bytes: 8192,
        };
        let latest = clock.now() + config.timeout;
        let (link, cntlid) = Link::open(config, peer, shape, clock, latest)?;
        let used = BTreeSet::new();
        let mut admin = Admin {
            link,
            generation: 0,
            grant: Grant {
                generation: 0,
                cntlid,
                entries: 2,
                queues: 0,
                used,
                in_capsule_bytes: 0,
            },
            last_keep_alive: clock.now(),
            facts: Facts {
                controller: IdentifyController::default(),
                namespace: IdentifyNamespace::default(),
                uuid: None,
            },
        };
        // All that it is asked, up to the log page of ANA.
        admin.link.deadline = Some(clock.now() + config.timeout);
        admin.enable(config, clock)?;
        Ok(admin)
    }

    fn unusable(&self, what: String) -> NvmfError {
        NvmfError::Unusable { peer: self.link.peer, what }
    }

    fn enable(&mut self, config: &InitiatorConfig, clock: &Clock) -> Result<(), NvmfError> {
        let [low, high, ..] = self.property(CAP, true)?.to_le_bytes();
        let mqes = u16::from_le_bytes([low, high]);
        self.grant.entries = mqes.saturating_add(1).clamp(2, ENTRIES_WANTED);
        self.set_property(CC, CC_ENABLE.into())?;
        let deadline = clock.now() + config.timeout;
        loop {
            let [a, b, c, d, ..] = self.property(CSTS, false)?.to_le_bytes();
            let status = u32::from_le_bytes([a, b, c, d]);
            if status & CSTS_CFS != 0 || clock.now() > deadline {
                return Err(self.unusable("the controller does not become ready".to_owned()));
            }
            if status & CSTS_RDY != 0 {
                break;
            }
            clock.sleep(config.retry);
        }
        let controller = self.identify(cns::CONTROLLER, 0)?;
        let controller = IdentifyController::decode(&controller)
            .map_err(|error| NvmfError::truncated(self.link.peer, &error))?;
        let wanted = u32::from(QUEUES_WANTED - 1);
        let queues = Sqe::new(feature::SET, 0)
            .with_dword(10, feature::QUEUES.into())
            .with_dword(11, wanted | wanted << 16);
        let granted = self.execute("Set Features (queues)", queues)?.to_le_bytes();
        let count = |low, high| u16::from_le_bytes([low, high]).saturating_add(1);
        self.grant.queues = count(granted[0], granted[1]).min(count(granted[2], granted[3]));
        let capsule = to_usize(controller.ioccsz.into()).saturating_mul(16);
        self.grant.in_capsule_bytes = capsule.saturating_sub(64).min(64 << 10);
        let wanted = controller.oaes & (OAES_NAMESPACE | OAES_ANA);
        let events =
            Sqe::new(feature::SET, 0).with_dword(10, feature::EVENTS.into()).with_dword(11, wanted);
        self.execute("Set Features (events)", events)?;
        self.ask_for_events();
        self.link.flush()?;
        self.facts.controller = controller;
        self.identify_namespace(config.nsid)
    }

    fn identify_namespace(&mut self, nsid: u32) -> Result<(), NvmfError> {
        let bytes = self.identify(cns::NAMESPACE, nsid)?;
        let mut namespace = IdentifyNamespace::decode(&bytes)
            .map_err(|error| NvmfError::truncated(self.link.peer, &error))?;
        if let Ok(bytes) = bytes[..].try_into() {
            // Nobody asks for formats that are not in use.
            (namespace.lbaf0_ms, namespace.lbaf0_lbads) = format_in_use(bytes);
        }
        if namespace.nsze == 0 {
            return Err(self.unusable(format!("it has no namespace {nsid}")));
        }
        // Optional before version 1.3.
        let uuid = self.identify(cns::DESCRIPTORS, nsid).ok();
        self.facts.uuid = uuid.as_deref().and_then(uuid_of);
        self.facts.namespace = namespace;
        Ok(())
    }

    /// One Asynchronous Event Request, to be answered when something happens.
    fn ask_for_events(&mut self) {
        if self.link.wire.room() > 1 {
            self.link.wire.submit(Sqe::new(admin::ASYNC_EVENT, 0), Payload::None);
        }
    }

    /// Runs a command without data; returns dwords 0 and 1.
    pub(crate) fn execute(&mut self, name: &'static str, sqe: Sqe) -> Result<u64, NvmfError> {
        Ok(self.link.execute(name, sqe, Payload::None)?.0.result)
    }

    /// Runs a command that returns `size` bytes.
    pub(crate) fn fetch(
        &mut self,
        name: &'static str,
        sqe: Sqe,
        size: usize,
    ) -> Result<AlignedBuf, NvmfError> {
        Ok(self.run(name, sqe, Transfer::In(size))?.1)
    }

    /// Runs a command with its data; returns dwords 0 and 1, and the data from the controller.
    pub(crate) fn run(
        &mut self,
        name: &'static str,
        sqe: Sqe,
        data: Transfer<'_>,
    ) -> Result<(u64, AlignedBuf), NvmfError> {
        let (cqe, payload) = self.link.execute(name, sqe, payload(data))?;
        Ok((cqe.result, received(payload)))
    }

    fn property(&mut self, ofst: u32, is_wide: bool) -> Result<u64, NvmfError> {
        let property = Property { attrib: u8::from(is_wide), ofst, value: 0 };
        let sqe = fabrics(PROPERTY_GET).with_arguments(&property.encode());
        self.execute("Property Get", sqe)
    }

    fn set_property(&mut self, ofst: u32, value: u64) -> Result<(), NvmfError> {
        let property = Property { attrib: 0, ofst, value };
        let sqe = fabrics(PROPERTY_SET).with_arguments(&property.encode());
        self.execute("Property Set", sqe).map(drop)
    }

    fn identify(&mut self, which: u8, nsid: u32) -> Result<AlignedBuf, NvmfError> {
        let sqe = Sqe::new(identify::OPCODE, nsid).with_dword(10, which.into());
        self.fetch("Identify", sqe, identify::SIZE)
    }

    /// The first `size` bytes (a multiple of 4) of a log page; `specific` is dword 11's upper half.
    pub(crate) fn get_log(
        &mut self,
        which: u8,
        specific: u16,
        size: usize,
    ) -> Result<AlignedBuf, NvmfError> {
        self.get_log_with(which, 0, specific, size)
    }

    /// [`Admin::get_log`] with the log specific parameter.
    pub(crate) fn get_log_with(
        &mut self,
        which: u8,
        parameter: u8,
        specific: u16,
        size: usize,
    ) -> Result<AlignedBuf, NvmfError> {
        let dwords = u32::try_from(size / 4 - 1).expect("a log page below 16 GiB");
        let [a, b, c, d] = dwords.to_le_bytes();
        let cdw10 = u32::from_le_bytes([which, parameter, a, b]);
        let cdw11 = u32::from(u16::from_le_bytes([c, d])) | u32::from(specific) << 16;
        let sqe = Sqe::new(log::OPCODE, NSID_ALL).with_dword(10, cdw10).with_dword(11, cdw11);
        self.fetch("Get Log Page", sqe, size)
    }

    /// The ANA state of the namespace's group.
    fn ana(&mut self) -> Result<AnaState, NvmfError> {
        let facts = &self.facts.controller;
        if facts.cmic & 8 == 0 {
            return Ok(AnaState::Optimized);
        }
        let groups = to_usize(facts.nanagrpid.into());
        let group = self.facts.namespace.anagrpid;
        // Groups without their namespaces: bit 0 of the log specific parameter.
        let size = (AnaHeader::SIZE + groups.clamp(1, 1024) * AnaGroup::SIZE).next_multiple_of(4);
        let bytes = self.get_log_with(lid::ANA, 1, 0, size)?;
        let (_, groups) = bytes.split_at(AnaHeader::SIZE);
        let states =
            groups.chunks_exact(AnaGroup::SIZE).filter_map(|one| AnaGroup::decode(one).ok());
        let state = states.into_iter().find(|one| one.grpid == group).map(|one| one.state);
        Ok(state.and_then(AnaState::from_u8).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use esker_device::MemoryDevice;

    use super::*;
    use crate::target::{
        Access, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
    };

    #[test]
    fn a_path_to_another_namespace_is_never_there_to_be_used() {
        let nqn = "nqn.2026-01.io.esker:test";
        let mut subsystem = SubsystemConfig::new(nqn);
        subsystem.access = Access::Any;
        let device = Arc::new(MemoryDevice::new("memory", 1 << 20, 512));
        subsystem.namespaces.push(NamespaceConfig { nsid: 1, device, uuid: Some([7; 16]) });
        let mut config = TargetConfig::default();
        config.portals.push(PortalConfig::new("127.0.0.1:0".parse().unwrap()));
        config.subsystems.push(subsystem);
        let target = Target::start(&config).unwrap();
        let at = target.addresses()[0];
        let config = InitiatorConfig::new(vec![at], nqn, 1).unwrap();
        let config = InitiatorConfig { timeout: Duration::from_secs(60), ..config };
        let (path, clock) = (Path::new(at), Clock::real());
        let found = path.connect(&config, &clock, None).unwrap().identity();
        for known in [Identity { uuid: Some([8; 16]), ..found }, Identity { lbads: 12, ..found }] {
            let other = Path::new(at);
            other.connect(&config, &clock, Some(known)).unwrap_err();
            assert_eq!(other.generation(), 0);
        }
        let same = Path::new(at);
        same.connect(&config, &clock, Some(found)).unwrap();
        assert!(same.is_up());
    }
}
