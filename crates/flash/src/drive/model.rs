//! The drive: its parts together, made, opened, divided into namespaces, and kept.

use std::sync::Arc;

use esker_base::units::to_u64;
use esker_base::{Lba, Nanos};
use esker_device::fdp::{Event as PlacementEvent, EventType};
use esker_device::{Cause, Device, DeviceError, OpKind, PlacementId};

use super::counts::{HostCounts, Totals};
use super::namespaces::{find_room, gaps};
use super::omf::Checkpoint;
use super::placement::Placement;
use super::stage::{Source, Stage};
use super::store::Store;
use super::timeline::Timeline;
use super::{Extent, Image, Layer, Media, NamespaceRecord, Parameters, Places, group_bits};
use crate::FlashError;
use crate::emulate::Ticket;
use crate::ftl::{Event, Ftl, FtlOptions, MediaPage, PageCounts, UnitId};
use crate::timing::Part;

/// A drive.
pub(crate) struct Drive {
    pub(crate) name: Arc<str>,
    pub(crate) parameters: Parameters,
    pub(crate) layer: Layer,
    pub(crate) namespaces: Vec<NamespaceRecord>,
    pub(crate) placement: Placement,
    pub(crate) host: HostCounts,
    /// `host`, and bytes written to the media, when the drive was opened.
    pub(super) opened: (HostCounts, u64),
    pub(super) device: Arc<dyn Device>,
    pub(super) store: Store,
    pub(super) timeline: Option<Timeline>,
    /// Dies chosen before, where the host chooses them and time is not modelled. Otherwise the
    /// timeline has them.
    untimed_places: Option<Places>,
    pub(super) image: Option<Image>,
    /// Why it has failed. Memory and device may differ then: nothing goes on.
    pub(super) failed: Option<String>,
    /// The command that failed after it was started in time: nobody waits for its end.
    pub(super) lost: Option<Ticket>,
    pub(super) parts: Vec<Part>,
    pub(super) now: Nanos,
    /// Namespaces added so far.
    pub(super) births: u64,
}

/// Identity that tells a namespace's device from another's on the same drive.
pub(crate) struct NamespacePart {
    pub(crate) id: u32,
    /// See [`NamespaceRecord::birth`].
    pub(crate) birth: u64,
    pub(crate) name: String,
}

impl Drive {
    /// A drive with nothing on it, which keeps its data on `device`; with an image, so that it can
    /// be opened again, if `is_kept`.
    pub(crate) fn create(
        name: &str,
        parameters: &Parameters,
        device: Arc<dyn Device>,
        is_kept: bool,
        is_timed: bool,
    ) -> Result<Drive, FlashError> {
        parameters.check()?;
        let layer = Layer::new(parameters, None)?;
        let image = is_kept.then(|| Image::create(&device, name, parameters)).transpose()?;
        let placement = Placement::new(None, 1, Totals::default());
        let mut drive =
            Drive::assemble(name, parameters, device, image, layer, placement, is_timed)?;
        drive.checkpoint()?;
        Ok(drive)
    }

