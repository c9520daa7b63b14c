//! A solid-state drive: namespaces that are devices, on one drive.

use std::sync::Arc;

use esker_base::{Clock, Lba, LbaCount, Nanos};
use esker_device::fdp::{
    Configuration as PlacementConfiguration, DataPlacement, Endurance, Event, EventType, FdpError,
    HandleStatus, HandleUse, Reporter, Statistics,
};
use esker_device::{
    Device, DeviceError, DeviceStats, Geometry, Identity, MemoryDevice, PlacementId, QueuePair,
};

use crate::FlashError;
use crate::drive::{Drive, Media, NamespacePart, Parameters, group_bits};
use crate::emulate::{Emulated, Emulation, Handout, Pace};
use crate::ftl::{PageCounts, UnitId, UnitState, Writer};

/// The largest read or write in one command, in bytes.
const MAX_TRANSFER: u32 = 1 << 20;

/// A drive. Clones are the same drive.
#[derive(Clone)]
pub struct Ssd {
    name: Arc<str>,
    emulation: Arc<Emulation<Drive>>,
}

impl Ssd {
    /// A drive in memory, with nothing on it and no namespace.
    ///
    /// # Errors
    /// When the parameters contradict each other.
    pub fn new(name: &str, parameters: &Parameters, pace: Pace) -> Result<Ssd, FlashError> {
        parameters.check()?;
        let memory = MemoryDevice::new(name, parameters.media_bytes(), parameters.lba_size);
        let is_timed = pace.clock().is_some();
        let drive = Drive::create(name, parameters, Arc::new(memory), false, is_timed)?;
        Ok(Ssd::on(drive, pace))
    }

    /// A drive that keeps no data, only counts and takes time: reading gives the bytes the buffer
    /// held. For studies of write amplification and latency, where data would only cost memory.
    ///
    /// # Errors
    /// When the parameters contradict each other.
    pub fn without_data(
        name: &str,
        parameters: &Parameters,
        pace: Pace,
    ) -> Result<Ssd, FlashError> {
        let ssd = Ssd::new(name, parameters, pace)?;
        ssd.emulation.with(Drive::keep_nothing);
        Ok(ssd)
    }

    /// A drive with an image on `device`, which is overwritten: flushed state survives, and
    /// [`Ssd::open`] finds it.
    ///
    /// # Errors
    /// When the parameters contradict each other, the device is too small, or it fails.
    pub fn create(
        name: &str,
        parameters: &Parameters,
        device: Arc<dyn Device>,
        pace: Pace,
    ) -> Result<Ssd, FlashError> {
        let is_timed = pace.clock().is_some();
        Ok(Ssd::on(Drive::create(name, parameters, device, true, is_timed)?, pace))
    }

    /// The drive whose image is on `device`.
    ///
    /// # Errors
    /// When there is none, it is damaged, or the device fails.
    pub fn open(device: Arc<dyn Device>, pace: Pace) -> Result<Ssd, FlashError> {
        Ok(Ssd::on(Drive::open(device, pace.clock().is_some())?, pace))
    }

    /// Bytes that [`Ssd::create`] needs on its device.
    ///
    /// # Errors
    /// When the drive is too large for its page size.
    pub fn image_bytes(parameters: &Parameters) -> Result<u64, FlashError> {
        crate::drive::Image::bytes(parameters)
    }

    fn on(drive: Drive, pace: Pace) -> Ssd {
        Ssd { name: drive.name.clone(), emulation: Emulation::new(drive, pace) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters of the drive.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.emulation.with(|drive| drive.parameters.clone())
    }

    /// Makes a namespace of `bytes` bytes and returns its number. With `handles`, its placement
    /// ids are 0, 1, … for these reclaim unit handles of the drive, in this order.
    ///
    /// # Errors
    /// When there is no room, or a handle does not exist.
    pub fn create_namespace(&self, bytes: u64, handles: Option<&[u16]>) -> Result<u32, FlashError> {
        self.emulation.with(|drive| drive.create_namespace(bytes, handles))
    }

    /// Deletes a namespace with its content; devices of it fail from now on.
    ///
    /// # Errors
    /// When there is none with this number.
    pub fn delete_namespace(&self, id: u32) -> Result<(), FlashError> {
        self.emulation.with(|drive| drive.delete_namespace(id))
    }

    /// The numbers of its namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Vec<u32> {
        self.emulation.with(|drive| drive.namespaces.iter().map(|one| one.id).collect())
    }

    /// Bytes that no namespace has, in the largest gap.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.emulation.with(|drive| drive.largest_gap())
    }

    /// A namespace as a device.
    ///
    /// # Errors
    /// When there is none with this number.
    pub fn namespace(&self, id: u32) -> Result<Namespace, FlashError> {
        let name = format!("{}/{id}", self.name);
        let found = self.emulation.with(|drive| {
            let namespace = drive.namespace(id)?;
            let Parameters { page_size, lba_size, program_size, media, .. } = &drive.parameters;
            let bytes = u64::from(namespace.pages.count) * u64::from(*page_size);
            let handles =
                if drive.placement.enabled.is_some() { namespace.handles.len() } else { 0 };
            let below = drive.device().geometry();
            let geometry = Geometry {
                lba_size: *lba_size,
                capacity: LbaCount(bytes / u64::from(*lba_size)),
                preferred_write_size: *program_size,
                max_transfer_size: MAX_TRANSFER,
                discard_granularity: if *media == Media::Flash { *page_size } else { 0 },
                placement_handles: u16::try_from(handles).unwrap_or(u16::MAX),
                volatile_write_cache: drive.is_kept() || below.volatile_write_cache,
            };
            Some((geometry, namespace.birth))
        });
        let Some((geometry, birth)) = found else {
            let why = format!("{}: there is no namespace {id}; create it first", self.name);
            return Err(FlashError::Invalid(why));
        };
        let part = NamespacePart { id, birth, name: name.clone() };
        let device = Emulated::new(self.emulation.clone(), &name, geometry, part);
        Ok(Namespace { ssd: self.clone(), id, birth, device })
    }

    /// The die that holds an LBA of a namespace, or that has the next turn where it is in the buffer; none for
    /// one that was never written.
    ///
    /// # Errors
    /// When there is no such namespace, or it has no such LBA.
    pub fn die(&self, namespace: u32, lba: Lba) -> Result<Option<u32>, FlashError> {
        self.emulation.with(|drive| drive.die(namespace, lba))
    }

    /// Enables a configuration of data placement, or disables it. The drive's content is gone.
    ///
    /// # Errors
    /// While namespaces exist, or when there is no such configuration.
    pub fn enable_placement(&self, configuration: Option<usize>) -> Result<(), FlashError> {
        self.emulation.with(|drive| {
            if !drive.namespaces.is_empty() {
                let why = "data placement can be changed only while there is no namespace: delete \
                           them first";
                return Err(FlashError::Invalid(why.to_owned()));
            }
            drive.enable(configuration, self.now())
        })
    }

    /// This moment, if time is modelled.
    fn now(&self) -> Option<Nanos> {
        self.emulation.pace().clock().map(Clock::now)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// When the device under the drive fails, or the drive has failed.
    pub fn sync(&self) -> Result<(), FlashError> {
        self.emulation.with(|drive| drive.commit())
    }

    /// Makes everything written durable, and the next open short.
    ///
    /// # Errors
    /// When the device under the drive fails.
    pub fn checkpoint(&self) -> Result<(), FlashError> {
        self.emulation.with(|drive| {
            drive.commit()?;
            drive.checkpoint()
        })
    }

    /// Keeps the model's times of every command from now on.
    pub fn start_record(&self) {
        self.emulation.start_record();
    }

    /// The times kept; ends the record.
    #[must_use]
    pub fn take_record(&self) -> Vec<Handout> {
        self.emulation.take_record()
    }

    /// The state of the drive.
    #[must_use]
    pub fn report(&self) -> Report {
        self.emulation.with(Report::of)
    }
}