    /// The drive whose image is on `device`.
    pub(crate) fn open(device: Arc<dyn Device>, is_timed: bool) -> Result<Drive, FlashError> {
        let (image, contents) = Image::open(&device)?;
        let parameters = image.parameters().clone();
        check(&parameters, &contents.checkpoint)?;
        let Checkpoint { configuration, counts, since, namespaces, units, map, dies, .. } =
            contents.checkpoint;
        let mut places = parameters.places();
        if let Some(places) = &mut places {
            for (stripe, die) in (0..).zip(dies) {
                places.restore(stripe, die)?;
            }
            for event in &contents.events {
                match *event {
                    Event::Place { stripe, die } => places.restore(stripe, die)?,
                    Event::Erase { unit } if unit.0 < parameters.units => places.forget(unit),
                    _ => {}
                }
            }
        }
        let mut layer = Layer::new(&parameters, configuration)?;
        match &mut layer {
            Layer::Mapped(ftl) => {
                let mut restored = Ftl::restore(ftl.options().clone(), map, &units, counts)?;
                for event in contents.events {
                    restored.replay(event)?;
                }
                restored.check()?;
                **ftl = restored;
            }
            Layer::InPlace(kept) => {
                *kept = counts;
                for event in contents.events {
                    if let Event::Program { count, .. } = event {
                        kept.host += u64::from(count);
                    }
                }
            }
        }
        let handles = layer.ftl().map_or(1, |ftl| ftl.options().handles.len());
        let placement = Placement::new(configuration, handles, since);
        let name = image.name().to_owned();
        let image = Some(image);
        let mut drive =
            Drive::assemble(&name, &parameters, device, image, layer, placement, is_timed)?;
        *drive.places() = places;
        drive.host = contents.host;
        drive.opened = (contents.host, drive.totals().media);
        let (now, since) = (drive.totals(), drive.placement.since);
        if now.host < since.host || now.media < since.media || now.erased < since.erased {
            let why = "the image is damaged: data placement was enabled after what it holds";
            return Err(FlashError::Corrupt(why.to_owned()));
        }
        drive.namespaces = namespaces;
        // Open units go on where the journal ends, and a new one begins.
        drive.checkpoint()?;
        Ok(drive)
    }

    fn assemble(
        name: &str,
        parameters: &Parameters,
        device: Arc<dyn Device>,
        image: Option<Image>,
        layer: Layer,
        placement: Placement,
        is_timed: bool,
    ) -> Result<Drive, FlashError> {
        let offset = image.as_ref().map_or(0, Image::data_offset);
        let mut drive = Drive {
            name: name.into(),
            store: Store::new(&device, offset, parameters.page_size)?,
            timeline: is_timed.then(|| Timeline::new(parameters)).transpose()?,
            untimed_places: None,
            parameters: parameters.clone(),
            layer,
            namespaces: Vec::new(),
            placement,
            host: HostCounts::default(),
            opened: (HostCounts::default(), 0),
            device,
            image,
            failed: None,
            lost: None,
            parts: Vec::new(),
            now: Nanos::default(),
            births: 0,
        };
        *drive.places() = parameters.places();
        Ok(drive)
    }

    /// The dies that the host has chosen.
    fn places(&mut self) -> &mut Option<Places> {
        match &mut self.timeline {
            Some(timeline) => &mut timeline.places,
            None => &mut self.untimed_places,
        }
    }

    /// Keeps no data from now on, only where it would be.
    pub(crate) fn keep_nothing(&mut self) {
        self.store.keep_nothing();
    }

    /// Whether it can be opened again.
    pub(crate) fn is_kept(&self) -> bool {
        self.image.is_some()
    }

    /// The device that holds its data.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes so far.
    pub(crate) fn totals(&self) -> Totals {
        let counts = self.layer.counts();
        let page = u64::from(self.parameters.page_size);
        Totals {
            host: self.host.written_bytes,
            media: counts.media() * page,
            erased: counts.erased * page,
        }
    }

    /// Adds a namespace.
    pub(crate) fn create_namespace(
        &mut self,
        bytes: u64,
        handles: Option<&[u16]>,
    ) -> Result<u32, FlashError> {
        self.is_alive()?;
        let page = u64::from(self.parameters.page_size);
        if bytes == 0 || !bytes.is_multiple_of(page) {
            let why = format!("a namespace has a multiple of {page} bytes, not {bytes}");
            return Err(FlashError::Invalid(why));
        }
        if to_u64(self.namespaces.len()) >= u64::from(self.parameters.max_namespaces) {
            let most = self.parameters.max_namespaces;
            return Err(FlashError::NoSpace(format!("the drive has at most {most} namespaces")));
        }
        let in_all = self.layer.ftl().map_or(1, |ftl| ftl.options().handles.len());
        if let Some(handles) = handles {
            let is_wrong = |&&handle: &&u16| usize::from(handle) >= in_all;
            if let Some(handle) = handles.iter().find(is_wrong) {
                let why = format!(
                    "there is no reclaim unit handle {handle}: the drive has 0 to {in_all}, \
                     exclusive; enable data placement for more"
                );
                return Err(FlashError::Invalid(why));
            }
            if handles.is_empty() || handles.len() > 128 {
                return Err(FlashError::Invalid("a namespace names 1 to 128 handles".to_owned()));
            }
        }
        let count = u32::try_from(bytes / page).unwrap_or(u32::MAX);
        let pages = find_room(&self.namespaces, count, self.parameters.logical_pages()?)?;
        let id = (1..).find(|id| self.namespaces.iter().all(|other| other.id != *id));
        let id = id.expect("there are fewer namespaces than numbers");
        if self.layer.ftl().is_none() {
            // Content that another namespace has left here.
            self.store.zero(MediaPage(pages.first.0), pages.count)?;
        }
        self.births += 1;
        self.namespaces.push(NamespaceRecord {
            id,
            birth: self.births,
            pages,
            handles: handles.map_or_else(|| vec![0], <[u16]>::to_vec),
            is_host_specified: handles.is_some(),
        });
        self.checkpoint()?;
        Ok(id)
    }

    /// Bytes of the largest namespace for which there is room.
    pub(crate) fn largest_gap(&self) -> u64 {
        let in_all = self.parameters.logical_pages().unwrap_or(0);
        let most = gaps(&self.namespaces, in_all).map(|gap| gap.count).max();
        u64::from(most.unwrap_or(0)) * u64::from(self.parameters.page_size)
    }

    /// Removes a namespace and its content.
    pub(crate) fn delete_namespace(&mut self, id: u32) -> Result<(), FlashError> {
        self.is_alive()?;
        let Some(index) = self.namespaces.iter().position(|namespace| namespace.id == id) else {
            return Err(FlashError::Invalid(format!("{}: there is no namespace {id}", self.name)));
        };
        let Extent { first, count } = self.namespaces.swap_remove(index).pages;
        // In place, its content is let go once nobody can find it any more.
        let is_mapped = self.layer.ftl().is_some();
        if is_mapped {
            let trimmed = self.trim(first, count);
            self.fail_on(trimmed)?;
        }
        self.checkpoint()?;
        if is_mapped { Ok(()) } else { Ok(self.store.discard(MediaPage(first.0), count)?) }
    }

    /// Enables a configuration of data placement, or disables it. Nothing may be on the drive.
    pub(crate) fn enable(
        &mut self,
        configuration: Option<usize>,
        now: Option<Nanos>,
    ) -> Result<(), FlashError> {
        self.is_alive()?;
        let options: FtlOptions = self.parameters.ftl_options(configuration)?;
        let handles = options.handles.len();
        if let Layer::Mapped(ftl) = &mut self.layer {
            **ftl = ftl.reformat(options)?;
        }
        if let Some((timeline, now)) = self.timeline.as_mut().zip(now) {
            timeline.close_all(now);
            timeline.placed.clear();
        }
        *self.places() = self.parameters.places();
        self.placement = Placement::new(configuration, handles, self.totals());
        self.checkpoint()
    }

    /// The namespace with this number, if it still is the one that a device was made for.
    pub(crate) fn living(&self, id: u32, birth: u64) -> Option<&NamespaceRecord> {
        self.namespace(id).filter(|namespace| namespace.birth == birth)
    }

    /// The die that holds an LBA, if it lies on the media.
    pub(crate) fn die(&mut self, namespace: u32, lba: Lba) -> Result<Option<u32>, FlashError> {
        let page_size = u64::from(self.parameters.page_size);
        let index = lba.offset(self.parameters.lba_size) / page_size;
        let pages = self.namespace(namespace).map(|one| one.pages);
        let Some(Extent { first, .. }) = pages.filter(|one| index < u64::from(one.count)) else {
            let why = format!("{}: namespace {namespace} has no LBA {}", self.name, lba.0);
            return Err(FlashError::Invalid(why));
        };
        let page = first + u32::try_from(index).expect("below the count of pages");
        let stripe_pages = self.parameters.program_size / self.parameters.page_size;
        let Some(stripe) = self.layer.locate(page).map(|at| at.0 / stripe_pages) else {
            return Ok(None);
        };
        let in_turn = stripe % self.parameters.dies;
        Ok(Some(self.places().as_ref().map_or(in_turn, |places| places.die_of(stripe))))
    }