/// The drive's state, for people and tests.
#[derive(Clone, Debug)]
pub struct Report {
    /// The parameters of the drive.
    pub parameters: Parameters,
    /// The configuration of data placement in force.
    pub placement: Option<usize>,
    /// Bytes written by the host.
    pub host_written_bytes: u64,
    /// Pages, by their writer.
    pub pages: PageCounts,
    /// Reclaim units by how often they were erased: the number of units for each count, ascending.
    pub wear: Vec<(u32, u32)>,
    /// Erased units.
    pub free_units: u32,
    /// Erased units that cleaning keeps for itself: more with more handles, and twice as many for those isolated
    /// persistently.
    pub reserve_units: u32,
    /// Units in use, by their present or last filler: open, closed, and valid pages in both.
    pub writers: Vec<(Writer, UnitsOf)>,
    /// The namespaces: number, bytes and handles.
    pub namespaces: Vec<(u32, u64, Vec<u16>)>,
}

/// Units of one writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitsOf {
    /// Being filled.
    pub open: u32,
    /// Full.
    pub closed: u32,
    /// Pages that are not superseded.
    pub valid_pages: u64,
}

impl Report {
    fn of(drive: &mut Drive) -> Report {
        let mut report = Report {
            parameters: drive.parameters.clone(),
            placement: drive.placement.enabled,
            host_written_bytes: drive.host.written_bytes,
            pages: drive.layer.counts(),
            wear: Vec::new(),
            free_units: 0,
            reserve_units: 0,
            writers: Vec::new(),
            namespaces: Vec::new(),
        };
        let page = u64::from(drive.parameters.page_size);
        let each = drive.namespaces.iter();
        let each = each.map(|one| (one.id, u64::from(one.pages.count) * page, one.handles.clone()));
        report.namespaces.extend(each);
        let Some(ftl) = drive.layer.ftl() else { return report };
        report.reserve_units = ftl.options().reserve_units();
        let mut wear = std::collections::BTreeMap::new();
        for unit in UnitId::all(0..ftl.options().units) {
            let state = ftl.unit(unit);
            *wear.entry(state.erasures()).or_insert(0) += 1;
            let (writer, valid, is_open) = match state {
                UnitState::Free { .. } => {
                    report.free_units += 1;
                    continue;
                }
                UnitState::Open { writer, valid, .. } => (writer, valid, true),
                UnitState::Closed { writer, valid, .. } => (writer, valid, false),
            };
            let known = report.writers.iter().position(|(known, _)| *known == writer);
            let index = known.unwrap_or_else(|| {
                report.writers.push((writer, UnitsOf::default()));
                report.writers.len() - 1
            });
            let units = &mut report.writers[index].1;
            *(if is_open { &mut units.open } else { &mut units.closed }) += 1;
            units.valid_pages += u64::from(valid);
        }
        report.writers.sort_by_key(|(writer, _)| match writer {
            Writer::Host(handle) => (0, *handle),
            Writer::Cleaning => (1, 0),
            Writer::CleaningOf(handle) => (2, *handle),
            Writer::Levelling => (3, 0),
            Writer::LevellingOf(handle) => (4, *handle),
        });
        report.wear = wear.into_iter().collect();
        report
    }

    /// Bytes written to the media.
    #[must_use]
    pub fn media_written_bytes(&self) -> u64 {
        self.pages.media() * u64::from(self.parameters.page_size)
    }

    /// Media bytes over host bytes; 1 before anything is written.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a ratio of counters
    pub fn write_amplification(&self) -> f64 {
        match self.host_written_bytes {
            0 => 1.0,
            host => self.media_written_bytes() as f64 / host as f64,
        }
    }

    /// The mean share of the rated erasures that is used up, in percent.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a percentage
    pub fn used_percent(&self) -> f64 {
        let units: u64 = self.wear.iter().map(|(_, units)| u64::from(*units)).sum();
        let erasures: u64 = self
            .wear
            .iter()
            .map(|(erasures, units)| u64::from(*erasures) * u64::from(*units))
            .sum();
        let rated = units * u64::from(self.parameters.rated_erasures);
        if rated == 0 { 0.0 } else { 100.0 * erasures as f64 / rated as f64 }
    }
}

/// A namespace of a drive.
pub struct Namespace {
    ssd: Ssd,
    id: u32,
    birth: u64,
    device: Emulated<Drive>,
}

impl Namespace {
    /// The drive.
    #[must_use]
    pub fn ssd(&self) -> &Ssd {
        &self.ssd
    }

    /// Its number on the drive.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    fn placed<R>(
        &self,
        look: impl FnOnce(&mut Drive) -> Result<R, FdpError>,
    ) -> Result<R, FdpError> {
        self.ssd.emulation.with(|drive| match drive.placement.enabled {
            None => Err(FdpError::Disabled { drive: drive.name.to_string() }),
            Some(_) => look(drive),
        })
    }

    /// The drive's handle of one of the namespace's ids.
    fn handle(&self, drive: &Drive, id: PlacementId) -> Result<u16, FdpError> {
        let handles = drive.living(self.id, self.birth).map_or(&[][..], |one| &one.handles);
        let found = handles.get(usize::from(id.0)).copied();
        found.ok_or(FdpError::InvalidId { id: id.0, count: handles.len() })
    }
}

impl Device for Namespace {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.device.queue_pair(depth)
    }

    /// Whole pages are discarded: that is all if an LBA is one.
    fn discards_zero(&self) -> bool {
        let geometry = self.device.geometry();
        self.ssd.emulation.with(|drive| drive.parameters.page_size == geometry.lba_size)
    }

    fn identity(&self) -> Option<Identity> {
        self.device.identity()
    }

    /// The namespace's own operations; below, the drive with the writes of all namespaces and the bytes that went to
    /// the media for them.
    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    fn remarks(&self) -> Vec<String> {
        self.device.remarks()
    }

    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        let has_it = self.ssd.emulation.with(|drive| !drive.parameters.configurations.is_empty());
        has_it.then_some(self)
    }
}

impl DataPlacement for Namespace {
    fn drive(&self) -> &str {
        &self.ssd.name
    }

    fn configurations(&self) -> Vec<PlacementConfiguration> {
        self.ssd.emulation.with(|drive| {
            let parameters = &drive.parameters;
            let each = parameters.configurations.iter().map(|one| PlacementConfiguration {
                reclaim_groups: u32::from(one.groups),
                group_bits: u8::try_from(group_bits(one.groups)).expect("at most 16"),
                handles: one.handles.clone(),
                max_placement_ids: 128,
                max_namespaces: parameters.max_namespaces,
                reclaim_unit_bytes: parameters.unit_size,
                time_limit_s: 0,
                volatile_write_cache: drive.is_kept(),
                is_valid: true,
            });
            each.collect()
        })
    }

    fn enabled(&self) -> Option<usize> {
        self.ssd.emulation.with(|drive| drive.placement.enabled)
    }

    fn enable(&self, configuration: Option<usize>) -> Result<(), FdpError> {
        self.ssd.emulation.with(|drive| {
            if configuration == drive.placement.enabled {
                return Ok(());
            }
            if !drive.namespaces.is_empty() {
                let why = "data placement can be changed only while there is no namespace";
                return Err(FdpError::Sequence(why.to_owned()));
            }
            drive
                .enable(configuration, self.ssd.now())
                .map_err(|error| FdpError::Invalid(error.to_string()))
        })
    }