    /// The namespace with this number.
    pub(crate) fn namespace(&self, id: u32) -> Option<&NamespaceRecord> {
        self.namespaces.iter().find(|namespace| namespace.id == id)
    }

    /// The group and the handle of a placement id: the upper bits name the group.
    pub(super) fn resolve(
        &self,
        namespace: &NamespaceRecord,
        id: PlacementId,
    ) -> Option<(u16, u16)> {
        let groups = self.layer.ftl().map_or(1, |ftl| ftl.options().groups);
        let (group, index) = match group_bits(groups) {
            0 => (0, id.0),
            bits => (id.0 >> (16 - bits), id.0 & u16::MAX.checked_shr(bits.into()).unwrap_or(0)),
        };
        let handle = namespace.handles.get(usize::from(index))?;
        (group < groups).then_some((group, *handle))
    }

    /// Points the handles of these ids to empty reclaim units; the first wrong id ends it before
    /// anything is done. When the device under the drive fails meanwhile, the next command tells.
    pub(crate) fn update_handles(
        &mut self,
        part: (u32, u64),
        ids: &[PlacementId],
        now: Option<Nanos>,
    ) -> Result<(), u16> {
        let namespace = self.living(part.0, part.1).cloned();
        let resolve = |&id: &PlacementId| {
            let target = namespace.as_ref().and_then(|namespace| self.resolve(namespace, id));
            target.map(|at| (id, at)).ok_or(id.0)
        };
        let targets = ids.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        for (placement, (group, handle)) in targets {
            if self.failed.is_some() {
                break;
            }
            let (mut array, layer) = self.array(now);
            let Layer::Mapped(ftl) = layer else { continue };
            let unwritten = ftl.update(group, handle, &mut array);
            let settled = array.settle();
            if self.fail_on(settled).is_ok() && unwritten > 0 {
                let at = (group, handle);
                self.record_event(EventType::NotFullyWritten, part.0, Some(placement), at);
            }
        }
        Ok(())
    }

    pub(super) fn record_event(
        &mut self,
        kind: EventType,
        namespace: u32,
        placement: Option<PlacementId>,
        (group, handle): (u16, u16),
    ) {
        let event = PlacementEvent {
            kind,
            timestamp_ms: self.now.0 / 1_000_000,
            placement,
            namespace: Some(namespace),
            location: Some((group, handle)),
            moved: None,
        };
        self.placement.record(Some(handle), event);
    }

    /// Makes everything written durable.
    pub(crate) fn commit(&mut self) -> Result<(), FlashError> {
        self.is_alive()?;
        let Some(image) = &mut self.image else { return Ok(()) };
        let erased = image.commit(self.store.port(), &self.device, self.host);
        let erased = self.fail_on(erased)?;
        let discarded = self.discard(erased);
        self.fail_on(discarded)
    }

    fn discard(&mut self, erased: impl IntoIterator<Item = UnitId>) -> Result<(), FlashError> {
        let pages = self.parameters.unit_pages();
        for unit in erased {
            // A unit that was opened again since holds new data.
            let is_free = self.layer.ftl().is_some_and(|ftl| ftl.is_free(unit));
            if is_free {
                self.store.discard(unit.first_page(pages), pages)?;
            }
        }
        Ok(())
    }

    /// Writes the whole state down.
    pub(crate) fn checkpoint(&mut self) -> Result<(), FlashError> {
        self.is_alive()?;
        let places = self.places().as_ref();
        let dies = places.map_or_else(Vec::new, |places| places.records().to_vec());
        let Some(image) = &mut self.image else { return Ok(()) };
        let ftl = self.layer.ftl();
        let state = Checkpoint {
            configuration: self.placement.enabled,
            counts: self.layer.counts(),
            host: self.host,
            since: self.placement.since,
            namespaces: self.namespaces.clone(),
            units: ftl.map_or_else(Vec::new, |ftl| ftl.unit_records().collect()),
            map: ftl.map_or_else(Vec::new, |ftl| ftl.map().to_vec()),
            dies,
        };
        let written = image.checkpoint(self.store.port(), &self.device, &state);
        self.fail_on(written)
    }

    /// The array under the layer, for one command that starts now or takes no time.
    pub(super) fn array(&mut self, now: Option<Nanos>) -> (Stage<'_>, &mut Layer) {
        let Drive {
            store, timeline, untimed_places, image, device, parameters, layer, host, ..
        } = self;
        let page_size = parameters.page_size;
        let stage = Stage {
            store,
            timeline: timeline.as_mut().zip(now),
            places: untimed_places.as_mut(),
            image: image.as_mut(),
            device,
            page_size,
            unit_pages: parameters.unit_pages(),
            host: *host,
            source: Source::default(),
            run: None,
            moved: Vec::new(),
            error: None,
        };
        (stage, layer)
    }

    /// Whether it goes on.
    pub(super) fn is_alive(&self) -> Result<(), FlashError> {
        match self.gone() {
            None => Ok(()),
            Some(gone) => Err(DeviceError::new(&self.name, OpKind::Open, Lba(0), 0, gone).into()),
        }
    }

    /// Why it does not go on.
    pub(super) fn gone(&self) -> Option<Cause> {
        let failed = self.failed.as_ref()?;
        Some(Cause::Gone(format!("the drive has failed ({failed}); open it again")))
    }

    /// After an error in the middle of a change, nothing goes on.
    pub(super) fn fail_on<T>(&mut self, result: Result<T, FlashError>) -> Result<T, FlashError> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        result
    }
}

/// Checks the parts of a checkpoint that the translation layer does not check.
fn check(parameters: &Parameters, checkpoint: &Checkpoint) -> Result<(), FlashError> {
    let corrupt = |what: String| Err(FlashError::Corrupt(format!("the image is damaged: {what}")));
    if let Some(index) = checkpoint.configuration
        && index >= parameters.configurations.len()
    {
        return corrupt(format!("there is no configuration {index} of data placement"));
    }
    // Far beyond any drive's life, and far from where a sum or a product overflows.
    let most = (1u64 << 62) / u64::from(parameters.page_size);
    let PageCounts { host, copied, erased, trimmed } = checkpoint.counts;
    let is_sane = [host, copied, erased, trimmed].iter().all(|&pages| pages < most);
    let HostCounts { reads, writes, read_bytes, written_bytes } = checkpoint.host;
    let is_sane =
        is_sane && [reads, writes, read_bytes, written_bytes].iter().all(|&n| n < 1 << 62);
    if !is_sane {
        return corrupt("a counter is larger than a drive lives".to_owned());
    }
    let handles = match parameters.media {
        Media::Flash => parameters.ftl_options(checkpoint.configuration)?.handles.len(),
        Media::InPlace => 1,
    };
    let mut end_of_last = 0;
    let mut in_order: Vec<_> = checkpoint.namespaces.iter().collect();
    in_order.sort_unstable_by_key(|namespace| namespace.pages.first);
    for NamespaceRecord { id, pages: Extent { first, count }, handles: own, .. } in in_order {
        let end = u64::from(*first) + u64::from(*count);
        if *count == 0 || u64::from(*first) < end_of_last || *id == 0 {
            return corrupt(format!("namespace {id} has pages of another, or none"));
        }
        if end > u64::from(parameters.logical_pages()?) {
            return corrupt(format!("namespace {id} lies beyond the drive"));
        }
        if own.is_empty() || own.iter().any(|&handle| usize::from(handle) >= handles) {
            return corrupt(format!("namespace {id} has a handle that is not there, or none"));
        }
        end_of_last = end;
    }
    let mut ids: Vec<_> = checkpoint.namespaces.iter().map(|namespace| namespace.id).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return corrupt("two namespaces have the same number".to_owned());
    }
    Ok(())
}

impl Drop for Drive {
    fn drop(&mut self) {
        if self.failed.is_none() {
            // A caller that needs to know flushes first; this saves as much as it can.
            let _ = self.commit();
        }
    }
}