    fn usage(&self) -> Result<Vec<HandleUse>, FdpError> {
        self.placed(|drive| {
            let handles = drive.layer.ftl().map_or(1, |ftl| ftl.options().handles.len());
            let mut usage = vec![HandleUse::Unused; handles];
            for namespace in &drive.namespaces {
                for &handle in &namespace.handles {
                    let used = &mut usage[usize::from(handle)];
                    match (namespace.is_host_specified, *used) {
                        (true, _) => *used = HandleUse::Host,
                        (false, HandleUse::Unused) => *used = HandleUse::Controller,
                        (false, _) => {}
                    }
                }
            }
            Ok(usage)
        })
    }

    fn statistics(&self) -> Result<Statistics, FdpError> {
        self.placed(|drive| {
            let (now, since) = (drive.totals(), drive.placement.since);
            Ok(Statistics {
                host_bytes: u128::from(now.host - since.host),
                media_bytes: u128::from(now.media - since.media),
                erased_bytes: u128::from(now.erased - since.erased),
            })
        })
    }

    fn events(&self, reporter: Reporter) -> Result<Vec<Event>, FdpError> {
        self.placed(|drive| Ok(drive.placement.events(reporter)))
    }

    fn endurance(&self) -> Endurance {
        let report = self.ssd.report();
        let taken: u64 = report.namespaces.iter().map(|(_, bytes, _)| bytes).sum();
        self.ssd.emulation.with(|drive| Endurance {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded by min
            used_percent: report.used_percent().min(255.0) as u8,
            spare_percent: 100,
            host_read_bytes: u128::from(drive.host.read_bytes),
            host_written_bytes: u128::from(drive.host.written_bytes),
            media_written_bytes: u128::from(drive.totals().media),
            host_reads: u128::from(drive.host.reads),
            host_writes: u128::from(drive.host.writes),
            capacity_bytes: u128::from(drive.parameters.capacity),
            unallocated_bytes: u128::from(drive.parameters.capacity - taken),
        })
    }

    fn handles(&self) -> Result<Vec<HandleStatus>, FdpError> {
        self.placed(|drive| {
            let Some(namespace) = drive.living(self.id, self.birth) else {
                return Ok(Vec::new());
            };
            let per_page = u64::from(drive.parameters.page_size / drive.parameters.lba_size);
            let (mut all, groups) =
                (Vec::new(), drive.layer.ftl().map_or(1, |ftl| ftl.options().groups));
            for group in 0..groups {
                for (&handle, index) in namespace.handles.iter().zip(0u16..) {
                    let shift = 16 - group_bits(groups);
                    let high = group.checked_shl(shift.into()).unwrap_or(0);
                    let pages = drive.layer.ftl().map_or(0, |ftl| ftl.writable(group, handle));
                    all.push(HandleStatus {
                        placement: PlacementId(high | index),
                        handle,
                        time_left_s: 0,
                        writable: LbaCount(u64::from(pages) * per_page),
                    });
                }
            }
            Ok(all)
        })
    }

    fn update(&self, ids: &[PlacementId]) -> Result<(), FdpError> {
        self.placed(|drive| {
            let part = (self.id, self.birth);
            let count = drive.living(part.0, part.1).map_or(0, |one| one.handles.len());
            let updated = drive.update_handles(part, ids, self.ssd.now());
            updated.map_err(|id| FdpError::InvalidId { id, count })
        })
    }

    fn reported_events(&self, id: PlacementId) -> Result<Vec<(EventType, bool)>, FdpError> {
        self.placed(|drive| {
            let handle = self.handle(drive, id)?;
            let reported = |kind| (kind, drive.placement.is_reported(handle, kind));
            Ok(EventType::ALL.map(reported).to_vec())
        })
    }

    fn report_events(
        &self,
        id: PlacementId,
        events: &[EventType],
        enable: bool,
    ) -> Result<(), FdpError> {
        self.placed(|drive| {
            let handle = self.handle(drive, id)?;
            drive.placement.report(handle, events, enable);
            Ok(())
        })
    }
}
